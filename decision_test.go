package ampcors

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
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

func TestStatsSurviveJSON(t *testing.T) {
	t.Parallel()
	m := newMiddleware(t, testConfig())
	m.counts.add(ReasonCacheOrigin)
	m.counts.add(ReasonNull)
	data, err := json.Marshal(m.Stats())
	var back Stats
	if err = errors.Join(err, json.Unmarshal(data, &back)); err != nil || !reflect.DeepEqual(back, m.Stats()) || back.Allowed() != 1 || back.Denied() != 1 {
		t.Errorf("%s\nis read as %v, %v", data, back, err)
	}
	stats := SourceStats{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	data, err = json.Marshal(stats)
	var source SourceStats
	if err = errors.Join(err, json.Unmarshal(data, &source)); err != nil || source != stats || !strings.Contains(string(data), `"rateLimited":5`) {
		t.Errorf("%s\nis read as %v, %v", data, source, err)
	}
}

// TestADecisionIsLoggedBounded: what a caller sends must not fill or forge a log.
func TestADecisionIsLoggedBounded(t *testing.T) {
	t.Parallel()
	log := func(d Decision) (string, map[string]any) {
		var b bytes.Buffer
		slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "decision", d)
		var line struct{ Decision map[string]any }
		if err := json.Unmarshal(b.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		return b.String(), line.Decision
	}
	_, got := log(Decision{Allowed: true, Reason: ReasonCacheOrigin, Origin: cacheOrigin, Publisher: "www.example.com", CacheID: "google", Stale: true, SourceErr: errDown})
	want := map[string]any{"allowed": true, "reason": "cache_origin", "origin": cacheOrigin, "publisher": "www.example.com", "cache": "google", "stale": true, "source_error": errDown.Error()}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
	_, got = log(Decision{Reason: ReasonPublisherNotAllowed, Origin: evilOrigin, ClaimedPublisher: "evil.example", EmailSender: "a@b.example"})
	if got["claimed_publisher"] != "evil.example" || got["email_sender"] != "a@b.example" || got["publisher"] != nil || got["stale"] != nil {
		t.Errorf("%v", got)
	}
	for in, want := range map[string]string{
		"a\r\nb\x1b[31m":                              `a\r\nb\x1b[31m`,
		"a\xffb":                                      `a\xffb`,
		"a\u200bb\u202e":                              `a\u200bb\u202e`,
		strings.Repeat("a", 300):                      strings.Repeat("a", 300),
		strings.Repeat("a", 600_000):                  strings.Repeat("a", 300) + "...",
		strings.Repeat("a", 299) + "ééé":              strings.Repeat("a", 299) + "...",
		strings.Repeat("\n", 600_000):                 strings.Repeat(`\n`, 150) + "...",
		strings.Repeat("a", 297) + "\xff\xff\xff\xff": strings.Repeat("a", 297) + "...",
	} {
		line, got := log(Decision{Origin: in, SourceErr: errors.New(in), EmailSender: in})
		if got["origin"] != want || got["source_error"] != want || got["email_sender"] != want || len(line) > 3000 {
			t.Errorf("%.20q, %d bytes, is logged as\n%q; want\n%q", in, len(in), got["origin"], want)
		}
	}
}
