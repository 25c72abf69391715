package ampcors

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
