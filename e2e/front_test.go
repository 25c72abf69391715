package e2e

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/probe"
)

// startVarnish starts Varnish in front of a server, with statements of vcl_backend_response, and a key without the query.
func startVarnish(t *testing.T, upstream, ofResponse string) string {
	t.Helper()
	path := servertest.Program(t, "install Varnish (Debian: apt-get install varnish)", "varnishd", "/usr/sbin/varnishd")
	dir, addr := t.TempDir(), servertest.FreeAddress(t)
	host, port, _ := strings.Cut(upstream, ":")
	file := filepath.Join(dir, "api.vcl")
	writeFiles(t, map[string]string{file: fmt.Sprintf(`vcl 4.1;
backend api { .host = "%s"; .port = "%s"; }
sub vcl_hash { hash_data(regsub(req.url, "\?.*", "")); return (lookup); }
sub vcl_backend_response { %s }
`, host, port, ofResponse)})
	start(t, addr, exec.Command(path, "-j", "none", "-F", "-n", dir, "-f", file, "-a", addr, "-s", "malloc,10m"))
	return addr
}

// TestACacheInFrontIsTheCause puts real caches in front of ampcors that give everybody one answer. Each page fails because of the cache, and
// the backend is right.
func TestACacheInFrontIsTheCause(t *testing.T) {
	const (
		denial     = "https://evil-example.cdn.ampproject.org" // asks first, so that a denial is kept
		byPath     = `proxy_cache api; proxy_cache_key $uri; proxy_cache_valid any 1h; proxy_ignore_headers Cache-Control Vary Expires Set-Cookie; proxy_pass http://%s;`
		byPathVary = `unset beresp.http.Vary; unset beresp.http.Cache-Control; set beresp.ttl = 1h;`
	)
	nginx := func(location string) func(*testing.T, string) string {
		return func(t *testing.T, upstream string) string {
			return startNginxWith(t, "", strings.ReplaceAll(location, "%s", upstream))
		}
	}
	varnish := func(statements string) func(*testing.T, string) string {
		return func(t *testing.T, upstream string) string { return startVarnish(t, upstream, statements) }
	}
	haproxy := func(before string) func(*testing.T, string) string {
		return func(t *testing.T, upstream string) string {
			return startHAProxy(t, upstream+"\ncache api\n    total-max-size 4\n    max-age 60", before+`
    http-request cache-use api
    http-response del-header Vary
    http-response set-header Cache-Control max-age=60
    http-response cache-store api`)
		}
	}
	for _, test := range []struct {
		name   string
		front  func(t *testing.T, upstream string) string
		before string   // the origin whose request comes first; if empty, the probe's own request without Origin
		want   []string // texts in the evidence
	}{
		{"nginx by path, with a denial", nginx(byPath), denial, []string{"publisher_not_allowed"}},
		{"nginx by path, with an answer without Origin", nginx(byPath), "", []string{"no cache answers"}},
		{"nginx by path, with another page's answer", nginx(byPath), own, []string{"no cache answers"}},
		{"Varnish by path, with a denial", varnish(byPathVary), denial, []string{"publisher_not_allowed", "X-Varnish"}},
		{"Varnish by path, with an answer without Origin", varnish(byPathVary), "", []string{"Age: "}},
		{"Varnish by path, with another page's answer", varnish(byPathVary), own, []string{"Age: "}},
		{"nginx by URL", nginx(`proxy_cache api; proxy_cache_valid any 1h; proxy_ignore_headers Cache-Control Vary; proxy_pass http://%s;`), "",
			[]string{"there is no Access-Control-Allow-Origin", "with a new URL"}},
		{"HAProxy by path, with an answer without Origin", haproxy("    http-request set-uri %[path]"), "", []string{"Age: "}},
		{"HAProxy by path, with another page's answer", haproxy("    http-request set-uri %[path]"), own, []string{"Age: "}},
		{"HAProxy by URL", haproxy(""), "", []string{"with a new URL"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			mw, err := ampcors.New(ampcors.Config{Publishers: []string{publisher}, Credentialed: true})
			if err != nil {
				t.Fatal(err)
			}
			s := newSite(t)
			api := mw.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "{}") }))
			front := test.front(t, serve(t, api))
			s.use(proxy(front))
			if test.before != "" {
				req, _ := http.NewRequest(http.MethodGet, "http://"+front+"/api/read", nil)
				req.Header.Set("Origin", test.before)
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
			}
			e := probe.Endpoint{URL: apiOrigin + "/api/read", Method: "GET", Credentials: true, Answer: "json"}
			report := runProbe(t, s, probe.Config{Endpoints: []probe.Endpoint{e}, Publishers: []string{publisher}})
			want := []string{"cached-wrong-origin"}
			if strings.HasPrefix(test.name, "HAProxy") { // which keeps only what has no Vary
				want = append(want, "vary-missing")
			}
			wantFindings(t, report, want)
			for _, f := range report.Findings {
				for _, text := range test.want {
					if f.ID == probe.CachedWrongOrigin && !strings.Contains(strings.Join(f.Evidence, "\n"), text) {
						t.Errorf("the evidence has no %q: %q", text, f.Evidence)
					}
				}
			}
			for _, trial := range report.Trials {
				isItsOwn := trial.Origin == test.before // which the cache gives to everybody
				if trial.Kind == probe.KindPage && trial.Works && !isItsOwn {
					t.Errorf("the page works that gets another's answer: %+v", trial)
				}
			}
		})
	}
}
