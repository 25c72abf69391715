package probe

import (
	"net/http"
	"slices"
)

// A Trial is one question to an endpoint: can a page at this origin call it? The plan of a probe is the list of its
// trials. It is made before any trial is sent, and each trial ends with exactly one [Outcome] (those at the target of
// a redirect are dropped if there is none), so that nothing can be counted as fine that was not looked at.
type Trial struct {
	Endpoint  string  `json:"endpoint"`
	Method    string  `json:"method"`
	Call      string  `json:"call"`                // how pages call it: see [Endpoint.Call]
	Publisher string  `json:"publisher,omitempty"` // whose pages must work; empty if Sender is set
	Sender    string  `json:"sender,omitempty"`    // whose emails must work
	Kind      Kind    `json:"kind"`
	What      string  `json:"what"`   // the page, in words
	Origin    string  `json:"origin"` // of the page; "" if there is none
	Form      string  `json:"form,omitempty"`
	Outcome   Outcome `json:"outcome"`
	Works     bool    `json:"works,omitempty"` // of KindPage and KindEmails: the answer is usable
	// any page can read the answer (Access-Control-Allow-Origin: * without credentials), so this is no problem
	IsPublic bool   `json:"isPublic,omitempty"`
	Causes   []ID   `json:"causes,omitempty"`   // of a problem: ids of findings
	Reason   string `json:"reason,omitempty"`   // why a browser blocks the request, or why it was not tested
	ByChoice bool   `json:"byChoice,omitempty"` // not tested, because the method needs Config.Unsafe or the answer does not matter
}

// Subject returns who must be able to call: the publisher's domain, or the sender's address.
func (t Trial) Subject() string { return t.Publisher + t.Sender }

// An Outcome is what is known about a trial.
type Outcome string

const (
	Fine      Outcome = "fine"       // pages work, others are denied, or the answer is public
	Problem   Outcome = "problem"    // Causes says which
	NotTested Outcome = "not tested" // Reason says why
)

// A Kind groups trials in reports. IsHostile says whether its pages must be denied.
type Kind string

const (
	KindPage       Kind = "pages"            // at an origin of the publisher
	KindNoOrigin   Kind = "no Origin"        // a program, or a browser that sends none
	KindCookies    Kind = "cookies"          // whether the answer depends on them
	KindRevalidate Kind = "revalidation"     // of an answer in the browser's cache
	KindUserAgent  Kind = "User-Agent"       // whether the answer depends on it
	KindBrowsers   Kind = "browsers"         // the publisher's page in browsers that send other headers
	KindTogether   Kind = "at one time"      // two of the publisher's pages, for one URL
	KindSites      Kind = "other sites"      //
	KindPublishers Kind = "other publishers" // on an AMP Cache
	KindTwins      Kind = "shared prefixes"
	KindLookalikes Kind = "look-alikes"
	KindHTTP       Kind = "http"
	KindNull       Kind = "null"
	KindClaims     Kind = "__amp_source_origin"
	KindSameOrigin Kind = "AMP-Same-Origin"
	KindReferer    Kind = "Referer"
	KindLocalhost  Kind = "localhost"
	KindFormer     Kind = "former caches"
	KindOwnHosts   Kind = "own hosts" // other hosts of the publisher, at which its pages do not run
	KindForged     Kind = "forged POSTs"
	KindEmails     Kind = "emails" // of the sender
	KindSenders    Kind = "other senders"
)

// Kinds returns the kinds of trials, in the order of reports.
func Kinds() []Kind {
	return []Kind{KindPage, KindNoOrigin, KindCookies, KindRevalidate, KindUserAgent, KindBrowsers, KindTogether,
		KindSites, KindPublishers, KindTwins, KindLookalikes, KindHTTP, KindNull,
		KindClaims, KindSameOrigin, KindReferer, KindLocalhost, KindFormer, KindOwnHosts, KindForged, KindEmails, KindSenders}
}

// IsHostile reports whether the pages of this kind must be denied.
func (k Kind) IsHostile() bool {
	switch k {
	case KindPage, KindNoOrigin, KindCookies, KindRevalidate, KindUserAgent, KindBrowsers, KindTogether, KindEmails:
		return false
	}
	return true
}

// IsEmail reports whether mail clients make the requests of this kind, and not browsers.
func (k Kind) IsEmail() bool { return k == KindEmails || k == KindSenders }

// A trial is a Trial with its requests and answers.
type trial struct {
	Trial
	asker
	rule   *rule   // which it can break
	turns  []turn  // what was sent, in order
	judged *answer // by which one of the publisher's pages is judged
	remark string  // of that
	blames []blame // one for each of Causes
}

// A turn is a request of a trial with its answer.
type turn struct {
	role
	step
	*answer
}

// got returns the answer to the request with a role, or nil if it was not sent.
func (t *trial) got(r role) *answer {
	if i := slices.IndexFunc(t.turns, func(a turn) bool { return a.role == r }); i >= 0 {
		return t.turns[i].answer
	}
	return nil
}

// isAnswered reports whether the first request was answered, with whatever status.
func (t *trial) isAnswered() bool { return len(t.turns) > 0 && t.turns[0].err == nil }

// An asker is who asks in a trial.
type asker struct {
	page
	what  string
	group Kind // if it is another one than the rule's
	shape shape
	// isAllowed is true if the page is one of the publisher's, although the trial is among hostile ones.
	isAllowed bool
}

// A subject is who must be able to call an endpoint: the pages of a publisher, or the emails of a sender.
type subject struct {
	publisher string // a domain; or
	sender    string // an address
}

// who returns what a subject is.
func (s subject) who() string {
	if s.sender != "" {
		return "sender"
	}
	return "publisher"
}

// A cell is the part of a plan that is about one endpoint and one subject. Its trials are sent with
// controls between them.
type cell struct {
	p *prober
	e *Endpoint
	subject
	own      string // the publisher's own origin
	pages    []page // of the publisher
	onCaches []page // of the publisher: pages without its own, also on caches that are not trusted
	// Domains like the publisher's, as the function lookalikes returns them.
	ofPatterns, ofFunctions []string
	trials                  []*trial

	front    *front // nil if not every page gets the same answer
	fresh    freshness
	control  *trial  // a page of the publisher, as it was answered at first
	limits   []int   // statuses of controls that failed
	differs  *answer // to a request that was answered with other CORS headers before
	requests int     // of controls
	width    int     // trials that are sent at once
	denial   *trial  // a page that is denied, as it was answered at first
	notes    []string
	tested   bool     // an answer to a page was judged
	isHidden bool     // what is wrong for the publisher's pages also keeps others from reading
	redirect *request // of the publisher's page, after a redirect
}

// plan returns the trials of an endpoint for a subject: of each rule, one for each of its askers.
func (p *prober) plan(e *Endpoint, who subject) (*cell, error) {
	c := &cell{p: p, e: e, subject: who, width: width}
	if who.publisher != "" {
		var err error
		if c.pages, err = pagesOf(who.publisher, p.cfg.Caches); err != nil {
			return nil, err
		}
		all, _ := pagesOf(who.publisher, p.hostileCaches()) // fails as the other
		c.onCaches = all[1:]
		c.own = "https://" + who.publisher
		c.ofPatterns, c.ofFunctions = lookalikes(who.publisher)
	}
	working := append(p.origins(), originOfURL(e.URL)) // the API's own page, or one of another publisher that must work
	for i := range rules {
		r := &rules[i]
		if r.askers == nil || r.group.IsEmail() != (who.sender != "") {
			continue
		}
		for _, from := range r.askers(c) {
			if from.group == "" {
				from.group = r.group
			}
			if from.group.IsHostile() && !from.group.IsEmail() && !from.isAllowed && slices.Contains(working, from.origin) {
				continue
			}
			t := &trial{rule: r, asker: from, Trial: Trial{Endpoint: e.URL, Method: e.Method, Call: e.Call(),
				Publisher: who.publisher, Sender: who.sender,
				Kind: from.group, What: from.what, Origin: from.origin, Form: string(from.form)}}
			// A preflight can be sent alone.
			isSentAlone := c.needsPreflight() && !from.shape.isDirect && from.origin != originOfURL(e.URL)
			if !p.maySend(e.Method) && !isSentAlone {
				t.skip("the method "+e.Method+" is only sent with --unsafe", true)
			}
			c.trials = append(c.trials, t)
		}
	}
	return c, nil
}

// trialsOf returns the trials of a kind that were sent.
func (c *cell) trialsOf(kind Kind) (of []*trial) {
	for _, t := range c.trials {
		if t.Kind == kind && t.Outcome != NotTested {
			of = append(of, t)
		}
	}
	return of
}

// skip gives a trial that is not sent its outcome.
func (t *trial) skip(reason string, byChoice bool) {
	t.Outcome, t.Reason, t.ByChoice = NotTested, reason, byChoice
}

// claim returns the values of __amp_source_origin that the runtime sends for a page of this origin.
func (c *cell) claim(origin string) []string {
	if c.e.NoSourceOrigin {
		return nil
	}
	return []string{origin}
}

// needsPreflight reports whether browsers send a preflight for a request of the publisher's pages.
func (c *cell) needsPreflight() bool { return c.e.NeedsPreflight() || len(c.p.cfg.PageHeader) > 0 }

// maySend reports whether the Config allows a method.
func (p *prober) maySend(method string) bool {
	return p.cfg.Unsafe || slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, method)
}

// estimate counts the trials, and the requests for a backend without mistakes: what the shapes cost, and the controls.
func (c *cell) estimate() (e Estimate) {
	hostile := 0
	for _, t := range c.trials {
		if t.shape.toRedirect { // perhaps there is none
			continue
		}
		if e.Trials++; t.Outcome == NotTested {
			continue
		}
		e.Requests += t.shape.cost
		if t.Kind.IsHostile() {
			hostile++
		}
	}
	e.Requests += c.controls(hostile)
	return e
}
