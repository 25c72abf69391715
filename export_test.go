package ampcors

// Tests in package ampcors_test use these internals. Otherwise they use only the exported
// API, as a user does.

const NumReasons = numReasons

var (
	ProblemAmbiguous = problemAmbiguous

	CombinedPrefix = combinedPrefix
	DecodeHash     = decodeHash
	OtherHost      = otherHost
	Unfold         = unfold
	UnfoldPlain    = unfoldPlain
)

// Reverse returns no domain if there is a problem.
func Reverse(buf []byte, prefix string) (domain []byte, text string, p *problem) {
	if domain, text, p = reverse(buf, prefix); p != nil {
		domain = nil
	}
	return domain, text, p
}
