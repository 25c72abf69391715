package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	jub0bs "github.com/jub0bs/cors"
	rs "github.com/rs/cors"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/readme"
)

// migrants are the requests of callers.txt.
var migrants = []struct {
	name, method, origin, claim string
	header                      http.Header
}{
	{name: "the publisher's page on a cache reads", method: "GET", origin: cached, claim: own},
	{name: "… with the hash prefix", method: "GET", origin: "https://qd6a7ojgnw33qp4fquh2bzsurnwxb3tizc23iexr33vg5pppaqca.cdn.ampproject.org",
		claim: own},
	{name: "… without __amp_source_origin", method: "GET", origin: cached},
	{name: "… asks by a preflight to post JSON", method: "OPTIONS", origin: cached, claim: own,
		header: http.Header{"Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"content-type"}}},
	{name: "… posts a form", method: "POST", origin: cached, claim: own},
	{name: "the publisher's own page reads", method: "GET", origin: own, claim: own},
	{name: "another publisher's page on a cache reads", method: "GET", origin: evil, claim: "https://evil.example"},
	{name: "… and claims to be the publisher's", method: "GET", origin: evil, claim: own},
	{name: "any website reads, and claims nothing", method: "GET", origin: "https://evil.example"},
	{name: "… posts a form", method: "POST", origin: "https://evil.example"},
	{name: "a program reads, without Origin", method: "GET"},
	{name: "… posts", method: "POST"},
}

// migrated returns what a handler answers to each of the requests.
func migrated(h http.Handler) (answers []string) {
	for _, m := range migrants {
		u := apiOrigin + "/api"
		if m.claim != "" {
			u += "?__amp_source_origin=" + m.claim
		}
		r := httptest.NewRequest(m.method, u, nil)
		for name, values := range m.header {
			r.Header[name] = values
		}
		if m.origin != "" {
			r.Header.Set("Origin", m.origin)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		answer := "runs"
		switch header := w.Header(); {
		case w.Code >= 400:
			answer = fmt.Sprint("denied: ", w.Code)
		case m.method == "OPTIONS" && strings.EqualFold(header.Get("Access-Control-Allow-Headers"), "content-type") &&
			header.Get("Access-Control-Allow-Origin") == m.origin:
			answer = "granted"
		case m.method == "OPTIONS":
			answer = "not granted"
		case m.origin != "" && header.Get("Access-Control-Allow-Origin") == m.origin &&
			header.Get("Access-Control-Allow-Credentials") == "true":
			answer = "reads"
		}
		answers = append(answers, answer)
	}
	return answers
}

// api is an API without CORS.
var api = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") })

// TestWhatChangesForCallers compares callers.txt with what the servers answer. UPDATE_README=1 writes it.
func TestWhatChangesForCallers(t *testing.T) {
	origins, err := cacheurl.Origins("www.example.com")
	if err != nil {
		t.Fatal(err)
	}
	origins = append(origins, own)
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com"}, Credentialed: true})
	if err != nil {
		t.Fatal(err)
	}
	listed, err := jub0bs.NewMiddleware(jub0bs.Config{Origins: origins, Credentialed: true, RequestHeaders: []string{"Content-Type"}})
	if err != nil {
		t.Fatal(err)
	}
	addr := startNginxWith(t, `map $http_origin $amp_origin { default ""; `+
		`"~^https://(www\.example\.com|[a-z0-9-]+\.cdn\.ampproject\.org)$" $http_origin; }`,
		`add_header Access-Control-Allow-Origin $amp_origin; add_header Access-Control-Allow-Credentials true; proxy_pass http://`+
			serve(t, api)+`;`)
	servers := []struct {
		name string
		http.Handler
	}{
		{"toolbox-cors", toolboxBefore(t, api, `{"sourceOriginPattern": "^https:\\/\\/www\\.example\\.com$"}`)},
		{"nginx", proxy(addr)},
		{"rs/cors", rs.New(rs.Options{AllowedOrigins: origins, AllowCredentials: true, AllowedHeaders: []string{"Content-Type"}}).Handler(api)},
		{"ampcors", mw.Wrap(api)},
	}
	table := [][]string{{"request"}}
	for _, m := range migrants {
		table = append(table, []string{m.name})
	}
	for _, s := range servers {
		table[0] = append(table[0], s.name)
		for i, answer := range migrated(s) {
			table[i+1] = append(table[i+1], answer)
		}
	}
	readme.Check(t, "callers.txt", "callers", readme.Aligned(table))
	if got, want := migrated(listed.Wrap(api)), migrated(servers[2]); !slices.Equal(got, want) {
		t.Errorf("jub0bs/cors answers otherwise than rs/cors: %q; want %q", got, want)
	}
}

// What ../docs/migrate.md says of options that are functions, patterns or switches.
func TestOptionsOfOtherLibraries(t *testing.T) {
	t.Parallel()
	below := regexp.MustCompile(`^https://([a-z0-9-]+\.)+example\.com$`)
	before := rs.New(rs.Options{AllowOriginFunc: below.MatchString, AllowCredentials: true, OptionsPassthrough: true}).Handler(api)
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{"*.example.com"},
		Origins: []string{"http://localhost:3000", "https://app-pr-12.host.example"}, Credentialed: true})
	if err != nil {
		t.Fatal(err)
	}
	after := mw.Wrap(api)
	for _, test := range []struct {
		method, origin string
		asks           bool // for a method, as a preflight does
		before, after  string
	}{
		{"GET", "https://shop.example.com", false, "200 reads", "200 reads"},
		{"GET", "https://example.com", false, "200", "403"},
		{"GET", "https://shop-example-com.cdn.ampproject.org", false, "200", "200 reads"},
		{"GET", "http://localhost:3000", false, "200", "200 reads"},
		{"GET", "http://localhost:5173", false, "200", "403"},
		{"GET", "https://app-pr-12.host.example", false, "200", "200 reads"},
		{"GET", "https://app-pr-13.host.example", false, "200", "403"},
		{"OPTIONS", "https://shop.example.com", true, "200 reads", "204 reads"},  // passed through, and answered
		{"OPTIONS", "https://shop.example.com", false, "200 reads", "200 reads"}, // the handler's
	} {
		for name, h := range map[string]http.Handler{"rs/cors": before, "ampcors": after} {
			r := httptest.NewRequest(test.method, "/api", nil)
			r.Header.Set("Origin", test.origin)
			if test.asks {
				r.Header.Set("Access-Control-Request-Method", "POST")
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			got, want := fmt.Sprint(w.Code), test.before
			if w.Header().Get("Access-Control-Allow-Origin") == test.origin {
				got += " reads"
			}
			if name == "ampcors" {
				want = test.after
			}
			if got != want {
				t.Errorf("%s: %s from %s, asks %t: %s; want %s", name, test.method, test.origin, test.asks, got, want)
			}
		}
	}
}
