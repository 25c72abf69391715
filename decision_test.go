package ampcors_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
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
	_, got := log(ampcors.Decision{Allowed: true, Reason: ampcors.ReasonCacheOrigin, Origin: cacheOrigin, Publisher: "www.example.com", CacheID: "google", Stale: true, SourceErr: errDown})
	want := map[string]any{"allowed": true, "reason": "cache_origin", "origin": cacheOrigin, "publisher": "www.example.com", "cache": "google", "stale": true, "source_error": errDown.Error()}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
	_, got = log(ampcors.Decision{Reason: ampcors.ReasonPublisherNotAllowed, Origin: evilOrigin, ClaimedPublisher: "evil.example", EmailSender: "a@b.example"})
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
			if got["origin"] != want || got["source_error"] != want || got["email_sender"] != want || len(line) > 3000 {
				t.Errorf("%.20q, %d bytes, is logged as\n%q; want\n%q", in, len(in), got["origin"], want)
			}
		})
	}
}
