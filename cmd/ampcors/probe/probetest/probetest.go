// Package probetest has backends with the mistakes that publishers make, for tests of
// package probe. There is at least one for each finding id, and some are correct.
package probetest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cmd/ampcors/probe"
)

// Publisher is the publisher of most backends.
const Publisher = "www.example.com"

const ownOrigin = "https://" + Publisher

// originsOf returns every origin of a publisher's pages.
func originsOf(publisher string) []string {
	origins, err := probe.Origins(publisher, ampcors.DefaultCaches()...)
	if err != nil {
		panic(err)
	}
	return origins
}

// A backend answers correctly, except for what its fields change.
type backend struct {
	allows  func(r *http.Request, origin string) bool // by default, every origin of the publisher
	header  func(h http.Header, origin string)        // sets the CORS headers of an allowed request
	grants  string                                    // Access-Control-Allow-Headers
	body    string
	status  int
	runs    bool // the handler runs even if the request is denied
	noVary  bool
	changes func(w http.ResponseWriter, r *http.Request) bool // runs first; true if it has answered
}

func (b backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if b.changes != nil && b.changes(w, r) {
		return
	}
	origin, h := r.Header.Get("Origin"), w.Header()
	if !b.noVary {
		h.Add("Vary", "Origin")
	}
	allows := b.allows
	if allows == nil {
		allows = func(_ *http.Request, origin string) bool { return slices.Contains(originsOf(Publisher), origin) }
	}
	if allows(r, origin) {
		if b.header != nil {
			b.header(h, origin)
		} else {
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Allow-Credentials", "true")
		}
		if r.Method == http.MethodOptions {
			h.Set("Access-Control-Allow-Methods", "POST")
			h.Set("Access-Control-Allow-Headers", b.grants)
			w.WriteHeader(http.StatusNoContent)
			return
		}
	} else if origin != "" && !b.runs {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if b.status != 0 {
		w.WriteHeader(b.status)
	}
	if b.body == "" {
		b.body = "{}"
	}
	io.WriteString(w, b.body)
}

// fixed returns a function that sets the same value for every origin.
func fixed(value string) func(http.Header, string) {
	return func(h http.Header, _ string) {
		h.Set("Access-Control-Allow-Origin", value)
		h.Set("Access-Control-Allow-Credentials", "true")
	}
}

// everybody allows every request, so that only the headers matter.
func everybody(*http.Request, string) bool { return true }

// and allows the publisher's origins, and those for which f returns true.
func and(f func(origin string) bool) func(*http.Request, string) bool {
	return func(_ *http.Request, origin string) bool {
		return slices.Contains(originsOf(Publisher), origin) || f(origin)
	}
}

// without allows the publisher's origins, except those for which f returns true.
func without(publisher string, f func(origin string) bool) func(*http.Request, string) bool {
	return func(_ *http.Request, origin string) bool {
		return slices.Contains(originsOf(publisher), origin) && !f(origin)
	}
}

func isHTTPS(origin string) bool { return strings.HasPrefix(origin, "https://") }

func isHash(origin string) bool {
	label, _, _ := strings.Cut(strings.TrimPrefix(origin, "https://"), ".")
	return len(label) == 52 && !strings.Contains(label, "-")
}

var (
	jsonPost = probe.Endpoint{Method: "POST", ContentType: "application/json", Body: "{}", Credentials: true, Answer: probe.AnswerAny}
	formPost = probe.Endpoint{Method: "POST", ContentType: "application/x-www-form-urlencoded", Body: "a=b", Credentials: true, Answer: probe.AnswerForm}
	formGet  = probe.Endpoint{Method: "GET", Credentials: true, Answer: probe.AnswerForm}
)

// A Case is a backend with a mistake, or without one.
type Case struct {
	Name      string
	Backend   func() http.Handler
	Endpoint  probe.Endpoint // without its URL
	Publisher string
	Unsafe    bool     // for probe.Config.Unsafe
	Want      []string // the ids that must be found, and no others; sorted
}

// Cases returns the backends. Each call of Backend returns a new one.
func Cases() []Case {
	list := make([]Case, len(cases))
	for i, c := range cases {
		list[i] = Case{Name: c.name, Backend: c.backend, Endpoint: c.endpoint, Publisher: c.publisher, Unsafe: c.unsafe, Want: c.want}
		if c.endpoint == (probe.Endpoint{}) {
			list[i].Endpoint = probe.Endpoint{Method: "GET", Credentials: true, Answer: probe.AnswerJSON}
		}
		if c.publisher == "" {
			list[i].Publisher = Publisher
		}
	}
	return list
}

var cases = []struct {
	name      string
	backend   func() http.Handler
	endpoint  probe.Endpoint // if zero, a GET with credentials that reads JSON
	publisher string         // if empty, Publisher
	unsafe    bool
	want      []string
}{
	{name: "right", backend: as(backend{})},
	{name: "right, with a preflight", backend: as(backend{grants: "content-type"}), endpoint: jsonPost, unsafe: true},
	{name: "ampcors", backend: withAMPCORS},
	{name: "ampcors, with a preflight", backend: withAMPCORS, endpoint: jsonPost, unsafe: true},
	{name: "ampcors, a form", backend: withAMPCORS, endpoint: formPost, unsafe: true},
	{name: "public, without credentials", backend: as(backend{allows: everybody, header: fixed("*")}), endpoint: probe.Endpoint{Method: "GET", Answer: probe.AnswerJSON}},

	{name: "public, without credentials, a form", backend: as(backend{allows: everybody, header: fixed("*")}), endpoint: probe.Endpoint{Method: "POST", ContentType: "text/plain", Body: "a", Answer: probe.AnswerJSON}, unsafe: true},
	{name: "no Vary where no cache may keep the answer", backend: as(backend{noVary: true, changes: func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Cache-Control", "private, no-store")
		return false
	}})},
	{name: "JSON after a byte order mark", backend: as(backend{body: "\ufeff{}"})},
	{name: "a form with errors for the reader", backend: as(backend{status: http.StatusBadRequest, body: `{"verifyErrors": []}`}), endpoint: formGet},
	{name: "a forged POST is redirected", backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		isDenied := r.Method == http.MethodPost && !slices.Contains(originsOf(Publisher), r.Header.Get("Origin"))
		if isDenied {
			http.Redirect(w, r, "/denied", http.StatusSeeOther)
		}
		return isDenied
	}}), endpoint: formPost, unsafe: true},
	{name: "a preflight denies what the request would get", backend: as(backend{runs: true, grants: "content-type", changes: func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			w.Header().Set("Vary", "Origin")
			fixed(r.Header.Get("Origin"))(w.Header(), "")
			if r.Header.Get("Content-Type") != "application/json" {
				w.WriteHeader(http.StatusUnsupportedMediaType)
			}
		}
		return r.Method == http.MethodPost
	}}), endpoint: jsonPost, unsafe: true},

	{name: "no CORS", backend: as(backend{allows: everybody, header: func(http.Header, string) {}}), want: []string{"acao-missing"}},
	{name: "another site's origin", backend: as(backend{allows: everybody, header: fixed("https://www.example.net")}), want: []string{"acao-mismatch"}},
	{name: "the bare cache", backend: as(backend{allows: everybody, header: fixed("https://cdn.ampproject.org")}), want: []string{"acao-bare-cache"}},
	{name: "a pattern", backend: as(backend{allows: everybody, header: fixed("https://*.ampproject.org")}), want: []string{"acao-pattern"}},
	{name: "a list", backend: as(backend{allows: everybody, header: fixed("https://www-example-com.cdn.ampproject.org, https://www.example.com")}), want: []string{"acao-pattern"}},
	{name: "two lines", backend: as(backend{header: func(h http.Header, origin string) {
		h["Access-Control-Allow-Origin"] = []string{origin, origin}
		h.Set("Access-Control-Allow-Credentials", "true")
	}}), want: []string{"acao-duplicate"}},
	{name: "the site's own origin", backend: as(backend{allows: everybody, header: fixed(ownOrigin)}), want: []string{"acao-source-origin"}},
	{name: "no credentials", backend: as(backend{header: func(h http.Header, origin string) { h.Set("Access-Control-Allow-Origin", origin) }}), want: []string{"acac-missing"}},
	{name: "credentials in another case", backend: as(backend{header: func(h http.Header, origin string) {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Allow-Credentials", "True")
	}}), want: []string{"acac-invalid"}},
	{name: "* with credentials", backend: as(backend{allows: everybody, header: fixed("*")}), want: []string{"wildcard-with-credentials"}},
	{name: "no Vary", backend: as(backend{noVary: true}), want: []string{"vary-missing"}},
	{name: "Vary only with Origin", backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Origin") == "" {
			io.WriteString(w, "{}")
		}
		return r.Header.Get("Origin") == ""
	}}), want: []string{"vary-missing"}},
	{name: "a cache that ignores Vary", backend: func() http.Handler { return new(sharedCache) }, want: []string{"cached-wrong-origin"}},
	{name: "a redirect that is not exposed", backend: as(backend{header: func(h http.Header, origin string) {
		fixed(origin)(h, origin)
		h.Set("AMP-Redirect-To", "https://www.example.com/thanks")
	}}), endpoint: formGet, want: []string{"expose-missing"}},
	{name: "a redirect that is exposed", backend: as(backend{header: func(h http.Header, origin string) {
		fixed(origin)(h, origin)
		h.Set("AMP-Redirect-To", "https://www.example.com/thanks")
		h.Set("Access-Control-Expose-Headers", "amp-redirect-to")
	}}), endpoint: formGet},
	{name: "no preflight", backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
		return r.Method == http.MethodOptions
	}}), endpoint: jsonPost, want: []string{"preflight-failed"}},
	{name: "a redirected preflight", backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodOptions {
			http.Redirect(w, r, "/login", http.StatusFound)
		}
		return r.Method == http.MethodOptions
	}}), endpoint: jsonPost, want: []string{"preflight-redirected"}},
	{name: "a preflight without Content-Type", backend: as(backend{grants: "authorization"}), endpoint: jsonPost, want: []string{"preflight-incomplete"}},
	{name: "an error without CORS", backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		http.Error(w, "down", http.StatusInternalServerError)
		return true
	}}), want: []string{"error-without-cors"}},
	{name: "an error with CORS", backend: as(backend{status: http.StatusBadGateway}), want: []string{"http-error"}},
	{name: "a redirect without CORS", backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Has("moved") {
			return false
		}
		http.Redirect(w, r, r.URL.String()+"&moved=1", http.StatusFound)
		return true
	}}), want: []string{"redirect-without-cors"}},
	{name: "a script as text", backend: as(backend{body: "alert(1)"}), endpoint: probe.Endpoint{Method: "GET", Answer: probe.AnswerScript, NoSourceOrigin: true}, want: []string{"not-script"}},
	{name: "HTML", backend: as(backend{body: "<!doctype html>"}), want: []string{"not-json"}},
	{name: "no hash prefix", backend: as(backend{allows: without(Publisher, isHash)}), want: []string{"hash-origin-refused"}},
	{name: "no punycode", backend: as(backend{allows: without("xn--bcher-kva.example", func(origin string) bool { return strings.HasPrefix(origin, "https://xn--bcher-example") })}),
		publisher: "bücher.example", want: []string{"punycode-origin-refused"}},
	{name: "not the own origin", backend: as(backend{allows: without(Publisher, func(origin string) bool { return origin == ownOrigin })}), want: []string{"own-origin-refused"}},
	{name: "only Google's cache", backend: as(backend{allows: without(Publisher, func(origin string) bool { return strings.HasSuffix(origin, "bing-amp.com") })}), want: []string{"cache-refused"}},
	{name: "only the own origin, which is repeated", backend: as(backend{allows: func(_ *http.Request, origin string) bool { return origin == ownOrigin }}), want: []string{"cache-refused"}},

	{name: "any origin", backend: as(backend{allows: everybody}), want: []string{"any-origin-allowed"}},
	{name: "any publisher", backend: as(backend{allows: and(func(origin string) bool { return isHTTPS(origin) && strings.HasSuffix(origin, ".cdn.ampproject.org") })}), want: []string{"any-publisher-allowed"}},
	{name: "a suffix without its dot", backend: as(backend{allows: and(func(origin string) bool { return isHTTPS(origin) && strings.HasSuffix(origin, "cdn.ampproject.org") })}), want: []string{"any-publisher-allowed", "lookalike-allowed"}},
	{name: "a prefix", backend: as(backend{allows: and(func(origin string) bool { return strings.HasPrefix(origin, ownOrigin) })}), want: []string{"lookalike-allowed"}},
	{name: "the end of the host", backend: as(backend{allows: and(func(origin string) bool { return strings.HasSuffix(origin, Publisher) })}), want: []string{"http-allowed", "lookalike-allowed"}},
	{name: "null", backend: as(backend{allows: and(func(origin string) bool { return origin == "null" })}), want: []string{"null-allowed"}},
	{name: "http", backend: as(backend{allows: and(func(origin string) bool { return origin == "http://"+Publisher })}), want: []string{"http-allowed"}},
	{name: "a former cache", backend: as(backend{allows: and(func(origin string) bool { return strings.HasSuffix(origin, ".amp.cloudflare.com") })}), want: []string{"dead-cache-allowed"}},
	{name: "the claim", backend: as(backend{allows: func(r *http.Request, origin string) bool {
		return r.URL.Query().Get("__amp_source_origin") == ownOrigin
	}}), want: []string{"source-origin-trusted"}},
	{name: "the claim, by a pattern without ^", backend: as(backend{allows: func(r *http.Request, origin string) bool {
		return slices.Contains(originsOf(Publisher), origin) || strings.HasSuffix(r.URL.Query().Get("__amp_source_origin"), ownOrigin)
	}}), want: []string{"source-origin-trusted"}},
	{name: "one of two claims", backend: as(backend{allows: func(r *http.Request, origin string) bool {
		claims := r.URL.Query()["__amp_source_origin"]
		return len(claims) > 0 && claims[len(claims)-1] == ownOrigin && (slices.Contains(originsOf(Publisher), origin) || claims[0] == origin)
	}}), want: []string{"source-origin-trusted"}},
	{name: "an unescaped dot", backend: as(backend{allows: and(func(origin string) bool { return regexp.MustCompile(`^https://www.example\.com$`).MatchString(origin) })}), want: []string{"lookalike-allowed"}},
	{name: "a suffix on the other cache", backend: as(backend{allows: and(func(origin string) bool {
		return isHTTPS(origin) && strings.HasPrefix(origin, "https://www-example-com.www.bing-amp.com")
	})}), want: []string{"lookalike-allowed"}},
	{name: "http on a cache", backend: as(backend{allows: and(func(origin string) bool { return origin == "http://www-example-com.www.bing-amp.com" })}), want: []string{"http-allowed"}},
	{name: "AMP-Same-Origin", backend: as(backend{allows: func(r *http.Request, origin string) bool {
		return slices.Contains(originsOf(Publisher), origin) || r.Header.Get("AMP-Same-Origin") == "true" || r.Method == http.MethodOptions
	}, grants: "amp-same-origin"}), want: []string{"same-origin-granted", "same-origin-header-trusted"}},
	{name: "AMP-Same-Origin for caches", backend: as(backend{grants: "content-type, amp-same-origin"}), want: []string{"same-origin-granted"}},
	{name: "a forged POST", backend: as(backend{runs: true}), endpoint: formPost, unsafe: true, want: []string{"unsafe-reaches-handler"}},
}

// as returns a function that returns b.
func as(b backend) func() http.Handler { return func() http.Handler { return b } }

func withAMPCORS() http.Handler {
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{Publisher}, Credentialed: true})
	if err != nil {
		panic(err)
	}
	return mw.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{}") }))
}

// A sharedCache stores answers by method and URL, and ignores Vary.
type sharedCache struct {
	mu   sync.Mutex
	kept map[string]*httptest.ResponseRecorder
}

func (c *sharedCache) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := r.Method + r.URL.String()
	if c.kept == nil {
		c.kept = make(map[string]*httptest.ResponseRecorder)
	}
	if c.kept[key] == nil {
		c.kept[key] = httptest.NewRecorder()
		backend{}.ServeHTTP(c.kept[key], r)
	}
	for name, values := range c.kept[key].Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(c.kept[key].Code)
	w.Write(c.kept[key].Body.Bytes())
}
