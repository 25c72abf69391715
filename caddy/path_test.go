package caddy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Where a route chooses the handler by the path, paths that servers may read differently get 400, and no others do. e2e sends many
// more of them, and looks at what backends run.
func TestAPathThatDecidesMustBeUnambiguous(t *testing.T) {
	ok := backend(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	const inside = "{\n\tampcors www.example.com\n\treverse_proxy BACKEND\n}\n"
	for _, test := range []struct {
		directives  string
		good, wrong []string
	}{
		{directives: "ampcors www.example.com\nreverse_proxy BACKEND", good: []string{"/..%2fa", "//a", "/a;b", `/a\b`, "/%252f", "/A"}},
		{directives: "handle /news/* " + inside, good: []string{"/news/a", "/news/", "/news/A", "/news/a%2Fb", "/news/%61", "/news/%C3%A9",
			"/news/a%20b", "/news/%25", "/news/...", "/news/.a"},
			wrong: []string{"/news/..%2fnews/a", "/x/..%2fnews/a", "//news/a", "/news//a", "/news/;a", "/news/%5c", "/news/./a",
				"/news/..%2fnews/..%2fnews/", "/news/%00", "/news/%7f", "/news/%252f",
				"/news/100%25%2541", "/NEWS/a", "/n%65ws/a", "/news%2Fa", "/news/%2e/a"}},
		{directives: "handle /a/@b/* " + inside, good: []string{"/a/@b/c", "/a/@b/%40"}, wrong: []string{"/a/%40b/c", "/a/@b%2fc"}},
		{directives: "handle_path /news/* " + inside, good: []string{"/news/a", "/news/a%2Fb"}, wrong: []string{"/news/..%2fnews/a", "/news%2Fa"}},
		{directives: "route {\nhandle /news/* {\nroute {\nampcors www.example.com\nreverse_proxy BACKEND\n}\n}\n}", good: []string{"/news/a"},
			wrong: []string{"/news//a"}},
		{directives: "handle /x/* {\nrespond no 404\n}\nhandle " + inside, good: []string{"/news/a", "/a%20b", "/y%2fa", "/%79/a", "/Y"},
			wrong: []string{"/y/..;/x/a", "/y;/a", "//y/a", "/y/..%2fy/..%2fy"}},
		{directives: "@a path_regexp ^/news/\nhandle @a " + inside, good: []string{"/news/a", "/news/A", "/news/%C3%A9%20"},
			wrong: []string{"/news/a%2fb", "/news/%61"}},
		{directives: "@a path /news/*.json\nhandle @a " + inside, good: []string{"/news/a.json"}, wrong: []string{"/news/%61.json"}},
		{directives: "@a not path /x/*\nhandle @a " + inside, good: []string{"/news/a"}, wrong: []string{"/x%2f../a", "/news//x"}},
		{directives: "handle /news* " + inside, good: []string{"/news", "/news/a", "/news1", "/news/A", "/news/a%2Fb"},
			wrong: []string{"/NEWS/a", "/news%2Fa", "/n%65ws/a", "/NEWS"}},
		{directives: "handle /api/news* " + inside, good: []string{"/api/news/a"}, wrong: []string{"/api/NEWS/a", "/api/n%65ws/a"}},
		{directives: "handle /kiosk/* {\nrespond no 404\n}\nhandle " + inside, good: []string{"/a/b"}, wrong: []string{"/%C0%AF/a", "/a;b"}},
		{directives: "handle /api/* " + inside, good: []string{"/api/a"}, wrong: []string{"/ap%C4%B0/a"}},
		{directives: "handle_path /api/* {\nhandle /news/* {\nampcors www.example.com\nreverse_proxy BACKEND\n}\n}",
			good: []string{"/api/news/a", "/api/news/A"}, wrong: []string{"/api/NEWS/a", "/api/n%65ws/a", "/api/news%2Fa"}},
		{directives: "route {\nhandle /shop/* {\nrespond no 404\n}\n}\nroute {\nampcors www.example.com\nreverse_proxy BACKEND\n}",
			good: []string{"/a/b"}, wrong: []string{"/shop;/a", "/a/..;/shop/a", "/x/..%5cshop/a", "/shop%252fa"}},
		{directives: "log_skip /health/*\nvars /files/* a b\nampcors www.example.com\nreverse_proxy BACKEND", good: []string{"/Cart/add", "/a;b", "//a", "/a%2Fb/c"}},
		{directives: "@s path *.css *.js\nhandle @s {\nrespond no 404\n}\nhandle " + inside, good: []string{"/Cart/add", "/a/b%2Fc", "/a/%7Ebob"},
			wrong: []string{"/a;b"}},
		{directives: "handle /kiosk/* " + inside, good: []string{"/kiosk/a"}, wrong: []string{"/%E2%84%AAiosk/a"}},
		{directives: "handle /café/* " + inside, good: []string{"/caf%C3%A9/a"}, wrong: []string{"/c%61f%C3%A9/a"}},
		{directives: "handle \"/a b/*\" " + inside, good: []string{"/a%20b/a"}},
		{directives: "@f path_regexp ^/static/\nhandle @f {\nrespond no 404\n}\nhandle /news/* " + inside, good: []string{"/news/a", "/news/A"},
			wrong: []string{"/NEWS/a"}},
		{directives: "handle /news/*/edit " + inside, good: []string{"/news/1/edit"}, wrong: []string{"/NEWS/1/edit", "/News/1/EDIT"}},
		{directives: "@a header X-None *\nhandle @a {\nrespond no 404\n}\nhandle " + inside, good: []string{"/news//a", "/..%2fa"}},
		{directives: "ampcors www.example.com\nhandle /news/* {\nreverse_proxy BACKEND\n}\nhandle {\nreverse_proxy BACKEND\n}",
			good: []string{"//a", "/..%2fa"}}, // the routes behind it do not matter
		{directives: "handle /news/* {\nampcors www.example.com {\nreport_only\n}\nreverse_proxy BACKEND\n}", good: []string{"/news//a"}},
	} {
		s := newServer(t, strings.ReplaceAll(test.directives, "BACKEND", ok))
		for status, paths := range map[int][]string{http.StatusOK: test.good, http.StatusBadRequest: test.wrong} {
			for _, path := range paths {
				for _, headers := range []string{"Origin: " + cached, "Amp-Email-Sender: news@example.com"} {
					resp, body := s.raw("GET", path, headers)
					isWrong := resp.StatusCode == http.StatusBadRequest
					if isWrong != (status == http.StatusBadRequest) || strings.HasPrefix(headers, "Origin") && resp.StatusCode != status {
						t.Errorf("%.60q, %s, %s: %s %q; want %d", test.directives, path, headers, resp.Status, body, status)
					}
					if isWrong && (!strings.Contains(body, "malformed_path") || resp.Header.Get("Vary") != "Origin" ||
						resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Access-Control-Allow-Origin") != "") {
						t.Errorf("%s: %v %q", path, resp.Header, body)
					}
				}
				// It does not decide about this one.
				if resp, body := s.raw("GET", path, "X: y"); resp.StatusCode == http.StatusBadRequest {
					t.Errorf("%.60q, %s without Origin: %s %q", test.directives, path, resp.Status, body)
				}
				if resp, body := s.raw("POST", path, "Amp-Same-Origin: true"); (resp.StatusCode == http.StatusBadRequest) != (status == http.StatusBadRequest) {
					t.Errorf("%.60q, POST %s: %s %q", test.directives, path, resp.Status, body)
				}
			}
		}
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	}
	if c := choiceOf(new(Handler), new(caddyhttp.Server)); !c.isMade || !c.isOpen {
		t.Errorf("a handler that is not found: %+v", c)
	}
}

// A denial of a path is logged as others are, and error routes can answer it.
func TestADeniedPathIsLogged(t *testing.T) {
	got := make(chan string, 1)
	told := backend(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Ampcors-Publisher") })
	forged := newServer(t, "handle /news/* {\n\tampcors www.example.com {\n\t\tpublisher_header Ampcors-Publisher\n\t}\n}\nhandle_errors {\n\treverse_proxy "+told+"\n}")
	if forged.raw("POST", "/news//a", "Origin: "+cached+"\r\nAmpcors-Publisher: shop.example"); <-got != "" {
		t.Error("an error route passes on a forged publisher")
	}
	if err := caddy.Stop(); err != nil {
		t.Error(err)
	}
	s := newServer(t, "log\nhandle /news/* {\n\tampcors www.example.com\n\trespond ok\n}\nhandle_errors {\n\trespond \"{http.ampcors.reason}, {err.message}\" 418\n}")
	resp, body := s.raw("POST", "/x/..%2fnews/a", "Origin: "+cached)
	if resp.StatusCode != http.StatusTeapot || !strings.HasPrefix(body, "malformed_path, ") || !strings.Contains(body, "a dot segment") {
		t.Errorf("%s %q", resp.Status, body)
	}
	if log := s.log(); !strings.Contains(log, `"ampcors":{"allowed":false,"reason":"malformed_path"}`) {
		t.Errorf("%s", log)
	}
}

// raw sends a request with a path that no client changes.
func (s *server) raw(method, path, header string) (*http.Response, string) {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: 0\r\n%s\r\n\r\n", method, path, s.addr, header)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		s.t.Fatalf("%s: %v", path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("%s: %v", path, err)
	}
	return resp, string(body)
}
