package ampcors_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/source"
)

// A setSource is a Source in memory that can be slow or fail.
type setSource struct {
	mu       sync.Mutex
	domains  map[string]bool
	prefixes map[string]string
	asked    []string // the first 1000 keys
	count    int
	err      error
	delay    time.Duration // by the clock of synctest
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

func (s *setSource) answer(ctx context.Context, key string) (known bool, domain string, err error) {
	s.mu.Lock()
	if s.count++; s.count <= 1000 {
		s.asked = append(s.asked, key)
	}
	known, domain, err = s.domains[key], s.prefixes[key], s.err
	delay := s.delay
	s.mu.Unlock()
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

func (s *setSource) remembered(t testing.TB, options ...source.Config) *source.Source {
	t.Helper()
	return cacheOf(t, source.Database{HasPublisher: s.HasPublisher, PublisherByHash: s.PublisherByHash}, options...)
}

// cacheOf returns a Source. Without options, it has the defaults.
func cacheOf(t testing.TB, s source.Database, options ...source.Config) *source.Source {
	t.Helper()
	c, err := source.New(s, append(options, source.Config{})[0])
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
	cfg.Publishers, cfg.Source = patterns, s.remembered(t)
	return cfg, s
}

const otherOrigin = "https://other-example.cdn.ampproject.org"

var errDown = errors.New("the database is down")

// wantReason checks the decision on an origin.
func wantReason(t *testing.T, m *ampcors.Middleware, origin string, want ampcors.Reason) {
	t.Helper()
	if d := m.CheckOrigin(origin); d.Reason != want {
		t.Errorf("%s: %s (%v); want %s", origin, d.Reason, d.SourceErr, want)
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

func TestWhileTheSourceIsDownOnlyStalePublishersAreAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetSource("www.example.com", "other.example")
		var observed []ampcors.Decision
		publishers := s.remembered(t, source.Config{TTL: time.Minute, MaxStale: 5 * time.Minute})
		cfg := ampcors.Config{
			Source: publishers, Credentialed: true,
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
		if ran || w.Code != http.StatusServiceUnavailable || fmt.Sprint(w.Header()) != fmt.Sprint(want) || w.Body.String() != "Service Unavailable: source_unavailable\n" {
			t.Errorf("handler ran: %t; %d %v %q", ran, w.Code, w.Header(), w.Body)
		}
		if d := observed[len(observed)-1]; d.Stale || d.Reason != ampcors.ReasonSourceUnavailable || d.SourceErr == nil || d.ClaimedPublisher != "other.example" {
			t.Errorf("observed %+v", d)
		}
		if n := m.Stats().Requests[ampcors.ReasonSourceUnavailable]; n != 1 {
			t.Errorf("counted %d times", n)
		}
		if stats := publishers.Stats(); stats.Stale != 3 || stats.Errors == 0 {
			t.Errorf("%+v", stats)
		}
	})
}

func TestRequestsThatNeedNoSourceDoNotWaitForIt(t *testing.T) {
	cfg := testConfig()
	s := newSetSource()
	s.err = errDown
	cfg.Source, cfg.Email = s.remembered(t), ampcors.Email{Senders: []string{"news@example.com"}}
	m := newMiddleware(t, cfg)
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
				if vary := w.Header().Get("Vary"); strings.Contains(vary, "Access-Control-Request-Method") != (test.method == "OPTIONS") || !strings.HasPrefix(vary, "Origin") {
					t.Errorf("%s: Vary %q", test.method, vary)
				}
			}
			cfg.ReportOnly = false
		})
	}
}

// A request whose client has left is not allowed by a stale answer.
func TestACanceledRequestGetsNoStaleAnswer(t *testing.T) {
	for _, origin := range []string{ownOrigin, hashOrigin} {
		synctest.Test(t, func(t *testing.T) {
			s := newSetSource("www.example.com")
			m := newMiddleware(t, ampcors.Config{Source: s.remembered(t)})
			m.CheckOrigin(origin)
			time.Sleep(time.Minute)
			s.delay = time.Millisecond
			go m.CheckOrigin(origin)
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			r := httptest.NewRequestWithContext(ctx, "POST", "/", nil)
			r.Header.Set("Origin", origin)
			if d := m.Check(r); d.Reason != ampcors.ReasonSourceUnavailable || !errors.Is(d.SourceErr, context.Canceled) {
				t.Errorf("%+v", d)
			}
			time.Sleep(time.Second)
		})
	}
}

func TestExplainShowsTheSourcesAnswer(t *testing.T) {
	s := newSetSource("www.example.com")
	m := newMiddleware(t, ampcors.Config{Source: s.remembered(t)})
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
	if err := m.Reconfigure(ampcors.Config{Source: s.remembered(t, source.Config{TTL: 1})}); err != nil {
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

// Several Middlewares share a Source, even if they trust other caches: a domain that is a
// publisher for one may be a cache's host for another.
func TestMiddlewaresShareASource(t *testing.T) {
	t.Parallel()
	s := newSetSource("www.example.com", "a.cache.example")
	publishers := s.remembered(t)
	one := newMiddleware(t, ampcors.Config{Source: publishers})
	two := newMiddleware(t, ampcors.Config{Source: publishers, Caches: []cacheurl.Cache{{ID: "other", CacheDomain: "cache.example"}}})
	hash := "https://" + plainHash("a.cache.example")
	for range 2 { // from the Source, then from memory
		wantReason(t, one, ownOrigin, ampcors.ReasonOwnOrigin)
		wantReason(t, two, ownOrigin, ampcors.ReasonOwnOrigin)
		wantReason(t, one, "https://a.cache.example", ampcors.ReasonOwnOrigin)
		wantReason(t, one, hash+".cdn.ampproject.org", ampcors.ReasonCacheOriginHash)
		wantReason(t, two, "https://a.cache.example", ampcors.ReasonNotCanonical)
		wantReason(t, two, hash+".cache.example", ampcors.ReasonHashNotKnown)
	}
	if s.lookups() != 3 || publishers.Stats().Publishers != 2 {
		t.Errorf("%d lookups, %q; %+v", s.lookups(), s.asked, publishers.Stats())
	}
	s.remove("www.example.com")
	if err := publishers.Forget("www.example.com"); err != nil {
		t.Error(err)
	}
	wantReason(t, one, ownOrigin, ampcors.ReasonUnknownHost)
	wantReason(t, two, ownOrigin, ampcors.ReasonUnknownHost)
}

// A Middleware that outlives its Cache says that it cannot decide. Listed publishers get in.
func TestAClosedCacheIsUnavailable(t *testing.T) {
	t.Parallel()
	s := newSetSource("www.example.com")
	publishers := s.remembered(t)
	m := newMiddleware(t, ampcors.Config{Source: publishers, Publishers: []string{"listed.example", "*.wild.example"}})
	wantReason(t, m, ownOrigin, ampcors.ReasonOwnOrigin)
	wantReason(t, m, hashOrigin, ampcors.ReasonCacheOriginHash)
	publishers.Close()
	for _, m := range []*ampcors.Middleware{m, newMiddleware(t, ampcors.Config{Source: new(source.Source)})} {
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
	m := newMiddleware(t, ampcors.Config{Source: newSetSource("www.example.com").remembered(t), DangerouslyAllowHTTPOwnOrigins: true})
	wantReason(t, m, hashOrigin, ampcors.ReasonCacheOriginHash)
	for _, origin := range []string{"https://" + plainHash("www.example.com"), "http://" + plainHash("www.example.com")} {
		if d := m.CheckOrigin(origin); d.Allowed {
			t.Errorf("%+v", d)
		}
	}
}
