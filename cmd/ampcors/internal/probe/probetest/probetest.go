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
	"sync/atomic"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/cmd/ampcors/internal/probe"
)

// Publisher is the publisher of most backends.
const Publisher = "www.example.com"

const ownOrigin = "https://" + Publisher

// originsOf returns every origin of a publisher's pages.
func originsOf(publisher string) []string {
	origins, err := probe.Origins(publisher, cacheurl.DefaultCaches()...)
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
	Remembers bool     // its answers depend on earlier requests
	Cookie    string   // for probe.Config.Cookie
	NotTested string   // in a reason why something was not tested; if empty, everything must be
	Want      []string // the ids that must be found, and no others; sorted
}

// Cases returns the backends. Each call of Backend returns a new one.
func Cases() []Case {
	list := make([]Case, len(cases))
	for i, c := range cases {
		list[i] = Case{Name: c.name, Backend: c.backend, Endpoint: c.endpoint, Publisher: c.publisher, Unsafe: c.unsafe, Remembers: c.remembers, Cookie: c.cookie, NotTested: c.notTested, Want: c.want}
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
	remembers bool // its answers depend on earlier requests
	cookie    string
	notTested string // in the reason, if not everything can be tested
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
	}}), endpoint: formPost, unsafe: true, notTested: "only the backend knows"},
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
	{name: "another site's origin", backend: as(backend{allows: everybody, header: fixed("https://www.example.net")}), want: []string{"acao-mismatch", "lookalike-allowed"}},
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
	{name: "Vary only if the origin is allowed", backend: as(backend{noVary: true, runs: true, header: func(h http.Header, origin string) {
		fixed(origin)(h, origin)
		h.Set("Vary", "Origin")
	}}), want: []string{"vary-missing"}},
	{name: "a cache that ignores Vary", remembers: true, backend: func() http.Handler { return new(sharedCache) }, want: []string{"cached-wrong-origin"}},
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
	{name: "a suffix without its dot", backend: as(backend{allows: and(func(origin string) bool { return isHTTPS(origin) && strings.HasSuffix(origin, "cdn.ampproject.org") })}), want: []string{"any-publisher-allowed", "cache-lookalike-allowed"}},
	{name: "a prefix", backend: as(backend{allows: and(func(origin string) bool { return strings.HasPrefix(origin, ownOrigin) })}), want: []string{"lookalike-allowed", "port-allowed"}},
	{name: "the end of the host", backend: as(backend{allows: and(func(origin string) bool { return strings.HasSuffix(origin, Publisher) })}), want: []string{"http-allowed"}}, // every such host is the publisher's
	{name: "the end of the host, without its dot", backend: as(backend{allows: and(func(origin string) bool { return strings.HasSuffix(origin, "example.com") })}), want: []string{"http-allowed", "lookalike-allowed"}},
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
	})}), want: []string{"lookalike-allowed", "port-allowed"}},
	{name: "http on a cache", backend: as(backend{allows: and(func(origin string) bool { return origin == "http://www-example-com.www.bing-amp.com" })}), want: []string{"http-allowed"}},
	{name: "AMP-Same-Origin", backend: as(backend{allows: func(r *http.Request, origin string) bool {
		return slices.Contains(originsOf(Publisher), origin) || r.Header.Get("AMP-Same-Origin") == "true" || r.Method == http.MethodOptions
	}, grants: "amp-same-origin"}), want: []string{"same-origin-granted", "same-origin-header-trusted"}},
	{name: "AMP-Same-Origin for caches", backend: as(backend{grants: "content-type, amp-same-origin"}), want: []string{"same-origin-granted"}},
	{name: "a forged POST", backend: as(backend{runs: true}), endpoint: formPost, unsafe: true, want: []string{"unsafe-reaches-handler"}},

	{name: "two lines of credentials", backend: as(backend{header: func(h http.Header, origin string) {
		h.Set("Access-Control-Allow-Origin", origin)
		h["Access-Control-Allow-Credentials"] = []string{"true", "true"}
	}}), want: []string{"acac-duplicate"}},
	{name: "any origin, no credentials, no Vary", backend: as(backend{allows: everybody, noVary: true, header: func(h http.Header, origin string) {
		h.Set("Access-Control-Allow-Origin", origin)
	}}), want: []string{"acac-missing", "any-origin-allowed", "vary-missing"}},
	{name: "a redirect to itself", backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		fixed(r.Header.Get("Origin"))(w.Header(), "")
		http.Redirect(w, r, r.URL.String(), http.StatusFound)
		return true
	}}), want: []string{"redirect-endless"}},
	{name: "six redirects", backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		n := len(r.URL.Query()["hop"])
		if n < 6 && slices.Contains(append(originsOf(Publisher), "null"), r.Header.Get("Origin")) {
			fixed(r.Header.Get("Origin"))(w.Header(), "")
			http.Redirect(w, r, r.URL.String()+"&hop=1", http.StatusFound)
		}
		return n < 6 && w.Header().Get("Location") != ""
	}})},
	{name: "every third answer without CORS", remembers: true, backend: func() http.Handler { return &sometimes{every: 3, otherwise: noCORS} }, want: []string{"answers-differ"}},
	{name: "every third answer without CORS, a form", remembers: true, backend: func() http.Handler { return &sometimes{every: 3, otherwise: noCORS} }, endpoint: formPost, unsafe: true, want: []string{"answers-differ"}},
	{name: "the claim of everybody is allowed if there is none", backend: as(backend{allows: func(r *http.Request, origin string) bool {
		return slices.Contains(originsOf(Publisher), origin) || !r.URL.Query().Has("__amp_source_origin")
	}}), want: []string{"no-claim-allowed"}},
	{name: "the claim is repeated", backend: as(backend{allows: everybody, header: func(http.Header, string) {}, changes: func(w http.ResponseWriter, r *http.Request) bool {
		fixed(r.URL.Query().Get("__amp_source_origin"))(w.Header(), "")
		return false
	}}), want: []string{"acao-source-origin", "source-origin-trusted"}},
	{name: "a prefix that ends with the publisher's", backend: as(backend{allows: and(func(origin string) bool {
		return isHTTPS(origin) && strings.HasSuffix(origin, "example-com.cdn.ampproject.org")
	})}), want: []string{"prefix-lookalike-allowed"}},
	{name: "a prefix that begins with the publisher's", backend: as(backend{allows: and(func(origin string) bool {
		return strings.HasPrefix(origin, "https://www-example-com") && strings.HasSuffix(origin, ".cdn.ampproject.org")
	})}), want: []string{"prefix-lookalike-allowed"}},
	{name: "a prefix that has the publisher's", backend: as(backend{allows: and(func(origin string) bool {
		return strings.Contains(origin, "www-example-com-") && strings.HasSuffix(origin, ".cdn.ampproject.org")
	})}), want: []string{"prefix-lookalike-allowed"}},
	{name: "naive decoding", backend: as(backend{allows: and(func(origin string) bool {
		prefix, isCache := strings.CutSuffix(strings.TrimPrefix(origin, "https://"), ".cdn.ampproject.org")
		return isCache && isHTTPS(origin) && strings.ReplaceAll(strings.ReplaceAll(prefix, "--", "-"), "-", ".") == Publisher
	})}), want: []string{"naive-prefix-allowed"}},
	{name: "any prefix of 52 characters", backend: as(backend{allows: and(isHash)}), want: []string{"any-publisher-allowed", "lookalike-allowed"}},
	{name: "a prefix that another publisher has", backend: as(backend{allows: func(_ *http.Request, origin string) bool {
		return slices.Contains(originsOf("www.lāstekas.lv"), origin) || origin == "https://xn--www-lstekas-lv-pub.cdn.ampproject.org" || origin == "https://xn--www-lstekas-lv-pub.www.bing-amp.com"
	}}),
		publisher: "www.lāstekas.lv", want: []string{"twin-allowed"}},
	{name: "another port", backend: as(backend{allows: func(_ *http.Request, origin string) bool {
		return slices.Contains(originsOf(Publisher), strings.TrimSuffix(origin, ":8443"))
	}}), want: []string{"port-allowed"}},
	{name: "every host of the publisher", backend: as(backend{allows: and(func(origin string) bool {
		return isHTTPS(origin) && strings.HasSuffix(origin, ".example.com")
	})})},
	{name: "localhost", backend: as(backend{allows: and(regexp.MustCompile(`^https?://localhost(:\d+)?$`).MatchString)}), want: []string{"localhost-allowed"}},
	{name: "the end google.com", backend: as(backend{allows: and(func(origin string) bool { return strings.HasSuffix(origin, "google.com") })}), want: []string{"lookalike-allowed"}},
	{name: "the Referer", backend: as(backend{allows: func(r *http.Request, origin string) bool {
		return slices.Contains(originsOf(Publisher), origin) || strings.Contains(r.Referer(), ownOrigin)
	}}), want: []string{"referer-trusted"}},
	{name: "the bare domain of a former cache", backend: as(backend{allows: and(func(origin string) bool { return origin == "https://amp.cloudflare.com" })}), want: []string{"dead-cache-allowed"}},
	{name: "the dotted form of a former cache", backend: as(backend{allows: and(func(origin string) bool { return origin == "https://www.example.com.amp.cloudflare.com" })}), want: []string{"dead-cache-allowed"}},
	{name: "AMP-Same-Origin above Origin", backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("AMP-Same-Origin") == "true" {
			r.Header.Del("Origin")
		}
		return false
	}}), want: []string{"same-origin-header-preferred"}},
	{name: "open to all by design", backend: as(backend{allows: everybody, body: `{"posts": [1, 2]}`}), cookie: "session=1", want: []string{"open-to-all"}},
	{name: "open to all, with the reader's name", backend: as(backend{allows: everybody, changes: func(w http.ResponseWriter, r *http.Request) bool {
		fixed(r.Header.Get("Origin"))(w.Header(), "")
		w.Header().Set("Vary", "Origin")
		io.WriteString(w, `{"cookie": "`+r.Header.Get("Cookie")+`"}`)
		return true
	}}), cookie: "session=1", want: []string{"any-origin-allowed"}},
	{name: "a claim or an origin, and look-alikes", backend: as(backend{allows: func(r *http.Request, origin string) bool {
		return slices.Contains(originsOf(Publisher), origin) || r.URL.Query().Get("__amp_source_origin") == ownOrigin || strings.HasPrefix(origin, ownOrigin)
	}}), want: []string{"lookalike-allowed", "port-allowed", "source-origin-trusted"}},

	{name: "a forged POST without a claim", backend: as(backend{body: `{"ok": true}`, changes: func(w http.ResponseWriter, r *http.Request) bool {
		if !r.URL.Query().Has("__amp_source_origin") {
			io.WriteString(w, `{"ok": true}`)
			return true
		}
		return false
	}}), endpoint: formPost, unsafe: true, want: []string{"unsafe-reaches-handler"}},
	{name: "a forged POST from a cache", backend: as(backend{body: `{"ok": true}`, changes: func(w http.ResponseWriter, r *http.Request) bool {
		isCache := strings.HasSuffix(r.Header.Get("Origin"), ".cdn.ampproject.org") && r.URL.Query().Get("__amp_source_origin") == ownOrigin && !slices.Contains(originsOf(Publisher), r.Header.Get("Origin"))
		if isCache {
			io.WriteString(w, `{"ok": true}`)
		}
		return isCache
	}}), endpoint: formPost, unsafe: true, want: []string{"unsafe-reaches-handler"}},
	{name: "a forged POST, accepted with a redirect", backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			if origin := r.Header.Get("Origin"); slices.Contains(originsOf(Publisher), origin) {
				fixed(origin)(w.Header(), "")
			}
			http.Redirect(w, r, "/thanks", http.StatusSeeOther)
		}
		return r.Method == http.MethodPost
	}}), endpoint: formPost, unsafe: true, want: []string{"unsafe-reaches-handler"}},
	{name: "a forged POST of JSON, where every preflight is granted", backend: as(backend{body: `{"ok": true}`, changes: func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Method == http.MethodOptions:
			fixed(r.Header.Get("Origin"))(w.Header(), "")
			w.Header().Set("Access-Control-Allow-Headers", "content-type")
		case r.Header.Get("Content-Type") != "application/json":
			w.WriteHeader(http.StatusUnsupportedMediaType)
		case !slices.Contains(originsOf(Publisher), r.Header.Get("Origin")):
			io.WriteString(w, `{"ok": true}`)
		default:
			return false
		}
		return true
	}}), endpoint: jsonPost, unsafe: true, want: []string{"unsafe-reaches-handler"}},
	{name: "a handler that runs although the answer is 403", backend: as(backend{body: `{"ok": true}`, changes: func(w http.ResponseWriter, r *http.Request) bool {
		if slices.Contains(originsOf(Publisher), r.Header.Get("Origin")) {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, `Forbidden{"ok": true}`)
		return true
	}}), endpoint: formPost, unsafe: true, want: []string{"unsafe-reaches-handler"}},
	{name: "a POST with two lines", backend: as(backend{grants: "content-type", header: func(h http.Header, origin string) {
		h["Access-Control-Allow-Origin"] = []string{origin, origin}
		h.Set("Access-Control-Allow-Credentials", "true")
	}}), endpoint: jsonPost, unsafe: true, want: []string{"acao-duplicate"}},
	{name: "a POST with the bare cache", backend: as(backend{grants: "content-type", allows: everybody, header: fixed("https://cdn.ampproject.org")}), endpoint: jsonPost, unsafe: true, want: []string{"acao-bare-cache", "unsafe-reaches-handler"}},
	{name: "a POST with a pattern", backend: as(backend{grants: "content-type", header: fixed("https://*.ampproject.org")}), endpoint: jsonPost, unsafe: true, want: []string{"acao-pattern"}},
	{name: "a POST with *", backend: as(backend{grants: "content-type", header: fixed("*")}), endpoint: jsonPost, unsafe: true, want: []string{"wildcard-with-credentials"}},
	{name: "a POST without credentials", backend: as(backend{grants: "content-type", header: func(h http.Header, origin string) { h.Set("Access-Control-Allow-Origin", origin) }}), endpoint: jsonPost, unsafe: true, want: []string{"acac-missing"}},
	{name: "a limit of requests, without a mistake", remembers: true, backend: func() http.Handler { return &limited{left: 20, status: 503} }, notTested: "limits requests"},
	{name: "a limit of requests, and null is allowed", remembers: true, backend: func() http.Handler {
		return &limited{left: 20, status: 429, backend: backend{allows: and(func(origin string) bool { return origin == "null" })}}
	}, notTested: "limits requests"},
	{name: "a firewall after some requests", remembers: true, backend: func() http.Handler {
		return &limited{left: 30, status: 403, backend: backend{allows: and(func(origin string) bool { return strings.HasPrefix(origin, "http:") })}}
	}, notTested: "is answered with status 403 now"},
	{name: "a firewall for this program", backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		return true
	}}), notTested: "a login or a firewall"},
	{name: "any origin, and unknown parameters are an error", backend: as(backend{allows: everybody, changes: noParameters}), want: []string{"any-origin-allowed"}},
	{name: "null, and unknown parameters are an error, behind a cache", backend: func() http.Handler {
		return &sharedCache{varies: true, backend: backend{allows: and(func(origin string) bool { return origin == "null" }), changes: noParameters}}
	}, want: []string{"null-allowed"}},
	{name: "a forged POST that is perhaps denied", backend: as(backend{runs: true, body: `{"ok": true}`, changes: func(w http.ResponseWriter, r *http.Request) bool {
		isDenied := !slices.Contains(originsOf(Publisher), r.Header.Get("Origin"))
		if isDenied {
			io.WriteString(w, `{"ok": false}`)
		}
		return isDenied
	}}), endpoint: formPost, unsafe: true, notTested: "only the backend knows"},
	{name: "null, and the backend takes one request at a time", backend: func() http.Handler { return new(narrow) }, remembers: true, want: []string{"null-allowed"}},
	{name: "null, and other pages are banned after some requests", backend: func() http.Handler { return &banning{left: 10} }, remembers: true, notTested: "perhaps the backend takes this program for an attacker"},
	{name: "any origin, but no preflight", backend: as(backend{allows: everybody, changes: func(w http.ResponseWriter, r *http.Request) bool {
		isDenied := r.Method == http.MethodOptions && !slices.Contains(originsOf(Publisher), r.Header.Get("Origin"))
		if isDenied {
			w.WriteHeader(http.StatusForbidden)
		}
		return isDenied
	}, grants: "content-type"}), endpoint: jsonPost, unsafe: true, want: []string{"any-origin-allowed", "unsafe-reaches-handler"}},
	{name: "every preflight for PUT is granted", backend: as(backend{runs: true, changes: func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodOptions {
			fixed(r.Header.Get("Origin"))(w.Header(), "")
			w.Header().Set("Access-Control-Allow-Methods", "PUT")
		}
		return r.Method == http.MethodOptions
	}}), endpoint: probe.Endpoint{Method: "PUT", Credentials: true, Answer: probe.AnswerAny}, unsafe: true, want: []string{"unsafe-reaches-handler"}},
	{name: "a forged POST from null", backend: as(backend{body: `{"ok": true}`, changes: func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Origin") == "null" {
			io.WriteString(w, `{"ok": true}`)
		}
		return r.Header.Get("Origin") == "null"
	}}), endpoint: formPost, unsafe: true, want: []string{"unsafe-reaches-handler"}},
	{name: "a forged POST from a look-alike", backend: as(backend{body: `{"ok": true}`, changes: func(w http.ResponseWriter, r *http.Request) bool {
		origin := r.Header.Get("Origin")
		isLike := strings.HasPrefix(origin, ownOrigin) && origin != ownOrigin
		if isLike {
			io.WriteString(w, `{"ok": true}`)
		}
		return isLike
	}}), endpoint: formPost, unsafe: true, want: []string{"unsafe-reaches-handler"}},
	{name: "a claim that is the origin, by its end", backend: as(backend{allows: func(r *http.Request, origin string) bool {
		return slices.Contains(originsOf(Publisher), origin) || origin == r.URL.Query().Get("__amp_source_origin") && strings.HasSuffix(origin, "example.com")
	}}), want: []string{"http-allowed", "lookalike-allowed"}},
	{name: "another top-level domain", backend: as(backend{allows: and(regexp.MustCompile(`^https://www\.example\.[a-z]{2,3}$`).MatchString)}), want: []string{"lookalike-allowed"}},
	{name: "a hyphen that is not doubled", publisher: "my-site.com", backend: as(backend{allows: func(_ *http.Request, origin string) bool {
		return slices.Contains(originsOf("my-site.com"), origin) || origin == "https://my-site-com.cdn.ampproject.org"
	}}), want: []string{"naive-prefix-allowed"}},
	{name: "the apex, after any subdomain", publisher: "example.com", backend: as(backend{allows: func(_ *http.Request, origin string) bool {
		return slices.Contains(originsOf("example.com"), origin) || strings.HasSuffix(origin, "-example-com.cdn.ampproject.org")
	}}), want: []string{"prefix-lookalike-allowed"}},
	{name: "a cache that ignores the query, in front of any publisher who claims to be ours", backend: func() http.Handler {
		return &sharedCache{varies: true, ignoresQuery: true, backend: backend{allows: func(r *http.Request, origin string) bool {
			return slices.Contains(originsOf(Publisher), origin) || isHTTPS(origin) && strings.HasSuffix(origin, ".cdn.ampproject.org") && r.URL.Query().Get("__amp_source_origin") == ownOrigin
		}}}
	}, remembers: true, notTested: "a cache in front of the backend answered"},

	// Kinds of mistakes, and of right answers, that earlier versions judged wrongly.
	{name: "letters after the domain", backend: as(backend{allows: and(regexp.MustCompile(`^https://www\.example\.com[a-z]*$`).MatchString)}), want: []string{"lookalike-allowed"}},
	{name: "a country after the domain", backend: as(backend{allows: and(regexp.MustCompile(`^https://www\.example\.com(\.[a-z]{2})?$`).MatchString)}), want: []string{"lookalike-allowed"}},
	{name: "letters after the cache's domain", backend: as(backend{allows: and(regexp.MustCompile(`^https://www-example-com\.cdn\.ampproject\.org[a-z]*$`).MatchString)}), want: []string{"lookalike-allowed"}},
	{name: "a dot that is not escaped, after www", publisher: "www.example.co.uk", backend: as(backend{allows: func(_ *http.Request, origin string) bool {
		return slices.Contains(originsOf("www.example.co.uk"), origin) || regexp.MustCompile(`^https://www.example\.co\.uk$`).MatchString(origin)
	}}), want: []string{"lookalike-allowed"}},
	{name: "the second dot of a cache is not escaped", backend: as(backend{allows: and(regexp.MustCompile(`^https://www-example-com\.www.bing-amp\.com$`).MatchString)}), want: []string{"lookalike-allowed"}},
	{name: "any publisher of the same shape", backend: as(backend{allows: and(regexp.MustCompile(`^https://www-[a-z]+-com\.cdn\.ampproject\.org$`).MatchString)}), want: []string{"prefix-lookalike-allowed"}},
	{name: "a claim with user information", backend: as(backend{allows: func(r *http.Request, origin string) bool {
		return slices.Contains(originsOf(Publisher), origin) || strings.HasPrefix(r.URL.Query().Get("__amp_source_origin"), ownOrigin+"@")
	}}), want: []string{"source-origin-trusted"}},
	{name: "a claim with the publisher in its query", backend: as(backend{allows: func(r *http.Request, origin string) bool {
		return slices.Contains(originsOf(Publisher), origin) || strings.HasSuffix(r.URL.Query().Get("__amp_source_origin"), "?"+ownOrigin)
	}}), want: []string{"source-origin-trusted"}},
	{name: "a claim with the publisher in its fragment", backend: as(backend{allows: func(r *http.Request, origin string) bool {
		return slices.Contains(originsOf(Publisher), origin) || strings.HasSuffix(r.URL.Query().Get("__amp_source_origin"), "#"+ownOrigin)
	}}), want: []string{"source-origin-trusted"}},
	{name: "an empty claim", backend: as(backend{allows: func(r *http.Request, origin string) bool {
		return slices.Contains(originsOf(Publisher), origin) || r.URL.Query().Has("__amp_source_origin") && r.URL.Query().Get("__amp_source_origin") == ""
	}}), want: []string{"no-claim-allowed"}},
	{name: "any origin, for browsers", backend: as(backend{allows: func(r *http.Request, origin string) bool {
		return slices.Contains(originsOf(Publisher), origin) || strings.HasPrefix(r.UserAgent(), "Mozilla/")
	}}), want: []string{"any-origin-allowed"}},
	{name: "a firewall that only lets browsers in", backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		isBrowser := strings.HasPrefix(r.UserAgent(), "Mozilla/")
		if !isBrowser {
			w.WriteHeader(http.StatusForbidden)
		}
		return !isBrowser
	}})},
	{name: "no Referer", backend: as(backend{allows: func(r *http.Request, origin string) bool {
		return slices.Contains(originsOf(Publisher), origin) || r.Referer() == ""
	}}), want: []string{"no-referer-allowed"}},
	{name: "a 304 for another page", backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("ETag", `"1"`)
		isSame := r.Header.Get("If-None-Match") == `"1"`
		if isSame {
			fixed("https://www.example.net")(w.Header(), "")
			w.WriteHeader(http.StatusNotModified)
		}
		return isSame
	}}), want: []string{"revalidation-wrong-origin"}},
	{name: "a 304 without CORS", backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("ETag", `"1"`)
		isSame := r.Header.Get("If-None-Match") == `"1"`
		if isSame {
			w.WriteHeader(http.StatusNotModified)
		}
		return isSame
	}})},
	{name: "a POST with a redirect that is not exposed", backend: as(backend{grants: "content-type", header: func(h http.Header, origin string) {
		fixed(origin)(h, origin)
		h.Set("AMP-Redirect-To", "https://www.example.com/thanks")
		h.Set("Access-Control-Expose-Headers", "*")
	}}), endpoint: jsonPost, unsafe: true, want: []string{"expose-missing"}},
	{name: "a redirect to a path", backend: as(backend{header: func(h http.Header, origin string) {
		fixed(origin)(h, origin)
		h.Set("AMP-Redirect-To", "/thanks")
		h.Set("Access-Control-Expose-Headers", "AMP-Redirect-To")
	}}), endpoint: formPost, unsafe: true, want: []string{"redirect-to-invalid"}},
	{name: "a library that repeats the headers that a preflight asks for", backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		origin := r.Header.Get("Origin")
		if r.Method != http.MethodOptions || !slices.Contains(originsOf(Publisher), origin) {
			return false
		}
		fixed(origin)(w.Header(), "")
		w.Header().Set("Vary", "Origin")
		w.Header().Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
		return true
	}}), want: []string{"same-origin-granted"}},
	{name: "Vary by the claim", backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		isForeign := r.URL.Query().Get("__amp_source_origin") != ownOrigin && slices.Contains([]string{"https://ampcors-probe.example"}, r.Header.Get("Origin"))
		if isForeign { // a denial at a URL of its own
			io.WriteString(w, "{}")
		}
		return isForeign
	}})},
	{name: "a login before everything without cookies", cookie: "session=1", backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/login" {
			io.WriteString(w, "log in")
			return true
		}
		if r.Header.Get("Cookie") == "" {
			http.Redirect(w, r, "/login", http.StatusFound)
			return true
		}
		return false
	}}), notTested: "not every answer is a success"},
	{name: "a protection against CSRF that denies every cross-site page", backend: as(backend{allows: func(*http.Request, string) bool { return false }, changes: func(w http.ResponseWriter, r *http.Request) bool {
		isCross := r.Header.Get("Origin") != "" && r.Header.Get("Sec-Fetch-Site") == "cross-site"
		if isCross {
			http.Error(w, "cross-origin request", http.StatusForbidden)
		}
		return isCross
	}}), notTested: "denies nothing", want: []string{"cache-refused", "own-origin-refused"}},
	{name: "preflights in a cache that knows only the URL", remembers: true, backend: func() http.Handler {
		return &sharedCache{only: http.MethodOptions, backend: backend{grants: "content-type"}}
	}, endpoint: jsonPost, unsafe: true, want: []string{"cached-wrong-origin"}},
	{name: "answers in a cache that knows only the path", remembers: true, backend: func() http.Handler {
		return &sharedCache{ignoresQuery: true}
	}, notTested: "a cache in front of the backend answered", want: []string{"cached-wrong-origin"}},
	{name: "one of three servers has no CORS", remembers: true, backend: func() http.Handler { return &sometimes{every: 3, otherwise: noCORS} }, notTested: "answered with other CORS headers", want: []string{"answers-differ"}},
	{name: "a forged POST is accepted later", backend: as(backend{body: `{"ok": true}`, changes: func(w http.ResponseWriter, r *http.Request) bool {
		isForged := !slices.Contains(originsOf(Publisher), r.Header.Get("Origin"))
		if isForged {
			w.WriteHeader(http.StatusAccepted)
		}
		return isForged
	}}), endpoint: formPost, unsafe: true, want: []string{"unsafe-seems-to-run"}},
	{name: "a forged POST from the second cache", backend: as(backend{body: `{"ok": true}`, changes: func(w http.ResponseWriter, r *http.Request) bool {
		isCache := strings.HasSuffix(r.Header.Get("Origin"), ".www.bing-amp.com") && !slices.Contains(originsOf(Publisher), r.Header.Get("Origin"))
		if isCache {
			io.WriteString(w, `{"ok": true}`)
		}
		return isCache
	}}), endpoint: formPost, unsafe: true, want: []string{"unsafe-reaches-handler"}},
	{name: "a forged POST as multipart", backend: as(backend{body: `{"ok": true}`, changes: func(w http.ResponseWriter, r *http.Request) bool {
		isForged := strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") && !slices.Contains(originsOf(Publisher), r.Header.Get("Origin"))
		if isForged {
			io.WriteString(w, `{"ok": true}`)
		}
		return isForged
	}}), endpoint: formPost, unsafe: true, want: []string{"unsafe-reaches-handler"}},
	{name: "503 for one cache", backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		isBing := strings.HasSuffix(r.Header.Get("Origin"), ".www.bing-amp.com")
		if isBing {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return isBing
	}}), notTested: "limits requests", want: []string{"cache-refused"}},
	{name: "the own page's POST is denied, and a forged one is not", backend: as(backend{body: `{"ok": true}`, changes: func(w http.ResponseWriter, r *http.Request) bool {
		switch origin := r.Header.Get("Origin"); {
		case origin == ownOrigin:
			w.WriteHeader(http.StatusForbidden)
		case slices.Contains(originsOf(Publisher), origin):
			return false
		default:
			io.WriteString(w, `{"ok": true}`)
		}
		return true
	}}), endpoint: formPost, unsafe: true, want: []string{"own-origin-refused", "unsafe-reaches-handler"}},
	{name: "a denial as JSON", backend: as(backend{body: `{"code": 0, "errors": []}`, changes: func(w http.ResponseWriter, r *http.Request) bool {
		isForged := !slices.Contains(originsOf(Publisher), r.Header.Get("Origin"))
		if isForged {
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, `{"code": 40301, "errors": ["origin not allowed"]}`)
		}
		return isForged
	}}), endpoint: formPost, unsafe: true},
	{name: "a forged form, which navigates", backend: as(backend{body: `{"ok": true}`, changes: func(w http.ResponseWriter, r *http.Request) bool {
		isForm := r.Header.Get("Sec-Fetch-Mode") == "navigate"
		if isForm {
			io.WriteString(w, `{"ok": true}`)
		}
		return isForm
	}}), endpoint: formPost, unsafe: true, want: []string{"unsafe-reaches-handler"}},
	{name: "a forged POST over http", backend: as(backend{body: `{"ok": true}`, changes: func(w http.ResponseWriter, r *http.Request) bool {
		isHTTP := r.Header.Get("Origin") == "http://www.example.com"
		if isHTTP {
			io.WriteString(w, `{"ok": true}`)
		}
		return isHTTP
	}}), endpoint: formPost, unsafe: true, want: []string{"unsafe-reaches-handler"}},
	{name: "502 for every URL that the probe has not made new", remembers: true, backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		isOld := r.Header.Get("Origin") != "" && !r.URL.Query().Has("ampcors_probe") && slices.Contains(originsOf(Publisher), r.Header.Get("Origin"))
		if isOld {
			w.WriteHeader(http.StatusBadGateway)
		}
		return isOld
	}}), want: []string{"cached-wrong-origin"}},
	{name: "a 304 for everybody, with credentials", backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("ETag", `"1"`)
		isSame := r.Header.Get("If-None-Match") == `"1"`
		if isSame {
			w.Header().Set("Access-Control-Allow-Origin", "*")
			w.WriteHeader(http.StatusNotModified)
		}
		return isSame
	}}), want: []string{"revalidation-wrong-origin"}},
	{name: "the publisher's domain over http", backend: as(backend{allows: and(func(origin string) bool { return origin == "http://example.com" })}), want: []string{"http-allowed"}},
	{name: "a development server", backend: as(backend{allows: and(func(origin string) bool { return origin == "http://localhost:5173" })}), want: []string{"localhost-allowed"}},
	{name: "a dot of a pattern for the prefix", backend: as(backend{allows: and(regexp.MustCompile(`^https://www.example.com\.cdn\.ampproject\.org$`).MatchString)}), want: []string{"prefix-lookalike-allowed"}},
	{name: "a CDN without CORS, where everything is a hit", backend: as(backend{allows: everybody, header: func(h http.Header, _ string) { h.Set("X-Cache", "Hit from cloudfront") }}), want: []string{"acao-missing"}},
	{name: "a cache that says MISS, HIT", remembers: true, backend: func() http.Handler {
		return &sharedCache{ignoresQuery: true, hit: "X-Cache"}
	}, notTested: "a cache in front of the backend answered (X-Cache: MISS, HIT)", want: []string{"cached-wrong-origin"}},
	{name: "a denial of 404 that caches store", backend: as(backend{noVary: true, changes: func(w http.ResponseWriter, r *http.Request) bool {
		isDenied := r.Header.Get("Origin") != "" && !slices.Contains(originsOf(Publisher), r.Header.Get("Origin"))
		if isDenied {
			w.WriteHeader(http.StatusNotFound)
		} else {
			w.Header().Set("Vary", "Origin")
		}
		return isDenied
	}}), want: []string{"vary-missing"}},
	{name: "any website, without credentials", backend: as(backend{allows: everybody, header: func(h http.Header, origin string) { h.Set("Access-Control-Allow-Origin", origin) }}),
		endpoint: probe.Endpoint{Method: "GET", Answer: probe.AnswerJSON}},
}

// A narrow backend allows null. It answers one request at a time, and fails if there are others.
type narrow struct{ running atomic.Int64 }

func (n *narrow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer n.running.Add(-1)
	if n.running.Add(1) > 1 {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	time.Sleep(5 * time.Millisecond)
	backend{allows: and(func(origin string) bool { return origin == "null" })}.ServeHTTP(w, r)
}

// A banning backend allows null, and denies with status 200. After some requests of other pages, it
// answers all of them with status 403.
type banning struct {
	mu   sync.Mutex
	left int
}

func (b *banning) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(originsOf(Publisher), r.Header.Get("Origin")) {
		if b.left--; b.left < 0 {
			w.WriteHeader(http.StatusForbidden)
			return
		}
	}
	backend{runs: true, allows: and(func(origin string) bool { return origin == "null" })}.ServeHTTP(w, r)
}

// noParameters answers a request with an unknown parameter with status 400.
func noParameters(w http.ResponseWriter, r *http.Request) bool {
	for name := range r.URL.Query() {
		if name != "__amp_source_origin" {
			w.WriteHeader(http.StatusBadRequest)
			return true
		}
	}
	return false
}

// noCORS answers without CORS headers.
func noCORS(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }

// A sometimes answers each nth request in another way.
type sometimes struct {
	mu        sync.Mutex
	n, every  int
	otherwise http.HandlerFunc
}

func (s *sometimes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n++; s.n%s.every == 0 && slices.Contains(originsOf(Publisher), r.Header.Get("Origin")) {
		s.otherwise(w, r)
		return
	}
	backend{}.ServeHTTP(w, r)
}

// A limited answers some requests, and all others with an error status.
type limited struct {
	mu           sync.Mutex
	left, status int
	backend      backend
}

func (l *limited) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left--; l.left < 0 {
		w.WriteHeader(l.status)
		return
	}
	l.backend.ServeHTTP(w, r)
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

// A sharedCache stores answers by method and URL. Unless it varies, it ignores Vary.
type sharedCache struct {
	backend      backend
	varies       bool
	ignoresQuery bool
	hit          string // the header of an answer that was stored; if empty, Age
	only         string // the method of what is stored; if empty, any
	mu           sync.Mutex
	kept         map[string]*httptest.ResponseRecorder
}

func (c *sharedCache) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.only != "" && c.only != r.Method {
		c.backend.ServeHTTP(w, r)
		return
	}
	key := r.Method + r.URL.String()
	if c.ignoresQuery {
		key = r.Method + r.URL.Path
	}
	if c.varies {
		key += r.Header.Get("Origin")
	}
	if c.kept == nil {
		c.kept = make(map[string]*httptest.ResponseRecorder)
	}
	isHit := c.kept[key] != nil
	if !isHit {
		c.kept[key] = httptest.NewRecorder()
		c.backend.ServeHTTP(c.kept[key], r)
	}
	for name, values := range c.kept[key].Header() {
		w.Header()[name] = values
	}
	if isHit && c.hit != "" {
		w.Header().Set(c.hit, "MISS, HIT")
	} else if isHit {
		w.Header().Set("Age", "1")
	}
	w.WriteHeader(c.kept[key].Code)
	w.Write(c.kept[key].Body.Bytes())
}
