package ampcorstest

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/ampcors/ampcors/cacheurl"
)

// evilOrigins returns origins that nobody allows: pages of another publisher on AMP Caches, the likely one first, and
// pages elsewhere, with names that look like the publisher's.
func (c *checker) evilOrigins() (origins []string) {
	caches := c.caches()
	if len(caches) == 0 {
		origins = []string{"https://" + evil}
		caches = cacheurl.DefaultCaches()[:1]
	}
	onCaches, _ := cacheurl.Origins(evil, caches...) // no errors, because all names are valid
	hash, _ := cacheurl.HashPrefix(evil)
	domain, _ := cacheurl.CanonicalDomain(c.route.Publisher)
	onCache, _ := cacheurl.Origins(domain, caches[0])
	return slices.Concat(origins, onCaches, []string{
		"https://" + hash + "." + caches[0].CacheDomain,
		"https://" + evil,
		"http://" + evil,
		"https://" + evil + ":8443",
		"https://" + domain + "." + evil,
		onCache[0] + "." + evil,
		"null", // of a sandboxed frame
	})
}

// A forgery is a request that a page of another publisher can send.
type forgery struct {
	what   string // differs from the plain one
	target string // other than Route.Path; "" if it is the same
	change func(*http.Request)
}

// set returns a change that sets headers. An empty value removes one.
func set(namesAndValues ...string) func(*http.Request) {
	return func(r *http.Request) {
		for i := 0; i < len(namesAndValues); i += 2 {
			if r.Header.Set(namesAndValues[i], namesAndValues[i+1]); namesAndValues[i+1] == "" {
				r.Header.Del(namesAndValues[i])
			}
		}
	}
}

// forgeries returns what a page can change, one thing at a time.
func (c *checker) forgeries(origins []string) (all []forgery) {
	for _, origin := range origins[1:] {
		all = append(all, forgery{what: "Origin: " + origin, change: set("Origin", origin)})
	}
	for _, contentType := range []string{"multipart/form-data; boundary=b", "application/x-www-form-urlencoded", "text/plain;charset=UTF-8"} {
		all = append(all, forgery{what: "Content-Type: " + contentType, change: set("Content-Type", contentType)})
	}
	onPublisher := "https://" + c.route.Publisher
	all = append(all,
		forgery{what: "no Sec-Fetch-Site, as of an old browser", change: set("Sec-Fetch-Site", "", "Sec-Fetch-Mode", "", "Sec-Fetch-Dest", "")},
		forgery{what: "Sec-Fetch-Site: same-site", change: set("Sec-Fetch-Site", "same-site")},
		forgery{what: "Sec-Fetch-Mode: no-cors", change: set("Sec-Fetch-Mode", "no-cors")},
		forgery{what: "Sec-Fetch-Mode: navigate, as of a form", change: set("Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document", "Accept", "text/html",
			"Content-Type", "application/x-www-form-urlencoded", "Upgrade-Insecure-Requests", "1")},
		forgery{what: "Sec-Purpose: prefetch", change: set("Sec-Purpose", "prefetch", "Purpose", "prefetch")},
		forgery{what: "Accept: application/json", change: set("Accept", "application/json")},
		forgery{what: "Accept: text/event-stream", change: set("Accept", "text/event-stream", "Cache-Control", "no-cache")},
		forgery{what: "no Accept-Encoding", change: set("Accept-Encoding", "")},
		forgery{what: "Range", change: set("Range", "bytes=0-9")},
		forgery{what: "a Referer that holds the publisher's URL", change: set("Referer", "https://"+evil+"/"+onPublisher+"/")},
		forgery{what: "Authorization: Basic", change: set("Authorization", "Basic YTpi")},
		forgery{what: "a Cookie", change: func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "session", Value: "1"}) }},
		forgery{what: "no Cookie", change: set("Cookie", "")},
		forgery{what: "HTTP/2", change: func(r *http.Request) { r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0 }},
		forgery{what: "a WebSocket's handshake", change: func(r *http.Request) {
			r.Method = http.MethodGet
			set("Connection", "Upgrade", "Upgrade", "websocket", "Sec-Websocket-Version", "13",
				"Sec-Websocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "Sec-Fetch-Mode", "websocket", "Sec-Fetch-Dest", "websocket")(r)
		}},
	)
	for _, query := range []string{
		"__amp_source_origin=" + url.QueryEscape(onPublisher),
		"_method=" + c.route.Method,
		"origin=" + url.QueryEscape(onPublisher),
		"callback=f",
	} {
		all = append(all, forgery{what: "the query " + query, target: withQuery(c.route.Path, query)})
	}
	return all
}

func withQuery(target, query string) string {
	if strings.Contains(target, "?") {
		return target + "&" + query
	}
	return target + "?" + query
}

// respellings returns a path as pages can write it otherwise. Browsers remove "." and ".." themselves, unless a slash beside them is escaped.
func respellings(target string) []string {
	p, query, hasQuery := strings.Cut(target, "?")
	dir, last := path.Split(p)
	all := []string{
		"/" + p,
		dir + "/" + last,
		p + "/",
		strings.ToUpper(p),
		"/ampcorstest/..%2F" + p[1:],
		strings.TrimSuffix(dir, "/") + "%2F" + last,
		p + "%2F",
	}
	if len(p) > 1 {
		all = append(all, fmt.Sprintf("/%%%02X%s", p[1], p[2:]))
	}
	for i := range all {
		if hasQuery {
			all[i] += "?" + query
		}
	}
	return all
}

// forge sends a request as a page of another publisher. It has the cookies of the reader, but none of the headers that need a preflight.
func (c *checker) forge(method, origin string, f forgery) (w *response, ran bool) {
	target := f.target
	if target == "" {
		target = c.route.Path
	}
	r := c.newRequest(method, target, origin)
	for name, values := range c.route.Header {
		if key := http.CanonicalHeaderKey(name); key == "Cookie" || key == "Content-Type" {
			r.Header[key] = slices.Clone(values)
		}
	}
	if f.change != nil {
		f.change(r)
	}
	c.ran()
	w = c.send(r)
	return w, c.ran()
}

// denied checks what pages of another publisher may not do, the first of origins being the likely one, and what forms
// without Origin may not.
func (c *checker) denied(origins []string) {
	before := len(c.errs)
	for _, method := range slices.Compact([]string{c.route.Method, http.MethodGet}) {
		switch w, ran := c.forge(method, origins[0], forgery{}); {
		case !w.isDenied():
			c.report("%s %s from a page of %s is answered with %s; want 403 and no origin: the route is not behind the Middleware for this method, or Config.ReportOnly is set", method, c.route.Path, evil, w)
		case ran || !w.hasOnlyDenial():
			c.report("%s %s from a page of %s is denied, and the handler runs all the same: the caller of Middleware.Handle must stop if proceed is false", method,
				c.route.Path, evil)
		}
	}
	if !c.isSafe() && !c.route.DangerouslyAllowUnsafeRequestsWithoutOrigin {
		switch w, ran := c.forge(c.route.Method, "", forgery{}); {
		case w.status == http.StatusForbidden && ran:
			c.report("%s %s without Origin is denied, and the handler runs all the same: the caller of Middleware.Handle must stop if proceed is false", c.route.Method, c.route.Path)
		case w.status != http.StatusForbidden:
			c.report("%s %s without Origin, as a form of any site can send it in an old browser, is answered with status %d; "+
				"want 403, or DangerouslyAllowUnsafeRequestsWithoutOrigin in the Route if it is in the Config, too",
				c.route.Method, c.route.Path, w.status)
		}
	}
	if len(c.errs) == before { // otherwise, the others would be the same
		c.deniedHoweverSent(origins)
		c.isNoOtherMethod()
	}
}

func (c *checker) isSafe() bool {
	return slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, c.route.Method)
}

// deniedHoweverSent checks that no change of a forged request brings it past the Middleware.
func (c *checker) deniedHoweverSent(origins []string) {
	var passed []string
	for _, f := range c.forgeries(origins) {
		if w, ran := c.forge(c.route.Method, origins[0], f); ran || !w.isDenied() {
			passed = append(passed, fmt.Sprintf("with %s (%s)", f.what, w))
		}
	}
	missing := respellings(c.missing())
	for i, target := range respellings(c.route.Path) {
		if _, err := url.ParseRequestURI(target); err != nil {
			continue
		}
		w, ran := c.forge(c.route.Method, origins[0], forgery{target: target})
		isElsewhere := func() bool { // as for a path that no route has
			other, _ := c.forge(c.route.Method, origins[0], forgery{target: missing[i]})
			return other.status == w.status && other.body == w.body
		}
		if isRefused := w.isDenied() || w.status == http.StatusNotFound || w.status == http.StatusMethodNotAllowed ||
			300 <= w.status && w.status < 400; ran || !isRefused && !isElsewhere() {
			passed = append(passed, fmt.Sprintf("as %s (%s)", target, w))
		}
	}
	if len(passed) > 0 {
		c.report("%s %s from a page of %s is denied, but not %s; want 403 and no origin: something in front of the Middleware chooses which requests it sees, and such a page can send these too. Wrap the whole router",
			c.route.Method, c.route.Path, evil, strings.Join(passed, ", nor "))
	}
}

// isNoOtherMethod checks that a link, which any page may send without Origin, is not taken for the route's own request.
func (c *checker) isNoOtherMethod() {
	if c.isSafe() {
		return
	}
	link := func(target string) (*response, bool) {
		return c.forge(http.MethodGet, "", forgery{target: target, change: set("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document")})
	}
	plain, plainRan := link(c.route.Path)
	for _, param := range []string{"_method", "_METHOD", "method"} {
		target := withQuery(c.route.Path, param+"="+c.route.Method)
		w, ran := link(target)
		isSuccess := func(w *response) bool { return 200 <= w.status && w.status < 300 }
		isOwn := c.own != nil && w.status == c.own.status && w.body == c.own.body && (w.status != plain.status || w.body != plain.body)
		if ran && !plainRan || isSuccess(w) && !isSuccess(plain) || isOwn {
			c.report("a link to GET %s, on any page, is taken for %s %s: remove what reads the method from %s", target, c.route.Method, c.route.Path, param)
			return
		}
	}
}
