package ampcors

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

const (
	maxLabel  = 63     // octets in a DNS label, RFC 1035 section 2.3.4
	maxDomain = 253    // octets of a name in text form, from the same section's 255 on the wire
	acePrefix = "xn--" // begins an A-label, RFC 5890 section 2.3.2.1
)

// A fault says, in words that complete "the name ...", which rule a name
// breaks. Faults are constants: to say why costs no allocation.
type fault string

const (
	noFault          fault = ""
	faultEmpty       fault = "is empty"
	faultTooLong     fault = "is longer than 253 octets"
	faultChar        fault = "has a character that is not a-z, 0-9, hyphen, underscore or dot"
	faultEmptyLabel  fault = "has an empty label"
	faultLongLabel   fault = "has a label longer than 63 octets"
	faultEdgeHyphen  fault = "has a label that begins or ends with a hyphen"
	faultSingleLabel fault = "has no dot"
	faultNumber      fault = "ends in a number, so that URL parsers take it for an IP address"
	faultALabel      fault = "has an xn-- label that is not canonical punycode"
)

// ValueError says what is wrong with one value that was given to this package,
// and what would be right. [New] and [Middleware.Reconfigure] return all the
// faults of a [Config] joined, each of this type.
type ValueError struct {
	Field  string // where the value stood, such as "Publishers", "Email.Senders" or "Caches[].cacheDomain"
	Index  int    // the index in that list, or -1
	Value  string // the value as it was given
	Reason string // what is wrong, completing "the value ..."
	Want   string // what would be right
}

func (e *ValueError) Error() string {
	where := e.Field
	if e.Index >= 0 {
		list, member, _ := strings.Cut(e.Field, "[]")
		where = fmt.Sprintf("%s[%d]%s", list, e.Index, member)
	}
	// A value may be a whole file read by mistake; 80 characters identify it.
	return fmt.Sprintf("ampcors: %s %.80q %s; want %s", where, e.Value, e.Reason, e.Want)
}

// domainOctets are those of a label in lower case. Underscores are not allowed in
// host names by RFC 952, but real hosts have them.
const domainOctets = "abcdefghijklmnopqrstuvwxyz0123456789-_"

// domainOctet is the set of domainOctets.
var domainOctet = func() (set [256]bool) {
	for _, c := range domainOctets {
		set[c] = true
	}
	return set
}()

// checkDomain finds out whether d is a publisher domain: at least two labels in
// lower-case ASCII, within DNS's limits. It also tells whether any label is
// marked as an A-label; whether it is one, decodeDomain tells.
//
// A label may not begin or end with a hyphen: "a-.b.com" and "a.-b.com" would
// share the prefix "a---b-com", and no page could be told from the other. The
// last label may not be a number: no browser loads a page from such a host, and
// "0.a-b.com.0" would share a prefix with "a-b.com".
func checkDomain[T string | []byte](d T) (hasALabel bool, f fault) {
	switch {
	case len(d) == 0:
		return false, faultEmpty
	case len(d) > maxDomain:
		return false, faultTooLong
	}
	start, labels := 0, 0
	for i := 0; ; i++ {
		if i < len(d) && d[i] != '.' {
			if !domainOctet[d[i]] {
				return false, faultChar
			}
			continue
		}
		label := d[start:i]
		switch {
		case len(label) == 0:
			return false, faultEmptyLabel
		case len(label) > maxLabel:
			return false, faultLongLabel
		case label[0] == '-' || label[len(label)-1] == '-':
			return false, faultEdgeHyphen
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
		return false, faultSingleLabel
	case isNumber(d[start:]):
		return false, faultNumber
	}
	return hasALabel, noFault
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

// decodeALabel returns the text that an A-label stands for. It accepts only the
// one encoding of that text, because a second encoding would be a second name
// for the same publisher. It uses raw punycode (RFC 3492): the UTS 46 profiles
// refuse hyphens that the AMP algorithm writes, map letters such as ß, and
// change with each version of Unicode.
func decodeALabel(label string) (text string, f fault) {
	text, err := idna.Punycode.ToUnicode(label)
	if err != nil {
		return "", faultALabel // idna's string beside an error means nothing
	}
	if !isEncodedAs(text, label) {
		return "", faultALabel
	}
	return text, noFault
}

// isEncodedAs tells whether label is the encoding of the text.
func isEncodedAs(text, label string) bool {
	encoded, err := idna.Punycode.ToASCII(text)
	return err == nil && encoded == label
}

// decodeDomain returns the Unicode form of a domain that checkDomain accepts.
func decodeDomain(domain string) (text string, f fault) {
	if !strings.Contains(domain, acePrefix) {
		return domain, noFault
	}
	labels := strings.Split(domain, ".")
	for i, label := range labels {
		if !strings.HasPrefix(label, acePrefix) {
			continue
		}
		if labels[i], f = decodeALabel(label); f != noFault {
			return "", f
		}
		if hasEdgeHyphen(labels[i]) {
			return "", faultEdgeHyphen
		}
	}
	return strings.Join(labels, "."), noFault
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

// at turns e into the error on a value. before is what stands before the domain in
// the value and belongs there: "*." in a pattern.
func (e *domainError) at(field string, index int, value, before string) *ValueError {
	v := &ValueError{Field: field, Index: index, Value: value, Reason: e.reason, Want: e.want}
	switch {
	case e.instead != "":
		v.Want = fmt.Sprintf("%q", before+e.instead)
	case v.Want == "":
		v.Want = wantDomain
	}
	return v
}

// maxUnicode bounds a domain in Unicode: each octet of its ASCII form stands for at
// most one character. Encoding takes quadratic time, so longer ones are not tried.
const maxUnicode = maxDomain * utf8.UTFMax

// parseDomain turns a publisher domain as a person writes it, in Unicode or
// ASCII and in any case, into lower-case ASCII with A-labels. It folds case and
// encodes; it never trims, and never changes a letter into another.
func parseDomain(value string) (string, *domainError) {
	if hasALabel, f := checkDomain(value); f == noFault && !hasALabel {
		return value, nil // as most lists of publishers are written
	}
	if len(value) > maxUnicode {
		return "", &domainError{reason: string(faultTooLong)}
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

// foldDomain is parseDomain without the search for what people paste.
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
				reason: fmt.Sprintf("has the label %q, which is not a valid internationalised label", label),
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
	_, f := checkDomain(domain)
	switch f {
	case noFault:
		if _, f = decodeDomain(domain); f == noFault {
			return domain, nil
		}
	case faultChar:
		rest := strings.TrimLeft(domain, domainOctets+".")
		return "", &domainError{reason: fmt.Sprintf("has the character %q; a domain has a-z, 0-9, hyphen, underscore and dot", rest[0])}
	}
	return "", &domainError{reason: string(f)}
}

// misspelling recognises what people paste in place of a domain.
func misspelling(value string) (reason string) {
	switch {
	case value == "":
		return string(faultEmpty)
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

// bareHost returns what is left of a value without what misspelling finds.
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
