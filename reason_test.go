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
	want := map[ampcors.Reason][2]string{
		0:                                   {"undecided", "not decided"},
		ampcors.ReasonOwnOrigin:             {"own_origin", "own origin"},
		ampcors.ReasonCacheOrigin:           {"cache_origin", "cache origin"},
		ampcors.ReasonCacheOriginHash:       {"cache_origin_hash", "cache origin with a hash prefix"},
		ampcors.ReasonExtraOrigin:           {"extra_origin", "extra origin"},
		ampcors.ReasonEmail:                 {"email", "email"},
		ampcors.ReasonEmailV1:               {"email_v1", "email, version 1"},
		ampcors.ReasonSameOrigin:            {"same_origin", "same origin"},
		ampcors.ReasonNoOrigin:              {"no_origin", "no origin"},
		ampcors.ReasonMalformed:             {"malformed_origin", "malformed origin"},
		ampcors.ReasonNull:                  {"null_origin", "null origin"},
		ampcors.ReasonNotHTTPS:              {"not_https", "not https"},
		ampcors.ReasonUnknownHost:           {"unknown_host", "unknown host"},
		ampcors.ReasonNotCanonical:          {"not_canonical", "not a canonical cache origin"},
		ampcors.ReasonAmbiguousPrefix:       {"ambiguous_prefix", "ambiguous prefix"},
		ampcors.ReasonPublisherNotAllowed:   {"publisher_not_allowed", "publisher not allowed"},
		ampcors.ReasonHashNotKnown:          {"hash_not_known", "hash prefix not known"},
		ampcors.ReasonNoOriginUnsafe:        {"no_origin_unsafe", "no origin on an unsafe method"},
		ampcors.ReasonNoEmailSender:         {"no_email_sender", "no email address as the sender"},
		ampcors.ReasonEmailSenderNotAllowed: {"email_sender_not_allowed", "email sender not allowed"},
		ampcors.ReasonMethodNotAllowed:      {"method_not_allowed", "method not allowed"},
		ampcors.ReasonHeaderNotAllowed:      {"header_not_allowed", "header not allowed"},
		ampcors.ReasonSourceUnavailable:     {"source_unavailable", "source unavailable"},
	}
	if len(want) != int(ampcors.NumReasons) {
		t.Errorf("%d reasons; want %d", ampcors.NumReasons, len(want))
	}
	for r, texts := range want {
		if r.Label() != texts[0] || r.String() != texts[1] {
			t.Errorf("%d is %q, %q; want %q", r, r.Label(), r.String(), texts)
		}
		if strings.ContainsFunc(r.Label(), func(c rune) bool { return c != '_' && !unicode.IsLower(c) && !unicode.IsDigit(c) }) {
			t.Errorf("the label %q is not one word", r.Label())
		}
		if allowed := r != 0 && r <= ampcors.ReasonNoOrigin; r.Allowed() != allowed {
			t.Errorf("%s is allowed: %t", r, r.Allowed())
		}
		var back ampcors.Reason
		if err := back.UnmarshalText([]byte(r.Label())); err != nil || back != r {
			t.Errorf("%q is read as %s, %v", r.Label(), back, err)
		}
	}
	if r := ampcors.Reason(200); r.Label() != "undecided" || r.String() != "Reason(200)" || r.Allowed() {
		t.Errorf("a reason that does not exist: %q, %q", r.Label(), r)
	}
	var r ampcors.Reason
	if err := r.UnmarshalText([]byte("cache origin")); err == nil || !strings.Contains(err.Error(), `such as "cache_origin"`) {
		t.Errorf("got %v", err)
	}
}
