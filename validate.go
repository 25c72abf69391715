package ampcors

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/domains"
	"github.com/ampcors/ampcors/internal/header"
	"github.com/ampcors/ampcors/internal/prefixes"
)

const maxMaxAge = 24 * time.Hour

// Validate returns the error that [New] would return. It builds nothing.
func (cfg Config) Validate() error {
	return errors.Join(validate(&cfg, func(publisher) {}).problems...)
}

// Warnings returns the publishers that New accepts, but whose domain prefix is denied, mostly with
// ReasonAmbiguousPrefix, because another host has the same prefix. Their pages on an AMP Cache get in only if
// the cache uses another form, such as the hash prefix: [cacheurl.Prefixes] says which forms are denied. Their
// own origins get in. With DangerouslyAllowAmbiguousPrefixes, it returns none.
//
// It does not check publishers that a Source knows or a pattern matches. To check one of these, call
// [cacheurl.Prefixes].
func (cfg Config) Warnings() (warnings []*badvalue.Error) {
	if cfg.DangerouslyAllowAmbiguousPrefixes {
		return nil
	}
	validate(&cfg, func(p publisher) {
		if w := p.warning(); w != nil {
			warnings = append(warnings, w)
		}
	})
	return warnings
}

// A publisher is one of Config.Publishers, without a problem.
type publisher struct {
	index     int
	value     string // as Config has it
	domain    string // in the form in which it is compared; of a pattern, what follows "*."
	isPattern bool
}

// warning returns why the publisher's prefix is denied, or nil.
func (p *publisher) warning() *badvalue.Error {
	domain := p.domain
	if p.isPattern || !strings.Contains(domain, domains.ACEPrefix) && !strings.HasPrefix(domain, "xn-") {
		return nil
	}
	prefix := prefixes.Basic(domain)
	if inside, isWrapped := prefixes.Unwrap(prefix); isWrapped && strings.HasPrefix(inside, domains.ACEPrefix) {
		prefix = inside // as AMP's implementations write it
	}
	named, _, problem := prefixes.Reverse(nil, prefix)
	other, want := prefixes.OtherHost(prefix), "dangerouslyAllowAmbiguousPrefixes, if you own that host or know that "+
		"nobody can register it"
	switch {
	case problem == prefixes.ProblemAmbiguous && other == domain:
		other = string(named)
	case problem == prefixes.ProblemAmbiguous:
	case problem == nil && string(named) != domain && strings.Contains(domain, domains.ACEPrefix):
		// it is read as that of the other host
		want = "a host that ends in a top-level domain of the Internet, because caches cannot reach others"
	default:
		return nil
	}
	return &badvalue.Error{
		Code: badvalue.Unsafe, Path: element("publishers", p.index), Value: p.value,
		Reason: fmt.Sprintf("has the domain prefix %q, which AMP's implementations also give to %q, so cache origins with "+
			"it are denied",
			prefix, other),
		Want: want,
	}
}

// A validation is what is found in a Config.
type validation struct {
	hosts    hosts    // of its Caches, if these have no problem
	senders  []string // Email.Senders without a problem, as parseSender returns them
	problems []error
}

// validate checks all of cfg in one pass, and calls use with each publisher that has no problem. There may be
// millions of them, so that each is parsed only once.
func validate(cfg *Config, use func(publisher)) *validation {
	v := new(validation)
	caches := cfg.Caches
	var cachesErr error
	if caches == nil {
		caches = cacheurl.DefaultCaches()
	} else if cachesErr = cacheurl.ValidateCaches(caches); cachesErr != nil {
		caches = nil
	}
	v.hosts = newHosts(caches) // first, because they determine which publishers are reserved
	for i, value := range cfg.Publishers {
		p := publisher{index: i, value: value}
		if problem := p.parse(&v.hosts, cfg.DangerouslyAllowPublicSuffixWildcards); problem != nil {
			v.problems = append(v.problems, problem)
		} else {
			use(p)
		}
	}
	if cachesErr != nil {
		v.problems = append(v.problems, cachesErr)
	}
	v.origins(cfg.Origins)
	v.email(cfg.Email)
	v.methods(cfg.Methods)
	v.requestHeaders(cfg.RequestHeaders)
	v.responseHeaders(cfg.ResponseHeaders)
	v.maxAge(cfg.MaxAge)
	switch isEmpty := len(cfg.Publishers) == 0 && len(cfg.Origins) == 0 && len(cfg.Email.Senders) == 0 &&
		cfg.Source == nil; {
	case isEmpty && cfg.Email.Senders != nil:
		v.report(badvalue.Missing, "email.senders", "",
			"is empty, and nothing else allows anybody: no publishers, origins or Source", wantAddress)
	case isEmpty:
		v.report(badvalue.Missing, "publishers", "", "is missing, and nothing else allows anybody: no origins, "+
			"email.senders or Source",
			`at least one publisher, such as "example.com"`)
	}
	return v
}

func (v *validation) add(path, value string, p *domains.Problem) {
	v.problems = append(v.problems, p.Of(path, value))
}

func (v *validation) report(code badvalue.Code, path, value, reason, want string) {
	v.add(path, value, &domains.Problem{Code: code, Reason: reason, Want: want})
}

// element returns the path of an element of a list.
func element(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// parse parses the value.
func (p *publisher) parse(h *hosts, allowsPublicSuffix bool) *badvalue.Error {
	base, isPattern := strings.CutPrefix(p.value, "*.")
	parse := domains.Parse
	if isPattern {
		parse = domains.ParseBase
	}
	domain, err := parse(base)
	if err != nil {
		if err.Instead != "" && !isPattern { // a pasted origin of a cache needs one correction, not two
			if p := h.publisherProblem(err.Instead, false, false); p != nil {
				err = p
			}
		}
		if err.Instead != "" {
			err.Instead = p.value[:len(p.value)-len(base)] + err.Instead
		}
		problem := err.Of(element("publishers", p.index), p.value)
		origin, rest := domains.DevelopmentOrigin(p.value), strings.TrimLeft(p.value, "*.")
		host, port, hasPort := strings.Cut(p.value, ":")
		if _, restErr := domains.Check(rest); origin != "" {
			problem.Want = fmt.Sprintf("%q in origins, for local development", origin)
		} else if rest != p.value && !isPattern && restErr == nil { // ".example.com" or "*example.com"
			problem.Want = fmt.Sprintf("%q", "*."+rest)
		} else if hasPort && port != "443" && domains.CheckOrigin("https://"+p.value) == nil {
			problem.Want = fmt.Sprintf("%q in origins, for its pages at that port, or %q", "https://"+p.value, host)
		} else if _, senderErr := parseSender(p.value); senderErr == nil {
			problem.Reason, problem.Want = "is an email address", fmt.Sprintf("%q in email.senders", p.value)
		}
		return problem
	}
	if err := h.publisherProblem(domain, isPattern, allowsPublicSuffix); err != nil {
		return err.Of(element("publishers", p.index), p.value)
	}
	p.domain, p.isPattern = domain, isPattern
	return nil
}

// publisherProblem returns why a valid domain, or a pattern over it, must not be allowed.
func (h *hosts) publisherProblem(domain string, isPattern, allowsPublicSuffix bool) *domains.Problem {
	if host := h.reservedFor(domain); host != nil {
		p := &domains.Problem{Code: badvalue.Reserved,
			Reason: fmt.Sprintf("is a host of an AMP Cache, %q, not a publisher", host.domain),
			Want:   "the domain whose documents the cache serves"}
		prefix, _ := strings.CutSuffix(domain, "."+host.domain)
		if publisher, err := cacheurl.PublisherDomain(prefix); err == nil && host.isCache {
			p.Instead = publisher
		}
		return p
	}
	if !isPattern {
		return nil
	}
	if domains.IsPublicSuffix(domain) {
		if allowsPublicSuffix {
			return nil // hosts of AMP Caches below it are denied in each request
		}
		return &domains.Problem{
			Code:   badvalue.Unsafe,
			Reason: "allows everybody who can register a name below that public suffix",
			Want:   `a pattern over a domain that is yours, such as "*.example.com", or dangerouslyAllowPublicSuffixWildcards`,
		}
	}
	for _, host := range h.reserved {
		if domains.IsOrIsBelow(host.domain, domain) {
			return &domains.Problem{
				Code:   badvalue.Reserved,
				Reason: fmt.Sprintf("matches %q, a host of an AMP Cache, where anybody's page can be", host.domain),
				Want:   "publishers one by one, or a pattern that does not match that host",
			}
		}
	}
	return nil
}

func (v *validation) origins(values []string) {
	for i, value := range values {
		p := domains.CheckOrigin(value)
		isReserved := func(host reservedHost) bool { return host.domain == domains.HostOf(value) }
		if slices.ContainsFunc(v.hosts.reserved, isReserved) {
			p = &domains.Problem{Code: badvalue.Reserved,
				Reason: "is the bare domain of an AMP Cache, and not the origin of a publisher's page",
				Want:   badvalue.RemoveIt}
		}
		if p != nil {
			v.add(element("origins", i), value, p)
		}
	}
}

func (v *validation) methods(values []string) {
	for i, value := range values {
		path, upper := element("methods", i), strings.ToUpper(value)
		switch {
		case !httpguts.ValidHeaderFieldName(value): // a method is a token, too: RFC 9110 section 9.1
			v.report(badvalue.Malformed, path, value, "is not a method", `a name such as "PUT"`)
		case value == "*":
			v.report(badvalue.Unsafe, path, value, "is a wildcard", "the methods that the handler has, one by one")
		case slices.Contains([]string{"CONNECT", "TRACE", "TRACK"}, upper):
			// https://fetch.spec.whatwg.org/#forbidden-method
			v.report(badvalue.Useless, path, value, "is a method that browsers forbid", badvalue.RemoveIt)
		case value != upper && slices.Contains([]string{"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}, upper):
			v.report(badvalue.Malformed, path, value, "is not in upper case", fmt.Sprintf("%q", upper))
		}
	}
}

func (v *validation) requestHeaders(values []string) {
	for i, value := range values {
		path, lower := element("requestHeaders", i), strings.ToLower(value)
		switch {
		case !httpguts.ValidHeaderFieldName(value):
			v.report(badvalue.Malformed, path, value, "is not a header name", `a name such as "Authorization"`)
		case value == "*":
			v.report(badvalue.Unsafe, path, value, "is a wildcard", "the headers that the handler reads, one by one")
		case lower == ampSameOrigin:
			v.report(badvalue.Useless, path, value, "is always granted to own origins, and never to others", badvalue.RemoveIt)
		case lower == ampEmailSender:
			v.report(badvalue.Unsafe, path, value, "is what mail clients send: a page that may send it could call in the name "+
				"of any sender", badvalue.RemoveIt)
		case header.IsForbiddenRequest(lower):
			v.report(badvalue.Useless, path, value, "is a header that no script can set, so no browser asks for it",
				badvalue.RemoveIt)
		}
	}
}

func (v *validation) responseHeaders(values []string) {
	for i, value := range values {
		path := element("responseHeaders", i)
		switch {
		case !httpguts.ValidHeaderFieldName(value):
			v.report(badvalue.Malformed, path, value, "is not a header name", `a name such as "AMP-Redirect-To"`)
		case value == "*":
			v.report(badvalue.Unsafe, path, value, "is a wildcard", "the headers that pages need, one by one")
		case strings.EqualFold(value, "Set-Cookie"), strings.EqualFold(value, "Set-Cookie2"):
			// https://fetch.spec.whatwg.org/#forbidden-response-header-name
			v.report(badvalue.Useless, path, value, "is never exposed to scripts", badvalue.RemoveIt)
		}
	}
}

func (v *validation) maxAge(d time.Duration) {
	switch {
	case d < 0 || d > maxMaxAge:
		v.report(badvalue.OutOfRange, "maxAge", d.String(), "is out of range", "0 to 24h")
	case d%time.Second != 0:
		v.report(badvalue.Malformed, "maxAge", d.String(), "is not a whole number of seconds", "whole seconds, such as 10m0s")
	}
}

func (v *validation) email(cfg Email) {
	for i, value := range cfg.Senders {
		path := element("email.senders", i)
		address, p := parseSender(value)
		domain, isAll := strings.CutPrefix(address, "*@")
		switch {
		case p != nil:
			v.add(path, value, p)
		case isAll && !cfg.DangerouslyAllowMailProviderWildcards && isMailProvider(domain):
			v.report(badvalue.Unsafe, path, value, "allows everybody who has an address at that mail provider",
				`the addresses that are yours, such as "news@`+domain+`", or email.dangerouslyAllowMailProviderWildcards`)
		default:
			v.senders = append(v.senders, address)
		}
	}
	for i, client := range cfg.Clients {
		p := domains.CheckOrigin(client)
		if v.hosts.reservedFor(domains.HostOf(client)) != nil {
			p = &domains.Problem{Code: badvalue.Reserved, Reason: "is an AMP Cache's host, not a mail client's origin",
				Want: badvalue.RemoveIt}
		}
		if p != nil {
			v.add(element("email.clients", i), client, p)
		}
	}
	if len(cfg.Senders) == 0 && len(cfg.Clients) > 0 {
		v.report(badvalue.Missing, "email.senders", "", "is missing, though there are clients", wantAddress)
	}
}
