package ampcors_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/internal/mwtest"
)

// TestALoggedDecisionIsBounded: what a caller sends must not fill or forge a log.
func TestALoggedDecisionIsBounded(t *testing.T) {
	t.Parallel()
	log := func(d ampcors.Decision) (string, map[string]any) {
		var b bytes.Buffer
		slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "decision", d)
		var line struct{ Decision map[string]any }
		if err := json.Unmarshal(b.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		return b.String(), line.Decision
	}
	_, got := log(ampcors.Decision{Allowed: true, Reason: ampcors.ReasonCacheOrigin, Origin: mwtest.CacheOrigin, Publisher: "www.example.com",
		CacheID: "google", Stale: true, SourceErr: mwtest.ErrDown})
	want := map[string]any{"allowed": true, "reason": "cache_origin", "origin": mwtest.CacheOrigin, "publisher": "www.example.com",
		"cache": "google", "stale": true, "source_error": mwtest.ErrDown.Error()}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
	_, got = log(ampcors.Decision{Reason: ampcors.ReasonPublisherNotAllowed, Origin: mwtest.EvilOrigin, ClaimedPublisher: "evil.example",
		EmailSender: "a@b.example"})
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
		t.Run(fmt.Sprintf("%.40s", in), func(t *testing.T) {
			line, got := log(ampcors.Decision{Origin: in, SourceErr: errors.New(in), EmailSender: in})
			problem, _ := got["source_error"].(string)
			if len(problem) > 1003 || len(in) < 300 && problem != strings.Replace(want, `\r\n`, " ", 1) {
				t.Errorf("%.20q is logged as the error %q", in, problem)
			}
			if got["origin"] != want || got["email_sender"] != want || len(line) > 6000 {
				t.Errorf("%.20q, %d bytes, is logged as\n%q; want\n%q", in, len(in), got["origin"], want)
			}
		})
	}
}

// Of all reasons, only pages of the publisher, the API host's own and requests without Origin are for it. An unknown tenant has no domain.
func TestWhomADecisionIsFor(t *testing.T) {
	t.Parallel()
	for r := range ampcors.Reason(ampcors.NumReasons) {
		for _, publisher := range []string{"", "www.a.example", "www.b.example"} {
			d := ampcors.Decision{Allowed: r.Allowed(), Reason: r, Publisher: publisher}
			isOurs := r == ampcors.ReasonSameOrigin || r == ampcors.ReasonNoOrigin
			if got, want := d.IsFor("www.a.example"), r.Allowed() && (isOurs || publisher == "www.a.example"); got != want {
				t.Errorf("%s of %q: %t; want %t", r, publisher, got, want)
			}
			if d.IsFor("") {
				t.Errorf("%s of %q is for an unknown tenant", r, publisher)
			}
		}
	}
	cfg := mwtest.Config()
	cfg.Publishers, cfg.Origins = []string{"www.a.example", "www.b.example"}, []string{"https://partner.example"}
	m := mwtest.New(t, cfg)
	for origin, want := range map[string]bool{"https://www-a-example.cdn.ampproject.org": true, "https://www.a.example": true,
		"https://www-b-example.cdn.ampproject.org": false,
		"https://partner.example":                  false, "https://www-c-example.cdn.ampproject.org": false, "null": false} {
		if got := m.CheckOrigin(origin).IsFor("www.a.example"); got != want {
			t.Errorf("%s: %t; want %t", origin, got, want)
		}
	}
	// A page of the API's own host is for each tenant, whether or not the host is listed as a publisher, and whether or not its request
	// has an Origin.
	for _, host := range []string{"www.b.example", "api.example"} {
		for _, test := range []struct {
			method, site string
			isFor        bool
		}{{"POST", "same-origin", true}, {"GET", "same-origin", true}, {"POST", "cross-site", false}, {"POST", "same-site", false},
			{"POST", "", false}} {
			r := httptest.NewRequest(test.method, "https://"+host+"/", nil)
			if test.method == "POST" {
				r.Header.Set("Origin", "https://"+host)
			}
			if test.site != "" {
				r.Header.Set("Sec-Fetch-Site", test.site)
			}
			if got := m.Check(r).IsFor("www.a.example"); got != test.isFor {
				t.Errorf("%s, %+v: %t", host, test, got)
			}
		}
	}
	if (ampcors.Decision{}).IsFor("www.a.example") {
		t.Error("the zero Decision is for somebody")
	}
}

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
