package ampcors

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/ampcors/ampcors/internal/domains"
	"github.com/ampcors/ampcors/internal/prefixes"
	"github.com/ampcors/ampcors/source/driver"
)

// An Explanation shows how a request or an Origin value was decided, one step after another.
type Explanation struct {
	Decision Decision
	Steps    []Step // the last is the verdict; those that were not reached are missing
}

// A Step of an [Explanation]. Names are "sender", "origin", "scheme", "cache", "prefix", "unwrapped",
// "publisher", "allowlist", "request", "preflight" and "verdict".
type Step struct {
	Name   string
	OK     bool
	Value  string // what this step found in the request
	Detail string // what that means, in a sentence
}

// Explain decides on an Origin value as [Middleware.CheckOrigin] does, by the same code, and shows how. It is
// for diagnostic pages and support, not for each request.
func (m *Middleware) Explain(origin string) Explanation {
	return m.explain(verdict{caller: caller{origin: origin, origins: 1}}, nil)
}

// ExplainRequest decides on a request as [Middleware.Check] does, by the same code, and shows how: also on a
// preflight, on a request of an email or of the API host's own page, and on one without Origin.
func (m *Middleware) ExplainRequest(r *http.Request) Explanation {
	return m.explain(verdict{}, r)
}

func (m *Middleware) explain(v verdict, r *http.Request) Explanation {
	p := m.current()
	p.judge(&v, r)
	hasClaim := v.sender.reason == 0 && v.caller.origins == 1
	if hasClaim {
		v.claim.checkAll(&p.hosts) // also finds problems that do not change the decision
	}
	e := Explanation{Decision: v.decision()}
	switch {
	case v.sender.reason != 0:
		e.explainSender(&v)
	case hasClaim:
		e.explain(p, &v)
	default:
		e.explainNoOrigin(&v)
	}
	e.explainPurpose(&v)
	outcome := "Denied"
	if e.Decision.Allowed {
		outcome = "Allowed"
	}
	e.step("verdict", e.Decision.Allowed, outcome, "Reason: "+v.reason.String()+".")
	return e
}

func (e *Explanation) explainSender(v *verdict) {
	detail := map[Reason]string{
		ReasonEmail: "Version 2 of AMP for Email: the sender is in email.senders. Origin does not count.",
		ReasonEmailV1: "Version 1 of AMP for Email: the sender is in email.senders, and the Origin in " +
			"email.clients.",
		ReasonEmailSenderNotAllowed: "The sender is not in email.senders.",
		ReasonNoEmailSender:         "An AMP for Email request names one sender, by its address.",
	}[v.sender.reason]
	e.step("sender", v.sender.reason.Allowed(), v.sender.address, detail)
}

// explainNoOrigin explains a request with no Origin, or with several.
func (e *Explanation) explainNoOrigin(v *verdict) {
	value, detail := "none", "Browsers send Origin with every request of a page at another origin that may change data, "+
		"or whose answer the page can read. This request has no Origin."
	switch {
	case v.caller.origins > 1:
		value, detail = strings.Join(v.caller.request.Header["Origin"], ", "),
			"Browsers send exactly one Origin, so several are ambiguous."
	case v.reason == ReasonSameOrigin:
		detail = "AMP-Same-Origin is true: a page of the API's own host, because no other can send it without a preflight."
	case v.reason == ReasonNoOriginUnsafe:
		detail = "The method " + v.caller.request.Method +
			" may change data, and neither Origin nor AMP-Same-Origin says whose page it is."
		if hasLine(v.caller.request.Header, "Amp-Same-Origin", "true") {
			detail = "AMP-Same-Origin does not count, because Sec-Fetch-Site says that the page is at another origin."
		}
	}
	e.step("origin", v.reason.Allowed(), value, detail)
}

// explainPurpose adds what is decided after the caller is known.
func (e *Explanation) explainPurpose(v *verdict) {
	switch {
	case v.reason == ReasonSameOrigin && v.caller.origins > 0:
		e.step("request", true, "Sec-Fetch-Site: same-origin",
			"The browser says that this is a page of the API's own host, for which CORS is not needed. Its Origin does not "+
				"count.")
	case v.reason == ReasonMethodNotAllowed:
		e.step("preflight", false, v.caller.method, "The method is not GET, HEAD or POST, and not in methods.")
	case v.reason == ReasonHeaderNotAllowed && v.asked.deniedHeader == "":
		e.step("preflight", false, "", "Access-Control-Request-Headers is longer than all headers that are allowed.")
	case v.reason == ReasonHeaderNotAllowed:
		e.step("preflight", false, v.asked.deniedHeader, "The header is not Content-Type, and not in requestHeaders.")
	case v.isGrantedPreflight():
		e.step("preflight", true, v.caller.method, "The method and the headers are allowed.")
	}
}

func (e *Explanation) step(name string, ok bool, value, detail string) {
	e.Steps = append(e.Steps, Step{name, ok, strings.Clone(value), detail})
}

// explain adds a step for each stage that was reached, from what the stages recorded.
func (e *Explanation) explain(p *policy, v *verdict) {
	cl := &v.claim
	scheme, host, _ := strings.Cut(v.caller.origin, "://")
	switch {
	case v.identity.match == extraOrigin:
		e.step("allowlist", true, v.caller.origin, "Listed in Origins.")
		return
	case v.sender.isMailClient && v.reason == ReasonNoEmailSender:
		e.step("allowlist", false, v.caller.origin, "The origin of a mail client. AMP for Email requests name their "+
			"sender, and pages at this origin are not allowed.")
		return
	case v.reason == ReasonNull:
		e.step("scheme", false, v.caller.origin, `Sandboxed frames and local files send "null"; anybody can.`)
		return
	case v.reason == ReasonNotHTTPS:
		e.step("scheme", false, scheme, schemeDetail(v.caller.origin, scheme))
		return
	case host == "" || cl.kind == kindMalformed:
		e.step("scheme", false, "", fmt.Sprintf("An origin is a scheme in lower case, \"://\" and a host, of %d bytes at "+
			"most.", domains.MaxOrigin))
		return
	}
	e.step("scheme", true, scheme, "Accepted.")
	if cl.cache == nil {
		e.explainHost(p, v, host)
		return
	}
	e.step("cache", true, cl.cache.domain, fmt.Sprintf("The AMP Cache %q.", cl.cache.id))
	e.explainPrefix(p, v)
}

// schemeDetail says what an origin without https is.
func schemeDetail(origin, scheme string) string {
	switch {
	case scheme == "http" && isNear(domains.HostOf(origin)):
		return "A page of a program on the reader's own machine or network. Only Origins allows it: list it there while " +
			"you develop, and not in production."
	case scheme == "http":
		return "Only https keeps others on the network from changing the page."
	case strings.HasSuffix(scheme, "-extension"):
		return "An extension of a browser, and no website. It needs no CORS for the hosts in the host_permissions of its " +
			"manifest."
	}
	return "No website, but perhaps the web view of an app: each app that is made with the same framework has this " +
		"origin. Requests that the app sends itself, and not its web view, need no CORS; such a POST has no Origin, and " +
		"needs a route beside ampcors."
}

// hostDetail says why the rest of an origin is no host.
func hostDetail(problem, host string) string {
	_, port, hasPort := strings.Cut(host, ":")
	switch {
	case hasPort && port != "" && strings.Trim(port, "0123456789") == "":
		return "A page at a port is another origin, and allowed only by Origins."
	case host != strings.ToLower(host):
		return "It has upper case, which no browser sends in an Origin."
	}
	return "As a host name, this " + problem + ". An origin has no path and no user information."
}

// isNear reports whether a host is on the reader's own machine or network.
func isNear(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") ||
		err == nil && (addr.IsLoopback() || addr.IsPrivate() || addr.IsLinkLocalUnicast())
}

func (e *Explanation) explainHost(p *policy, v *verdict, host string) {
	if v.reason == ReasonMalformed {
		e.step("cache", false, host, hostDetail(v.claim.problem.Reason, host))
		return
	}
	if reserved := p.hosts.reservedFor(host); reserved != nil && reserved.isCache {
		e.step("cache", false, "none", fmt.Sprintf("It is below %s, an AMP Cache that is not among those trusted here.",
			reserved.domain))
		return
	}
	e.step("cache", true, "none", "Not below the domain of an AMP Cache that is trusted here, so it is read as a "+
		"publisher's own origin.")
	if v.claim.problem != nil {
		e.step("publisher", false, host, "It cannot be a publisher: it "+v.claim.problem.Reason+". Only Origins allows it.")
		return
	}
	e.step("publisher", true, host, "The host is the publisher domain.")
	e.explainIdentity(p, v)
}

func (e *Explanation) explainPrefix(p *policy, v *verdict) {
	cl := &v.claim
	switch cl.problem {
	case prefixes.ProblemNoPrefix, prefixes.ProblemTwoLabels, prefixes.ProblemPrefixLength, prefixes.ProblemNotHash:
		e.step("prefix", false, cl.name, "What is before the cache domain "+cl.problem.Reason+".")
		return
	}
	if cl.kind == kindHash {
		e.step("prefix", true, cl.name, "No dash: this is a hash prefix (fallback algorithm).")
		e.explainIdentity(p, v)
		return
	}
	e.step("prefix", true, cl.name, "It has a dash, so it can be reversed.")

	text, detail := cl.name, "As it is: neither punycode nor wrapped in 0- and -0."
	if cl.kind == kindEncoded {
		_, text, _ = prefixes.Reverse(nil, cl.name)
	}
	switch {
	case !domains.IsASCII(text):
		detail = "Punycode is decoded. A 0- and -0 around it are removed if they were there."
	case text != cl.name:
		detail = "The 0- and -0 around it are removed."
	case strings.HasPrefix(cl.name, domains.ACEPrefix):
		detail = "As it is: not punycode of a host that can exist."
	}
	e.step("unwrapped", true, text, detail)

	switch cl.problem {
	case nil:
	case prefixes.ProblemAmbiguous:
		e.step("publisher", false, cl.domain(), fmt.Sprintf(
			"The prefix is punycode of this domain, and without decoding it is the prefix of the host %q. "+
				"AMP's implementations give it to both, so a page of either can be at this origin.", prefixes.OtherHost(cl.name)))
		return
	case problemReserved:
		e.step("publisher", false, cl.domain(), "It cannot be a publisher: it "+cl.problem.Reason+".")
		return
	default:
		e.step("publisher", false, "", "It is not the prefix of a publisher domain: it "+cl.problem.Reason+".")
		return
	}
	e.step("publisher", true, cl.domain(), `Read from left to right: "--" is a hyphen, "-" is a dot.`)
	e.explainIdentity(p, v)
}

func (e *Explanation) explainIdentity(p *policy, v *verdict) {
	id, isHash := &v.identity, v.claim.kind == kindHash
	publisher, ok := e.Decision.Publisher, id.match.isPublisher()
	detail := ""
	switch id.match {
	case listed:
		detail = "Listed in Publishers."
		if isHash {
			detail = "The hash prefix of this publisher, which is listed in Publishers."
		}
	case matched:
		detail = "Matched by a pattern in Publishers."
	case confirmed:
		detail = "Known to the Source."
		switch {
		case id.pattern != "":
			detail = fmt.Sprintf("Matched by %s, which the Source knows.", id.pattern)
		case isHash:
			detail = "The hash prefix of this publisher, which the Source knows."
		}
	case stale:
		detail = "Known to the Source"
		if id.pattern != "" {
			detail = fmt.Sprintf("Matched by %s, which the Source knew", id.pattern)
		}
		detail += " when it last answered. Now it failed: " + driver.LogText(id.err) + "."
	case unanswered:
		publisher, detail = e.Decision.ClaimedPublisher,
			"Not in Publishers, and the Source failed: "+driver.LogText(id.err)+"."
	case noMatch:
		detail = "Neither listed in Publishers nor matched by a pattern there"
		if isHash {
			detail = "No publisher that is listed exactly has this hash prefix"
		}
		if p.cfg.Source != nil {
			detail += ", and the Source does not know it"
		}
		if detail += "."; isHash {
			detail += " A pattern cannot match a hash prefix."
		} else if _, isApex := p.list.patterns[v.claim.domain()]; isApex {
			detail += fmt.Sprintf(" %[1]s is not below *.%[1]s: list it, too.", v.claim.domain())
		}
	}
	e.step("allowlist", ok, publisher, detail)
}
