package e2e

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
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

// TestACacheInFrontIsTheCause puts real caches in front of ampcors that give everybody one answer. Each page fails because of the
// cache, and the backend is right.
func TestACacheInFrontIsTheCause(t *testing.T) {
	const (
		denial = "https://evil-example.cdn.ampproject.org" // asks first, so that a denial is kept
		byPath = `proxy_cache api; proxy_cache_key $uri; proxy_cache_valid any 1h; proxy_ignore_headers Cache-Control Vary Expires ` +
			`Set-Cookie; proxy_pass http://%s;`
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

// TestWhatStandsInFront runs caches in front of ampcors, as OPERATIONS describes them, and breaks them.
func TestWhatStandsInFront(t *testing.T) {
	var runs atomic.Int32
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{publisher, "other.example"}, Methods: []string{"PUT"},
		Email: ampcors.Email{Senders: []string{"news@example.com"}}})
	if err != nil {
		t.Fatal(err)
	}
	api := serve(t, mw.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		w.Header().Set("Cache-Control", "max-age=60")
		fmt.Fprint(w, r.Method)
	})))
	haproxy := func(replace ...string) string {
		addr, file := servertest.FreeAddress(t), filepath.Join(t.TempDir(), "haproxy.cfg")
		writeFiles(t, map[string]string{file: strings.NewReplacer(replace...).Replace(`defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend api
    bind ` + addr + `
    http-request cache-use api
    http-response cache-store api
    default_backend ampcors
cache api
    total-max-size 4
backend ampcors
    server ampcors ` + api + "\n")})
		path := servertest.Program(t, "install HAProxy (Debian: apt-get install haproxy)", "haproxy", "/usr/sbin/haproxy")
		start(t, addr, exec.Command(path, "-f", file, "-db"))
		return addr
	}
	varnish := func(more string) string {
		path := servertest.Program(t, "install Varnish (Debian: apt-get install varnish)", "varnishd", "/usr/sbin/varnishd")
		dir, addr := t.TempDir(), servertest.FreeAddress(t)
		_, port, _ := strings.Cut(api, ":")
		file := filepath.Join(dir, "api.vcl")
		writeFiles(t, map[string]string{file: fmt.Sprintf("vcl 4.1;\nbackend ampcors { .host = \"127.0.0.1\"; .port = %q; }\n", port) + more})
		start(t, addr, exec.Command(path, "-j", "none", "-F", "-n", dir, "-f", file, "-a", addr, "-s", "malloc,10m"))
		return addr
	}
	nginx := func(replace ...string) string {
		return startNginxWith(t, "", strings.NewReplacer(replace...).Replace(`proxy_cache api;
proxy_ignore_headers Vary;
proxy_cache_key "$request_method $host$request_uri $http_origin $http_amp_email_sender";
proxy_set_header Host $http_host;
proxy_pass http://`+api+`;`))
	}
	const other = "https://other-example.cdn.ampproject.org"
	call := func(addr, method, origin string, more ...string) (status int, acao, body string) {
		headers := map[string]string{"Origin": origin}
		for i := 0; i < len(more); i += 2 {
			headers[more[i]] = more[i+1]
		}
		resp, body := send(t, method, "http://"+addr+"/a", headers)
		return resp.StatusCode, resp.Header.Get("Access-Control-Allow-Origin"), body
	}
	for name, front := range map[string]struct {
		addr  string
		keeps int // of 6 allowed GETs, two for each of three origins
	}{
		"HAProxy": {haproxy(), 0}, "Varnish": {varnish(""), 3}, "a CDN": {nginx(), 3},
		"nginx": {nginx("proxy_ignore_headers Vary;\n", "", " $http_origin $http_amp_email_sender", ""), 3},
	} {
		before := runs.Load()
		for range 2 {
			for _, origin := range []string{evil, cached, other, ""} {
				status, acao, _ := call(front.addr, "GET", origin)
				if isEvil := origin == evil; (status == http.StatusForbidden) != isEvil || (acao == origin) == isEvil {
					t.Errorf("%s: GET of %q: %d %q", name, origin, status, acao)
				}
			}
		}
		if kept := 6 - int(runs.Load()-before); kept != front.keeps {
			t.Errorf("%s keeps %d responses, want %d", name, kept, front.keeps)
		}
		if status, _, _ := call(front.addr, "POST", evil); status != http.StatusForbidden {
			t.Errorf("%s: a forged POST: %d", name, status)
		}
		if status, acao, body := call(front.addr, "POST", cached); status != http.StatusOK || acao != cached || body != "POST" {
			t.Errorf("%s: POST: %d %q %q", name, status, acao, body)
		}
		for _, origin := range []string{evil, cached, other} {
			status, acao, _ := call(front.addr, "OPTIONS", origin, "Access-Control-Request-Method", "PUT")
			if isEvil := origin == evil; (status == http.StatusForbidden) != isEvil || (acao == origin) == isEvil {
				t.Errorf("%s: preflight of %q: %d %q", name, origin, status, acao)
			}
		}
	}
	for name, addr := range map[string]string{
		"HAProxy without Origin": haproxy("    http-request cache-use", "    http-request del-header Origin\n    http-request cache-use"),
		"Varnish without Origin": varnish("sub vcl_recv { unset req.http.Origin; }\n"),
		"a CDN without Origin":   nginx("proxy_cache api", "proxy_set_header Origin \"\"; proxy_cache api"),
	} {
		if status, acao, _ := call(addr, "GET", cached); status != http.StatusOK || acao != "" {
			t.Errorf("%s: GET %d %q", name, status, acao)
		}
		if status, _, body := call(addr, "POST", cached); status != http.StatusForbidden || !strings.Contains(body, "no_origin_unsafe") {
			t.Errorf("%s: POST %d %q", name, status, body)
		}
	}
	merged := nginx("proxy_cache api", `proxy_set_header Origin "$http_origin, https://example.com"; proxy_cache api`)
	if status, _, body := call(merged, "GET", cached); status != http.StatusForbidden || !strings.Contains(body, "malformed_origin") {
		t.Errorf("two origins: %d %q", status, body)
	}
	noMethod := varnish("sub vcl_recv { unset req.http.Access-Control-Request-Method; }\n")
	if status, _, body := call(noMethod, "OPTIONS", cached, "Access-Control-Request-Method", "PUT"); status != http.StatusOK ||
		body != "OPTIONS" {
		t.Errorf("without Access-Control-Request-Method: %d %q", status, body)
	}
	byURL := nginx(" $http_origin $http_amp_email_sender", "")
	if _, acao, _ := call(byURL, "GET", cached); acao != cached {
		t.Errorf("by the URL alone, the page that asks first gets %q", acao)
	}
	if _, acao, _ := call(byURL, "GET", other); acao != cached {
		t.Errorf("by the URL alone, another page gets %q", acao)
	}
}

// TestDjangosOwnCheck: Django denies the POST of a page on a cache, which has no token, until the view is exempt.
func TestDjangosOwnCheck(t *testing.T) {
	program := buildAmpcors(t)
	for exempt, want := range map[string]int{"": http.StatusForbidden, "@csrf_exempt\n    ": http.StatusOK} {
		django := startDjango(t, "Checked", `from django.http import HttpResponse
from django.middleware.csrf import CsrfViewMiddleware
from django.views.decorators.csrf import csrf_exempt

def Checked(get_response):
    `+exempt+`def view(request):
        return HttpResponse('done')
    csrf = CsrfViewMiddleware(view)
    return lambda request: csrf.process_request(request) or csrf.process_view(request, view, (), {}) or view(request)
`)
		proxy, _ := startServeProxy(t, program, django, config())
		if resp, body := send(t, "POST", "http://"+proxy+"/", map[string]string{"Origin": cached}); resp.StatusCode != want {
			t.Errorf("%q: %s %.300q; want %d", exempt, resp.Status, body, want)
		}
		if resp, _ := send(t, "POST", "http://"+proxy+"/", map[string]string{"Origin": evil}); resp.StatusCode != http.StatusForbidden ||
			resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%q: a forged POST: %s", exempt, resp.Status)
		}
	}
}
