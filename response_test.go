package ampcors_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/internal/mwtest"
	"github.com/ampcors/ampcors/source"
)

// behind returns the response to a request if an outer handler has set headers before.
func behind(t *testing.T, cfg ampcors.Config, r *http.Request, outer ...string) *httptest.ResponseRecorder {
	t.Helper()
	rec := httptest.NewRecorder()
	maps.Copy(rec.Header(), mwtest.Headers(outer...))
	mwtest.New(t, cfg).Wrap(new(mwtest.Handler202)).ServeHTTP(rec, r)
	return rec
}

// TestThreatVaryOnSeveralLines: nginx before 1.23 keys its cache on the last line alone.
func TestThreatVaryOnSeveralLines(t *testing.T) {
	t.Parallel()
	email := mwtest.Config()
	email.Email.Senders = []string{"news@example.com"}
	for _, test := range []struct {
		cfg    ampcors.Config
		before []string
		want   string
	}{
		{cfg: mwtest.Config(), before: nil, want: "Origin"},
		{cfg: mwtest.Config(), before: []string{"Vary: Accept"}, want: "Accept, Origin"},
		{cfg: mwtest.Config(), before: []string{"Vary: Accept", "Vary: Cookie"}, want: "Accept, Cookie, Origin"},
		{cfg: mwtest.Config(), before: []string{"Vary: Origin"}, want: "Origin"},
		{cfg: mwtest.Config(), before: []string{"Vary: Accept , origin"}, want: "Accept , origin"},
		{cfg: mwtest.Config(), before: []string{"Vary: Accept", "Vary: origin"}, want: "Accept, origin"},
		{cfg: mwtest.Config(), before: []string{"Vary: X-Origin"}, want: "X-Origin, Origin"},
		{cfg: mwtest.Config(), before: []string{"Vary: *"}, want: "*, Origin"},
		{cfg: email, before: []string{"Vary: Origin"}, want: "Origin, AMP-Email-Sender"},
		{cfg: email, before: []string{"Vary: Accept"}, want: "Accept, Origin, AMP-Email-Sender"},
	} {
		t.Run(test.want, func(t *testing.T) {
			for _, origin := range []string{mwtest.CacheOrigin, mwtest.EvilOrigin, ""} {
				r := httptest.NewRequest("GET", "/", nil)
				if origin != "" {
					r.Header.Set("Origin", origin)
				}
				if got := behind(t, test.cfg, r, test.before...).Header()["Vary"]; !slices.Equal(got, []string{test.want}) {
					t.Errorf("Origin %q behind %q: Vary %q; want one line %q", origin, test.before, got, test.want)
				}
			}
		})
	}
}

// TestThreatADenialThatIsStored: anyone can trigger a denial. A cache must not store it,
// and it must not have the headers of the response that it replaces.
func TestThreatADenialThatIsStored(t *testing.T) {
	t.Parallel()
	outer := []string{
		"Cache-Control: public, max-age=3600", "CDN-Cache-Control: max-age=3600", "Surrogate-Control: max-age=3600", "X-Accel-Expires: 3600",
		"Expires: Thu, 01 Jan 2099 00:00:00 GMT",
		"Access-Control-Allow-Origin: *", "Access-Control-Allow-Credentials: true", "Access-Control-Expose-Headers: X",
		"Access-Control-Max-Age: 9", "Amp-Email-Allow-Sender: a@b.example",
		"Content-Encoding: gzip", "Content-Length: 7", "Content-Range: bytes 0-1/2", "Content-Language: de", "Content-Type: font/woff2",
		"Content-Disposition: attachment", "Content-Location: /x",
		"Etag: \"a\"", "Content-Digest: x", "Repr-Digest: x", "Digest: x", "Content-Md5: x", "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT",
		"Accept-Ranges: bytes", "Pragma: cache",
		"X-Request-Id: 7", "Strict-Transport-Security: max-age=9", // these are kept
	}
	down := mwtest.Config()
	failing := mwtest.NewDatabase()
	failing.Err = mwtest.ErrDown
	down.Source = failing.Remembered(t)
	for _, test := range []struct {
		name   string
		cfg    ampcors.Config
		status int
		want   []string
	}{
		{name: "403", cfg: mwtest.Config(), status: 403},
		{name: "503", cfg: down, status: 503, want: []string{"Retry-After: 1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Origin", mwtest.EvilOrigin)
			rec := httptest.NewRecorder()
			maps.Copy(rec.Header(), mwtest.Headers(outer...))
			for _, raw := range []string{"ETag", "cache-control"} { // which net/http sends as they are
				rec.Header()[raw] = []string{"x"}
			}
			mwtest.New(t, test.cfg).Wrap(new(mwtest.Handler202)).ServeHTTP(rec, r)
			want := mwtest.Headers(append(test.want, "Cache-Control: no-store", "Content-Type: text/plain; charset=utf-8",
				"X-Content-Type-Options: nosniff", "Vary: Origin",
				"X-Request-Id: 7", "Strict-Transport-Security: max-age=9")...)
			if rec.Code != test.status || !reflect.DeepEqual(rec.Header(), want) {
				t.Errorf("status %d, headers\n%v; want\n%v", rec.Code, rec.Header(), want)
			}
		})
	}
}

// TestTheInnerPolicyDecidesEveryCORSHeader: an inner policy can deny what an outer
// one allows.
func TestTheInnerPolicyDecidesEveryCORSHeader(t *testing.T) {
	t.Parallel()
	outer := mwtest.Config()
	outer.ResponseHeaders = []string{"X-Outer"}
	inner := mwtest.Config()
	inner.Credentialed, inner.ResponseHeaders = false, []string{}
	inner.Publishers = []string{"www.example.com"}
	h := mwtest.New(t, outer).Wrap(mwtest.New(t, inner).Wrap(new(mwtest.Handler202)))
	for origin, want := range map[string]http.Header{
		mwtest.CacheOrigin: mwtest.Headers("Vary: Origin", "Access-Control-Allow-Origin: "+mwtest.CacheOrigin),
		mwtest.WildOrigin: mwtest.Headers("Vary: Origin", "Cache-Control: no-store", "Content-Type: text/plain; charset=utf-8",
			"X-Content-Type-Options: nosniff"),
	} {
		t.Run(origin, func(t *testing.T) {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, &http.Request{Method: "GET", Header: mwtest.Headers("Origin: " + origin)})
			if !reflect.DeepEqual(rec.Header(), want) {
				t.Errorf("%s: %v; want %v", origin, rec.Header(), want)
			}
		})
	}
	for _, r := range []*http.Request{
		{Method: "GET", Header: http.Header{}},
		{Method: "POST", Header: mwtest.Headers("Origin: "+mwtest.EvilOrigin, "Sec-Fetch-Site: same-origin")},
	} {
		rec := behind(t, inner, r, "Access-Control-Allow-Origin: *")
		if rec.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%v: %v", r.Header, rec.Header())
		}
	}
	rec := httptest.NewRecorder()
	raw := "access-control-allow-credentials" // which net/http sends as it is
	rec.Header()[raw] = []string{"true"}
	mwtest.New(t, inner).Handle(rec, &http.Request{Method: "GET", Header: mwtest.Headers("Origin: " + mwtest.CacheOrigin)})
	if len(rec.Header()[raw]) > 0 {
		t.Errorf("%v", rec.Header())
	}
	// With ReportOnly, the outer policy still decides.
	inner.ReportOnly = true
	rec = behind(t, inner, &http.Request{Method: "GET", Header: mwtest.Headers("Origin: " + mwtest.EvilOrigin)},
		"Access-Control-Allow-Origin: *")
	if rec.Header().Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("%v", rec.Header())
	}
}

// TestDeniedGetsTheDecision: an API can answer in JSON, even with a 503.
func TestDeniedGetsTheDecision(t *testing.T) {
	t.Parallel()
	cfg := mwtest.Config()
	s := mwtest.NewDatabase()
	cfg.Source = s.Remembered(t)
	cfg.Denied = func(w http.ResponseWriter, r *http.Request, d ampcors.Decision) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(d.StatusCode())
		fmt.Fprintf(w, `{"error":%q}`, d.Reason.String())
	}
	const preflightVary = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"
	for _, test := range []struct {
		err            error
		method, origin string
		want, vary     string
	}{
		{err: nil, method: "GET", origin: mwtest.EvilOrigin, want: `403 {"error":"publisher_not_allowed"} `, vary: "Origin"},
		{err: nil, method: "OPTIONS", origin: mwtest.EvilOrigin, want: `403 {"error":"publisher_not_allowed"} `, vary: preflightVary},
		{err: nil, method: "GET", origin: "null", want: `403 {"error":"null_origin"} `, vary: "Origin"},
		{err: mwtest.ErrDown, method: "GET", origin: mwtest.OtherOrigin, want: `503 {"error":"source_unavailable"} 1`, vary: "Origin"},
	} {
		t.Run(test.method+" "+test.origin, func(t *testing.T) {
			s.Fail(test.err)
			r := &http.Request{Method: test.method, Header: mwtest.Headers("Origin: "+test.origin, "Access-Control-Request-Method: POST")}
			rec := behind(t, cfg, r, "Content-Type: text/html")
			if got := fmt.Sprint(rec.Code, " ", rec.Body, " ", rec.Header().Get("Retry-After")); got != test.want ||
				rec.Header().Get("Cache-Control") != "no-store" || rec.Header().Get("Vary") != test.vary {
				t.Errorf("%s: %s, %v; want %s", test.origin, got, rec.Header(), test.want)
			}
		})
	}
	if d := (ampcors.Decision{Allowed: true, Reason: ampcors.ReasonCacheOrigin}); d.StatusCode() != http.StatusNoContent {
		t.Errorf("an allowed preflight: %d", d.StatusCode())
	}
}

// TestTheHandlerGetsTheEnforcedDecision: a second decision could differ.
func TestTheHandlerGetsTheEnforcedDecision(t *testing.T) {
	t.Parallel()
	s := mwtest.NewDatabase("www.example.com")
	cache := s.Remembered(t, source.Config{TTL: 1, MaxStale: 1})
	m := mwtest.New(t, ampcors.Config{Source: cache})
	want := ampcors.Decision{Allowed: true, Reason: ampcors.ReasonCacheOrigin, Origin: mwtest.CacheOrigin, Publisher: "www.example.com",
		CacheID: "google"}
	ran := false
	h := m.WrapDecision(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ran = true
		s.Remove("www.example.com")
		if d, ok := ampcors.DecisionFromContext(r.Context()); !ok || d != want {
			t.Errorf("%+v, %t", d, ok)
		}
		if d := m.Check(r); d.Allowed {
			t.Error("this test proves nothing: a second decision is the same")
		}
	}))
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Origin", mwtest.CacheOrigin)
	h.ServeHTTP(httptest.NewRecorder(), r)
	if !ran {
		t.Error("the handler did not run")
	}
	if _, ok := ampcors.DecisionFromContext(r.Context()); ok {
		t.Error("the caller's request was changed")
	}

	s.Add("www.example.com")
	if err := cache.Forget("www.example.com"); err != nil {
		t.Error(err)
	}
	if d, proceed := m.Handle(httptest.NewRecorder(), r); !proceed || d != want {
		t.Errorf("%+v, %t", d, proceed)
	}
	r.Header.Set("Origin", mwtest.EvilOrigin)
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	d, proceed := m.Handle(httptest.NewRecorder(), r)
	if rec.Code != http.StatusForbidden || proceed || d.Reason != ampcors.ReasonPublisherNotAllowed || d.Publisher != "" ||
		d.ClaimedPublisher != "evil.example" {
		t.Errorf("status %d, %+v, %t", rec.Code, d, proceed)
	}
	if counted := m.Stats().Requests[ampcors.ReasonPublisherNotAllowed]; counted != 2 {
		t.Errorf("counted %d times", counted)
	}
}

// TestADenialBehindAHandlerThatCompresses: its Content-Encoding
// stays.
func TestADenialBehindAHandlerThatCompresses(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		compressor := gzip.NewWriter(w)
		defer compressor.Close()
		mwtest.New(t, mwtest.Config()).Wrap(new(mwtest.Handler202)).ServeHTTP(compressing{w, compressor}, r)
	}))
	defer server.Close()
	r, err := http.NewRequest("GET", server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Origin", mwtest.EvilOrigin)
	resp, err := server.Client().Do(r) // which decompresses
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); string(body) != "Forbidden: publisher_not_allowed\n" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
}

type compressing struct {
	http.ResponseWriter
	compressor *gzip.Writer
}

func (c compressing) Unwrap() http.ResponseWriter { return c.ResponseWriter }
func (c compressing) Write(b []byte) (int, error) { return c.compressor.Write(b) }

// The denial names the header that is not allowed. What it says of AMP-Same-Origin leads nobody to allow it.
func TestADeniedHeaderIsNamed(t *testing.T) {
	for _, test := range []struct{ origin, asked, want string }{
		{mwtest.CacheOrigin, "content-type, x-token, x-other",
			`: "x-token"; the configuration lists those beyond Content-Type in requestHeaders`},
		{mwtest.CacheOrigin, "amp-same-origin", `: "amp-same-origin", which only own origins are granted; a page on an AMP Cache could claim ` +
			`with it to be the API's own`},
		{mwtest.OwnOrigin, "amp-same-origin,x-token", `: "x-token"; the configuration lists those beyond Content-Type in requestHeaders`},
		{mwtest.CacheOrigin, "x-\x00" + "é", `: "x-\x00`},
		{mwtest.CacheOrigin, strings.Repeat(",", 1000), "; Access-Control-Request-Headers is longer than what is allowed"},
	} {
		rec := behind(t, ampcors.Config{Publishers: []string{"www.example.com"}}, &http.Request{Method: "OPTIONS", Header: http.Header{
			"Origin": {test.origin}, "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {test.asked},
		}})
		body := rec.Body.String()
		if !strings.HasPrefix(body, "Forbidden: header_not_allowed"+test.want) || strings.Count(body, "\n") != 1 || len(body) > 600 {
			t.Errorf("%.40q from %s: %q; want %q", test.asked, test.origin, body, test.want)
		}
	}
}

// TestVaryCostsOneAllocation: if there is a Vary before, joining it costs a second
// allocation.
func TestVaryCostsOneAllocation(t *testing.T) {
	h := mwtest.New(t, mwtest.Config()).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	w, outer := discard{make(http.Header)}, []string{"Accept"}
	for _, lines := range [][]string{{"Origin: " + mwtest.CacheOrigin}, {"Origin: " + mwtest.EvilOrigin}, nil} {
		t.Run(fmt.Sprint(lines), func(t *testing.T) {
			r := &http.Request{Method: "GET", Header: mwtest.Headers(lines...)}
			if n := testing.AllocsPerRun(100, func() {
				clear(w.h)
				w.h["Vary"] = outer
				h.ServeHTTP(w, r)
			}); n != 2 {
				t.Errorf("%v: %v allocations; want 2", lines, n)
			}
		})
	}
}
