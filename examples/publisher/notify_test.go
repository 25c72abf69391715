package main

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
)

// TestNotifyPrintsWhatTheServersReceive, with keys and signatures shortened.
func TestNotifyPrintsWhatTheServersReceive(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := notify(t.Context(), &out); err != nil {
		t.Fatalf("%v, after\n%s", err, &out)
	}
	for pattern, want := range map[string]int{
		`AMP version at\n   https://www-example-com\.cdn\.ampproject\.org/c/s/www\.example\.com/amp/articles/`:                                                                                                                      3,
		`www-example-com\.cdn\.ampproject\.org receives, from this program:\n      GET /update-cache/c/s/www\.example\.com/amp/articles/1\?amp_action=flush&amp_ts=\d{10}&amp_url_signature=[\w-]{8}…\n`:                            2,
		`www-example-com\.cdn\.ampproject\.org receives, from this program:\n      GET /update-cache/c/s/www\.example\.com/amp/articles/2\?page=2&amp_action=flush&amp_ts=\d{10}&amp_url_signature=`:                                1,
		`The cache verifies the signature with the site's key, and answers OK`:                                                                                                                                                      3,
		`api\.indexnow\.org receives, from this program:\n      POST /indexnow \{"host":"www.example.com","key":"[0-9a-f]{4}…","urlList":\["https://www.example.com/articles/1","https://www.example.com/articles/2\?page=2"\]\}\n`: 1,
		`The search engine finds the key on the site, and accepts the URLs`:                                                                                                                                                         1,
		`receives, from the cache`:         3,
		`receives, from the search engine`: 1,
		`receives, from this program`:      6,
		`[0-9a-f]{32}`:                     0,
	} {
		t.Run(pattern, func(t *testing.T) {
			if got := len(regexp.MustCompile(pattern).FindAllString(out.String(), -1)); got != want {
				t.Errorf("%s: %d times; want %d, in\n%s", pattern, got, want, &out)
			}
		})
	}
}

func TestNotifyEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if err := notify(ctx, &out); !errors.Is(err, context.Canceled) || strings.Contains(out.String(), "receives") {
		t.Errorf("got %v, %s", err, &out)
	}
}
