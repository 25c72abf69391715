package indexnow

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// workOf returns the steps in heaps for each request, while this many URLs wait at this many
// hosts and are sent.
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
func TestTheWorkForARequestDoesNotGrow(t *testing.T) {
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

// slowEngine returns an engine whose answers take a time.
func slowEngine(d time.Duration) *fakeEngine {
	return &fakeEngine{answer: func(r *http.Request, _ submission) *http.Response {
		select {
		case <-time.After(d):
			return answer(200, "")
		case <-r.Context().Done():
			return nil
		}
	}}
}

// drain adds a URL for each host, and returns how long it takes until all are sent.
func drain(t *testing.T, q *Queue, hosts int) time.Duration {
	t.Helper()
	for i := range hosts {
		add(t, q, fmt.Sprintf("%d.of-%d.example/", i, hosts))
	}
	time.Sleep(q.cfg.Delay)
	begun := time.Now()
	for q.Stats().Waiting > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begun)
}

func TestHostsAreServedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, slowEngine(200*time.Millisecond), QueueConfig{Parallel: 16})
		if took := drain(t, q, 100); took > 3*time.Second {
			t.Errorf("100 hosts took %v", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, slowEngine(200*time.Millisecond), QueueConfig{Parallel: 16})
		few := drain(t, q, 200) / 200
		if many := drain(t, q, 5000) / 5000; many > few {
			t.Errorf("each of 5,000 hosts took %v, each of 200 %v", many, few)
		}
	})
}

// At most Parallel requests are in progress, and one for each host. After a failure there is
// one alone.
func TestParallelIsALimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		hosts := make(map[string]bool)
		most, isDown := 0, false
		e := &fakeEngine{answer: func(_ *http.Request, s submission) *http.Response {
			mu.Lock()
			if hosts[s.Host] {
				t.Errorf("two requests for %s", s.Host)
			}
			hosts[s.Host] = true
			most = max(most, len(hosts))
			mu.Unlock()
			time.Sleep(200 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			delete(hosts, s.Host)
			if isDown {
				return answer(503, "")
			}
			return answer(200, "")
		}}
		atOnce := func() int { // at most, since the last call
			mu.Lock()
			defer mu.Unlock()
			n := most
			most = 0
			return n
		}
		q := newQueue(t, e, QueueConfig{Parallel: 5})
		for i := range 100 {
			add(t, q, fmt.Sprintf("%d.example/1", i), fmt.Sprintf("%d.example/2", i))
		}
		time.Sleep(time.Minute)
		if got, n := q.Stats(), atOnce(); got.Accepted != 200 || n != 5 {
			t.Errorf("%+v; %d requests at once", got, n)
		}
		mu.Lock()
		isDown = true
		mu.Unlock()
		for i := range 100 {
			add(t, q, fmt.Sprintf("%d.example/3", i))
		}
		time.Sleep(10 * time.Second) // 5 requests, which were under way, fail
		atOnce()
		time.Sleep(time.Hour)
		if n := atOnce(); n != 1 {
			t.Errorf("%d requests at once while the engine is down", n)
		}
		e.acceptAll()
		time.Sleep(time.Hour)
		if got := q.Stats(); got.Accepted != 300 || got.Err != nil {
			t.Errorf("%+v", got)
		}
	})
}

// A backoff of the engine begins once, however many requests were under way.
func TestRequestsUnderWayCountOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var isDown atomic.Bool
		e := &fakeEngine{}
		e.answer = func(*http.Request, submission) *http.Response {
			time.Sleep(time.Second)
			if isDown.Load() {
				return answer(503, "")
			}
			return answer(200, "")
		}
		q := newQueue(t, e, QueueConfig{Parallel: 16})
		drain(t, q, 100)
		isDown.Store(true)
		for i := range 100 {
			add(t, q, fmt.Sprintf("%d.other.example/", i))
		}
		time.Sleep(q.cfg.Delay + 1500*time.Millisecond)
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.schedule.engine.failures != engineFailures || time.Until(q.schedule.engine.until) > time.Second {
			t.Errorf("%+v", q.schedule.engine)
		}
	})
}

// With many URLs, Add does not wait, and Shutdown keeps its deadline. BenchmarkQueue has the
// times.
func TestShutdownWithManyURLs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, slowEngine(10*time.Second), QueueConfig{})
		for i := range 20_000 {
			add(t, q, fmt.Sprintf("%d.example/", i))
		}
		time.Sleep(6 * time.Second) // a request is under way
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		unsent, err := q.Shutdown(ctx)
		if took := time.Since(begun); took > time.Second || err == nil || len(unsent) != 20_000 {
			t.Errorf("%d unsent, %v, after %v", len(unsent), err, took)
		}
	})
}

// An acceptingTransport accepts everything at once.
type acceptingTransport struct{}

func (acceptingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	_, err := io.Copy(io.Discard, r.Body)
	return answer(200, ""), err
}

func filledQueue(b *testing.B, waiting int) (q *Queue, urls func(i int) string) {
	b.Helper()
	client, err := New(Config{Key: testKey, HTTPClient: &http.Client{Transport: acceptingTransport{}}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	q, err = NewQueue(client, QueueConfig{Capacity: 2_000_000, Hold: 1, Delay: 1})
	if err != nil {
		b.Fatal(err)
	}
	urls = func(i int) string {
		return fmt.Sprintf("https://www.publisher-%d.example/articles/%d", i%(waiting/10), i)
	}
	for i := range waiting {
		if err := q.Add(urls(i)); err != nil {
			b.Fatal(err)
		}
	}
	return q, urls
}

// BenchmarkQueue measures a request with 10 URLs, and adding them again, while many URLs wait.
func BenchmarkQueue(b *testing.B) {
	for _, waiting := range []int{1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			q, _ := filledQueue(b, waiting)
			results := make(chan result, 1)
			b.ReportAllocs()
			for b.Loop() {
				r, ok := q.take(false, 0)
				if !ok {
					b.Fatal("nothing to send")
				}
				q.send(b.Context(), r, results)
				q.settle(b.Context(), <-results)
				for _, u := range r.batch.URLs {
					if err := q.Add(u); err != nil {
						b.Fatal(err)
					}
				}
			}
			if q.Stats().Waiting != waiting {
				b.Errorf("%d URLs wait", q.Stats().Waiting)
			}
		})
	}
}

// BenchmarkAdd measures the slowest of many calls of Add while a million URLs wait and are sent,
// and how long Shutdown takes beyond its deadline.
func BenchmarkAdd(b *testing.B) {
	const waiting = 1_000_000
	var slowest, late time.Duration
	for b.Loop() {
		q, urls := filledQueue(b, waiting)
		go func() { _ = q.Run(b.Context()) }()
		for i := range 200_000 {
			begun := time.Now()
			if err := q.Add(strings.Replace(urls(i), "articles", "news", 1)); err != nil {
				b.Fatal(err)
			}
			slowest = max(slowest, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(b.Context(), 500*time.Millisecond)
		begun := time.Now()
		unsent, _ := q.Shutdown(ctx)
		late = max(late, time.Since(begun)-500*time.Millisecond)
		cancel()
		if len(unsent) == 0 {
			b.Error("everything was sent before the deadline")
		}
	}
	b.ReportMetric(float64(slowest.Microseconds())/1000, "ms-slowest-Add")
	b.ReportMetric(float64(late.Microseconds())/1000, "ms-late-Shutdown")
}
