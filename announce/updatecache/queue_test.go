package updatecache

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors/announce/queue"
	"github.com/ampcors/ampcors/cacheurl"
)

// Each cache is asked by itself. What is left can be added again, for the cache that has not answered.
func TestAQueueFlushesOnEachCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // the caches are asked at the same time
		var asked []string
		isDown := true
		transport := roundTripper(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			asked = append(asked, r.URL.Host)
			mu.Unlock()
			if isDown && strings.HasSuffix(r.URL.Host, "bing-amp.com") {
				return nil, io.ErrUnexpectedEOF
			}
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("OK"))}, nil
		})
		// Google and Bing
		c, err := New(Config{Signer: toolboxKey(), Caches: cacheurl.DefaultCaches()[:2], HTTPClient: &http.Client{Transport: transport}})
		if err != nil {
			t.Fatal(err)
		}
		shutdown := func(add ...string) (unsent []string) {
			t.Helper()
			asked = nil
			q, err := c.NewQueue(queue.Config{})
			if err != nil {
				t.Fatal(err)
			}
			for _, page := range add {
				if err := q.Add(page); err != nil {
					t.Error(err)
				}
			}
			unsent, err = q.Shutdown(t.Context())
			if (err == nil) == isDown {
				t.Errorf("%q, %v", unsent, err)
			}
			slices.Sort(asked)
			time.Sleep(2 * time.Second) // the rate limit
			return unsent
		}
		unsent := shutdown("https://www.example.com/a")
		if want := []string{"https://www-example-com.www.bing-amp.com/c/s/www.example.com/a"}; !slices.Equal(unsent, want) || len(asked) != 2 {
			t.Errorf("%q; want %q; asked %q", unsent, want, asked)
		}
		isDown = false
		if unsent := shutdown(unsent...); len(unsent) != 0 || !slices.Equal(asked, []string{"www-example-com.www.bing-amp.com"}) {
			t.Errorf("%q; asked %q", unsent, asked)
		}
		// A Retry-After is kept, and the request is signed again.
		var signed []string
		var at []time.Duration
		began := time.Now()
		c.http.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			signed, at = append(signed, r.URL.RawQuery), append(at, time.Since(began))
			if len(signed) == 1 {
				return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"90"}}, Body: http.NoBody}, nil
			}
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("OK"))}, nil
		})
		q, _ := c.NewQueue(queue.Config{Delay: time.Nanosecond})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = q.Run(ctx) }()
		if err := q.Add("https://www-example-com.cdn.ampproject.org/c/s/www.example.com/b"); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute)
		cancel()
		synctest.Wait()
		if len(signed) != 2 || signed[0] == signed[1] || at[1] < 90*time.Second {
			t.Errorf("%q after %v", signed, at)
		}
		for _, wrong := range []string{"", "https://www.example.com/a.jpg", "https://a-example.cdn.ampproject.org/c/s/b.example/"} {
			if err := q.Add(wrong); err == nil {
				t.Errorf("%q is accepted", wrong)
			}
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
