package probe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ampcors/ampcors/cacheurl"
)

// This file says what answers show. It only reads them, and sends nothing.

// A sight is what one answer to the publisher's page shows.
type sight struct {
	c         *cell
	origin    string // of the page
	isBlocked bool   // by a browser
	status    int
	header    http.Header
	body      []byte
	fetch     *fetch // nil if only a preflight was answered
	preflight bool   // the answer is that to a preflight, by which the request is blocked

	lines []string // of Access-Control-Allow-Origin
	value string   // the first
	acac  []string // lines of Access-Control-Allow-Credentials
}

func (c *cell) sightOf(a *answer, origin string, isBlocked bool) *sight {
	s := &sight{c: c, origin: origin, isBlocked: isBlocked, status: a.status(), fetch: a.fetch,
		preflight: a.blocked != nil}
	if _, resp := a.last(); resp != nil {
		s.header, s.body = resp.Header, resp.Body
	}
	s.lines, s.acac = s.header["Access-Control-Allow-Origin"], s.header["Access-Control-Allow-Credentials"]
	if len(s.lines) > 0 {
		s.value = s.lines[0]
	}
	return s
}

func (s *sight) isSuccess() bool { return s.status >= 200 && s.status <= 299 }

// passesCORS reports whether the answer to a preflight passes the CORS check.
func (s *sight) passesCORS() bool {
	return checkCORS(s.origin, s.c.e.Credentials, s.header) == nil
}

// isBareCache reports whether Access-Control-Allow-Origin has the domain of a cache, where no page runs.
func (s *sight) isBareCache() bool {
	return slices.ContainsFunc(s.c.p.hostileCaches(), func(cache cacheurl.Cache) bool {
		return strings.TrimSuffix(strings.TrimPrefix(s.value, "https://"), "/") == cache.CacheDomain
	})
}

// isForReader reports whether amp-form shows the answer, an error, to the reader.
func (s *sight) isForReader() bool {
	e := s.c.e
	return (e.Answer == AnswerForm || e.Answer == AnswerVerify) && s.status >= 400 && s.status <= 499 && isJSON(s.body) &&
		s.fetch.last.method == e.Method // a redirect may have changed it
}

// needsNoBody reports whether a success may be without a body.
func (s *sight) needsNoBody() bool {
	e := s.c.e
	return e.Method == http.MethodHead || e.Component == "endpoint" && s.status == http.StatusNoContent ||
		e.Answer == AnswerForm && s.header.Get("AMP-Redirect-To") != "" // which amp-form follows without a body, too
}

// symptom returns the id of the first rule that an answer to the publisher's page shows to be broken, or "".
func (c *cell) symptom(a *answer, origin string, isBlocked bool) ID {
	if a.err != nil || !isBlocked && a.fetch == nil {
		return ""
	}
	s := c.sightOf(a, origin, isBlocked)
	for _, r := range symptoms {
		if r.shows(s) {
			return r.id
		}
	}
	return ""
}

// flawOf returns the id of the rule that an answer breaks which a page can read and its component cannot use, or "".
func (c *cell) flawOf(a *answer) ID { return c.symptom(a, "", false) }

// What the requests of a steady shape show, together.
type seen int

const (
	works seen = iota
	refused
	cachedWrong // a cache gave the answer for another page
	alternates  // the answers change from one time to the next, for no reason that shows
	accident    // only the first answer was an error
)

// seen returns what the requests of one of the publisher's pages show, and the answer by which it is judged. That
// is the first, unless a request that no cache could answer had another result.
func (c *cell) seen(t *trial) (seen, *answer) {
	first, unstored, again := t.turns[0].answer, t.got(fresh), t.got(repeated)
	switch {
	case first.isReadable():
		return works, first
	case unstored == nil || !unstored.isReadable():
		return refused, first
	}
	isFreshEachTime := t.got(freshLast) != nil && t.got(freshAgain).isReadable() && t.got(freshLast).isReadable()
	switch {
	case first.status() >= 500 && !(isFreshEachTime && again.status() == first.status()),
		slices.Contains(c.limits, first.status()):
		return accident, unstored
	// A cache gives the same wrong answer again, and never to a new URL. Several servers in turn do not.
	case isFreshEachTime && (c.e.Method != http.MethodPost || first.blocked != nil):
		return cachedWrong, unstored
	// Or the cache obeys no-cache in the request, and keeps the new answer.
	case hasAge(first) && !hasAge(unstored):
		return cachedWrong, unstored
	}
	return alternates, unstored
}

// isEverReadable reports whether a page could read one of the answers.
func (t *trial) isEverReadable() bool {
	return slices.ContainsFunc(t.turns, func(a turn) bool { return a.isReadable() })
}

// isAllFromCache reports whether a shared cache gave each answer.
func (t *trial) isAllFromCache() bool {
	return !slices.ContainsFunc(t.turns, func(a turn) bool {
		_, resp := a.last()
		return resp == nil || !isFromCache(resp.Header)
	})
}

// last returns the last answer.
func (t *trial) last() *answer { return t.turns[len(t.turns)-1].answer }

// isOverloaded reports whether a status says that the backend did not look at the request.
func isOverloaded(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// isDenialStatus reports whether a status says that the backend does not want the request.
func isDenialStatus(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// whyNoProof returns why an answer with this status proves nothing.
func whyNoProof(a *answer) string {
	status := a.status()
	if _, resp := a.last(); ownReason(resp) == "source_unavailable" {
		return "the backend's ampcors cannot ask its database (status 503, source_unavailable): ampcors check, with the " +
			"server's configuration and --database, says why"
	}
	if isOverloaded(status) {
		return fmt.Sprintf("the backend limits requests, or is down (status %d): if it limits them, use a --rate below its "+
			"limit", status)
	}
	return fmt.Sprintf("status %d, which the publisher's own request also got when it was repeated, proves nothing: "+
		"several servers with different rules answer in turn, "+
		"or there is a limit of requests (use a --rate below it) or a firewall", status)
}

// isHit matches HIT, TCP_HIT, "Hit from cloudfront" and "RefreshHit from cloudfront", and no name of a host such as
// "MISS from white".
var isHit = regexp.MustCompile(`(?i)\b(\w+_|refresh)?hit\b`)

// hasAge reports whether an answer has Age, which no backend sends for its own (RFC 9111 section 5.1).
func hasAge(a *answer) bool {
	_, resp := a.last()
	return resp.Header.Get("Age") != ""
}

// isFromCache reports whether a shared cache answered.
func isFromCache(h http.Header) bool { return hitOf(h) != "" }

// hitOf returns the header that says that a shared cache answered, by RFC 9111 section 5.1, RFC 9211, or as common
// caches write it; or "".
func hitOf(h http.Header) string {
	if age, err := strconv.Atoi(h.Get("Age")); err == nil && age > 0 {
		return "Age: " + h.Get("Age")
	}
	if ids := strings.Fields(h.Get("X-Varnish")); len(ids) == 2 { // of this request, and of the one that it kept
		return fmt.Sprintf("X-Varnish: %.100s", h.Get("X-Varnish"))
	}
	for _, name := range []string{"X-Cache", "X-Cache-Status", "X-Proxy-Cache", "Cf-Cache-Status", "Cache-Status"} {
		if value := strings.Join(h[name], ", "); isHit.MatchString(value) {
			return fmt.Sprintf("%s: %.100s", name, value)
		}
	}
	return ""
}

// minBody is how many bytes a body has that says something. "{}" is in many answers.
const minBody = 8

// hasBody reports whether a body has another behind a text of its own, as isSameBody compares them.
func hasBody(body, end []byte) bool {
	if bytes.Contains(body, end) {
		return true
	}
	i := bytes.IndexByte(body, '{')
	return i > 0 && isSameBody(body[i:], end)
}

// isSameBody reports whether two bodies say the same: they are equal or, as values change, JSON with the same
// members and words.
func isSameBody(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && isSameValue("", x, y)
}

// verdicts are names of members whose numbers say whether a request succeeded.
var verdicts = []string{"code", "status", "statuscode", "errno", "errcode", "error", "success", "ok", "ret", "result"}

// isSameValue compares values of JSON, of the member of this name. Numbers, and the words of a text that have digits,
// may change from one answer to the next.
func isSameValue(name string, a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for key, value := range x {
			if other, ok := y[key]; !ok || !isSameValue(key, value, other) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		if !ok || (len(x) == 0) != (len(y) == 0) {
			return false
		}
		for i := range min(len(x), len(y)) {
			if !isSameValue("", x[i], y[i]) {
				return false
			}
		}
		return true
	case string:
		y, ok := b.(string)
		return ok && slices.Equal(wordsOf(x), wordsOf(y))
	case float64:
		y, ok := b.(float64)
		return ok && (x == y || !slices.Contains(verdicts, strings.ToLower(name)))
	}
	return a == b
}

// wordsOf returns the words of a text that have no digit.
func wordsOf(text string) []string {
	return slices.DeleteFunc(strings.Fields(text), func(word string) bool {
		return strings.ContainsAny(word, "0123456789")
	})
}

// isJSON reports whether a body is JSON, before which browsers remove a byte order mark.
func isJSON(body []byte) bool { return json.Valid(bytes.TrimPrefix(body, []byte("\ufeff"))) }

// isStored reports whether shared caches store a response with its status: by default (RFC 9110 section 15.1), or by
// what its headers say.
func isStored(resp *response) bool {
	control := strings.ToLower(strings.Join(resp.Header["Cache-Control"], ","))
	return resp.Status <= 299 || resp.Status == http.StatusNotFound || resp.Status == http.StatusGone ||
		strings.Contains(control, "max-age") || strings.Contains(control, "s-maxage") || resp.Header.Get("Expires") != ""
}

// isCacheable reports whether a shared cache may keep a response. (A browser keeps what is private apart for each
// site.)
func isCacheable(method string, h http.Header) bool {
	control := strings.ToLower(strings.Join(h["Cache-Control"], ","))
	isForbidden := strings.Contains(control, "no-store") || strings.Contains(control, "private")
	return (method == http.MethodGet || method == http.MethodHead) && !isForbidden
}

func variesByOrigin(h http.Header) bool {
	for _, line := range h["Vary"] {
		for member := range strings.SplitSeq(line, ",") {
			if member = strings.TrimSpace(member); member == "*" || strings.EqualFold(member, "Origin") {
				return true
			}
		}
	}
	return false
}

// setsFirstPartyCookie reports whether a response sets a cookie that browsers send only
// with requests from pages of the same site.
func setsFirstPartyCookie(h http.Header) bool {
	for _, line := range h["Set-Cookie"] {
		if c, err := http.ParseSetCookie(line); err == nil && (c.SameSite != http.SameSiteNoneMode || !c.Secure) {
			return true
		}
	}
	return false
}

func originOfURL(value string) string {
	u, err := url.Parse(value)
	if err != nil {
		return ""
	}
	return originOf(u)
}
