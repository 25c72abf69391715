package indexnow

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors/announce/queue"
)

// What the engine does not accept for good leaves the queue; the rest is sent again.
func TestAQueueSubmitsWhatIsAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // hosts are sent to side by side
		var hosts []string
		began := time.Now()
		transport := transportFunc(func(r *http.Request) (*http.Response, error) {
			var s submission
			if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
				t.Error(err)
			}
			mu.Lock()
			hosts = append(hosts, s.Host)
			mu.Unlock()
			switch {
			case slices.Contains(s.URLList, "https://bad.example/1"):
				return answer(422, ""), nil
			case s.Host == "busy.example" && time.Since(began) < time.Minute:
				resp := answer(429, "")
				resp.Header.Set("Retry-After", "60")
				return resp, nil
			}
			return answer(200, ""), nil
		})
		c, err := New(Config{Key: testKey, HTTPClient: &http.Client{Transport: transport}})
		if err != nil {
			t.Fatal(err)
		}
		done := make(map[string]error)
		q, err := c.NewQueue(queue.Config{Delay: time.Nanosecond, Done: func(url string, err error) {
			mu.Lock()
			defer mu.Unlock()
			done[url] = err
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = q.Run(ctx) }()
		for _, url := range []string{"https://a.example", "https://bad.example/1", "https://busy.example/1"} {
			if err := q.Add(url); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // one request after another
		}
		mu.Lock()
		_, isDone := done["https://bad.example/1"]
		mu.Unlock()
		if isDone {
			t.Error("given up, though no other page of its host was accepted")
		}
		if err := q.Add("https://bad.example/2"); err != nil {
			t.Fatal(err)
		}
		if err := q.Add("ftp://a.example/"); err == nil {
			t.Error("accepted")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		// Twice by itself, then the other page, and then itself once more.
		counts := make(map[string]int)
		for _, host := range hosts {
			counts[host]++
		}
		if want := map[string]int{"a.example": 1, "bad.example": 4, "busy.example": 2}; !maps.Equal(counts, want) {
			t.Errorf("requests: %v; want %v", counts, want)
		}
		if err, ok := done["https://a.example/"]; len(done) != 4 || !ok || err != nil ||
			!errors.Is(done["https://bad.example/1"], ErrUnprocessable) || done["https://busy.example/1"] != nil {
			t.Errorf("done: %v", done)
		}
		cancel()
		synctest.Wait()
	})
}
