// Package ampcorstest checks, in a publisher's own tests, that a handler has an [ampcors.Middleware] where
// it must be: in front of every route, and of the router's own answers.
//
//	func TestPagesOfAMPCachesMayCall(t *testing.T) {
//		route := ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/api/profile"}
//		if err := ampcorstest.Check(newRouter(), route); err != nil {
//			t.Error(err)
//		}
//	}
package ampcorstest

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
)

// A Route is what [Check] asks for.
type Route struct {
	Publisher string // one that is allowed
	Method    string // one that the handler has for Path, and Config.Methods allows, such as "PUT"
	Path      string

	// Ran reports whether the route's handler ran since it was asked last. If nil, Check notices that a
	// denied request reaches the handler only if that writes anything.
	Ran func() bool
}

// evil is a publisher that nobody allows.
const evil = "evil.example"

// Check sends four requests through a handler: a preflight for the route, a forged request of another
// publisher's page to the route, a read by that page, and a read of a path that does not exist. The error
// joins all that is wrong. Only the last one is allowed to reach the router, and no request changes anything
// if the handler is right.
func Check(h http.Handler, route Route) error {
	origins := make(map[string]string)
	for _, publisher := range []string{route.Publisher, evil} {
		all, err := cacheurl.Origins(publisher, cacheurl.DefaultCaches()[0])
		if err != nil {
			return err
		}
		origins[publisher] = all[0]
	}
	var errs []error
	report := func(format string, args ...any) { errs = append(errs, fmt.Errorf("ampcorstest: "+format, args...)) }

	preflight := newRequest(http.MethodOptions, route.Path, origins[route.Publisher])
	preflight.Header.Set("Access-Control-Request-Method", route.Method)
	if w := send(h, preflight); w.Code != http.StatusNoContent || !isFor(w, origins[route.Publisher]) ||
		w.Header().Get("Access-Control-Allow-Methods") != route.Method {
		report("the preflight for %s %s from a page of %s is answered with status %d and %s; want 204 and its origin: the Middleware must see requests before the router does",
			route.Method, route.Path, route.Publisher, w.Code, allowed(w))
	}

	for _, method := range []string{route.Method, http.MethodGet} {
		r := newRequest(method, route.Path, origins[evil])
		if route.Ran != nil {
			route.Ran() // so that it forgets what was before
		}
		w := send(h, r)
		switch isDenial := w.Code == http.StatusForbidden && len(w.Header().Values("Access-Control-Allow-Origin")) == 0; {
		case !isDenial:
			report("%s %s from a page of %s is answered with status %d and %s; want 403 and no origin: the route is not behind the Middleware", method, route.Path, evil, w.Code, allowed(w))
		case route.Ran != nil && route.Ran() || w.Body.String() != denial(w):
			report("%s %s from a page of %s is denied, and the handler runs all the same: whoever calls Middleware.Handle must stop if it says so", method, route.Path, evil)
		}
	}

	const missing = "/ampcorstest-does-not-exist"
	if w := send(h, newRequest(http.MethodGet, missing, origins[route.Publisher])); !isFor(w, origins[route.Publisher]) {
		report("a page of %s cannot read the status %d of %s, which does not exist: its answer has %s", route.Publisher, w.Code, missing,
			allowed(w))
	}
	return errors.Join(errs...)
}

func newRequest(method, path, origin string) *http.Request {
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set("Origin", origin)
	return r
}

func send(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// isFor reports whether a response is for an origin alone, and shared caches know that.
func isFor(w *httptest.ResponseRecorder, origin string) bool {
	return slices.Equal(w.Header().Values("Access-Control-Allow-Origin"), []string{origin}) &&
		strings.Contains(strings.Join(w.Header().Values("Vary"), ","), "Origin")
}

func allowed(w *httptest.ResponseRecorder) string {
	origins := w.Header().Values("Access-Control-Allow-Origin")
	if len(origins) == 0 {
		return "no Access-Control-Allow-Origin"
	}
	return fmt.Sprintf("Access-Control-Allow-Origin %q", origins)
}

// denial returns what a Middleware without Config.Denied writes, if the response has it, and otherwise the
// whole response: nothing is known of what Config.Denied writes.
func denial(w *httptest.ResponseRecorder) string {
	text := http.StatusText(http.StatusForbidden) + ": " + ampcors.ReasonPublisherNotAllowed.String() + "\n"
	if strings.HasPrefix(w.Body.String(), text) {
		return text
	}
	return w.Body.String()
}
