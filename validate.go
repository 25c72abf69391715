package ampcors

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/dns"
	"github.com/ampcors/ampcors/internal/mapping"
)

const maxMaxAge = 24 * time.Hour

// Validate returns the error that [New] would return. It builds nothing.
func (cfg Config) Validate() error {
	v := newValidator(&cfg)
	v.config(&cfg, func(int, string, bool) {}, func(string) {})
	return errors.Join(v.problems...)
}

// Warnings returns the publishers that New accepts, but whose domain prefix is denied, mostly with
// ReasonAmbiguousPrefix, because another host has the same prefix. Their pages on an AMP Cache get in
// only if the cache uses the hash prefix. Their own origins get in.
//
// It does not check publishers of a Source or of a pattern. To check one, call PublisherDomain with
// the result of DomainPrefix: it returns an error.
func (cfg Config) Warnings() (warnings []*badvalue.Error) {
	if cfg.DangerouslyAllowAmbiguousPrefixes {
		return nil
	}
	newValidator(&cfg).publishers(&cfg, func(i int, domain string, isPattern bool) {
		if isPattern || !strings.Contains(domain, dns.ACEPrefix) && !strings.HasPrefix(domain, "xn-") {
			return
		}
		prefix := mapping.Basic(domain)
		if inside, isWrapped := mapping.Unwrap(prefix); isWrapped && strings.HasPrefix(inside, dns.ACEPrefix) {
			prefix = inside // as AMP's implementations write it
		}
		named, _, p := mapping.Reverse(nil, prefix)
		other, want := mapping.OtherHost(prefix), "dangerouslyAllowAmbiguousPrefixes, if you own that host or know that nobody can register it"
		switch {
		case p == mapping.ProblemAmbiguous && other == domain:
			other = string(named)
		case p == mapping.ProblemAmbiguous:
		case p == nil && string(named) != domain && strings.Contains(domain, dns.ACEPrefix): // it is read as that of the other host
			want = "a host below a top-level domain of the Internet, which caches can reach"
		default:
			return
		}
		warnings = append(warnings, &badvalue.Error{
			Path: element("publishers", i), Value: cfg.Publishers[i],
			Reason: fmt.Sprintf("has the domain prefix %q, which AMP's implementations also give to %q, so cache origins with it are denied", prefix, other),
			Want:   want,
		})
	})
	return warnings
}

// A validator checks a Config, and collects the problems.
type validator struct {
	hosts    hosts
	problems []error
}

// newValidator checks the caches, because they determine which hosts are reserved.
func newValidator(cfg *Config) *validator {
	v := new(validator)
	caches := cfg.Caches
	if caches == nil {
		caches = cacheurl.DefaultCaches()
	} else if err := cacheurl.ValidateCaches(caches); err != nil {
		v.problems, caches = []error{err}, nil
	}
	v.hosts = newHosts(caches)
	return v
}

func (v *validator) add(path, value string, p *dns.Problem) {
	v.problems = append(v.problems, p.Of(path, value))
}

func (v *validator) report(path, value, reason, want string) {
	v.add(path, value, &dns.Problem{Reason: reason, Want: want})
}

// element returns the path of an element of a list.
func element(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// config checks everything except the caches. Publishers and senders are passed on in the
// form in which they are compared, so that they are parsed only once.
func (v *validator) config(cfg *Config, publisher func(i int, domain string, isPattern bool), sender func(address string)) {
	v.origins(cfg.Origins)
	v.email(cfg.Email, sender)
	v.methods(cfg.Methods)
	v.responseHeaders(cfg.ResponseHeaders)
	v.maxAge(cfg.MaxAge)
	v.publishers(cfg, publisher)
	v.requestHeaders(cfg.RequestHeaders)
	if len(cfg.Publishers) == 0 && len(cfg.Origins) == 0 && len(cfg.Email.Senders) == 0 && cfg.Source == nil {
		v.report("publishers", "", "is missing, and nothing else allows anybody: no origins, email.senders or Source", `at least one publisher, such as "example.com"`)
	}
}

func (v *validator) publishers(cfg *Config, yield func(i int, domain string, isPattern bool)) {
	for i, value := range cfg.Publishers {
		base, isPattern := strings.CutPrefix(value, "*.")
		domain, err := dns.Parse(base)
		if isPattern && err != nil && !strings.Contains(base, ".") {
			// Only a pattern may have a single label: "*.example".
			if below, err2 := dns.Parse("a." + base); err2 == nil {
				domain, err = strings.TrimPrefix(below, "a."), nil
			}
		}
		if err != nil {
			if err.Instead != "" && !isPattern { // a pasted origin of a cache needs one correction, not two
				if p := v.hosts.publisherProblem(err.Instead, false, false); p != nil {
					err = p
				}
			}
			if err.Instead != "" {
				err.Instead = value[:len(value)-len(base)] + err.Instead
			}
			problem := err.Of(element("publishers", i), value)
			if origin := developmentOrigin(value); origin != "" {
				problem.Want = fmt.Sprintf("%q in origins, for local development", origin)
			}
			v.problems = append(v.problems, problem)
			continue
		}
		if p := v.hosts.publisherProblem(domain, isPattern, cfg.DangerouslyAllowPublicSuffixWildcards); p != nil {
			v.add(element("publishers", i), value, p)
			continue
		}
		yield(i, domain, isPattern)
	}
}

// publisherProblem returns why a valid domain, or a pattern over it, must not be allowed.
func (h *hosts) publisherProblem(domain string, isPattern, allowsPublicSuffix bool) *dns.Problem {
	if host, ok := h.reservedFor(domain); ok {
		p := &dns.Problem{Reason: fmt.Sprintf("is a host of an AMP Cache, %q, not a publisher", host.domain), Want: "the domain whose documents the cache serves"}
		prefix, _ := strings.CutSuffix(domain, "."+host.domain)
		if publisher, err := cacheurl.PublisherDomain(prefix); err == nil && host.isCache {
			p.Instead = publisher
		}
		return p
	}
	if !isPattern {
		return nil
	}
	if dns.IsPublicSuffix(domain) {
		if allowsPublicSuffix {
			return nil // hosts of AMP Caches below it are denied in each request
		}
		return &dns.Problem{
			Reason: "allows everybody who can register a name below that public suffix",
			Want:   `a pattern over a domain that is yours, such as "*.example.com", or dangerouslyAllowPublicSuffixWildcards`,
		}
	}
	for _, host := range h.reserved {
		if dns.IsOrIsBelow(host.domain, domain) {
			return &dns.Problem{
				Reason: fmt.Sprintf("matches %q, a host of an AMP Cache, where anybody's page can be", host.domain),
				Want:   "publishers one by one, or a pattern that does not match that host",
			}
		}
	}
	return nil
}

func (v *validator) origins(values []string) {
	for i, value := range values {
		p := originProblem(value)
		if slices.ContainsFunc(v.hosts.reserved, func(host reservedHost) bool { return host.domain == hostOf(value) }) {
			p = &dns.Problem{Reason: "is the bare domain of an AMP Cache, and not the origin of a publisher's page", Want: badvalue.RemoveIt}
		}
		if p != nil {
			v.add(element("origins", i), value, p)
		}
	}
}

func (v *validator) methods(values []string) {
	for i, value := range values {
		path, upper := element("methods", i), strings.ToUpper(value)
		switch {
		case !isToken(value):
			v.report(path, value, "is not a method", `a name such as "PUT"`)
		case value == "*":
			v.report(path, value, "is a wildcard", "the methods that the handler has, one by one")
		case slices.Contains([]string{"CONNECT", "TRACE", "TRACK"}, upper):
			// https://fetch.spec.whatwg.org/#forbidden-method
			v.report(path, value, "is a method that browsers forbid", badvalue.RemoveIt)
		case value != upper && slices.Contains([]string{"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}, upper):
			v.report(path, value, "is not in upper case", fmt.Sprintf("%q", upper))
		}
	}
}

func (v *validator) requestHeaders(values []string) {
	for i, value := range values {
		path, lower := element("requestHeaders", i), strings.ToLower(value)
		switch {
		case !isToken(value):
			v.report(path, value, "is not a header name", `a name such as "Authorization"`)
		case value == "*":
			v.report(path, value, "is a wildcard", "the headers that the handler reads, one by one")
		case lower == ampSameOrigin:
			v.report(path, value, "is always granted to own origins, and never to others", badvalue.RemoveIt)
		case lower == ampEmailSender:
			v.report(path, value, "is what mail clients send: a page that may send it could call in the name of any sender", badvalue.RemoveIt)
		case isForbiddenRequestHeader(lower):
			v.report(path, value, "is a header that no script can set, so no browser asks for it", badvalue.RemoveIt)
		}
	}
}

// In lower case, as preflights ask for them (Fetch standard).
const (
	ampSameOrigin  = "amp-same-origin"
	ampEmailSender = "amp-email-sender"
)

// isForbiddenRequestHeader implements the list in
// https://fetch.spec.whatwg.org/#forbidden-request-header
func isForbiddenRequestHeader(lower string) bool {
	switch lower {
	case "accept-charset", "accept-encoding", "access-control-request-headers",
		"access-control-request-method", "connection", "content-length", "cookie",
		"cookie2", "date", "dnt", "expect", "host", "keep-alive", "origin", "referer",
		"set-cookie", "te", "trailer", "transfer-encoding", "upgrade", "via":
		return true
	}
	return strings.HasPrefix(lower, "proxy-") || strings.HasPrefix(lower, "sec-")
}

func (v *validator) responseHeaders(values []string) {
	for i, value := range values {
		path := element("responseHeaders", i)
		switch {
		case !isToken(value):
			v.report(path, value, "is not a header name", `a name such as "AMP-Redirect-To"`)
		case value == "*":
			v.report(path, value, "is a wildcard", "the headers that pages need, one by one")
		case strings.EqualFold(value, "Set-Cookie"), strings.EqualFold(value, "Set-Cookie2"):
			// https://fetch.spec.whatwg.org/#forbidden-response-header-name
			v.report(path, value, "is never exposed to scripts", badvalue.RemoveIt)
		}
	}
}

func (v *validator) maxAge(d time.Duration) {
	switch {
	case d < 0 || d > maxMaxAge:
		v.report("maxAge", d.String(), "is out of range", "0 to 24h")
	case d%time.Second != 0:
		v.report("maxAge", d.String(), "is not a whole number of seconds", "whole seconds, such as 10m0s")
	}
}

func (v *validator) email(cfg Email, yield func(address string)) {
	for i, client := range cfg.Clients {
		p := originProblem(client)
		if v.hosts.isReserved(hostOf(client)) {
			p = &dns.Problem{Reason: "is an AMP Cache's host, not a mail client's origin", Want: badvalue.RemoveIt}
		}
		if p != nil {
			v.add(element("email.clients", i), client, p)
		}
	}
	for i, value := range cfg.Senders {
		address, p := parseSender(value)
		if p != nil {
			v.add(element("email.senders", i), value, p)
			continue
		}
		if domain, all := strings.CutPrefix(address, "*@"); all && !cfg.DangerouslyAllowMailProviderWildcards && isMailProvider(domain) {
			v.report(element("email.senders", i), value, "allows everybody who has an address at that mail provider", `the addresses that are yours, such as "`+"news@"+domain+`", or email.dangerouslyAllowMailProviderWildcards`)
			continue
		}
		yield(address)
	}
	if len(cfg.Senders) == 0 && len(cfg.Clients) > 0 {
		v.report("email.senders", "", "is missing, though there are clients", wantAddress)
	}
}

// isToken reports whether s is an HTTP token, RFC 9110 section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// originProblem returns why value is not an origin as browsers serialize it. Only that form
// can be equal to an Origin header.
// https://html.spec.whatwg.org/#ascii-serialization-of-an-origin
func originProblem(value string) *dns.Problem {
	const example = `an origin such as "https://www.example.com" or "http://localhost:8080"`
	switch {
	case value == "null":
		return &dns.Problem{Reason: "is what every sandboxed frame and local file sends", Want: example}
	case value == "*":
		return &dns.Problem{Reason: "would allow everybody", Want: example}
	case len(value) > maxOrigin:
		return &dns.Problem{Reason: fmt.Sprintf("is longer than %d bytes", maxOrigin), Want: example}
	}
	u, err := url.Parse(value)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return &dns.Problem{Reason: "is not an http or https origin", Want: example}
	}
	host, port := strings.ToLower(u.Hostname()), u.Port() // url.Parse accepts only digits as a port
	switch addr, err := netip.ParseAddr(host); {
	case err == nil && (addr.Is4In6() || addr.Zone() != ""):
		return &dns.Problem{Reason: "has an address that browsers write in another way", Want: example}
	case err == nil && addr.Is6():
		host = "[" + addr.String() + "]"
	case !dns.IsASCII(host):
		domain, err := dns.Parse("a." + host) // so that it may be a single label
		if err != nil {
			return &dns.Problem{Reason: "has a host that " + err.Reason, Want: example}
		}
		host = domain[len("a."):]
	case err != nil && dns.IsNumber(host[strings.LastIndexByte(host, '.')+1:]):
		return &dns.Problem{Reason: "has an address that browsers write in another way", Want: example}
	case err != nil && !isHost(host):
		return &dns.Problem{Reason: "has a host that is not letters, digits, hyphens and underscores between single dots", Want: example}
	}
	canonical := u.Scheme + "://" + host
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return &dns.Problem{Reason: "has a port above 65535", Want: example}
		}
		if isDefault := u.Scheme == "http" && n == 80 || u.Scheme == "https" && n == 443; !isDefault {
			canonical += fmt.Sprintf(":%d", n)
		}
	}
	if canonical != value {
		return &dns.Problem{Reason: "is not how browsers write this origin", Instead: canonical}
	}
	return nil
}

// isHost reports whether s can be the host of an origin, which need not be a
// publisher's domain: "localhost" and "foo-.example.com" are allowed.
func isHost(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || strings.Trim(label, dns.Bytes) != "" {
			return false
		}
	}
	_, p := dns.Decode(s)
	return p != dns.ProblemALabel
}

// hostOf returns the host of an origin.
func hostOf(origin string) string {
	_, host, _ := strings.Cut(origin, "://")
	host, _, _ = strings.Cut(host, ":")
	return host
}

// developmentOrigin returns the origin of a local address such as "localhost:8080", or "" if
// value is not one.
func developmentOrigin(value string) string {
	_, host, found := strings.Cut(value, "//")
	if !found {
		host = value
	}
	host, _, _ = strings.Cut(host, "/")
	name, _, _ := strings.Cut(host, ":")
	if origin := "http://" + host; name == "localhost" || dns.IsIPAddress(name) {
		if originProblem(origin) == nil {
			return origin
		}
	}
	return ""
}
