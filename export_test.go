package ampcors

import "time"

// Tests in package ampcors_test use these internals. Otherwise they use only the exported
// API, as a user does.

const (
	NoProblem        = noProblem
	ProblemAmbiguous = problemAmbiguous
	NumReasons       = numReasons
)

var (
	CombinedPrefix = combinedPrefix
	DecodeALabel   = decodeALabel
	DecodeDomain   = decodeDomain
	DecodeHash     = decodeHash
	OtherHost      = otherHost
	Unfold         = unfold
	UnfoldPlain    = unfoldPlain
)

// Reverse returns no domain if there is a problem.
func Reverse(buf []byte, prefix string) (domain []byte, text string, p problem) {
	if domain, text, p = reverse(buf, prefix); p != noProblem {
		domain = nil
	}
	return domain, text, p
}

func CheckDomain(d []byte) (hasALabel bool, p problem) { return checkDomain(d) }

func (l Lookup) DefaultMaxStale() time.Duration { return l.withDefaults().MaxStale }
