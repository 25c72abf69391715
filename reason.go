package ampcors

import "net/http"

// A Reason explains why a request is allowed or denied. There are few, so that requests can be counted by them.
// Their strings never change, but reasons may be added: store the string, and not the number.
type Reason uint8

// The reasons. Their numbers have no meaning.
const (
	// Allowed.
	ReasonOwnOrigin Reason = iota + 1 // own_origin: an allowed publisher's own page
	// cache_origin: the prefix of an AMP Cache's origin reverses to an allowed publisher
	ReasonCacheOrigin
	ReasonCacheOriginHash // cache_origin_hash: an AMP Cache's origin with the hash prefix of an allowed publisher
	ReasonExtraOrigin     // extra_origin: listed in Config.Origins
	ReasonEmail           // email: AMP for Email, version 2, from an allowed sender
	ReasonEmailV1         // email_v1: AMP for Email, version 1, from an allowed mail client and sender
	ReasonSameOrigin      // same_origin: the API host's own page, by Sec-Fetch-Site or AMP-Same-Origin
	ReasonNoOrigin        // no_origin: a safe method, or DangerouslyAllowUnsafeRequestsWithoutOrigin

	// Denied.
	ReasonMalformed             // malformed_origin: not a scheme and a host name; or several Origins
	ReasonNull                  // null_origin: a sandboxed frame, a local file, some redirects
	ReasonNotHTTPS              // not_https: the scheme is not https
	ReasonUnknownHost           // unknown_host: neither an allowed publisher nor below a trusted AMP Cache
	ReasonNotCanonical          // not_canonical: at or below an AMP Cache's domain, but not as a cache writes it
	ReasonAmbiguousPrefix       // ambiguous_prefix: two hosts have it: see package cacheurl, "Hosts that share a prefix"
	ReasonPublisherNotAllowed   // publisher_not_allowed: a cache origin of another publisher
	ReasonHashNotKnown          // hash_not_known: a hash prefix of no listed or known publisher
	ReasonNoOriginUnsafe        // no_origin_unsafe: an unsafe method, no Origin, no AMP-Same-Origin that counts
	ReasonNoEmailSender         // no_email_sender: several senders or an invalid one; or a mail client without one
	ReasonEmailSenderNotAllowed // email_sender_not_allowed: AMP for Email of another sender
	ReasonMethodNotAllowed      // method_not_allowed: a preflight asks for a method that is not allowed
	ReasonHeaderNotAllowed      // header_not_allowed: a preflight asks for a header that is not allowed
	ReasonSourceUnavailable     // source_unavailable: Config.Source could not answer; status 503

	numReasons = iota + 1
)

// An effect is what becomes of a request.
type effect uint8

const (
	denied       effect = iota
	passed              // to the handler, without CORS headers
	granted             // to the handler, with the CORS headers of a website
	grantedEmail        // to the handler, with the headers of AMP for Email
)

// reasons has what follows from each reason, whatever its number is.
var reasons = [numReasons]struct {
	name   string
	effect effect
}{
	0:                           {"undecided", denied},
	ReasonOwnOrigin:             {"own_origin", granted},
	ReasonCacheOrigin:           {"cache_origin", granted},
	ReasonCacheOriginHash:       {"cache_origin_hash", granted},
	ReasonExtraOrigin:           {"extra_origin", granted},
	ReasonEmail:                 {"email", grantedEmail},
	ReasonEmailV1:               {"email_v1", grantedEmail},
	ReasonSameOrigin:            {"same_origin", passed},
	ReasonNoOrigin:              {"no_origin", passed},
	ReasonMalformed:             {"malformed_origin", denied},
	ReasonNull:                  {"null_origin", denied},
	ReasonNotHTTPS:              {"not_https", denied},
	ReasonUnknownHost:           {"unknown_host", denied},
	ReasonNotCanonical:          {"not_canonical", denied},
	ReasonAmbiguousPrefix:       {"ambiguous_prefix", denied},
	ReasonPublisherNotAllowed:   {"publisher_not_allowed", denied},
	ReasonHashNotKnown:          {"hash_not_known", denied},
	ReasonNoOriginUnsafe:        {"no_origin_unsafe", denied},
	ReasonNoEmailSender:         {"no_email_sender", denied},
	ReasonEmailSenderNotAllowed: {"email_sender_not_allowed", denied},
	ReasonMethodNotAllowed:      {"method_not_allowed", denied},
	ReasonHeaderNotAllowed:      {"header_not_allowed", denied},
	ReasonSourceUnavailable:     {"source_unavailable", denied},
}

// effect returns what becomes of a request with this reason. A number that is no reason denies.
func (r Reason) effect() effect {
	if r < numReasons {
		return reasons[r].effect
	}
	return denied
}

// Allowed reports whether requests with this reason are allowed. It is false for the zero Reason.
func (r Reason) Allowed() bool { return r.effect() != denied }

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
		return reasons[r].name
	}
	return reasons[0].name
}

// MarshalText returns the result of String, so that in JSON, Stats.Requests is an object with a member for each
// reason.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }
