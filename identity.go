package ampcors

import (
	"strings"

	"github.com/ampcors/ampcors/internal/prefixes"
	"github.com/ampcors/ampcors/source"
)

// An identity is what is known of the caller: a publisher, another origin that Config allows, or neither.
type identity struct {
	match match
	name  string // of the publisher; "" if a pattern matches, because the claim holds the name

	pattern string // of the Source, if one matches
	err     error  // why the Source could not answer
}

// A match is the rule that the caller matched. The order matters: isPublisher and isAllowed are ranges.
type match uint8

const (
	noMatch     match = iota
	unanswered        // it cannot be said now: the Source failed
	listed            // in Config.Publishers
	matched           // by a pattern in Config.Publishers
	confirmed         // by the Source
	stale             // by the Source within MaxStale; now it fails
	extraOrigin       // in Config.Origins
)

// isPublisher reports whether the caller is an allowed publisher.
func (m match) isPublisher() bool { return listed <= m && m <= stale }

// isAllowed reports whether Config allows the caller by its Origin.
func (m match) isAllowed() bool { return listed <= m }

// find finds the identity of the caller. It is called once for each request with an Origin.
func (id *identity) find(p *policy, c *caller, cl *claim) {
	if cl.mayNamePublisher() && (cl.kind != kindHTTPHost || p.cfg.DangerouslyAllowHTTPOwnOrigins) {
		if id.findPublisher(p, c, cl); id.match.isPublisher() {
			return
		}
	}
	// Last, because a publisher's own origin may also be listed in Origins.
	if _, ok := p.origins[c.origin]; ok {
		id.match = extraOrigin
	}
}

// findPublisher finds the claim's publisher. The order is for speed: nearly all requests are from publishers
// that step 1 or 2 finds. These need no check of the claim, because a name that is listed or remembered passed
// all checks before. Only a checked claim may match a pattern, or reach the Source.
func (id *identity) findPublisher(p *policy, c *caller, cl *claim) {
	var ok bool

	// 1. Listed, by the claim's key.
	if id.name, ok = p.list.findByKey(cl); ok {
		id.match = listed
		return
	}

	// 2. Remembered. The API host's own page gets through in any case, and needs no Source.
	publishers := p.cfg.Source
	if publishers != nil && cl.cache == nil && c.isSameOrigin() {
		publishers = nil
	}
	if publishers != nil && id.findRemembered(p, publishers, cl) {
		return
	}

	// 3. Check what the claim names.
	cl.check()
	if cl.problem == prefixes.ProblemAmbiguous && p.cfg.DangerouslyAllowAmbiguousPrefixes {
		cl.problem = nil
	}
	if cl.problem != nil {
		return
	}

	// 4. Listed, by what the check decoded.
	if id.name, ok = p.list.findDecoded(cl); ok {
		id.match = listed
		return
	}

	// 5. Matched by a pattern, or confirmed by the Source, unless the host is reserved.
	isMatched := p.list.matches(cl.domain())
	if isMatched || publishers != nil {
		cl.checkAll(&p.hosts)
	}
	switch {
	case cl.problem != nil:
	case isMatched:
		id.match = matched
	case publishers != nil:
		id.ask(p, publishers, c, cl)
	}
}

// findRemembered finds a publisher that the Source confirmed before. The claim is not checked yet: a name that
// is remembered passed all checks when it was asked for.
func (id *identity) findRemembered(p *policy, publishers *source.Source, cl *claim) bool {
	var name string
	var ok bool
	switch cl.kind {
	case kindHash:
		name, ok = publishers.RememberedByHash(cl.name)
	case kindEncoded:
		if name, ok = p.decoded.Peek(cl.name); ok {
			name, ok = publishers.Remembered(name)
		}
	default:
		name, ok = publishers.Remembered(cl.key())
	}
	if !ok || p.hosts.reservedFor(name) != nil { // as in set, which would copy a whole answer
		return false
	}
	id.match, id.name = confirmed, name
	return true
}

// ask asks the Source about a checked claim.
func (id *identity) ask(p *policy, publishers *source.Source, c *caller, cl *claim) {
	if cl.kind == kindHash {
		id.set(p, publishers.FindByHash(c.context(), cl.name))
		return
	}
	if pattern, ok := publishers.RememberedPattern(cl.domain()); ok {
		id.match, id.pattern = confirmed, pattern
		return
	}
	id.set(p, publishers.Find(c.context(), cl.domain()))
	if cl.kind == kindEncoded && id.name != "" {
		p.decoded.Add(strings.Clone(cl.name), id.name)
	}
}

// set records the Source's answer, unless it names a reserved host. The Source may have that from a Middleware
// that trusts other AMP Caches, or from a hash prefix.
func (id *identity) set(p *policy, answer source.Answer) {
	if p.hosts.reservedFor(answer.Publisher) != nil {
		return
	}
	id.name, id.pattern, id.err = answer.Publisher, answer.Pattern, answer.Err
	if id.pattern != "" {
		id.name = ""
	}
	switch {
	case answer.Stale:
		id.match = stale
	case answer.Err != nil:
		id.match = unanswered
	case answer.Publisher != "":
		id.match = confirmed
	}
}
