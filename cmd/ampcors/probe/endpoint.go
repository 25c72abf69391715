package probe

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/ampcors/ampcors"
)

// A form says how an origin names a publisher.
type form string

const (
	formOwn      form = "own origin"
	formReadable form = "readable prefix"
	formPunycode form = "punycode prefix"
	formHash     form = "hash prefix"
)

// A page is an origin at which a publisher's page runs.
type page struct {
	origin string
	form   form
	cache  string // ID of the AMP Cache

	// Another host has the same prefix, see "Hosts that share a prefix" in the documentation of
	// package ampcors: a backend may well deny it.
	isAmbiguous bool
}

// pagesOf returns the origins of a publisher's pages: its own, and each form on each cache.
func pagesOf(publisher string, caches []ampcors.Cache) ([]page, error) {
	pages := []page{{origin: "https://" + publisher, form: formOwn}}
	prefix, err := ampcors.DomainPrefix(publisher)
	if err != nil {
		return nil, err
	}
	hash, err := ampcors.HashPrefix(publisher)
	if err != nil {
		return nil, err
	}
	_, err = ampcors.PublisherDomain(prefix) // an error, if this is not the hash prefix, says that it is ambiguous
	isAmbiguous := err != nil
	for _, c := range caches {
		if prefix != hash {
			f := formReadable
			if strings.HasPrefix(prefix, "xn--") {
				f = formPunycode
			}
			pages = append(pages, page{"https://" + prefix + "." + c.CacheDomain, f, c.ID, isAmbiguous})
		}
		pages = append(pages, page{"https://" + hash + "." + c.CacheDomain, formHash, c.ID, false})
	}
	return pages, nil
}

// Origins returns every origin at which pages of a publisher run: its own and, on each cache, the
// one with the readable prefix and the one with the hash prefix.
func Origins(publisher string, caches ...ampcors.Cache) ([]string, error) {
	domain, err := ampcors.CanonicalDomain(publisher)
	if err != nil {
		return nil, err
	}
	pages, err := pagesOf(domain, caches)
	if err != nil {
		return nil, err
	}
	origins := make([]string, len(pages))
	for i, pg := range pages {
		origins[i] = pg.origin
	}
	return origins, nil
}

// An attempt is the result of a page's request.
type attempt struct {
	page
	request  request   // that shows the problem: the preflight, or the actual request
	response *response // the last answer; nil if there was none
	id       string    // of the finding, if a browser blocks the request
	why      error     // why a browser blocks the request
	err      error     // why the request could not be made
	isActual bool      // the answer is that to the actual request
}

func (a *attempt) works() bool { return a.id == "" && a.err == nil }

// endpoint tests one endpoint for one publisher.
func (p *prober) endpoint(ctx context.Context, e *Endpoint, publisher string) {
	untested := func(format string, args ...any) {
		p.report.Untested = append(p.report.Untested, Untested{Endpoint: e.URL, Reason: fmt.Sprintf(format, args...)})
	}
	failed := func(format string, args ...any) {
		p.report.Untested = append(p.report.Untested, Untested{Endpoint: e.URL, Reason: fmt.Sprintf(format, args...), Failed: true})
	}
	if !p.maySend(e.Method) && !e.NeedsPreflight() {
		untested("it takes %s, which is only sent if unsafe methods are allowed", e.Method)
		return
	}
	pages, err := pagesOf(publisher, p.cfg.Caches)
	if err != nil {
		untested("%v", err)
		return
	}
	own := "https://" + publisher
	var without *fetch // without Origin
	if e.Method == http.MethodGet {
		// A cache between the probe and the backend may store this answer, which is for a
		// request without Origin. If pages then get it, findCached reports it.
		without = p.client.fetch(ctx, p.actual(e, "", own, false))
	}
	var attempts []*attempt
	for _, pg := range pages {
		if pg.isAmbiguous {
			untested("pages at %s: another host has the same prefix, so a backend may deny them", pg.origin)
			continue
		}
		a := p.try(ctx, e, pg, own, false)
		if a.err != nil {
			failed("the request from %s: %v", pg.origin, a.err)
			if len(attempts) == 0 || ctx.Err() != nil {
				return // the others would fail in the same way
			}
			continue
		}
		attempts = append(attempts, a)
	}
	if !p.maySend(e.Method) {
		untested("only its preflight was tested: %s is only sent if unsafe methods are allowed", e.Method)
	}
	attempts = p.findCached(ctx, e, own, attempts)
	for _, a := range attempts {
		pg := Page{Endpoint: e.URL, Origin: a.origin, Form: string(a.form), Works: a.works()}
		if a.why != nil {
			pg.Why = a.why.Error()
		}
		p.report.Pages = append(p.report.Pages, pg)
	}
	p.findBroken(e, attempts)
	p.findFlaws(e, attempts, without)
	e.Tested = e.Tested || len(attempts) > 0
	if err := p.findHostile(ctx, e, publisher, attempts); err != nil {
		failed("requests of other sites' pages: %v", err)
	}
}

func (p *prober) maySend(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	}
	return p.cfg.Unsafe
}

// actual returns the request that the AMP runtime makes to an endpoint for a page at
// origin. source is the publisher's own origin. If bust is set, the URL has a new query
// parameter, so that no cache has an answer to it.
func (p *prober) actual(e *Endpoint, origin, source string, bust bool) request {
	u := e.URL
	if !e.NoSourceOrigin {
		u = withQuery(u, "__amp_source_origin="+url.QueryEscape(source))
	}
	if bust {
		u = withQuery(u, "ampcors_probe="+strings.ToLower(rand.Text()))
	}
	r := request{method: e.Method, url: u, origin: origin, body: e.Body, credentials: e.Credentials, header: http.Header{"Accept": {"application/json"}}}
	if e.Answer == AnswerScript {
		r.header.Set("Accept", "text/plain")
	}
	if e.ContentType != "" {
		r.header.Set("Content-Type", e.ContentType)
	}
	if target, err := url.Parse(u); err == nil && originOf(target) == origin {
		r.header.Set("AMP-Same-Origin", "true")
	}
	return r
}

// preflight returns the preflight that a browser sends before an actual request.
func preflight(actual request, headers []string) request {
	r := request{method: http.MethodOptions, url: actual.url, origin: actual.origin, header: http.Header{
		"Accept":                        {"*/*"},
		"Access-Control-Request-Method": {actual.method},
	}}
	if len(headers) > 0 {
		r.header.Set("Access-Control-Request-Headers", strings.Join(headers, ","))
	}
	return r
}

// try makes the requests of one page, and judges the answers.
func (p *prober) try(ctx context.Context, e *Endpoint, pg page, source string, bust bool) *attempt {
	a := &attempt{page: pg}
	actual := p.actual(e, pg.origin, source, bust)
	target, err := url.Parse(actual.url)
	if err != nil {
		a.err = err
		return a
	}
	if e.NeedsPreflight() && originOf(target) != pg.origin {
		a.request = preflight(actual, e.preflightHeaders())
		if a.response, a.err = p.client.send(ctx, a.request); a.err != nil {
			return a
		}
		if a.id, a.why = judgePreflight(e, pg.origin, a.response); a.id != "" {
			return a
		}
	}
	if !p.maySend(e.Method) {
		return a
	}
	f := p.client.fetch(ctx, actual)
	a.request, a.response, a.err, a.why, a.isActual = actual, f.response, f.err, f.blocked, true
	if f.blocked != nil {
		a.err = nil
		a.id = p.judge(f, pg.origin, source)
	}
	return a
}

// judgePreflight returns the id of the finding if the answer to a preflight keeps a browser
// from sending the actual request, and why it does. If it does not, both are zero.
func judgePreflight(e *Endpoint, origin string, resp *response) (id string, why error) {
	if isRedirect(resp.Status) {
		return "preflight-redirected", fmt.Errorf("the preflight is redirected to %.200q", resp.Header.Get("Location"))
	}
	why = CheckPreflight(origin, e.Credentials, e.Method, e.preflightHeaders(), resp.Status, resp.Header)
	switch {
	case why == nil:
		return "", nil
	case resp.Status < 200 || resp.Status > 299 || CheckCORS(origin, e.Credentials, resp.Header) != nil:
		return "preflight-failed", why
	}
	return "preflight-incomplete", why
}

// judge returns the id of the finding for an answer that a browser blocks.
func (p *prober) judge(f *fetch, origin, source string) string {
	resp := f.response
	if isRedirect(resp.Status) || f.hop > 0 {
		return "redirect-without-cors"
	}
	lines := resp.Header["Access-Control-Allow-Origin"]
	switch {
	case len(lines) > 1:
		return "acao-duplicate"
	case len(lines) == 0 && resp.Status >= 400:
		return "error-without-cors"
	case len(lines) == 0:
		return "acao-missing"
	}
	value := lines[0]
	isBare := slices.ContainsFunc(p.cfg.Caches, func(c ampcors.Cache) bool {
		return strings.TrimSuffix(strings.TrimPrefix(value, "https://"), "/") == c.CacheDomain
	})
	switch {
	case value == "*":
		return "wildcard-with-credentials"
	case isBare:
		return "acao-bare-cache"
	case strings.ContainsAny(value, "*, "):
		return "acao-pattern"
	case value == origin && len(resp.Header["Access-Control-Allow-Credentials"]) == 0:
		return "acac-missing"
	case value == origin:
		return "acac-invalid"
	case value == source:
		return "acao-source-origin"
	}
	return "acao-mismatch"
}

// findCached finds answers that a cache stored for another origin. It repeats each failed
// request whose answer may be such an answer, with a new query parameter. If the second
// attempt works, it reports the finding, and the second attempt replaces the first.
func (p *prober) findCached(ctx context.Context, e *Endpoint, source string, attempts []*attempt) []*attempt {
	var wrong []*attempt
	for i, a := range attempts {
		if !a.isActual || a.works() {
			continue
		}
		value := a.response.Header.Get("Access-Control-Allow-Origin")
		isOther := slices.ContainsFunc(attempts, func(b *attempt) bool { return b.origin == value && b != a })
		if value != "" && !isOther || a.response.Status >= 400 {
			continue
		}
		// It must fail twice: once may be an accident.
		again := p.try(ctx, e, a.page, source, false)
		if again.err != nil {
			continue
		}
		if again.works() {
			attempts[i] = again
			continue
		}
		again = p.try(ctx, e, a.page, source, true)
		if again.err == nil && again.works() {
			wrong = append(wrong, a)
			attempts[i] = again
		}
	}
	if len(wrong) > 0 {
		p.add(e, "cached-wrong-origin", wrong, "the same request with a new query parameter is allowed")
	}
	return attempts
}

// denials are the ids of problems that can mean that the backend denies only some origins.
var denials = []string{"acao-missing", "acao-mismatch", "acao-source-origin", "error-without-cors", "preflight-failed", "redirect-without-cors"}

// findBroken reports why pages do not work: one finding for each cause.
func (p *prober) findBroken(e *Endpoint, attempts []*attempt) {
	causes := make(map[string][]*attempt)
	add := func(id string, a *attempt) { causes[id] = append(causes[id], a) }
	onCache := func(works bool, cache string) bool {
		return slices.ContainsFunc(attempts, func(a *attempt) bool {
			return a.form != formOwn && a.works() == works && (cache == "" || a.cache == cache)
		})
	}
	target, _ := url.Parse(e.URL)
	ownWorks := slices.ContainsFunc(attempts, func(a *attempt) bool {
		return a.form == formOwn && a.works() && a.origin != originOf(target)
	})
	for _, a := range attempts {
		isDenial := slices.Contains(denials, a.id)
		switch {
		case a.works():
		case !isDenial:
			add(a.id, a)
		case a.form == formOwn && onCache(true, ""):
			add("own-origin-refused", a)
		case a.form == formOwn:
			add(a.id, a)
		case !onCache(true, "") && ownWorks && a.id != "acao-mismatch" && a.id != "acao-source-origin":
			add("cache-refused", a)
		case !onCache(true, ""):
			add(a.id, a)
		case a.form == formHash && onCache(true, a.cache):
			add("hash-origin-refused", a)
		case a.form == formPunycode && onCache(true, a.cache):
			add("punycode-origin-refused", a)
		default:
			add("cache-refused", a)
		}
	}
	// If only the own origin has a mismatch and there are other causes, the mismatch is not
	// reported, because it has the same reason.
	if own := causes["acao-mismatch"]; len(own) == 1 && own[0].form == formOwn && len(causes) > 1 {
		delete(causes, "acao-mismatch")
	}
	for _, k := range kinds {
		if as := causes[k.id]; len(as) > 0 {
			p.add(e, k.id, as, "")
		}
	}
}

// findFlaws reports problems of answers that pages can read.
func (p *prober) findFlaws(e *Endpoint, attempts []*attempt, without *fetch) {
	var echoes, withoutVary, hidden, failed, notJSON, notScript []*attempt
	for _, a := range attempts {
		if !a.works() || !a.isActual {
			continue
		}
		h := a.response.Header
		if h.Get("Access-Control-Allow-Origin") == a.origin {
			echoes = append(echoes, a)
			if isCacheable(e.Method, h) && !variesByOrigin(h) {
				withoutVary = append(withoutVary, a)
			}
		}
		switch {
		case e.Answer == AnswerForm && a.response.Status >= 400 && a.response.Status < 500 && isJSON(a.response.Body):
			// amp-form shows it to the reader
		case a.response.Status < 200 || a.response.Status > 299:
			failed = append(failed, a)
		case e.Method == http.MethodHead, e.Component == "endpoint" && a.response.Status == http.StatusNoContent:
		case (e.Answer == AnswerJSON || e.Answer == AnswerForm) && !isJSON(a.response.Body):
			notJSON = append(notJSON, a)
		case e.Answer == AnswerScript && !strings.Contains(h.Get("Content-Type"), "javascript"):
			notScript = append(notScript, a)
		}
		if e.Answer == AnswerForm && h.Get("AMP-Redirect-To") != "" && !isExposed("AMP-Redirect-To", e.Credentials, h) && h.Get("Access-Control-Allow-Origin") != "" {
			hidden = append(hidden, a)
		}
		if e.Credentials && setsFirstPartyCookie(h) {
			p.report.Notes = append(p.report.Notes, e.URL+" sets a cookie without SameSite=None and Secure: browsers do not send it from pages on AMP Caches. That is not CORS.")
		}
	}
	if e.Credentials {
		p.report.Notes = append(p.report.Notes, "Some endpoints are called with cookies. On AMP Caches these are third-party cookies, which some browsers never send. That is not CORS.")
	}
	switch {
	case len(echoes) > 1 && len(withoutVary) > 0:
		p.add(e, "vary-missing", withoutVary, "")
	case len(echoes) > 0 && without != nil && without.response != nil && without.response.Status < 300:
		h := without.response.Header
		value := h.Get("Access-Control-Allow-Origin")
		isOther := slices.ContainsFunc(echoes, func(a *attempt) bool { return a.origin != value })
		if isOther && isCacheable(e.Method, h) && !variesByOrigin(h) {
			p.add(e, "vary-missing", []*attempt{{page: echoes[0].page, request: without.request, response: without.response}}, "")
		}
	}
	// A page at the target's own origin makes requests that are not CORS.
	target, _ := url.Parse(e.URL)
	if len(failed) == 1 && failed[0].form == formOwn && failed[0].origin == originOf(target) && len(echoes) > 0 {
		p.add(e, "own-origin-refused", failed, "")
		failed = nil
	}
	for id, as := range map[string][]*attempt{"expose-missing": hidden, "http-error": failed, "not-json": notJSON, "not-script": notScript} {
		if len(as) > 0 {
			p.add(e, id, as, "")
		}
	}
}

// isJSON reports whether a body is JSON, before which browsers remove a byte order mark.
func isJSON(body []byte) bool { return json.Valid(bytes.TrimPrefix(body, []byte("\ufeff"))) }

// isCacheable reports whether a shared cache may keep a response.
func isCacheable(method string, h http.Header) bool {
	return (method == http.MethodGet || method == http.MethodHead) && !strings.Contains(strings.ToLower(h.Get("Cache-Control")), "no-store")
}

func variesByOrigin(h http.Header) bool {
	for _, line := range h["Vary"] {
		for member := range strings.SplitSeq(line, ",") {
			if member = strings.TrimSpace(member); member == "*" || strings.EqualFold(member, "Origin") {
				return true
			}
		}
	}
	return false
}

// setsFirstPartyCookie reports whether a response sets a cookie that browsers send only
// with requests from pages of the same site.
func setsFirstPartyCookie(h http.Header) bool {
	for _, line := range h["Set-Cookie"] {
		if c, err := http.ParseSetCookie(line); err == nil && (c.SameSite != http.SameSiteNoneMode || !c.Secure) {
			return true
		}
	}
	return false
}

// add adds a finding with the first of the attempts as evidence.
func (p *prober) add(e *Endpoint, id string, attempts []*attempt, remark string) {
	a := attempts[0]
	evidence := describe(a.request, a.response)
	if a.why != nil {
		evidence += " A browser blocks it: " + a.why.Error() + "."
	}
	if remark != "" {
		evidence += " But " + remark + "."
	}
	if n := len(attempts) - 1; n > 0 {
		evidence += fmt.Sprintf(" The same is true for %d other origins.", n)
	}
	p.addFinding(p.newFinding(id, e, a.origin, evidence, a.request))
}

// addFinding adds a finding, unless there is one with the same id, endpoint and origin.
func (p *prober) addFinding(f Finding) {
	if !slices.ContainsFunc(p.report.Findings, func(g Finding) bool { return g.ID == f.ID && g.Endpoint == f.Endpoint && g.Origin == f.Origin }) {
		p.report.Findings = append(p.report.Findings, f)
	}
}

// describe returns a sentence about a request and its answer.
func describe(r request, resp *response) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s from %s", r.method, cmp.Or(r.origin, "a program that sends no Origin"))
	if resp == nil {
		return b.String() + "."
	}
	fmt.Fprintf(&b, " is answered with status %d", resp.Status)
	for _, name := range []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Allow-Methods", "Access-Control-Allow-Headers", "Vary", "Location", "Content-Type"} {
		for _, value := range resp.Header[name] {
			fmt.Fprintf(&b, ", %s: %.200s", name, printable(value))
		}
	}
	return b.String() + "."
}

// printable returns s with each control character replaced by U+FFFD.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '�'
		}
		return r
	}, s)
}
