package probe

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/ampcors/ampcors"
)

// evil is a site that nobody allows on purpose.
const evil = "ampcors-probe.example"

// formerCache is the domain of an AMP Cache that is no longer in the registry.
const formerCache = "amp.cloudflare.com"

// findHostile tests whether pages that are not the publisher's can read answers with the
// reader's cookies. No cache in between keeps what it asks for: each query is new.
func (p *prober) findHostile(ctx context.Context, e *Endpoint, publisher string, attempts []*attempt) {
	own := "https://" + publisher
	prefix, err := ampcors.DomainPrefix(publisher)
	if err != nil || ctx.Err() != nil {
		return
	}
	h := hostile{p: p, ctx: ctx, e: e}
	if p.cfg.Unsafe && e.Method == http.MethodPost {
		h.findForged(own, attempts)
	}
	h.findSameOriginGranted(attempts)
	if h.reports("any-origin-allowed", "https://"+evil, "https://"+evil) {
		return // and so is every other
	}
	for _, c := range p.cfg.Caches {
		other, _ := ampcors.DomainPrefix(evil)
		if h.reports("any-publisher-allowed", "https://"+other+"."+c.CacheDomain, "https://"+evil) {
			break
		}
	}
	if h.findClaims(own) {
		return // and so gets in every origin that makes the claim
	}
	h.reports("null-allowed", "null", own)
	h.reports("dead-cache-allowed", "https://"+prefix+"."+formerCache, own)
	h.first("http-allowed", own, "http://"+publisher, "http://"+prefix+"."+p.cfg.Caches[0].CacheDomain)
	domain := p.cfg.Caches[0].CacheDomain
	h.first("lookalike-allowed", own,
		"https://"+prefix+"."+domain+"."+evil, // ends elsewhere
		"https://evil"+domain,                 // no dot before the domain
		"https://"+prefix+".evil"+domain,
		"https://"+prefix+"."+strings.Replace(domain, ".", "x", 1), // an unescaped dot of a pattern
		own+"."+evil,
		"https://evil"+publisher,
		own+":8443",
	)
	if h.allows("https://"+evil, "https://"+evil, http.Header{"AMP-Same-Origin": {"true"}}) {
		h.report("same-origin-header-trusted", "https://"+evil)
	}
}

// A hostile makes the requests of other sites' pages to one endpoint.
type hostile struct {
	p   *prober
	ctx context.Context
	e   *Endpoint

	request  request // the last
	response *response
}

// allows reports whether a page at origin can read the answer with the reader's cookies. Pages
// of other sites that read without cookies read what any program can.
func (h *hostile) allows(origin, source string, header http.Header) bool {
	actual := h.p.actual(h.e, origin, source, true)
	for key, values := range header {
		actual.header[key] = values
	}
	actual.credentials = true
	if !h.p.maySend(h.e.Method) {
		h.request = preflight(actual, h.e.preflightHeaders())
		resp, err := h.p.client.send(h.ctx, h.request, maxBody)
		h.response = resp
		return err == nil && CheckPreflight(origin, true, h.e.Method, h.e.preflightHeaders(), resp.Status, resp.Header) == nil
	}
	h.request = actual
	f := h.p.client.fetch(h.ctx, actual)
	h.response = f.response
	return f.response != nil && f.err == nil && f.blocked == nil && CheckCORS(origin, true, f.response.Header) == nil
}

func (h *hostile) report(id, origin string) {
	evidence := describe(h.request, h.response) + " A browser lets that page read the answer."
	h.p.addFinding(h.p.newFinding(id, h.e, origin, evidence, h.request))
}

// reports reports a finding if the origin is allowed.
func (h *hostile) reports(id, origin, source string) bool {
	allowed := h.allows(origin, source, nil)
	if allowed {
		h.report(id, origin)
	}
	return allowed
}

// first reports a finding for the first of the origins that is allowed.
func (h *hostile) first(id, source string, origins ...string) {
	for _, origin := range origins {
		if h.reports(id, origin, source) {
			return
		}
	}
}

// findClaims tests whether a page of another site gets in by claiming to be of the publisher, and
// reports whether it does.
func (h *hostile) findClaims(own string) bool {
	other, _ := ampcors.DomainPrefix(evil)
	for _, origin := range []string{"https://" + evil, "https://" + other + "." + h.p.cfg.Caches[0].CacheDomain} {
		if h.allows(origin, "https://"+evil, nil) {
			continue // even without the claim, which is another finding
		}
		for _, claim := range []string{own, "https://" + evil + "/" + own, own + "." + evil} {
			if h.allows(origin, claim, nil) {
				h.report("source-origin-trusted", origin)
				return true
			}
		}
	}
	return false
}

// findSameOriginGranted tests whether the publisher's page on a cache is granted
// AMP-Same-Origin.
func (h *hostile) findSameOriginGranted(attempts []*attempt) {
	for _, a := range attempts {
		if a.form == formOwn || !a.works() {
			continue
		}
		actual := h.p.actual(h.e, a.origin, a.origin, true)
		h.request = preflight(actual, append(h.e.preflightHeaders(), "amp-same-origin"))
		resp, err := h.p.client.send(h.ctx, h.request, maxBody)
		if err == nil && CheckPreflight(a.origin, h.e.Credentials, h.e.Method, append(h.e.preflightHeaders(), "amp-same-origin"), resp.Status, resp.Header) == nil {
			h.response = resp
			h.p.addFinding(h.p.newFinding("same-origin-granted", h.e, a.origin, describe(h.request, resp)+" A browser then sends AMP-Same-Origin.", h.request))
		}
		return // one is enough
	}
}

// findForged tests whether a POST that any page can send is accepted.
func (h *hostile) findForged(own string, attempts []*attempt) {
	works := false
	for _, a := range attempts {
		works = works || a.works() && a.isActual && a.response.Status < 400
	}
	if !works {
		return // what is answered with an error tells nothing
	}
	e := *h.e
	if !isSafelistedContentType(e.ContentType) {
		e.ContentType = typeText // a form can send any text as text/plain
	}
	h.request = h.p.actual(&e, "https://"+evil, own, true)
	f := h.p.client.fetch(h.ctx, h.request)
	if f.response != nil && f.response.Status < 400 {
		evidence := describe(h.request, f.response) + " The handler has run."
		h.p.addFinding(h.p.newFinding("unsafe-reaches-handler", h.e, "https://"+evil, evidence, h.request))
	}
}

// curl returns a command line that makes a request. Values of the user's own headers, which may
// be secrets, are left to the shell's environment.
func (p *prober) curl(r request) string {
	var b strings.Builder
	b.WriteString("curl -si")
	if r.method != http.MethodGet {
		b.WriteString(" -X " + r.method)
	}
	if r.origin != "" {
		b.WriteString(" -H " + quote("Origin: "+r.origin))
	}
	for _, name := range []string{"AMP-Same-Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers", "Content-Type"} {
		if value := r.header.Get(name); value != "" {
			b.WriteString(" -H " + quote(name+": "+value))
		}
	}
	for name := range p.cfg.Header {
		fmt.Fprintf(&b, " -H \"%s: $%s\"", name, variableName(name))
	}
	if r.credentials && p.cfg.Cookie != "" {
		b.WriteString(` -H "Cookie: $COOKIE"`)
	}
	if r.body != "" {
		b.WriteString(" --data-binary " + quote(r.body))
	}
	u := r.url
	if parsed, err := url.Parse(u); err == nil {
		u = parsed.Redacted()
	}
	return b.String() + " " + quote(u)
}

// quote quotes a word for a POSIX shell.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// variableName returns the name of the environment variable for a header.
func variableName(header string) string {
	return strings.ToUpper(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, header))
}
