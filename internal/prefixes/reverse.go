package prefixes

import (
	"strings"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/internal/domains"
)

// IsHash reports whether a prefix has no dash, and so cannot be reversed. A prefix
// with a dot is not one label: Reverse rejects it.
func IsHash(prefix string) bool {
	return !strings.Contains(prefix, "-") && !strings.Contains(prefix, ".")
}

// Reverse writes into buf the publisher domain that a prefix with a dash names. It does not
// allocate for ASCII if buf holds as many bytes as the prefix. text is the prefix decoded
// and unwrapped, as far as it was read.
func Reverse(buf []byte, prefix string) (domain []byte, text string, p *domains.Problem) {
	switch {
	case len(prefix) == 0 || len(prefix) > domains.MaxLabel:
		return nil, prefix, ProblemPrefixLength
	case strings.Contains(prefix, "."):
		return nil, prefix, ProblemTwoLabels
	case strings.HasPrefix(prefix, domains.ACEPrefix):
		return reverseACE(buf, prefix)
	}
	// Caches wrap a prefix exactly if the text inside needs it. They write no other form.
	text, wrapped := Unwrap(prefix)
	switch needed := hyphens34(text); {
	case wrapped && !needed:
		return nil, text, ProblemWrapped
	case !wrapped && needed:
		return nil, text, ProblemNotWrapped
	}
	domain, p = readASCII(buf, text)
	return domain, text, p
}

// reverseACE reads a prefix that begins with "xn--". It is punycode, as it is for DNS. But
// AMP Toolbox leaves "xn-shop.com" unwrapped and so writes "xn--shop-com". If a prefix is not
// punycode of a host that can exist, it can only be such an unwrapped prefix, and is read as one. If
// it is punycode of a domain, but another host has the same prefix, it returns the domain with
// ProblemAmbiguous.
func reverseACE(buf []byte, prefix string) (domain []byte, text string, p *domains.Problem) {
	decoded, err := idna.Punycode.ToUnicode(prefix)
	// It may be wrapped or not, because implementations count positions 3 and 4
	// differently. This is not ambiguous, because the last label of a domain cannot be "0".
	text, _ = Unwrap(decoded)
	other := OtherHost(prefix)
	host := string(Unfold(nil, text))
	if err != nil || !strings.Contains(host, ".") || other != "" && !endsInTLD(host) {
		if domain, p = readASCII(buf, prefix); p != nil {
			p = ProblemNotPunycode
		}
		return domain, prefix, p
	}
	if !domains.IsEncodedAs(decoded, prefix) {
		return nil, prefix, domains.ProblemALabel // browsers load no page from it
	}
	if domain, p = readUnicode(buf, text); p == nil && other != "" {
		p = ProblemAmbiguous
	}
	return domain, text, p
}

// endsInTLD reports whether a host ends in a top-level domain. Caches cannot fetch pages of other hosts.
func endsInTLD(host string) bool {
	last, err := idna.Punycode.ToASCII(host[strings.LastIndexByte(host, '.')+1:])
	return err == nil && isTLD(last)
}

// isTLD reports whether a label is a top-level domain, by the ICANN section of the Public Suffix List.
func isTLD(label string) bool {
	_, isICANN := publicsuffix.PublicSuffix("a." + label) // "a." because of rules such as "*.ck"
	return isICANN
}

// OtherHost returns the host that a prefix of punycode names if it is read without decoding it, such
// as "xn-www.lstekas.lv.pub" for "xn--www-lstekas-lv-pub". It returns "" if no such host gets this
// prefix: because its last label is not a top-level domain, or because it has an A-label, which AMP's
// implementations decode. The other labels do not matter: whoever has a domain can have hosts of any
// labels below it.
func OtherHost(prefix string) string {
	host := string(Unfold(nil, prefix))
	if !isTLD(host[strings.LastIndexByte(host, '.')+1:]) || strings.Contains("."+host, "."+domains.ACEPrefix) {
		return ""
	}
	return host
}

// readASCII reads the text of a prefix that is not punycode.
func readASCII(buf []byte, text string) ([]byte, *domains.Problem) {
	domain := Unfold(buf[:0], text)
	hasALabel, p := domains.Check(domain)
	switch {
	case p != nil:
		return nil, p
	case hasALabel:
		return nil, ProblemEncoded
	}
	return domain, nil
}

// readUnicode reads the text of a prefix that was punycode.
func readUnicode(buf []byte, text string) ([]byte, *domains.Problem) {
	domain := buf[:0]
	for label := range strings.SplitSeq(string(Unfold(nil, text)), ".") {
		a, err := idna.Punycode.ToASCII(label)
		switch {
		case label == "":
			return nil, domains.ProblemEmptyLabel
		case domains.HasEdgeHyphen(label):
			return nil, domains.ProblemEdgeHyphen
		case err != nil || strings.HasPrefix(label, domains.ACEPrefix):
			return nil, ProblemEncoded
		}
		if len(domain) > 0 {
			domain = append(domain, '.')
		}
		domain = append(domain, a...)
	}
	if _, p := domains.Check(domain); p != nil {
		return nil, p
	}
	return domain, nil
}

// Unwrap removes the "0-" and "-0" around the text. It does so only if these are whole runs
// of dashes: in "0--a-b--0" they are parts of "--", which are the hyphens of "0-a.b-0".
func Unwrap(text string) (inside string, wrapped bool) {
	inside, wrapped = strings.CutPrefix(text, "0-")
	if wrapped {
		inside, wrapped = strings.CutSuffix(inside, "-0")
	}
	if !wrapped || domains.HasEdgeHyphen(inside) {
		return text, false
	}
	return inside, true
}

// Unfold appends the text to dst, and reads "--" as "-" and "-" as "." from left to right.
// An odd run of three or more dashes has several readings. It leaves a label with a hyphen
// at its edge, which domains.Check rejects.
func Unfold(dst []byte, text string) []byte {
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '-' {
			if i+1 < len(text) && text[i+1] == '-' {
				i++
			} else {
				c = '.'
			}
		}
		dst = append(dst, c)
	}
	return dst
}

// UnfoldPlain writes into buf what Unfold returns, for a plain prefix: one label that is
// not punycode, is not wrapped, does not need to be wrapped, and has no A-label. For such a
// prefix, Reverse does only this before it checks the domain. The caller still has to check
// the domain.
func UnfoldPlain(buf *[domains.MaxLabel]byte, prefix string) (length int, hasDash, plain bool) {
	if len(prefix) > domains.MaxLabel || hyphens34(prefix) || strings.HasPrefix(prefix, "0-") {
		return 0, false, false
	}
	n := 0
	for i := 0; i < len(prefix); i++ {
		c := prefix[i]
		switch {
		case c > '.': // a letter or digit, or a byte that domains.Check rejects
		case c != '-':
			return 0, false, false
		case i+1 == len(prefix) || prefix[i+1] != '-':
			c, hasDash = '.', true
		case n > 0 && buf[n-1] == '-': // "----", as an A-label would have
			return 0, false, false
		default:
			hasDash = true
			i++
		}
		buf[n] = c
		n++
	}
	return n, hasDash, true
}

// The rules that a domain prefix can break. It can also break those of the domain that it names.
var (
	ProblemNoPrefix     = &domains.Problem{Code: badvalue.Missing, Reason: "is empty, and so names no publisher"}
	ProblemTwoLabels    = &domains.Problem{Reason: "has more than one label"}
	ProblemPrefixLength = &domains.Problem{Code: badvalue.OutOfRange, Reason: "is not 1 to 63 bytes long"}
	ProblemNotHash      = &domains.Problem{Reason: "has no dash, and is not a hash prefix of 52 characters"}
	ProblemWrapped      = &domains.Problem{Reason: "is wrapped in 0- and -0 without need"}
	ProblemNotWrapped   = &domains.Problem{Reason: "has dashes at positions 3 and 4 but is not wrapped in 0- and -0"}
	ProblemNotPunycode  = &domains.Problem{Reason: "begins with xn-- but is not punycode of a domain"}
	ProblemEncoded      = &domains.Problem{Reason: "holds an xn-- label, which AMP Caches decode"}
	ProblemAmbiguous    = &domains.Problem{Code: badvalue.Unsafe,
		Reason: "is also the prefix of another host, whose name begins with xn-"}
)
