package ampcors

import "time"

// Tests in package ampcors_test use these internals. Otherwise they use only the exported
// API, as a user does.

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
