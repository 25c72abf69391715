package ampcors

import (
	"net/http"
)

// A Reason explains why a request is allowed or denied. There are few, so that requests can be
// counted by them. Their strings never change, but reasons may be added: store the string,
// and not the number.
type Reason uint8

// The reasons for which a request is allowed. Responses with the first four have a
// website's CORS headers.
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
	ReasonNoOriginUnsafe                                           // no_origin_unsafe: an unsafe method, no Origin, no AMP-Same-Origin
	ReasonNoEmailSender                                            // no_email_sender: AMP for Email without exactly one sender
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

// Allowed reports whether requests with this reason are allowed. It is false for the zero
// Reason.
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

// String returns the reason as one word of a-z, 0-9 and underscores, such as
// "publisher_not_allowed". It never changes.
func (r Reason) String() string {
	if r < numReasons {
		return reasons[r]
	}
	return reasons[0]
}

// MarshalText returns the result of String, so that in JSON a [Stats] is an object with a member for
// each reason.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }
