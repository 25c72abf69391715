package e2e

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/probe"
)

// A dialect is a server or language with advice.
type dialect struct {
	server string   // of the advice, if it has another name
	apis   []string // the paths of the API, if they are others than /api/list
	hsts   bool     // the server sends Strict-Transport-Security, which the advice must not drop

	// mistake starts an API with a mistake that people make in it.
	mistake func(t *testing.T) string
	want    []string // what the probe finds then
	// advised starts the same API after its rules were removed, and the advice was added.
	advised func(t *testing.T, advice string) string
}

// careless is an application behind a proxy, which allows every origin. The advice for the proxy must
// work even if nobody changes the application.
var careless = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if origin := r.Header.Get("Origin"); origin != "" {
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Set("Access-Control-Allow-Credentials", "true")
	}
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"ok": true}`)
})

// foundInCareless is what the probe finds in careless.
var foundInCareless = []string{"any-origin-allowed", "vary-missing"}

const carelessExpress = `app.use((req, res, next) => { res.set('Access-Control-Allow-Origin', req.get('Origin') || '*'); ` +
	`res.set('Access-Control-Allow-Credentials', 'true'); next(); });`

var dialects = map[string]dialect{
	"nginx": {hsts: true, want: foundInCareless,
		mistake: func(t *testing.T) string {
			return startNginxWith(t, hstsOfNginx, "proxy_pass http://"+serve(t, careless)+";")
		},
		advised: func(t *testing.T, advice string) string {
			http, server, ok := strings.Cut(advice, "# In server { }")
			if !ok {
				t.Fatal("the advice has no part for server { }")
			}
			if !strings.Contains(server, "copy those of http { }") {
				t.Fatal("the advice would drop the headers of http { }")
			}
			return startNginxWith(t, hstsOfNginx+http, "proxy_pass http://"+serve(t, careless)+"; proxy_set_header Host $http_host;", hstsOfNginx,
				"#"+server)
		}},
	"Apache": {hsts: true, want: foundInCareless,
		mistake: func(t *testing.T) string { return startApacheProxy(t, serve(t, careless), hstsOfApache) },
		advised: func(t *testing.T, advice string) string {
			return startApacheProxy(t, serve(t, careless), hstsOfApache+advice)
		}},
	"Caddy": {hsts: true, want: foundInCareless,
		mistake: func(t *testing.T) string { return startCaddy(t, hstsOfCaddy+"reverse_proxy "+serve(t, careless)+"\n") },
		advised: func(t *testing.T, advice string) string {
			return startCaddy(t, hstsOfCaddy+advice+"reverse_proxy "+serve(t, careless)+"\n")
		}},
	"HAProxy": {hsts: true, want: foundInCareless,
		mistake: func(t *testing.T) string { return startHAProxy(t, serve(t, careless), hstsOfHAProxy) },
		advised: func(t *testing.T, advice string) string {
			return startHAProxy(t, serve(t, careless), hstsOfHAProxy+advice)
		}},
	"Express": {want: foundInCareless,
		mistake: func(t *testing.T) string { return startExpress(t, carelessExpress) },
		advised: startExpress},
	"Express 5": {server: "Express", want: foundInCareless,
		mistake: func(t *testing.T) string { return startExpress5(t, carelessExpress) },
		advised: startExpress5},
	"PHP": {want: foundInCareless,
		mistake: func(t *testing.T) string {
			return startPHP(t, `<?php header('Access-Control-Allow-Origin: ' . ($_SERVER['HTTP_ORIGIN'] ?? '*')); `+
				`header('Access-Control-Allow-Credentials: true'); echo '{}';`)
		},
		advised: func(t *testing.T, advice string) string {
			file := filepath.Join(t.TempDir(), "cors.php")
			writeFiles(t, map[string]string{file: advice})
			// The server in php has no .user.ini and no pool. The option is that of this server alone.
			return startPHP(t, `<?php echo '{"ok": true}';`, "-d", "auto_prepend_file="+file)
		}},
	"WordPress": {apis: []string{"/?rest_route=/shop/v1/list", "/wp-admin/admin-ajax.php?action=shop"}, want: []string{"any-origin-allowed"},
		mistake: func(t *testing.T) string { return startWordPress(t, nil) },
		advised: func(t *testing.T, advice string) string {
			return startWordPress(t, map[string]string{"amp-cors.php": advice})
		}},
	"Django": {want: foundInCareless,
		mistake: func(t *testing.T) string {
			return startDjango(t, "Open", `
class Open:
    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        response = self.get_response(request)
        response['Access-Control-Allow-Origin'] = request.headers.get('Origin', '*')
        response['Access-Control-Allow-Credentials'] = 'true'
        return response
`)
		},
		advised: func(t *testing.T, advice string) string { return startDjango(t, "AMPCORS", advice) }},
	"Go": {want: foundInCareless,
		mistake: func(t *testing.T) string { return serve(t, careless) },
		advised: startGo},
}

const (
	hstsOfNginx   = "add_header Strict-Transport-Security max-age=600 always;\n"
	hstsOfApache  = "Header always set Strict-Transport-Security max-age=600\n"
	hstsOfHAProxy = "    http-after-response set-header Strict-Transport-Security max-age=600\n"
	hstsOfCaddy   = "header Strict-Transport-Security max-age=600\n"
)

// TestAdviceWorks starts from a mistake, follows the advice to the letter, and probes again.
func TestAdviceWorks(t *testing.T) {
	servers := probe.Servers()
	if len(servers) < 9 {
		t.Errorf("advice for %q", servers)
	}
	for _, server := range servers {
		if _, ok := dialects[server]; !ok {
			t.Errorf("the advice for %s is not run", server)
		}
	}
	for name, d := range dialects {
		server := cmp.Or(d.server, name)
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			apis := d.apis
			if apis == nil {
				apis = []string{"/api/list"}
			}
			// One endpoint asks for all that the advice must grant.
			put := probe.Endpoint{URL: apiOrigin + apis[0], Method: http.MethodPut, ContentType: "application/json", Body: "{}", Credentials: true,
				Answer: "any"}
			get := probe.Endpoint{URL: apiOrigin + apis[0], Method: http.MethodGet, Credentials: true, Answer: "json"}

			s.use(proxy(d.mistake(t)))
			wantFindings(t, runProbe(t, s, probe.Config{Endpoints: []probe.Endpoint{get}, Publishers: []string{publisher}}), d.want)
			report := probeAPI(t, s, get, put)
			i := slices.IndexFunc(report.Snippets, func(s probe.Snippet) bool { return s.Server == server })
			if i < 0 {
				t.Fatalf("there is no advice for %s", server)
			}

			advice := report.Snippets[i].Text
			advised := proxy(d.advised(t, advice))
			s.use(advised)
			for i, path := range apis {
				form := probe.Endpoint{URL: apiOrigin + path, Method: http.MethodPost, ContentType: "application/x-www-form-urlencoded", Body: "a=b",
					Credentials: true, Answer: "form"}
				json := form
				json.ContentType, json.Body, json.Answer = "application/json", "{}", "any"
				get.URL, put.URL = form.URL, form.URL
				endpoints := []probe.Endpoint{form, json, get, put}
				if i > 0 {
					endpoints = endpoints[:2] // the others depend on no path
				}
				report = probeAPI(t, s, endpoints...)
				wantFindings(t, report, nil)
				for _, u := range report.Untested {
					t.Errorf("not tested: %+v", u)
				}
				// The API's own pages can still post, also with Referrer-Policy: no-referrer and
				// from old browsers, and other headers are still there.
				for _, own := range []http.Header{
					{"Origin": {apiOrigin}, "Sec-Fetch-Site": {"same-origin"}},
					{"Origin": {"null"}, "Sec-Fetch-Site": {"same-origin"}},
					{"Origin": {apiOrigin}},
					{"Origin": {"null"}, "Sec-Fetch-Site": {"cross-site"}},
					{"Origin": {strings.Replace(apiOrigin, "https:", "http:", 1)}, "Sec-Fetch-Site": {"cross-site"}},
				} {
					r := httptest.NewRequest(http.MethodPost, form.URL, strings.NewReader("a=b"))
					r.Header = own
					r.Header.Set("Content-Type", form.ContentType)
					w := httptest.NewRecorder()
					advised.ServeHTTP(w, r)
					// ampcors trusts only Sec-Fetch-Site
					isOwn := own.Get("Sec-Fetch-Site") != "cross-site" && (own.Get("Sec-Fetch-Site") != "" || server != "Go")
					if want := map[bool]int{true: 200, false: 403}[isOwn]; w.Code != want {
						t.Errorf("a POST with %v has status %d; want %d", own, w.Code, want)
					}
					if d.hsts && w.Header().Get("Strict-Transport-Security") == "" {
						t.Errorf("Strict-Transport-Security is gone: %v", w.Header())
					}
				}
			}
			if slices.Contains([]string{"nginx", "Apache", "Caddy", "HAProxy"}, server) {
				testException(t, d.advised(t, exception.ReplaceAllString(advice, "$1$2")))
			}
		})
	}
}

// exception finds the line of an advice for a proxy that excepts a path, which is a comment.
var exception = regexp.MustCompile(`(?m)^(\s*)# (.*login/done.*)$`)

// testException posts from a page of another site: to the path that the advice excepts, and to paths that only some
// servers take for it. A backend may take those for the API's.
func testException(t *testing.T, addr string) {
	t.Helper()
	for path, want := range map[string]int{
		"/login/done": http.StatusOK, "/login/done?a=b": http.StatusOK, "/api": http.StatusForbidden,
		"/api/..%2flogin/done": http.StatusForbidden, "/api/../login/done": http.StatusForbidden,
		"/login/done/..%2f..%2fapi": http.StatusForbidden,
		"/login/done/../../api":     http.StatusForbidden, "/login/donex": http.StatusForbidden, "//login/done": http.StatusForbidden,
		"/LOGIN/done": http.StatusForbidden, "/login%2fdone": http.StatusForbidden, "/login/done;/../../api": http.StatusForbidden,
		"/api?/login/done": http.StatusForbidden,
	} {
		got := sendRaw(t, addr, path, "evil.example").StatusCode
		if got != want && (want == http.StatusOK || got < 400) { // a server may reject such a path by itself
			t.Errorf("a POST to %s has status %d; want %d", path, got, want)
		}
	}
}

// probeAPI probes endpoints, also with methods that change data.
func probeAPI(t *testing.T, s *site, endpoints ...probe.Endpoint) *probe.Report {
	t.Helper()
	return runProbe(t, s, probe.Config{Endpoints: endpoints, Publishers: []string{publisher}, Unsafe: true,
		PageHeader: http.Header{"X-Token": {"1"}}})
}

// startApacheProxy starts Apache as a proxy with directives.
func startApacheProxy(t *testing.T, upstream, directives string) string {
	t.Helper()
	path := servertest.Program(t, "install Apache (Debian: apt-get install apache2)", "apache2", "/usr/sbin/apache2", "httpd")
	dir, addr := t.TempDir(), servertest.FreeAddress(t)
	load := ""
	for _, name := range []string{"mpm_event", "authz_core", "headers", "setenvif", "rewrite", "proxy", "proxy_http"} {
		load += fmt.Sprintf("LoadModule %s_module /usr/lib/apache2/modules/mod_%s.so\n", name, name)
	}
	file := filepath.Join(dir, "apache.conf")
	writeFiles(t, map[string]string{file: fmt.Sprintf("%sServerName localhost\nListen %s\nPidFile %s/pid\nMutex posixsem\nErrorLog "+
		"/dev/stderr\nProxyPreserveHost On\n%s\nProxyPass / http://%s/\n", load, addr, dir, directives, upstream)})
	start(t, addr, exec.Command(path, "-d", dir, "-f", file, "-X"))
	return addr
}

// startHAProxy starts HAProxy as a proxy with lines of its frontend.
func startHAProxy(t *testing.T, upstream, lines string) string {
	t.Helper()
	path := servertest.Program(t, "install HAProxy (Debian: apt-get install haproxy)", "haproxy", "/usr/sbin/haproxy")
	addr := servertest.FreeAddress(t)
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	writeFiles(t, map[string]string{file: fmt.Sprintf("defaults\n    mode http\n    timeout connect 5s\n    timeout client 30s\n    timeout "+
		"server 30s\n"+
		"frontend api\n    bind %s\n%s\n    default_backend api\nbackend api\n    server api %s\n", addr, lines, upstream)})
	start(t, addr, exec.Command(path, "-f", file, "-db"))
	return addr
}

// startDjango starts a Django site with one middleware.
func startDjango(t *testing.T, class, middleware string) string {
	t.Helper()
	const install = "install Django (Debian: apt-get install python3-django)"
	python := servertest.Program(t, install, "/usr/bin/python3")
	if err := exec.Command(python, "-c", "import django").Run(); err != nil {
		servertest.Missing(t, install)
	}
	dir, addr := t.TempDir(), servertest.FreeAddress(t)
	writeFiles(t, map[string]string{filepath.Join(dir, "middleware.py"): middleware})
	start(t, addr, exec.Command(python, "peers/site.py", addr, dir, class))
	return addr
}

// startGo starts a program that is the advice, with an API.
func startGo(t *testing.T, advice string) string {
	t.Helper()
	dir, addr := t.TempDir(), servertest.FreeAddress(t)
	file, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	writeFiles(t, map[string]string{file: `package main

import (
	"io"
	"log"
	"net/http"

	"github.com/ampcors/ampcors"
)

func main() {
	const address = "` + addr + `"
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "{\"ok\": true}")
	})
` + advice + "}\n"})
	if out, err := exec.Command("go", "build", "-o", program, file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	start(t, addr, exec.Command(program))
	return addr
}

// startWordPress installs WordPress, with a plugin that has an API in the REST API, and with more
// plugins.
func startWordPress(t *testing.T, plugins map[string]string) string {
	t.Helper()
	const install = "install WordPress (Debian: apt-get install wordpress php-cli php-mysql)"
	php := servertest.Program(t, install, "php")
	if _, err := os.Stat("/usr/share/wordpress/wp-settings.php"); err != nil {
		servertest.Missing(t, install)
	}
	database := servertest.MariaDB(t)
	dir, addr := t.TempDir(), servertest.FreeAddress(t)
	if err := os.CopyFS(dir, os.DirFS("/usr/share/wordpress")); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		filepath.Join(dir, "wp-config.php"): fmt.Sprintf(`<?php
define('DB_NAME', 'test');
define('DB_USER', 'root');
define('DB_PASSWORD', '');
define('DB_HOST', '%s');
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('DISABLE_WP_CRON', true);
$table_prefix = 'wp_';
if (!defined('ABSPATH')) {
    define('ABSPATH', __DIR__ . '/');
}
require_once ABSPATH . 'wp-settings.php';
`, database.Addr),
		filepath.Join(dir, "install.php"): `<?php
define('WP_INSTALLING', true);
$_SERVER['HTTP_HOST'] = 'api.example.org';
require __DIR__ . '/wp-load.php';
require ABSPATH . 'wp-admin/includes/upgrade.php';
wp_install('shop', 'admin', 'admin@example.org', false, '', 'of a test');
`,
		filepath.Join(dir, "wp-content/mu-plugins/shop.php"): `<?php
add_action('rest_api_init', function () {
    register_rest_route('shop/v1', '/list', ['methods' => 'GET, POST, PUT', 'permission_callback' => '__return_true', 'callback' => fn ` +
			`() => ['ok' => true]]);
});
add_action('wp_ajax_nopriv_shop', fn () => wp_send_json(['ok' => true]));
`,
	}
	for name, text := range plugins {
		files[filepath.Join(dir, "wp-content/mu-plugins", name)] = text
	}
	writeFiles(t, files)
	if out, err := exec.Command(php, filepath.Join(dir, "install.php")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	start(t, addr, exec.Command(php, "-d", "opcache.enable_cli=1", "-S", addr, "-t", dir)) // it compiles each file once
	return addr
}
