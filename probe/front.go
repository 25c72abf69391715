package probe

import (
	"bytes"
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// This file recognizes what stands in front of a backend: a cache that gives every page one answer.

// front has what was asked once more, because every page of the publisher got the same answer, which a browser blocks.
type front struct {
	page, other *trial  // that is blocked, and another one
	preflight   *answer // to a preflight of that page, which caches do not answer
	// More than a second later, when short-lived caches have forgotten, and Age has changed:
	later    *answer // to the page's request
	ofOther  *answer // to the other page's request, for the same URL
	unstored *answer // to the page's request with a new URL and no-cache
}

// lookInFront asks once more if every page got the same answer, one of them is blocked, and something may stand in
// front of the backend: it grants the page's preflight, or the answer has a cache's header.
func (c *cell) lookInFront(ctx context.Context, own []*trial) {
	var f front
	var first *turn
	for _, t := range own {
		switch {
		case t.Kind != KindPage || t.origin == originOfURL(c.e.URL): // its requests are not CORS
		case !t.isAnswered() || t.turns[0].fetch == nil || c.e.Method != http.MethodGet && c.e.Method != http.MethodHead:
			return
		case first != nil && !isSameForBoth(first.fetch.response, t.turns[0].fetch.response):
			return
		default:
			if first = &t.turns[0]; f.page == nil && !first.isReadable() {
				f.page = t
			} else {
				f.other = t
			}
		}
	}
	if f.page == nil || f.other == nil {
		return
	}
	s := f.page.turns[0].step
	s.mode = preflights
	if f.preflight = c.send(ctx, f.page, s); !f.isGranted() && !hasAge(f.page.turns[0].answer) &&
		!isFromCache(first.fetch.response.Header) {
		return
	}
	select {
	case <-time.After(1100 * time.Millisecond): // Age has whole seconds
	case <-ctx.Done():
		return
	}
	f.later = c.send(ctx, f.page, f.page.turns[0].step)
	f.ofOther = c.send(ctx, f.other, f.other.turns[0].step)
	f.unstored = c.send(ctx, f.page, c.controlStep())
	for _, a := range []*answer{f.later, f.ofOther, f.unstored} {
		if a.err != nil || a.fetch == nil { // nil if a preflight is no longer granted
			return
		}
	}
	c.front = &f
}

// isGranted reports whether the backend grants the page's preflight.
func (f *front) isGranted() bool { return f.preflight.err == nil && f.preflight.blocked == nil }

// isSameForBoth reports whether two pages got the same answer.
func isSameForBoth(a, b *response) bool {
	const name = "Access-Control-Allow-Origin"
	return a.Status == b.Status && bytes.Equal(a.Body, b.Body) && slices.Equal(a.Header[name], b.Header[name])
}

// originDenials are the reasons for which ampcors denies an Origin, whatever the request asks for: those of
// conformance/origins.json.
var originDenials = []string{"malformed_origin", "null_origin", "not_https", "unknown_host", "not_canonical",
	"ambiguous_prefix",
	"publisher_not_allowed", "hash_not_known"}

// reasonOf returns the reason with which ampcors denied the Origin of a request, or "".
func reasonOf(resp *response) string {
	if own := ownReason(resp); slices.Contains(originDenials, own) {
		return own
	}
	return ""
}

// hasAmpcors reports whether ampcors has denied a request of the cell.
func (c *cell) hasAmpcors() bool {
	return slices.ContainsFunc(c.trials, func(t *trial) bool {
		return slices.ContainsFunc(t.turns, func(a turn) bool { return isOfAnotherList(a.answer) })
	})
}

// ownRemedies has what to do if ampcors itself denies what must work, by the reason in its body. The request was
// right, so what is in front of ampcors has changed it, or ampcors is configured otherwise.
var ownRemedies = func() map[string]string {
	const unlisted = "The backend's ampcors denies %[1]s. If that is a publisher of yours, add it to publishers, or to " +
		"the table of the database. " +
		"ampcors explain %[1]s, with the server's configuration and flags, says why."
	const unset = "The proxy in front of ampcors serve-authz is not configured as in authz/nginx.conf or " +
		"authz/envoy.yaml, or " +
		"serve-authz was started with the wrong --proxy, such as envoy for nginx."
	return map[string]string{
		"publisher_not_allowed": unlisted, "unknown_host": unlisted,
		"hash_not_known": "The backend's ampcors knows no publisher with this hash prefix. " +
			"List the publisher by its name, because a pattern matches no hash prefix; for a table, run ampcors source fill.",
		"ambiguous_prefix": "The backend's ampcors denies this prefix, because another host has it, too: ampcors explain " +
			"%[1]s names both. " +
			"Unless you own the other host, readers must use the page at the publisher's own host.",
		"malformed_origin": "Let the proxy in front of ampcors pass the request header Origin as it is: " +
			"the Origin that reached ampcors was changed, or was there twice. The list of publishers is not the cause.",
		"no_origin_unsafe": "Let the proxy in front of ampcors pass the request header Origin: ampcors got none. " +
			"The list of publishers is not the cause.",
		"method_not_allowed": "The backend's ampcors denies the method of the request: add it to methods.",
		"header_not_allowed": "The backend's ampcors denies a header of the request: add it to requestHeaders.",
		"email_sender_not_allowed": "The backend's ampcors denies the sender: add it to email.senders, in the same case " +
			"before the @. ampcors explain --sender ADDRESS, with the server's configuration, says why.",
		"source_unavailable": "The backend's ampcors cannot ask its database: ampcors check, with the server's " +
			"configuration and --database, says why.",
		unknownClient: "The backend's ampcors does not know the mail client %[1]s: if its emails must work, add it to " +
			"email.clients.",
		"no_method": unset, "not_configured": unset,
		lostMethod: "If the backend has ampcors, or another library that decides on preflights: let the proxy in front of " +
			"it pass the request headers Access-Control-Request-Method and " +
			"Access-Control-Request-Headers. The answer has the page's origin, so the page is allowed, and it was not taken " +
			"for a preflight.",
		lostHeaders: "If the backend has ampcors, or another library that decides on preflights: let the proxy in front of " +
			"it pass the request header Access-Control-Request-Headers. " +
			"It grants the method, and no header, as if none had been asked for.",
		lostOrigin: "If the backend has ampcors, which says why it denies a preflight: let the proxy in front of it pass " +
			"the request header Origin. If it has rs/cors, the page's origin is not in its list.",
	}
}()

// What a proxy can take from a preflight before ampcors sees it: keys of ownRemedies.
const (
	lostMethod  = "the method of a preflight is lost"
	lostHeaders = "the headers of a preflight are lost"
	lostOrigin  = "the Origin of a preflight is lost"
)

// lostInPreflight returns what a proxy has taken from a preflight, or "". The answer allows the page, and its Vary
// is the line that ampcors and rs/cors write. Others, which write three lines, may have no list of methods or
// headers at all.
func lostInPreflight(resp *response) string {
	if resp == nil || len(resp.Header["Vary"]) != 1 ||
		!strings.HasSuffix(resp.Header.Get("Vary"), "Origin, Access-Control-Request-Method, Access-Control-Request-Headers") {
		return ""
	}
	switch h := resp.Header; {
	case h.Get("Access-Control-Allow-Origin") == "" && ownReason(resp) == "":
		return lostOrigin
	case h.Get("Access-Control-Allow-Origin") == "":
		return ""
	case h.Get("Access-Control-Allow-Headers") != "":
		return ""
	case h.Get("Access-Control-Allow-Methods") != "":
		return lostHeaders
	case h.Get("Access-Control-Max-Age") == "":
		return lostMethod
	}
	return ""
}

// unknownClient is the key for unknown_host if a mail client asked: a mail client is no publisher.
const unknownClient = "unknown_host of a mail client"

var ownBody = regexp.MustCompile(`^(?:Forbidden|Service Unavailable): ([a-z_]+)`)

// ownReason returns the reason in a response that ampcors may have written, or "".
func ownReason(resp *response) string {
	if resp == nil || resp.Status < 400 {
		return ""
	}
	if m := ownBody.FindSubmatch(resp.Body); m != nil {
		return string(m[1])
	}
	return ""
}

// cacheInFront says what shows that a cache has given every page one answer, or "". It is the cause if the backend
// would answer otherwise.
func (c *cell) cacheInFront() (what string, isCause bool) {
	f := c.front
	if f == nil {
		return "", false
	}
	first, later, unstored := f.page.turns[0].fetch.response, f.later.fetch.response, f.unstored.fetch.response
	if isForOther(f.ofOther, f.page.origin) {
		return "a second later this page's request was answered rightly, and the next page got that answer: a cache in " +
			"front of the backend keeps answers for a short time", true
	}
	if !isSameForBoth(first, later) { // the backend itself may answer otherwise
		return "", false
	}
	without, reason := c.withoutOriginTrial(), reasonOf(first)
	isEverywhere := without != nil && without.isAnswered() && isSameForBoth(without.turns[0].fetch.response, first)
	hit := hitOf(later.Header)
	switch isHit := hit != "" && isFromCache(unstored.Header); {
	case hit != "" && !isHit: // a new URL, which the cache did not have, gets the same from the backend
		return "", false
	case reason != "" && isEverywhere && (isHit || f.isGranted()):
		return "ampcors denied another page (" + reason +
			"). This page, and a request without Origin, got that same answer. ampcors lets each GET pass that has no Origin, " +
			"so a cache in front of it has kept the denial", true
	case isHit && f.isGranted():
		return "every page gets the same answer, with " + hit +
			", although the backend grants the page's preflight: a cache in front of the backend has kept it", true
	case isHit:
		return "every page gets the same answer, with " + hit +
			": look first at the cache in front of the backend, which may keep what it got for another page", false
	case first.Status < 400 && variesByOrigin(first.Header):
		return "every page gets the same answer, although it has Vary: Origin, and although the backend grants the page's " +
				"preflight, which no cache answers. Look first for a cache in front of the backend that ignores Vary, or a proxy " +
				"that changes Access-Control-Allow-Origin; if there is neither, the backend sets that header only for preflights",
			true
	case first.Status < 400:
		return "the backend grants the page's preflight: it sets Access-Control-Allow-Origin only for preflights, or a " +
			"cache in front of it gives every page one answer without Vary", false
	}
	return "", false
}

// changedOrigin says that a proxy changes the request's Origin, or is "". ampcors says so to each page.
func changedOrigin(pages []*trial) string {
	reason := ""
	for _, t := range pages {
		if !t.isAnswered() || t.turns[0].fetch == nil {
			return ""
		}
		said := ownReason(t.turns[0].fetch.response)
		if reason == "" {
			reason = said
		}
		if said != reason {
			return ""
		}
	}
	switch reason {
	case "malformed_origin":
		return "ampcors says that the Origin of each page is malformed (malformed_origin). Look for a proxy in front of it " +
			"that doubles or changes the request header Origin. The list of publishers is not the cause"
	case "no_origin_unsafe":
		return "ampcors says that no page sends an Origin (no_origin_unsafe). Look for a proxy in front of it that drops " +
			"the request header Origin. The list of publishers is not the cause"
	}
	return ""
}

const ofNoOrigin = "; if there is none, the backend allows none of these pages"

// ofLostOrigin says that a proxy may drop the request's Origin, or is "". The backend varies its answers by Origin,
// and yet it answers each page as if there were none.
func (c *cell) ofLostOrigin(pages []*trial) string {
	isBlind := func(t *trial) bool {
		if !t.isAnswered() || t.turns[0].fetch == nil {
			return false
		}
		resp := t.turns[0].fetch.response
		return resp.Status < 400 && variesByOrigin(resp.Header) && resp.Header.Get("Access-Control-Allow-Origin") == ""
	}
	without := c.withoutOriginTrial()
	if without == nil || !isBlind(without) || slices.ContainsFunc(pages, func(t *trial) bool { return !isBlind(t) }) {
		return ""
	}
	return "every page is answered as a request without Origin, although the answer has Vary: Origin. Look first for a " +
		"proxy in front of the backend that " +
		"drops the request header Origin" + ofNoOrigin
}
