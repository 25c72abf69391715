package caddy

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Caddy chooses a handle block by the decoded and cleaned path, and passes the path on as it came. So a page of
// one publisher could reach the paths of another one: /news/..%2fshop/x is in the block of /shop/, and a
// backend that does not decode %2f runs /news/. Where the path decides which handler runs, a path that servers
// may read differently is therefore denied.

// A pathChoice is what the routes on the way to a handler look at in the path.
type pathChoice struct {
	isMade  bool   // a route on the way looks at the path
	text    string // the patterns of the matchers, one after another
	slashes int    // how many the longest pattern has; what follows as many slashes in a path decides nothing
	isOpen  bool   // a matcher may look at the whole path
}

// choiceOf returns the pathChoice for h in a server. If h is not among its routes, any path may decide.
func choiceOf(h *Handler, server *caddyhttp.Server) pathChoice {
	var c pathChoice
	if server == nil || !c.find(h, server.Routes) {
		return pathChoice{isMade: true, isOpen: true}
	}
	return c
}

// find reports whether routes lead to h, and notes the matchers on the way: of each route that leads to h, and of the routes
// before it, because a request that matches one of them may not come to h.
func (c *pathChoice) find(h *Handler, routes caddyhttp.RouteList) bool {
	for i, route := range routes {
		for _, handler := range route.Handlers {
			inner, isSubroute := handler.(*caddyhttp.Subroute)
			if handler != caddyhttp.MiddlewareHandler(h) && (!isSubroute || !c.find(h, inner.Routes)) {
				continue
			}
			for _, r := range routes[:i+1] {
				c.note(r.MatcherSets)
			}
			return true
		}
	}
	return false
}

// note notes what matchers look at.
func (c *pathChoice) note(sets []caddyhttp.MatcherSet) {
	for _, set := range sets {
		for _, matcher := range set {
			switch m := matcher.(type) {
			case *caddyhttp.MatchPath:
				c.isMade = true
				for _, pattern := range *m {
					c.text += pattern
					c.slashes = max(c.slashes, strings.Count(pattern, "/"))
					// Only a * at the end, or none, leaves the rest of the path alone. A placeholder may be anything.
					if strings.ContainsAny(strings.TrimSuffix(pattern, "*"), "*?[{%") {
						c.isOpen = true
					}
				}
			case *caddyhttp.MatchNot:
				c.note(m.MatcherSets)
			case *caddyhttp.MatchHost, *caddyhttp.MatchMethod, *caddyhttp.MatchProtocol, *caddyhttp.MatchQuery, *caddyhttp.MatchHeader,
				*caddyhttp.MatchHeaderRE, *caddyhttp.MatchRemoteIP, *caddyhttp.MatchClientIP, *caddyhttp.MatchTLS:
			default: // such as path_regexp and expression
				c.isMade, c.isOpen = true, true
			}
		}
	}
}

// dependsOnPath reports whether the path may have decided that h runs, and a page could profit from that.
// Without an Origin or the sender of an email, a GET is not decided by the publisher.
func (h *Handler) dependsOnPath(r *http.Request) bool {
	h.chooses.Do(func() {
		server, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
		h.choice = choiceOf(h, server)
	})
	switch {
	case !h.choice.isMade || h.reportOnly:
		return false
	case r.Header["Origin"] != nil || r.Header["Amp-Email-Sender"] != nil:
		return true
	}
	return r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions
}

// originalURL returns the URL that the client asked for: handle_path and others change it on the way.
func originalURL(r *http.Request) *url.URL {
	if original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok && original.URL != nil {
		return original.URL
	}
	return r.URL
}

// escaped matches a character that is percent-encoded.
var escaped = regexp.MustCompile("%[0-9A-Fa-f]{2}")

// problem returns what servers may read differently in a path, or "".
func (c pathChoice) problem(u *url.URL) string {
	for segment := range strings.FieldsFuncSeq(u.Path, func(c rune) bool { return c == '/' || c == '\\' }) {
		if segment == "." || segment == ".." { // they came encoded, or from no browser
			return "a dot segment"
		}
	}
	for _, char := range u.Path {
		switch {
		case char == '\\' || char == ';': // some servers read \ as /, and cut a segment at ;
			return string(char)
		case char < ' ' || char == 0x7f:
			return "a control character"
		}
	}
	raw := u.EscapedPath()
	switch {
	case strings.Contains(raw, "//"):
		return "//"
	case escaped.MatchString(u.Path):
		return "a character that is encoded twice"
	}
	// What remains is ambiguous only in the part of the path that the routes look at.
	for slashes := 0; raw != "" && (c.isOpen || slashes < c.slashes); {
		switch b := raw[0]; {
		case b == '/':
			slashes++
		case 'A' <= b && b <= 'Z' && !c.isOpen: // Caddy ignores the case of a path pattern, and has the pattern in lower case
			return "an upper-case letter"
		case b == '%': // EscapedPath is valid
			text, _ := url.PathUnescape(raw[:3])
			if text == "/" || isUnreserved(text[0]) || strings.Contains(c.text, text) {
				return raw[:3]
			}
			raw = raw[2:]
		}
		raw = raw[1:]
	}
	return ""
}

// isUnreserved reports whether a character never needs to be encoded (RFC 3986, section 2.3).
func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}
