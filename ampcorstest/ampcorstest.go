// Package ampcorstest checks, in a publisher's own tests, that a handler has an [ampcors.Middleware] where it must be:
// in front of a route, and of the router's own answers. Call [Check] for each route that changes data.
//
//	func TestPagesOfAMPCachesMayCall(t *testing.T) {
//		route := ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/api/profile"}
//		if err := ampcorstest.Check(newRouter(), route); err != nil {
//			t.Error(err)
//		}
//	}
//
// # What is not tried
//
// No list of requests is complete. These can get past a Middleware that is at the wrong place, and Check does not
// send them: other paths and methods than the route's, and the path under other names than those in the list of
// [Check]; other Host headers, client addresses, TLS or X-Forwarded headers, by which a program may choose its
// handler (wrap the handler in one that sets them in the Request); HTTP/3, trailers, Expect, chunked and long bodies;
// other codings than gzip and deflate; pages of the publisher's own domain over http or at another port; requests
// after a login, unless Route.Header has its session; several requests at the same time. A gateway or a cache in
// front of the program is not in a test of the handler: for these there is "ampcors probe".
package ampcorstest

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/header"
)

// A Route is what [Check] asks for.
type Route struct {
	Publisher string // one that is allowed, by its name and not by a pattern alone
	Method    string // one that the handler has for Path, and Config.Methods allows, such as "PUT"
	Path      string // of a URL, such as "/api/profile"; a query may follow

	// Header and Body are sent with the route's own request. Header has, for example, the Cookie of a session
	// if the handler wants one, and the Content-Type of Body. The preflight asks for its names, such as X-Token.
	Header http.Header
	Body   string

	// Credentialed is Config.Credentialed: the pages of the route send cookies.
	Credentialed bool

	// OtherPublisher is one that is allowed like Publisher, and that Path does not belong to: another tenant. If it
	// is not "", its pages must not get what is at Path: they must get 401, 403 or 404, and the Publisher's pages
	// should get another status.
	OtherPublisher string

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

	// DangerouslyAllowUnsafeRequestsWithoutOrigin is the field of Config with this name.
	DangerouslyAllowUnsafeRequestsWithoutOrigin bool

	// NotCalled says that the route's own request must not be sent, because of what its handler does. So Check misses
	// mistakes behind the Middleware: a Path without a route, replaced headers, a protection against CSRF that denies
	// pages of caches, or a handler that serves other tenants. A GET, which should change nothing, is sent all the
	// same, and so are requests that must be denied: they reach the handler if the Middleware is not in front of it.
	NotCalled bool

	// Ran reports whether the route's handler ran since the last call of Ran. The code that notes a run must be in the
	// handler itself, and not in a wrapper around the router: see the example of Check. If it is nil, some mistakes
	// show nowhere: a denied request that reaches a handler which writes nothing, redirects or does not want the
	// request's Content-Type; and a GET, which needs no permission, that also runs the handler of an unsafe method.
	Ran func() bool
}

// evil is a publisher that nobody allows.
const evil = "evil.example"

// Check sends about 70 requests through a handler, and reads the responses as a browser would. The handler gets the
// route's own request four times (eight with Route.OtherPublisher), so it must be one of a test, with a database of a
// test. A request is canceled after its response was flushed, so that a stream ends, or after 10 seconds.
//
// Check sends what pages of the publisher send, at their own origin, on the first two of the AMP Caches and with the
// hash prefix, or only at Route.Origin if that is set:
//
//   - preflights,
//   - the route's own request, a read of the route, and at the first origin a read of a path that does not exist.
//
// It also sends these, which must be denied, except the last:
//
//   - a preflight, a request and a read, each from another publisher's page,
//   - a preflight for a header that nobody allows,
//   - a form without Origin, as an old browser sends it,
//   - the request of another publisher's page once more with each change that the page can make: its origin (on
//     these caches, elsewhere, with http, a port, "null", a look-alike name), Sec-Fetch-Site, Sec-Fetch-Mode, the types
//     of forms, Accept, Referer, Authorization (browsers send HTTP Basic's by themselves), cookies, HTTP/2, a
//     WebSocket's handshake, a prefetch, a query such as __amp_source_origin or token, and other spellings of the path,
//   - a link of any page, which has no Origin, also with _method, _METHOD or method in its query, which some routers
//     take for another method. It is answered, with Vary: Origin, and must not run a handler of an unsafe method.
//
// The error joins what is found wrong. If the handler is right, only GET requests, and the route's own, reach the
// router.
func Check(h http.Handler, route Route) error {
	if h == nil {
		return errors.New("ampcorstest: the handler is nil")
	}
	if err := route.validate(); err != nil {
		return err
	}
	c := checker{h: h, route: route}
	allowed, err := c.originsOf(route.Publisher)
	if err != nil {
		return err
	}
	var others []string
	if route.OtherPublisher != "" {
		if others, err = c.originsOf(route.OtherPublisher); err != nil {
			return err
		}
	}
	c.check(allowed, others)
	if c.limited > 0 {
		return fmt.Errorf("ampcorstest: request %d is answered with status 429. Check sends about 70: raise the limit of "+
			"requests in the test", c.limited)
	}
	return errors.Join(c.errs...)
}

func (c *checker) check(allowed, others []string) {
	route := c.route
	if !c.preflight(allowed[0]) {
		return // what follows would be denied, too
	}
	for i := 1; i < len(allowed) && len(c.errs) == 0; i++ {
		c.preflight(allowed[i])
	}
	forbidden := c.evilOrigins()
	c.preflightIsDenied("from a page of "+evil, forbidden[0], "")
	c.preflightIsDenied("for the header X-Ampcorstest-Does-Not-Exist", allowed[0], "x-ampcorstest-does-not-exist")
	if route.Caches != nil && len(route.Caches) == 0 {
		onCache, _ := cacheurl.Origins(route.Publisher) // no error, because the publisher is allowed
		c.preflightIsDenied("from the publisher's page on an AMP Cache, though Route.Caches is empty,", onCache[0], "")
	}
	for _, origin := range allowed {
		before := len(c.errs)
		c.read(origin, route.Path)
		if !route.NotCalled || route.Method == http.MethodGet {
			c.run(origin)
		}
		if len(c.errs) > before {
			break // the others would have the same
		}
	}
	c.read(allowed[0], c.missing())
	c.denied(forbidden)
	if !route.NotCalled && len(c.errs) == 0 {
		c.otherPublisher(others)
	}
}

// validate returns what is wrong with the Route itself.
func (route *Route) validate() error {
	for name, target := range map[string]string{"Path": route.Path, "Missing": cmp.Or(route.Missing, "/")} {
		if _, err := url.ParseRequestURI(target); err != nil || target[0] != '/' || strings.ContainsAny(target, " #") {
			return fmt.Errorf("ampcorstest: Route.%s is %q; want the path of a URL, such as \"/api/profile\"", name, target)
		}
	}
	if !httpguts.ValidHeaderFieldName(route.Method) { // the grammar of a method is the same, RFC 9110 section 9.1
		return fmt.Errorf("ampcorstest: Route.Method is %q; want a method such as \"PUT\"", route.Method)
	}
	for name := range route.Header {
		switch lower := strings.ToLower(name); {
		case !httpguts.ValidHeaderFieldName(name):
			return fmt.Errorf("ampcorstest: Route.Header has %q, which is no name of a header", name)
		case lower != "cookie" && header.IsForbiddenRequest(lower):
			return fmt.Errorf("ampcorstest: Route.Header has %s, which browsers set and no script can: remove it", name)
		}
	}
	return nil
}

// A checker collects what is wrong.
type checker struct {
	h     http.Handler
	route Route
	errs  []error

	sent    int
	limited int       // the first request that got 429, or 0
	origins []string  // of requests
	own     *response // to the route's own request, the first time
	worked  bool      // the route's own request, at an origin
	exposed *string   // Access-Control-Expose-Headers of the first response to a page
}

func (c *checker) report(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("ampcorstest: "+format, args...))
}

// missing returns a path that no route has.
func (c *checker) missing() string {
	p, _, _ := strings.Cut(c.route.Path, "?")
	return cmp.Or(c.route.Missing, path.Join(path.Dir(p), "ampcorstest-does-not-exist"))
}

// caches returns the AMP Caches whose pages are tried.
func (c *checker) caches() []cacheurl.Cache {
	if c.route.Caches == nil {
		return cacheurl.DefaultCaches()[:2]
	}
	return c.route.Caches[:min(2, len(c.route.Caches))]
}

// originsOf returns the origins of an allowed publisher's pages, the likely one first.
func (c *checker) originsOf(publisher string) (origins []string, err error) {
	domain, err := cacheurl.CanonicalDomain(publisher)
	if err != nil {
		return nil, err
	}
	own, caches := "https://"+domain, c.caches()
	if c.route.Origin != "" && publisher == c.route.Publisher {
		return []string{c.route.Origin}, nil
	}
	if len(caches) == 0 || c.route.Origin != "" {
		return []string{own}, nil
	}
	if origins, err = cacheurl.Origins(domain, caches...); err != nil {
		return nil, err
	}
	hash, _ := cacheurl.HashPrefix(domain) // no error, because domain is valid
	return append(origins, "https://"+hash+"."+caches[0].CacheDomain, own), nil
}

// preflight checks a preflight of a publisher's page. It returns false if the Middleware has denied it.
func (c *checker) preflight(origin string) bool {
	r := c.newRequest(http.MethodOptions, c.route.Path, origin)
	r.Header.Set("Access-Control-Request-Method", c.route.Method)
	headers := strings.Join(c.requestHeaders(), ",")
	if headers != "" {
		r.Header.Set("Access-Control-Request-Headers", headers)
	}
	w := c.send(r)
	name := fmt.Sprintf("the preflight for %s %s from a page of %s, at %s,", c.route.Method, c.route.Path,
		c.route.Publisher, origin)
	if reason := w.denial(); reason != "" {
		hint := ""
		if all, err := cacheurl.Origins(c.route.Publisher); c.route.Origin != "" && len(c.caches()) > 0 && err == nil {
			hint = fmt.Sprintf("; its pages on AMP Caches are at %s", strings.Join(all, " and "))
		}
		c.report("%s is denied: %s; want a Publisher, a Method and names of Header that the Config allows, or another "+
			"Origin or other Caches%s", name, reason, hint)
		return false
	}
	switch {
	case w.panicked != nil:
		c.report("%s is answered with %s", name, w)
		return false // so would be all others
	case 300 <= w.status && w.status < 400:
		c.report("%s is redirected to %q, and browsers do not follow that: want a Path that is not redirected. If it is a "+
			"redirect to https, wrap the handler in one that sets the Request's TLS, or X-Forwarded-Proto", name,
			w.header.Get("Location"))
	case w.status == http.StatusUnauthorized:
		c.report("%s is answered with status 401: browsers send neither cookies nor Authorization with a preflight, so "+
			"what asks for a login must be behind the Middleware", name)
	case w.status != http.StatusNoContent || w.header.Get("Access-Control-Allow-Methods") != c.route.Method ||
		w.header.Get("Access-Control-Allow-Headers") != headers:
		c.report("%s is answered with %s; want 204, its origin, the method and the headers: the Middleware must see "+
			"requests before the router and other CORS middleware do",
			name, w)
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
		case "range": // one range is safelisted
		default:
			names = append(names, lower)
		}
	}
	slices.Sort(names)
	return names
}

// headers checks the CORS headers of a response for a publisher's page.
func (c *checker) headers(name string, w *response, origin string) {
	values := w.header.Values("Access-Control-Allow-Origin")
	switch vary := w.header.Values("Vary"); {
	case w.panicked != nil:
		c.report("%s is a panic of the handler: %v", name, w.panicked)
	case len(values) == 0:
		c.report("%s has status %d and no Access-Control-Allow-Origin, so that the page cannot read it: the Middleware is "+
			"not in front, the handler removes the header, or package guard is around the Middleware and not behind it", name,
			w.status)
	case len(values) > 1:
		c.report("%s has Access-Control-Allow-Origin %q, and browsers reject more than one: another CORS library, which "+
			"must go, or something else behind the Middleware adds the header; package guard prevents that", name, values)
	case values[0] != origin && slices.Contains(c.origins, values[0]):
		c.report("%s has Access-Control-Allow-Origin %q, which an earlier request was from: a cache is in front of the "+
			"Middleware, and must follow Vary; or something behind it replaces the header, which package guard prevents", name,
			values[0])
	case values[0] != origin:
		c.report("%s has Access-Control-Allow-Origin %q; want %q: another CORS library, which must go, or something else "+
			"behind the Middleware replaces the header; package guard prevents that",
			name, values[0], origin)
	case !header.HasMember(vary, "Origin") && !header.HasMember(vary, "*"):
		c.report("%s has Vary %q; want Origin in it, because a shared cache could give the response to another page: "+
			"something behind the Middleware, or a middleware that compresses, replaces or removes it; "+
			"package guard prevents it if the whole router is in it, Middleware.WrapDecision(guard.Handler(router))", name,
			strings.Join(vary, ", "))
	case c.route.Credentialed && !slices.Equal(w.header.Values("Access-Control-Allow-Credentials"), []string{"true"}):
		c.report("%s has Access-Control-Allow-Credentials %q, so that a page that sends cookies cannot read it; want "+
			"Config.Credentialed, and \"true\" once: package guard prevents that something behind the Middleware changes it",
			name, w.header.Values("Access-Control-Allow-Credentials"))
	case !c.route.Credentialed && w.header.Get("Access-Control-Allow-Credentials") != "":
		c.report("%s has Access-Control-Allow-Credentials, and Route.Credentialed is not set: set it if "+
			"Config.Credentialed is meant, and otherwise remove what allows cookies", name)
	case !strings.HasPrefix(name, "the preflight"):
		exposed := strings.Join(w.header.Values("Access-Control-Expose-Headers"), ", ")
		if c.exposed == nil {
			c.exposed = &exposed
		}
		if exposed != *c.exposed {
			c.report("%s has Access-Control-Expose-Headers %q, and another response has %q: something behind the Middleware "+
				"replaces the header; use Config.ResponseHeaders, and package guard", name, exposed, *c.exposed)
		}
	}
}

// read checks that a publisher's page can read what a path answers, whatever that is.
func (c *checker) read(origin, path string) {
	w := c.send(c.newRequest(http.MethodGet, path, origin))
	c.headers(fmt.Sprintf("the response to GET %s from a page of %s, at %s,", path, c.route.Publisher, origin), w, origin)
}

// run checks that the route's own request reaches its handler, and that the page can read the response.
func (c *checker) run(origin string) {
	w, runs := c.call(origin)
	if c.own == nil {
		c.own = w
	}
	name := fmt.Sprintf("%s %s from a page of %s, at %s,", c.route.Method, c.route.Path, c.route.Publisher, origin)
	before := len(c.errs)
	hasCORS := len(w.header.Values("Access-Control-Allow-Origin")) > 0
	switch reason := w.denial(); {
	case w.panicked != nil:
		c.headers("the response to "+name, w, origin)
	case reason != "":
		c.report("%s is denied: %s; want a Publisher that the Config lists by its name", name, reason)
	case w.status == http.StatusForbidden && runs:
		c.report("%s is answered with status 403 by the handler itself, and the Middleware has allowed it: if the handler "+
			"asks for the Decision, WrapDecision must be in front and not Wrap; if it wants a session, set Route.Header", name)
	case w.status == http.StatusForbidden && !hasCORS:
		c.report("%s is answered with status 403 and without CORS headers, and not by the Middleware: by something in "+
			"front of it, or that removes the headers. If it is a protection against CSRF such as net/http's "+
			"CrossOriginProtection, or another CORS library, remove it, because the Middleware denies forged requests", name)
	case w.status == http.StatusForbidden:
		c.report("%s is answered with status 403 by something behind the Middleware, which has allowed it. If it is a "+
			"protection against CSRF such as net/http's CrossOriginProtection, or another CORS library, remove it, because "+
			"the Middleware denies forged requests. If it compares tenants or wants a session, keep it: use a Path of this "+
			"Publisher, WrapDecision, and Route.Header", name)
	case runs, c.worked, 200 <= w.status && w.status < 300 && c.route.Ran == nil:
		// a route can be called once, such as DELETE
		c.headers("the response to "+name, w, origin)
	case !hasCORS:
		c.headers("the response to "+name, w, origin)
	default:
		known := "the handler does not run"
		if c.route.Ran == nil {
			known = "whether the handler runs is not known; if this is its answer, set Route.Ran"
		}
		c.report("%s is answered with status %d: %s (%s)", name, w.status, w.whyNotRun(), known)
	}
	c.worked = c.worked || len(c.errs) == before
}

// whyNotRun returns what to look at if a response is none of the handler, or is its error.
func (w *response) whyNotRun() string {
	switch {
	case w.status == http.StatusUnauthorized:
		return "set Route.Header to the Cookie or Authorization of a session"
	case w.status == http.StatusNotFound, w.status == http.StatusMethodNotAllowed:
		return "are the path and the method right?"
	case 300 <= w.status && w.status < 400:
		return fmt.Sprintf("it is redirected to %q, such as to a login, or to another spelling of the path",
			w.header.Get("Location"))
	case w.status >= 500:
		return "the handler, or what it needs, fails"
	case w.status >= 400:
		return "set Route.Body, and its Content-Type in Route.Header, to what the handler wants. If it is a protection " +
			"against CSRF or another CORS library, remove it, because the Middleware denies forged requests"
	}
	return "something in front of the handler answers"
}

// call sends the route's own request, and returns what Ran reports.
func (c *checker) call(origin string) (w *response, ran bool) {
	c.ran()
	r := c.newRequest(c.route.Method, c.route.Path, origin)
	for key, values := range c.route.Header {
		r.Header[http.CanonicalHeaderKey(key)] = values
	}
	w = c.send(r)
	return w, c.ran()
}

// ran returns what Ran reports, and makes it forget that.
func (c *checker) ran() bool { return c.route.Ran != nil && c.route.Ran() }

// preflightIsDenied checks a preflight that must not be granted. header may be "".
func (c *checker) preflightIsDenied(what, origin, header string) {
	r := c.newRequest(http.MethodOptions, c.route.Path, origin)
	r.Header.Set("Access-Control-Request-Method", c.route.Method)
	if header != "" {
		r.Header.Set("Access-Control-Request-Headers", header)
	}
	if w := c.send(r); w.status != http.StatusForbidden || len(w.header.Values("Access-Control-Allow-Origin")) > 0 {
		c.report("a preflight %s for %s %s is answered with %s; want 403 and no origin: something in front of the "+
			"Middleware answers preflights, or allows more",
			what, c.route.Method, c.route.Path, w)
	}
}

// otherPublisher checks that the pages of another allowed publisher do not get what the publisher's own get.
func (c *checker) otherPublisher(origins []string) {
	for _, origin := range origins {
		w, _ := c.call(origin)
		switch reason := w.denial(); {
		case reason != "":
			c.report("%s %s from a page of %s, at %s, is denied by the Middleware: %s; want as OtherPublisher one that the "+
				"Config allows, so that it is the handler that denies it",
				c.route.Method, c.route.Path, c.route.OtherPublisher, origin, reason)
			return
		case w.status != http.StatusForbidden && w.status != http.StatusNotFound && w.status != http.StatusUnauthorized:
			c.report("%s %s from a page of %s, at %s, is answered with status %d, and the path is not that publisher's; want "+
				"403: the handler must ask the Decision, by IsFor, whether the page is of the path's tenant, before it does "+
				"anything",
				c.route.Method, c.route.Path, c.route.OtherPublisher, origin, w.status)
			return
		}
	}
}
