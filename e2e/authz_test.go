package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/fcgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ampcors/ampcors/authz"
	"github.com/ampcors/ampcors/internal/gatewaytest"
	"github.com/ampcors/ampcors/internal/servertest"
)

// authzSite returns the configuration of package authz with other addresses, and what a location of it has that leads to the backend.
func authzSite(t testing.TB, authz, backend, addr string) (site, location string) {
	t.Helper()
	data, err := os.ReadFile("../authz/nginx.conf")
	if err != nil {
		t.Fatal(err)
	}
	include, err := filepath.Abs("../authz/ampcors-location.conf")
	if err != nil {
		t.Fatal(err)
	}
	site = strings.Replace(string(data), "include ampcors-location.conf;", "include "+include+";", 1)
	for old, now := range map[string]string{"127.0.0.1:9000": authz, "127.0.0.1:3000": backend, "127.0.0.1:8080": addr} {
		if strings.Count(site, old) != 1 {
			t.Fatalf("%s is not once in the configuration", old)
		}
		site = strings.ReplaceAll(site, old, now)
	}
	_, location, _ = strings.Cut(site, "\tlocation / {")
	location, _, _ = strings.Cut(location, "}")
	return site, location
}

// startAuthzNginx starts nginx with the configuration of package authz, and with others.
func startAuthzNginx(t testing.TB, authz, backend string, others ...string) (addr string) {
	t.Helper()
	addr = servertest.FreeAddress(t)
	site, location := authzSite(t, authz, backend, addr)
	site = strings.Replace(site, "\tlocation /", "\tlocation /second/ {"+location+"}\n\tlocation /", 1)
	for i, other := range others {
		if format, log, ok := strings.Cut(other, "\naccess_log "); ok { // it is for the server
			others[i], site = "", format+"\n"+strings.Replace(site, "\tlisten ", "\taccess_log "+log+"\tlisten ", 1)
		}
	}
	runNginx(t, addr, site+"\n"+strings.Join(others, "\n"))
	return addr
}

// send sends a request with the headers that are not empty, and returns the response and its body. It follows no redirect.
func send(t *testing.T, method, url string, headers map[string]string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range headers {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// TestNginxAsksAuthz: a backend behind nginx gets the same requests, and its clients the same
// CORS headers, as behind the Middleware with its guard.
func TestNginxAsksAuthz(t *testing.T) {
	handler, err := authz.New(gatewaytest.NewMiddleware(t), authz.NGINX)
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../authz/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, format, _ := strings.Cut(string(readme), "```nginx\nmap ")
	format, _, _ = strings.Cut("map "+format, "```")
	log := filepath.Join(t.TempDir(), "ampcors.log")
	nginx := startAuthzNginx(t, serve(t, handler), serve(t, http.HandlerFunc(gatewaytest.Backend)),
		strings.Replace(format, "/var/log/nginx/ampcors.log", log, 1))
	gatewaytest.Compare(t, "http://"+nginx, gatewaytest.NoPreflight503)
	if resp, _ := send(t, "GET", "http://"+nginx+"/_ampcors", nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a client that asks authz itself gets %d", resp.StatusCode)
	}
	for origin, want := range map[string]int{"https://www-example-com.cdn.ampproject.org": http.StatusAccepted,
		"https://www-evil-example.cdn.ampproject.org": http.StatusForbidden} {
		resp, _ := send(t, "GET", "http://"+nginx+"/second/", map[string]string{"Origin": origin})
		if got := resp.Header.Get("Access-Control-Allow-Origin"); resp.StatusCode != want || (got == origin) != (want == http.StatusAccepted) {
			t.Errorf("a second location that includes ampcors-location.conf: %s gets %d, Access-Control-Allow-Origin: %q", origin, resp.StatusCode,
				got)
		}
	}
	// The README's log has the origins and reasons of denials.
	for _, method := range []string{"GET", "OPTIONS"} {
		if lines, err := os.ReadFile(log); err != nil ||
			!strings.Contains(string(lines), " 403 "+method+` "/api" "https://www-evil-example.cdn.ampproject.org" "publisher_not_allowed"`) {
			t.Errorf("%s: %.2000s, %v", method, lines, err)
		}
	}
}

// The backend gets the sender of an email that ampcors has checked, and none that a client claims.
func TestNginxNamesTheSenderThatWasChecked(t *testing.T) {
	handler, err := authz.New(gatewaytest.NewMiddleware(t), authz.NGINX)
	if err != nil {
		t.Fatal(err)
	}
	nginx := startAuthzNginx(t, serve(t, handler), serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%q", r.Header.Values("Ampcors-Email-Sender"))
	})))
	for _, test := range []struct{ origin, sender, query, want string }{
		{"", "news@example.com", "", `["news@example.com"]`},
		{"https://mail.google.com", "", "?__amp_source_origin=news%40example.com", `["news@example.com"]`},
		{"", "", "?__amp_source_origin=news%40example.com", `[]`},
		{"https://www.example.com", "", "", `[]`},
	} {
		headers := map[string]string{"Ampcors-Email-Sender": "forged@example.com", "Origin": test.origin, "AMP-Email-Sender": test.sender}
		if resp, body := send(t, "GET", "http://"+nginx+"/"+test.query, headers); body != test.want {
			t.Errorf("%+v: %s, %s", test, resp.Status, body)
		}
	}
}

// What a server sets for all of its locations does not let anybody past ampcors, and the backend's own errors arrive.
func TestNginxAsksWhateverTheServerSets(t *testing.T) {
	handler, err := authz.New(gatewaytest.NewMiddleware(t), authz.NGINX)
	if err != nil {
		t.Fatal(err)
	}
	nginx := startAuthzNginx(t, serve(t, handler), serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the backend's own", http.StatusForbidden)
	})), "satisfy any;\nallow 127.0.0.1;\ndeny all;\nproxy_intercept_errors on;\n")
	for origin, want := range map[string]string{"https://www.example.com": "the backend's own",
		"https://evil.example": "Forbidden: unknown_host"} {
		resp, body := send(t, "POST", "http://"+nginx+"/", map[string]string{"Origin": origin})
		if got := strings.TrimSpace(body); resp.StatusCode != http.StatusForbidden || got != want ||
			(resp.Header.Get("Access-Control-Allow-Origin") == origin) != (want == "the backend's own") {
			t.Errorf("%s: %s %q %v; want %q", origin, resp.Status, got, resp.Header, want)
		}
	}
}

// PHP-FPM is behind a server of its own, so that a client can neither send the publisher nor see the
// backend's own headers.
func TestNginxAsksAuthzBeforeFastCGI(t *testing.T) {
	handler, err := authz.New(gatewaytest.NewMiddleware(t), authz.NGINX)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("../authz/php-fpm.conf")
	if err != nil {
		t.Fatal(err)
	}
	root, socket := t.TempDir(), filepath.Join(t.TempDir(), "php")
	if err := os.Mkdir(filepath.Join(root, "wp-admin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, script := range []string{"index.php", "wp-admin/index.php"} {
		if err := os.WriteFile(filepath.Join(root, script), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() { _ = fcgi.Serve(listener, http.HandlerFunc(gatewaytest.Backend)) }() // until the listener is closed
	backend, php := servertest.FreeAddress(t), string(data)
	for old, now := range map[string]string{"127.0.0.1:3000": backend, "/var/www/html": root, "/run/php/php-fpm.sock": socket,
		"include fastcgi_params": "include /etc/nginx/fastcgi_params"} {
		if strings.Count(php, old) != 1 {
			t.Fatalf("%s is not once in the configuration", old)
		}
		php = strings.ReplaceAll(php, old, now)
	}
	nginx := startAuthzNginx(t, serve(t, handler), backend, php)
	gatewaytest.Compare(t, "http://"+nginx, gatewaytest.NoPreflight503)
	for _, path := range []string{"/", "/wp-admin/", "/index.php", "/an/article"} { // a directory has a script
		if resp, _ := send(t, "GET", "http://"+nginx+path, nil); resp.StatusCode != http.StatusAccepted {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}

// While ampcors is down, nginx answers 500, and the backend gets nothing. With a second one, nginx
// asks that.
func TestNginxWhileAuthzIsDown(t *testing.T) {
	handler, err := authz.New(gatewaytest.NewMiddleware(t), authz.NGINX)
	if err != nil {
		t.Fatal(err)
	}
	down := servertest.FreeAddress(t)
	for name, test := range map[string]struct {
		servers string
		status  int
	}{
		"one": {down, http.StatusInternalServerError},
		"two": {down + ";\n\tserver " + serve(t, handler), http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			nginx := startAuthzNginx(t, test.servers, serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) })))
			before := asked.Load()
			resp, _ := send(t, "GET", "http://"+nginx, map[string]string{"Origin": "https://www-example-com.cdn.ampproject.org"})
			if isAllowed := test.status == http.StatusOK; resp.StatusCode != test.status || (asked.Load() > before) != isAllowed ||
				(resp.Header.Get("Access-Control-Allow-Origin") != "") != isAllowed {
				t.Errorf("%s %v, and the backend was asked %d times", resp.Status, resp.Header, asked.Load()-before)
			}
		})
	}
}

// A second way to the backend in one location is an error, because ampcors's answer would not decide on it.
func TestNginxRefusesASecondWayInALocation(t *testing.T) {
	path := servertest.Program(t, "install nginx (Debian: apt-get install nginx-light)", "nginx", "/usr/sbin/nginx")
	for _, line := range []string{
		"proxy_pass http://127.0.0.1:3;", "fastcgi_pass 127.0.0.1:3;", "uwsgi_pass 127.0.0.1:3;", "scgi_pass 127.0.0.1:3;",
		"grpc_pass 127.0.0.1:3;",
		"set $memcached_key $uri; memcached_pass 127.0.0.1:3;", "auth_request /login;", "proxy_cache api;", "proxy_store on;", "satisfy any;",
		"mirror /copy;", "proxy_intercept_errors on;", "recursive_error_pages on;", "proxy_method POST;", "proxy_pass_request_headers off;", "",
	} {
		site, _ := authzSite(t, "127.0.0.1:1", "127.0.0.1:2", servertest.FreeAddress(t))
		dir := t.TempDir()
		file := filepath.Join(dir, "nginx.conf")
		writeFiles(t, map[string]string{file: "pid " + dir + "/pid;\nevents {}\nhttp {\nproxy_cache_path " + dir + "/cache keys_zone=api:1m;\n" +
			strings.Replace(site, "include /", line+"\ninclude /", 1) + "}\n"})
		out, err := exec.CommandContext(t.Context(), path, "-t", "-p", dir, "-c", file).CombinedOutput()
		if isRefused := err != nil && strings.Contains(string(out), "is duplicate"); isRefused != (line != "") {
			t.Errorf("%q: %v %s", line, err, out)
		}
	}
}

// What works with a plain proxy_pass works with the include: uploads that the location allows, the default proxy_redirect, and
// requests without Host.
func TestNginxPassesOnAsWithoutAuthz(t *testing.T) {
	handler, err := authz.New(gatewaytest.NewMiddleware(t), authz.NGINX)
	if err != nil {
		t.Fatal(err)
	}
	backend := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		w.Header().Set("Location", "http://backend/moved")
		fmt.Fprintf(w, "%d bytes, %s", n, r.Host)
	}))
	addr := servertest.FreeAddress(t)
	site, _ := authzSite(t, serve(t, handler), backend, addr)
	runNginx(t, addr, strings.Replace(site, "location / {", "location / {\nclient_max_body_size 4m;", 1))
	for size, status := range map[int]int{3 << 20: http.StatusOK, 5 << 20: http.StatusRequestEntityTooLarge} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/", strings.NewReader(strings.Repeat("a", size)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", "https://www.example.com")
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != status || status == http.StatusOK &&
			(string(body) != fmt.Sprintf("%d bytes, %s", size, addr) || resp.Header.Get("Location") != "http://"+addr+"/moved") {
			t.Errorf("%d bytes: %s %.200q %v", size, resp.Status, body, resp.Header)
		}
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.0\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("without Host: %v, %v", resp, err)
	}
}

// A server of nginx behind nginx.conf keeps its login and its cache, which has an answer for each publisher.
func TestAServerBehindNginxConf(t *testing.T) {
	handler, err := authz.New(gatewaytest.NewMiddleware(t), authz.NGINX)
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../authz/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	login := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Cookie") == "" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	api := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Vary", "Ampcors-Publisher")
		fmt.Fprint(w, r.Header.Get("Ampcors-Publisher"))
	}))
	behind := servertest.FreeAddress(t)
	server := strings.NewReplacer("127.0.0.1:3000", behind, "127.0.0.1:3001", api, "127.0.0.1:4180", login).Replace(
		block(t, string(readme), "<!-- behind: a test runs what follows -->\n", "nginx"))
	nginx := startAuthzNginx(t, serve(t, handler), behind, server)
	for _, test := range []struct {
		origin, cookie, want string
		status, runs         int
	}{
		{"https://www-example-com.cdn.ampproject.org", "", "", 401, 0},
		{"https://www-example-com.cdn.ampproject.org", "a=b", "www.example.com", 200, 1},
		{"https://sport-news-example.cdn.ampproject.org", "a=b", "sport.news.example", 200, 1},
		{"https://www-example-com.cdn.ampproject.org", "a=b", "www.example.com", 200, 0},
		{"https://www-evil-example.cdn.ampproject.org", "a=b", "", 403, 0},
	} {
		before := asked.Load()
		resp, body := send(t, "GET", "http://"+nginx+"/a", map[string]string{"Origin": test.origin, "Cookie": test.cookie,
			"Ampcors-Publisher": "forged.example"})
		origin := resp.Header.Get("Access-Control-Allow-Origin")
		if resp.StatusCode != test.status || test.status == 200 && body != test.want || int(asked.Load()-before) != test.runs ||
			(origin == test.origin) != (test.status != 403) {
			t.Errorf("%+v: %s %q, Access-Control-Allow-Origin: %q, the backend ran %d times", test, resp.Status, body, origin, asked.Load()-before)
		}
	}
}
