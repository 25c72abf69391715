package ampcors

import (
	"fmt"
	"net/http"
	"strconv"
)

// A Reason says why a request is allowed or denied. There are few, so that requests can be
// counted by them. Labels and texts never change, but reasons may be added: store the label,
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

var reasons = [numReasons]struct{ label, text string }{
	0:                           {"undecided", "not decided"},
	ReasonOwnOrigin:             {"own_origin", "own origin"},
	ReasonCacheOrigin:           {"cache_origin", "cache origin"},
	ReasonCacheOriginHash:       {"cache_origin_hash", "cache origin with a hash prefix"},
	ReasonExtraOrigin:           {"extra_origin", "extra origin"},
	ReasonEmail:                 {"email", "email"},
	ReasonEmailV1:               {"email_v1", "email, version 1"},
	ReasonSameOrigin:            {"same_origin", "same origin"},
	ReasonNoOrigin:              {"no_origin", "no origin"},
	ReasonMalformed:             {"malformed_origin", "malformed origin"},
	ReasonNull:                  {"null_origin", "null origin"},
	ReasonNotHTTPS:              {"not_https", "not https"},
	ReasonUnknownHost:           {"unknown_host", "unknown host"},
	ReasonNotCanonical:          {"not_canonical", "not a canonical cache origin"},
	ReasonAmbiguousPrefix:       {"ambiguous_prefix", "ambiguous prefix"},
	ReasonPublisherNotAllowed:   {"publisher_not_allowed", "publisher not allowed"},
	ReasonHashNotKnown:          {"hash_not_known", "hash prefix not known"},
	ReasonNoOriginUnsafe:        {"no_origin_unsafe", "no origin on an unsafe method"},
	ReasonNoEmailSender:         {"no_email_sender", "no email address as the sender"},
	ReasonEmailSenderNotAllowed: {"email_sender_not_allowed", "email sender not allowed"},
	ReasonMethodNotAllowed:      {"method_not_allowed", "method not allowed"},
	ReasonHeaderNotAllowed:      {"header_not_allowed", "header not allowed"},
	ReasonSourceUnavailable:     {"source_unavailable", "source unavailable"},
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

// String returns the reason in a few words, such as "publisher not allowed".
func (r Reason) String() string {
	if r < numReasons {
		return reasons[r].text
	}
	return "Reason(" + strconv.Itoa(int(r)) + ")"
}

// Label returns the reason as one word of a-z, 0-9 and underscores, such as
// "publisher_not_allowed", for metrics and logs.
func (r Reason) Label() string {
	if r < numReasons {
		return reasons[r].label
	}
	return reasons[0].label
}

// MarshalText returns the label, so that in JSON a [Stats] is an object with a member for
// each reason.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.Label()), nil }

// UnmarshalText reads a label.
func (r *Reason) UnmarshalText(label []byte) error {
	for i := range reasons {
		if reasons[i].label == string(label) {
			*r = Reason(i)
			return nil
		}
	}
	return fmt.Errorf("ampcors: %.80q is not the label of a Reason; want one such as %q", label, ReasonCacheOrigin.Label())
}
