package probe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ampcors/ampcors/cacheurl"
)

// This file gives each trial of a cell its outcome. It only reads the answers, and sends nothing.

// judge gives each trial that was sent its outcome.
func (c *cell) judge() {
	var pages []*trial
	for _, t := range c.trials {
		if t.Outcome != NotTested && t.Kind == KindPage {
			pages = append(pages, t)
		}
	}
	c.judgePages(pages)
	isOpen := false
	for _, t := range c.trials {
		switch {
		case t.Outcome == NotTested:
		case t.Kind == KindNoOrigin:
			t.judgeSent()
		case t.Kind == KindCookies:
			isOpen = t.judgeCookies()
			c.judgeUnder(t, CookieNeeded, 1)
		case t.Kind == KindRevalidate:
			t.judgeRevalidation(originOfURL(c.e.URL))
		case t.Kind == KindBrowsers:
			c.judgeBrowser(t)
		case t.Kind == KindTogether:
			c.judgeTogether(t)
		case t.Kind == KindUserAgent:
			isLimit := slices.Contains(c.limits, t.answers[0].status())
			if t.judgeSent(); t.Outcome == Fine && !isLimit && !c.isAsAtFirst(t.answers[0]) {
				c.note(fmt.Sprintf("%s answers depend on User-Agent: as %q, the publisher's page gets status %d. What only this program could see was not tested.", c.e.URL, userAgent, t.answers[0].status()))
			}
		}
	}
	c.judgeHostile(pages)
	c.findVaryOfDenials(pages)
	c.attribute(isOpen)
}

// blame adds a cause of a problem.
func (t *trial) blame(id ID, a *answer) {
	if t.Outcome == NotTested { // another judgement of the trial was less sure
		t.Reason, t.ByChoice = "", false
	}
	t.Outcome, t.because = Problem, a
	if !slices.Contains(t.Causes, id) {
		t.Causes = append(t.Causes, id)
	}
}

// judgeSent marks a trial as fine if it was answered. It has no wrong answer.
func (t *trial) judgeSent() {
	switch a := t.answers[0]; {
	case a.err != nil:
		t.skip(a.err.Error(), false)
	case isOverloaded(a.status()):
		t.skip(whyNoProof(a.status()), false)
	default:
		t.Outcome = Fine
	}
}

// judgeRevalidation judges an answer that a browser has revalidated. The headers of a 304 replace those that it stored under the same
// names (RFC 9111 section 3.2), and the CORS check is made with all of them.
func (t *trial) judgeRevalidation(target string) {
	if t.judgeSent(); t.Outcome != Fine || len(t.answers) < 2 { // without a validator, there is nothing to revalidate
		return
	}
	a := t.answers[1]
	if a.err != nil {
		t.skip(a.err.Error(), false)
		return
	}
	_, resp := a.last()
	isWrong := !a.isReadable()
	switch {
	case resp.Status >= 400:
		t.skip(fmt.Sprintf("the revalidation is answered with status %d", resp.Status), false)
		return
	case resp.Status == http.StatusNotModified && a.fetch != nil:
		_, stored := t.answers[0].last()
		merged := stored.Header.Clone()
		maps.Copy(merged, resp.Header)
		isWrong = t.origin != target && checkCORS(a.fetch.last.origin, t.sent[1].cookies, merged) != nil
	}
	if isWrong {
		t.blame(RevalidationWrongOrigin, a)
	}
}

// judgeBrowser judges the publisher's page in a browser that sends other headers.
func (c *cell) judgeBrowser(t *trial) {
	t.judgeSent()
	c.judgeUnder(t, BrowserRefused, 0)
	switch {
	case t.Outcome != Fine:
	case len(t.answers) > 1 && (!t.answers[0].isReadable() || c.flawOf(t.answers[0]) != ""): // and other browsers are answered otherwise
		t.skip("the page's requests are answered in another way from one time to the next", false)
	case !t.answers[0].isReadable():
		t.skip("the page is blocked, but not only in this browser", true)
	}
}

// judgeUnder judges the publisher's page under a condition under which it must work as well: by three answers from the first on, of
// which the second is without the condition. What is not wrong both times may be chance.
func (c *cell) judgeUnder(t *trial, id ID, first int) {
	if len(t.answers) < first+3 || c.differs != nil || t.origin == originOfURL(c.e.URL) {
		return
	}
	wrong := make([]ID, len(t.answers))
	for i, a := range t.answers {
		why := a.why()
		if t.Kind == KindCookies && i%2 == 1 { // the page allows cookies, although there are none
			if a.fetch == nil || a.fetch.response == nil || a.fetch.hop > 0 || isRedirect(a.status()) {
				return // such as to a login
			}
			why = checkCORS(t.origin, true, a.fetch.response.Header)
		}
		switch {
		case a.err != nil, isOverloaded(a.status()), slices.Contains(c.limits, a.status()):
			return
		case why != nil:
			wrong[i] = c.blockedBy(a, t.origin)
		case t.Kind == KindBrowsers:
			wrong[i] = c.flawOf(a)
		}
	}
	if w := wrong[first]; w != "" && wrong[first+1] != w && t.answers[first+1].isReadable() && wrong[first+2] == w {
		t.remark = t.What + ": " + string(w)
		t.blame(id, t.answers[first])
	}
}

// judgeTogether judges what two pages got that asked at the same time. What happened only once may be chance.
func (c *cell) judgeTogether(t *trial) {
	swapped, id := 0, SharedWrongOrigin
	if slices.ContainsFunc(c.trials, func(t *trial) bool { return slices.Contains(t.Causes, CachedWrongOrigin) }) {
		id = CachedWrongOrigin // which is also the cause of this
	}
	for i, a := range t.answers {
		request, _ := t.answers[i^1].last()
		switch {
		case a.err != nil:
			t.skip(a.err.Error(), false)
			return
		case isForOther(a, request.origin):
			swapped++
			t.because = a
		case !a.isReadable(), isOverloaded(a.status()):
			t.skip(fmt.Sprintf("an answer to pages that ask at the same time has status %d, or is blocked", a.status()), false)
			return
		}
	}
	switch t.Outcome = Fine; {
	case swapped == 1:
		t.skip("a page got the answer to another page that asked at the same time, but only once", false)
	case swapped > 1:
		t.origin = t.because.fetch.request.origin
		t.Origin = t.origin
		t.remark = "another page asked for the same URL at the same time, and got this answer; one request alone does not show it"
		t.blame(id, t.because)
	}
}

// isOverloaded reports whether a status says that the backend did not look at the request.
func isOverloaded(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// judgePages judges what the publisher's pages were answered.
func (c *cell) judgePages(pages []*trial) {
	blocked := make(map[*trial]ID) // the id of what blocks it
	var judged []*trial
	for _, t := range pages {
		a := c.judged(t)
		switch {
		case a.err != nil:
			t.skip(a.err.Error(), false)
			continue
		case isOverloaded(a.status()) && c.isOnlyThisCache(t, pages):
			t.remark = "pages on other caches are answered"
		case isOverloaded(a.status()), slices.Contains(c.limits, a.status()) && !a.isReadable():
			t.skip(whyNoProof(a.status()), false)
			continue
		case c.isWalled(t, a, pages):
			t.skip(fmt.Sprintf("the backend answers every request with status %d, also without Origin: that is a login or a firewall, and not CORS", a.status()), false)
			continue
		}
		t.because = a
		judged = append(judged, t)
		if err := a.why(); err != nil {
			t.Reason = err.Error()
			if blocked[t] = c.blockedBy(a, t.origin); c.isOfAnother(t, blocked[t], pages) {
				blocked[t] = CachedWrongOrigin
			}
		} else {
			t.Works = true
		}
	}
	c.findBroken(judged, blocked)
	c.findFlaws(judged)
	if c.differs != nil { // what only chance has found is no cause
		for _, t := range judged {
			if t.Outcome == Problem && blocked[t] != "" && !isAlwaysBlocked(t.cache, pages) {
				t.Causes = []ID{AnswersDiffer}
			}
		}
	}
	for _, t := range judged {
		c.tested = true
		switch {
		case t.Outcome == Problem:
		case t.because.fetch == nil:
			t.Works = false
			t.skip("its preflight is granted; the method "+c.e.Method+" itself is only sent with --unsafe", true)
		default:
			t.Outcome = Fine
		}
	}
}

// isOnlyThisCache reports whether all pages on the cache of a page are answered with the same error status, each
// time, and the pages on other caches are not.
func (c *cell) isOnlyThisCache(t *trial, pages []*trial) bool {
	if slices.Contains(c.limits, t.answers[0].status()) { // controls got it too
		return false
	}
	others := 0
	for _, other := range pages {
		isSame := !slices.ContainsFunc(other.answers, func(a *answer) bool { return a.err != nil || a.status() != t.answers[0].status() })
		if t.cache == "" || isSame != (other.cache == t.cache) || other.cache == t.cache && len(other.answers) < 2 {
			return false
		}
		if other.cache != t.cache {
			others++
		}
	}
	return others > 0
}

// isAlwaysBlocked reports whether each answer to each page on a cache is blocked. "" is the publisher's own page.
func isAlwaysBlocked(cache string, pages []*trial) bool {
	return !slices.ContainsFunc(pages, func(t *trial) bool {
		return t.cache == cache && (len(t.answers) < 2 || slices.ContainsFunc(t.answers, (*answer).isReadable))
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
	without := slices.IndexFunc(c.trials, func(t *trial) bool { return t.Kind == KindNoOrigin && len(t.answers) > 0 })
	return id == ACAOMissing && without >= 0 && !c.trials[without].isAllFromCache() &&
		!slices.ContainsFunc(pages, func(t *trial) bool { return slices.ContainsFunc(t.answers, (*answer).isReadable) })
}

// isAllFromCache reports whether a shared cache gave each answer.
func (t *trial) isAllFromCache() bool {
	return !slices.ContainsFunc(t.answers, func(a *answer) bool {
		_, resp := a.last()
		return resp == nil || !isFromCache(resp.Header)
	})
}

// judged returns the answer by which a page is judged. That is the first, unless a request that no
// cache could answer had another result.
func (c *cell) judged(t *trial) *answer {
	first := t.answers[0]
	if first.err != nil || first.isReadable() || len(t.answers) < 2 || !t.answers[1].isReadable() {
		return first
	}
	fresh := t.answers[1]
	isAgain := len(t.answers) > 4 && t.answers[2].status() == first.status() && t.answers[3].isReadable() && t.answers[4].isReadable()
	if first.status() >= 500 && !isAgain || slices.Contains(c.limits, first.status()) {
		return fresh // the first was an accident
	}
	// A cache gives the same wrong answer again, and never to a new URL. Several servers in turn do not.
	isCached := len(t.answers) > 4 && !t.answers[2].isReadable() && t.answers[2].err == nil && t.answers[3].isReadable() &&
		t.answers[4].isReadable() && (c.e.Method != http.MethodPost || first.blocked != nil)
	if isCached {
		t.remark = "the same request with a new URL is allowed"
		t.blame(CachedWrongOrigin, first)
	} else {
		c.differs = first
	}
	return fresh
}

// isWalled reports whether every page, and a request without Origin, are answered with the same
// status of a login or a firewall, and without CORS headers.
func (c *cell) isWalled(t *trial, a *answer, pages []*trial) bool {
	status := a.status()
	if status != http.StatusUnauthorized && status != http.StatusForbidden && status != http.StatusProxyAuthRequired || a.isReadable() {
		return false
	}
	isSame := func(t *trial) bool {
		return len(t.answers) > 0 && t.answers[0].status() == status && !t.answers[0].isReadable()
	}
	without := slices.IndexFunc(c.trials, func(t *trial) bool { return t.Kind == KindNoOrigin })
	return without >= 0 && len(c.trials[without].answers) > 0 && c.trials[without].answers[0].status() == status &&
		!slices.ContainsFunc(pages, func(t *trial) bool { return !isSame(t) })
}

// blockedBy returns the id of the finding for an answer that a browser blocks.
func (c *cell) blockedBy(a *answer, origin string) ID {
	_, resp := a.last()
	if a.blocked != nil { // by the preflight
		isAllowed := checkCORS(origin, a.preflight.request.credentials || c.e.Credentials, resp.Header) == nil
		switch {
		case isRedirect(resp.Status):
			return PreflightRedirected
		case isAllowed && resp.Status >= 200 && resp.Status <= 299:
			return PreflightIncomplete
		case isAllowed, resp.Status < 200, resp.Status > 299, len(resp.Header["Access-Control-Allow-Origin"]) == 0:
			return PreflightFailed
		}
		return c.wrongHeaders(resp.Header, origin)
	}
	lines := resp.Header["Access-Control-Allow-Origin"]
	switch {
	case a.fetch.isEndless:
		return RedirectEndless
	case isRedirect(resp.Status) || a.fetch.hop > 0:
		return RedirectWithoutCORS
	case len(lines) == 0 && resp.Status >= 400:
		return ErrorWithoutCORS
	case len(lines) == 0:
		return ACAOMissing
	}
	return c.wrongHeaders(resp.Header, origin)
}

// wrongHeaders returns the id of the finding for CORS headers that a browser rejects.
func (c *cell) wrongHeaders(h http.Header, origin string) ID {
	lines := h["Access-Control-Allow-Origin"]
	value := lines[0]
	isBare := slices.ContainsFunc(c.p.cfg.Caches, func(cache cacheurl.Cache) bool {
		return strings.TrimSuffix(strings.TrimPrefix(value, "https://"), "/") == cache.CacheDomain
	})
	switch {
	case len(lines) > 1:
		return ACAODuplicate
	case value == "*":
		return WildcardWithCredentials
	case isBare:
		return ACAOBareCache
	case strings.ContainsAny(value, "*, "):
		return ACAOPattern
	case value == origin && len(h["Access-Control-Allow-Credentials"]) == 0:
		return ACACMissing
	case value == origin && len(h["Access-Control-Allow-Credentials"]) > 1:
		return ACACDuplicate
	case value == origin:
		return ACACInvalid
	case value == c.own:
		return ACAOSourceOrigin
	}
	return ACAOMismatch
}

// denials are the ids of problems that can mean that the backend denies only some origins.
var denials = []ID{ACAOMissing, ACAOMismatch, ACAOSourceOrigin, ErrorWithoutCORS, PreflightFailed,
	RedirectWithoutCORS}

// findBroken names why pages do not work. If the backend denies only some origins, that is the cause.
func (c *cell) findBroken(pages []*trial, blocked map[*trial]ID) {
	onCache := func(cache string) bool {
		return slices.ContainsFunc(pages, func(t *trial) bool {
			return t.page.form != formOwn && t.Works && (cache == "" || t.cache == cache)
		})
	}
	target := originOfURL(c.e.URL)
	ownWorks := slices.ContainsFunc(pages, func(t *trial) bool { return t.page.form == formOwn && t.Works && t.origin != target })
	isAnswered := slices.ContainsFunc(c.trials, func(t *trial) bool { // without Origin, or at the API's own origin
		return (t.Kind == KindNoOrigin || t.page.form == formOwn && t.origin == target) && len(t.answers) > 0 && t.answers[0].status() > 0 &&
			t.answers[0].status() < 400
	})
	causes := make(map[ID][]*trial)
	for _, t := range pages {
		id, isBlocked := blocked[t]
		if !isBlocked {
			continue
		}
		switch isDenial := slices.Contains(denials, id); {
		case !isDenial:
		case t.page.form == formOwn && (onCache("") || isAnswered && isDenialStatus(t.because.status())):
			id = OwnOriginRefused
		case t.page.form == formOwn:
		case !onCache("") && isAnswered && isDenialStatus(t.because.status()):
			id = CacheRefused // by a protection against CSRF, perhaps
		case !onCache("") && ownWorks && id != ACAOMismatch && id != ACAOSourceOrigin:
			id = CacheRefused
		case !onCache(""):
		case t.page.form == formHash && onCache(t.cache):
			id = HashOriginRefused
		case (t.page.form == formPunycode || t.page.form == formOther) && onCache(t.cache):
			id = PunycodeOriginRefused
		default:
			id = CacheRefused
		}
		causes[id] = append(causes[id], t)
	}
	// If only the own origin has a mismatch and there are other causes, it has one of them.
	if own := causes[ACAOMismatch]; len(own) == 1 && own[0].page.form == formOwn && len(causes) > 1 {
		delete(causes, ACAOMismatch)
		own[0].blame(slices.Sorted(maps.Keys(causes))[0], own[0].because)
	}
	for id, ts := range causes {
		for _, t := range ts {
			t.blame(id, t.because)
		}
	}
}

// isDenialStatus reports whether a status says that the backend does not want the request.
func isDenialStatus(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// findFlaws names what is wrong with answers, also with those that a browser lets pages read.
func (c *cell) findFlaws(pages []*trial) {
	e := c.e
	var echoes []*trial
	target := originOfURL(e.URL)
	for _, t := range pages {
		_, resp := t.because.last()
		if t.because.fetch != nil && t.origin != target && resp.Header.Get("Access-Control-Allow-Origin") == t.origin &&
			len(resp.Header["Access-Control-Allow-Origin"]) == 1 {
			echoes = append(echoes, t)
		}
	}
	for _, t := range pages {
		a := t.because
		if !t.Works || a.fetch == nil {
			continue
		}
		_, resp := a.last()
		h := resp.Header
		if id := c.flawOf(a); id != "" {
			if id == HTTPError && t.page.form == formOwn && t.origin == target && len(echoes) > 0 {
				id = OwnOriginRefused
			}
			t.Works = false
			t.blame(id, a)
		}
		if to := h.Get("AMP-Redirect-To"); to != "" && e.Answer != AnswerVerify && (e.Answer == AnswerForm || e.Method == http.MethodPost) {
			if !isExposed("AMP-Redirect-To", e.Credentials, h) && h.Get("Access-Control-Allow-Origin") != "" {
				t.blame(ExposeMissing, a)
			}
			if u, err := url.Parse(to); err != nil || u.Scheme != "https" || u.Host == "" {
				t.blame(RedirectToInvalid, a)
			}
		}
		if e.Credentials && setsFirstPartyCookie(h) {
			c.note(e.URL + " sets a cookie without SameSite=None and Secure: browsers do not send it from pages on AMP Caches. That is not CORS.")
		}
	}
	if e.Credentials {
		c.note("Some endpoints are called with cookies. On AMP Caches these are third-party cookies, which some browsers never send. That is not CORS.")
	}
	for _, t := range echoes {
		_, resp := t.because.last()
		if len(echoes) > 1 && !isRedirect(resp.Status) && isCacheable(e.Method, resp.Header) && !variesByOrigin(resp.Header) {
			t.blame(VaryMissing, t.because)
		}
	}
	i := slices.IndexFunc(c.trials, func(t *trial) bool { return t.Kind == KindNoOrigin && len(t.answers) > 0 && t.answers[0].err == nil })
	if i < 0 {
		return
	}
	without := c.trials[i]
	if _, resp := without.answers[0].last(); resp.Status < 300 && without.answers[0].fetch.hop == 0 &&
		isCacheable(e.Method, resp.Header) && !variesByOrigin(resp.Header) {
		value := resp.Header.Get("Access-Control-Allow-Origin")
		if slices.ContainsFunc(echoes, func(t *trial) bool { return t.origin != value }) {
			without.blame(VaryMissing, without.answers[0])
		}
	}
}

// flawOf returns the id of the finding for an answer that a page can read and its component cannot use, or "".
func (c *cell) flawOf(a *answer) ID {
	if a.fetch == nil {
		return ""
	}
	e, resp := c.e, a.fetch.response
	switch {
	case (e.Answer == AnswerForm || e.Answer == AnswerVerify) && resp.Status >= 400 && resp.Status < 500 && isJSON(resp.Body) &&
		a.fetch.last.method == e.Method: // a redirect may have changed it
		// amp-form shows it to the reader
	case resp.Status < 200 || resp.Status > 299:
		return HTTPError
	case e.Method == http.MethodHead, e.Component == "endpoint" && resp.Status == http.StatusNoContent,
		e.Answer == AnswerForm && resp.Header.Get("AMP-Redirect-To") != "": // which amp-form follows without a body, too
	case (e.Answer == AnswerJSON || e.Answer == AnswerForm) && !isJSON(resp.Body):
		return NotJSON
	case e.Answer == AnswerScript && !strings.Contains(resp.Header.Get("Content-Type"), "javascript"):
		return NotScript
	}
	return ""
}

// findVaryOfDenials names a denial that a shared cache may keep and give to the publisher's pages.
func (c *cell) findVaryOfDenials(pages []*trial) {
	// The denial must have the URL of the publisher's pages, and so their claim.
	i := slices.IndexFunc(c.trials, func(t *trial) bool {
		return t.Kind == KindNull && t.Outcome == Fine && slices.Equal(t.sent[0].claims, c.claim(c.own))
	})
	if i < 0 {
		return
	}
	denial := c.trials[i].answers[0]
	_, resp := denial.last()
	if denial.fetch == nil || !isStored(resp) || !isCacheable(c.e.Method, resp.Header) || variesByOrigin(resp.Header) ||
		resp.Header.Get("Access-Control-Allow-Origin") != "" {
		return
	}
	for _, t := range pages {
		if t.Outcome == Fine && t.because.fetch != nil && t.because.fetch.response.Header.Get("Access-Control-Allow-Origin") == t.origin {
			t.remark = "a cache may give this answer to the publisher's pages"
			t.blame(VaryMissing, denial)
			return
		}
	}
}

func (c *cell) note(text string) { c.notes = append(c.notes, text) }

// judgeCookies reports whether the answer is known not to depend on cookies.
func (t *trial) judgeCookies() bool {
	t.judgeSent()
	if t.Outcome != Fine {
		return false
	}
	var bodies [][]byte
	for _, a := range t.answers {
		if _, resp := a.last(); a.err == nil && resp.Status < 300 {
			bodies = append(bodies, resp.Body)
		}
	}
	switch {
	case len(bodies) < 3 || len(bodies) != len(t.answers):
		t.skip("not every answer is a success", true) // which matters only if others are allowed
	case !bytes.Equal(bodies[0], bodies[2]):
		t.skip("the answer changes from one time to the next", true)
	default:
		return bytes.Equal(bodies[0], bodies[1])
	}
	return false
}

// judgeHostile judges what the pages were answered that must be denied.
func (c *cell) judgeHostile(pages []*trial) {
	hides := []ID{ACACMissing, ACACInvalid, ACACDuplicate, PreflightIncomplete, PreflightFailed}
	isHidden := slices.ContainsFunc(pages, func(t *trial) bool {
		return slices.ContainsFunc(t.Causes, func(id ID) bool { return slices.Contains(hides, id) })
	})
	// allows reports whether the page can read the answer, or could if the backend answered its
	// own pages rightly.
	allows := func(t *trial, a *answer) bool {
		if a.isReadable() {
			return true
		}
		_, resp := a.last()
		if isHidden && resp != nil && resp.Header.Get("Access-Control-Allow-Origin") == t.origin {
			t.remark = "the page can read it as soon as the publisher's own page can"
			return true
		}
		return false
	}
	for _, t := range c.trials {
		if !t.Kind.IsHostile() || t.Outcome == NotTested {
			continue
		}
		if why := c.provesNothing(t); why != nil {
			t.skip(why.Error(), false)
			continue
		}
		t.Outcome = Fine
		first := t.answers[0]
		switch {
		case t.id == UnsafeReachesHandler:
			c.judgeForged(t)
		case t.id == SameOriginHeaderPreferred:
			if denied := t.answers[1].status(); first.status() < 400 && (denied == http.StatusForbidden || denied == http.StatusUnauthorized) {
				t.blame(t.id, first)
			}
		case t.id == SameOriginGranted:
			_, resp := first.last()
			if first.isReadable() && resp.Header.Get("Access-Control-Allow-Origin") != "*" {
				t.blame(t.id, first)
			}
		default:
			for i, a := range t.answers {
				isReflectedError := t.sent[i].isSimple && a.status() >= 400 // by a backend that would deny the page's own
				isRun := a.preflight != nil && a.blocked == nil && a.fetch != nil && a.status() < 400 && !isSafelistedMethod(c.e.Method)
				if allows(t, a) && !isReflectedError {
					t.blame(t.id, a)
					break
				} else if isRun {
					t.remark = "its preflight is granted, so that the handler runs"
					t.blame(UnsafeReachesHandler, a)
					break
				}
				// The trial was sent with cookies, and a page can also send it without.
				if _, resp := a.last(); resp != nil && !c.e.Credentials && resp.Header.Get("Access-Control-Allow-Origin") == "*" {
					t.IsPublic = true
				}
			}
		}
	}
}

// provesNothing returns why the answers to a hostile page do not show whether it is denied.
func (c *cell) provesNothing(t *trial) error {
	if len(t.answers) == 0 {
		return errors.New("it was not sent")
	}
	control := c.control.answers[0]
	for i, a := range t.answers {
		isOwn := t.sent[i].isControl
		if a.isReadable() && t.Kind != KindForged {
			return nil // allowed, whatever the rest is
		}
		_, resp := a.last()
		switch status := a.status(); {
		case a.err != nil:
			return a.err
		case isOverloaded(status), slices.Contains(c.limits, status):
			return errors.New(whyNoProof(status))
		case isOwn:
		case status >= 400 && control.status() >= 400 && !control.isReadable():
			return fmt.Errorf("the backend answers its publisher's page with status %d, so that status %d denies nothing", control.status(), status)
		case isFromCache(resp.Header):
			return fmt.Errorf("a cache in front of the backend answered (%s)", hitOf(resp.Header))
		}
	}
	return nil
}

// whyNoProof returns why an answer with this status proves nothing.
func whyNoProof(status int) string {
	if isOverloaded(status) {
		return fmt.Sprintf("the backend limits requests, or is down (status %d)", status)
	}
	return fmt.Sprintf("status %d, which the publisher's own request also got when it was repeated, proves nothing", status)
}

// isFromCache reports whether a shared cache answered.
func isFromCache(h http.Header) bool { return hitOf(h) != "" }

// hitOf returns the header that says that a shared cache answered, by RFC 9111 section 5.1, RFC 9211, or as common caches
// write it; or "".
func hitOf(h http.Header) string {
	if age, err := strconv.Atoi(h.Get("Age")); err == nil && age > 0 {
		return "Age: " + h.Get("Age")
	}
	for _, name := range []string{"X-Cache", "X-Cache-Status", "X-Proxy-Cache", "Cf-Cache-Status", "Cache-Status"} {
		if value := strings.Join(h[name], ", "); strings.Contains(strings.ToUpper(value), "HIT") {
			return fmt.Sprintf("%s: %.100s", name, value)
		}
	}
	return ""
}

// judgeForged judges a request that changes data, and that any page can make a browser send. It can
// only be compared with the publisher's own.
func (c *cell) judgeForged(t *trial) {
	_, own := t.answers[0].last()
	a := t.answers[1]
	if own.Status >= 400 {
		t.skip(fmt.Sprintf("the publisher's own request is answered with status %d, so that the answer to a forged one proves nothing",
			own.Status), false)
		return
	}
	if a.blocked != nil {
		return // a browser does not send it
	}
	resp := a.fetch.response
	isSame := resp.Status == own.Status && resp.Header.Get("Location") == own.Header.Get("Location") && isSameBody(resp.Body, own.Body)
	switch {
	case isSame:
		t.remark = "it is answered as the publisher's own request"
		t.blame(t.id, a)
	case resp.Status >= 400 && len(bytes.TrimSpace(own.Body)) >= minBody && hasBody(resp.Body, own.Body):
		t.remark = "the answer has what the handler writes, so that the handler ran"
		t.blame(t.id, a)
	case resp.Status == http.StatusCreated, resp.Status == http.StatusAccepted, resp.Status == http.StatusNoContent:
		t.remark = fmt.Sprintf("the publisher's own request is answered with status %d", own.Status)
		t.blame(UnsafeSeemsToRun, a)
	case resp.Status < 400, resp.Status >= 500, len(own.Body) > 0 && bytes.Equal(resp.Body, own.Body):
		t.skip(fmt.Sprintf("it is answered with status %d, and not as the publisher's own request: only the backend knows whether it was denied", resp.Status), false)
	}
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
	return slices.DeleteFunc(strings.Fields(text), func(word string) bool { return strings.ContainsAny(word, "0123456789") })
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

// isCacheable reports whether a shared cache may keep a response. (A browser keeps what is private apart for each site.)
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
