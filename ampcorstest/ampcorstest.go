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
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
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

	// Origin is that of the publisher's page. If it is "", the page is on Google's AMP Cache. A Middleware with
	// Caches: []cacheurl.Cache{} needs the publisher's own, such as "https://www.example.com".
	Origin string

	// Missing is a path that is behind the Middleware, and that no route has. If it is "", a path in the folder of
	// Path is used: one below "/api/" for "/api/profile". Set it if the Middleware wraps only some paths of a mux,
	// and that path is not one of them.
	Missing string

	// Ran reports whether the route's handler ran since the last call of Ran. If it is set, Check also sends
	// the route's own request: the handler must run. If it is nil, Check misses two mistakes: a denied request
	// that reaches a handler that writes nothing, and, unless Method is GET, a Path that no route has.
	Ran func() bool
}

// evil is a publisher that nobody allows.
const evil = "evil.example"

// Check sends requests through a handler: a preflight for the route, a forged request of another
// publisher's page to the route, a read by that page, and a read of a path that does not exist; and the route's own request,
// if Method is GET or Ran is set. The error joins all that is wrong. If the handler is right, only the last two
// reach the router.
func Check(h http.Handler, route Route) error {
	origins := make(map[string]string)
	for _, publisher := range []string{route.Publisher, evil} {
		all, err := cacheurl.Origins(publisher, cacheurl.DefaultCaches()[0])
		if err != nil {
			return err
		}
		if origins[publisher] = all[0]; route.Origin != "" {
			origins[publisher] = "https://" + publisher
		}
	}
	own := cmp.Or(route.Origin, origins[route.Publisher])
	var errs []error
	report := func(format string, args ...any) { errs = append(errs, fmt.Errorf("ampcorstest: "+format, args...)) }

	preflight := newRequest(http.MethodOptions, route.Path, own)
	preflight.Header.Set("Access-Control-Request-Method", route.Method)
	if w := send(h, preflight); reasonOf(w) != "" {
		report("the preflight for %s %s from a page of %s, at %s, is denied: %s; want a Publisher and a Method that the Config allows, or another Origin",
			route.Method, route.Path, route.Publisher, own, reasonOf(w))
		return errors.Join(errs...) // what follows would be denied, too
	} else if w.Code != http.StatusNoContent || !isFor(w, own) || w.Header().Get("Access-Control-Allow-Methods") != route.Method {
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
			report("%s %s from a page of %s is denied, and the handler runs all the same: the caller of Middleware.Handle must stop if proceed is false", method, route.Path, evil)
		}
	}

	missing := cmp.Or(route.Missing, path.Join(path.Dir("/"+route.Path), "ampcorstest-does-not-exist"))
	if w := send(h, newRequest(http.MethodGet, missing, own)); !isFor(w, own) {
		report("a page of %s cannot read the status %d of %s, which does not exist: its answer has %s", route.Publisher, w.Code, missing,
			allowed(w))
	}
	if route.Ran != nil || route.Method == http.MethodGet {
		w := send(h, newRequest(route.Method, route.Path, own))
		if w.Code == http.StatusNotFound || route.Ran != nil && !route.Ran() {
			report("%s %s from a page of %s is answered with status %d, and the handler does not run: is the path right?", route.Method, route.Path,
				route.Publisher, w.Code)
		}
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

// reasonOf returns why a Middleware without Config.Denied has denied a request, or "".
func reasonOf(w *httptest.ResponseRecorder) string {
	line, _, _ := strings.Cut(w.Body.String(), "\n")
	text, isDenial := strings.CutPrefix(line, http.StatusText(w.Code)+": ")
	word := text[:strings.IndexAny(text+";", ";:")]
	for r := ampcors.Reason(1); isDenial && r.String() != ampcors.Reason(0).String(); r++ {
		if word == r.String() && !r.Allowed() {
			return text
		}
	}
	return ""
}

// denial returns what a Middleware without Config.Denied writes, if the response has it, and otherwise the
// whole response: nothing is known of what Config.Denied writes.
func denial(w *httptest.ResponseRecorder) string {
	if reason := reasonOf(w); reason != "" {
		return http.StatusText(http.StatusForbidden) + ": " + reason + "\n"
	}
	return w.Body.String()
}
