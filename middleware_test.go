package ampcors_test

import (
	"encoding/json"
	"errors"
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

	"github.com/ampcors/ampcors"
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

func testConfig() ampcors.Config {
	return ampcors.Config{
		Publishers:   []string{"www.example.com", "bücher.ch", "*.example.net"},
		Origins:      []string{playgroundOrigin},
		Credentialed: true,
	}
}

func newMiddleware(t testing.TB, cfg ampcors.Config) *ampcors.Middleware {
	t.Helper()
	m, err := ampcors.New(cfg)
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
		change   func(*ampcors.Config)
		requests []request
	}{
		{name: "credentialed", change: func(*ampcors.Config) {}, requests: []request{
			{name: "cache origin", method: "GET", headers: []string{origin(cacheOrigin)}, status: 202, want: granted(cacheOrigin), reason: ampcors.ReasonCacheOrigin},
			{name: "another cache", method: "GET", headers: []string{origin(bingOrigin)}, status: 202, want: granted(bingOrigin), reason: ampcors.ReasonCacheOrigin},
			{name: "hash prefix", method: "GET", headers: []string{origin(hashOrigin)}, status: 202, want: granted(hashOrigin), reason: ampcors.ReasonCacheOriginHash},
			{name: "internationalized", method: "GET", headers: []string{origin(idnOrigin)}, status: 202, want: granted(idnOrigin), reason: ampcors.ReasonCacheOrigin},
			{name: "below a pattern", method: "GET", headers: []string{origin(wildOrigin)}, status: 202, want: granted(wildOrigin), reason: ampcors.ReasonCacheOrigin},
			{name: "own origin", method: "GET", headers: []string{origin(ownOrigin)}, status: 202, want: granted(ownOrigin), reason: ampcors.ReasonOwnOrigin},
			{name: "own origin below a pattern", method: "GET", headers: []string{origin("https://blog.example.net")}, status: 202, want: granted("https://blog.example.net"), reason: ampcors.ReasonOwnOrigin},
			{name: "own origin, internationalized", method: "GET", headers: []string{origin("https://xn--bcher-kva.ch")}, status: 202, want: granted("https://xn--bcher-kva.ch"), reason: ampcors.ReasonOwnOrigin},
			{name: "extra origin", method: "GET", headers: []string{origin(playgroundOrigin)}, status: 202, want: granted(playgroundOrigin), reason: ampcors.ReasonExtraOrigin},
			{name: "unsafe method", method: "POST", headers: []string{origin(cacheOrigin)}, status: 202, want: granted(cacheOrigin), reason: ampcors.ReasonCacheOrigin},
			{name: "unsafe method that no preflight may ask for", method: "DELETE", headers: []string{origin(cacheOrigin)}, status: 202, want: granted(cacheOrigin), reason: ampcors.ReasonCacheOrigin},
			{name: "HEAD", method: "HEAD", headers: []string{origin(cacheOrigin)}, status: 202, want: granted(cacheOrigin), reason: ampcors.ReasonCacheOrigin},

			{name: "another publisher", method: "GET", headers: []string{origin(evilOrigin)}, status: 403, want: denied, reason: ampcors.ReasonPublisherNotAllowed},
			{name: "another publisher, unsafe", method: "POST", headers: []string{origin(evilOrigin)}, status: 403, want: denied, reason: ampcors.ReasonPublisherNotAllowed},
			{name: "another publisher that calls itself same-origin", method: "POST", headers: []string{origin(evilOrigin), "AMP-Same-Origin: true"}, status: 403, want: denied, reason: ampcors.ReasonPublisherNotAllowed},
			{name: "apex of a pattern", method: "GET", headers: []string{origin("https://example-net.cdn.ampproject.org")}, status: 403, want: denied, reason: ampcors.ReasonPublisherNotAllowed},
			{name: "unknown hash", method: "GET", headers: []string{origin(unknownHashOrigin)}, status: 403, want: denied, reason: ampcors.ReasonHashNotKnown},
			{name: "hash below a pattern", method: "GET", headers: []string{origin("https://" + plainHash("blog.example.net") + ".cdn.ampproject.org")}, status: 403, want: denied, reason: ampcors.ReasonHashNotKnown},
			{name: "unknown host", method: "GET", headers: []string{origin("https://evil.example")}, status: 403, want: denied, reason: ampcors.ReasonUnknownHost},
			{name: "null", method: "GET", headers: []string{origin("null")}, status: 403, want: denied, reason: ampcors.ReasonNull},
			{name: "http own origin", method: "GET", headers: []string{origin("http://www.example.com")}, status: 403, want: denied, reason: ampcors.ReasonNotHTTPS},
			{name: "empty", method: "GET", headers: []string{origin("")}, status: 403, want: denied, reason: ampcors.ReasonMalformed},
			{name: "two Origins", method: "GET", headers: []string{origin(cacheOrigin), origin(cacheOrigin)}, status: 403, want: denied, reason: ampcors.ReasonMalformed},
			{name: "two Origins from the host's own page", method: "GET", headers: []string{origin(cacheOrigin), origin(cacheOrigin), "Sec-Fetch-Site: same-origin"}, status: 403, want: denied, reason: ampcors.ReasonMalformed},

			{name: "the API host's own page", method: "POST", headers: []string{origin("https://api.example.org"), "Sec-Fetch-Site: same-origin"}, status: 202, want: passed, reason: ampcors.ReasonSameOrigin},
			{name: "the API host's own page, which hides its referrer", method: "POST", headers: []string{origin("null"), "Sec-Fetch-Site: same-origin"}, status: 202, want: passed, reason: ampcors.ReasonSameOrigin},
			{name: "null from another site", method: "POST", headers: []string{origin("null"), "Sec-Fetch-Site: cross-site"}, status: 403, want: denied, reason: ampcors.ReasonNull},
			{name: "the same site is not the same origin", method: "POST", headers: []string{origin("https://api.example.org"), "Sec-Fetch-Site: same-site"}, status: 403, want: denied, reason: ampcors.ReasonUnknownHost},
			{name: "Sec-Fetch-Site twice", method: "POST", headers: []string{origin("https://api.example.org"), "Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: same-origin"}, status: 403, want: denied, reason: ampcors.ReasonUnknownHost},

			{name: "no Origin", method: "GET", status: 202, want: passed, reason: ampcors.ReasonNoOrigin},
			{name: "no Origin, HEAD", method: "HEAD", status: 202, want: passed, reason: ampcors.ReasonNoOrigin},
			{name: "no Origin, POST", method: "POST", status: 403, want: denied, reason: ampcors.ReasonNoOriginUnsafe},
			{name: "no Origin, PUT", method: "PUT", status: 403, want: denied, reason: ampcors.ReasonNoOriginUnsafe},
			{name: "no Origin, DELETE", method: "DELETE", status: 403, want: denied, reason: ampcors.ReasonNoOriginUnsafe},
			{name: "no Origin, PATCH", method: "PATCH", status: 403, want: denied, reason: ampcors.ReasonNoOriginUnsafe},
			{name: "no Origin, a method that HTTP does not define", method: "PURGE", status: 403, want: denied, reason: ampcors.ReasonNoOriginUnsafe},
			{name: "no Origin, get in lower case", method: "get", status: 403, want: denied, reason: ampcors.ReasonNoOriginUnsafe},
			{name: "no Origin, TRACE", method: "TRACE", status: 403, want: denied, reason: ampcors.ReasonNoOriginUnsafe},
			{name: "no Origin, POST, AMP-Same-Origin", method: "POST", headers: []string{"AMP-Same-Origin: true"}, status: 202, want: passed, reason: ampcors.ReasonSameOrigin},
			{name: "no Origin, POST, AMP-Same-Origin, same-origin", method: "POST", headers: []string{"AMP-Same-Origin: true", "Sec-Fetch-Site: same-origin"}, status: 202, want: passed, reason: ampcors.ReasonSameOrigin},
			{name: "no Origin, POST, AMP-Same-Origin, cross-site", method: "POST", headers: []string{"AMP-Same-Origin: true", "Sec-Fetch-Site: cross-site"}, status: 403, want: denied, reason: ampcors.ReasonNoOriginUnsafe},
			{name: "no Origin, POST, AMP-Same-Origin, same-site", method: "POST", headers: []string{"AMP-Same-Origin: true", "Sec-Fetch-Site: same-site"}, status: 403, want: denied, reason: ampcors.ReasonNoOriginUnsafe},
			{name: "no Origin, POST, AMP-Same-Origin, none", method: "POST", headers: []string{"AMP-Same-Origin: true", "Sec-Fetch-Site: none"}, status: 403, want: denied, reason: ampcors.ReasonNoOriginUnsafe},
			{name: "no Origin, POST, same-origin alone", method: "POST", headers: []string{"Sec-Fetch-Site: same-origin"}, status: 403, want: denied, reason: ampcors.ReasonNoOriginUnsafe},
			{name: "no Origin, POST, AMP-Same-Origin True", method: "POST", headers: []string{"AMP-Same-Origin: True"}, status: 403, want: denied, reason: ampcors.ReasonNoOriginUnsafe},
			{name: "no Origin, POST, AMP-Same-Origin 1", method: "POST", headers: []string{"AMP-Same-Origin: 1"}, status: 403, want: denied, reason: ampcors.ReasonNoOriginUnsafe},
			{name: "no Origin, POST, AMP-Same-Origin twice", method: "POST", headers: []string{"AMP-Same-Origin: true", "AMP-Same-Origin: true"}, status: 403, want: denied, reason: ampcors.ReasonNoOriginUnsafe},

			{name: "preflight", method: "OPTIONS", headers: []string{origin(cacheOrigin), asksPOST}, status: 204, want: []string{varyOuter, acao(cacheOrigin), creds, acamPOST}, reason: ampcors.ReasonCacheOrigin},
			{name: "preflight for GET", method: "OPTIONS", headers: []string{origin(hashOrigin), "Access-Control-Request-Method: GET"}, status: 204, want: []string{varyOuter, acao(hashOrigin), creds, "Access-Control-Allow-Methods: GET"}, reason: ampcors.ReasonCacheOriginHash},
			{name: "preflight with header", method: "OPTIONS", headers: []string{origin(cacheOrigin), asksPOST, asks("content-type")}, status: 204, want: []string{varyOuter, acao(cacheOrigin), creds, acamPOST, acah("content-type")}, reason: ampcors.ReasonCacheOrigin},
			{name: "preflight with odd spacing", method: "OPTIONS", headers: []string{origin(cacheOrigin), asksPOST, asks(" ,\tContent-Type ,, ")}, status: 204, want: []string{varyOuter, acao(cacheOrigin), creds, acamPOST, acah(" ,\tContent-Type ,, ")}, reason: ampcors.ReasonCacheOrigin},
			{name: "preflight with an empty list", method: "OPTIONS", headers: []string{origin(cacheOrigin), asksPOST, asks("")}, status: 204, want: []string{varyOuter, acao(cacheOrigin), creds, acamPOST}, reason: ampcors.ReasonCacheOrigin},
			{name: "preflight from an own origin, redirected", method: "OPTIONS", headers: []string{origin(ownOrigin), asksPOST, asks("amp-same-origin,content-type")}, status: 204, want: []string{varyOuter, acao(ownOrigin), creds, acamPOST, acah("amp-same-origin,content-type")}, reason: ampcors.ReasonOwnOrigin},
			{name: "preflight from a cache for amp-same-origin", method: "OPTIONS", headers: []string{origin(cacheOrigin), asksPOST, asks("amp-same-origin")}, status: 403, want: deniedPreflight, reason: ampcors.ReasonHeaderNotAllowed},
			{name: "preflight from a hash prefix for amp-same-origin", method: "OPTIONS", headers: []string{origin(hashOrigin), asksPOST, asks("AMP-Same-Origin")}, status: 403, want: deniedPreflight, reason: ampcors.ReasonHeaderNotAllowed},
			{name: "preflight from an extra origin for amp-same-origin", method: "OPTIONS", headers: []string{origin(playgroundOrigin), asksPOST, asks("amp-same-origin")}, status: 403, want: deniedPreflight, reason: ampcors.ReasonHeaderNotAllowed},
			{name: "preflight with a header that is not allowed", method: "OPTIONS", headers: []string{origin(cacheOrigin), asksPOST, asks("content-type,authorization")}, status: 403, want: deniedPreflight, reason: ampcors.ReasonHeaderNotAllowed},
			{name: "preflight for a method that is not allowed", method: "OPTIONS", headers: []string{origin(cacheOrigin), "Access-Control-Request-Method: DELETE"}, status: 403, want: deniedPreflight, reason: ampcors.ReasonMethodNotAllowed},
			{name: "preflight for a method in lower case", method: "OPTIONS", headers: []string{origin(cacheOrigin), "Access-Control-Request-Method: post"}, status: 403, want: deniedPreflight, reason: ampcors.ReasonMethodNotAllowed},
			{name: "preflight for two methods", method: "OPTIONS", headers: []string{origin(cacheOrigin), asksPOST, asksPOST}, status: 403, want: deniedPreflight, reason: ampcors.ReasonMethodNotAllowed},
			{name: "preflight for no method", method: "OPTIONS", headers: []string{origin(cacheOrigin), "Access-Control-Request-Method: "}, status: 403, want: deniedPreflight, reason: ampcors.ReasonMethodNotAllowed},
			{name: "preflight of another publisher", method: "OPTIONS", headers: []string{origin(evilOrigin), asksPOST}, status: 403, want: deniedPreflight, reason: ampcors.ReasonPublisherNotAllowed},
			{name: "preflight of another publisher, for a method that is not allowed", method: "OPTIONS", headers: []string{origin(evilOrigin), "Access-Control-Request-Method: DELETE"}, status: 403, want: deniedPreflight, reason: ampcors.ReasonPublisherNotAllowed},
			{name: "preflight cannot be same-origin", method: "OPTIONS", headers: []string{origin(evilOrigin), asksPOST, "Sec-Fetch-Site: same-origin"}, status: 403, want: deniedPreflight, reason: ampcors.ReasonPublisherNotAllowed},
			{name: "preflight for a private network", method: "OPTIONS", headers: []string{origin(cacheOrigin), asksPOST, "Access-Control-Request-Private-Network: true"}, status: 204, want: []string{varyOuter, acao(cacheOrigin), creds, acamPOST}, reason: ampcors.ReasonCacheOrigin},

			{name: "OPTIONS that is no preflight", method: "OPTIONS", headers: []string{origin(cacheOrigin)}, status: 202, want: []string{varyOuter, varySpy, ran, acao(cacheOrigin), creds, exposed}, reason: ampcors.ReasonCacheOrigin},
			{name: "OPTIONS without Origin", method: "OPTIONS", headers: []string{asksPOST}, status: 202, want: []string{varyOuter, varySpy, ran}, reason: ampcors.ReasonNoOrigin},
			{name: "OPTIONS of another publisher", method: "OPTIONS", headers: []string{origin(evilOrigin)}, status: 403, want: deniedPreflight, reason: ampcors.ReasonPublisherNotAllowed},
			{name: "GET with a preflight's header", method: "GET", headers: []string{origin(cacheOrigin), asksPOST}, status: 202, want: granted(cacheOrigin), reason: ampcors.ReasonCacheOrigin},
		}},
		{name: "not credentialed, with lists", change: func(cfg *ampcors.Config) {
			cfg.Credentialed = false
			cfg.Methods = []string{"PUT", "Custom"}
			cfg.RequestHeaders = []string{"X-Requested-With", "Authorization", "X-Kind"}
			cfg.ResponseHeaders = []string{"X-A", "X-B"}
			cfg.MaxAge = 10 * time.Minute
		}, requests: []request{
			{name: "cache origin", method: "GET", headers: []string{origin(cacheOrigin)}, status: 202, want: append(passed[:3:3], acao(cacheOrigin), "Access-Control-Expose-Headers: X-A,X-B"), reason: ampcors.ReasonCacheOrigin},
			{name: "preflight", method: "OPTIONS", headers: []string{origin(cacheOrigin), "Access-Control-Request-Method: PUT", asks("authorization,x-requested-with")}, status: 204,
				want: []string{varyOuter, acao(cacheOrigin), "Access-Control-Allow-Methods: PUT", acah("authorization,x-requested-with"), "Access-Control-Max-Age: 600"}, reason: ampcors.ReasonCacheOrigin},
			{name: "preflight with several lines", method: "OPTIONS", headers: []string{origin(cacheOrigin), "Access-Control-Request-Method: Custom", asks("authorization"), asks("x-requested-with")}, status: 204,
				want: []string{varyOuter, acao(cacheOrigin), "Access-Control-Allow-Methods: Custom", acah("authorization,x-requested-with"), "Access-Control-Max-Age: 600"}, reason: ampcors.ReasonCacheOrigin},
			{name: "preflight with a name that only Unicode folding makes an allowed one", method: "OPTIONS", headers: []string{origin(cacheOrigin), asksPOST, asks("x-\u212aind")}, status: 403, want: deniedPreflight, reason: ampcors.ReasonHeaderNotAllowed},
			{name: "preflight for a method in another case", method: "OPTIONS", headers: []string{origin(cacheOrigin), "Access-Control-Request-Method: CUSTOM"}, status: 403, want: deniedPreflight, reason: ampcors.ReasonMethodNotAllowed},
		}},
		{name: "origins that also belong to publishers", change: func(cfg *ampcors.Config) { cfg.Origins = []string{ownOrigin, cacheOrigin, evilOrigin} }, requests: []request{
			{name: "own origin", method: "OPTIONS", headers: []string{origin(ownOrigin), asksPOST, asks("amp-same-origin")}, status: 204, want: []string{varyOuter, acao(ownOrigin), creds, acamPOST, acah("amp-same-origin")}, reason: ampcors.ReasonOwnOrigin},
			{name: "cache origin", method: "GET", headers: []string{origin(cacheOrigin)}, status: 202, want: granted(cacheOrigin), reason: ampcors.ReasonCacheOrigin},
			{name: "a cache origin of a publisher that is not allowed", method: "GET", headers: []string{origin(evilOrigin)}, status: 202, want: granted(evilOrigin), reason: ampcors.ReasonExtraOrigin},
		}},
		{name: "nothing exposed", change: func(cfg *ampcors.Config) { cfg.ResponseHeaders = []string{} }, requests: []request{
			{name: "cache origin", method: "GET", headers: []string{origin(cacheOrigin)}, status: 202, want: append(passed[:3:3], acao(cacheOrigin), creds), reason: ampcors.ReasonCacheOrigin},
		}},
		{name: "one cache", change: func(cfg *ampcors.Config) { cfg.Caches = ampcors.DefaultCaches()[:1] }, requests: []request{
			{name: "the cache that is trusted", method: "GET", headers: []string{origin(cacheOrigin)}, status: 202, want: granted(cacheOrigin), reason: ampcors.ReasonCacheOrigin},
			{name: "a cache that is not trusted", method: "GET", headers: []string{origin(bingOrigin)}, status: 403, want: denied, reason: ampcors.ReasonUnknownHost},
		}},
		{name: "report only", change: func(cfg *ampcors.Config) { cfg.ReportOnly = true }, requests: []request{
			{name: "allowed", method: "GET", headers: []string{origin(cacheOrigin)}, status: 202, want: granted(cacheOrigin), reason: ampcors.ReasonCacheOrigin},
			{name: "another publisher", method: "POST", headers: []string{origin(evilOrigin)}, status: 202, want: passed, reason: ampcors.ReasonPublisherNotAllowed},
			{name: "no Origin, POST", method: "POST", status: 202, want: passed, reason: ampcors.ReasonNoOriginUnsafe},
			{name: "allowed preflight", method: "OPTIONS", headers: []string{origin(cacheOrigin), asksPOST}, status: 204, want: []string{varyOuter, acao(cacheOrigin), creds, acamPOST}, reason: ampcors.ReasonCacheOrigin},
			{name: "denied preflight", method: "OPTIONS", headers: []string{origin(evilOrigin), asksPOST}, status: 202, want: []string{varyOuter, varySpy, ran}, reason: ampcors.ReasonPublisherNotAllowed},
		}},
		{name: "denied handler", change: func(cfg *ampcors.Config) {
			cfg.Denied = func(w http.ResponseWriter, r *http.Request, d ampcors.Decision) {
				w.Header().Set("X-Denied", d.Origin)
				w.WriteHeader(http.StatusTeapot)
			}
		}, requests: []request{
			{name: "allowed", method: "GET", headers: []string{origin(cacheOrigin)}, status: 202, want: granted(cacheOrigin), reason: ampcors.ReasonCacheOrigin},
			{name: "denied", method: "GET", headers: []string{origin(evilOrigin)}, status: 418, want: []string{varyOwn, noStore, "X-Denied: " + evilOrigin}, reason: ampcors.ReasonPublisherNotAllowed},
			{name: "denied preflight", method: "OPTIONS", headers: []string{origin(evilOrigin), asksPOST}, status: 418, want: []string{varyOuter, noStore, "X-Denied: " + evilOrigin}, reason: ampcors.ReasonPublisherNotAllowed},
		}},
		{name: "http own origins", change: func(cfg *ampcors.Config) {
			cfg.DangerouslyAllowHTTPOwnOrigins = true
			cfg.Caches = []ampcors.Cache{{ID: "own", CacheDomain: "cdn.example.net"}}
			cfg.Publishers = []string{"www.example.com", "*.net"}
			cfg.DangerouslyAllowPublicSuffixWildcards = true
		}, requests: []request{
			{name: "own origin", method: "GET", headers: []string{origin("http://www.example.com")}, status: 202, want: granted("http://www.example.com"), reason: ampcors.ReasonOwnOrigin},
			{name: "another host", method: "GET", headers: []string{origin("http://evil.example")}, status: 403, want: denied, reason: ampcors.ReasonUnknownHost},
			{name: "a cache over http", method: "GET", headers: []string{origin("http://www-example-com.cdn.ampproject.org")}, status: 403, want: denied, reason: ampcors.ReasonUnknownHost},
			{name: "a cache over http, below a pattern", method: "GET", headers: []string{origin("http://cdn.example.net")}, status: 403, want: denied, reason: ampcors.ReasonUnknownHost},
			{name: "another scheme", method: "GET", headers: []string{origin("ftp://www.example.com")}, status: 403, want: denied, reason: ampcors.ReasonNotHTTPS},
		}},
		{name: "unsafe requests without Origin", change: func(cfg *ampcors.Config) { cfg.DangerouslyAllowUnsafeRequestsWithoutOrigin = true }, requests: []request{
			{name: "no Origin, POST", method: "POST", status: 202, want: passed, reason: ampcors.ReasonNoOrigin},
			{name: "another publisher", method: "POST", headers: []string{origin(evilOrigin)}, status: 403, want: denied, reason: ampcors.ReasonPublisherNotAllowed},
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
					t.Run(test.name, func(t *testing.T) {
						want := headers(test.want...)
						if i := slices.Index(want["Vary"], "Outer, Origin"); email && i >= 0 {
							want["Vary"][i] = "Outer, Origin, AMP-Email-Sender"
						}
						test.query = "?__amp_source_origin=https%3A%2F%2Fwww.example.com"
						checkRequest(t, cfg, test, want)
					})
				}
			})
		}
	}
}

// A request is a row of a table: what is sent, and what is expected.
type request struct {
	name    string
	method  string
	query   string // "" or begins with "?"
	headers []string
	status  int // 202 if the handler runs
	want    []string
	reason  ampcors.Reason
}

// checkRequest sends one request and compares the complete result. It must be the same
// whether the publishers are listed or known to a Source.
func checkRequest(t *testing.T, cfg ampcors.Config, test request, want http.Header) {
	t.Helper()
	t.Run("listed", func(t *testing.T) { checkRequestWith(t, cfg, test, want) })
	cfg, _ = withSource(t, cfg)
	t.Run("of a Source", func(t *testing.T) { checkRequestWith(t, cfg, test, want) })
}

func checkRequestWith(t *testing.T, cfg ampcors.Config, test request, want http.Header) {
	t.Helper()
	var observed []ampcors.Decision
	cfg.Observe = func(r *http.Request, d ampcors.Decision) { observed = append(observed, d) }
	m := newMiddleware(t, cfg)
	r := httptest.NewRequest(test.method, "https://api.example.org/data"+test.query, nil)
	for key, values := range headers(test.headers...) {
		r.Header[key] = values
	}
	rec := httptest.NewRecorder()
	rec.Header().Add("Vary", "Outer")
	handler := new(spy)
	d := m.Check(r)
	m.Wrap(handler).ServeHTTP(rec, r)

	if !reflect.DeepEqual(rec.Header(), want) {
		t.Errorf("headers\n%v; want\n%v", rec.Header(), want)
	}
	if rec.Code != test.status || handler.ran != (test.status == http.StatusAccepted) {
		t.Errorf("status %d, the handler ran: %t; want %d", rec.Code, handler.ran, test.status)
	}
	if d.Reason != test.reason {
		t.Errorf("reason %q; want %q", d.Reason, test.reason)
	}
	if len(observed) != 1 || observed[0] != d {
		t.Errorf("observed %+v; want once %+v", observed, d)
	}
	if s := m.Stats(); s.Requests[test.reason] != 1 || s.Allowed()+s.Denied() != 1 {
		t.Errorf("counted as %v", s)
	}
	hint := map[ampcors.Reason]string{
		ampcors.ReasonNoOriginUnsafe:   `; same-origin requests of the AMP runtime have "AMP-Same-Origin: true"`,
		ampcors.ReasonMethodNotAllowed: "; Config.Methods lists those beyond GET, HEAD and POST",
		ampcors.ReasonHeaderNotAllowed: "; Config.RequestHeaders lists those beyond Content-Type",
	}[test.reason]
	if rec.Code == http.StatusForbidden && rec.Body.String() != "Forbidden: "+test.reason.String()+hint+"\n" {
		t.Errorf("body %q", rec.Body)
	}
}

func TestADecisionNamesThePublisherAndTheCache(t *testing.T) {
	m := newMiddleware(t, testConfig())
	for _, want := range []ampcors.Decision{
		{Allowed: true, Reason: ampcors.ReasonCacheOrigin, Origin: cacheOrigin, Publisher: "www.example.com", CacheID: "google"},
		{Allowed: true, Reason: ampcors.ReasonCacheOrigin, Origin: bingOrigin, Publisher: "www.example.com", CacheID: "bing"},
		{Allowed: true, Reason: ampcors.ReasonCacheOriginHash, Origin: hashOrigin, Publisher: "www.example.com", CacheID: "google"},
		{Allowed: true, Reason: ampcors.ReasonCacheOrigin, Origin: idnOrigin, Publisher: "xn--bcher-kva.ch", CacheID: "google"},
		{Allowed: true, Reason: ampcors.ReasonCacheOrigin, Origin: wildOrigin, Publisher: "blog.example.net", CacheID: "google"},
		{Allowed: true, Reason: ampcors.ReasonOwnOrigin, Origin: ownOrigin, Publisher: "www.example.com"},
		{Allowed: true, Reason: ampcors.ReasonOwnOrigin, Origin: "https://a.b.example.net", Publisher: "a.b.example.net"},
		{Allowed: true, Reason: ampcors.ReasonExtraOrigin, Origin: playgroundOrigin},
		{Reason: ampcors.ReasonPublisherNotAllowed, Origin: evilOrigin, ClaimedPublisher: "evil.example", CacheID: "google"},
		{Reason: ampcors.ReasonHashNotKnown, Origin: unknownHashOrigin, CacheID: "google"},
		{Reason: ampcors.ReasonNotCanonical, Origin: "https://cdn.ampproject.org", CacheID: "google"},
		{Reason: ampcors.ReasonUnknownHost, Origin: "https://evil.example"},
		{Reason: ampcors.ReasonUnknownHost, Origin: "https://localhost"},
		{Reason: ampcors.ReasonUnknownHost, Origin: "https://127.0.0.1"},
		{Reason: ampcors.ReasonUnknownHost, Origin: "https://xn--zzzzzz99999.example.net"},
		{Reason: ampcors.ReasonMalformed, Origin: "https://"},
		{Reason: ampcors.ReasonMalformed, Origin: "example.com"},
	} {
		t.Run(want.Origin, func(t *testing.T) {
			if got := m.CheckOrigin(want.Origin); got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			r := &http.Request{Method: "GET", Header: http.Header{"Origin": {want.Origin}}}
			if got := m.Check(r); got != want {
				t.Errorf("Check: got  %+v\nwant %+v", got, want)
			}
		})
	}
}

// TestAnUnverifiedOriginNamesNoPublisher: a request that only Sec-Fetch-Site: same-origin
// allows is from the API host's own page, and not from the publisher that its Origin names.
func TestAnUnverifiedOriginNamesNoPublisher(t *testing.T) {
	m := newMiddleware(t, testConfig())
	r := &http.Request{Method: "POST", Header: headers("Origin: "+evilOrigin, "Sec-Fetch-Site: same-origin")}
	if got, want := m.Check(r), (ampcors.Decision{Allowed: true, Reason: ampcors.ReasonSameOrigin, Origin: evilOrigin}); got != want {
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
	if s.Requests[ampcors.ReasonCacheOrigin] != 2 || s.Requests[ampcors.ReasonPublisherNotAllowed] != 1 || s.Requests[ampcors.ReasonNull] != 3 || s.Publishers != 3 || s.Allowed() != 2 || s.Denied() != 4 {
		t.Errorf("Stats() = %v", s)
	}
	if len(s.Requests) != int(ampcors.NumReasons)-1 {
		t.Errorf("Stats() has %d reasons; want each of %d", len(s.Requests), ampcors.NumReasons-1)
	}
	m.Check(&http.Request{Method: "GET", Header: headers("Origin: null")})
	if m.Stats().Requests[ampcors.ReasonNull] != 3 {
		t.Error("Check was counted")
	}
	if err := m.Reconfigure(testConfig()); err != nil || m.Stats().Requests[ampcors.ReasonNull] != 3 {
		t.Errorf("Reconfigure forgot the counts, or failed: %v", err)
	}
	data, err := json.Marshal(s)
	var back ampcors.Stats
	if err = errors.Join(err, json.Unmarshal(data, &back)); err != nil || !reflect.DeepEqual(back, s) {
		t.Errorf("%s\nis read as %v, %v", data, back, err)
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
	if n := m.Stats().Requests[ampcors.ReasonNoOrigin]; n != workers*each {
		t.Errorf("%d requests were counted as %d", workers*each, n)
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
		t.Run(origin, func(t *testing.T) {
			rec, handler, observed := httptest.NewRecorder(), new(spy), false
			cfg := testConfig()
			cfg.Observe = func(*http.Request, ampcors.Decision) {
				observed = !handler.ran && len(rec.Header()) == 0 && rec.Body.Len() == 0
			}
			newMiddleware(t, cfg).Wrap(handler).ServeHTTP(rec, &http.Request{Method: "GET", Header: headers("Origin: " + origin)})
			if !observed {
				t.Errorf("%s: observed late, or not at all", origin)
			}
		})
	}
}

// TestEveryStatusOfAFileServerGetsCORSHeaders: browsers and caches send conditional requests and range
// requests for fonts, so that 304, 206 and 416 need the headers, too.
func TestEveryStatusOfAFileServerGetsCORSHeaders(t *testing.T) {
	files := fstest.MapFS{"font.woff2": {Data: []byte("a font"), ModTime: time.Unix(1e9, 0)}}
	h := newMiddleware(t, testConfig()).Wrap(http.FileServerFS(files))
	for _, test := range []struct {
		origin, line string
		status       int
	}{
		{origin: cacheOrigin, line: "Accept: */*", status: http.StatusOK},
		{origin: cacheOrigin, line: "If-Modified-Since: " + time.Unix(1e9, 0).UTC().Format(http.TimeFormat), status: http.StatusNotModified},
		{origin: cacheOrigin, line: "Range: bytes=0-1", status: http.StatusPartialContent},
		{origin: cacheOrigin, line: "Range: bytes=9-10", status: http.StatusRequestedRangeNotSatisfiable},
		{origin: evilOrigin, line: "Accept: */*", status: http.StatusForbidden},
	} {
		t.Run(test.origin, func(t *testing.T) {
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
		})
	}
}
