package ampcors

import (
	"context"
	"net/http"
	"sync/atomic"
)

// Middleware answers CORS for the publishers of its [Config], and denies what the configuration does not allow. It is
// safe for concurrent use by multiple goroutines. [New] makes one; the zero value has no publishers and denies every
// origin but the API host's own.
type Middleware struct {
	policy atomic.Pointer[policy]
	tally  tally
}

// New returns a Middleware for cfg. If cfg has problems, it returns all of them joined, each a
// *[badvalue.Error]: see [badvalue.All].
//
// The Middleware keeps a copy of cfg: to change the lists later, call [Middleware.Reconfigure].
func New(cfg Config) (*Middleware, error) {
	m := new(Middleware)
	if err := m.Reconfigure(cfg); err != nil {
		return nil, err
	}
	return m, nil
}

// Reconfigure replaces the configuration while requests are served. Each request is decided by exactly
// one configuration. If cfg has a problem, nothing changes, and the error is as for [New]. The counts
// of [Middleware.Stats] are kept.
func (m *Middleware) Reconfigure(cfg Config) error {
	p, err := compile(cfg)
	if err != nil {
		return err
	}
	for i := range p.hosts.caches {
		c := &p.hosts.caches[i]
		c.counts = m.tally.ofCache(c.id)
	}
	m.policy.Store(p)
	return nil
}

// Config returns the configuration in force. Its Publishers are in the form in which they are compared, in
// lower case and with A-labels, each once, and the patterns are last. It is a copy: to change what is in force,
// call [Middleware.Reconfigure]. The zero Middleware has the zero Config.
func (m *Middleware) Config() Config {
	p := m.current()
	cfg := p.cfg.clone()
	cfg.Publishers = p.list.publishers()
	return cfg
}

// denyAll is the policy of the zero Middleware.
var denyAll = &policy{list: newAllowlist(newNameTable(0), nil, 1), vary: "Origin", varyOptions: varyOptions}

func (m *Middleware) current() *policy {
	if p := m.policy.Load(); p != nil {
		return p
	}
	return denyAll
}

// Wrap returns a handler that calls next for allowed requests, with CORS headers set where they apply, and
// answers preflights and denied requests itself. The ResponseWriter that next gets is the server's own, so that
// streaming and hijacking work. Wrap only makes a closure, so it can be called for every request. next must not
// be nil.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var v verdict
		if m.handle(&v, w, r) { // Handle would copy the names of the decision
			next.ServeHTTP(w, r)
		}
	})
}

// WrapDecision is like Wrap, and puts the enforced decision into the request's context, where [DecisionFromContext]
// finds it. That costs some allocations for each request. A cache between the Middleware and a handler that
// compares the publisher must have the publisher in its key.
func (m *Middleware) WrapDecision(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d, proceed := m.Handle(w, r); proceed {
			next.ServeHTTP(w, r.WithContext(ContextWithDecision(r.Context(), d)))
		}
	})
}

type decisionKey struct{}

// ContextWithDecision returns a context in which [DecisionFromContext] finds d. It is for frameworks with
// handlers of their own, which call [Middleware.Handle]: see the folder examples.
func ContextWithDecision(ctx context.Context, d Decision) context.Context {
	return context.WithValue(ctx, decisionKey{}, d)
}

// DecisionFromContext returns the decision on the request that ctx belongs to. It returns false if ctx was made
// neither by [Middleware.WrapDecision] nor by [ContextWithDecision].
func DecisionFromContext(ctx context.Context) (Decision, bool) {
	d, ok := ctx.Value(decisionKey{}).(Decision)
	return d, ok
}

// Handle does what Wrap does, for frameworks with handlers of their own, and returns the decision that it enforced.
// If proceed is true, the caller must go on to the request's handler; if false, the response is complete, and the
// caller must stop, in gin for example with Abort. An allowed preflight of a page does not proceed.
//
// It must see every request, OPTIONS included. A router that answers 404 or 405 to OPTIONS before it calls
// Handle breaks preflights.
//
// It removes the Expect header before the handler runs, except over HTTP/3. net/http sends 100 Continue by
// itself when the handler reads the body.
func (m *Middleware) Handle(w http.ResponseWriter, r *http.Request) (d Decision, proceed bool) {
	var v verdict
	proceed = m.handle(&v, w, r)
	return v.decision(), proceed
}

func (m *Middleware) handle(v *verdict, w http.ResponseWriter, r *http.Request) (proceed bool) {
	p := m.current()
	p.judge(v, r)
	switch v.reason {
	case ReasonCacheOrigin, ReasonCacheOriginHash:
		v.claim.cache.counts.counters[v.reason].Add(1)
	default:
		m.tally.others[v.reason].Add(1)
	}
	if p.cfg.Observe != nil {
		p.cfg.Observe(r, v.decision())
	}
	if !p.respond(v, w, r) {
		return false
	}
	// The server sends 100 Continue by itself when the body is read. If a httputil.ReverseProxy passed Expect on,
	// the backend would send it too, and ReverseProxy clears all headers after it: Vary and the CORS headers.
	// net/http's HTTP/2 server also removes Expect. Servers of HTTP/3 leave the answer to the handler.
	if r.Header["Expect"] != nil && r.ProtoMajor < 3 { // faster than to delete what is not there
		delete(r.Header, "Expect")
	}
	return true
}

// Stats returns what Handle, Wrap and WrapDecision have decided so far.
func (m *Middleware) Stats() Stats {
	s := m.tally.stats()
	s.Publishers, s.Fingerprint = m.current().numPublishers, m.current().list.fingerprint
	return s
}

// Check returns the decision that Handle would make on r. It writes nothing, does not count in Stats, and does
// not call Config.Observe. It decides again, so it may ask the Source, and [source.Source.Stats] counts that. A
// handler gets the decision that was enforced from [Middleware.Handle] or, behind [Middleware.WrapDecision], from
// [DecisionFromContext].
func (m *Middleware) Check(r *http.Request) Decision {
	var v verdict
	m.current().judge(&v, r)
	return v.decision()
}

// CheckOrigin returns the decision on an Origin value, as for a GET request without Sec-Fetch-Site that is not an AMP
// for Email request. For a publisher that is listed exactly, it does not allocate: neither for its own origin nor for
// its cache origins with the usual prefix or with a hash prefix that was seen lately. For any other origin it may
// allocate. With Config.Source, and a Database that obeys its context, it waits for at most 2 ×
// source.Config.Timeout; with shards 4 ×, with source.Config.Patterns 10 ×.
func (m *Middleware) CheckOrigin(origin string) Decision {
	v := verdict{caller: caller{origin: origin, origins: 1}}
	m.current().judge(&v, nil)
	return v.decision()
}
