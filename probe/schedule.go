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

// run sends the trials of the cell. First the subject's own, as they are and one after another,
// because a cache in front of the backend may keep one answer for the next page. Then the hostile
// pages, in groups, with a control before and after each group.
func (c *cell) run(ctx context.Context, done func(*trial)) {
	var own, compared, hostile []*trial
	for _, t := range c.trials {
		switch {
		case t.Outcome == NotTested:
			done(t)
		case t.Kind.IsHostile():
			hostile = append(hostile, t)
		case t.shape.isCompared:
			compared = append(compared, t)
		default:
			own = append(own, t)
		}
	}
	var failed []error
	for _, t := range own {
		if len(failed) == 2 {
			t.skip(failed[0].Error(), false) // the others would wait as long
		} else if c.ask(ctx, t); t.isAnswered() {
			failed = nil
		} else {
			failed = append(failed, t.turns[0].err)
		}
		done(t)
	}
	c.lookInFront(ctx, own)
	why := c.calibrate(ctx, own)
	if c.findRedirect(own); c.redirect == nil { // there is nothing to ask
		isMoot := func(t *trial) bool { return t.shape.toRedirect }
		c.trials, hostile = slices.DeleteFunc(c.trials, isMoot), slices.DeleteFunc(hostile, isMoot)
	}
	for _, t := range compared {
		if why != nil {
			t.skip(why.Error(), false)
		} else { // the control's page sends it
			t.page, t.Origin, t.Form = c.control.page, c.control.Origin, c.control.Form
			c.ask(ctx, t)
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
	if why != nil && c.sender != "" {
		for _, t := range own { // which were asked only once
			t.skip(why.Error(), false)
		}
	}
}

// controls returns how many controls a number of hostile trials needs.
func (c *cell) controls(hostile int) int {
	groups := (hostile + groupSize - 1) / groupSize
	switch {
	case hostile == 0:
		return 0
	case c.sender != "":
		return groups // without copies, and without another website that is denied
	}
	return width + 2*groups
}

// isForOther reports whether an answer allows this origin, which its request does not have.
func isForOther(a *answer, origin string) bool {
	r, resp := a.last()
	return resp != nil && r.origin != origin && resp.Header.Get("Access-Control-Allow-Origin") == origin
}

// findRedirect notes the request of the publisher's page after a redirect. To another origin, a browser sends
// Origin: null.
func (c *cell) findRedirect(own []*trial) {
	for _, t := range own {
		for _, a := range t.turns {
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
// that was answered. No cache is part of emails, whose first answer is the control.
func (c *cell) calibrate(ctx context.Context, own []*trial) error {
	rank := func(t *trial) int {
		switch {
		case t.Kind == KindNoOrigin || !t.isAnswered():
			return 0
		case t.origin == originOfURL(c.e.URL):
			return 1 // its requests are not CORS
		case !t.isEverReadable():
			return 2
		case t.form == formOwn:
			return 3
		}
		return 4
	}
	var best *trial
	for _, t := range own {
		if best == nil || rank(t) > rank(best) && c.sender == "" {
			best = t
		}
	}
	if best == nil || rank(best) == 0 {
		for _, t := range own {
			if len(t.turns) > 0 && t.turns[0].err != nil {
				return fmt.Errorf("no request of the %s is answered: %w", c.who(), t.turns[0].err)
			}
		}
		return fmt.Errorf("no request of the %s could be sent", c.who())
	}
	expected := best.turns[0]
	if i := slices.IndexFunc(best.turns, func(a turn) bool { return a.isReadable() }); i >= 0 {
		expected = best.turns[i]
	}
	c.control = &trial{Trial: best.Trial, asker: best.asker, turns: []turn{{told, best.turns[0].step, expected.answer}}}
	if c.sender != "" {
		c.width = 1
		return nil
	}
	c.control.turns[0].step = c.controlStep()
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
		wait.Go(func() { answers[i] = c.send(ctx, c.control, c.control.turns[0].step) })
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
	first := c.control.turns[0]
	return a.err == nil && a.status() == first.status() && a.isReadable() == first.isReadable()
}

// remember keeps what the answer to a control that failed says about other answers.
func (c *cell) remember(a *answer) {
	switch first := c.control.turns[0]; {
	case a.err != nil:
		return
	case a.status() == first.status():
		c.differs = a
		return
	case isOfAnotherList(a) && first.isReadable():
		c.differs = a
	}
	c.limits = append(c.limits, a.status())
}

// isOfAnotherList reports whether ampcors denied an Origin that it allowed before: several servers answer in turn,
// with different lists. Of any other denial, a limit of requests or a firewall may be the reason.
func isOfAnotherList(a *answer) bool {
	_, resp := a.last()
	return resp != nil && reasonOf(resp) != ""
}

// untested returns why nothing is known about trials after which the control failed.
func (c *cell) untested(last *answer) error {
	status := last.status()
	switch {
	case last.err == nil && c.differs != nil && status != c.control.turns[0].status():
		return fmt.Errorf("the backend answers the %s's own request, which is repeated as a control, now with status %d "+
			"and now with %d: first let all its servers have the same rules",
			c.who(), c.control.turns[0].status(), status)
	case last.err != nil:
		return fmt.Errorf("the %s's own request, which is repeated as a control, failed: %w", c.who(), last.err)
	case isOverloaded(status):
		return errors.New(whyNoProof(last))
	case status != c.control.turns[0].status():
		return fmt.Errorf("the %s's own request, which is repeated as a control, is answered with status %d now, and was "+
			"with %d: perhaps several servers answer in turn, or there is a limit of requests (use a --rate below it), or a "+
			"firewall",
			c.who(), status, c.control.turns[0].status())
	}
	return fmt.Errorf("the %s's own request, which is repeated as a control, is answered with other CORS headers each "+
		"time", c.who())
}

// askGroup sends trials and then a control. If the control is not answered as at first, all are sent
// once more, after a pause and one after another. It returns why the trials prove nothing.
func (c *cell) askGroup(ctx context.Context, group []*trial) error {
	for again := range 2 {
		slots := make(chan struct{}, c.width)
		var wait sync.WaitGroup
		for _, t := range group {
			if c.denial == nil && t.rule.id == AnyOriginAllowed { // the answer must be one from before checkDenial finds a ban
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
		denial = t.turns[0].status()
	}
	for _, t := range group {
		if before := t.last().status(); before >= 500 && before != denial {
			if c.ask(ctx, t); t.last().status() != before {
				c.width = 1
			}
		}
	}
}

// anotherSite returns the answered trial of another website in the group, or nil.
func anotherSite(group []*trial) *trial {
	i := slices.IndexFunc(group, func(t *trial) bool {
		return t.rule.id == AnyOriginAllowed && t.isAnswered()
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
	now, first := c.send(ctx, c.denial, c.denial.turns[0].step), c.denial.turns[0]
	if now.err != nil {
		return fmt.Errorf("the request of another website, which is repeated as a control, failed: %w", now.err)
	}
	if now.status() != first.status() || now.isReadable() != first.isReadable() {
		return fmt.Errorf("another website is answered with status %d now, and was with %d at first: perhaps the backend "+
			"takes this program for an attacker",
			now.status(), first.status())
	}
	return nil
}
