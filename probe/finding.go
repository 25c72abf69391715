package probe

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// A Severity ranks findings.
type Severity string

const (
	High   Severity = "high"   // pages fail for every reader, or any site can read or send with the reader's cookies
	Medium Severity = "medium" // pages fail in some cases, or attacks are possible in some cases
	Low    Severity = "low"    // nobody can use it today, or it may be intended
)

// severities are in ascending order.
var severities = []Severity{Low, Medium, High}

// AtLeast reports whether s is at least as severe as other.
func (s Severity) AtLeast(other Severity) bool {
	return slices.Index(severities, s) >= slices.Index(severities, other)
}

// A Finding is a problem of an endpoint.
type Finding struct {
	ID        ID       `json:"id"`
	Severity  Severity `json:"severity"`
	Endpoint  string   `json:"endpoint"` // its URL
	Method    string   `json:"method"`
	Publisher string   `json:"publisher"` // whose pages were tested
	Origin    string   `json:"origin"`    // of the page; the first of Origins
	Origins   []string `json:"origins"`   // of all trials that show it; "" is a program that sends none
	Request   string   `json:"request"`   // its method and URL
	Title     string   `json:"title"`
	Evidence  []string `json:"evidence"` // what the server answered, and what a browser does then; in lines
	Remedy    string   `json:"remedy"`
	Curl      string   `json:"curl"`            // a command line that repeats the request, without secrets
	Known     bool     `json:"known,omitempty"` // set by [Report.Know]
}

// IsEmail reports whether a finding is about the emails of a sender, whose address Publisher has.
func (f Finding) IsEmail() bool { return strings.Contains(f.Publisher, "@") }

// Know marks the findings that are known, for example because they are accepted for now. The summary
// does not count them.
func (r *Report) Know(isKnown func(Finding) bool) {
	r.Summary.High, r.Summary.Medium, r.Summary.Low = 0, 0, 0
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Known = isKnown(*f)
		switch {
		case f.Known:
		case f.Severity == High:
			r.Summary.High++
		case f.Severity == Medium:
			r.Summary.Medium++
		default:
			r.Summary.Low++
		}
	}
}

// A kind is what all findings with one id have in common.
type kind struct {
	id       ID
	severity Severity
	title    string
	remedy   string // %[1]s is the page's origin, %[2]s and %[3]s are the policy's methods and headers
}

const (
	echo  = "Send Access-Control-Allow-Origin with exactly the value of Origin, here %[1]s, if the page's publisher is allowed."
	deny  = "Compare the whole Origin with the list of the publishers' origins, which ampcors origins DOMAIN prints. Do not compare only its end, and do not decode prefixes yourself: that is easy to get wrong. ampcors in front of the API does all of this."
	exact = "Compare the whole Origin with the allowed origins. Do not compare only a prefix or a suffix. A regular expression needs ^, $ and escaped dots."
)

// kinds are all kinds of findings.
var kinds = []kind{
	// The endpoint does not work.
	{ACAOMissing, High, "the answer has no Access-Control-Allow-Origin", echo},
	{ACAOMismatch, High, "Access-Control-Allow-Origin is not the origin of the page", echo},
	{ACAOBareCache, High, "Access-Control-Allow-Origin has the bare domain of an AMP Cache",
		"No page runs there: each publisher has an origin of its own on a cache. " + echo},
	{ACAOPattern, High, "Access-Control-Allow-Origin has a pattern or a list",
		"Browsers accept one origin or *, and compare it exactly. " + echo},
	{ACAODuplicate, High, "there are several Access-Control-Allow-Origin headers",
		"Set the header in one place: in the application or in the server, not in both."},
	{ACAOSourceOrigin, High, "Access-Control-Allow-Origin has the publisher's own origin, not that of the page",
		"A page on a cache does not run at the site's own origin, which __amp_source_origin has. " + echo},
	{ACACMissing, High, "there is no Access-Control-Allow-Credentials",
		"The request has the reader's cookies. Send Access-Control-Allow-Credentials: true together with Access-Control-Allow-Origin: %[1]s."},
	{ACACInvalid, High, "Access-Control-Allow-Credentials is not \"true\"",
		"Send exactly Access-Control-Allow-Credentials: true, in lower case."},
	{ACACDuplicate, High, "there are several Access-Control-Allow-Credentials headers",
		"Set the header in one place: in the application or in the server, not in both."},
	{WildcardWithCredentials, High, "Access-Control-Allow-Origin is * for a request with credentials",
		"Browsers reject * for requests with cookies. " + echo + " Send Access-Control-Allow-Credentials: true with it."},
	{VaryMissing, Medium, "the answer depends on Origin, and has no Vary: Origin",
		"Send Vary: Origin with every answer, so that no cache gives the answer for one origin to another."},
	{CachedWrongOrigin, High, "a cache in between gives the answer for one origin to another",
		"Send Vary: Origin with every answer, even if the request has no Origin. Configure the CDN to follow Vary, to put Origin into the cache key, or not to cache."},
	{SharedWrongOrigin, High, "one answer is shared by requests for a URL that arrive together", "The answer to one page has another page's origin. Put Origin into the key of what is shared, or set Access-Control-Allow-Origin after it, for each request."},
	{RevalidationWrongOrigin, High, "a 304 names another origin", "The headers of a 304 replace those in the browser's cache, so that the page can no longer read the answer. " + echo + " Send the same with status 304, or no Access-Control-Allow-Origin."},
	{ExposeMissing, Medium, "AMP-Redirect-To is not exposed", "Send Access-Control-Expose-Headers: AMP-Redirect-To. The value * exposes nothing if there are credentials."},
	{RedirectToInvalid, Medium, "AMP-Redirect-To is not an absolute https URL", "The AMP runtime rejects http and paths. Send a URL such as https://www.example.com/thanks."},
	{PreflightFailed, High, "the answer to the preflight fails the CORS check, or has an error status",
		"Before routing and authentication, answer OPTIONS with status 204, Access-Control-Allow-Origin: %[1]s, Access-Control-Allow-Methods: %[2]s, Access-Control-Allow-Headers: %[3]s and, if the request has cookies, Access-Control-Allow-Credentials: true."},
	{PreflightRedirected, High, "the preflight is redirected",
		"Browsers do not follow redirects of preflights. In the document, use the URL to which the redirect leads, or answer OPTIONS before the redirect."},
	{PreflightIncomplete, High, "the preflight does not grant what the page asks for",
		"Send Access-Control-Allow-Methods: %[2]s and Access-Control-Allow-Headers: %[3]s."},
	{ErrorWithoutCORS, Medium, "an error has no CORS headers",
		"Send the CORS headers with every status, so that the page can read the error. In nginx: add_header … always."},
	{RedirectWithoutCORS, High, "a redirect, or the answer after it, has no valid CORS headers",
		"Send the CORS headers with each redirect and the answer after it, or use the URL to which the redirect leads in the document. After a redirect to another origin, browsers send Origin: null."},
	{RedirectEndless, High, "the redirects do not end",
		"A browser gives up after 20 redirects. Often the backend sets a cookie and redirects to itself until it gets that cookie back, which a page on a cache does not send. Answer without the redirect."},
	{AnswersDiffer, Medium, "the same request is answered with other CORS headers from one time to the next",
		"Several servers may answer in turn, with different configurations, or a cache answers sometimes. Give all of them the same rules."},
	{HTTPError, Medium, "the endpoint answers with an error", "Answer with a status of 2xx."},
	{NotJSON, Medium, "the answer is not JSON", "The component reads JSON. Send JSON even if the list is empty."},
	{NotScript, Medium, "the answer is not JavaScript", "amp-script wants a JavaScript Content-Type, such as text/javascript."},
	{HashOriginRefused, Medium, "the origin with the hash prefix is denied",
		"Some caches use the hash prefix, and all caches use it for long names. Allow %[1]s, too."},
	{PunycodeOriginRefused, Medium, "an origin with the punycode prefix, or another form of the prefix, is denied",
		"Allow %[1]s, too: the prefix of an internationalized name is punycode, and caches may write a name in other forms (ampcors prefix --all)."},
	{OwnOriginRefused, High, "the publisher's own origin is denied",
		"The page also runs at the publisher's own origin. Allow %[1]s, too."},
	{CacheRefused, High, "the publisher's page is denied on a cache", "Allow the publisher's origin on each AMP Cache, here %[1]s. A protection against CSRF that looks at Sec-Fetch-Site, Referer or Host denies every page on a cache: let requests of these origins pass it."},
	{BrowserRefused, Medium, "the publisher's page does not work in some browsers", "Answer it in the same way, whatever a browser sends as User-Agent, Accept-Language, Referer and Sec-Fetch-Site. A redirect of phones or languages, and the answer after it, need the CORS headers, too."},
	{CookieNeeded, Medium, "the publisher's page works only if the reader has a cookie", "Send the CORS headers also to readers without a cookie, with what they may read or with an error: pages on AMP Caches often have none."},

	// The endpoint allows other sites.
	{AnyOriginAllowed, High, "any website can read answers with the reader's cookies",
		"The backend allows whatever Origin it gets. Allow only the origins of publishers. " + deny},
	{AnyPublisherAllowed, High, "every publisher on an AMP Cache can read answers with the reader's cookies",
		"Anyone's page can be on a cache. " + deny},
	{AdFrameAllowed, High, "an ad's frame on an AMP Cache can read answers with the reader's cookies", "Anybody's ads run below the caches' domains for third-party frames, such as ampproject.net. " + deny},
	{NoClaimAllowed, High, "a page without __amp_source_origin can read answers with the reader's cookies",
		"Any page can omit __amp_source_origin. Decide only by Origin."},
	{SourceOriginTrusted, High, "__amp_source_origin decides who may read",
		"Every page can send any value of __amp_source_origin. Decide only by Origin."},
	{PrefixLookalikeAllowed, High, "another publisher whose prefix is like an allowed one is allowed",
		"Compare the whole prefix. If that domain is yours, name it with --publisher. " + deny},
	{NaivePrefixAllowed, High, "the prefix of another publisher is decoded into an allowed one",
		"In a prefix, \"--\" is a hyphen and \"-\" is a dot. Do not replace one after the other: the second replacement changes the result of the first. Compare with the prefixes of the allowed publishers, or use a library that reverses prefixes."},
	{TwinAllowed, Medium, "a prefix that another publisher has, too, is allowed",
		"Anybody can register the other host. Deny this prefix, and allow the publisher's hash prefix."},
	{LookalikeAllowed, High, "a look-alike of an allowed origin is allowed", exact + " If that domain is yours, name it with --publisher."},
	{HostingAllowed, High, "every customer of a hosting service is allowed", "Anybody can have a website below such a domain. Allow only the hosts of your own deployments, with their full names, or none."},
	{CacheLookalikeAllowed, Low, "a host that is like an AMP Cache is allowed",
		"Only the cache can have this host, so nobody can use it today. " + exact},
	{NullAllowed, High, "Origin null is allowed", "Every sandboxed frame of every website sends null. Never allow it."},
	{HTTPAllowed, Medium, "an origin with http is allowed",
		"Anyone on the reader's network can change a page over http. Allow only https."},
	{SameOriginHeaderTrusted, High, "AMP-Same-Origin overrides Origin", "Use AMP-Same-Origin only if there is no Origin."},
	{SameOriginGranted, Low, "a page on a cache is allowed to send AMP-Same-Origin",
		"Remove amp-same-origin from Access-Control-Allow-Headers for cache origins. With this header, a page can claim to be at the API's own origin, as this backend trusts it beside Origin."},
	{SameOriginHeaderPreferred, Low, "AMP-Same-Origin is used although there is an Origin",
		"Browsers send both only after a preflight, so no page can use this today. Look at Origin first."},
	{RefererTrusted, High, "Referer decides who may read",
		"With referrerPolicy unsafe-url, a page sends its whole URL as Referer, which can have any text. Decide only by Origin."},
	{NoRefererAllowed, High, "a page without a Referer is allowed", "A page can omit Referer with referrerPolicy no-referrer. Decide only by Origin."},
	{LocalhostAllowed, Low, "a program or an extension on the reader's machine or network is allowed", "Such an origin is for development: localhost, a private address, an extension of the browser. Allow it only while developing, and not in production."},
	{DeadCacheAllowed, Medium, "the domain of a former AMP Cache is allowed",
		"A domain can change hands. Allow only the caches in the registry, https://cdn.ampproject.org/caches.json."},
	{PortAllowed, Low, "another port of an allowed host is allowed",
		"Other software may run at that port. Compare the whole Origin, with its port."},
	{OpenToAll, Low, "any website can read the answers, which do not depend on cookies",
		"The answers that were compared are the same with and without the cookies of --cookie, so that this may be meant, if those cookies are valid. Otherwise, allow only the publishers' origins. If it is meant, and no page sends cookies to it, Access-Control-Allow-Origin: * without Access-Control-Allow-Credentials cannot become a leak later; pages that send cookies could not read that."},
	{UnsafeReachesHandler, High, "a forged POST is not denied",
		"Browsers send simple POSTs with cookies and without a preflight. Answer 403 to an Origin that is not allowed, before the handler."},
	{UnsafeSeemsToRun, Medium, "a forged POST seems to run", "It is answered with success, though not as the publisher's own request. Answer 403 to an Origin that is not allowed, before the handler. If nothing was done, a status of 4xx would say so."},

	// Emails.
	{EmailSenderRefused, High, "the sender's email is not answered as mail clients want it, with version 2",
		"Answer a request with AMP-Email-Sender, if its sender is allowed, with status 200 and AMP-Email-Allow-Sender: the same address. Origin does not count then."},
	{EmailV1Refused, Medium, "the sender's email is not answered as mail clients want it, with version 1",
		"Answer a request from the mail client's Origin whose __amp_source_origin is an allowed sender with Access-Control-Allow-Origin: %[1]s, AMP-Access-Control-Allow-Source-Origin: the sender, and Access-Control-Expose-Headers: AMP-Access-Control-Allow-Source-Origin. Gmail's documentation still asks for it."},
	{EmailAnySender, Medium, "the email of another sender is answered",
		"Compare the whole address with the allowed senders, and send no AMP-Email-Allow-Sender otherwise. If the emails of everybody may read the answers, AMP-Email-Allow-Sender: * says so."},
	{EmailOriginAllowed, Low, "a website that names the sender can read the answers",
		"Allow version 1 only for the origins of mail clients, such as https://mail.google.com: every website can send __amp_source_origin."},
}

// IDs returns the ids that findings can have.
func IDs() (ids []ID) {
	for _, k := range kinds {
		ids = append(ids, k.id)
	}
	return ids
}

// findings makes one finding of all trials of a cell that have the same cause.
func (c *cell) findings() (findings []Finding) {
	for _, k := range kinds {
		var shown []*trial
		for _, t := range c.trials {
			if slices.Contains(t.Causes, k.id) {
				shown = append(shown, t)
			}
		}
		if len(shown) > 0 {
			findings = append(findings, c.finding(k, shown))
		}
	}
	if isShown := slices.ContainsFunc(findings, func(f Finding) bool { return f.ID == AnswersDiffer }); c.differs != nil && !isShown {
		r, resp := c.differs.last()
		i := slices.IndexFunc(kinds, func(k kind) bool { return k.id == AnswersDiffer })
		findings = append(findings, c.newFinding(kinds[i], []string{r.origin},
			append(c.p.client.describe(r, resp), "The same request had other CORS headers at another time."), r))
	}
	return findings
}

func (c *cell) finding(k kind, shown []*trial) Finding {
	first := shown[0]
	a := first.because
	r, resp := a.last()
	evidence := c.p.client.describe(r, resp)
	add := func(line string) { evidence = append(evidence, line) }
	switch why := a.why(); {
	case c.isEmail: // the remark says it
	case k.id == SameOriginHeaderPreferred:
		add("Without AMP-Same-Origin, it is denied.")
	case first.Kind.IsHostile() && a.isReadable():
		add("A browser lets that page read the answer.")
		if strings.HasPrefix(first.origin, "http://") && strings.HasSuffix(first.origin, ".cdn.ampproject.org") {
			add("(Chromium uses https for hosts of this cache by itself; other browsers do not.)")
		}
	case !first.Kind.IsHostile() && why != nil:
		add("A browser blocks it: " + why.Error() + ".")
	}
	if first.remark != "" {
		add("Note: " + first.remark + ".")
	}
	if k.id == AnyOriginAllowed && c.p.cfg.Cookie == "" {
		add("Whether the answers depend on cookies was not tested: --cookie compares them.")
	}
	var origins []string
	for _, t := range shown {
		if !slices.Contains(origins, t.origin) {
			origins = append(origins, t.origin)
		}
	}
	if others := origins[1:]; len(others) > 0 {
		add("The same is true for " + list(others, 5) + ".")
	}
	if resp != nil && resp.Header.Get("Access-Control-Allow-Credentials") != "true" {
		k.title = strings.Replace(k.title, " with the reader's cookies", "", 1)
	}
	return c.newFinding(k, origins, evidence, r)
}

func (c *cell) newFinding(k kind, origins, evidence []string, r request) Finding {
	policy := c.p.policy
	return Finding{ID: k.id, Severity: k.severity, Endpoint: c.e.URL, Method: c.e.Method, Publisher: c.publisher, Origin: origins[0],
		Origins: origins, Request: r.method + " " + r.url,
		Title: k.title, Evidence: evidence, Remedy: strings.NewReplacer("%[1]s", origins[0], "%[2]s", policy.Methods(), "%[3]s",
			policy.Headers()).Replace(k.remedy), Curl: c.p.curl(r)}
}

// list names at most n of the items.
func list(items []string, n int) string {
	more := len(items) - n
	if more > 1 {
		return strings.Join(items[:n], ", ") + fmt.Sprintf(" and %d others", more)
	}
	if len(items) == 1 {
		return items[0]
	}
	return strings.Join(items[:len(items)-1], ", ") + " and " + items[len(items)-1]
}

// describe returns an answer in lines: what was asked and the status, and the headers that matter.
func (c *client) describe(r request, resp *response) (lines []string) {
	if resp == nil {
		return []string{r.method + " is not answered."}
	}
	lines = append(lines, fmt.Sprintf("%s is answered with status %d", r.method, resp.Status))
	for _, name := range []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Allow-Methods",
		"Access-Control-Allow-Headers", "Access-Control-Expose-Headers", "AMP-Redirect-To", "Vary", "Location", "Content-Type", allowSender, sourceOrigin} {
		for _, value := range resp.Header[http.CanonicalHeaderKey(name)] {
			lines = append(lines, fmt.Sprintf("%s: %.200s", name, c.clean(value)))
		}
	}
	return lines
}
