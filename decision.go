package ampcors

import (
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ampcors/ampcors/internal/dns"
	"github.com/ampcors/ampcors/internal/mapping"
)

// A Decision says whether a request, or an origin, is allowed, and why. Origin, EmailSender
// and Publisher may share memory with the request or with the list of publishers: clone
// them to keep them after the request.
type Decision struct {
	Allowed bool
	Reason  Reason
	Origin  string // as the request had it, unverified and of any length; "" if it had none, or several

	// Publisher is the allowed publisher whose page the Origin names, in lower-case ASCII,
	// even if its preflight is denied. It is "" for any other request.
	Publisher string

	// ClaimedPublisher is the publisher domain that a denied cache origin names, if that
	// publisher is not allowed or the Source could not answer. Any caller can claim any
	// domain: do not count by it.
	ClaimedPublisher string

	CacheID string // the ID of the AMP Cache below whose domain the origin is; "" for any other

	// EmailSender is the sender that an AMP for Email request names; "" for any other
	// request, and without [Config].Email. It is unverified and of any length unless the
	// request is allowed.
	EmailSender string

	// Stale is set if Config.Source failed now, but confirmed the publisher within MaxStale.
	Stale bool

	// SourceErr is why Config.Source gave no answer: an error such as [source.ErrTimeout], the
	// Source's own error wrapped, or the cause for which the request was canceled. It is nil
	// unless Stale is set or the Reason is ReasonSourceUnavailable.
	SourceErr error
}

// StatusCode returns the status of the response to a denied request: 503 if the Source
// could not answer, otherwise 403. It returns 204 for an allowed request. That is the
// status of a preflight; for other requests, the handler chooses the status.
func (d Decision) StatusCode() int { return d.Reason.statusCode() }

// LogValue returns what is worth logging, for package log/slog. What the caller sent is
// truncated to 300 bytes and "...", and control characters in it are escaped.
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

// printable returns s with unprintable characters escaped, truncated to 300 bytes.
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

// decision returns the verdict as a Decision. It copies a domain that it takes from the
// claim.
func (v *verdict) decision() Decision {
	d := Decision{Allowed: v.reason.Allowed(), Reason: v.reason, Origin: v.caller.origin}
	switch {
	case v.identity.found.isSender():
		d.EmailSender = v.identity.name
		return d
	case v.reason == ReasonSameOrigin, v.identity.found == extraOrigin:
		return d // nothing that was read from the Origin is verified
	case v.claim.cache != nil:
		d.CacheID = v.claim.cache.id
	}
	d.Stale, d.SourceErr = v.identity.found == stale, v.identity.err
	switch {
	case v.identity.found == matched:
		d.Publisher = strings.Clone(v.claim.domain())
	case v.identity.found.isPublisher():
		d.Publisher = v.identity.name
	case v.claim.cache != nil && v.claim.namesDomain():
		d.ClaimedPublisher = strings.Clone(v.claim.domain())
	}
	return d
}

// decide implements the README's table "What each request gets".
func (p *policy) decide(c *caller, cl *claim, id *identity) Reason {
	if id.found.isSender() { // AMP for Email, for which Origin does not matter
		return p.decideEmail(c, id)
	}
	if c.origins == 0 {
		return p.decideWithoutOrigin(c)
	}
	if c.origins > 1 {
		return ReasonMalformed // browsers send exactly one, so several are ambiguous
	}
	isOwnOrigin := id.found.isPublisher() && cl.cache == nil
	if c.isPreflight && id.found.isAllowed() {
		if reason := p.decidePreflight(c, isOwnOrigin); reason != 0 {
			return reason
		}
	}
	switch {
	case id.found == extraOrigin:
		return ReasonExtraOrigin
	case isOwnOrigin:
		return ReasonOwnOrigin
	case id.found.isPublisher() && cl.form == formHash:
		return ReasonCacheOriginHash
	case id.found.isPublisher():
		return ReasonCacheOrigin

	// The API host's own page. Its Origin may even be "null", if it hides its referrer.
	case !c.isPreflight && c.isSameOrigin():
		return ReasonSameOrigin
	case id.found == unanswered:
		return ReasonSourceUnavailable
	case id.found == mailClient:
		return ReasonNoEmailSender
	}
	return p.denial(cl)
}

// decideWithoutOrigin decides on a request that has no Origin. Browsers send Origin with
// every cross-origin request that is unsafe or whose response a script can read.
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

// decidePreflight returns why the preflight of an allowed caller is denied, or 0.
func (p *policy) decidePreflight(c *caller, isOwnOrigin bool) Reason {
	switch {
	case !slices.Contains(p.methods, c.method): // in a list, because a map would hash a method of any length
		return ReasonMethodNotAllowed
	case !p.allowsHeaders(c.requestHeaders(), isOwnOrigin):
		return ReasonHeaderNotAllowed
	}
	return 0
}

// decideEmail decides on an AMP for Email request.
func (p *policy) decideEmail(c *caller, id *identity) Reason {
	switch id.found {
	case emailSender:
		return ReasonEmail
	case otherSender:
		return ReasonEmailSenderNotAllowed
	case noSender:
		return ReasonNoEmailSender
	}
	if c.isPreflight {
		if reason := p.decidePreflight(c, false); reason != 0 {
			return reason
		}
	}
	return ReasonEmailV1
}

// denial returns why the claim of an unknown caller is denied.
func (p *policy) denial(cl *claim) Reason {
	switch {
	case cl.form == formMalformed:
		return ReasonMalformed
	case cl.form == formNull:
		return ReasonNull
	case cl.form == formOtherScheme, cl.form == formHTTPHost && !p.cfg.DangerouslyAllowHTTPOwnOrigins:
		return ReasonNotHTTPS
	}
	cl.check() // unless identity.find has
	if cl.cache != nil {
		return cl.prefixDenial()
	}
	return cl.hostDenial()
}

func (cl *claim) hostDenial() Reason {
	switch cl.problem {
	case nil, problemReserved, dns.ProblemSingleLabel, dns.ProblemNumber, dns.ProblemEdgeHyphen, dns.ProblemALabel:
		return ReasonUnknownHost // an origin, but not of an allowed publisher
	}
	return ReasonMalformed
}

func (cl *claim) prefixDenial() Reason {
	switch {
	case cl.problem == dns.ProblemChar:
		return ReasonMalformed
	case cl.problem == mapping.ProblemAmbiguous:
		return ReasonAmbiguousPrefix
	case !cl.namesDomain():
		return ReasonNotCanonical
	case cl.form == formHash:
		return ReasonHashNotKnown
	}
	return ReasonPublisherNotAllowed
}

// allowsHeaders reports whether all names in Access-Control-Request-Headers are allowed.
// Proxies rewrite that list, so that it may have several lines, spaces, empty elements and
// any case. It may not have more than twice the bytes of a list of all allowed names.
//
// AMP pages send AMP-Same-Origin to their own origin. If that redirects the request, such
// as from the apex to www, the preflight asks for the header. A cache's page must never get
// it: it could then claim to be a page of the API's own origin.
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
			if !dns.IsASCII(name) || !ok && !(isOwnOrigin && lower == ampSameOrigin) { // ToLower maps some non-ASCII letters to ASCII
				return false
			}
		}
	}
	return true
}
