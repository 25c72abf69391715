package proof

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/mwtest"
)

// words calls f with every word of 1 to n letters of the alphabet. A letter may be any
// string.
func words(alphabet []string, n int, f func(word string)) {
	var grow func(word string, left int)
	grow = func(word string, left int) {
		if word != "" {
			f(word)
		}
		if left > 0 {
			for _, letter := range alphabet {
				grow(word+letter, left-1)
			}
		}
	}
	grow("", n)
}

// longest returns the length of the longest words that a test tries. In CI, where
// AMPCORS_CI is set, that is n, and elsewhere n-1. With -short or the race detector it is
// n-2, even in CI: nothing here is concurrent, and the race detector is slow.
func longest(n int) int {
	switch {
	case mwtest.RaceEnabled, testing.Short():
		return n - 2
	case os.Getenv("AMPCORS_CI") != "":
		return n
	}
	return n - 1
}

// The lengths are those in CI: see longest.
var alphabets = []struct {
	name    string
	letters []string
	host    int // length of the longest host; 0 if hosts are not tried
	label   int // length of the longest label; 0 if labels are not tried
}{
	{name: "a0", letters: []string{"a", "0", "-", "."}, host: 9, label: 11},
	{name: "xn", letters: []string{"x", "n", "-", "."}, host: 9, label: 11},
	{name: "a0xn", letters: []string{"a", "0", "x", "n", "-"}, host: 0, label: 9}, // 0-xn--…-0 and the like
	{name: "a0x", letters: []string{"a", "0", "x", "-", "."}, host: 8, label: 0},  // hexadecimal numbers
	{name: "letters", letters: []string{"é", "ß", "ا", "日", "a", "-", "."}, host: 6, label: 0},
	{name: "wrapped", letters: []string{"é", "a", "0", "-", "."}, host: 7, label: 0},
}

// listedAndFromSource returns a Middleware that has these publishers listed exactly, and one that has
// them in a Source.
func listedAndFromSource(t *testing.T, publishers []string) [2]*ampcors.Middleware {
	t.Helper()
	cfg := ampcors.Config{Publishers: publishers, Caches: cacheurl.DefaultCaches()[:1]}
	listed := mwtest.New(t, cfg)
	cfg, _ = mwtest.WithSource(t, cfg)
	return [2]*ampcors.Middleware{listed, mwtest.New(t, cfg)}
}

// TestEveryHostRoundTrips tries every publisher domain over small alphabets. Its prefix
// must reverse to it, and no prefix of any implementation may be accepted for two domains.
// Then all domains are listed together, and each origin must give its publisher.
func TestEveryHostRoundTrips(t *testing.T) {
	for _, alphabet := range alphabets {
		if alphabet.host == 0 {
			continue
		}
		t.Run(alphabet.name, func(t *testing.T) {
			t.Parallel()
			owner := make(map[string]string) // of each prefix that is accepted
			hosts := 0
			words(alphabet.letters, longest(alphabet.host), func(host string) {
				domain := plainParse(host)
				parsed, err := cacheurl.CanonicalDomain(host)
				if (err == nil) != (domain != "") || parsed != domain {
					t.Fatalf("CanonicalDomain(%q) = %q, %v; want %q", host, parsed, err, domain)
				}
				if domain == "" {
					return
				}
				hosts++
				for _, form := range checkForms(t, domain) {
					if other, ok := owner[form]; ok && other != domain {
						t.Fatalf("%q is accepted for %q and for %q", form, domain, other)
					}
					owner[form] = domain
				}
			})
			if hosts < 100 {
				t.Errorf("only %d hosts were tried", hosts)
			}
			ms := listedAndFromSource(t, slices.Compact(slices.Sorted(maps.Values(owner))))
			for form, domain := range owner {
				for origin, want := range map[string]ampcors.Reason{
					"https://" + form + ".cdn.ampproject.org":              ampcors.ReasonCacheOrigin,
					"https://" + plainHash(domain) + ".cdn.ampproject.org": ampcors.ReasonCacheOriginHash,
					"https://" + domain:                                    ampcors.ReasonOwnOrigin,
				} {
					for _, m := range ms {
						if d := m.CheckOrigin(origin); d.Reason != want || d.Publisher != domain {
							t.Fatalf("%q is decided as %+v; want %q", origin, d, domain)
						}
					}
				}
			}
			t.Logf("%d hosts, %d prefixes", hosts, len(owner))
		})
	}
}

// TestEveryLabelIsDecidedAsTheOracleDoes tries every label over small alphabets. A label
// must be accepted only for the publisher that the oracle finds, and only if an
// implementation gives that publisher this label. Each label is tried twice: it is
// reversed, and then it is decided as an origin, with every domain listed that any of the
// labels can be read as.
func TestEveryLabelIsDecidedAsTheOracleDoes(t *testing.T) {
	for _, alphabet := range alphabets {
		if alphabet.label == 0 {
			continue
		}
		t.Run(alphabet.name, func(t *testing.T) {
			t.Parallel()
			n := longest(alphabet.label)
			labels, accepted := 0, make(map[string]string)
			listed := make(map[string]struct{})
			words(alphabet.letters, n, func(label string) {
				labels++
				got, _ := cacheurl.PublisherDomain(label)
				want := plainReverse(t, label)
				if got != want {
					t.Fatalf("%q reverses to %q; want %q", label, got, want)
				}
				if domain, err := cacheurl.CanonicalDomain(plainDots.Replace(label)); err == nil {
					listed[domain] = struct{}{} // even if the label is not accepted for it
				}
				if got == "" {
					return
				}
				accepted[label], listed[got] = got, struct{}{}
				text := plainText(got)
				if plainDomain(text) != got {
					t.Fatalf("%q reverses to %q, which is no publisher domain", label, got)
				}
				folded := strings.ReplaceAll(strings.ReplaceAll(text, "-", "--"), ".", "-")
				switch label {
				case formDocument(text), formToolbox(text), formAmppackager(text), plainToASCII(folded), plainToASCII("0-" + folded + "-0"):
				default:
					t.Fatalf("%q reverses to %q, but no implementation gives that domain this label", label, got)
				}
			})
			if len(accepted) < 100 {
				t.Errorf("only %d of %d labels were accepted", len(accepted), labels)
			}
			ms := listedAndFromSource(t, slices.Collect(maps.Keys(listed)))
			words(alphabet.letters, n, func(label string) {
				want := accepted[label]
				for _, m := range ms {
					if d := m.CheckOrigin("https://" + label + ".cdn.ampproject.org"); d.Publisher != want || d.Allowed != (want != "") {
						t.Fatalf("%q is decided as %+v; want %q", label, d, want)
					}
				}
			})
			t.Logf("%d labels, %d accepted, %d publishers listed", labels, len(accepted), len(listed))
		})
	}
}

// TestEveryEncodedLabelIsDecidedAsTheOracleDoes does the same for the punycode of
// every text over two alphabets with non-ASCII letters.
func TestEveryEncodedLabelIsDecidedAsTheOracleDoes(t *testing.T) {
	t.Parallel()
	accepted, decided := 0, make(map[string]string) // by label, "" if not accepted
	check := func(text string) {
		if isASCII(text) {
			return
		}
		label := plainToASCII(text)
		domain, err := cacheurl.PublisherDomain(label)
		if want := plainReverse(t, label); domain != want {
			t.Fatalf("%q (%q) reverses to %q (%v); want %q", label, text, domain, err, want)
		}
		if decided[label] = domain; domain != "" {
			accepted++
		}
	}
	words([]string{"é", "ß", "ا", "日", "a", "-"}, longest(6), check)
	words([]string{"é", "0", "-"}, longest(9), check)
	if accepted < 200 {
		t.Errorf("only %d of %d labels were accepted", accepted, len(decided))
	}
	listed := slices.DeleteFunc(slices.Collect(maps.Values(decided)), func(domain string) bool { return domain == "" })
	ms := listedAndFromSource(t, listed)
	for label, want := range decided {
		for _, m := range ms {
			if d := m.CheckOrigin("https://" + label + ".cdn.ampproject.org"); d.Publisher != want || d.Allowed != (want != "") {
				t.Fatalf("%q is decided as %+v; want %q", label, d, want)
			}
		}
	}
	t.Logf("%d labels, %d accepted", len(decided), accepted)
}
