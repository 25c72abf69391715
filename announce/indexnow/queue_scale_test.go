package indexnow

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

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

func filledQueue(b *testing.B, waiting int, cfg QueueConfig) (q *Queue, urls func(i int) string) {
	b.Helper()
	accept := transportFunc(func(r *http.Request) (*http.Response, error) {
		_, err := io.Copy(io.Discard, r.Body)
		return answer(200, ""), err
	})
	client, err := New(Config{Key: testKey, HTTPClient: &http.Client{Transport: accept}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	cfg.Capacity, cfg.Hold, cfg.Delay = 2_000_000, 1, 1
	q, err = NewQueue(client, cfg)
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
			next, done := make(chan struct{}), make(chan struct{})
			var q *Queue
			q, _ = filledQueue(b, waiting, QueueConfig{Parallel: 1, Accepted: func(batch Batch) {
				for _, u := range batch.URLs {
					if err := q.Add(u); err != nil {
						b.Error(err)
					}
				}
				select {
				case done <- struct{}{}:
					<-next
				case <-b.Context().Done():
				}
			}})
			go func() { _ = q.Run(b.Context()) }()
			<-done
			b.ReportAllocs()
			for b.Loop() {
				next <- struct{}{}
				<-done
			}
			if got := q.Stats().Waiting; got != waiting {
				b.Errorf("%d URLs wait", got)
			}
			close(next)
		})
	}
}

// BenchmarkAdd measures the slowest of many calls of Add while a million URLs wait and are sent,
// and how long Shutdown takes beyond its deadline.
func BenchmarkAdd(b *testing.B) {
	const waiting = 1_000_000
	var slowest, late time.Duration
	for b.Loop() {
		q, urls := filledQueue(b, waiting, QueueConfig{})
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
