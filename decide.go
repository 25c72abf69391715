package ampcors

import (
	"net/http"
	"slices"
	"strings"

	"github.com/ampcors/ampcors/internal/domains"
	"github.com/ampcors/ampcors/internal/prefixes"
)

// A verdict holds the result of each stage for one request. It is on the stack, and must not be copied while a
// result of claim.domain or claim.key is in use: such a string points into it.
type verdict struct {
	caller   caller
	sender   sender
	claim    claim
	identity identity
	asked    asked
	reason   Reason
}

// judge takes a request through the stages:
//
//	caller    caller.go      what the request says
//	sender    email.go       which email it comes from, if any
//	claim     reverse.go     whose page its Origin names
//	identity  identity.go    whether that publisher is allowed, after the claim is checked if that is necessary
//	asked     below          whether an allowed caller's preflight asks for what it may
//	reason    below          whether the request is allowed, and why
//
// respond, in response.go, then writes the headers. Each stage fills its field of v, and may finish the claim:
// identity and decide check it only when they need it. To copy these values would cost more than a lookup. If r
// is nil, the caller is already set.
func (p *policy) judge(v *verdict, r *http.Request) {
	if r != nil {
		v.caller.read(r)
	}
	if p.email != nil {
		v.sender = p.email.identify(&v.caller)
	}
	if v.sender.reason == 0 && v.caller.origins == 1 {
		v.claim.read(v.caller.origin, &p.hosts)
		v.identity.find(p, &v.caller, &v.claim)
	}
	if v.caller.isPreflight && (v.identity.match.isAllowed() || v.sender.reason == ReasonEmailV1) {
		v.asked.check(p, &v.caller, v.isOwn())
	}
	v.reason = p.decide(v)
}

// decide implements the table "What each request gets" of docs/requests.md.
func (p *policy) decide(v *verdict) Reason {
	c, id := &v.caller, &v.identity
	switch {
	case v.asked.denial != 0:
		return v.asked.denial
	case v.sender.reason != 0: // AMP for Email, for which Origin does not matter
		return v.sender.reason
	case c.origins == 0:
		return p.decideWithoutOrigin(c)
	case c.origins > 1:
		return ReasonMalformed // browsers send exactly one, so several are ambiguous
	case id.match == extraOrigin:
		return ReasonExtraOrigin
	case v.isOwn():
		return ReasonOwnOrigin
	case id.match.isPublisher() && v.claim.kind == kindHash:
		return ReasonCacheOriginHash
	case id.match.isPublisher():
		return ReasonCacheOrigin

	// The API host's own page. Its Origin may even be "null", if it hides its referrer.
	case !c.isPreflight && c.isSameOrigin():
		return ReasonSameOrigin
	case id.match == unanswered:
		return ReasonSourceUnavailable
	case v.sender.isMailClient:
		return ReasonNoEmailSender
	}
	return p.denial(&v.claim)
}

// isOwn reports whether the Origin is an allowed publisher's own.
func (v *verdict) isOwn() bool { return v.identity.match.isPublisher() && v.claim.cache == nil }

// decideWithoutOrigin decides on a request that has no Origin. Browsers send Origin with every cross-origin
// request that is unsafe or whose response a script can read.
func (p *policy) decideWithoutOrigin(c *caller) Reason {
	switch {
	case c.isSafe():
		return ReasonNoOrigin
	case c.hasAMPSameOrigin():
		return ReasonSameOrigin
	case p.cfg.DangerouslyAllowUnsafeRequestsWithoutOrigin:
		return ReasonNoOrigin
	}
	return ReasonNoOriginUnsafe
}

// denial returns why the claim of an unknown caller is denied. identity.find has checked the claim, if it may
// name a publisher.
func (p *policy) denial(cl *claim) Reason {
	switch {
	case cl.kind == kindMalformed:
		return ReasonMalformed
	case cl.kind == kindNull:
		return ReasonNull
	case cl.kind == kindOtherScheme, cl.kind == kindHTTPHost && !p.cfg.DangerouslyAllowHTTPOwnOrigins:
		return ReasonNotHTTPS
	}
	if cl.cache != nil {
		return cl.prefixDenial()
	}
	return cl.hostDenial()
}

func (cl *claim) hostDenial() Reason {
	switch cl.problem {
	case nil, problemReserved, domains.ProblemSingleLabel, domains.ProblemNumber, domains.ProblemEdgeHyphen,
		domains.ProblemALabel:
		return ReasonUnknownHost // an origin, but not of an allowed publisher
	}
	return ReasonMalformed
}

func (cl *claim) prefixDenial() Reason {
	switch {
	case cl.problem == domains.ProblemChar, cl.problem != nil && strings.ContainsAny(cl.name, ", :/"):
		// such as several origins in one line
		return ReasonMalformed
	case cl.problem == prefixes.ProblemAmbiguous:
		return ReasonAmbiguousPrefix
	case !cl.namesDomain():
		return ReasonNotCanonical
	case cl.kind == kindHash:
		return ReasonHashNotKnown
	}
	return ReasonPublisherNotAllowed
}

// An asked is what an allowed caller's preflight asks for. It is zero for any other request.
type asked struct {
	denial       Reason // why the preflight is denied, or 0
	deniedHeader string // the first name that is not allowed; "" if there are too many bytes
	headers      string // that are granted, as the preflight lists them
}

func (a *asked) check(p *policy, c *caller, isOwnOrigin bool) {
	if !slices.Contains(p.methods, c.method) { // in a list, because a map would hash a method of any length
		a.denial = ReasonMethodNotAllowed
		return
	}
	a.checkHeaders(p, c.requestHeaders(), isOwnOrigin)
}

// checkHeaders checks the lines of Access-Control-Request-Headers. Proxies rewrite that list, so that it may
// have several lines, spaces, empty elements and any case. It may have at most twice the bytes of a list of all
// allowed names, plus the bytes of AMP-Same-Origin: see compile.
//
// AMP pages send AMP-Same-Origin to their own origin. If that redirects the request, such as from the apex to
// www, the preflight asks for the header. A cache's page must never get it: it could then claim to be a page of
// the API's own origin.
func (a *asked) checkHeaders(p *policy, lines []string, isOwnOrigin bool) {
	left := p.maxRequestHeaderBytes
	for _, line := range lines {
		if left -= len(line) + 1; left < 0 {
			a.denial = ReasonHeaderNotAllowed
			return
		}
		if _, ok := p.requestHeaders[line]; ok {
			continue // one name as browsers write it, which is what most ask for
		}
		for name := range strings.SplitSeq(line, ",") {
			name = strings.Trim(name, " \t")
			if name == "" {
				continue
			}
			lower := strings.ToLower(name)
			_, ok := p.requestHeaders[lower]
			// ToLower maps some non-ASCII letters to ASCII
			if !domains.IsASCII(name) || !ok && !(isOwnOrigin && lower == ampSameOrigin) {
				a.denial, a.deniedHeader = ReasonHeaderNotAllowed, name
				return
			}
		}
	}
	// Kept, so that Config.Observe cannot change what was checked.
	a.headers = strings.Join(lines, ",")
}

// isGrantedPreflight reports whether the request is an allowed preflight. Mail clients that send
// AMP-Email-Sender send no preflights, so an OPTIONS request from them is like any other request.
func (v *verdict) isGrantedPreflight() bool {
	return v.caller.isPreflight && v.reason.Allowed() && v.reason != ReasonEmail
}

// decision returns the verdict as a Decision. It copies a domain that it takes from the claim.
func (v *verdict) decision() Decision {
	d := Decision{Allowed: v.reason.Allowed(), Reason: v.reason, Origin: v.caller.origin}
	switch {
	case v.sender.reason != 0:
		d.EmailSender = v.sender.address
		return d
	case v.reason == ReasonSameOrigin, v.identity.match == extraOrigin:
		return d // nothing that was read from the Origin is verified
	case v.claim.cache != nil:
		d.CacheID = v.claim.cache.id
	}
	d.isSameOrigin = v.reason == ReasonOwnOrigin && v.caller.isSameOrigin()
	d.Stale, d.SourceErr = v.identity.match == stale, v.identity.err
	switch {
	case v.identity.match.isPublisher() && v.identity.name == "":
		d.Publisher = strings.Clone(v.claim.domain())
	case v.identity.match.isPublisher():
		d.Publisher = v.identity.name
	case v.claim.cache != nil && v.claim.namesDomain():
		d.ClaimedPublisher = strings.Clone(v.claim.domain())
	}
	return d
}
