package ampcors

import (
	"log/slog"
	"net/http"
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

	CacheID string // the ID of the AMP Cache to which the origin belongs; "" if none, and for ReasonSameOrigin and ReasonExtraOrigin

	// EmailSender is the sender that an AMP for Email request names; "" for any other request, and without
	// [Config].Email. It is as the request has it: the domain may be in upper case. It is unverified and of any
	// length unless the request is allowed.
	EmailSender string

	// Stale is set if Config.Source failed now, but confirmed the publisher within MaxStale.
	Stale bool

	// SourceErr is why Config.Source gave no answer: an error such as [source.ErrTimeout], the Source's own error
	// wrapped, or the cause for which the request was canceled. It is nil unless Stale is set or the Reason is
	// ReasonSourceUnavailable.
	SourceErr error

	isSameOrigin bool // a page of the API's own host, which is also an allowed publisher; for IsFor
}

// StatusCode returns the status of the response to a denied request: 503 if the Source could not answer,
// otherwise 403. It returns 204 for an allowed request. That is the status of a preflight; for other requests,
// the handler chooses the status.
func (d Decision) StatusCode() int { return d.Reason.statusCode() }

// IsFor reports whether the request may act for one publisher, such as the tenant that a path names,
// where several are allowed: it is from a page of that publisher, from the API host's own page, or has
// no Origin. Programs send none, and browsers send none with links, images and scripts of any page: so
// a GET must change nothing, and must not answer with JavaScript. It is false for denied requests, for
// the zero Decision that [DecisionFromContext] returns without [Middleware.WrapDecision], for entries
// of Config.Origins, for emails, and for the publisher "", so that a tenant that is not known gets
// nothing. The publisher is in any spelling that Config.Publishers takes. A pattern, such as "*.example.com", means each name below its
// domain, also for one that is another tenant's by itself: ask for that tenant first, if there may be one. It means these names whether or not the
// pattern is listed, so a tenant must not be able to choose one over a public suffix, such as "*.github.io".
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

// LogValue returns what is worth logging, for package log/slog. What the caller sent is truncated to 300 bytes
// and "...", and control characters in it are escaped. The Source's error is one line of at most 1000 bytes.
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

// A Reason explains why a request is allowed or denied. There are few, so that requests can be counted by them.
// Their strings never change, but reasons may be added: store the string, and not the number.
type Reason uint8

// The reasons for which a request is allowed. Responses with the first four have a website's CORS headers.
const (
	ReasonOwnOrigin       Reason = iota + 1 // own_origin: an allowed publisher's own page
	ReasonCacheOrigin                       // cache_origin: an AMP Cache's origin whose prefix reverses to an allowed publisher
	ReasonCacheOriginHash                   // cache_origin_hash: an AMP Cache's origin with the hash prefix of an allowed publisher
	ReasonExtraOrigin                       // extra_origin: listed in Config.Origins
	ReasonEmail                             // email: AMP for Email, version 2, from an allowed sender
	ReasonEmailV1                           // email_v1: AMP for Email, version 1, from an allowed mail client and sender
	ReasonSameOrigin                        // same_origin: the API host's own page, by Sec-Fetch-Site or AMP-Same-Origin
	ReasonNoOrigin                          // no_origin: no Origin, and a safe method or DangerouslyAllowUnsafeRequestsWithoutOrigin
)

// The reasons for which a request is denied.
const (
	ReasonMalformed             Reason = iota + 1 + ReasonNoOrigin // malformed_origin: not a scheme and a host name; or several Origins
	ReasonNull                                                     // null_origin: a sandboxed frame, a local file, some redirects
	ReasonNotHTTPS                                                 // not_https: the scheme is not https
	ReasonUnknownHost                                              // unknown_host: neither an allowed publisher nor below a trusted AMP Cache
	ReasonNotCanonical                                             // not_canonical: below an AMP Cache, but not as a cache writes it
	ReasonAmbiguousPrefix                                          // ambiguous_prefix: two hosts have it: see package cacheurl, "Hosts that share a prefix"
	ReasonPublisherNotAllowed                                      // publisher_not_allowed: a cache origin of another publisher
	ReasonHashNotKnown                                             // hash_not_known: a hash prefix of no listed or known publisher
	ReasonNoOriginUnsafe                                           // no_origin_unsafe: an unsafe method, no Origin, no AMP-Same-Origin that counts
	ReasonNoEmailSender                                            // no_email_sender: AMP for Email without exactly one valid sender, or a website's request from a mail client's origin
	ReasonEmailSenderNotAllowed                                    // email_sender_not_allowed: AMP for Email of another sender
	ReasonMethodNotAllowed                                         // method_not_allowed: a preflight asks for a method that is not allowed
	ReasonHeaderNotAllowed                                         // header_not_allowed: a preflight asks for a header that is not allowed
	ReasonSourceUnavailable                                        // source_unavailable: Config.Source could not answer; status 503

	numReasons = iota + 1 + ReasonNoOrigin
)

var reasons = [numReasons]string{
	0:                           "undecided",
	ReasonOwnOrigin:             "own_origin",
	ReasonCacheOrigin:           "cache_origin",
	ReasonCacheOriginHash:       "cache_origin_hash",
	ReasonExtraOrigin:           "extra_origin",
	ReasonEmail:                 "email",
	ReasonEmailV1:               "email_v1",
	ReasonSameOrigin:            "same_origin",
	ReasonNoOrigin:              "no_origin",
	ReasonMalformed:             "malformed_origin",
	ReasonNull:                  "null_origin",
	ReasonNotHTTPS:              "not_https",
	ReasonUnknownHost:           "unknown_host",
	ReasonNotCanonical:          "not_canonical",
	ReasonAmbiguousPrefix:       "ambiguous_prefix",
	ReasonPublisherNotAllowed:   "publisher_not_allowed",
	ReasonHashNotKnown:          "hash_not_known",
	ReasonNoOriginUnsafe:        "no_origin_unsafe",
	ReasonNoEmailSender:         "no_email_sender",
	ReasonEmailSenderNotAllowed: "email_sender_not_allowed",
	ReasonMethodNotAllowed:      "method_not_allowed",
	ReasonHeaderNotAllowed:      "header_not_allowed",
	ReasonSourceUnavailable:     "source_unavailable",
}

// Allowed reports whether requests with this reason are allowed. It is false for the zero Reason.
func (r Reason) Allowed() bool { return 0 < r && r <= ReasonNoOrigin }

// statusCode returns the status of a response that the handler does not write.
func (r Reason) statusCode() int {
	switch {
	case r.Allowed():
		return http.StatusNoContent
	case r == ReasonSourceUnavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusForbidden
}

// String returns the reason as one word of a-z, 0-9 and underscores, such as "publisher_not_allowed". It never
// changes.
func (r Reason) String() string {
	if r < numReasons {
		return reasons[r]
	}
	return reasons[0]
}

// MarshalText returns the result of String, so that in JSON, Stats.Requests is an object with a member for each
// reason.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }
