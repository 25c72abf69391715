package ampcors

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"
)

// Config says who may call, and how. Its zero value allows nobody and is an
// error: there is no "allow all". [New] and [Middleware.Reconfigure] check all of
// it and report every fault at once, each as a *[ValueError].
//
// Nothing is trimmed, ignored or corrected: a value is either used as the field's
// comment says, or it is a fault.
type Config struct {
	// Publishers are the domains whose AMP pages may call, from any of the Caches
	// and from the domain itself (its own origin). Each is
	//
	//   - one domain: "www.example.com", "bücher.example", "xn--bcher-kva.example".
	//     Case does not matter, and the last two are the same;
	//   - or a pattern: "*.example.com" stands for every domain below example.com,
	//     at any depth, but not for example.com itself. What stands behind "*." may
	//     be a single label.
	//
	// Prohibited are schemes, ports, paths, IP addresses, trailing dots, single
	// labels, labels that begin or end with a hyphen, and "*" in any other place. A
	// pattern over a public suffix, such as "*.com" or "*.github.io", lets in
	// everybody who can register a name there; with Credentialed it is prohibited
	// unless DangerouslyAllowPublicSuffixWildcards is set. The Public Suffix List
	// cannot tell that a domain such as "amazonaws.com" has suffixes below it: list
	// only domains all of whose subdomains are yours.
	//
	// A pattern does not match a hash-only cache origin, because a hash cannot be
	// reversed. A cache uses one for a domain that is long, or that mixes writing
	// directions, for example: list such a domain by itself, too. If DomainPrefix has
	// no dash, it is one of them; but some implementations hash more than that, such
	// as names with an underscore, or with "--" at positions 3 and 4 of any label.
	Publishers []string `json:"publishers,omitempty"`

	// Caches are the AMP Caches to trust; nil stands for DefaultCaches. See Cache for
	// why a former cache's domain is a risk.
	Caches []Cache `json:"caches,omitzero"`

	// Origins are further origins that may call, compared octet for octet, such as
	// "https://playground.amp.dev" or "http://localhost:8080". They have a scheme
	// (http or https), a host in lower-case ASCII, and a port only if it is not the
	// scheme's default. Prohibited are "null", "*", and anything behind the host and
	// port, such as a slash.
	Origins []string `json:"origins,omitempty"`

	// Email lets AMP emails call, too, or alone. Its zero value lets none.
	Email Email `json:"email,omitzero"`

	// Credentialed lets callers read answers to requests that were sent with cookies.
	// A simple POST, such as a form's, is sent with cookies in any case: whether it
	// reaches the handler, Publishers decides.
	Credentialed bool `json:"credentialed,omitempty"`

	// Methods are those that a preflight may ask for beyond GET, HEAD and POST, such
	// as "PUT". Case matters, as in HTTP. Prohibited are "*" and those that the Fetch
	// standard forbids: CONNECT, TRACE and TRACK.
	Methods []string `json:"methods,omitempty"`

	// RequestHeaders are those that a preflight may ask for beyond Content-Type, in
	// any case. Prohibited are "*", names that browsers never ask for because scripts
	// cannot set them, AMP-Same-Origin, which is granted to own origins alone, and
	// AMP-Email-Sender, which is for mail clients.
	RequestHeaders []string `json:"requestHeaders,omitempty"`

	// ResponseHeaders are those that the page's script may read beyond the ones that
	// CORS always exposes. Nil stands for AMP-Redirect-To, which amp-form needs; an
	// empty list exposes none. Prohibited are "*", Set-Cookie and Set-Cookie2.
	ResponseHeaders []string `json:"responseHeaders,omitzero"`

	// MaxAge is how long a browser may remember a preflight: whole seconds, at most
	// 24 hours, which is where Firefox caps it (Chromium caps it at 2 hours). Zero
	// sends nothing, which browsers take as 5 seconds. In JSON it is a number of
	// nanoseconds.
	MaxAge time.Duration `json:"maxAge,omitempty"`

	// ReportOnly never refuses: a request that would be refused, preflights included,
	// goes on to the handler without CORS headers. For a trial run in front of what
	// protects the handler today: Observe and Stats tell what would have happened.
	// What is allowed is answered as always, preflights too, so Credentialed, Methods
	// and the headers must be those of what stands behind. While it is set, nothing
	// here stops a forged request.
	ReportOnly bool `json:"reportOnly,omitempty"`

	// Denied answers a refused request. Nil stands for status 403 with the reason in
	// one line. It can call Check to learn the reason, which is the same unless
	// Reconfigure or a change in the Source came between. Requests that are refused
	// because the Source cannot tell do not get here.
	Denied http.Handler `json:"-"`

	// Observe is called with the decision on every request that passes Handle or Wrap,
	// before anything is written and from many goroutines at once. The strings in the
	// Decision are valid at least as long as the request.
	Observe func(*http.Request, Decision) `json:"-"`

	// Source knows further publishers, such as those in a database. It is asked about
	// publisher domains and hashes that Publishers does not cover, and its answers are
	// remembered. If it cannot tell, a request is answered with status 503 and
	// Retry-After, unless the Source confirmed the publisher lately, within
	// Lookup.StaleFor.
	Source Source `json:"-"`

	// Lookup says how the Source is asked. Without one it has no effect.
	Lookup Lookup `json:"lookup,omitzero"`

	// CacheSize is how much is remembered. Without a Source it is the number of hash-only
	// prefixes of listed publishers, at up to 400 octets each; zero stands for 4096. A
	// prefix that is not remembered costs one SHA-256 more and is decided alike. With a
	// Source it is also the number of the Source's publishers, of its refusals, and of
	// prefixes that are a hash or punycode: together, at 600 octets each with names of 22
	// octets, and up to 1 KiB with longer ones; zero then stands for 65,536.
	CacheSize int `json:"cacheSize,omitempty"`

	// DangerouslyAllowHTTPOwnOrigins also accepts own origins with http. Anybody on
	// the network between a reader and such a page can then call in its name.
	DangerouslyAllowHTTPOwnOrigins bool `json:"dangerouslyAllowHTTPOwnOrigins,omitempty"`

	// DangerouslyAllowPublicSuffixWildcards lets a pattern with Credentialed stand for
	// a whole public suffix. It is for platforms that own the suffix and mean every
	// one of their customers.
	DangerouslyAllowPublicSuffixWildcards bool `json:"dangerouslyAllowPublicSuffixWildcards,omitempty"`

	// DangerouslyAllowUnsafeRequestsWithoutOrigin lets requests pass that have no
	// Origin and no AMP-Same-Origin and yet a method other than GET, HEAD or OPTIONS.
	// Programs send such requests. A browser sends Origin with them, unless it is old,
	// and then any site can make it send them.
	DangerouslyAllowUnsafeRequestsWithoutOrigin bool `json:"dangerouslyAllowUnsafeRequestsWithoutOrigin,omitempty"`
}

const (
	defaultCacheSize = 4096 // at most about 1.6 MiB
	maxMaxAge        = 24 * time.Hour
	maxLookup        = 30 * 24 * time.Hour // so that twice as long is a duration, too
)

// clone returns a copy that shares no memory with cfg that can be changed.
func (cfg Config) clone() Config {
	cfg.Publishers = compact(cfg.Publishers)
	cfg.Caches = slices.Clone(cfg.Caches)
	cfg.Origins = slices.Clone(cfg.Origins)
	cfg.Email.Senders = slices.Clone(cfg.Email.Senders)
	cfg.Email.Clients = slices.Clone(cfg.Email.Clients)
	cfg.Methods = slices.Clone(cfg.Methods)
	cfg.RequestHeaders = slices.Clone(cfg.RequestHeaders)
	cfg.ResponseHeaders = slices.Clone(cfg.ResponseHeaders)
	return cfg
}

// compact returns a copy of the list whose strings lie in one piece of memory. The
// garbage collector then has one object to visit for millions of publishers, and the
// file that a list was read from can go.
func compact(list []string) []string {
	list, rest := slices.Clone(list), strings.Clone(strings.Join(list, "")) // Join returns an only string itself
	for i, s := range list {
		list[i], rest = rest[:len(s)], rest[len(s):]
	}
	return list
}

// Validate returns the error that [New] would return, without building anything.
func (cfg Config) Validate() error {
	_, _, _, err := check(cfg)
	return err
}

// compile checks all of cfg and builds the policy that it describes.
func compile(cfg Config) (*policy, error) {
	cfg = cfg.clone()
	p, names, wildcards, err := check(cfg)
	if err != nil {
		return nil, err
	}
	p.allowlist = newAllowlist(names, wildcards, cmp.Or(cfg.CacheSize, defaultCacheSize))
	if cfg.Source != nil {
		p.resolver = newResolver(cfg.Source, cfg.Lookup.withDefaults(), cmp.Or(cfg.CacheSize, defaultSourceCacheSize), p.foreign)
	}
	return p, nil
}

// check checks all of cfg, and returns the policy but for its allowlist and Source.
func check(cfg Config) (p *policy, names, wildcards []string, err error) {
	v := validator{}
	caches, foreign := v.caches(cfg.Caches)
	p = &policy{
		cfg:     cfg,
		caches:  caches,
		foreign: foreign,
		origins: v.origins(cfg.Origins, foreign),
		mailbox: v.email(cfg.Email, foreign),
		vary:    "Origin",
		methods: v.methods(cfg.Methods),
		exposed: v.responseHeaders(cfg.ResponseHeaders),
		maxAge:  v.maxAge(cfg.MaxAge),
	}
	names, wildcards = v.publishers(cfg, foreign)
	p.requestHeaders, p.maxRequestHeaderOctets = v.requestHeaders(cfg.RequestHeaders)
	v.cacheSize(cfg.CacheSize)
	v.lookup(cfg.Lookup)
	if p.mailbox != nil {
		p.vary = "Origin, AMP-Email-Sender"
	}
	if len(cfg.Publishers) == 0 && len(cfg.Origins) == 0 && p.mailbox == nil && cfg.Source == nil {
		v.report("Publishers", -1, "", "is missing, and nothing else allows anybody: no Origins, Email.Senders or Source", `at least one publisher, such as "example.com"`)
	}
	return p, names, wildcards, joinValueErrors(v)
}

// A validator collects the faults of a Config.
type validator []*ValueError

func (v *validator) report(field string, index int, value, reason, want string) {
	*v = append(*v, &ValueError{Field: field, Index: index, Value: value, Reason: reason, Want: want})
}

// caches returns the caches to trust, and the hosts that are never a publisher's.
func (v *validator) caches(caches []Cache) (trusted []cacheSuffix, foreign []string) {
	if caches == nil {
		caches = DefaultCaches()
	} else if faults := checkCaches("Caches", caches); len(faults) > 0 {
		*v = append(*v, faults...)
		caches = nil
	}
	for _, c := range caches {
		trusted = append(trusted, cacheSuffix{id: c.ID, dotted: "." + c.CacheDomain})
	}
	for _, c := range slices.Concat(caches, DefaultCaches()) {
		for _, domain := range []string{c.CacheDomain, c.ThirdPartyFrameDomainSuffix} {
			if domain != "" && !slices.Contains(foreign, domain) {
				foreign = append(foreign, domain)
			}
		}
	}
	return trusted, foreign
}

func (v *validator) publishers(cfg Config, foreign []string) (names, wildcards []string) {
	names = make([]string, 0, len(cfg.Publishers))
	for i, value := range cfg.Publishers {
		report := func(reason, want string) { v.report("Publishers", i, value, reason, want) }
		base, isPattern := strings.CutPrefix(value, "*.")
		domain, err := parseDomain(base)
		if isPattern && err != nil && !strings.Contains(base, ".") {
			// Only here may a domain be a single label: "*.example".
			if below, err2 := parseDomain("a." + base); err2 == nil {
				domain, err = strings.TrimPrefix(below, "a."), nil
			}
		}
		if err != nil {
			*v = append(*v, err.at("Publishers", i, value, value[:len(value)-len(base)]))
			continue
		}
		for _, host := range foreign {
			if isOrIsBelow(domain, host) {
				report(fmt.Sprintf("is a host of an AMP Cache, %q, not a publisher", host), "the domain whose documents the cache serves")
			}
		}
		if !isPattern {
			names = append(names, domain)
			continue
		}
		if cfg.Credentialed && !cfg.DangerouslyAllowPublicSuffixWildcards && isPublicSuffix(domain) {
			report("with Credentialed lets in everybody who can register a name below that public suffix",
				`a pattern over a domain that is yours, such as "*.example.com", or DangerouslyAllowPublicSuffixWildcards`)
		}
		wildcards = append(wildcards, domain)
	}
	return names, wildcards
}

// isPublicSuffix tells whether anybody can register names directly below domain.
// That is also so where the list has "*." before it, as for kawasaki.jp.
func isPublicSuffix(domain string) bool {
	suffix, _ := publicsuffix.PublicSuffix(domain)
	below, _ := publicsuffix.PublicSuffix("a." + domain)
	return suffix == domain || below == "a."+domain
}

func (v *validator) origins(values, foreign []string) map[string]struct{} {
	origins := make(map[string]struct{}, len(values))
	for i, value := range values {
		if reason, want := originFault(value, foreign); reason != "" {
			v.report("Origins", i, value, reason, want)
		}
		origins[value] = struct{}{}
	}
	return origins
}

// originFault tells why value is not an origin as browsers serialise it, which is
// the only form that can ever be equal to one.
// https://html.spec.whatwg.org/#ascii-serialisation-of-an-origin
func originFault(value string, foreign []string) (reason, want string) {
	const example = `an origin such as "https://www.example.com" or "http://localhost:8080"`
	switch {
	case value == "null":
		return "is what every sandboxed frame and local file sends", example
	case value == "*":
		return "would allow everybody", example
	case len(value) > maxOrigin:
		return fmt.Sprintf("is longer than %d octets", maxOrigin), example
	}
	u, err := url.Parse(value)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return "is not an http or https origin", example
	}
	host, port := strings.ToLower(u.Hostname()), u.Port() // url.Parse lets only digits be a port
	switch addr, err := netip.ParseAddr(host); {
	case err == nil && (addr.Is4In6() || addr.Zone() != ""):
		return "has an address that browsers write in another way", example
	case err == nil && addr.Is6():
		host = "[" + addr.String() + "]"
	case !isASCII(host):
		domain, err := parseDomain("a." + host) // so that it may be a single label
		if err != nil {
			return "has a host that " + err.reason, example
		}
		host = domain[len("a."):]
	case err != nil && isNumber(host[strings.LastIndexByte(host, '.')+1:]):
		return "has an address that browsers write in another way", example
	case err != nil && !isHost(host):
		return "has a host that is not letters, digits, hyphens and underscores between single dots", example
	case slices.Contains(foreign, host):
		return "is an AMP Cache's bare domain, from which no publisher's page calls", "to leave it out"
	}
	canonical := u.Scheme + "://" + host
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return "has a port above 65535", example
		}
		if isDefault := u.Scheme == "http" && n == 80 || u.Scheme == "https" && n == 443; !isDefault {
			canonical += fmt.Sprintf(":%d", n)
		}
	}
	if canonical != value {
		return "is not how browsers write this origin", fmt.Sprintf("%q", canonical)
	}
	return "", ""
}

// isHost tells whether s can be the host of an origin, which need not be a
// publisher's domain: "localhost" is one, and so is "foo-.example.com".
func isHost(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || strings.Trim(label, domainOctets) != "" {
			return false
		}
	}
	_, f := decodeDomain(s)
	return f != faultALabel
}

func (v *validator) methods(values []string) []string {
	methods := []string{"GET", "HEAD", "POST"}
	for i, value := range values {
		upper := strings.ToUpper(value)
		switch {
		case !isToken(value):
			v.report("Methods", i, value, "is not a method", `a name such as "PUT"`)
		case value == "*":
			v.report("Methods", i, value, "is a wildcard", "the methods that the handler has, one by one")
		case slices.Contains([]string{"CONNECT", "TRACE", "TRACK"}, upper):
			// https://fetch.spec.whatwg.org/#forbidden-method
			v.report("Methods", i, value, "is a method that browsers forbid", "to leave it out")
		case value != upper && slices.Contains([]string{"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}, upper):
			v.report("Methods", i, value, "is not in upper case", fmt.Sprintf("%q", upper))
		}
		methods = append(methods, value)
	}
	return methods
}

// In lower case, as the Fetch standard has preflights ask for them.
const (
	ampSameOrigin  = "amp-same-origin"
	ampEmailSender = "amp-email-sender"
)

// requestHeaders returns the names in lower case, and how long a list of them can
// reasonably be.
func (v *validator) requestHeaders(values []string) (names map[string]struct{}, maxOctets int) {
	names = map[string]struct{}{"content-type": {}}
	for i, value := range values {
		lower := strings.ToLower(value)
		switch {
		case !isToken(value):
			v.report("RequestHeaders", i, value, "is not a header name", `a name such as "Authorization"`)
		case value == "*":
			v.report("RequestHeaders", i, value, "is a wildcard", "the headers that the handler reads, one by one")
		case lower == ampSameOrigin:
			v.report("RequestHeaders", i, value, "is granted to own origins alone, and to these always", "to leave it out")
		case lower == ampEmailSender:
			v.report("RequestHeaders", i, value, "is what mail clients send: a page that may send it could call as any email", "to leave it out")
		case isForbiddenRequestHeader(lower):
			v.report("RequestHeaders", i, value, "is a header that no script can set, so that no browser asks for it", "to leave it out")
		}
		names[lower] = struct{}{}
	}
	// Each name once, with comma and space; as much again for odd spacing.
	maxOctets = len(ampSameOrigin)
	for name := range names {
		maxOctets += 2 * (len(name) + len(", "))
	}
	return names, maxOctets
}

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

func (v *validator) responseHeaders(values []string) string {
	if values == nil {
		return "AMP-Redirect-To"
	}
	for i, value := range values {
		switch {
		case !isToken(value):
			v.report("ResponseHeaders", i, value, "is not a header name", `a name such as "AMP-Redirect-To"`)
		case value == "*":
			v.report("ResponseHeaders", i, value, "is a wildcard", "the headers that pages need, one by one")
		case strings.EqualFold(value, "Set-Cookie"), strings.EqualFold(value, "Set-Cookie2"):
			// https://fetch.spec.whatwg.org/#forbidden-response-header-name
			v.report("ResponseHeaders", i, value, "is never exposed to scripts", "to leave it out")
		}
	}
	return strings.Join(values, ",")
}

func (v *validator) maxAge(d time.Duration) string {
	switch {
	case d < 0 || d > maxMaxAge:
		v.report("MaxAge", -1, d.String(), "is out of range", "0 to 24h")
	case d%time.Second != 0:
		v.report("MaxAge", -1, d.String(), "is not a whole number of seconds", "whole seconds, such as 10m0s")
	case d > 0:
		return fmt.Sprint(int64(d / time.Second))
	}
	return ""
}

func (v *validator) cacheSize(n int) {
	if n < 0 {
		v.report("CacheSize", -1, fmt.Sprint(n), "is negative", "a number of entries, or 0 for the default")
	}
}

func (v *validator) lookup(l Lookup) {
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"Lookup.TTL", l.TTL}, {"Lookup.RefusalTTL", l.RefusalTTL}, {"Lookup.StaleFor", l.StaleFor}, {"Lookup.Timeout", l.Timeout},
	} {
		if d.value < 0 {
			v.report(d.field, -1, d.value.String(), "is negative", "a duration such as 30s, or 0 for the default")
		}
		if d.value > maxLookup {
			v.report(d.field, -1, d.value.String(), "is too long", "720h at most")
		}
	}
	if ttl := l.withDefaults().TTL; l.StaleFor > 0 && l.StaleFor < ttl {
		v.report("Lookup.StaleFor", -1, l.StaleFor.String(), "is less than Lookup.TTL, during which a publisher gets in anyway", ttl.String()+" at least")
	}
	for _, n := range []struct {
		field string
		value int
	}{
		{"Lookup.MaxConcurrent", l.MaxConcurrent}, {"Lookup.MaxRate", l.MaxRate},
	} {
		if n.value < 0 {
			v.report(n.field, -1, fmt.Sprint(n.value), "is negative", "a number of lookups, or 0 for the default")
		}
	}
}

// isToken tells whether s is a token in HTTP's sense, RFC 9110 section 5.6.2.
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
