package ampcors

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
)

// A ValueError says what is wrong with one value that was given to this module, and what
// would be right. [New] and [Middleware.Reconfigure] return all problems of a [Config] at
// once, joined: [ValueErrors] iterates over them.
type ValueError struct {
	Package string // that found the problem; "" is ampcors
	Path    string // where the value is, spelled as in JSON: "publishers[3]", "caches[0].cacheDomain"
	Value   string // as it was given
	Reason  string // what is wrong, completing "the value ..."
	Want    string // what would be right, or "remove it"
}

// removeIt is the Want of a value that must be removed.
const removeIt = "remove it"

func (e *ValueError) Error() string {
	want := e.Want
	if want != removeIt {
		want = "want " + want
	}
	// A value may be a whole file that was read by mistake; 80 characters identify it.
	return fmt.Sprintf("%s: %s %.80q %s; %s", cmp.Or(e.Package, "ampcors"), e.Path, e.Value, e.Reason, want)
}

// ValueErrors returns an iterator over the [*ValueError]s that err is, wraps or joins, in
// their order.
//
//	for problem := range ampcors.ValueErrors(err) {
//		fmt.Println(problem.Path, problem.Reason)
//	}
func ValueErrors(err error) iter.Seq[*ValueError] {
	return func(yield func(*ValueError) bool) { walkValueErrors(err, yield) }
}

func walkValueErrors(err error, yield func(*ValueError) bool) (more bool) {
	switch e := err.(type) {
	case *ValueError:
		return yield(e)
	case interface{ Unwrap() error }:
		return walkValueErrors(e.Unwrap(), yield)
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if !walkValueErrors(err, yield) {
				return false
			}
		}
	}
	return true
}

func joinValueErrors(problems []*ValueError) error {
	errs := make([]error, len(problems))
	for i, problem := range problems {
		errs[i] = problem
	}
	return errors.Join(errs...)
}

// A problem is a rule that a name breaks.
type problem uint8

const (
	noProblem problem = iota

	// Of a domain.
	problemEmpty
	problemTooLong
	problemChar
	problemEmptyLabel
	problemLongLabel
	problemEdgeHyphen
	problemSingleLabel
	problemNumber
	problemALabel
	problemReserved

	// Of a domain prefix.
	problemNoPrefix
	problemTwoLabels
	problemPrefixLength
	problemNotHash
	problemWrapped
	problemNotWrapped
	problemNotPunycode
	problemEncoded
	problemAmbiguous
)

var problemText = [...]string{
	problemEmpty:       "is empty",
	problemTooLong:     "is longer than 253 bytes",
	problemChar:        "has a character that is not a-z, 0-9, hyphen, underscore or dot",
	problemEmptyLabel:  "has an empty label",
	problemLongLabel:   "has a label longer than 63 bytes",
	problemEdgeHyphen:  "has a label that begins or ends with a hyphen",
	problemSingleLabel: "has no dot",
	problemNumber:      "ends in a number, so that URL parsers take it for an IP address",
	problemALabel:      "has an xn-- label that is not canonical punycode",
	problemReserved:    "is a host of an AMP Cache, where anybody's page can be",

	problemNoPrefix:     "has nothing before the cache domain, and so names no publisher",
	problemTwoLabels:    "has more than one label",
	problemPrefixLength: "is not 1 to 63 bytes long",
	problemNotHash:      "has no dash, and is not a hash prefix of 52 characters",
	problemWrapped:      "is wrapped in 0- and -0 without need",
	problemNotWrapped:   "has dashes at positions 3 and 4 but is not wrapped in 0- and -0",
	problemNotPunycode:  "begins with xn-- but is not punycode of a domain",
	problemEncoded:      "holds an xn-- label, which AMP Caches decode",
	problemAmbiguous:    "is also the prefix of another host, whose name begins with xn-",
}

// String returns the problem in words that complete "the name ...".
func (p problem) String() string { return problemText[p] }
