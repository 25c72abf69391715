package ampcors

import (
	"slices"
	"strings"

	"github.com/ampcors/ampcors/internal/domains"
	"github.com/ampcors/ampcors/internal/prefixes"
)

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
			if !domains.IsASCII(name) || !ok && !(isOwnOrigin && lower == ampSameOrigin) { // ToLower maps some non-ASCII letters to ASCII
				a.denial, a.deniedHeader = ReasonHeaderNotAllowed, name
				return
			}
		}
	}
	// Kept, so that Config.Observe cannot change what was checked.
	a.headers = strings.Join(lines, ",")
}

// decide implements the README's table "What each request gets".
func (p *policy) decide(c *caller, s *sender, cl *claim, id *identity, a *asked) Reason {
	switch {
	case a.denial != 0:
		return a.denial
	case s.reason != 0: // AMP for Email, for which Origin does not matter
		return s.reason
	case c.origins == 0:
		return p.decideWithoutOrigin(c)
	case c.origins > 1:
		return ReasonMalformed // browsers send exactly one, so several are ambiguous
	case id.match == extraOrigin:
		return ReasonExtraOrigin
	case isOwn(cl, id):
		return ReasonOwnOrigin
	case id.match.isPublisher() && cl.kind == kindHash:
		return ReasonCacheOriginHash
	case id.match.isPublisher():
		return ReasonCacheOrigin

	// The API host's own page. Its Origin may even be "null", if it hides its referrer.
	case !c.isPreflight && c.isSameOrigin():
		return ReasonSameOrigin
	case id.match == unanswered:
		return ReasonSourceUnavailable
	case s.isMailClient:
		return ReasonNoEmailSender
	}
	return p.denial(cl)
}

// isOwn reports whether an Origin is an allowed publisher's own.
func isOwn(cl *claim, id *identity) bool { return id.match.isPublisher() && cl.cache == nil }

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
	case nil, problemReserved, domains.ProblemSingleLabel, domains.ProblemNumber, domains.ProblemEdgeHyphen, domains.ProblemALabel:
		return ReasonUnknownHost // an origin, but not of an allowed publisher
	}
	return ReasonMalformed
}

func (cl *claim) prefixDenial() Reason {
	switch {
	case cl.problem == domains.ProblemChar, cl.problem != nil && strings.ContainsAny(cl.name, ", :/"): // such as several origins in one line
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
