// Package probe tests from outside whether a backend answers the requests of a publisher's
// AMP pages on every AMP Cache, and denies the requests of all other pages. It makes the
// requests that the AMP runtime makes, and judges the answers as a browser does, by the
// Fetch standard. The backend may be written in any language.
//
// It sends GET, HEAD and OPTIONS, and other methods only with [Config.Unsafe]. It calls
// only the hosts of [Config.AllowHosts].
package probe

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
)

// Config says what is tested, and how.
type Config struct {
	// Document is the URL of an AMP document. The endpoints in it are tested. If empty,
	// only Endpoints are tested. If it is a URL on an AMP Cache, the publisher's document
	// is fetched.
	Document string
	// Endpoints are tested in addition to those of Document.
	Endpoints []Endpoint
	// Publishers are the domains whose pages must work. If empty, the host of Document is
	// used.
	Publishers []string
	// Caches are the AMP Caches on which pages must work. If nil, ampcors.DefaultCaches() are
	// used.
	Caches []ampcors.Cache

	// Header is sent with each request. Cookie is sent with each request with credentials.
	// No report has their values.
	Header http.Header
	Cookie string

	// Unsafe allows methods other than GET, HEAD and OPTIONS. They may change data.
	Unsafe bool
	// AllowHosts are the hosts that may be called, with the port if the URL has one. If
	// nil, the hosts of Document, of Endpoints, and of the endpoints in the document are
	// used.
	AllowHosts []string
	// Resolve maps a host name to the address to connect to, an IP address with a port.
	Resolve map[string]string
	// Insecure accepts any certificate.
	Insecure bool

	Rate        float64       // requests per second. If zero, there is no limit.
	Timeout     time.Duration // of a request, its answer included. If zero, 10 seconds is used.
	MaxTime     time.Duration // of the whole probe. If zero, 5 minutes is used.
	MaxRequests int           // of the whole probe. If zero, 5000 is used.

	// Progress is called before each endpoint, if it is not nil.
	Progress func(done, total int, endpoint string)
}

// A Report is the result of a probe.
type Report struct {
	Target    string     `json:"target"` // the document, or the first endpoint
	Endpoints []Endpoint `json:"endpoints"`
	Unknown   []Unknown  `json:"unknown"`  // parts of the document with a URL that only the browser knows
	Untested  []Untested `json:"untested"` // tests that could not be made, and why
	Notes     []string   `json:"notes"`    // other problems, which break pages but are not CORS
	Pages     []Page     `json:"pages"`    // the results of the requests of the publishers' pages
	Findings  []Finding  `json:"findings"`
	Snippets  []Snippet  `json:"snippets"` // for common servers, if a page does not work
	Summary   Summary    `json:"summary"`
}

// A Page is an origin at which a publisher's page runs, and whether it can call an endpoint.
type Page struct {
	Endpoint string `json:"endpoint"`
	Origin   string `json:"origin"`
	Form     string `json:"form"` // of the origin: own origin, or readable, punycode or hash prefix
	Works    bool   `json:"works"`
	Why      string `json:"why,omitempty"` // why a browser blocks the request
}

// An Untested is a test that could not be made.
type Untested struct {
	Endpoint string `json:"endpoint"`
	Reason   string `json:"reason"`
	Failed   bool   `json:"failed"` // it was tried; otherwise the configuration does not allow it
}

// ErrConfig is what the errors of a wrong [Config] wrap.
var ErrConfig = errors.New("probe: the configuration is wrong")

func configError(err error) error { return fmt.Errorf("%w: %w", ErrConfig, err) }

// A Summary has the counts of a report.
type Summary struct {
	Endpoints int `json:"endpoints"`
	Untested  int `json:"untested"` // tests, not endpoints
	Requests  int `json:"requests"`
	High      int `json:"high"`
	Medium    int `json:"medium"`
	Low       int `json:"low"`
}

// Run tests the endpoints. It returns an error if there is nothing to test, because the
// configuration is invalid or the document cannot be fetched. Problems of endpoints are in
// the report.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, 10*time.Second)
	cfg.MaxTime = cmp.Or(cfg.MaxTime, 5*time.Minute)
	cfg.MaxRequests = cmp.Or(cfg.MaxRequests, 5000)
	if cfg.Caches == nil {
		cfg.Caches = ampcors.DefaultCaches()
	}
	if len(cfg.Caches) == 0 {
		return nil, configError(errors.New("there is no AMP Cache"))
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.MaxTime)
	defer cancel()
	p := &prober{cfg: cfg, report: &Report{Endpoints: slices.Clone(cfg.Endpoints), Unknown: []Unknown{}, Untested: []Untested{}, Notes: []string{}, Pages: []Page{}, Findings: []Finding{}, Snippets: []Snippet{}}}
	if err := p.prepare(ctx); err != nil {
		return nil, err
	}
	for i := range p.report.Endpoints {
		e := &p.report.Endpoints[i]
		if cfg.Progress != nil {
			cfg.Progress(i, len(p.report.Endpoints), e.URL)
		}
		for _, publisher := range p.publishers {
			p.endpoint(ctx, e, publisher)
		}
	}
	p.finish()
	return p.report, nil
}

// A prober runs one probe.
type prober struct {
	cfg        Config
	client     *client
	publishers []string
	publisher  string // whose document it is
	report     *Report
}

// prepare fetches the document, and finds publishers and endpoints.
func (p *prober) prepare(ctx context.Context) error {
	var document *url.URL
	hosts, isGiven := p.cfg.AllowHosts, p.cfg.AllowHosts != nil
	if p.cfg.Document != "" {
		source := p.cfg.Document
		if u, err := cacheurl.Parse(source, p.cfg.Caches...); err == nil {
			source = u.Publisher
		}
		var err error
		if document, err = webURL(source); err != nil {
			return configError(err)
		}
		p.report.Target = document.String()
	}
	for i := range p.report.Endpoints {
		u, err := webURL(p.report.Endpoints[i].URL)
		if err != nil {
			return configError(err)
		}
		u.Fragment = ""
		p.report.Endpoints[i].URL = u.String()
		p.report.Target = cmp.Or(p.report.Target, u.String())
		if !isGiven {
			hosts = append(hosts, u.Host)
		}
	}
	if document != nil && !isGiven {
		hosts = append(hosts, document.Host)
	}
	p.cfg.AllowHosts = hosts
	p.client = newClient(p.cfg)
	for i := range p.report.Endpoints {
		p.trust(p.report.Endpoints[i].URL)
	}
	if document != nil {
		p.trust(document.String())
	}
	if isGiven {
		for _, host := range p.cfg.AllowHosts {
			p.trust("https://" + host)
		}
	}
	if document != nil {
		if err := p.fetchDocument(ctx, document, isGiven); err != nil {
			return fmt.Errorf("the document %s: %w", document, err)
		}
	}
	publishers := p.cfg.Publishers
	if len(publishers) == 0 && p.publisher != "" {
		publishers = []string{p.publisher}
	}
	for _, publisher := range publishers {
		domain, err := ampcors.CanonicalDomain(publisher)
		if err != nil {
			return configError(err)
		}
		p.publishers = append(p.publishers, domain)
	}
	switch {
	case len(p.publishers) == 0:
		return errors.New("there is no publisher; name the domain whose pages call the endpoints")
	case len(p.report.Endpoints) == 0 && len(p.report.Unknown) == 0:
		return errors.New("the document has no endpoint")
	}
	return nil
}

// fetchDocument adds the endpoints of the document, and allows their hosts unless the hosts are
// given.
func (p *prober) fetchDocument(ctx context.Context, document *url.URL, hostsGiven bool) error {
	f := p.client.fetch(ctx, request{method: http.MethodGet, url: document.String(), header: http.Header{"Accept": {"text/html"}}, limit: maxDocument})
	if err := cmp.Or(f.err, f.blocked); err != nil {
		return err
	}
	if f.response.Status != http.StatusOK {
		return fmt.Errorf("the status is %d", f.response.Status)
	}
	base, err := url.Parse(f.url)
	if err != nil {
		return err
	}
	endpoints, unknown, err := FindEndpoints(bytes.NewReader(f.response.Body), base)
	if err != nil {
		return err
	}
	p.publisher = base.Hostname()
	p.report.Unknown = append(p.report.Unknown, unknown...)
	for _, e := range endpoints {
		if u, err := url.Parse(e.URL); err == nil && !hostsGiven {
			p.client.allowed[strings.ToLower(u.Host)] = true
		}
	}
	p.report.Endpoints = append(p.report.Endpoints, endpoints...)
	return nil
}

// trust lets header and cookie be sent to the origin of a URL.
func (p *prober) trust(value string) {
	if u, err := url.Parse(value); err == nil {
		p.client.trusted[originOf(u)] = true
	}
}

func webURL(value string) (*url.URL, error) {
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("%.200q is not the URL of a web server", value)
	}
	if u.User != nil {
		return nil, errors.New("the URL has user information; use a header")
	}
	return u, nil
}

// finish sorts the findings, and adds the summary and the snippets.
func (p *prober) finish() {
	r := p.report
	p.removeSecrets()
	order := make(map[string]int)
	for i, k := range kinds {
		order[k.id] = i
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(slices.Index(severities, b.Severity)-slices.Index(severities, a.Severity), cmp.Compare(a.Endpoint, b.Endpoint), order[a.ID]-order[b.ID])
	})
	slices.Sort(r.Notes)
	r.Notes = slices.Compact(r.Notes)
	r.Summary = Summary{Endpoints: len(r.Endpoints), Untested: len(r.Untested), Requests: p.cfg.MaxRequests - p.client.left}
	if slices.ContainsFunc(r.Pages, func(pg Page) bool { return !pg.Works }) {
		r.Snippets = Snippets(p.origins())
	}
	for _, f := range r.Findings {
		switch f.Severity {
		case High:
			r.Summary.High++
		case Medium:
			r.Summary.Medium++
		case Low:
			r.Summary.Low++
		}
	}
}

// origins returns every origin of the publishers' pages.
func (p *prober) origins() (origins []string) {
	for _, publisher := range p.publishers {
		pages, err := pagesOf(publisher, p.cfg.Caches)
		if err != nil {
			continue // reported in Untested
		}
		for _, pg := range pages {
			origins = append(origins, pg.origin)
		}
	}
	return origins
}

// removeSecrets removes the user's own header values and cookies from what servers may have
// repeated.
func (p *prober) removeSecrets() {
	var secrets []string
	add := func(value string) {
		if len(value) >= 4 { // shorter ones are no secrets, and would hide what is not one
			secrets = append(secrets, value, "…", url.QueryEscape(value), "…", url.PathEscape(value), "…")
		}
	}
	for _, values := range p.cfg.Header {
		for _, value := range values {
			add(value)
			for word := range strings.FieldsSeq(value) {
				add(word)
			}
		}
	}
	for pair := range strings.SplitSeq(p.cfg.Cookie, ";") {
		_, value, _ := strings.Cut(pair, "=")
		add(strings.TrimSpace(value))
	}
	if len(secrets) == 0 {
		return
	}
	clean := strings.NewReplacer(secrets...)
	for i := range p.report.Findings {
		f := &p.report.Findings[i]
		f.Evidence = clean.Replace(f.Evidence)
	}
	for i := range p.report.Pages {
		p.report.Pages[i].Why = clean.Replace(p.report.Pages[i].Why)
	}
	for i := range p.report.Untested {
		p.report.Untested[i].Reason = clean.Replace(p.report.Untested[i].Reason)
	}
}
