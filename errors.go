package ampcors

import (
	"cmp"
	"errors"
	"fmt"
	"iter"

	"github.com/ampcors/ampcors/internal/dns"
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

// A problem says what is wrong with a value, without saying which value it is.
type problem = dns.Problem

// valueError returns a problem of the value at a path.
func valueError(path, value string, p *problem) *ValueError {
	want := p.Want
	switch {
	case p.Instead != "":
		want = fmt.Sprintf("%q", p.Instead)
	case want == "":
		want = dns.WantDomain
	}
	return &ValueError{Path: path, Value: value, Reason: p.Reason, Want: want}
}

func joinValueErrors(problems []*ValueError) error {
	errs := make([]error, len(problems))
	for i, problem := range problems {
		errs[i] = problem
	}
	return errors.Join(errs...)
}
