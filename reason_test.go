package ampcors

import (
	"strings"
	"testing"
	"unicode"
)

// TestReasonsAreStable: programs count and alert by them.
func TestReasonsAreStable(t *testing.T) {
	t.Parallel()
	want := map[Reason][2]string{
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
		ReasonPublisherNotAllowed:   {"publisher_not_allowed", "publisher not allowed"},
		ReasonHashNotKnown:          {"hash_not_known", "hash prefix not known"},
		ReasonNoOriginUnsafe:        {"no_origin_unsafe", "no origin on an unsafe method"},
		ReasonNoEmailSender:         {"no_email_sender", "no email address as the sender"},
		ReasonEmailSenderNotAllowed: {"email_sender_not_allowed", "email sender not allowed"},
		ReasonMethodNotAllowed:      {"method_not_allowed", "method not allowed"},
		ReasonHeaderNotAllowed:      {"header_not_allowed", "header not allowed"},
		ReasonSourceUnavailable:     {"source_unavailable", "source unavailable"},
	}
	if len(want) != int(numReasons) {
		t.Errorf("%d reasons; want %d", numReasons, len(want))
	}
	for r, texts := range want {
		if r.Label() != texts[0] || r.String() != texts[1] {
			t.Errorf("%d is %q, %q; want %q", r, r.Label(), r.String(), texts)
		}
		if strings.ContainsFunc(r.Label(), func(c rune) bool { return c != '_' && !unicode.IsLower(c) && !unicode.IsDigit(c) }) {
			t.Errorf("the label %q is not one word", r.Label())
		}
		if allowed := r != 0 && r <= ReasonNoOrigin; r.Allowed() != allowed {
			t.Errorf("%s is allowed: %t", r, r.Allowed())
		}
		var back Reason
		if err := back.UnmarshalText([]byte(r.Label())); err != nil || back != r {
			t.Errorf("%q is read as %s, %v", r.Label(), back, err)
		}
	}
	if r := Reason(200); r.Label() != "undecided" || r.Allowed() {
		t.Errorf("a reason that does not exist: %q", r.Label())
	}
	var r Reason
	if err := r.UnmarshalText([]byte("cache origin")); err == nil || !strings.Contains(err.Error(), `such as "cache_origin"`) {
		t.Errorf("got %v", err)
	}
}
