package ampcors

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Middleware answers CORS for the publishers of its [Config], and refuses what the
// configuration does not allow. It is safe for use by many goroutines. [New] makes
// one; the zero value has no publishers and refuses every origin.
type Middleware struct {
	policy   atomic.Pointer[policy]
	changing sync.Mutex // held by Reconfigure
	counts   counters
}

// A policy is a compiled Config. Nothing in it changes but what is remembered of the
// Source and in the allowlist's LRU, so that a request that holds one is decided by it
// alone.
type policy struct {
	cfg                    Config
	allowlist              *allowlist
	resolver               *resolver     // nil without a Source
	caches                 []cacheSuffix // trusted
	foreign                []string      // domains whose hosts are never a publisher's own
	origins                map[string]struct{}
	mailbox                *mailbox            // nil if emails are not allowed
	methods                []string            // GET, HEAD and POST included
	requestHeaders         map[string]struct{} // lower case, Content-Type included
	maxRequestHeaderOctets int
	vary                   string // to add to Vary
	exposed                string // Access-Control-Expose-Headers, or ""
	maxAge                 string // Access-Control-Max-Age, or ""
}

// New returns a Middleware for cfg. If cfg has faults, it returns all of them
// joined, each a *[ValueError]; to look at each, use
//
//	if joined, ok := err.(interface{ Unwrap() []error }); ok { ... joined.Unwrap() ... }
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

// Reconfigure replaces the configuration while requests are served. Each request
// is decided by one configuration, whole. If cfg has a fault, nothing changes, and
// the error is that of [New]. The counts of [Middleware.Stats] go on. What a Source said
// stays remembered if Source, Lookup, CacheSize and Caches are the same, and the Source's
// type can be compared, as a pointer can.
func (m *Middleware) Reconfigure(cfg Config) error {
	p, err := compile(cfg)
	if err != nil {
		return err
	}
	if stop := m.replace(p); stop != nil {
		stop()
	}
	return nil
}

// replace puts p in force. It returns what ends the notifications of the Source before,
// which may wait for somebody who is about to call Reconfigure.
func (m *Middleware) replace(p *policy) (stop func()) {
	m.changing.Lock()
	defer m.changing.Unlock()
	old := m.current().resolver
	switch {
	case p.resolver == nil:
	case old.sameAs(p.resolver):
		p.resolver = old
	default:
		p.resolver.listen()
	}
	m.policy.Store(p)
	if old == nil || old == p.resolver {
		return nil
	}
	return old.stop
}

// Forget has the Source asked anew about these publishers before they get in again, also
// where it cannot tell: for those that are revoked, or added, and must not wait for
// [Lookup].TTL. Call it once the Source gives the new answer. It concerns this Middleware
// alone, and no publisher that Config.Publishers covers. An error is a *[ValueError], or
// several of them joined, about what is not a domain; the others are forgotten.
func (m *Middleware) Forget(publishers ...string) error {
	var faults []*ValueError
	l := m.current().resolver
	for i, publisher := range publishers {
		domain, err := parseDomain(publisher)
		if err != nil {
			faults = append(faults, err.at("publishers", i, publisher, ""))
		} else if l != nil {
			l.forget(domain)
		}
	}
	return joinValueErrors(faults)
}

// Config returns a copy of the configuration in force.
func (m *Middleware) Config() Config { return m.current().cfg.clone() }

// Stats returns how many requests Handle and Wrap have decided, by reason.
func (m *Middleware) Stats() Stats {
	s := make(Stats, numReasons)
	for r := Reason(1); r < numReasons; r++ {
		s[r] = m.counts.sum(r)
	}
	return s
}

// SourceStats returns how Config.Source has been used, by Check and CheckOrigin too. All
// is zero without a Source; where Reconfigure does not keep what it said, the counts begin
// anew.
func (m *Middleware) SourceStats() SourceStats {
	if r := m.current().resolver; r != nil {
		return r.stats()
	}
	return SourceStats{}
}

var nobody = &policy{allowlist: new(allowlist), vary: "Origin"}

func (m *Middleware) current() *policy {
	if p := m.policy.Load(); p != nil {
		return p
	}
	return nobody
}

// Wrap returns a handler that lets those requests reach next that are allowed, with
// CORS headers where they are due, and answers the others: preflights, and what is
// refused. The ResponseWriter that next gets is the server's own, so that
// streaming and hijacking work. Wrap does nothing but make a closure; calling it
// for every request is fine. next must not be nil.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.Handle(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// Handle does what Wrap does, for frameworks with handlers of their own. If it
// returns true, the caller must go on to the request's handler; if false, the
// response is complete, and the caller must stop, in gin for example with Abort.
//
// It must see every request, OPTIONS included. A router that answers 404 or 405 to
// OPTIONS before it calls Handle breaks preflights.
func (m *Middleware) Handle(w http.ResponseWriter, r *http.Request) (proceed bool) {
	p := m.current()
	v := verdict{request: r, named: p.cfg.Observe != nil}
	p.decide(&v, r)
	m.counts.add(v.reason)
	if p.cfg.Observe != nil {
		p.cfg.Observe(r, v.decision())
	}
	h, vary := w.Header(), p.vary
	if r.Method == http.MethodOptions {
		vary = "" // nobody caches the response
	}
	proceed = v.reason.allowed() || p.cfg.ReportOnly
	switch {
	case v.preflight && v.reason.allowed():
		p.grantPreflight(h, &v)
		w.WriteHeader(http.StatusNoContent)
		return false
	case v.reason.granted():
		p.grant(h, v.origin, vary)
		return true
	case v.reason == ReasonEmail, v.reason == ReasonEmailV1:
		p.grantEmail(h, &v, vary)
		return true
	case !proceed && v.reason == ReasonSourceUnavailable:
		deny(w, http.StatusServiceUnavailable, v.reason, vary)
		return false
	case !proceed && p.cfg.Denied == nil:
		deny(w, http.StatusForbidden, v.reason, vary)
		return false
	case vary != "":
		addVary(h, []string{vary})
	}
	if !proceed {
		p.cfg.Denied.ServeHTTP(w, r)
	}
	return proceed
}

// Check returns the decision that Handle would make on r. It writes and counts
// nothing, and does not call Config.Observe. A handler behind Handle or Wrap can use
// it to learn whose page calls.
func (m *Middleware) Check(r *http.Request) Decision {
	v := verdict{request: r, named: true}
	m.current().decide(&v, r)
	return v.decision()
}

// CheckOrigin returns the decision on an Origin value by itself, as it is on a GET
// request without Sec-Fetch-Site that is no email's. It does not allocate for a publisher
// that is listed exactly, be it its own origin or a cache's with the prefix that
// DomainPrefix or, while it is remembered, FallbackPrefix returns; nor for an origin that
// names no publisher, unless punycode is decoded to find that out. With Config.Source it
// may have to wait for that, for at most twice Lookup.Timeout.
func (m *Middleware) CheckOrigin(origin string) Decision {
	v := verdict{named: true}
	m.current().checkOrigin(&v, origin)
	return v.decision()
}

// A verdict is a Decision in the making. It lies on the stack.
type verdict struct {
	request   *http.Request // nil for an origin by itself
	resolver  *resolver     // nil if there is no Source to ask
	reason    Reason
	named     bool // the publisher's name is wanted, though it must be copied
	preflight bool
	method    string // that an allowed preflight asked for
	headers   string // and the headers, as it listed them
	origin    string
	cache     *cacheSuffix // nil if the origin is not a cache's
	prefix    string       // the domain prefix, below a cache
	fault     fault        // what is wrong with the prefix or the host
	publisher string
	sender    string // of an email
	stale     bool   // by what the Source said earlier
	sourceErr error  // why the Source could not tell
}

func (v *verdict) decision() Decision {
	d := Decision{
		Allowed:     v.reason.allowed(),
		Reason:      v.reason,
		Origin:      v.origin,
		Publisher:   v.publisher,
		EmailSender: v.sender,
		Stale:       v.stale,
		SourceErr:   v.sourceErr,
	}
	if v.cache != nil {
		d.CacheID = v.cache.id
	}
	return d
}

// decide decides on a request.
func (p *policy) decide(v *verdict, r *http.Request) {
	if p.mailbox != nil && p.decideEmail(v, r) {
		return
	}
	origins := r.Header["Origin"]
	switch {
	case len(origins) == 0:
		v.reason = p.checkWithoutOrigin(r)
		return
	case len(origins) > 1:
		v.reason = ReasonMalformed // which of them would the browser mean? It sends one
		return
	}
	p.checkOrigin(v, origins[0])
	if r.Method == http.MethodOptions && p.checkPreflight(v, r) {
		return
	}
	if !v.reason.allowed() && hasLine(r.Header, "Sec-Fetch-Site", "same-origin") {
		// The API host's own page. Scripts cannot set Sec-Fetch-Site, so that a browser
		// vouches for this; a program that lies has no cookies to abuse. The Origin may
		// even be "null", for a page that hides its referrer. Nothing else that was read
		// from the Origin is kept: it is not verified.
		*v = verdict{reason: ReasonSameOrigin, origin: v.origin}
	}
}

// checkWithoutOrigin decides on a request that has no Origin. Browsers send one
// with every request across origins that can be read or that is unsafe, and so AMP
// marks the unsafe ones within an origin by AMP-Same-Origin: a custom header, which
// no other site can send without a preflight. The header counts here and nowhere
// else: beside an Origin it says nothing that a cache's page could not say as well.
func (p *policy) checkWithoutOrigin(r *http.Request) Reason {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return ReasonNoOrigin
	}
	_, hasSite := r.Header["Sec-Fetch-Site"]
	switch {
	case hasLine(r.Header, "Amp-Same-Origin", "true") && (!hasSite || hasLine(r.Header, "Sec-Fetch-Site", "same-origin")):
		return ReasonSameOrigin
	case p.cfg.DangerouslyAllowUnsafeRequestsWithoutOrigin:
		return ReasonNoOrigin
	}
	return ReasonNoOriginUnsafe
}

// hasLine tells whether the header has one line, and exactly this value.
func hasLine(h http.Header, canonicalKey, value string) bool {
	lines := h[canonicalKey]
	return len(lines) == 1 && lines[0] == value
}

// checkOrigin decides on an Origin value.
func (p *policy) checkOrigin(v *verdict, origin string) {
	v.origin = origin
	if len(origin) > maxOrigin {
		v.reason, v.fault = ReasonMalformed, faultTooLong
		return
	}
	v.resolver = p.resolver
	host, isHTTPS := strings.CutPrefix(origin, "https://")
	if isHTTPS {
		v.prefix, v.cache = splitHost(p.caches, host)
	}
	switch {
	case !isHTTPS:
		p.checkWithoutHTTPS(v)
	case v.cache != nil:
		p.checkPrefix(v)
	default:
		p.checkOwnHost(v, host)
	}
	// Last, because an origin that is listed here too is still its publisher's.
	if v.reason.granted() {
		return
	}
	if _, ok := p.origins[origin]; ok {
		*v = verdict{reason: ReasonExtraOrigin, origin: origin}
	} else if v.reason != ReasonSourceUnavailable && p.mailbox.hasClient(origin) {
		v.reason = ReasonNoEmailSender // which says more than that it is no page's
	}
}

func (p *policy) checkWithoutHTTPS(v *verdict) {
	host, isHTTP := strings.CutPrefix(v.origin, "http://")
	switch {
	case v.origin == "null":
		v.reason = ReasonNull
	case isHTTP && p.cfg.DangerouslyAllowHTTPOwnOrigins:
		p.checkOwnHost(v, host)
	case strings.Contains(v.origin, "://"):
		v.reason = ReasonNotHTTPS
	default:
		v.reason = ReasonMalformed
	}
}

// checkOwnHost decides on the host of an origin that is not that of a trusted cache.
func (p *policy) checkOwnHost(v *verdict, host string) {
	if name, ok := find(p.allowlist, host); ok {
		v.reason, v.publisher = ReasonOwnOrigin, name
		return
	}
	if v.resolver != nil && v.request != nil && hasLine(v.request.Header, "Sec-Fetch-Site", "same-origin") {
		v.resolver = nil // the API host's own page gets through in any case
	}
	if name, ok := v.resolver.recall(host); ok {
		v.reason, v.publisher = ReasonOwnOrigin, name
		return
	}
	hasALabel, f := checkDomain(host)
	switch f {
	case noFault:
		p.checkUnlistedHost(v, host, hasALabel)
	case faultSingleLabel, faultNumber, faultEdgeHyphen:
		v.reason, v.fault = ReasonUnknownHost, f // an origin, but never a publisher's
	default:
		v.reason, v.fault = ReasonMalformed, f
	}
}

// checkUnlistedHost decides on a publisher domain that is the host of an origin, and
// that is not listed exactly.
func (p *policy) checkUnlistedHost(v *verdict, host string, hasALabel bool) {
	v.reason = ReasonUnknownHost
	if isOrIsBelowAny(host, p.foreign) {
		v.fault = faultForeign // though a pattern may cover it, or the Source know it
		return
	}
	isCovered := covers(p.allowlist, host)
	if !isCovered && v.resolver == nil {
		return
	}
	if hasALabel {
		if _, v.fault = decodeDomain(host); v.fault != noFault {
			return
		}
	}
	if !isCovered {
		v.settle(v.resolver.findDomain(v.context(), strings.Clone(host)), ReasonOwnOrigin, ReasonUnknownHost)
		return
	}
	v.reason = ReasonOwnOrigin
	if v.named {
		v.publisher = strings.Clone(host) // the Origin's memory may change
	}
}

// checkPrefix decides on the domain prefix of a cache origin.
func (p *policy) checkPrefix(v *verdict) {
	switch {
	case v.prefix == "":
		v.reason, v.fault = ReasonNotCanonical, faultNoPrefix
		return
	case isHashOnly(v.prefix):
		p.checkHash(v)
		return
	}
	// First as nearly all prefixes are: plain, or punycode as DomainPrefix returns it,
	// and a listed publisher's. A name that is listed has passed all checks.
	var buf [maxLabel]byte
	var name string
	var ok bool
	domain, plain := unfoldPlain(&buf, v.prefix)
	if plain {
		if name, ok = find(p.allowlist, domain); !ok {
			// recall does not keep the string, and a copy would allocate.
			name, ok = v.resolver.recall(unsafe.String(unsafe.SliceData(domain), len(domain)))
		}
	} else if name, ok = p.allowlist.findPunycode(v.prefix); !ok {
		name, ok = v.resolver.recallPrefix(v.prefix)
	}
	if ok {
		v.reason, v.publisher = ReasonCacheOrigin, name
		return
	}
	// Then as any prefix can be.
	var f fault
	if plain {
		_, f = checkDomain(domain)
	} else {
		domain, _, f = reverse(buf[:], v.prefix)
		name, ok = find(p.allowlist, domain)
	}
	switch f {
	case noFault:
		v.reason, v.publisher = ReasonPublisherNotAllowed, name
		if ok || covers(p.allowlist, domain) {
			v.reason = ReasonCacheOrigin
		}
		if !ok && v.named {
			v.publisher = string(domain)
		}
		if v.resolver != nil && !v.reason.allowed() && !isOrIsBelowAny(string(domain), p.foreign) {
			a := v.resolver.findDomain(v.context(), string(domain))
			v.settle(a, ReasonCacheOrigin, ReasonPublisherNotAllowed)
			if !plain && a.publisher != "" {
				v.resolver.rememberPrefix(v.prefix, a.publisher)
			}
		}
	case faultChar:
		v.reason, v.fault = ReasonMalformed, f
	default:
		v.reason, v.fault = ReasonNotCanonical, f
	}
}

func (p *policy) checkHash(v *verdict) {
	if name, ok := p.allowlist.recall(v.prefix); ok {
		v.reason, v.publisher = ReasonHashedCacheOrigin, name
		return
	}
	if name, ok := v.resolver.recallPrefix(v.prefix); ok {
		v.reason, v.publisher = ReasonHashedCacheOrigin, name
		return
	}
	sum, f := decodeHash(v.prefix)
	if f != noFault {
		v.reason, v.fault = ReasonNotCanonical, f
		return
	}
	name, ok := p.allowlist.findHash(&sum)
	switch {
	case ok:
		v.reason, v.publisher = ReasonHashedCacheOrigin, name
	case v.resolver != nil:
		v.settle(v.resolver.findHash(v.context(), strings.Clone(v.prefix)), ReasonHashedCacheOrigin, ReasonHashNotKnown)
	default:
		v.reason = ReasonHashNotKnown
	}
}

// context returns what the Source is asked with.
func (v *verdict) context() context.Context {
	if v.request == nil {
		return context.Background()
	}
	return v.request.Context()
}

// settle decides by the Source's answer.
func (v *verdict) settle(a answer, allowed, refused Reason) {
	v.stale, v.sourceErr = a.stale, a.err
	switch {
	case a.publisher != "":
		v.reason, v.publisher = allowed, a.publisher
	case a.err != nil:
		v.reason = ReasonSourceUnavailable
	default:
		v.reason = refused
	}
}

// checkPreflight goes on from the decision on the origin of a request with OPTIONS, if it
// is a preflight.
func (p *policy) checkPreflight(v *verdict, r *http.Request) (isPreflight bool) {
	method, headers := r.Header["Access-Control-Request-Method"], r.Header["Access-Control-Request-Headers"]
	v.preflight = len(method) > 0
	switch {
	case !v.preflight || !v.reason.allowed():
	// In a list, because a map would hash a name of any length.
	case len(method) > 1 || !slices.Contains(p.methods, method[0]):
		v.reason = ReasonMethodNotAllowed
	case !p.allowsHeaders(headers, v.reason == ReasonOwnOrigin):
		v.reason = ReasonHeaderNotAllowed
	default:
		// Kept, so that Config.Observe cannot change what was checked.
		v.method, v.headers = method[0], strings.Join(headers, ",")
	}
	return v.preflight
}

// allowsHeaders tells whether all names in Access-Control-Request-Headers are
// allowed. Proxies rewrite that list, so that it may have several lines, spaces,
// empty elements and any case; what it may not have is more octets than a list of
// all allowed names would.
//
// A page at its own origin carries AMP-Same-Origin along when it is redirected from
// the apex to www, and so asks for it. A cache's page must never get it: it would
// have a header that says it is not one.
func (p *policy) allowsHeaders(lines []string, isOwnOrigin bool) bool {
	left := p.maxRequestHeaderOctets
	for _, line := range lines {
		if left -= len(line) + 1; left < 0 {
			return false
		}
		if _, ok := p.requestHeaders[line]; ok {
			continue // one name as browsers write it, which is what most ask for
		}
		for name := range strings.SplitSeq(line, ",") {
			name = strings.Trim(name, " \t")
			if name == "" {
				continue
			}
			lower := strings.ToLower(name)
			_, ok := p.requestHeaders[lower]
			if !isToken(name) || !ok && !(isOwnOrigin && lower == ampSameOrigin) {
				return false
			}
		}
	}
	return true
}

// The header writers below make one array for all values of a response, and give
// out parts of it that have no room to grow: a handler that appends to one gets a
// copy, and one that overwrites one spoils no other response.

// grant writes the headers of an allowed actual request. A response to OPTIONS is
// not cached, and so has no Vary.
func (p *policy) grant(h http.Header, origin, vary string) {
	vals := &[4]string{origin, vary, "true", p.exposed}
	addVary(h, vals[1:2:2])
	h["Access-Control-Allow-Origin"] = vals[0:1:1]
	if p.cfg.Credentialed {
		h["Access-Control-Allow-Credentials"] = vals[2:3:3]
	}
	if p.exposed != "" {
		h["Access-Control-Expose-Headers"] = vals[3:4:4]
	}
}

// grantPreflight writes the headers of an allowed preflight: what was asked for and
// no more, so that the answer tells nobody what else is allowed.
func (p *policy) grantPreflight(h http.Header, v *verdict) {
	vals := &[5]string{v.origin, "true", v.method, v.headers, p.maxAge}
	h["Access-Control-Allow-Origin"] = vals[0:1:1]
	if p.cfg.Credentialed && v.reason != ReasonEmailV1 {
		h["Access-Control-Allow-Credentials"] = vals[1:2:2]
	}
	h["Access-Control-Allow-Methods"] = vals[2:3:3]
	if v.headers != "" {
		h["Access-Control-Allow-Headers"] = vals[3:4:4]
	}
	if p.maxAge != "" {
		h["Access-Control-Max-Age"] = vals[4:5:5]
	}
}

// deniedText has the body of the response to what is refused for each reason.
var deniedText = func() (text [numReasons][]byte) {
	for r := range text {
		text[r] = []byte("Forbidden: " + Reason(r).String() + "\n")
	}
	text[ReasonSourceUnavailable] = []byte("Service Unavailable: " + ReasonSourceUnavailable.String() + "\n")
	return text
}()

// deny does what http.Error would, but formats nothing and makes one array, so that to
// be refused costs an attacker's victim little more than to be allowed.
func deny(w http.ResponseWriter, status int, reason Reason, vary string) {
	h, vals := w.Header(), &[3]string{vary, "text/plain; charset=utf-8", "nosniff"}
	addVary(h, vals[0:1:1])
	delete(h, "Content-Length") // it would be that of some other content
	h["Content-Type"] = vals[1:2:2]
	h["X-Content-Type-Options"] = vals[2:3:3]
	if status == http.StatusServiceUnavailable {
		h["Retry-After"] = []string{retryAfter}
	}
	w.WriteHeader(status)
	_, _ = w.Write(deniedText[reason]) // an error would be the connection's
}

// addVary adds to Vary, so that no cache between gives one publisher's answer to
// another. What stands there stays. vary is one value, in memory that the header may
// keep; if that is "", as in a response to OPTIONS, nothing is added.
func addVary(h http.Header, vary []string) {
	if vary[0] == "" {
		return
	}
	if before := h["Vary"]; len(before) > 0 {
		vary = append(before[:len(before):len(before)], vary...)
	}
	h["Vary"] = vary
}
