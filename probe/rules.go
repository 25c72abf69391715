package probe

import (
	"slices"
	"strings"
)

// A rule is what a backend must keep. If a trial shows that it does not, that is a finding with the rule's id.
type rule struct {
	id       ID
	severity Severity // "" if it is told in a note, and not a finding
	title    string
	remedy   string // %[1]s is the page's origin, %[2]s and %[3]s are the policy's methods and headers

	// A rule with trials of its own has askers. Field group is their Kind in the report, and breaks
	// returns the ruling on their answers. If breaks is nil, isDenied is used: none of their pages may
	// read an answer.
	group  Kind
	askers func(*cell) []asker
	breaks func(*cell, *trial) ruling

	// A symptom is a rule that any answer to the publisher's page can break.
	shows func(*sight) bool
}

// rules are all rules, in the order of plans and reports.
var rules = slices.Concat(ownRules, symptoms, comparisons, hostileRules, emailRules)

const (
	echo = "Send Access-Control-Allow-Origin with exactly the value of Origin, here %[1]s, if the page's publisher is " +
		"allowed."
	deny = "Compare the whole Origin with the list of the publishers' origins, which ampcors origins DOMAIN prints. Do " +
		"not compare only its end, and do not decode prefixes yourself: that is easy to get wrong. ampcors in front of the " +
		"API does all of this."
	exact = "Compare the whole Origin with the allowed origins. Do not compare only a prefix or a suffix. A regular " +
		"expression needs ^, $ and escaped dots."
)

// ownRules have trials of the publisher's own pages.
var ownRules = []rule{
	{id: VaryMissing, severity: Medium, title: "the answer depends on Origin, and has no Vary: Origin",
		remedy: "Send Vary: Origin with every answer, so that no cache gives the answer for one origin to another.",
		group:  KindNoOrigin, askers: (*cell).withoutOrigin, breaks: (*cell).isAnsweredAtAll},
	{id: CachedWrongOrigin, severity: High, title: "a cache in between gives the answer for one origin to another",
		remedy: "Configure the cache in one of three ways: it follows Vary and Cache-Control; or its key has Origin and " +
			"the whole URL; or it does not keep these answers. Then empty the cache. Send Vary: Origin with every answer, " +
			"even if the request has no Origin, and the CORS headers with GET as well as with OPTIONS.",
		group: KindPage, askers: (*cell).ownPages},
	{id: RevalidationWrongOrigin, severity: High, title: "a 304 names another origin",
		remedy: "The headers of a 304 replace those in the browser's cache, so that the page can no longer read the " +
			"answer. " + echo +
			" With status 304, send the same header, or leave it out.",
		group: KindRevalidate, askers: ownPage("the publisher's page, which revalidates its answer", (*cell).revalidating),
		breaks: (*cell).revalidates},
	{id: userAgentMatters,
		group: KindUserAgent, askers: ownPage("the publisher's page, as "+userAgent, (*cell).asOurselves),
		breaks: (*cell).isAnsweredAsOurselves},
	{id: BrowserRefused, severity: Medium, title: "the publisher's page does not work in some browsers",
		remedy: "Answer it in the same way, whatever a browser sends as User-Agent, Accept-Language, Referer and " +
			"Sec-Fetch-Site. A redirect of phones or languages, and the answer after it, need the CORS headers, too.",
		group: KindBrowsers, askers: (*cell).otherBrowsers, breaks: (*cell).worksInABrowser},
	{id: SharedWrongOrigin, severity: High, title: "one answer is shared by requests for a URL that arrive together",
		remedy: "The answer to one page has another page's origin. Put Origin into the key under which an answer is " +
			"shared, or set Access-Control-Allow-Origin for each request, after the shared answer is taken.",
		group: KindTogether, askers: ownPage("two pages of the publisher, for one URL at the same time", (*cell).atOneTime),
		breaks: (*cell).getsItsOwnAnswer},
	{id: CookieNeeded, severity: Medium, title: "the publisher's page works only if the reader has a cookie",
		remedy: "Send the CORS headers also to readers without a cookie, whether the answer is data or an error: requests " +
			"of pages on AMP Caches often have no cookie.",
		group: KindCookies, askers: (*cell).readersWithAndWithoutCookies, breaks: (*cell).worksWithoutCookies},
}

// symptoms are what an answer to the publisher's page shows. The first that shows counts.
var symptoms = []rule{
	{id: PreflightRedirected, severity: High, title: "the preflight is redirected",
		remedy: "Browsers do not follow redirects of preflights. In the document, use the URL to which the redirect leads, " +
			"or answer OPTIONS before the redirect.",
		shows: func(s *sight) bool { return s.preflight && isRedirect(s.status) }},
	{id: PreflightIncomplete, severity: High, title: "the preflight does not grant what the page asks for",
		remedy: "Send Access-Control-Allow-Methods: %[2]s and Access-Control-Allow-Headers: %[3]s.",
		shows:  func(s *sight) bool { return s.preflight && s.passesCORS() && s.isSuccess() }},
	{id: PreflightFailed, severity: High, title: "the answer to the preflight fails the CORS check, or has an error " +
		"status",
		remedy: "Before routing and authentication, answer OPTIONS with status 204, Access-Control-Allow-Origin: %[1]s, " +
			"Access-Control-Allow-Methods: %[2]s, Access-Control-Allow-Headers: %[3]s and, if the request has cookies, " +
			"Access-Control-Allow-Credentials: true. If the backend has ampcors, or another library for CORS, something in " +
			"front of it, or the router around it, has answered in its place: let that pass OPTIONS on.",
		shows: func(s *sight) bool { return s.preflight && (s.passesCORS() || !s.isSuccess() || len(s.lines) == 0) }},
	{id: RedirectEndless, severity: High, title: "the redirects do not end",
		remedy: "A browser gives up after 20 redirects. Often the backend redirects to the https or the host that it " +
			"wants, and the proxy in front does not pass on the Host and X-Forwarded-Proto of the reader; or it sets a cookie " +
			"and redirects to itself until it gets that back, which a page on a cache does not send. Answer without the " +
			"redirect.",
		shows: func(s *sight) bool { return s.isBlocked && !s.preflight && s.fetch.isEndless }},
	{id: RedirectWithoutCORS, severity: High, title: "a redirect, or the answer after it, has no valid CORS headers",
		remedy: "Send the CORS headers with each redirect and the answer after it, or, in the document, use the URL to " +
			"which the redirect leads. After a redirect to another origin, browsers send Origin: null.",
		shows: func(s *sight) bool { return s.isBlocked && !s.preflight && (isRedirect(s.status) || s.fetch.hop > 0) }},
	{id: ErrorWithoutCORS, severity: Medium, title: "an error has no CORS headers",
		remedy: "Send the CORS headers with every status, so that the page can read the error. In nginx: add_header … " +
			"always.",
		shows: func(s *sight) bool { return s.isBlocked && len(s.lines) == 0 && s.status >= 400 }},
	{id: ACAOMissing, severity: High, title: "the answer has no Access-Control-Allow-Origin",
		remedy: echo,
		shows:  func(s *sight) bool { return s.isBlocked && len(s.lines) == 0 }},
	{id: ACAODuplicate, severity: High, title: "there are several Access-Control-Allow-Origin headers",
		remedy: "Set the header in one place: in the application or in the server, not in both.",
		shows:  func(s *sight) bool { return s.isBlocked && len(s.lines) > 1 }},
	{id: WildcardWithCredentials, severity: High, title: "Access-Control-Allow-Origin is * for a request with credentials",
		remedy: "Browsers reject * for requests with cookies. " + echo +
			" Send Access-Control-Allow-Credentials: true with it.",
		shows: func(s *sight) bool { return s.isBlocked && s.value == "*" }},
	{id: ACAOBareCache, severity: High, title: "Access-Control-Allow-Origin has the bare domain of an AMP Cache",
		remedy: "No page runs there: each publisher has an origin of its own on a cache. " + echo,
		shows:  func(s *sight) bool { return s.isBlocked && s.isBareCache() }},
	{id: ACAOPattern, severity: High, title: "Access-Control-Allow-Origin has a pattern or a list",
		remedy: "Browsers accept one origin or *, and compare it exactly. " + echo,
		shows:  func(s *sight) bool { return s.isBlocked && strings.ContainsAny(s.value, "*, ") }},
	{id: ACACMissing, severity: High, title: "there is no Access-Control-Allow-Credentials",
		remedy: "The request has the reader's cookies. Send Access-Control-Allow-Credentials: true together with " +
			"Access-Control-Allow-Origin: %[1]s.",
		shows: func(s *sight) bool { return s.isBlocked && s.value == s.origin && len(s.acac) == 0 }},
	{id: ACACDuplicate, severity: High, title: "there are several Access-Control-Allow-Credentials headers",
		remedy: "Set the header in one place: in the application or in the server, not in both.",
		shows:  func(s *sight) bool { return s.isBlocked && s.value == s.origin && len(s.acac) > 1 }},
	{id: ACACInvalid, severity: High, title: "Access-Control-Allow-Credentials is not \"true\"",
		remedy: "Send exactly Access-Control-Allow-Credentials: true, in lower case.",
		shows:  func(s *sight) bool { return s.isBlocked && s.value == s.origin }},
	{id: ACAOSourceOrigin, severity: High, title: "Access-Control-Allow-Origin has the publisher's own origin, not that " +
		"of the page",
		remedy: "A page on a cache does not run at the site's own origin, which __amp_source_origin has. " + echo,
		shows:  func(s *sight) bool { return s.isBlocked && s.value == s.c.own }},
	{id: ACAOMismatch, severity: High, title: "Access-Control-Allow-Origin is not the origin of the page",
		remedy: echo,
		shows:  func(s *sight) bool { return s.isBlocked }},
	{id: HTTPError, severity: Medium, title: "the endpoint answers with an error",
		remedy: "Find out why this request fails, and whether its URL is right: the publisher's page wants a status of " +
			"2xx. If the status is meant, such as 401 for a reader who is not logged in, keep it, and keep the CORS headers " +
			"with it.",
		shows: func(s *sight) bool { return !s.isSuccess() && !s.isForReader() }},
	{id: NotJSON, severity: Medium, title: "the answer is not JSON",
		remedy: "The component reads JSON. Send JSON even if the list is empty.",
		shows: func(s *sight) bool {
			return (s.c.e.Answer == AnswerJSON || s.c.e.Answer == AnswerForm) && s.isSuccess() && !s.needsNoBody() &&
				!isJSON(s.body)
		}},
	{id: NotScript, severity: Medium, title: "the answer is not JavaScript",
		remedy: "amp-script wants a JavaScript Content-Type, such as text/javascript.",
		shows: func(s *sight) bool {
			return s.c.e.Answer == AnswerScript && s.isSuccess() && !s.needsNoBody() &&
				!strings.Contains(s.header.Get("Content-Type"), "javascript")
		}},
}

// comparisons are found by comparing the answers to several pages: see findRefused and findFlaws.
var comparisons = []rule{
	{id: ExposeMissing, severity: Medium, title: "AMP-Redirect-To is not exposed",
		remedy: "Send Access-Control-Expose-Headers: AMP-Redirect-To. The value * exposes nothing if there are credentials."},
	{id: RedirectToInvalid, severity: Medium, title: "AMP-Redirect-To is not an absolute https URL",
		remedy: "The AMP runtime rejects http and paths. Send a URL such as https://www.example.com/thanks."},
	{id: AnswersDiffer, severity: Medium, title: "the same request is answered with other CORS headers from one time to " +
		"the next",
		remedy: "Several servers may answer in turn, with different configurations, or a cache answers sometimes. Give all " +
			"of them the same rules. If they have ampcors, the fingerprint of their lists differs: ampcors check prints it, " +
			"and the metric ampcors_list_fingerprint has it."},
	{id: HashOriginRefused, severity: Medium, title: "the origin with the hash prefix is denied",
		remedy: "Some caches use the hash prefix, and all caches use it for long names. Allow %[1]s, too."},
	{id: PunycodeOriginRefused, severity: Medium, title: "an origin with the punycode prefix, or another form of the " +
		"prefix, is denied",
		remedy: "Allow %[1]s, too: the prefix of an internationalized name is punycode, and caches may write a name in " +
			"other forms (ampcors prefix --all)."},
	{id: OwnOriginRefused, severity: High, title: "the publisher's own origin is denied",
		remedy: "The page also runs at the publisher's own origin. Allow %[1]s, too."},
	{id: CacheRefused, severity: High, title: "the publisher's page is denied on a cache",
		remedy: "Allow the publisher's origin on each AMP Cache, here %[1]s. A protection against CSRF that looks at " +
			"Sec-Fetch-Site, Referer or Host denies every page on a cache: let requests of these origins pass it."},
}

// hostileRules have trials of pages that must be denied.
var hostileRules = []rule{
	{id: AnyOriginAllowed, severity: High, title: "any website can read answers with the reader's cookies",
		remedy: "The backend allows whatever Origin it gets. Allow only the origins of publishers. " + deny,
		group:  KindSites, askers: (*cell).anotherSite},
	{id: AnyPublisherAllowed, severity: High, title: "every publisher on an AMP Cache can read answers with the " +
		"reader's cookies",
		remedy: "Anyone's page can be on a cache. " + deny,
		group:  KindPublishers, askers: (*cell).anotherPublisher},
	{id: AdFrameAllowed, severity: High, title: "an ad's frame on an AMP Cache can read answers with the reader's cookies",
		remedy: "Anybody's ads run below the caches' domains for third-party frames, such as ampproject.net. " + deny,
		group:  KindPublishers, askers: (*cell).adFrames},
	{id: NoClaimAllowed, severity: High, title: "a page without __amp_source_origin can read answers with the reader's " +
		"cookies",
		remedy: "Any page can omit __amp_source_origin. Decide only by Origin.",
		group:  KindSites, askers: (*cell).withoutClaim},
	{id: SourceOriginTrusted, severity: High, title: "__amp_source_origin decides who may read",
		remedy: "Every page can send any value of __amp_source_origin. Decide only by Origin.",
		group:  KindClaims, askers: (*cell).falseClaims},
	{id: PrefixLookalikeAllowed, severity: High, title: "another publisher whose prefix is like an allowed one is allowed",
		remedy: "Compare the whole prefix. If that domain is yours, name it with --publisher. " + deny,
		group:  KindLookalikes, askers: (*cell).prefixLookalikes},
	{id: NaivePrefixAllowed, severity: High, title: "the prefix of another publisher is decoded into an allowed one",
		remedy: "In a prefix, \"--\" is a hyphen and \"-\" is a dot. Do not replace one after the other: the second " +
			"replacement changes the result of the first. Compare with the prefixes of the allowed publishers, or use a " +
			"library that reverses prefixes.",
		group: KindLookalikes, askers: (*cell).naivePrefixes},
	{id: TwinAllowed, severity: Medium, title: "a prefix that two publishers share is allowed",
		remedy: "Anybody can register the other host that has this prefix. Deny this prefix, and allow the publisher's " +
			"hash prefix.",
		group: KindTwins, askers: (*cell).twins},
	{id: LookalikeAllowed, severity: High, title: "a look-alike of an allowed origin is allowed",
		remedy: exact + " If that domain is yours, name it with --publisher.",
		group:  KindLookalikes, askers: (*cell).lookalikes},
	{id: HostingAllowed, severity: High, title: "every customer of a hosting service is allowed",
		remedy: "Anybody can have a website below such a domain. Allow only the hosts of your own deployments, with their " +
			"full names, or none.",
		group: KindSites, askers: each("a website of another customer of a hosting service",
			"https://ampcors-probe.vercel.app", "https://ampcors-probe.netlify.app",
			"https://ampcors-probe.pages.dev") /* patterns for previews allow them */},
	{id: CacheLookalikeAllowed, severity: Low, title: "a host that is like an AMP Cache is allowed",
		remedy: "Only the owner of the cache's domain could create this host, so no attacker can use it today. " + exact,
		group:  KindLookalikes, askers: (*cell).cacheLookalikes},
	{id: NullAllowed, severity: High, title: "Origin null is allowed",
		remedy: "Every sandboxed frame of every website sends null. Never allow it.",
		group:  KindNull, askers: (*cell).sandboxes},
	{id: HTTPAllowed, severity: Medium, title: "an origin with http is allowed",
		remedy: "Anyone on the reader's network can change a page over http. Allow only https.",
		group:  KindHTTP, askers: (*cell).overHTTP},
	{id: SameOriginHeaderTrusted, severity: High, title: "AMP-Same-Origin overrides Origin",
		remedy: "Use AMP-Same-Origin only if there is no Origin.",
		group:  KindSameOrigin, askers: sending("another website, which sends AMP-Same-Origin", sameOrigin)},
	{id: SameOriginGranted, severity: Low, title: "a page on a cache is allowed to send AMP-Same-Origin",
		remedy: "Remove amp-same-origin from Access-Control-Allow-Headers for cache origins. This backend was seen to " +
			"trust the header, with which a page can claim to be at the API's own origin.",
		group: KindSameOrigin, askers: (*cell).askingForSameOrigin, breaks: (*cell).isGrantedByName},
	{id: SameOriginHeaderPreferred, severity: Low, title: "AMP-Same-Origin is used although there is an Origin",
		remedy: "Browsers send both only after a preflight, so no page can use this today. Look at Origin first.",
		group:  KindSameOrigin, askers: func(c *cell) []asker {
			return []asker{{page: page{origin: evil}, what: "a program with another site's Origin and AMP-Same-Origin",
				shape: c.besideSameOrigin()}}
		}, breaks: (*cell).isPreferred},
	{id: RefererTrusted, severity: High, title: "Referer decides who may read",
		remedy: "With referrerPolicy unsafe-url, a page sends its whole URL as Referer, which can have any text. Decide " +
			"only by Origin.",
		group: KindReferer, askers: sending("another website, with the publisher in its Referer", (*cell).falseReferer)},
	{id: NoRefererAllowed, severity: High, title: "a page without a Referer is allowed",
		remedy: "A page can omit Referer with referrerPolicy no-referrer. Decide only by Origin.",
		group:  KindReferer, askers: sending("another website, without a Referer", noReferer)},
	{id: LocalhostAllowed, severity: Low, title: "a program or an extension on the reader's machine or network is allowed",
		remedy: "Such an origin is for development: localhost, a private address, an extension of the browser. Allow it " +
			"only while developing, and not in production.",
		group: KindLocalhost, askers: each("a program or an extension on the reader's machine or network",
			"http://localhost", "https://localhost", "http://localhost:3000", "http://localhost:5173", "http://localhost:8000",
			"http://localhost:8080",
			"http://127.0.0.1:8000", "http://192.168.0.10", "http://10.0.0.10:3000",
			"chrome-extension://"+strings.Repeat("abcdefghijklmnop", 2))},
	{id: DeadCacheAllowed, severity: Medium, title: "the domain of a former AMP Cache is allowed",
		remedy: "A domain can change hands. Allow only the caches in the registry, https://cdn.ampproject.org/caches.json.",
		group:  KindFormer, askers: (*cell).formerCaches},
	{id: ownHostAllowed,
		group: KindOwnHosts, askers: (*cell).belowThePublisher},
	{id: PortAllowed, severity: Low, title: "another port of an allowed host is allowed",
		remedy: "Other software may run at that port. Compare the whole Origin, with its port.",
		group:  KindOwnHosts, askers: (*cell).otherPorts},
	{id: OpenToAll, severity: Low, title: "any website can read the answers, which do not depend on cookies",
		remedy: "The answers that were compared are the same with and without the cookies of --cookie. If those cookies " +
			"are valid, the API may be public on purpose. If it is not, allow only the publishers' origins. If it is, and no " +
			"page sends cookies to it, answer Access-Control-Allow-Origin: * without Access-Control-Allow-Credentials: that " +
			"cannot become a leak later. Pages that send cookies cannot read such an answer."},
	{id: UnsafeReachesHandler, severity: High, title: "a forged POST is not denied",
		remedy: "Browsers send simple POSTs with cookies and without a preflight. Answer 403 to an Origin that is not " +
			"allowed, before the handler.",
		group: KindForged, askers: (*cell).forgedPosts, breaks: (*cell).isForged},
	{id: UnsafeSeemsToRun, severity: Medium, title: "a forged POST seems to run",
		remedy: "It is answered with success, but with another answer than the publisher's own request gets. Answer 403 to " +
			"an Origin that is not allowed, before the handler. If nothing was done, a status of 4xx would say so."},
}

// emailRules are about the emails of a sender.
var emailRules = []rule{
	{id: EmailSenderRefused, severity: High, title: "the sender's email is not answered as mail clients want it, with " +
		"version 2",
		remedy: "If a request has AMP-Email-Sender, and that sender is allowed, answer with status 200 and " +
			"AMP-Email-Allow-Sender: the same address. Origin does not count then. If it works with version 1, look for a " +
			"proxy that drops the request header AMP-Email-Sender.",
		group: KindEmails, askers: (*cell).emailsV2, breaks: (*cell).isAcceptedV2},
	{id: EmailV1Refused, severity: Medium, title: "the sender's email is not answered as mail clients want it, with " +
		"version 1",
		remedy: "If Origin is the mail client's and __amp_source_origin is an allowed sender, send " +
			"Access-Control-Allow-Origin: %[1]s, AMP-Access-Control-Allow-Source-Origin: the sender, and " +
			"Access-Control-Expose-Headers: AMP-Access-Control-Allow-Source-Origin. Gmail's documentation still asks for " +
			"version 1.",
		group: KindEmails, askers: (*cell).emailsV1, breaks: (*cell).isAcceptedV1},
	{id: EmailAnySender, severity: Medium, title: "the email of another sender is answered",
		remedy: "Compare the whole address with the allowed senders, and otherwise send neither AMP-Email-Allow-Sender " +
			"(version 2) nor AMP-Access-Control-Allow-Source-Origin (version 1). If the emails of everybody may read the " +
			"answers, AMP-Email-Allow-Sender: * says so for version 2.",
		group: KindSenders, askers: (*cell).otherSenders, breaks: (*cell).isOtherSenderDenied},
	{id: EmailOriginAllowed, severity: Low, title: "a website that names the sender can read the answers",
		remedy: "Allow version 1 only for the origins of mail clients, such as https://mail.google.com: every website can " +
			"send __amp_source_origin.",
		group: KindSenders, askers: (*cell).websiteWithSender, breaks: (*cell).isWebsiteDenied},
}
