package ampcors

import (
	"context"
	"net/http"
	"net/url"
	"strings"
)

// In lower case, as preflights ask for them (Fetch standard).
const (
	ampSameOrigin  = "amp-same-origin"
	ampEmailSender = "amp-email-sender"
)

// A caller is what a request says about its sender and its purpose. Only this file reads the parts of a request
// on which the decision depends.
type caller struct {
	request     *http.Request // nil for an Origin value by itself
	origin      string        // "" unless there is exactly one line
	method      string        // that a preflight asks for; "" if it asks for none, or for several
	origins     int           // number of Origin lines
	isOptions   bool
	isPreflight bool // https://fetch.spec.whatwg.org/#cors-preflight-request
}

// read reads the request into c.
func (c *caller) read(r *http.Request) {
	c.request = r
	lines := r.Header["Origin"]
	if c.origins = len(lines); c.origins == 1 {
		c.origin = lines[0]
	}
	if c.isOptions = r.Method == http.MethodOptions; c.isOptions && c.origins > 0 {
		methods := r.Header["Access-Control-Request-Method"]
		if c.isPreflight = len(methods) > 0; len(methods) == 1 {
			c.method = methods[0]
		}
	}
}

// requestHeaders returns the lines of header names that a preflight asks for.
func (c *caller) requestHeaders() []string {
	return c.request.Header["Access-Control-Request-Headers"]
}

// isSafe reports whether the method is safe (RFC 9110 section 9.2.1), without TRACE.
func (c *caller) isSafe() bool {
	switch c.request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	}
	return false
}

// isSameOrigin reports whether the browser says that the request comes from the API host's own page. Scripts
// cannot set Sec-Fetch-Site. A program can, but it has no reader's cookies.
// https://w3c.github.io/webappsec-fetch-metadata/#sec-fetch-site-header
func (c *caller) isSameOrigin() bool {
	return c.request != nil && hasLine(c.request.Header, "Sec-Fetch-Site", "same-origin")
}

// hasAMPSameOrigin reports whether the request has AMP-Same-Origin: true, and no Sec-Fetch-Site other than
// same-origin. AMP marks unsafe requests within an origin with this header. It is a custom header: no other
// site can send it without a preflight. The caller must check that there is no Origin: with an Origin, a
// cache's page could have sent it, too.
func (c *caller) hasAMPSameOrigin() bool {
	_, hasSite := c.request.Header["Sec-Fetch-Site"]
	return hasLine(c.request.Header, "Amp-Same-Origin", "true") && (!hasSite || c.isSameOrigin())
}

// hasLine reports whether the header has one line, and exactly this value.
func hasLine(h http.Header, canonicalKey, value string) bool {
	lines := h[canonicalKey]
	return len(lines) == 1 && lines[0] == value
}

// senders returns the lines of AMP-Email-Sender: version 2 of AMP for Email.
func (c *caller) senders() []string {
	if c.request == nil {
		return nil
	}
	return c.request.Header["Amp-Email-Sender"]
}

// sourceOrigin returns the query's __amp_source_origin, and whether it is a sender's address, as in version 1
// of AMP for Email. A website sends an origin there, which has no "@". If there are several, or one cannot be
// decoded, it returns "" and true, because a handler might still read a sender there. No sender has the address
// "", so the request is denied.
//
// A plus sign is not decoded to a space, which forms do: an address has no space, and a client that does not
// escape "@" may not escape "+" either.
func (c *caller) sourceOrigin() (value string, isAddress bool) {
	const param = "__amp_source_origin"
	if c.request == nil || c.request.URL == nil {
		return "", false
	}
	found := false
	for pair := range strings.SplitSeq(c.request.URL.RawQuery, "&") {
		key, escaped, _ := strings.Cut(pair, "=")
		if len(key) > len(param) {
			key, _ = url.PathUnescape(key) // "" if that is malformed
		}
		if key != param {
			continue
		}
		if found {
			return "", true
		}
		found = true
		var err error
		if value, err = url.PathUnescape(escaped); err != nil {
			return "", true
		}
	}
	return value, strings.Contains(value, "@")
}

// context returns the context in which a Source is asked.
func (c *caller) context() context.Context {
	if c.request == nil {
		return context.Background()
	}
	return c.request.Context()
}
