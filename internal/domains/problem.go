package domains

import (
	"cmp"
	"fmt"

	"github.com/ampcors/ampcors/badvalue"
)

// A Problem is what is wrong with a value. For a request, only variables are used, those below and
// similar ones in packages prefixes and ampcors, so that nothing is allocated.
type Problem struct {
	Code    badvalue.Code // if "", badvalue.Malformed is used
	Reason  string        // completes "the value ..."
	Instead string        // the domain that was probably meant, or ""
	Want    string        // what would be right, if Instead is ""; if both are "", WantDomain is used
}

// Of returns the problem as an error of the value at a path.
func (p *Problem) Of(path, value string) *badvalue.Error {
	want := p.Want
	switch {
	case p.Instead != "":
		want = fmt.Sprintf("%q", p.Instead)
	case want == "":
		want = WantDomain
	}
	return &badvalue.Error{Code: cmp.Or(p.Code, badvalue.Malformed), Path: path, Value: value, Reason: p.Reason,
		Want: want}
}

// WantDomain is the Want of a value that has to be a publisher domain.
const WantDomain = `a domain such as "www.example.com"`

// The rules that a publisher domain can break.
var (
	ProblemEmpty       = &Problem{Code: badvalue.Missing, Reason: "is empty"}
	ProblemTooLong     = &Problem{Code: badvalue.OutOfRange, Reason: "is longer than 253 bytes"}
	ProblemChar        = &Problem{Reason: "has a character that is not a-z, 0-9, hyphen, underscore or dot"}
	ProblemEmptyLabel  = &Problem{Reason: "has an empty label"}
	ProblemLongLabel   = &Problem{Code: badvalue.OutOfRange, Reason: "has a label longer than 63 bytes"}
	ProblemEdgeHyphen  = &Problem{Reason: "has a label that begins or ends with a hyphen"}
	ProblemSingleLabel = &Problem{Reason: "has no dot"}
	ProblemNumber      = &Problem{Reason: "ends in a number, so that URL parsers take it for an IP address"}
	ProblemALabel      = &Problem{Reason: "has an xn-- label that is not canonical punycode"}
)
