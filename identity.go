package ampcors

import (
	"strings"

	"github.com/ampcors/ampcors/source"
)

// An identity says which caller a request comes from, and where Config allows it.
type identity struct {
	standing standing
	name     string // of the publisher, or the sender's address; "" if a pattern matches, as the claim has the name
	err      error  // why the Source could not answer
}

// A standing says where in the Config the caller was found, if anywhere. The order matters:
// isPublisher, isAllowed and isSender are ranges.
type standing uint8

const (
	unknown       standing = iota
	undecided              // not known now: the Source failed
	listed                 // in Config.Publishers
	matched                // by a pattern in Config.Publishers
	confirmed              // by the Source
	stale                  // by the Source within Options.MaxStale; now it fails
	extraOrigin            // in Config.Origins
	emailSender            // in Config.Email, version 2
	emailSenderV1          // in Config.Email, version 1
	otherSender            // an AMP for Email request with a sender that is not allowed
	noSender               // an AMP for Email request without exactly one address as its sender
	mailClient             // none of these, but the origin of a mail client
)

// isPublisher reports whether the caller is a known publisher.
func (s standing) isPublisher() bool { return listed <= s && s <= stale }

// isAllowed reports whether Config allows the caller by its Origin.
func (s standing) isAllowed() bool { return listed <= s && s <= extraOrigin }

// isSender reports whether this is an AMP for Email request, with an allowed sender or not.
func (s standing) isSender() bool { return emailSender <= s && s <= noSender }

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
	if id.standing.isSender() {
		return
	}
	if cl.mayNamePublisher() && (cl.form != formHTTPHost || p.cfg.DangerouslyAllowHTTPOwnOrigins) {
		var ok bool
		if id.name, ok = p.list.find(cl); ok {
			id.standing = listed
			return
		}
		if id.findUnlisted(p, c, cl); id.standing.isPublisher() {
			return
		}
	}
	// Last, because a publisher's own origin may also be listed in Origins.
	if _, ok := p.origins[c.origin]; ok {
		id.standing = extraOrigin
	}
}

func (id *identity) findUnlisted(p *policy, c *caller, cl *claim) {
	customers := p.cfg.Source
	if customers != nil && cl.cache == nil && c.isSameOrigin() {
		customers = nil // the API host's own page gets through in any case
	}
	if customers != nil && id.findRemembered(p, customers, cl) {
		return
	}

	cl.check()
	isAmbiguous := cl.problem == problemAmbiguous
	if isAmbiguous && p.cfg.DangerouslyAllowAmbiguousPrefixes {
		cl.problem = nil
	}
	if cl.problem != nil {
		return
	}
	if cl.form == formEncoded || cl.form == formHash {
		var ok bool
		if id.name, ok = p.list.find(cl); ok {
			id.standing = listed
			return
		}
	}
	domain := cl.domain()
	isMatched := p.list.matches(domain)
	if isMatched || customers != nil {
		cl.checkAll(&p.hosts)
	}
	switch {
	case cl.problem != nil:
	case isMatched:
		id.standing = matched
	case customers == nil:
	case cl.form == formHash:
		id.set(customers.FindByHash(c.context(), cl.name))
		if p.hosts.isReserved(id.name) {
			*id, cl.problem = identity{}, problemReserved
		}
	default:
		id.set(customers.Find(c.context(), domain))
		if cl.form == formEncoded && id.name != "" && !isAmbiguous { // it would still get in after Reconfigure turns the switch off
			p.decoded.Add(strings.Clone(cl.name), id.name)
		}
	}
}

// findRemembered finds a publisher that the Source confirmed before. The claim is not checked
// yet: a name that is remembered passed all checks when it was asked for. But it may have been
// asked for by a Middleware that trusts other caches.
func (id *identity) findRemembered(p *policy, customers *source.Cache, cl *claim) bool {
	var name string
	var ok bool
	switch cl.form {
	case formHash:
		name, ok = customers.RememberedByHash(cl.name)
	case formEncoded:
		if name, ok = p.decoded.Peek(cl.name); ok {
			name, ok = customers.Remembered(name)
		}
	default:
		name, ok = customers.Remembered(cl.key())
	}
	if !ok || p.hosts.isReserved(name) {
		return false
	}
	id.standing, id.name = confirmed, name
	return true
}

// set records the Source's answer.
func (id *identity) set(answer source.Answer) {
	id.name, id.err = answer.Publisher, answer.Err
	switch {
	case answer.Stale:
		id.standing = stale
	case answer.Err != nil:
		id.standing = undecided
	case answer.Publisher != "":
		id.standing = confirmed
	}
}
