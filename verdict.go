package ampcors

import (
	"net/http"
	"strings"
)

// A verdict holds the result of each stage for one request. It is on the stack, and must not be copied while a
// result of claim.domain or claim.key is in use: such a string points into it.
type verdict struct {
	caller   caller
	sender   sender
	claim    claim
	identity identity
	asked    asked
	reason   Reason
}

// judge takes a request through the stages:
//
//	caller    caller.go      what the request says
//	sender    email.go       which email it comes from, if any
//	claim     reverse.go     whose page its Origin names
//	identity  identity.go    whether that publisher is allowed, after the claim is checked if that is necessary
//	asked     decide.go      whether an allowed caller's preflight asks for what it may
//	reason    decide.go      whether the request is allowed, and why
//
// respond, in response.go, then writes the headers. Each stage fills its field of v, and may finish the claim:
// identity and decide check it only when they need it. To copy these values would cost more than a lookup. If r
// is nil, the caller is already set.
func (p *policy) judge(v *verdict, r *http.Request) {
	if r != nil {
		v.caller.read(r)
	}
	if p.email != nil {
		v.sender = p.email.identify(&v.caller)
	}
	if v.sender.reason == 0 && v.caller.origins == 1 {
		v.claim.read(v.caller.origin, &p.hosts)
		v.identity.find(p, &v.caller, &v.claim)
	}
	if v.caller.isPreflight && (v.identity.match.isAllowed() || v.sender.reason == ReasonEmailV1) {
		v.asked.check(p, &v.caller, isOwn(&v.claim, &v.identity))
	}
	v.reason = p.decide(&v.caller, &v.sender, &v.claim, &v.identity, &v.asked)
}

// isGrantedPreflight reports whether the request is an allowed preflight. Mail clients that send
// AMP-Email-Sender send no preflights, so an OPTIONS request from them is like any other request.
func (v *verdict) isGrantedPreflight() bool {
	return v.caller.isPreflight && v.reason.Allowed() && v.reason != ReasonEmail
}

// decision returns the verdict as a Decision. It copies a domain that it takes from the claim.
func (v *verdict) decision() Decision {
	d := Decision{Allowed: v.reason.Allowed(), Reason: v.reason, Origin: v.caller.origin}
	switch {
	case v.sender.reason != 0:
		d.EmailSender = v.sender.address
		return d
	case v.reason == ReasonSameOrigin, v.identity.match == extraOrigin:
		return d // nothing that was read from the Origin is verified
	case v.claim.cache != nil:
		d.CacheID = v.claim.cache.id
	}
	d.isSameOrigin = v.reason == ReasonOwnOrigin && v.caller.isSameOrigin()
	d.Stale, d.SourceErr = v.identity.match == stale, v.identity.err
	switch {
	case v.identity.match.isPublisher() && v.identity.name == "":
		d.Publisher = strings.Clone(v.claim.domain())
	case v.identity.match.isPublisher():
		d.Publisher = v.identity.name
	case v.claim.cache != nil && v.claim.namesDomain():
		d.ClaimedPublisher = strings.Clone(v.claim.domain())
	}
	return d
}
