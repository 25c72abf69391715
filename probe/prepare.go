package probe

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ampcors/ampcors/cacheurl"
)

// A pair is an endpoint, by its index in the report, and who calls it.
type pair struct {
	endpoint int
	subject
}

// prepare fetches the documents, and finds publishers and endpoints.
func (p *prober) prepare(ctx context.Context) error {
	var publishers []string
	for _, publisher := range p.cfg.Publishers {
		domain, err := cacheurl.CanonicalDomain(publisher)
		if err != nil {
			return err
		}
		publishers = append(publishers, domain)
	}
	var documents []*url.URL
	for _, source := range slices.Concat(p.cfg.Documents, p.cfg.FoundDocuments) {
		if cacheurl.IsOnCache(source, p.cfg.Caches...) {
			u, err := cacheurl.Parse(source, p.cfg.Caches...)
			if err != nil {
				return err
			}
			source = u.Publisher
		}
		document, err := webURL(source)
		if err != nil {
			return err
		}
		documents = append(documents, document)
		p.report.Target = cmp.Or(p.report.Target, document.String())
	}
	p.client = newClient(p.cfg)
	for _, host := range p.cfg.AllowHosts {
		p.allow(&url.URL{Scheme: "https", Host: host}, false)
		p.allow(&url.URL{Scheme: "http", Host: host}, false)
	}
	for i, document := range documents {
		p.allow(document, i < len(p.cfg.Documents))
	}
	for _, e := range p.cfg.Endpoints {
		u, err := webURL(e.URL)
		if err != nil {
			return err
		}
		if u.Query().Has("__amp_source_origin") {
			return fmt.Errorf("%.200q has __amp_source_origin, which the probe adds itself", e.URL)
		}
		e.URL = u.String()
		p.report.Target = cmp.Or(p.report.Target, e.URL)
		p.allow(u, true)
		p.addEndpoint(e, publishers, p.cfg.Senders)
	}
	if len(p.cfg.Endpoints) > 0 && len(publishers) == 0 && len(p.cfg.Senders) == 0 && len(documents) == 0 {
		return errors.New("there is no publisher; name the domain whose pages call the endpoints")
	}
	if slices.Contains(p.cfg.MailClients, playground) && len(p.cfg.Senders) > 0 &&
		!slices.Contains(p.cfg.Senders, playgroundSender) {
		p.report.Notes = append(p.report.Notes, playground+
			", Gmail's playground, was tested with the senders that you named. According to its users, it names "+
			playgroundSender+
			" as the sender (github.com/ampproject/amphtml/issues/22139): if its emails must work, test that sender too.")
	}
	for _, email := range p.cfg.Emails {
		if err := p.readEmail(ctx, email); err != nil {
			return fmt.Errorf("%s: %w", email.Name, err)
		}
	}
	for _, document := range documents {
		if err := p.fetchDocument(ctx, document, publishers); err != nil {
			p.untested(document.String(), err.Error(), true, 0)
		}
	}
	return nil
}

// addEndpoint adds an endpoint for the pages of publishers and the emails of senders, unless it was added before.
func (p *prober) addEndpoint(e Endpoint, publishers, senders []string) {
	i := slices.Index(p.report.Endpoints, e)
	if i < 0 {
		if u, err := url.Parse(e.URL); err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()) {
			p.report.Notes = append(p.report.Notes, e.URL+" is http: pages with https cannot call it, which is mixed content "+
				"and not CORS; mail clients do not call it either.")
		}
		i = len(p.report.Endpoints)
		p.report.Endpoints = append(p.report.Endpoints, e)
	}
	add := func(pair pair) {
		if !slices.Contains(p.pairs, pair) {
			p.pairs = append(p.pairs, pair)
		}
	}
	for _, publisher := range publishers {
		add(pair{i, subject{publisher: publisher}})
	}
	for _, sender := range senders {
		add(pair{i, subject{sender: sender}})
	}
}

// allow lets the host of a URL be called. If the user has named the URL, header and cookie are sent to its host. A
// host that is only allowed may have been chosen by the probed server, by a redirect.
func (p *prober) allow(u *url.URL, isTrusted bool) {
	if p.cfg.OnlyHosts == nil {
		p.client.allowed[cacheurl.CanonicalHost(u)] = true
	}
	if isTrusted {
		p.client.trusted[originOf(u)] = true
	}
}

// maxFresh is how old a document can be on a cache before that is noted. The number is a choice.
const maxFresh = time.Hour

// noteFreshness notes a Cache-Control that makes updates on AMP Caches slow, or that they ignore.
func (p *prober) noteFreshness(document *url.URL, h http.Header) {
	for directive := range strings.SplitSeq(strings.ToLower(strings.Join(h.Values("Cache-Control"), ",")), ",") {
		directive = strings.TrimSpace(directive)
		if directive == "no-transform" {
			p.report.Notes = append(p.report.Notes, document.String()+
				" has Cache-Control: no-transform, which AMP Caches ignore: they rewrite each document that they serve.")
		}
		value, ok := strings.CutPrefix(directive, "max-age=")
		seconds, err := strconv.ParseInt(strings.Trim(value, `"`), 10, 64)
		if ok && err == nil && seconds > int64(maxFresh/time.Second) {
			p.report.Notes = append(p.report.Notes, fmt.Sprintf("%s has Cache-Control: max-age=%d. AMP Caches may serve an "+
				"old copy for that long, and ampcors flush only makes them fetch a new one within that time.", document, seconds))
		}
	}
}

// An untilDone reads until its context ends. So the probe's time limit also bounds how long a document is
// parsed, which can take quadratic time.
type untilDone struct {
	ctx context.Context
	io.Reader
}

func (r untilDone) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, errMaxTime
	}
	return r.Reader.Read(p)
}

// fetchDocument adds the endpoints of a document, and lets their hosts be called.
func (p *prober) fetchDocument(ctx context.Context, document *url.URL, publishers []string) error {
	f := p.client.fetch(ctx, request{method: http.MethodGet, url: document.String(),
		header: http.Header{"Accept": {"text/html"}}})
	if err := cmp.Or(f.err, f.blocked); err != nil {
		return err
	}
	switch status := f.response.Status; status {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusGone:
		return fmt.Errorf("the status is %d; if the document has moved, redirect its old URL (301): readers still come to "+
			"it from caches and search results", status)
	default:
		if status >= 500 {
			return fmt.Errorf("the status is %d; an AMP Cache that has no copy of the document answers 404", status)
		}
		return fmt.Errorf("the status is %d", status)
	}
	p.noteFreshness(document, f.response.Header)
	base, err := url.Parse(f.last.url)
	if err != nil {
		return err
	}
	if found := notADocument(f.response); found != "" {
		publisher := "www." + site(document.Hostname())
		if len(publishers) > 0 {
			publisher = strings.Join(publishers, " --publisher ")
		}
		return fmt.Errorf("it is no document, but %s (status %d), such as pages fetch: to test it with the pages that call "+
			"it, use --endpoint '%s' --publisher %s",
			found, f.response.Status, document, publisher)
	}
	read, err := ReadDocument(untilDone{ctx, bytes.NewReader(f.response.Body)}, base)
	if err != nil {
		return err
	}
	if read.IsEmail && len(p.cfg.Senders) == 0 {
		return errors.New("it is an AMP email, whose requests a reader's mail client makes: use --sender with the address " +
			"of its sender")
	}
	missing := ""
	switch {
	case read.IsEmail:
	case read.IsAd:
		p.report.Notes = append(p.report.Notes, document.String()+
			" is an AMPHTML ad (⚡4ads). A page of somebody else shows it, in a frame at a host that names no publisher, "+
			"so that no origin which was tested here is the ad's. What it fetches must not depend on the reader.")
	case !read.IsAMP:
		missing = "its html element has neither the attribute amp nor ⚡"
	case !read.IsRun:
		missing = "it has no script of the AMP runtime, such as https://cdn.ampproject.org/v0.js"
	}
	if missing != "" {
		p.report.Notes = append(p.report.Notes, fmt.Sprintf("%s (%d bytes) is not an AMP document: %s. An AMP Cache does "+
			"not serve it, but redirects its readers to the canonical page. Only that attribute and that script were looked "+
			"at: the probe is no validator, and ampcors cached says what caches serve.",
			document, len(f.response.Body), missing))
	}
	if contentType := f.response.Header.Get("Content-Type"); !isHTML(contentType) {
		p.report.Notes = append(p.report.Notes, fmt.Sprintf("%s has Content-Type: %.100q, so that browsers show it as a "+
			"text, or save it; it was tested as a document all the same. Send text/html.",
			document, contentType))
	}
	if len(publishers) == 0 && !read.IsEmail {
		domain, err := cacheurl.CanonicalDomain(base.Hostname())
		if err != nil {
			return fmt.Errorf("name its publisher, with --publisher: %w", err)
		}
		publishers = []string{domain}
	}
	p.addDocument(document.String(), read, publishers)
	return nil
}

// isHTML reports whether browsers take a resource for HTML. Without a type, they look at its beginning.
func isHTML(contentType string) bool {
	mediaType, _, err := mime.ParseMediaType(contentType)
	return contentType == "" || err == nil && (mediaType == "text/html" || mediaType == "application/xhtml+xml")
}

// readEmail adds the endpoints of an email, and lets their hosts be called. Its URLs must be absolute.
func (p *prober) readEmail(ctx context.Context, email Email) error {
	read, err := ReadDocument(untilDone{ctx, bytes.NewReader(email.HTML)}, new(url.URL))
	switch {
	case err != nil:
		return err
	case !read.IsEmail:
		return errors.New("its html element has neither the attribute amp4email nor ⚡4email, so it is no AMP email; want " +
			"the HTML part of one, without the mail's other parts. A document of a website is tested at its URL")
	case len(p.cfg.Senders) == 0:
		return errors.New("there is no sender; name the address that sends the email")
	}
	p.report.Target = cmp.Or(p.report.Target, email.Name)
	if len(p.cfg.Publishers) > 0 {
		p.report.Notes = append(p.report.Notes, email.Name+" is an email: no publisher's page makes its requests, so the "+
			"publishers that you named were not tested with it.")
	}
	p.addDocument(email.Name, read, nil)
	return nil
}

// addDocument adds what is in a document, for the pages of publishers, or for the emails of Config.Senders.
func (p *prober) addDocument(name string, read Document, publishers []string) {
	var senders []string
	askers := "--publisher " + strings.Join(publishers, " --publisher ")
	if read.IsEmail {
		publishers, senders = nil, p.cfg.Senders // no page and no cache has it
		askers = "--sender " + strings.Join(senders, " --sender ")
	}
	if len(read.Endpoints) == 0 && len(read.Unknown) == 0 {
		p.report.Notes = append(p.report.Notes, name+" has no endpoint: nothing in it needs CORS.")
	}
	p.report.Unknown = append(p.report.Unknown, read.Unknown...)
	for i, e := range read.Endpoints {
		if i >= p.cfg.MaxEndpoints {
			p.untested(e.URL, fmt.Sprintf("the document has more than %d endpoints: use --max-endpoints %d", p.cfg.MaxEndpoints,
				len(read.Endpoints)), true, 0)
			continue
		}
		if u, err := url.Parse(e.URL); err == nil {
			p.allow(u, false)
			if hasSecrets := len(p.cfg.Header) > 0 || p.cfg.Cookie != ""; hasSecrets && !p.client.trusted[originOf(u)] {
				p.untested(e.URL, "your headers and cookies were not sent to "+originOf(u)+
					", because only the document names it: --endpoint '"+e.URL+"' "+askers+" sends them there", true, 0)
			}
		}
		p.addEndpoint(e, publishers, senders)
	}
}

// notADocument returns what an answer is, or "" if it may be a document.
func notADocument(resp *response) string {
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	body := bytes.TrimLeft(bytes.TrimPrefix(resp.Body, []byte("\ufeff")), " \t\r\n")
	switch {
	case json.Valid(body):
		return "JSON"
	case bytes.Contains(body, []byte("<")), strings.HasSuffix(mediaType, "html"):
		return ""
	case len(body) == 0:
		return "an empty answer"
	case mediaType == "":
		return "text without a Content-Type"
	}
	return mediaType
}

// isLoopback reports whether a host is on this machine: browsers take it for as safe as https.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// webURL parses the URL of a web server.
func webURL(value string) (*url.URL, error) {
	u, err := parseURL(nil, value)
	if err != nil {
		scheme := "https://"
		if host, _, _ := strings.Cut(value, ":"); isLoopback(host) {
			scheme = "http://"
		}
		return nil, fmt.Errorf("%.200q is not the URL of a web server; want one such as %.200q", value, scheme+value)
	}
	if u.User != nil {
		return nil, errors.New("the URL has user information; use a header")
	}
	return u, nil
}
