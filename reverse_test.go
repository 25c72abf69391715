package ampcors_test

import (
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
)

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
			if got, err := cacheurl.PublisherDomain(test.prefix); got != test.domain || err != nil {
				t.Errorf("the prefix is read as %q, %v; want %q", got, err, test.domain)
			}
			if got, err := cacheurl.DomainPrefix(test.host); err == nil {
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
			if got, err := cacheurl.DomainPrefix(test.host); got != test.own || (err == nil) != (test.own != "") {
				t.Errorf("the prefix is %q, %v", got, err)
			}
			if got, err := cacheurl.PublisherDomain(test.prefix); got != test.domain || err != nil {
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
		domain, err := cacheurl.PublisherDomain(prefix)
		if err != nil {
			t.Errorf("%q: %v", prefix, err)
		}
		m := newMiddleware(t, ampcors.Config{Publishers: []string{"*.com"}, DangerouslyAllowPublicSuffixWildcards: true})
		if d := m.CheckOrigin("https://" + prefix + ".cdn.ampproject.org"); d.Publisher != domain || domain == "" {
			t.Errorf("%q is decided as %+v", prefix, d)
		}
		if domain, err := cacheurl.PublisherDomain(longer); err == nil {
			t.Errorf("%q is read as %q", longer, domain)
		}
	}
}

// The domain of a short prefix can be long, as A-labels are longer than what they spell.
func TestALongDomainOfAShortPrefix(t *testing.T) {
	domain := strings.Repeat(plainToASCII("é")+".", 12) + "example.net"
	prefix, err := cacheurl.DomainPrefix(domain)
	if err != nil || len(domain) <= 63 || !strings.HasPrefix(prefix, "xn--") {
		t.Fatalf("%q, %v: not what this test is about", prefix, err)
	}
	m := newMiddleware(t, ampcors.Config{Publishers: []string{"*.example.net"}})
	if d := m.CheckOrigin("https://" + prefix + ".cdn.ampproject.org"); !d.Allowed || d.Publisher != domain {
		t.Errorf("%+v", d)
	}
}

// A hash has one spelling: of the two letters that its last bits allow, one is another text.
func TestAHashIsDecidedByItsOneSpelling(t *testing.T) {
	hash := plainHash("example.com")
	m := newMiddleware(t, ampcors.Config{Publishers: []string{"example.com"}})
	for _, end := range []string{"a", "q"} {
		if d := m.CheckOrigin("https://" + hash[:51] + end + ".cdn.ampproject.org"); d.Allowed != strings.HasSuffix(hash, end) {
			t.Errorf("the hash of example.com with %s at its end: %s", end, d.Reason)
		}
	}
}
