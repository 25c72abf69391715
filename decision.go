package ampcors

import (
	"sync/atomic"
	"unsafe"
)

// A Decision tells whether a request, or an origin, is allowed, and why. Clone a string
// that is kept for long: Origin and EmailSender are parts of the request's memory, and
// Publisher can be a part of that of all publishers' names.
type Decision struct {
	Allowed   bool
	Reason    Reason
	Origin    string // as the request had it, unverified and of any length; "" if it had none, or more than one
	Publisher string // in lower-case ASCII; "" if the origin names none
	CacheID   string // the ID of the AMP Cache; "" for any other origin

	// EmailSender is the sender of the email that calls, as the request names it; ""
	// for anything that is no email's, and without [Config].Email. It is unverified and
	// of any length unless the request is allowed.
	EmailSender string

	// Stale says that the publisher is taken for one because Config.Source confirmed it
	// within Lookup.StaleFor, though it could not do so now.
	Stale bool

	// SourceErr is why Config.Source could not tell; nil unless Stale is set or the
	// Reason is ReasonSourceUnavailable.
	SourceErr error
}

// A Reason says why a request is allowed or refused. The set is closed, so that
// requests can be counted by it.
type Reason uint8

// The reasons for which a request is allowed. The first four are those for which
// it gets a website's CORS headers.
const (
	_ Reason = iota

	ReasonOwnOrigin         // the origin of an allowed publisher's own pages
	ReasonCacheOrigin       // an AMP Cache's origin whose prefix reverses to an allowed publisher
	ReasonHashedCacheOrigin // an AMP Cache's origin whose prefix is the hash of an allowed publisher
	ReasonExtraOrigin       // listed in Config.Origins
	ReasonEmail             // an AMP email's, version 2: the sender is allowed
	ReasonEmailV1           // an AMP email's, version 1: the mail client and the sender are allowed
	ReasonSameOrigin        // sent by the API host's own page, as Sec-Fetch-Site or AMP-Same-Origin tells
	ReasonNoOrigin          // no Origin: same-origin or not from a browser, and harmless or dangerously allowed

	// The reasons for which a request is refused.

	ReasonMalformed             // Origin is not a scheme and one host name and nothing else, or there are several
	ReasonNull                  // Origin is "null": a sandboxed frame, a local file, some redirects
	ReasonNotHTTPS              // the scheme is not https
	ReasonUnknownHost           // neither an AMP Cache's host nor an allowed publisher's
	ReasonNotCanonical          // below a cache domain, but not as any AMP Cache writes it
	ReasonPublisherNotAllowed   // an AMP Cache's origin of a publisher that is not allowed
	ReasonHashNotKnown          // an AMP Cache's hash-only origin of no publisher that is listed exactly or that the Source knows
	ReasonNoOriginUnsafe        // an unsafe method with neither Origin nor AMP-Same-Origin
	ReasonNoEmailSender         // an email's, but not with exactly one address as its sender
	ReasonEmailSenderNotAllowed // an email's, of a sender who is not allowed
	ReasonMethodNotAllowed      // a preflight asks for a method that is not allowed
	ReasonHeaderNotAllowed      // a preflight asks for a header that is not allowed
	ReasonSourceUnavailable     // Config.Source could not tell whether the publisher is allowed: status 503

	numReasons
)

var reasonText = [numReasons]string{
	0:                           "not decided",
	ReasonOwnOrigin:             "own origin",
	ReasonCacheOrigin:           "cache origin",
	ReasonHashedCacheOrigin:     "hashed cache origin",
	ReasonExtraOrigin:           "extra origin",
	ReasonEmail:                 "email",
	ReasonEmailV1:               "email, version 1",
	ReasonSameOrigin:            "same origin",
	ReasonNoOrigin:              "no origin",
	ReasonMalformed:             "malformed origin",
	ReasonNull:                  "null origin",
	ReasonNotHTTPS:              "not https",
	ReasonUnknownHost:           "unknown host",
	ReasonNotCanonical:          "not a canonical cache origin",
	ReasonPublisherNotAllowed:   "publisher not allowed",
	ReasonHashNotKnown:          "hash not known",
	ReasonNoOriginUnsafe:        "no origin on an unsafe method",
	ReasonNoEmailSender:         "no email address as the sender",
	ReasonEmailSenderNotAllowed: "email sender not allowed",
	ReasonMethodNotAllowed:      "method not allowed",
	ReasonHeaderNotAllowed:      "header not allowed",
	ReasonSourceUnavailable:     "source unavailable",
}

// String returns the reason in a few words, such as "publisher not allowed".
func (r Reason) String() string {
	if r < numReasons {
		return reasonText[r]
	}
	return reasonText[0]
}

// MarshalText returns what String does, for logs and for JSON, where a [Stats] is
// then an object with a member for each reason.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// allowed tells whether requests with this reason reach the handler.
func (r Reason) allowed() bool { return 0 < r && r <= ReasonNoOrigin }

// granted tells whether requests with this reason get a website's CORS headers.
func (r Reason) granted() bool { return 0 < r && r <= ReasonExtraOrigin }

// Stats counts requests by the reason of the decision on them. It has every
// reason, those with a count of zero too.
type Stats map[Reason]uint64

// Allowed returns the number of requests that were allowed.
func (s Stats) Allowed() (n uint64) {
	for r, count := range s {
		if r.allowed() {
			n += count
		}
	}
	return n
}

// Refused returns the number of requests that were refused or, with
// Config.ReportOnly, would have been.
func (s Stats) Refused() (n uint64) {
	for r, count := range s {
		if !r.allowed() {
			n += count
		}
	}
	return n
}

// counters count decisions by reason. Processors that count in one place wait for one
// another: two of them took longer than one alone. So there are several places, for
// different goroutines, each with cache lines of its own.
type counters [shards]struct {
	_        [shardSize - 8*int(numReasons)]byte // first, to keep off what stands before
	byReason [numReasons]atomic.Uint64
}

const (
	shards    = 32  // so that few of the goroutines that run at one time meet
	shardSize = 384 // octets: the counts, and two cache lines, as some processors fetch them in pairs
)

func (c *counters) add(r Reason) {
	// Goroutines have stacks of their own, of 2 KiB or a greater power of two, and so
	// the address of what is on them tells goroutines apart well enough. Nothing is
	// ever found by it. A random number would do for many processors, but not for two:
	// every other count would be in the other one's cache.
	var here byte
	at := uintptr(unsafe.Pointer(&here))
	c[(at>>11^at>>16)%shards].byReason[r].Add(1)
}

func (c *counters) sum(r Reason) (n uint64) {
	for i := range c {
		n += c[i].byReason[r].Load()
	}
	return n
}
