package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ampcors/ampcors/internal/outbound"
)

// checkSchedule checks that the maps, heaps and counts of a schedule agree.
func checkSchedule(s *schedule) error {
	again := 0
	queued := 0
	for u, e := range s.urls {
		if e.url != u {
			return fmt.Errorf("%s is the key of another URL", u)
		}
		if s.hosts[e.host.name] != e.host {
			return fmt.Errorf("the host of %s is not in hosts", u)
		}
		if e.isAddedAgain {
			again++
			if e.isQueued {
				return fmt.Errorf("a URL is marked as queued and as added again")
			}
		}
		if e.isQueued {
			queued++
		} else if !e.host.isSending {
			return fmt.Errorf("%s neither waits nor is being sent", u)
		}
	}
	if again != s.addedAgain {
		return fmt.Errorf("%d URLs are marked as added again; the count is %d", again, s.addedAgain)
	}
	n := 0
	for _, h := range s.hosts {
		n += len(h.waiting)
		for i, e := range h.waiting {
			if !e.isQueued || e.host != h || s.urls[e.url] != e {
				return fmt.Errorf("a host has a URL that does not wait")
			}
			if i > 0 && e.ready.Before(h.waiting[(i-1)/2].ready) {
				return fmt.Errorf("the heap of a host is out of order")
			}
		}
		inRound := slices.Contains(s.round.hosts, h)
		inReady := slices.Contains(s.byReady.hosts, h)
		inDue := slices.Contains(s.byDue.hosts, h)
		if inRound != h.isInRound || inReady != inDue || h.isSending && (inRound || inReady) || inRound && inReady || !h.isSending && !inRound && !inReady {
			return fmt.Errorf("%s: round %v ready %v due %v %+v", h.name, inRound, inReady, inDue, h)
		}
		if !h.isSending && len(h.waiting) == 0 {
			return fmt.Errorf("a host without URLs is kept")
		}
		if inReady && (!h.readyAt.Equal(later(h.waiting[0].ready, later(h.until, h.pausedUntil))) || !h.dueAt.Equal(later(h.waiting[0].ready.Add(s.delay), later(h.until, h.pausedUntil)))) {
			return fmt.Errorf("readyAt or dueAt is wrong")
		}
	}
	if n != queued {
		return fmt.Errorf("%d URLs are in the heaps of hosts; %d are marked as queued", n, queued)
	}
	for _, a := range []*hostHeap{&s.byReady, &s.byDue, &s.round} {
		for i, h := range a.hosts {
			if h.index[a.which] != i || s.hosts[h.name] != h {
				return fmt.Errorf("a heap has a host with a wrong index, or one that was removed")
			}
			if i > 0 && a.less(h, a.hosts[(i-1)/2]) {
				return fmt.Errorf("the heap of hosts %d is out of order", a.which)
			}
		}
	}
	if len(s.round.hosts) > maxRound {
		return fmt.Errorf("round has more than maxRound hosts")
	}
	return nil
}

func TestTheScheduleKeepsItsInvariants(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 7))
		clock := &stepClock{now: time.Now()}
		cfg := Config{Parallel: 1 + r.IntN(5), Capacity: 400, Hold: 20 * time.Second, Delay: 5 * time.Second, MaxBatch: 10_000, Pause: time.Duration(r.IntN(2)) * time.Second, Clock: clock, Wait: outbound.Retry{Backoff: time.Second}.Wait}
		q, problems := New("test", cfg)
		if problems != nil {
			t.Fatal(problems)
		}
		reported := make(map[string]int)
		var open []request
		hosts := 3 + r.IntN(200)
		for step := range 1500 {
			switch r.IntN(6) {
			case 0, 1:
				host := fmt.Sprintf("%d.example", r.IntN(hosts))
				_ = q.Add(fmt.Sprintf("https://%s/%d", host, r.IntN(5)), host) // it may be full
			case 2:
				clock.now = clock.now.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
			case 3, 4:
				if x, ok := q.take(r.IntN(10) == 0, len(open)); ok {
					for _, o := range open {
						if o.host == x.host {
							t.Fatal("a host has two requests in progress")
						}
					}
					for _, e := range x.entries {
						if e.ready.After(clock.now) {
							t.Fatal("a URL is sent before it is ready")
						}
					}
					if q.schedule.service.until.After(clock.now) || later(x.host.until, x.host.pausedUntil).After(clock.now) {
						t.Fatal("a request is made during a backoff")
					}
					if len(open) >= q.cfg.Parallel {
						t.Fatal("more than Parallel requests are in progress")
					}
					open = append(open, x)
				} else if at, waits := q.schedule.next(false); waits && !at.After(clock.now) && len(open) < q.schedule.width {
					t.Fatalf("seed %d step %d: busy loop", seed, step)
				}
			case 5:
				if len(open) == 0 {
					continue
				}
				i := r.IntN(len(open))
				x := open[i]
				open = slices.Delete(open, i, i+1)
				if r.IntN(20) == 0 {
					x.panicked = "x"
				} else {
					x.parts, x.problem = randomParts(r, x.urls, reported)
				}
				func() {
					defer func() { _ = recover() }()
					q.settle(t.Context(), x)
				}()
			}
			if err := checkSchedule(&q.schedule); err != nil {
				t.Fatalf("seed %d step %d: %v", seed, step, err)
			}
			st := q.Stats()
			if st.Added != st.Accepted+st.Failed+uint64(st.Waiting) {
				t.Fatalf("seed %d: %+v", seed, st)
			}
			n := 0
			for _, times := range reported {
				n += times
			}
			if uint64(n) != st.Accepted+st.Failed {
				t.Fatalf("seed %d: %d URLs were reported, %+v", seed, n, st)
			}
		}
	}
}

// randomParts returns random results of a batch. Their Report counts the URLs.
func randomParts(r *rand.Rand, urls []string, reported map[string]int) (parts []Part, problem *Problem) {
	failed := errors.New("failed")
	for len(urls) > 0 {
		part := urls[:1+r.IntN(len(urls))]
		urls = urls[len(part):]
		p := Part{URLs: part}
		switch r.IntN(6) {
		case 0:
			p.Err = failed
		case 1:
			p.IsPending = true
		case 2:
			p.IsPending, p.IsKept = true, true
		case 3:
			problem = &Problem{Err: failed, IsRetryable: true, IsAnswered: r.IntN(2) == 0, IsHostOnly: r.IntN(3) == 0, IsRateLimit: r.IntN(3) == 0}
			p.URLs = append(slices.Clone(part), urls...)
			p.Err, p.IsKept, urls = failed, true, nil
		}
		p.Report = func(context.Context) {
			for _, u := range part {
				reported[u]++
			}
		}
		parts = append(parts, p)
	}
	return parts, problem
}

type stepClock struct{ now time.Time }

func (c *stepClock) Now() time.Time                       { return c.now }
func (c *stepClock) After(time.Duration) <-chan time.Time { return nil }
