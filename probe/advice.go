package probe

import (
	"embed"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/ampcors/ampcors/cacheurl"
)

// A policy is what a backend should do: allow pages at these origins, for these methods and headers, and
// deny all others.
type policy struct {
	Publishers  []string
	Origins     []string // of the publishers' pages
	MoreMethods []string // beyond GET, HEAD and POST
	MoreHeaders []string // beyond Content-Type

	Caches       []cacheurl.Cache
	Credentialed bool
	ExposedNames []string // Access-Control-Expose-Headers
	MaxAge       int64    // of preflights, in seconds; 0 if none is sent
}

// HasDefaultCaches reports whether the trusted caches are the default ones.
func (p policy) HasDefaultCaches() bool { return slices.Equal(p.Caches, cacheurl.DefaultCaches()) }

// Exposed returns the value of Access-Control-Expose-Headers.
func (p policy) Exposed() string { return strings.Join(p.ExposedNames, ", ") }

// Methods returns the value of Access-Control-Allow-Methods.
func (p policy) Methods() string {
	return strings.Join(append([]string{"GET", "POST"}, p.MoreMethods...), ", ")
}

// Headers returns the value of Access-Control-Allow-Headers.
func (p policy) Headers() string {
	return strings.Join(append([]string{"Content-Type"}, p.MoreHeaders...), ", ")
}

// Pattern returns a regular expression of the origins, without anchors.
func (p policy) Pattern() string {
	var alternatives []string
	for _, origin := range p.Origins {
		alternatives = append(alternatives, regexp.QuoteMeta(origin))
	}
	return strings.Join(alternatives, "|")
}

// A Snippet is what to remove and to add to make a server follow a policy. A publisher has
// several origins on the default caches: for many publishers, put ampcors in front.
type Snippet struct {
	Server string `json:"server"` // such as "nginx"
	Text   string `json:"text"`
}

//go:embed dialects
var dialectFiles embed.FS

var dialects = template.Must(template.ParseFS(dialectFiles, "dialects/*.tmpl"))

// exposed are the headers of a response that AMP's runtime reads.
var exposed = []string{"AMP-Redirect-To"}

// Servers are the servers and languages for which there are snippets.
func Servers() []string {
	return []string{"nginx", "Apache", "Caddy", "HAProxy", "Express", "PHP", "WordPress", "Django", "Go"}
}

// snippets returns a snippet for each of the Servers.
func snippets(p policy) (all []Snippet) {
	for _, server := range Servers() {
		var b strings.Builder
		if err := dialects.ExecuteTemplate(&b, server+".tmpl", p); err != nil {
			panic(err) // a template is wrong
		}
		all = append(all, Snippet{server, b.String()})
	}
	return all
}

// AdviceConfig is the configuration that a server should have. Its fields are as in ampcors.Config,
// but nil Caches are none.
type AdviceConfig struct {
	Publishers      []string // domains, and no patterns
	Caches          []cacheurl.Cache
	Credentialed    bool
	Methods         []string // beyond GET, HEAD and POST
	RequestHeaders  []string // beyond Content-Type
	ResponseHeaders []string // if nil, AMP-Redirect-To, which the AMP runtime reads
	MaxAge          time.Duration
}

// Advice returns the snippets for the pages of publishers, without a probe.
func Advice(cfg AdviceConfig) ([]Snippet, error) {
	p := policy{
		MoreMethods: cfg.Methods, MoreHeaders: cfg.RequestHeaders, Caches: cfg.Caches, Credentialed: cfg.Credentialed,
		ExposedNames: cfg.ResponseHeaders, MaxAge: int64(cfg.MaxAge / time.Second),
	}
	if cfg.ResponseHeaders == nil {
		p.ExposedNames = exposed
	}
	for _, publisher := range cfg.Publishers {
		domain, err := cacheurl.CanonicalDomain(publisher)
		if err != nil {
			return nil, err
		}
		origins, err := Origins(domain, cfg.Caches...)
		if err != nil {
			return nil, err
		}
		p.Publishers = append(p.Publishers, domain)
		for _, origin := range origins {
			if !slices.Contains(p.Origins, origin) {
				p.Origins = append(p.Origins, origin)
			}
		}
	}
	return snippets(p), nil
}

// newPolicy returns the policy that the backend should follow, as far as the probe knows it.
func (p *prober) newPolicy() policy {
	found := policy{Origins: p.origins(), Caches: p.cfg.Caches, Credentialed: true, ExposedNames: exposed}
	add := func(list *[]string, value string) {
		if !slices.Contains(*list, value) {
			*list = append(*list, value)
		}
	}
	for _, pair := range p.pairs {
		if pair.sender == "" {
			add(&found.Publishers, pair.publisher)
		}
	}
	for _, e := range p.report.Endpoints {
		if e.Method != http.MethodGet && e.Method != http.MethodHead && e.Method != http.MethodPost {
			add(&found.MoreMethods, e.Method)
		}
	}
	for name := range p.cfg.PageHeader {
		add(&found.MoreHeaders, name)
	}
	slices.Sort(found.MoreHeaders)
	return found
}
