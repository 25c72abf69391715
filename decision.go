package ampcors

import (
	"log/slog"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ampcors/ampcors/internal/domains"
	"github.com/ampcors/ampcors/source/driver"
)

// A Decision reports whether a request, or an origin, is allowed, and why. Origin, EmailSender and Publisher
// may share memory with the request or with the list of publishers: clone them to keep them after the request.
type Decision struct {
	Allowed bool
	Reason  Reason
	Origin  string // as the request had it, unverified and of any length; "" if it had none, or several

	// Publisher is the allowed publisher whose page the Origin names, in lower-case ASCII, even if its preflight
	// is denied. It is "" for any other request.
	Publisher string

	// ClaimedPublisher is the publisher domain that a denied cache origin names, if that publisher is not allowed
	// or the Source could not answer. Any caller can claim any domain: do not count by it.
	ClaimedPublisher string

	// the ID of the AMP Cache to which the origin belongs; "" if none, and for emails, ReasonSameOrigin and
	// ReasonExtraOrigin
	CacheID string

	// EmailSender is the sender that an AMP for Email request names; "" for any other request, and without
	// [Config].Email. It is as the request has it: the domain may be in upper case. It is never verified. In a denied
	// request, it has any length.
	EmailSender string

	// Stale is set if Config.Source failed now, but confirmed the publisher within MaxStale.
	Stale bool

	// SourceErr is why Config.Source gave no answer: an error such as [source.ErrTimeout], the Database's own error
	// wrapped, or the cause for which the request was canceled. It is nil unless Stale is set or the Reason is
	// ReasonSourceUnavailable.
	SourceErr error

	isSameOrigin bool // a page of the API's own host, which is also an allowed publisher; for IsFor
}

// StatusCode returns the status of the response to a denied request: 503 if the Source could not answer,
// otherwise 403. It returns 204 for an allowed request. That is the status of a preflight; for other requests,
// the handler chooses the status.
func (d Decision) StatusCode() int { return d.Reason.statusCode() }

// IsFor reports whether the request may act for one publisher, such as the tenant that a path names, where several
// are allowed: it is from a page of that publisher, from the API host's own page, or has no Origin. Programs send
// none, and browsers send none with links, images and scripts of any page: so a GET must change nothing, and must not
// answer with JavaScript. It is false for denied requests, for the zero Decision that [DecisionFromContext] returns
// without [Middleware.WrapDecision], for entries of Config.Origins (also if one is the API's own origin), for emails,
// and for the publisher "", so that a tenant that is not known gets nothing. The publisher is in any spelling that
// Config.Publishers takes, but a pattern has at least two labels after "*.". A pattern, listed or not, such as
// "*.example.com", matches each name below its domain, even one that another tenant owns: first check that
// Decision.Publisher is no other tenant's own name. A tenant must not be able to choose a pattern over a public
// suffix, such as "*.github.io".
func (d Decision) IsFor(publisher string) bool {
	switch {
	case !d.Allowed || publisher == "":
		return false
	case d.Reason == ReasonSameOrigin, d.Reason == ReasonNoOrigin, d.isSameOrigin:
		return true
	}
	if d.Publisher == publisher || d.Publisher == "" {
		return d.Publisher != ""
	}
	base, isPattern := strings.CutPrefix(publisher, "*.")
	domain, problem := domains.Parse(base)
	switch {
	case problem != nil:
		return false
	case isPattern:
		return d.Publisher != domain && domains.IsOrIsBelow(d.Publisher, domain)
	}
	return d.Publisher == domain
}

// LogValue returns what is worth logging, for package log/slog. What the caller sent is truncated to 300 bytes and
// "...", and control characters in it are escaped. The Source's error is one line of about 1000 bytes at most.
func (d Decision) LogValue() slog.Value {
	attrs := []slog.Attr{slog.Bool("allowed", d.Allowed), slog.String("reason", d.Reason.String())}
	add := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, printable(value, 300)))
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
		attrs = append(attrs, slog.String("source_error", printable(driver.LogText(d.SourceErr), 1000)))
	}
	return slog.GroupValue(attrs...)
}

// printable returns s with unprintable characters escaped, truncated to most bytes.
func printable(s string, most int) string {
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
