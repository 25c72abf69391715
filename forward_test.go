package ampcors_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
)

func TestDomainPrefixOfEachKindOfDomain(t *testing.T) {
	for domain, want := range map[string]string{
		"example.com":       "example-com",
		"en-us.example.com": "0-en--us-example-com-0",
		"bücher.ch":         "xn--bcher-ch-65a",
		// A first label with hyphens at 3 and 4.
		"in--trouble.com": plainHash("in--trouble.com"),
		"ab--é.com":       plainHash(plainParse("ab--é.com")),
		// Only the first label matters.
		"www.in--trouble.com": "www-in----trouble-com",
		// Hyphens after a non-ASCII letter do not count: see hyphens34.
		"é-x.com":  "xn----x-com-9xa",
		"éa-x.com": "xn--a--x-com-90a",
		"ab-é.com": formDocument("ab-é.com"),
		// A name with left-to-right and right-to-left letters, and a number before the latter.
		"hello.مصر": plainHash("hello.xn--wgbh1c"),
		"123.مصر":   plainHash("123.xn--wgbh1c"),
		"مثال.واحد": "xn----ymcbnnm7lf5a",
		// This follows the document, not the implementations: unwrapped, it looks like punycode.
		"xn-shop.com": "0-xn--shop-com-0",
		// 63 bytes fit; one more does not.
		strings.Repeat("a", 59) + ".com":         strings.Repeat("a", 59) + "-com",
		strings.Repeat("a", 60) + ".com":         plainHash(strings.Repeat("a", 60) + ".com"),
		"ab-" + strings.Repeat("a", 51) + ".com": "0-ab--" + strings.Repeat("a", 51) + "-com-0",
		"ab-" + strings.Repeat("a", 52) + ".com": plainHash("ab-" + strings.Repeat("a", 52) + ".com"),
	} {
		t.Run(fmt.Sprintf("%.40s", domain), func(t *testing.T) {
			if got, err := ampcors.DomainPrefix(domain); err != nil || got != want {
				t.Errorf("DomainPrefix(%q) = %q, %v; want %q", domain, got, err, want)
			}
		})
	}
}

func TestCacheOriginsReturnsOneOriginPerCache(t *testing.T) {
	got, err := ampcors.CacheOrigins("Example.com")
	want := []string{"https://example-com.cdn.ampproject.org", "https://example-com.www.bing-amp.com"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("CacheOrigins = %q, %v; want %q", got, err, want)
	}
	got, err = ampcors.CacheOrigins("example.com", ampcors.Cache{ID: "mine", CacheDomain: "amp.example.net"})
	if want := []string{"https://example-com.amp.example.net"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("CacheOrigins = %q, %v; want %q", got, err, want)
	}
	_, err = ampcors.CacheOrigins("example.com", ampcors.Cache{ID: "good", CacheDomain: "amp.example.net"}, ampcors.Cache{ID: "bad", CacheDomain: "https://amp.example.org"})
	var v *ampcors.ValueError
	if !errors.As(err, &v) || v.Path != "caches[1].cacheDomain" || !strings.Contains(v.Want, `"amp.example.org"`) {
		t.Errorf("CacheOrigins with a bad cache: %v", err)
	}
}
