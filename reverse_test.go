package ampcors_test

import (
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
)

func TestPublisherDomainReversesEveryForm(t *testing.T) {
	for prefix, want := range map[string]string{
		"example-com":            "example.com",
		"a--b-example-com":       "a-b.example.com",
		"0-en--us-example-com-0": "en-us.example.com",
		"0--foo-com--0":          "0-foo.com-0", // these are doubled hyphens, no wrapping
		"my_site-example-com":    "my_site.example.com",
		"xn--bcher-ch-65a":       "xn--bcher-kva.ch", // and not xn-bcher.ch.65a
		"xn--fa-de-mqa":          "xn--fa-hia.de",
		"xn----x-com-9xa":        "xn---x-9ia.com", // é-x.com, unwrapped
		"xn--0---x-com-0-cbb":    "xn---x-9ia.com", // and wrapped
		"xn--hello--uli5a7l":     "hello.xn--wgbh1c",
		"0-in----trouble-com-0":  "in--trouble.com",
		"www-in----trouble-com":  "www.in--trouble.com",
		"0-a----problem-com-0":   "a--problem.com",

		// A prefix that begins with "xn--" is read as punycode if that gives a domain, and otherwise
		// as one that the official implementations left unwrapped.
		"xn--foo-com":        "xn-foo.com", // as punycode a single label
		"xn--tech-com":       "xn-tech.com",
		"xn--my--shop-com":   "xn-my-shop.com", // as punycode it has hyphens and no dot
		"0-xn--foo-com-0":    "xn-foo.com",
		"0-xn--foo-ru-com-0": "xn-foo.ru.com",
		"xn--foo-ru-nex":     "foo.xn--ru-45j", // and not xn-foo.ru.nex: there is no top-level domain "nex"
	} {
		t.Run(prefix, func(t *testing.T) {
			if got, err := ampcors.PublisherDomain(prefix); err != nil || got != want {
				t.Errorf("PublisherDomain(%q) = %q, %v; want %q", prefix, got, err, want)
			}
		})
	}
}

// TestHostsThatShareAPrefix shows what the documentation of the package says about them.
func TestHostsThatShareAPrefix(t *testing.T) {
	for _, test := range []struct{ host, decoded, prefix, domain string }{
		{host: "abcd.-.evil.com", decoded: "abcd.-.evil.com", prefix: "abcd----evil-com", domain: "abcd--evil.com"},
		{host: "foo.xn--.evil.com", decoded: "foo..evil.com", prefix: "foo--evil-com", domain: "foo-evil.com"},
		{host: "xn--alice-.platform.com", decoded: "alice.platform.com", prefix: "alice-platform-com", domain: "alice.platform.com"},
	} {
		t.Run(test.host, func(t *testing.T) {
			if got := formDocument(test.decoded); got != test.prefix {
				t.Errorf("the document's prefix of the host is %q; want %q", got, test.prefix)
			}
			if got := formDocument(test.domain); got != test.prefix {
				t.Errorf("the document's prefix of the domain is %q; want %q", got, test.prefix)
			}
			if got, err := ampcors.PublisherDomain(test.prefix); got != test.domain || err != nil {
				t.Errorf("the prefix is read as %q, %v; want %q", got, err, test.domain)
			}
			if got, err := ampcors.DomainPrefix(test.host); err == nil {
				t.Errorf("the host gets the prefix %q", got)
			}
		})
	}
	// By amppackager, and by toolbox-cache-url, as package e2e shows.
	for _, test := range []struct{ host, own, prefix, domain string }{
		{host: "straße.de", own: "xn--strae-de-tya", prefix: "strasse-de", domain: "strasse.de"},
		{host: "xn-é.shop.pub", own: "xn--0-xn---shop-pub-0-gtb", prefix: "xn---shop-9ra81j", domain: "xn--9ca85a.shop"}, // éƕ.shop
		{host: "xn---bbb.example", prefix: "xn---example-6ojj", domain: "xn--xbbb.example"},
	} {
		t.Run(test.host, func(t *testing.T) {
			if got, err := ampcors.DomainPrefix(test.host); got != test.own || (err == nil) != (test.own != "") {
				t.Errorf("the prefix is %q, %v", got, err)
			}
			if got, err := ampcors.PublisherDomain(test.prefix); got != test.domain || err != nil {
				t.Errorf("%s is read as %q, %v", test.prefix, got, err)
			}
		})
	}
}

// A prefix has at most 63 bytes, whether it is plain, wrapped or punycode.
func TestPrefixesOf63Bytes(t *testing.T) {
	for _, prefix := range []string{
		strings.Repeat("a", 59) + "-com",
		"0-en--us-" + strings.Repeat("a", 48) + "-com-0",
		plainToASCII("é" + strings.Repeat("a", 51) + "-com"),
	} {
		longer := strings.Replace(prefix, "a", "aa", 1)
		if strings.HasPrefix(prefix, "xn--") {
			longer = plainToASCII("é" + strings.Repeat("a", 52) + "-com")
		}
		if len(prefix) != 63 || len(longer) != 64 {
			t.Fatalf("%q has %d bytes, %q has %d", prefix, len(prefix), longer, len(longer))
		}
		domain, err := ampcors.PublisherDomain(prefix)
		if err != nil {
			t.Errorf("%q: %v", prefix, err)
		}
		m := newMiddleware(t, ampcors.Config{Publishers: []string{"*.com"}, DangerouslyAllowPublicSuffixWildcards: true})
		if d := m.CheckOrigin("https://" + prefix + ".cdn.ampproject.org"); d.Publisher != domain || domain == "" {
			t.Errorf("%q is decided as %+v", prefix, d)
		}
		if domain, err := ampcors.PublisherDomain(longer); err == nil {
			t.Errorf("%q is read as %q", longer, domain)
		}
	}
}

func TestPublisherDomainRejectsEverythingElse(t *testing.T) {
	for prefix, reason := range map[string]string{
		"":                       "1 to 63",
		strings.Repeat("a-", 32): "1 to 63",
		"www-example-com.evil":   "more than one label",
		"0-example-com-0":        "without need",
		"en--us-example-com":     "not wrapped",
		"0-0":                    "ends in a number",
		"0--0":                   "without need",
		"0---0":                  "not wrapped",
		"0-a-0":                  "without need",
		"a-0":                    "ends in a number",
		"a-0x1f":                 "ends in a number",
		"a---b-com":              "not wrapped",
		"aa---b-com":             "not wrapped", "aaa---b-com": "hyphen", "0-a---b-com-0": "hyphen",
		"aaa-----b-com":                        "hyphen",
		"-example-com":                         "empty label",
		"example-com-":                         "empty label",
		"--example-com":                        "hyphen",
		"a--b":                                 "no dot",
		"Example-com":                          "character",
		"ex ample-com":                         "character",
		"example-com\n":                        "character",
		"bücher-ch":                            "character",
		"０-example-com-0":                      "character",
		"0-xn----bcher--kva-ch-0":              "AMP Caches decode",
		"www-xn----bcher--kva-ch":              "AMP Caches decode",
		"xn--":                                 "not punycode of a domain",
		"xn--example-com-":                     "not punycode of a domain",
		"xn--\u00e9-com":                       "not punycode of a domain",
		"xn--99999999":                         "not punycode of a domain",
		plainToASCII("xn--é-com"):              "punycode", // a label xn-é that was not wrapped
		plainToASCII("xn----é-com"):            "punycode",
		plainToASCII("é-xn----bcher--kva-com"): "AMP Caches decode",
		"xn--" + rfc3492Encode([]rune{'a', 0xd800, '-', 'b'}): "not canonical punycode", // a surrogate
		plainToASCII("é---b"):                                 "hyphen",
		plainToASCII("-é-com"):                                "empty label",
		plainToASCII("--é-com"):                               "hyphen",
		plainToASCII("é--com"):                                "not punycode of a domain",
		plainToASCII("é-0"):                                   "ends in a number",
		plainToASCII("0-é-com"):                               "",
	} {
		t.Run(fmt.Sprintf("%.40s", prefix), func(t *testing.T) {
			got, err := ampcors.PublisherDomain(prefix)
			if reason == "" {
				if err != nil {
					t.Errorf("PublisherDomain(%q): %v", prefix, err)
				}
				return
			}
			var v *ampcors.ValueError
			if !errors.As(err, &v) || !strings.Contains(v.Reason, reason) {
				t.Errorf("PublisherDomain(%q) = %q, %v; want a *ValueError with %q", prefix, got, err, reason)
			}
		})
	}
	if _, err := ampcors.PublisherDomain("example.com"); err == nil || errors.Is(err, ampcors.ErrHashPrefix) {
		t.Errorf("a domain in place of a prefix: %v", err)
	}
	for _, prefix := range []string{"v2c4ucasgcskftbjt4c7phpkbqedcdcqo23tkamleapoa5o6fygq", "localhost"} {
		t.Run(prefix, func(t *testing.T) {
			if _, err := ampcors.PublisherDomain(prefix); !errors.Is(err, ampcors.ErrHashPrefix) {
				t.Errorf("PublisherDomain(%q) = %v; want ErrHashPrefix", prefix, err)
			}
		})
	}
}

// The domain of a short prefix can be long, as A-labels are longer than what they spell.
func TestALongDomainOfAShortPrefix(t *testing.T) {
	domain := strings.Repeat(plainToASCII("é")+".", 12) + "example.net"
	prefix, err := ampcors.DomainPrefix(domain)
	if err != nil || len(domain) <= 63 || !strings.HasPrefix(prefix, "xn--") {
		t.Fatalf("%q, %v: not what this test is about", prefix, err)
	}
	m := newMiddleware(t, ampcors.Config{Publishers: []string{"*.example.net"}})
	if d := m.CheckOrigin("https://" + prefix + ".cdn.ampproject.org"); !d.Allowed || d.Publisher != domain {
		t.Errorf("%+v", d)
	}
}

func TestAHashHasOneSpelling(t *testing.T) {
	hash := plainHash("example.com")
	sum, problem := ampcors.DecodeHash(hash)
	if problem != nil || strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])) != hash {
		t.Fatalf("decodeHash(%q) = %x, %s", hash, sum, problem)
	}
	accepted := 0
	for _, c := range "abcdefghijklmnopqrstuvwxyz234567" {
		if _, problem := ampcors.DecodeHash(hash[:51] + string(c)); problem == nil {
			accepted++
		}
	}
	if accepted != 2 {
		t.Errorf("%d letters are accepted at the end of a hash; want a and q", accepted)
	}
	for _, bad := range []string{"", hash[:51], hash + "a", strings.ToUpper(hash), hash[:50] + "1a", hash[:50] + "\na", hash[:50] + "\xffa"} {
		t.Run(bad, func(t *testing.T) {
			if _, problem := ampcors.DecodeHash(bad); problem == nil {
				t.Errorf("decodeHash(%q) is accepted", bad)
			}
		})
	}
}
