package ampcors_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/source"
)

// A setSource is a Source in memory that can be slow, fail or hang.
type setSource struct {
	mu       sync.Mutex
	domains  map[string]bool
	prefixes map[string]string
	asked    []string // the first 1000 keys
	count    int
	err      error
	delay    time.Duration // by the clock of synctest
	hold     chan struct{} // if not nil, lookups wait until it is closed before they return

	running, most atomic.Int32
	notify        func(...string)
	stopped       int
}

func newSetSource(domains ...string) *setSource {
	s := &setSource{domains: make(map[string]bool), prefixes: make(map[string]string)}
	for _, d := range domains {
		s.add(d)
	}
	return s
}

func (s *setSource) add(domain string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.domains[domain], s.prefixes[plainHash(domain)] = true, domain
}

func (s *setSource) remove(domain string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.domains, domain)
	delete(s.prefixes, plainHash(domain))
}

func (s *setSource) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *setSource) lookups() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// answer looks up the answer before it waits, so that the answer can be out of date.
func (s *setSource) answer(ctx context.Context, key string) (known bool, domain string, err error) {
	s.most.Store(max(s.most.Load(), s.running.Add(1)))
	defer s.running.Add(-1)
	s.mu.Lock()
	if s.count++; s.count <= 1000 {
		s.asked = append(s.asked, key)
	}
	known, domain, err = s.domains[key], s.prefixes[key], s.err
	delay, hold := s.delay, s.hold
	s.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return false, "", ctx.Err()
		}
	}
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return false, "", ctx.Err()
		}
	}
	return known, domain, err
}

func (s *setSource) HasPublisher(ctx context.Context, domain string) (bool, error) {
	known, _, err := s.answer(ctx, domain)
	return known, err
}

func (s *setSource) PublisherByHash(ctx context.Context, prefix string) (string, error) {
	_, domain, err := s.answer(ctx, prefix)
	return domain, err
}

// source returns s with notifications.
func (s *setSource) source() source.Source {
	return source.Source{HasPublisher: s.HasPublisher, PublisherByHash: s.PublisherByHash, Notify: func(changed func(domains ...string)) (stop func()) {
		s.notify = changed
		return func() { s.stopped++ }
	}}
}

func (s *setSource) cache(t testing.TB, options ...source.Options) *source.Cache {
	t.Helper()
	return cacheOf(t, s.source(), options...)
}

// cacheOf returns a Cache of a Source. Without options, it has the defaults.
func cacheOf(t testing.TB, s source.Source, options ...source.Options) *source.Cache {
	t.Helper()
	c, err := source.New(s, append(options, source.Options{})[0])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// withSource moves the publishers that are listed exactly to a Source.
func withSource(t testing.TB, cfg ampcors.Config) (ampcors.Config, *setSource) {
	t.Helper()
	s := newSetSource()
	var patterns []string
	for _, p := range cfg.Publishers {
		if strings.HasPrefix(p, "*.") {
			patterns = append(patterns, p)
		} else {
			s.add(plainParse(p))
		}
	}
	cfg.Publishers, cfg.Source = patterns, s.cache(t)
	return cfg, s
}

// Copied from package source.
const (
	failuresToOpen = 3
	openFor        = time.Second
)

const otherOrigin = "https://other-example.cdn.ampproject.org"

var errDown = errors.New("the database is down")

// wantReason checks the decision on an origin.
func wantReason(t *testing.T, m *ampcors.Middleware, origin string, want ampcors.Reason) {
	t.Helper()
	if d := m.CheckOrigin(origin); d.Reason != want {
		t.Errorf("%s: %s (%v); want %s", origin, d.Reason, d.SourceErr, want)
	}
}

func TestASourcesPublishersAreAllowedInEveryForm(t *testing.T) {
	cfg := testConfig()
	cfg, s := withSource(t, cfg)
	m := newMiddleware(t, cfg)
	static := newMiddleware(t, testConfig())
	for range 2 { // from the Source, then from memory
		for _, origin := range []string{
			cacheOrigin, bingOrigin, hashOrigin, idnOrigin, ownOrigin, evilOrigin, unknownHashOrigin, wildOrigin, playgroundOrigin,
			"https://xn--bcher-kva.ch", "https://" + plainHash("xn--bcher-kva.ch") + ".cdn.ampproject.org", "https://evil.example", "null",
		} {
			if got, want := m.CheckOrigin(origin), static.CheckOrigin(origin); got != want {
				t.Errorf("with a Source  %+v\nwith a list    %+v", got, want)
			}
		}
	}
	// One lookup for each domain and each hash: two publishers by both, and three others.
	if want := 7; s.lookups() != want {
		t.Errorf("%d lookups, %q; want %d", s.lookups(), s.asked, want)
	}
}

func TestASourceIsNotAskedWhatItCannotKnow(t *testing.T) {
	cfg, s := withSource(t, testConfig())
	cfg.Publishers = append(cfg.Publishers, "listed.example", "*.wild.example")
	m := newMiddleware(t, cfg)
	for _, origin := range []string{
		"", "null", "http://www.example.com", "https://", "https://localhost", "https://127.0.0.1", "https://a-.example.com", "https://example.com.",
		"https://WWW.example.com", "https://www.example.com:8443", "https://xn--zzzzzz99999.example", "https://" + strings.Repeat("a.", 200) + "com",
		"https://cdn.ampproject.org", "https://a.b.cdn.ampproject.org", "https://a---b-c.cdn.ampproject.org", "https://0-a-b-0.cdn.ampproject.org",
		"https://" + plainHash("www.example.com")[:51] + "b.cdn.ampproject.org", "https://hash.cdn.ampproject.org",
		// Reserved hosts, of caches and their frames.
		"https://d-1.ampproject.net", "https://www.bing-amp.com", "https://cdn-ampproject-org.cdn.ampproject.org", "https://a-cdn-ampproject-org.www.bing-amp.com",
		// Publishers that Config lists or matches.
		"https://listed.example", "https://listed-example.cdn.ampproject.org", "https://" + plainHash("listed.example") + ".cdn.ampproject.org", "https://a-wild-example.cdn.ampproject.org", "https://a.wild.example",
	} {
		m.CheckOrigin(origin)
	}
	if len(s.asked) > 0 {
		t.Errorf("asked for %q", s.asked)
	}
}

func TestAnswersAreRememberedForTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com")
		m := newMiddleware(t, ampcors.Config{Source: s.cache(t, source.Options{TTL: time.Minute, NegativeTTL: 10 * time.Second})})
		for _, origin := range []string{cacheOrigin, hashOrigin, ownOrigin} {
			s.add("www.example.com")
			time.Sleep(time.Hour)
			if d := m.CheckOrigin(origin); !d.Allowed {
				t.Errorf("%+v", d)
			}
			s.remove("www.example.com")
			time.Sleep(time.Minute - 1)
			if d := m.CheckOrigin(origin); !d.Allowed || d.Stale {
				t.Errorf("%s: %+v, within the TTL", origin, d)
			}
			time.Sleep(time.Nanosecond)
			if d := m.CheckOrigin(origin); d.Allowed {
				t.Errorf("%s: allowed after the TTL", origin)
			}
			s.add("www.example.com")
			time.Sleep(10*time.Second - 2) // the negative answer is from a refresh, 1 ns before the TTL ended
			if d := m.CheckOrigin(origin); d.Allowed {
				t.Errorf("%s: asked for within the NegativeTTL", origin)
			}
			time.Sleep(2 * time.Nanosecond)
			if d := m.CheckOrigin(origin); !d.Allowed {
				t.Errorf("%s: denied after the NegativeTTL: %+v", origin, d)
			}
		}
	})
}

func TestConcurrentLookupsForOneKeyAreCoalesced(t *testing.T) {
	for _, origin := range []string{cacheOrigin, hashOrigin, ownOrigin, evilOrigin} {
		t.Run(origin, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSetSource("www.example.com")
				s.delay = 100 * time.Millisecond
				m := newMiddleware(t, ampcors.Config{Source: s.cache(t)})
				want := origin != evilOrigin
				var group sync.WaitGroup
				begun := time.Now()
				for i := range 100 {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					group.Go(func() {
						time.Sleep(time.Duration(i) * time.Microsecond)
						r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
						r.Header.Set("Origin", origin)
						d := m.Check(r)
						switch {
						case i == 50:
							if d.Reason != ampcors.ReasonSourceUnavailable || !errors.Is(d.SourceErr, context.Canceled) || time.Since(begun) > 10*time.Millisecond {
								t.Errorf("the canceled request waits %v: %+v", time.Since(begun), d)
							}
						case i > 0 && d.Allowed != want: // the lookup of the first goes on, though its client leaves
							t.Errorf("%s: %+v", origin, d)
						}
					})
					if i == 0 || i == 50 {
						time.AfterFunc(time.Millisecond, cancel)
					}
				}
				group.Wait()
				if s.lookups() != 1 {
					t.Errorf("%s: %d lookups", origin, s.lookups())
				}
				if stats := m.Config().Source.Stats(); stats.Lookups != 1 || stats.Coalesced != 99 {
					t.Errorf("%+v", stats)
				}
			})
		})
	}
}

func TestInventedOriginsDoNotEvictOrExceedTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, rate, seconds = 100, 50, 20
		s := newSetSource()
		for i := range size {
			s.add(fmt.Sprintf("good-%d.example", i))
		}
		m := newMiddleware(t, ampcors.Config{Source: s.cache(t, source.Options{MaxEntries: size, MaxRate: rate, TTL: time.Hour})})
		for i := range size {
			time.Sleep(time.Second)
			wantReason(t, m, fmt.Sprintf("https://good-%d.example", i), ampcors.ReasonOwnOrigin)
		}
		before := s.lookups()
		for i := range seconds * 1000 {
			time.Sleep(time.Millisecond)
			switch d := m.CheckOrigin(fmt.Sprintf("https://bad-%d.example", i)); d.Reason {
			case ampcors.ReasonUnknownHost:
			case ampcors.ReasonSourceUnavailable:
				if d.SourceErr != source.ErrRateLimited {
					t.Fatal(d.SourceErr)
				}
			default:
				t.Fatalf("%+v", d)
			}
		}
		asked := s.lookups() - before
		if asked > rate*seconds+rate/10+1 || asked < rate*seconds*9/10 {
			t.Errorf("%d lookups in %d seconds; the rate is %d", asked, seconds, rate)
		}
		stats := m.Config().Source.Stats()
		if stats.Publishers != size || stats.Negatives > size || int(stats.RateLimited) != seconds*1000-asked {
			t.Errorf("%+v", stats)
		}
		for i := range size {
			wantReason(t, m, fmt.Sprintf("https://good-%d.example", i), ampcors.ReasonOwnOrigin)
		}
		if s.lookups() != before+asked {
			t.Error("known publishers were asked for again")
		}
		// The rate limit does not apply to remembered publishers.
		time.Sleep(2 * time.Hour)
		for i := range size {
			wantReason(t, m, fmt.Sprintf("https://good-%d.example", i), ampcors.ReasonOwnOrigin)
			m.CheckOrigin(fmt.Sprintf("https://worse-%d.example", i))
		}
		if m.CheckOrigin("https://worst.example").SourceErr != source.ErrRateLimited {
			t.Error("the rate limit was not reached")
		}

	})
}

// Invented prefixes evict no prefix of a publisher, whose requests then need no lookup.
func TestInventedPrefixesAreNotRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 100
		s := newSetSource("xn--bcher-kva.ch", "www.example.com")
		m := newMiddleware(t, ampcors.Config{Source: s.cache(t, source.Options{MaxEntries: size, MaxRate: 50, TTL: time.Hour})})
		wantReason(t, m, idnOrigin, ampcors.ReasonCacheOrigin)
		wantReason(t, m, hashOrigin, ampcors.ReasonCacheOriginHash)
		prefixes := m.Config().Source.Stats().Prefixes
		for i := range size {
			time.Sleep(time.Second)
			m.CheckOrigin("https://" + plainToASCII(fmt.Sprintf("bücher-%d-ch", i)) + ".cdn.ampproject.org")
			m.CheckOrigin("https://" + plainHash(fmt.Sprintf("bad-%d.example", i)) + ".cdn.ampproject.org")
		}
		if m.Config().Source.Stats().Prefixes != prefixes {
			t.Error("invented prefixes are remembered")
		}
		before := s.lookups()
		wantReason(t, m, idnOrigin, ampcors.ReasonCacheOrigin)
		wantReason(t, m, hashOrigin, ampcors.ReasonCacheOriginHash)
		if s.lookups() != before {
			t.Error("publishers were asked for again")
		}
	})
}

// A known publisher gets a slot, however many invented origins wait for a slow Source.
func TestInventedOriginsDoNotStarveKnownPublishers(t *testing.T) {
	for _, delay := range []time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 900 * time.Millisecond} {
		t.Run(fmt.Sprint(delay), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSetSource("www.example.com")
				s.delay = delay
				m := newMiddleware(t, ampcors.Config{Source: s.cache(t, source.Options{TTL: 100 * time.Millisecond, MaxConcurrent: 16})})
				wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
				ctx, cancel := context.WithCancel(t.Context())
				var group sync.WaitGroup
				group.Go(func() {
					for i := 0; ctx.Err() == nil; i++ {
						group.Go(func() { m.CheckOrigin(fmt.Sprintf("https://bad-%d.example", i)) })
						time.Sleep(time.Millisecond)
					}
				})
				for range 60 {
					time.Sleep(100 * time.Millisecond)
					if d := m.CheckOrigin(ownOrigin); !d.Allowed || d.Stale {
						t.Errorf("%v: %+v", delay, d)
					}
				}
				cancel()
				group.Wait()
				if stats := m.Config().Source.Stats(); stats.Errors > 0 || stats.CircuitOpen > 0 || stats.Busy == 0 {
					t.Errorf("%v: %+v", delay, stats)
				}
			})
		})
	}
}

func TestWhileTheSourceIsDownOnlyStalePublishersAreAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com", "other.example")
		var observed []ampcors.Decision
		cfg := ampcors.Config{
			Source: s.cache(t, source.Options{TTL: time.Minute, MaxStale: 5 * time.Minute}), Credentialed: true,
			Observe: func(_ *http.Request, d ampcors.Decision) { observed = append(observed, d) },
		}
		m := newMiddleware(t, cfg)
		get := func(origin string) (*httptest.ResponseRecorder, bool) {
			w, r, spy := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), new(spy)
			r.Header.Set("Origin", origin)
			m.Wrap(spy).ServeHTTP(w, r)
			return w, spy.ran
		}
		confirmed := time.Now()
		if _, ran := get(hashOrigin); !ran {
			t.Fatal("not allowed")
		}
		s.fail(errDown)
		time.Sleep(time.Until(confirmed.Add(time.Minute)))
		for _, origin := range []string{cacheOrigin, hashOrigin, ownOrigin} {
			w, ran := get(origin)
			if got := w.Header().Get("Access-Control-Allow-Origin"); !ran || got != origin {
				t.Errorf("%s: handler ran: %t, ACAO %q; it was confirmed a minute ago", origin, ran, got)
			}
			if d := observed[len(observed)-1]; !d.Stale || !d.Allowed || !errors.Is(d.SourceErr, errDown) || d.Publisher != "www.example.com" {
				t.Errorf("observed %+v", d)
			}
		}
		time.Sleep(time.Second)
		w, ran := get(otherOrigin)
		want := http.Header{"Vary": {"Origin"}, "Cache-Control": {"no-store"}, "Retry-After": {"1"}, "Content-Type": {"text/plain; charset=utf-8"}, "X-Content-Type-Options": {"nosniff"}}
		if ran || w.Code != http.StatusServiceUnavailable || fmt.Sprint(w.Header()) != fmt.Sprint(want) || w.Body.String() != "Service Unavailable: source unavailable\n" {
			t.Errorf("handler ran: %t; %d %v %q", ran, w.Code, w.Header(), w.Body)
		}
		if d := observed[len(observed)-1]; d.Stale || d.Reason != ampcors.ReasonSourceUnavailable || d.SourceErr == nil || d.ClaimedPublisher != "other.example" {
			t.Errorf("observed %+v", d)
		}
		if n := m.Stats().Requests[ampcors.ReasonSourceUnavailable]; n != 1 {
			t.Errorf("counted %d times", n)
		}
		if stats := m.Config().Source.Stats(); stats.Stale != 3 || stats.Errors == 0 {
			t.Errorf("%+v", stats)
		}

		time.Sleep(time.Until(confirmed.Add(5*time.Minute - 1)))
		wantReason(t, m, cacheOrigin, ampcors.ReasonCacheOrigin)
		time.Sleep(time.Nanosecond)
		wantReason(t, m, cacheOrigin, ampcors.ReasonSourceUnavailable)
		wantReason(t, m, hashOrigin, ampcors.ReasonSourceUnavailable)

		// No failure is remembered as a negative answer.
		s.fail(nil)
		time.Sleep(openFor)
		wantReason(t, m, cacheOrigin, ampcors.ReasonCacheOrigin)
		wantReason(t, m, otherOrigin, ampcors.ReasonCacheOrigin)
	})
}

func TestRequestsThatNeedNoSourceDoNotWaitForIt(t *testing.T) {
	cfg := testConfig()
	s := newSetSource()
	s.err = errDown
	cfg.Source, cfg.Email = s.cache(t), ampcors.Email{Senders: []string{"news@example.com"}}
	m := newMiddleware(t, cfg)
	for _, origin := range []string{cacheOrigin, bingOrigin, hashOrigin, idnOrigin, ownOrigin, wildOrigin} {
		t.Run(origin, func(t *testing.T) {
			if d := m.CheckOrigin(origin); !d.Allowed || d.SourceErr != nil || d.Stale {
				t.Errorf("%s: %+v", origin, d)
			}
		})
	}
	if s.lookups() != 0 {
		t.Errorf("asked for %q", s.asked)
	}
	for _, test := range []struct {
		method string
		lines  []string
		want   ampcors.Reason
	}{
		{method: "GET", lines: nil, want: ampcors.ReasonNoOrigin},
		{method: "POST", lines: []string{"Origin: https://api.example", "Sec-Fetch-Site: same-origin"}, want: ampcors.ReasonSameOrigin},
		{method: "POST", lines: []string{"Origin: " + playgroundOrigin}, want: ampcors.ReasonExtraOrigin},
		{method: "GET", lines: []string{"Origin: https://mail.google.com"}, want: ampcors.ReasonSourceUnavailable}, // mail.google.com may be a publisher
		{method: "GET", lines: []string{"Origin: https://mail.google.com", "AMP-Email-Sender: news@example.com"}, want: ampcors.ReasonEmail},
		{method: "OPTIONS", lines: []string{"Origin: " + otherOrigin, "Access-Control-Request-Method: POST"}, want: ampcors.ReasonSourceUnavailable},
		{method: "POST", lines: []string{"Origin: " + otherOrigin}, want: ampcors.ReasonSourceUnavailable},
	} {
		t.Run(fmt.Sprint(test.method, " ", test.lines), func(t *testing.T) {
			r := httptest.NewRequest(test.method, "/", nil)
			r.Header = headers(test.lines...)
			before := s.lookups()
			d := m.Check(r)
			if asked := s.lookups() > before; asked && test.want != ampcors.ReasonSourceUnavailable && test.want != ampcors.ReasonExtraOrigin {
				t.Errorf("%s %v: the Source was asked", test.method, test.lines)
			}
			if d.Reason != test.want || (d.SourceErr != nil) != (test.want == ampcors.ReasonSourceUnavailable) {
				t.Errorf("%s %v: %+v", test.method, test.lines, d)
			}
			for _, reportOnly := range []bool{false, true} {
				cfg.ReportOnly = reportOnly
				if err := m.Reconfigure(cfg); err != nil {
					t.Fatal(err)
				}
				w, spy := httptest.NewRecorder(), new(spy)
				m.Wrap(spy).ServeHTTP(w, r)
				if test.want != ampcors.ReasonSourceUnavailable {
					continue
				}
				if spy.ran != reportOnly || w.Code == http.StatusServiceUnavailable == reportOnly || w.Header().Get("Access-Control-Allow-Origin") != "" {
					t.Errorf("%s %v, report only %t: handler ran: %t; %d %v", test.method, test.lines, reportOnly, spy.ran, w.Code, w.Header())
				}
				if vary := w.Header().Get("Vary"); !reportOnly && (vary == "") != (test.method == "OPTIONS") {
					t.Errorf("%s: Vary %q", test.method, vary)
				}
			}
			cfg.ReportOnly = false
		})
	}
}

func TestLookupsThatWaitForASlotEndWhenTheCircuitBreakerOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource()
		s.delay, s.err = 10*time.Millisecond, errDown
		m := newMiddleware(t, ampcors.Config{Source: s.cache(t, source.Options{MaxConcurrent: 1})})
		var group sync.WaitGroup
		for i := range 100 {
			group.Go(func() {
				wantReason(t, m, fmt.Sprintf("https://site-%d.example", i), ampcors.ReasonSourceUnavailable)
			})
		}
		group.Wait()
		if s.lookups() != failuresToOpen {
			t.Errorf("%d lookups", s.lookups())
		}
		s.fail(nil)
		time.Sleep(openFor)
		wantReason(t, m, evilOrigin, ampcors.ReasonPublisherNotAllowed) // and no slot is lost
	})
}

// The requests of a publisher do not wait, one after another, for a Source that hangs.
func TestAHangingSourceDelaysFewRequestsOfAPublisher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com")
		m := newMiddleware(t, ampcors.Config{Source: s.cache(t, source.Options{Timeout: 500 * time.Millisecond})})
		wantReason(t, m, cacheOrigin, ampcors.ReasonCacheOrigin)
		time.Sleep(time.Minute)
		s.hold = make(chan struct{})
		begun, slow := time.Now(), 0
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			asked := time.Now()
			if d := m.CheckOrigin(cacheOrigin); !d.Stale || !errors.Is(d.SourceErr, context.DeadlineExceeded) {
				t.Fatalf("%+v", d)
			}
			if time.Since(asked) > 0 {
				slow++
			}
		}
		if most := int(time.Since(begun)/(1500*time.Millisecond)) + 1; slow > most {
			t.Errorf("%d requests waited in %v", slow, time.Since(begun))
		}
		s.hold = nil
		time.Sleep(time.Second)
		if d := m.CheckOrigin(cacheOrigin); d.Stale || !d.Allowed {
			t.Errorf("%+v", d)
		}
	})
}

func TestASourceThatPanicsHoldsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &panickingSource{}
		m := newMiddleware(t, ampcors.Config{Source: p.cache(t, source.Options{MaxConcurrent: 1})})
		for range 3 {
			go func() {
				time.Sleep(time.Millisecond)
				if d := m.CheckOrigin(cacheOrigin); d.SourceErr != source.ErrPanicked {
					t.Errorf("%+v", d)
				}
			}()
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic was swallowed")
					}
				}()
				m.CheckOrigin(cacheOrigin)
			}()
			synctest.Wait()
			time.Sleep(openFor)
		}
		p.calm = true
		wantReason(t, m, cacheOrigin, ampcors.ReasonPublisherNotAllowed)
	})
}

type panickingSource struct{ calm bool }

func (p *panickingSource) cache(t testing.TB, options source.Options) *source.Cache {
	t.Helper()
	return cacheOf(t, source.Source{HasPublisher: p.HasPublisher}, options)
}

func (p *panickingSource) HasPublisher(context.Context, string) (bool, error) {
	if !p.calm {
		time.Sleep(time.Second / 2)
		panic("a defect")
	}
	return false, nil
}

func TestForgetTakesEffectAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com")
		m := newMiddleware(t, ampcors.Config{Source: s.cache(t)})
		all := map[string]ampcors.Reason{cacheOrigin: ampcors.ReasonCacheOrigin, hashOrigin: ampcors.ReasonCacheOriginHash, ownOrigin: ampcors.ReasonOwnOrigin}
		for range 2 {
			for origin, want := range all {
				wantReason(t, m, origin, want)
			}
			s.remove("www.example.com")
			if err := m.Config().Source.Forget("other.example", "WWW.example.com"); err != nil {
				t.Error(err)
			}
			for origin := range all {
				if m.CheckOrigin(origin).Allowed {
					t.Errorf("%s: allowed after Forget", origin)
				}
			}
			s.add("www.example.com")
			_ = m.Config().Source.Forget("www.example.com")
		}
		// Even while the Source is down, a forgotten publisher is not served stale.
		wantReason(t, m, cacheOrigin, ampcors.ReasonCacheOrigin)
		s.fail(errDown)
		_ = m.Config().Source.Forget("www.example.com")
		for origin := range all {
			wantReason(t, m, origin, ampcors.ReasonSourceUnavailable)
		}
	})
}

// A lookup that runs while its publisher is revoked must not allow it again.
func TestForgetInvalidatesLookupsThatRun(t *testing.T) {
	for _, origin := range []string{cacheOrigin, hashOrigin} {
		t.Run(origin, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSetSource("www.example.com")
				m := newMiddleware(t, ampcors.Config{Source: s.cache(t)})
				hold := make(chan struct{})
				s.hold = hold
				go m.CheckOrigin(origin)
				synctest.Wait()
				s.remove("www.example.com")
				_ = m.Config().Source.Forget("www.example.com")
				s.hold = nil
				if m.CheckOrigin(origin).Allowed {
					t.Error("joined the lookup that began before Forget")
				}
				close(hold)
				synctest.Wait()
				if m.CheckOrigin(origin).Allowed || m.CheckOrigin(ownOrigin).Allowed {
					t.Error("the answer of the lookup that began before Forget was remembered")
				}
			})
		})
	}
}

// A lookup that began before Forget does not end the newer one that others wait for.
func TestALookupFromBeforeForgetDoesNotEndANewerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com")
		m := newMiddleware(t, ampcors.Config{Source: s.cache(t)})
		first, second := make(chan struct{}), make(chan struct{})
		s.hold = first
		go m.CheckOrigin(ownOrigin)
		synctest.Wait()
		_ = m.Config().Source.Forget("www.example.com")
		s.hold = second
		go m.CheckOrigin(ownOrigin)
		synctest.Wait()
		close(first)
		synctest.Wait()
		go m.CheckOrigin(ownOrigin)
		synctest.Wait()
		close(second)
		synctest.Wait()
		if s.lookups() != 2 {
			t.Errorf("%d lookups", s.lookups())
		}
	})
}

// The next request may reuse the memory of a request's Origin.
func TestWhatIsRememberedIsCopiedFromTheRequest(t *testing.T) {
	for _, origin := range []string{cacheOrigin, ownOrigin, hashOrigin, idnOrigin, "https://xn--bcher-kva.ch", evilOrigin, unknownHashOrigin} {
		t.Run(origin, func(t *testing.T) {
			cfg, s := withSource(t, testConfig())
			m := newMiddleware(t, cfg)
			buf := []byte(origin)
			want := m.CheckOrigin(unsafeString(buf)).Reason
			prefixes := m.Config().Source.Stats().Prefixes
			for i := range buf {
				buf[i] = '#'
			}
			wantReason(t, m, origin, want)
			if s.lookups() != 1 || m.Config().Source.Stats().Prefixes != prefixes {
				t.Errorf("%s: %d lookups, %d prefixes; before, %d prefixes", origin, s.lookups(), m.Config().Source.Stats().Prefixes, prefixes)
			}
		})
	}
}

// A lookup that began before notify and Forget does not bring back a stale answer.
func TestForgetAfterANotificationWithoutDomains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com")
		m := newMiddleware(t, ampcors.Config{Source: s.cache(t)})
		hold := make(chan struct{})
		s.hold = hold
		go m.CheckOrigin(ownOrigin)
		synctest.Wait()
		s.notify()
		s.remove("www.example.com")
		_ = m.Config().Source.Forget("www.example.com")
		close(hold)
		synctest.Wait()
		s.hold = nil
		s.fail(errDown)
		wantReason(t, m, ownOrigin, ampcors.ReasonSourceUnavailable)
	})
}

// Two lookups can concern one publisher. The answer of the one that began later counts.
func TestAnOlderAnswerDoesNotReplaceANewerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, asked := range [][2]string{{hashOrigin, ownOrigin}, {ownOrigin, hashOrigin}} {
			for _, revoked := range []bool{true, false} {
				s := newSetSource()
				if revoked {
					s.add("www.example.com")
				}
				m := newMiddleware(t, ampcors.Config{Source: s.cache(t)})
				hold := make(chan struct{})
				s.hold = hold
				go m.CheckOrigin(asked[0])
				synctest.Wait()
				if s.hold = nil; revoked {
					s.remove("www.example.com")
				} else {
					s.add("www.example.com")
				}
				time.Sleep(time.Millisecond)
				if m.CheckOrigin(asked[1]).Allowed == revoked {
					t.Errorf("%s, asked for later, gets the earlier answer", asked[1])
				}
				close(hold)
				synctest.Wait()
				if got := m.CheckOrigin(asked[1]); got.Allowed == revoked {
					t.Errorf("%s, then %s: revoked: %t, but %+v", asked[0], asked[1], revoked, got)
				}
			}
		}
	})
}

// A negative answer is removed once the publisher is confirmed in any form.
func TestAConfirmationReplacesTheNegativeAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource()
		m := newMiddleware(t, ampcors.Config{Source: s.cache(t, source.Options{TTL: time.Minute, NegativeTTL: time.Hour})})
		wantReason(t, m, ownOrigin, ampcors.ReasonUnknownHost)
		s.add("www.example.com")
		time.Sleep(time.Minute)
		wantReason(t, m, hashOrigin, ampcors.ReasonCacheOriginHash)
		time.Sleep(time.Minute)
		wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
	})
}

func TestWhatASourceReturnsIsCopied(t *testing.T) {
	for _, length := range []int{3, 60} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			good, evil := strings.Repeat("good.", length)+"example", strings.Repeat("evil.", length)+"example"
			if len(good) > 253 {
				good, evil = good[len(good)-253+3:], evil[len(evil)-253+3:]
			}
			row := []byte(good) // the Source returns its memory, and overwrites it later
			m := newMiddleware(t, ampcors.Config{Source: cacheOf(t, source.Source{
				HasPublisher:    func(context.Context, string) (bool, error) { return false, nil },
				PublisherByHash: func(context.Context, string) (string, error) { return unsafeString(row), nil },
			})})
			byHash := "https://" + plainHash(good) + ".cdn.ampproject.org"
			wantReason(t, m, byHash, ampcors.ReasonCacheOriginHash)
			copy(row, evil)
			wantReason(t, m, "https://"+evil, ampcors.ReasonUnknownHost)
			if d := m.CheckOrigin(byHash); d.Publisher != good {
				t.Errorf("%+v", d)
			}
		})
	}
}

// TestNoRevokedPublisherIsAllowedAfterForget revokes and adds publishers while
// many goroutines call.
func TestNoRevokedPublisherIsAllowedAfterForget(t *testing.T) {
	s := newSetSource()
	m := newMiddleware(t, ampcors.Config{Source: s.cache(t, source.Options{MaxEntries: 4, TTL: time.Millisecond, MaxRate: 1_000_000_000})})
	var group sync.WaitGroup
	done := make(chan struct{})
	forms := func(domain string) []string {
		return []string{"https://" + domain, "https://" + plainHash(domain) + ".cdn.ampproject.org", "https://" + strings.ReplaceAll(domain, ".", "-") + ".cdn.ampproject.org"}
	}
	for i := range 6 {
		domain := fmt.Sprintf("site%d.example", i)
		for _, origin := range forms(domain) {
			group.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
						if d := m.CheckOrigin(origin); d.Allowed && d.Publisher != domain || d.SourceErr != nil {
							t.Errorf("%s: %+v", origin, d)
						}
					}
				}
			})
		}
	}
	for i := range 600 {
		domain := fmt.Sprintf("site%d.example", i%6)
		s.add(domain)
		_ = m.Config().Source.Forget(domain)
		for _, origin := range forms(domain) {
			if !m.CheckOrigin(origin).Allowed {
				t.Errorf("%s: denied after it was added", origin)
			}
		}
		s.remove(domain)
		_ = m.Config().Source.Forget(domain)
		for _, origin := range forms(domain) {
			if m.CheckOrigin(origin).Allowed {
				t.Errorf("%s: allowed after it was revoked", origin)
			}
		}
	}
	close(done)
	group.Wait()
}

func TestReportedChangesTakeEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com")
		m := newMiddleware(t, ampcors.Config{Source: s.cache(t)})
		wantReason(t, m, hashOrigin, ampcors.ReasonCacheOriginHash)
		wantReason(t, m, otherOrigin, ampcors.ReasonPublisherNotAllowed)
		s.remove("www.example.com")
		s.add("other.example")
		s.notify("www.example.com", "other.example")
		wantReason(t, m, hashOrigin, ampcors.ReasonHashNotKnown)
		wantReason(t, m, otherOrigin, ampcors.ReasonCacheOrigin)
	})
}

// A Source that reports no domains may have missed any change.
func TestANotificationWithoutDomainsExpiresEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("other.example")
		m := newMiddleware(t, ampcors.Config{Source: s.cache(t)})
		wantReason(t, m, hashOrigin, ampcors.ReasonHashNotKnown)
		wantReason(t, m, otherOrigin, ampcors.ReasonCacheOrigin)
		s.add("www.example.com")
		s.remove("other.example")
		s.notify()
		wantReason(t, m, hashOrigin, ampcors.ReasonCacheOriginHash)
		wantReason(t, m, otherOrigin, ampcors.ReasonPublisherNotAllowed)
		s.notify()
		s.fail(errDown)
		if d := m.CheckOrigin(hashOrigin); !d.Stale {
			t.Errorf("%+v; it was confirmed before", d)
		}
		wantReason(t, m, otherOrigin, ampcors.ReasonSourceUnavailable)
	})
}

// The answer of such a lookup is not remembered, and no later request gets it.
func TestALookupFromBeforeANotificationDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com")
		m := newMiddleware(t, ampcors.Config{Source: s.cache(t)})
		hold := make(chan struct{})
		s.hold = hold
		go m.CheckOrigin(ownOrigin)
		synctest.Wait()
		s.remove("www.example.com")
		s.notify()
		s.hold = nil
		wantReason(t, m, ownOrigin, ampcors.ReasonUnknownHost)
		close(hold)
		synctest.Wait()
		wantReason(t, m, ownOrigin, ampcors.ReasonUnknownHost)
	})
}

// Reported names need not be canonical. An invalid one counts as a call without domains.
func TestReportedNamesNeedNotBeCanonical(t *testing.T) {
	for _, name := range []string{"WWW.Example.com", "https://www.example.com"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSetSource("www.example.com")
				m := newMiddleware(t, ampcors.Config{Source: s.cache(t)})
				wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
				s.remove("www.example.com")
				s.notify(name)
				wantReason(t, m, ownOrigin, ampcors.ReasonUnknownHost)
			})
		})
	}
}

func TestAWrongAnswerIsAnError(t *testing.T) {
	prefix := plainHash("www.example.com")
	for _, wrong := range []string{"evil.example", "WWW.example.com", "cdn.ampproject.org", "example", "https://www.example.com", "\x00"} {
		t.Run(wrong, func(t *testing.T) {
			s := newSetSource()
			s.prefixes[prefix] = wrong
			s.prefixes[plainHash(wrong)] = wrong
			s.add("good.example")
			m := newMiddleware(t, ampcors.Config{Source: s.cache(t)})
			for range 2 * failuresToOpen { // and no circuit breaker opens
				d := m.CheckOrigin(hashOrigin)
				if d.Reason != ampcors.ReasonSourceUnavailable || !errors.Is(d.SourceErr, source.ErrBadAnswer) {
					t.Errorf("%q: %+v", wrong, d)
				}
				if d := m.CheckOrigin("https://" + plainHash(wrong) + ".cdn.ampproject.org"); d.Allowed && d.Publisher != "evil.example" {
					t.Errorf("%q: %+v", wrong, d)
				}
			}
			if stats := m.Config().Source.Stats(); stats.CircuitOpen != 0 {
				t.Errorf("%q: %+v", wrong, stats)
			}
		})
	}
}

// A wrong answer, too, shows that the Source works again.
func TestAWrongAnswerClosesTheCircuitBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com")
		s.prefixes[plainHash("wrong.example")] = "evil.example"
		m := newMiddleware(t, ampcors.Config{Source: s.cache(t)})
		s.fail(errDown)
		for i := range failuresToOpen {
			wantReason(t, m, fmt.Sprintf("https://site-%d.example", i), ampcors.ReasonSourceUnavailable)
		}
		s.fail(nil)
		time.Sleep(openFor)
		wantReason(t, m, "https://"+plainHash("wrong.example")+".cdn.ampproject.org", ampcors.ReasonSourceUnavailable)
		wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
	})
}

func TestNothingIsStaleIfMaxStaleIsTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com")
		m := newMiddleware(t, ampcors.Config{Source: s.cache(t, source.Options{TTL: time.Hour, MaxStale: time.Hour})})
		wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
		s.notify()
		s.fail(errDown)
		wantReason(t, m, ownOrigin, ampcors.ReasonSourceUnavailable)
	})
}

// A request whose client has left is not allowed by a stale answer.
func TestACanceledRequestGetsNoStaleAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com")
		m := newMiddleware(t, ampcors.Config{Source: s.cache(t)})
		wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
		s.remove("www.example.com")
		time.Sleep(time.Minute)
		s.delay = time.Millisecond
		go m.CheckOrigin(ownOrigin)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := httptest.NewRequestWithContext(ctx, "POST", "/", nil)
		r.Header.Set("Origin", ownOrigin)
		if d := m.Check(r); d.Allowed {
			t.Errorf("%+v", d)
		}
		time.Sleep(time.Second)
	})
}

func TestExplainShowsTheSourcesAnswer(t *testing.T) {
	s := newSetSource("www.example.com")
	m := newMiddleware(t, ampcors.Config{Source: s.cache(t)})
	for origin, want := range map[string]string{
		cacheOrigin:            "Known to the Source.",
		hashOrigin:             "The hash prefix of this publisher, which the Source knows.",
		ownOrigin:              "Known to the Source.",
		evilOrigin:             "Neither listed in Publishers nor matched by a pattern there, and the Source does not know it.",
		"https://evil.example": "Neither listed in Publishers nor matched by a pattern there, and the Source does not know it.",
		unknownHashOrigin:      "No publisher that is listed exactly has this hash prefix, and the Source does not know it. A pattern cannot match a hash prefix.",
	} {
		t.Run(origin, func(t *testing.T) {
			checkAllowlistStep(t, m, origin, want)
		})
	}
	s.err = errDown
	checkAllowlistStep(t, m, otherOrigin, "Not in Publishers, and the Source failed: the database is down.")
	s.err = nil
	if err := m.Reconfigure(ampcors.Config{Source: s.cache(t, source.Options{TTL: 1})}); err != nil {
		t.Fatal(err)
	}
	wantReason(t, m, cacheOrigin, ampcors.ReasonCacheOrigin)
	s.err = errDown
	checkAllowlistStep(t, m, cacheOrigin, "Known to the Source when it last answered. Now it failed: the database is down.")
}

func checkAllowlistStep(t *testing.T, m *ampcors.Middleware, origin, want string) {
	t.Helper()
	for _, step := range m.Explain(origin).Steps {
		if step.Name == "allowlist" {
			if step.Detail != want {
				t.Errorf("%s: %q; want %q", origin, step.Detail, want)
			}
			return
		}
	}
	t.Errorf("%s: no such step", origin)
}

// TestThreatInventedHashesThatMakeTheSourceFail: failed lookups of
// invented hash prefixes do not make known publishers stale, and do not deny others.
func TestThreatInventedHashesThatMakeTheSourceFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com", "other.example")
		slow := s.source()
		slow.PublisherByHash = func(ctx context.Context, prefix string) (string, error) { // like a database that is overloaded by unknown ones
			if domain, err := s.PublisherByHash(ctx, prefix); domain != "" {
				return domain, err
			}
			<-ctx.Done()
			return "", ctx.Err()
		}
		m := newMiddleware(t, ampcors.Config{Source: cacheOf(t, slow)})
		wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
		wantReason(t, m, hashOrigin, ampcors.ReasonCacheOriginHash)
		time.Sleep(time.Minute)
		for i := range 12 {
			m.CheckOrigin("https://" + plainHash(fmt.Sprintf("unknown-%d.example", i)) + ".cdn.ampproject.org")
			if d := m.CheckOrigin(ownOrigin); !d.Allowed || d.Stale || d.SourceErr != nil {
				t.Errorf("after %d unknown hash prefixes: %+v", i, d)
			}
		}
		if d := m.CheckOrigin("https://" + plainHash("a.example") + ".cdn.ampproject.org"); !errors.Is(d.SourceErr, source.ErrCircuitOpen) {
			t.Errorf("this test proves nothing: the circuit breaker is not open: %+v", d)
		}
		wantReason(t, m, otherOrigin, ampcors.ReasonCacheOrigin)
		wantReason(t, m, hashOrigin, ampcors.ReasonCacheOriginHash) // which was found before
	})
}

// In steady traffic no request of a known publisher waits, whatever form its origin has.
func TestNoRequestOfAPublisherInUseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com", "xn--bcher-kva.ch")
		s.delay = 300 * time.Millisecond
		m := newMiddleware(t, ampcors.Config{Source: s.cache(t, source.Options{TTL: 10 * time.Second})})
		origins := []string{cacheOrigin, hashOrigin, ownOrigin, idnOrigin}
		for _, origin := range origins {
			m.CheckOrigin(origin)
		}
		for i := range 3000 {
			time.Sleep(100 * time.Millisecond)
			begun := time.Now()
			if d := m.CheckOrigin(origins[i%len(origins)]); !d.Allowed || d.Stale || time.Since(begun) > 0 {
				t.Fatalf("after %d requests, one waits %v: %+v", i, time.Since(begun), d)
			}
		}
		time.Sleep(time.Second) // a refresh may still run
		if stats := m.Config().Source.Stats(); stats.Refreshes != stats.Lookups-3 || stats.Lookups > 2*45 {
			t.Errorf("%+v", stats)
		}
	})
}

// Several Middlewares share a Cache, even if they trust other caches: a domain that is a
// publisher for one may be a cache's host for another.
func TestMiddlewaresShareACache(t *testing.T) {
	t.Parallel()
	s := newSetSource("www.example.com", "a.cache.example")
	cache := s.cache(t)
	one := newMiddleware(t, ampcors.Config{Source: cache})
	two := newMiddleware(t, ampcors.Config{Source: cache, Caches: []ampcors.Cache{{ID: "other", CacheDomain: "cache.example"}}})
	hash := "https://" + plainHash("a.cache.example")
	for range 2 { // from the Source, then from memory
		wantReason(t, one, ownOrigin, ampcors.ReasonOwnOrigin)
		wantReason(t, two, ownOrigin, ampcors.ReasonOwnOrigin)
		wantReason(t, one, "https://a.cache.example", ampcors.ReasonOwnOrigin)
		wantReason(t, one, hash+".cdn.ampproject.org", ampcors.ReasonCacheOriginHash)
		wantReason(t, two, "https://a.cache.example", ampcors.ReasonNotCanonical)
		wantReason(t, two, hash+".cache.example", ampcors.ReasonHashNotKnown)
	}
	if s.lookups() != 3 || cache.Stats().Publishers != 2 {
		t.Errorf("%d lookups, %q; %+v", s.lookups(), s.asked, cache.Stats())
	}
	s.remove("www.example.com")
	if err := cache.Forget("www.example.com"); err != nil {
		t.Error(err)
	}
	wantReason(t, one, ownOrigin, ampcors.ReasonUnknownHost)
	wantReason(t, two, ownOrigin, ampcors.ReasonUnknownHost)
}

// A Middleware that outlives its Cache says that it cannot decide. Listed publishers get in.
func TestAClosedCacheIsUnavailable(t *testing.T) {
	t.Parallel()
	s := newSetSource("www.example.com")
	cache := s.cache(t)
	m := newMiddleware(t, ampcors.Config{Source: cache, Publishers: []string{"listed.example", "*.wild.example"}})
	wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
	wantReason(t, m, hashOrigin, ampcors.ReasonCacheOriginHash)
	for range 2 {
		cache.Close()
	}
	if s.stopped != 1 {
		t.Errorf("stopped %d times", s.stopped)
	}
	for _, m := range []*ampcors.Middleware{m, newMiddleware(t, ampcors.Config{Source: new(source.Cache)})} {
		for _, origin := range []string{cacheOrigin, hashOrigin, ownOrigin, idnOrigin} {
			if d := m.CheckOrigin(origin); d.Reason != ampcors.ReasonSourceUnavailable || d.SourceErr != source.ErrClosed || d.Stale {
				t.Errorf("%+v", d)
			}
		}
	}
	wantReason(t, m, "https://listed.example", ampcors.ReasonOwnOrigin)
	wantReason(t, m, "https://a.wild.example", ampcors.ReasonOwnOrigin)
}

// A host of one label is never a publisher, even if the Source knows it as a hash prefix.
func TestThreatAHostThatIsAHashPrefix(t *testing.T) {
	t.Parallel()
	m := newMiddleware(t, ampcors.Config{Source: newSetSource("www.example.com").cache(t), DangerouslyAllowHTTPOwnOrigins: true})
	wantReason(t, m, hashOrigin, ampcors.ReasonCacheOriginHash)
	for _, origin := range []string{"https://" + plainHash("www.example.com"), "http://" + plainHash("www.example.com")} {
		if d := m.CheckOrigin(origin); d.Allowed {
			t.Errorf("%+v", d)
		}
	}
}
