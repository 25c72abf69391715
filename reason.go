package ampcors

import (
	"net/http"
)

// A Reason says why a request is allowed or denied. There are few, so that requests can be
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
	ReasonNoOrigin                          // no_origin: no Origin, and the method is safe, or DangerouslyAllowUnsafeRequestsWithoutOrigin is set
)

// The reasons for which a request is denied.
const (
	ReasonMalformed             Reason = iota + 1 + ReasonNoOrigin // malformed_origin: not exactly a scheme and a host name, for example with a port; or several Origins
	ReasonNull                                                     // null_origin: a sandboxed frame, a local file, some redirects
	ReasonNotHTTPS                                                 // not_https: the scheme is not https
	ReasonUnknownHost                                              // unknown_host: not an allowed publisher's domain, and not below the domain of a trusted AMP Cache
	ReasonNotCanonical                                             // not_canonical: below a cache's domain, but not in a form that an AMP Cache writes
	ReasonAmbiguousPrefix                                          // ambiguous_prefix: an AMP Cache's origin with a prefix that two hosts share; see "Hosts that share a prefix" in the package documentation
	ReasonPublisherNotAllowed                                      // publisher_not_allowed: an AMP Cache's origin of a publisher that is not allowed
	ReasonHashNotKnown                                             // hash_not_known: an AMP Cache's origin with a hash prefix; no publisher that is listed exactly or known to the Source has it
	ReasonNoOriginUnsafe                                           // no_origin_unsafe: an unsafe method with neither Origin nor AMP-Same-Origin
	ReasonNoEmailSender                                            // no_email_sender: AMP for Email, but not with exactly one address as its sender
	ReasonEmailSenderNotAllowed                                    // email_sender_not_allowed: AMP for Email, from a sender that is not allowed
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
