package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/internal/gatewaytest"
	"github.com/ampcors/ampcors/internal/mwtest"
	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/internal/vectors"
)

// proxying is a policy with a publisher and a sender.
var proxying = ampcors.Config{Publishers: []string{"www.example.com"}, Credentialed: true, Methods: []string{"PUT"},
	Email: ampcors.Email{Senders: []string{"news@example.com"}}}

// A proxied is a proxy in front of a backend.
type proxied struct {
	*proxy
	url, addr string
	log       *servertest.Buffer
	stop      context.CancelFunc
	ended     chan error // what answerUntil returns
}

// startProxyTo starts a proxy with flags in front of what --to names.
func startProxyTo(t *testing.T, mw *ampcors.Middleware, to string, change ...func(*proxyConfig)) *proxied {
	t.Helper()
	return startProxyUntil(t, shutdownTimeout, mw, to, change...)
}

func startProxyUntil(t *testing.T, shutdown time.Duration, mw *ampcors.Middleware, to string, change ...func(*proxyConfig)) *proxied {
	t.Helper()
	backend, err := parseBackend(to)
	if err != nil {
		t.Fatal(err)
	}
	cfg := proxyConfig{to: backend, timeout: time.Minute, upgrades: []string{"websocket"}}
	for _, f := range change {
		f(&cfg)
	}
	log := new(servertest.Buffer)
	p := &proxied{proxy: newProxy(cfg, mw, slog.New(slog.NewTextHandler(log, nil))), log: log, ended: make(chan error, 1)}
	listener, err := listen("--listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.addr = listener.Addr().String()
	p.url = "http://" + p.addr
	server := p.server()
	ctx, cancel := context.WithCancel(t.Context())
	p.stop = cancel
	go func() {
		p.ended <- answerUntil(ctx, clientListener{listener}, server, shutdown, p.proxy.log)
		close(p.ended)
	}()
	t.Cleanup(func() {
		server.Close()
		cancel()
		for range p.ended {
		}
	})
	return p
}

// startProxy starts a proxy with the policy proxying in front of a backend.
func startProxy(t *testing.T, backend http.HandlerFunc, change ...func(*proxyConfig)) *proxied {
	t.Helper()
	s := httptest.NewServer(backend)
	t.Cleanup(s.Close)
	return startProxyTo(t, mwtest.New(t, proxying), s.URL, change...)
}

// raw sends bytes to the proxy, and returns the response with its body.
func (p *proxied) raw(t *testing.T, text string) (*http.Response, string) {
	t.Helper()
	resp, body, err := p.tryRaw(t, text)
	if resp == nil {
		t.Fatal(err)
	}
	return resp, body
}

// tryRaw is like raw. It returns a nil response if there is none, and an error if the response is cut off.
func (p *proxied) tryRaw(t *testing.T, text string) (*http.Response, string, error) {
	t.Helper()
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

// ask sends a request with "Name: value" lines, and returns the response with its body.
func (p *proxied) ask(t *testing.T, method, path, body string, lines ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header[name] = append(r.Header[name], value) // not in canonical form
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(data)
}

const (
	google = "Origin: " + mwtest.CacheOrigin
	evil   = "Origin: " + mwtest.EvilOrigin
)

// TestProxyDoesWhatTheMiddlewareDoes: each of 450 kinds of requests has the same effect as with the middleware and its
// guard in the backend itself.
func TestProxyDoesWhatTheMiddlewareDoes(t *testing.T) {
	t.Parallel()
	backend := httptest.NewServer(http.HandlerFunc(gatewaytest.Backend))
	defer backend.Close()
	gatewaytest.Compare(t, startProxyTo(t, gatewaytest.NewMiddleware(t), backend.URL).url)
}

// TestProxyAgreesWithTheVectors sends the requests of folder conformance through a proxy.
func TestProxyAgreesWithTheVectors(t *testing.T) {
	t.Parallel()
	f, err := vectors.Read("../../conformance/requests.json")
	if err != nil {
		t.Fatal(err)
	}
	var ran atomic.Bool
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { ran.Store(true) }))
	defer backend.Close()
	proxies := make(map[string]*proxied)
	for name, data := range f.Policies {
		cfg, err := configfile.Inline{Name: name, JSON: data}.Config()
		if err != nil {
			t.Fatal(err)
		}
		proxies[name] = startProxyTo(t, mwtest.New(t, cfg), backend.URL)
	}
	for _, v := range f.Requests {
		if v.Method == "TRACE" || v.Method == "CONNECT" {
			continue // clients of net/http do not send them; see TestProxyRefusesWhatIsNoRequestForABackend
		}
		ran.Store(false)
		resp, _ := proxies[v.Policy].ask(t, v.Method, "/data?"+v.Query, "", v.Headers...)
		status := resp.StatusCode
		if ran.Load() {
			status = 0
		}
		var got []string
		for name, values := range resp.Header {
			switch name {
			case "Content-Type", "X-Content-Type-Options", "Date", "Content-Length":
			default:
				got = append(got, strings.Replace(name, "Amp-", "AMP-", 1)+": "+strings.Join(values, ", "))
			}
		}
		slices.Sort(got)
		if status != v.Status || !slices.Equal(got, v.Response) {
			t.Errorf("%s, %s: %d %q; want %d %q", v.ID, v.Name, status, got, v.Status, v.Response)
		}
	}
	if len(f.Requests) < 100 {
		t.Errorf("%d requests", len(f.Requests))
	}
}

// TestProxyNamesTheCallerAndNobodyElseDoes: whatever a client sends, the backend gets the publisher and the sender that
// were decided on, however it reads names of headers.
func TestProxyNamesTheCallerAndNobodyElseDoes(t *testing.T) {
	t.Parallel()
	p := startProxy(t, func(w http.ResponseWriter, r *http.Request) {
		for key := range r.Trailer {
			if strings.HasPrefix(spelled(key), "ampcors-") {
				t.Errorf("the trailer %s is announced", key)
			}
		}
		_, _ = io.Copy(io.Discard, r.Body)
		named := make(http.Header)
		for _, h := range []http.Header{r.Header, r.Trailer} {
			for key, values := range h {
				if strings.HasPrefix(spelled(key), "ampcors-") && key != proxyHeader {
					named[key] = append(named[key], values...)
				}
			}
		}
		_ = json.NewEncoder(w).Encode(named)
	})
	for _, test := range []struct {
		lines []string
		query string
		want  string
	}{
		{lines: []string{google}, want: `{"Ampcors-Publisher":["www.example.com"]}`},
		{lines: []string{"Origin: https://www.example.com"}, want: `{"Ampcors-Publisher":["www.example.com"]}`},
		{lines: []string{"AMP-Email-Sender: news@example.com"}, want: `{"Ampcors-Email-Sender":["news@example.com"]}`},
		{lines: []string{"Origin: https://mail.google.com"}, query: "?__amp_source_origin=news%40example.com",
			want: `{"Ampcors-Email-Sender":["news@example.com"]}`},
		{query: "?__amp_source_origin=news%40example.com", want: "{}"},
		{want: "{}"},
	} {
		for _, forged := range [][]string{nil, {"Ampcors-Publisher: evil.example"}, {"ampcors-publisher: evil.example"},
			{"Ampcors_Publisher: evil.example"},
			{"AMPCORS.PUBLISHER: evil.example"}, {"Ampcors~Publisher: evil.example"}, {"Ampcors-Email_Sender: evil@evil.example"},
			{"Ampcors-Proxy: x"}, {"Connection: Ampcors-Publisher, Ampcors-Email-Sender, Ampcors-Proxy"},
			{"Connection: close, Origin"}} {
			resp, body := p.ask(t, "GET", "/"+test.query, "", append(slices.Clone(test.lines), forged...)...)
			if strings.TrimSpace(body) != test.want || resp.StatusCode != http.StatusOK {
				t.Errorf("%q, %q: %s %s; want %s", test.lines, forged, resp.Status, body, test.want)
			}
		}
	}
	direct := startProxy(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, r.Trailer)
	}, func(c *proxyConfig) { c.isDirect = true })
	if _, body := direct.raw(t, "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"+google+
		"\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n"+
		"\r\n0\r\nX-Forwarded-For: 192.0.2.1\r\nX-Sum: 1\r\n\r\n"); body != "map[X-Sum:[1]]" {
		t.Errorf("a trailer, and --direct: %s", body)
	}
	for _, announced := range []string{"Trailer: Ampcors-Publisher, X-Sum\r\n", "Trailer: X-Sum\r\n", ""} {
		_, body := p.raw(t, "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"+google+"\r\nTransfer-Encoding: chunked\r\n"+announced+
			"\r\n3\r\nabc\r\n0\r\nAmpcors-Publisher: evil.example\r\nX-Sum: 1\r\n\r\n")
		if want := `{"Ampcors-Publisher":["www.example.com"]}`; strings.TrimSpace(body) != want {
			t.Errorf("a trailer, and %q: %s; want %s", announced, body, want)
		}
	}
}

// With reportOnly, the backend gets what would be denied, without a name, and its own CORS headers stay.
func TestProxyInATrialRun(t *testing.T) {
	t.Parallel()
	cfg := proxying
	cfg.ReportOnly = true
	backend := httptest.NewServer(http.HandlerFunc(gatewaytest.Backend))
	defer backend.Close()
	p := startProxyTo(t, mwtest.New(t, cfg), backend.URL)
	for _, method := range []string{"GET", "OPTIONS"} {
		resp, body := p.ask(t, method, "/", "", evil, "Access-Control-Request-Method: POST", "Ampcors-Publisher: www.example.com")
		if resp.Header.Get("Access-Control-Allow-Origin") != "*" || body != method+`  ""` ||
			len(resp.Header.Values("Access-Control-Allow-Origin")) != 1 {
			t.Errorf("%v %s", resp.Header, body)
		}
	}
	names := startProxyTo(t, mwtest.New(t, cfg), httptestServer(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get(publisherHeader), r.Header.Get(senderHeader))
	}))
	for line, want := range map[string]string{"AMP-Email-Sender: evil@evil.example": "",
		"AMP-Email-Sender: news@example.com": "news@example.com",
		google:                               "www.example.com", evil: ""} {
		if resp, body := names.ask(t, "GET", "/", "", line); resp.StatusCode != http.StatusOK || body != want {
			t.Errorf("%s: %s %q; want %q", line, resp.Status, body, want)
		}
	}
}

// TestProxyPassesOn is what users of a reverse proxy expect.
func TestProxyPassesOn(t *testing.T) {
	t.Parallel()
	seen := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Host", r.Host)
		w.Header().Set("X-URI", r.RequestURI)
		for name, values := range r.Header {
			w.Header()["X-Got-"+name] = values
		}
	}
	for _, test := range []struct {
		name   string
		change func(*proxyConfig)
		send   string // after the request line, without an empty line
		want   map[string]string
	}{
		{name: "the client's Host", send: "GET /a HTTP/1.1\r\nHost: api.example.com:8443\r\n",
			want: map[string]string{"X-Host": "api.example.com:8443", "X-Got-X-Forwarded-Host": "api.example.com:8443",
				"X-Got-X-Forwarded-Proto": "http", "X-Got-X-Forwarded-For": "127.0.0.1"}},
		{name: "no Host", send: "GET /a HTTP/1.0\r\n", want: map[string]string{"X-Got-X-Forwarded-Host": ""}},
		{name: "--host", change: func(c *proxyConfig) { c.host = "internal.example" }, send: "GET /a HTTP/1.1\r\nHost: api.example.com\r\n",
			want: map[string]string{"X-Host": "internal.example", "X-Got-X-Forwarded-Host": "api.example.com"}},
		{name: "what the proxy in front says", send: "GET /a HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1, " +
			"192.0.2.2\r\nX-Forwarded-Proto: https\r\n" +
			"X-Forwarded-Host: public.example\r\nForwarded: for=192.0.2.1\r\nX-Real-IP: 192.0.2.1\r\n",
			want: map[string]string{"X-Got-X-Forwarded-For": "192.0.2.1, 192.0.2.2, 127.0.0.1", "X-Got-X-Forwarded-Proto": "https",
				"X-Got-X-Forwarded-Host": "public.example", "X-Got-Forwarded": "for=192.0.2.1", "X-Got-X-Real-Ip": "192.0.2.1"}},
		{name: "--direct: what clients say", change: func(c *proxyConfig) { c.isDirect = true }, send: "GET /a HTTP/1.1\r\nHost: a\r\n" +
			"X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\nX_Forwarded_Proto: https\r\nX-Forwarded-Host: public.example\r\n" +
			"Forwarded: for=192.0.2.1\r\nX-Real-IP: 192.0.2.1\r\nX-Forwarded-Port: 1\r\n",
			want: map[string]string{"X-Got-X-Forwarded-For": "127.0.0.1", "X-Got-X-Forwarded-Proto": "http", "X-Got-X_forwarded_proto": "",
				"X-Got-X-Forwarded-Host": "a", "X-Got-Forwarded": "", "X-Got-X-Real-Ip": "", "X-Got-X-Forwarded-Port": ""}},
		{name: "what the proxy in front says, and a client's Connection names",
			send: "GET /a HTTP/1.1\r\nHost: a\r\nX-Real-IP: 192.0.2.1\r\nX-User: a\r\nConnection: close, X-Real-IP, X-User\r\n",
			want: map[string]string{"X-Got-X-Real-Ip": "192.0.2.1", "X-Got-X-User": "a", "X-Got-Connection": ""}},
		{name: "a path and a query as they are", send: "GET //x/..%2fa%5c/;b/%41?q=100%&;a=1&&q HTTP/1.1\r\nHost: a\r\n",
			want: map[string]string{"X-URI": "//x/..%2fa%5c/;b/%41?q=100%&;a=1&&q"}},
		{name: "an empty query", send: "GET /a? HTTP/1.1\r\nHost: a\r\n", want: map[string]string{"X-URI": "/a?"}},
		{name: "the absolute form", send: "GET http://other.example/a HTTP/1.1\r\nHost: a\r\n",
			want: map[string]string{"X-Host": "other.example", "X-URI": "/a"}},
		{name: "the absolute form with a password", send: "GET http://u:p@other.example HTTP/1.1\r\nHost: a\r\n",
			want: map[string]string{"X-Host": "other.example", "X-URI": "/", "X-Got-Authorization": ""}},
		{name: "what the client accepts", send: "GET /a HTTP/1.1\r\nHost: a\r\n",
			want: map[string]string{"X-Got-Accept-Encoding": "", "X-Got-User-Agent": ""}},
		{name: "an upgrade to HTTP without encryption", send: "GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: " +
			"h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
			want: map[string]string{"X-Got-Upgrade": "", "X-Got-Connection": "", "X-Got-Http2-Settings": ""}},
		{name: "an upgrade to one of several", send: "GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket, h2c\r\n",
			want: map[string]string{"X-Got-Upgrade": ""}},
		{name: "an upgrade to TLS", send: "GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: TLS/1.2\r\n",
			want: map[string]string{"X-Got-Upgrade": ""}},
		{name: "an upgrade to WebSocket", send: "GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n",
			want: map[string]string{"X-Got-Upgrade": "WebSocket"}},
		{name: "an upgrade, and another name in Connection", send: "GET /a HTTP/1.1\r\nHost: a\r\nX-User: a\r\nConnection: Upgrade, " +
			"X-User\r\nUpgrade: websocket\r\n",
			want: map[string]string{"X-Got-Upgrade": "websocket", "X-Got-X-User": "a"}},
		{name: "two Content-Length that agree", send: "POST /a HTTP/1.1\r\nHost: a\r\n" + google +
			"\r\nContent-Length: 0\r\nContent-Length: 0\r\n",
			want: map[string]string{"X-URI": "/a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.change == nil {
				test.change = func(*proxyConfig) {}
			}
			p := startProxy(t, seen, test.change)
			resp, body := p.raw(t, test.send+"\r\n")
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("%s %s", resp.Status, body)
			}
			for name, want := range test.want {
				got := strings.Join(resp.Header[name], "|")
				if name == "X-URI" {
					got = resp.Header.Get(name)
				}
				if got != want {
					t.Errorf("%s: %q; want %q", name, got, want)
				}
			}
		})
	}
}

// What is no request for a backend never reaches it, and nor does what is hidden behind another request.
func TestProxyRefusesWhatIsNoRequestForABackend(t *testing.T) {
	t.Parallel()
	const any = -1 // the backend may get the beginning
	for name, test := range map[string]struct {
		send   string
		status int
		ran    int32
	}{
		"CONNECT": {"CONNECT www.example.com:443 HTTP/1.1\r\nHost: www.example.com:443\r\n" + google + "\r\n\r\n", 405, 0},
		"CONNECT without its body": {"CONNECT www.example.com:443 HTTP/1.1\r\nHost: www.example.com:443\r\nContent-Length: 10\r\n\r\n", 405,
			0},
		"a URL without a path":      {"GET http:foo HTTP/1.1\r\nHost: a\r\n\r\n", 400, 0},
		"OPTIONS *":                 {"OPTIONS * HTTP/1.1\r\nHost: a\r\n" + evil + "\r\n\r\n", 200, 0}, // by net/http itself
		"TRACE":                     {"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 403, 0},
		"two Origins":               {"POST / HTTP/1.1\r\nHost: a\r\n" + google + "\r\n" + evil + "\r\nContent-Length: 0\r\n\r\n", 403, 0},
		"two different lengths":     {"POST / HTTP/1.1\r\nHost: a\r\n" + google + "\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400, 0},
		"another transfer encoding": {"POST / HTTP/1.1\r\nHost: a\r\n" + google + "\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501, 0},
		"a space before the colon":  {"POST / HTTP/1.1\r\nHost: a\r\nOrigin : x\r\nContent-Length: 0\r\n\r\n", 400, 0},
		"a folded header":           {"GET / HTTP/1.1\r\nHost: a\r\nX-A: b\r\n c: d\r\nConnection: close\r\n\r\n", 200, 1},
		"a header of 1 MB":          {"GET / HTTP/1.1\r\nHost: a\r\nX-Long: " + strings.Repeat("a", 1<<20) + "\r\n\r\n", 431, 0},
		"a bad chunk":               {"POST / HTTP/1.1\r\nHost: a\r\n" + google + "\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400, any},
		"a method in lower case":    {"post / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 403, 0},
		"a method override":         {"GET / HTTP/1.1\r\nHost: a\r\nX-HTTP-Method-Override: POST\r\nConnection: close\r\n\r\n", 200, 1},
		"a host that is none":       {"GET http://a\"b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, 0},
		"a trailer that is none": {"POST / HTTP/1.1\r\nHost: a\r\n" + google +
			"\r\nTransfer-Encoding: chunked\r\nTrailer: a b\r\n\r\n0\r\n\r\n", 400, 0},
		"a control character": {"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n", 400, 0},
		"a request in a body": {"POST / HTTP/1.1\r\nHost: a\r\n" + evil +
			"\r\nContent-Length: 33\r\n\r\nGET /hidden HTTP/1.1\r\nHost: a\r\n\r\n", 403, 0},
		"a length beside chunks (TE)": {"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + google +
			"\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: a\r\n\r\n", 200, 1},
	} {
		var ran atomic.Int32
		p := startProxy(t, func(http.ResponseWriter, *http.Request) { ran.Add(1) })
		resp, body := p.raw(t, test.send)
		if resp.StatusCode != test.status || ran.Load() != test.ran && test.ran != any {
			t.Errorf("%s: %s %q, and the backend ran %d times; want %d, %d", name, resp.Status, body, ran.Load(), test.status, test.ran)
		}
		if strings.Contains(p.log.String(), "backend does not answer") {
			t.Errorf("%s: a client's mistake is logged as the backend's:\n%s", name, p.log)
		}
	}
}

// A WebSocket works from an allowed page, and denied pages do not get one.
func TestProxyUpgradesToWebSocket(t *testing.T) {
	t.Parallel()
	var opened atomic.Int32
	p := startProxy(t, func(w http.ResponseWriter, r *http.Request) {
		if opened.Add(1); r.Header.Get("Upgrade") == "" {
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nAccess-Control-Allow-Origin: " +
			"*\r\nAccess-Control-Allow-Methods: X\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(conn, rw) // it repeats what it gets
		_, _ = io.WriteString(conn, "goodbye")
	})
	const handshake = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
	if resp, _ := p.raw(t, handshake+evil+"\r\n\r\n"); resp.StatusCode != http.StatusForbidden || opened.Load() != 0 {
		t.Errorf("%s, opened %d", resp.Status, opened.Load())
	}
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(conn, handshake+google+"\r\n\r\n")
	reader := bufio.NewReader(conn)
	if resp, err := http.ReadResponse(reader, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols ||
		!slices.Equal(resp.Header["Access-Control-Allow-Origin"], []string{mwtest.CacheOrigin}) ||
		resp.Header["Access-Control-Allow-Methods"] != nil {
		t.Fatalf("%v, %v", resp, err)
	}
	for _, text := range []string{"one\n", "two\n"} {
		_, _ = io.WriteString(conn, text)
		if got, err := reader.ReadString('\n'); got != text || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	// The client ends its side, and still gets what the backend says then.
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(reader); string(got) != "goodbye" || err != nil {
		t.Errorf("after the end of the client's side: %q, %v", got, err)
	}
	if resp, _ := p.raw(t, strings.Replace(handshake, "HTTP/1.1", "HTTP/1.0", 1)+google+
		"\r\n\r\n"); resp.StatusCode == http.StatusSwitchingProtocols {
		t.Error("a connection of HTTP/1.0 is upgraded")
	}
}

// Events arrive one by one, while the response goes on, and so does what the client sends.
func TestProxyStreamsBothWays(t *testing.T) {
	t.Parallel()
	next, ended := make(chan string), make(chan struct{})
	p := startProxy(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		w.Header().Set("Content-Type", map[string]string{"/events": "text/event-stream"}[r.URL.Path])
		if r.URL.Query().Has("length") {
			w.Header().Set("Content-Length", "12")
		}
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		for text := range next {
			_, _ = io.WriteString(w, text)
			_ = http.NewResponseController(w).Flush()
			if r.Method == "POST" {
				piece := make([]byte, 4)
				_, err := io.ReadFull(r.Body, piece)
				if _, _ = w.Write(piece); err != nil {
					return
				}
				_ = http.NewResponseController(w).Flush()
			}
		}
		<-r.Context().Done() // the client is gone
	})
	for _, path := range []string{"/events", "/?length"} {
		next, ended = make(chan string), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		r, _ := http.NewRequestWithContext(ctx, "GET", p.url+path, nil)
		r.Header.Set("Origin", mwtest.CacheOrigin)
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"one\n", "two\n"} {
			next <- text
			if got := make([]byte, 4); true {
				if _, err := io.ReadFull(resp.Body, got); string(got) != text || err != nil {
					t.Errorf("%q, %v", got, err)
				}
			}
		}
		close(next)
		cancel()
		resp.Body.Close()
		<-ended
	}

	// Both ways at once, with HTTP/2 in front: the server of HTTP/1.1 reads the request first.
	next, ended = make(chan string, 1), make(chan struct{})
	body, send := io.Pipe()
	r, _ := http.NewRequestWithContext(t.Context(), "POST", p.url, body)
	r.Header.Set("Origin", mwtest.CacheOrigin)
	resp, err := http2Client(t).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	next <- "got "
	_, _ = io.WriteString(send, "ping")
	got := make([]byte, 8)
	if _, err := io.ReadFull(resp.Body, got); string(got) != "got ping" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	send.Close()
	next <- "end "
	<-ended
}

// http2Client returns a client that begins with HTTP/2 in cleartext.
func http2Client(t *testing.T) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Transport{Protocols: protocols}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// Bodies of any size, trailers, 100 Continue and 103 Early Hints arrive.
func TestProxyPassesOnAllOfAMessage(t *testing.T) {
	t.Parallel()
	const size = 40 << 20
	p := startProxy(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Trailer", "X-End")
		w.Header().Set("X-Sum", r.Trailer.Get("X-Sum"))
		w.Header().Set("Access-Control-Allow-Origin", "*")
		fmt.Fprintf(w, "%d %v ", n, err)
		_, _ = io.Copy(w, io.LimitReader(zeros{}, size))
		w.Header().Set("X-End", "here")
		w.Header().Set(http.TrailerPrefix+"Access-Control-Allow-Origin", "*")
	})
	r, _ := http.NewRequest("POST", p.url, struct{ io.Reader }{io.LimitReader(zeros{}, size)})
	r.Header.Set("Origin", mwtest.CacheOrigin)
	r.Header.Set("Expect", "100-continue")
	r.Trailer = http.Header{"X-Sum": {"1234"}}
	var informed []int
	r = r.WithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got100Continue: func() { informed = append(informed, 100) },
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			informed = append(informed, code)
			if code == 103 && h.Get("Link") == "" {
				t.Error("the early hints have no Link")
			}
			return nil
		},
	}))
	client := &http.Transport{ExpectContinueTimeout: time.Minute}
	defer client.CloseIdleConnections()
	resp, err := client.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	beginning, err := bufio.NewReaderSize(io.LimitReader(resp.Body, 15), 16).ReadString('l')
	rest, err2 := io.Copy(io.Discard, resp.Body)
	if !strings.HasPrefix(beginning, fmt.Sprint(size)) || err != nil && err != io.EOF || err2 != nil || rest < size-20 {
		t.Errorf("%q %v, %d %v", beginning, err, rest, err2)
	}
	if resp.Header.Get("X-Sum") != "1234" || resp.Trailer.Get("X-End") != "here" || resp.Trailer.Get("Access-Control-Allow-Origin") != "" ||
		resp.Header.Get("Access-Control-Allow-Origin") != mwtest.CacheOrigin || resp.Header.Get("Vary") == "" {
		t.Errorf("%v %v", resp.Header, resp.Trailer)
	}
	if !slices.Equal(informed, []int{100, 103}) && !slices.Equal(informed, []int{100, 100, 103}) {
		t.Errorf("the client got %v", informed)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A page that may read the response reads why there is none, and no other page can.
func TestProxyWithABackendThatFails(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		answer  string // what the backend writes before it closes the connection; if "", it does not listen
		status  int    // 0 if the response is cut off
		log     string
		change  func(*proxyConfig)
		hangsUp bool // the backend never answers
		proto   string
	}{
		{name: "it is down", status: 502, log: "connection refused"},
		{name: "it closes the connection", answer: " ", status: 502, log: "closed the connection without a response"},
		{name: "it does not speak HTTP", answer: "SSH-2.0-OpenSSH_9.2\r\n", status: 502, log: "malformed HTTP"},
		{name: "half a header", answer: "HTTP/1.1 200 OK\r\nContent-", status: 502, log: "malformed MIME header"},
		{name: "a header of 1 MB", answer: "HTTP/1.1 200 OK\r\nX-Long: " + strings.Repeat("a", 1<<20) + "\r\n\r\n", status: 502,
			log: "more than 64 KiB of headers"},
		{name: "half a body", answer: "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", log: "broke off"},
		{name: "half a chunk", answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nha", log: "broke off"},
		{name: "half a chunk, for HTTP/1.0", proto: "1.0", answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nha",
			log: "broke off"},
		{name: "two lengths", answer: "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na", status: 502, log: "Content-Length"},
		{name: "an upgrade that nobody asked for", answer: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
			status: 502, log: "h2c"},
		{name: "no answer", hangsUp: true, status: 502, log: "within --timeout 50ms",
			change: func(c *proxyConfig) { c.timeout = 50 * time.Millisecond }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			backend, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer backend.Close()
			if test.answer == "" && !test.hangsUp {
				backend.Close()
			}
			go func() {
				for {
					conn, err := backend.Accept()
					if err != nil {
						return
					}
					defer conn.Close() // at the end of the test
					_, _ = http.ReadRequest(bufio.NewReader(conn))
					if !test.hangsUp {
						_, _ = io.WriteString(conn, strings.TrimLeft(test.answer, " "))
						conn.Close()
					}
				}
			}()
			if test.change == nil {
				test.change = func(*proxyConfig) {}
			}
			p := startProxyTo(t, mwtest.New(t, proxying), "http://"+backend.Addr().String(), test.change)
			for range 20 {
				resp, body, err := p.tryRaw(t, "POST / HTTP/"+cmp.Or(test.proto, "1.1")+"\r\nHost: a\r\n"+google+
					"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
				if test.status == 0 {
					if err == nil {
						t.Errorf("a response that breaks off looks whole: %v %q", resp, body)
					}
					continue
				}
				if resp == nil || resp.StatusCode != test.status || resp.Header.Get("Access-Control-Allow-Origin") != mwtest.CacheOrigin ||
					resp.Header.Get("Vary") != "Origin, AMP-Email-Sender" || resp.Header.Get("Cache-Control") != "no-store" ||
					body != "Bad Gateway: the backend does not answer\n" {
					t.Errorf("%s %v %q", resp.Status, resp.Header, body)
				}
			}
			if resp, _ := p.raw(t, "POST / HTTP/1.1\r\nHost: a\r\n"+evil+
				"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"); resp.StatusCode != 403 {
				t.Error(resp.Status)
			}
			lines := strings.TrimSpace(p.log.String())
			if !strings.Contains(lines, test.log) || strings.Count(lines, "\n") > 1 {
				t.Errorf("the log has no %q, or a line for each request:\n%s", test.log, lines)
			}
		})
	}
}

// rawBackend starts a backend that gets each request with its connection, and returns its URL. The connection is closed
// when serve returns false.
func rawBackend(t *testing.T, serve func(net.Conn, *http.Request) bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for reader := bufio.NewReader(conn); ; {
					if r, err := http.ReadRequest(reader); err != nil || !serve(conn, r) {
						return
					}
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// A backend may answer before it has read the body, as for an upload that is too large: the answer arrives.
func TestProxyWithABackendThatAnswersEarly(t *testing.T) {
	t.Parallel()
	for name, backend := range map[string]string{
		"Go": httptestServer(t, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		}),
		"one that closes at once": rawBackend(t, func(conn net.Conn, _ *http.Request) bool {
			_, _ = io.WriteString(conn, "HTTP/1.1 413 Request Entity Too Large\r\nConnection: close\r\nContent-Length: 10\r\n\r\ntoo large\n")
			return false
		}),
	} {
		p := startProxyTo(t, mwtest.New(t, proxying), backend)
		answered := 0
		for range 20 {
			r, _ := http.NewRequestWithContext(t.Context(), "POST", p.url, strings.NewReader(strings.Repeat("a", 5<<20)))
			r.Header.Set("Origin", mwtest.CacheOrigin)
			resp, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				continue // half a second after its response, the server closes the connection: a slow client may still send
			}
			answered++
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusRequestEntityTooLarge || string(text) != "too large\n" ||
				resp.Header.Get("Access-Control-Allow-Origin") == "" {
				t.Fatalf("%s: %s %q\n%s", name, resp.Status, text, p.log)
			}
		}
		if answered == 0 {
			t.Errorf("%s: no client gets the answer", name)
		}
		if name == "Go" { // it waits for the rest by itself
			continue
		}
		// The client has not sent all of it, and waits. What follows on its connection is no request.
		resp, _ := p.raw(t, "POST / HTTP/1.1\r\nHost: a\r\n"+google+"\r\nContent-Length: 1000\r\n\r\nhalf")
		if resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close {
			t.Errorf("%s: %s, close %t", name, resp.Status, resp.Close)
		}
	}
}

// What a backend sends beyond its response is nobody's response, and is not in the log.
func TestProxyGivesNobodyTheResponseOfAnother(t *testing.T) {
	t.Parallel()
	const stolen = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nprivate"
	p := startProxyTo(t, mwtest.New(t, proxying), rawBackend(t, func(conn net.Conn, r *http.Request) bool {
		switch {
		case r.URL.Path == "/bad":
			_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n"+stolen)
		default:
			_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
		}
		return true
	}))
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			client := &http.Transport{}
			defer client.CloseIdleConnections()
			for i := range 200 {
				path := map[bool]string{true: "/bad", false: "/"}[i%4 == 0]
				resp, err := client.RoundTrip(httptest.NewRequest("GET", p.url+path, nil))
				if err != nil {
					t.Error(err)
					return
				}
				if body, _ := io.ReadAll(resp.Body); strings.Contains(string(body), "private") || resp.StatusCode != 204 && resp.StatusCode != 502 {
					t.Errorf("%s: %s %q", path, resp.Status, body)
				}
				resp.Body.Close()
			}
		})
	}
	clients.Wait()
	if log := p.log.String(); strings.Contains(log, "private") || strings.Count(log, "\n") > 2 {
		t.Errorf("the log:\n%s", log)
	}
	const line = `Unsolicited response received on idle HTTP channel starting with "private"; err=<nil>`
	if n, err := (unsolicited{p.proxy}).Write([]byte(line)); n == 0 || err != nil ||
		strings.Contains(p.log.String(), "private") || !strings.Contains(p.log.String(), "the backend sent more than its response") {
		t.Errorf("%d, %v\n%s", n, err, p.log)
	}
}

// A request is written only while the transport waits for bytes, and so has none that it would take for the response.
func TestProxyWritesOnlyToAQuietConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			read  func(*backendConn) // before the request is written
			after time.Duration
			fails bool
		}{
			"it reads": {func(c *backendConn) { go c.Read(make([]byte, 1)); synctest.Wait() }, 0, false},
			"it reads soon": {func(c *backendConn) { go func() { time.Sleep(untilQuiet / 2); c.Read(make([]byte, 1)) }() }, untilQuiet / 2,
				false},
			"it has bytes left": {func(c *backendConn) {}, untilQuiet, true},
			"it is broken":      {func(c *backendConn) { c.Conn.SetReadDeadline(time.Now()); c.Read(make([]byte, 1)) }, 0, true},
			"it is closed":      {func(c *backendConn) { time.AfterFunc(1, func() { c.Close() }) }, 1, true},
			"it is broken, later": {func(c *backendConn) {
				c.Conn.SetReadDeadline(time.Now())
				time.AfterFunc(1, func() { c.Read(make([]byte, 1)) })
			}, 1, true},
		} {
			client, server := net.Pipe()
			c := &backendConn{Conn: client}
			go io.Copy(io.Discard, server)
			test.read(c)
			c.begins.Store(true)
			begun := time.Now()
			if _, err := c.Write([]byte("GET")); (err != nil) != test.fails || time.Since(begun) != test.after {
				t.Errorf("%s: %v after %v", name, err, time.Since(begun))
			}
			if _, err := c.Write([]byte("more")); err != nil && name != "it is closed" { // of the same request
				t.Errorf("%s: %v", name, err)
			}
			client.Close()
			server.Close()
			synctest.Wait()
		}
	})
}

// 100 Continue of the server and 103 of the backend do not mix.
func TestProxyWithExpectationsAndEarlyHints(t *testing.T) {
	t.Parallel()
	p := startProxy(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.Copy(w, r.Body)
	})
	for range 50 {
		conn, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"+google+
			"\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody")
		data, err := io.ReadAll(conn)
		if text := string(data); err != nil || !strings.HasPrefix(text, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n") ||
			strings.Count(text, "HTTP/1.1 ") != 3 || !strings.HasSuffix(text, "\r\n\r\nbody") {
			t.Fatalf("%q, %v", text, err)
		}
	}
	if resp, body := p.raw(t, "POST / HTTP/1.0\r\nExpect: 100-continue\r\n"+google+
		"\r\nContent-Length: 4\r\n\r\nbody"); resp.StatusCode != http.StatusOK || body != "body" {
		t.Errorf("HTTP/1.0, which has no 1xx: %s %q", resp.Status, body)
	}
}

// A type that the backend does not name is not guessed: nosniff would be undone.
func TestProxyGuessesNoContentType(t *testing.T) {
	t.Parallel()
	p := startProxy(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil
		if r.URL.Path == "/hints" {
			w.WriteHeader(http.StatusEarlyHints)
			w.Header()["Content-Type"] = nil
		}
		fmt.Fprint(w, "<html>")
	})
	for _, path := range []string{"/", "/hints"} {
		if resp, body := p.ask(t, "GET", path, "", google); resp.Header["Content-Type"] != nil || body != "<html>" {
			t.Errorf("%s: %v %q", path, resp.Header, body)
		}
	}
}

// deadlines records the deadlines that are set for a response.
type deadlines struct {
	*httptest.ResponseRecorder
	set []bool // whether there is one
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.set = append(d.set, !t.IsZero())
	return nil
}

// With HTTP/2, each write has a deadline, and a pause has none.
func TestProxyLimitsWritesOfHTTP2(t *testing.T) {
	t.Parallel()
	d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	w := &clientWriter{d, http.NewResponseController(d), false}
	fmt.Fprint(w, "a")
	_ = http.NewResponseController(w).Flush()
	w.end()
	if !slices.Equal(d.set, []bool{true, false, true, false, true}) || d.Body.String() != "a" || !d.Flushed {
		t.Errorf("%v %v", d.set, d)
	}
}

// HTTP/2 is answered in TLS and in cleartext, and a tunnel within it is refused.
func TestProxySpeaksHTTP2(t *testing.T) {
	t.Parallel()
	p := startProxy(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, r.Proto, " ", r.Header.Get(publisherHeader), " ", r.Trailer.Get("X-Sum"), r.Trailer.Get(publisherHeader))
	})
	client := http2Client(t)
	r, _ := http.NewRequest("POST", p.url, struct{ io.Reader }{strings.NewReader("abc")})
	r.Header.Set("Origin", mwtest.CacheOrigin)
	r.Trailer = http.Header{"X-Sum": {"12"}, publisherHeader: {"evil.example"}}
	resp, err := client.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); resp.ProtoMajor != 2 || string(body) != "HTTP/1.1 www.example.com 12" || err != nil {
		t.Errorf("%s %q, %v", resp.Proto, body, err)
	}
	r, _ = http.NewRequest("GET", p.url, nil)
	r.URL.RawQuery = "a b HTTP/1.1"
	if resp, err := client.RoundTrip(r); err != nil || resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a query with a space: %v, %v", resp, err)
	}
	r, _ = http.NewRequest("CONNECT", p.url, nil)
	if resp, err := client.RoundTrip(r); err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("CONNECT: %v, %v", resp, err)
	}
}

// TestServeProxy runs the command: with TLS on both sides, with sockets, and with a certificate that is renewed.
func TestServeProxy(t *testing.T) {
	t.Parallel()
	dir, handler := t.TempDir(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto, " for ", r.Header.Get(publisherHeader), " at ", r.Host, " by ", r.Header.Get("X-Forwarded-Proto"))
	})
	backend := httptest.NewUnstartedServer(handler)
	backend.EnableHTTP2 = true
	backend.StartTLS()
	defer backend.Close()
	ca := writeFile(t, filepath.Join(dir, "ca.pem"), string(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: backend.Certificate().Raw})))
	der, err := x509.MarshalPKCS8PrivateKey(backend.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	key := writeFile(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	file := writeFile(t, filepath.Join(dir, "config.json"), `{"publishers": ["www.example.com"]}`)
	client := backend.Client().Transport.(*http.Transport).Clone()
	defer client.CloseIdleConnections()
	client.TLSClientConfig.ServerName = "example.com"

	s := serveWith(t, "serve-proxy", "--config", file, "--to", backend.URL, "--to-ca", ca, "--tls-cert", ca, "--tls-key", key, "--direct",
		"--host", "api.example.com",
		"--timeout", "10s", "--upgrade", "websocket,custom", "--log-denied", "--metrics", "127.0.0.1:0", "--log-format", "text")
	ask := func(client *http.Transport, url, origin string) (int, string) {
		t.Helper()
		r, _ := http.NewRequest("GET", url, nil)
		r.Header.Set("Origin", origin)
		resp, err := client.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.ProtoMajor, string(body)
	}
	url := "https" + strings.TrimPrefix(s.url, "http")
	if major, body := ask(client, url, mwtest.CacheOrigin); major != 2 || body != "HTTP/1.1 for www.example.com at api.example.com by https" {
		t.Errorf("HTTP/%d, %s", major, body)
	}
	if _, body := ask(client, url, mwtest.EvilOrigin); !strings.HasPrefix(body, "Forbidden: publisher_not_allowed") {
		t.Error(body)
	}
	for _, want := range []string{"decision.reason=publisher_not_allowed", "decision.origin=" + mwtest.EvilOrigin, "path=/"} {
		if !strings.Contains(s.log.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, s.log)
		}
	}
	if metrics := body(t, "http://"+s.metrics()+"/metrics"); !strings.Contains(metrics,
		`ampcors_decisions_total{allowed="true",reason="cache_origin"} 1`) {
		t.Error(metrics)
	}

	// The certificate is renewed: the old key does not belong to the new certificate.
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{"renewed.example"}, NotAfter: time.Now().Add(time.Hour)}
	renewed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	if der, err = x509.MarshalPKCS8PrivateKey(private); err != nil {
		t.Fatal(err)
	}
	renew := func(file, kind string, der []byte) (names []string) {
		t.Helper()
		writeFile(t, file, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
		later := time.Now().Add(time.Hour)
		if err := os.Chtimes(file, later, later); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			conn, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "http://"), &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				t.Fatal(err)
			}
			names = conn.ConnectionState().PeerCertificates[0].DNSNames
			conn.Close()
		}
		return names
	}
	if names := renew(ca, "CERTIFICATE", renewed); slices.Contains(names, "renewed.example") ||
		strings.Count(s.log.String(), "the new one is not used") != 1 {
		t.Errorf("%q\n%s", names, s.log)
	}
	if names := renew(key, "PRIVATE KEY", der); !slices.Contains(names, "renewed.example") ||
		!strings.Contains(s.log.String(), "the certificate has changed\" file=") {
		t.Errorf("%q\n%s", names, s.log)
	}
	s.stop()
	if got := <-s.code; got != exitClean {
		t.Errorf("exit code %d:\n%s", got, s.log)
	}

	// Sockets on both sides. One that a killed program has left is replaced.
	socket, front := filepath.Join(dir, "backend"), filepath.Join(dir, "front")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	plain := &http.Server{Handler: handler}
	defer plain.Close()
	go func() { _ = plain.Serve(listener) }() // until it is closed
	left, err := net.Listen("unix", front)
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	left.Close()
	s = serveWith(t, "serve-proxy", "--config", file, "--to", "unix:"+socket, "--listen", "unix:"+front)
	dial := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return net.Dial("unix", front) }}
	defer dial.CloseIdleConnections()
	if _, body := ask(dial, "http://api.example.com/", mwtest.CacheOrigin); body != "HTTP/1.1 for www.example.com at api.example.com by http" {
		t.Error(body)
	}
	if code, _, stderr := run(t, "", "serve-proxy", "--config", file, "--to", "unix:"+socket, "--listen",
		"unix:"+front); code != exitUntested ||
		!strings.Contains(stderr, "another program listens") {
		t.Errorf("%d %s", code, stderr)
	}
	itself := "unix:" + filepath.Join(dir, "itself")
	if code, _, stderr := run(t, "", "serve-proxy", "--config", file, "--to", itself, "--listen", itself); code != exitUsage ||
		!strings.Contains(stderr, "is this proxy itself") {
		t.Errorf("%d %s", code, stderr)
	}
}

func body(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// What runs when the server ends may take a while, and is then cut off.
func TestProxyEndsWhatWasBegun(t *testing.T) {
	t.Parallel()
	for limit, isWhole := range map[time.Duration]bool{time.Minute: true, time.Millisecond: false} {
		begun, goOn := make(chan struct{}), make(chan struct{})
		p := startProxyUntil(t, limit, mwtest.New(t, proxying), httptestServer(t, func(w http.ResponseWriter, r *http.Request) {
			close(begun)
			select {
			case <-goOn:
			case <-r.Context().Done():
			}
			fmt.Fprint(w, "whole")
		}))
		got := make(chan string, 1)
		go func() {
			_, body, _ := p.tryRaw(t, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
			got <- body
		}()
		<-begun
		p.stop()
		if isWhole {
			close(goOn)
		}
		if text := <-got; (text == "whole") != isWhole {
			t.Errorf("%v: %q", limit, text)
		}
		if err := <-p.ended; err != nil || strings.Contains(p.log.String(), "cut off") == isWhole {
			t.Errorf("%v: %v\n%s", limit, err, p.log)
		}
	}
}

// What is wrong with flags is said in one run, and in their words.
func TestServeProxyReportsWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := writeFile(t, filepath.Join(dir, "config.json"), `{"publishers": ["www.example.com"]}`)
	self, used := servertest.FreeAddress(t), strings.TrimPrefix(httptestServer(t, http.NotFound), "http://")
	_, port, _ := strings.Cut(self, ":")
	const to = "--to=http://127.0.0.1:1"
	for _, test := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"--config", good}, exitUsage, []string{"needs --to"}},
		{[]string{to}, exitUsage, []string{"needs --config"}},
		{[]string{"--config", good + "x", to}, exitUsage, []string{"cannot be read"}},
		{[]string{"--config", good, "--to", "localhost:3000"}, exitUsage,
			[]string{"has no scheme; want http://localhost:3000 or https://localhost:3000"}},
		{[]string{"--config", good, "--to", "127.0.0.1:3000/a"}, exitUsage, []string{"has no scheme; want http://127.0.0.1:3000"}},
		{[]string{"--config", good, "--to", "http://a.example/api"}, exitUsage,
			[]string{"has more than a host: requests keep the path that they have; want http://a.example"}},
		{[]string{"--config", good, "--to", "ftp://a.example"}, exitUsage, []string{"not the URL of a backend"}},
		{[]string{"--config", good, "--to", ""}, exitUsage, []string{"not the URL of a backend"}},
		{[]string{"--config", good, "--to", "http://:3000"}, exitUsage, []string{"has no host"}},
		{[]string{"--config", good, "--to", "http://a.example:99999"}, exitUsage, []string{"no port from 1 to 65535"}},
		{[]string{"--config", good, "--to", "http://a.example:"}, exitUsage, []string{"no port from 1 to 65535"}},
		{[]string{"--config", good, "--to", ":3000"}, exitUsage, []string{"has no scheme and no host; want http://localhost:3000"}},
		{[]string{"--config", good, "--to", "3000"}, exitUsage, []string{"want http://localhost:3000"}},
		{[]string{"--config", good, "--to", "http://user:secret@a.example"}, exitUsage, []string{"a user or a password"}},
		{[]string{"--config", good, "--to", "unix:run/a"}, exitUsage, []string{"no path that begins with a slash"}},
		{[]string{"--config", good, to, "--to-ca", good}, exitUsage, []string{"has no certificate"}},
		{[]string{"--config", good, to, "--to-ca", good + "x", "--host", "a b", "--timeout", "-1s", "--upgrade", "h2c,HTTP/2.0,TLS/1.2"},
			exitUsage,
			[]string{"--to-ca: open", `--host "a b" is not a Host`, "--timeout -1s is negative", `--upgrade "h2c" carries HTTP requests`,
				`"HTTP/2.0"`, `"TLS/1.2"`}},
		{[]string{"--config", good, to, "--tls-key", good}, exitUsage, []string{"--tls-key needs --tls-cert"}},
		{[]string{"--config", good, to, "--tls-cert", good}, exitUsage, []string{"--tls-cert needs --tls-key"}},
		{[]string{"--config", good, to, "--tls-cert", good, "--tls-key", good}, exitUsage, []string{"--tls-cert and --tls-key: "}},
		{[]string{"--config", good, to, "--listen", "127.0.0.1:99999"}, exitUntested,
			[]string{"--listen 127.0.0.1:99999: ", "want a host and a port"}},
		{[]string{"--config", good, to, "--listen", "9000"}, exitUntested, []string{"--listen 9000: ", "want a host and a port"}},
		{[]string{"--config", good, to, "--listen", "127.0.0.1:0", "--metrics", used}, exitUntested,
			[]string{"--metrics " + used, "another program listens there"}},
		{[]string{"--config", good, "--to", "http://" + self, "--listen", self}, exitUsage,
			[]string{"is this proxy itself, by --listen; want the address of the backend"}},
		{[]string{"--config", good, "--to", "http://localhost:" + port, "--listen", ":" + port}, exitUsage, []string{"is this proxy itself"}},
	} {
		code, _, stderr := run(t, "", append([]string{"serve-proxy"}, test.args...)...)
		if code != test.code || slices.ContainsFunc(test.want, func(text string) bool { return !strings.Contains(stderr, text) }) ||
			strings.Contains(stderr, "secret") {
			t.Errorf("%q: exit code %d: %s", test.args, code, stderr)
		}
	}
}

// A backend that is down, or whose certificate is not known, is said at the start, and is no reason not to start.
func TestServeProxyStartsBeforeItsBackend(t *testing.T) {
	t.Parallel()
	file := writeFile(t, filepath.Join(t.TempDir(), "config.json"), `{"publishers": ["www.example.com"]}`)
	down := servertest.FreeAddress(t)
	encrypted := httptest.NewTLSServer(http.NotFoundHandler())
	defer encrypted.Close()
	encrypted.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	direct := serveWith(t, "serve-proxy", "--config", writeFile(t, file+"2", `{"publishers": ["www.example.com"], "reportOnly": true}`),
		"--to", "http://"+down, "--direct", "--listen", "[::1]:0")
	for _, want := range []string{"--direct is set without --tls-cert", "reportOnly is set: nothing is denied"} {
		if !strings.Contains(direct.log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, direct.log)
		}
	}
	for to, want := range map[string]string{"http://" + down: "connection refused", encrypted.URL: "--to-ca names the file",
		"https" + strings.TrimPrefix(httptestServer(t, http.NotFound), "http"): "does not speak TLS"} {
		s := serveWith(t, "serve-proxy", "--config", file, "--to", to)
		if log := s.log.String(); !strings.Contains(log, "the backend cannot be reached yet") || !strings.Contains(log, want) {
			t.Errorf("%s: the log has no %q:\n%s", to, want, log)
		}
		if resp, err := http.Get(s.url); err != nil || resp.StatusCode != http.StatusBadGateway {
			t.Errorf("%v, %v", resp, err)
		}
		s.stop()
		if code := <-s.code; code != exitClean {
			t.Errorf("exit code %d:\n%s", code, s.log)
		}
	}
}

// httptestServer returns the URL of a server without TLS.
func httptestServer(t *testing.T, handler http.HandlerFunc) string {
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL
}

// A loop through another server is ended at its first turn.
func TestProxyEndsALoop(t *testing.T) {
	t.Parallel()
	var front *proxied
	turns := 0
	p := startProxy(t, func(w http.ResponseWriter, r *http.Request) {
		turns++
		again, _ := http.NewRequest(r.Method, front.url, nil)
		again.Header = r.Header
		resp, err := http.DefaultTransport.RoundTrip(again)
		if err != nil {
			t.Error(err)
			return
		}
		w.WriteHeader(resp.StatusCode)
	})
	front = p
	resp, _ := p.ask(t, "GET", "/", "")
	if resp.StatusCode != http.StatusLoopDetected || turns != 1 || !strings.Contains(p.log.String(), "--to leads to this proxy again") {
		t.Errorf("%s after %d turns:\n%s", resp.Status, turns, p.log)
	}
}

// A pipeListener accepts connections within the process, so that time passes as synctest has it.
type pipeListener struct{ conns chan net.Conn }

func (l pipeListener) Accept() (net.Conn, error) {
	conn, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (l pipeListener) Close() error   { close(l.conns); return nil }
func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (l pipeListener) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	l.conns <- server
	return client, nil
}

// Clients that stop in the middle of a body, or that do not read, are cut off; what goes on slowly, and a response that
// pauses, are not.
func TestProxyCutsOffWhoDoesNotGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fronts, backends := pipeListener{make(chan net.Conn)}, pipeListener{make(chan net.Conn)}
		backend := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, _ := io.Copy(io.Discard, r.Body)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(3 * stallTimeout)
			fmt.Fprint(w, n, " bytes")
		})}
		p := newProxy(proxyConfig{to: backendURL{"http", "backend", "tcp"}}, mwtest.New(t, proxying), slog.New(slog.DiscardHandler))
		p.transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := backends.dial(ctx, network, addr)
			return &backendConn{Conn: patientConn{conn}}, err
		}
		server := p.server()
		var servers sync.WaitGroup
		servers.Go(func() { _ = backend.Serve(backends) })
		servers.Go(func() { _ = server.Serve(clientListener{fronts}) })

		// send writes pieces, with pauses of most of the time that there is, and returns the response.
		send := func(pieces ...string) (status int, body string, took time.Duration) {
			begun := time.Now()
			conn, _ := fronts.dial(t.Context(), "", "")
			defer conn.Close()
			go func() {
				for i, piece := range pieces {
					if i > 0 {
						time.Sleep(stallTimeout * 9 / 10)
					}
					_, _ = io.WriteString(conn, piece)
				}
			}()
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				return 0, err.Error(), time.Since(begun)
			}
			data, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Error(err)
			}
			return resp.StatusCode, string(data), time.Since(begun)
		}
		const post = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 10\r\n"
		if status, body, _ := send("GET /pause HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); status != 200 || body != "0 bytes" {
			t.Errorf("a response that pauses: %d %q", status, body)
		}
		if status, body, took := send(post+google+"\r\n\r\nab", "cd", "ef", "gh", "ij"); status != 200 || body != "10 bytes" ||
			took < 6*stallTimeout {
			t.Errorf("an upload that goes on slowly, and a response that pauses: %d %q after %v", status, body, took)
		}
		if status, _, took := send(post + google + "\r\n\r\nhalf"); status != http.StatusBadRequest || took > 2*stallTimeout {
			t.Errorf("half a body: %d after %v", status, took)
		}
		if status, body, took := send(strings.Replace(post, "Connection: close\r\n", "", 1) + evil + "\r\n\r\nhalf"); took > 2*stallTimeout ||
			status != http.StatusForbidden {
			t.Errorf("half a body of a denied request: %d %q after %v", status, body, took)
		}
		// A client that does not read.
		idle := pipeListener{make(chan net.Conn, 1)}
		_, _ = idle.dial(t.Context(), "", "")
		conn, _ := clientListener{idle}.Accept()
		begun := time.Now()
		if n, err := conn.Write(make([]byte, 10)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begun) != stallTimeout {
			t.Errorf("a client that does not read: %d, %v after %v", n, err, time.Since(begun))
		}

		time.Sleep(4 * stallTimeout) // the backend ends what it began
		server.Close()
		backend.Close()
		servers.Wait()
		p.transport.CloseIdleConnections()
	})
}

// The server can end its side of a connection, so that a client that still sends reads the response.
func TestProxyConnectionsCanBeClosedForWriting(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "unix"} {
		address := map[string]string{"tcp": "127.0.0.1:0", "unix": "unix:" + filepath.Join(t.TempDir(), "socket")}[network]
		listener, err := listen("--listen", address)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		client, err := net.Dial(network, listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server, err := clientListener{listener}.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		if err := server.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Error(err)
		}
		if n, err := client.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("%s: %d, %v", network, n, err)
		}
		if _, err := io.WriteString(client, "a"); err != nil {
			t.Error(err)
		}
		if n, err := server.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("%s: the server cannot read any more: %v", network, err)
		}
	}
}

// newLines is a log whose lines are read once.
type newLines struct {
	servertest.Buffer
	read int
}

func (l *newLines) take() string {
	text := l.String()[l.read:]
	l.read += len(text)
	return text
}

// A client that is gone is no failure of the backend, and the log says when a backend answers again.
func TestProxyLogsWhatIsTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(newLines)
		p := newProxy(proxyConfig{to: backendURL{"http", "backend", "tcp"}}, mwtest.New(t, proxying), slog.New(slog.NewTextHandler(log, nil)))
		request := func(ctx context.Context) *http.Request {
			return httptest.NewRequestWithContext(context.WithValue(ctx, exchangeKey{}, &exchange{header: make(http.Header)}), "GET", "/", nil)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		p.fail(httptest.NewRecorder(), request(gone), context.Canceled)
		if got := log.take(); got != "" {
			t.Errorf("a client that is gone: %s", got)
		}
		answer := func() { _ = p.accept(&http.Response{Request: request(t.Context()), Header: make(http.Header)}) }
		for range 3 {
			p.fail(httptest.NewRecorder(), request(t.Context()), io.EOF)
			answer()
		}
		if got := log.take(); strings.Count(got, "\n") != 1 || !strings.Contains(got, backendFails) {
			t.Errorf("a backend that answers now and then:\n%s", got)
		}
		time.Sleep(3 * failuresEvery)
		synctest.Wait()
		log.take()
		for range 3 {
			answer()
		}
		if got := log.take(); strings.Count(got, "the backend answers again") != 1 || strings.Count(got, "\n") != 1 {
			t.Errorf("a backend that answers again:\n%s", got)
		}
	})
}

// TestProxyUnderLoad mixes pages, forged requests, uploads, streams and a backend that fails. Each client gets its own
// response or none.
func TestProxyUnderLoad(t *testing.T) {
	t.Parallel()
	p := startProxy(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("X-Fail") != "" {
			fmt.Fprint(w, "half of ", r.URL.Query().Get("n"))
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("X-N", r.URL.Query().Get("n"))
		fmt.Fprint(w, r.URL.Query().Get("n"), " ", r.Header.Get(publisherHeader), " ", len(body))
	})
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	defer transport.CloseIdleConnections()
	rounds := 400
	if testing.Short() {
		rounds = 50
	}
	var clients sync.WaitGroup
	for c := range 16 {
		clients.Go(func() {
			for i := range rounds {
				n := fmt.Sprint(c, "-", i)
				body := bytes.Repeat([]byte("a"), i%5*10000)
				r, _ := http.NewRequest("POST", p.url+"/?n="+n, bytes.NewReader(body))
				isForged, fails := i%3 == 1, i%7 == 3
				r.Header.Set("Origin", map[bool]string{false: mwtest.CacheOrigin, true: mwtest.EvilOrigin}[isForged])
				if fails {
					r.Header.Set("X-Fail", "1")
				}
				resp, err := transport.RoundTrip(r)
				if err != nil {
					if !fails && !isForged { // a denied upload may be cut off
						t.Errorf("%s: %v", n, err)
					}
					continue
				}
				data, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				want := fmt.Sprint(n, " www.example.com ", len(body))
				switch {
				case isForged && resp.StatusCode != http.StatusForbidden, !isForged && !fails && (string(data) != want || resp.Header.Get("X-N") != n),
					fails && !isForged && err == nil && resp.StatusCode == http.StatusOK:
					t.Errorf("%s, forged %t, fails %t: %s %q, %v", n, isForged, fails, resp.Status, data, err)
				}
			}
		})
	}
	clients.Wait()
}

// Denials and failures are logged with their number, and never once for each request.
func TestTheLogOfManyRequestsIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(newLines)
		logger := slog.New(slog.NewTextHandler(log, nil))
		observe, failures := newDeniedLog(logger).observer(false), failureLog{log: logger}
		r := httptest.NewRequest("GET", "/"+strings.Repeat("a", 1000), nil)
		for range 100 {
			observe(r, ampcors.Decision{Reason: ampcors.ReasonNull})
			observe(r, ampcors.Decision{Allowed: true})
			failures.note("it fails", "because")
			failures.note("it fails in another way", "because")
		}
		if got := log.take(); strings.Count(got, "\n") != deniedPerSecond+2 || len(got) > 10000 {
			t.Errorf("%d lines:\n%s", strings.Count(got, "\n"), got)
		}
		log.take()
		time.Sleep(failuresEvery + time.Millisecond)
		synctest.Wait()
		if got := log.take(); strings.Count(got, "further_failures=99 in=10s") != 2 || strings.Count(got, "\n") != 2 {
			t.Errorf("after %v:\n%s", failuresEvery, got)
		}
		time.Sleep(2 * failuresEvery)
		synctest.Wait()
		log.take()
		observe(r, ampcors.Decision{Reason: ampcors.ReasonNull})
		failures.note("it fails", "because of something else")
		if got := log.take(); !strings.Contains(got, "not_logged_before=90") || !strings.Contains(got, `cause="because of something else"`) {
			t.Errorf("later:\n%s", got)
		}
		time.Sleep(2 * failuresEvery)
		synctest.Wait()
	})
}

// The headers that a page reads are the same whether the backend sets none, its own or others in any spelling.
func TestTheBackendCannotChangeTheHeaders(t *testing.T) {
	t.Parallel()
	want := []string{"Access-Control-Allow-Credentials", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers"}
	for _, status := range []int{200, 204, 302, 304, 404, 500} {
		p := startProxy(t, func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			for _, name := range []string{"Access-Control-Allow-Origin", "access-control-allow-origin", "ACCESS-CONTROL-ALLOW-METHODS",
				"Access-Control-Allow-Private-Network",
				"AMP-Access-Control-Allow-Source-Origin"} {
				h[name] = []string{"*", "https://evil.example"}
			}
			h["vary"] = []string{"Cookie", "Origin"}
			h.Set("Location", "/b")
			w.WriteHeader(status)
		})
		resp, _ := p.ask(t, "GET", "/", "", google)
		var got []string
		for name := range maps.Keys(resp.Header) {
			if strings.Contains(strings.ToLower(name), "access-control") {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) || resp.Header.Get("Access-Control-Allow-Origin") != mwtest.CacheOrigin ||
			!slices.Equal(resp.Header["Vary"], []string{"Origin, AMP-Email-Sender, Cookie"}) || resp.StatusCode != status {
			t.Errorf("%d: %v", status, resp.Header)
		}
	}
}
