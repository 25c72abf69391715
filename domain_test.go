package ampcors

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestInvalidPublishersAreRejectedWithASuggestion(t *testing.T) {
	for _, test := range []struct{ value, reason, want string }{
		{"", "is empty", "www.example.com"},
		{" ", "has white space around it", "www.example.com"},
		{"/x", "has a path", "www.example.com"},
		{"a@", "has user information", "www.example.com"},
		{":80", "has a port", "www.example.com"},
		{"http:example.com", "has a port", "www.example.com"},
		{"localhost:8080", "has a port", "www.example.com"},
		{"1.2.3.4:80", "has a port", "www.example.com"},
		{"[2001:db8::1]:443", "has a port", "www.example.com"},
		{"https:///x", "has a scheme", "www.example.com"},
		{" https://example.com ", "has white space around it", `"example.com"`},
		{"\u00ad.com", "not how browsers spell", "www.example.com"},
		{"ꮳꮃꭹ.com", "not how browsers spell", `"ᏣᎳᎩ.com"`},
		{strings.Repeat("日", 1<<20) + "\n", "longer than 253", "www.example.com"},
		{" example.com", "has white space around it", `"example.com"`},
		{"example.com\n", "has white space around it", `"example.com"`},
		{"https://example.com", "has a scheme", `"example.com"`},
		{"https://user@example.com:8443/path?q#f", "has a scheme", `"example.com"`},
		{"//example.com/", "has a scheme", `"example.com"`},
		{"example.com/", "has a path", `"example.com"`},
		{"example.com?q", "has a path", `"example.com"`},
		{"me@example.com", "has user information", `"example.com"`},
		{"example.com:443", "has a port", `"example.com"`},
		{"192.0.2.1", "is an IP address", "www.example.com"},
		{"2001:db8::1", "is an IP address", "www.example.com"},
		{"[2001:db8::1]", "is an IP address", "www.example.com"},
		{"192.0.2", "ends in a number", "www.example.com"},
		{"example.0x", "ends in a number", "www.example.com"},
		{"example.0x1f", "ends in a number", "www.example.com"},
		{"example.com.", "has a trailing dot", `"example.com"`},
		{".", "has an empty label", "www.example.com"},
		{".example.com", "has an empty label", "www.example.com"},
		{"a..example.com", "has an empty label", "www.example.com"},
		{"localhost", "has no dot", "www.example.com"},
		{"-a.example.com", "begins or ends with a hyphen", "www.example.com"},
		{"a-.example.com", "begins or ends with a hyphen", "www.example.com"},
		{"xn----bga.example.com", "begins or ends with a hyphen", "www.example.com"}, // -é
		{"-é.example.com", "begins or ends with a hyphen", "www.example.com"},
		{"exa mple.com", `has the character ' '`, "www.example.com"},
		{"exam\x00ple.com", `has the character '\x00'`, "www.example.com"},
		{"Exam!ple.com", `has the character '!'`, "www.example.com"},
		{"é!.com", `has the character '!'`, "www.example.com"},
		{"*.example.com", "is a pattern", "one domain"},
		{"a*.example.com", "has a *", "www.example.com"},
		{strings.Repeat("a", 64) + ".com", "longer than 63", "www.example.com"},
		{strings.Repeat("a.", 127) + "com", "longer than 253", "www.example.com"},
		{strings.Repeat("a.", 125) + "comm", "longer than 253", "www.example.com"}, // 254
		{"xn--zzzzzz99999.com", "not canonical punycode", "www.example.com"},
		{"xn--example-.com", "begins or ends with a hyphen", "www.example.com"},
		{"xn--" + rfc3492Encode([]rune{'a', 0xd800}) + ".com", "not canonical punycode", "www.example.com"}, // a surrogate
		{"XN--ZZZZZZ99999.com", "not canonical punycode", "www.example.com"},
		{"xn--\u00e9.com", "not a valid internationalised label", "A-label"},
		{"bu\u0308cher.example", "not how browsers spell", `"bücher.example"`},
		{"example。com", "not how browsers spell", `"example.com"`},
		{"ｅxample.com", "not how browsers spell", `"example.com"`},
		{"exam\u00adple.com", "not how browsers spell", `"example.com"`},
		{"a\u200cb.com", "not a valid internationalised label", "A-label"},
		{"a\xffb.com", "is not UTF-8", "A-label"},
	} {
		_, err := DomainPrefix(test.value)
		var v *ValueError
		if !errors.As(err, &v) {
			t.Errorf("DomainPrefix(%q) = %v; want a *ValueError", test.value, err)
			continue
		}
		if v.Value != test.value || v.Path != "publisher" || !strings.Contains(v.Reason, test.reason) || !strings.Contains(v.Want, test.want) {
			t.Errorf("DomainPrefix(%q): %+v; want reason %q and %q", test.value, *v, test.reason, test.want)
		}
		if instead, err := strconv.Unquote(v.Want); err == nil {
			if _, err := DomainPrefix(instead); err != nil {
				t.Errorf("DomainPrefix(%q) suggests %s, which is rejected: %v", test.value, v.Want, err)
			}
		}
		if n := len(v.Error()); n > 500 {
			t.Errorf("DomainPrefix(%.10q): a message of %d bytes", test.value, n)
		}
		if _, err2 := FallbackPrefix(test.value); err2 == nil || err2.Error() != err.Error() {
			t.Errorf("FallbackPrefix(%q) = %v; want %v", test.value, err2, err)
		}
		if _, err2 := CacheOrigins(test.value); err2 == nil || err2.Error() != err.Error() {
			t.Errorf("CacheOrigins(%q) = %v; want %v", test.value, err2, err)
		}
	}
}

func TestAPublisherMayBeWrittenInUnicodeOrASCIIAndAnyCase(t *testing.T) {
	for want, spellings := range map[string][]string{
		"example.com":              {"example.com", "EXAMPLE.com", "Example.Com"},
		"xn--bcher-kva.example":    {"bücher.example", "BÜCHER.example", "xn--bcher-kva.example", "XN--BCHER-KVA.EXAMPLE"},
		"xn--strae-oqa.de":         {"straße.de", "Straße.DE"},
		"my_site.example.com":      {"my_site.example.com", "My_Site.example.com"},
		"xn--ab-j1t.com":           {"xn--ab-j1t.com"}, // has a joiner, which is not checked in an A-label
		"k.com":                    {"k.com", "K.com"}, // the Kelvin sign is a K for browsers
		"r3---sn-abc.example.com":  {"r3---sn-abc.example.com"},
		"xn--nxasmm1c.com":         {"βόλος.com"},
		"xn--f9dt7l.com":           {"ᏣᎳᎩ.com"}, // a script that folds to upper case
		"xn--ls8h.la":              {"💩.la"},
		"xn--wgv71a119e.example":   {"日本語.example", "xn--wgv71a119e.EXAMPLE"},
		"a.xn--bcher-kva.xn--p1ai": {"A.BÜCHER.рф"},
	} {
		for _, spelling := range spellings {
			if got, err := parseDomain(spelling); err != nil || got != want {
				t.Errorf("parseDomain(%q) = %q, %v; want %q", spelling, got, err, want)
			}
		}
	}
}

func TestValueErrorsFindsWrappedErrors(t *testing.T) {
	a, b, c := &ValueError{Path: "a"}, &ValueError{Path: "b"}, &ValueError{Path: "c"}
	err := errors.Join(a, errors.New("another"), fmt.Errorf("wrapped: %w", errors.Join(b, fmt.Errorf("%w and %w", c, a))))
	if got := slices.Collect(ValueErrors(err)); !slices.Equal(got, []*ValueError{a, b, c, a}) {
		t.Errorf("%v", got)
	}
	for first := range ValueErrors(err) {
		if first != a {
			t.Error(first)
		}
		break
	}
	if got := slices.Collect(ValueErrors(nil)); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestValueErrorNamesThePlaceAndCutsALongValue(t *testing.T) {
	for _, test := range []struct {
		err  ValueError
		want string
	}{
		{ValueError{Path: "publishers[3]", Value: "a", Reason: "is bad", Want: "b"}, `ampcors: publishers[3] "a" is bad; want b`},
		{ValueError{Package: "indexnow", Path: "caches[0].id", Reason: "is empty", Want: "b"}, `indexnow: caches[0].id "" is empty; want b`},
		{ValueError{Path: "methods[0]", Value: "TRACE", Reason: "is bad", Want: removeIt}, `ampcors: methods[0] "TRACE" is bad; remove it`},
	} {
		if got := test.err.Error(); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
	long := ValueError{Path: "publishers[0]", Value: strings.Repeat("x", 1<<20), Reason: "is bad", Want: "b"}
	if n := len(long.Error()); n > 200 {
		t.Errorf("the message for a value of 1 MiB has %d bytes", n)
	}
}
