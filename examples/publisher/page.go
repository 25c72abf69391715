package main

import (
	"bytes"
	_ "embed"
	"html/template"
	"log"
	"net/http"
	"net/url"
	"strings"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/pageurl"
)

//go:embed page.html
var pageHTML string

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// A page shows why an Origin is allowed or denied, with the code that decides about
// requests.
type page struct{ mw *ampcors.Middleware }

type pageData struct {
	Origin      string
	Asked       bool
	Explanation ampcors.Explanation
	Calculated  *calculation // nil if no URL was typed
	Samples     []sample
}

// A sample is an Origin to try with one click.
type sample struct{ Title, Origin string }

// Link returns the URL of the page for this Origin.
func (s sample) Link() string { return "/?origin=" + url.QueryEscape(s.Origin) }

func samples() []sample {
	return []sample{
		{"Cache origin", "https://www-example-com.cdn.ampproject.org"},
		{"Bing's cache", "https://www-example-com.www.bing-amp.com"},
		{"Internationalized", cacheOrigin("bücher.example")},
		{"Wrapped in 0- and -0", "https://0-my--town-news-example-0.cdn.ampproject.org"},
		{"Hash prefix", cacheOrigin(longName)},
		{"Own origin", "https://www.example.com"},
		{"Another publisher", "https://evil-example.cdn.ampproject.org"},
		{"Look-alike host", "https://www-example-com.cdn.ampproject.org.evil.example"},
		{"Not canonical", "https://www---example-com.cdn.ampproject.org"},
		{"Sandboxed frame", "null"},
	}
}

// completed adds https:// if value is a domain, with or without a path.
func completed(value string) string {
	value = strings.TrimSpace(value)
	host, _, _ := strings.Cut(value, "/")
	if _, err := cacheurl.CanonicalDomain(host); err == nil {
		return "https://" + value
	}
	return value
}

func (p page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	data := pageData{
		Origin:  completed(query.Get("origin")),
		Asked:   query.Has("origin"),
		Samples: samples(),
	}
	if data.Asked {
		data.Explanation = p.mw.Explain(data.Origin)
	}
	if query.Has("url") {
		calculated := calculate(completed(query.Get("url")))
		data.Calculated = &calculated
	}
	var body bytes.Buffer
	if err := pageTemplate.Execute(&body, data); err != nil {
		log.Print(err)
		http.Error(w, "the page could not be rendered", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	_, _ = body.WriteTo(w) // if it fails, the client is gone
}

// A calculation has the prefixes, origins and cache URLs of a publisher's URL.
type calculation struct {
	URL       string
	Err       error
	Publisher string // the publisher's URL, if URL is that of a cache
	Prefix    string
	Hash      string
	Origins   []string // the publisher's own, and the readable one on each cache
	Caches    []cacheCalculation
}

type cacheCalculation struct {
	Name string
	URLs []typedURL
}

type typedURL struct{ Type, URL string }

// contentTypes are the content types for which the page shows cache URLs.
var contentTypes = []struct {
	name string
	t    cacheurl.ContentType
}{
	{name: "document", t: cacheurl.Document},
	{name: "in a viewer", t: cacheurl.Viewer},
	{name: "signed exchange", t: cacheurl.SignedExchange},
	{name: "image", t: cacheurl.Image},
	{name: "font or file", t: cacheurl.Resource},
}

// calculate returns the prefixes, the origins and the cache URLs of a URL, which may be the
// URL of a publisher or of a cache.
func calculate(value string) (c calculation) {
	c.URL = value
	if publisher, err := cacheurl.PublisherURL(value); err == nil {
		value, c.Publisher = publisher, publisher
	} else if cacheurl.IsOnCache(value) {
		c.Err = err
		return c
	}
	u, problem := pageurl.Parse(value, pageurl.AsBrowsers)
	if problem != nil {
		c.Err = problem
		return c
	}
	// These fail only if the domain is invalid, and Parse has checked it.
	c.Prefix, _ = cacheurl.DomainPrefix(u.Host)
	c.Hash, _ = cacheurl.HashPrefix(u.Host)
	c.Origins, _ = cacheurl.Origins(u.Host)
	c.Origins = append([]string{"https://" + u.Host}, c.Origins...)
	for _, cache := range cacheurl.DefaultCaches() {
		calculated := cacheCalculation{Name: cache.Name}
		for _, t := range contentTypes {
			built, err := cacheurl.URL{Publisher: value, Cache: cache, Type: t.t}.Build()
			if err != nil {
				c.Err = err
				return c
			}
			calculated.URLs = append(calculated.URLs, typedURL{Type: t.name, URL: built})
		}
		c.Caches = append(c.Caches, calculated)
	}
	return c
}
