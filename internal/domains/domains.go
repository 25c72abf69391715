// Package domains has the rules for publisher domains, other hosts and Origins.
package domains

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"

	"github.com/ampcors/ampcors/badvalue"
)

const (
	MaxLabel  = 63     // bytes in a DNS label, RFC 1035 section 2.3.4
	MaxDomain = 253    // bytes of a name in text form, from the same section's 255 on the wire
	ACEPrefix = "xn--" // begins an A-label, RFC 5890 section 2.3.2.1
)

// Bytes are the bytes of a lower-case label. RFC 952 does not allow underscores in
// host names, but real hosts have them.
const Bytes = "abcdefghijklmnopqrstuvwxyz0123456789-_"

// domainByte is the set of Bytes.
var domainByte = func() (set [256]bool) {
	for _, c := range Bytes {
		set[c] = true
	}
	return set
}()

// Check returns why d is not a publisher domain, or nil. A publisher domain has
// at least two labels in lower-case ASCII, within the limits of DNS. Check also
// reports whether a label begins as an A-label does; Decode then has to check it.
//
// A label must not begin or end with a hyphen: "a-.b.com" and "a.-b.com" would share the
// prefix "a---b-com", so their pages would have the same origin. The last label must not be
// a number: no browser loads a page from such a host, and "0.a-b.com.0" would share a
// prefix with "a-b.com".
func Check[T string | []byte](d T) (hasALabel bool, p *Problem) {
	switch {
	case len(d) == 0:
		return false, ProblemEmpty
	case len(d) > MaxDomain:
		return false, ProblemTooLong
	}
	start, labels := 0, 0
	for i := 0; ; i++ {
		if i < len(d) && d[i] != '.' {
			if !domainByte[d[i]] {
				return false, ProblemChar
			}
			continue
		}
		label := d[start:i]
		switch {
		case len(label) == 0:
			return false, ProblemEmptyLabel
		case len(label) > MaxLabel:
			return false, ProblemLongLabel
		case label[0] == '-' || label[len(label)-1] == '-':
			return false, ProblemEdgeHyphen
		case len(label) >= len(ACEPrefix) && string(label[:len(ACEPrefix)]) == ACEPrefix:
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
		return false, ProblemSingleLabel
	case IsNumber(d[start:]):
		return false, ProblemNumber
	}
	return hasALabel, nil
}

// IsNumber implements the URL standard's "ends in a number" checker for a last
// label: all digits, or hexadecimal after 0x.
// https://url.spec.whatwg.org/#ends-in-a-number-checker
func IsNumber[T string | []byte](label T) bool {
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

// DecodeALabel returns the text that an A-label encodes. It accepts only the one encoding
// of that text, because a second encoding would be a second name for the same publisher. It
// uses raw punycode (RFC 3492): the UTS 46 profiles reject hyphens that the AMP algorithm
// writes, map letters such as ß, and change with each version of Unicode.
func DecodeALabel(label string) (text string, p *Problem) {
	text, err := idna.Punycode.ToUnicode(label)
	if err != nil {
		return "", ProblemALabel // idna's string beside an error means nothing
	}
	if !IsEncodedAs(text, label) {
		return "", ProblemALabel
	}
	return text, nil
}

// IsEncodedAs reports whether label is the encoding of the text.
func IsEncodedAs(text, label string) bool {
	encoded, err := idna.Punycode.ToASCII(text)
	return err == nil && encoded == label
}

// Decode returns the Unicode form of a domain that Check accepts.
func Decode(domain string) (text string, p *Problem) {
	if !strings.Contains(domain, ACEPrefix) {
		return domain, nil
	}
	labels := strings.Split(domain, ".")
	for i, label := range labels {
		if !strings.HasPrefix(label, ACEPrefix) {
			continue
		}
		if labels[i], p = DecodeALabel(label); p != nil {
			return "", p
		}
		if HasEdgeHyphen(labels[i]) {
			return "", ProblemEdgeHyphen
		}
	}
	return strings.Join(labels, "."), nil
}

func HasEdgeHyphen(label string) bool {
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

// maxUnicode bounds a domain in Unicode: it has at most one character for each byte of its
// ASCII form. Encoding takes quadratic time, so longer ones are not tried.
const maxUnicode = MaxDomain * utf8.UTFMax

// Parse turns a publisher domain as a person writes it, in Unicode or
// ASCII and in any case, into lower-case ASCII with A-labels. It folds case and
// encodes; it never trims, and never changes a letter into another.
func Parse(value string) (string, *Problem) {
	if hasALabel, p := Check(value); p == nil && !hasALabel {
		return value, nil // as most lists of publishers are written
	}
	if len(value) > maxUnicode {
		return "", ProblemTooLong
	}
	if !utf8.ValidString(value) {
		return "", &Problem{Reason: "is not UTF-8", Want: "UTF-8, or the name's A-label form (xn--...)"}
	}
	if reason := misspelling(value); reason != "" {
		e := &Problem{Reason: reason, Want: WantDomain}
		if strings.Contains(value, "*") {
			e.Want += `; in a list of publishers also a pattern such as "*.example.com"`
		} else if bare, err := fold(bareHost(value)); err == nil {
			e.Instead = bare
		}
		return "", e
	}
	return fold(value)
}

// ParseBase is [Parse] for what stands below a dot, which may be a single label, such as "example" in the pattern
// "*.example".
func ParseBase(value string) (string, *Problem) {
	domain, p := Parse(value)
	if p != nil && !strings.Contains(value, ".") {
		if below, belowProblem := Parse("a." + value); belowProblem == nil {
			return strings.TrimPrefix(below, "a."), nil
		}
	}
	return domain, p
}

// fold is Parse without the check for misspelling.
func fold(value string) (string, *Problem) {
	// Since Unicode 15.1, UTS 46 maps the capital ẞ to ß; before, to ss, which is another name.
	// Which one package idna has depends on the release of Go.
	value = strings.ReplaceAll(value, "ẞ", "ß")
	labels := strings.Split(value, ".")
	for i, label := range labels {
		folded := strings.ToLower(label)
		if IsASCII(label) {
			labels[i] = folded
			continue
		}
		mapped, err := lookalikes.ToUnicode(label)
		encoded, err2 := idna.Punycode.ToASCII(mapped)
		switch {
		case err != nil || err2 != nil:
			return "", &Problem{
				Reason: fmt.Sprintf("has the label %q, which is not a valid internationalized label", label),
				Want:   "a name that browsers accept, or its A-label form (xn--...) as DNS has it",
			}
		case mapped != folded && mapped != label: // some scripts fold to upper case
			// Decomposed letters, ligatures, invisible characters and the like.
			e := &Problem{Reason: "is not how browsers spell this name"}
			if whole, err := lookalikes.ToUnicode(value); err == nil {
				if _, err := fold(whole); err == nil {
					e.Instead = whole
				}
			}
			return "", e
		}
		labels[i] = encoded
	}
	domain := strings.Join(labels, ".")
	_, p := Check(domain)
	switch p {
	case nil:
		if _, p = Decode(domain); p == nil {
			return domain, nil
		}
	case ProblemChar:
		rest := strings.TrimLeft(domain, Bytes+".")
		return "", &Problem{Reason: fmt.Sprintf("has the character %q; a domain has a-z, 0-9, hyphen, underscore and dot",
			rest[0])}
	}
	return "", p
}

// misspelling recognizes values that are often pasted instead of a domain, such as URLs.
func misspelling(value string) (reason string) {
	switch {
	case value == "":
		return ProblemEmpty.Reason
	case strings.TrimSpace(value) != value:
		return "has white space around it"
	case strings.Contains(value, "//"):
		return "has a scheme"
	case strings.ContainsAny(value, "/?#"):
		return "has a path, query or fragment"
	case strings.Contains(value, "@"):
		return "has user information"
	case IsIPAddress(strings.Trim(value, "[]")):
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

func IsIPAddress(s string) bool {
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

func IsASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// IsOrIsBelow reports whether host is the domain or one of its subdomains. It looks for the
// dot first, because few hosts have one at that place. The dot is needed: without it,
// evilcdn.ampproject.org would be below cdn.ampproject.org.
func IsOrIsBelow(host, domain string) bool {
	n := len(host) - len(domain)
	return (n == 0 || n > 0 && host[n-1] == '.') && host[n:] == domain
}

// IsPublicSuffix reports whether anybody can register names directly below domain.
// The list may also have "*." before the domain, as for kawasaki.jp.
func IsPublicSuffix(domain string) bool {
	suffix, _ := publicsuffix.PublicSuffix(domain)
	below, _ := publicsuffix.PublicSuffix("a." + domain)
	return suffix == domain || below == "a."+domain
}

// ParsePublisher is [Parse] for an argument of a public function: its error has the path of the argument.
func ParsePublisher(path, publisher string) (string, *badvalue.Error) {
	domain, err := Parse(publisher)
	if err != nil && strings.HasPrefix(publisher, "*.") {
		err = &Problem{Reason: "is a pattern", Want: "one domain; only a list of allowed publishers has patterns"}
	}
	if err != nil {
		return "", err.Of(path, publisher)
	}
	return domain, nil
}
