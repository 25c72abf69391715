package probe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// An answer is the result of a step.
type answer struct {
	preflight *exchange // if one was sent
	fetch     *fetch    // the actual request; nil if it was not sent
	blocked   error     // why the browser does not send the actual request
	err       error     // why the step could not be sent; it proves nothing
}

// An exchange is a request with its answer.
type exchange struct {
	request  request
	response *response
}

// last returns the request that shows the result of a step, and the answer to it.
func (a *answer) last() (request, *response) {
	if a.fetch != nil {
		return a.fetch.request, a.fetch.response
	}
	if a.preflight != nil {
		return a.preflight.request, a.preflight.response
	}
	return request{}, nil
}

// status returns the last status, or 0 if there is none.
func (a *answer) status() int {
	if _, resp := a.last(); resp != nil {
		return resp.Status
	}
	return 0
}

// isReadable reports whether a browser lets the page read the answer or, if only a preflight may be
// sent, whether it lets the page send the request.
func (a *answer) isReadable() bool { return a.why() == nil }

// why returns why a browser blocks the request, or why it could not be sent.
func (a *answer) why() error {
	switch {
	case a.err != nil:
		return a.err
	case a.blocked != nil:
		return a.blocked
	case a.fetch != nil:
		return a.fetch.blocked
	}
	return nil
}

// A freshness is a way to keep caches in front of the backend from answering.
type freshness int

const (
	byParameter freshness = iota // a new query parameter; some backends answer it with status 400
	bySpelling                   // another percent-encoding of the same URL, which decodes to the same
	byHeader                     // Cache-Control: no-cache alone, which some caches ignore
)

// send sends a step of a trial. Errors are in the answer.
func (c *cell) send(ctx context.Context, t *trial, s step) *answer {
	origin := t.origin
	if s.as != nil {
		origin = s.as.origin
	}
	r := c.request(origin, s)
	if s.validates != nil {
		turn, before := s.validates.last()
		r.url = turn.url
		for _, pair := range [][2]string{{"Etag", "If-None-Match"}, {"Last-Modified", "If-Modified-Since"}} {
			if value := before.Header.Get(pair[0]); value != "" {
				r.header.Set(pair[1], value)
			}
		}
	}
	target, err := url.Parse(r.url)
	if err != nil {
		return &answer{err: err}
	}
	a := &answer{}
	names := unsafeHeaders(r.header)
	isCORS := origin != "" && originOf(target) != origin
	needsPreflight := isCORS && (!isSafelistedMethod(r.method) || len(names) > 0)
	if s.mode == preflights || s.mode == asPage && needsPreflight {
		a.preflight = &exchange{request: preflight(r, names)}
		if a.preflight.response, a.err = c.p.client.send(ctx, a.preflight.request); a.err != nil {
			return a
		}
		resp := a.preflight.response
		if a.blocked = checkPreflight(origin, r.credentials, r.method, names, resp.Status, resp.Header); a.blocked != nil ||
			s.mode == preflights {
			return a
		}
	}
	if !c.p.maySend(r.method) {
		if a.preflight == nil {
			a.err = errors.New("nothing of it may be sent")
		}
		return a
	}
	if s.mode == direct || s.mode == asForm {
		a.fetch = &fetch{request: r}
		a.fetch.response, a.err = c.p.client.send(ctx, r)
		if a.err == nil {
			a.fetch.blocked = checkCORS(origin, r.credentials, a.fetch.response.Header)
		}
		return a
	}
	a.fetch = c.p.client.fetch(ctx, r)
	a.err = a.fetch.err
	return a
}

// request returns the actual request of a step, as the AMP runtime makes it.
func (c *cell) request(origin string, s step) request {
	if s.toRedirect {
		r := *c.redirect
		r.origin, r.credentials, r.header = origin, s.cookies, r.header.Clone()
		r.header.Del("Amp-Same-Origin")
		for name := range c.p.cfg.PageHeader {
			r.header.Del(name) // the page may leave out what needs a preflight
		}
		if r.header.Del("Referer"); origin != "null" {
			r.header.Set("Referer", origin+"/")
		}
		return r
	}
	e, u := c.e, c.e.URL
	for _, claim := range s.claims {
		value := encode(claim)
		if s.isFresh && c.fresh == bySpelling {
			value = respell(value)
		}
		u = withQuery(u, "__amp_source_origin="+value)
	}
	r := request{method: e.Method, origin: origin, body: e.Body, credentials: s.cookies,
		header: http.Header{"Accept": {"application/json"}}}
	if s.isFresh {
		r.header.Set("Cache-Control", "no-cache")
		r.header.Set("Pragma", "no-cache")
		if c.fresh == byParameter {
			u = withQuery(u, "ampcors_probe="+strings.ToLower(rand.Text()))
		}
	}
	r.url, r.navigates = u, s.mode == asForm && s.contentType == "" // with another type, a script sends it
	if r.navigates {
		r.header.Set("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
	} else if e.Answer == AnswerScript {
		r.header.Set("Accept", "text/plain")
	}
	if e.ContentType != "" {
		r.header.Set("Content-Type", e.ContentType)
	}
	isSimple := s.mode == asForm || s.isSimple
	if isSimple && e.ContentType != "" && !isSafelistedContentType(e.ContentType) {
		r.header.Set("Content-Type", typeText) // a form can send any text as text/plain
	}
	switch s.contentType {
	case "":
	case noType: // as for a Blob without a type
		r.header.Del("Content-Type")
	case e.ContentType: // with its own body
	case typeMultipart:
		r.header.Set("Content-Type", s.contentType)
		r.body = "--" + multipartBoundary + "\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n--" +
			multipartBoundary + "--\r\n"
	default:
		r.header.Set("Content-Type", s.contentType)
	}
	if !isSimple {
		maps.Copy(r.header, c.p.cfg.PageHeader)
	}
	r.isProxied = s.isProxied
	if origin != "" && origin != "null" && !s.isProxied {
		r.header.Set("Referer", origin+"/") // by the default referrer policy
	}
	if target, err := url.Parse(u); err == nil && originOf(target) == origin {
		r.header.Set("AMP-Same-Origin", "true")
	}
	maps.Copy(r.header, s.header)
	return r
}

// respell returns a percent-encoded value with about half of its letters percent-encoded, too. It
// decodes to the same, but a cache that compares URLs takes it for another.
func respell(value string) string {
	random := make([]byte, len(value))
	_, _ = rand.Read(random) // never fails
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		switch ch := value[i]; {
		case ch == '%':
			b.WriteString(value[i:min(i+3, len(value))])
			i += 2
		case random[i]&1 == 0 || ch == '.' || ch == '-' || ch == '_' || ch == '~':
			b.WriteByte(ch)
		default:
			fmt.Fprintf(&b, "%%%02X", ch)
		}
	}
	return b.String()
}

// preflight returns the preflight that a browser sends before an actual request, by the section
// "CORS-preflight fetch" of the Fetch standard.
func preflight(actual request, headers []string) request {
	r := request{method: http.MethodOptions, url: actual.url, origin: actual.origin, header: http.Header{
		"Accept":                        {"*/*"},
		"Access-Control-Request-Method": {actual.method},
	}}
	if len(headers) > 0 {
		slices.Sort(headers)
		r.header.Set("Access-Control-Request-Headers", strings.Join(headers, ","))
	}
	return r
}
