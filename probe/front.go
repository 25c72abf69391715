package probe

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"
)

// This file recognizes what stands in front of a backend: a cache that gives every page one answer.

// front has what was asked once more, because every page of the publisher got the same answer, which a browser blocks.
type front struct {
	page      *trial
	since     time.Time
	preflight *answer // to a preflight of that page, which caches do not answer
	later     *answer // to the same request as at first, more than a second later
}

// lookInFront begins to look if every page got the same answer, and one of them is blocked.
func (c *cell) lookInFront(ctx context.Context, own []*trial) {
	var page *trial // that is blocked
	var first *asked
	for _, t := range own {
		switch {
		case t.Kind != KindPage || t.origin == originOfURL(c.e.URL): // its requests are not CORS
		case !t.isAnswered() || t.asked[0].fetch == nil || c.e.Method != http.MethodGet:
			return
		case first != nil && !isSameForBoth(first.fetch.response, t.asked[0].fetch.response):
			return
		default:
			first = &t.asked[0]
			if page == nil && !first.isReadable() {
				page = t
			}
		}
	}
	if page != nil {
		alone := page.asked[0].step
		alone.mode = preflights
		c.front = &front{page: page, since: time.Now(), preflight: c.send(ctx, page, alone)}
	}
}

// lookAgain asks more than a second after lookInFront: Age and Date, which tell whether a cache has answered, have whole seconds.
func (c *cell) lookAgain(ctx context.Context) {
	if c.front == nil {
		return
	}
	select {
	case <-time.After(time.Until(c.front.since.Add(1100 * time.Millisecond))):
	case <-ctx.Done():
	}
	c.front.later = c.send(ctx, c.front.page, c.front.page.asked[0].step)
}

// isSameForBoth reports whether two pages got the same answer.
func isSameForBoth(a, b *response) bool {
	const name = "Access-Control-Allow-Origin"
	return a.Status == b.Status && bytes.Equal(a.Body, b.Body) && slices.Equal(a.Header[name], b.Header[name])
}

// ownDenial is the body with which ampcors denies a request. It has the reason.
var ownDenial = regexp.MustCompile(`^Forbidden: ([a-z_]+)\s*$`)

// reasonOf returns the reason with which ampcors denied a request, or "".
func reasonOf(resp *response) string {
	if m := ownDenial.FindSubmatch(resp.Body); m != nil && resp.Status >= 400 {
		return string(m[1])
	}
	return ""
}

// cacheInFront says what shows that a cache has given every page one answer, or "". It is the cause if the backend is known to answer otherwise.
func (c *cell) cacheInFront() (what string, isCause bool) {
	f := c.front
	if f == nil || f.later.fetch == nil || f.later.fetch.response == nil {
		return "", false
	}
	first, later := f.page.asked[0].fetch.response, f.later.fetch.response
	if !isSameForBoth(first, later) {
		return "", false
	}
	without, reason := c.withoutOriginTrial(), reasonOf(first)
	if reason != "" && without != nil && without.isAnswered() && reasonOf(without.asked[0].fetch.response) == reason {
		return fmt.Sprintf("this is the answer of ampcors to another page, which it denied as %s; a request without Origin gets it too, and ampcors never denies that one: a cache in front of ampcors has kept it", reason), true
	}
	isGranted := f.preflight.err == nil && f.preflight.blocked == nil // no cache answers it
	what = hitOf(later.Header)
	if date := later.Header.Get("Date"); what == "" && date != "" && date == first.Header.Get("Date") {
		what = "a Date that stands still"
	}
	const same = "every page gets the same answer, "
	switch {
	case what != "" && isGranted:
		return same + "and a second later it has " + what + ", although the backend grants the page's preflight: a cache in front of the backend has kept it", true
	case what != "":
		return same + "and a second later it has " + what + ": look first at the cache in front of the backend, which may keep what it got for another page", false
	case isGranted && variesByOrigin(first.Header):
		return same + "although it has Vary: Origin, and although the backend grants the page's preflight, which no cache answers: look first for a cache in front of the backend that ignores Vary, or a proxy that changes the header; if there is none, the backend sets the header only for preflights", true
	}
	return "", false
}
