package caddy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/quic-go/quic-go/http3"

	"github.com/ampcors/ampcors/internal/gatewaytest"
	"github.com/ampcors/ampcors/internal/mwtest"
	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/source"
)

// A process has one Caddy, so these tests do not run in parallel.

const (
	cached = "https://www-example-com.cdn.ampproject.org"
	evil   = "https://evil-example.cdn.ampproject.org"
)

// adapt returns the JSON of a Caddyfile.
func adapt(t testing.TB, text string) []byte {
	t.Helper()
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// A server is Caddy with one site.
type server struct {
	t    testing.TB
	addr string
	dir  string // what Caddy stores
}

// newServer starts Caddy. The site has the directives.
func newServer(t testing.TB, directives string) *server {
	t.Helper()
	s := &server{t: t, addr: servertest.FreeAddress(t), dir: t.TempDir()}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.load("http", directives)
	return s
}

// config returns a configuration for Caddy.
func (s *server) config(scheme, directives string) []byte {
	s.t.Helper()
	return adapt(s.t, fmt.Sprintf(`{
	admin off
	persist_config off
	skip_install_trust
	auto_https disable_redirects
	storage file_system %s
	log {
		output file %s/log
		level DEBUG
	}
	metrics
}
%s://%s {
%s
}
`, s.dir, s.dir, scheme, s.addr, directives))
}

// load replaces the configuration.
func (s *server) load(scheme, directives string) {
	s.t.Helper()
	if err := caddy.Load(s.config(scheme, directives), true); err != nil {
		s.t.Fatal(err)
	}
	servertest.OneListener(s.t, s.addr)
}

// log returns what Caddy wrote.
func (s *server) log() string {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(data)
}

// get sends a GET from an origin, and returns status, ACAO and body.
func (s *server) get(origin string) (status int, acao, body string) {
	s.t.Helper()
	resp := s.do("GET", origin)
	return resp.StatusCode, strings.Join(resp.Header["Access-Control-Allow-Origin"], " and "), read(s.t, resp)
}

func (s *server) do(method, origin string, header ...string) *http.Response {
	s.t.Helper()
	r, err := http.NewRequest(method, "http://"+s.addr+"/", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Origin", origin)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp
}

func read(t testing.TB, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// backend starts a backend and returns its address.
func backend(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// eventually waits until holds returns true.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if servertest.Until(t, what, 2*servertest.Soon, holds) == 2*servertest.Soon {
		t.FailNow()
	}
}

// A fakeSource is a module whose source is in memory. Its label says which one.
type fakeSource struct {
	Label string `json:"label"`
}

// A fake is what a fakeSource opens.
type fake struct {
	lookups, opened, closed atomic.Int32
}

var fakes sync.Map // of *fake, by Label

func init() { caddy.RegisterModule(new(fakeSource)) }

func (*fakeSource) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.ampcors.sources.fake", New: func() caddy.Module { return new(fakeSource) }}
}

func (s *fakeSource) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	d.Args(&s.Label)
	return nil
}

func (s *fakeSource) Open(*slog.Logger) (opened source.Database, end func(), err error) {
	f := fakeOf(s.Label)
	if s.Label == "rejected" {
		return source.Database{}, nil, errors.New("wrong label")
	}
	f.opened.Add(1)
	opened = gatewaytest.Source
	opened.PublisherByDomain = f.publisherByDomain
	return opened, func() { f.closed.Add(1) }, nil
}

func fakeOf(label string) *fake {
	f, _ := fakes.LoadOrStore(label, new(fake))
	return f.(*fake)
}

func (f *fake) publisherByDomain(ctx context.Context, domain string) (string, error) {
	f.lookups.Add(1)
	return gatewaytest.Source.PublisherByDomain(ctx, domain)
}

// TestCaddyDecidesAsTheMiddleware: a backend behind Caddy gets the same requests, and its
// clients the same CORS headers, as behind the Middleware with its guard.
func TestCaddyDecidesAsTheMiddleware(t *testing.T) {
	s := newServer(t, `	ampcors {
		publishers www.example.com *.news.example
		credentialed
		request_headers X-Any
		email {
			senders news@example.com
		}
		source fake compared
		publisher_header Ampcors-Publisher
	}
	reverse_proxy `+backend(t, gatewaytest.Backend))
	gatewaytest.Compare(t, "http://"+s.addr)
	if fakeOf("compared").lookups.Load() == 0 {
		t.Error("the source was not asked")
	}
}

// A list of publishers is followed without a reload.
func TestTheListIsFollowed(t *testing.T) {
	list := filepath.Join(t.TempDir(), "publishers.txt")
	write := func(text string) {
		if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("other.example\n")
	// The second handler has no list.
	s := newServer(t, "\tampcors {\n\t\tpublishers_file "+list+
		"\n\t}\n\trespond ok\n}\nhttp://other.localhost:81 {\n\tampcors www.example.com")
	inForce := func() (applied, ok float64) {
		ctx := caddy.ActiveContext()
		families, err := ctx.GetMetricsRegistry().Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			switch family.GetName() {
			case "ampcors_config_in_force":
				ok = family.GetMetric()[0].GetGauge().GetValue()
			case "ampcors_config_applied_timestamp_seconds":
				applied = family.GetMetric()[0].GetGauge().GetValue()
			}
		}
		return applied, ok
	}
	if status, _, _ := s.get(cached); status != http.StatusForbidden {
		t.Error(status)
	}
	write("other.example\nwww.example.com\n")
	eventually(t, "the new publisher is allowed", func() bool {
		status, acao, _ := s.get(cached)
		return status == http.StatusOK && acao == cached
	})
	if at, ok := inForce(); ok != 1 || time.Since(time.Unix(int64(at), 0)) > time.Minute {
		t.Errorf("in force: %v, since %v", ok, at)
	}
	write("not a domain\n")
	eventually(t, "the error is logged", func() bool {
		return strings.Contains(s.log(), "publishers.txt:1:1: ") && strings.Contains(s.log(), `"file":"`+list+`"`)
	})
	if status, _, _ := s.get(cached); status != http.StatusOK {
		t.Error("the last good list is not in force:", status)
	}
	if _, ok := inForce(); ok != 0 {
		t.Error("the metrics do not say that the list is wrong")
	}
}

// Whatever the client calls it, the backend gets the publisher's header from Caddy alone. Some
// backends cannot tell these names apart.
func TestThePublisherHeaderCannotBeForged(t *testing.T) {
	h := &Handler{mw: gatewaytest.NewMiddleware(t), PublisherHeader: "Ampcors-Publisher"}
	for origin, want := range map[string]string{cached: "www.example.com", "": ""} {
		r := httptest.NewRequest("GET", "/", nil)
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		for _, name := range []string{"Ampcors-Publisher", "Ampcors_publisher", "ampcors.Publisher", "AMPCORS_PUBLISHER"} {
			r.Header[name] = []string{"forged.example", "forged.example"}
		}
		r.Header["Connection"] = []string{"keep-alive, AMPCORS-publisher", "Upgrade"}
		r.Trailer = http.Header{"Ampcors_publisher": nil, "Other": nil}
		err := h.ServeHTTP(httptest.NewRecorder(), r, caddyhttp.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) error {
			if want != "" && !slices.Equal(r.Header["Ampcors-Publisher"], []string{want}) {
				t.Errorf("%q: %q", origin, r.Header)
			}
			for name, values := range r.Header {
				if slices.Contains(values, "forged.example") {
					t.Errorf("%q: %s is forged", origin, name)
				}
			}
			if _, ok := r.Trailer["Other"]; !ok || len(r.Trailer) != 1 {
				t.Errorf("%q: trailers %q", origin, r.Trailer)
			}
			if connection := r.Header["Connection"]; !slices.Equal(connection, []string{"keep-alive, Upgrade"}) {
				t.Errorf("%q", connection)
			}
			return nil
		}))
		if err != nil {
			t.Error(err)
		}
	}
}

// A client that announces one trailer can send others, with HTTP/1.1.
func TestThePublisherHeaderCannotBeForgedInATrailer(t *testing.T) {
	trailers := make(chan http.Header, 1)
	s := newServer(t, "\tampcors www.example.com {\n\t\tpublisher_header Ampcors-Publisher\n\t}\n\treverse_proxy "+backend(t,
		func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			trailers <- r.Trailer
		}))
	for _, announced := range []string{"Other", "Ampcors-Publisher", "ampcors_publisher, Other", ""} {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		announcement := ""
		if announced != "" {
			announcement = "Trailer: " + announced + "\r\n"
		}
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\n%sTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nOther: "+
			"1\r\nAmpcors-Publisher: forged.example\r\nAmpcors_Publisher: forged.example\r\n\r\n", s.addr, cached, announcement)
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
		got := <-trailers
		for name := range got {
			if name != "Other" {
				t.Errorf("%q is announced, and the backend gets %q", announced, got)
			}
		}
		if strings.Contains(announced, "Other") && got.Get("Other") != "1" {
			t.Errorf("%q is announced, and the backend gets %q", announced, got)
		}
	}
}

// A matcher of the directive is an error, with its line. "*" is Caddy's own for all requests.
func TestTheDirectiveTakesNoMatcher(t *testing.T) {
	_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt(
		[]byte("http://localhost {\n\tampcors /api/* {\n\t\tpublishers www.example.com\n\t}\n\trespond ok\n}\n"), nil)
	if err == nil || !strings.Contains(err.Error(), "has a matcher") ||
		!strings.Contains(err.Error(), "want one ampcors with all publishers and a publisher_header, which the backend compares") ||
		!strings.Contains(err.Error(), "Caddyfile:2") {
		t.Errorf("a matcher: %v", err)
	}
	for _, directive := range []string{"ampcors *", "ampcors * {\n\t}"} {
		_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte("http://localhost {\n\t"+directive+"\n\trespond ok\n}\n"), nil)
		if err == nil || !strings.Contains(err.Error(), "(* is Caddy's matcher of all requests, and no publisher)") {
			t.Errorf("%s: %v", directive, err)
		}
	}
	for _, directive := range []string{"ampcors * {\n\t\tpublishers www.example.com\n\t}", "ampcors www.example.com"} {
		s := newServer(t, "\t"+directive+"\n\trespond ok")
		for _, path := range []string{"/", "/x/..;/api/x", "/api;/x", `/\api/x`, "/x/..%5capi/x", "//a", "/%252f"} {
			if resp, _ := s.raw("POST", path, "Origin: "+evil); resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s, %s: %s", directive, path, resp.Status)
			}
		}
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
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

// What Caddy's own directives do to CORS headers and Vary is undone too.
func TestTheDirectiveHeaderCannotChangeTheDecidedHeaders(t *testing.T) {
	for directive, vary := range map[string]string{
		"header {\n\t\t-Server\n\t\tVary Accept-Encoding\n\t}": "Origin, Accept-Encoding",
		"header -Vary": "Origin",
		"header {\n\t\t-Server\n\t\tAccess-Control-Allow-Origin *\n\t}":              "Origin",
		"header Access-Control-Allow-Origin * {\n\t\tdefer\n\t}":                     "Origin",
		"header +Access-Control-Allow-Origin *":                                      "Origin",
		"handle {\n\t\theader >Access-Control-Allow-Origin *\n\t\trespond ok\n\t}\n": "Origin",
	} {
		s := newServer(t, "\t"+directive+"\n\tampcors www.example.com\n\trespond ok")
		resp := s.do("GET", cached)
		read(t, resp)
		if got := resp.Header; !slices.Equal(got["Access-Control-Allow-Origin"], []string{cached}) || !slices.Equal(got["Vary"], []string{vary}) {
			t.Errorf("%s: %q", directive, got)
		}
	}
}

// Each request of a site must surely come to the handler, first, and once. What cannot be read from the configuration is an error.
func TestThePlaceOfTheHandler(t *testing.T) {
	s := newServer(t, "ampcors www.example.com\nrespond ok")
	const (
		twice   = "two handlers"
		matched = "ampcors is behind a matcher (path), and other requests would reach the backend without a decision; want ampcors outside of " +
			"handle and route"
		kept = " is in front of ampcors, and may answer a request, or pass it on, without a decision; want ampcors outside of handle and route"
	)
	for directives, want := range map[string][2]string{
		"ampcors www.example.com\nampcors www.example.org\n": {twice,
			"(at :"},
		"ampcors www.example.com\nhandle /shop/* {\nampcors www.example.org\n}\n": {twice,
			"path [\"/shop/*\"])"},
		"route {\nampcors www.example.com\nroute {\nampcors www.example.org\n}\n}": {twice,
			"(at :"},
		"ampcors a.example\nreverse_proxy localhost:1 {\nhandle_response {\nampcors b.example\n}\n}": {twice,
			"(at :"},
		"handle /news/* {\nampcors www.example.com\n}\n": {
			matched, "path [\"/news/*\"])"},
		"handle_path /news/* {\nampcors www.example.com\n}\n": {
			matched, "path [\"/news/*\"])"},
		"route {\nuri strip_prefix /api\nhandle /news/* {\nampcors a.example\n}\n}": {
			matched, "path [\"/news/*\"])"},
		"@q query tenant=a\nhandle @q {\nampcors a.example\n}": {
			"(query)", "(at :"},
		"@m method GET\nhandle @m {\nampcors a.example\n}": {
			"(method)", "(at :"},
		"@m not path /x\nhandle @m {\nampcors a.example\n}": {
			"(not)", "(at :"},
		"handle {\nrespond /x ok\n}\nhandle {\nampcors a.example\n}": {kept,
			"(at :"},
		"handle /x/* {\nheader A b\n}\nhandle {\nampcors a.example\n}": {
			"another handle" + kept, "(at :"},
		"route {\nreverse_proxy localhost:1\nampcors a.example\n}": {
			"reverse_proxy" + kept, "(at :"},
		"route {\nreverse_proxy /files/* localhost:1\nampcors a.example\n}": {
			"reverse_proxy" + kept, "(at :"},
		"route {\nhandle /shop/* {\nrespond no 404\n}\nampcors a.example\n}": {
			"static_response" + kept, "(at :"},
		"route {\nforward_auth localhost:1 {\nuri /\n}\nampcors a.example\n}": {
			"reverse_proxy" + kept, "(at :"},
		"route {\nerror /x 404\nampcors a.example\n}": {
			"error" + kept, "(at :"},
		"route {\ninvoke named\nampcors a.example\n}\n}\n&(named) {\nrespond ok": {
			"invoke" + kept, "(at :"},
		"invoke named\n}\n&(named) {\nampcors a.example": {
			`in the named route "named"`, "want ampcors outside of handle and route"},
		"respond ok\nhandle_errors {\nampcors a.example\n}": {
			"in handle_errors", "want ampcors outside of handle and route"},
		"reverse_proxy localhost:1 {\nhandle_response {\nampcors b.example\n}\n}": {
			"in a part of reverse_proxy", "(at :"},
		"route {\nintercept {\nhandle_response {\nampcors a.example\n}\n}\nrespond ok\n}": {
			"in a part of intercept", "(at :"},
		"respond ok\n}\nhttp://other.localhost:80/api/* {\nreverse_proxy localhost:1\n}\nhttp://other.localhost:80 {\nampcors a.example": {
			"reverse_proxy" + kept, "host [\"other.localhost\"]"},
		"respond ok\n}\nhttp://other.localhost:80/api/* {\nampcors a.example": {matched,
			"(at :80"},
		"respond ok\n}\nhttp://b.localhost:80/api/* {\nreverse_proxy localhost:1\n}\nhttp://c.localhost:80 {\nampcors a.example": {},
		"@b host b.localhost\nhandle @b {\nampcors a.example\n}\n":                                                               {},
		"route {\n@b host b.localhost\nhandle @b {\nreverse_proxy localhost:1\n}\nampcors a.example\n}\n":                        {},
		"route {\nheader A b\nrewrite /x/* /y\nuri strip_prefix /z\nvars a b\nencode\nmap {path} {p} {\ndefault a\n}\nrequest_body {\nmax_size " +
			"1\n}\nampcors a.example\n}": {},
		"handle {\nampcors www.example.com\nrespond ok\n}\n": {},
		"route {\ntry_files {path} =404\nampcors a.example\n}": {
			"the matcher file" + kept, "(at :"},
		"@f file {path} =404\nvars @f a b\nampcors a.example": {
			"the matcher file" + kept, "(at :"},
		"@n expression int({query.n})>3\nvars @n a b\nampcors a.example": {
			"the matcher expression" + kept, "(at :"},
		"@n not {\nnot {\nremote_ip 127.0.0.1\n}\n}\nvars @n a b\nampcors a.example": {
			"the matcher not" + kept, "(at :"},
		"@n not {\npath /a\nmethod GET\n}\nvars @n a b\nlog_skip /x\nampcors a.example": {},
		"route {\nrequest_header Host b.example\nampcors a.example\n}": {
			"headers" + kept, "(at :"},
		"@all host *.a.localhost\nhandle @all {\nrespond ok\n}\n@one host b.a.localhost\nhandle @one {\nampcors a.example\n}": {kept,
			"host [\"b.a.localhost\"]"},
		"@one host b.a.localhost\nhandle @one {\nrespond ok\n}\n@all host *.a.localhost\nhandle @all {\nampcors a.example\n}": {},
		"@all host a.*.localhost\nhandle @all {\nrespond ok\n}\n@two host *.b.localhost\nhandle @two {\nampcors a.example\n}": {kept,
			"host [\"*.b.localhost\"]"},
		"@all host {http.request.host}\nhandle @all {\nrespond ok\n}\n@one host b.localhost\nhandle @one {\nampcors a.example\n}": {kept,
			"(at :"},
		"respond ok\n}\nhttp://*.*.c.localhost:81, http://a-name-that-is-long.of.c.localhost:81 {\nreverse_proxy " +
			"localhost:1\n}\nhttp://*.b.c.localhost:81 {\nampcors a.example": {"reverse_proxy" + kept, ":81"},
		"route {\nampcors a.example\n}\nroute /x/* {\nreverse_proxy localhost:1\n}\n":                                         {kept, "(at :"},
		"ampcors a.example {\nreport_only\n}\nampcors b.example":                                                              {},
		"ampcors a.example\n}\nhttp://other.localhost:80 {\nampcors b.example":                                                {},
		"ampcors a.example\nhandle /x/* {\nrespond ok\n}\n}\n*.localhost:8443, https://b.localhost:8443 {\nampcors b.example": {},
		"ampcors a.example\n}\nhttp://other.localhost:80, http://other.localhost:81 {\nampcors b.example\nampcors c.example": {twice,
			"host [\"other.localhost\"]"},
	} {
		var config caddy.Config
		if err := json.Unmarshal(s.config("http", directives), &config); err != nil {
			t.Fatal(err)
		}
		switch err := caddy.Validate(&config); {
		case want[0] == "" && err != nil, want[0] != "" && (err == nil || !strings.Contains(err.Error(), want[0]) ||
			!strings.Contains(err.Error(), want[1])):
			t.Errorf("%s: %v; want %q", directives, err, want)
		}
	}
	// Matchers of routes without subroutes are provisioned before the first handler.
	var config caddy.Config
	if err := json.Unmarshal([]byte(`{"admin": {"disabled": true}, "apps": {"http": {"servers": {"s": {"listen": ["`+s.addr+`"], "routes": [
		{"match": [{"host": ["a.example"]}], "handle": [{"handler": "ampcors", "config": {"publishers": ["a.example"]}}]},
		{"match": [{"host": ["b.example"]}], "handle": [{"handler": "ampcors", "config": {"publishers": `+
		`["b.example"]}}]}]}}}}}`), &config); err != nil {
		t.Fatal(err)
	}
	if err := caddy.Validate(&config); err != nil {
		t.Error(err)
	}
	if status, acao, _ := s.get(evil); status != http.StatusForbidden || acao != "" {
		t.Error(status, acao)
	}
	// What only JSON can have, and what depends on the server.
	for routes, want := range map[string]string{
		`"routes": [{"handle": [{"handler": "subroute", "routes": [{"group": "g", "handle": [{"handler": "vars"}]}]}]},
			{"group": "g", "handle": [{"handler": "ampcors"}]}]`: "another handle" + kept,
		`"routes": [{"handle": [{"handler": "subroute", "routes": [{"handle": [{"handler": "reverse_proxy"}]}],
			"errors": {"routes": [{"handle": [{"handler": "ampcors"}]}]}}]}]`: "in a part of subroute",
		`"routes": [{"handle": [{"handler": "subroute", "routes": [{"handle": [{"handler": "vars"}]}],
			"errors": {"routes": [{"handle": [{"handler": "reverse_proxy"}]}]}}]}, {"handle": [{"handler": "ampcors"}]}]`: "subroute" + kept,
		`"strict_sni_host": true, "errors": {"routes": [{"handle": [{"handler": "subroute", "routes": [{"handle": [{"handler": ` +
			`"reverse_proxy"}]}]}]}]},
			"routes": [{"handle": [{"handler": "ampcors"}]}]`: "with strict_sni_host, handle_errors gets requests without a decision",
		`"strict_sni_host": false, "errors": {"routes": [{"handle": [{"handler": "reverse_proxy"}]}]}, "routes": [{"handle": [{"handler": ` +
			`"ampcors"}]}]`: "",
		`"strict_sni_host": true, "errors": {"routes": [{"handle": [{"handler": "static_response"}]}]}, "routes": [{"handle": [{"handler": ` +
			`"ampcors"}]}]`: "",
		`"strict_sni_host": true, "errors": {"routes": [{"handle": [{"handler": "reverse_proxy"}]}]}, "routes": [{"handle": [{"handler": ` +
			`"vars"}]}]`: "",
	} {
		text := strings.ReplaceAll(routes, `{"handler": "ampcors"}`, `{"handler": "ampcors", "config": {"publishers": ["a.example"]}}`)
		text = strings.ReplaceAll(text, `{"handler": "reverse_proxy"}`, `{"handler": "reverse_proxy", "upstreams": [{"dial": "localhost:1"}]}`)
		var config caddy.Config
		if err := json.Unmarshal([]byte(`{"admin": {"disabled": true}, "apps": {"http": {"servers": {"s": {"listen": [":81"], `+text+`}}}}}`),
			&config); err != nil {
			t.Fatal(err)
		}
		if err := caddy.Validate(&config); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", routes, err, want)
		}
	}
	// One that only reports may be in front of one that decides.
	s.load("http", `	route {
		ampcors www.other.example {
			report_only
		}
		ampcors www.example.com
		respond "{http.ampcors.publisher} {http.ampcors.reason}"
	}`)
	if status, acao, body := s.get(cached); status != http.StatusOK || acao != cached || body != "www.example.com cache_origin" {
		t.Error(status, acao, body)
	}
}

// A request that comes very late after a reload is not denied as if its publisher were not allowed.
func TestARequestThatComesTooLate(t *testing.T) {
	defer func(d time.Duration) { dropAfter = d }(dropAfter)
	dropAfter = 0
	h := &Handler{mw: gatewaytest.NewMiddleware(t)}
	if err := h.Cleanup(); err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Origin", cached)
	eventually(t, "the publishers are dropped", func() bool {
		w := httptest.NewRecorder()
		err := h.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil }))
		return err == nil && w.Code == http.StatusServiceUnavailable
	})
}

// A denied request gets its response at once: no error route sees it, which could pass it on. The response can be another one.
func TestADenialIsAnAnswer(t *testing.T) {
	var ran atomic.Int32
	failover := backend(t, func(http.ResponseWriter, *http.Request) { ran.Add(1) })
	for option, bodies := range map[string][2]string{
		"": {"Forbidden: publisher_not_allowed\n", "Service Unavailable: source_unavailable\n"},
		"denied `{\"error\": \"{http.ampcors.reason}\", \"a\": {}}` application/json": {`{"error": "publisher_not_allowed", "a": {}}`,
			`{"error": "source_unavailable", "a": {}}`},
	} {
		s := newServer(t, `	log
	ampcors www.example.com {
		source fake errors
		`+option+`
	}
	respond ok
	handle_errors {
		reverse_proxy `+failover+`
	}`)
		for origin, want := range map[string]string{evil: bodies[0], "https://down-example.cdn.ampproject.org": bodies[1]} {
			resp := s.do("POST", origin)
			body := read(t, resp)
			status, kind := http.StatusForbidden, "text/plain; charset=utf-8"
			if origin != evil {
				status = http.StatusServiceUnavailable
			}
			if option != "" {
				kind = "application/json"
			}
			if resp.StatusCode != status || body != want || resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Vary") != "Origin" ||
				resp.Header.Get("Content-Type") != kind || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: %s %q, %v; want %q", origin, resp.Status, body, resp.Header, want)
			}
		}
		if log := s.log(); !strings.Contains(log, `"ampcors":{"allowed":false,"reason":"publisher_not_allowed"`) {
			t.Errorf("the log has no decision: %s", log)
		}
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	}
	if n := ran.Load(); n > 0 {
		t.Errorf("error routes passed on %d denied requests", n)
	}
}

// Other handlers and the log have the decision.
func TestThePublisherIsAPlaceholderAndInTheLog(t *testing.T) {
	s := newServer(t, "\tlog\n\tampcors www.example.com\n\trespond \"{http.ampcors.publisher} {http.ampcors.reason}\"")
	if _, _, body := s.get(cached); body != "www.example.com cache_origin" {
		t.Error(body)
	}
	s.get(evil)
	for _, want := range []string{
		`"ampcors":{"allowed":true,"reason":"cache_origin","origin":"` + cached + `","publisher":"www.example.com","cache":"google"}`,
		`"ampcors":{"allowed":false,"reason":"publisher_not_allowed","origin":"` + evil +
			`","claimed_publisher":"evil.example","cache":"google"}`,
	} {
		eventually(t, want, func() bool { return strings.Contains(s.log(), want) })
	}
}

// Preflights carry no credentials, so the directive runs before those that ask for them.
func TestPreflightsNeedNoCredentials(t *testing.T) {
	s := newServer(t, "\tredir /old /new\n\tbasic_auth {\n\t\tbob "+
		"$2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n\t}\n\tampcors www.example.com\n\trespond ok")
	resp := s.do("OPTIONS", cached, "Access-Control-Request-Method", "POST")
	if resp.StatusCode != http.StatusNoContent || resp.Header.Get("Access-Control-Allow-Origin") != cached {
		t.Errorf("%s, %v", resp.Status, resp.Header)
	}
	// The page can read that its credentials are missing.
	if status, acao, _ := s.get(cached); status != http.StatusUnauthorized || acao != cached {
		t.Error(status, acao)
	}
}

// With report_only, the client gets the backend's own CORS headers.
func TestReportOnlyChangesNothing(t *testing.T) {
	s := newServer(t, "\tampcors www.example.com {\n\t\treport_only\n\t}\n\treverse_proxy "+backend(t, gatewaytest.Backend))
	if status, acao, _ := s.get(evil); status != http.StatusAccepted || acao != "*" {
		t.Error(status, acao)
	}
}

// The metrics of handlers with the same name are sums. A source that they share is counted once.
func TestMetrics(t *testing.T) {
	s := newServer(t, "respond ok")
	_, port, _ := strings.Cut(s.addr, ":")
	const site = "ampcors www.example.com www.other.example {\nsource fake measured\nname api\n}\nrespond ok\n"
	s.load("http", strings.Replace(site, " www.other.example", "", 1)+"}\nhttp://b.example:"+port+" {\n"+site)
	for _, host := range []string{s.addr, "b.example:" + port} {
		for _, origin := range []string{cached, evil, "https://www-source-example.cdn.ampproject.org"} {
			r := httptest.NewRequest("GET", "http://"+s.addr, nil)
			r.Host = host
			r.Header.Set("Origin", origin)
			r.RequestURI = ""
			resp, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			read(t, resp)
		}
	}
	ctx := caddy.ActiveContext()
	want := `
# HELP ampcors_listed_publishers Publishers and patterns in the configuration in force.
# TYPE ampcors_listed_publishers gauge
ampcors_listed_publishers{handler="api"} 3
# HELP ampcors_source_entries Answers in memory: publishers, negatives and prefixes.
# TYPE ampcors_source_entries gauge
ampcors_source_entries{handler="api",kind="negatives"} 1
ampcors_source_entries{handler="api",kind="prefixes"} 0
ampcors_source_entries{handler="api",kind="publishers"} 1
# HELP ampcors_source_lookups_total Lookups of the Source, by their result: ok or error.
# TYPE ampcors_source_lookups_total counter
ampcors_source_lookups_total{handler="api",result="error"} 0
ampcors_source_lookups_total{handler="api",result="ok"} 2
`
	if err := testutil.GatherAndCompare(ctx.GetMetricsRegistry(), strings.NewReader(want), "ampcors_config_in_force",
		"ampcors_config_applied_timestamp_seconds", "ampcors_listed_publishers", "ampcors_source_entries",
		"ampcors_source_lookups_total"); err != nil {
		t.Error(err)
	}
	families, err := ctx.GetMetricsRegistry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := make(map[string]float64)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "ampcors_decisions_total" {
				for _, label := range m.GetLabel() {
					if label.GetName() == "reason" {
						counts[label.GetValue()] += m.GetCounter().GetValue()
					}
				}
			}
		}
	}
	if counts["cache_origin"] != 4 || counts["publisher_not_allowed"] != 2 {
		t.Errorf("%v", counts)
	}
}

// The answers and connections of a source survive a reload. They end with the last handler
// that uses it.
func TestASourceSurvivesAReload(t *testing.T) {
	const origin = "https://www-source-example.cdn.ampproject.org"
	f := fakeOf("pooled")
	s := newServer(t, "\tampcors {\n\t\tsource fake pooled\n\t}\n\trespond 1")
	for i := range 3 {
		s.load("http", "\tampcors other.example {\n\t\tsource fake pooled\n\t}\n\trespond "+strconv.Itoa(i))
		if status, acao, body := s.get(origin); status != http.StatusOK || acao != origin || body != strconv.Itoa(i) {
			t.Error(status, acao, body)
		}
	}
	if f.lookups.Load() != 1 || f.opened.Load() != 1 || f.closed.Load() != 0 {
		t.Errorf("%d lookups, opened %d times, closed %d times", f.lookups.Load(), f.opened.Load(), f.closed.Load())
	}
	s.load("http", "\tampcors www.example.com\n\trespond ok")
	eventually(t, "the source is closed", func() bool { return f.closed.Load() == 1 })
	if status, _, _ := s.get(origin); status != http.StatusForbidden {
		t.Error(status)
	}
}

// A Redis that is down does not keep Caddy from starting. It is used once it can be reached, and the log says when.
func TestASourceThatIsDownAtTheStart(t *testing.T) {
	redis := servertest.Redis(t)
	redis.Kill()
	s := newServer(t, "\tampcors www.example.com {\n\t\tsource redis redis://"+redis.Addr+"\n\t}\n\trespond ok")
	const origin = "https://www-source-example.cdn.ampproject.org"
	if status, _, _ := s.get(origin); status != http.StatusServiceUnavailable {
		t.Error(status)
	}
	if status, _, _ := s.get(cached); status != http.StatusOK {
		t.Error("a listed publisher:", status)
	}
	redis.Start()
	eventually(t, "Redis is asked", func() bool { status, _, _ := s.get(origin); return status == http.StatusForbidden })
	if answer, err := servertest.RedisDo(redis.Addr, "SET", "ampcors:publisher:www.source.example", "1"); answer != "OK" || err != nil {
		t.Fatal(answer, err)
	}
	eventually(t, "the source is used", func() bool {
		status, acao, _ := s.get(origin)
		return status == http.StatusOK && acao == origin
	})
	for _, want := range []string{"not listening for changes of publishers", "refused", `"ampcors: listening for changes of publishers`} {
		eventually(t, "the log says "+want, func() bool { return strings.Contains(s.log(), want) })
	}
	// Caddy also stops while a source is down.
	redis.Kill()
	s.load("http", "\trespond ok")
}

// A wrong configuration is not applied: the old one stays in force.
func TestAWrongConfigurationChangesNothing(t *testing.T) {
	s := newServer(t, "\tampcors www.example.com\n\trespond ok")
	for _, wrong := range []string{
		`{"handler":"ampcors","config":{"publishers":["b"]}}`,
		`{"handler":"ampcors"}`,
		`{"handler":"ampcors","config":{"publishers":["a.example"]},"publisher_header":"a header"}`,
		`{"handler":"ampcors","config":{"publishers":["a.example"]},"source":{"module":"fake","label":"wrong"},"nonsense":1}`,
		`{"handler":"ampcors","config":{"nonsense":1}}`,
		`{"handler":"ampcors","config":{"source":{"ttl":"-1s"}},"source":{"module":"fake","label":"wrong"}}`,
		`{"handler":"ampcors","config":{"publishers":["b"]},"source":{"module":"fake","label":"wrong"}}`,
		`{"handler":"ampcors","source":{"module":"fake","label":"rejected"}}`,
		`{"handler":"ampcors","source":{"module":"redis","url":"x"}}`,
		`{"handler":"ampcors","source":{"module":"redis","url":"redis://localhost:6379","topology":"ring"}}`,
		`{"handler":"ampcors","source":{"module":"postgres","table":"a; b"}}`,
		`{"handler":"ampcors","source":{"module":"redis","url":"{env.AMPCORS_IS_NOT_SET}"}}`,
	} {
		err := caddy.Load([]byte(`{"admin":{"disabled":true,"config":{"persist":false}},"apps":{"http":{"servers":{"s":{"listen":["`+s.addr+
			`"],"routes":[{"handle":[`+wrong+`]}]}}}}}`), true)
		if err == nil {
			t.Errorf("%s is accepted", wrong)
		} else {
			t.Log(err)
		}
		if status, acao, _ := s.get(cached); status != http.StatusOK || acao != cached {
			t.Errorf("%s: %d %s", wrong, status, acao)
		}
	}
	f := fakeOf("wrong")
	eventually(t, "the source of the wrong configuration is closed", func() bool { return f.opened.Load() == 1 && f.closed.Load() == 1 })
}

// A response is passed on as soon as the backend writes a part of it, and not changed.
func TestResponsesAreStreamed(t *testing.T) {
	next := make(chan string)
	s := newServer(t, "\tampcors www.example.com\n\treverse_proxy "+backend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Access-Control-Allow-Origin", "*")
		for event := range next {
			fmt.Fprintf(w, "data: %s\n\n", event)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		}
	}))
	send := func(event string) { go func() { next <- event }() }
	send("0")
	resp := s.do("GET", cached)
	defer resp.Body.Close()
	if acao := resp.Header["Access-Control-Allow-Origin"]; len(acao) != 1 || acao[0] != cached {
		t.Error(acao)
	}
	lines := bufio.NewScanner(resp.Body)
	for i := range 5 {
		if i > 0 {
			send(strconv.Itoa(i))
		}
		if !lines.Scan() || lines.Text() != "data: "+strconv.Itoa(i) || !lines.Scan() {
			t.Fatal(lines.Text(), lines.Err())
		}
	}
	close(next)
}

func TestConnectionsAreUpgraded(t *testing.T) {
	s := newServer(t, "\tlog\n\tampcors www.example.com {\n\t\tpublisher_header Ampcors-Publisher\n\t}\n\treverse_proxy "+backend(t,
		func(w http.ResponseWriter, r *http.Request) {
			conn, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nAccess-Control-Allow-Origin: "+
				"*\r\n\r\n%s\n",
				r.Header.Get("Ampcors-Publisher"))
			_, _ = io.Copy(conn, buffered) // an echo
		}))
	for origin, want := range map[string]int{cached: http.StatusSwitchingProtocols, evil: http.StatusForbidden} {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\nConnection: Upgrade, ampcors-publisher\r\nUpgrade: "+
			"websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAmpcors-Publisher: forged.example\r\n\r\n",
			s.addr, origin)
		reader := bufio.NewReader(conn)
		resp, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != want {
			t.Errorf("%s: %s", origin, resp.Status)
		}
		if want != http.StatusSwitchingProtocols {
			continue
		}
		if acao := resp.Header["Access-Control-Allow-Origin"]; len(acao) != 1 || acao[0] != cached {
			t.Error(acao)
		}
		fmt.Fprintln(conn, "hello")
		for _, want := range []string{"www.example.com\n", "hello\n"} {
			if line, err := reader.ReadString('\n'); line != want {
				t.Errorf("%q, %v; want %q", line, err, want)
			}
		}
		// To stop Caddy 2.11.9 while a connection is open is a data race in it.
		conn.Close()
		eventually(t, "Caddy has closed the connection", func() bool {
			for line := range strings.Lines(s.log()) {
				if strings.Contains(line, `"msg":"handled request"`) && strings.Contains(line, `"status":101`) {
					return true
				}
			}
			return false
		})
	}
}

// A page can read that the backend is down.
func TestABackendThatIsDown(t *testing.T) {
	s := newServer(t, "\tampcors www.example.com\n\treverse_proxy "+servertest.FreeAddress(t))
	if status, acao, _ := s.get(cached); status != http.StatusBadGateway || acao != cached {
		t.Error(status, acao)
	}
	if status, acao, _ := s.get(evil); status != http.StatusForbidden || acao != "" {
		t.Error(status, acao)
	}
}

func TestHTTP2AndHTTP3(t *testing.T) {
	s := newServer(t, "\trespond ok")
	s.load("https", "\ttls internal\n\tampcors www.example.com\n\treverse_proxy "+backend(t, gatewaytest.Backend))
	insecure := &tls.Config{InsecureSkipVerify: true}
	two := &http.Transport{TLSClientConfig: insecure.Clone(), ForceAttemptHTTP2: true}
	defer two.CloseIdleConnections()
	three := &http3.Transport{TLSClientConfig: insecure.Clone()}
	defer three.Close()
	for want, transport := range map[int]http.RoundTripper{2: two, 3: three} {
		for origin, status := range map[string]int{cached: http.StatusAccepted, evil: http.StatusForbidden} {
			r, err := http.NewRequest("GET", "https://"+s.addr+"/", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Origin", origin)
			var resp *http.Response
			eventually(t, "Caddy has a certificate", func() bool {
				if resp, err = transport.RoundTrip(r); err != nil {
					t.Log(err) // shown only if the test fails
				}
				return err == nil
			})
			read(t, resp)
			acao := strings.Join(resp.Header["Access-Control-Allow-Origin"], " and ")
			if resp.ProtoMajor != want || resp.StatusCode != status || (acao == cached) != (origin == cached) {
				t.Errorf("HTTP/%d, %s, %q; want HTTP/%d, %d", resp.ProtoMajor, resp.Status, acao, want, status)
			}
		}
	}
}

// While Caddy reloads, each request is decided by one of the configurations: no listed
// publisher is denied, and no other one gets in. Caddy itself resets a few connections that it
// has not accepted when the old listener closes. Clients then connect again, as here.
func TestReloadsUnderLoad(t *testing.T) {
	reloads := 50
	if testing.Short() {
		reloads = 5
	}
	proxied := "\treverse_proxy " + backend(t, gatewaytest.Backend)
	config := func(i int) string {
		return fmt.Sprintf("\tampcors www.example.com also-%d.example {\n\t\tsource fake loaded\n\t}\n%s", i, proxied)
	}
	s := newServer(t, config(0))
	stop := make(chan struct{})
	var group sync.WaitGroup
	var requests, reset atomic.Int64
	for range 4 {
		group.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for {
				select {
				case <-stop:
					return
				default:
				}
				for origin, want := range map[string]int{cached: http.StatusAccepted,
					"https://www-source-example.cdn.ampproject.org": http.StatusAccepted, evil: http.StatusForbidden} {
					r, err := http.NewRequest("GET", "http://"+s.addr, nil)
					if err != nil {
						t.Error(err)
						return
					}
					r.Header.Set("Origin", origin)
					resp, err := client.Do(r)
					if err != nil {
						reset.Add(1)
						continue
					}
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					acao := resp.Header.Get("Access-Control-Allow-Origin")
					if err != nil || resp.StatusCode != want || want == http.StatusAccepted && acao != origin ||
						want != http.StatusAccepted && acao != "" {
						t.Errorf("%s: %s %q, %v", origin, resp.Status, acao, err)
						return
					}
					requests.Add(1)
				}
			}
		})
	}
	for i := range reloads {
		s.load("http", config(i))
		before := requests.Load()
		eventually(t, "requests are answered after a reload", func() bool { return requests.Load() >= before+10 })
	}
	close(stop)
	group.Wait()
	t.Logf("%d requests during %d reloads; %d connections were reset", requests.Load(), reloads, reset.Load())
	if n := fakeOf("loaded").opened.Load(); n != 1 {
		t.Errorf("the source was opened %d times", n)
	}
}

// The counts of several sources are added, also the buckets of their waits.
func TestSumOfSources(t *testing.T) {
	var sources []*source.Source
	for range 2 {
		s := mwtest.NewSource(t, source.Database{PublisherByDomain: func(_ context.Context, domain string) (string, error) {
			return domain,
				nil
		}})
		defer s.Close()
		s.Find(t.Context(), "www.example.com")
		sources = append(sources, s)
	}
	sum := sumOf(sources)
	if last := len(sum.WaitsWithin) - 1; sum.Waits != 2 || sum.WaitsWithin[last].Waits != 2 || sum.Publishers != 2 {
		t.Errorf("%+v", sum)
	}
}
