package ampcors

import (
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Decision says whether a request, or an origin, is allowed, and why. Clone a string that
// is kept for long: Origin and EmailSender are parts of the request's memory, and Publisher
// can be a part of that of all publishers' names.
type Decision struct {
	Allowed bool
	Reason  Reason
	Origin  string // as the request had it, unverified and of any length; "" if it had none, or several

	// Publisher is the publisher whose page sent the request, in lower-case ASCII. It is
	// verified: one that Config allows. It is "" if that is not known, or if it was no
	// publisher's page.
	Publisher string

	// ClaimedPublisher is the publisher domain that a cache origin names which is denied
	// because that publisher is not known. Anybody can claim any: do not count by it.
	ClaimedPublisher string

	CacheID string // the ID of the AMP Cache below whose domain the origin is; "" for any other

	// EmailSender is the sender that an AMP for Email request names; "" for any other
	// request, and without [Config].Email. It is unverified and of any length unless the
	// request is allowed.
	EmailSender string

	// Stale is set if Config.Source confirmed the publisher within Lookup.MaxStale, but
	// failed to do so now.
	Stale bool

	// SourceErr is why Config.Source could not answer; nil unless Stale is set or the Reason
	// is ReasonSourceUnavailable. Errors are [ErrSourceRateLimited] and those beside it, or
	// wrap the Source's own.
	SourceErr error
}

// StatusCode returns the status with which the decision is answered if the handler does not
// run: 204 for a preflight that is allowed, 503 if the Source could not answer, else 403.
func (d Decision) StatusCode() int {
	switch {
	case d.Allowed:
		return http.StatusNoContent
	case d.Reason == ReasonSourceUnavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusForbidden
}

// LogValue returns what is worth logging, for package log/slog. What the caller sent is
// truncated to 300 bytes, and control characters in it are escaped.
func (d Decision) LogValue() slog.Value {
	attrs := []slog.Attr{slog.Bool("allowed", d.Allowed), slog.String("reason", d.Reason.Label())}
	add := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, printable(value)))
		}
	}
	add("origin", d.Origin)
	add("publisher", d.Publisher)
	add("claimed_publisher", d.ClaimedPublisher)
	add("cache", d.CacheID)
	add("email_sender", d.EmailSender)
	if d.Stale {
		attrs = append(attrs, slog.Bool("stale", true))
	}
	if d.SourceErr != nil {
		add("source_error", d.SourceErr.Error())
	}
	return slog.GroupValue(attrs...)
}

// printable returns what fits of s into 300 bytes, with what cannot be printed escaped.
func printable(s string) string {
	const most = 300
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		char := s[:size]
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			char = strings.Trim(strconv.Quote(char), `"`)
		}
		if b.Len()+len(char) > most {
			return b.String() + "..."
		}
		b.WriteString(char)
		s = s[size:]
	}
	return b.String()
}

// decision returns what is known of a verdict, for those who want it: names that lie in the
// request's memory are copied.
func (v *verdict) decision() Decision {
	d := Decision{Allowed: v.reason.Allowed(), Reason: v.reason, Origin: v.caller.origin}
	switch {
	case v.identity.standing.isSender():
		d.EmailSender = v.identity.name
		return d
	case v.reason == ReasonSameOrigin, v.identity.standing == extraOrigin:
		return d // nothing that was read from the Origin is verified
	case v.claim.cache != nil:
		d.CacheID = v.claim.cache.id
	}
	d.Stale, d.SourceErr = v.identity.standing == stale, v.identity.err
	switch {
	case v.identity.standing == matched:
		d.Publisher = strings.Clone(v.claim.domain())
	case v.identity.standing.isPublisher():
		d.Publisher = v.identity.name
	case v.claim.cache != nil && (v.claim.problem == noProblem || v.claim.problem == problemReserved):
		d.ClaimedPublisher = strings.Clone(v.claim.domain())
	}
	return d
}

// decide is the table of the README, "What each request gets", row by row.
func (p *policy) decide(c *caller, cl *claim, id *identity) Reason {
	switch {
	case id.standing.isSender(): // which AMP for Email names, so that Origin does not matter
		return p.decideEmail(c, id)
	case c.origins == 0:
		return p.decideWithoutOrigin(c)
	case c.origins > 1:
		return ReasonMalformed // browsers send exactly one, so several are ambiguous
	case c.isPreflight && id.standing.isAllowed():
		if reason := p.decidePreflight(c, cl, id); reason != 0 {
			return reason
		}
	}
	switch {
	case id.standing == extraOrigin:
		return ReasonExtraOrigin
	case id.standing.isPublisher() && cl.cache == nil:
		return ReasonOwnOrigin
	case id.standing.isPublisher() && cl.form == formHash:
		return ReasonCacheOriginHash
	case id.standing.isPublisher():
		return ReasonCacheOrigin

	// The API host's own page. Its Origin may even be "null", if it hides its referrer.
	case !c.isPreflight && c.isSameOrigin():
		return ReasonSameOrigin
	case id.standing == undecided:
		return ReasonSourceUnavailable
	case id.standing == mailClient:
		return ReasonNoEmailSender
	}
	return p.denial(cl)
}

// decideWithoutOrigin decides on a request that has no Origin. Browsers send one with every
// request across origins that can be read or that is unsafe.
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

// decidePreflight returns why the preflight of an allowed origin is denied, or 0.
func (p *policy) decidePreflight(c *caller, cl *claim, id *identity) Reason {
	isOwnOrigin := id.standing.isPublisher() && cl.cache == nil
	switch {
	case !slices.Contains(p.methods, c.method): // in a list, because a map would hash a method of any length
		return ReasonMethodNotAllowed
	case !p.allowsHeaders(c.requestHeaders(), isOwnOrigin):
		return ReasonHeaderNotAllowed
	}
	return 0
}

// decideEmail decides on a request that names a sender. A mail client that does so by
// AMP-Email-Sender sends no preflights.
func (p *policy) decideEmail(c *caller, id *identity) Reason {
	switch id.standing {
	case sender:
		return ReasonEmail
	case otherSender:
		return ReasonEmailSenderNotAllowed
	case noSender:
		return ReasonNoEmailSender
	}
	if c.isPreflight {
		if reason := p.decidePreflight(c, nil, id); reason != 0 {
			return reason
		}
	}
	return ReasonEmailV1
}

// denial returns why the claim of somebody who is not known is denied.
func (p *policy) denial(cl *claim) Reason {
	switch {
	case cl.form == formMalformed:
		return ReasonMalformed
	case cl.form == formNull:
		return ReasonNull
	case cl.form == formOtherScheme, cl.form == formHTTPHost && !p.cfg.DangerouslyAllowHTTPOwnOrigins:
		return ReasonNotHTTPS
	case cl.cache != nil:
		return cl.prefixDenial()
	}
	return cl.hostDenial()
}

func (cl *claim) hostDenial() Reason {
	switch cl.problem {
	case noProblem, problemReserved, problemSingleLabel, problemNumber, problemEdgeHyphen, problemALabel:
		return ReasonUnknownHost // an origin, but no allowed publisher's
	}
	return ReasonMalformed
}

func (cl *claim) prefixDenial() Reason {
	switch {
	case cl.problem == problemChar:
		return ReasonMalformed
	case cl.problem != noProblem && cl.problem != problemReserved:
		return ReasonNotCanonical
	case cl.form == formHash:
		return ReasonHashNotKnown
	}
	return ReasonPublisherNotAllowed
}

// allowsHeaders reports whether all names in Access-Control-Request-Headers are allowed.
// Proxies rewrite that list, so that it may have several lines, spaces, empty elements and
// any case. It may not have more bytes than a list of all allowed names can have.
//
// A page at its own origin carries AMP-Same-Origin along when it is redirected from the apex
// to www, and so asks for it. A cache's page must never get it: it would have a header that
// says that it is not one.
func (p *policy) allowsHeaders(lines []string, isOwnOrigin bool) bool {
	left := p.maxRequestHeaderBytes
	for _, line := range lines {
		if left -= len(line) + 1; left < 0 {
			return false
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
			isASCII := len(lower) == len(name) // or another letter was folded to an ASCII one, which has one byte
			if !isASCII || !ok && !(isOwnOrigin && lower == ampSameOrigin) {
				return false
			}
		}
	}
	return true
}
