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
	var body bytes.Buffer
	if err := pageTemplate.Execute(&body, data); err != nil {
		log.Print(err)
		http.Error(w, "the page could not be rendered", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "+
		"base-uri 'none'; frame-ancestors 'none'")
	_, _ = body.WriteTo(w) // if it fails, the client is gone
}
