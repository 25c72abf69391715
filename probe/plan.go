package probe

import (
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/ampcors/ampcors/cacheurl"
)

// A Trial is one question to an endpoint: can a page at this origin call it? The plan of a probe is
// the list of its trials. It is made before anything is sent, and each trial ends with exactly one
// [Outcome], so that nothing can be counted as fine that was not looked at.
type Trial struct {
	Endpoint  string  `json:"endpoint"`
	Method    string  `json:"method"`
	Publisher string  `json:"publisher"`
	Kind      Kind    `json:"kind"`
	What      string  `json:"what"`   // the page, in words
	Origin    string  `json:"origin"` // of the page; "" if there is none
	Form      string  `json:"form,omitempty"`
	Outcome   Outcome `json:"outcome"`
	Works     bool    `json:"works,omitempty"`    // a browser gives the page a usable answer
	IsPublic  bool    `json:"isPublic,omitempty"` // a hostile page can read the answer, which every page can: * without credentials
	Causes    []ID    `json:"causes,omitempty"`   // of a problem: ids of findings
	Reason    string  `json:"reason,omitempty"`   // why a browser blocks the request, or why it was not tested
	ByChoice  bool    `json:"byChoice,omitempty"` // not tested, because the Config does not allow it
}

// An Outcome is what is known about a trial.
type Outcome string

const (
	Fine      Outcome = "fine"       // pages work, others are denied, or the answer is public
	Problem   Outcome = "problem"    // Causes says which
	NotTested Outcome = "not tested" // Reason says why
)

// A Kind is what the pages of some trials have in common. The first seven are kinds of the
// publisher's own pages; the pages of all others must be denied.
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
	KindOwnHosts   Kind = "own hosts" // of the publisher, which are not its pages
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

// A trial is a Trial with its requests and answers.
type trial struct {
	Trial
	page
	id      ID // of the finding, if a hostile page is allowed, or an email is not
	steps   []step
	sent    []step    // those whose conditions were met
	answers []*answer // to them
	because *answer   // shows the outcome
	remark  string    // what the answer alone does not show
}

// A step is a request of a trial.
type step struct {
	when        condition // of the answer before; if it is not met, the step is left out
	mode        mode
	claims      []string    // the values of __amp_source_origin
	header      http.Header // that the page adds
	contentType string      // in place of the endpoint's
	isSimple    bool        // without headers that need a preflight
	cookies     bool
	isFresh     bool // no cache may answer it
	revalidates bool // with the validator of the answer before
	isControl   bool // from the page that is the control
	isProxied   bool // a mail client sends it, and not a browser
	toRedirect  bool // to the URL to which the publisher's page was redirected
}

// noType is a step's contentType for none.
const noType = "none"

type condition int

const (
	always condition = iota
	ifAllowed
	ifDenied
	ifRecovered // it was allowed, after one that was denied
	ifCached    // the third step was denied, and the second was not
	ifUnlike    // the first step was not answered as the control, or with what its component cannot use
)

type mode int

const (
	asPage     mode = iota // as a browser sends it for a page: with a preflight, if it needs one
	preflights             // the preflight alone
	direct                 // without a preflight
	asForm                 // a POST that a form of any page can send, without a preflight
)

// A cell is the part of a plan that is about one endpoint and one publisher. Its trials are sent with
// controls between them.
type cell struct {
	p         *prober
	e         *Endpoint
	publisher string // or the sender, if the trials are about emails
	isEmail   bool
	own       string // the publisher's own origin
	trials    []*trial

	fresh    freshness
	control  *trial  // a page of the publisher, as it was answered at first
	limits   []int   // statuses of controls that failed
	differs  *answer // to a request that was answered with other CORS headers before
	requests int     // of controls
	width    int     // trials that are sent at once
	denial   *trial  // a page that is denied, as it was answered at first
	notes    []string
	tested   bool     // an answer to a page was judged
	redirect *request // of the publisher's page, after a redirect
}

// plan returns the trials of an endpoint for the pages of a publisher.
func (p *prober) plan(e *Endpoint, publisher string) (*cell, error) {
	pages, err := pagesOf(publisher, p.cfg.Caches)
	if err != nil {
		return nil, err
	}
	c := &cell{p: p, e: e, publisher: publisher, own: "https://" + publisher, width: width}
	claims := c.claim(c.own)
	if e.Method == http.MethodGet {
		// A cache in front of the backend may keep this answer. If pages then get it,
		// that is a finding.
		c.add(KindNoOrigin, "a program that sends no Origin", page{}, "", step{claims: claims, cookies: e.Credentials})
	}
	for _, pg := range pages {
		if pg.isAmbiguous {
			continue // below
		}
		c.add(KindPage, c.pageName(pg), pg, "",
			step{claims: claims, cookies: e.Credentials},
			step{when: ifDenied, claims: claims, cookies: e.Credentials, isFresh: true},
			step{when: ifRecovered, claims: claims, cookies: e.Credentials},
			step{when: ifCached, claims: claims, cookies: e.Credentials, isFresh: true},
			step{when: ifCached, claims: claims, cookies: e.Credentials, isFresh: true})
	}
	control := step{claims: claims, cookies: e.Credentials, isFresh: true, isControl: true}
	if e.Method == http.MethodGet {
		again := control
		again.revalidates = true
		c.add(KindRevalidate, "the publisher's page, which revalidates its answer", pages[0], "", control, again)
		withOurName := control
		withOurName.header = http.Header{"User-Agent": {userAgent}}
		c.add(KindUserAgent, "the publisher's page, as "+userAgent, pages[0], "", withOurName)
		for _, browser := range browsers {
			if _, isOwn := p.cfg.Header["User-Agent"]; isOwn && browser.header["User-Agent"] != nil {
				continue // the user's own is perhaps needed to be let in
			}
			other, after := control, control
			other.header, after.when = browser.header, ifUnlike
			again := other
			again.when = ifUnlike
			c.add(KindBrowsers, browser.what, pages[0], "", other, after, again)
		}
		c.add(KindTogether, "two pages of the publisher, for one URL at the same time", pages[0], "", control, control, control, control)
	}
	if isSent := p.client.trusted[originOfURL(e.URL)]; e.Credentials && p.cfg.Cookie != "" && isSent && e.Method == http.MethodGet {
		with, without := step{claims: claims, cookies: true, isFresh: true, isControl: true}, step{claims: claims, isFresh: true, isControl: true}
		c.add(KindCookies, "the publisher's page with and without cookies", pages[0], "", with, without, with, without)
	}
	c.planHostile(pages)
	c.skipUnsafe()
	return c, nil
}

// browsers are those in which pages must work as well, by the headers that they send. (nil removes one.)
var browsers = []struct {
	what   string
	header http.Header
}{
	{"the publisher's page on a phone in German, by User-Agent or Accept-Language", http.Header{"User-Agent": {phoneAgent},
		"Accept-Language": {"de-DE,de;q=0.9,en-US;q=0.8,en;q=0.7"}}},
	{"the publisher's page on an iPhone, by User-Agent", http.Header{"User-Agent": {iPhoneAgent}}},
	{"the publisher's page without Referer, which some browsers and pages do not send", http.Header{"Referer": nil}},
	{"the publisher's page without Sec-Fetch-Site, which older browsers do not send", http.Header{"Sec-Fetch-Site": nil}},
}

// skipUnsafe skips the trials that the Config does not allow.
func (c *cell) skipUnsafe() {
	for _, t := range c.trials {
		isSentAlone := !c.isEmail && c.needsPreflight() && t.steps[0].mode != direct && t.Kind != KindForged && t.origin != originOfURL(c.e.URL) // its preflight
		if !c.p.maySend(c.e.Method) && !isSentAlone {
			t.skip("the method "+c.e.Method+" is only sent with --unsafe", true)
		}
	}
}

// add adds a trial to the plan.
func (c *cell) add(kind Kind, what string, pg page, id ID, steps ...step) {
	c.trials = append(c.trials, &trial{
		Trial: Trial{Endpoint: c.e.URL, Method: c.e.Method, Publisher: c.publisher, Kind: kind, What: what, Origin: pg.origin,
			Form: string(pg.form)},
		page: pg, id: id, steps: steps,
	})
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

func (c *cell) pageName(pg page) string {
	if pg.form == formOwn {
		return "the publisher's own page"
	}
	return "the publisher's page on the cache " + pg.cache + ", " + string(pg.form)
}

// evil is a site that no backend allows on purpose.
const (
	evilHost = "ampcors-probe.example"
	evil     = "https://" + evilHost
)

// formerCache is the domain of an AMP Cache that is no longer in the registry.
const formerCache = "amp.cloudflare.com"

// planHostile adds the pages that must be denied. Each makes its requests with the reader's cookies:
// an answer without them is not secret, because any program can read it.
func (c *cell) planHostile(pages []page) {
	target, working := originOfURL(c.e.URL), c.p.origins()
	hostile := func(kind Kind, id ID, what, origin string, steps ...step) {
		if origin == target || slices.Contains(working, origin) {
			return // the API's own page, or that of another publisher that must work
		}
		// The prefix of a look-alike is compared alike with and without a preflight.
		if isSimple := isSafelistedMethod(c.e.Method) && c.p.maySend(c.e.Method); isSimple && c.needsPreflight() &&
			steps[0].mode == asPage && steps[0].header == nil && (kind != KindLookalikes || id == LookalikeAllowed) {
			first := steps[0] // the page may leave out what needs a preflight
			first.isSimple = true
			steps = append(steps, first)
		}
		for i := range steps {
			steps[i].cookies, steps[i].isFresh = true, true
		}
		c.add(kind, what, page{origin: origin}, id, steps...)
	}
	own, foreign := c.claim(c.own), c.claim(evil)
	// Most mistakes are about the origin. The page claims to be of the publisher, as a backend may
	// want that as well. If it is allowed, a claim of another site shows what the backend compares.
	once := func(kind Kind, id ID, what, origin string) {
		hostile(kind, id, what, origin, step{claims: own}, step{when: ifAllowed, claims: foreign})
	}
	plain := func(kind Kind, id ID, what, origin string) {
		steps := []step{{claims: own}, {when: ifAllowed, claims: foreign}}
		if !c.e.NoSourceOrigin && kind != KindNull {
			steps = append(steps, step{when: ifDenied, claims: c.claim(origin)}) // it claims to be itself
		}
		if kind == KindNull || origin == c.own+"."+evilHost {
			steps = append(steps, step{when: ifDenied})
		}
		hostile(kind, id, what, origin, steps...)
	}
	claiming := func(kind Kind, id ID, what, origin string, claims ...string) { // what the pages of the runtime never claim
		if !c.e.NoSourceOrigin {
			hostile(kind, id, what, origin, step{claims: claims})
		}
	}
	prefix, _ := cacheurl.DomainPrefix(evilHost) // it is a constant
	hash, _ := cacheurl.HashPrefix(evilHost)
	hostile(KindSites, AnyOriginAllowed, "another website", evil, step{claims: foreign}, step{when: ifAllowed, claims: own})
	claiming(KindSites, NoClaimAllowed, "another website, without __amp_source_origin", evil)
	for i, cache := range c.p.cfg.Caches {
		readable := "https://" + prefix + "." + cache.CacheDomain
		hostile(KindPublishers, AnyPublisherAllowed, "another publisher on the cache "+cache.ID, readable, step{claims: foreign})
		hostile(KindPublishers, AnyPublisherAllowed, "another publisher on the cache "+cache.ID+", hash prefix",
			"https://"+hash+"."+cache.CacheDomain, step{claims: foreign})
		claiming(KindPublishers, NoClaimAllowed, "another publisher on the cache "+cache.ID+", without __amp_source_origin", readable)
		if i == 0 {
			claiming(KindClaims, SourceOriginTrusted, "another publisher's page on a cache, which claims its cache origin", readable, readable)
		}
	}
	claiming(KindClaims, NoClaimAllowed, "another website, with an empty __amp_source_origin", evil, "")
	for i, origin := range []string{evil, "https://" + prefix + "." + c.p.cfg.Caches[0].CacheDomain} {
		all := [][]string{{c.own}, {evil + "/" + c.own}, {c.own + "." + evilHost}, {evil, c.own}, {c.own, evil}}
		if i == 0 {
			all = append(all, []string{c.own + "@" + evilHost}, []string{evil + "/?" + c.own}, []string{evil + "#" + c.own})
		}
		for _, claims := range all {
			hostile(KindClaims, SourceOriginTrusted, "another site's page, which claims "+strings.Join(claims, " and then "), origin,
				step{claims: claims})
		}
	}
	for _, pg := range pages {
		if pg.isAmbiguous {
			once(KindTwins, TwinAllowed, "another publisher with the same prefix on the cache "+pg.cache, pg.origin)
		}
	}
	c.planLookalikes(pages, plain, once, hostile)
	plain(KindHTTP, HTTPAllowed, c.pageName(pages[0])+", over http", "http://"+c.publisher)
	isOnlyHash := len(pages) == len(c.p.cfg.Caches)+1
	for _, pg := range pages[1:] {
		if pg.form == formHash && !isOnlyHash {
			continue // what takes http for one form takes it for all
		}
		once(KindHTTP, HTTPAllowed, c.pageName(pg)+", over http", "http://"+strings.TrimPrefix(pg.origin, "https://"))
	}
	if registrable := site(c.publisher); registrable != c.publisher {
		once(KindHTTP, HTTPAllowed, "the publisher's domain, over http", "http://"+registrable)
	}
	plain(KindNull, NullAllowed, "a sandboxed frame of any website", "null")
	hostile(KindNull, NullAllowed, "a sandboxed frame of any website, at the URL to which the page's request is redirected", "null",
		step{toRedirect: true})
	hostile(KindSites, AnyOriginAllowed, "another website, at the URL to which the page's request is redirected", evil,
		step{toRedirect: true})
	hostile(KindSameOrigin, SameOriginHeaderTrusted, "another website, which sends AMP-Same-Origin", evil,
		step{claims: foreign, header: sameOrigin})
	c.add(KindSameOrigin, "the publisher's page on a cache, which asks to send AMP-Same-Origin", page{origin: pages[1].origin},
		SameOriginGranted,
		step{claims: own, cookies: c.e.Credentials, isFresh: true, header: sameOrigin, mode: preflights})
	hostile(KindSameOrigin, SameOriginHeaderPreferred, "a program with another site's Origin and AMP-Same-Origin", evil,
		step{claims: foreign, header: sameOrigin, mode: direct}, step{claims: foreign, mode: direct})
	hostile(KindReferer, RefererTrusted, "another website, with the publisher in its Referer", evil,
		step{claims: foreign, header: http.Header{"Referer": {evil + "/?" + pages[1].origin + "/&" + c.own + "/"}}})
	hostile(KindReferer, NoRefererAllowed, "another website, without a Referer", evil,
		step{claims: foreign, header: http.Header{"Referer": nil}})
	for _, origin := range []string{"http://localhost", "https://localhost", "http://localhost:3000", "http://localhost:5173", "http://localhost:8000",
		"http://localhost:8080", "http://127.0.0.1:8000", "http://192.168.0.10", "http://10.0.0.10:3000",
		"chrome-extension://" + strings.Repeat("abcdefghijklmnop", 2)} {
		once(KindLocalhost, LocalhostAllowed, "a program or an extension on the reader's machine or network", origin)
	}
	for _, host := range []string{labelOf(pages[1].origin) + "." + formerCache, c.publisher + "." + formerCache, formerCache} {
		once(KindFormer, DeadCacheAllowed, "a page at the domain of a former AMP Cache", "https://"+host)
	}
	below := ownHostAllowed
	if suffix, _ := publicsuffix.PublicSuffix(c.publisher); suffix == c.publisher {
		below = LookalikeAllowed // anybody can register it
	}
	once(KindOwnHosts, below, "another host below the publisher", "https://ampcors-probe."+c.publisher)
	for _, pg := range pages {
		if pg.form != formHash || isOnlyHash {
			once(KindOwnHosts, PortAllowed, "another port of the same host", pg.origin+":8443")
		}
	}
	if c.e.Method == http.MethodPost && c.e.Credentials {
		// Only a comparison with the publisher's own request shows whether the handler ran.
		forged := func(what, origin string, s step) {
			hostile(KindForged, UnsafeReachesHandler, what, origin, step{isControl: true, claims: own, mode: direct}, s)
		}
		forged("a form of another website, with the publisher's claim", evil, step{claims: own, mode: asForm})
		for _, cache := range c.p.cfg.Caches {
			forged("a form of another publisher's page on the cache "+cache.ID+", with the publisher's claim",
				"https://"+prefix+"."+cache.CacheDomain,
				step{claims: own, mode: asForm})
		}
		for _, kind := range []string{typeText, typeURLEncoded, typeMultipart} {
			if !(kind == typeText && c.e.NeedsPreflight()) { // which the form was
				s := step{claims: own, mode: asForm, contentType: kind}
				if kind == typeText {
					s.header = http.Header{"Sec-Fetch-Mode": {"no-cors"}} // as navigator.sendBeacon
				}
				forged("a script of another website, as "+kind, evil, s)
			}
		}
		if !c.e.NoSourceOrigin {
			forged("a form of another website, without a claim", evil, step{mode: asForm})
		}
		forged("a form of another website, in a browser that sends no Sec-Fetch-Site", evil,
			step{claims: own, mode: asForm, header: http.Header{"Sec-Fetch-Site": nil}})
		forged("a form of a sandboxed frame, with the publisher's claim", "null", step{claims: own, mode: asForm})
		for _, origin := range []string{c.own + "." + evilHost, "https://evil" + site(c.publisher), "http://" + c.publisher} {
			forged("a form of a page at "+origin+", with the publisher's claim", origin, step{claims: own, mode: asForm})
		}
		if c.e.NeedsPreflight() {
			forged("a script of another website", evil, step{claims: own})
			forged("a script of another website, with a Content-Type that has the right one", evil,
				step{claims: own, mode: asForm, contentType: "text/plain; " + c.e.ContentType})
			forged("a script of another website, without a Content-Type", evil, step{claims: own, mode: asForm, contentType: noType})
		}
	}
}

var sameOrigin = http.Header{"Amp-Same-Origin": {"true"}}

// planLookalikes adds origins that wrong comparisons take for an allowed one. A host that only the
// publisher or a cache can have is none of them.
func (c *cell) planLookalikes(pages []page, plain, once func(kind Kind, id ID, what, origin string),
	hostile func(kind Kind, id ID, what, origin string, steps ...step)) {
	ownPrefix := labelOf(pages[1].origin)
	ofPatterns, ofFunctions := lookalikes(c.publisher)
	for i, domain := range slices.Concat(ofPatterns, ofFunctions) {
		plain(KindLookalikes, LookalikeAllowed, "a look-alike of "+c.publisher, "https://"+domain)
		prefix, err := cacheurl.DomainPrefix(domain)
		if err != nil || !strings.Contains(prefix, "-") {
			continue
		}
		id, what := PrefixLookalikeAllowed, "the publisher "+domain
		if strings.ReplaceAll(prefix, "--", "-") == strings.NewReplacer(".", "-", "--", "-").Replace(c.publisher) {
			id, what = NaivePrefixAllowed, what+", whose prefix is "+prefix // wrong decoding gives the publisher
		}
		for j, cache := range c.p.cfg.Caches {
			what, origin := what+", on the cache "+cache.ID, "https://"+prefix+"."+cache.CacheDomain
			if j == 0 {
				hostile(KindLookalikes, id, what, origin, step{claims: c.claim("https://" + domain)}, step{when: ifDenied, claims: c.claim(c.own)})
			} else if i < len(ofPatterns) { // claims are compared alike on each cache, and functions are used alike
				once(KindLookalikes, id, what, origin)
			}
		}
	}
	once(KindLookalikes, LookalikeAllowed, "a look-alike of "+c.publisher, c.own+"_."+evilHost) // no domain, but browsers take it
	for _, origin := range []string{"https://ampcors-probe-google.com", "https://www.google.evilprobe.example", "http://localhost." + evilHost,
		"http://192.168.0.10." + evilHost} {
		once(KindLookalikes, LookalikeAllowed, "a look-alike of a host that others allow", origin)
	}
	for _, service := range []string{"vercel.app", "netlify.app", "pages.dev"} { // patterns for previews allow them
		once(KindSites, HostingAllowed, "a website of another customer of a hosting service", "https://ampcors-probe."+service)
	}
	i := slices.IndexFunc(pages, func(pg page) bool { return pg.form == formHash })
	once(KindLookalikes, LookalikeAllowed, "a look-alike of the hash prefix on the cache "+pages[i].cache, pages[i].origin+"."+evilHost)
	for _, cache := range c.p.cfg.Caches {
		hosts := []string{ownPrefix + "evil" + cache.CacheDomain} // no dot before the domain
		for _, domain := range slices.Concat(behind(cache.CacheDomain), replaceEach(cache.CacheDomain, '.', "x")) {
			hosts = append(hosts, ownPrefix+"."+domain)
		}
		if suffix := cache.ThirdPartyFrameDomainSuffix; suffix != "" {
			once(KindPublishers, AdFrameAllowed, "an ad's frame of the cache "+cache.ID, "https://d-1234567890."+suffix)
		}
		for _, host := range hosts {
			id, what := LookalikeAllowed, "a look-alike of "+cache.CacheDomain
			if site(host) == site(cache.CacheDomain) {
				id, what = CacheLookalikeAllowed, "a host that only the cache "+cache.ID+" can have"
			}
			once(KindLookalikes, id, what, "https://"+host)
		}
	}
}

// labelOf returns the first label of an origin's host.
func labelOf(origin string) string {
	label, _, _ := strings.Cut(strings.TrimPrefix(origin, "https://"), ".")
	return label
}

// needsPreflight reports whether browsers send a preflight for a request of the publisher's pages.
func (c *cell) needsPreflight() bool { return c.e.NeedsPreflight() || len(c.p.cfg.PageHeader) > 0 }

// maySend reports whether the Config allows a method.
func (p *prober) maySend(method string) bool {
	return p.cfg.Unsafe || slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, method)
}
