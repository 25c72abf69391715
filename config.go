package ampcors

import (
	"net/http"
	"slices"
	"time"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/source"
)

// Config lists the callers that are allowed, and what they may do. Its zero value allows nothing and is an
// error: there is no "allow all". [New] and [Middleware.Reconfigure] check the whole Config and report every
// problem at once, each as a *[badvalue.Error].
//
// Nothing is trimmed, ignored or corrected: a value is either used as the field's comment says, or it is an
// error.
//
// The JSON names are as in package configfile.
type Config struct {
	_ [0]func() // so that fields must be named, and a Config is never compared

	// Publishers are the domains whose pages may call: pages at the domain itself (its own origin), and its AMP pages
	// on any of the Caches. Each is one domain, such as "www.example.com" or "bücher.example", or a pattern:
	// "*.example.com" matches every domain below example.com, at any depth, but not example.com itself. Use a pattern
	// only if all subdomains are yours. It matches no hash prefix: if a domain's prefix would have more than 63
	// bytes, list that domain, too.
	//
	// Case does not matter, and "xn--bcher-kva.example" is "bücher.example". Schemes, ports, paths, IP addresses,
	// trailing dots, single labels, labels that begin or end with a hyphen, and "*" in any other place are
	// prohibited. A single label after "*." counts as a public suffix.
	//
	// A pattern over a public suffix, such as "*.com" or "*.github.io", allows everybody who can register a name
	// there. It is prohibited unless DangerouslyAllowPublicSuffixWildcards is set, even without Credentialed: a
	// simple POST has cookies in any case. A pattern over "amazonaws.com" is accepted: that is no public
	// suffix, but has some below it, such as "s3.amazonaws.com". A pattern that is not over a public suffix is
	// prohibited if it matches a host of an AMP Cache or of its third-party frames: anybody's page can be there.
	//
	// If a pattern matches names that mix directions of writing, have an underscore, or have "--" at positions 3 and
	// 4 of a label that is no A-label, list these names, too: some implementations hash them.
	Publishers []string `json:"publishers,omitempty"`

	// Caches are the AMP Caches to trust. If missing, those of AMP's registry are trusted. An empty list, which is not
	// nil in Go, trusts none: use it if your customers' pages call without AMP. Do not list a former cache: whoever
	// owns its domain can serve any page under any publisher's prefix.
	Caches []cacheurl.Cache `json:"caches,omitzero"`

	// Origins are further origins that may call, compared byte by byte, such as
	// "https://playground.amp.dev" or "http://localhost:8080".
	//
	// They have a scheme (http or https), a host in lower-case ASCII, and a port only if it is not the scheme's
	// default. Prohibited are: "null"; "*"; anything after the host and port, such as a slash; the bare domains of
	// AMP Caches and of their third-party frames; and more than 267 bytes.
	Origins []string `json:"origins,omitempty"`

	// Email allows AMP for Email requests, with or without publishers. If missing, they are decided like all others.
	Email Email `json:"email,omitzero"`

	// Credentialed sends Access-Control-Allow-Credentials: pages may then read responses to requests with
	// cookies.
	//
	// Browsers send cookies with a simple POST, such as a form, without it too. Whether such a
	// POST reaches the handler depends on Publishers, Source and Origins, and not on Credentialed.
	Credentialed bool `json:"credentialed,omitempty"`

	// Methods are those that a preflight may ask for beyond GET, HEAD and POST, such as "PUT". Case matters, as in
	// HTTP: standard methods are in upper case.
	//
	// "*" and the methods that the Fetch standard forbids (CONNECT,
	// TRACE and TRACK) are prohibited.
	Methods []string `json:"methods,omitempty"`

	// RequestHeaders are those that a preflight may ask for beyond Content-Type. Upper and lower case do not
	// matter.
	//
	// Prohibited: "*"; names that browsers never ask for because scripts cannot set them; AMP-Same-Origin,
	// which is granted only to own origins; and AMP-Email-Sender, which is for mail clients.
	RequestHeaders []string `json:"requestHeaders,omitempty"`

	// ResponseHeaders are those that the page's script may read beyond the ones that CORS always exposes. If
	// missing, AMP-Redirect-To is exposed, which amp-form needs; an empty list exposes none.
	//
	// "*", Set-Cookie and Set-Cookie2 are prohibited.
	ResponseHeaders []string `json:"responseHeaders,omitzero"`

	// MaxAge is how long a browser may remember a preflight: whole seconds, at most 24 hours, which is Firefox's
	// limit (Chromium's is 2 hours). If zero, no Access-Control-Max-Age is sent, and browsers use 5 seconds.
	MaxAge time.Duration `json:"maxAge,omitzero"`

	// ReportOnly denies nothing: a request that would be denied, even a preflight, goes on to the handler, with no
	// CORS header added or removed (nginx.conf of package authz still changes responses). While it is set, this
	// package stops no forged request. Use it for a trial run in front of what protects the handler today.
	//
	// Observe and Stats show what would have happened. Allowed requests, preflights too, get the usual response, so
	// Credentialed, Methods and the headers must be as in the middleware that protects the handler.
	ReportOnly bool `json:"reportOnly,omitempty"`

	// Denied responds to a denied request. It gets the decision, and must write the status:
	// Decision.StatusCode returns 403, or 503 if the Source could not answer. Vary, Cache-Control:
	// no-store and, with 503, Retry-After are already set. If nil, the response is the reason in one line.
	Denied func(http.ResponseWriter, *http.Request, Decision) `json:"-"`

	// Observe is called with the decision on each request that Handle, Wrap or WrapDecision gets, before anything
	// is written. It must be safe for concurrent use by multiple goroutines. The strings in the Decision are valid
	// at least as long as the request.
	Observe func(*http.Request, Decision) `json:"-"`

	// Source knows further publishers, such as those in a database. The program makes it, closes it, and
	// can give it to several Middlewares. It is asked about publisher domains and hash prefixes that
	// Publishers does not cover, after the origin has been read and checked. It is also asked about values
	// in Origins, because they may be a publisher's. It is not asked about the API host's own pages. If it
	// fails, a request gets status 503 and Retry-After, unless the publisher was confirmed within
	// source.Config.MaxStale, or the Origin is in Origins.
	Source *source.Source `json:"-"`

	// DangerouslyAllowAmbiguousPrefixes accepts a prefix that names a publisher as punycode, although AMP's
	// implementations give the same prefix to another host. The owner of that host can then call in the publisher's
	// name from its pages on an AMP Cache. Set it only if you own each such host. Until it is set, "ampcors check",
	// or Warnings in Go, names such hosts for listed domains, not for patterns or a Source.
	DangerouslyAllowAmbiguousPrefixes bool `json:"dangerouslyAllowAmbiguousPrefixes,omitempty"`

	// DangerouslyAllowHTTPOwnOrigins also accepts own origins with http. Anybody on the network between a
	// reader and such a page can then call in its name.
	//
	// Without it, the copy of an http page on an AMP
	// Cache is still accepted, because it has the same cache origin as the https page.
	DangerouslyAllowHTTPOwnOrigins bool `json:"dangerouslyAllowHTTPOwnOrigins,omitempty"`

	// DangerouslyAllowPublicSuffixWildcards allows a pattern in Publishers over a whole public suffix. It is for
	// platforms that own the suffix and want to allow all of their customers.
	DangerouslyAllowPublicSuffixWildcards bool `json:"dangerouslyAllowPublicSuffixWildcards,omitempty"`

	// DangerouslyAllowUnsafeRequestsWithoutOrigin allows requests with a method other than GET, HEAD or OPTIONS
	// without Origin, whatever their AMP-Same-Origin is. Programs send such requests. An old browser may also send
	// them, and any site can make it do so.
	DangerouslyAllowUnsafeRequestsWithoutOrigin bool `json:"dangerouslyAllowUnsafeRequestsWithoutOrigin,omitempty"`
}

// clone returns a copy that shares no mutable memory with cfg, except Publishers.
func (cfg Config) clone() Config {
	cfg.Caches = slices.Clone(cfg.Caches)
	cfg.Origins = slices.Clone(cfg.Origins)
	cfg.Email.Senders = slices.Clone(cfg.Email.Senders)
	cfg.Email.Clients = slices.Clone(cfg.Email.Clients)
	cfg.Methods = slices.Clone(cfg.Methods)
	cfg.RequestHeaders = slices.Clone(cfg.RequestHeaders)
	cfg.ResponseHeaders = slices.Clone(cfg.ResponseHeaders)
	return cfg
}
