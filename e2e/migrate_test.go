package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	jub0bs "github.com/jub0bs/cors"
	rs "github.com/rs/cors"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/readme"
)

// migrants are the requests of the tables in ../docs/migrate.
var migrants = []struct {
	name, method, origin, claim string
	header                      http.Header
}{
	{name: "the publisher's page on a cache reads", method: "GET", origin: cached, claim: own},
	{name: "… with the hash prefix", method: "GET", origin: "https://qd6a7ojgnw33qp4fquh2bzsurnwxb3tizc23iexr33vg5pppaqca.cdn.ampproject.org",
		claim: own},
	{name: "… without `__amp_source_origin`", method: "GET", origin: cached},
	{name: "… asks by a preflight to post JSON", method: "OPTIONS", origin: cached, claim: own,
		header: http.Header{"Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"content-type"}}},
	{name: "… posts a form", method: "POST", origin: cached, claim: own},
	{name: "the publisher's own page reads", method: "GET", origin: own, claim: own},
	{name: "another publisher's page on a cache reads", method: "GET", origin: evil, claim: "https://evil.example"},
	{name: "… and claims to be the publisher's", method: "GET", origin: evil, claim: own},
	{name: "any website reads, and claims nothing", method: "GET", origin: "https://evil.example"},
	{name: "… posts a form", method: "POST", origin: "https://evil.example"},
	{name: "a program reads, without `Origin`", method: "GET"},
	{name: "… posts", method: "POST"},
}

// migrationTable sends the requests to both handlers, and returns what each answers.
func migrationTable(t *testing.T, name string, before http.Handler) string {
	t.Helper()
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com"}, Credentialed: true})
	if err != nil {
		t.Fatal(err)
	}
	after := mw.Wrap(api)
	table := fmt.Sprintf("| | %s | ampcors |\n| --- | --- | --- |\n", name)
	for _, m := range migrants {
		answer := func(h http.Handler) string {
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
			switch header := w.Header(); {
			case w.Code >= 400:
				return fmt.Sprint("denied: ", w.Code)
			case m.method == "OPTIONS" && strings.EqualFold(header.Get("Access-Control-Allow-Headers"), "content-type") &&
				header.Get("Access-Control-Allow-Origin") == m.origin:
				return "granted"
			case m.method == "OPTIONS":
				return "not granted"
			case m.origin == "":
				return "the handler runs"
			case header.Get("Access-Control-Allow-Origin") == m.origin && header.Get("Access-Control-Allow-Credentials") == "true":
				return "reads"
			}
			return "the handler runs; the page cannot read"
		}
		table += fmt.Sprintf("| %s | %s | %s |\n", m.name, answer(before), answer(after))
	}
	return table
}

// api is an API without CORS.
var api = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") })

// TestMigrationPages compares what the pages in ../docs/migrate say with what the servers answer. With
// UPDATE_README=1, it writes the tables.
func TestMigrationPages(t *testing.T) {
	origins, err := cacheurl.Origins("www.example.com")
	if err != nil {
		t.Fatal(err)
	}
	origins = append(origins, own)
	t.Run("toolbox-cors", func(t *testing.T) {
		before := toolboxBefore(t, api, `{"sourceOriginPattern": "^https:\\/\\/www\\.example\\.com$"}`)
		readme.Check(t, "../docs/migrate/toolbox-cors.md", "toolbox", migrationTable(t, "toolbox-cors", before))
	})
	t.Run("patterns", func(t *testing.T) {
		addr := startNginxWith(t, `map $http_origin $amp_origin { default ""; `+
			`"~^https://(www\.example\.com|[a-z0-9-]+\.cdn\.ampproject\.org)$" $http_origin; }`,
			`add_header Access-Control-Allow-Origin $amp_origin; add_header Access-Control-Allow-Credentials true; proxy_pass http://`+serve(t, api)+
				`;`)
		readme.Check(t, "../docs/migrate/patterns.md", "patterns", migrationTable(t, "nginx with that rule", proxy(addr)))
	})
	t.Run("libraries", func(t *testing.T) {
		table := migrationTable(t, "rs/cors", rs.New(rs.Options{AllowedOrigins: origins, AllowCredentials: true,
			AllowedHeaders: []string{"Content-Type"}}).Handler(api))
		readme.Check(t, "../docs/migrate/cors-libraries.md", "libraries", table)
		mw, err := jub0bs.NewMiddleware(jub0bs.Config{Origins: origins, Credentialed: true, RequestHeaders: []string{"Content-Type"}})
		if err != nil {
			t.Fatal(err)
		}
		if other := migrationTable(t, "rs/cors", mw.Wrap(api)); other != table {
			t.Errorf("jub0bs/cors answers otherwise:\n%s", other)
		}
	})
}

// What ../docs/migrate/cors-libraries.md says of options that are functions, patterns or switches.
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
