package cacheurl

import (
	"slices"
	"strings"
	"unicode/utf16"

	"golang.org/x/net/idna"

	"github.com/ampcors/ampcors/internal/dns"
	"github.com/ampcors/ampcors/internal/mapping"
)

// A Prefix is a domain prefix that implementations give a publisher.
type Prefix struct {
	Prefix string   `json:"prefix"`
	By     []string `json:"by"` // which of them, in the order of [Prefixes]

	// Denied is true if an [ampcors.Middleware] denies the prefix, because it is that of another
	// host as well. See "Hosts that share a prefix" in the package documentation.
	Denied bool `json:"denied,omitempty"`
}

// An implementation computes the prefix of a domain, which is in lower-case ASCII. It returns "" if
// that is the hash prefix.
type implementation struct {
	name   string
	prefix func(domain string) string
}

var implementations = []implementation{
	{"ampcors", func(domain string) string {
		prefix, err := DomainPrefix(domain)
		if err != nil {
			return ""
		}
		return prefix
	}},
	{"toolbox-cache-url", toolboxPrefix},
	{"amppackager", amppackagerPrefix},
	{"snowflake", func(domain string) string {
		return fold(decode(domain), hyphens34, goEncode)
	}},
	{"the AMP document", func(domain string) string {
		return fold(decode(domain), func(text string) bool {
			characters := []rune(text)
			return len(characters) >= 4 && characters[2] == '-' && characters[3] == '-'
		}, punycode)
	}},
}

// Prefixes returns every domain prefix that a known implementation gives the publisher, and who
// gives it: [DomainPrefix], which is first; @ampproject/toolbox-cache-url 2.10.1 for Node;
// amppackager for Go, at 57974efc; the AMP cache of Snowflake for Go; and the text of the AMP
// document "AMP Cache URL Format and Request Handling". The first two are run in the tests of this
// project. The others are transcribed, with the version of golang.org/x/net/idna that the program
// has: 57974efc has an older one, without the characters that Unicode added since. amppackager hashes
// the spelling that it gets: here, A-labels. The hash prefix is last, with nobody if none
// of them gives it, because caches have used it for readable names as well. It is not public which
// of these a cache uses.
//
// Mostly there are two: the readable prefix, and the hash prefix. Internationalized names, names with
// two adjacent hyphens, and those that mix directions of writing can have more. Arguments and errors are
// those of [DomainPrefix].
func Prefixes(publisher string) ([]Prefix, error) {
	domain, err := CanonicalDomain(publisher)
	if err != nil {
		return nil, err
	}
	hash := mapping.Hash(domain)
	found := []Prefix{}
	last := Prefix{Prefix: hash, By: []string{}}
	for _, i := range implementations {
		prefix := i.prefix(domain)
		at := slices.IndexFunc(found, func(p Prefix) bool { return p.Prefix == prefix })
		switch {
		case prefix == "" || prefix == hash:
			last.By = append(last.By, i.name)
		case at >= 0:
			found[at].By = append(found[at].By, i.name)
		default:
			found = append(found, Prefix{prefix, []string{i.name}, !belongsTo(prefix, domain)})
		}
	}
	return append(found, last), nil
}

// decode returns the text of a canonical domain, which has valid A-labels.
func decode(domain string) string {
	text, _ := dns.Decode(domain)
	return text
}

// fold applies the steps 2 to 5 of the AMP document's basic algorithm. It returns "" if the result
// is not a DNS label.
func fold(text string, wraps func(text string) bool, encode func(text string) (string, error)) string {
	text = dashes(text)
	if wraps(text) {
		text = "0-" + text + "-0"
	}
	prefix, err := encode(text)
	if err != nil || len(prefix) > dns.MaxLabel {
		return ""
	}
	return prefix
}

// dashes applies the steps 2 and 3.
func dashes(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "-", "--"), ".", "-")
}

// goEncode is what Snowflake's implementation uses. It decodes a text that begins with "xn--" first.
var goEncode = idna.Punycode.ToASCII

// punycode encodes any text, as the document says and the toolbox does.
func punycode(text string) (string, error) {
	if dns.IsASCII(text) {
		return text, nil
	}
	// Punycode copies ASCII as it is. So upper case keeps idna from decoding, and changes nothing else.
	encoded, err := idna.Punycode.ToASCII(strings.Replace(text, "x", "X", 1))
	return strings.ToLower(encoded), err
}

// hyphens34 reports whether bytes 3 and 4 are hyphens.
func hyphens34(s string) bool { return len(s) >= 4 && s[2:4] == "--" }

// The toolbox leaves a text that begins with "xn" as it is.
func hyphens34NotXN(s string) bool { return hyphens34(s) && s[:2] != "xn" }

// toolboxPrefix looks at positions 3 and 4 after the text is encoded.
func toolboxPrefix(domain string) string {
	text := decode(domain)
	if hyphens34NotXN(domain) || len(domain) > dns.MaxLabel || mixesDirections(text) {
		return ""
	}
	prefix := fold(text, func(string) bool { return false }, punycode)
	if hyphens34NotXN(prefix) {
		if prefix = "0-" + prefix + "-0"; len(prefix) > dns.MaxLabel {
			return "" // the toolbox returns it, but it is not a DNS label
		}
	}
	return prefix
}

// mixesDirections reports whether a text has characters that the toolbox takes for left-to-right,
// and others that it takes for right-to-left. It looks at UTF-16.
func mixesDirections(text string) bool {
	var ltr, rtl bool
	for _, c := range utf16.Encode([]rune(text)) {
		in := func(ranges ...uint16) bool {
			for i := 0; i < len(ranges); i += 2 {
				if ranges[i] <= c && c <= ranges[i+1] {
					return true
				}
			}
			return false
		}
		ltr = ltr || in('A', 'Z', 'a', 'z', 0xc0, 0xd6, 0xd8, 0xf6, 0xf8, 0x2b8, 0x300, 0x590, 0x800, 0x1fff, 0x200e, 0x200e, 0x2c00,
			0xfb1c, 0xfe00, 0xfe6f, 0xfefd, 0xffff)
		rtl = rtl || in(0x591, 0x6ef, 0x6fa, 0x7ff, 0x200f, 0x200f, 0xfb1d, 0xfdff, 0xfe70, 0xfefc)
	}
	return ltr && rtl
}

// amppackagerIDNA is the profile of amppackager: UTS 46 with transitional mapping, so that ß becomes ss and
// joiners are removed. Which characters are valid depends on the version of Unicode that package idna has.
var amppackagerIDNA = idna.New(idna.MapForLookup(), idna.VerifyDNSLength(true), idna.Transitional(true), idna.BidiRule())

// amppackagerPrefix wraps a text only if it is not valid otherwise. So it leaves "xn--foo-com", which is
// punycode, and wraps "xn--shop-com", which is not.
func amppackagerPrefix(domain string) string {
	text, err := amppackagerIDNA.ToUnicode(domain)
	if err != nil {
		return ""
	}
	text = dashes(text)
	prefix, err := amppackagerIDNA.ToASCII(text)
	if err != nil && hyphens34(text) {
		prefix, err = amppackagerIDNA.ToASCII("0-" + text + "-0")
	}
	if err != nil {
		return ""
	}
	return prefix
}
