package ampcors

import "time"

// These are the internals that tests in package ampcors_test look at. All other tests there use
// the exported API, as a user does.

const (
	NoProblem  = noProblem
	NumReasons = numReasons
)

var (
	CombinedPrefix = combinedPrefix
	DecodeALabel   = decodeALabel
	DecodeDomain   = decodeDomain
	DecodeHash     = decodeHash
	Reverse        = reverse
	Unfold         = unfold
	UnfoldPlain    = unfoldPlain
)

func CheckDomain(d []byte) (hasALabel bool, p problem) { return checkDomain(d) }

func (l Lookup) DefaultMaxStale() time.Duration { return l.withDefaults().MaxStale }
