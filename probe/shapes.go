package probe

import (
	"context"
	"net/http"
	"sync"
)

// A shape is the requests of a trial: which are sent, and which only after the answer to another.
type shape struct {
	cost       int  // requests to a backend without mistakes, without preflights
	isDirect   bool // it has no preflight that could be sent alone
	isCompared bool // the page of the control sends it, and the answers are compared
	toRedirect bool // it asks the URL to which the publisher's page was redirected
	ask        func(ctx context.Context, t *trial, ask asking)
}

// An asking sends a request of a trial, and keeps the answer under its role.
type asking func(role, step) *answer

// A role is the purpose of a request in its trial.
type role int

const (
	told role = iota // a page with its claim

	// Of steady.
	fresh      // no cache can answer it
	repeated   // the first request again
	freshAgain // and the fresh request two more times
	freshLast

	// Of revalidating.
	stored
	revalidated

	// Of under.
	usual
	changed
	usualAgain
	changedAgain

	// Of forging and besideSameOrigin.
	publishers // the publisher's own request, or the one without the header
	forged
)

// A step is a request of a trial.
type step struct {
	mode        mode
	as          *page       // that sends it, if it is not the trial's
	claims      []string    // the values of __amp_source_origin
	header      http.Header // that the page adds
	contentType string      // in place of the endpoint's
	isSimple    bool        // without headers that need a preflight
	cookies     bool
	isFresh     bool    // no cache may answer it
	validates   *answer // which the browser has stored
	isProxied   bool    // a mail client sends it, and not a browser
	toRedirect  bool    // to the URL to which the publisher's page was redirected
}

// noType is a step's contentType for none.
const noType = "none"

type mode int

const (
	asPage     mode = iota // as a browser sends it for a page: with a preflight, if it needs one
	preflights             // the preflight alone
	direct                 // without a preflight
	asForm                 // a POST that a form of any page can send, without a preflight
)

// ask sends the requests of a trial.
func (c *cell) ask(ctx context.Context, t *trial) {
	t.turns = nil
	t.shape.ask(ctx, t, func(r role, s step) *answer {
		a := c.send(ctx, t, s)
		t.turns = append(t.turns, turn{r, s, a})
		return a
	})
}

// usualStep is the request that the runtime makes for the publisher's pages.
func (c *cell) usualStep() step {
	return step{claims: c.claim(c.own), cookies: c.e.Credentials}
}

// controlStep is the same, and no cache may answer it.
func (c *cell) controlStep() step {
	s := c.usualStep()
	s.isFresh = true
	return s
}

// once is one request.
func once(s step) shape {
	return shape{cost: 1, isDirect: s.mode == direct, ask: func(_ context.Context, _ *trial, ask asking) { ask(told, s) }}
}

// steady is a page of the publisher. If it is denied, more requests show whether a cache has answered, or whether
// the answers change.
func (c *cell) steady() shape {
	s, unstored := c.usualStep(), c.controlStep()
	return shape{cost: 1, ask: func(_ context.Context, _ *trial, ask asking) {
		if first := ask(told, s); first.err != nil || first.isReadable() || !ask(fresh, unstored).isReadable() {
			return
		}
		if again := ask(repeated, s); again.err == nil && !again.isReadable() && ask(freshAgain, unstored).err == nil {
			ask(freshLast, unstored)
		}
	}}
}

// A telling is one of the claims that a page makes, one after another.
type telling struct {
	when
	claims []string
}

// A when is a condition of the answer before.
type when int

const (
	always when = iota
	ifAllowed
	ifDenied
)

// tells is a page that makes these claims, with the reader's cookies: an answer without them is not secret, because
// any program can read it.
func (c *cell) tells(tellings ...telling) shape {
	return c.tellsWith(step{}, true, tellings...)
}

// tellsWith is tells with more in each request. If the page's own request needs a preflight, alsoSimple repeats the
// first without what needs one, which a page may leave out.
func (c *cell) tellsWith(s step, alsoSimple bool, tellings ...telling) shape {
	s.cookies, s.isFresh = true, true
	alsoSimple = alsoSimple && isSafelistedMethod(c.e.Method) && c.p.maySend(c.e.Method) && c.needsPreflight()
	sh := shape{toRedirect: s.toRedirect, ask: func(_ context.Context, _ *trial, ask asking) {
		var before *answer
		for _, tell := range tellings {
			if tell.when == always || before.isReadable() == (tell.when == ifAllowed) { // the first is always sent
				s := s
				s.claims = tell.claims
				if before = ask(told, s); before.err != nil {
					return
				}
			}
		}
		if alsoSimple {
			s := s
			s.claims, s.isSimple = tellings[0].claims, true
			ask(told, s)
		}
	}}
	for _, tell := range tellings {
		if tell.when != ifAllowed {
			sh.cost++
		}
	}
	if alsoSimple {
		sh.cost++
	}
	return sh
}

// revalidating is the publisher's page, and again with the validator of the answer that its browser has stored.
func (c *cell) revalidating() shape {
	return shape{cost: 1, isCompared: true, ask: func(_ context.Context, _ *trial, ask asking) {
		if before := ask(stored, c.controlStep()); hasValidator(before) {
			s := c.controlStep()
			s.validates = before
			ask(revalidated, s)
		}
	}}
}

// under is the publisher's page in a browser that sends other headers. If its answer differs from the
// control's, or is one that the component cannot use, the control and the request are repeated: what is
// not wrong both times may be chance.
func (c *cell) under(header http.Header) shape {
	return shape{cost: 1, isCompared: true, ask: func(_ context.Context, _ *trial, ask asking) {
		s := c.controlStep()
		s.header = header
		a := ask(changed, s)
		if a.err != nil || c.isAsAtFirst(a) && c.flawOf(a) == c.flawOf(c.control.turns[0].answer) {
			return
		}
		if ask(usual, c.controlStep()).err == nil {
			ask(changedAgain, s)
		}
	}}
}

// withAndWithoutCookies is the publisher's page in turn with the reader's cookies and without them.
func (c *cell) withAndWithoutCookies() shape {
	return shape{cost: 4, isCompared: true, ask: func(_ context.Context, _ *trial, ask asking) {
		for i, r := range []role{usual, changed, usualAgain, changedAgain} {
			s := c.controlStep()
			s.cookies = i%2 == 0
			if ask(r, s).err != nil {
				return
			}
		}
	}}
}

// forging is the publisher's own request, and then one that any page can make a browser send. Only the comparison shows
// whether the handler ran.
func (c *cell) forging(s step) shape {
	s.cookies, s.isFresh = true, true
	return shape{cost: 2, isDirect: true, ask: func(_ context.Context, _ *trial, ask asking) {
		own := step{as: &c.control.page, claims: c.claim(c.own), mode: direct, cookies: true, isFresh: true}
		if ask(publishers, own).err == nil {
			ask(forged, s)
		}
	}}
}

// besideSameOrigin is a request of another site with AMP-Same-Origin, and then without it.
func (c *cell) besideSameOrigin() shape {
	without := step{claims: c.claim(evil), mode: direct, cookies: true, isFresh: true}
	with := without
	with.header = sameOrigin(c)
	return shape{cost: 2, isDirect: true, ask: func(_ context.Context, _ *trial, ask asking) {
		if ask(told, with).err == nil {
			ask(publishers, without)
		}
	}}
}

// asOurselves is the publisher's page, in a browser that is this program.
func (c *cell) asOurselves() shape {
	s := c.controlStep()
	s.header = http.Header{"User-Agent": {userAgent}}
	sh := once(s)
	sh.isCompared = true
	return sh
}

// atOneTime is two pages of the publisher that ask for one URL at the same time, and once more with a new URL; a
// third time if a page got the other's answer in one of them.
func (c *cell) atOneTime() shape {
	return shape{cost: 4, isCompared: true, ask: func(ctx context.Context, t *trial, _ asking) {
		two := c.twoThatWork()
		switch {
		case len(two) < 2:
			t.skip("fewer than two of the publisher's pages work", true)
			return
		case c.width < 2:
			t.skip("the backend takes one request at a time", true)
			return
		}
		for round, swapped := 0, 0; round < 2 || round == 2 && swapped == 1; round++ {
			s := c.controlStep()
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
			t.turns = append(t.turns, turn{told, s, answers[0]}, turn{told, s, answers[1]})
			if isForOther(answers[0], other.origin) || isForOther(answers[1], r.origin) {
				swapped++
			}
		}
	}}
}

// twoThatWork returns two pages of the publisher that work, its own only as the last resort.
func (c *cell) twoThatWork() (two []*trial) {
	pages := c.trialsOf(KindPage)
	for i := len(pages) - 1; i >= 0 && len(two) < 2; i-- {
		if pg := pages[i]; pg.origin != originOfURL(c.e.URL) && pg.isEverReadable() {
			two = append(two, pg)
		}
	}
	return two
}
