package ampcors_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/mwtest"
	"github.com/ampcors/ampcors/source"
)

// wantReason checks the decision on an origin.
func wantReason(t *testing.T, m *ampcors.Middleware, origin string, want ampcors.Reason) {
	t.Helper()
	if d := m.CheckOrigin(origin); d.Reason != want {
		t.Errorf("%s: %s (%v); want %s", origin, d.Reason, d.SourceErr, want)
	}
}

func TestASourceIsNotAskedWhatItCannotKnow(t *testing.T) {
	cfg, s := mwtest.WithSource(t, mwtest.Config())
	cfg.Publishers = append(cfg.Publishers, "listed.example", "*.wild.example")
	m := mwtest.New(t, cfg)
	for _, origin := range []string{
		"", "null", "http://www.example.com", "https://", "https://localhost", "https://127.0.0.1", "https://a-.example.com",
		"https://example.com.",
		"https://WWW.example.com", "https://www.example.com:8443", "https://xn--zzzzzz99999.example",
		"https://" + strings.Repeat("a.", 200) + "com",
		"https://cdn.ampproject.org", "https://a.b.cdn.ampproject.org", "https://a---b-c.cdn.ampproject.org",
		"https://0-a-b-0.cdn.ampproject.org",
		"https://" + mwtest.Hash("www.example.com")[:51] + "b.cdn.ampproject.org", "https://hash.cdn.ampproject.org",
		// Reserved hosts, of caches and their frames.
		"https://d-1.ampproject.net", "https://www.bing-amp.com", "https://cdn-ampproject-org.cdn.ampproject.org",
		"https://a-cdn-ampproject-org.www.bing-amp.com",
		// Publishers that Config lists or matches.
		"https://listed.example", "https://listed-example.cdn.ampproject.org", "https://" + mwtest.Hash("listed.example") +
			".cdn.ampproject.org", "https://a-wild-example.cdn.ampproject.org", "https://a.wild.example",
	} {
		m.CheckOrigin(origin)
	}
	if len(s.Asked) > 0 {
		t.Errorf("asked for %q", s.Asked)
	}
}

// A page on a cache is asked for, whatever Sec-Fetch-Site says: it is the API host's own page only if the Origin is no cache's.
func TestACachesPageIsAskedFor(t *testing.T) {
	db := mwtest.NewDatabase("www.example.com")
	m := mwtest.New(t, ampcors.Config{Source: db.Remembered(t)})
	r := &http.Request{Method: "GET", Header: mwtest.Headers("Origin: "+mwtest.CacheOrigin, "Sec-Fetch-Site: same-origin")}
	if d := m.Check(r); d.Reason != ampcors.ReasonCacheOrigin || d.Publisher != "www.example.com" {
		t.Errorf("%+v", d)
	}
}

// A pattern in a Source allows each name below it, at a cache too, and nothing that only looks like one.
func TestAPatternInASource(t *testing.T) {
	s := mwtest.NewDatabase()
	s.Add("*.acme.example")
	m := mwtest.New(t, ampcors.Config{Source: s.Remembered(t, source.Config{Patterns: true})})
	idn, err := cacheurl.DomainPrefix("xn--bcher-kva.acme.example")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time from memory
		for _, origin := range []string{"https://www.acme.example", "https://a.b.acme.example", "https://www-acme-example.cdn.ampproject.org",
			"https://" + idn + ".cdn.ampproject.org", "https://xn--bcher-kva.acme.example"} {
			d := m.CheckOrigin(origin)
			if !d.Allowed || !strings.HasSuffix(d.Publisher, ".acme.example") || strings.HasPrefix(d.Publisher, "*") || d.Stale ||
				d.SourceErr != nil {
				t.Errorf("%s: %+v", origin, d)
			}
			if e := m.Explain(origin); e.Decision != d || !strings.Contains(fmt.Sprint(e.Steps),
				"Matched by *.acme.example, which the Source knows.") {
				t.Errorf("%s: %+v", origin, e)
			}
			if !d.IsFor("*.acme.example") || !d.IsFor("*.ACME.example") || !d.IsFor(strings.ToUpper(d.Publisher)) || d.IsFor("*.b.example") ||
				d.IsFor("acme.example") ||
				d.IsFor("*."+d.Publisher) || d.IsFor("*.*.acme.example") || d.IsFor("*") {
				t.Errorf("IsFor of %+v", d)
			}
		}
		for _, origin := range []string{"https://acme.example", "https://acme-example.cdn.ampproject.org", "https://.acme.example",
			"https://*.acme.example",
			"https://-acme-example.cdn.ampproject.org", "https://*-acme-example.cdn.ampproject.org", "https://0--acme-example-0.cdn.ampproject.org",
			"http://www.acme.example",
			"https://" + mwtest.Hash("www.acme.example") + ".cdn.ampproject.org", "https://" + mwtest.Hash("*.acme.example") + ".cdn.ampproject.org",
			"https://wwwacme.example", "https://www.acme.example.evil.example", "https://-.acme.example", "https://www..acme.example"} {
			if d := m.CheckOrigin(origin); d.Allowed || d.SourceErr != nil {
				t.Errorf("%s: %+v", origin, d)
			}
		}
	}
	s.Fail(mwtest.ErrDown)
	if d := m.CheckOrigin("https://other.acme.example"); !d.Allowed || d.Publisher != "other.acme.example" {
		t.Errorf("%+v", d)
	}
	synctest.Test(t, func(t *testing.T) {
		s := mwtest.NewDatabase()
		s.Add("*.acme.example")
		publishers := s.Remembered(t, source.Config{Patterns: true})
		defer publishers.Close()
		m := mwtest.New(t, ampcors.Config{Source: publishers})
		m.CheckOrigin("https://www.acme.example")
		time.Sleep(2 * time.Minute)
		s.Fail(mwtest.ErrDown)
		e := m.Explain("https://www.acme.example")
		if d := e.Decision; !d.Allowed || !d.Stale || d.Publisher != "www.acme.example" ||
			!strings.Contains(fmt.Sprint(e.Steps), "Matched by *.acme.example, which the Source knew when it last answered. Now it failed: ") {
			t.Errorf("%+v", e)
		}
	})
}

func TestWhileTheSourceIsDownOnlyStalePublishersAreAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mwtest.NewDatabase("www.example.com", "other.example")
		var observed []ampcors.Decision
		publishers := s.Remembered(t, source.Config{TTL: time.Minute, MaxStale: 5 * time.Minute})
		cfg := ampcors.Config{
			Source: publishers, Credentialed: true,
			Observe: func(_ *http.Request, d ampcors.Decision) { observed = append(observed, d) },
		}
		m := mwtest.New(t, cfg)
		get := func(origin string) (*httptest.ResponseRecorder, bool) {
			w, r, handler := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), new(mwtest.Spy)
			r.Header.Set("Origin", origin)
			m.Wrap(handler).ServeHTTP(w, r)
			return w, handler.Ran
		}
		confirmed := time.Now()
		if _, ran := get(mwtest.HashOrigin); !ran {
			t.Fatal("not allowed")
		}
		s.Fail(mwtest.ErrDown)
		time.Sleep(time.Until(confirmed.Add(time.Minute)))
		for _, origin := range []string{mwtest.CacheOrigin, mwtest.HashOrigin, mwtest.OwnOrigin} {
			w, ran := get(origin)
			if got := w.Header().Get("Access-Control-Allow-Origin"); !ran || got != origin {
				t.Errorf("%s: handler ran: %t, ACAO %q; it was confirmed a minute ago", origin, ran, got)
			}
			if d := observed[len(observed)-1]; !d.Stale || !d.Allowed || !errors.Is(d.SourceErr, mwtest.ErrDown) ||
				d.Publisher != "www.example.com" {
				t.Errorf("observed %+v", d)
			}
		}
		time.Sleep(time.Second)
		w, ran := get(mwtest.OtherOrigin)
		want := http.Header{"Vary": {"Origin"}, "Cache-Control": {"no-store"}, "Retry-After": {"1"},
			"Content-Type": {"text/plain; charset=utf-8"}, "X-Content-Type-Options": {"nosniff"}}
		if ran || w.Code != http.StatusServiceUnavailable || fmt.Sprint(w.Header()) != fmt.Sprint(want) ||
			w.Body.String() != "Service Unavailable: source_unavailable\n" {
			t.Errorf("handler ran: %t; %d %v %q", ran, w.Code, w.Header(), w.Body)
		}
		if d := observed[len(observed)-1]; d.Stale || d.Reason != ampcors.ReasonSourceUnavailable || d.SourceErr == nil ||
			d.ClaimedPublisher != "other.example" {
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
	cfg := mwtest.Config()
	s := mwtest.NewDatabase()
	s.Err = mwtest.ErrDown
	cfg.Source, cfg.Email = s.Remembered(t), ampcors.Email{Senders: []string{"news@example.com"}}
	m := mwtest.New(t, cfg)
	for _, test := range []struct {
		method string
		lines  []string
		want   ampcors.Reason
	}{
		{method: "GET", lines: nil, want: ampcors.ReasonNoOrigin},
		{method: "POST", lines: []string{"Origin: https://api.example", "Sec-Fetch-Site: same-origin"}, want: ampcors.ReasonSameOrigin},
		{method: "POST", lines: []string{"Origin: " + mwtest.PlaygroundOrigin}, want: ampcors.ReasonExtraOrigin},
		// mail.google.com may be a publisher
		{method: "GET", lines: []string{"Origin: https://mail.google.com"}, want: ampcors.ReasonSourceUnavailable},
		{method: "GET", lines: []string{"Origin: https://mail.google.com", "AMP-Email-Sender: news@example.com"}, want: ampcors.ReasonEmail},
		{method: "OPTIONS", lines: []string{"Origin: " + mwtest.OtherOrigin, "Access-Control-Request-Method: POST"},
			want: ampcors.ReasonSourceUnavailable},
		{method: "POST", lines: []string{"Origin: " + mwtest.OtherOrigin}, want: ampcors.ReasonSourceUnavailable},
	} {
		t.Run(fmt.Sprint(test.method, " ", test.lines), func(t *testing.T) {
			r := httptest.NewRequest(test.method, "/", nil)
			r.Header = mwtest.Headers(test.lines...)
			before := s.Lookups()
			d := m.Check(r)
			if asked := s.Lookups() > before; asked && test.want != ampcors.ReasonSourceUnavailable && test.want != ampcors.ReasonExtraOrigin {
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
				w, handler := httptest.NewRecorder(), new(mwtest.Spy)
				m.Wrap(handler).ServeHTTP(w, r)
				if test.want != ampcors.ReasonSourceUnavailable {
					continue
				}
				if handler.Ran != reportOnly || w.Code == http.StatusServiceUnavailable == reportOnly ||
					w.Header().Get("Access-Control-Allow-Origin") != "" {
					t.Errorf("%s %v, report only %t: handler ran: %t; %d %v", test.method, test.lines, reportOnly, handler.Ran, w.Code, w.Header())
				}
				if vary := w.Header().Get("Vary"); strings.Contains(vary, "Access-Control-Request-Method") != (test.method == "OPTIONS") ||
					!strings.HasPrefix(vary, "Origin") {
					t.Errorf("%s: Vary %q", test.method, vary)
				}
			}
			cfg.ReportOnly = false
		})
	}
}

// A request whose client has left is not allowed by a stale answer.
func TestACanceledRequestGetsNoStaleAnswer(t *testing.T) {
	for _, origin := range []string{mwtest.OwnOrigin, mwtest.HashOrigin} {
		synctest.Test(t, func(t *testing.T) {
			s := mwtest.NewDatabase("www.example.com")
			m := mwtest.New(t, ampcors.Config{Source: s.Remembered(t)})
			m.CheckOrigin(origin)
			time.Sleep(time.Minute)
			s.Delay = time.Millisecond
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
	s := mwtest.NewDatabase("www.example.com")
	m := mwtest.New(t, ampcors.Config{Source: s.Remembered(t)})
	for origin, want := range map[string]string{
		mwtest.CacheOrigin:     "Known to the Source.",
		mwtest.HashOrigin:      "The hash prefix of this publisher, which the Source knows.",
		mwtest.OwnOrigin:       "Known to the Source.",
		mwtest.EvilOrigin:      "Neither listed in Publishers nor matched by a pattern there, and the Source does not know it.",
		"https://evil.example": "Neither listed in Publishers nor matched by a pattern there, and the Source does not know it.",
		mwtest.UnknownHashOrigin: "No publisher that is listed exactly has this hash prefix, and the Source does not know it. A pattern cannot " +
			"match a hash prefix.",
	} {
		t.Run(origin, func(t *testing.T) {
			checkAllowlistStep(t, m, origin, want)
		})
	}
	s.Err = mwtest.ErrDown
	checkAllowlistStep(t, m, mwtest.OtherOrigin, "Not in Publishers, and the Source failed: the database is down.")
	s.Err = nil
	if err := m.Reconfigure(ampcors.Config{Source: s.Remembered(t, source.Config{TTL: 1})}); err != nil {
		t.Fatal(err)
	}
	wantReason(t, m, mwtest.CacheOrigin, ampcors.ReasonCacheOrigin)
	s.Err = mwtest.ErrDown
	checkAllowlistStep(t, m, mwtest.CacheOrigin, "Known to the Source when it last answered. Now it failed: the database is down.")
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
	s := mwtest.NewDatabase("www.example.com", "a.cache.example")
	publishers := s.Remembered(t)
	one := mwtest.New(t, ampcors.Config{Source: publishers})
	two := mwtest.New(t, ampcors.Config{Source: publishers, Caches: []cacheurl.Cache{{ID: "other", CacheDomain: "cache.example"}}})
	hash := "https://" + mwtest.Hash("a.cache.example")
	for range 2 { // from the Source, then from memory
		wantReason(t, one, mwtest.OwnOrigin, ampcors.ReasonOwnOrigin)
		wantReason(t, two, mwtest.OwnOrigin, ampcors.ReasonOwnOrigin)
		wantReason(t, one, "https://a.cache.example", ampcors.ReasonOwnOrigin)
		wantReason(t, one, hash+".cdn.ampproject.org", ampcors.ReasonCacheOriginHash)
		wantReason(t, two, "https://a.cache.example", ampcors.ReasonNotCanonical)
		wantReason(t, two, hash+".cache.example", ampcors.ReasonHashNotKnown)
	}
	if s.Lookups() != 3 || publishers.Stats().Publishers != 2 {
		t.Errorf("%d lookups, %q; %+v", s.Lookups(), s.Asked, publishers.Stats())
	}
	s.Remove("www.example.com")
	if err := publishers.Forget("www.example.com"); err != nil {
		t.Error(err)
	}
	wantReason(t, one, mwtest.OwnOrigin, ampcors.ReasonUnknownHost)
	wantReason(t, two, mwtest.OwnOrigin, ampcors.ReasonUnknownHost)
}

// A Middleware whose Source is closed answers source_unavailable. Listed publishers get in.
func TestAClosedSourceIsUnavailable(t *testing.T) {
	t.Parallel()
	s := mwtest.NewDatabase("www.example.com")
	publishers := s.Remembered(t)
	m := mwtest.New(t, ampcors.Config{Source: publishers, Publishers: []string{"listed.example", "*.wild.example"}})
	wantReason(t, m, mwtest.OwnOrigin, ampcors.ReasonOwnOrigin)
	wantReason(t, m, mwtest.HashOrigin, ampcors.ReasonCacheOriginHash)
	publishers.Close()
	for _, m := range []*ampcors.Middleware{m, mwtest.New(t, ampcors.Config{Source: new(source.Source)})} {
		for _, origin := range []string{mwtest.CacheOrigin, mwtest.HashOrigin, mwtest.OwnOrigin, mwtest.IDNOrigin} {
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
	m := mwtest.New(t, ampcors.Config{Source: mwtest.NewDatabase("www.example.com").Remembered(t), DangerouslyAllowHTTPOwnOrigins: true})
	wantReason(t, m, mwtest.HashOrigin, ampcors.ReasonCacheOriginHash)
	for _, origin := range []string{"https://" + mwtest.Hash("www.example.com"), "http://" + mwtest.Hash("www.example.com")} {
		if d := m.CheckOrigin(origin); d.Allowed {
			t.Errorf("%+v", d)
		}
	}
}
