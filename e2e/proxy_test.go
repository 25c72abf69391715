package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/authz"
	"github.com/ampcors/ampcors/internal/servertest"
)

// startServeProxy runs ampcors serve-proxy in front of a backend, with a configuration and flags, and returns its
// address and process.
func startServeProxy(t testing.TB, program, backend string, cfg ampcors.Config, flags ...string) (addr string, process *exec.Cmd) {
	t.Helper()
	// In a file, a duration is a text.
	data, err := json.Marshal(struct {
		ampcors.Config
		MaxAge string `json:"maxAge,omitempty"`
	}{cfg, cfg.MaxAge.String()})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	addr = servertest.FreeAddress(t)
	process = exec.Command(program, append([]string{"serve-proxy", "--config", file, "--to", "http://" + backend, "--listen", addr},
		flags...)...)
	start(t, addr, process)
	return addr, process
}

// readingPublisher returns the expression for a backend in the table of docs/proxy.md.
func readingPublisher(t *testing.T, document, backend string) string {
	t.Helper()
	m := regexp.MustCompile("(?m)^\\| " + regexp.QuoteMeta(backend) + " \\| `(.+)` \\|$").FindStringSubmatch(document)
	if m == nil {
		t.Fatalf("docs/proxy.md has no line for %s", backend)
	}
	return m[1]
}

// backendsOf starts a backend in each language, which responds with the publisher as docs/proxy.md reads it.
func backendsOf(t *testing.T, document string) map[string]string {
	t.Helper()
	backends := make(map[string]string)

	addr, file := servertest.FreeAddress(t), filepath.Join(t.TempDir(), "backend.js")
	_, port, _ := strings.Cut(addr, ":")
	writeFiles(t, map[string]string{file: "require('http').createServer((request, response) => response.end(String(" +
		readingPublisher(t, document, "Node.js") + "))).listen(" + port + ", '127.0.0.1');\n"})
	start(t, addr, exec.Command(servertest.Program(t, "install Node.js (Debian: apt-get install nodejs)", "node"), file))
	backends["Node.js"] = addr

	backends["PHP"] = startPHP(t, "<?php header('Access-Control-Allow-Origin: *'); echo "+readingPublisher(t, document, "PHP")+
		" ?? 'undefined';")

	backends["Django"] = startDjango(t, "Says", `from django.http import HttpResponse

def Says(get_response):
    return lambda request: HttpResponse(str(`+readingPublisher(t, document, "Django")+`))
`)

	const puma = "install Puma (Debian: apt-get install puma)"
	addr, file = servertest.FreeAddress(t), filepath.Join(t.TempDir(), "config.ru")
	writeFiles(t, map[string]string{file: "run ->(env) { [200, {'content-type' => 'text/plain'}, [(" +
		readingPublisher(t, document, "Ruby (Rack)") +
		").to_s]] }\n"})
	start(t, addr, exec.Command(servertest.Program(t, puma, "puma"), "--bind", "tcp://"+addr, "--quiet", "--environment", "production", file))
	backends["Ruby (Rack)"] = addr

	addr, file = servertest.FreeAddress(t), filepath.Join(t.TempDir(), "main.go")
	writeFiles(t, map[string]string{file: `package main

import (
	"fmt"
	"log"
	"net/http"
)

func main() {
	log.Fatal(http.ListenAndServe("` + addr + `", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, ` + readingPublisher(t, document, "Go") + `)
	})))
}
`})
	program := filepath.Join(t.TempDir(), "backend")
	if out, err := exec.Command("go", "build", "-o", program, file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	start(t, addr, exec.Command(program))
	backends["Go"] = addr
	return backends
}

// TestTheProxyInFrontOfEachBackend: with the lines of docs/proxy.md, each backend learns whose page calls, and only
// allowed pages reach it.
func TestTheProxyInFrontOfEachBackend(t *testing.T) {
	data, err := os.ReadFile("../docs/proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	document, program := string(data), buildAmpcors(t)
	cfg := config()
	fronts := map[string]func(proxy string) string{
		"nginx": func(proxy string) string {
			return startNginxWith(t, "", strings.Replace(block(t, document, "", "nginx"), "127.0.0.1:9000", proxy, 1))
		},
		"nginx as a whole server": func(proxy string) string {
			addr := servertest.FreeAddress(t)
			runNginx(t, addr, strings.NewReplacer("127.0.0.1:9000", proxy, "127.0.0.1:8080",
				addr).Replace(block(t, document, "<!-- keepalive -->\n", "nginx")))
			return addr
		},
		"HAProxy": func(proxy string) string {
			return startHAProxyBackend(t, strings.Replace(block(t, document, "", "haproxy"), "127.0.0.1:9000", proxy, 1))
		},
		"nothing": func(proxy string) string { return proxy },
	}
	for language, backend := range backendsOf(t, document) {
		proxy, _ := startServeProxy(t, program, backend, cfg)
		for name, front := range fronts {
			t.Run(language+" behind "+name, func(t *testing.T) {
				addr := front(proxy)
				for _, test := range []struct {
					method, origin, forged string
					status                 int
					publisher              string // which the backend says; "" if it says that there is none
				}{
					{"GET", cached, "evil.example", 200, "www.example.com"},
					{"GET", bing, "", 200, "www.example.com"},
					{"POST", own, "", 200, "www.example.com"},
					{"GET", "https://xn--bcher-example-wob.cdn.ampproject.org", "", 200, "xn--bcher-kva.example"},
					{"GET", "", "evil.example", 200, ""},
					{"GET", evil, "www.example.com", 403, ""},
					{"POST", evil, "www.example.com", 403, ""},
					{"POST", "", "www.example.com", 403, ""},
					{"POST", "null", "www.example.com", 403, ""},
				} {
					headers := map[string]string{"Origin": test.origin, "Ampcors-Publisher": test.forged, "Ampcors_Publisher": test.forged}
					resp, body := send(t, test.method, "http://"+addr+"/a", headers)
					allowed := test.origin
					if test.status != 200 {
						allowed = ""
					}
					isNone := body == "" || body == "undefined" || body == "None"
					if resp.StatusCode != test.status || resp.Header.Get("Access-Control-Allow-Origin") != allowed ||
						len(resp.Header.Values("Vary")) != 1 ||
						test.status == 200 && (test.publisher == "") != isNone || test.publisher != "" && body != test.publisher {
						t.Errorf("%+v: %s %v %q", test, resp.Status, resp.Header, body)
					}
				}
				preflight := map[string]string{"Origin": cached, "Access-Control-Request-Method": "PUT",
					"Access-Control-Request-Headers": "x-requested-with"}
				if resp, _ := send(t, "OPTIONS", "http://"+addr+"/a", preflight); resp.StatusCode != 204 ||
					resp.Header.Get("Access-Control-Allow-Methods") != "PUT" {
					t.Errorf("a preflight: %s %v", resp.Status, resp.Header)
				}
			})
		}
	}
}

// startHAProxyBackend starts HAProxy with lines of its only backend.
func startHAProxyBackend(t *testing.T, lines string) string {
	t.Helper()
	path := servertest.Program(t, "install HAProxy (Debian: apt-get install haproxy)", "haproxy", "/usr/sbin/haproxy")
	addr, file := servertest.FreeAddress(t), filepath.Join(t.TempDir(), "haproxy.cfg")
	writeFiles(t, map[string]string{file: fmt.Sprintf("defaults\n    mode http\n    timeout connect 5s\n    timeout client 30s\n    timeout "+
		"server 30s\n"+
		"frontend api\n    bind %s\n    default_backend api\nbackend api\n%s", addr, lines)})
	start(t, addr, exec.Command(path, "-f", file, "-db"))
	return addr
}

// TestWhatStandsInFrontOfTheProxyLetsNobodyIn: what nginx does with our answer changes what the client sees, and never
// what the backend gets.
func TestWhatStandsInFrontOfTheProxyLetsNobodyIn(t *testing.T) {
	isAllowed := func(method, origin string) bool { return origin == cached || origin == "" && method == "GET" }
	var denied atomic.Int32 // requests that the backend must not get; a mirror sends its own when the client has the response
	backend := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isAllowed(r.Method, r.Header.Get("Origin")) {
			denied.Add(1)
		}
		w.Header().Set("Cache-Control", "public, max-age=60")
		fmt.Fprint(w, r.Header.Get("Ampcors-Publisher"))
	}))
	proxy, _ := startServeProxy(t, buildAmpcors(t), backend, config())
	for name, lines := range map[string]string{
		"a login page for 403":      "proxy_intercept_errors on; error_page 403 =200 /login.html; location = /login.html { return 200 login; }",
		"a front controller":        "if (!-e $request_filename) { rewrite ^(.*)$ /index.php?q=$1 last; }",
		"a cache of all locations":  "proxy_cache api; proxy_cache_valid any 1m;",
		"a cache without the query": "proxy_cache api; proxy_cache_key $uri; proxy_cache_valid any 1m;",
		"retries":                   "proxy_next_upstream error timeout http_403 http_502 non_idempotent;",
		"a mirror":                  "mirror /mirror; location = /mirror { internal; proxy_pass http://" + proxy + "; }",
	} {
		t.Run(name, func(t *testing.T) {
			addr := startNginxWith(t, "", "proxy_set_header Host $http_host;\nproxy_pass http://"+proxy+";", lines)
			for _, origin := range []string{cached, evil, "null", ""} { // an allowed page is first, so that its response may be kept
				for _, method := range []string{"GET", "POST"} {
					resp, body := send(t, method, "http://"+addr+"/a", map[string]string{"Origin": origin})
					got, mayRead := resp.Header.Get("Access-Control-Allow-Origin"), isAllowed(method, origin)
					if mayRead && got != origin || !mayRead && (got != "" || strings.Contains(body, publisher)) || denied.Load() > 0 {
						t.Errorf("%s of %q: %s %v %q; the backend got %d denied requests", method, origin, resp.Status, resp.Header, body, denied.Load())
					}
				}
			}
		})
	}
}

// TestACacheBehindAGateway: Varnish between a gateway and the backend keeps one response for each publisher if the
// backend varies by it, as caddy/README's function does.
func TestACacheBehindAGateway(t *testing.T) {
	readme, err := os.ReadFile("../caddy/README.md")
	if err != nil {
		t.Fatal(err)
	}
	only := block(t, string(readme), "", "js")
	program, caddy := buildAmpcors(t), gatewayCaddy(t)
	mw, err := ampcors.New(config())
	if err != nil {
		t.Fatal(err)
	}
	handler, err := authz.New(mw, authz.NGINX)
	if err != nil {
		t.Fatal(err)
	}
	asked := serve(t, handler)
	gateways := map[string]func(backend string) string{
		"serve-proxy": func(backend string) string {
			addr, _ := startServeProxy(t, program, backend, config())
			return addr
		},
		"nginx": func(backend string) string { return startAuthzNginx(t, asked, backend) },
		"Caddy": func(backend string) string {
			addr, file := servertest.FreeAddress(t), filepath.Join(t.TempDir(), "Caddyfile")
			writeFiles(t, map[string]string{file: "{\n\tadmin off\n}\nhttp://" + addr + " {\n\tampcors " + strings.Join(config().Publishers, " ") +
				" {\n\t\tpublisher_header Ampcors-Publisher\n\t}\n\treverse_proxy " + backend + "\n}\n"})
			start(t, addr, caddy("run", "--config", file))
			return addr
		},
	}
	for name, test := range map[string]struct {
		only  string
		leaks bool
	}{
		"as the README has it": {only, false},
		"without Vary":         {strings.Replace(only, "res.vary('Ampcors-Publisher');", "", 1), true},
	} {
		express := startExpress(t, test.only+"\napp.use('/shop', only('example.com'), (req, res) => res.set('Cache-Control', 'public, "+
			"max-age=60').send('for the shop'));\n")
		for gateway, inFront := range gateways {
			t.Run(gateway+", "+name, func(t *testing.T) {
				addr := inFront(startVarnish(t, express, "set beresp.ttl = 60s;"))
				page := map[string]string{"Origin": "https://example-com.cdn.ampproject.org"}
				if resp, body := send(t, "GET", "http://"+addr+"/shop/", page); resp.StatusCode != 200 || body != "for the shop" {
					t.Errorf("the shop's own page: %s %q", resp.Status, body)
				}
				resp, body := send(t, "GET", "http://"+addr+"/shop/", map[string]string{"Origin": cached})
				if leaks := body == "for the shop"; leaks != test.leaks {
					t.Errorf("another publisher's page: %s %q", resp.Status, body)
				}
			})
		}
	}
}

// TestWhatEachPageCanReadAndDoThroughTheProxy: in Chromium, a page can do the same with serve-proxy as with the
// middleware.
func TestWhatEachPageCanReadAndDoThroughTheProxy(t *testing.T) {
	s := newSite(t)
	chromium := browser(t, s)
	addr, _ := startServeProxy(t, buildAmpcors(t), serve(t, s.handler()), config())
	s.use(proxy(addr))
	runScenarios(t, s, chromium)
}

// TestAThousandSlowConnections: what slow clients cost serve-proxy.
func TestAThousandSlowConnections(t *testing.T) {
	const most = 64 << 10 // KiB
	streaming := make(chan struct{}, 1000)
	backend := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		streaming <- struct{}{}
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	program := buildAmpcors(t)
	const page = "Host: api.example.org\r\nOrigin: " + cached + "\r\n"
	for name, test := range map[string]struct {
		send         string
		isPassedOn   bool
		isReadAtOnce bool
	}{
		"headers that do not end":     {send: "GET / HTTP/1.1\r\n" + page},
		"events":                      {send: "GET / HTTP/1.1\r\n" + page + "\r\n", isPassedOn: true},
		"uploads that do not go on":   {send: "POST / HTTP/1.1\r\n" + page + "Content-Length: 1000000\r\n\r\nabc", isPassedOn: true},
		"denied uploads that stop":    {send: "POST / HTTP/1.1\r\nHost: a\r\nOrigin: " + evil + "\r\nContent-Length: 1000000\r\n\r\nabc"},
		"requests on idle keep-alive": {send: "GET / HTTP/1.1\r\nHost: a\r\nOrigin: " + evil + "\r\n\r\n", isReadAtOnce: true},
		"nothing":                     {},
	} {
		t.Run(name, func(t *testing.T) {
			addr, process := startServeProxy(t, program, backend, config())
			before := residentKiB(t, process)
			for range 1000 {
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if _, err := io.WriteString(conn, test.send); err != nil {
					t.Fatal(err)
				}
				if test.isReadAtOnce {
					resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
					if err != nil {
						t.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, resp.Body)
				}
			}
			for range map[bool]int{true: 1000}[test.isPassedOn] {
				<-streaming
			}
			// The proxy still answers.
			if resp, _ := send(t, "GET", "http://"+addr+"/", map[string]string{"Origin": evil}); resp.StatusCode != 403 {
				t.Error(resp.Status)
			}
			after := residentKiB(t, process)
			t.Logf("%d KiB at the start, and %d KiB more with 1000 connections", before, after-before)
			if after-before > most {
				t.Errorf("more than %d KiB", most)
			}
		})
	}
}

// residentKiB returns the memory of a process, at its peak.
func residentKiB(t *testing.T, process *exec.Cmd) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process.Process.Pid))
	if err != nil {
		servertest.Missing(t, "run it on Linux, which shows the memory of a process in /proc")
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		t.Fatalf("%s", status)
	}
	n, _ := strconv.Atoi(string(m[1])) // digits
	return n
}

// With the server of docs/proxy.md in front, WebSockets and events work, and no client chooses its own address.
func TestNginxInFrontOfTheProxyPassesEverythingOn(t *testing.T) {
	document, err := os.ReadFile("../docs/proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	goOn := make(chan struct{})
	backend := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: 1\n\n")
			_ = http.NewResponseController(w).Flush()
			<-goOn
			fmt.Fprint(w, "data: 2\n\n")
		case "/socket":
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
			_ = rw.Flush()
			_, _ = io.Copy(conn, rw)
		default:
			fmt.Fprintf(w, "%v %v %v %s", r.Header["X-Forwarded-For"], r.Header["X-Forwarded-Proto"], r.Header["X-Forwarded-Host"], r.Host)
		}
	}))
	proxy, _ := startServeProxy(t, buildAmpcors(t), backend, config())
	nginx := servertest.FreeAddress(t)
	runNginx(t, nginx, strings.NewReplacer("127.0.0.1:9000", proxy, "127.0.0.1:8080", nginx).Replace(
		block(t, string(document), "<!-- keepalive -->\n", "nginx")))

	forged := map[string]string{"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example"}
	if _, body := send(t, "GET", "http://"+nginx+"/", forged); body != fmt.Sprintf("[127.0.0.1, 127.0.0.1] [http] [%s] %[1]s", nginx) {
		t.Error(body)
	}

	r, _ := http.NewRequest("GET", "http://"+nginx+"/events", nil)
	r.Header.Set("Origin", cached)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := bufio.NewReader(resp.Body)
	if first, err := events.ReadString('\n'); first != "data: 1\n" {
		t.Errorf("%q, %v", first, err)
	}
	close(goOn)
	if rest, err := io.ReadAll(events); !strings.HasSuffix(string(rest), "data: 2\n\n") {
		t.Errorf("%q, %v", rest, err)
	}

	for origin, want := range map[string]int{cached: http.StatusSwitchingProtocols, evil: http.StatusForbidden} {
		conn, err := net.Dial("tcp", nginx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /socket HTTP/1.1\r\nHost: a\r\nOrigin: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", origin)
		reader := bufio.NewReader(conn)
		resp, err := http.ReadResponse(reader, nil)
		if err != nil || resp.StatusCode != want {
			t.Fatalf("%s: %v, %v", origin, resp, err)
		}
		if want == http.StatusSwitchingProtocols {
			fmt.Fprint(conn, "ping\n")
			if got, err := reader.ReadString('\n'); got != "ping\n" {
				t.Errorf("%q, %v", got, err)
			}
		}
	}
}
