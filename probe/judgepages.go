package probe

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
)

// This file judges what the publisher's pages were answered. They are compared with each other, so that the cause is
// named, and not only what a browser sees.

// judgePages gives the publisher's pages their outcomes.
func (c *cell) judgePages(pages []*trial) {
	blocked := make(map[*trial]ID) // the symptom of each that is blocked
	var judged []*trial
	inFront, isCached := c.cacheInFront()
	if inFront == "" {
		inFront = cmp.Or(changedOrigin(pages), c.ofLostOrigin(pages))
	}
	for _, t := range pages {
		var s seen
		s, t.judged = c.seen(t)
		a, first := t.judged, t.turns[0].answer
		if s == alternates {
			c.differs = first
		}
		remark := inFront
		switch {
		case a.err != nil:
			t.skip(a.err.Error(), false)
			continue
		case isOverloaded(a.status()) && c.isOnlyThisCache(t, pages):
			remark = "pages on other caches are answered"
		case isOverloaded(a.status()), slices.Contains(c.limits, a.status()) && !a.isReadable():
			t.skip(whyNoProof(a), false)
			continue
		case s == accident && isDenialStatus(first.status()) && c.differs == nil:
			t.skip(whyNoProof(first), false)
			continue
		case isCached:
		case c.isWalled(a, pages):
			t.skip(fmt.Sprintf("the backend answers every request with status %d, also without Origin: that is a login or a "+
				"firewall, and not CORS", a.status()), false)
			continue
		}
		if t.remark = remark; s == cachedWrong {
			t.blame(CachedWrongOrigin, first, "the same request with a new URL and Cache-Control: no-cache is allowed")
		}
		judged = append(judged, t)
		if err := a.why(); err != nil {
			t.Reason = err.Error()
			if blocked[t] = c.symptom(a, t.origin, true); isCached || c.isOfAnother(t, blocked[t], pages) {
				blocked[t] = CachedWrongOrigin
			}
		} else {
			t.Works = true
		}
	}
	if c.isWrongForAll() {
		for t, id := range blocked {
			if id == ErrorWithoutCORS && t.remark == "" {
				blocked[t] = HTTPError
				t.remark = "each request gets this error, whatever its Origin is. Look first whether the URL and the method are " +
					"right"
			}
		}
	}
	c.findRefused(judged, blocked)
	c.findFlaws(judged)
	for _, t := range judged {
		c.tested = true
		// it works by chance
		if c.differs != nil && inFront == "" && t.Outcome != Problem && t.origin != originOfURL(c.e.URL) {
			t.Works, t.Reason = false, "the same request was blocked at another time"
			t.blame(AnswersDiffer, c.differs, "the same request had other CORS headers at another time")
			continue
		}
		switch {
		case t.Outcome != Problem && t.judged.fetch == nil:
			t.Works = false
			t.skip("its preflight is granted; the method "+c.e.Method+" itself is only sent with --unsafe", true)
		case t.Outcome != Problem:
			t.Outcome = Fine
		case c.differs != nil && blocked[t] != "" && !isAlwaysBlocked(t.cache, pages):
			t.explain(AnswersDiffer) // what only chance has found is no cause
		}
		// which readers get, whatever a new URL gets
		if first := t.turns[0]; t.breaks(CachedWrongOrigin) && !first.isReadable() {
			t.Works, t.Reason = false, first.why().Error()
		}
	}
}

// isOnlyThisCache reports whether all pages on the cache of a page are answered with the same error status, each
// time, and the pages on other caches are not.
func (c *cell) isOnlyThisCache(t *trial, pages []*trial) bool {
	status := t.turns[0].status()
	if t.cache == "" || slices.Contains(c.limits, status) { // controls got it too
		return false
	}
	others := 0
	for _, other := range pages {
		isSame := !slices.ContainsFunc(other.turns, func(a turn) bool { return a.err != nil || a.status() != status })
		isHere := other.cache == t.cache
		if isSame != isHere || isHere && len(other.turns) < 2 {
			return false
		}
		if !isHere {
			others++
		}
	}
	return others > 0
}

// isAlwaysBlocked reports whether each answer to each page on a cache is blocked. "" is the publisher's own page.
func isAlwaysBlocked(cache string, pages []*trial) bool {
	return !slices.ContainsFunc(pages, func(t *trial) bool {
		return t.cache == cache && (len(t.turns) < 2 || t.isEverReadable())
	})
}

// isOfAnother reports whether a cache in front of the backend gave a page, each time, what it had stored for another:
// one with another origin in it or, if the probe's request without Origin came first, one without.
func (c *cell) isOfAnother(t *trial, id ID, pages []*trial) bool {
	switch {
	case !t.isAllFromCache():
		return false
	case id == ACAOMismatch || id == ACAOSourceOrigin:
		return true
	}
	without := c.withoutOriginTrial()
	return id == ACAOMissing && without != nil && !without.isAllFromCache() &&
		!slices.ContainsFunc(pages, (*trial).isEverReadable)
}

// withoutOriginTrial returns the trial of a program that sends no Origin, if it was sent, or nil.
func (c *cell) withoutOriginTrial() *trial {
	if i := slices.IndexFunc(c.trials, func(t *trial) bool { return t.Kind == KindNoOrigin && len(t.turns) > 0 }); i >= 0 {
		return c.trials[i]
	}
	return nil
}

// isWalled reports whether every page, and a request without Origin, are answered with the same
// status of a login or a firewall, and without CORS headers.
func (c *cell) isWalled(a *answer, pages []*trial) bool {
	status, without := a.status(), c.withoutOriginTrial()
	if a.fetch != nil && slices.Contains([]string{"malformed_origin", "no_method", "not_configured"},
		ownReason(a.fetch.response)) {
		return false // ampcors has decided, by something else than the page's Origin
	}
	if a.isReadable() || without == nil || !isDenialStatus(status) && status != http.StatusProxyAuthRequired {
		return false
	}
	return !slices.ContainsFunc(append(pages, without), func(t *trial) bool {
		return t.turns[0].status() != status || t.Kind == KindPage && t.turns[0].isReadable()
	})
}

// isWrongForAll reports whether each request of the plan, of whatever page, got the same status, which says that
// the URL or the method is wrong.
func (c *cell) isWrongForAll() bool {
	status := 0
	for _, t := range c.trials {
		for _, a := range t.turns {
			switch {
			case a.err != nil:
				return false
			case a.fetch == nil: // a preflight alone
				continue
			case a.fetch.hop > 0:
				return false
			}
			if status = cmp.Or(status, a.status()); a.status() != status {
				return false
			}
		}
	}
	return status == http.StatusNotFound || status == http.StatusMethodNotAllowed || status == http.StatusGone
}

// denials are the ids of problems that can mean that the backend denies only some origins.
var denials = []ID{ACAOMissing, ACAOMismatch, ACAOSourceOrigin, ErrorWithoutCORS, PreflightFailed,
	RedirectWithoutCORS}

// findRefused names why pages do not work. If the backend denies only some origins, that is the cause.
func (c *cell) findRefused(pages []*trial, blocked map[*trial]ID) {
	onCache := func(cache string) bool {
		return slices.ContainsFunc(pages, func(t *trial) bool {
			return t.form != formOwn && t.Works && (cache == "" || t.cache == cache)
		})
	}
	target := originOfURL(c.e.URL)
	ownWorks := slices.ContainsFunc(pages, func(t *trial) bool {
		return t.form == formOwn && t.Works &&
			t.origin != target
	})
	isAnswered := slices.ContainsFunc(c.trials, func(t *trial) bool { // without Origin, or at the API's own origin
		return (t.Kind == KindNoOrigin || t.form == formOwn && t.origin == target) && t.isAnswered() &&
			t.turns[0].status() < 400
	})
	causes := make(map[ID][]*trial)
	for _, t := range pages {
		id, isBlocked := blocked[t]
		if !isBlocked {
			continue
		}
		isDenial := isAnswered && isDenialStatus(t.judged.status())
		switch isOwn := t.form == formOwn; {
		case !slices.Contains(denials, id):
		case isOwn && (onCache("") || isDenial):
			id = OwnOriginRefused
		case isOwn:
		case !onCache("") && (isDenial || ownWorks && id != ACAOMismatch && id != ACAOSourceOrigin):
			id = CacheRefused // by a protection against CSRF, perhaps
		case !onCache(""):
		case t.form == formHash && onCache(t.cache):
			id = HashOriginRefused
		case (t.form == formPunycode || t.form == formOther) && onCache(t.cache):
			id = PunycodeOriginRefused
		default:
			id = CacheRefused
		}
		causes[id] = append(causes[id], t)
	}
	// If only the own origin has a mismatch and there are other causes, it has one of them.
	if own := causes[ACAOMismatch]; len(own) == 1 && own[0].form == formOwn && len(causes) > 1 {
		delete(causes, ACAOMismatch)
		id := slices.Sorted(maps.Keys(causes))[0]
		causes[id] = append(causes[id], own[0])
	}
	for id, ts := range causes {
		for _, t := range ts {
			t.blame(id, t.judged, t.remark)
		}
	}
}

// findFlaws names what is wrong with answers, also with those that a browser lets pages read.
func (c *cell) findFlaws(pages []*trial) {
	e := c.e
	var echoes []*trial
	target := originOfURL(e.URL)
	for _, t := range pages {
		_, resp := t.judged.last()
		if t.judged.fetch != nil && t.origin != target &&
			slices.Equal(resp.Header["Access-Control-Allow-Origin"], []string{t.origin}) {
			echoes = append(echoes, t)
		}
	}
	for _, t := range pages {
		a := t.judged
		if !t.Works || a.fetch == nil {
			continue
		}
		_, resp := a.last()
		h := resp.Header
		if id := c.flawOf(a); id != "" {
			if id == HTTPError && t.form == formOwn && t.origin == target && len(echoes) > 0 {
				id = OwnOriginRefused
			}
			t.Works = false
			t.blame(id, a, t.remark)
		}
		if to := h.Get("AMP-Redirect-To"); to != "" && e.Answer != AnswerVerify &&
			(e.Answer == AnswerForm || e.Method == http.MethodPost) {
			if !isExposed("AMP-Redirect-To", e.Credentials, h) && h.Get("Access-Control-Allow-Origin") != "" {
				t.blame(ExposeMissing, a, "")
			}
			if u, err := url.Parse(to); err != nil || u.Scheme != "https" || u.Host == "" {
				t.blame(RedirectToInvalid, a, "")
			}
		}
		if e.Credentials && setsFirstPartyCookie(h) {
			c.note(e.URL + " sets a cookie without SameSite=None and Secure: browsers do not send it from pages of other " +
				"sites, such as AMP Caches. That is not CORS.")
		}
	}
	if e.Credentials {
		where := "On AMP Caches"
		if len(c.p.cfg.Caches) == 0 {
			where = "On pages of another site than the API's"
		}
		c.note("Some endpoints are called with cookies. " + where + " these are third-party cookies, which some browsers " +
			"never send. That is not CORS. The section Cookies of ampcors's docs/tenants.md lists what a session can use then.")
	}
	for _, t := range echoes {
		_, resp := t.judged.last()
		if len(echoes) > 1 && !isRedirect(resp.Status) && isCacheable(e.Method, resp.Header) && !variesByOrigin(resp.Header) {
			t.blame(VaryMissing, t.judged, "")
		}
	}
	without := c.withoutOriginTrial()
	if without == nil || !without.isAnswered() {
		return
	}
	a := without.turns[0]
	if _, resp := a.last(); resp.Status < 300 && a.fetch.hop == 0 && isCacheable(e.Method, resp.Header) &&
		!variesByOrigin(resp.Header) {
		value := resp.Header.Get("Access-Control-Allow-Origin")
		if slices.ContainsFunc(echoes, func(t *trial) bool { return t.origin != value }) {
			without.blame(VaryMissing, a.answer, "")
		}
	}
}

// findVaryOfDenials names a denial that a shared cache may keep and give to the publisher's pages.
func (c *cell) findVaryOfDenials(pages []*trial) {
	// The denial must have the URL of the publisher's pages, and so their claim.
	i := slices.IndexFunc(c.trials, func(t *trial) bool {
		return t.Kind == KindNull && t.Outcome == Fine && slices.Equal(t.turns[0].claims, c.claim(c.own))
	})
	if i < 0 {
		return
	}
	denial := c.trials[i].turns[0].answer
	_, resp := denial.last()
	if denial.fetch == nil || !isStored(resp) || !isCacheable(c.e.Method, resp.Header) || variesByOrigin(resp.Header) ||
		resp.Header.Get("Access-Control-Allow-Origin") != "" {
		return
	}
	for _, t := range pages {
		if t.Outcome == Fine && t.judged.fetch != nil &&
			t.judged.fetch.response.Header.Get("Access-Control-Allow-Origin") == t.origin {
			t.blame(VaryMissing, denial, "a cache may give this answer to the publisher's pages")
			return
		}
	}
}
