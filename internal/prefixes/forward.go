// Package prefixes has the two algorithms of AMP's document "AMP Cache URL Format and Request
// Handling": from a publisher domain to its domain prefix, and from a prefix to the domain that it
// names. The documentation of package cacheurl says which prefixes are accepted.
package prefixes

import (
	"strings"

	"golang.org/x/net/idna"

	"github.com/ampcors/ampcors/internal/domains"
)

// Combined implements the combined algorithm for a domain that domains.Parse returned: the basic
// algorithm, or the fallback algorithm if that has no result.
func Combined(domain string) string {
	if prefix := Basic(domain); prefix != "" {
		return prefix
	}
	return Hash(domain)
}

// bidiRule checks the Bidi Rule of RFC 5893 section 2, and nothing else.
var bidiRule = idna.New(idna.BidiRule())

// Basic implements the basic algorithm, with the steps numbered as in the
// AMP document. It returns "" if the combined algorithm must use the fallback algorithm.
func Basic(domain string) string {
	// 1. Decode punycode.
	text, p := domains.Decode(domain)
	if p != nil || hyphens34(text) {
		return ""
	}
	// 2. Replace "-" with "--". 3. Replace "." with "-".
	text = Dashes(text)
	// 4. If positions 3 and 4 are both "-", wrap the text: such a DNS label is
	// reserved (RFC 5891 section 4.2.3.1).
	if hyphens34(text) {
		text = "0-" + text + "-0"
	}
	// 5. Encode punycode. The document encodes "the output of step 3", which would
	// lose the wrapping.
	prefix, err := idna.Punycode.ToASCII(text)
	if err != nil || len(prefix) > domains.MaxLabel {
		return ""
	}
	if _, err := bidiRule.ToUnicode(prefix); err != nil {
		return ""
	}
	return prefix
}

// Dashes applies the steps 2 and 3 of the basic algorithm to a host in Unicode.
func Dashes(host string) string {
	return strings.ReplaceAll(strings.ReplaceAll(host, "-", "--"), ".", "-")
}

// hyphens34 reports whether positions 3 and 4 of s are both hyphens. They do not count
// after a non-ASCII letter: implementations count positions in bytes, in code points or
// after encoding, and both official ones then do not wrap the text.
func hyphens34(s string) bool {
	return len(s) >= 4 && s[2] == '-' && s[3] == '-' && s[0] < 0x80 && s[1] < 0x80
}
