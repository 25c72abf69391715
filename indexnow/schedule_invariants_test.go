package indexnow

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"
)

// checkSchedule checks the bookkeeping.
func checkSchedule(s *schedule) error {
	again := 0
	queued := 0
	for u, e := range s.urls {
		if e.url != u {
			return fmt.Errorf("url %s", u)
		}
		if s.hosts[e.host.name] != e.host {
			return fmt.Errorf("host of %s", u)
		}
		if e.again {
			again++
			if e.isQueued {
				return fmt.Errorf("again and queued")
			}
		}
		if e.isQueued {
			queued++
		} else if !e.host.isSending {
			return fmt.Errorf("%s is nowhere", u)
		}
	}
	if again != s.again {
		return fmt.Errorf("again %d %d", again, s.again)
	}
	n := 0
	for _, h := range s.hosts {
		n += len(h.waiting)
		for i, e := range h.waiting {
			if !e.isQueued || e.host != h || s.urls[e.url] != e {
				return fmt.Errorf("waiting")
			}
			if i > 0 && e.ready.Before(h.waiting[(i-1)/2].ready) {
				return fmt.Errorf("heap of host")
			}
		}
		inRound := slices.Contains(s.round.hosts, h)
		inReady := slices.Contains(s.byReady.hosts, h)
		inDue := slices.Contains(s.byDue.hosts, h)
		if inRound != h.isInRound || inReady != inDue || h.isSending && (inRound || inReady) || inRound && inReady || !h.isSending && !inRound && !inReady {
			return fmt.Errorf("%s: round %v ready %v due %v %+v", h.name, inRound, inReady, inDue, h)
		}
		if !h.isSending && len(h.waiting) == 0 {
			return fmt.Errorf("empty")
		}
		if inReady && (!h.readyAt.Equal(later(h.waiting[0].ready, h.until)) || !h.dueAt.Equal(later(h.waiting[0].ready.Add(s.delay), h.until))) {
			return fmt.Errorf("times")
		}
	}
	if n != queued {
		return fmt.Errorf("queued %d %d", n, queued)
	}
	for _, a := range []*hostHeap{&s.byReady, &s.byDue, &s.round} {
		for i, h := range a.hosts {
			if h.index[a.which] != i || s.hosts[h.name] != h {
				return fmt.Errorf("index")
			}
			if i > 0 && a.less(h, a.hosts[(i-1)/2]) {
				return fmt.Errorf("heap %d", a.which)
			}
		}
	}
	if len(s.round.hosts) > maxRound {
		return fmt.Errorf("round")
	}
	return nil
}

func TestTheScheduleKeepsItsInvariants(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 7))
		c, err := New(Config{Key: testKey, HTTPClient: &http.Client{Transport: acceptingTransport{}}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		fc := &stepClock{now: time.Now()}
		c.clock = fc
		reported := map[string]int{}
		taken := map[string]int{}
		hook := func(b Batch) {
			for _, u := range b.URLs {
				reported[u]++
			}
		}
		q, _ := NewQueue(c, QueueConfig{Parallel: 1 + r.IntN(5), Capacity: 400, Hold: 20 * time.Second, Accepted: hook, Failed: hook, ResubmitPending: seed%2 == 0})
		var open []result
		hosts := 3 + r.IntN(200)
		for step := range 1500 {
			switch r.IntN(6) {
			case 0, 1:
				u := fmt.Sprintf("https://%d.example/%d", r.IntN(hosts), r.IntN(5))
				before := q.Stats().Added
				if q.Add(u) == nil && q.Stats().Added > before {
					taken[u]++
				}
			case 2:
				fc.now = fc.now.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
			case 3, 4:
				if x, ok := q.take(r.IntN(10) == 0, len(open)); ok {
					for _, o := range open {
						if o.host == x.host {
							t.Fatal("two for a host")
						}
					}
					for _, e := range x.entries {
						if e.ready.After(fc.now) {
							t.Fatal("not ready")
						}
					}
					if q.schedule.engine.until.After(fc.now) || x.host.until.After(fc.now) {
						t.Fatal("backoff")
					}
					if len(open) >= q.cfg.Parallel {
						t.Fatal("parallel")
					}
					open = append(open, x)
				} else if at, waits := q.schedule.next(false); waits && !at.After(fc.now) && len(open) < q.schedule.width {
					t.Fatalf("seed %d step %d: busy loop", seed, step)
				}
			case 5:
				if len(open) == 0 {
					continue
				}
				i := r.IntN(len(open))
				x := open[i]
				open = slices.Delete(open, i, i+1)
				random := rand.New(rand.NewPCG(seed, uint64(step)))
				sub := *c
				sub.http = &http.Client{Transport: transportFunc(func(*http.Request) (*http.Response, error) {
					switch random.IntN(9) {
					case 0:
						return answer(503, ""), nil
					case 1:
						return answer(429, ""), nil
					case 2, 3, 4:
						return answer(422, ""), nil
					case 5:
						return answer(202, ""), nil
					case 6:
						return answer(403, `{"errorCode":"SiteVerificationNotCompleted"}`), nil
					case 7:
						return nil, io.EOF
					}
					return answer(200, ""), nil
				})}
				if random.IntN(20) == 0 {
					x.panicked = "x"
				} else {
					x.parts, x.problem, _ = sub.send(t.Context(), c.retry, x.batch, func() bool { return true })
					var all []string
					for _, p := range x.parts {
						all = append(all, p.URLs...)
					}
					if !slices.Equal(all, x.batch.URLs) {
						t.Fatal("urls of parts")
					}
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
		}
	}
}

type stepClock struct{ now time.Time }

func (c *stepClock) Now() time.Time                       { return c.now }
func (c *stepClock) After(time.Duration) <-chan time.Time { return nil }
