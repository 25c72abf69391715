// Package stacktest has the tests that each framework's program must pass. They know only
// its address.
package stacktest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
)

const (
	cacheOrigin = "https://www-example-com.cdn.ampproject.org"
	evilOrigin  = "https://evil-example.cdn.ampproject.org"
	varyOuter   = "Accept-Encoding" // added by a middleware that runs before ampcors
)

// Limits are what a framework cannot do.
type Limits struct {
	GroupMissesNotFound bool // a request that a group has no route for bypasses its middleware
}

// Run runs the tests against servers with ampcors around the router, before everything in it, and
// only before /api. Those that are nil are left out.
func Run(t *testing.T, wrapped, global, group func(*ampcors.Middleware, net.Listener) error, limits Limits) {
	for _, mount := range []struct {
		name  string
		serve func(*ampcors.Middleware, net.Listener) error
	}{{"wrapped", wrapped}, {"global", global}, {"group", group}} {
		if mount.serve == nil {
			continue
		}
		t.Run(mount.name, func(t *testing.T) {
			s := start(t, mount.serve)
			t.Run("requests", s.requests)
			t.Run("not found", func(t *testing.T) { s.notFound(t, mount.name == "group" && limits.GroupMissesNotFound) })
			t.Run("outside of the group", func(t *testing.T) { s.outside(t, mount.name != "group") })
			t.Run("streaming", s.streaming)
			t.Run("hijacking", s.hijacking)
			t.Run("one connection", s.oneConnection)
		})
	}
}

// RunHTTP is Run for net/http handlers.
func RunHTTP(t *testing.T, wrapped, global, group func(*ampcors.Middleware) http.Handler, limits Limits) {
	serve := func(mount func(*ampcors.Middleware) http.Handler) func(*ampcors.Middleware, net.Listener) error {
		if mount == nil {
			return nil
		}
		return func(mw *ampcors.Middleware, l net.Listener) error { return http.Serve(l, mount(mw)) }
	}
	outer := func(mw *ampcors.Middleware) http.Handler {
		h := wrapped(mw)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Add("Vary", varyOuter) // as a middleware that compresses does
			h.ServeHTTP(w, r)
		})
	}
	Run(t, serve(outer), serve(global), serve(group), limits)
}

type server struct{ addr string }

// client has a timeout: a stream that is allowed by mistake would not end. It follows no
// redirects: a page could not follow one without CORS headers.
var client = http.Client{
	Timeout:       20 * time.Second,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func start(t *testing.T, serve func(*ampcors.Middleware, net.Listener) error) server {
	t.Helper()
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- serve(Middleware(), listener) }()
	t.Cleanup(func() {
		select {
		case err := <-ended:
			t.Errorf("the server ended by itself: %v", err)
		default:
			listener.Close() // which ends it
			<-ended
		}
	})
	return server{listener.Addr().String()}
}

// do sends a request, and returns the response and its body.
func (s server) do(t *testing.T, method, path, body string, lines ...string) (*http.Response, string) {
	t.Helper()
	resp := s.open(t, method, path, body, lines...)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// open does not read the body.
func (s server) open(t *testing.T, method, path, body string, lines ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.addr+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		key, value, _ := strings.Cut(line, ": ")
		r.Header.Add(key, value)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// dial opens a connection that ends with the test.
func (s server) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// comments returns the list of comments. It shows whether a handler ran.
func (s server) comments(t *testing.T) string {
	t.Helper()
	_, body := s.do(t, "GET", "/api/comments", "", "Origin: "+cacheOrigin)
	return strings.TrimSpace(body)
}

const (
	origin = "Origin: " + cacheOrigin
	evil   = "Origin: " + evilOrigin
	asks   = "Access-Control-Request-Method: "
)

func (s server) requests(t *testing.T) {
	for _, test := range []struct {
		name         string
		method, path string
		lines        []string
		status       int
		acao         string
		vary         bool   // on Origin
		comments     string // afterwards
	}{
		{"allowed", "GET", "/api/comments", []string{origin}, 200, cacheOrigin, true, `[]`},
		{"own origin", "GET", "/api/comments", []string{"Origin: https://news.example"}, 200, "https://news.example", true, `[]`},
		{"no Origin", "GET", "/api/comments", nil, 200, "", true, `[]`},
		{"denied", "GET", "/api/comments", []string{evil}, 403, "", true, `[]`},
		{"denied, unsafe", "POST", "/api/comments", []string{evil}, 403, "", true, `[]`},
		{"forged", "POST", "/api/comments", nil, 403, "", true, `[]`},
		{"allowed, unsafe", "POST", "/api/comments", []string{origin}, 201, cacheOrigin, true, `["hello"]`},
		{"denied, another method", "DELETE", "/api/comments", []string{evil}, 403, "", true, `["hello"]`},
		{"preflight, though there is no route for OPTIONS", "OPTIONS", "/api/comments", []string{origin, asks + "DELETE", "Access-Control-Request-Headers: content-type"}, 204, cacheOrigin, true, `["hello"]`},
		{"preflight on another route", "OPTIONS", "/api/stream", []string{origin, asks + "DELETE", "Access-Control-Request-Headers: content-type"}, 204, cacheOrigin, true, `["hello"]`},
		{"denied preflight", "OPTIONS", "/api/comments", []string{evil, asks + "DELETE"}, 403, "", true, `["hello"]`},
		{"preflight for a method that is not allowed", "OPTIONS", "/api/comments", []string{origin, asks + "PUT"}, 403, "", true, `["hello"]`},
		{"allowed, another method", "DELETE", "/api/comments", []string{origin}, 200, cacheOrigin, true, `[]`},
		{"denied stream", "GET", "/api/stream", []string{evil}, 403, "", true, `[]`},
		{"denied upgrade", "GET", "/api/upgrade", []string{evil, "Connection: Upgrade", "Upgrade: echo"}, 403, "", true, `[]`},
	} {
		body := ""
		if test.method == "POST" {
			body = "hello"
		}
		resp, text := s.do(t, test.method, test.path, body, test.lines...)
		check := func(what string, ok bool) {
			t.Helper()
			if !ok {
				t.Errorf("%s: %s: status %d, headers %v, body %.80q", test.name, what, resp.StatusCode, resp.Header, text)
			}
		}
		check(fmt.Sprintf("want status %d", test.status), resp.StatusCode == test.status)
		var want []string
		if test.acao != "" {
			want = []string{test.acao}
		}
		check("want Access-Control-Allow-Origin once, or not at all", slices.Equal(resp.Header.Values("Access-Control-Allow-Origin"), want))
		check("want credentials only with it", (resp.Header.Get("Access-Control-Allow-Credentials") == "true") == (test.acao != ""))
		exposed := ""
		if test.acao != "" && test.method != "OPTIONS" {
			exposed = "AMP-Redirect-To"
		}
		check("want AMP-Redirect-To exposed only to allowed pages", resp.Header.Get("Access-Control-Expose-Headers") == exposed)
		vary := splitVary(resp.Header)
		check("an earlier Vary is kept, in one line", slices.Contains(vary, varyOuter) && len(resp.Header.Values("Vary")) == 1)
		check("Vary on Origin", slices.Contains(vary, "Origin") == test.vary)
		if test.status == 403 {
			check("the reason", strings.HasPrefix(text, "Forbidden: "))
		}
		if test.method == "OPTIONS" && test.status == 204 {
			check("the method is granted", resp.Header.Get("Access-Control-Allow-Methods") == "DELETE")
			check("the header is granted", resp.Header.Get("Access-Control-Allow-Headers") == "content-type")
		}
		if got := s.comments(t); got != test.comments {
			t.Errorf("%s: the comments are %s; want %s", test.name, got, test.comments)
		}
	}
}

// notFound: a page can read a 404. A path with a trailing slash is not found, or is redirected so
// that a page can follow; fiber treats it as the path without.
func (s server) notFound(t *testing.T, unseen bool) {
	want := cacheOrigin
	if unseen {
		want = ""
	}
	for _, path := range []string{"/api/nothing", "/api/comments/"} {
		resp, _ := s.do(t, "GET", path, "", origin)
		found := (resp.StatusCode == 200 || resp.StatusCode == 301) && path == "/api/comments/"
		if resp.StatusCode != 404 && !found || resp.Header.Get("Access-Control-Allow-Origin") != want {
			t.Errorf("%s: status %d, headers %v", path, resp.StatusCode, resp.Header)
		}
	}
}

func (s server) outside(t *testing.T, global bool) {
	resp, _ := s.do(t, "GET", "/healthz", "", evil)
	if want := map[bool]int{true: 403, false: 200}[global]; resp.StatusCode != want || slices.Contains(splitVary(resp.Header), "Origin") != global {
		t.Errorf("status %d, want %d; headers %v", resp.StatusCode, want, resp.Header)
	}
}

// splitVary returns the names in Vary, which may have one line or several.
func splitVary(h http.Header) (names []string) {
	for _, line := range h.Values("Vary") {
		for name := range strings.SplitSeq(line, ",") {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

// streaming: each line arrives while the handler still runs. To check that, the test sends
// the next comment only after it has read the line before.
func (s server) streaming(t *testing.T) {
	resp := s.open(t, "GET", "/api/stream", "", "Origin: "+cacheOrigin)
	defer resp.Body.Close()
	if got := resp.Header.Get("Access-Control-Allow-Origin"); got != cacheOrigin {
		t.Errorf("Access-Control-Allow-Origin is %q", got)
	}
	lines := bufio.NewScanner(resp.Body)
	expect := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("the stream has %q, %v; want %q", lines.Text(), lines.Err(), want)
		}
	}
	expect("comments as they come:")
	for _, comment := range []string{"first", "second"} {
		s.do(t, "POST", "/api/comments", comment, origin)
		expect(comment)
	}
	s.do(t, "DELETE", "/api/comments", "", origin)
	s.do(t, "POST", "/api/comments", "after all were deleted", origin)
	expect("after all were deleted")
	s.do(t, "DELETE", "/api/comments", "", origin)
}

func (s server) hijacking(t *testing.T) {
	conn := s.dial(t)
	fmt.Fprintf(conn, "GET /api/upgrade HTTP/1.1\r\nHost: api\r\nConnection: Upgrade\r\nUpgrade: echo\r\nOrigin: %s\r\n\r\n", cacheOrigin)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%+v, %v", resp, err)
	}
	fmt.Fprintln(conn, "not HTTP")
	if line, err := r.ReadString('\n'); line != "not HTTP\n" {
		t.Errorf("the connection echoes %q, %v", line, err)
	}
}

// oneConnection: consecutive origins do not affect each other, even if a framework reuses
// the same memory for them.
func (s server) oneConnection(t *testing.T) {
	hash := func(publisher string) string {
		prefix, err := cacheurl.HashPrefix(publisher)
		if err != nil {
			t.Fatal(err)
		}
		return "https://" + prefix + ".cdn.ampproject.org"
	}
	conn := s.dial(t)
	r := bufio.NewReader(conn)
	origins := []string{hash("www.example.com"), hash("evil.example"), hash("news.example"), cacheOrigin, evilOrigin}
	for i := range 50 {
		origin := origins[i%len(origins)]
		allowed := origin != evilOrigin && origin != hash("evil.example")
		fmt.Fprintf(conn, "GET /api/comments HTTP/1.1\r\nHost: api\r\nOrigin: %s\r\n\r\n", origin)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if got := resp.Header.Get("Access-Control-Allow-Origin"); (got == origin) != allowed || (resp.StatusCode == 200) != allowed {
			t.Fatalf("request %d, origin %s: status %d, Access-Control-Allow-Origin %q", i, origin, resp.StatusCode, got)
		}
	}
}
