package ampcors

import (
	"errors"
	"runtime"
	"strconv"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// A policy is a compiled Config. Only what it remembers changes: the LRU of the allowlist, and decoded. Each
// request is decided by one policy.
type policy struct {
	cfg           Config // without its Publishers
	numPublishers int
	hosts         hosts
	list          *allowlist
	// domains that the Source confirmed, by punycode or wrapped prefix; nil without a Source
	decoded               *lru.Cache[string, string]
	origins               map[string]struct{}
	email                 *emailPolicy        // nil if AMP for Email requests are not allowed
	methods               []string            // that a preflight may ask for
	requestHeaders        map[string]struct{} // in lower case, Content-Type included
	maxRequestHeaderBytes int                 // in Access-Control-Request-Headers
	vary                  string              // to add to Vary
	varyOptions           string              // the same, in a response to OPTIONS
	exposed               string              // Access-Control-Expose-Headers, or ""
	maxAge                string              // Access-Control-Max-Age, or ""
}

// varyOptions is the Vary of a response to OPTIONS. By RFC 9110 section 9.3.7, such responses are not
// cacheable. But some shared caches are told to store them all the same.
const varyOptions = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"

// compile checks all of cfg and builds the policy that it describes.
func compile(cfg Config) (*policy, error) {
	names, patterns := newNameTable(len(cfg.Publishers)), make(map[string]struct{})
	v := validate(&cfg, func(p publisher) {
		if p.isPattern {
			patterns[strings.Clone(p.domain)] = struct{}{}
		} else {
			names.add(p.domain)
		}
		if p.index%yieldEvery == 0 {
			runtime.Gosched()
		}
	})
	if err := errors.Join(v.problems...); err != nil {
		return nil, err
	}
	names.built()
	numPublishers := len(cfg.Publishers)
	cfg.Publishers = nil // names and patterns have them
	p := &policy{
		cfg:           cfg.clone(),
		numPublishers: numPublishers,
		hosts:         v.hosts,
		list:          newAllowlist(names, patterns, recentPrefixes),
		origins:       setOf(cfg.Origins),
		methods:       append([]string{"GET", "HEAD", "POST"}, cfg.Methods...),
		vary:          "Origin",
		varyOptions:   varyOptions,
		exposed:       "AMP-Redirect-To",
	}
	if cfg.Source != nil {
		p.decoded, _ = lru.New[string, string](recentPrefixes) // the only error is a size below one
	}
	if len(cfg.Email.Senders) > 0 {
		p.email = newEmailPolicy(v.senders, cfg.Email.Clients)
		p.vary += ", AMP-Email-Sender"
		p.varyOptions += ", AMP-Email-Sender"
	}
	if cfg.ResponseHeaders != nil {
		p.exposed = strings.Join(cfg.ResponseHeaders, ",")
	}
	if cfg.MaxAge > 0 {
		p.maxAge = strconv.FormatInt(int64(cfg.MaxAge/time.Second), 10)
	}
	p.requestHeaders = map[string]struct{}{"content-type": {}}
	for _, name := range cfg.RequestHeaders {
		p.requestHeaders[strings.ToLower(name)] = struct{}{}
	}
	// Room for each name once, with comma and space, and the same again for extra spaces.
	p.maxRequestHeaderBytes = len(ampSameOrigin)
	for name := range p.requestHeaders {
		p.maxRequestHeaderBytes += 2 * (len(name) + len(", "))
	}
	return p, nil
}
