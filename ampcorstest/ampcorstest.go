// Package ampcorstest checks, in a publisher's own tests, that a handler has an [ampcors.Middleware] where
// it must be: in front of a route, and of the router's own answers. Call [Check] for each route that changes data.
//
//	func TestPagesOfAMPCachesMayCall(t *testing.T) {
//		route := ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/api/profile"}
//		if err := ampcorstest.Check(newRouter(), route); err != nil {
//			t.Error(err)
//		}
//	}
//
// This finds a Middleware that is missing or at the wrong place. With [Route.Ran], as the example of [Check] has it, it
// also finds what is wrong behind the Middleware.
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
	"github.com/ampcors/ampcors/internal/header"
)

// A Route is what [Check] asks for.
type Route struct {
	Publisher string // one that is allowed, by its name and not by a pattern alone
	Method    string // one that the handler has for Path, and Config.Methods allows, such as "PUT"
	Path      string

	// Credentialed is Config.Credentialed: the pages of the route send cookies.
	Credentialed bool

	// Caches are Config.Caches; if nil, [cacheurl.DefaultCaches].
	Caches []cacheurl.Cache

	// Origin is the origin of the publisher's page. If it is "", pages on the AMP Caches and at the
	// publisher's own origin are tried. If the Middleware has Caches: []cacheurl.Cache{}, set the field
	// Caches to the same, or Origin to the publisher's own, such as "https://www.example.com".
	Origin string

	// Missing is a path that is behind the Middleware, and that no route has. If it is "", a path in the folder of
	// Path is used: one below "/api/" for "/api/profile". Set it if the Middleware wraps only some paths of a mux,
	// and that path is not one of them.
	Missing string

	// Header is sent with the route's own request, such as the Cookie of a session if the handler wants
	// one. The preflight asks for its names, such as X-Token.
	Header http.Header

	// AllowsProgramsToWrite is Config.DangerouslyAllowUnsafeRequestsWithoutOrigin.
	AllowsProgramsToWrite bool

	// Ran reports whether the route's handler ran since the last call of Ran. The code that notes a run
	// must be in the handler itself, and not in a wrapper around the router. If Ran is set, Check also
	// sends the route's own request, and the handler must run: see the example of Check. If it is nil, and
	// Method is not GET, Check does not see what is behind the Middleware: a Path that no route has, a
	// handler that replaces headers, a protection against CSRF that denies pages of caches, and a denied
	// request that reaches a handler that writes nothing.
	Ran func() bool
}

// evil is a publisher that nobody allows.
const evil = "evil.example"

// Check sends requests through a handler, and reads the responses as a browser would. It sends what
// pages of the publisher send, at their own origin, on the first two of the AMP Caches and with the
// hash prefix, or only at Route.Origin if that is set:
//
//   - preflights,
//   - a read of the route, and a read of a path that does not exist,
//   - the route's own request, if Method is GET or Ran is set.
//
// It also sends what must be denied:
//
//   - a preflight, a forged request and a read, each from another publisher's page,
//   - a preflight for a header that nobody allows,
//   - a forged form without Origin.
//
// The error joins all that is wrong. If the handler is right, only GET requests, and the route's own, reach the router.
func Check(h http.Handler, route Route) error {
	c := checker{h: h, route: route}
	allowed, forbidden, err := originsOf(route)
	if err != nil {
		return err
	}
	if !c.preflight(allowed[0]) {
		return errors.Join(c.errs...) // what follows would be denied, too
	}
	for i := 1; i < len(allowed) && len(c.errs) == 0; i++ {
		c.preflight(allowed[i])
	}
	c.preflightIsDenied("from a page of "+evil, forbidden, "")
	c.preflightIsDenied("for the header X-Ampcorstest-Does-Not-Exist", allowed[0], "x-ampcorstest-does-not-exist")
	if route.Caches != nil && len(route.Caches) == 0 {
		onCache, _ := cacheurl.Origins(route.Publisher) // no error, because the publisher is allowed
		c.preflightIsDenied("from the publisher's page on an AMP Cache, though Route.Caches is empty,", onCache[0], "")
	}
	c.denied(forbidden)
	for _, origin := range allowed {
		before := len(c.errs)
		c.read(origin, route.Path)
		if route.Ran != nil || route.Method == http.MethodGet {
			c.run(origin)
		}
		if len(c.errs) > before {
			break // the others would have the same
		}
	}
	c.read(allowed[0], cmp.Or(route.Missing, path.Join(path.Dir("/"+route.Path), "ampcorstest-does-not-exist")))
	return errors.Join(c.errs...)
}

// originsOf returns origins of the publisher's pages, the likely one first, and that of a page of another publisher.
func originsOf(route Route) (allowed []string, forbidden string, err error) {
	own, err := cacheurl.CanonicalDomain(route.Publisher)
	if err != nil {
		return nil, "", err
	}
	caches := route.Caches
	if caches == nil {
		caches = cacheurl.DefaultCaches()
	}
	if route.Origin != "" || len(caches) == 0 {
		return []string{cmp.Or(route.Origin, "https://"+own)}, "https://" + evil, nil
	}
	caches = caches[:min(2, len(caches))]
	if allowed, err = cacheurl.Origins(own, caches...); err != nil {
		return nil, "", err
	}
	hash, _ := cacheurl.HashPrefix(own) // no errors, because own and caches are valid
	others, _ := cacheurl.Origins(evil, caches[0])
	return append(allowed, "https://"+hash+"."+caches[0].CacheDomain, "https://"+own), others[0], nil
}

// A checker collects what is wrong.
type checker struct {
	h     http.Handler
	route Route
	errs  []error
}

func (c *checker) report(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("ampcorstest: "+format, args...))
}

// preflight checks a preflight of a publisher's page. It returns false if the Middleware has denied it.
func (c *checker) preflight(origin string) bool {
	r := newRequest(http.MethodOptions, c.route.Path, origin)
	r.Header.Set("Access-Control-Request-Method", c.route.Method)
	headers := strings.Join(c.requestHeaders(), ",")
	if headers != "" {
		r.Header.Set("Access-Control-Request-Headers", headers)
	}
	w := send(c.h, r)
	name := fmt.Sprintf("the preflight for %s %s from a page of %s, at %s,", c.route.Method, c.route.Path, c.route.Publisher, origin)
	if reason := reasonOf(w); reason != "" {
		hint := ""
		if all, err := cacheurl.Origins(c.route.Publisher); c.route.Origin != "" && err == nil {
			hint = fmt.Sprintf("; its pages on AMP Caches are at %s", strings.Join(all, " and "))
		}
		c.report("%s is denied: %s; want a Publisher, a Method and names of Header that the Config allows, or another Origin or other Caches%s", name, reason, hint)
		return false
	}
	switch {
	case w.Code != http.StatusNoContent || w.Header().Get("Access-Control-Allow-Methods") != c.route.Method ||
		w.Header().Get("Access-Control-Allow-Headers") != headers:
		c.report("%s is answered with status %d and %s; want 204, its origin, the method and the headers: the Middleware must see requests before the router and other CORS middleware do",
			name, w.Code, origins(w))
	default:
		c.headers(name, w, origin)
	}
	return true
}

// requestHeaders returns the names in Route.Header that a page needs a preflight for, as browsers ask for them.
// https://fetch.spec.whatwg.org/#cors-safelisted-request-header
func (c *checker) requestHeaders() (names []string) {
	for name := range c.route.Header {
		switch lower := strings.ToLower(name); lower {
		case "cookie", "accept", "accept-language", "content-language":
		default:
			names = append(names, lower)
		}
	}
	slices.Sort(names)
	return names
}

// headers checks the CORS headers of a response for a publisher's page.
func (c *checker) headers(name string, w *httptest.ResponseRecorder, origin string) {
	values := w.Header().Values("Access-Control-Allow-Origin")
	switch vary := w.Header().Values("Vary"); {
	case len(values) == 0:
		c.report("%s has status %d and no Access-Control-Allow-Origin, so that the page cannot read it: the Middleware is not in front, or the handler removes the header", name, w.Code)
	case len(values) > 1:
		c.report("%s has Access-Control-Allow-Origin %q, and browsers reject more than one: something behind the Middleware adds the header; package guard prevents it", name, values)
	case values[0] != origin:
		c.report("%s has Access-Control-Allow-Origin %q; want %q: something behind the Middleware replaces the header; package guard prevents it",
			name, values[0], origin)
	case !header.HasMember(vary, "Origin") && !header.HasMember(vary, "*"):
		c.report("%s has Vary %q; want Origin in it, because a shared cache could give the response to another page: something behind the Middleware replaces the header; package guard prevents it", name, strings.Join(vary, ", "))
	case c.route.Credentialed && w.Header().Get("Access-Control-Allow-Credentials") != "true":
		c.report("%s has no Access-Control-Allow-Credentials, so that a page that sends cookies cannot read it; want Config.Credentialed", name)
	}
}

// read checks that a publisher's page can read what a path answers, whatever that is.
func (c *checker) read(origin, path string) {
	w := send(c.h, newRequest(http.MethodGet, path, origin))
	c.headers(fmt.Sprintf("the response to GET %s from a page of %s, at %s,", path, c.route.Publisher, origin), w, origin)
}

// run checks that the route's own request reaches its handler, and that the page can read the response.
func (c *checker) run(origin string) {
	c.forget()
	r := newRequest(c.route.Method, c.route.Path, origin)
	for key, values := range c.route.Header {
		r.Header[http.CanonicalHeaderKey(key)] = values
	}
	w := send(c.h, r)
	name := fmt.Sprintf("%s %s from a page of %s, at %s,", c.route.Method, c.route.Path, c.route.Publisher, origin)
	runs := c.route.Ran != nil && c.route.Ran()
	ran := c.route.Ran == nil || runs
	switch reason := reasonOf(w); {
	case reason != "":
		c.report("%s is denied: %s; want a Publisher that the Config lists by its name", name, reason)
	case w.Code == http.StatusForbidden && runs:
		c.report("%s is answered with status 403 by the handler itself, and the Middleware has allowed it: if the handler asks for the Decision, WrapDecision must be in front and not Wrap; if it wants a session, set Route.Header", name)
	case w.Code == http.StatusForbidden && len(w.Header().Values("Access-Control-Allow-Origin")) == 0:
		c.report("%s is answered with status 403 and without CORS headers, and not by the Middleware: by something in front of it, or that removes the headers. If it is a protection against CSRF such as net/http's CrossOriginProtection, remove it, because the Middleware denies forged requests", name)
	case w.Code == http.StatusForbidden:
		c.report("%s is answered with status 403 by something behind the Middleware, which has allowed it. If it is a protection against CSRF such as net/http's CrossOriginProtection, remove it, because the Middleware denies forged requests. If it compares tenants or wants a session, keep it: use a Path of this Publisher, WrapDecision, and Route.Header", name)
	case w.Code == http.StatusUnauthorized:
		c.report("%s is answered with status 401: set Route.Header to the Cookie or Authorization of a session", name)
	case w.Code == http.StatusNotFound || !ran:
		c.report("%s is answered with status %d, and the handler does not run: is the path right?", name, w.Code)
	default:
		c.headers("the response to "+name, w, origin)
	}
}

// forget makes Ran forget what was before.
func (c *checker) forget() {
	if c.route.Ran != nil {
		c.route.Ran()
	}
}

// preflightIsDenied checks a preflight that must not be granted. header may be "".
func (c *checker) preflightIsDenied(what, origin, header string) {
	r := newRequest(http.MethodOptions, c.route.Path, origin)
	r.Header.Set("Access-Control-Request-Method", c.route.Method)
	if header != "" {
		r.Header.Set("Access-Control-Request-Headers", header)
	}
	if w := send(c.h, r); w.Code != http.StatusForbidden || len(w.Header().Values("Access-Control-Allow-Origin")) > 0 {
		c.report("a preflight %s for %s %s is answered with status %d and %s; want 403 and no origin: something in front of the Middleware answers preflights, or allows more",
			what, c.route.Method, c.route.Path, w.Code, origins(w))
	}
}

// denied checks what pages of another publisher may not do, at an origin, and what forms without Origin may not.
func (c *checker) denied(origin string) {
	for _, method := range slices.Compact([]string{c.route.Method, http.MethodGet}) {
		c.forget()
		w := send(c.h, newRequest(method, c.route.Path, origin))
		switch isDenial := w.Code == http.StatusForbidden && len(w.Header().Values("Access-Control-Allow-Origin")) == 0; {
		case !isDenial:
			c.report("%s %s from a page of %s is answered with status %d and %s; want 403 and no origin: the route is not behind the Middleware for this method, or Config.ReportOnly is set", method, c.route.Path, evil, w.Code, origins(w))
		case c.route.Ran != nil && c.route.Ran() || w.Body.String() != denial(w):
			c.report("%s %s from a page of %s is denied, and the handler runs all the same: the caller of Middleware.Handle must stop if proceed is false", method,
				c.route.Path, evil)
		}
	}
	if isSafe := slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, c.route.Method); isSafe || c.route.AllowsProgramsToWrite {
		return
	}
	c.forget()
	r := newRequest(c.route.Method, c.route.Path, "")
	switch w := send(c.h, r); {
	case w.Code == http.StatusForbidden && c.route.Ran != nil && c.route.Ran():
		c.report("%s %s without Origin is denied, and the handler runs all the same: the caller of Middleware.Handle must stop if proceed is false", c.route.Method, c.route.Path)
	case w.Code != http.StatusForbidden:
		c.report("%s %s without Origin, as a form of any site can send it in an old browser, is answered with status %d; want 403, or AllowsProgramsToWrite if DangerouslyAllowUnsafeRequestsWithoutOrigin is meant",
			c.route.Method, c.route.Path, w.Code)
	}
}

func newRequest(method, path, origin string) *http.Request {
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	return r
}

func send(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func origins(w *httptest.ResponseRecorder) string {
	values := w.Header().Values("Access-Control-Allow-Origin")
	if len(values) == 0 {
		return "no Access-Control-Allow-Origin"
	}
	return fmt.Sprintf("Access-Control-Allow-Origin %q", values)
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
