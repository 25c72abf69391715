package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/guard"
)

// The headers that only the proxy sends to the backend. What a client sends in any header whose name begins with
// Ampcors is removed: like CGI, a backend may not tell Ampcors_Publisher from Ampcors-Publisher.
const (
	publisherHeader = "Ampcors-Publisher"    // whose page calls, if that is known
	senderHeader    = "Ampcors-Email-Sender" // of an AMP for Email request
	proxyHeader     = "Ampcors-Proxy"        // which proxy has sent the request, so that it is recognized if it comes back
)

// The limits of connections, besides --timeout.
const (
	connectTimeout    = 5 * time.Second // to connect to the backend, and for TLS
	backendIdle       = 1500 * time.Millisecond
	maxIdle           = 256      // connections to the backend that are kept
	maxRequestHeader  = 64 << 10 // bytes
	maxResponseHeader = 64 << 10 // bytes
	copyBuffer        = 4 << 10  // bytes, of each response that is on its way
)

// stallTimeout is how long the proxy waits for the next byte of a body from the client, and until either side takes the
// next bytes. How long a response pauses is up to the backend.
const stallTimeout = time.Minute

type proxyConfig struct {
	to       backendURL
	roots    *x509.CertPool // nil for the system's
	host     string         // "" for the client's
	timeout  time.Duration  // until the backend's response begins; 0 for none
	isDirect bool           // no proxy is in front
	upgrades []string       // protocols
}

// A proxy decides on requests, and passes on to a backend those that are allowed.
type proxy struct {
	proxyConfig
	mw        *ampcors.Middleware
	log       *slog.Logger
	transport *http.Transport
	failures  failureLog
	isDown    atomic.Bool  // the backend did not answer, and has not answered since
	forward   http.Handler // to the backend
	guarded   http.Handler // the same, and the backend cannot change the CORS headers
	id        string       // the value of proxyHeader
}

func newProxy(cfg proxyConfig, mw *ampcors.Middleware, logger *slog.Logger) *proxy {
	p := &proxy{proxyConfig: cfg, mw: mw, log: logger, failures: failureLog{log: logger}, id: rand.Text()}
	p.transport = &http.Transport{
		DialContext:            p.dial,
		TLSClientConfig:        &tls.Config{RootCAs: cfg.roots},
		TLSHandshakeTimeout:    connectTimeout,
		ResponseHeaderTimeout:  cfg.timeout,
		MaxResponseHeaderBytes: maxResponseHeader,
		MaxIdleConnsPerHost:    maxIdle,
		// Shorter than backends keep connections (gunicorn 2 s; Node.js and Apache 5 s), so that no request is sent on
		// one that is being closed.
		IdleConnTimeout: backendIdle,
		ReadBufferSize:  2 << 10, WriteBufferSize: 2 << 10,
		DisableCompression: true, // what the client accepts counts
		ForceAttemptHTTP2:  true, // in TLS
		HTTP2:              &http.HTTP2Config{SendPingTimeout: 15 * time.Second},
	}
	p.forward = &httputil.ReverseProxy{
		Rewrite:       p.rewrite,
		Transport:     p.transport,
		FlushInterval: 10 * time.Millisecond, // of a response with a length; others are passed on at once
		BufferPool:    &bufferPool{},
		ErrorHandler:  p.fail,
		ModifyResponse: func(*http.Response) error {
			if p.isDown.Load() && !p.failures.isRecent(backendFails) && p.isDown.CompareAndSwap(true, false) {
				p.log.Info("ampcors: the backend answers again")
			}
			return nil
		},
		ErrorLog: log.New(backendErrors{p}, "", 0),
	}
	p.guarded = guard.Handler(p.forward)
	return p
}

// server returns the server for clients.
func (p *proxy) server() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: p, Protocols: protocols, MaxHeaderBytes: maxRequestHeader, ErrorLog: log.New(clientErrors{p}, "", 0),
		// Bodies and responses may take any time, as long as they go on: see stallTimeout.
		ReadHeaderTimeout: readTimeout, IdleTimeout: idleTimeout, ReadTimeout: 0, WriteTimeout: 0,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
}

func (p *proxy) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: connectTimeout}
	conn, err := dialer.DialContext(ctx, p.to.network, p.to.dialAddress())
	if err != nil {
		return nil, err
	}
	return patientConn{conn}, nil
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodConnect: // a tunnel, in which nothing would be decided
		refuse(w, http.StatusMethodNotAllowed, "CONNECT is not answered here")
		return
	case r.URL.Opaque != "":
		refuse(w, http.StatusBadRequest, "the URL has no path")
		return
	case slices.Contains(r.Header[proxyHeader], p.id):
		p.failures.note("a request came back from the backend: --to leads to this proxy again", p.to.String())
		refuse(w, http.StatusLoopDetected, "the backend sends requests back to this proxy")
		return
	}
	ctx := r.Context()
	if r.ContentLength != 0 {
		body := &requestBody{ReadCloser: r.Body, trailer: r.Trailer, client: http.NewResponseController(w)}
		defer body.end()
		body.setDeadline(time.Now().Add(stallTimeout)) // also if the request is denied: the server then reads the beginning
		r.Body = body
		ctx = context.WithValue(ctx, bodyKey{}, body)
	}
	d, proceed := p.mw.Handle(w, r)
	if !proceed {
		return
	}
	if upgrade := r.Header["Upgrade"]; upgrade != nil && !p.mayUpgrade(upgrade) {
		delete(r.Header, "Upgrade") // the backend gets an ordinary request (RFC 9110 section 7.8)
	}
	if !r.ProtoAtLeast(1, 1) {
		defer resetIfBroken(ctx)
	}
	next := p.guarded
	if !d.Allowed { // with reportOnly, the backend's own CORS headers must stay
		next = p.forward
	}
	next.ServeHTTP(w, r.WithContext(ampcors.ContextWithDecision(ctx, d)))
}

type connKey struct{}

// resetIfBroken is deferred for a request of HTTP/1.0, where a response without a length ends with the connection. If the
// backend breaks off, the connection is reset, so that the client, which may be a cache, does not take it for whole.
func resetIfBroken(ctx context.Context) {
	broken := recover() // ReverseProxy panics with http.ErrAbortHandler
	if broken == nil {
		return
	}
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	if client, ok := conn.(patientConn); ok {
		if tcp, ok := client.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // it fails only if the connection is closed
		}
	}
	panic(broken)
}

// mayUpgrade reports whether a connection may be upgraded to what the lines of Upgrade ask for. In HTTP within it (h2c,
// TLS), nothing would be decided.
func (p *proxy) mayUpgrade(lines []string) bool {
	isAsked := func(name string) bool { return strings.EqualFold(name, lines[0]) }
	return len(lines) == 1 && slices.ContainsFunc(p.upgrades, isAsked)
}

// rewrite makes the backend's request. ReverseProxy has removed the headers that belong to one connection.
func (p *proxy) rewrite(pr *httputil.ProxyRequest) {
	in, out := pr.In, pr.Out
	out.URL = &url.URL{Scheme: p.to.scheme, Host: p.to.host(), Path: in.URL.Path, RawPath: in.URL.RawPath,
		RawQuery: in.URL.RawQuery, ForceQuery: in.URL.ForceQuery} // ReverseProxy drops what it cannot parse
	if p.host != "" {
		out.Host = p.host
	}
	out.Trailer = in.Trailer // which the server completes at the end of the body

	removeOurs(out.Header)
	removeOurs(out.Trailer)
	p.setForwarded(in, out)
	d, _ := ampcors.DecisionFromContext(in.Context())
	out.Header[proxyHeader] = []string{p.id}
	if d.Publisher != "" {
		out.Header[publisherHeader] = []string{d.Publisher}
	}
	if d.Allowed && d.EmailSender != "" { // with reportOnly, another sender is only a claim
		out.Header[senderHeader] = []string{d.EmailSender}
	}
}

// removeOurs removes the headers or trailers of a client that the backend may take for those of the proxy.
func removeOurs(h http.Header) {
	for key := range h {
		if strings.HasPrefix(spelled(key), "ampcors-") {
			delete(h, key)
		}
	}
}

// setForwarded sets what the backend learns of the client, which the proxy in front may know better.
func (p *proxy) setForwarded(in, out *http.Request) {
	if p.isDirect {
		for key := range out.Header {
			if name := spelled(key); name == "forwarded" || name == "x-real-ip" || strings.HasPrefix(name, "x-forwarded-") {
				delete(out.Header, key)
			}
		}
	}
	scheme := "http"
	if in.TLS != nil {
		scheme = "https"
	}
	for name, own := range map[string]string{"X-Forwarded-Host": in.Host, "X-Forwarded-Proto": scheme} {
		if out.Header[name] = in.Header[name]; p.isDirect || out.Header[name] == nil {
			out.Header[name] = []string{own}
		}
	}
	var addresses []string
	if !p.isDirect {
		addresses = in.Header["X-Forwarded-For"]
		if lines := in.Header["Forwarded"]; lines != nil {
			out.Header["Forwarded"] = lines
		}
	}
	if client, _, err := net.SplitHostPort(in.RemoteAddr); err == nil { // a Unix socket has none
		addresses = append(slices.Clip(addresses), client)
	}
	if len(addresses) > 0 {
		out.Header["X-Forwarded-For"] = []string{strings.Join(addresses, ", ")}
	}
}

// spelled returns the name of a header in lower case, with a hyphen for each character that is no letter and no digit:
// servers that make variables of names cannot tell those apart.
func spelled(name string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case 'A' <= c && c <= 'Z':
			return c + 'a' - 'A'
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			return c
		}
		return '-'
	}, name)
}

// backendFails is a kind of failures.
const backendFails = "the backend does not answer; responses are 502"

// fail answers a request that the backend has not answered.
func (p *proxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	if body, ok := r.Context().Value(bodyKey{}).(*requestBody); ok && body.failed() {
		refuse(w, http.StatusBadRequest, "the body of the request is not complete")
		return
	}
	if r.Context().Err() != nil { // the client is gone
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	p.isDown.Store(true)
	p.failures.note(backendFails, p.causeOf(err))
	refuse(w, http.StatusBadGateway, "the backend does not answer")
}

// refuse answers a request that is not passed on, or that the backend has not answered. If the request is allowed, its
// CORS headers are already set, so that the page can read why.
func refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, http.StatusText(status)+": "+why, status)
}

// causeOf returns an error about the backend in the words of the flags.
func (p *proxy) causeOf(err error) string {
	text := err.Error()
	unknown, host := x509.UnknownAuthorityError{}, x509.HostnameError{}
	switch {
	case errors.As(err, &unknown):
		return text + "; --to-ca names the file of the certificates that sign the backend's"
	case errors.As(err, &host):
		return text + "; want the host of --to as the certificate has it"
	case strings.Contains(text, "timeout awaiting response headers"):
		return "no response has begun within --timeout " + p.timeout.String()
	case strings.Contains(text, "server response headers exceeded"):
		return "the response has more than 64 KiB of headers"
	case strings.Contains(text, "server gave HTTP response to HTTPS client"),
		strings.Contains(text, "does not look like a TLS handshake"):
		return "the backend does not speak TLS; want http:// in --to"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		strings.Contains(text, "server closed idle connection"):
		return "the backend closed the connection without a response"
	}
	return text
}

// backendErrors takes what ReverseProxy logs: a response that broke off.
type backendErrors struct{ *proxy }

func (e backendErrors) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	text = strings.TrimPrefix(text, "httputil: ReverseProxy read error during body copy: ")
	e.failures.note("a response of the backend broke off, and so did the client's", text)
	return len(line), nil
}

// clientErrors takes what the server logs: connections that fail, such as TLS handshakes.
type clientErrors struct{ *proxy }

func (e clientErrors) Write(line []byte) (int, error) {
	e.failures.note("a connection of a client failed", strings.TrimSpace(string(line)))
	return len(line), nil
}

type bodyKey struct{}

// A requestBody is the body of a request, which has to go on, and whose trailers are no headers of the proxy.
type requestBody struct {
	io.ReadCloser
	trailer http.Header // complete at the end of the body

	mu     sync.Mutex
	client *http.ResponseController // nil when the handler has returned: it must not be used any more
	err    error                    // of the client
}

func (b *requestBody) Read(p []byte) (int, error) {
	b.setDeadline(time.Now().Add(stallTimeout))
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		b.setDeadline(time.Time{}) // the server waits for the end of the connection from now on
		removeOurs(b.trailer)
	case err != nil:
		b.mu.Lock()
		defer b.mu.Unlock()
		b.err = err
	}
	return n, err
}

func (b *requestBody) setDeadline(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.client != nil {
		_ = b.client.SetReadDeadline(t) // supported by the server's own ResponseWriter
	}
}

func (b *requestBody) failed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err != nil
}

// end is called when the handler returns.
func (b *requestBody) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.client = nil
}

// A bufferPool is a httputil.BufferPool.
type bufferPool struct{ pool sync.Pool }

func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[copyBuffer]byte); ok {
		return b[:]
	}
	return make([]byte, copyBuffer)
}

func (p *bufferPool) Put(b []byte) { p.pool.Put((*[copyBuffer]byte)(b)) }
