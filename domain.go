package ampcors

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

const (
	maxLabel  = 63     // bytes in a DNS label, RFC 1035 section 2.3.4
	maxDomain = 253    // bytes of a name in text form, from the same section's 255 on the wire
	acePrefix = "xn--" // begins an A-label, RFC 5890 section 2.3.2.1
)

// domainBytes are the bytes of a lower-case label. RFC 952 does not allow underscores in
// host names, but real hosts have them.
const domainBytes = "abcdefghijklmnopqrstuvwxyz0123456789-_"

// domainByte is the set of domainBytes.
var domainByte = func() (set [256]bool) {
	for _, c := range domainBytes {
		set[c] = true
	}
	return set
}()

// checkDomain returns why d is not a publisher domain, or noProblem. A publisher domain has
// at least two labels in lower-case ASCII, within the limits of DNS. checkDomain also
// reports whether a label begins as an A-label does; decodeDomain then has to check it.
//
// A label must not begin or end with a hyphen: "a-.b.com" and "a.-b.com" would share the
// prefix "a---b-com", so their pages would have the same origin. The last label must not be
// a number: no browser loads a page from such a host, and "0.a-b.com.0" would share a
// prefix with "a-b.com".
func checkDomain[T string | []byte](d T) (hasALabel bool, p problem) {
	switch {
	case len(d) == 0:
		return false, problemEmpty
	case len(d) > maxDomain:
		return false, problemTooLong
	}
	start, labels := 0, 0
	for i := 0; ; i++ {
		if i < len(d) && d[i] != '.' {
			if !domainByte[d[i]] {
				return false, problemChar
			}
			continue
		}
		label := d[start:i]
		switch {
		case len(label) == 0:
			return false, problemEmptyLabel
		case len(label) > maxLabel:
			return false, problemLongLabel
		case label[0] == '-' || label[len(label)-1] == '-':
			return false, problemEdgeHyphen
		case len(label) >= len(acePrefix) && string(label[:len(acePrefix)]) == acePrefix:
			hasALabel = true
		}
		labels++
		if i == len(d) {
			break
		}
		start = i + 1
	}
	switch {
	case labels < 2:
		return false, problemSingleLabel
	case isNumber(d[start:]):
		return false, problemNumber
	}
	return hasALabel, noProblem
}

// isNumber implements the URL standard's "ends in a number" checker for a last
// label: all digits, or hexadecimal after 0x.
// https://url.spec.whatwg.org/#ends-in-a-number-checker
func isNumber[T string | []byte](label T) bool {
	digits, hex := label, false
	if len(label) >= 2 && label[0] == '0' && label[1] == 'x' {
		digits, hex = label[2:], true
	}
	if len(digits) == 0 {
		return hex // "0x" is zero
	}
	for i := range len(digits) {
		c := digits[i]
		if (c < '0' || '9' < c) && (!hex || c < 'a' || 'f' < c) {
			return false
		}
	}
	return true
}

// decodeALabel returns the text that an A-label encodes. It accepts only the one encoding
// of that text, because a second encoding would be a second name for the same publisher. It
// uses raw punycode (RFC 3492): the UTS 46 profiles reject hyphens that the AMP algorithm
// writes, map letters such as ß, and change with each version of Unicode.
func decodeALabel(label string) (text string, p problem) {
	text, err := idna.Punycode.ToUnicode(label)
	if err != nil {
		return "", problemALabel // idna's string beside an error means nothing
	}
	if !isEncodedAs(text, label) {
		return "", problemALabel
	}
	return text, noProblem
}

// isEncodedAs reports whether label is the encoding of the text.
func isEncodedAs(text, label string) bool {
	encoded, err := idna.Punycode.ToASCII(text)
	return err == nil && encoded == label
}

// decodeDomain returns the Unicode form of a domain that checkDomain accepts.
func decodeDomain(domain string) (text string, p problem) {
	if !strings.Contains(domain, acePrefix) {
		return domain, noProblem
	}
	labels := strings.Split(domain, ".")
	for i, label := range labels {
		if !strings.HasPrefix(label, acePrefix) {
			continue
		}
		if labels[i], p = decodeALabel(label); p != noProblem {
			return "", p
		}
		if hasEdgeHyphen(labels[i]) {
			return "", problemEdgeHyphen
		}
	}
	return strings.Join(labels, "."), noProblem
}

func hasEdgeHyphen(label string) bool {
	return strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-")
}

// lookalikes maps a label as browsers do before they look it up (UTS 46,
// non-transitional, without the hyphen and STD3 checks). It decides nothing in a
// request; it only finds configured names that a browser would read differently.
var lookalikes = idna.New(
	idna.MapForLookup(),
	idna.Transitional(false),
	idna.StrictDomainName(false),
	idna.CheckHyphens(false),
)

// A domainError says why a value is not a publisher domain.
type domainError struct {
	reason  string
	instead string // the domain that was probably meant, or ""
	want    string // what would be right if instead is ""
}

const wantDomain = `a domain such as "www.example.com"`

// at returns e as the error for a value at a path. before is the part of the value before
// the domain, such as "*." in a pattern.
func (e *domainError) at(path, value, before string) *ValueError {
	v := &ValueError{Path: path, Value: value, Reason: e.reason, Want: e.want}
	switch {
	case e.instead != "":
		v.Want = fmt.Sprintf("%q", before+e.instead)
	case v.Want == "":
		v.Want = wantDomain
	}
	return v
}

// maxUnicode bounds a domain in Unicode: it has at most one character for each byte of its
// ASCII form. Encoding takes quadratic time, so longer ones are not tried.
const maxUnicode = maxDomain * utf8.UTFMax

// parseDomain turns a publisher domain as a person writes it, in Unicode or
// ASCII and in any case, into lower-case ASCII with A-labels. It folds case and
// encodes; it never trims, and never changes a letter into another.
func parseDomain(value string) (string, *domainError) {
	if hasALabel, p := checkDomain(value); p == noProblem && !hasALabel {
		return value, nil // as most lists of publishers are written
	}
	if len(value) > maxUnicode {
		return "", &domainError{reason: problemTooLong.String()}
	}
	if !utf8.ValidString(value) {
		return "", &domainError{reason: "is not UTF-8", want: "UTF-8, or the name's A-label form (xn--...)"}
	}
	if reason := misspelling(value); reason != "" {
		e := &domainError{reason: reason, want: wantDomain}
		if strings.Contains(value, "*") {
			e.want += `; in a list of publishers also a pattern such as "*.example.com"`
		} else if bare, err := foldDomain(bareHost(value)); err == nil {
			e.instead = bare
		}
		return "", e
	}
	return foldDomain(value)
}

// foldDomain is parseDomain without the check for misspelling.
func foldDomain(value string) (string, *domainError) {
	labels := strings.Split(value, ".")
	for i, label := range labels {
		folded := strings.ToLower(label)
		if isASCII(label) {
			labels[i] = folded
			continue
		}
		mapped, err := lookalikes.ToUnicode(label)
		encoded, err2 := idna.Punycode.ToASCII(mapped)
		switch {
		case err != nil || err2 != nil:
			return "", &domainError{
				reason: fmt.Sprintf("has the label %q, which is not a valid internationalized label", label),
				want:   "a name that browsers accept, or its A-label form (xn--...) as DNS has it",
			}
		case mapped != folded && mapped != label: // some scripts fold to upper case
			// Decomposed letters, ligatures, invisible characters and the like.
			e := &domainError{reason: "is not how browsers spell this name"}
			if whole, err := lookalikes.ToUnicode(value); err == nil {
				if _, err := foldDomain(whole); err == nil {
					e.instead = whole
				}
			}
			return "", e
		}
		labels[i] = encoded
	}
	domain := strings.Join(labels, ".")
	_, p := checkDomain(domain)
	switch p {
	case noProblem:
		if _, p = decodeDomain(domain); p == noProblem {
			return domain, nil
		}
	case problemChar:
		rest := strings.TrimLeft(domain, domainBytes+".")
		return "", &domainError{reason: fmt.Sprintf("has the character %q; a domain has a-z, 0-9, hyphen, underscore and dot", rest[0])}
	}
	return "", &domainError{reason: p.String()}
}

// misspelling recognizes values that are often pasted instead of a domain, such as URLs.
func misspelling(value string) (reason string) {
	switch {
	case value == "":
		return problemEmpty.String()
	case strings.TrimSpace(value) != value:
		return "has white space around it"
	case strings.Contains(value, "//"):
		return "has a scheme"
	case strings.ContainsAny(value, "/?#"):
		return "has a path, query or fragment"
	case strings.Contains(value, "@"):
		return "has user information"
	case isIPAddress(strings.Trim(value, "[]")):
		return "is an IP address"
	case strings.Contains(value, ":"):
		return "has a port"
	case strings.HasSuffix(value, ".") && strings.Trim(value, ".") != "":
		return "has a trailing dot"
	case strings.Contains(value, "*"):
		return "has a * that does not stand alone before the first dot"
	}
	return ""
}

func isIPAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// bareHost returns a value without the parts that misspelling finds.
func bareHost(value string) string {
	value = strings.TrimSpace(value)
	if _, rest, ok := strings.Cut(value, "//"); ok {
		value = rest
	}
	if i := strings.IndexAny(value, "/?#"); i >= 0 {
		value = value[:i]
	}
	value = value[strings.LastIndexByte(value, '@')+1:]
	value, _, _ = strings.Cut(value, ":")
	return strings.TrimSuffix(value, ".")
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
