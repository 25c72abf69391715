package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	jub0bs "github.com/jub0bs/cors"
	rs "github.com/rs/cors"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/probe"
	"github.com/ampcors/ampcors/probe/probetest"
)

// TestChromiumAgreesWithTheProbe repeats the requests of the probe in Chromium, for pages
// of the publisher and of other sites. Chromium must block exactly those that the probe
// reports as blocked.
func TestChromiumAgreesWithTheProbe(t *testing.T) {
	s := newSite(t)
	page := tab(t, browser(t, s))
	visit(t, page, apiOrigin+"/login", "''")
	cases := probetest.Cases()
	if len(cases) < 100 {
		t.Errorf("%d backends", len(cases))
	}
	backends := http.NewServeMux()
	s.use(backends)
	for i, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			if c.Remembers {
				t.Skip("its answers depend on earlier requests")
			}
			path := fmt.Sprintf("/probe/%d", i) // a new URL, for which Chromium has no cached preflight
			backends.Handle(path, c.Backend())
			c.Endpoint.URL = apiOrigin + path
			report := runProbe(t, s, probe.Config{Endpoints: []probe.Endpoint{c.Endpoint}, Publishers: []string{c.Publisher}, Unsafe: c.Unsafe,
				Cookie: c.Cookie})
			pages := 0
			for _, trial := range report.Trials {
				if trial.Kind != probe.KindPage || trial.Outcome == probe.NotTested {
					continue
				}
				pages++
				script := fetchOf(c.Endpoint, c.Endpoint.URL+"?__amp_source_origin="+url.QueryEscape("https://"+trial.Publisher), "")
				if got := visit(t, page, trial.Origin, script); (got == "read") != (trial.Reason == "") {
					t.Errorf("%s (%s): Chromium %s it; the probe: %q", trial.Origin, trial.Form, got, trial.Reason)
				}
			}
			if pages < 3 && c.NotTested == "" {
				t.Errorf("%d pages; want the own origin, and at least one form on each of two caches", pages)
			}
			for _, f := range report.Findings {
				isRead := slices.Contains(f.Evidence, "A browser lets that page read the answer.")
				if !isRead || strings.Contains(f.Origin, ":8443") || f.ID == probe.LocalhostAllowed { // no server of the test is there
					continue
				}
				_, u, _ := strings.Cut(f.Request, " ")
				at, options := f.Origin, ""
				switch f.ID {
				case probe.RefererTrusted:
					at, options = f.Origin+"/?https://www.example.com/", ", referrerPolicy: 'unsafe-url'"
				case probe.NoRefererAllowed:
					options = ", referrerPolicy: 'no-referrer'"
				case probe.SameOriginHeaderTrusted:
					options = ", headers: {'AMP-Same-Origin': 'true'}"
				}
				e := c.Endpoint
				if strings.Contains(f.Curl, "Content-Type: text/plain") { // it needs no preflight
					e.ContentType = "text/plain;charset=utf-8"
				}
				script := fetchOf(e, u, options)
				if f.Origin == "null" {
					at, script = "https://ampcors-probe.example", "{"+library+"frame({sandbox: 'allow-scripts'}, "+quoted(script)+")}"
				}
				if got := visit(t, page, at, script); got != "read" {
					t.Errorf("%s at %s: Chromium %s it", f.ID, f.Origin, got)
				}
			}
		})
	}
}

// fetchOf returns a script that sends the request of an endpoint to u, with more options of fetch. It
// yields "read" or "blocked".
func fetchOf(e probe.Endpoint, u, options string) string {
	credentials, body, header := "omit", "", ""
	if e.Credentials {
		credentials = "include"
	}
	if e.Method == http.MethodPost {
		body = ", body: " + quoted(e.Body)
		header = ", headers: {'Content-Type': " + quoted(e.ContentType) + "}"
	}
	return fmt.Sprintf("fetch(%s, {method: %s, credentials: '%s', cache: 'no-store'%s%s%s}).then(() => 'read', () => 'blocked')", quoted(u),
		quoted(e.Method), credentials, body, header, options)
}

// quoted returns s as a JavaScript template literal.
func quoted(s string) string {
	return "`" + strings.NewReplacer("\\", "\\\\", "`", "\\`", "$", "\\$").Replace(s) + "`"
}

// TestProbeOnRealServers probes servers and libraries, many with mistakes from real bug
// reports.
func TestProbeOnRealServers(t *testing.T) {
	ok := func(h http.Header) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for key, values := range h {
				w.Header()[key] = values
			}
			io.WriteString(w, "{}")
		})
	}
	origins := originsOf(t, publisher)
	for _, test := range []struct {
		name string
		api  func(t *testing.T) http.Handler
		want []string
	}{
		{name: "nginx, the bare cache (amphtml 8155)", api: func(t *testing.T) http.Handler {
			return proxy(startNginxWith(t, "", `default_type application/json; add_header Access-Control-Allow-Origin https://cdn.ampproject.org; `+
				`add_header Access-Control-Allow-Credentials true; return 200 "{}";`))
		}, want: []string{"acao-bare-cache"}},
		{name: "nginx, * with credentials (amphtml 10523)", api: func(t *testing.T) http.Handler {
			return proxy(startNginxWith(t, "", `add_header Access-Control-Allow-Origin *; add_header Access-Control-Allow-Credentials true; `+
				`return 200 "{}";`))
		}, want: []string{"wildcard-with-credentials"}},
		{name: "nginx and the application both set the header (amp-wp 2518)", api: func(t *testing.T) http.Handler {
			addr := serve(t, ok(http.Header{"Access-Control-Allow-Origin": {"*"}}))
			return proxy(startNginxWith(t, "", `add_header Access-Control-Allow-Origin $http_origin; add_header Access-Control-Allow-Credentials `+
				`true; add_header Vary Origin; proxy_pass http://`+addr+`;`))
		}, want: []string{"acao-duplicate"}},
		{name: "nginx without always", api: func(t *testing.T) http.Handler {
			return proxy(startNginxWith(t, "", `add_header Access-Control-Allow-Origin $http_origin; add_header Access-Control-Allow-Credentials `+
				`true; return 502 "{}";`))
		}, want: []string{"error-without-cors"}},
		{name: "nginx as a cache that ignores Vary (amphtml 32802)", api: func(t *testing.T) http.Handler {
			mw, err := ampcors.New(ampcors.Config{Publishers: []string{publisher}, Credentialed: true})
			if err != nil {
				t.Fatal(err)
			}
			addr := serve(t, mw.Wrap(ok(http.Header{"Cache-Control": {"public, max-age=60"}})))
			return proxy(startNginxWith(t, "", `proxy_pass http://`+addr+`; proxy_cache api; proxy_ignore_headers Vary;`))
		}, want: []string{"cached-wrong-origin"}},
		{name: "Apache, a pattern (amp-wp 1356)", api: func(t *testing.T) http.Handler {
			return proxy(startApacheProxy(t, serve(t, ok(nil)), `Header always set Access-Control-Allow-Origin "*.ampproject.org"`))
		}, want: []string{"acao-pattern"}},
		{name: "PHP with the source origin (amphtml 21759)", api: func(t *testing.T) http.Handler {
			return proxy(startPHP(t, `<?php
header('Access-Control-Allow-Origin: ' . $_GET['__amp_source_origin']);
header('Access-Control-Allow-Credentials: true');
echo '{}';
`))
		}, want: []string{"acao-source-origin", "source-origin-trusted"}},
		{name: "rs/cors with a wildcard over the cache", api: func(t *testing.T) http.Handler {
			return rs.New(rs.Options{AllowedOrigins: append(slices.Clone(origins), "https://*.cdn.ampproject.org"), AllowCredentials: true}).Handler(
				ok(nil))
		}, want: []string{"any-publisher-allowed"}},
		{name: "jub0bs/cors without hash prefixes", api: func(t *testing.T) http.Handler {
			readable, err := cacheurl.Origins(publisher)
			if err != nil {
				t.Fatal(err)
			}
			mw, err := jub0bs.NewMiddleware(jub0bs.Config{Origins: append(readable, "https://"+publisher), Credentialed: true})
			if err != nil {
				t.Fatal(err)
			}
			return mw.Wrap(ok(nil))
		}, want: []string{"hash-origin-refused"}},
		{name: "toolbox-cors", api: func(t *testing.T) http.Handler { return toolbox(`{}`)(t, newSite(t)) },
			want: []string{"any-publisher-allowed", "hash-origin-refused", "own-origin-refused", "same-origin-header-preferred", "vary-missing"}},
		{name: "toolbox-cors with a pattern", api: func(t *testing.T) http.Handler {
			return toolbox(`{"sourceOriginPattern": "https:\\/\\/www\\.example\\.com$"}`)(t, newSite(t))
		}, want: []string{"hash-origin-refused", "own-origin-refused", "source-origin-trusted", "vary-missing"}},
		{name: "toolbox-cors for email", api: func(t *testing.T) http.Handler { return toolbox(`{"email": true}`)(t, newSite(t)) },
			want: []string{"any-origin-allowed", "vary-missing"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSite(t)
			s.use(test.api(t))
			e := probe.Endpoint{URL: apiOrigin + "/api/read", Method: "GET", Credentials: true, Answer: "json"}
			wantFindings(t, runProbe(t, s, probe.Config{Endpoints: []probe.Endpoint{e}, Publishers: []string{publisher}}), test.want)
		})
	}
}

// nginx ends some requests with status 503. What was sent then is not tested, and never clean: this
// backend allows null, and the probe cannot have seen it.
func TestALimitOfRequestsIsNotClean(t *testing.T) {
	s := newSite(t)
	origins := originsOf(t, publisher)
	allowed := ""
	for _, origin := range append(origins, "null") {
		allowed += fmt.Sprintf("%q $http_origin; ", origin)
	}
	s.use(proxy(startNginxWith(t, `map_hash_bucket_size 256; limit_req_zone $server_port zone=all:1m rate=60r/m; map $http_origin $allowed `+
		`{ default ""; `+allowed+`}`,
		`limit_req zone=all burst=8 nodelay; default_type application/json; add_header Access-Control-Allow-Origin $allowed; add_header `+
			`Access-Control-Allow-Credentials true; add_header Vary Origin; proxy_pass http://`+
			serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }))+`;`)))
	e := probe.Endpoint{URL: apiOrigin + "/api/read", Method: "GET", Credentials: true, Answer: "json"}
	report := runProbe(t, s, probe.Config{Endpoints: []probe.Endpoint{e}, Publishers: []string{publisher}})
	wantFindings(t, report, nil)
	if !slices.ContainsFunc(report.Untested, func(u probe.Untested) bool {
		return u.Failed &&
			strings.Contains(u.Reason, "limits requests")
	}) {
		t.Errorf("%+v", report.Untested)
	}
}

func wantFindings(t *testing.T, report *probe.Report, want []string) {
	t.Helper()
	var got []string
	for _, f := range report.Findings {
		got = append(got, string(f.ID))
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got %q; want %q", got, want)
		for _, f := range report.Findings {
			t.Logf("%s: %s", f.ID, f.Evidence)
		}
	}
}

// startPHP starts PHP's built-in server with more arguments. The script answers every path.
func startPHP(t *testing.T, script string, args ...string) string {
	t.Helper()
	path := servertest.Program(t, "install PHP (Debian: apt-get install php-cli)", "php")
	dir, addr := t.TempDir(), servertest.FreeAddress(t)
	file := filepath.Join(dir, "index.php")
	writeFiles(t, map[string]string{file: script})
	start(t, addr, exec.Command(path, append(args, "-S", addr, "-t", dir)...))
	return addr
}

// startExpress starts Express 4, and startExpress5 starts version 5. The code runs before the API and can use app.
func startExpress(t *testing.T, code string) string  { return startExpressOf(t, "express", code) }
func startExpress5(t *testing.T, code string) string { return startExpressOf(t, "express5", code) }

func startExpressOf(t *testing.T, version, code string) string {
	t.Helper()
	file, addr := filepath.Join(t.TempDir(), "code.js"), servertest.FreeAddress(t)
	writeFiles(t, map[string]string{file: code})
	start(t, addr, exec.Command(nodeJS(t), "peers/express.js", addr, file, version))
	return addr
}

// startCaddy starts Caddy with one site, which has the directives.
func startCaddy(t *testing.T, directives string) string {
	t.Helper()
	path := servertest.Program(t, "install Caddy (Debian: apt-get install caddy)", "caddy")
	dir, addr := t.TempDir(), servertest.FreeAddress(t)
	_, port, _ := strings.Cut(addr, ":")
	file := filepath.Join(dir, "Caddyfile")
	writeFiles(t, map[string]string{file: "{\n\tadmin off\n\tauto_https off\n}\nhttp://:" + port + " {\nbind 127.0.0.1\n" + directives +
		"\n}\n"})
	cmd := exec.Command(path, "run", "--adapter", "caddyfile", "--config", file)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	start(t, addr, cmd)
	return addr
}

func writeFiles(t testing.TB, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
