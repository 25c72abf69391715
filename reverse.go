package ampcors

import (
	"crypto/sha256"
	"strings"
	"unsafe"

	"github.com/ampcors/ampcors/internal/domains"
	"github.com/ampcors/ampcors/internal/prefixes"
)

// A claim is the publisher whose page an Origin value names, if any. It is read from the value alone.
type claim struct {
	kind    kind
	problem *domains.Problem // why the host or the prefix names no publisher
	checked bool             // check has set problem, and what buf or long holds
	aLabel  bool             // of a host: a label is marked as an A-label, and has not been decoded
	length  uint8            // of the domain in buf
	cache   *cacheHost       // nil unless the host is below the domain of a trusted AMP Cache
	name    string           // the domain prefix below a cache, otherwise the host
	long    string           // a domain that is too long for buf

	// What a prefix spells: a domain, or the SHA-256 of one. It is stored here and not in a string, so that
	// nothing is allocated.
	buf [domains.MaxLabel]byte
}

// domain returns the publisher domain that the claim names, if it has been checked and has no problem. It
// returns "" for a hash prefix. The string is valid only as long as the claim and the Origin's memory, which
// fasthttp adaptors reuse after the request. Clone it to keep it.
func (cl *claim) domain() string {
	switch {
	case cl.cache == nil:
		return cl.name
	case cl.long != "":
		return cl.long
	}
	return unsafe.String(&cl.buf[0], cl.length)
}

// key returns the string by which the publisher is looked up: see kind. Like the result of domain, it must not
// be kept.
func (cl *claim) key() string {
	if cl.kind == kindPlain {
		return unsafe.String(&cl.buf[0], cl.length)
	}
	return cl.name
}

// sum returns the SHA-256 that a checked hash prefix spells.
func (cl *claim) sum() *[sha256.Size]byte { return (*[sha256.Size]byte)(cl.buf[:]) }

// A kind classifies the Origin value that a claim is read from.
type kind uint8

const (
	// Kinds that name no publisher.
	kindNone      kind = iota // no Origin, or several
	kindMalformed             // not a scheme, "://" and a host
	kindNull
	kindOtherScheme
	kindBareCache // a cache's domain, without a prefix

	// Kinds that may name a publisher.
	kindHTTPHost // http; the key is the host
	kindHost     // https, and not below a trusted cache's domain; the key is the host
	kindPlain    // a prefix that only has to be unfolded; the key is the domain
	kindEncoded  // any other prefix with a dash; the key is the prefix
	kindHash     // a hash prefix: no dash; the key is the prefix
)

// read reads an Origin value as far as a lookup needs it. check and checkAll do the more expensive work. A
// listed name does not need them: it passed all checks before it was listed.
func (cl *claim) read(origin string, h *hosts) {
	if len(origin) > domains.MaxOrigin {
		cl.kind, cl.problem = kindMalformed, domains.ProblemTooLong
		return
	}
	host, isHTTPS := strings.CutPrefix(origin, "https://")
	if !isHTTPS {
		cl.readWithoutHTTPS(origin)
		return
	}
	cl.name, cl.cache = h.split(host)
	switch {
	case cl.cache == nil:
		cl.kind = kindHost
	case cl.name == "":
		cl.kind, cl.problem = kindBareCache, prefixes.ProblemNoPrefix
	case strings.HasPrefix(cl.name, domains.ACEPrefix):
		cl.kind = kindEncoded
	case len(cl.name) == len(prefixes.HashPrefix{}) && prefixes.IsHash(cl.name):
		cl.kind = kindHash
	default:
		cl.readPrefix()
	}
}

func (cl *claim) readPrefix() {
	length, hasDash, plain := prefixes.UnfoldPlain(&cl.buf, cl.name)
	switch {
	case plain && hasDash:
		cl.kind, cl.length = kindPlain, uint8(length)
	case prefixes.IsHash(cl.name):
		cl.kind = kindHash // but not 52 characters long: check rejects it
	default:
		cl.kind = kindEncoded
	}
}

func (cl *claim) readWithoutHTTPS(origin string) {
	host, isHTTP := strings.CutPrefix(origin, "http://")
	switch {
	case origin == "null":
		cl.kind = kindNull
	case isHTTP:
		cl.kind, cl.name = kindHTTPHost, host
	case hasScheme(origin):
		cl.kind = kindOtherScheme
	default:
		cl.kind = kindMalformed
	}
}

// hasScheme reports whether a text begins as an origin does, with a scheme in lower case (RFC 6454 section 4, RFC
// 3986 section 3.1).
func hasScheme(text string) bool {
	scheme, _, found := strings.Cut(text, "://")
	return found && scheme != "" && strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz0123456789+-.") == ""
}

// check reads what a claim names, and finds nearly every problem.
func (cl *claim) check() {
	if cl.checked {
		return
	}
	cl.checked = true
	switch cl.kind {
	case kindHTTPHost, kindHost, kindPlain:
		cl.aLabel, cl.problem = domains.Check(cl.domain())
	case kindEncoded:
		domain, _, problem := prefixes.Reverse(cl.buf[:0], cl.name)
		if cl.problem, cl.length = problem, uint8(len(domain)); len(domain) > len(cl.buf) {
			cl.long = string(domain)
		}
	case kindHash:
		*cl.sum(), cl.problem = prefixes.DecodeHash(cl.name)
	}
}

// checkAll also finds the problems that check does not look for: whether the domain is reserved, and whether a
// host's A-labels are punycode. If an origin is denied in any case, they do not change the decision, and to
// check punycode takes long.
func (cl *claim) checkAll(h *hosts) {
	cl.check()
	if cl.problem == nil && h.reservedFor(cl.domain()) != nil {
		cl.problem = problemReserved
	}
	if cl.aLabel && cl.problem == nil {
		_, cl.problem = domains.Decode(cl.name)
	}
}

// namesDomain reports whether a checked claim names a domain, even if it is reserved.
func (cl *claim) namesDomain() bool {
	return cl.problem == nil || cl.problem == problemReserved
}

// mayNamePublisher reports whether the claim may name a publisher.
func (cl *claim) mayNamePublisher() bool { return cl.kind >= kindHTTPHost }
