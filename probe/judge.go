package probe

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
)

// This file gives each trial of a cell its outcome. It only reads the answers, and sends nothing.

// judge gives each trial that was sent its outcome.
func (c *cell) judge() {
	pages := c.trialsOf(KindPage)
	if c.sender == "" {
		c.judgePages(pages)
	}
	hides := []ID{ACACMissing, ACACInvalid, ACACDuplicate, PreflightIncomplete, PreflightFailed}
	c.isHidden = slices.ContainsFunc(pages, func(t *trial) bool {
		return slices.ContainsFunc(t.Causes, func(id ID) bool { return slices.Contains(hides, id) })
	})
	for _, t := range c.trials {
		if t.Outcome != "" || t.Kind == KindPage {
			continue // it is not tested, or findFlaws has blamed it
		}
		c.judgeTrial(t)
		c.tested = c.tested || t.Kind == KindEmails && t.Outcome != NotTested
	}
	c.findVaryOfDenials(pages)
	c.attribute()
}

// judgeTrial gives a trial the ruling of its rule.
func (c *cell) judgeTrial(t *trial) {
	breaks := t.rule.breaks
	if breaks == nil {
		breaks = (*cell).isDenied
	}
	if why := c.provesNothing(t); why != nil {
		t.skip(why.Error(), false)
	} else {
		t.settle(breaks(c, t))
	}
}

// A ruling is what the answers of a trial show.
type ruling struct {
	Outcome
	id       ID      // of the broken rule, if it is not the trial's
	shown    *answer // shows it
	remark   string  // what the answer alone does not show
	reason   string  // why it was not tested
	byChoice bool
	isPublic bool
}

func fine() ruling { return ruling{Outcome: Fine} }

func broken(shown *answer, remark string) ruling {
	return ruling{Outcome: Problem, shown: shown, remark: remark}
}

func unknown(reason string) ruling { return ruling{Outcome: NotTested, reason: reason} }

// moot is a ruling on what need not be known.
func moot(reason string) ruling {
	return ruling{Outcome: NotTested, reason: reason, byChoice: true}
}

// settle gives a trial its outcome.
func (t *trial) settle(v ruling) {
	t.IsPublic = v.isPublic
	switch v.Outcome {
	case Problem:
		t.blame(cmp.Or(v.id, t.rule.id), v.shown, v.remark)
		t.Reason = v.reason
	case NotTested:
		t.skip(v.reason, v.byChoice)
	default:
		t.Outcome, t.Works = Fine, t.Kind == KindEmails
	}
}

// A blame is a cause of a problem, and the answer that shows it.
type blame struct {
	id     ID
	shown  *answer
	remark string // what the answer alone does not show
}

// blame adds a cause of a problem.
func (t *trial) blame(id ID, shown *answer, remark string) {
	t.Outcome = Problem
	if !slices.Contains(t.Causes, id) {
		t.Causes, t.blames = append(t.Causes, id), append(t.blames, blame{id, shown, remark})
	}
}

// explain replaces the causes of a problem by one, with the first answer that shows it.
func (t *trial) explain(id ID) {
	t.Causes, t.blames = []ID{id}, t.blames[:1]
	t.blames[0].id = id
}

// acquit takes back a problem, which is none.
func (t *trial) acquit() { t.Outcome, t.Causes, t.blames = Fine, nil, nil }

func (c *cell) note(text string) { c.notes = append(c.notes, text) }

// provesNothing returns why the answers of a trial do not show whether it breaks its rule.
func (c *cell) provesNothing(t *trial) error {
	if len(t.turns) == 0 {
		return errors.New("it was not sent")
	}
	if !t.Kind.IsHostile() || t.Kind.IsEmail() {
		switch first := t.turns[0]; {
		case first.err != nil:
			return first.err
		case isOverloaded(first.status()):
			return errors.New(whyNoProof(first.answer))
		}
		return nil
	}
	control := c.control.turns[0]
	for _, a := range t.turns {
		if a.isReadable() && t.Kind != KindForged {
			return nil // allowed, whatever the rest is
		}
		_, resp := a.last()
		switch status := a.status(); {
		case a.err != nil:
			return a.err
		case isOverloaded(status), slices.Contains(c.limits, status):
			return errors.New(whyNoProof(a.answer))
		case c.differs != nil && status >= 400 && status == c.differs.status():
			return fmt.Errorf("status %d, which the publisher's own page also gets from one time to the next, denies nothing",
				status)
		case a.as != nil: // the publisher's own request
		case status >= 400 && control.status() >= 400 && !control.isReadable():
			return fmt.Errorf("the publisher's own page gets status %d and cannot read the answer, so that status %d says "+
				"nothing about other pages", control.status(), status)
		case isFromCache(resp.Header):
			return fmt.Errorf("a cache in front of the backend answered (%s)", hitOf(resp.Header))
		}
	}
	return nil
}

// allows reports whether a page can read an answer, or could if the backend answered its own pages rightly.
func (c *cell) allows(t *trial, a *answer) bool {
	return a.isReadable() || c.isHidden && a.fetch != nil &&
		a.fetch.response.Header.Get("Access-Control-Allow-Origin") == t.origin
}

// isOnlyPreflighted reports whether a page was allowed by a preflight that grants too little, and no answer shows
// what it may read.
func (c *cell) isOnlyPreflighted(t *trial) bool {
	isSent := slices.ContainsFunc(t.turns, func(a turn) bool { return a.fetch != nil })
	return c.isHidden && !isSent && slices.ContainsFunc(t.turns, func(a turn) bool {
		return a.preflight != nil && a.preflight.response != nil &&
			a.preflight.response.Header.Get("Access-Control-Allow-Origin") == t.origin
	})
}

// isDenied is the ruling on a page that must not be able to read any answer.
func (c *cell) isDenied(t *trial) ruling {
	isPublic := false
	for _, a := range t.turns {
		// a backend would deny the page's own request, which has these headers
		isReflectedError := a.isSimple && a.status() >= 400
		isRun := a.preflight != nil && a.blocked == nil && a.fetch != nil && a.status() < 400 &&
			!isSafelistedMethod(c.e.Method)
		switch {
		case c.allows(t, a.answer) && !isReflectedError:
			v := broken(a.answer, "")
			if v.isPublic = isPublic; !a.isReadable() {
				v.remark = "the page can read it as soon as the publisher's own page can"
			}
			return v
		case isRun:
			return ruling{Outcome: Problem, id: UnsafeReachesHandler, shown: a.answer,
				remark: "its preflight is granted, so that the handler runs", isPublic: isPublic}
		}
		// The trial was sent with cookies, and a page can also send it without.
		if _, resp := a.last(); resp != nil && !c.e.Credentials && resp.Header.Get("Access-Control-Allow-Origin") == "*" {
			isPublic = true
		}
	}
	if c.isOnlyPreflighted(t) {
		return unknown("its preflight is answered as if it were allowed, and grants as little as that of the publisher's " +
			"page: what it could read shows once the publisher's page works")
	}
	return ruling{Outcome: Fine, isPublic: isPublic}
}

// isAnsweredAtAll is the ruling on a request that has no wrong answer. findFlaws judges its headers.
func (c *cell) isAnsweredAtAll(*trial) ruling { return fine() }

// isAnsweredAsOurselves notes it if the backend answers this program in another way than browsers.
func (c *cell) isAnsweredAsOurselves(t *trial) ruling {
	a := t.got(told)
	if !c.isAsAtFirst(a) && !slices.Contains(c.limits, a.status()) && c.differs == nil {
		c.note(fmt.Sprintf("The answers of %s depend on User-Agent: with %q, which this program has, the publisher's page "+
			"gets status %d. "+
			"All other requests had a browser's User-Agent, so nothing else was tested with this one.", c.e.URL,
			userAgent, a.status()))
	}
	return fine()
}

// revalidates is the ruling on an answer that a browser has revalidated. The headers of a 304 replace those that it
// stored under the same names (RFC 9111 section 3.2), and the CORS check is made with all of them.
func (c *cell) revalidates(t *trial) ruling {
	a := t.got(revalidated)
	if a == nil { // without a validator, there is nothing to revalidate
		return fine()
	}
	if a.err != nil {
		return unknown(a.err.Error())
	}
	_, resp := a.last()
	isWrong := !a.isReadable()
	switch {
	case resp.Status >= 400:
		return unknown(fmt.Sprintf("the revalidation is answered with status %d", resp.Status))
	case resp.Status == http.StatusNotModified && a.fetch != nil:
		_, before := t.got(stored).last()
		merged := before.Header.Clone()
		maps.Copy(merged, resp.Header)
		isWrong = t.origin != originOfURL(c.e.URL) && checkCORS(a.fetch.last.origin, c.e.Credentials, merged) != nil
	}
	if isWrong {
		return broken(a, "")
	}
	return fine()
}

// worksInABrowser is the ruling on the publisher's page in a browser that sends other headers.
func (c *cell) worksInABrowser(t *trial) ruling {
	a := t.got(changed)
	if id := c.onlyWhenChanged(t); id != "" {
		return broken(a, t.What+": "+named(id))
	}
	switch isWrong, again := !a.isReadable() || c.flawOf(a) != "", t.got(usual); {
	case isWrong && again != nil && again.err != nil:
		return unknown(again.err.Error())
	case isWrong && again != nil: // and other browsers are answered otherwise
		return unknown("the page's requests are answered in another way from one time to the next")
	case !a.isReadable():
		return moot("the page is blocked in the usual browser as well")
	}
	return fine()
}

// worksWithoutCookies is the ruling on the publisher's page for a reader who has no cookie.
func (c *cell) worksWithoutCookies(t *trial) ruling {
	if id := c.onlyWhenChanged(t); id != "" {
		return broken(t.got(changed), t.What+": "+named(id))
	}
	switch bodies := t.bodies(); {
	case len(bodies) < 4:
		return moot("not every answer is a success") // which matters only if others are allowed
	case !bytes.Equal(bodies[0], bodies[2]):
		return moot("the answer changes from one time to the next")
	}
	return fine()
}

// named returns the title of a symptom, with its id.
func named(id ID) string {
	for _, r := range symptoms {
		if r.id == id {
			return fmt.Sprintf("%s (%s)", r.title, id)
		}
	}
	return string(id)
}

// bodies returns the bodies of successes.
func (t *trial) bodies() (bodies [][]byte) {
	for _, a := range t.turns {
		if _, resp := a.last(); a.err == nil && resp.Status < 300 {
			bodies = append(bodies, resp.Body)
		}
	}
	return bodies
}

// isOpen reports whether the answers are known not to depend on cookies.
func (c *cell) isOpen() bool {
	for _, t := range c.trialsOf(KindCookies) {
		bodies := t.bodies()
		return len(bodies) == 4 && bytes.Equal(bodies[0], bodies[2]) && bytes.Equal(bodies[0], bodies[1])
	}
	return false
}

// onlyWhenChanged returns the symptom that the publisher's page has each time with changed headers or
// cookies, with which it must work too, and never without the change; or "".
func (c *cell) onlyWhenChanged(t *trial) ID {
	if t.got(changedAgain) == nil || c.differs != nil || t.origin == originOfURL(c.e.URL) {
		return ""
	}
	isWrong := make(map[role]ID)
	for _, a := range t.turns {
		why := a.why()
		if t.Kind == KindCookies && !a.cookies { // the page allows cookies, although there are none
			if a.fetch == nil || a.fetch.response == nil || a.fetch.hop > 0 || isRedirect(a.status()) {
				return "" // such as to a login
			}
			why = checkCORS(t.origin, true, a.fetch.response.Header)
		}
		switch {
		case a.err != nil, isOverloaded(a.status()), slices.Contains(c.limits, a.status()):
			return ""
		case why != nil:
			isWrong[a.role] = c.symptom(a.answer, t.origin, true)
		case t.Kind == KindBrowsers:
			isWrong[a.role] = c.flawOf(a.answer)
		}
	}
	between := usual
	if t.got(usualAgain) != nil {
		between = usualAgain
	}
	if id := isWrong[changed]; id != "" && isWrong[changedAgain] == id && isWrong[between] != id &&
		t.got(between).isReadable() {
		return id
	}
	return ""
}

// getsItsOwnAnswer is the ruling on two pages that asked at the same time. What happened only once may be chance.
func (c *cell) getsItsOwnAnswer(t *trial) ruling {
	v := broken(nil, "another page asked for the same URL at the same time, and got this answer; one request alone does "+
		"not show it")
	if slices.ContainsFunc(c.trials, func(t *trial) bool { return slices.Contains(t.Causes, CachedWrongOrigin) }) {
		v.id = CachedWrongOrigin // which is also the cause of this
	}
	swapped := 0
	for i, a := range t.turns {
		request, _ := t.turns[i^1].last() // of the other page
		switch {
		case a.err != nil:
			return unknown(a.err.Error())
		case isForOther(a.answer, request.origin):
			swapped++
			v.shown = a.answer
		case !a.isReadable(), isOverloaded(a.status()):
			return unknown(fmt.Sprintf("an answer to pages that ask at the same time has status %d, or is blocked", a.status()))
		}
	}
	switch swapped {
	case 0:
		return fine()
	case 1:
		return unknown("a page got the answer to another page that asked at the same time, but only once")
	}
	t.origin = v.shown.fetch.request.origin
	t.Origin = t.origin
	return v
}

// isGrantedByName is the ruling on a page that asks to send AMP-Same-Origin. See attribute for when it matters.
func (c *cell) isGrantedByName(t *trial) ruling {
	a := t.got(told)
	if _, resp := a.last(); a.isReadable() && resp.Header.Get("Access-Control-Allow-Origin") != "*" {
		return broken(a, "")
	}
	return fine()
}

// isPreferred is the ruling on a request with AMP-Same-Origin, which is denied without it.
func (c *cell) isPreferred(t *trial) ruling {
	without := t.got(publishers)
	if without == nil || without.err != nil {
		return unknown("the request without AMP-Same-Origin is not answered")
	}
	if a := t.got(told); a.status() < 400 && isDenialStatus(without.status()) {
		return broken(a, "without AMP-Same-Origin, it is denied")
	}
	return fine()
}

// isForged is the ruling on a request that changes data, and that any page can make a browser send. It can
// only be compared with the publisher's own.
func (c *cell) isForged(t *trial) ruling {
	_, own := t.got(publishers).last()
	if own.Status >= 400 {
		return unknown(fmt.Sprintf("the publisher's own request is answered with status %d, so that the answer to a forged "+
			"one proves nothing",
			own.Status))
	}
	a := t.got(forged)
	if a.blocked != nil {
		return fine() // a browser does not send it
	}
	resp := a.fetch.response
	isSame := resp.Status == own.Status && resp.Header.Get("Location") == own.Header.Get("Location") &&
		isSameBody(resp.Body, own.Body)
	switch {
	case isSame:
		return broken(a, "it gets the same answer as the publisher's own request")
	case resp.Status >= 400 && len(bytes.TrimSpace(own.Body)) >= minBody && hasBody(resp.Body, own.Body):
		return broken(a, "the answer has what the handler writes, so that the handler ran")
	case resp.Status == http.StatusCreated, resp.Status == http.StatusAccepted, resp.Status == http.StatusNoContent:
		return ruling{Outcome: Problem, id: UnsafeSeemsToRun, shown: a,
			remark: fmt.Sprintf("the publisher's own request is answered with status %d", own.Status)}
	case resp.Status < 400, resp.Status >= 500, len(own.Body) > 0 && bytes.Equal(resp.Body, own.Body):
		return unknown(fmt.Sprintf("it is answered with status %d, and with another answer than the publisher's own "+
			"request: only the backend knows whether it was denied. "+
			"A denial with status 403 would show it, and so would an answer to the publisher's page that is the same each time",
			resp.Status))
	}
	return fine()
}
