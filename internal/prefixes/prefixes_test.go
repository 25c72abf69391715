package prefixes

import (
	"encoding/base32"
	"strings"
	"testing"

	"golang.org/x/net/idna"

	"github.com/ampcors/ampcors/internal/domains"
)

// Each step of the document's basic algorithm, with the document's own examples.
func TestBasicFollowsTheDocument(t *testing.T) {
	for _, test := range []struct{ step, domain, want string }{
		{"the document's example", "example.com", "example-com"},
		{"the document's example", "foo-example.com", "foo--example-com"},
		{"the document's example", "xn--57hw060o.com", "xn---com-p33b41770a"}, // ⚡😊.com
		{"the document's example", "en-us.example.com", "0-en--us-example-com-0"},
		{"1: A-labels are decoded", "xn--bcher-kva.ch", "xn--bcher-ch-65a"},
		{"1: an A-label that is not canonical", "xn--abc-.example", ""},
		{"1: the text has hyphens at 3 and 4", "in--trouble.com", ""},
		{"2 and 3: a dot is one dash, a hyphen two", "a-b.c.example", "a--b-c-example"},
		{"4: dashes at 3 and 4", "my-pub.com", "0-my--pub-com-0"},
		{"4: dashes at 2 and 3", "a-b.com", "a--b-com"},
		{"4: what would begin with xn--", "xn-foo.com", "0-xn--foo-com-0"},
		{"4: not after a letter that is not ASCII", "xn--a-x-9la.com", "xn--a--x-com-90a"}, // éa-x.com
		{"5: 63 bytes are a label", strings.Repeat("a", 59) + ".com", strings.Repeat("a", 59) + "-com"},
		{"5: 64 bytes are not", strings.Repeat("a", 60) + ".com", ""},
		{"5: the Bidi Rule", "hello.xn--wgbh1c", ""}, // hello.مصر
	} {
		if got := Basic(test.domain); got != test.want {
			t.Errorf("%s: %q gets %q; want %q", test.step, test.domain, got, test.want)
		}
		want := test.want
		if want == "" {
			want = Hash(test.domain)
		}
		if got := Combined(test.domain); got != want {
			t.Errorf("%s: combined, %q gets %q; want %q", test.step, test.domain, got, want)
		}
	}
}

// A prefix is read from left to right, and each rule that it can break has its problem.
func TestReverseFollowsTheRules(t *testing.T) {
	for _, test := range []struct {
		prefix, domain string
		problem        *domains.Problem
	}{
		{"example-com", "example.com", nil},
		{"abc---b-com", "", domains.ProblemEdgeHyphen}, // an odd run: abc-.b.com
		{"0-en--us-example-com-0", "en-us.example.com", nil},
		{"en--us-example-com", "", ProblemNotWrapped},
		{"0-a--b-com-0", "", ProblemWrapped},
		{"0--a-b--0", "0-a.b-0", nil}, // not wrapped: its runs of dashes are longer
		{"xn--bcher-ch-65a", "xn--bcher-kva.ch", nil},
		{"xn--0---x-com-0-cbb", "xn---x-9ia.com", nil}, // wrapped before it was encoded
		{"xn--foo-com", "xn-foo.com", nil},             // as AMP Toolbox leaves it
		{"xn--www-lstekas-lv-pub", "xn--www-lstekas-lv-pub", ProblemAmbiguous},
		{"xn--a", "", ProblemNotPunycode},
		{"0-xn----bcher--kva-ch-0", "", ProblemEncoded},
		{"a.b-c", "", ProblemTwoLabels},
		{"", "", ProblemPrefixLength},
		{strings.Repeat("a-", 32), "", ProblemPrefixLength},
	} {
		domain, _, problem := Reverse(nil, test.prefix)
		if problem != test.problem || problem == nil && string(domain) != test.domain {
			t.Errorf("%q is read as %q (%v); want %q (%v)", test.prefix, domain, problem, test.domain, test.problem)
		}
	}
}

// A plain prefix is read without Reverse. Both must agree about every word of a small alphabet.
func TestUnfoldPlainAgreesWithReverse(t *testing.T) {
	plain := 0
	var buf [domains.MaxLabel]byte
	var try func(prefix string)
	try = func(prefix string) {
		if n, hasDash, isPlain := UnfoldPlain(&buf, prefix); isPlain && hasDash {
			plain++
			_, invalid := domains.Check(buf[:n])
			domain, _, problem := Reverse(nil, prefix)
			if (invalid == nil) != (problem == nil) || problem == nil && string(domain) != string(buf[:n]) {
				t.Fatalf("%q is %q (%v), and by Reverse %q (%v)", prefix, buf[:n], invalid, domain, problem)
			}
		}
		for _, letter := range []string{"a", "0", "x", "n", "-"} {
			if len(prefix) < 8 {
				try(prefix + letter)
			}
		}
	}
	try("")
	if plain < 10_000 {
		t.Errorf("only %d prefixes are plain", plain)
	}
}

func TestAHashHasOneSpelling(t *testing.T) {
	hash := Hash("example.com")
	sum, problem := DecodeHash(hash)
	if problem != nil || strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])) != hash {
		t.Fatalf("%q is decoded as %x (%v)", hash, sum, problem)
	}
	accepted := ""
	for _, c := range "abcdefghijklmnopqrstuvwxyz234567" {
		if _, problem := DecodeHash(hash[:51] + string(c)); problem == nil {
			accepted += string(c)
		}
	}
	if accepted != "aq" {
		t.Errorf("%s are accepted at the end of a hash; want aq", accepted)
	}
	for _, bad := range []string{"", hash[:51], hash + "a", strings.ToUpper(hash), hash[:50] + "1a", hash[:50] + "\na", hash[:50] + "\xffa"} {
		if _, problem := DecodeHash(bad); problem == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// Only the last label of the other host matters: whoever has a domain names the hosts below it.
func TestWhichPrefixesAreAmbiguous(t *testing.T) {
	for prefix, want := range map[string]bool{
		"xn--www-lstekas-lv-pub":           true,
		aLabel("é-foo-com"):                false, // xn-.foo.com.p9a
		"xn---foo-com-pub":                 true,  // xn-.foo.com.pub
		"xn----shop-de-pub":                false, // xn--shop.de.pub has an A-label, which is decoded
		"xn--foo-ru-ck":                    true,  // the list has *.ck, and no ck
		"xn--foo-ru-github":                false, // the list has github.io
		"xn--foo-ru--com":                  false, // one label, ru-com
		"xn--foo-ru---com":                 true,
		aLabel("www-bücher-com"):           false,
		aLabel("0-é-foo-com-0"):            false,
		"xn--" + strings.Repeat("a", 1000): false,
	} {
		if got := OtherHost(prefix) != ""; got != want {
			t.Errorf("%.40q is also read as %q", prefix, OtherHost(prefix))
		}
	}
	// As punycode, its last label is "lāstekas-lv", which is no top-level domain.
	if got, _, problem := Reverse(nil, "xn--www-lstekas--lv-pub"); string(got) != "xn-www.lstekas-lv.pub" {
		t.Errorf("%q, %v", got, problem)
	}
}

func aLabel(text string) string {
	label, _ := idna.Punycode.ToASCII(text)
	return label
}
