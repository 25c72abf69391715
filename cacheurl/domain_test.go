package cacheurl_test

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
)

func TestInvalidPublishersAreRejectedWithASuggestion(t *testing.T) {
	for _, test := range []struct{ value, reason, want string }{
		{value: "", reason: "is empty", want: "www.example.com"},
		{value: " ", reason: "has white space around it", want: "www.example.com"},
		{value: "/x", reason: "has a path", want: "www.example.com"},
		{value: "a@", reason: "has user information", want: "www.example.com"},
		{value: ":80", reason: "has a port", want: "www.example.com"},
		{value: "http:example.com", reason: "has a port", want: "www.example.com"},
		{value: "localhost:8080", reason: "has a port", want: "www.example.com"},
		{value: "1.2.3.4:80", reason: "has a port", want: "www.example.com"},
		{value: "[2001:db8::1]:443", reason: "has a port", want: "www.example.com"},
		{value: "https:///x", reason: "has a scheme", want: "www.example.com"},
		{value: " https://example.com ", reason: "has white space around it", want: `"example.com"`},
		{value: "\u00ad.com", reason: "not how browsers spell", want: "www.example.com"},
		{value: "ꮳꮃꭹ.com", reason: "not how browsers spell", want: `"ᏣᎳᎩ.com"`},
		{value: strings.Repeat("日", 1<<20) + "\n", reason: "longer than 253", want: "www.example.com"},
		{value: " example.com", reason: "has white space around it", want: `"example.com"`},
		{value: "example.com\n", reason: "has white space around it", want: `"example.com"`},
		{value: "https://example.com", reason: "has a scheme", want: `"example.com"`},
		{value: "https://user@example.com:8443/path?q#f", reason: "has a scheme", want: `"example.com"`},
		{value: "//example.com/", reason: "has a scheme", want: `"example.com"`},
		{value: "example.com/", reason: "has a path", want: `"example.com"`},
		{value: "example.com?q", reason: "has a path", want: `"example.com"`},
		{value: "me@example.com", reason: "has user information", want: `"example.com"`},
		{value: "example.com:443", reason: "has a port", want: `"example.com"`},
		{value: "192.0.2.1", reason: "is an IP address", want: "www.example.com"},
		{value: "2001:db8::1", reason: "is an IP address", want: "www.example.com"},
		{value: "[2001:db8::1]", reason: "is an IP address", want: "www.example.com"},
		{value: "192.0.2", reason: "ends in a number", want: "www.example.com"},
		{value: "example.0x", reason: "ends in a number", want: "www.example.com"},
		{value: "example.0x1f", reason: "ends in a number", want: "www.example.com"},
		{value: "example.com.", reason: "has a trailing dot", want: `"example.com"`},
		{value: ".", reason: "has an empty label", want: "www.example.com"},
		{value: ".example.com", reason: "has an empty label", want: "www.example.com"},
		{value: "a..example.com", reason: "has an empty label", want: "www.example.com"},
		{value: "localhost", reason: "has no dot", want: "www.example.com"},
		{value: "-a.example.com", reason: "begins or ends with a hyphen", want: "www.example.com"},
		{value: "a-.example.com", reason: "begins or ends with a hyphen", want: "www.example.com"},
		{value: "xn----bga.example.com", reason: "begins or ends with a hyphen", want: "www.example.com"}, // -é
		{value: "-é.example.com", reason: "begins or ends with a hyphen", want: "www.example.com"},
		{value: "exa mple.com", reason: `has the character ' '`, want: "www.example.com"},
		{value: "exam\x00ple.com", reason: `has the character '\x00'`, want: "www.example.com"},
		{value: "Exam!ple.com", reason: `has the character '!'`, want: "www.example.com"},
		{value: "é!.com", reason: `has the character '!'`, want: "www.example.com"},
		{value: "*.example.com", reason: "is a pattern", want: "one domain"},
		{value: "a*.example.com", reason: "has a *", want: "www.example.com"},
		{value: strings.Repeat("a", 64) + ".com", reason: "longer than 63", want: "www.example.com"},
		{value: strings.Repeat("a.", 127) + "com", reason: "longer than 253", want: "www.example.com"},
		{value: strings.Repeat("a.", 125) + "comm", reason: "longer than 253", want: "www.example.com"}, // 254
		{value: "xn--zzzzzz99999.com", reason: "not canonical punycode", want: "www.example.com"},
		{value: "xn--example-.com", reason: "begins or ends with a hyphen", want: "www.example.com"},
		{value: "xn--a-rc4g.com", reason: "not canonical punycode", want: "www.example.com"}, // a surrogate
		{value: "XN--ZZZZZZ99999.com", reason: "not canonical punycode", want: "www.example.com"},
		{value: "xn--\u00e9.com", reason: "not a valid internationalized label", want: "A-label"},
		{value: "bu\u0308cher.example", reason: "not how browsers spell", want: `"bücher.example"`},
		{value: "example。com", reason: "not how browsers spell", want: `"example.com"`},
		{value: "ｅxample.com", reason: "not how browsers spell", want: `"example.com"`},
		{value: "exam\u00adple.com", reason: "not how browsers spell", want: `"example.com"`},
		{value: "a\u200cb.com", reason: "not a valid internationalized label", want: "A-label"},
		{value: "a\xffb.com", reason: "is not UTF-8", want: "A-label"},
	} {
		t.Run(fmt.Sprintf("%.40s", test.value), func(t *testing.T) {
			_, err := cacheurl.DomainPrefix(test.value)
			var v *badvalue.Error
			if !errors.As(err, &v) {
				t.Errorf("DomainPrefix(%q) = %v; want a *badvalue.Error", test.value, err)
				return
			}
			if v.Value != test.value || v.Path != "publisher" || !strings.Contains(v.Reason, test.reason) || !strings.Contains(v.Want, test.want) {
				t.Errorf("DomainPrefix(%q): %+v; want reason %q and %q", test.value, *v, test.reason, test.want)
			}
			if instead, err := strconv.Unquote(v.Want); err == nil {
				if _, err := cacheurl.DomainPrefix(instead); err != nil {
					t.Errorf("DomainPrefix(%q) suggests %s, which is rejected: %v", test.value, v.Want, err)
				}
			}
			if n := len(v.Error()); n > 500 {
				t.Errorf("DomainPrefix(%.10q): a message of %d bytes", test.value, n)
			}
			if _, err2 := cacheurl.HashPrefix(test.value); err2 == nil || err2.Error() != err.Error() {
				t.Errorf("HashPrefix(%q) = %v; want %v", test.value, err2, err)
			}
			if _, err2 := cacheurl.Origins(test.value); err2 == nil || err2.Error() != err.Error() {
				t.Errorf("Origins(%q) = %v; want %v", test.value, err2, err)
			}
		})
	}
}

func TestAPublisherMayBeWrittenInUnicodeOrASCIIAndAnyCase(t *testing.T) {
	for want, spellings := range map[string][]string{
		"example.com":              {"example.com", "EXAMPLE.com", "Example.Com"},
		"xn--bcher-kva.example":    {"bücher.example", "BÜCHER.example", "xn--bcher-kva.example", "XN--BCHER-KVA.EXAMPLE"},
		"xn--strae-oqa.de":         {"straße.de", "Straße.DE"},
		"my_site.example.com":      {"my_site.example.com", "My_Site.example.com"},
		"xn--ab-j1t.com":           {"xn--ab-j1t.com"},      // has a joiner, which is not checked in an A-label
		"k.com":                    {"k.com", "\u212a.com"}, // the Kelvin sign is a K for browsers
		"r3---sn-abc.example.com":  {"r3---sn-abc.example.com"},
		"xn--nxasmm1c.com":         {"βόλος.com"},
		"xn--f9dt7l.com":           {"ᏣᎳᎩ.com"}, // a script that folds to upper case
		"xn--ls8h.la":              {"💩.la"},
		"xn--wgv71a119e.example":   {"日本語.example", "xn--wgv71a119e.EXAMPLE"},
		"a.xn--bcher-kva.xn--p1ai": {"A.BÜCHER.рф"},
	} {
		t.Run(want, func(t *testing.T) {
			for _, spelling := range spellings {
				if got, err := cacheurl.CanonicalDomain(spelling); err != nil || got != want {
					t.Errorf("CanonicalDomain(%q) = %q, %v; want %q", spelling, got, err, want)
				}
				if got, err := cacheurl.HashPrefix(spelling); err != nil || got != hashOf(want) {
					t.Errorf("HashPrefix(%q) = %q, %v", spelling, got, err)
				}
			}
		})
	}
}

func TestOriginsReturnsOneOriginPerCache(t *testing.T) {
	got, err := cacheurl.Origins("Example.com", cacheurl.DefaultCaches()[:2]...)
	want := []string{"https://example-com.cdn.ampproject.org", "https://example-com.www.bing-amp.com"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Origins = %q, %v; want %q", got, err, want)
	}
	if all, err := cacheurl.Origins("example.com"); err != nil || len(all) != len(cacheurl.DefaultCaches()) || !slices.Equal(all[:2], want) {
		t.Errorf("Origins = %q, %v; want one on each cache", all, err)
	}
	got, err = cacheurl.Origins("example.com", cacheurl.Cache{ID: "mine", CacheDomain: "amp.example.net"})
	if want := []string{"https://example-com.amp.example.net"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("Origins = %q, %v; want %q", got, err, want)
	}
	_, err = cacheurl.Origins("example.com", cacheurl.Cache{ID: "good", CacheDomain: "amp.example.net"},
		cacheurl.Cache{ID: "bad", CacheDomain: "https://amp.example.org"})
	var v *badvalue.Error
	if !errors.As(err, &v) || v.Path != "caches[1].cacheDomain" || !strings.Contains(v.Want, `"amp.example.org"`) {
		t.Errorf("Origins with a bad cache: %v", err)
	}
}

// hashOf is the fallback algorithm of AMP's document.
func hashOf(domain string) string {
	sum := sha256.Sum256([]byte(domain))
	return strings.ToLower(strings.TrimRight(base32.StdEncoding.EncodeToString(sum[:]), "="))
}
