package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/guard"
	"github.com/ampcors/ampcors/internal/servertest"
)

// startNginx starts nginx as a shared HTTP cache in front of the server at upstream, and
// returns its address.
func startNginx(t testing.TB, upstream string) string {
	t.Helper()
	return startNginxWith(t, "", fmt.Sprintf(`
		proxy_pass http://%s;
		proxy_set_header Host $host;
		proxy_cache api;
`, upstream))
}

// startNginxWith starts nginx with directives of its http block, of its only location and, if there is
// a third, of its only server.
func startNginxWith(t testing.TB, http, location string, server ...string) string {
	t.Helper()
	path := servertest.Program(t, "install nginx (Debian: apt-get install nginx-light)", "nginx", "/usr/sbin/nginx")
	dir, addr := t.TempDir(), servertest.FreeAddress(t)
	conf := fmt.Sprintf(`
daemon off;
master_process off;
pid %[1]s/pid;
error_log stderr;
events {}
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	proxy_cache_path %[1]s/cache keys_zone=api:1m;
	%[3]s
	server {
		listen %[2]s;
		%[5]s
		location / {
			%[4]s
		}
	}
}
`, dir, addr, http, location, strings.Join(server, "\n"))
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, addr, exec.Command(path, "-p", dir, "-c", file))
	return addr
}

// readShared reads a response that shared caches may store, from a page.
func readShared(t testing.TB, page context.Context, origin string) string {
	t.Helper()
	// The browser's own cache is not used: it is partitioned by site.
	return visit(t, page, origin, "{"+library+`call('/api/shared', {cache: 'no-store'})}`)
}

// TestPublishersBehindASharedCache: two publishers' pages read one URL through a shared
// cache, which stores a response for each. Without Vary, the second page gets the
// Access-Control-Allow-Origin of the first, and the browser blocks it.
func TestPublishersBehindASharedCache(t *testing.T) {
	const other = "https://xn--bcher-example-wob.cdn.ampproject.org"
	s := newSite(t)
	chromium := browser(t, s)
	mw, err := ampcors.New(config())
	if err != nil {
		t.Fatal(err)
	}
	api := mw.Wrap(s.handler())
	page := tab(t, chromium)

	s.use(proxy(startNginx(t, serve(t, api))))
	for _, step := range []struct{ name, origin, want, runs string }{
		{name: "the first publisher", origin: cached, want: "200 for all", runs: "shared"},
		{name: "the first publisher again, from the cache", origin: cached, want: "200 for all", runs: ""},
		{name: "another publisher that is allowed", origin: other, want: "200 for all", runs: "shared"},
		{name: "the other publisher again, from the cache", origin: other, want: "200 for all", runs: ""},
		{name: "the first publisher once more", origin: cached, want: "200 for all", runs: ""},
		{name: "the first publisher's own origin", origin: own, want: "200 for all", runs: "shared"},
		{name: "a publisher that is not allowed", origin: evil, want: blocked, runs: ""},
		{name: "the API host's own page", origin: apiOrigin + "/page", want: "200 for all", runs: "shared"},
		{name: "the first publisher, after all others", origin: cached, want: "200 for all", runs: ""},
	} {
		got := readShared(t, page, step.origin)
		if runs := s.takeRuns(); got != step.want || runs != step.runs {
			t.Errorf("%s: the script has %q, want %q; the handler did %q, want %q", step.name, got, step.want, runs, step.runs)
		}
	}

	// A font is stored for each publisher, too.
	for _, origin := range []string{cached, other, cached} {
		if got := visit(t, page, origin, "{"+library+`font('`+apiOrigin+`/api/font.ttf')}`); got != "loaded" {
			t.Errorf("the font for %s is %s", origin, got)
		}
	}

	withoutVary := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.ServeHTTP(unvarying{w}, r)
	})
	s.use(proxy(startNginx(t, serve(t, withoutVary))))
	if got := readShared(t, page, cached); got != "200 for all" {
		t.Errorf("without Vary, the first publisher has %q", got)
	}
	if got := readShared(t, page, other); got != blocked {
		t.Errorf("without Vary, the other publisher has %q; this test proves nothing", got)
	}
}

// unvarying removes Vary.
type unvarying struct{ http.ResponseWriter }

func (w unvarying) Write(b []byte) (int, error) {
	w.Header().Del("Vary")
	return w.ResponseWriter.Write(b)
}

// TestAHandlerThatAddsToVary: nginx before 1.23 keys its cache on the last Vary line only.
// If a handler adds a line, one publisher's page can get the response for another's. The
// guard keeps everything in one line.
func TestAHandlerThatAddsToVary(t *testing.T) {
	const other = "https://xn--bcher-example-wob.cdn.ampproject.org"
	mw, err := ampcors.New(config())
	if err != nil {
		t.Fatal(err)
	}
	adds := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept")
		w.Header().Set("Cache-Control", "public, max-age=60")
		fmt.Fprint(w, "an answer")
	})
	replaces := http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept")
		w.Header().Set("Cache-Control", "public, max-age=60")
		fmt.Fprint(w, "an answer")
	}), time.Minute, "")
	// An outer handler's Vary is on the same line in any case.
	outer := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Vary", "Accept-Language")
			h.ServeHTTP(w, r)
		})
	}
	keepsAll := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=60")
		fmt.Fprint(w, "an answer")
	})
	for _, test := range []struct {
		name    string
		handler http.Handler
		mixes   bool // one publisher gets the other's answer
	}{
		{name: "an outer handler has a Vary", handler: outer(mw.Wrap(keepsAll)), mixes: false},
		{name: "adds, guarded", handler: outer(mw.Wrap(guard.Handler(adds))), mixes: false},
		{name: "replaces, guarded", handler: mw.Wrap(guard.Handler(replaces)), mixes: false},
		{name: "adds", handler: mw.Wrap(adds), mixes: keysOnLastLine(t)},
		{name: "replaces", handler: mw.Wrap(replaces), mixes: true},
	} {
		addr := startNginx(t, serve(t, test.handler))
		for _, origin := range []string{cached, other, cached} {
			r, err := http.NewRequest("GET", "http://"+addr+"/api/shared", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Origin", origin)
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			got := resp.Header["Access-Control-Allow-Origin"]
			if want := origin != cached && test.mixes; slices.Equal(got, []string{origin}) == want {
				t.Errorf("%s: %s gets %q", test.name, origin, got)
			}
		}
	}
}

// keysOnLastLine reports whether nginx is older than 1.23.
func keysOnLastLine(t testing.TB) bool {
	t.Helper()
	path := servertest.Program(t, "install nginx (Debian: apt-get install nginx-light)", "nginx", "/usr/sbin/nginx")
	out, err := exec.Command(path, "-v").CombinedOutput()
	version := regexp.MustCompile(`nginx/1\.(\d+)\.`).FindSubmatch(out)
	if err != nil || version == nil {
		t.Fatalf("%s, %v", out, err)
	}
	minor, err := strconv.Atoi(string(version[1]))
	if err != nil {
		t.Fatal(err)
	}
	return minor < 23
}
