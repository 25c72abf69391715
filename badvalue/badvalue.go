// Package badvalue has the error for a value that cannot be used, in a configuration or as an argument:
// packages ampcors, cacheurl, configfile and source return it, and most packages below source and
// announce. Other errors are plain, such as errors of a Database.
package badvalue

import (
	"fmt"
	"iter"
	"regexp"
	"strconv"
)

// An Error names one value that cannot be used, what is wrong with it, and what would be right.
// Functions that check several values return all their problems at once, joined: see [All].
type Error struct {
	Code   Code   // what kind of problem it is, for programs
	Path   string // where the value is: a path of members as in JSON, "caches[0].cacheDomain"; or a Go field or parameter
	Value  string // as it was given
	Reason string // what is wrong, completing "the value ..."
	Want   string // what would be right, or [RemoveIt]
}

// A Code is what is wrong, for programs: sentences change, and codes do not. Later versions
// may add some.
type Code string

const (
	Missing    Code = "missing"      // there is none, and one is needed
	Malformed  Code = "malformed"    // it is not of the form that is needed; Want has the right one, if it is known
	OutOfRange Code = "out-of-range" // it is too small, too large or too long
	Unknown    Code = "unknown"      // it names what does not exist, or is not configured
	Conflict   Code = "conflict"     // it does not go with another value
	Useless    Code = "useless"      // it has no effect: browsers, caches or this module ignore it
	Reserved   Code = "reserved"     // it is a host or a parameter of AMP Caches
	Unsafe     Code = "unsafe"       // it would let in others than it names
	NotCovered Code = "not-covered"  // no IndexNow key file covers the page
)

// Codes returns all codes.
func Codes() []Code {
	return []Code{Missing, Malformed, OutOfRange, Unknown, Conflict, Useless, Reserved, Unsafe, NotCovered}
}

// RemoveIt is the Want of a value that must be removed.
const RemoveIt = "remove it"

func (e *Error) Error() string {
	want := e.Want
	if want != RemoveIt {
		want = "want " + want
	}
	return fmt.Sprintf("ampcors: %s %s %s; %s", e.Path, Quote(e.Value), e.Reason, want)
}

// Quote returns a value in quotes, as %q has it. A value may be a whole file that was read by mistake, so that only 80
// characters are quoted, which identify it; "…" behind the quotes says that there are more.
func Quote(value string) string {
	const most = 80
	n := 0
	for i := range value {
		if n++; n > most {
			return strconv.Quote(value[:i]) + "…"
		}
	}
	return strconv.Quote(value)
}

var userInfo = regexp.MustCompile(`^([A-Za-z]+:[/\\]{0,2}|[^/?#]*//)[^/?#]*@`)

// Masked returns a URL, or what should be one, without its user information, which may hold a password (one with an
// unescaped /, ? or # is not removed).
func Masked(url string) string { return userInfo.ReplaceAllString(url, "$1…@") }

// All returns an iterator over the [*Error]s that err is, wraps or joins, in their order.
//
//	for problem := range badvalue.All(err) {
//		fmt.Println(problem.Path, problem.Reason)
//	}
func All(err error) iter.Seq[*Error] {
	return func(yield func(*Error) bool) { walk(err, yield) }
}

func walk(err error, yield func(*Error) bool) (more bool) {
	switch e := err.(type) {
	case *Error:
		return yield(e)
	case interface{ Unwrap() error }:
		return walk(e.Unwrap(), yield)
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if !walk(err, yield) {
				return false
			}
		}
	}
	return true
}
