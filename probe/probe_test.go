package probe

import (
	"cmp"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/andybalholm/brotli"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
)

const (
	publisher = "www.example.com"
	ownOrigin = "https://www.example.com"
)

var (
	jsonPost = Endpoint{Method: "POST", ContentType: typeJSON, Body: "{}", Credentials: true, Answer: AnswerAny}
	formPost = Endpoint{Method: "POST", ContentType: typeURLEncoded, Body: "a=b", Credentials: true, Answer: AnswerForm}
	formGet  = Endpoint{Method: "GET", Credentials: true, Answer: AnswerForm}
)

// TestCurlLinesAreRight checks the quoting of values that could break out of the quotes,
// and that no secret is in the command line.
func TestCurlLinesAreRight(t *testing.T) {
	p := &prober{cfg: Config{Header: http.Header{"X-Api-Key": {"secret"}}, Cookie: "session=secret"}}
	p.client = newClient(p.cfg)
	p.client.trusted["https://a.example"] = true
	line := p.curl(request{method: "POST", url: "https://a.example/?q='$(id)'", origin: "https://b.example", body: "it's", credentials: true,
		header: http.Header{"Content-Type": {"text/plain"}}})
	want := `curl -gsi -X POST -H 'Origin: https://b.example' -H 'Content-Type: text/plain' -H "X-Api-Key: $X_API_KEY" -H "Cookie: $COOKIE" ` +
		`--data-raw 'it'\''s' 'https://a.example/?q='\''$(id)'\'''`
	if line != want {
		t.Errorf("got\n%s\nwant\n%s", line, want)
	}
	if strings.Contains(line, "secret") {
		t.Error("the line has a secret")
	}
}

func TestCheckCORS(t *testing.T) {
	const origin = "https://a.example"
	for _, test := range []struct {
		name        string
		credentials bool
		header      http.Header
		want        string // in the error; "" for none
	}{
		{name: "echo", header: http.Header{"Access-Control-Allow-Origin": {origin}}},
		{name: "star", header: http.Header{"Access-Control-Allow-Origin": {"*"}}},
		{name: "star with credentials", credentials: true,
			header: http.Header{"Access-Control-Allow-Origin": {"*"}, "Access-Control-Allow-Credentials": {"true"}},
			want:   "does not allow requests with credentials"},
		{name: "nothing", header: http.Header{}, want: "there is no Access-Control-Allow-Origin"},
		{name: "two lines", header: http.Header{"Access-Control-Allow-Origin": {origin, origin}}, want: "https://a.example, https://a.example"},
		{name: "another case", header: http.Header{"Access-Control-Allow-Origin": {"https://A.example"}}, want: "not"},
		{name: "a slash", header: http.Header{"Access-Control-Allow-Origin": {origin + "/"}}, want: "not"},
		{name: "credentials", credentials: true, header: http.Header{"Access-Control-Allow-Origin": {origin},
			"Access-Control-Allow-Credentials": {"true"}}},
		{name: "no credentials", credentials: true, header: http.Header{"Access-Control-Allow-Origin": {origin}},
			want: "no Access-Control-Allow-Credentials"},
		{name: "TRUE", credentials: true, header: http.Header{"Access-Control-Allow-Origin": {origin},
			"Access-Control-Allow-Credentials": {"TRUE"}},
			want: `not "true"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := checkCORS(origin, test.credentials, test.header)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v; want %q", err, test.want)
			}
		})
	}
}

func TestCheckPreflight(t *testing.T) {
	const origin = "https://a.example"
	header := func(methods, headers string) http.Header {
		return http.Header{"Access-Control-Allow-Origin": {origin}, "Access-Control-Allow-Credentials": {"true"},
			"Access-Control-Allow-Methods": {methods}, "Access-Control-Allow-Headers": {headers}}
	}
	for _, test := range []struct {
		name        string
		credentials bool
		method      string
		headers     []string
		status      int
		header      http.Header
		want        string
	}{
		{name: "granted", credentials: true, method: "PUT", headers: []string{"content-type"}, status: 204,
			header: header("PUT", "Content-Type")},
		{name: "a safelisted method", method: "POST", status: 200, header: header("", "")},
		{name: "another method", method: "PUT", status: 200, header: header("POST", ""), want: "does not have PUT"},
		{name: "a method in another case", method: "PUT", status: 200, header: header("put", ""), want: "does not have PUT"},
		{name: "a header in another case", method: "POST", headers: []string{"x-a"}, status: 200, header: header("", "X-A")},
		{name: "another header", method: "POST", headers: []string{"x-a"}, status: 200, header: header("", "x-b"), want: "does not have x-a"},
		{name: "stars", method: "PUT", headers: []string{"x-a"}, status: 200, header: header("*", "*")},
		{name: "stars with credentials", credentials: true, method: "POST", headers: []string{"x-a"}, status: 200, header: header("*", "*"),
			want: "does not have x-a"},
		{name: "a star for Authorization", method: "POST", headers: []string{"authorization"}, status: 200, header: header("*", "*"),
			want: "does not have authorization"},
		{name: "an error", method: "POST", status: 404, header: header("", ""), want: "404"},
		{name: "no list", method: "PUT", status: 200, header: header("PUT POST", ""), want: "not a list of names"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := checkPreflight(origin, test.credentials, test.method, test.headers, test.status, test.header)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v; want %q", err, test.want)
			}
		})
	}
}

// TestRedirectsAreJudgedAsBrowsersDo checks that Origin is null after a redirect across
// origins.
func TestRedirectsAreJudgedAsBrowsersDo(t *testing.T) {
	var seen string
	second := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Get("Origin")
		w.Header().Set("Access-Control-Allow-Origin", seen)
	}))
	defer second.Close()
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		http.Redirect(w, r, second.URL, http.StatusFound)
	}))
	defer first.Close()
	u1, _ := url.Parse(first.URL)
	u2, _ := url.Parse(second.URL)
	c := newClient(Config{OnlyHosts: []string{u1.Host, u2.Host}, Timeout: time.Minute})
	f := c.fetch(t.Context(), request{method: "GET", url: first.URL, origin: ownOrigin})
	if f.err != nil || f.blocked != nil || f.hop != 1 || seen != "null" {
		t.Errorf("%+v; Origin was %q", f, seen)
	}
}

// After a redirect to another origin, browsers send Origin: null there. A server that allows it allows every
// sandboxed frame.
func TestTheTargetOfARedirectMustNotAllowNull(t *testing.T) {
	second := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") == "null" {
			w.Header().Set("Access-Control-Allow-Origin", "null")
			w.Header().Set("Access-Control-Allow-Credentials", "true")
		}
		w.Header().Set("Vary", "Origin")
		io.WriteString(w, "{}")
	}))
	defer second.Close()
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origins, _ := Origins(publisher, cacheurl.DefaultCaches()...)
		w.Header().Set("Vary", "Origin")
		if origin := r.Header.Get("Origin"); slices.Contains(origins, origin) {
			w.Header().Set("Access-Control-Allow-Origin", origin)
			w.Header().Set("Access-Control-Allow-Credentials", "true")
		} else if origin != "" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		http.Redirect(w, r, second.URL, http.StatusFound)
	}))
	defer first.Close()
	target, _ := url.Parse(second.URL)
	report, err := Run(t.Context(), Config{Rate: math.Inf(1),
		Endpoints:  []Endpoint{{URL: first.URL, Method: "GET", Credentials: true, Answer: AnswerJSON}},
		Publishers: []string{publisher}, AllowHosts: []string{target.Host}})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Findings) != 1 || report.Findings[0].ID != "null-allowed" || !strings.Contains(report.Findings[0].Request, second.URL) {
		t.Errorf("%+v", report.Findings)
	}
}

// Publishers of one API may look like each other: none of their pages is hostile.
func TestPublishersThatLookAlike(t *testing.T) {
	publishers := []string{"www.example.com", "www.example.net", "www-example.com"}
	var origins []string
	for _, publisher := range publishers {
		own, err := Origins(publisher, cacheurl.DefaultCaches()...)
		if err != nil {
			t.Fatal(err)
		}
		origins = append(origins, own...)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Origin")
		if origin := r.Header.Get("Origin"); slices.Contains(origins, origin) {
			w.Header().Set("Access-Control-Allow-Origin", origin)
			w.Header().Set("Access-Control-Allow-Credentials", "true")
		}
		io.WriteString(w, "{}")
	}))
	defer server.Close()
	report, err := Run(t.Context(), Config{Rate: math.Inf(1),
		Endpoints: []Endpoint{{URL: server.URL, Method: "GET", Credentials: true, Answer: AnswerJSON}}, Publishers: publishers})
	if err != nil || len(report.Findings) > 0 || report.Summary.Fine != report.Summary.Planned || report.Summary.Planned < 250 {
		t.Errorf("%+v, %+v, %v", report.Findings, report.Summary, err)
	}
}

// TestHostileServersCostLittle checks that a hostile server costs few requests and is
// reported.
func TestHostileServersCostLittle(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"an endless body": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		},
		"huge headers":  func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) },
		"a slow answer": func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"no answer":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(handler)
			defer server.Close()
			e := Endpoint{URL: server.URL, Method: "GET", Answer: AnswerJSON}
			report, err := Run(t.Context(), Config{Rate: math.Inf(1), Endpoints: []Endpoint{e}, Publishers: []string{publisher},
				Timeout: 300 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			if s := report.Summary; s.NotTested != s.Planned || s.Planned == 0 || len(report.Findings) != 0 || s.Requests > 3 {
				t.Errorf("%+v", report)
			}
		})
	}
	t.Run("a redirect loop", func(t *testing.T) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
			http.Redirect(w, r, r.URL.String(), http.StatusFound)
		}))
		defer server.Close()
		e := Endpoint{URL: server.URL, Method: "GET", Answer: AnswerJSON}
		report, err := Run(t.Context(), Config{Rate: math.Inf(1), Endpoints: []Endpoint{e}, Publishers: []string{publisher},
			Caches: cacheurl.DefaultCaches()[:2]})
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Findings) == 0 || report.Findings[0].ID != "redirect-endless" || report.Summary.Requests > 200 {
			t.Errorf("%+v", report)
		}
	})
	t.Run("a deep configuration", func(t *testing.T) {
		document := `<script id="amp-access" type="application/json">` + strings.Repeat("[", 1<<19) + "</script>"
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, document) }))
		defer server.Close()
		report, err := Run(t.Context(), Config{Rate: math.Inf(1), Documents: []string{server.URL + "/"}, Publishers: []string{publisher}})
		if err != nil || len(report.Unknown) != 1 {
			t.Errorf("%+v, %v", report, err)
		}
	})
}

// TestOnlyAllowedHostsAreCalled checks that neither a document nor a redirect makes the
// probe call another host.
func TestOnlyAllowedHostsAreCalled(t *testing.T) {
	called := false
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { called = true }))
	defer other.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			fmt.Fprintf(w, `<amp-list src="%s/list"></amp-list><amp-list src="/moved"></amp-list>`, other.URL)
			return
		}
		w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		http.Redirect(w, r, other.URL, http.StatusFound)
	}))
	defer server.Close()
	u, _ := url.Parse(server.URL)
	report, err := Run(t.Context(), Config{Rate: math.Inf(1), Documents: []string{server.URL + "/"}, Publishers: []string{publisher},
		OnlyHosts: []string{u.Host}})
	if err != nil {
		t.Fatal(err)
	}
	if s := report.Summary; called || s.Planned == 0 || s.NotTested != s.Planned {
		t.Errorf("called: %t, %+v", called, report.Untested)
	}
}

// TestOnlySafeMethodsAreSent checks that no POST is sent if Unsafe is not set.
func TestOnlySafeMethodsAreSent(t *testing.T) {
	var mu sync.Mutex
	methods := make(map[string]bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		methods[r.Method] = true
		mu.Unlock()
		w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		w.Header().Set("Access-Control-Allow-Credentials", "true")
		w.Header().Set("Access-Control-Allow-Headers", "content-type")
		io.WriteString(w, "{}")
	}))
	defer server.Close()
	endpoints := []Endpoint{jsonPost, formPost, formGet}
	for i := range endpoints {
		endpoints[i].URL = server.URL
	}
	report, err := Run(t.Context(), Config{Rate: math.Inf(1), Endpoints: endpoints, Publishers: []string{publisher}})
	if err != nil {
		t.Fatal(err)
	}
	if methods["POST"] || !methods["OPTIONS"] || !methods["GET"] {
		t.Errorf("sent %v", methods)
	}
	for _, trial := range report.Trials {
		isSent := trial.Method == "GET" || trial.Kind.IsHostile() && trial.What != "a program with another site's Origin and AMP-Same-Origin" &&
			trial.Kind != KindForged && trial.Outcome != NotTested
		if !isSent && (trial.Outcome != NotTested || !trial.ByChoice) {
			t.Errorf("%+v", trial)
		}
	}
}

// A probe that cannot make its requests says so.
func TestARequestOfAnotherSiteThatFailsIsReported(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		if origin != "" && !strings.Contains(origin, "example-com") && origin != ownOrigin && !strings.Contains(origin, "qd6a7") {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Vary", "Origin")
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Set("Access-Control-Allow-Credentials", "true")
		io.WriteString(w, "{}")
	}))
	defer server.Close()
	e := Endpoint{URL: server.URL, Method: "GET", Credentials: true, Answer: AnswerJSON}
	report, err := Run(t.Context(), Config{Rate: math.Inf(1), Endpoints: []Endpoint{e}, Publishers: []string{publisher}})
	if err != nil {
		t.Fatal(err)
	}
	for _, trial := range report.Trials {
		isOther := trial.Kind == KindSites || trial.Kind == KindPublishers
		if isOther && (trial.Outcome != NotTested || trial.ByChoice) {
			t.Errorf("%+v", trial)
		}
	}
}

// Secrets go to the servers that the user names, and come back in no report.
func TestSecretsStay(t *testing.T) {
	const secret = "s3cret value"
	var mu sync.Mutex
	leaked := false
	third := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		leaked = leaked || r.Header.Get("X-Api-Key") != "" || r.Header.Get("Cookie") != ""
	}))
	defer third.Close()
	var onPreflight string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.URL.Path == "/":
			fmt.Fprintf(w, `<amp-list src="%s/x" credentials="include"></amp-list><amp-list src="/list" `+
				`credentials="include"></amp-list><amp-user-notification data-dismiss-href="/dismiss"></amp-user-notification>`, third.URL)
		case r.Method == http.MethodOptions:
			onPreflight += r.Header.Get("Authorization") + r.Header.Get("Cookie")
		default:
			w.Header().Set("Location", "/login?s="+url.QueryEscape(r.Header.Get("X-Api-Key"))+"&"+r.Header.Get("Cookie"))
			w.WriteHeader(http.StatusFound)
		}
	}))
	defer server.Close()
	report, err := Run(t.Context(), Config{Rate: math.Inf(1), Documents: []string{server.URL + "/"}, Publishers: []string{publisher},
		Cookie: "session=c00kie",
		Header: http.Header{"X-Api-Key": {secret}, "Authorization": {"Bearer s3cret"}}})
	if err != nil {
		t.Fatal(err)
	}
	if leaked || onPreflight != "" {
		t.Errorf("another host got a secret: %t; a preflight: %q", leaked, onPreflight)
	}
	if text := fmt.Sprintf("%+v", report); strings.Contains(text, "s3cret") || strings.Contains(text, "c00kie") || len(report.Findings) == 0 {
		t.Errorf("the report has a secret:\n%s", text)
	}
	if !slices.ContainsFunc(report.Untested, func(u Untested) bool {
		return u.Failed &&
			strings.Contains(u.Reason, "were not sent to "+third.URL)
	}) {
		t.Errorf("the report does not say what was withheld: %+v", report.Untested)
	}
	if want := "Your headers and cookies were sent to " + server.URL + ", and to no other host."; !slices.Contains(report.Notes, want) {
		t.Errorf("the report does not say %q: %q", want, report.Notes)
	}
	if i := slices.IndexFunc(report.Findings, func(f Finding) bool { return f.Endpoint == third.URL+"/x" }); i < 0 ||
		strings.Contains(report.Findings[i].Curl, "$") {
		t.Errorf("no command line for another host, or one with credentials: %+v", report.Findings)
	}
}

// The probed server chooses where a redirect leads. Who follows the advice to allow that host, or names it as one of the only hosts,
// does not send secrets there.
func TestSecretsDoNotFollowARedirect(t *testing.T) {
	var got atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got.Add(1); r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" {
			t.Errorf("it got %v", r.Header)
		}
	}))
	defer other.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		http.Redirect(w, r, other.URL, http.StatusFound)
	}))
	defer server.Close()
	host := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }
	for _, cfg := range []Config{{AllowHosts: []string{host(other)}}, {OnlyHosts: []string{host(server), host(other)}}} {
		got.Store(0)
		cfg.Endpoints = []Endpoint{{URL: server.URL, Method: http.MethodGet, Credentials: true, Answer: "any"}}
		cfg.Publishers, cfg.Cookie, cfg.Header = []string{publisher}, "session=1", http.Header{"Authorization": {"Bearer s3cret"}}
		report, err := Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if want := "Your headers and cookies were sent to " + server.URL + ", and to no other host."; got.Load() == 0 ||
			!slices.Contains(report.Notes, want) {
			t.Errorf("the other host got %d requests; the notes are %q", got.Load(), report.Notes)
		}
	}
}

// Documents that a server has named, such as in a sitemap, get no secrets.
func TestFoundDocumentsGetNoSecrets(t *testing.T) {
	asked := false
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked = true; r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" {
			t.Errorf("it got %v", r.Header)
		}
		io.WriteString(w, "<html amp>")
	}))
	defer other.Close()
	report, err := Run(t.Context(), Config{Rate: math.Inf(1), FoundDocuments: []string{other.URL + "/x"}, Publishers: []string{publisher},
		Cookie: "session=1",
		Header: http.Header{"Authorization": {"Bearer s3cret"}}})
	if err != nil || !asked || slices.ContainsFunc(report.Notes, func(note string) bool { return strings.Contains(note, "were sent to") }) {
		t.Errorf("asked: %t, %v, %+v", asked, err, report)
	}
}

// A document can repeat a secret in a form, and a preflight can be all that is answered to a request without a cookie.
func TestSecretsOfFormsStay(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/":
			fmt.Fprintf(w, `<form action-xhr="/search"><input type="hidden" name="token" value="%s"></form><amp-list src="/{{%[1]s}}"></amp-list>`,
				html.EscapeString(r.Header.Get("X-Token")))
		case r.Method == http.MethodOptions:
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
	}))
	defer server.Close()
	report, err := Run(t.Context(), Config{Rate: math.Inf(1), Documents: []string{server.URL + "/"}, Publishers: []string{publisher},
		Header: http.Header{"X-Token": {"s3cret!(x)'&y"}},
		Cookie: "session=1", PageHeader: http.Header{"X-Page": {"1"}}})
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprintf("%+v", report); strings.Contains(text, "s3cret") || len(report.Findings) == 0 ||
		!strings.Contains(text, "token=…") {
		t.Errorf("the report has a secret, or nothing:\n%s", text)
	}
}

// A secret that a server repeats is removed before a text is truncated or quoted.
func TestSecretsAreRemovedFirst(t *testing.T) {
	c := newClient(Config{Header: http.Header{"Authorization": {"Bearer abcdefghijklmnopqrstuvwxyz"}}, Cookie: `raw"cookie\`})
	for _, text := range []string{
		strings.Repeat("x", 190) + "abcdefghijklmnopqrstuvwxyz",
		"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
		fmt.Sprintf("%q", `raw"cookie\`),
		url.QueryEscape(`raw"cookie\`),
	} {
		if got := c.describe(request{method: "GET"}, &response{Status: 302,
			Header: http.Header{"Location": {text}}}); strings.Contains(strings.ToLower(strings.Join(got,
			"\n")), "abcdefg") || strings.Contains(strings.Join(got, "\n"), "cookie") {
			t.Errorf("%q is in %q", text, got)
		}
	}
}

// Browsers send no Origin with a GET within an origin.
func TestARequestWithinAnOriginHasNoOrigin(t *testing.T) {
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.Header.Get("Origin"))
	}))
	defer server.Close()
	u, _ := url.Parse(server.URL)
	c := newClient(Config{OnlyHosts: []string{u.Host}, Timeout: time.Minute})
	for _, method := range []string{"GET", "POST"} {
		if f := c.fetch(t.Context(), request{method: method, url: server.URL, origin: server.URL}); f.err != nil || f.blocked != nil {
			t.Errorf("%+v", f)
		}
	}
	if want := "GET |POST " + server.URL; strings.Join(seen, "|") != want {
		t.Errorf("sent %q; want %q", seen, want)
	}
}

// A redirect to another origin makes a browser send a preflight for what is not safelisted.
func TestARedirectNeedsAPreflightOfItsOwn(t *testing.T) {
	second := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
	}))
	defer second.Close()
	first := httptest.NewServer(http.RedirectHandler(second.URL, http.StatusFound))
	defer first.Close()
	u1, _ := url.Parse(first.URL)
	u2, _ := url.Parse(second.URL)
	for name, header := range map[string]http.Header{"": {}, "AMP-Same-Origin": {"Amp-Same-Origin": {"true"}}} {
		t.Run(name, func(t *testing.T) {
			c := newClient(Config{OnlyHosts: []string{u1.Host, u2.Host}, Timeout: time.Minute})
			f := c.fetch(t.Context(), request{method: "GET", url: first.URL, origin: first.URL, header: header})
			if isBlocked := f.blocked != nil; f.err != nil || isBlocked != (name != "") {
				t.Errorf("%v, %v", f.err, f.blocked)
			}
		})
	}
}

// A prefix that another publisher has, too, must be denied.
func TestAnAmbiguousPrefixMustBeDenied(t *testing.T) {
	for _, isAllowed := range []bool{false, true} {
		mw, err := ampcors.New(ampcors.Config{Publishers: []string{"www.lāstekas.lv"}, Credentialed: true,
			DangerouslyAllowAmbiguousPrefixes: isAllowed})
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(mw.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") })))
		defer server.Close()
		report, err := Run(t.Context(), Config{Rate: math.Inf(1), Publishers: []string{"www.lāstekas.lv"},
			Endpoints: []Endpoint{{URL: server.URL, Component: "endpoint", Method: "GET", Credentials: true, Answer: AnswerJSON}}})
		if err != nil || (len(report.Findings) > 0) != isAllowed || isAllowed && report.Findings[0].ID != "twin-allowed" {
			t.Errorf("allowed: %t: %v, %+v", isAllowed, err, report)
		}
	}
}

// Tenants without AMP: pages run at their own origins alone, and caches are other sites.
func TestWithoutCachesOnlyOwnPagesMustWork(t *testing.T) {
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{publisher}, Caches: []cacheurl.Cache{}, Credentialed: true})
	if err != nil {
		t.Fatal(err)
	}
	json := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") })
	allowing := func(isAllowed func(origin string) bool) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Vary", "Origin")
			if origin := r.Header.Get("Origin"); origin != "" && isAllowed(origin) {
				w.Header().Set("Access-Control-Allow-Origin", origin)
				w.Header().Set("Access-Control-Allow-Credentials", "true")
			}
			json(w, r)
		})
	}
	own := "https://" + publisher
	for _, test := range []struct {
		name    string
		backend http.Handler
		want    []ID
	}{
		{"ampcors", mw.Wrap(json), nil},
		{"every page on a cache", allowing(func(origin string) bool { return origin == own || strings.HasSuffix(origin, ".cdn.ampproject.org") }),
			[]ID{AnyPublisherAllowed}},
		{"nobody", allowing(func(string) bool { return false }), []ID{ACAOMissing}},
	} {
		server := httptest.NewServer(test.backend)
		report, err := Run(t.Context(), Config{Rate: math.Inf(1),
			Endpoints:  []Endpoint{{URL: server.URL + "/", Method: http.MethodGet, Credentials: true, Answer: AnswerJSON}},
			Publishers: []string{publisher}, Caches: []cacheurl.Cache{}})
		server.Close()
		if err != nil {
			t.Fatal(err)
		}
		var got []ID
		for _, f := range report.Findings {
			got = append(got, f.ID)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q; want %q", test.name, got, test.want)
		}
		for _, s := range report.Snippets {
			if test.want != nil && strings.Contains(s.Text, "cdn") {
				t.Errorf("%s has origins on caches: %s", s.Server, s.Text)
			}
		}
	}
}

// TestADocumentIsFetchedAfterRedirects checks that relative URLs are those of the last redirect.
func TestADocumentIsFetchedAfterRedirects(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/article":
			http.Redirect(w, r, "/amp/article", http.StatusFound)
		case "/amp/article":
			io.WriteString(w, `<amp-list src="list"></amp-list>`)
		}
	}))
	defer server.Close()
	report, err := Run(t.Context(), Config{Rate: math.Inf(1), Documents: []string{server.URL + "/article"}, Publishers: []string{publisher}})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Endpoints) != 1 || report.Endpoints[0].URL != server.URL+"/amp/list" {
		t.Errorf("%+v", report.Endpoints)
	}
}

// TestARedirectFromHTTPSToHTTPIsNotFollowed: for a page it is mixed content, and a document must
// not come from it.
func TestARedirectFromHTTPSToHTTPIsNotFollowed(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("%s is called", r.URL)
	}))
	defer plain.Close()
	server := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	defer server.Close()
	to, _ := url.Parse(plain.URL)
	from, _ := url.Parse(server.URL)
	cfg := Config{Rate: math.Inf(1), Documents: []string{server.URL}, Publishers: []string{publisher}, OnlyHosts: []string{to.Host, from.Host},
		Insecure: true}
	if report, err := Run(t.Context(), cfg); err != nil || len(report.Untested) != 1 ||
		!strings.Contains(report.Untested[0].Reason, "mixed content") {
		t.Errorf("a document: %+v, %v", report, err)
	}
	cfg.Timeout = time.Minute
	if f := newClient(cfg).fetch(t.Context(), request{method: "GET", url: server.URL, origin: server.URL}); f.blocked == nil || f.err != nil {
		t.Errorf("a request: %v, %v", f.blocked, f.err)
	}
}

// After 101 Switching Protocols, net/http gives the open connection as the body, which no timeout ends.
func TestAnAnswer101DoesNotHang(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	}))
	defer server.Close()
	u, _ := url.Parse(server.URL)
	c := newClient(Config{OnlyHosts: []string{u.Host}, Timeout: time.Minute})
	failed := make(chan error, 1)
	go func() {
		_, err := c.send(t.Context(), request{method: "GET", url: server.URL})
		failed <- err
	}()
	select {
	case err := <-failed:
		if err == nil || !strings.Contains(err.Error(), "101 Switching Protocols") {
			t.Errorf("got %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the request does not end")
	}
}

// The time limit also ends the parsing of a document, and a document is at most 1 MiB long.
func TestADocumentIsParsedWithinLimits(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ReadDocument(untilDone{ctx, strings.NewReader("<html amp>")}, &url.URL{}); !errors.Is(err, errMaxTime) {
		t.Errorf("after the time limit: %v", err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(append([]byte("<html>"), make([]byte, 1<<20)...))
	}))
	defer server.Close()
	cfg := Config{Rate: math.Inf(1), Documents: []string{server.URL}, Publishers: []string{publisher}}
	if report, err := Plan(t.Context(), cfg); err != nil || len(report.Untested) != 1 ||
		!strings.Contains(report.Untested[0].Reason, "longer than 1048576 bytes") {
		t.Errorf("more than 1 MiB: %+v, %v", report, err)
	}
	cfg.MaxAnswer = 2 << 20
	if report, err := Plan(t.Context(), cfg); err != nil || len(report.Untested) != 0 {
		t.Errorf("a larger limit: %+v, %v", report, err)
	}
}

// What a cache does with a document that it cannot serve is said.
func TestWhatCachesDoWithADocumentIsSaid(t *testing.T) {
	for _, test := range []struct {
		name, document, cacheControl string
		contentType                  string
		status                       int
		note, err                    string
	}{
		{name: "amp", document: `<!doctype html><html amp><head><script async src="https://cdn.ampproject.org/v0.js"></script><body>`},
		{name: "a lightning", document: `<html ⚡ lang=en><head><script type=module src="https://cdn.ampproject.org/v0.mjs"></script><body>`},
		{name: "a lightning with a variation selector", document: "<html ⚡\ufe0f><script src=https://amp.example/rtv/1/v0.js></script><body>"},
		{name: "without the runtime", document: "<html amp><script src=https://cdn.ampproject.org/v0/amp-list-0.1.js></script><body>",
			note: "(83 bytes) is not an AMP document: it has no script of the AMP runtime"},
		{name: "not AMP", document: "<html lang=en><body amp>", note: "redirects its readers to the canonical page"},
		{name: "for email", document: "<html ⚡4email><body>", err: "it is an AMP email, whose requests a reader's mail client makes: use " +
			"--sender"},
		{name: "for email, in letters", document: "<!doctype html><html amp4email data-css-strict><body>", err: "use --sender"},
		{name: "for ads", document: "<html ⚡4ads><head><script src=https://cdn.ampproject.org/amp4ads-v0.js></script><body>",
			note: "is an AMPHTML ad"},
		{name: "for ads, in letters", document: "<html amp4ads><body>", note: "is an AMPHTML ad"},
		{name: "as text", document: "<html amp><body>", contentType: "text/plain; charset=utf-8",
			note: `has Content-Type: "text/plain; charset=utf-8"`},
		{name: "as XHTML", document: `<html amp=""><head><script async="" ` +
			`src="https://cdn.ampproject.org/v0.js"></script></head><body></body></html>`, contentType: "application/xhtml+xml"},
		{name: "no-transform", document: "<html amp><body>", cacheControl: "max-age=60, No-Transform",
			note: "no-transform, which AMP Caches ignore"},
		{name: "5xx", status: 502, err: "the status is 502; an AMP Cache that has no copy of the document answers 404"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Cache-Control", test.cacheControl)
				w.Header().Set("Content-Type", cmp.Or(test.contentType, "text/html"))
				if test.status != 0 {
					w.WriteHeader(test.status)
				}
				io.WriteString(w, test.document)
			}))
			defer server.Close()
			report, err := Plan(t.Context(), Config{Documents: []string{server.URL}, Publishers: []string{publisher}})
			if test.err != "" {
				if err != nil || len(report.Untested) != 1 || !strings.Contains(report.Untested[0].Reason, test.err) {
					t.Errorf("got %+v, %v", report, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			notes := strings.Join(report.Notes, "\n")
			if !strings.Contains(notes, test.note) || test.note == "" &&
				(strings.Contains(notes, "canonical") || strings.Contains(notes, "transform") || strings.Contains(notes, "Content-Type")) {
				t.Errorf("the notes are:\n%s", notes)
			}
		})
	}
}

// Readers of a cached page have no cookie that browsers keep for pages of the same site.
func TestACookieForTheSameSiteIsNoted(t *testing.T) {
	for cookie, isNoted := range map[string]bool{"a=b": true, "a=b; SameSite=Lax; Secure": true, "a=b; SameSite=None": true,
		"a=b; SameSite=None; Secure": false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
			w.Header().Set("Access-Control-Allow-Credentials", "true")
			w.Header().Set("Set-Cookie", cookie)
			io.WriteString(w, "{}")
		}))
		defer server.Close()
		report, err := Run(t.Context(), Config{Rate: math.Inf(1), Endpoints: []Endpoint{{URL: server.URL, Method: "GET", Credentials: true}},
			Publishers: []string{publisher}})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(report.Notes, "\n"), "sets a cookie without SameSite=None and Secure"); got != isNoted {
			t.Errorf("%s: noted: %t; want %t", cookie, got, isNoted)
		}
	}
}

// TestAnswersAreDecodedAsBrowsersDo answers with each content coding, also over https, where browsers take brotli.
func TestAnswersAreDecodedAsBrowsersDo(t *testing.T) {
	encoded := func(encoder func(io.Writer) io.WriteCloser) string {
		var b strings.Builder
		w := encoder(&b)
		_, _ = io.WriteString(w, `{"a": 1}`)
		_ = w.Close()
		return b.String()
	}
	raw := encoded(func(w io.Writer) io.WriteCloser { f, _ := flate.NewWriter(w, 1); return f })
	zipped := encoded(func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })
	for _, test := range []struct{ coding, body, want string }{ // want is in an error, or empty
		{"gzip", zipped, ""},
		{"deflate", raw, ""},
		{"Deflate", encoded(func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }), ""},
		{"br", encoded(func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) }), ""},
		{"gzip", zipped + "\n", ""},
		{"x-gzip", zipped, ""},
		{"gzip, gzip", zipped, "did not ask for"},
		{"utf-8", `{"a": 1}`, ""},
		{"zstd", "x", "did not ask for"},
		{"gzip", "not zipped", "cannot be decoded"},
		{"gzip", zipped[:20], "truncated"},
		{"gzip", encoded(func(w io.Writer) io.WriteCloser {
			z := gzip.NewWriter(w)
			_, _ = z.Write(make([]byte, 2<<20))
			return z
		}), "longer than 1048576 bytes"},
	} {
		t.Run(test.coding, func(t *testing.T) {
			var accepted string
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				accepted = r.Header.Get("Accept-Encoding")
				w.Header().Set("Content-Encoding", test.coding)
				_, _ = io.WriteString(w, test.body)
			}))
			defer server.Close()
			u, _ := url.Parse(server.URL)
			c := newClient(Config{OnlyHosts: []string{u.Host}, Timeout: time.Minute, Insecure: true})
			resp, err := c.send(t.Context(), request{method: "GET", url: server.URL})
			switch {
			case accepted != "gzip, deflate, br":
				t.Errorf("Accept-Encoding: %s", accepted)
			case test.want != "":
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v; want %q", err, test.want)
				}
			case err != nil || string(resp.Body) != `{"a": 1}`:
				t.Errorf("%+v, %v", resp, err)
			}
		})
	}
}

// A default port is none: hosts are named with it and without it.
func TestADefaultPortIsNone(t *testing.T) {
	report, err := Plan(t.Context(), Config{Endpoints: []Endpoint{{URL: "https://API.example.com:443/", Method: "GET", Answer: AnswerJSON}},
		Publishers: []string{publisher}, OnlyHosts: []string{"api.example.com:443"}})
	if err != nil || report.Endpoints[0].URL != "https://api.example.com/" {
		t.Fatal(report, err)
	}
	c := newClient(Config{OnlyHosts: []string{"api.example.com:443"}})
	if !c.allowed["api.example.com"] {
		t.Error(c.allowed)
	}
}
