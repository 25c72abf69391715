package caddy

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Caddy chooses a handle block by the decoded and cleaned path, and passes the path on as it came. So a page of
// one publisher could reach the paths of another one: /news/..%2fshop/x is in the block of /shop/, and a
// backend that does not decode %2f runs /news/. Where the path decides which handler runs, a path that servers
// may read differently is therefore denied.

// A pathChoice is the part of the path by which routes decide whether a handler runs.
//
// A route before the handler takes each request whose decoded path matches, in upper or lower case. A
// backend that decodes less, or tells upper from lower case, finds no match there that Caddy missed. So
// only the routes on the way to the handler matter for encoded characters and for the case: Caddy may
// have found a match that the backend does not find.
type pathChoice struct {
	isMade   bool   // a route looks at the path
	text     string // the patterns of the path matchers on the way, one after another
	segments int    // how many they look at, from the first one on
	isGlob   bool   // one of them looks at the whole path
	isOpen   bool   // another matcher on the way may look at the whole path, such as path_regexp, which may tell cases apart
}

// choiceOf returns the pathChoice for h in a server. If h is not among its routes, any path may decide.
func choiceOf(h *Handler, server *caddyhttp.Server) pathChoice {
	var c pathChoice
	if server == nil || !c.find(h, server.Routes) {
		return pathChoice{isMade: true, isOpen: true}
	}
	return c
}

// find reports whether routes lead to h, and notes what decides that a request comes to h: the matchers of the routes on the way,
// and those in earlier routes that may keep a request.
func (c *pathChoice) find(h *Handler, routes caddyhttp.RouteList) bool {
	for i, route := range routes {
		for j, handler := range route.Handlers {
			inner, isSubroute := handler.(*caddyhttp.Subroute)
			if handler != caddyhttp.MiddlewareHandler(h) && (!isSubroute || !c.find(h, inner.Routes)) {
				continue
			}
			c.segments += c.note(route.MatcherSets) // a route inside may look at the rest of the path, as behind handle_path
			for _, earlier := range routes[:i] {
				isOther := earlier.Group != "" && earlier.Group == route.Group // only one of a group runs
				if isOther || earlier.Terminal || mayKeep(earlier.Handlers) {
					c.isMade = c.isMade || looksAtPath(earlier)
				}
			}
			c.isMade = c.isMade || mayKeep(route.Handlers[:j]) && looksAtPath(caddyhttp.Route{Handlers: route.Handlers[:j]})
			return true
		}
	}
	return false
}

// passing are the handlers that always call the next one, or deny.
var passing = []caddy.ModuleID{"http.handlers.vars", "http.handlers.map", "http.handlers.headers", "http.handlers.rewrite", "http.handlers.encode",
	"http.handlers.log_append", "http.handlers.tracing", "http.handlers.request_body", "http.handlers.authentication", "http.handlers.templates"}

// mayKeep reports whether one of the handlers may answer a request by itself.
func mayKeep(handlers []caddyhttp.MiddlewareHandler) bool {
	return slices.ContainsFunc(handlers, func(handler caddyhttp.MiddlewareHandler) bool {
		if inner, ok := handler.(*caddyhttp.Subroute); ok {
			return slices.ContainsFunc(inner.Routes, func(r caddyhttp.Route) bool { return r.Terminal || mayKeep(r.Handlers) })
		}
		module, ok := handler.(caddy.Module)
		return !ok || !slices.Contains(passing, module.CaddyModule().ID)
	})
}

// looksAtPath reports whether a matcher in a route, or in a route inside, may look at the path.
func looksAtPath(route caddyhttp.Route) bool {
	var own pathChoice
	own.note(route.MatcherSets)
	return own.isMade || slices.ContainsFunc(route.Handlers, func(handler caddyhttp.MiddlewareHandler) bool {
		inner, ok := handler.(*caddyhttp.Subroute)
		return ok && slices.ContainsFunc(inner.Routes, looksAtPath)
	})
}

// note notes what matchers look at, and returns how many segments of a path that is.
func (c *pathChoice) note(sets []caddyhttp.MatcherSet) (segments int) {
	for _, set := range sets {
		for _, matcher := range set {
			switch m := matcher.(type) {
			case *caddyhttp.MatchPath:
				c.isMade = true
				for _, pattern := range *m {
					c.text += pattern
					literal := strings.TrimSuffix(pattern, "*")
					c.isGlob = c.isGlob || strings.ContainsAny(literal, "*?[{%") // a placeholder may be anything
					n := strings.Count(literal, "/")
					if strings.HasSuffix(literal, "/") {
						n-- // it does not look into the segment behind the last slash
					}
					segments = max(segments, n)
				}
			case *caddyhttp.MatchNot: // what it matches goes elsewhere, as with a route before the handler
				var without pathChoice
				without.note(m.MatcherSets)
				c.isMade = c.isMade || without.isMade
			case *caddyhttp.MatchHost, *caddyhttp.MatchMethod, *caddyhttp.MatchProtocol, *caddyhttp.MatchQuery, *caddyhttp.MatchHeader,
				*caddyhttp.MatchHeaderRE, *caddyhttp.MatchRemoteIP, *caddyhttp.MatchClientIP, *caddyhttp.MatchTLS:
			default: // such as path_regexp and expression
				c.isMade, c.isOpen = true, true
			}
		}
	}
	return segments
}

// dependsOnPath reports whether the path may have decided that h runs, and a page could profit from
// that. Without an Origin or the sender of an email, the decision on a GET does not depend on the
// publisher.
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
	case !utf8.ValidString(u.Path):
		return "a character that is not UTF-8"
	}
	// What remains is ambiguous only in the part of the path that the routes on the way look at.
	segments := strings.SplitAfter(raw, "/") // the first one is "/"
	part := strings.Join(segments[:min(len(segments), 1+c.segments)], "")
	if c.isGlob {
		part = raw
	}
	// Caddy's path matcher compares in lower case.
	if text, _ := url.PathUnescape(part); strings.ContainsFunc(text, func(r rune) bool { return unicode.ToLower(r) != r }) {
		return "an upper-case letter"
	}
	if c.isOpen {
		part = raw
	}
	for _, char := range escaped.FindAllString(part, -1) {
		text, _ := url.PathUnescape(char)
		if text == "/" || isUnreserved(text[0]) || isInPath(text[0]) && strings.Contains(c.text, text) {
			return char
		}
	}
	return ""
}

// isUnreserved reports whether a character never needs to be encoded (RFC 3986, section 2.3).
func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// isInPath reports whether a character of a path may be encoded or not (RFC 3986, section 3.3, without unreserved ones).
func isInPath(c byte) bool { return strings.IndexByte("!$&'()*+,;=:@", c) >= 0 }
