// Package probetest has backends with the mistakes that publishers make, for tests of
// package probe. There is at least one for each finding id, and some are correct.
package probetest

import (
	"cmp"
	"compress/flate"
	"compress/gzip"
	"io"
	"maps"
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
	"github.com/ampcors/ampcors/probe"
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

// or allows the publisher's origins, and requests for which f returns true.
func or(f func(*http.Request) bool) func(*http.Request, string) bool {
	return func(r *http.Request, origin string) bool {
		return slices.Contains(originsOf(Publisher), origin) || f(r)
	}
}

// answers answers requests for which f returns true.
func answers(status int, body string, f func(*http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		isAnswered := f(r)
		if isAnswered {
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
		return isAnswered
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
	jsonPost = probe.Endpoint{Method: "POST", ContentType: "application/json", Body: "{}", Credentials: true,
		Answer: probe.AnswerAny}
	formPost = probe.Endpoint{Method: "POST", ContentType: "application/x-www-form-urlencoded", Body: "a=b",
		Credentials: true, Answer: probe.AnswerForm}
	formGet = probe.Endpoint{Method: "GET", Credentials: true, Answer: probe.AnswerForm}
)

// A Case is a backend with a mistake, or without one.
type Case struct {
	Name      string
	Backend   func() http.Handler
	Endpoint  probe.Endpoint // without its URL; if zero, a GET with credentials that reads JSON
	Publisher string         // if empty, Publisher
	Unsafe    bool           // for probe.Config.Unsafe
	Remembers bool           // its answers depend on earlier requests
	Cookie    string         // for probe.Config.Cookie
	NotTested string         // a part of an Untested.Reason; if it and Want are empty, everything must be tested
	Want      []string       // the ids that must be found, and no others; sorted
}

// Cases returns the backends. Each call of Backend returns a new one.
func Cases() []Case {
	list := slices.Clone(cases)
	for i, c := range list {
		list[i].Publisher = cmp.Or(c.Publisher, Publisher)
		list[i].Endpoint = cmp.Or(c.Endpoint, probe.Endpoint{Method: "GET", Credentials: true, Answer: probe.AnswerJSON})
	}
	return list
}

var cases = []Case{
	{Name: "right", Backend: as(backend{})},
	{Name: "right, with a preflight", Backend: as(backend{grants: "content-type"}), Endpoint: jsonPost, Unsafe: true},
	{Name: "ampcors", Backend: withAMPCORS},
	{Name: "ampcors, with a preflight", Backend: withAMPCORS, Endpoint: jsonPost, Unsafe: true},
	{Name: "ampcors, a form", Backend: withAMPCORS, Endpoint: formPost, Unsafe: true},
	{Name: "public, without credentials", Backend: as(backend{allows: everybody, header: fixed("*")}),
		Endpoint: probe.Endpoint{Method: "GET", Answer: probe.AnswerJSON}},

	{Name: "public, without credentials, a form", Backend: as(backend{allows: everybody, header: fixed("*")}),
		Endpoint: probe.Endpoint{Method: "POST", ContentType: "text/plain", Body: "a", Answer: probe.AnswerJSON},
		Unsafe:   true},
	{Name: "no Vary where no cache may keep the answer",
		Backend: as(backend{noVary: true, changes: func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Cache-Control", "no-store")
			return false
		}})},
	{Name: "JSON after a byte order mark", Backend: as(backend{body: "\ufeff{}"})},
	{Name: "a form with errors for the reader", Backend: as(
		backend{status: http.StatusBadRequest, body: `{"verifyErrors": []}`}), Endpoint: formGet},
	{Name: "a forged POST is redirected", Backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		isDenied := r.Method == http.MethodPost && !slices.Contains(originsOf(Publisher), r.Header.Get("Origin"))
		if isDenied {
			http.Redirect(w, r, "/denied", http.StatusSeeOther)
		}
		return isDenied
	}}), Endpoint: formPost, Unsafe: true, NotTested: "only the backend knows"},
	{Name: "a preflight denies what the request would get",
		Backend: as(backend{runs: true, grants: "content-type", changes: func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost {
				w.Header().Set("Vary", "Origin")
				fixed(r.Header.Get("Origin"))(w.Header(), "")
				if r.Header.Get("Content-Type") != "application/json" {
					w.WriteHeader(http.StatusUnsupportedMediaType)
				}
			}
			return r.Method == http.MethodPost
		}}), Endpoint: jsonPost, Unsafe: true},

	{Name: "no CORS", Backend: as(backend{allows: everybody, header: func(http.Header, string) {}}),
		Want: []string{"acao-missing"}},
	{Name: "another site's origin", Backend: as(backend{allows: everybody, header: fixed("https://www.example.net")}),
		Want: []string{"acao-mismatch"}},
	{Name: "the bare cache", Backend: as(backend{allows: everybody, header: fixed("https://cdn.ampproject.org")}),
		Want: []string{"acao-bare-cache"}},
	{Name: "a pattern", Backend: as(backend{allows: everybody, header: fixed("https://*.ampproject.org")}),
		Want: []string{"acao-pattern"}},
	{Name: "a list", Backend: as(backend{allows: everybody,
		header: fixed("https://www-example-com.cdn.ampproject.org, https://www.example.com")}),
		Want: []string{"acao-pattern"}},
	{Name: "two lines", Backend: as(backend{header: func(h http.Header, origin string) {
		h["Access-Control-Allow-Origin"] = []string{origin, origin}
		h.Set("Access-Control-Allow-Credentials", "true")
	}}), Want: []string{"acao-duplicate"}},
	{Name: "the site's own origin", Backend: as(backend{allows: everybody, header: fixed(ownOrigin)}),
		Want: []string{"acao-source-origin"}},
	{Name: "no credentials", Backend: as(backend{header: func(h http.Header, origin string) {
		h.Set("Access-Control-Allow-Origin", origin)
	}}),
		Want: []string{"acac-missing"}},
	{Name: "credentials in another case", Backend: as(backend{header: func(h http.Header, origin string) {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Allow-Credentials", "True")
	}}), Want: []string{"acac-invalid"}},
	{Name: "* with credentials", Backend: as(backend{allows: everybody, header: fixed("*")}),
		Want: []string{"wildcard-with-credentials"}},
	{Name: "no Vary", Backend: as(backend{noVary: true}), Want: []string{"vary-missing"}},
	{Name: "Vary only with Origin", Backend: as(backend{changes: answers(http.StatusOK, "{}",
		func(r *http.Request) bool { return r.Header.Get("Origin") == "" })}), Want: []string{"vary-missing"}},
	{Name: "Vary only if the origin is allowed", Backend: as(backend{noVary: true, runs: true,
		header: func(h http.Header, origin string) {
			fixed(origin)(h, origin)
			h.Set("Vary", "Origin")
		}}), Want: []string{"vary-missing"}},
	{Name: "a cache that ignores Vary", Remembers: true, Backend: func() http.Handler { return new(sharedCache) },
		Want: []string{"cached-wrong-origin"}},
	{Name: "a redirect that is not exposed", Backend: as(backend{header: func(h http.Header, origin string) {
		fixed(origin)(h, origin)
		h.Set("AMP-Redirect-To", "https://www.example.com/thanks")
	}}), Endpoint: formGet, Want: []string{"expose-missing"}},
	{Name: "a redirect that is exposed", Backend: as(backend{header: func(h http.Header, origin string) {
		fixed(origin)(h, origin)
		h.Set("AMP-Redirect-To", "https://www.example.com/thanks")
		h.Set("Access-Control-Expose-Headers", "amp-redirect-to")
	}}), Endpoint: formGet},
	{Name: "no preflight", Backend: as(backend{changes: answers(http.StatusMethodNotAllowed, "",
		func(r *http.Request) bool { return r.Method == http.MethodOptions })}), Endpoint: jsonPost,
		Want: []string{"preflight-failed"}},
	{Name: "a redirected preflight", Backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodOptions {
			http.Redirect(w, r, "/login", http.StatusFound)
		}
		return r.Method == http.MethodOptions
	}}), Endpoint: jsonPost, Want: []string{"preflight-redirected"}},
	{Name: "a preflight without Content-Type", Backend: as(backend{grants: "authorization"}), Endpoint: jsonPost,
		Want: []string{"preflight-incomplete"}},
	{Name: "an error without CORS", Backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		http.Error(w, "down", http.StatusInternalServerError)
		return true
	}}), Want: []string{"error-without-cors"}},
	{Name: "an error with CORS", Backend: as(backend{status: http.StatusBadGateway}), Want: []string{"http-error"}},
	{Name: "a redirect without CORS", Backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Has("moved") {
			return false
		}
		http.Redirect(w, r, r.URL.String()+"&moved=1", http.StatusFound)
		return true
	}}), Want: []string{"redirect-without-cors"}},
	{Name: "a script as text", Backend: as(backend{body: "alert(1)"}),
		Endpoint: probe.Endpoint{Method: "GET", Answer: probe.AnswerScript, NoSourceOrigin: true},
		Want:     []string{"not-script"}},
	{Name: "HTML", Backend: as(backend{body: "<!doctype html>"}), Want: []string{"not-json"}},
	{Name: "no hash prefix", Backend: as(backend{allows: without(Publisher, isHash)}),
		Want: []string{"hash-origin-refused"}},
	{Name: "no punycode", Backend: as(backend{allows: without("xn--bcher-kva.example",
		func(origin string) bool { return strings.HasPrefix(origin, "https://xn--bcher-example") })}),
		Publisher: "bücher.example", Want: []string{"punycode-origin-refused"}},
	{Name: "not the own origin", Backend: as(backend{
		allows: without(Publisher, func(origin string) bool { return origin == ownOrigin })}),
		Want: []string{"own-origin-refused"}},
	{Name: "only Google's cache", Backend: as(backend{
		allows: without(Publisher, func(origin string) bool { return strings.HasSuffix(origin, "bing-amp.com") })}),
		Want: []string{"cache-refused"}},
	{Name: "only the own origin, which is repeated",
		Backend: as(backend{allows: func(_ *http.Request, origin string) bool { return origin == ownOrigin }}),
		Want:    []string{"cache-refused"}},

	{Name: "any origin", Backend: as(backend{allows: everybody}), Want: []string{"any-origin-allowed"}},
	{Name: "any publisher", Backend: as(backend{allows: and(func(origin string) bool {
		return isHTTPS(origin) &&
			strings.HasSuffix(origin, ".cdn.ampproject.org")
	})}), Want: []string{"any-publisher-allowed"}},
	{Name: "a suffix without its dot", Backend: as(
		backend{allows: and(func(origin string) bool {
			return isHTTPS(origin) &&
				strings.HasSuffix(origin, "cdn.ampproject.org")
		})}), Want: []string{"any-publisher-allowed", "cache-lookalike-allowed"}},
	{Name: "a prefix", Backend: as(backend{allows: and(func(origin string) bool {
		return strings.HasPrefix(origin,
			ownOrigin)
	})}),
		Want: []string{"lookalike-allowed", "port-allowed"}},
	{Name: "the end of the host", Backend: as(backend{
		allows: and(func(origin string) bool { return strings.HasSuffix(origin, Publisher) })}),
		Want: []string{"http-allowed"}}, // every such host is the publisher's
	{Name: "the end of the host, without its dot", Backend: as(
		backend{allows: and(func(origin string) bool { return strings.HasSuffix(origin, "example.com") })}),
		Want: []string{"http-allowed", "lookalike-allowed"}},
	{Name: "null", Backend: as(backend{allows: and(func(origin string) bool { return origin == "null" })}),
		Want: []string{"null-allowed"}},
	{Name: "http", Backend: as(backend{allows: and(func(origin string) bool { return origin == "http://"+Publisher })}),
		Want: []string{"http-allowed"}},
	{Name: "a former cache", Backend: as(backend{allows: and(func(origin string) bool {
		return strings.HasSuffix(origin,
			".amp.cloudflare.com")
	})}),
		Want: []string{"dead-cache-allowed"}},
	{Name: "the claim", Backend: as(backend{allows: func(r *http.Request, origin string) bool {
		return r.URL.Query().Get("__amp_source_origin") == ownOrigin
	}}), Want: []string{"source-origin-trusted"}},
	{Name: "the claim, by a pattern without ^", Backend: as(backend{allows: or(func(r *http.Request) bool {
		return strings.HasSuffix(r.URL.Query().Get("__amp_source_origin"), ownOrigin)
	})}), Want: []string{"source-origin-trusted"}},
	{Name: "one of two claims", Backend: as(backend{allows: func(r *http.Request, origin string) bool {
		claims := r.URL.Query()["__amp_source_origin"]
		return len(claims) > 0 && claims[len(claims)-1] == ownOrigin &&
			(slices.Contains(originsOf(Publisher), origin) || claims[0] == origin)
	}}), Want: []string{"source-origin-trusted"}},
	{Name: "an unescaped dot", Backend: as(backend{
		allows: and(regexp.MustCompile(`^https://www.example\.com$`).MatchString)}), Want: []string{"lookalike-allowed"}},
	{Name: "a suffix on the other cache", Backend: as(backend{allows: and(func(origin string) bool {
		return isHTTPS(origin) && strings.HasPrefix(origin, "https://www-example-com.www.bing-amp.com")
	})}), Want: []string{"lookalike-allowed", "port-allowed"}},
	{Name: "http on a cache", Backend: as(backend{allows: and(func(origin string) bool {
		return origin == "http://www-example-com.www.bing-amp.com"
	})}),
		Want: []string{"http-allowed"}},
	{Name: "AMP-Same-Origin", Backend: as(backend{allows: or(func(r *http.Request) bool {
		return r.Header.Get("AMP-Same-Origin") == "true" || r.Method == http.MethodOptions
	}), grants: "amp-same-origin"}), Want: []string{"same-origin-granted", "same-origin-header-trusted"}},
	{Name: "AMP-Same-Origin for caches", Backend: as(backend{grants: "content-type, amp-same-origin"})},
	{Name: "a forged POST", Backend: as(backend{runs: true}), Endpoint: formPost, Unsafe: true,
		Want: []string{"unsafe-reaches-handler"}},

	{Name: "two lines of credentials", Backend: as(backend{header: func(h http.Header, origin string) {
		h.Set("Access-Control-Allow-Origin", origin)
		h["Access-Control-Allow-Credentials"] = []string{"true", "true"}
	}}), Want: []string{"acac-duplicate"}},
	{Name: "any origin, no credentials, no Vary", Backend: as(backend{allows: everybody, noVary: true,
		header: func(h http.Header, origin string) {
			h.Set("Access-Control-Allow-Origin", origin)
		}}), Want: []string{"acac-missing", "any-origin-allowed", "vary-missing"}},
	{Name: "a redirect to itself", Backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		fixed(r.Header.Get("Origin"))(w.Header(), "")
		http.Redirect(w, r, r.URL.String(), http.StatusFound)
		return true
	}}), Want: []string{"redirect-endless"}},
	{Name: "six redirects", Backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		n := len(r.URL.Query()["hop"])
		if n < 6 && slices.Contains(append(originsOf(Publisher), "null"), r.Header.Get("Origin")) {
			fixed(r.Header.Get("Origin"))(w.Header(), "")
			http.Redirect(w, r, r.URL.String()+"&hop=1", http.StatusFound)
		}
		return n < 6 && w.Header().Get("Location") != ""
	}})},
	{Name: "every third answer without CORS", Remembers: true,
		Backend: func() http.Handler { return &sometimes{every: 3, otherwise: noCORS} },
		Want:    []string{"answers-differ"}},
	{Name: "every third answer without CORS, a form", Remembers: true,
		Backend: func() http.Handler { return &sometimes{every: 3, otherwise: noCORS} }, Endpoint: formPost, Unsafe: true,
		Want: []string{"answers-differ"}},
	{Name: "the claim of everybody is allowed if there is none",
		Backend: as(backend{allows: or(func(r *http.Request) bool { return !r.URL.Query().Has("__amp_source_origin") })}),
		Want:    []string{"no-claim-allowed"}},
	{Name: "the claim is repeated", Backend: as(backend{allows: everybody, header: func(http.Header, string) {},
		changes: func(w http.ResponseWriter, r *http.Request) bool {
			fixed(r.URL.Query().Get("__amp_source_origin"))(w.Header(), "")
			return false
		}}), Want: []string{"acao-source-origin", "source-origin-trusted"}},
	{Name: "a prefix that ends with the publisher's", Backend: as(backend{allows: and(func(origin string) bool {
		return isHTTPS(origin) && strings.HasSuffix(origin, "example-com.cdn.ampproject.org")
	})}), Want: []string{"prefix-lookalike-allowed"}},
	{Name: "a prefix that begins with the publisher's", Backend: as(backend{allows: and(func(origin string) bool {
		return strings.HasPrefix(origin, "https://www-example-com") && strings.HasSuffix(origin, ".cdn.ampproject.org")
	})}), Want: []string{"prefix-lookalike-allowed"}},
	{Name: "a prefix that has the publisher's", Backend: as(backend{allows: and(func(origin string) bool {
		return strings.Contains(origin, "www-example-com-") && strings.HasSuffix(origin, ".cdn.ampproject.org")
	})}), Want: []string{"prefix-lookalike-allowed"}},
	{Name: "naive decoding", Backend: as(backend{allows: and(func(origin string) bool {
		prefix, isCache := strings.CutSuffix(strings.TrimPrefix(origin, "https://"), ".cdn.ampproject.org")
		return isCache && isHTTPS(origin) && strings.ReplaceAll(strings.ReplaceAll(prefix, "--", "-"), "-", ".") == Publisher
	})}), Want: []string{"naive-prefix-allowed"}},
	{Name: "any prefix of 52 characters", Backend: as(backend{allows: and(isHash)}),
		Want: []string{"any-publisher-allowed", "lookalike-allowed"}},
	{Name: "a prefix that another publisher has", Backend: as(backend{allows: func(_ *http.Request, origin string) bool {
		return slices.Contains(originsOf("www.lāstekas.lv"), origin) ||
			origin == "https://xn--www-lstekas-lv-pub.cdn.ampproject.org" ||
			origin == "https://xn--www-lstekas-lv-pub.www.bing-amp.com"
	}}),
		Publisher: "www.lāstekas.lv", Want: []string{"twin-allowed"}},
	{Name: "another port", Backend: as(backend{allows: func(_ *http.Request, origin string) bool {
		return slices.Contains(originsOf(Publisher), strings.TrimSuffix(origin, ":8443"))
	}}), Want: []string{"port-allowed"}},
	{Name: "every host of the publisher", Backend: as(backend{allows: and(func(origin string) bool {
		return isHTTPS(origin) && strings.HasSuffix(origin, ".example.com")
	})})},
	{Name: "localhost", Backend: as(backend{allows: and(regexp.MustCompile(`^https?://localhost(:\d+)?$`).MatchString)}),
		Want: []string{"localhost-allowed"}},
	{Name: "the end google.com", Backend: as(backend{
		allows: and(func(origin string) bool { return strings.HasSuffix(origin, "google.com") })}),
		Want: []string{"lookalike-allowed"}},
	{Name: "the Referer", Backend: as(backend{allows: or(func(r *http.Request) bool {
		return strings.Contains(r.Referer(),
			ownOrigin)
	})}),
		Want: []string{"referer-trusted"}},
	{Name: "the bare domain of a former cache", Backend: as(
		backend{allows: and(func(origin string) bool { return origin == "https://amp.cloudflare.com" })}),
		Want: []string{"dead-cache-allowed"}},
	{Name: "the dotted form of a former cache", Backend: as(
		backend{allows: and(func(origin string) bool { return origin == "https://www.example.com.amp.cloudflare.com" })}),
		Want: []string{"dead-cache-allowed"}},
	{Name: "AMP-Same-Origin above Origin", Backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("AMP-Same-Origin") == "true" {
			r.Header.Del("Origin")
		}
		return false
	}}), Want: []string{"same-origin-header-preferred"}},
	{Name: "open to all by design", Backend: as(backend{allows: everybody, body: `{"posts": [1, 2]}`}),
		Cookie: "session=1", Want: []string{"open-to-all"}},
	{Name: "open to all, with the reader's name", Backend: as(backend{allows: everybody,
		changes: func(w http.ResponseWriter, r *http.Request) bool {
			fixed(r.Header.Get("Origin"))(w.Header(), "")
			w.Header().Set("Vary", "Origin")
			io.WriteString(w, `{"cookie": "`+r.Header.Get("Cookie")+`"}`)
			return true
		}}), Cookie: "session=1", Want: []string{"any-origin-allowed"}},
	{Name: "a claim or an origin, and look-alikes", Backend: as(backend{allows: func(r *http.Request, origin string) bool {
		return slices.Contains(originsOf(Publisher), origin) || r.URL.Query().Get("__amp_source_origin") == ownOrigin ||
			strings.HasPrefix(origin, ownOrigin)
	}}), Want: []string{"lookalike-allowed", "port-allowed", "source-origin-trusted"}},

	{Name: "a forged POST without a claim", Backend: as(backend{body: `{"ok": true}`,
		changes: func(w http.ResponseWriter, r *http.Request) bool {
			if !r.URL.Query().Has("__amp_source_origin") {
				io.WriteString(w, `{"ok": true}`)
				return true
			}
			return false
		}}), Endpoint: formPost, Unsafe: true, Want: []string{"unsafe-reaches-handler"}},
	{Name: "a forged POST from a cache", Backend: as(backend{body: `{"ok": true}`,
		changes: answers(http.StatusOK, `{"ok": true}`, func(r *http.Request) bool {
			return strings.HasSuffix(r.Header.Get("Origin"), ".cdn.ampproject.org") &&
				r.URL.Query().Get("__amp_source_origin") == ownOrigin &&
				!slices.Contains(originsOf(Publisher), r.Header.Get("Origin"))
		})}), Endpoint: formPost, Unsafe: true, Want: []string{"unsafe-reaches-handler"}},
	{Name: "a forged POST, accepted with a redirect",
		Backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost {
				if origin := r.Header.Get("Origin"); slices.Contains(originsOf(Publisher), origin) {
					fixed(origin)(w.Header(), "")
				}
				http.Redirect(w, r, "/thanks", http.StatusSeeOther)
			}
			return r.Method == http.MethodPost
		}}), Endpoint: formPost, Unsafe: true, Want: []string{"unsafe-reaches-handler"}},
	{Name: "a forged POST of JSON, where every preflight is granted",
		Backend: as(backend{body: `{"ok": true}`, changes: func(w http.ResponseWriter, r *http.Request) bool {
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
		}}), Endpoint: jsonPost, Unsafe: true, Want: []string{"unsafe-reaches-handler"}},
	{Name: "a handler that runs although the answer is 403",
		Backend: as(backend{body: `{"ok": true}`, changes: func(w http.ResponseWriter, r *http.Request) bool {
			if slices.Contains(originsOf(Publisher), r.Header.Get("Origin")) {
				return false
			}
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, `Forbidden{"ok": true}`)
			return true
		}}), Endpoint: formPost, Unsafe: true, Want: []string{"unsafe-reaches-handler"}},
	{Name: "a POST with two lines", Backend: as(backend{grants: "content-type",
		header: func(h http.Header, origin string) {
			h["Access-Control-Allow-Origin"] = []string{origin, origin}
			h.Set("Access-Control-Allow-Credentials", "true")
		}}), Endpoint: jsonPost, Unsafe: true, Want: []string{"acao-duplicate"}},
	{Name: "a POST with the bare cache", Backend: as(
		backend{grants: "content-type", allows: everybody, header: fixed("https://cdn.ampproject.org")}),
		Endpoint: jsonPost, Unsafe: true, Want: []string{"acao-bare-cache", "unsafe-reaches-handler"}},
	{Name: "a POST with a pattern", Backend: as(backend{grants: "content-type",
		header: fixed("https://*.ampproject.org")}),
		Endpoint: jsonPost, Unsafe: true, Want: []string{"acao-pattern"}},
	{Name: "a POST with *", Backend: as(backend{grants: "content-type", header: fixed("*")}), Endpoint: jsonPost,
		Unsafe: true,
		Want:   []string{"wildcard-with-credentials"}},
	{Name: "a POST without credentials", Backend: as(backend{grants: "content-type",
		header: func(h http.Header, origin string) {
			h.Set("Access-Control-Allow-Origin",
				origin)
		}}), Endpoint: jsonPost, Unsafe: true, Want: []string{"acac-missing"}},
	{Name: "a limit of requests, without a mistake", Remembers: true,
		Backend:   func() http.Handler { return &limited{left: 20, status: 503} },
		NotTested: "limits requests"},
	{Name: "a limit of requests, and null is allowed", Remembers: true, Backend: func() http.Handler {
		return &limited{left: 20, status: 429, backend: backend{
			allows: and(func(origin string) bool { return origin == "null" })}}
	}, NotTested: "limits requests"},
	{Name: "a firewall after some requests", Remembers: true, Backend: func() http.Handler {
		return &limited{left: 30, status: 403, backend: backend{
			allows: and(func(origin string) bool { return strings.HasPrefix(origin, "http:") })}}
	}, NotTested: "is answered with status 403 now"},
	{Name: "a firewall for this program", Backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		return true
	}}), NotTested: "a login or a firewall"},
	{Name: "any origin, and unknown parameters are an error",
		Backend: as(backend{allows: everybody, changes: noParameters}),
		Want:    []string{"any-origin-allowed"}},
	{Name: "null, and unknown parameters are an error, behind a cache", Backend: func() http.Handler {
		return &sharedCache{varies: true, backend: backend{allows: and(func(origin string) bool { return origin == "null" }),
			changes: noParameters}}
	}, Want: []string{"null-allowed"}},
	{Name: "a forged POST that is perhaps denied", Backend: as(backend{runs: true, body: `{"ok": true}`,
		changes: answers(http.StatusOK, `{"ok": false}`,
			func(r *http.Request) bool {
				return !slices.Contains(originsOf(Publisher),
					r.Header.Get("Origin"))
			})}), Endpoint: formPost, Unsafe: true, NotTested: "only the backend knows"},
	{Name: "null, and the backend takes one request at a time", Backend: func() http.Handler { return new(narrow) },
		Remembers: true,
		Want:      []string{"null-allowed"}},
	{Name: "null, and the backend takes one request of other pages at a time",
		Backend: func() http.Handler { return &narrow{forOthers: true} }, Remembers: true, Want: []string{"null-allowed"}},
	{Name: "null, and other pages are banned after some requests",
		Backend: func() http.Handler { return &banning{left: 10} }, Remembers: true,
		NotTested: "perhaps the backend takes this program for an attacker"},
	{Name: "any origin, but no preflight", Backend: as(backend{allows: everybody,
		changes: answers(http.StatusForbidden, "", func(r *http.Request) bool {
			return r.Method == http.MethodOptions && !slices.Contains(originsOf(Publisher), r.Header.Get("Origin"))
		}), grants: "content-type"}), Endpoint: jsonPost, Unsafe: true,
		Want: []string{"any-origin-allowed", "unsafe-reaches-handler"}},
	{Name: "every preflight for PUT is granted", Backend: as(backend{runs: true,
		changes: func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodOptions {
				fixed(r.Header.Get("Origin"))(w.Header(), "")
				w.Header().Set("Access-Control-Allow-Methods", "PUT")
			}
			return r.Method == http.MethodOptions
		}}), Endpoint: probe.Endpoint{Method: "PUT", Credentials: true, Answer: probe.AnswerAny}, Unsafe: true,
		Want: []string{"unsafe-reaches-handler"}},
	{Name: "a forged POST from null", Backend: as(backend{body: `{"ok": true}`,
		changes: answers(http.StatusOK, `{"ok": true}`,
			func(r *http.Request) bool { return r.Header.Get("Origin") == "null" })}), Endpoint: formPost, Unsafe: true,
		Want: []string{"unsafe-reaches-handler"}},
	{Name: "a forged POST from a look-alike", Backend: as(backend{body: `{"ok": true}`,
		changes: func(w http.ResponseWriter, r *http.Request) bool {
			origin := r.Header.Get("Origin")
			isLike := strings.HasPrefix(origin, ownOrigin) && origin != ownOrigin
			if isLike {
				io.WriteString(w, `{"ok": true}`)
			}
			return isLike
		}}), Endpoint: formPost, Unsafe: true, Want: []string{"unsafe-reaches-handler"}},
	{Name: "a claim that is the origin, by its end",
		Backend: as(backend{allows: func(r *http.Request, origin string) bool {
			return slices.Contains(originsOf(Publisher), origin) ||
				origin == r.URL.Query().Get("__amp_source_origin") && strings.HasSuffix(origin, "example.com")
		}}), Want: []string{"http-allowed", "lookalike-allowed"}},
	{Name: "another top-level domain", Backend: as(
		backend{allows: and(regexp.MustCompile(`^https://www\.example\.[a-z]{2,3}$`).MatchString)}),
		Want: []string{"lookalike-allowed"}},
	{Name: "a hyphen that is not doubled", Publisher: "my-site.com",
		Backend: as(backend{allows: func(_ *http.Request, origin string) bool {
			return slices.Contains(originsOf("my-site.com"), origin) || origin == "https://my-site-com.cdn.ampproject.org"
		}}), Want: []string{"naive-prefix-allowed"}},
	{Name: "the apex, after any subdomain", Publisher: "example.com",
		Backend: as(backend{allows: func(_ *http.Request, origin string) bool {
			return slices.Contains(originsOf("example.com"), origin) ||
				strings.HasSuffix(origin, "-example-com.cdn.ampproject.org")
		}}), Want: []string{"prefix-lookalike-allowed"}},
	{Name: "a cache that ignores the query, in front of any publisher who claims to be ours",
		Backend: func() http.Handler {
			return &sharedCache{varies: true, ignoresQuery: true,
				backend: backend{allows: func(r *http.Request, origin string) bool {
					return slices.Contains(originsOf(Publisher), origin) ||
						isHTTPS(origin) && strings.HasSuffix(origin, ".cdn.ampproject.org") &&
							r.URL.Query().Get("__amp_source_origin") == ownOrigin
				}}}
		}, Remembers: true, NotTested: "a cache in front of the backend answered"},

	// Kinds of mistakes, and of right answers, that earlier versions judged wrongly.
	{Name: "letters after the domain", Backend: as(
		backend{allows: and(regexp.MustCompile(`^https://www\.example\.com[a-z]*$`).MatchString)}),
		Want: []string{"lookalike-allowed"}},
	{Name: "a country after the domain", Backend: as(
		backend{allows: and(regexp.MustCompile(`^https://www\.example\.com(\.[a-z]{2})?$`).MatchString)}),
		Want: []string{"lookalike-allowed"}},
	{Name: "letters after the cache's domain", Backend: as(
		backend{allows: and(regexp.MustCompile(`^https://www-example-com\.cdn\.ampproject\.org[a-z]*$`).MatchString)}),
		Want: []string{"lookalike-allowed"}},
	{Name: "a dot that is not escaped, after www", Publisher: "www.example.co.uk",
		Backend: as(backend{allows: func(_ *http.Request, origin string) bool {
			return slices.Contains(originsOf("www.example.co.uk"), origin) ||
				regexp.MustCompile(`^https://www.example\.co\.uk$`).MatchString(origin)
		}}), Want: []string{"lookalike-allowed"}},
	{Name: "the second dot of a cache is not escaped",
		Backend: as(backend{allows: and(regexp.MustCompile(`^https://www-example-com\.www.bing-amp\.com$`).MatchString)}),
		Want:    []string{"lookalike-allowed"}},
	{Name: "any publisher of the same shape", Backend: as(
		backend{allows: and(regexp.MustCompile(`^https://www-[a-z]+-com\.cdn\.ampproject\.org$`).MatchString)}),
		Want: []string{"prefix-lookalike-allowed"}},
	{Name: "a claim with user information", Backend: as(backend{allows: or(func(r *http.Request) bool {
		return strings.HasPrefix(r.URL.Query().Get("__amp_source_origin"), ownOrigin+"@")
	})}), Want: []string{"source-origin-trusted"}},
	{Name: "a claim with the publisher in its query", Backend: as(backend{allows: or(func(r *http.Request) bool {
		return strings.HasSuffix(r.URL.Query().Get("__amp_source_origin"), "?"+ownOrigin)
	})}), Want: []string{"source-origin-trusted"}},
	{Name: "a claim with the publisher in its fragment", Backend: as(backend{allows: or(func(r *http.Request) bool {
		return strings.HasSuffix(r.URL.Query().Get("__amp_source_origin"), "#"+ownOrigin)
	})}), Want: []string{"source-origin-trusted"}},
	{Name: "an empty claim", Backend: as(backend{allows: or(func(r *http.Request) bool {
		return r.URL.Query().Has("__amp_source_origin") && r.URL.Query().Get("__amp_source_origin") == ""
	})}), Want: []string{"no-claim-allowed"}},
	{Name: "any origin, for browsers", Backend: as(
		backend{allows: or(func(r *http.Request) bool { return strings.HasPrefix(r.UserAgent(), "Mozilla/") })}),
		Want: []string{"any-origin-allowed"}},
	{Name: "a firewall that only lets browsers in",
		Backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
			isBrowser := strings.HasPrefix(r.UserAgent(), "Mozilla/")
			if !isBrowser {
				w.WriteHeader(http.StatusForbidden)
			}
			return !isBrowser
		}})},
	{Name: "no Referer", Backend: as(backend{allows: or(func(r *http.Request) bool { return r.Referer() == "" })}),
		Want: []string{"no-referer-allowed"}},
	{Name: "a 304 for another page", Backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("ETag", `"1"`)
		isSame := r.Header.Get("If-None-Match") == `"1"`
		if isSame {
			fixed("https://www.example.net")(w.Header(), "")
			w.WriteHeader(http.StatusNotModified)
		}
		return isSame
	}}), Want: []string{"revalidation-wrong-origin"}},
	{Name: "a 304 without CORS", Backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("ETag", `"1"`)
		isSame := r.Header.Get("If-None-Match") == `"1"`
		if isSame {
			w.WriteHeader(http.StatusNotModified)
		}
		return isSame
	}})},
	{Name: "a POST with a redirect that is not exposed",
		Backend: as(backend{grants: "content-type", header: func(h http.Header, origin string) {
			fixed(origin)(h, origin)
			h.Set("AMP-Redirect-To", "https://www.example.com/thanks")
			h.Set("Access-Control-Expose-Headers", "*")
		}}), Endpoint: jsonPost, Unsafe: true, Want: []string{"expose-missing"}},
	{Name: "a redirect to a path", Backend: as(backend{header: func(h http.Header, origin string) {
		fixed(origin)(h, origin)
		h.Set("AMP-Redirect-To", "/thanks")
		h.Set("Access-Control-Expose-Headers", "AMP-Redirect-To")
	}}), Endpoint: formPost, Unsafe: true, Want: []string{"redirect-to-invalid"}},
	{Name: "a library that repeats the headers that a preflight asks for",
		Backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
			origin := r.Header.Get("Origin")
			if r.Method != http.MethodOptions || !slices.Contains(originsOf(Publisher), origin) {
				return false
			}
			fixed(origin)(w.Header(), "")
			w.Header().Set("Vary", "Origin")
			w.Header().Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
			return true
		}})},
	{Name: "Vary by the claim", Backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		isForeign := r.URL.Query().Get("__amp_source_origin") != ownOrigin &&
			slices.Contains([]string{"https://ampcors-probe.example"}, r.Header.Get("Origin"))
		if isForeign { // a denial at a URL of its own
			io.WriteString(w, "{}")
		}
		return isForeign
	}})},
	{Name: "a login before everything without cookies", Cookie: "session=1",
		Backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/login" {
				io.WriteString(w, "log in")
				return true
			}
			if r.Header.Get("Cookie") == "" {
				http.Redirect(w, r, "/login", http.StatusFound)
				return true
			}
			return false
		}}), NotTested: "not every answer is a success"},
	{Name: "a protection against CSRF that denies every cross-site page",
		Backend: as(backend{allows: func(*http.Request, string) bool { return false },
			changes: func(w http.ResponseWriter, r *http.Request) bool {
				isCross := r.Header.Get("Origin") != "" && r.Header.Get("Sec-Fetch-Site") == "cross-site"
				if isCross {
					http.Error(w, "cross-origin request", http.StatusForbidden)
				}
				return isCross
			}}), NotTested: "says nothing about other pages", Want: []string{"cache-refused", "own-origin-refused"}},
	{Name: "preflights in a cache that knows only the URL", Remembers: true, Backend: func() http.Handler {
		return &sharedCache{only: http.MethodOptions, backend: backend{grants: "content-type"}}
	}, Endpoint: jsonPost, Unsafe: true, Want: []string{"cached-wrong-origin"}},
	{Name: "answers in a cache that knows only the path", Remembers: true, Backend: func() http.Handler {
		return &sharedCache{ignoresQuery: true}
	}, NotTested: "a cache in front of the backend answered", Want: []string{"cached-wrong-origin"}},
	{Name: "one of two servers has no CORS", Remembers: true,
		Backend:   func() http.Handler { return &sometimes{every: 2, otherwise: noCORS} },
		NotTested: "answered with other CORS headers", Want: []string{"answers-differ"}},
	{Name: "a forged POST is accepted later", Backend: as(backend{body: `{"ok": true}`,
		changes: answers(http.StatusAccepted, "", func(r *http.Request) bool {
			return !slices.Contains(originsOf(Publisher),
				r.Header.Get("Origin"))
		})}), Endpoint: formPost, Unsafe: true, Want: []string{"unsafe-seems-to-run"}},
	{Name: "a forged POST from the second cache", Backend: as(backend{body: `{"ok": true}`,
		changes: answers(http.StatusOK, `{"ok": true}`, func(r *http.Request) bool {
			return strings.HasSuffix(r.Header.Get("Origin"), ".www.bing-amp.com") &&
				!slices.Contains(originsOf(Publisher), r.Header.Get("Origin"))
		})}), Endpoint: formPost, Unsafe: true, Want: []string{"unsafe-reaches-handler"}},
	{Name: "a forged POST as multipart", Backend: as(backend{body: `{"ok": true}`,
		changes: answers(http.StatusOK, `{"ok": true}`, func(r *http.Request) bool {
			return strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") &&
				!slices.Contains(originsOf(Publisher), r.Header.Get("Origin"))
		})}), Endpoint: formPost, Unsafe: true, Want: []string{"unsafe-reaches-handler"}},
	{Name: "503 for one cache", Backend: as(backend{changes: answers(http.StatusServiceUnavailable, "",
		func(r *http.Request) bool {
			return strings.HasSuffix(r.Header.Get("Origin"),
				".www.bing-amp.com")
		})}), NotTested: "limits requests", Want: []string{"cache-refused"}},
	{Name: "the own page's POST is denied, and a forged one is not",
		Backend: as(backend{body: `{"ok": true}`, changes: func(w http.ResponseWriter, r *http.Request) bool {
			switch origin := r.Header.Get("Origin"); {
			case origin == ownOrigin:
				w.WriteHeader(http.StatusForbidden)
			case slices.Contains(originsOf(Publisher), origin):
				return false
			default:
				io.WriteString(w, `{"ok": true}`)
			}
			return true
		}}), Endpoint: formPost, Unsafe: true, Want: []string{"own-origin-refused", "unsafe-reaches-handler"}},
	{Name: "a denial as JSON", Backend: as(backend{body: `{"code": 0, "errors": []}`,
		changes: answers(http.StatusForbidden, `{"code": 40301, "errors": ["origin not allowed"]}`,
			func(r *http.Request) bool { return !slices.Contains(originsOf(Publisher), r.Header.Get("Origin")) })}),
		Endpoint: formPost, Unsafe: true},
	{Name: "a forged form, which navigates", Backend: as(backend{body: `{"ok": true}`,
		changes: answers(http.StatusOK, `{"ok": true}`,
			func(r *http.Request) bool { return r.Header.Get("Sec-Fetch-Mode") == "navigate" })}), Endpoint: formPost,
		Unsafe: true, Want: []string{"unsafe-reaches-handler"}},
	{Name: "a forged POST over http", Backend: as(backend{body: `{"ok": true}`,
		changes: answers(http.StatusOK, `{"ok": true}`,
			func(r *http.Request) bool { return r.Header.Get("Origin") == "http://www.example.com" })}), Endpoint: formPost,
		Unsafe: true, Want: []string{"unsafe-reaches-handler"}},
	{Name: "502 for every URL that the probe has not made new", Remembers: true,
		Backend: as(backend{changes: answers(http.StatusBadGateway, "", func(r *http.Request) bool {
			return r.Header.Get("Origin") != "" && !r.URL.Query().Has("ampcors_probe") &&
				slices.Contains(originsOf(Publisher), r.Header.Get("Origin"))
		})}), Want: []string{"cached-wrong-origin"}},
	{Name: "a 304 for everybody, with credentials",
		Backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("ETag", `"1"`)
			isSame := r.Header.Get("If-None-Match") == `"1"`
			if isSame {
				w.Header().Set("Access-Control-Allow-Origin", "*")
				w.WriteHeader(http.StatusNotModified)
			}
			return isSame
		}}), Want: []string{"revalidation-wrong-origin"}},
	{Name: "the publisher's domain over http", Backend: as(
		backend{allows: and(func(origin string) bool { return origin == "http://example.com" })}),
		Want: []string{"http-allowed"}},
	{Name: "a development server", Backend: as(backend{
		allows: and(func(origin string) bool { return origin == "http://localhost:5173" })}),
		Want: []string{"localhost-allowed"}},
	{Name: "a dot of a pattern for the prefix", Backend: as(
		backend{allows: and(regexp.MustCompile(`^https://www.example.com\.cdn\.ampproject\.org$`).MatchString)}),
		Want: []string{"prefix-lookalike-allowed"}},
	{Name: "a CDN without CORS, where everything is a hit",
		Backend: as(backend{allows: everybody, header: func(h http.Header, _ string) {
			h.Set("X-Cache", "Hit from cloudfront")
		}}), Want: []string{"acao-missing"}},
	{Name: "a cache that says MISS, HIT", Remembers: true, Backend: func() http.Handler {
		return &sharedCache{ignoresQuery: true, hit: "X-Cache"}
	}, NotTested: "a cache in front of the backend answered (X-Cache: MISS, HIT)", Want: []string{"cached-wrong-origin"}},
	{Name: "a denial of 404 that caches store", Backend: as(backend{noVary: true,
		changes: func(w http.ResponseWriter, r *http.Request) bool {
			isDenied := r.Header.Get("Origin") != "" && !slices.Contains(originsOf(Publisher), r.Header.Get("Origin"))
			if isDenied {
				w.WriteHeader(http.StatusNotFound)
			} else {
				w.Header().Set("Vary", "Origin")
			}
			return isDenied
		}}), Want: []string{"vary-missing"}},

	// Comparisons of text in place of names.
	{Name: "a list that is one text", Backend: as(backend{allows: and(func(origin string) bool {
		return isHTTPS(origin) && strings.Contains("www.example.com api.example.com", origin[8:])
	})}), Want: []string{"lookalike-allowed"}},
	{Name: "www. is removed anywhere", Backend: as(backend{allows: and(func(origin string) bool {
		return strings.Replace(origin, "www.", "", 1) == "https://example.com"
	})}), Want: []string{"lookalike-allowed"}},
	{Name: "www- is removed anywhere", Backend: as(backend{allows: and(func(origin string) bool {
		return strings.Replace(origin, "www-", "", 1) == "https://example-com.cdn.ampproject.org"
	})}), Want: []string{"prefix-lookalike-allowed"}},
	{Name: "characters are removed from the beginning",
		Backend: as(backend{allows: and(func(origin string) bool {
			return strings.TrimLeft(origin,
				"htps:/w.") == "example.com"
		})}), Want: []string{"http-allowed",
			"lookalike-allowed"}},
	{Name: "characters are removed from the end", Backend: as(
		backend{allows: and(func(origin string) bool { return strings.TrimRight(origin, ".com") == "https://www.example" })}),
		Want: []string{"lookalike-allowed"}},
	{Name: "www with any character, or nothing", Publisher: "example.com",
		Backend: as(backend{allows: func(_ *http.Request, origin string) bool {
			return slices.Contains(originsOf("example.com"), origin) ||
				regexp.MustCompile(`^https://(www.)?example\.com$`).MatchString(origin)
		}}), Want: []string{"lookalike-allowed"}},
	{Name: "a country after the prefix", Backend: as(
		backend{allows: and(regexp.MustCompile(`^https://www-example-com(-[a-z]{2})?\.cdn\.ampproject\.org$`).MatchString)}),
		Want: []string{"prefix-lookalike-allowed"}},
	{Name: "a name without its accents", Publisher: "bücher.example",
		Backend: as(backend{allows: func(_ *http.Request, origin string) bool {
			return slices.Contains(originsOf("bücher.example"), origin) || origin == "https://bucher.example" ||
				origin == "https://buecher.example"
		}}), Want: []string{"lookalike-allowed"}},
	{Name: "every preview of a hosting service", Backend: as(
		backend{allows: and(regexp.MustCompile(`^https://[a-z0-9-]+\.vercel\.app$`).MatchString)}),
		Want: []string{"hosting-allowed"}},
	{Name: "a preview of its own", Backend: as(backend{
		allows: and(regexp.MustCompile(`^https://example-[a-z0-9]+-team\.vercel\.app$`).MatchString)})},
	{Name: "every frame of ads", Backend: as(backend{
		allows: and(func(origin string) bool { return isHTTPS(origin) && strings.HasSuffix(origin, ".ampproject.net") })}),
		Want: []string{"ad-frame-allowed"}},
	{Name: "an extension", Backend: as(backend{allows: and(func(origin string) bool {
		return strings.HasPrefix(origin,
			"chrome-extension://")
	})}),
		Want: []string{"localhost-allowed"}},
	{Name: "a private network", Backend: as(backend{
		allows: and(regexp.MustCompile(`^http://192\.168\.\d+\.\d+(:\d+)?$`).MatchString)}),
		Want: []string{"localhost-allowed"}},

	// Answers that depend on what only some readers send.
	{Name: "phones are redirected", Backend: as(backend{changes: redirects("Mobile", "User-Agent", false)}),
		Want: []string{"browser-refused"}},
	{Name: "phones are redirected, with CORS", Backend: as(backend{changes: redirects("Mobile", "User-Agent", true)})},
	{Name: "German is redirected", Backend: as(backend{changes: redirects("de", "Accept-Language", false)}),
		Want: []string{"browser-refused"}},
	{Name: "pages need a Referer", Backend: as(backend{changes: answers(http.StatusForbidden, "",
		func(r *http.Request) bool {
			return slices.Contains(originsOf(Publisher), r.Header.Get("Origin")) && r.Referer() == ""
		})}), Want: []string{"browser-refused"}},
	{Name: "HTML for iPhones", Backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
		isPhone := strings.Contains(r.UserAgent(), "iPhone") && slices.Contains(originsOf(Publisher), r.Header.Get("Origin"))
		if isPhone {
			fixed(r.Header.Get("Origin"))(w.Header(), "")
			w.Header().Set("Vary", "Origin, User-Agent")
			io.WriteString(w, "<!doctype html>")
		}
		return isPhone
	}}), Want: []string{"browser-refused"}},
	{Name: "English is redirected, with CORS", Backend: as(backend{changes: redirects("en", "Accept-Language", true)})},
	{Name: "CORS only with a session", Cookie: "session=1",
		Backend: as(backend{changes: answers(http.StatusOK, "{}",
			func(r *http.Request) bool { return r.Header.Get("Cookie") == "" })}), Want: []string{"cookie-needed"}},
	{Name: "401 with CORS without a session", Cookie: "session=1",
		Backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
			isGuest := r.Header.Get("Cookie") == "" && slices.Contains(originsOf(Publisher), r.Header.Get("Origin"))
			if isGuest {
				fixed(r.Header.Get("Origin"))(w.Header(), "")
				w.Header().Set("Vary", "Origin")
				w.WriteHeader(http.StatusUnauthorized)
			}
			return isGuest
		}}), NotTested: "not every answer is a success"},
	{Name: "gzip and deflate", Backend: as(backend{changes: compresses})},
	{Name: "one answer for all that ask at one time", Remembers: true,
		Backend: func() http.Handler { return new(inFlight) },
		Want:    []string{"shared-wrong-origin"}},
	{Name: "one answer for all that ask at one time, each second time", Remembers: true,
		Backend: func() http.Handler { return &inFlight{sometimes: true} }, Want: []string{"shared-wrong-origin"}},
	{Name: "one answer for all of an origin that ask at one time", Remembers: true,
		Backend: func() http.Handler { return &inFlight{varies: true} }},
	{Name: "a 304 with Access-Control-Allow-Origin alone",
		Backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("ETag", `"1"`)
			isSame := r.Header.Get("If-None-Match") == `"1"`
			if isSame {
				w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
				w.WriteHeader(http.StatusNotModified)
			}
			return isSame
		}})},
	{Name: "a POST that a redirect makes a GET", Backend: as(backend{changes: func(w http.ResponseWriter,
		r *http.Request) bool {
		if fixed(r.Header.Get("Origin"))(w.Header(), ""); !slices.Contains(originsOf(Publisher), r.Header.Get("Origin")) {
			w.Header().Del("Access-Control-Allow-Origin")
			w.WriteHeader(http.StatusForbidden)
		} else if r.Method == http.MethodPost {
			http.Redirect(w, r, r.URL.String()+"&slash=1", http.StatusMovedPermanently)
		} else {
			w.WriteHeader(http.StatusMethodNotAllowed)
			io.WriteString(w, `{"detail": "Method GET not allowed"}`)
		}
		return true
	}}), Endpoint: formPost, Unsafe: true, Want: []string{"http-error"}},
	{Name: "a POST that is redirected to itself as GET",
		Backend: as(backend{changes: func(w http.ResponseWriter, r *http.Request) bool {
			isRedirected := r.Method == http.MethodPost && slices.Contains(originsOf(Publisher), r.Header.Get("Origin"))
			if isRedirected {
				fixed(r.Header.Get("Origin"))(w.Header(), "")
				http.Redirect(w, r, r.URL.String(), http.StatusSeeOther)
			}
			return isRedirected
		}}), Endpoint: formPost, Unsafe: true},
	{Name: "a strict redirect to what every website can read",
		Backend: as(backend{allows: func(r *http.Request, origin string) bool {
			return r.URL.Query().Has("moved") || slices.Contains(originsOf(Publisher), origin)
		}, changes: redirects("", "User-Agent", true)}), Want: []string{"any-origin-allowed", "null-allowed"}},
	{Name: "every publisher, and a redirect to what every website can read",
		Backend: as(backend{allows: func(r *http.Request, origin string) bool {
			isCache := isHTTPS(origin) && strings.HasSuffix(origin, ".cdn.ampproject.org")
			return r.URL.Query().Has("moved") || isCache || slices.Contains(originsOf(Publisher), origin)
		}, changes: redirects("", "User-Agent", true)}),
		Want: []string{"any-origin-allowed", "any-publisher-allowed", "null-allowed"}},
	{Name: "AMP-Redirect-To without a body", Backend: as(backend{body: " ", header: func(h http.Header, origin string) {
		fixed(origin)(h, origin)
		h.Set("AMP-Redirect-To", "https://www.example.com/thanks")
		h.Set("Access-Control-Expose-Headers", "AMP-Redirect-To")
	}}), Endpoint: formGet},
	{Name: "no Vary where only the browser may keep the answer",
		Backend: as(backend{noVary: true, changes: func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Cache-Control", "private, max-age=60")
			return false
		}})},
	{Name: "a forged fetch, where forms are denied", Backend: as(backend{body: `{"ok": true}`, runs: true,
		changes: answers(http.StatusForbidden, "", func(r *http.Request) bool {
			return r.Header.Get("Sec-Fetch-Mode") == "navigate"
		})}),
		Endpoint: formPost, Unsafe: true, Want: []string{"unsafe-reaches-handler"}},
	{Name: "a forged POST of a browser without Sec-Fetch-Site",
		Backend: as(backend{body: `{"ok": true}`, runs: true,
			changes: answers(http.StatusForbidden, "", func(r *http.Request) bool {
				return r.Header.Get("Sec-Fetch-Site") == "cross-site" &&
					!slices.Contains(originsOf(Publisher), r.Header.Get("Origin"))
			})}),
		Endpoint: formPost, Unsafe: true, Want: []string{"unsafe-reaches-handler"}},
	{Name: "a denial that closes the connection", Remembers: true,
		Backend: as(backend{changes: func(_ http.ResponseWriter, r *http.Request) bool {
			if origin := r.Header.Get("Origin"); origin != "" && !slices.Contains(originsOf(Publisher), origin) {
				panic(http.ErrAbortHandler)
			}
			return false
		}}), NotTested: "the server closed the connection without an answer"},

	{Name: "any website, without credentials", Backend: as(backend{allows: everybody,
		header: func(h http.Header, origin string) { h.Set("Access-Control-Allow-Origin", origin) }}),
		Endpoint: probe.Endpoint{Method: "GET", Answer: probe.AnswerJSON}},
}

// redirects redirects requests with a word in a header, which are rightly allowed if the redirect has CORS headers.
func redirects(word, name string, hasCORS bool) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.Header.Get(name), word) || r.URL.Query().Has("moved") ||
			!slices.Contains(originsOf(Publisher), r.Header.Get("Origin")) {
			return false
		}
		if hasCORS {
			fixed(r.Header.Get("Origin"))(w.Header(), "")
		}
		w.Header().Set("Vary", "Origin, "+name)
		http.Redirect(w, r, r.URL.String()+"&moved=1", http.StatusFound)
		return true
	}
}

// compresses answers the publisher's pages with what they accept.
func compresses(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if !slices.Contains(originsOf(Publisher), origin) ||
		!strings.HasPrefix(r.Header.Get("Accept-Encoding"), "gzip, deflate") {
		return false
	}
	fixed(origin)(w.Header(), "")
	w.Header().Set("Vary", "Origin, Accept-Encoding")
	var to io.WriteCloser = gzip.NewWriter(w)
	w.Header().Set("Content-Encoding", "gzip")
	if isHash(origin) {
		to, _ = flate.NewWriter(w, flate.BestSpeed) // a valid level
		w.Header().Set("Content-Encoding", "deflate")
	}
	io.WriteString(to, "{}")
	to.Close()
	return true
}

// An inFlight backend gives one answer to all requests for a URL that are there at one time. Unless it varies,
// their Origin does not matter.
type inFlight struct {
	varies    bool
	sometimes bool // each second time that two are there, each gets its own answer
	mu        sync.Mutex
	pairs     int
	calls     map[string]*sharedCall
}

type sharedCall struct {
	*httptest.ResponseRecorder
	joined, done chan struct{}
}

func (f *inFlight) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !slices.Contains(originsOf(Publisher), r.Header.Get("Origin")) {
		backend{}.ServeHTTP(w, r)
		return
	}
	key := r.URL.String()
	if f.varies {
		key += r.Header.Get("Origin")
	}
	f.mu.Lock()
	call := f.calls[key]
	if call != nil {
		close(call.joined) // by the second; there is no third
		delete(f.calls, key)
		f.pairs++
		isOwn := f.sometimes && f.pairs%2 == 0
		f.mu.Unlock()
		if <-call.done; isOwn {
			backend{}.ServeHTTP(w, r)
			return
		}
	} else {
		call = &sharedCall{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
		if f.calls == nil {
			f.calls = make(map[string]*sharedCall)
		}
		f.calls[key] = call
		f.mu.Unlock()
		select {
		case <-call.joined:
		case <-time.After(200 * time.Millisecond): // there is no second
		}
		f.mu.Lock()
		delete(f.calls, key)
		f.mu.Unlock()
		backend{}.ServeHTTP(call, r)
		close(call.done)
	}
	maps.Copy(w.Header(), call.Header())
	w.WriteHeader(call.Code)
	w.Write(call.Body.Bytes())
}

// A narrow backend allows null. It answers one request at a time, and fails if there are others.
type narrow struct {
	forOthers bool // the publisher's requests do not count
	running   atomic.Int64
}

func (n *narrow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer n.running.Add(-1)
	isOwn := n.forOthers && slices.Contains(originsOf(Publisher), r.Header.Get("Origin"))
	if n.running.Add(1) > 1 && !isOwn {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	// so long that two requests that are sent at once are there at once, also on a busy machine
	time.Sleep(20 * time.Millisecond)
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
