// Package probe tests from outside whether a backend answers the requests of a publisher's
// AMP pages on every AMP Cache, and denies the requests of all other pages. It makes the
// requests that the AMP runtime makes, and judges the answers as a browser does, by the
// Fetch standard. The backend may be written in any language.
//
// It sends GET, HEAD and OPTIONS, and other methods only with [Config.Unsafe]. It calls
// only the hosts of the documents and of the endpoints, see [Config.AllowHosts].
//
// A probe is a plan of trials, see [Trial]. Between the trials, it repeats a request that is
// known to be answered. If the answer changes, for example because the backend limits requests,
// the trials since the last good answer are reported as not tested, and not as fine.
//
// # What it does
//
// It makes look-alikes of the publisher's host, and of its prefix on each cache, for each common mistake in
// comparing origins: a dot that is not escaped, strip, replace, includes, only the beginning or the end, an
// optional part, accents that are ignored. It calls a GET endpoint as different browsers do: two phones, browsers
// without Referer or Sec-Fetch-Site, two pages at one time, and one that revalidates its copy; with Config.Cookie,
// also without the cookie.
//
// If a browser blocks the publisher's pages and each of them gets the same answer, a cache in front of the backend
// may have kept it. The probe then sends a preflight, which caches do not answer. If that is granted, or the pages'
// answer has a cache's header, it looks again a second later, with the same URL and with a new one. The finding
// cached-wrong-origin has the evidence.
//
// It names itself ampcors-probe in one request for each GET endpoint, because some backends treat browsers differently.
//
// # What it cannot see from outside
//
//   - a mistake of one server among several that answer in turn, unless chance shows it;
//   - a pattern that allows other customers of your hosting, unless that is vercel.app, netlify.app or pages.dev;
//   - what a handler did with a request that was answered 403, and a handler of POST that also runs for GET;
//   - a page that must be allowed at an origin that nobody named;
//   - access that any page gets by other means than Origin, Referer, User-Agent and AMP's headers: by Accept, by
//     X-Requested-With after a preflight that grants it, by another spelling of the path, by JSONP;
//   - what depends on a language, device, cookie or body that it does not send;
//   - a cache whose key is only the path, that drops Vary, and that sends neither Age nor another header of a cache: if
//     the answers look like this, a note says that a cache may be in front of the backend;
//   - a missing Vary on just one of several redirects; a cache that stores only responses to readers without a cookie;
//     zstd, which it does not decode.
//
// A denial that closes the connection counts as not tested. An API that answers everybody the same may be open by
// design.
package probe

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ampcors/ampcors/cacheurl"
)

// Config configures a probe.
type Config struct {
	// Documents are the URLs of AMP documents. The endpoints in them are tested, each once. For
	// a URL on an AMP Cache, the publisher's document is fetched.
	Documents []string
	// FoundDocuments are further documents, which a server has named, such as in a sitemap. Header and Cookie are not sent
	// to their origins, unless Documents or Endpoints have them as well.
	FoundDocuments []string
	// Emails are AMP emails, which have no URL. The endpoints in them are tested for Senders.
	Emails []Email
	// Endpoints are tested for Publishers and Senders, in addition to the endpoints of Documents and Emails.
	Endpoints []Endpoint
	// Publishers are the domains whose pages must work. If empty, the host of each document is
	// used for the endpoints in it.
	Publishers []string
	// Senders are the addresses whose emails must work: with the endpoints of Emails and of Documents that are AMP
	// emails, and with Endpoints.
	Senders []string
	// MailClients are the origins of the mail clients at which emails must work with version 1 of the protocol. If nil,
	// https://mail.google.com is used.
	MailClients []string
	// Caches are the AMP Caches on which pages must work. If nil, cacheurl.DefaultCaches() are used. If
	// empty, no cache is trusted, as for tenants without AMP: publishers' pages run at their own origins
	// alone, and it is still tested that pages on the default caches are denied.
	Caches []cacheurl.Cache

	// Only the origins of Documents and Endpoints get Header and Cookie: Header in each request (but no Authorization
	// or Cookie header in preflights), Cookie in each request with credentials. The report names the origins that got
	// them, not the values.
	Header http.Header
	Cookie string

	// Unsafe allows methods other than GET, HEAD and OPTIONS. They may change data.
	Unsafe bool
	// AllowHosts are hosts that may be called in addition to the hosts of Documents, of Endpoints, and of
	// the endpoints in documents; with the port if the URL has one. Redirects may lead there. Header and
	// Cookie are not sent there.
	AllowHosts []string
	// OnlyHosts are the only hosts that are called, if it is not nil.
	OnlyHosts []string
	// Resolve maps a host and port, such as "www.example.com:443", to the address to connect to.
	Resolve map[string]string
	// Insecure accepts any certificate.
	Insecure bool

	Rate    float64       // requests per second. If zero, DefaultRate is used; math.Inf(1) is no limit.
	Timeout time.Duration // of a request, its answer included. If zero, 10 seconds is used.
	// limit of the whole probe. If zero: 5 minutes for documents, and then 5 minutes for trials, or three times what
	// these take at Rate, if that is longer.
	MaxTime      time.Duration
	MaxAnswer    int64 // bytes of an answer. If zero, 1 MiB is used.
	MaxEndpoints int   // of each document. If zero, 200 is used.

	// PageHeader are headers that the publisher's pages add to their requests. Browsers ask for
	// them in preflights.
	PageHeader http.Header

	// Started is called before the first trial is sent, if it is not nil.
	Started func(Estimate)
	// Progress is called after each trial, if it is not nil, with how many trials have an outcome, and how
	// many trials there are. It is not called at the same time from several goroutines.
	Progress func(done, total int, endpoint string)
}

// An Email is the HTML part of an AMP email.
type Email struct {
	Name string // in the report, such as the name of a file
	HTML []byte
}

// An Estimate counts the trials and requests if the backend has no mistakes. Preflights before requests are not
// counted.
type Estimate struct {
	Trials   int           `json:"trials"`
	Requests int           `json:"requests"`
	Time     time.Duration `json:"-"` // at least, by Config.Rate; 0 without a limit
}

// A Report is the result of a probe.
type Report struct {
	Target    string     `json:"target"` // the document, the first endpoint, or the first email's name
	Date      time.Time  `json:"date"`
	Estimate  Estimate   `json:"estimate"`
	Endpoints []Endpoint `json:"endpoints"`
	Trials    []Trial    `json:"trials"`   // the plan, with an outcome for each
	Unknown   []Unknown  `json:"unknown"`  // parts of the document with a URL that only the browser knows
	Untested  []Untested `json:"untested"` // why trials were not tested, and how many
	// what else the reader of the report should know, such as problems that are not CORS
	Notes    []string  `json:"notes"`
	More     []string  `json:"more"` // which flags would test more
	Findings []Finding `json:"findings"`
	Snippets []Snippet `json:"snippets"` // for common servers, if a finding is about the CORS headers that the backend sends
	Summary  Summary   `json:"summary"`
}

// An Untested is a reason why trials were not tested.
type Untested struct {
	Endpoint string `json:"endpoint"`
	Reason   string `json:"reason"`
	Trials   int    `json:"trials"` // how many; 0 if no trial was planned
	Failed   bool   `json:"failed"` // false if the method needs Config.Unsafe, or if the answer does not matter
}

// DefaultRate is the limit of requests per second if none is given: 50 endpoints that answer in 20 ms take half a
// minute. With up to ten requests at once, slower backends get fewer.
const DefaultRate = 300

// A Summary has the counts of a report. After Run, Planned is the sum of Fine, Problems and NotTested.
type Summary struct {
	Endpoints int `json:"endpoints"`
	Planned   int `json:"planned"` // trials
	Fine      int `json:"fine"`
	Problems  int `json:"problems"`
	NotTested int `json:"notTested"`
	Requests  int `json:"requests"`
	Controls  int `json:"controls"` // repeated requests of the publisher's page or another site
	High      int `json:"high"`
	Medium    int `json:"medium"`
	Low       int `json:"low"`
}

// Run tests the endpoints. An error is about the Config. A document that cannot be fetched, and
// problems of endpoints, are in the report.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	return run(ctx, cfg, true)
}

// Plan returns a report with the trials that Run would send, and sends none of them. It only fetches the document.
// Run leaves out trials at the target of a redirect if nothing redirects.
func Plan(ctx context.Context, cfg Config) (*Report, error) {
	return run(ctx, cfg, false)
}

// hostileCaches are the caches on which pages of others are tried.
func (p *prober) hostileCaches() []cacheurl.Cache {
	if len(p.cfg.Caches) > 0 {
		return p.cfg.Caches
	}
	return cacheurl.DefaultCaches()
}

func run(ctx context.Context, cfg Config, sends bool) (*Report, error) {
	if cfg.Rate < 0 || math.IsNaN(cfg.Rate) {
		return nil, fmt.Errorf("the rate is %v; want requests per second", cfg.Rate)
	}
	cfg.Rate, cfg.Timeout = cmp.Or(cfg.Rate, DefaultRate), cmp.Or(cfg.Timeout, 10*time.Second)
	cfg.MaxEndpoints = cmp.Or(cfg.MaxEndpoints, 200)
	if cfg.Caches == nil {
		cfg.Caches = cacheurl.DefaultCaches()
	}
	// The documents have the same time as the trials by default: how many trials there are is not known yet.
	preparing, cancel := context.WithTimeout(ctx, cmp.Or(cfg.MaxTime, defaultMaxTime))
	defer cancel()
	begun := time.Now()
	p := &prober{cfg: cfg, counts: make(map[Untested]int),
		report: &Report{Date: begun.UTC().Truncate(time.Second), Endpoints: []Endpoint{}, Trials: []Trial{},
			Unknown:  []Unknown{},
			Untested: []Untested{}, Notes: []string{},
			Findings: []Finding{}, Snippets: []Snippet{}}}
	err := p.prepare(preparing)
	if p.client != nil {
		defer p.client.http.CloseIdleConnections()
	}
	if err != nil {
		return nil, err
	}
	var cells []*cell
	for _, pair := range p.pairs {
		c, err := p.plan(&p.report.Endpoints[pair.endpoint], pair.subject)
		if err != nil {
			return nil, err
		}
		cells = append(cells, c)
	}
	for _, c := range cells {
		e := c.estimate()
		p.report.Estimate.Trials += e.Trials
		p.report.Estimate.Requests += e.Requests
	}
	if !math.IsInf(cfg.Rate, 1) {
		p.report.Estimate.Time = time.Duration(float64(p.report.Estimate.Requests) / cfg.Rate * float64(time.Second))
	}
	if sends {
		if cfg.Started != nil {
			cfg.Started(p.report.Estimate)
		}
		most := cfg.MaxTime - time.Since(begun)
		if cfg.MaxTime == 0 {
			most = max(defaultMaxTime, 3*p.report.Estimate.Time)
		}
		sending, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		p.send(sending, cells, p.report.Estimate.Trials)
	}
	p.finish(cells)
	return p.report, nil
}

const defaultMaxTime = 5 * time.Minute

// send sends and judges the trials, of several endpoints at once.
func (p *prober) send(ctx context.Context, cells []*cell, total int) {
	var mu sync.Mutex
	done := 0
	progress := func(t *trial) {
		mu.Lock()
		defer mu.Unlock()
		if t.shape.toRedirect {
			return // it is not in the total
		}
		if done++; p.cfg.Progress != nil {
			p.cfg.Progress(done, total, t.Endpoint)
		}
	}
	slots := make(chan struct{}, sideBySide)
	var wait sync.WaitGroup
	for _, c := range cells {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			c.run(ctx, progress)
			c.judge()
		})
	}
	wait.Wait()
}

// A prober runs one probe.
type prober struct {
	cfg    Config
	client *client
	pairs  []pair
	report *Report
	policy policy
	counts map[Untested]int // the index of each reason in report.Untested
}

// finish makes the report of the cells.
func (p *prober) finish(cells []*cell) {
	r := p.report
	p.policy = p.newPolicy()
	s := &r.Summary
	for _, c := range cells {
		c.e.Tested = c.e.Tested || c.tested
		for _, t := range c.trials {
			r.Trials = append(r.Trials, t.Trial)
			s.Planned++
			switch t.Outcome {
			case Fine:
				s.Fine++
			case Problem:
				s.Problems++
			case NotTested:
				s.NotTested++
				p.untested(t.Endpoint, t.Reason, !t.ByChoice, 1)
			}
		}
		r.Findings = append(r.Findings, c.findings()...)
		r.Notes = append(r.Notes, c.notes...)
		s.Controls += c.requests
	}
	if origins := p.client.gotSecrets(); len(origins) > 0 {
		r.Notes = append(r.Notes, "Your headers and cookies were sent to "+strings.Join(origins, ", ")+
			", and to no other host.")
	}
	if note := p.client.limit.Load(); note != nil {
		r.Notes = append(r.Notes, *note)
	}
	p.removeSecrets()
	order := make(map[ID]int)
	for i, r := range rules {
		order[r.id] = i
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(slices.Index(severities, b.Severity)-slices.Index(severities, a.Severity),
			cmp.Compare(a.Endpoint, b.Endpoint),
			order[a.ID]-order[b.ID])
	})
	slices.Sort(r.Notes)
	r.Notes = slices.Compact(r.Notes)
	s.Endpoints, s.Requests = len(r.Endpoints), int(p.client.sent.Load())
	hasAdvice := slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Sender == "" && !f.isElsewhere })
	switch isOurs := slices.ContainsFunc(cells, (*cell).hasAmpcors); {
	case hasAdvice && isOurs:
		r.Notes = append(r.Notes, "The backend denies with ampcors's own words, so there is no advice on what to configure "+
			"in a server: its headers would replace those of ampcors. "+
			"Look at the configuration of ampcors, and at what stands in front of it.")
	case hasAdvice:
		r.Snippets = snippets(p.policy)
	}
	r.Know(func(Finding) bool { return false })
	r.More = p.more()
}

// more returns which flags would test more.
func (p *prober) more() []string {
	more := []string{}
	add := func(isUseful bool, text string) {
		if isUseful {
			more = append(more, text)
		}
	}
	if !slices.ContainsFunc(p.pairs, func(pair pair) bool { return pair.publisher != "" }) {
		return more // nothing about pages is tested
	}
	endpoints := p.report.Endpoints
	has := func(is func(Endpoint) bool) bool { return slices.ContainsFunc(endpoints, is) }
	isByHand := func(e Endpoint) bool { return e.Component == "endpoint" }
	add(has(func(e Endpoint) bool { return isByHand(e) && !e.Credentials }),
		"--credentials tests the endpoints with requests that send cookies")
	add(p.cfg.Cookie == "" && has(func(e Endpoint) bool { return e.Credentials && e.Method == http.MethodGet }),
		"--cookie compares answers with and without the reader's cookies")
	add(has(func(e Endpoint) bool { return !p.maySend(e.Method) }),
		"--unsafe sends requests that may change data, forged ones among them")
	add(has(isByHand) && !has(func(e Endpoint) bool { return e.NeedsPreflight() }) && p.cfg.PageHeader == nil,
		"--method, --content-type and --page-header test preflights")
	return more
}

// untested counts trials that were not tested for the same reason.
func (p *prober) untested(endpoint, reason string, failed bool, trials int) {
	u := Untested{Endpoint: endpoint, Reason: reason, Failed: failed}
	i, isKnown := p.counts[u]
	if !isKnown {
		i = len(p.report.Untested)
		p.counts[u] = i
		p.report.Untested = append(p.report.Untested, u)
	}
	p.report.Untested[i].Trials += trials
}

// origins returns every origin of the publishers' pages.
func (p *prober) origins() (origins []string) {
	for _, pair := range p.pairs {
		if pair.sender != "" {
			continue
		}
		pages, _ := pagesOf(pair.publisher, p.cfg.Caches) // plan has made the same call
		for _, pg := range pages {
			if !pg.isAmbiguous && !slices.Contains(origins, pg.origin) {
				origins = append(origins, pg.origin)
			}
		}
	}
	return origins
}

// secretsOf returns a pattern of the user's own header values and cookies, also as they are in URLs and in
// quoted texts, or nil if there are none.
func secretsOf(cfg Config) *regexp.Regexp {
	var secrets []string
	add := func(value string) {
		if value = strings.TrimSpace(value); len(value) >= 4 { // shorter ones are no secrets, and would hide what is not one
			inJSON, _ := json.Marshal(value) // a string always can be
			for _, form := range []string{value, url.QueryEscape(value), url.PathEscape(value), encode(value),
				escaped(encode(value), "'"),
				strings.Trim(strconv.Quote(value), `"`), strings.Trim(string(inJSON), `"`), strings.Trim(quote(value), "'")} {
				secrets = append(secrets, regexp.QuoteMeta(form))
			}
		}
	}
	for _, values := range cfg.Header {
		for _, value := range values {
			add(value)
			scheme, rest, _ := strings.Cut(value, " ")
			if rest == "" || scheme != "Bearer" && scheme != "Basic" {
				rest = value
			}
			for word := range strings.FieldsSeq(rest) {
				add(word)
			}
		}
	}
	add(cfg.Cookie)
	for pair := range strings.SplitSeq(cfg.Cookie, ";") {
		_, value, _ := strings.Cut(pair, "=")
		add(value)
	}
	if len(secrets) == 0 {
		return nil
	}
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // the longest that matches
	return regexp.MustCompile("(?i)" + strings.Join(secrets, "|"))
}

// clean removes secrets that a server has repeated.
func (c *client) clean(text string) string {
	if c.secrets == nil {
		return text
	}
	return c.secrets.ReplaceAllString(text, "…")
}

// removeSecrets removes the user's own header values and cookies from the report. A document can repeat them, in
// the fields of a form.
func (p *prober) removeSecrets() {
	clean := func(texts ...*string) {
		for _, text := range texts {
			*text = p.client.clean(*text)
		}
	}
	for i := range p.report.Endpoints {
		clean(&p.report.Endpoints[i].URL, &p.report.Endpoints[i].Body)
	}
	for i := range p.report.Findings {
		f := &p.report.Findings[i]
		clean(&f.Endpoint, &f.Request, &f.Curl)
		for j := range f.Evidence {
			clean(&f.Evidence[j])
		}
	}
	for i := range p.report.Trials {
		clean(&p.report.Trials[i].Endpoint, &p.report.Trials[i].Reason)
	}
	for i := range p.report.Untested {
		clean(&p.report.Untested[i].Endpoint, &p.report.Untested[i].Reason)
	}
	for i := range p.report.Unknown {
		clean(&p.report.Unknown[i].What)
	}
	for i := range p.report.Notes {
		clean(&p.report.Notes[i])
	}
}
