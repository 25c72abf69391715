package ampcors_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unsafe"

	"github.com/ampcors/ampcors"
)

// unsafeString returns a string that shares the memory of b.
func unsafeString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// A discard is a ResponseWriter whose header map the tests reuse, so that it does not
// count as an allocation.
type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

func TestCheckOriginDoesNotAllocate(t *testing.T) {
	m := newMiddleware(t, testConfig())
	cfg, s := withSource(t, testConfig())
	remembering := newMiddleware(t, cfg)
	longName := strings.Repeat("long-name.", 5) + "example" // too long for the compiler's buffer on the stack
	s.add(longName)
	longPrefix, _ := ampcors.DomainPrefix(longName)
	for _, origin := range []string{cacheOrigin, bingOrigin, hashOrigin, idnOrigin, ownOrigin, "https://" + longPrefix + ".cdn.ampproject.org", "https://" + longName} {
		t.Run(origin, func(t *testing.T) {
			if !remembering.CheckOrigin(origin).Allowed {
				t.Errorf("%q is not allowed", origin)
			}
			if n := testing.AllocsPerRun(100, func() { remembering.CheckOrigin(origin) }); n != 0 {
				t.Errorf("%.60q, answered by a Source before: %v allocations", origin, n)
			}
		})
	}
	for _, origin := range []string{
		cacheOrigin, bingOrigin, hashOrigin, idnOrigin, ownOrigin, playgroundOrigin, unknownHashOrigin, "null", "", "http://www.example.com",
		"https://evil.example", "https://cdn.ampproject.org", "https://0-a-b-0.cdn.ampproject.org", strings.Repeat("x", 1<<20),
	} {
		t.Run(fmt.Sprintf("%.40s", origin), func(t *testing.T) {
			if n := testing.AllocsPerRun(100, func() { m.CheckOrigin(origin) }); n != 0 {
				t.Errorf("%.60q: %v allocations", origin, n)
			}
		})
	}
	// The publishers of these are not stored anywhere, so the decision copies the name.
	for _, origin := range []string{wildOrigin, "https://blog.example.net", evilOrigin} {
		t.Run(origin, func(t *testing.T) {
			if n := testing.AllocsPerRun(100, func() { m.CheckOrigin(origin) }); n != 1 {
				t.Errorf("%q: %v allocations; want 1, for the name", origin, n)
			}
		})
	}
}

func TestAnAllowedRequestCostsOneAllocation(t *testing.T) {
	cfg := testConfig()
	cfg.RequestHeaders = []string{"X-Requested-With"}
	m := newMiddleware(t, cfg)
	h := m.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	w := discard{make(http.Header)}
	for _, origin := range []string{cacheOrigin, bingOrigin, hashOrigin, idnOrigin, ownOrigin, playgroundOrigin, wildOrigin, "https://blog.example.net"} {
		t.Run(origin, func(t *testing.T) {
			r := &http.Request{Method: "GET", Header: http.Header{"Origin": {origin}}}
			if n := testing.AllocsPerRun(100, func() { clear(w.h); h.ServeHTTP(w, r) }); n != 1 {
				t.Errorf("%q: %v allocations; want 1", origin, n)
			}
			if w.h.Get("Access-Control-Allow-Origin") != origin {
				t.Errorf("%q is not allowed", origin)
			}
		})
	}
	for _, names := range []string{"content-type", "content-type,x-requested-with"} {
		t.Run(names, func(t *testing.T) {
			r := &http.Request{Method: "OPTIONS", Header: headers("Origin: "+cacheOrigin, "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: "+names)}
			if n := testing.AllocsPerRun(100, func() { clear(w.h); h.ServeHTTP(w, r) }); n != 1 {
				t.Errorf("a preflight for %s: %v allocations; want 1", names, n)
			}
			if w.h.Get("Access-Control-Allow-Headers") != names {
				t.Errorf("a preflight for %s is not allowed", names)
			}
		})
	}
}
