package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/source"
)

func TestServeAuthzAnswersAndFollowsItsFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.json")
	write := func(publisher string) {
		t.Helper()
		writeFile(t, file, `{"publishers": ["`+publisher+`"], "credentialed": true}`)
	}
	write("www.example.com")
	s := serve(t, "--config", file, "--metrics", "127.0.0.1:0")
	ask := func(origin string) int { return s.ask(t, origin) }
	if ask("https://www-example-com.cdn.ampproject.org") != http.StatusOK ||
		ask("https://www-other-example.cdn.ampproject.org") != http.StatusForbidden {
		t.Error("wrong answers")
	}
	write("www.other.example")
	s.within(t, "the changed file is applied", func() bool { return ask("https://www-other-example.cdn.ampproject.org") == http.StatusOK })
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/": 404} {
		resp, err := http.Get("http://" + s.metrics() + path)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("%s: %s; want %d", path, resp.Status, want)
		}
	}
	resp, err := http.Get("http://" + s.metrics() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	for _, want := range []string{`ampcors_decisions_total{allowed="false",reason="publisher_not_allowed"} `, "\nampcors_config_in_force 1\n",
		"\nampcors_listed_publishers 1\n", "\nampcors_build_info{version=\"", "\nprocess_start_time_seconds 1"} {
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("the metrics lack %q: %s, %v", want, body, err)
		}
	}
	if code, _, stderr := run(t, "", "health", s.url); code != exitClean {
		t.Errorf("health: %d, %s", code, stderr)
	}
	s.stop()
	if got := <-s.code; got != exitClean {
		t.Errorf("exit code %d; the log:\n%s", got, s.log)
	}
	if code, _, stderr := run(t, "", "health", s.url); code != exitFindings || !strings.Contains(stderr, "refused") {
		t.Errorf("health of a server that has ended: %d, %s", code, stderr)
	}
}

// With a database and no list, the server is ready once the database has answered, and stays ready when it fails.
func TestReadiness(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	problem := &down
	publishers, err := source.New(source.Database{PublisherByDomain: func(context.Context, string) (string, error) { return "", *problem }},
		source.Config{NegativeTTL: time.Nanosecond, TTL: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	defer publishers.Close()
	for _, listed := range [][]string{nil, {"www.example.com"}} {
		mw, err := ampcors.New(ampcors.Config{Publishers: listed, Source: publishers})
		if err != nil {
			t.Fatal(err)
		}
		r := &readiness{mw: mw, publishers: publishers}
		ask := func() int {
			w := httptest.NewRecorder()
			r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
			return w.Code
		}
		*problem = down
		if got, want := ask(), map[bool]int{true: 200, false: 503}[listed != nil]; got != want {
			t.Errorf("%q, and the database is down: %d; want %d", listed, got, want)
		}
		*problem = nil
		for ask() != 200 { // a circuit breaker may be open
			time.Sleep(time.Millisecond)
		}
		*problem = down
		if got := ask(); got != 200 {
			t.Errorf("%q, and the database is down later: %d", listed, got)
		}
	}
}

func TestTheLogIsJSON(t *testing.T) {
	t.Parallel()
	file := writeFile(t, filepath.Join(t.TempDir(), "config.json"), `{"publishers": ["www.example.com"]}`)
	s := serve(t, "--config", file, "--log-format", "json", "--log-denied")
	s.ask(t, "https://www-other-example.cdn.ampproject.org")
	if !strings.Contains(s.log.String(), `"reason":"publisher_not_allowed"`) {
		t.Errorf("a denied request is not logged:\n%s", s.log)
	}
	s.stop()
	<-s.code
	for line := range strings.Lines(s.log.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("%s", line)
		}
	}
	if code, _, stderr := run(t, "", "serve-authz", "--proxy", "nginx", "--config", file, "--log-format", "xml"); code != exitUsage ||
		!strings.Contains(stderr, "want text or json") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// A serving is a running serve-authz or serve-proxy.
type serving struct {
	url  string
	log  *servertest.Buffer
	stop context.CancelFunc
	code chan int
}

// serve starts serve-authz for nginx.
func serve(t *testing.T, args ...string) *serving {
	t.Helper()
	return serveWith(t, append([]string{"serve-authz", "--proxy", "nginx"}, args...)...)
}

// serveWith starts a command at a free address, unless --listen is among the arguments.
func serveWith(t *testing.T, args ...string) *serving {
	t.Helper()
	if !slices.Contains(args, "--listen") {
		args = append(args, "--listen", "127.0.0.1:0")
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	s := &serving{log: new(servertest.Buffer), stop: cancel, code: make(chan int, 1)}
	root := newRoot()
	root.SetArgs(args)
	root.SetErr(s.log)
	go func() { s.code <- execute(ctx, root) }()
	s.within(t, "it listens", func() bool {
		if m := regexp.MustCompile(`"?address"?[=:]"?([^\s"]+)`).FindStringSubmatch(s.log.String()); m != nil {
			s.url = "http://" + m[1]
		}
		return s.url != ""
	})
	noteFlags(root)
	return s
}

func (s *serving) within(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for begun := time.Now(); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > 2*time.Minute {
			t.Fatalf("%s: not yet; the log:\n%s", what, s.log)
		}
	}
}

// metrics returns the address of --metrics.
func (s *serving) metrics() string {
	_, address, _ := strings.Cut(s.log.String(), "metrics=")
	address, _, _ = strings.Cut(address, "\n")
	return address
}

// ask returns the status of the answer about a POST.
func (s *serving) ask(t *testing.T, origin string) int {
	t.Helper()
	r, err := http.NewRequest("GET", s.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Original-Method", "POST")
	r.Header.Set("Origin", origin)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Access-Control-Allow-Origin"); (got == origin) != (resp.StatusCode == http.StatusOK) {
		t.Errorf("%s: %s, %q", origin, resp.Status, got)
	}
	return resp.StatusCode
}

func TestServeAuthzReportsWhatIsWrong(t *testing.T) {
	t.Parallel()
	good := writeFile(t, filepath.Join(t.TempDir(), "config.json"), `{"publishers": ["www.example.com"]}`)
	for _, test := range []struct {
		name string
		args []string
		code int
		err  string
	}{
		{name: "no proxy", args: []string{"--config", good}, code: exitUsage, err: "proxy"},
		{name: "no file", args: []string{"--proxy", "nginx"}, code: exitUsage, err: "config"},
		{name: "unknown proxy", args: []string{"--proxy", "apache", "--config", good}, code: exitUsage, err: "nginx"},
		{name: "missing file", args: []string{"--proxy", "nginx", "--config", good + "x"}, code: exitUsage, err: "cannot be read"},
		{name: "another database", args: []string{"--proxy", "nginx", "--config", good, "--database", "redis://:secret@127.0.0.1"},
			code: exitUsage, err: "want a URL with postgres:// or mysql://"},
		{name: "a flag of another name", args: []string{"--proxy", "nginx", "--config", good, "--address", "127.0.0.1:1"}, code: exitUsage,
			err: "has no flag --address; did you mean --listen?"},
		{name: "address", args: []string{"--proxy", "nginx", "--config", good, "--listen", "127.0.0.1:99999"}, code: exitUntested, err: "99999"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if code, _, stderr := run(t, "", append([]string{"serve-authz"}, test.args...)...); code != test.code ||
				!strings.Contains(stderr, test.err) {
				t.Errorf("exit code %d: %s", code, stderr)
			}
		})
	}
}

// Connections of clients that send nothing more, or that do not read what they asked for, are closed.
func TestServeAuthzClosesDeadConnections(t *testing.T) { // not parallel: it changes the limits
	defer func(read, write, idle time.Duration) { readTimeout, writeTimeout, idleTimeout = read, write, idle }(readTimeout, writeTimeout,
		idleTimeout)
	readTimeout, writeTimeout, idleTimeout = 100*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
	file := writeFile(t, filepath.Join(t.TempDir(), "config.json"), `{"publishers": ["www.example.com"]}`)
	s := serve(t, "--config", file, "--metrics", "127.0.0.1:0")
	for _, address := range []string{strings.TrimPrefix(s.url, "http://"), s.metrics()} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetWriteDeadline(time.Now().Add(time.Minute))
		for err == nil { // until nothing is buffered any more, and the server gives up
			_, err = io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the connection of a client that does not read stays", address)
		}
	}
	for name, sent := range map[string]string{
		"nothing":               "",
		"part of a header":      "GET / HTTP/1.1\r\nHost: a",
		"a header, and no body": "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n",
		"one request":           "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, sent)
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after %s, the connection stays", name)
		}
	}
}

// A page of another site neither changes anything at the address of --metrics nor, under a name that leads there, reads it.
func TestMonitoringIsNotForPages(t *testing.T) {
	t.Parallel()
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	publishers, err := source.New(source.Database{PublisherByDomain: func(context.Context, string) (string, error) { return "", nil }},
		source.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer publishers.Close()
	server := httptest.NewServer(monitoring(mw, publishers, nil))
	defer server.Close()
	port := server.URL[strings.LastIndex(server.URL, ":"):]
	for _, test := range []struct {
		method, path, host string
		header             map[string]string
		want               int
	}{
		{method: "GET", path: "/metrics", host: "127.0.0.1" + port, want: http.StatusOK},
		{method: "GET", path: "/metrics", host: "localhost" + port, want: http.StatusOK},
		{method: "GET", path: "/metrics", host: "[::1]", want: http.StatusOK},
		{method: "GET", path: "/metrics", host: "evil.example" + port, want: http.StatusForbidden},
		{method: "GET", path: "/readyz", host: "localhost.evil.example", want: http.StatusForbidden},
		{method: "POST", path: "/forget", host: "127.0.0.1" + port, want: http.StatusOK},
		{method: "POST", path: "/forget", host: "evil.example" + port, want: http.StatusForbidden},
		{method: "POST", path: "/forget", host: "127.0.0.1" + port, header: map[string]string{"Origin": "https://evil.example"},
			want: http.StatusForbidden},
		{method: "POST", path: "/forget", host: "127.0.0.1" + port, header: map[string]string{"Origin": "null"}, want: http.StatusForbidden},
		{method: "POST", path: "/forget", host: "127.0.0.1" + port, header: map[string]string{"Sec-Fetch-Site": "cross-site"},
			want: http.StatusForbidden},
	} {
		r, err := http.NewRequest(test.method, server.URL+test.path, strings.NewReader("www.example.com"))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = test.host
		for name, value := range test.header {
			r.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != test.want {
			t.Errorf("%+v: %d", test, resp.StatusCode)
		}
	}
}
