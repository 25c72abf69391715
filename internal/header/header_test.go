package header

import (
	"slices"
	"testing"
)

func TestIsCORS(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		"Access-Control-Allow-Origin":            true,
		"access-control-expose-headers":          true,
		"AMP-Email-Allow-Sender":                 true,
		"AMP-Access-Control-Allow-Source-Origin": true,
		"Access-Control":                         false,
		"AMP-Redirect-To":                        false,
		"Vary":                                   false,
		"":                                       false,
	} {
		t.Run(key, func(t *testing.T) {
			if got := IsCORS(key); got != want {
				t.Errorf("IsCORS(%q) = %t", key, got)
			}
		})
	}
}

func TestMembersOfSeveralLines(t *testing.T) {
	t.Parallel()
	lines := []string{"Origin,\tAccept ", "", " , ", "Cookie"}
	if got, want := slices.Collect(Members(lines)), []string{"Origin", "Accept", "Cookie"}; !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
	for first := range Members(lines) {
		if first != "Origin" {
			t.Errorf("%q", first)
		}
		break
	}
}
