package ampcors

import (
	"strings"

	"github.com/ampcors/ampcors/internal/mapping"
	"github.com/ampcors/ampcors/source"
)

// An identity says which caller a request comes from, and where Config allows it.
type identity struct {
	found finding
	name  string // of the publisher, or the sender's address; "" if a pattern matches, as the claim has the name
	err   error  // why the Source could not answer
}

// A finding says where the caller was found, if anywhere. The order matters:
// isPublisher, isAllowed and isSender are ranges.
type finding uint8

const (
	unknown       finding = iota
	unanswered            // not known now: the Source failed
	listed                // in Config.Publishers
	matched               // by a pattern in Config.Publishers
	confirmed             // by the Source
	stale                 // by the Source within Options.MaxStale; now it fails
	extraOrigin           // in Config.Origins
	emailSender           // in Config.Email, version 2
	emailSenderV1         // in Config.Email, version 1
	otherSender           // an AMP for Email request with a sender that is not allowed
	noSender              // an AMP for Email request without exactly one address as its sender
	mailClient            // none of these, but the origin of a mail client
)

// isPublisher reports whether the caller is a known publisher.
func (f finding) isPublisher() bool { return listed <= f && f <= stale }

// isAllowed reports whether Config allows the caller by its Origin.
func (f finding) isAllowed() bool { return listed <= f && f <= extraOrigin }

// isSender reports whether this is an AMP for Email request, with an allowed sender or not.
func (f finding) isSender() bool { return emailSender <= f && f <= noSender }

// find finds the identity of the caller. It is called once for each request.
//
// The order is for speed. Nearly all requests are from listed publishers, so the claim's
// key is looked up before the claim is checked: a name that is listed or remembered passed
// all checks before. If the key is not found, the claim is checked. Only then may a pattern
// match, or the Source be asked.
func (id *identity) find(p *policy, c *caller, cl *claim) {
	if p.email != nil {
		p.email.identify(id, c)
	}
	if id.found.isSender() {
		return
	}
	if cl.mayNamePublisher() && (cl.form != formHTTPHost || p.cfg.DangerouslyAllowHTTPOwnOrigins) {
		var ok bool
		if id.name, ok = p.list.find(cl); ok {
			id.found = listed
			return
		}
		if id.findUnlisted(p, c, cl); id.found.isPublisher() {
			return
		}
	}
	// Last, because a publisher's own origin may also be listed in Origins.
	if _, ok := p.origins[c.origin]; ok {
		id.found = extraOrigin
	}
}

func (id *identity) findUnlisted(p *policy, c *caller, cl *claim) {
	publishers := p.cfg.Source
	if publishers != nil && cl.cache == nil && c.isSameOrigin() {
		publishers = nil // the API host's own page gets through in any case
	}
	if publishers != nil && id.findRemembered(p, publishers, cl) {
		return
	}

	cl.check()
	if cl.problem == mapping.ProblemAmbiguous && p.cfg.DangerouslyAllowAmbiguousPrefixes {
		cl.problem = nil
	}
	if cl.problem != nil {
		return
	}
	if cl.form == formEncoded || cl.form == formHash {
		var ok bool
		if id.name, ok = p.list.find(cl); ok {
			id.found = listed
			return
		}
	}
	domain := cl.domain()
	isMatched := p.list.matches(domain)
	if isMatched || publishers != nil {
		cl.checkAll(&p.hosts)
	}
	switch {
	case cl.problem != nil:
	case isMatched:
		id.found = matched
	case publishers == nil:
	case cl.form == formHash:
		id.set(p, publishers.FindByHash(c.context(), cl.name))
	default:
		id.set(p, publishers.Find(c.context(), domain))
		if cl.form == formEncoded && id.name != "" {
			p.decoded.Add(strings.Clone(cl.name), id.name)
		}
	}
}

// findRemembered finds a publisher that the Source confirmed before. The claim is not checked
// yet: a name that is remembered passed all checks when it was asked for.
func (id *identity) findRemembered(p *policy, publishers *source.Cache, cl *claim) bool {
	var name string
	var ok bool
	switch cl.form {
	case formHash:
		name, ok = publishers.RememberedByHash(cl.name)
	case formEncoded:
		if name, ok = p.decoded.Peek(cl.name); ok {
			name, ok = publishers.Remembered(name)
		}
	default:
		name, ok = publishers.Remembered(cl.key())
	}
	if ok {
		id.set(p, source.Answer{Publisher: name})
	}
	return id.found == confirmed
}

// set records the Source's answer, unless it names a reserved host. The Cache may have that from a
// Middleware that trusts other AMP Caches, or from a hash prefix.
func (id *identity) set(p *policy, answer source.Answer) {
	if p.hosts.isReserved(answer.Publisher) {
		return
	}
	id.name, id.err = answer.Publisher, answer.Err
	switch {
	case answer.Stale:
		id.found = stale
	case answer.Err != nil:
		id.found = unanswered
	case answer.Publisher != "":
		id.found = confirmed
	}
}
