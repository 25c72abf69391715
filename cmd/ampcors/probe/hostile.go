package probe

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/ampcors/ampcors"
)

// evil is a site that no backend allows on purpose.
const evil = "ampcors-probe.example"

// formerCache is the domain of an AMP Cache that is no longer in the registry.
const formerCache = "amp.cloudflare.com"

// findHostile tests whether pages of other sites or publishers can read answers with the
// reader's cookies. Each URL has a new query parameter, so that no cache answers. An error says
// that a request could not be made.
func (p *prober) findHostile(ctx context.Context, e *Endpoint, publisher string, attempts []*attempt) error {
	own := "https://" + publisher
	pages, err := pagesOf(publisher, p.cfg.Caches)
	if err != nil {
		return err
	}
	h := hostile{p: p, ctx: ctx, e: e}
	if p.cfg.Unsafe && e.Method == http.MethodPost && e.Credentials {
		h.findForged(own, attempts)
	}
	h.findSameOriginGranted(own, attempts)
	if h.reports("any-origin-allowed", "https://"+evil, "https://"+evil) {
		return h.err // so every other origin is allowed, too
	}
	other, _ := ampcors.DomainPrefix(evil) // it is a constant
	for _, c := range p.cfg.Caches {
		if h.reports("any-publisher-allowed", "https://"+other+"."+c.CacheDomain, "https://"+evil) {
			break
		}
	}
	if h.findClaims(own) {
		return h.err // so every origin that makes the claim is allowed
	}
	h.reports("null-allowed", "null", own)
	prefix, _, _ := strings.Cut(strings.TrimPrefix(pages[1].origin, "https://"), ".")
	h.reports("dead-cache-allowed", "https://"+prefix+"."+formerCache, own)
	var overHTTP, lookalikes []string
	for _, pg := range pages {
		host := strings.TrimPrefix(pg.origin, "https://")
		overHTTP = append(overHTTP, "http://"+host)
		lookalikes = append(lookalikes, pg.origin+"."+evil, pg.origin+":8443")
	}
	lookalikes = append(lookalikes, "https://evil"+publisher)
	for _, c := range p.cfg.Caches {
		lookalikes = append(lookalikes,
			"https://evil"+c.CacheDomain, // no dot before the domain
			"https://"+prefix+".evil"+c.CacheDomain,
			"https://"+prefix+"."+strings.Replace(c.CacheDomain, ".", "x", 1)) // an unescaped dot of a pattern
	}
	for i := range publisher {
		if publisher[i] == '.' && strings.Contains(publisher[i+1:], ".") { // the last dot makes it another top-level domain
			lookalikes = append(lookalikes, "https://"+publisher[:i]+"x"+publisher[i+1:])
		}
	}
	h.first("http-allowed", own, overHTTP...)
	h.first("lookalike-allowed", own, lookalikes...)
	if h.allows("https://"+evil, h.p.actual(e, "https://"+evil, "https://"+evil, true), http.Header{"Amp-Same-Origin": {"true"}}) {
		h.report("same-origin-header-trusted", "https://"+evil)
	}
	return h.err
}

// A hostile makes the requests of pages of other sites to one endpoint.
type hostile struct {
	p   *prober
	ctx context.Context
	e   *Endpoint

	request  request // the last
	response *response
	err      error // why the first request that failed could not be made
}

func (h *hostile) failed(err error) {
	if h.err == nil {
		h.err = err
	}
}

// allows reports whether a page at origin can read the answer with the reader's cookies. An
// answer without cookies is not secret, because any program can read it.
func (h *hostile) allows(origin string, actual request, header http.Header) bool {
	actual.header = actual.header.Clone()
	for key, values := range header {
		actual.header[key] = values
	}
	actual.credentials = true
	names := unsafeHeaders(actual.header)
	if !isSafelistedMethod(h.e.Method) || len(names) > 0 {
		h.request = preflight(actual, names)
		resp, err := h.p.client.send(h.ctx, h.request)
		if h.response = resp; err != nil {
			h.failed(err)
			return false
		}
		if CheckPreflight(origin, true, h.e.Method, names, resp.Status, resp.Header) != nil {
			return false
		}
	}
	if !h.p.maySend(h.e.Method) {
		return h.request.method == http.MethodOptions // its preflight is granted
	}
	h.request = actual
	f := h.p.client.fetch(h.ctx, actual)
	if h.response = f.response; f.err != nil {
		h.failed(f.err)
		return false
	}
	return f.blocked == nil && CheckCORS(origin, true, f.response.Header) == nil
}

func (h *hostile) report(id, origin string) {
	evidence := describe(h.request, h.response) + " A browser lets that page read the answer."
	h.p.addFinding(h.p.newFinding(id, h.e, origin, evidence, h.request))
}

// reports reports a finding if the origin is allowed.
func (h *hostile) reports(id, origin, source string) bool {
	allowed := h.allows(origin, h.p.actual(h.e, origin, source, true), nil)
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

// findClaims reports whether a page of another site is allowed if its __amp_source_origin
// is that of the publisher. If so, it adds a finding.
func (h *hostile) findClaims(own string) bool {
	other, _ := ampcors.DomainPrefix(evil)
	for _, origin := range []string{"https://" + evil, "https://" + other + "." + h.p.cfg.Caches[0].CacheDomain} {
		claims := func(sources ...string) request {
			r := h.p.actual(h.e, origin, sources[0], true)
			for _, source := range sources[1:] {
				r.url = withQuery(r.url, "__amp_source_origin="+url.QueryEscape(source))
			}
			return r
		}
		if h.allows(origin, claims("https://"+evil), nil) {
			continue // allowed even without the claim, which is another finding
		}
		for _, r := range []request{
			claims(own), claims("https://" + evil + "/" + own), claims(own + "." + evil),
			claims("https://"+evil, own), claims(own, "https://"+evil),
		} {
			if h.allows(origin, r, nil) {
				h.report("source-origin-trusted", origin)
				return true
			}
		}
	}
	return false
}

// findSameOriginGranted tests whether the publisher's page on a cache is allowed to send
// AMP-Same-Origin.
func (h *hostile) findSameOriginGranted(own string, attempts []*attempt) {
	for _, a := range attempts {
		if a.form == formOwn || !a.works() {
			continue
		}
		actual := h.p.actual(h.e, a.origin, own, true)
		names := append(unsafeHeaders(actual.header), "amp-same-origin")
		h.request = preflight(actual, names)
		resp, err := h.p.client.send(h.ctx, h.request)
		if err != nil {
			h.failed(err)
			return
		}
		isPublic := resp.Header.Get("Access-Control-Allow-Origin") == "*"
		if !isPublic && CheckPreflight(a.origin, h.e.Credentials, h.e.Method, names, resp.Status, resp.Header) == nil {
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
		return // if the publisher's own request fails, a forged one proves nothing
	}
	e := *h.e
	if !isSafelistedContentType(e.ContentType) {
		e.ContentType = typeText // a form can send any text as text/plain
	}
	h.request = h.p.actual(&e, "https://"+evil, own, true)
	f := h.p.client.fetch(h.ctx, h.request)
	if f.err != nil {
		h.failed(f.err)
		return
	}
	if f.hop == 0 && f.response.Status >= 200 && f.response.Status <= 299 {
		evidence := describe(h.request, f.response) + " So it is not denied."
		h.p.addFinding(h.p.newFinding("unsafe-reaches-handler", h.e, "https://"+evil, evidence, h.request))
	}
}
