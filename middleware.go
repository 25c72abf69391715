package ampcors

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// Middleware answers CORS for the publishers of its [Config], and denies what the
// configuration does not allow. It is safe for concurrent use by multiple goroutines. [New]
// makes one; the zero value has no publishers and denies every origin.
type Middleware struct {
	policy   atomic.Pointer[policy]
	changing sync.Mutex // guards closed, and changes of policy
	closed   bool
	counts   counters
}

// ErrClosed is returned by [Middleware.Reconfigure] after [Middleware.Close].
var ErrClosed = errors.New("ampcors: the Middleware is closed")

// New returns a Middleware for cfg. If cfg has problems, it returns all of them joined, each
// a *[ValueError]: see [ValueErrors].
//
// The Middleware keeps a copy of cfg: to change the lists later, call
// [Middleware.Reconfigure].
func New(cfg Config) (*Middleware, error) {
	m := new(Middleware)
	if err := m.Reconfigure(cfg); err != nil {
		return nil, err
	}
	return m, nil
}

// Reconfigure replaces the configuration while requests are served. Each request is decided
// by one configuration, whole. If cfg has a problem, nothing changes, and the error is that
// of [New]. The counts of [Middleware.Stats] go on. What a Source answered stays remembered
// if Source, Lookup and Caches are the same, and the Source's type can be compared, as a
// pointer can.
func (m *Middleware) Reconfigure(cfg Config) error {
	p, err := compile(cfg)
	if err != nil {
		return err
	}
	return m.replace(p)
}

// Close ends the subscription to a [Notifier] and lookups in the background. From then on
// the Middleware denies every origin, as the zero Middleware does, and cannot be
// reconfigured. It returns nil, and can be called again.
func (m *Middleware) Close() error {
	m.changing.Lock()
	m.closed = true
	old := m.current().source
	m.policy.Store(denyAll)
	m.changing.Unlock()
	old.close()
	return nil
}

// replace puts p in force.
func (m *Middleware) replace(p *policy) error {
	old, err := m.swap(p)
	if err == nil && old != p.source {
		old.close() // not under the lock: it may wait for a goroutine that calls Reconfigure
	}
	return err
}

// swap puts p in force, and returns what the policy before asked.
func (m *Middleware) swap(p *policy) (old *sourceCache, err error) {
	m.changing.Lock()
	defer m.changing.Unlock() // also if Notify panics
	if m.closed {
		return nil, ErrClosed
	}
	old = m.current().source
	switch {
	case p.source == nil:
	case old.sameAs(p.source):
		p.source = old
	default:
		p.source.subscribe()
	}
	m.policy.Store(p)
	return old, nil
}

// denyAll is the policy of the zero Middleware.
var denyAll = &policy{list: new(allowlist), vary: "Origin"}

func (m *Middleware) current() *policy {
	if p := m.policy.Load(); p != nil {
		return p
	}
	return denyAll
}

// Config returns a copy of the configuration in force, its lists included.
func (m *Middleware) Config() Config { return m.current().cfg.clone() }

// Forget drops what is remembered about these publishers of the Source: the next request asks
// the Source, and no stale answer is served. It is for publishers that are revoked or added and
// must not wait for [Lookup].TTL. Call it after the Source has changed. It affects this
// Middleware alone, and no publisher that Config.Publishers covers. Values that are not domains
// are returned as joined *[ValueError]s; the others are forgotten.
func (m *Middleware) Forget(publishers ...string) error {
	var problems []*ValueError
	source := m.current().source
	for i, publisher := range publishers {
		domain, err := parseDomain(publisher)
		if err != nil {
			problems = append(problems, err.at(fmt.Sprintf("publishers[%d]", i), publisher, ""))
		} else if source != nil {
			source.Forget(domain)
		}
	}
	return joinValueErrors(problems)
}

// Stats returns how many requests Handle, Wrap and their kin have decided, by reason.
func (m *Middleware) Stats() Stats { return m.counts.stats() }

// SourceStats returns how Config.Source has been used, by Check and CheckOrigin too. All is
// zero without a Source. If Reconfigure does not keep what the Source answered, the counts
// begin again.
func (m *Middleware) SourceStats() SourceStats { return m.current().source.stats() }

// Wrap returns a handler that calls next for allowed requests, with CORS headers set where
// they apply, and answers preflights and denied requests itself. The ResponseWriter that next
// gets is the server's own, so that streaming and hijacking work.
// Wrap does nothing but make a closure; calling it for every request is fine. next must not
// be nil.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.Handle(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// WrapDecision is like Wrap, and puts the enforced decision into the request's context, where
// [DecisionFromContext] finds it. That costs some allocations for each request.
func (m *Middleware) WrapDecision(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d, proceed := m.HandleDecision(w, r); proceed {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), decisionKey{}, d)))
		}
	})
}

type decisionKey struct{}

// DecisionFromContext returns the decision on the request whose context this is. It is false
// unless the request came through [Middleware.WrapDecision].
func DecisionFromContext(ctx context.Context) (Decision, bool) {
	d, ok := ctx.Value(decisionKey{}).(Decision)
	return d, ok
}

// Handle does what Wrap does, for frameworks with handlers of their own. If it returns true,
// the caller must go on to the request's handler; if false, the response is complete, and
// the caller must stop, in gin for example with Abort.
//
// It must see every request, OPTIONS included. A router that answers 404 or 405 to OPTIONS
// before it calls Handle breaks preflights.
func (m *Middleware) Handle(w http.ResponseWriter, r *http.Request) (proceed bool) {
	var v verdict
	return m.handle(&v, w, r)
}

// HandleDecision is like Handle, and also returns the enforced decision, for the handler.
func (m *Middleware) HandleDecision(w http.ResponseWriter, r *http.Request) (d Decision, proceed bool) {
	var v verdict
	proceed = m.handle(&v, w, r)
	return v.decision(), proceed
}

func (m *Middleware) handle(v *verdict, w http.ResponseWriter, r *http.Request) (proceed bool) {
	p := m.current()
	p.judge(v, r)
	m.counts.add(v.reason)
	if p.cfg.Observe != nil {
		p.cfg.Observe(r, v.decision())
	}
	return p.respond(v, w, r)
}

// Check returns the decision that Handle would make on r. It writes and counts nothing, and
// does not call Config.Observe. It decides again: a handler behind Handle or Wrap gets the
// decision that was enforced from [Middleware.HandleDecision] or [DecisionFromContext].
func (m *Middleware) Check(r *http.Request) Decision {
	var v verdict
	m.current().judge(&v, r)
	return v.decision()
}

// CheckOrigin returns the decision on an Origin value by itself, as it is on a GET request
// without Sec-Fetch-Site that is not an AMP for Email request. It does not allocate for a
// publisher that is listed exactly, be it its own origin or a cache's with the prefix that
// DomainPrefix or, while it is remembered, FallbackPrefix returns; nor for an origin that
// names no publisher, unless punycode is decoded to find that out. With Config.Source it may
// have to wait for that, for at most twice Lookup.Timeout.
func (m *Middleware) CheckOrigin(origin string) Decision {
	v := verdict{caller: caller{origin: origin, origins: 1}}
	m.current().judge(&v, nil)
	return v.decision()
}

// A verdict records what each stage made of one request. It is on the stack, and must not be
// copied: parts of a claim point into it.
type verdict struct {
	caller   caller
	claim    claim
	identity identity
	reason   Reason
	headers  string // that an allowed preflight asked for, as it listed them
}

// judge takes a request through the stages, each in a file of its own:
//
//	caller    caller.go      what the request says
//	claim     claim.go       whose page its Origin names
//	identity  publishers.go  whether we know that publisher: the one question
//	reason    decision.go    what follows
//
// respond, in response.go, then writes the headers. Each stage reads what those before it made,
// and makes one value, which it writes in its place: to copy what was just written would cost
// more than a lookup. If r is nil, the caller has been made already.
func (p *policy) judge(v *verdict, r *http.Request) {
	if r != nil {
		v.caller.read(r)
	}
	if v.caller.origins == 1 {
		v.claim.read(v.caller.origin, &p.hosts)
	}
	if v.caller.origins == 1 || p.email != nil { // or there is nobody to find
		v.identity.find(p, &v.caller, &v.claim)
	}
	v.reason = p.decide(&v.caller, &v.claim, &v.identity)
	if v.isGrantedPreflight() {
		// Kept, so that Config.Observe cannot change what was checked.
		v.headers = strings.Join(v.caller.requestHeaders(), ",")
	}
}

// isGrantedPreflight reports whether the answer is that to an allowed preflight. Mail clients
// that name a sender by AMP-Email-Sender send none, so an OPTIONS from them is a request like
// any other.
func (v *verdict) isGrantedPreflight() bool {
	return v.caller.isPreflight && v.reason.Allowed() && v.reason != ReasonEmail
}
