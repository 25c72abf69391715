package cacheurl

// What the implementations of AMP's algorithm do that differ from each other.

import (
	"strings"
	"unicode/utf16"

	"golang.org/x/net/idna"

	"github.com/ampcors/ampcors/internal/domains"
	"github.com/ampcors/ampcors/internal/prefixes"
)

// An implementation computes the prefix of a domain, which is in lower-case ASCII. It may return ""
// in place of the hash prefix.
type implementation struct {
	name   string
	prefix func(domain string) string
}

var implementations = []implementation{
	{"ampcors", prefixes.Combined},
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

// decode returns the text of a canonical domain, which has valid A-labels.
func decode(domain string) string {
	text, _ := domains.Decode(domain)
	return text
}

// fold applies the steps 2 to 5 of the AMP document's basic algorithm. It returns "" if the result
// is not a DNS label.
func fold(text string, wraps func(text string) bool, encode func(text string) (string, error)) string {
	text = prefixes.Dashes(text)
	if wraps(text) {
		text = "0-" + text + "-0"
	}
	prefix, err := encode(text)
	if err != nil || len(prefix) > domains.MaxLabel {
		return ""
	}
	return prefix
}

// goEncode is what Snowflake's implementation uses. It decodes a text that begins with "xn--" first.
var goEncode = idna.Punycode.ToASCII

// punycode encodes any text, as the document says and the toolbox does.
func punycode(text string) (string, error) {
	if domains.IsASCII(text) {
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
	if hyphens34NotXN(domain) || len(domain) > domains.MaxLabel || mixesDirections(text) {
		return ""
	}
	prefix := fold(text, func(string) bool { return false }, punycode)
	if hyphens34NotXN(prefix) {
		if prefix = "0-" + prefix + "-0"; len(prefix) > domains.MaxLabel {
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
		ltr = ltr || in('A', 'Z', 'a', 'z', 0xc0, 0xd6, 0xd8, 0xf6, 0xf8, 0x2b8, 0x300, 0x590, 0x800, 0x1fff, 0x200e, 0x200e,
			0x2c00,
			0xfb1c, 0xfe00, 0xfe6f, 0xfefd, 0xffff)
		rtl = rtl || in(0x591, 0x6ef, 0x6fa, 0x7ff, 0x200f, 0x200f, 0xfb1d, 0xfdff, 0xfe70, 0xfefc)
	}
	return ltr && rtl
}

// amppackagerIDNA is the profile of amppackager: UTS 46 with transitional mapping, so that ß becomes ss and
// joiners are removed. Which characters are valid depends on the version of Unicode that package idna has.
var amppackagerIDNA = idna.New(idna.MapForLookup(), idna.VerifyDNSLength(true), idna.Transitional(true),
	idna.BidiRule())

// amppackagerPrefix wraps a text only if it is not valid otherwise. So it leaves "xn--foo-com", which is
// punycode, and wraps "xn--shop-com", which is not.
func amppackagerPrefix(domain string) string {
	text, err := amppackagerIDNA.ToUnicode(domain)
	if err != nil {
		return ""
	}
	text = prefixes.Dashes(text)
	prefix, err := amppackagerIDNA.ToASCII(text)
	if err != nil && hyphens34(text) {
		prefix, err = amppackagerIDNA.ToASCII("0-" + text + "-0")
	}
	if err != nil {
		return ""
	}
	return prefix
}
