package updatecache

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/servertest"
)

// caches answers the requests of a Queue, and remembers them.
type caches struct {
	t       *testing.T
	delay   time.Duration
	answer  func(r *http.Request) (status int, retryAfter string)
	mu      sync.Mutex
	seen    []string // hosts and paths
	at      []time.Duration
	flushed []cacheurl.URL
	failed  map[string]error // by URL
	began   time.Time
}

func (c *caches) RoundTrip(r *http.Request) (*http.Response, error) {
	status, retryAfter := http.StatusOK, ""
	c.mu.Lock()
	file, _, _ := strings.Cut(r.URL.Opaque, "?")
	c.seen = append(c.seen, r.URL.Host+file)
	c.at = append(c.at, time.Since(c.began))
	if c.answer != nil {
		status, retryAfter = c.answer(r)
	}
	c.mu.Unlock()
	time.Sleep(c.delay)
	if status == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {retryAfter}}, Body: io.NopCloser(strings.NewReader("OK"))}, nil
}

// asked returns how often each host and path was asked for.
func (c *caches) asked() map[string]int {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := make(map[string]int)
	for _, s := range c.seen {
		asked[s]++
	}
	return asked
}

// newQueue returns a Queue. Call it in a synctest bubble.
func newQueue(c *caches, change func(*Config, *QueueConfig)) *Queue {
	c.t.Helper()
	c.began, c.failed = time.Now(), make(map[string]error)
	client := Config{Signer: toolboxKey(), Caches: cacheurl.DefaultCaches()[:1], HTTPClient: &http.Client{Transport: c}}
	cfg := QueueConfig{
		Flushed: func(u cacheurl.URL) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.flushed = append(c.flushed, u)
		},
		Failed: func(u cacheurl.URL, err *Error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.failed[u.Publisher] = err
		},
	}
	if change != nil {
		change(&client, &cfg)
	}
	own, err := New(client)
	if err != nil {
		c.t.Fatal(err)
	}
	q, err := NewQueue(own, cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	return q
}

// run runs a queue until the test ends.
func run(t *testing.T, q *Queue) *Queue {
	t.Helper()
	servertest.Background(t, q.Run)
	synctest.Wait()
	return q
}

// isWithinLimit checks that the rate limit was kept.
func (c *caches) isWithinLimit() {
	c.t.Helper()
	for i := maxRequests; i < len(c.at); i++ {
		if gap := c.at[i] - c.at[i-maxRequests]; gap < time.Second {
			c.t.Errorf("%d requests in %v", maxRequests+1, gap)
		}
	}
}

func add(t *testing.T, q *Queue, pages ...string) {
	t.Helper()
	for _, page := range pages {
		if err := q.Add("https://" + page); err != nil {
			t.Errorf("Add(%s): %v", page, err)
		}
	}
}

func TestAQueueFlushesEachURLOnceOnEachCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &caches{t: t}
		q := run(t, newQueue(c, func(cfg *Config, _ *QueueConfig) { cfg.Caches = cacheurl.DefaultCaches() }))
		add(t, q, "www.example.com/a", "WWW.example.com/a#top", "www.example.com/a")
		sized := cacheurl.URL{Publisher: "https://www.example.com/b.png", Type: cacheurl.SizedImage, ImageParams: "w800"}
		if err := q.AddURL(sized); err != nil {
			t.Error(err)
		}
		one := cacheurl.URL{Publisher: "https://www.example.com/c.woff2", Type: cacheurl.Resource, Cache: cacheurl.DefaultCaches()[1]}
		if err := q.AddURL(one); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		want := map[string]int{
			"www-example-com.cdn.ampproject.org/update-cache/c/s/www.example.com/a":           1,
			"www-example-com.cdn.ampproject.org/update-cache/ii/w800/s/www.example.com/b.png": 1,
			"www-example-com.www.bing-amp.com/update-cache/c/s/www.example.com/a":             1,
			"www-example-com.www.bing-amp.com/update-cache/ii/w800/s/www.example.com/b.png":   1,
			"www-example-com.www.bing-amp.com/update-cache/r/s/www.example.com/c.woff2":       1,
		}
		if got := c.asked(); !maps.Equal(got, want) {
			t.Errorf("%v", got)
		}
		if got := q.Stats(); got != (QueueStats{Added: 5, Repeated: 4, Flushed: 5}) || len(c.flushed) != 5 {
			t.Errorf("%+v, %v", got, c.flushed)
		}
		if !slices.Contains(c.flushed, one) {
			t.Errorf("%+v; want %+v", c.flushed, one)
		}
		add(t, q, "www.example.com/a") // it has changed again
		time.Sleep(10 * time.Second)
		if got := q.Stats().Flushed; got != 7 {
			t.Errorf("%d flushes", got)
		}
	})
}

// Add does not wait, although a host gets at most 10 requests in any second.
func TestAQueueKeepsTheRateLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &caches{t: t, delay: 200 * time.Millisecond}
		q := run(t, newQueue(c, nil))
		begun := time.Now()
		for i := range 50 {
			add(t, q, fmt.Sprintf("www.example.com/%d", i))
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("Add waited for %v", took)
		}
		time.Sleep(8 * time.Second) // Delay is 1 s, and each 10 requests take 1.2 s
		if got := q.Stats(); got.Flushed != 50 {
			t.Errorf("%+v", got)
		}
		c.isWithinLimit()
	})
}

// What fails is asked for again after a backoff, or after the longest Retry-After of the batch.
func TestWhatFailsStaysInTheQueue(t *testing.T) {
	t.Parallel()
	type answer struct {
		status     int
		retryAfter string
	}
	for name, test := range map[string]struct {
		a, b    answer
		atLeast time.Duration
	}{
		"no answer":                  {answer{0, ""}, answer{0, ""}, 500 * time.Millisecond},
		"503":                        {answer{503, ""}, answer{503, ""}, 500 * time.Millisecond},
		"429":                        {answer{429, ""}, answer{429, ""}, 500 * time.Millisecond},
		"429 with Retry-After":       {answer{429, "120"}, answer{429, "1"}, 2 * time.Minute},
		"503 with Retry-After":       {answer{503, ""}, answer{503, "120"}, 2 * time.Minute},
		"of the cache, then of host": {answer{503, ""}, answer{429, "120"}, 2 * time.Minute},
		"of the host, then of cache": {answer{429, "120"}, answer{503, "1"}, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &caches{t: t}
				c.answer = func(r *http.Request) (int, string) {
					switch {
					case len(c.seen) > 2:
						return 200, ""
					case strings.Contains(r.URL.Opaque, "/b"):
						return test.b.status, test.b.retryAfter
					}
					return test.a.status, test.a.retryAfter
				}
				q := run(t, newQueue(c, nil))
				add(t, q, "www.example.com/a", "www.example.com/b")
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if got := q.Stats(); got.Flushed != 2 || got.Retried != 2 || got.Err != nil || len(c.at) != 4 || c.at[2]-c.at[1] < test.atLeast {
					t.Errorf("%+v, at %v", got, c.at)
				}
			})
		})
	}
}

func TestADeniedURLIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &caches{t: t, answer: func(r *http.Request) (int, string) {
			if strings.Contains(r.URL.Opaque, "/bad") {
				return 403, ""
			}
			return 200, ""
		}}
		q := run(t, newQueue(c, nil))
		add(t, q, "www.example.com/bad", "www.example.com/good")
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := q.Stats(); got.Failed != 1 || got.Flushed != 1 || got.Waiting != 0 || len(c.seen) != 2 {
			t.Errorf("%+v, %q", got, c.seen)
		}
		if err := c.failed["https://www.example.com/bad"]; !errors.Is(err, ErrForbidden) || len(c.failed) != 1 {
			t.Errorf("%v", c.failed)
		}
	})
}

// A 429 delays only its host, and a failure only its cache.
func TestFailuresDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &caches{t: t, answer: func(r *http.Request) (int, string) {
			switch {
			case strings.Contains(r.URL.Host, "bing"):
				return 500, "3600"
			case strings.HasPrefix(r.URL.Host, "busy-example."):
				return 429, "3600"
			}
			return 200, ""
		}}
		q := run(t, newQueue(c, func(cfg *Config, _ *QueueConfig) { cfg.Caches = cacheurl.DefaultCaches() }))
		for i := range 20 {
			add(t, q, fmt.Sprintf("busy.example/%d", i), fmt.Sprintf("www%d.example/", i))
		}
		time.Sleep(10 * time.Second)
		if got := q.Stats(); got.Flushed != 20 || got.Waiting != 60 || got.Failed != 0 || got.Err == nil {
			t.Errorf("%+v", got)
		}
	})
}

// No URL is lost, and no slot of the rate limit, while the key management service of the Signer is down.
func TestAFailingSignerLosesNothing(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("no connection") },
		"panic": func() error { panic("no connection") },
		"exit":  func() error { runtime.Goexit(); return nil }, // as testing.T.FailNow does
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				isDown := true
				signer := service{toolboxKey().Public(), func(digest []byte) ([]byte, error) {
					mu.Lock()
					defer mu.Unlock()
					if isDown {
						return nil, fail()
					}
					return rsa.SignPKCS1v15(rand.Reader, toolboxKey(), crypto.SHA256, digest)
				}}
				c := &caches{t: t}
				q := newQueue(c, func(cfg *Config, _ *QueueConfig) { cfg.Signer = signer })
				add(t, q, "www.example.com/a", "www.example.com/b")
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				panicked := func() (p any) {
					defer func() { p = recover() }()
					_ = q.Run(ctx)
					return nil
				}()
				if (panicked == nil) != (name == "error") {
					t.Errorf("Run panicked with %v", panicked)
				}
				if got := q.Stats(); got.Waiting != 2 || len(c.seen) != 0 {
					t.Errorf("%+v, %q", got, c.seen)
				}
				mu.Lock()
				isDown = false
				mu.Unlock()
				time.Sleep(time.Hour) // the backoff
				if unsent, err := q.Shutdown(t.Context()); unsent != nil || err != nil || q.Stats().Flushed != 2 {
					t.Errorf("%v, %v, %+v", unsent, err, q.Stats())
				}
				for host, h := range q.client.limit.hosts {
					if h.users != 0 || len(h.free) != maxRequests {
						t.Errorf("%s has %d users, and %d slots are free", host, h.users, len(h.free))
					}
				}
			})
		})
	}
}

// What Shutdown returns can be added again.
func TestShutdownReturnsWhatIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &caches{t: t, answer: func(r *http.Request) (int, string) {
			if strings.Contains(r.URL.Host, "bing") {
				return 503, ""
			}
			return 200, ""
		}}
		config := func(cfg *Config, _ *QueueConfig) { cfg.Caches = cacheurl.DefaultCaches() }
		q := newQueue(c, config)
		add(t, q, "www.example.com/a?b='c'", "bücher.example/")
		for _, u := range []cacheurl.URL{{Publisher: "https://faß.de/", Prefix: "fass-de"}, {Publisher: "https://www.example.com/", Type: "ad", AnyType: true}} {
			if err := q.AddURL(u); err != nil {
				t.Fatal(err)
			}
		}
		unsent, err := q.Shutdown(t.Context())
		if len(unsent) != 4 || !errors.Is(err, ErrServer) || q.Stats().Flushed != 4 || slices.ContainsFunc(c.flushed, func(u cacheurl.URL) bool { return u.Publisher == "" }) {
			t.Errorf("%v, %v, %+v", unsent, err, q.Stats())
		}
		if err := q.Add("https://www.example.com/"); !errors.Is(err, ErrClosed) {
			t.Errorf("Add: %v", err)
		}
		if _, err := q.Shutdown(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("Shutdown: %v", err)
		}
		c = &caches{t: t}
		q = newQueue(c, config)
		for _, u := range unsent {
			if err := q.AddURL(u); err != nil {
				t.Error(err)
			}
		}
		if unsent, err := q.Shutdown(t.Context()); unsent != nil || err != nil {
			t.Errorf("%v, %v", unsent, err)
		}
		again := c.asked()
		if again["fass-de.www.bing-amp.com/update-cache/c/s/xn--fa-hia.de/"] != 1 || again["www-example-com.www.bing-amp.com/update-cache/ad/s/www.example.com/"] != 1 {
			t.Errorf("asked for %v", again)
		}
		for asked := range again {
			if host, _, _ := strings.Cut(asked, "/"); !strings.HasSuffix(host, ".www.bing-amp.com") {
				t.Errorf("asked %s", host)
			}
		}
		if len(c.seen) != 4 {
			t.Errorf("%q", c.seen)
		}
	})
}

func TestAQueueRejectsInvalidUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(&caches{t: t}, func(_ *Config, cfg *QueueConfig) { cfg.Capacity = 1 })
		add(t, q, "www.example.com/1")
		if err := q.Add("https://www.example.com/2"); !errors.Is(err, ErrFull) {
			t.Errorf("Add: %v", err)
		}
		for want, u := range map[string]cacheurl.URL{
			"an image or a font":                {Publisher: "https://www.example.com/a.png"},
			"a query of a cache":                {Publisher: "https://www.example.com/a", CacheQuery: "amp_js_v=1"},
			"a cache that is not configured":    {Publisher: "https://www.example.com/a", Cache: cacheurl.DefaultCaches()[1]},
			"a scheme other than http or https": {Publisher: "ftp://www.example.com/a"},
		} {
			if err := q.AddURL(u); !errors.As(err, new(*badvalue.Error)) {
				t.Errorf("%s: %v", want, err)
			}
		}
		run(t, q)
		if err := q.Run(t.Context()); !errors.Is(err, ErrRunning) {
			t.Errorf("Run: %v", err)
		}
		for _, cfg := range []QueueConfig{{Delay: -1}, {Capacity: -1}, {Parallel: -1}} {
			if _, err := NewQueue(q.client, cfg); !errors.As(err, new(*badvalue.Error)) {
				t.Errorf("%+v: %v", cfg, err)
			}
		}
		if _, err := NewQueue(nil, QueueConfig{}); !errors.As(err, new(*badvalue.Error)) {
			t.Errorf("no client: %v", err)
		}
	})
}

// Run panics with what a hook panics with, although other caches have nothing to do.
func TestAPanicOfAHookIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &caches{t: t}
		q := newQueue(c, func(cfg *Config, queue *QueueConfig) {
			cfg.Caches = cacheurl.DefaultCaches()
			queue.Flushed = func(u cacheurl.URL) {
				if u.Cache.ID == "google" {
					panic("hook")
				}
			}
		})
		add(t, q, "www.example.com/")
		begun := time.Now()
		panicked := func() (p any) {
			defer func() { p = recover() }()
			_ = q.Run(t.Context())
			return nil
		}()
		if took := time.Since(begun); panicked != "hook" || took > time.Minute {
			t.Errorf("%v after %v", panicked, took)
		}
	})
}

// In a short Shutdown, URLs that wait for the rate limit do not stop those of other hosts.
func TestTheRateLimitIsNoFailureOfTheCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &caches{t: t, delay: 50 * time.Millisecond}
		q := newQueue(c, nil)
		for i := range 16 * 20 {
			add(t, q, fmt.Sprintf("big%d.example/%d", i%16, i))
		}
		time.Sleep(time.Second)
		for i := range 50 {
			add(t, q, fmt.Sprintf("small%d.example/", i))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
		defer cancel()
		unsent, _ := q.Shutdown(ctx)
		for _, u := range unsent {
			if strings.HasPrefix(u.Publisher, "https://small") {
				t.Errorf("%s is left", u.Publisher)
			}
		}
		if got := q.Stats(); len(unsent) != 160 || got.Retried != 0 {
			t.Errorf("%d are left, %+v", len(unsent), got)
		}
	})
}

// Flushes of the program itself use up the rate limit too.
func TestAQueueSharesTheRateLimitWithFlush(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &caches{t: t}
		q := run(t, newQueue(c, nil))
		for i := range 5 {
			add(t, q, fmt.Sprintf("www.example.com/%d", i))
		}
		for range 30 {
			go q.client.Flush(t.Context(), "https://www.example.com/")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := q.Stats(); got.Flushed != 5 || len(c.at) != 35 {
			t.Errorf("%+v, %d requests", got, len(c.at))
		}
		c.isWithinLimit()
	})
}
