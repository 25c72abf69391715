package ampcorstest

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/header"
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
	own := []string{"https://" + domain + "." + evil, onCache[0] + "." + evil}
	// a host below it would be the publisher's own
	if registrable, err := publicsuffix.EffectiveTLDPlusOne(domain); err == nil {
		own = append(own, "https://evil"+registrable)
		if first, rest, _ := strings.Cut(domain, "."); rest == registrable {
			own = append(own, "https://"+first+"x"+rest)
		}
	}
	return slices.Concat(origins, onCaches, own, []string{
		"https://" + hash + "." + caches[0].CacheDomain,
		"https://" + evil,
		"http://" + evil,
		"https://" + evil + ":8443",
		"null", // of a sandboxed frame
	})
}

// A forgery is a request that a page of another publisher can send.
type forgery struct {
	what   string // differs from the plain one
	target string // other than Route.Path; "" if it is the same
	body   string // other than Route.Body; "" if it is the same
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
	for contentType, body := range map[string]string{
		"multipart/form-data; boundary=b":   "--b\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--b--\r\n",
		"application/x-www-form-urlencoded": "a=1",
		"text/plain;charset=UTF-8":          "a",
		"":                                  "a",
	} {
		what := "Content-Type: " + contentType
		if contentType == "" {
			what = "a body without Content-Type"
		}
		all = append(all, forgery{what: what, body: body, change: set("Content-Type", contentType)})
	}
	slices.SortFunc(all, func(a, b forgery) int { return strings.Compare(a.what, b.what) })
	onPublisher := "https://" + c.route.Publisher
	all = append(all,
		forgery{what: "no Sec-Fetch-Site, as of an old browser",
			change: set("Sec-Fetch-Site", "", "Sec-Fetch-Mode", "", "Sec-Fetch-Dest", "")},
		forgery{what: "Sec-Fetch-Site: same-site", change: set("Sec-Fetch-Site", "same-site")},
		forgery{what: "Sec-Fetch-Mode: no-cors", change: set("Sec-Fetch-Mode", "no-cors")},
		forgery{what: "Sec-Fetch-Mode: navigate, as of a form",
			change: set("Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document", "Accept", "text/html",
				"Content-Type", "application/x-www-form-urlencoded", "Upgrade-Insecure-Requests", "1")},
		forgery{what: "Sec-Purpose: prefetch", change: set("Sec-Purpose", "prefetch", "Purpose", "prefetch")},
		forgery{what: "Accept: application/json", change: set("Accept", "application/json")},
		forgery{what: "Accept: text/event-stream", change: set("Accept", "text/event-stream", "Cache-Control", "no-cache")},
		forgery{what: "no Accept-Encoding", change: set("Accept-Encoding", "")},
		forgery{what: "Range", change: set("Range", "bytes=0-9")},
		forgery{what: "a Referer that begins with the publisher's and holds its URL",
			change: set("Referer", onPublisher+"."+evil+"/"+onPublisher+"/")},
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
		"token=1&access_token=1&api_key=1&apikey=1&key=1",
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

// respellings are a path as pages can write it otherwise. Browsers remove "." and ".." themselves, unless a slash
// beside them is escaped.
var respellings = []func(p, dir, last string) string{
	func(p, _, _ string) string { return "/" + p },
	func(_, dir, last string) string { return dir + "/" + last },
	func(p, _, _ string) string { return p + "/" },
	func(p, _, _ string) string { return strings.ToUpper(p) },
	func(p, _, _ string) string { return "/ampcorstest/..%2F" + p[1:] },
	func(_, dir, last string) string { return strings.TrimSuffix(dir, "/") + "%2F" + last },
	func(p, _, _ string) string { return p + "%2F" },
	func(p, _, _ string) string { return fmt.Sprintf("/%%%02X%s", p[1], p[2:]) },
}

// respelled returns a target with its path respelled, or "" if that gives no other path.
func respelled(target string, respell func(p, dir, last string) string) string {
	p, query, hasQuery := strings.Cut(target, "?")
	if len(p) < 2 {
		return ""
	}
	dir, last := path.Split(p)
	other := respell(p, dir, last)
	if hasQuery {
		other += "?" + query
	}
	if _, err := url.ParseRequestURI(other); err != nil || other == target || other[0] != '/' {
		return ""
	}
	return other
}

// forge sends a request as a page of another publisher. It has the cookies of the reader, but none of the headers
// that need a preflight.
func (c *checker) forge(method, origin string, f forgery) (w *response, ran bool) {
	target := f.target
	if target == "" {
		target = c.route.Path
	}
	r := c.newRequest(method, target, origin)
	if f.body != "" {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(f.body)), int64(len(f.body))
	}
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
			c.report("%s %s from a page of %s is answered with %s; want 403 and no origin: the route is not behind the "+
				"Middleware for this method, or Config.ReportOnly is set", method, c.route.Path, evil, w)
		case ran || !w.hasOnlyDenial(c.own):
			c.report("%s %s from a page of %s is denied with the body %.200q, and the handler runs all the same: the caller "+
				"of Middleware.Handle must stop if proceed is false", method,
				c.route.Path, evil, w.body)
		}
	}
	if !c.isSafe() && !c.route.DangerouslyAllowUnsafeRequestsWithoutOrigin {
		switch w, ran := c.forge(c.route.Method, "", forgery{}); {
		case w.status == http.StatusForbidden && ran:
			c.report("%s %s without Origin is denied, and the handler runs all the same: the caller of Middleware.Handle must "+
				"stop if proceed is false", c.route.Method, c.route.Path)
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
		if w, ran := c.forge(c.route.Method, origins[0], f); ran || !w.isRefused() {
			passed = append(passed, fmt.Sprintf("with %s (%s)", f.what, w))
		}
	}
	for _, respell := range respellings {
		target := respelled(c.route.Path, respell)
		if target == "" {
			continue
		}
		w, ran := c.forge(c.route.Method, origins[0], forgery{target: target})
		if ran || !w.isRefused() && !c.isRedirect(w) && !c.isElsewhere(w, origins[0], respelled(c.missing(), respell)) {
			passed = append(passed, fmt.Sprintf("as %s (%s)", target, w))
		}
	}
	if len(passed) > 0 {
		c.report("%s %s from a page of %s is denied, but not %s; want 403 and no origin: something in front of the "+
			"Middleware chooses which requests it sees, and such a page can send these too. Wrap the whole router",
			c.route.Method, c.route.Path, evil, strings.Join(passed, ", nor "))
	}
}

// isRedirect reports whether a response is a redirect to another spelling, and not the handler's own.
func (c *checker) isRedirect(w *response) bool {
	isOwn := c.own != nil && w.status == c.own.status && w.header.Get("Location") == c.own.header.Get("Location")
	return 300 <= w.status && w.status < 400 && !isOwn
}

// isElsewhere reports whether a response is as for a path that no route has, such as that of an application of one
// page. Its HTML may have values that change.
func (c *checker) isElsewhere(w *response, origin, missing string) bool {
	if missing == "" {
		return false
	}
	isHTML := func(w *response) bool { return strings.HasPrefix(w.header.Get("Content-Type"), "text/html") }
	other, _ := c.forge(c.route.Method, origin, forgery{target: missing})
	return other.status == w.status && (other.body == w.body ||
		isHTML(other) && isHTML(w) && c.own != nil && !isHTML(c.own))
}

// isNoOtherMethod checks links, which any page may have and which are sent without Origin. They are answered, and must
// not run a handler of an unsafe method.
func (c *checker) isNoOtherMethod() {
	link := func(target string) (*response, bool) {
		return c.forge(http.MethodGet, "", forgery{target: target,
			change: set("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document")})
	}
	plain, ran := link(c.route.Path)
	if vary := plain.header.Values("Vary"); plain.panicked == nil && !header.HasMember(vary, "Origin") &&
		!header.HasMember(vary, "*") {
		c.report("GET %s without Origin has Vary %q; want Origin in it, because a cache would give this response, which "+
			"has no CORS headers, to a page: the Middleware must also see requests without Origin",
			c.route.Path, strings.Join(vary, ", "))
	}
	if c.isSafe() {
		return
	}
	if ran {
		c.report("GET %s, which any page can send as a link or an image, runs the handler of %s: register the handler for "+
			"%s alone", c.route.Path, c.route.Method, c.route.Method)
		return
	}
	for _, param := range []string{"_method", "_METHOD", "method"} {
		target := withQuery(c.route.Path, param+"="+c.route.Method)
		w, ran := link(target)
		other, _ := link(withQuery(c.route.Path, param+"=ampcorstest")) // no method
		isSuccess := func(w *response) bool { return 200 <= w.status && w.status < 300 }
		isOwn := c.own != nil && w.status == c.own.status && w.body == c.own.body &&
			(w.status != other.status || w.body != other.body)
		if ran || isSuccess(w) && !isSuccess(other) || isOwn {
			c.report("a link to GET %s, on any page, is taken for %s %s: remove what reads the method from %s", target,
				c.route.Method, c.route.Path, param)
			return
		}
	}
}
