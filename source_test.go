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

// A notifyingSource is a setSource that reports changes.
type notifyingSource struct{ *setSource }

func (s notifyingSource) Notify(changed func(domains ...string)) (stop func()) {
	s.notify = changed
	return func() { s.stopped++ }
}

// withSource moves the publishers that are listed exactly to a Source.
func withSource(cfg ampcors.Config) (ampcors.Config, *setSource) {
	s := newSetSource()
	var patterns []string
	for _, p := range cfg.Publishers {
		if strings.HasPrefix(p, "*.") {
			patterns = append(patterns, p)
		} else {
			s.add(plainParse(p))
		}
	}
	cfg.Publishers, cfg.Source = patterns, s
	cfg.Lookup.MaxRate = 1_000_000_000 // the tests that use it make many lookups
	return cfg, s
}

// Copied from internal/lookup.
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
	cfg, s := withSource(cfg)
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
	// One lookup for each domain or hash, in every form: two publishers, and three that are
	// not known.
	if want := 5; s.lookups() != want {
		t.Errorf("%d lookups, %q; want %d", s.lookups(), s.asked, want)
	}
}

func TestASourceIsNotAskedWhatItCannotKnow(t *testing.T) {
	cfg, s := withSource(testConfig())
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
		m := newMiddleware(t, ampcors.Config{Source: s, Lookup: ampcors.Lookup{TTL: time.Minute, NegativeTTL: 10 * time.Second}})
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
				m := newMiddleware(t, ampcors.Config{Source: s})
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
				if stats := m.SourceStats(); stats.Lookups != 1 || stats.Coalesced != 99 {
					t.Errorf("%+v", stats)
				}
			})
		})
	}
}

func TestLookupsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource()
		s.delay = 300 * time.Millisecond
		m := newMiddleware(t, ampcors.Config{Source: s, Lookup: ampcors.Lookup{MaxConcurrent: 4, MaxRate: 1_000_000, Timeout: time.Second}})
		var group sync.WaitGroup
		unavailable := atomic.Int32{}
		for i := range 100 {
			group.Go(func() {
				begun := time.Now()
				d := m.CheckOrigin(fmt.Sprintf("https://site-%d.example", i))
				if d.Reason == ampcors.ReasonSourceUnavailable {
					unavailable.Add(1)
					if d.SourceErr != ampcors.ErrSourceBusy {
						t.Error(d.SourceErr)
					}
				}
				if waited := time.Since(begun); waited > 2*time.Second {
					t.Errorf("waited %v", waited)
				}
			})
		}
		group.Wait()
		if s.most.Load() != 3 { // one slot is kept for remembered publishers
			t.Errorf("%d lookups at one time", s.most.Load())
		}
		if s.lookups() != 12 || unavailable.Load() != 100-12 { // four times three could begin within a second
			t.Errorf("%d lookups, %d were told that the Source is unavailable", s.lookups(), unavailable.Load())
		}
		if stats := m.SourceStats(); stats.Busy != 100-12 || stats.Errors != 0 {
			t.Errorf("%+v", stats)
		}
		wantReason(t, m, otherOrigin, ampcors.ReasonPublisherNotAllowed) // the Source works, so the circuit breaker is closed
	})
}

func TestInventedOriginsDoNotEvictOrExceedTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, rate, seconds = 100, 50, 20
		s := newSetSource()
		for i := range size {
			s.add(fmt.Sprintf("good-%d.example", i))
		}
		m := newMiddleware(t, ampcors.Config{Source: s, Lookup: ampcors.Lookup{MaxEntries: size, MaxRate: rate, TTL: time.Hour}})
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
				if d.SourceErr != ampcors.ErrSourceRateLimited {
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
		stats := m.SourceStats()
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
		if m.CheckOrigin("https://worst.example").SourceErr != ampcors.ErrSourceRateLimited {
			t.Error("the rate limit was not reached")
		}

	})
}

// Invented prefixes evict no prefix of a publisher.
func TestInventedPrefixesAreNotRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 100
		s := newSetSource("xn--bcher-kva.ch")
		m := newMiddleware(t, ampcors.Config{Source: s, Lookup: ampcors.Lookup{MaxEntries: size, MaxRate: 50, TTL: time.Hour}})
		wantReason(t, m, idnOrigin, ampcors.ReasonCacheOrigin)
		prefixes := m.SourceStats().Prefixes
		for i := range size {
			time.Sleep(time.Second)
			m.CheckOrigin("https://" + plainToASCII(fmt.Sprintf("bücher-%d-ch", i)) + ".cdn.ampproject.org")
			m.CheckOrigin("https://" + plainHash(fmt.Sprintf("bad-%d.example", i)) + ".cdn.ampproject.org")
		}
		if m.SourceStats().Prefixes != prefixes {
			t.Error("invented prefixes are remembered")
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
				m := newMiddleware(t, ampcors.Config{Source: s, Lookup: ampcors.Lookup{TTL: 100 * time.Millisecond, MaxConcurrent: 16}})
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
				if stats := m.SourceStats(); stats.Errors > 0 || stats.CircuitOpen > 0 || stats.Busy == 0 {
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
			Source: s, Lookup: ampcors.Lookup{TTL: time.Minute, MaxStale: 5 * time.Minute}, Credentialed: true,
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
		if n := m.Stats()[ampcors.ReasonSourceUnavailable]; n != 1 {
			t.Errorf("counted %d times", n)
		}
		if stats := m.SourceStats(); stats.Stale != 3 || stats.Errors == 0 {
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
	cfg.Source, cfg.Email = s, ampcors.Email{Senders: []string{"news@example.com"}}
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

func TestTheCircuitBreakerOpensAfterFailuresInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com")
		m := newMiddleware(t, ampcors.Config{Source: s})
		wantReason(t, m, cacheOrigin, ampcors.ReasonCacheOrigin)
		s.fail(errDown)
		time.Sleep(time.Minute)
		for i := range 1000 {
			wantReason(t, m, fmt.Sprintf("https://site-%d.example", i), ampcors.ReasonSourceUnavailable)
			wantReason(t, m, cacheOrigin, ampcors.ReasonCacheOrigin)
		}
		const known = 1 // for a remembered publisher: another circuit breaker counts these
		if n := s.lookups(); n != 1+known+failuresToOpen {
			t.Errorf("%d lookups", n)
		}
		// One lookup a second probes the Source.
		s.hold = make(chan struct{})
		for range 3 {
			time.Sleep(openFor)
			var group sync.WaitGroup
			for i := range 100 {
				group.Go(func() { wantReason(t, m, fmt.Sprintf("https://site-%d.example", i), ampcors.ReasonSourceUnavailable) })
			}
			group.Wait()
		}
		if n := s.lookups(); n != 1+known+failuresToOpen+3 {
			t.Errorf("%d lookups", n)
		}
		if stats := m.SourceStats(); stats.CircuitOpen == 0 || stats.Errors != known+failuresToOpen+3 {
			t.Errorf("%+v", stats)
		}
		s.fail(nil)
		s.hold = nil
		time.Sleep(openFor)
		for i := range 10 {
			wantReason(t, m, fmt.Sprintf("https://new-%d.example", i), ampcors.ReasonUnknownHost)
		}
		// Failures that are not in a row do not open the circuit breaker.
		for i := range 10 {
			s.fail(errDown)
			wantReason(t, m, fmt.Sprintf("https://a-%d.example", i), ampcors.ReasonSourceUnavailable)
			s.fail(nil)
			wantReason(t, m, fmt.Sprintf("https://b-%d.example", i), ampcors.ReasonUnknownHost)
		}
	})
}

// Lookups that fail for one name alone do not open the circuit breaker, however many.
func TestOneNameThatFailsDoesNotOpenTheCircuitBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com")
		m := newMiddleware(t, ampcors.Config{Source: failingFor{s, "bad.example"}})
		for range 100 {
			wantReason(t, m, "https://bad.example", ampcors.ReasonSourceUnavailable)
		}
		wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
	})
}

type failingFor struct {
	*setSource
	domain string
}

func (f failingFor) HasPublisher(ctx context.Context, domain string) (bool, error) {
	if domain == f.domain {
		return false, errDown
	}
	return f.setSource.HasPublisher(ctx, domain)
}

func TestLookupsThatWaitForASlotEndWhenTheCircuitBreakerOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource()
		s.delay, s.err = 10*time.Millisecond, errDown
		m := newMiddleware(t, ampcors.Config{Source: s, Lookup: ampcors.Lookup{MaxConcurrent: 1}})
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

// A lookup that gets only one of its two slots in time gives it back.
func TestALookupThatGetsNoSlotInTimeHoldsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("a.example", "b.example")
		m := newMiddleware(t, ampcors.Config{Source: s, Lookup: ampcors.Lookup{MaxConcurrent: 1}})
		wantReason(t, m, "https://a.example", ampcors.ReasonOwnOrigin)
		wantReason(t, m, "https://b.example", ampcors.ReasonOwnOrigin)
		time.Sleep(time.Minute)
		s.delay = 900 * time.Millisecond
		go m.CheckOrigin("https://a.example")
		synctest.Wait()
		go m.CheckOrigin("https://b.example") // waits before the unknown publisher does
		synctest.Wait()
		if d := m.CheckOrigin(evilOrigin); d.SourceErr != ampcors.ErrSourceBusy {
			t.Errorf("%+v", d)
		}
		time.Sleep(time.Second)
		wantReason(t, m, evilOrigin, ampcors.ReasonPublisherNotAllowed)
	})
}

// A stuckSource ignores its context, and may not return in time.
type stuckSource struct{ ask func() }

func (s *stuckSource) HasPublisher(context.Context, string) (bool, error) { s.ask(); return true, nil }
func (s *stuckSource) PublisherByHash(context.Context, string) (string, error) {
	return "", nil
}

func TestNoRequestWaitsForASourceThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuckSource{func() {}}
		m := newMiddleware(t, ampcors.Config{Source: s})
		wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
		time.Sleep(time.Minute)
		s.ask = func() { time.Sleep(time.Hour) }
		go m.CheckOrigin(ownOrigin)
		synctest.Wait()
		begun := time.Now()
		if d := m.CheckOrigin(ownOrigin); !d.Stale || d.SourceErr != ampcors.ErrSourceTimeout || time.Since(begun) > 2*time.Second {
			t.Errorf("after %v: %+v", time.Since(begun), d)
		}
		time.Sleep(2 * time.Hour)

		// A Source may even ask the middleware about the domain that it is asked about.
		s.ask = func() {
			if d := m.CheckOrigin("https://deep.example"); d.Allowed {
				t.Errorf("%+v", d)
			}
		}
		wantReason(t, m, "https://deep.example", ampcors.ReasonOwnOrigin)
	})
}

// The requests of a publisher do not wait, one after another, for a Source that hangs.
func TestAHangingSourceDelaysFewRequestsOfAPublisher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com")
		m := newMiddleware(t, ampcors.Config{Source: s, Lookup: ampcors.Lookup{Timeout: 500 * time.Millisecond}})
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

func TestALookupEndsAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com")
		m := newMiddleware(t, ampcors.Config{Source: s, Lookup: ampcors.Lookup{Timeout: 200 * time.Millisecond}})
		wantReason(t, m, cacheOrigin, ampcors.ReasonCacheOrigin)
		time.Sleep(time.Minute)
		s.hold = make(chan struct{})
		begun := time.Now()
		if d := m.CheckOrigin(cacheOrigin); !d.Stale || !d.Allowed || !errors.Is(d.SourceErr, context.DeadlineExceeded) {
			t.Errorf("%+v", d)
		}
		if waited := time.Since(begun); waited != 200*time.Millisecond {
			t.Errorf("waited %v", waited)
		}
	})
}

func TestASourceThatPanicsHoldsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &panickingSource{}
		m := newMiddleware(t, ampcors.Config{Source: p, Lookup: ampcors.Lookup{MaxConcurrent: 1}})
		for range 3 {
			go func() {
				time.Sleep(time.Millisecond)
				if d := m.CheckOrigin(cacheOrigin); d.SourceErr != ampcors.ErrSourcePanicked {
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

func (p *panickingSource) HasPublisher(context.Context, string) (bool, error) {
	if !p.calm {
		time.Sleep(time.Second / 2)
		panic("a defect")
	}
	return false, nil
}

func (*panickingSource) PublisherByHash(context.Context, string) (string, error) { return "", nil }

func TestForgetTakesEffectAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com")
		m := newMiddleware(t, ampcors.Config{Source: s})
		all := map[string]ampcors.Reason{cacheOrigin: ampcors.ReasonCacheOrigin, hashOrigin: ampcors.ReasonCacheOriginHash, ownOrigin: ampcors.ReasonOwnOrigin}
		for range 2 {
			for origin, want := range all {
				wantReason(t, m, origin, want)
			}
			s.remove("www.example.com")
			if err := m.Forget("other.example", "WWW.example.com"); err != nil {
				t.Error(err)
			}
			for origin := range all {
				if m.CheckOrigin(origin).Allowed {
					t.Errorf("%s: allowed after Forget", origin)
				}
			}
			s.add("www.example.com")
			_ = m.Forget("www.example.com")
		}
		// Even while the Source is down, a forgotten publisher is not served stale.
		wantReason(t, m, cacheOrigin, ampcors.ReasonCacheOrigin)
		s.fail(errDown)
		_ = m.Forget("www.example.com")
		for origin := range all {
			wantReason(t, m, origin, ampcors.ReasonSourceUnavailable)
		}
	})
}

func TestForgetReportsInvalidDomains(t *testing.T) {
	m := newMiddleware(t, ampcors.Config{Source: newSetSource()})
	err := m.Forget("a.example", "https://b.example", "c.example", "")
	const want = `ampcors: publishers[1] "https://b.example" has a scheme; want "b.example"` + "\n" +
		`ampcors: publishers[3] "" is empty; want a domain such as "www.example.com"`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := newMiddleware(t, testConfig()).Forget("a.example"); err != nil {
		t.Error("without a Source:", err)
	}
}

// A lookup that runs while its publisher is revoked must not allow it again.
func TestForgetInvalidatesLookupsThatRun(t *testing.T) {
	for _, origin := range []string{cacheOrigin, hashOrigin} {
		t.Run(origin, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSetSource("www.example.com")
				m := newMiddleware(t, ampcors.Config{Source: s})
				hold := make(chan struct{})
				s.hold = hold
				go m.CheckOrigin(origin)
				synctest.Wait()
				s.remove("www.example.com")
				_ = m.Forget("www.example.com")
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
		m := newMiddleware(t, ampcors.Config{Source: s})
		first, second := make(chan struct{}), make(chan struct{})
		s.hold = first
		go m.CheckOrigin(ownOrigin)
		synctest.Wait()
		_ = m.Forget("www.example.com")
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
			cfg, s := withSource(testConfig())
			m := newMiddleware(t, cfg)
			buf := []byte(origin)
			want := m.CheckOrigin(unsafeString(buf)).Reason
			prefixes := m.SourceStats().Prefixes
			for i := range buf {
				buf[i] = '#'
			}
			wantReason(t, m, origin, want)
			if s.lookups() != 1 || m.SourceStats().Prefixes != prefixes {
				t.Errorf("%s: %d lookups, %d prefixes; before, %d prefixes", origin, s.lookups(), m.SourceStats().Prefixes, prefixes)
			}
		})
	}
}

// A lookup that began before notify and Forget does not bring back a stale answer.
func TestForgetAfterANotificationWithoutDomains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := notifyingSource{newSetSource("www.example.com")}
		m := newMiddleware(t, ampcors.Config{Source: s})
		hold := make(chan struct{})
		s.hold = hold
		go m.CheckOrigin(ownOrigin)
		synctest.Wait()
		s.notify()
		s.remove("www.example.com")
		_ = m.Forget("www.example.com")
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
				m := newMiddleware(t, ampcors.Config{Source: s})
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
		m := newMiddleware(t, ampcors.Config{Source: s, Lookup: ampcors.Lookup{TTL: time.Minute, NegativeTTL: time.Hour}})
		wantReason(t, m, ownOrigin, ampcors.ReasonUnknownHost)
		s.add("www.example.com")
		time.Sleep(time.Minute)
		wantReason(t, m, hashOrigin, ampcors.ReasonCacheOriginHash)
		time.Sleep(time.Minute)
		wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
	})
}

// A reusingSource returns strings whose memory it overwrites later.
type reusingSource struct{ row []byte }

func (s *reusingSource) HasPublisher(context.Context, string) (bool, error) { return false, nil }
func (s *reusingSource) PublisherByHash(context.Context, string) (string, error) {
	return unsafeString(s.row), nil
}

func TestWhatASourceReturnsIsCopied(t *testing.T) {
	for _, length := range []int{3, 60} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			good, evil := strings.Repeat("good.", length)+"example", strings.Repeat("evil.", length)+"example"
			if len(good) > 253 {
				good, evil = good[len(good)-253+3:], evil[len(evil)-253+3:]
			}
			s := &reusingSource{[]byte(good)}
			m := newMiddleware(t, ampcors.Config{Source: s})
			byHash := "https://" + plainHash(good) + ".cdn.ampproject.org"
			wantReason(t, m, byHash, ampcors.ReasonCacheOriginHash)
			copy(s.row, evil)
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
	m := newMiddleware(t, ampcors.Config{Source: s, Lookup: ampcors.Lookup{MaxEntries: 4, TTL: time.Millisecond, MaxRate: 1_000_000_000}})
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
		_ = m.Forget(domain)
		for _, origin := range forms(domain) {
			if !m.CheckOrigin(origin).Allowed {
				t.Errorf("%s: denied after it was added", origin)
			}
		}
		s.remove(domain)
		_ = m.Forget(domain)
		for _, origin := range forms(domain) {
			if m.CheckOrigin(origin).Allowed {
				t.Errorf("%s: allowed after it was revoked", origin)
			}
		}
	}
	close(done)
	group.Wait()
}

func TestChangesThatANotifierReportsTakeEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := notifyingSource{newSetSource("www.example.com")}
		m := newMiddleware(t, ampcors.Config{Source: s})
		wantReason(t, m, hashOrigin, ampcors.ReasonCacheOriginHash)
		wantReason(t, m, otherOrigin, ampcors.ReasonPublisherNotAllowed)
		s.remove("www.example.com")
		s.add("other.example")
		s.notify("www.example.com", "other.example")
		wantReason(t, m, hashOrigin, ampcors.ReasonHashNotKnown)
		wantReason(t, m, otherOrigin, ampcors.ReasonCacheOrigin)
	})
}

// A Notifier that reports no domains may have missed any change.
func TestANotificationWithoutDomainsExpiresEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := notifyingSource{newSetSource("other.example")}
		m := newMiddleware(t, ampcors.Config{Source: s})
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
		s := notifyingSource{newSetSource("www.example.com")}
		m := newMiddleware(t, ampcors.Config{Source: s})
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
				s := notifyingSource{newSetSource("www.example.com")}
				m := newMiddleware(t, ampcors.Config{Source: s})
				wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
				s.remove("www.example.com")
				s.notify(name)
				wantReason(t, m, ownOrigin, ampcors.ReasonUnknownHost)
			})
		})
	}
}

// Reconfigure stops a Notifier that is no longer the Source, and no other.
func TestReconfigureStopsANotifierThatIsNoLongerTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := notifyingSource{newSetSource("www.example.com")}
		cfg := ampcors.Config{Source: s}
		m := newMiddleware(t, cfg)
		cfg.Methods = []string{"PUT"}
		if err := m.Reconfigure(cfg); err != nil || s.stopped != 0 {
			t.Errorf("%v; stopped %d times", err, s.stopped)
		}
		if err := m.Reconfigure(ampcors.Config{Publishers: []string{"a.example"}}); err != nil || s.stopped != 1 {
			t.Errorf("%v; stopped %d times", err, s.stopped)
		}
		if stats := m.SourceStats(); stats != (ampcors.SourceStats{}) {
			t.Errorf("%+v without a Source", stats)
		}
	})
}

// stop may be nil, and may wait for a goroutine that calls Reconfigure.
func TestStopMayBeNilOrWaitForReconfigure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m *ampcors.Middleware
		stop := func() {
			done := make(chan struct{})
			go func() {
				defer close(done)
				if err := m.Reconfigure(testConfig()); err != nil {
					t.Error(err)
				}
			}()
			<-done
		}
		for _, stop := range []func(){nil, stop} {
			m = newMiddleware(t, ampcors.Config{Source: stoppingSource{newSetSource(), &stop}})
			if err := m.Reconfigure(testConfig()); err != nil {
				t.Error(err)
			}
		}
	})
}

type stoppingSource struct {
	*setSource
	stop *func()
}

func (s stoppingSource) Notify(changed func(domains ...string)) func() {
	changed("a.example") // which must not need a lock that Reconfigure holds
	changed()
	return *s.stop
}

// A funcSource cannot be compared.
type funcSource func(string) bool

func (f funcSource) HasPublisher(_ context.Context, domain string) (bool, error) {
	return f(domain), nil
}
func (f funcSource) PublisherByHash(context.Context, string) (string, error) { return "", nil }

func TestReconfigureKeepsTheAnswersOfTheSameSource(t *testing.T) {
	s := newSetSource("www.example.com")
	f := funcSource(func(string) bool { return true })
	other := []ampcors.Cache{{ID: "c", CacheDomain: "cache.example"}}
	for _, test := range []struct {
		change   string
		from, to ampcors.Config
		want     bool
	}{
		{change: "nothing", from: ampcors.Config{Source: s}, to: ampcors.Config{Source: s}, want: true},
		{change: "other fields", from: ampcors.Config{Source: s}, to: ampcors.Config{Source: s, Methods: []string{"PUT"}, Publishers: []string{"a.example"}}, want: true},
		{change: "the defaults spelt out", from: ampcors.Config{Source: s}, to: ampcors.Config{Source: s, Lookup: ampcors.Lookup{TTL: time.Minute, MaxConcurrent: 256, MaxEntries: 1 << 20}}, want: true},
		{change: "TTL", from: ampcors.Config{Source: s}, to: ampcors.Config{Source: s, Lookup: ampcors.Lookup{TTL: time.Second}}, want: false},
		{change: "size", from: ampcors.Config{Source: s}, to: ampcors.Config{Source: s, Lookup: ampcors.Lookup{MaxEntries: 7}}, want: false},
		{change: "caches", from: ampcors.Config{Source: s}, to: ampcors.Config{Source: s, Caches: other}, want: false},
		{change: "the Source", from: ampcors.Config{Source: s}, to: ampcors.Config{Source: newSetSource("www.example.com")}, want: false},
		{change: "from one that can be compared", from: ampcors.Config{Source: s}, to: ampcors.Config{Source: f}, want: false},
		{change: "to one that can be compared", from: ampcors.Config{Source: f}, to: ampcors.Config{Source: s}, want: false},
		{change: "one that cannot be compared", from: ampcors.Config{Source: f}, to: ampcors.Config{Source: f}, want: false},
	} {
		t.Run(test.change, func(t *testing.T) {
			m := newMiddleware(t, test.from)
			wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
			if err := m.Reconfigure(test.to); err != nil {
				t.Fatal(err)
			}
			if got := m.SourceStats().Publishers == 1; got != test.want {
				t.Errorf("%s: remembered: %t", test.change, got)
			}
		})
	}
	// With other caches, a confirmed publisher can become a reserved host.
	m := newMiddleware(t, ampcors.Config{Source: newSetSource("cache.example")})
	wantReason(t, m, "https://cache.example", ampcors.ReasonOwnOrigin)
	if err := m.Reconfigure(ampcors.Config{Source: m.Config().Source, Caches: other}); err != nil {
		t.Fatal(err)
	}
	wantReason(t, m, "https://cache.example", ampcors.ReasonNotCanonical)
}

func TestAWrongAnswerIsAnError(t *testing.T) {
	prefix := plainHash("www.example.com")
	for _, wrong := range []string{"evil.example", "WWW.example.com", "cdn.ampproject.org", "example", "https://www.example.com", "\x00"} {
		t.Run(wrong, func(t *testing.T) {
			s := newSetSource()
			s.prefixes[prefix] = wrong
			s.prefixes[plainHash(wrong)] = wrong
			s.add("good.example")
			m := newMiddleware(t, ampcors.Config{Source: s})
			for range 2 * failuresToOpen { // and no circuit breaker opens
				d := m.CheckOrigin(hashOrigin)
				if d.Reason != ampcors.ReasonSourceUnavailable || !errors.Is(d.SourceErr, ampcors.ErrSourceBadAnswer) {
					t.Errorf("%q: %+v", wrong, d)
				}
				if d := m.CheckOrigin("https://" + plainHash(wrong) + ".cdn.ampproject.org"); d.Allowed && d.Publisher != "evil.example" {
					t.Errorf("%q: %+v", wrong, d)
				}
			}
			if stats := m.SourceStats(); stats.CircuitOpen != 0 {
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
		m := newMiddleware(t, ampcors.Config{Source: s})
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
		s := notifyingSource{newSetSource("www.example.com")}
		m := newMiddleware(t, ampcors.Config{Source: s, Lookup: ampcors.Lookup{TTL: time.Hour, MaxStale: time.Hour}})
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
		m := newMiddleware(t, ampcors.Config{Source: s})
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
	m := newMiddleware(t, ampcors.Config{Source: s})
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
	if err := m.Reconfigure(ampcors.Config{Source: s, Lookup: ampcors.Lookup{TTL: 1}}); err != nil {
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

func TestAnInvalidLookupIsReported(t *testing.T) {
	for _, test := range []struct {
		path   string
		lookup ampcors.Lookup
	}{
		{path: "lookup.ttl", lookup: ampcors.Lookup{TTL: -1}},
		{path: "lookup.negativeTTL", lookup: ampcors.Lookup{NegativeTTL: -1}},
		{path: "lookup.maxStale", lookup: ampcors.Lookup{MaxStale: -1}},
		{path: "lookup.maxStale", lookup: ampcors.Lookup{MaxStale: time.Second}}, // less than the default TTL
		{path: "lookup.maxStale", lookup: ampcors.Lookup{TTL: time.Hour, MaxStale: time.Hour - 1}},
		{path: "lookup.timeout", lookup: ampcors.Lookup{Timeout: -1}},
		{path: "lookup.timeout", lookup: ampcors.Lookup{Timeout: 1<<63 - 1}},
		{path: "lookup.maxConcurrent", lookup: ampcors.Lookup{MaxConcurrent: -1}},
		{path: "lookup.maxRate", lookup: ampcors.Lookup{MaxRate: -1}},
		{path: "lookup.maxEntries", lookup: ampcors.Lookup{MaxEntries: -1}},
	} {
		t.Run(test.path, func(t *testing.T) {
			for _, source := range []ampcors.Source{newSetSource(), nil} { // it is checked even without a Source
				cfg := ampcors.Config{Publishers: []string{"a.example"}, Source: source, Lookup: test.lookup}
				problems := valueErrors(t, cfg.Validate())
				if len(problems) != 1 || problems[0].Path != test.path {
					t.Errorf("%+v has the problems %v; want one of %s", test.lookup, problems, test.path)
				}
			}
		})
	}
	for name, lookup := range map[string]ampcors.Lookup{
		"zero":                    {},
		"TTL alone":               {TTL: time.Hour},
		"MaxStale as long as TTL": {TTL: time.Hour, MaxStale: time.Hour},
		"MaxStale alone":          {MaxStale: time.Minute},
		"the longest":             {TTL: 720 * time.Hour, NegativeTTL: 720 * time.Hour, MaxStale: 720 * time.Hour, Timeout: 720 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			if err := (ampcors.Config{Source: newSetSource(), Lookup: lookup}).Validate(); err != nil {
				t.Error(err)
			}
		})
	}
	if got := (ampcors.Lookup{TTL: time.Hour}).DefaultMaxStale(); got != 2*time.Hour {
		t.Errorf("with a TTL of an hour, MaxStale is %v", got)
	}
}

// TestThreatInventedHashesThatMakeTheSourceFail: failed lookups of
// invented hash prefixes do not make known publishers stale, and do not deny others.
func TestThreatInventedHashesThatMakeTheSourceFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com", "other.example")
		slow := slowHashSource{s}
		m := newMiddleware(t, ampcors.Config{Source: slow})
		wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
		time.Sleep(time.Minute)
		for i := range 12 {
			m.CheckOrigin("https://" + plainHash(fmt.Sprintf("unknown-%d.example", i)) + ".cdn.ampproject.org")
			if d := m.CheckOrigin(ownOrigin); !d.Allowed || d.Stale || d.SourceErr != nil {
				t.Errorf("after %d unknown hash prefixes: %+v", i, d)
			}
		}
		if d := m.CheckOrigin("https://" + plainHash("a.example") + ".cdn.ampproject.org"); !errors.Is(d.SourceErr, ampcors.ErrSourceCircuitOpen) {
			t.Errorf("this test proves nothing: the circuit breaker is not open: %+v", d)
		}
		wantReason(t, m, otherOrigin, ampcors.ReasonCacheOrigin)
		wantReason(t, m, hashOrigin, ampcors.ReasonCacheOriginHash) // whose publisher is remembered
	})
}

// A slowHashSource times out on every hash prefix, like a database without an index
// on them.
type slowHashSource struct{ *setSource }

func (slowHashSource) PublisherByHash(ctx context.Context, _ string) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

func TestAfterTheSourceRecoversNoPublisherIsDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com", "other.example")
		m := newMiddleware(t, ampcors.Config{Source: s})
		s.fail(errDown)
		wantReason(t, m, ownOrigin, ampcors.ReasonSourceUnavailable)
		s.fail(nil)
		wantReason(t, m, otherOrigin, ampcors.ReasonCacheOrigin) // it works again
		wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
	})
}

// In steady traffic no request of a known publisher waits, whatever form its origin has.
func TestNoRequestOfAPublisherInUseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com", "xn--bcher-kva.ch")
		s.delay = 300 * time.Millisecond
		m := newMiddleware(t, ampcors.Config{Source: s, Lookup: ampcors.Lookup{TTL: 10 * time.Second}})
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
		if stats := m.SourceStats(); stats.Refreshes != stats.Lookups-2 || stats.Lookups > 2*45 {
			t.Errorf("%+v", stats)
		}
	})
}

func TestAClosedMiddlewareDeniesEveryOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := notifyingSource{newSetSource("www.example.com")}
		cfg := testConfig()
		cfg.Source = s
		m := newMiddleware(t, cfg)
		for range 2 {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
		if s.stopped != 1 {
			t.Errorf("stopped %d times", s.stopped)
		}
		for _, origin := range []string{cacheOrigin, hashOrigin, ownOrigin, playgroundOrigin, wildOrigin} {
			if d := m.CheckOrigin(origin); d.Allowed {
				t.Errorf("%+v", d)
			}
		}
		if s.lookups() != 0 {
			t.Errorf("asked for %q", s.asked)
		}
		if err := m.Reconfigure(cfg); err != ampcors.ErrClosed {
			t.Errorf("reconfigured: %v", err)
		}
		if s.stopped != 1 {
			t.Errorf("stopped %d times", s.stopped)
		}
		if err := new(ampcors.Middleware).Close(); err != nil {
			t.Errorf("the zero Middleware: %v", err)
		}
	})
}

// A Middleware can be used after a Notifier panicked.
func TestANotifierThatPanicsLocksNothing(t *testing.T) {
	m := newMiddleware(t, testConfig())
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = m.Reconfigure(ampcors.Config{Source: panickingNotifier{newSetSource()}})
	}()
	if err := m.Reconfigure(testConfig()); err != nil || !m.CheckOrigin(ownOrigin).Allowed {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

type panickingNotifier struct{ *setSource }

func (panickingNotifier) Notify(func(...string)) func() { panic("a defect") }

func TestCloseEndsARefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com")
		m := newMiddleware(t, ampcors.Config{Source: s})
		wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
		s.delay = 900 * time.Millisecond
		time.Sleep(55 * time.Second)
		wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
		synctest.Wait()
		if s.running.Load() != 1 {
			t.Fatal("no refresh")
		}
		_ = m.Close()
		synctest.Wait()
		if s.running.Load() != 0 {
			t.Error("the refresh goes on")
		}
	})
}

// After Close every origin is denied, but a decision that began before gets its answer.
func TestCloseWhileALookupRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com")
		s.hold = make(chan struct{})
		m := newMiddleware(t, ampcors.Config{Source: s})
		done := make(chan ampcors.Decision)
		go func() { done <- m.CheckOrigin(ownOrigin) }()
		synctest.Wait()
		_ = m.Close()
		if d := m.CheckOrigin(ownOrigin); d.Allowed {
			t.Errorf("%+v", d)
		}
		close(s.hold)
		if d := <-done; !d.Allowed { // its policy was in force when it began
			t.Errorf("%+v", d)
		}
	})
}

func TestASourceFuncKnowsNoHashPrefixes(t *testing.T) {
	m := newMiddleware(t, ampcors.Config{Source: ampcors.SourceFunc(func(_ context.Context, domain string) (bool, error) {
		if domain == "down.example" {
			return false, errDown
		}
		return domain == "www.example.com", nil
	})})
	wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
	wantReason(t, m, cacheOrigin, ampcors.ReasonCacheOrigin)
	wantReason(t, m, otherOrigin, ampcors.ReasonPublisherNotAllowed)
	wantReason(t, m, unknownHashOrigin, ampcors.ReasonHashNotKnown)
	if d := m.CheckOrigin("https://down.example"); !errors.Is(d.SourceErr, errDown) {
		t.Errorf("%+v", d)
	}
}

// A hintedSource has hints, and shards that it numbers wrongly.
type hintedSource struct {
	*setSource
	hints  map[string]ampcors.Hint
	shards int
	shard  int
}

func (s hintedSource) Hint(key string) ampcors.Hint { return s.hints[key] }
func (s hintedSource) Shards() int                  { return s.shards }
func (s hintedSource) Shard(string) int             { return s.shard }

// A Hinter that knows that a name is no publisher saves the lookup. Other hints decide
// nothing, and neither do shards, whatever their numbers are.
func TestHintsAndShardsDecideNothingElse(t *testing.T) {
	t.Parallel()
	for _, hint := range []ampcors.Hint{ampcors.NoHint, ampcors.LikelyPublisher, ampcors.NotPublisher, 99} {
		for _, shards := range []int{-1, 0, 1, 2, 1 << 30} {
			for _, shard := range []int{0, 1, -1, 1 << 30} {
				t.Run(fmt.Sprint(hint, shards, shard), func(t *testing.T) {
					t.Parallel()
					s := hintedSource{newSetSource("www.example.com"), map[string]ampcors.Hint{"www.example.com": hint, "evil.example": hint, plainHash("www.example.com"): hint}, shards, shard}
					m := newMiddleware(t, ampcors.Config{Source: s})
					isAsked := hint != ampcors.NotPublisher
					for origin, want := range map[string]bool{
						"https://www.example.com": isAsked, hashOf("www.example.com"): isAsked,
						"https://evil.example": false, hashOf("evil.example"): false, "https://www.other.example": false,
					} {
						if d := m.CheckOrigin(origin); d.Allowed != want || d.SourceErr != nil {
							t.Errorf("%s: %+v", origin, d)
						}
					}
					stats := m.SourceStats()
					if (stats.Hinted > 0) == isAsked || stats.Publishers > 1 || (stats.Publishers == 1) != isAsked {
						t.Errorf("%+v", stats)
					}
				})
			}
		}
	}
}

func hashOf(domain string) string { return "https://" + plainHash(domain) + ".cdn.ampproject.org" }
