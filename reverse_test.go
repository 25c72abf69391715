package ampcors_test

import (
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/mwtest"
)

// A prefix has at most 63 bytes, whether it is plain, wrapped or punycode.
func TestPrefixesOf63Bytes(t *testing.T) {
	for _, prefix := range []string{
		strings.Repeat("a", 59) + "-com",
		"0-en--us-" + strings.Repeat("a", 48) + "-com-0",
		mwtest.ALabel("é" + strings.Repeat("a", 51) + "-com"),
	} {
		longer := strings.Replace(prefix, "a", "aa", 1)
		if strings.HasPrefix(prefix, "xn--") {
			longer = mwtest.ALabel("é" + strings.Repeat("a", 52) + "-com")
		}
		if len(prefix) != 63 || len(longer) != 64 {
			t.Fatalf("%q has %d bytes, %q has %d", prefix, len(prefix), longer, len(longer))
		}
		domain, err := cacheurl.PublisherDomain(prefix)
		if err != nil {
			t.Errorf("%q: %v", prefix, err)
		}
		m := mwtest.New(t, ampcors.Config{Publishers: []string{"*.com"}, DangerouslyAllowPublicSuffixWildcards: true})
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
	domain := strings.Repeat(mwtest.ALabel("é")+".", 12) + "example.net"
	prefix, err := cacheurl.DomainPrefix(domain)
	if err != nil || len(domain) <= 63 || !strings.HasPrefix(prefix, "xn--") {
		t.Fatalf("%q, %v: not what this test is about", prefix, err)
	}
	m := mwtest.New(t, ampcors.Config{Publishers: []string{"*.example.net"}})
	if d := m.CheckOrigin("https://" + prefix + ".cdn.ampproject.org"); !d.Allowed || d.Publisher != domain {
		t.Errorf("%+v", d)
	}
}
