// Package header knows the headers that decide who gets a response, and those that only browsers set.
package header

import (
	"iter"
	"net/http"
	"strings"
)

// IsCORS reports whether a response header can give a page or an email access. key need not
// be canonical, because net/http sends keys in any spelling.
func IsCORS(key string) bool {
	if key == "" || key[0]|0x20 != 'a' {
		return false
	}
	key = http.CanonicalHeaderKey(key)
	return strings.HasPrefix(key, "Access-Control-") || key == "Amp-Email-Allow-Sender" ||
		key == "Amp-Access-Control-Allow-Source-Origin"
}

// Members returns an iterator over the members of a list header, such as Vary, without
// empty ones (RFC 9110 section 5.6.1).
func Members(lines []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, line := range lines {
			for member := range strings.SplitSeq(line, ",") {
				if member = strings.Trim(member, " \t"); member != "" && !yield(member) {
					return
				}
			}
		}
	}
}

// HasMember reports whether the lines of a list header have a member, in any case.
func HasMember(lines []string, member string) bool {
	for m := range Members(lines) {
		if strings.EqualFold(m, member) {
			return true
		}
	}
	return false
}
