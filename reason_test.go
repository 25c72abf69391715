package ampcors_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/ampcors/ampcors"
)

// TestReasonsAreStable: programs count and alert by them.
func TestReasonsAreStable(t *testing.T) {
	t.Parallel()
	want := map[ampcors.Reason]string{
		0:                                   "undecided",
		ampcors.ReasonOwnOrigin:             "own_origin",
		ampcors.ReasonCacheOrigin:           "cache_origin",
		ampcors.ReasonCacheOriginHash:       "cache_origin_hash",
		ampcors.ReasonExtraOrigin:           "extra_origin",
		ampcors.ReasonEmail:                 "email",
		ampcors.ReasonEmailV1:               "email_v1",
		ampcors.ReasonSameOrigin:            "same_origin",
		ampcors.ReasonNoOrigin:              "no_origin",
		ampcors.ReasonMalformed:             "malformed_origin",
		ampcors.ReasonNull:                  "null_origin",
		ampcors.ReasonNotHTTPS:              "not_https",
		ampcors.ReasonUnknownHost:           "unknown_host",
		ampcors.ReasonNotCanonical:          "not_canonical",
		ampcors.ReasonAmbiguousPrefix:       "ambiguous_prefix",
		ampcors.ReasonPublisherNotAllowed:   "publisher_not_allowed",
		ampcors.ReasonHashNotKnown:          "hash_not_known",
		ampcors.ReasonNoOriginUnsafe:        "no_origin_unsafe",
		ampcors.ReasonNoEmailSender:         "no_email_sender",
		ampcors.ReasonEmailSenderNotAllowed: "email_sender_not_allowed",
		ampcors.ReasonMethodNotAllowed:      "method_not_allowed",
		ampcors.ReasonHeaderNotAllowed:      "header_not_allowed",
		ampcors.ReasonSourceUnavailable:     "source_unavailable",
	}
	if len(want) != int(ampcors.NumReasons) {
		t.Errorf("%d reasons; want %d", ampcors.NumReasons, len(want))
	}
	for r, text := range want {
		if r.String() != text {
			t.Errorf("%d is %q; want %q", r, r, text)
		}
		if strings.ContainsFunc(r.String(), func(c rune) bool { return c != '_' && !unicode.IsLower(c) && !unicode.IsDigit(c) }) {
			t.Errorf("%q is not one word", r.String())
		}
		if allowed := r != 0 && r <= ampcors.ReasonNoOrigin; r.Allowed() != allowed {
			t.Errorf("%s is allowed: %t", r, r.Allowed())
		}
	}
	if r := ampcors.Reason(200); r.String() != "undecided" || r.Allowed() {
		t.Errorf("a reason that does not exist: %q", r)
	}
}
