package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	sideBySide = 5                      // cells that are tested at once
	groupSize  = 24                     // hostile trials between two controls
	width      = 2                      // hostile trials that are sent at once
	pause      = 500 * time.Millisecond // before a control that failed is sent again
)

// run sends the trials of the cell. First the publisher's pages, as they are and one after another,
// because a cache in front of the backend may keep one answer for the next page. Then the hostile
// pages, in groups, with a control before and after each group.
func (c *cell) run(ctx context.Context, done func(*trial)) {
	var pages, compared, hostile []*trial
	for _, t := range c.trials {
		switch {
		case t.Outcome == NotTested:
			done(t)
		case t.Kind.IsHostile():
			hostile = append(hostile, t)
		case t.steps[0].isControl:
			compared = append(compared, t)
		default:
			pages = append(pages, t)
		}
	}
	var failed []error
	for _, t := range pages {
		if len(failed) == 2 {
			t.skip(failed[0].Error(), false) // the others would wait as long
		} else if c.ask(ctx, t); t.answers[0].err != nil {
			failed = append(failed, t.answers[0].err)
		} else {
			failed = nil
		}
		done(t)
	}
	why := c.calibrate(ctx, pages)
	if c.findRedirect(pages); c.redirect == nil { // there is nothing to ask
		isMoot := func(t *trial) bool { return t.steps[0].toRedirect }
		c.trials, hostile = slices.DeleteFunc(c.trials, isMoot), slices.DeleteFunc(hostile, isMoot)
	}
	for _, t := range compared {
		switch {
		case why != nil:
			t.skip(why.Error(), false)
		case t.Kind == KindTogether:
			c.askTogether(ctx, t, pages)
		default:
			c.ask(ctx, t)
		}
		if why == nil { // the control's page has sent it
			t.page, t.Origin, t.Form = c.control.page, c.control.Origin, c.control.Form
		}
		done(t)
	}
	for group := range slices.Chunk(hostile, groupSize) {
		if why == nil {
			why = c.askGroup(ctx, group)
		}
		for _, t := range group {
			if why != nil {
				t.skip(why.Error(), false)
			}
			done(t)
		}
	}
}

// ask sends the steps of a trial whose conditions are met.
func (c *cell) ask(ctx context.Context, t *trial) {
	t.answers, t.sent = nil, nil
	for _, s := range t.steps {
		if n := len(t.answers); n > 0 {
			before := t.answers[n-1]
			isMet := false
			switch s.when {
			case always:
				isMet = !s.revalidates || hasValidator(before)
			case ifAllowed:
				isMet = before.isReadable()
			case ifDenied:
				isMet = !before.isReadable()
			case ifRecovered:
				isMet = before.isReadable() && n > 1
			case ifCached:
				isMet = n == 3 && !before.isReadable() || n == 4
			case ifUnlike:
				isMet = n > 1 || !c.isAsAtFirst(before) || c.flawOf(before) != c.flawOf(c.control.answers[0])
			}
			if before.err != nil {
				return
			} else if !isMet {
				continue
			}
		}
		t.sent = append(t.sent, s)
		t.answers = append(t.answers, c.send(ctx, t, s))
	}
}

// askTogether sends the requests of two pages for one URL at the same time, and once more with a new URL; a third time if
// a page got the other's answer in one of them.
func (c *cell) askTogether(ctx context.Context, t *trial, pages []*trial) {
	var two []*trial
	for _, pg := range slices.Backward(pages) { // the publisher's own is the last resort
		if pg.Kind == KindPage && pg.origin != originOfURL(c.e.URL) && len(two) < 2 && slices.ContainsFunc(pg.answers, (*answer).isReadable) {
			two = append(two, pg)
		}
	}
	switch {
	case len(two) < 2:
		t.skip("fewer than two of the publisher's pages work", true)
		return
	case c.width < 2:
		t.skip("the backend takes one request at a time", true)
		return
	}
	swapped := 0
	for round := 0; round < 2 || round == 2 && swapped == 1; round++ {
		s := t.steps[0]
		s.isSimple = true
		r := c.request(two[0].origin, s)
		r.isReady = true
		other := r
		other.origin, other.header = two[1].origin, r.header.Clone()
		other.header.Set("Referer", other.origin+"/")
		answers := []*answer{{}, {}}
		for range answers {
			if c.p.client.limiter.Wait(ctx) != nil {
				t.skip(errMaxTime.Error(), false)
				return
			}
		}
		var ready, wait sync.WaitGroup
		ready.Add(len(answers))
		for i, r := range []request{r, other} {
			wait.Go(func() {
				ready.Done()
				ready.Wait()
				answers[i].fetch = c.p.client.fetch(ctx, r)
				answers[i].err = answers[i].fetch.err
			})
		}
		wait.Wait()
		t.answers = append(t.answers, answers...)
		if isForOther(answers[0], other.origin) || isForOther(answers[1], r.origin) {
			swapped++
		}
	}
}

// isForOther reports whether an answer allows this origin, which its request does not have.
func isForOther(a *answer, origin string) bool {
	r, resp := a.last()
	return resp != nil && r.origin != origin && resp.Header.Get("Access-Control-Allow-Origin") == origin
}

// findRedirect notes the request of the publisher's page after a redirect. To another origin, a browser sends Origin: null.
func (c *cell) findRedirect(pages []*trial) {
	for _, t := range pages {
		for _, a := range t.answers {
			if a.fetch != nil && a.fetch.hop > 0 {
				c.redirect = &a.fetch.last
			}
		}
	}
}

// hasValidator reports whether a browser can revalidate an answer.
func hasValidator(a *answer) bool {
	_, resp := a.last()
	return a.isReadable() && resp != nil && resp.Status == http.StatusOK &&
		(resp.Header.Get("ETag") != "" || resp.Header.Get("Last-Modified") != "")
}

// calibrate chooses the control, and how caches are kept from answering: in the first way that does
// not change the answer to the control. The control is a page that works; if there is none, it is one
// that was answered.
func (c *cell) calibrate(ctx context.Context, pages []*trial) error {
	rank := func(t *trial) int {
		switch {
		case t.Kind != KindPage || len(t.answers) == 0 || t.answers[0].err != nil:
			return 0
		case t.origin == originOfURL(c.e.URL):
			return 1 // its requests are not CORS
		case !slices.ContainsFunc(t.answers, (*answer).isReadable):
			return 2
		case t.form == formOwn:
			return 3
		}
		return 4
	}
	var best *trial
	for _, t := range pages {
		if best == nil || rank(t) > rank(best) {
			best = t
		}
	}
	if best == nil || rank(best) == 0 {
		for _, t := range pages {
			if len(t.answers) > 0 && t.answers[0].err != nil {
				return fmt.Errorf("no page of the publisher is answered: %w", t.answers[0].err)
			}
		}
		return fmt.Errorf("no page of the publisher could be tested")
	}
	expected := best.answers[0]
	if i := slices.IndexFunc(best.answers, (*answer).isReadable); i >= 0 {
		expected = best.answers[i]
	}
	c.control = &trial{Trial: best.Trial, page: best.page,
		steps: []step{{claims: c.claim(c.own), cookies: c.e.Credentials, isFresh: true}}, answers: []*answer{expected}}
	var last *answer
	for c.width = width; c.width > 0; c.width-- { // perhaps the backend takes one request at a time
		for _, c.fresh = range []freshness{byParameter, bySpelling, byHeader} {
			if c.fresh == bySpelling && c.e.NoSourceOrigin {
				continue // there is nothing to spell
			}
			if last = c.sendControl(ctx, c.width); c.isAsAtFirst(last) {
				return nil
			}
			if isOverloaded(last.status()) {
				c.remember(last)
			}
		}
	}
	c.width = 1
	time.Sleep(pause)
	if last = c.sendControl(ctx, c.width); c.isAsAtFirst(last) {
		return nil
	}
	c.remember(last)
	return c.untested(last)
}

// sendControl sends copies of the control at once. It returns an answer that is not as at first, if there
// is one.
func (c *cell) sendControl(ctx context.Context, copies int) *answer {
	answers := make([]*answer, copies)
	var wait sync.WaitGroup
	for i := range answers {
		wait.Go(func() { answers[i] = c.send(ctx, c.control, c.control.steps[0]) })
	}
	wait.Wait()
	c.requests += copies
	if i := slices.IndexFunc(answers, func(a *answer) bool { return !c.isAsAtFirst(a) }); i >= 0 {
		return answers[i]
	}
	return answers[0]
}

// isAsAtFirst reports whether the control is answered as at first: with the same status, and readable
// or not as at first.
func (c *cell) isAsAtFirst(a *answer) bool {
	first := c.control.answers[0]
	return a.err == nil && a.status() == first.status() && a.isReadable() == first.isReadable()
}

// remember keeps what the answer to a control that failed says about other answers.
func (c *cell) remember(a *answer) {
	switch first := c.control.answers[0]; {
	case a.err != nil:
	case a.status() == first.status():
		c.differs = a
	default:
		c.limits = append(c.limits, a.status())
	}
}

// untested returns why nothing is known about trials after which the control failed.
func (c *cell) untested(last *answer) error {
	status := last.status()
	switch {
	case last.err != nil:
		return fmt.Errorf("the publisher's own request, which is repeated as a control, failed: %w", last.err)
	case isOverloaded(status):
		return errors.New(whyNoProof(status) + ": use a --rate below its limit")
	case status != c.control.answers[0].status():
		return fmt.Errorf("the publisher's own request, which is repeated as a control, is answered with status %d now, and was with %d",
			status, c.control.answers[0].status())
	}
	return fmt.Errorf("the publisher's own request, which is repeated as a control, is answered with other CORS headers each time")
}

// askGroup sends trials and then a control. If the control is not answered as at first, all are sent
// once more, after a pause and one after another. It returns why the trials prove nothing.
func (c *cell) askGroup(ctx context.Context, group []*trial) error {
	for again := range 2 {
		slots := make(chan struct{}, c.width)
		var wait sync.WaitGroup
		for _, t := range group {
			if c.denial == nil && t.id == AnyOriginAllowed { // the answer must be one from before checkDenial finds a ban
				c.ask(ctx, t)
				continue
			}
			slots <- struct{}{}
			wait.Go(func() {
				c.ask(ctx, t)
				<-slots
			})
		}
		wait.Wait()
		c.askFailed(ctx, group)
		last := c.sendControl(ctx, 1)
		if c.isAsAtFirst(last) {
			return c.checkDenial(ctx, group)
		}
		c.remember(last)
		if again == 1 || ctx.Err() != nil {
			return c.untested(last)
		}
		time.Sleep(pause)
		c.width = 1 // perhaps the backend takes one request at a time
		if last = c.sendControl(ctx, c.width); !c.isAsAtFirst(last) {
			return c.untested(last)
		}
	}
	return nil
}

// askFailed sends each trial again, alone, that got a server error while other requests ran: perhaps the backend
// takes one request at a time. If another website gets the same error, that is how the backend denies.
func (c *cell) askFailed(ctx context.Context, group []*trial) {
	if c.width == 1 {
		return
	}
	var denial int
	if t := cmp.Or(c.denial, anotherSite(group)); t != nil {
		denial = t.answers[0].status()
	}
	for _, t := range group {
		if before := t.answers[len(t.answers)-1].status(); before >= 500 && before != denial {
			if c.ask(ctx, t); t.answers[len(t.answers)-1].status() != before {
				c.width = 1
			}
		}
	}
}

// anotherSite returns the answered trial of another website in the group, or nil.
func anotherSite(group []*trial) *trial {
	i := slices.IndexFunc(group, func(t *trial) bool {
		return t.id == AnyOriginAllowed && len(t.answers) > 0 && t.answers[0].err == nil
	})
	if i < 0 {
		return nil
	}
	return group[i]
}

// checkDenial repeats the request of another website, which was the first that should be denied. If it is
// answered in another way than at first, the backend may have begun to deny everything that this
// program sends for other pages.
func (c *cell) checkDenial(ctx context.Context, group []*trial) error {
	if c.denial = cmp.Or(c.denial, anotherSite(group)); c.denial == nil {
		return nil
	}
	c.requests++
	now, first := c.send(ctx, c.denial, c.denial.steps[0]), c.denial.answers[0]
	if now.err != nil {
		return fmt.Errorf("the request of another website, which is repeated as a control, failed: %w", now.err)
	}
	if now.status() != first.status() || now.isReadable() != first.isReadable() {
		return fmt.Errorf("another website is answered with status %d now, and was with %d at first: perhaps the backend takes this program for an attacker", now.status(), first.status())
	}
	return nil
}
