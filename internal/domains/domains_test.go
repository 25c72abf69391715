package domains

import (
	"strings"
	"testing"
)

// Each rule that a publisher domain can break has its problem.
func TestCheckNamesTheRuleThatIsBroken(t *testing.T) {
	for domain, want := range map[string]*Problem{
		"www.example.com":                nil,
		"_dmarc.a-b.example":             nil,
		"":                               ProblemEmpty,
		strings.Repeat("a.", 126) + "b":  nil, // 253 bytes
		strings.Repeat("a.", 126) + "bb": ProblemTooLong,
		"Example.com":                    ProblemChar,
		"a b.com":                        ProblemChar,
		"é.com":                          ProblemChar,
		"a..com":                         ProblemEmptyLabel,
		"a.com.":                         ProblemEmptyLabel,
		strings.Repeat("a", 63) + ".com": nil,
		strings.Repeat("a", 64) + ".com": ProblemLongLabel,
		"a-.com":                         ProblemEdgeHyphen,
		"a.-com":                         ProblemEdgeHyphen,
		"localhost":                      ProblemSingleLabel,
		"192.0.2.1":                      ProblemNumber,
		"a.0x1f":                         ProblemNumber,
		"a.0x":                           ProblemNumber,
		"a.0g":                           nil,
		"xn--bcher-kva.ch":               nil,
		"xn--bcher-kva.ch." + strings.Repeat("1", 9): ProblemNumber,
	} {
		hasALabel, p := Check(domain)
		if p != want || p == nil && hasALabel != strings.Contains(domain, "xn--") {
			t.Errorf("%q: %v, with an A-label: %t; want %v", domain, p, hasALabel, want)
		}
	}
}

// An A-label has one spelling, which is raw punycode: letters such as ß stay.
func TestALabelsHaveOneSpelling(t *testing.T) {
	for label, want := range map[string]string{
		"xn--bcher-kva": "bücher", "xn--fa-hia": "faß", "xn---x-9ia": "é-x",
		"xn--": "", "xn--abc-": "", "xn--BCHER-KVA": "", "xn--bcher-KVA": "", "xn--99999999": "",
	} {
		if got, p := DecodeALabel(label); got != want || (p == nil) != (want != "") {
			t.Errorf("%q is decoded as %q (%v); want %q", label, got, p, want)
		}
	}
}
