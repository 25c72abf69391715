package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
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
	addr := servertest.FreeAddress(t)
	runNginx(t, addr, fmt.Sprintf("%s\nserver {\nlisten %s;\n%s\nlocation / {\n%s\n}\n}\n", http, addr, strings.Join(server, "\n"), location))
	return addr
}

// runNginx starts nginx with directives of its http block, and waits until it listens at addr.
func runNginx(t testing.TB, addr, http string) {
	t.Helper()
	path := servertest.Program(t, "install nginx (Debian: apt-get install nginx-light)", "nginx", "/usr/sbin/nginx")
	dir := t.TempDir()
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
	%[2]s
}
`, dir, http)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, addr, exec.Command(path, "-p", dir, "-c", file))
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
