package ampcors

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"
)

// Origins that the tests use, of www.example.com unless a name or comment says otherwise.
const (
	cacheOrigin       = "https://www-example-com.cdn.ampproject.org"
	bingOrigin        = "https://www-example-com.www.bing-amp.com"
	ownOrigin         = "https://www.example.com"
	evilOrigin        = "https://evil-example.cdn.ampproject.org" // another publisher's page
	playgroundOrigin  = "https://playground.amp.dev"
	wildOrigin        = "https://blog-example-net.cdn.ampproject.org" // below *.example.net
	idnOrigin         = "https://xn--bcher-ch-65a.cdn.ampproject.org" // bücher.ch
	unknownHashOrigin = "https://v2c4ucasgcskftbjt4c7phpkbqedcdcqo23tkamleapoa5o6fygq.cdn.ampproject.org"
)

var hashOrigin = "https://" + plainHash("www.example.com") + ".cdn.ampproject.org"

func testConfig() Config {
	return Config{
		Publishers:   []string{"www.example.com", "bücher.ch", "*.example.net"},
		Origins:      []string{playgroundOrigin},
		Credentialed: true,
	}
}

func newMiddleware(t testing.TB, cfg Config) *Middleware {
	t.Helper()
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A spy is a handler that records whether it ran, and sets headers of its own.
type spy struct{ ran bool }

func (s *spy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.ran = true
	w.Header().Add("Vary", "Accept")
	w.Header().Set("X-Handler", "ran")
	w.WriteHeader(http.StatusAccepted)
}

// headers makes a header of "Key: value" lines.
func headers(lines ...string) http.Header {
	h := make(http.Header)
	for _, line := range lines {
		key, value, _ := strings.Cut(line, ": ")
		h.Add(key, value)
	}
	return h
}

// TestTheRequestTable compares, for each kind of request, all of the response's
// headers, whether the handler ran, and the reason. An outer middleware has set a
// Vary before.
func TestTheRequestTable(t *testing.T) {
	t.Parallel()
	const (
		varyOuter = "Vary: Outer"
		varyOwn   = "Vary: Outer, Origin" // in one line
		noStore   = "Cache-Control: no-store"
		varySpy   = "Vary: Accept"
		ran       = "X-Handler: ran"
		creds     = "Access-Control-Allow-Credentials: true"
		exposed   = "Access-Control-Expose-Headers: AMP-Redirect-To"
		plainText = "Content-Type: text/plain; charset=utf-8"
		nosniff   = "X-Content-Type-Options: nosniff"
		asksPOST  = "Access-Control-Request-Method: POST"
		acamPOST  = "Access-Control-Allow-Methods: POST"
	)
	origin := func(o string) string { return "Origin: " + o }
	acao := func(o string) string { return "Access-Control-Allow-Origin: " + o }
	asks := func(names string) string { return "Access-Control-Request-Headers: " + names }
	acah := func(names string) string { return "Access-Control-Allow-Headers: " + names }
	granted := func(o string) []string {
		return []string{varyOwn, varySpy, ran, acao(o), creds, exposed}
	}
	passed := []string{varyOwn, varySpy, ran}
	denied := []string{varyOwn, noStore, plainText, nosniff}
	deniedPreflight := []string{varyOuter, noStore, plainText, nosniff}

	for _, config := range []struct {
		name     string
		change   func(*Config)
		requests []request
	}{
		{"credentialed", func(*Config) {}, []request{
			{"cache origin", "GET", []string{origin(cacheOrigin)}, 202, granted(cacheOrigin), ReasonCacheOrigin},
			{"another cache", "GET", []string{origin(bingOrigin)}, 202, granted(bingOrigin), ReasonCacheOrigin},
			{"hash prefix", "GET", []string{origin(hashOrigin)}, 202, granted(hashOrigin), ReasonCacheOriginHash},
			{"internationalised", "GET", []string{origin(idnOrigin)}, 202, granted(idnOrigin), ReasonCacheOrigin},
			{"below a pattern", "GET", []string{origin(wildOrigin)}, 202, granted(wildOrigin), ReasonCacheOrigin},
			{"own origin", "GET", []string{origin(ownOrigin)}, 202, granted(ownOrigin), ReasonOwnOrigin},
			{"own origin below a pattern", "GET", []string{origin("https://blog.example.net")}, 202, granted("https://blog.example.net"), ReasonOwnOrigin},
			{"own origin, internationalised", "GET", []string{origin("https://xn--bcher-kva.ch")}, 202, granted("https://xn--bcher-kva.ch"), ReasonOwnOrigin},
			{"extra origin", "GET", []string{origin(playgroundOrigin)}, 202, granted(playgroundOrigin), ReasonExtraOrigin},
			{"unsafe method", "POST", []string{origin(cacheOrigin)}, 202, granted(cacheOrigin), ReasonCacheOrigin},
			{"unsafe method that no preflight may ask for", "DELETE", []string{origin(cacheOrigin)}, 202, granted(cacheOrigin), ReasonCacheOrigin},
			{"HEAD", "HEAD", []string{origin(cacheOrigin)}, 202, granted(cacheOrigin), ReasonCacheOrigin},

			{"another publisher", "GET", []string{origin(evilOrigin)}, 403, denied, ReasonPublisherNotAllowed},
			{"another publisher, unsafe", "POST", []string{origin(evilOrigin)}, 403, denied, ReasonPublisherNotAllowed},
			{"another publisher that calls itself same-origin", "POST", []string{origin(evilOrigin), "AMP-Same-Origin: true"}, 403, denied, ReasonPublisherNotAllowed},
			{"apex of a pattern", "GET", []string{origin("https://example-net.cdn.ampproject.org")}, 403, denied, ReasonPublisherNotAllowed},
			{"unknown hash", "GET", []string{origin(unknownHashOrigin)}, 403, denied, ReasonHashNotKnown},
			{"hash below a pattern", "GET", []string{origin("https://" + plainHash("blog.example.net") + ".cdn.ampproject.org")}, 403, denied, ReasonHashNotKnown},
			{"unknown host", "GET", []string{origin("https://evil.example")}, 403, denied, ReasonUnknownHost},
			{"null", "GET", []string{origin("null")}, 403, denied, ReasonNull},
			{"http own origin", "GET", []string{origin("http://www.example.com")}, 403, denied, ReasonNotHTTPS},
			{"empty", "GET", []string{origin("")}, 403, denied, ReasonMalformed},
			{"two Origins", "GET", []string{origin(cacheOrigin), origin(cacheOrigin)}, 403, denied, ReasonMalformed},
			{"two Origins from the host's own page", "GET", []string{origin(cacheOrigin), origin(cacheOrigin), "Sec-Fetch-Site: same-origin"}, 403, denied, ReasonMalformed},

			{"the API host's own page", "POST", []string{origin("https://api.example.org"), "Sec-Fetch-Site: same-origin"}, 202, passed, ReasonSameOrigin},
			{"the API host's own page, which hides its referrer", "POST", []string{origin("null"), "Sec-Fetch-Site: same-origin"}, 202, passed, ReasonSameOrigin},
			{"null from another site", "POST", []string{origin("null"), "Sec-Fetch-Site: cross-site"}, 403, denied, ReasonNull},
			{"the same site is not the same origin", "POST", []string{origin("https://api.example.org"), "Sec-Fetch-Site: same-site"}, 403, denied, ReasonUnknownHost},
			{"Sec-Fetch-Site twice", "POST", []string{origin("https://api.example.org"), "Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: same-origin"}, 403, denied, ReasonUnknownHost},

			{"no Origin", "GET", nil, 202, passed, ReasonNoOrigin},
			{"no Origin, HEAD", "HEAD", nil, 202, passed, ReasonNoOrigin},
			{"no Origin, POST", "POST", nil, 403, denied, ReasonNoOriginUnsafe},
			{"no Origin, PUT", "PUT", nil, 403, denied, ReasonNoOriginUnsafe},
			{"no Origin, DELETE", "DELETE", nil, 403, denied, ReasonNoOriginUnsafe},
			{"no Origin, PATCH", "PATCH", nil, 403, denied, ReasonNoOriginUnsafe},
			{"no Origin, a method of its own", "PURGE", nil, 403, denied, ReasonNoOriginUnsafe},
			{"no Origin, get in lower case", "get", nil, 403, denied, ReasonNoOriginUnsafe},
			{"no Origin, TRACE", "TRACE", nil, 403, denied, ReasonNoOriginUnsafe},
			{"no Origin, POST, AMP-Same-Origin", "POST", []string{"AMP-Same-Origin: true"}, 202, passed, ReasonSameOrigin},
			{"no Origin, POST, AMP-Same-Origin, same-origin", "POST", []string{"AMP-Same-Origin: true", "Sec-Fetch-Site: same-origin"}, 202, passed, ReasonSameOrigin},
			{"no Origin, POST, AMP-Same-Origin, cross-site", "POST", []string{"AMP-Same-Origin: true", "Sec-Fetch-Site: cross-site"}, 403, denied, ReasonNoOriginUnsafe},
			{"no Origin, POST, AMP-Same-Origin, same-site", "POST", []string{"AMP-Same-Origin: true", "Sec-Fetch-Site: same-site"}, 403, denied, ReasonNoOriginUnsafe},
			{"no Origin, POST, AMP-Same-Origin, none", "POST", []string{"AMP-Same-Origin: true", "Sec-Fetch-Site: none"}, 403, denied, ReasonNoOriginUnsafe},
			{"no Origin, POST, same-origin alone", "POST", []string{"Sec-Fetch-Site: same-origin"}, 403, denied, ReasonNoOriginUnsafe},
			{"no Origin, POST, AMP-Same-Origin True", "POST", []string{"AMP-Same-Origin: True"}, 403, denied, ReasonNoOriginUnsafe},
			{"no Origin, POST, AMP-Same-Origin 1", "POST", []string{"AMP-Same-Origin: 1"}, 403, denied, ReasonNoOriginUnsafe},
			{"no Origin, POST, AMP-Same-Origin twice", "POST", []string{"AMP-Same-Origin: true", "AMP-Same-Origin: true"}, 403, denied, ReasonNoOriginUnsafe},

			{"preflight", "OPTIONS", []string{origin(cacheOrigin), asksPOST}, 204, []string{varyOuter, acao(cacheOrigin), creds, acamPOST}, ReasonCacheOrigin},
			{"preflight for GET", "OPTIONS", []string{origin(hashOrigin), "Access-Control-Request-Method: GET"}, 204, []string{varyOuter, acao(hashOrigin), creds, "Access-Control-Allow-Methods: GET"}, ReasonCacheOriginHash},
			{"preflight with header", "OPTIONS", []string{origin(cacheOrigin), asksPOST, asks("content-type")}, 204, []string{varyOuter, acao(cacheOrigin), creds, acamPOST, acah("content-type")}, ReasonCacheOrigin},
			{"preflight with odd spacing", "OPTIONS", []string{origin(cacheOrigin), asksPOST, asks(" ,\tContent-Type ,, ")}, 204, []string{varyOuter, acao(cacheOrigin), creds, acamPOST, acah(" ,\tContent-Type ,, ")}, ReasonCacheOrigin},
			{"preflight with an empty list", "OPTIONS", []string{origin(cacheOrigin), asksPOST, asks("")}, 204, []string{varyOuter, acao(cacheOrigin), creds, acamPOST}, ReasonCacheOrigin},
			{"preflight from an own origin, redirected", "OPTIONS", []string{origin(ownOrigin), asksPOST, asks("amp-same-origin,content-type")}, 204, []string{varyOuter, acao(ownOrigin), creds, acamPOST, acah("amp-same-origin,content-type")}, ReasonOwnOrigin},
			{"preflight from a cache for amp-same-origin", "OPTIONS", []string{origin(cacheOrigin), asksPOST, asks("amp-same-origin")}, 403, deniedPreflight, ReasonHeaderNotAllowed},
			{"preflight from a hash prefix for amp-same-origin", "OPTIONS", []string{origin(hashOrigin), asksPOST, asks("AMP-Same-Origin")}, 403, deniedPreflight, ReasonHeaderNotAllowed},
			{"preflight from an extra origin for amp-same-origin", "OPTIONS", []string{origin(playgroundOrigin), asksPOST, asks("amp-same-origin")}, 403, deniedPreflight, ReasonHeaderNotAllowed},
			{"preflight with a header that is not allowed", "OPTIONS", []string{origin(cacheOrigin), asksPOST, asks("content-type,authorization")}, 403, deniedPreflight, ReasonHeaderNotAllowed},
			{"preflight for a method that is not allowed", "OPTIONS", []string{origin(cacheOrigin), "Access-Control-Request-Method: DELETE"}, 403, deniedPreflight, ReasonMethodNotAllowed},
			{"preflight for a method in lower case", "OPTIONS", []string{origin(cacheOrigin), "Access-Control-Request-Method: post"}, 403, deniedPreflight, ReasonMethodNotAllowed},
			{"preflight for two methods", "OPTIONS", []string{origin(cacheOrigin), asksPOST, asksPOST}, 403, deniedPreflight, ReasonMethodNotAllowed},
			{"preflight for no method", "OPTIONS", []string{origin(cacheOrigin), "Access-Control-Request-Method: "}, 403, deniedPreflight, ReasonMethodNotAllowed},
			{"preflight of another publisher", "OPTIONS", []string{origin(evilOrigin), asksPOST}, 403, deniedPreflight, ReasonPublisherNotAllowed},
			{"preflight of another publisher, for a method that is not allowed", "OPTIONS", []string{origin(evilOrigin), "Access-Control-Request-Method: DELETE"}, 403, deniedPreflight, ReasonPublisherNotAllowed},
			{"preflight cannot be same-origin", "OPTIONS", []string{origin(evilOrigin), asksPOST, "Sec-Fetch-Site: same-origin"}, 403, deniedPreflight, ReasonPublisherNotAllowed},
			{"preflight for a private network", "OPTIONS", []string{origin(cacheOrigin), asksPOST, "Access-Control-Request-Private-Network: true"}, 204, []string{varyOuter, acao(cacheOrigin), creds, acamPOST}, ReasonCacheOrigin},

			{"OPTIONS that is no preflight", "OPTIONS", []string{origin(cacheOrigin)}, 202, []string{varyOuter, varySpy, ran, acao(cacheOrigin), creds, exposed}, ReasonCacheOrigin},
			{"OPTIONS without Origin", "OPTIONS", []string{asksPOST}, 202, []string{varyOuter, varySpy, ran}, ReasonNoOrigin},
			{"OPTIONS of another publisher", "OPTIONS", []string{origin(evilOrigin)}, 403, deniedPreflight, ReasonPublisherNotAllowed},
			{"GET with a preflight's header", "GET", []string{origin(cacheOrigin), asksPOST}, 202, granted(cacheOrigin), ReasonCacheOrigin},
		}},
		{"not credentialed, with lists", func(cfg *Config) {
			cfg.Credentialed = false
			cfg.Methods = []string{"PUT", "Custom"}
			cfg.RequestHeaders = []string{"X-Requested-With", "Authorization", "X-Kind"}
			cfg.ResponseHeaders = []string{"X-A", "X-B"}
			cfg.MaxAge = 10 * time.Minute
		}, []request{
			{"cache origin", "GET", []string{origin(cacheOrigin)}, 202, append(passed[:3:3], acao(cacheOrigin), "Access-Control-Expose-Headers: X-A,X-B"), ReasonCacheOrigin},
			{"preflight", "OPTIONS", []string{origin(cacheOrigin), "Access-Control-Request-Method: PUT", asks("authorization,x-requested-with")}, 204,
				[]string{varyOuter, acao(cacheOrigin), "Access-Control-Allow-Methods: PUT", acah("authorization,x-requested-with"), "Access-Control-Max-Age: 600"}, ReasonCacheOrigin},
			{"preflight with several lines", "OPTIONS", []string{origin(cacheOrigin), "Access-Control-Request-Method: Custom", asks("authorization"), asks("x-requested-with")}, 204,
				[]string{varyOuter, acao(cacheOrigin), "Access-Control-Allow-Methods: Custom", acah("authorization,x-requested-with"), "Access-Control-Max-Age: 600"}, ReasonCacheOrigin},
			{"preflight with a name that only Unicode folding makes an allowed one", "OPTIONS", []string{origin(cacheOrigin), asksPOST, asks("x-\u212aind")}, 403, deniedPreflight, ReasonHeaderNotAllowed},
			{"preflight for a method in another case", "OPTIONS", []string{origin(cacheOrigin), "Access-Control-Request-Method: CUSTOM"}, 403, deniedPreflight, ReasonMethodNotAllowed},
		}},
		{"origins that also belong to publishers", func(cfg *Config) { cfg.Origins = []string{ownOrigin, cacheOrigin, evilOrigin} }, []request{
			{"own origin", "OPTIONS", []string{origin(ownOrigin), asksPOST, asks("amp-same-origin")}, 204, []string{varyOuter, acao(ownOrigin), creds, acamPOST, acah("amp-same-origin")}, ReasonOwnOrigin},
			{"cache origin", "GET", []string{origin(cacheOrigin)}, 202, granted(cacheOrigin), ReasonCacheOrigin},
			{"a cache origin of a publisher that is not allowed", "GET", []string{origin(evilOrigin)}, 202, granted(evilOrigin), ReasonExtraOrigin},
		}},
		{"nothing exposed", func(cfg *Config) { cfg.ResponseHeaders = []string{} }, []request{
			{"cache origin", "GET", []string{origin(cacheOrigin)}, 202, append(passed[:3:3], acao(cacheOrigin), creds), ReasonCacheOrigin},
		}},
		{"one cache", func(cfg *Config) { cfg.Caches = DefaultCaches()[:1] }, []request{
			{"the cache that is trusted", "GET", []string{origin(cacheOrigin)}, 202, granted(cacheOrigin), ReasonCacheOrigin},
			{"a cache that is not trusted", "GET", []string{origin(bingOrigin)}, 403, denied, ReasonUnknownHost},
		}},
		{"report only", func(cfg *Config) { cfg.ReportOnly = true }, []request{
			{"allowed", "GET", []string{origin(cacheOrigin)}, 202, granted(cacheOrigin), ReasonCacheOrigin},
			{"another publisher", "POST", []string{origin(evilOrigin)}, 202, passed, ReasonPublisherNotAllowed},
			{"no Origin, POST", "POST", nil, 202, passed, ReasonNoOriginUnsafe},
			{"allowed preflight", "OPTIONS", []string{origin(cacheOrigin), asksPOST}, 204, []string{varyOuter, acao(cacheOrigin), creds, acamPOST}, ReasonCacheOrigin},
			{"denied preflight", "OPTIONS", []string{origin(evilOrigin), asksPOST}, 202, []string{varyOuter, varySpy, ran}, ReasonPublisherNotAllowed},
		}},
		{"denied handler", func(cfg *Config) {
			cfg.Denied = func(w http.ResponseWriter, r *http.Request, d Decision) {
				w.Header().Set("X-Denied", d.Origin)
				w.WriteHeader(http.StatusTeapot)
			}
		}, []request{
			{"allowed", "GET", []string{origin(cacheOrigin)}, 202, granted(cacheOrigin), ReasonCacheOrigin},
			{"denied", "GET", []string{origin(evilOrigin)}, 418, []string{varyOwn, noStore, "X-Denied: " + evilOrigin}, ReasonPublisherNotAllowed},
			{"denied preflight", "OPTIONS", []string{origin(evilOrigin), asksPOST}, 418, []string{varyOuter, noStore, "X-Denied: " + evilOrigin}, ReasonPublisherNotAllowed},
		}},
		{"http own origins", func(cfg *Config) {
			cfg.DangerouslyAllowHTTPOwnOrigins = true
			cfg.Caches = []Cache{{ID: "own", CacheDomain: "cdn.example.net"}}
			cfg.Publishers = []string{"www.example.com", "*.net"}
			cfg.DangerouslyAllowPublicSuffixWildcards = true
		}, []request{
			{"own origin", "GET", []string{origin("http://www.example.com")}, 202, granted("http://www.example.com"), ReasonOwnOrigin},
			{"another host", "GET", []string{origin("http://evil.example")}, 403, denied, ReasonUnknownHost},
			{"a cache over http", "GET", []string{origin("http://www-example-com.cdn.ampproject.org")}, 403, denied, ReasonUnknownHost},
			{"a cache over http, below a pattern", "GET", []string{origin("http://cdn.example.net")}, 403, denied, ReasonUnknownHost},
			{"another scheme", "GET", []string{origin("ftp://www.example.com")}, 403, denied, ReasonNotHTTPS},
		}},
		{"unsafe requests without Origin", func(cfg *Config) { cfg.DangerouslyAllowUnsafeRequestsWithoutOrigin = true }, []request{
			{"no Origin, POST", "POST", nil, 202, passed, ReasonNoOrigin},
			{"another publisher", "POST", []string{origin(evilOrigin)}, 403, denied, ReasonPublisherNotAllowed},
		}},
	} {
		for _, email := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, email %t", config.name, email), func(t *testing.T) {
				t.Parallel()
				cfg := testConfig()
				config.change(&cfg)
				if email {
					cfg.Email.Senders = []string{"news@example.com"} // which changes only Vary
				}
				for _, test := range config.requests {
					want := headers(test.want...)
					if i := slices.Index(want["Vary"], "Outer, Origin"); email && i >= 0 {
						want["Vary"][i] = "Outer, Origin, AMP-Email-Sender"
					}
					checkRequest(t, cfg, test, "?__amp_source_origin=https%3A%2F%2Fwww.example.com", want)
				}
			})
		}
	}
}

// A request is a row of a table: what is sent, and what is expected.
type request struct {
	name    string
	method  string
	headers []string
	status  int // 202 if the handler runs
	want    []string
	reason  Reason
}

// checkRequest sends one request and compares the complete result. It must be the same
// whether the publishers are listed or known to a Source.
func checkRequest(t *testing.T, cfg Config, test request, query string, want http.Header) {
	t.Helper()
	checkRequestWith(t, cfg, test, query, want)
	cfg, _ = withSource(cfg)
	test.name += ", with a Source"
	checkRequestWith(t, cfg, test, query, want)
}

func checkRequestWith(t *testing.T, cfg Config, test request, query string, want http.Header) {
	t.Helper()
	var observed []Decision
	cfg.Observe = func(r *http.Request, d Decision) { observed = append(observed, d) }
	m := newMiddleware(t, cfg)
	r := httptest.NewRequest(test.method, "https://api.example.org/data"+query, nil)
	for key, values := range headers(test.headers...) {
		r.Header[key] = values
	}
	rec := httptest.NewRecorder()
	rec.Header().Add("Vary", "Outer")
	handler := new(spy)
	d := m.Check(r)
	m.Wrap(handler).ServeHTTP(rec, r)

	if !reflect.DeepEqual(rec.Header(), want) {
		t.Errorf("%s: headers\n%v; want\n%v", test.name, rec.Header(), want)
	}
	if rec.Code != test.status || handler.ran != (test.status == http.StatusAccepted) {
		t.Errorf("%s: status %d, the handler ran: %t; want %d", test.name, rec.Code, handler.ran, test.status)
	}
	if d.Reason != test.reason {
		t.Errorf("%s: reason %q; want %q", test.name, d.Reason, test.reason)
	}
	if len(observed) != 1 || observed[0] != d {
		t.Errorf("%s: observed %+v; want once %+v", test.name, observed, d)
	}
	if s := m.Stats(); s[test.reason] != 1 || s.Allowed()+s.Denied() != 1 {
		t.Errorf("%s: counted as %v", test.name, s)
	}
	hint := ""
	if test.reason == ReasonNoOriginUnsafe {
		hint = `; same-origin requests of the AMP runtime have "AMP-Same-Origin: true"`
	}
	if rec.Code == http.StatusForbidden && rec.Body.String() != "Forbidden: "+test.reason.String()+hint+"\n" {
		t.Errorf("%s: body %q", test.name, rec.Body)
	}
}

func TestADecisionNamesThePublisherAndTheCache(t *testing.T) {
	m := newMiddleware(t, testConfig())
	for _, want := range []Decision{
		{Allowed: true, Reason: ReasonCacheOrigin, Origin: cacheOrigin, Publisher: "www.example.com", CacheID: "google"},
		{Allowed: true, Reason: ReasonCacheOrigin, Origin: bingOrigin, Publisher: "www.example.com", CacheID: "bing"},
		{Allowed: true, Reason: ReasonCacheOriginHash, Origin: hashOrigin, Publisher: "www.example.com", CacheID: "google"},
		{Allowed: true, Reason: ReasonCacheOrigin, Origin: idnOrigin, Publisher: "xn--bcher-kva.ch", CacheID: "google"},
		{Allowed: true, Reason: ReasonCacheOrigin, Origin: wildOrigin, Publisher: "blog.example.net", CacheID: "google"},
		{Allowed: true, Reason: ReasonOwnOrigin, Origin: ownOrigin, Publisher: "www.example.com"},
		{Allowed: true, Reason: ReasonOwnOrigin, Origin: "https://a.b.example.net", Publisher: "a.b.example.net"},
		{Allowed: true, Reason: ReasonExtraOrigin, Origin: playgroundOrigin},
		{Reason: ReasonPublisherNotAllowed, Origin: evilOrigin, ClaimedPublisher: "evil.example", CacheID: "google"},
		{Reason: ReasonHashNotKnown, Origin: unknownHashOrigin, CacheID: "google"},
		{Reason: ReasonNotCanonical, Origin: "https://cdn.ampproject.org", CacheID: "google"},
		{Reason: ReasonUnknownHost, Origin: "https://evil.example"},
		{Reason: ReasonUnknownHost, Origin: "https://localhost"},
		{Reason: ReasonUnknownHost, Origin: "https://127.0.0.1"},
		{Reason: ReasonUnknownHost, Origin: "https://xn--zzzzzz99999.example.net"},
		{Reason: ReasonMalformed, Origin: "https://"},
		{Reason: ReasonMalformed, Origin: "example.com"},
	} {
		if got := m.CheckOrigin(want.Origin); got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		r := &http.Request{Method: "GET", Header: http.Header{"Origin": {want.Origin}}}
		if got := m.Check(r); got != want {
			t.Errorf("Check: got  %+v\nwant %+v", got, want)
		}
	}
}

// TestAnUnverifiedOriginNamesNoPublisher: a request that only Sec-Fetch-Site: same-origin
// allows is from the API host's own page, and not from the publisher that its Origin names.
func TestAnUnverifiedOriginNamesNoPublisher(t *testing.T) {
	m := newMiddleware(t, testConfig())
	r := &http.Request{Method: "POST", Header: headers("Origin: "+evilOrigin, "Sec-Fetch-Site: same-origin")}
	if got, want := m.Check(r), (Decision{Allowed: true, Reason: ReasonSameOrigin, Origin: evilOrigin}); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestStatsCountByReason(t *testing.T) {
	m := newMiddleware(t, testConfig())
	h := m.Wrap(new(spy))
	for _, o := range []string{cacheOrigin, cacheOrigin, evilOrigin, "null", "null", "null"} {
		h.ServeHTTP(httptest.NewRecorder(), &http.Request{Method: "GET", Header: headers("Origin: " + o)})
	}
	s := m.Stats()
	if s[ReasonCacheOrigin] != 2 || s[ReasonPublisherNotAllowed] != 1 || s[ReasonNull] != 3 || s.Allowed() != 2 || s.Denied() != 4 {
		t.Errorf("Stats() = %v", s)
	}
	if len(s) != int(numReasons)-1 {
		t.Errorf("Stats() has %d reasons; want each of %d", len(s), numReasons-1)
	}
	m.Check(&http.Request{Method: "GET", Header: headers("Origin: null")})
	if m.Stats()[ReasonNull] != 3 {
		t.Error("Check was counted")
	}
	if err := m.Reconfigure(testConfig()); err != nil || m.Stats()[ReasonNull] != 3 {
		t.Errorf("Reconfigure forgot the counts, or failed: %v", err)
	}
}

func TestStatsLoseNoCount(t *testing.T) {
	m := newMiddleware(t, testConfig())
	const workers, each = 4, 20_000
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			w, r := discard{make(http.Header)}, &http.Request{Method: "GET"}
			for range each {
				clear(w.h)
				m.Handle(w, r)
			}
		})
	}
	group.Wait()
	if n := m.Stats()[ReasonNoOrigin]; n != workers*each {
		t.Errorf("%d requests were counted as %d", workers*each, n)
	}
}

func TestReasonsHaveDistinctTexts(t *testing.T) {
	seen := make(map[string]Reason)
	for r := Reason(1); r < numReasons; r++ {
		text, err := r.MarshalText()
		if other, twice := seen[string(text)]; twice || len(text) == 0 || err != nil {
			t.Errorf("reason %d reads %q, like %d", r, text, other)
		}
		seen[string(text)] = r
	}
	if got := Reason(200).String(); got != "Reason(200)" {
		t.Errorf("a reason that does not exist reads %q", got)
	}
}

// TestTheHandlerGetsTheServersOwnResponseWriter: streaming and hijacking work only
// with that.
func TestTheHandlerGetsTheServersOwnResponseWriter(t *testing.T) {
	rec := httptest.NewRecorder()
	h := newMiddleware(t, testConfig()).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if w != http.ResponseWriter(rec) {
			t.Errorf("the handler got a %T", w)
		}
	}))
	h.ServeHTTP(rec, &http.Request{Method: "GET", Header: headers("Origin: " + cacheOrigin)})
}

func TestADenialDropsAnOuterContentLength(t *testing.T) {
	t.Parallel()
	mw := newMiddleware(t, testConfig()).Wrap(new(spy))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "7") // for the response that it expects from the inner handler
		mw.ServeHTTP(w, r)
	}))
	defer server.Close()
	r, err := http.NewRequest("GET", server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Origin", evilOrigin)
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if want := "Forbidden: publisher not allowed\n"; string(body) != want || err != nil {
		t.Errorf("the body is %q, %v; want %q", body, err, want)
	}
}

// TestObserveSeesTheRequestBeforeAnythingIsWritten: it may measure how long the
// handler takes, and must not be able to change what is sent.
func TestObserveSeesTheRequestBeforeAnythingIsWritten(t *testing.T) {
	for _, origin := range []string{cacheOrigin, evilOrigin} {
		rec, handler, observed := httptest.NewRecorder(), new(spy), false
		cfg := testConfig()
		cfg.Observe = func(*http.Request, Decision) {
			observed = !handler.ran && len(rec.Header()) == 0 && rec.Body.Len() == 0
		}
		newMiddleware(t, cfg).Wrap(handler).ServeHTTP(rec, &http.Request{Method: "GET", Header: headers("Origin: " + origin)})
		if !observed {
			t.Errorf("%s: observed late, or not at all", origin)
		}
	}
}

// TestFilesKeepTheirHeaders: browsers and caches send conditional requests and range
// requests for fonts.
func TestFilesKeepTheirHeaders(t *testing.T) {
	files := fstest.MapFS{"font.woff2": {Data: []byte("a font"), ModTime: time.Unix(1e9, 0)}}
	h := newMiddleware(t, testConfig()).Wrap(http.FileServerFS(files))
	for _, test := range []struct {
		origin, line string
		status       int
	}{
		{cacheOrigin, "Accept: */*", http.StatusOK},
		{cacheOrigin, "If-Modified-Since: " + time.Unix(1e9, 0).UTC().Format(http.TimeFormat), http.StatusNotModified},
		{cacheOrigin, "Range: bytes=0-1", http.StatusPartialContent},
		{cacheOrigin, "Range: bytes=9-10", http.StatusRequestedRangeNotSatisfiable},
		{evilOrigin, "Accept: */*", http.StatusForbidden},
	} {
		rec := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/font.woff2", nil)
		r.Header = headers("Origin: "+test.origin, test.line)
		h.ServeHTTP(rec, r)
		want := test.origin
		if test.status == http.StatusForbidden {
			want = ""
		}
		if got := rec.Header(); rec.Code != test.status || got.Get("Access-Control-Allow-Origin") != want || got.Get("Vary") != "Origin" {
			t.Errorf("%s, %s: status %d, headers %v", test.origin, test.line, rec.Code, got)
		}
	}
}
