package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors/internal/outbound"
	"github.com/ampcors/ampcors/internal/servertest"
)

// workOf returns the heap steps per request when this many URLs of this many hosts are sent.
func workOf(t *testing.T, urls, hosts int) float64 {
	t.Helper()
	s := newSchedule(time.Second, 1)
	now := time.Now()
	for i := range urls {
		s.add(fmt.Sprint("https://", i%hosts, ".example/", i), fmt.Sprint(i%hosts, ".example"), now.Add(time.Duration(i*7919%urls)))
	}
	s.work = 0
	sent, requests := 0, 0
	for now = now.Add(time.Minute); ; requests++ {
		batch := s.take(now, false, 10)
		if batch == nil {
			break
		}
		h := batch[0].host
		h.isSending = false
		s.answered(h, s.generation)
		for _, e := range batch {
			s.drop(e)
		}
		s.update(h)
		sent += len(batch)
	}
	if sent != urls || s.len() != 0 || len(s.hosts) != 0 {
		t.Errorf("%d of %d URLs were sent; %d are left, at %d hosts", sent, urls, s.len(), len(s.hosts))
	}
	return float64(s.work) / float64(requests)
}

// The work for a request grows with the logarithm of what waits.
func TestTheWorkForARequestGrowsWithTheLogarithm(t *testing.T) {
	t.Parallel()
	for name, hosts := range map[string]func(urls int) int{
		"one host":   func(int) int { return 1 },
		"many hosts": func(urls int) int { return urls / 10 },
	} {
		few, many := workOf(t, 1000, hosts(1000)), workOf(t, 100_000, hosts(100_000))
		if many > 2.5*few { // log2(100,000)/log2(1,000) is 1.7
			t.Errorf("%s: %.0f steps for a request while 100,000 URLs wait, %.0f while 1,000 do", name, many, few)
		}
	}
}

// A service takes the batches of a Queue.
type service struct {
	delay  time.Duration
	isDown atomic.Bool
}

func (s *service) send(_ context.Context, _ string, urls []string, _ func() bool) ([]Part, *Problem, any) {
	time.Sleep(s.delay)
	if s.isDown.Load() {
		err := errors.New("down")
		return []Part{{URLs: urls, Err: err, IsKept: true}}, &Problem{Err: err, IsRetryable: true, IsAnswered: true}, nil
	}
	return []Part{{URLs: urls}}, nil, nil
}

// newQueue returns a Queue that does not run.
func newQueue(t *testing.T, s *service, cfg Config) *Queue {
	t.Helper()
	Default(&cfg.Delay, 5*time.Second)
	Default(&cfg.Capacity, 1000)
	Default(&cfg.Parallel, 1)
	cfg.MaxBatch = 10_000
	cfg.Clock, cfg.Wait, cfg.Send = outbound.SystemClock{}, outbound.Retry{Backoff: time.Second}.Wait, s.send
	q, problems := New("test", cfg)
	if problems != nil {
		t.Fatal(problems)
	}
	return q
}

// run runs a queue until the test ends. Call it in a synctest bubble.
func run(t *testing.T, q *Queue) *Queue {
	t.Helper()
	servertest.Background(t, q.Run)
	synctest.Wait()
	return q
}

func add(t *testing.T, q *Queue, urls ...string) {
	t.Helper()
	for _, u := range urls {
		host, _, _ := strings.Cut(u, "/")
		if err := q.Add(u, host); err != nil {
			t.Errorf("Add(%s): %v", u, err)
		}
	}
}

// A backoff of the service begins once, however many requests are in progress.
func TestABackoffOfTheServiceBeginsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{delay: time.Second}
		q := run(t, newQueue(t, s, Config{Parallel: 16}))
		for i := range 100 {
			add(t, q, fmt.Sprintf("%d.example/", i))
		}
		time.Sleep(time.Minute)
		s.isDown.Store(true)
		for i := range 100 {
			add(t, q, fmt.Sprintf("%d.other.example/", i))
		}
		time.Sleep(q.cfg.Delay + 1500*time.Millisecond)
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.schedule.service.failures != serviceFailures || time.Until(q.schedule.service.until) > time.Second {
			t.Errorf("%+v", q.schedule.service)
		}
	})
}

// URLs that were sent are remembered for Hold, and at most Capacity of them.
func TestWhatWasSentIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := run(t, newQueue(t, &service{}, Config{Hold: 10 * time.Minute, Capacity: 3}))
		remembered := func() int {
			synctest.Wait()
			q.mu.Lock()
			defer q.mu.Unlock()
			return max(len(q.sent), len(q.sentLog))
		}
		add(t, q, "a/1", "a/2", "a/3")
		time.Sleep(10 * time.Second)
		add(t, q, "a/4", "a/5")
		time.Sleep(10 * time.Second)
		if n := remembered(); n != 3 {
			t.Errorf("%d are remembered; want as many as Capacity", n)
		}
		time.Sleep(time.Hour)
		add(t, q, "a/6")
		time.Sleep(10 * time.Second)
		if n := remembered(); n != 1 {
			t.Errorf("%d are remembered after Hold", n)
		}
	})
}

// TestTheServiceBackoffDoublesAndEndsWithAnAnswer checks step by step how long the service gets no requests.
func TestTheServiceBackoffDoublesAndEndsWithAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, &service{}, Config{})
		settle := func(problem *Problem) time.Duration {
			name := fmt.Sprint(rand.Int(), ".example")
			q.settle(t.Context(), request{parts: []Part{}, host: newHost(&q.schedule, name), generation: q.schedule.generation, problem: problem})
			return max(0, time.Until(q.schedule.service.until))
		}
		between := func(least, got, most time.Duration) {
			t.Helper()
			if got < least || got > most {
				t.Errorf("waits %v; want %v to %v", got, least, most)
			}
		}
		failed := errors.New("failed")
		down := func() *Problem { return &Problem{Err: failed, IsRetryable: true, IsAnswered: true} }
		for name, answer := range map[string]func() *Problem{
			"accepted":              func() *Problem { return nil },
			"rejected":              func() *Problem { return &Problem{Err: failed, IsAnswered: true} },
			"a problem of the host": func() *Problem { return &Problem{Err: failed, IsAnswered: true, IsHostOnly: true} },
			"a retryable problem of the host": func() *Problem {
				return &Problem{Err: failed, IsAnswered: true, IsHostOnly: true, IsRetryable: true, RetryAfter: time.Hour}
			},
		} {
			for range 10 { // an answer between failures shows that the service is up
				between(0, settle(down()), 0)
				between(0, settle(&Problem{Err: failed, IsRetryable: true}), 0)
				between(0, settle(answer()), 0)
				if t.Failed() {
					t.Fatal(name)
				}
			}
		}
		wait := time.Second
		for range 20 {
			settle(down())
			settle(down())
			between(wait/2, settle(down()), wait)
			wait = min(2*wait, time.Minute)
			q.schedule.service.until = time.Time{}
		}
		settle(nil)
		settle(down())
		settle(down())
		asked := down()
		asked.RetryAfter = time.Hour
		between(time.Hour, settle(asked), time.Hour)
		between(0, settle(nil), 0)
		between(time.Hour, settle(&Problem{Err: failed, IsRetryable: true, IsAnswered: true, IsRateLimit: true, RetryAfter: time.Hour}), time.Hour)
		between(0, settle(nil), 0)
		between(time.Second/2, settle(&Problem{Err: failed, IsRetryable: true, IsAnswered: true, IsRateLimit: true}), time.Second)
	})
}
