package probe

import (
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/ampcors/ampcors/cacheurl"
)

// This file says who asks in the trials of each rule.

// withoutOrigin is first: a cache in front of the backend may keep this answer. If pages then get it, that is a
// finding.
func (c *cell) withoutOrigin() []asker {
	if c.e.Method != http.MethodGet {
		return nil
	}
	return []asker{{what: "a program that sends no Origin", shape: once(c.usualStep())}}
}

func (c *cell) ownPages() (all []asker) {
	for _, pg := range c.pages {
		if !pg.isAmbiguous { // which is a twin
			all = append(all, asker{page: pg, what: pageName(pg), shape: c.steady()})
		}
	}
	return all
}

func pageName(pg page) string {
	if pg.form == formOwn {
		return "the publisher's own page"
	}
	return "the publisher's page on the cache " + pg.cache + ", " + string(pg.form)
}

// ownPage is the publisher's page in other circumstances. They are only tried with GET: a POST would change data again.
func ownPage(what string, s func(*cell) shape) func(*cell) []asker {
	return func(c *cell) []asker {
		if c.e.Method != http.MethodGet {
			return nil
		}
		return []asker{{page: c.pages[0], what: what, shape: s(c)}}
	}
}

func (c *cell) otherBrowsers() (all []asker) {
	for _, browser := range []struct {
		what   string
		header http.Header // nil removes one
	}{
		{"the publisher's page on a phone with German (User-Agent and Accept-Language)",
			http.Header{"User-Agent": {phoneAgent},
				"Accept-Language": {"de-DE,de;q=0.9,en-US;q=0.8,en;q=0.7"}}},
		{"the publisher's page on an iPhone, by User-Agent", http.Header{"User-Agent": {iPhoneAgent}}},
		{"the publisher's page without Referer, which some browsers and pages do not send", http.Header{"Referer": nil}},
		{"the publisher's page without Sec-Fetch-Site, which older browsers do not send", http.Header{"Sec-Fetch-Site": nil}},
	} {
		if _, isOwn := c.p.cfg.Header["User-Agent"]; isOwn && browser.header["User-Agent"] != nil {
			continue // the user's own is perhaps needed to be let in
		}
		all = append(all, ownPage(browser.what, func(c *cell) shape { return c.under(browser.header) })(c)...)
	}
	return all
}

func (c *cell) readersWithAndWithoutCookies() []asker {
	if isSent := c.p.client.trusted[originOfURL(c.e.URL)]; !c.e.Credentials || c.p.cfg.Cookie == "" || !isSent {
		return nil
	}
	return ownPage("the publisher's page with and without cookies", (*cell).withAndWithoutCookies)(c)
}

// evil is a site that no backend allows on purpose.
const (
	evilHost = "ampcors-probe.example"
	evil     = "https://" + evilHost
)

// formerCache is the domain of an AMP Cache that is no longer in the registry.
const formerCache = "amp.cloudflare.com"

// evilOn returns the origin of the evil site's page on a cache.
func evilOn(cache cacheurl.Cache) string {
	prefix, _ := cacheurl.DomainPrefix(evilHost) // it is a constant
	return "https://" + prefix + "." + cache.CacheDomain
}

// at is a page at an origin that makes these claims, once.
func (c *cell) at(what, origin string, claims ...string) asker {
	return asker{page: page{origin: origin}, what: what, shape: c.tells(telling{claims: claims})}
}

// claiming is a page that claims to be the publisher's, as a backend may want that as well as its origin. If it is
// allowed, a claim of another site shows what the backend compares.
func (c *cell) claiming(what, origin string) asker {
	return asker{page: page{origin: origin}, what: what, shape: c.tells(c.ownThenEvil()...)}
}

// each is claiming at each of some origins.
func each(what string, origins ...string) func(*cell) []asker {
	return func(c *cell) (all []asker) {
		for _, origin := range origins {
			all = append(all, c.claiming(what, origin))
		}
		return all
	}
}

func (c *cell) ownThenEvil() []telling {
	return []telling{{claims: c.claim(c.own)}, {ifAllowed, c.claim(evil)}}
}

// claimingMore is a page that, if it is denied, also claims to be itself, or nothing.
func (c *cell) claimingMore(what, origin string) asker {
	tellings := c.ownThenEvil()
	if !c.e.NoSourceOrigin && origin != "null" {
		tellings = append(tellings, telling{ifDenied, c.claim(origin)})
	}
	if origin == "null" || origin == c.own+"."+evilHost {
		tellings = append(tellings, telling{ifDenied, nil})
	}
	return asker{page: page{origin: origin}, what: what, shape: c.tells(tellings...)}
}

// redirected is a page at the URL to which the publisher's page was redirected.
func (c *cell) redirected(what, origin string) asker {
	return asker{page: page{origin: origin}, what: what + ", at the URL to which the page's request is redirected",
		shape: c.tellsWith(step{toRedirect: true}, true, telling{})}
}

func (c *cell) anotherSite() []asker {
	return []asker{
		{page: page{origin: evil}, what: "another website",
			shape: c.tells(telling{claims: c.claim(evil)}, telling{ifAllowed, c.claim(c.own)})},
		c.redirected("another website", evil),
	}
}

func (c *cell) anotherPublisher() (all []asker) {
	hash, _ := cacheurl.HashPrefix(evilHost)
	for _, cache := range c.p.hostileCaches() {
		what := "another publisher on the cache " + cache.ID
		all = append(all, c.at(what, evilOn(cache), c.claim(evil)...),
			c.at(what+", hash prefix", "https://"+hash+"."+cache.CacheDomain, c.claim(evil)...))
	}
	return all
}

func (c *cell) adFrames() (all []asker) {
	for _, cache := range c.p.hostileCaches() {
		if suffix := cache.ThirdPartyFrameDomainSuffix; suffix != "" {
			all = append(all, c.claiming("an ad's frame of the cache "+cache.ID, "https://d-1234567890."+suffix))
		}
	}
	return all
}

// withoutClaim and falseClaims are what the pages of the runtime never claim.
func (c *cell) withoutClaim() (all []asker) {
	if c.e.NoSourceOrigin {
		return nil
	}
	all = append(all, c.at("another website, without __amp_source_origin", evil))
	for _, cache := range c.p.hostileCaches() {
		from := c.at("another publisher on the cache "+cache.ID+", without __amp_source_origin", evilOn(cache))
		from.group = KindPublishers
		all = append(all, from)
	}
	empty := c.at("another website, with an empty __amp_source_origin", evil, "")
	empty.group = KindClaims
	return append(all, empty)
}

func (c *cell) falseClaims() (all []asker) {
	onCache := evilOn(c.p.hostileCaches()[0])
	if !c.e.NoSourceOrigin {
		all = append(all, c.at("another publisher's page on a cache, which claims its cache origin", onCache, onCache))
	}
	for _, origin := range []string{evil, onCache} {
		claims := [][]string{{c.own}, {evil + "/" + c.own}, {c.own + "." + evilHost}, {evil, c.own}, {c.own, evil}}
		if origin == evil {
			claims = append(claims, []string{c.own + "@" + evilHost}, []string{evil + "/?" + c.own},
				[]string{evil + "#" + c.own})
		}
		for _, claim := range claims {
			all = append(all, c.at("another site's page, which claims "+strings.Join(claim, " and then "), origin, claim...))
		}
	}
	return all
}

func (c *cell) prefixLookalikes() []asker { return c.prefixesLikeOurs(false) }
func (c *cell) naivePrefixes() []asker    { return c.prefixesLikeOurs(true) }

// prefixesLikeOurs are other publishers on caches whose prefixes are like the publisher's. If a naive decoding
// of one gives the publisher, it is of a rule of its own.
func (c *cell) prefixesLikeOurs(isNaive bool) (all []asker) {
	for i, domain := range slices.Concat(c.ofPatterns, c.ofFunctions) {
		prefix, err := cacheurl.DomainPrefix(domain)
		isDecodedToOurs := strings.ReplaceAll(prefix, "--", "-") == strings.NewReplacer(".", "-", "--",
			"-").Replace(c.publisher)
		if err != nil || !strings.Contains(prefix, "-") || isDecodedToOurs != isNaive {
			continue
		}
		what := "the publisher " + domain
		if isNaive {
			what += ", whose prefix is " + prefix
		}
		for j, cache := range c.p.hostileCaches() {
			claims := c.ownThenEvil()
			if j == 0 {
				claims = []telling{{claims: c.claim("https://" + domain)}, {ifDenied, c.claim(c.own)}}
			} else if i >= len(c.ofPatterns) { // claims are compared alike on each cache, and functions are used alike
				continue
			}
			// A prefix is compared alike with and without a preflight.
			all = append(all, asker{page: page{origin: "https://" + prefix + "." + cache.CacheDomain},
				what:  what + ", on the cache " + cache.ID,
				shape: c.tellsWith(step{}, false, claims...)})
		}
	}
	return all
}

func (c *cell) twins() (all []asker) {
	for _, pg := range c.pages {
		if pg.isAmbiguous {
			all = append(all, c.claiming("another publisher with the same prefix on the cache "+pg.cache, pg.origin))
		}
	}
	return all
}

// lookalikes are at origins that wrong comparisons take for an allowed one. A host that only the publisher or a
// cache can have is none of them.
func (c *cell) lookalikes() (all []asker) {
	add := func(from asker) { all = append(all, from) }
	what := "a look-alike of " + c.publisher
	for _, domain := range slices.Concat(c.ofPatterns, c.ofFunctions) {
		add(c.claimingMore(what, "https://"+domain))
	}
	add(c.claiming(what, c.own+"_."+evilHost)) // no domain, but browsers take it
	for _, origin := range []string{"https://ampcors-probe-google.com", "https://www.google.evilprobe.example",
		"http://localhost." + evilHost,
		"http://192.168.0.10." + evilHost} {
		add(c.claiming("a look-alike of a host that others allow", origin))
	}
	i := slices.IndexFunc(c.onCaches, func(pg page) bool { return pg.form == formHash })
	add(c.claiming("a look-alike of the hash prefix on the cache "+c.onCaches[i].cache, c.onCaches[i].origin+"."+evilHost))
	all = append(all, c.likeCaches(false)...)
	return append(all, c.hostBelow(true)...)
}

// likeCaches are at hosts that are like a cache's. Some of them only the cache can have.
func (c *cell) likeCaches(isOfCache bool) (all []asker) {
	prefix := labelOf(c.onCaches[0].origin)
	for _, cache := range c.p.hostileCaches() {
		hosts := []string{prefix + "evil" + cache.CacheDomain} // no dot before the domain
		for _, domain := range slices.Concat(behind(cache.CacheDomain), replaceEach(cache.CacheDomain, '.', "x")) {
			hosts = append(hosts, prefix+"."+domain)
		}
		for _, host := range hosts {
			if isOwn := site(host) == site(cache.CacheDomain); isOwn != isOfCache {
				continue
			}
			from := c.claiming("a look-alike of "+cache.CacheDomain, "https://"+host)
			if isOfCache {
				from.what, from.shape = "a host that only the cache "+cache.ID+" can have",
					c.tellsWith(step{}, false, c.ownThenEvil()...)
			}
			all = append(all, from)
		}
	}
	return all
}

func (c *cell) cacheLookalikes() []asker { return c.likeCaches(true) }

func (c *cell) sandboxes() []asker {
	return []asker{c.claimingMore("a sandboxed frame of any website", "null"),
		c.redirected("a sandboxed frame of any website", "null")}
}

func (c *cell) overHTTP() (all []asker) {
	for i, pg := range c.pages {
		what, origin := pageName(pg)+", over http", "http://"+strings.TrimPrefix(pg.origin, "https://")
		switch {
		case i == 0:
			all = append(all, c.claimingMore(what, origin))
		case pg.form != formHash || c.isOnlyHash(): // what takes http for one form takes it for all
			all = append(all, c.claiming(what, origin))
		}
	}
	if registrable := site(c.publisher); registrable != c.publisher {
		all = append(all, c.claiming("the publisher's domain, over http", "http://"+registrable))
	}
	return all
}

// isOnlyHash reports whether the publisher's only form on caches is the hash prefix.
func (c *cell) isOnlyHash() bool { return len(c.onCaches) == len(c.p.hostileCaches()) }

// sending is another website that sends a header. nil removes one.
func sending(what string, header func(*cell) http.Header) func(*cell) []asker {
	return func(c *cell) []asker {
		return []asker{{page: page{origin: evil}, what: what,
			shape: c.tellsWith(step{header: header(c)}, false, telling{claims: c.claim(evil)})}}
	}
}

func sameOrigin(*cell) http.Header { return http.Header{"Amp-Same-Origin": {"true"}} }
func noReferer(*cell) http.Header  { return http.Header{"Referer": nil} }

func (c *cell) falseReferer() http.Header {
	return http.Header{"Referer": {evil + "/?" + c.onCaches[0].origin + "/&" + c.own + "/"}}
}

func (c *cell) askingForSameOrigin() []asker {
	s := c.controlStep()
	s.header, s.mode = sameOrigin(c), preflights
	origin, where := c.onCaches[0].origin, " on a cache"
	if len(c.p.cfg.Caches) == 0 {
		origin, where = c.own, ""
	}
	return []asker{{page: page{origin: origin}, what: "the publisher's page" + where +
		", which asks to send AMP-Same-Origin", isAllowed: true,
		shape: once(s)}}
}

func (c *cell) formerCaches() (all []asker) {
	for _, host := range []string{labelOf(c.onCaches[0].origin) + "." + formerCache, c.publisher + "." + formerCache,
		formerCache} {
		all = append(all, c.claiming("a page at the domain of a former AMP Cache", "https://"+host))
	}
	return all
}

func (c *cell) belowThePublisher() []asker { return c.hostBelow(false) }

// hostBelow is another host below the publisher: the publisher's own or, if that is a public suffix, one that
// anybody can register.
func (c *cell) hostBelow(isAnybodys bool) []asker {
	if suffix, _ := publicsuffix.PublicSuffix(c.publisher); (suffix == c.publisher) != isAnybodys {
		return nil
	}
	from := c.claiming("another host below the publisher", "https://ampcors-probe."+c.publisher)
	from.group = KindOwnHosts
	return []asker{from}
}

func (c *cell) otherPorts() (all []asker) {
	for _, pg := range c.pages {
		if pg.form != formHash || c.isOnlyHash() {
			all = append(all, c.claiming("another port of the same host", pg.origin+":8443"))
		}
	}
	return all
}

// forgedPosts are POSTs that any page can make a browser send with the reader's cookies.
func (c *cell) forgedPosts() (all []asker) {
	if c.e.Method != http.MethodPost || !c.e.Credentials {
		return nil
	}
	own := c.claim(c.own)
	add := func(what, origin string, s step) {
		all = append(all, asker{page: page{origin: origin}, what: what, shape: c.forging(s)})
	}
	add("a form of another website, with the publisher's claim", evil, step{claims: own, mode: asForm})
	for _, cache := range c.p.hostileCaches() {
		add("a form of another publisher's page on the cache "+cache.ID+", with the publisher's claim", evilOn(cache),
			step{claims: own, mode: asForm})
	}
	for _, kind := range []string{typeText, typeURLEncoded, typeMultipart} {
		if kind == typeText && c.e.NeedsPreflight() {
			continue // the form was that
		}
		s := step{claims: own, mode: asForm, contentType: kind}
		if kind == typeText {
			s.header = http.Header{"Sec-Fetch-Mode": {"no-cors"}} // as navigator.sendBeacon
		}
		add("a script of another website, as "+kind, evil, s)
	}
	if !c.e.NoSourceOrigin {
		add("a form of another website, without a claim", evil, step{mode: asForm})
	}
	add("a form of another website, in a browser that sends no Sec-Fetch-Site", evil,
		step{claims: own, mode: asForm, header: http.Header{"Sec-Fetch-Site": nil}})
	add("a form of a sandboxed frame, with the publisher's claim", "null", step{claims: own, mode: asForm})
	for _, origin := range []string{c.own + "." + evilHost, "https://evil" + site(c.publisher), "http://" + c.publisher} {
		add("a form of a page at "+origin+", with the publisher's claim", origin, step{claims: own, mode: asForm})
	}
	if c.e.NeedsPreflight() {
		add("a script of another website", evil, step{claims: own})
		add("a script of another website, with a Content-Type that contains the right one as a parameter", evil,
			step{claims: own, mode: asForm, contentType: "text/plain; " + c.e.ContentType})
		add("a script of another website, without a Content-Type", evil, step{claims: own, mode: asForm, contentType: noType})
	}
	return all
}

// labelOf returns the first label of an origin's host.
func labelOf(origin string) string {
	label, _, _ := strings.Cut(strings.TrimPrefix(origin, "https://"), ".")
	return label
}

// mailed is a request of a mail client, or of its proxy, and not of a browser.
func mailed(what, origin string, s step) asker {
	s.mode, s.isProxied = direct, true
	return asker{page: page{origin: origin}, what: what, shape: once(s)}
}

// version2 names a sender as version 2 of the protocol for emails does.
func version2(sender string) step {
	return step{header: http.Header{http.CanonicalHeaderKey(emailSender): {sender}}}
}

// mailClients returns the origins of the mail clients at which version 1 must work.
func (c *cell) mailClients() []string {
	if c.p.cfg.MailClients != nil {
		return c.p.cfg.MailClients
	}
	return []string{"https://mail.google.com"}
}

func (c *cell) emailsV2() []asker {
	return []asker{mailed("version 2", "", version2(c.sender))}
}

func (c *cell) emailsV1() (all []asker) {
	for _, client := range c.mailClients() {
		all = append(all, mailed("version 1 at "+client, client, step{claims: []string{c.sender}}))
	}
	return all
}

func (c *cell) otherSenders() (all []asker) {
	local, domain, _ := strings.Cut(c.sender, "@")
	for _, other := range []string{"probe@" + evilHost, local + "@" + evilHost, local + "@x" + domain,
		c.sender + "." + evilHost, "*"} {
		all = append(all, mailed("the sender "+other+", version 2", "", version2(other)))
	}
	all = append(all, mailed("a request that names no sender", "", step{}))
	for _, client := range c.mailClients() {
		all = append(all, mailed("the sender probe@"+evilHost+" at "+client+", version 1", client,
			step{claims: []string{"probe@" + evilHost}}))
	}
	return all
}

func (c *cell) websiteWithSender() []asker {
	return []asker{{page: page{origin: evil}, what: "another website that names the sender",
		shape: once(step{mode: direct, claims: []string{c.sender}})}}
}
