package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/guard"
)

// The headers that only the proxy sends to the backend. What a client sends in any header whose name begins with
// Ampcors- or Ampcors_ is removed: like CGI, a backend may not tell Ampcors_Publisher from Ampcors-Publisher.
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
		DialTLSContext:         p.dialTLS, // HTTP/1.1, in which connections can be upgraded
		ResponseHeaderTimeout:  cfg.timeout,
		MaxResponseHeaderBytes: maxResponseHeader,
		MaxIdleConnsPerHost:    maxIdle,
		// Shorter than backends keep connections (gunicorn 2 s; Node.js and Apache 5 s), so that no request is sent on
		// one that is being closed.
		IdleConnTimeout: backendIdle,
		ReadBufferSize:  2 << 10, WriteBufferSize: 2 << 10,
		DisableCompression: true, // what the client accepts counts
	}
	p.forward = &httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		Transport:      p.transport,
		FlushInterval:  10 * time.Millisecond, // of a response with a length; others are passed on at once
		BufferPool:     &bufferPool{},
		ModifyResponse: p.accept,
		ErrorHandler:   p.fail,
		ErrorLog:       log.New(backendErrors{p}, "", 0),
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

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := &exchange{client: http.NewResponseController(w), isHTTP1: r.ProtoMajor == 1, header: w.Header()}
	if r.ContentLength != 0 {
		e.body = &requestBody{ReadCloser: r.Body, atEnd: func() { p.removeForged(r.Trailer) }, client: e.client}
		defer e.body.end()
		e.body.setDeadline(time.Now().Add(stallTimeout)) // also if the request is denied: the server reads the beginning
	}
	if status, why := p.problem(r); status != 0 {
		e.endWithoutRest()
		refuse(w, status, why)
		return
	}
	awaitsContinue := httpguts.HeaderValuesContainsToken(r.Header["Expect"], "100-continue") && e.body != nil &&
		e.isHTTP1 && r.ProtoAtLeast(1, 1)
	d, proceed := p.mw.Handle(w, r)
	if !proceed {
		return
	}
	if awaitsContinue {
		sendContinue(w)
	}
	p.keepConnection(r)
	ctx := context.WithValue(ampcors.ContextWithDecision(r.Context(), d), exchangeKey{}, e)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: e.gotConn, GotFirstResponseByte: e.gotResponse})
	if !r.ProtoAtLeast(1, 1) {
		defer resetIfBroken(ctx)
	}
	if !e.isHTTP1 || !r.ProtoAtLeast(1, 1) {
		writer := &clientWriter{w, e.client, e.isHTTP1}
		defer writer.end()
		w = writer
	}
	next := p.guarded
	if !d.Allowed { // with reportOnly, the backend's own CORS headers must stay
		next = p.forward
	}
	r = r.WithContext(ctx)
	if e.body != nil {
		r.Body = e.body // of the copy: by its own Body, the server knows whether the next request can be read
	}
	next.ServeHTTP(w, r)
}

// sendContinue sends 100 Continue, without headers. If the server did so when the body is read, a 1xx of the backend
// could be written at the same time.
func sendContinue(w http.ResponseWriter) {
	headers := maps.Clone(w.Header())
	clear(w.Header())
	w.WriteHeader(http.StatusContinue)
	maps.Copy(w.Header(), headers)
}

// problem returns the status for a request that no backend should get, and why; or 0.
func (p *proxy) problem(r *http.Request) (status int, why string) {
	isNoQuery := func(c rune) bool { return c <= ' ' || c == 0x7f } // HTTP/2 carries it
	isNoTrailer := func(name string) bool {
		return !httpguts.ValidTrailerHeader(name) || !httpguts.ValidHeaderFieldName(name)
	}
	switch {
	case r.Method == http.MethodConnect: // a tunnel, in which nothing would be decided
		return http.StatusMethodNotAllowed, "CONNECT is not answered here"
	case r.URL.Opaque != "":
		return http.StatusBadRequest, "the URL has no path"
	case strings.ContainsFunc(r.URL.RawQuery, isNoQuery):
		return http.StatusBadRequest, "the query has a space or a control character"
	case !httpguts.ValidHostHeader(r.Host):
		return http.StatusBadRequest, "the host is not valid"
	case slices.ContainsFunc(slices.Collect(maps.Keys(r.Trailer)), isNoTrailer):
		return http.StatusBadRequest, "the name of a trailer is not valid"
	case slices.Contains(r.Header[proxyHeader], p.id):
		p.failures.note("a request came back from the backend: --to leads to this proxy again", p.to.String())
		return http.StatusLoopDetected, "the backend sends requests back to this proxy"
	}
	return 0, ""
}

type connKey struct{}

// resetIfBroken is deferred for a request of HTTP/1.0, where a response without a length ends with the connection. If
// the backend breaks off, the connection is reset, so that the client, which may be a cache, does not take the response
// for whole.
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

// keepConnection leaves in Connection what upgrades it, if that is allowed. Otherwise the backend gets an ordinary
// request (RFC 9110 section 7.8). In HTTP within an upgraded connection (h2c, TLS), nothing would be decided. Other
// names in Connection have no effect: a client could remove headers that the proxy in front has set.
func (p *proxy) keepConnection(r *http.Request) {
	h, upgrade := r.Header, r.Header["Upgrade"]
	isUpgrade := r.ProtoAtLeast(1, 1) && len(upgrade) == 1 &&
		httpguts.HeaderValuesContainsToken(h["Connection"], "Upgrade")
	isAsked := func(name string) bool { return strings.EqualFold(name, upgrade[0]) }
	if isUpgrade && slices.ContainsFunc(p.upgrades, isAsked) {
		h["Connection"] = []string{"Upgrade"}
		return
	}
	for _, name := range []string{"Connection", "Upgrade", "Http2-Settings"} {
		delete(h, name)
	}
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

	p.removeForged(out.Header)
	p.removeForged(out.Trailer)
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

// removeForged removes the headers or trailers that only this proxy may set and, if no proxy is in front, those
// that one would set.
func (p *proxy) removeForged(h http.Header) {
	for key := range h {
		name := spelled(key)
		isForwarding := name == "forwarded" || name == "x-real-ip" || strings.HasPrefix(name, "x-forwarded-")
		if strings.HasPrefix(name, "ampcors-") || p.isDirect && isForwarding {
			delete(h, key)
		}
	}
}

// setForwarded sets what the backend learns of the client, which the proxy in front may know better.
func (p *proxy) setForwarded(in, out *http.Request) {
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

// accept accepts a response of the backend.
func (p *proxy) accept(resp *http.Response) error {
	e := resp.Request.Context().Value(exchangeKey{}).(*exchange)
	if e.isUnsolicited.Load() {
		e.backend.Close()
		return errUnsolicited
	}
	if p.isDown.Load() && !p.failures.isRecent(backendFails) && p.isDown.CompareAndSwap(true, false) {
		p.log.Info("ampcors: the backend answers again")
	}
	e.endWithoutRest()
	if resp.Header["Content-Type"] == nil {
		e.header["Content-Type"] = nil // otherwise the server guesses one
	}
	if resp.StatusCode == http.StatusSwitchingProtocols { // the guard does not see it
		maps.DeleteFunc(resp.Header, func(key string, _ []string) bool { return strings.HasPrefix(key, "Access-Control-") })
	}
	return nil
}

var errUnsolicited = errors.New("it sent more than one response to an earlier request")

// fail answers a request that the backend has not answered.
func (p *proxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	if strings.HasPrefix(err.Error(), "response ") { // of ReverseProxy: the upgraded connection to the client broke
		return
	}
	e := r.Context().Value(exchangeKey{}).(*exchange)
	if e.body != nil && e.body.failed() {
		refuse(w, http.StatusBadRequest, "the body of the request is not complete")
		return
	}
	if r.Context().Err() != nil { // the client is gone
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	e.endWithoutRest()
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

// maxForeign is how many bytes of an error are logged: it may have what the other side sent.
const maxForeign = 300

// causeOf returns an error about the backend in the words of the flags.
func (p *proxy) causeOf(err error) string {
	text := cut(err.Error(), maxForeign)
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
	case strings.Contains(text, "does not look like a TLS handshake"):
		return "the backend does not speak TLS; want http:// in --to"
	case strings.Contains(text, "non-writable body"):
		return "the backend upgraded a connection, and the request did not ask for it"
	case errors.Is(err, syscall.EMFILE):
		return text + "; it is the limit of this proxy (ulimit -n), not of the backend"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		strings.Contains(text, "server closed idle connection"):
		if p.to.scheme == "http" {
			return "the backend closed the connection without a response; if it speaks TLS, want https:// in --to"
		}
		return "the backend closed the connection without a response"
	}
	return text
}

// backendErrors takes what ReverseProxy logs: a response that broke off.
type backendErrors struct{ *proxy }

func (e backendErrors) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	text = strings.TrimPrefix(text, "httputil: ReverseProxy read error during body copy: ")
	e.failures.note("a response of the backend broke off, and so did the client's", cut(text, maxForeign))
	return len(line), nil
}

// clientErrors takes what the server logs: connections that fail, such as TLS handshakes.
type clientErrors struct{ *proxy }

func (e clientErrors) Write(line []byte) (int, error) {
	e.failures.note("a connection of a client failed", cut(strings.TrimSpace(string(line)), maxForeign))
	return len(line), nil
}

// unsolicited takes what the transport logs by the global logger: a connection that had bytes when no request was on
// it. They may be a response's, and private.
type unsolicited struct{ *proxy }

func (u unsolicited) Write(line []byte) (int, error) {
	if !bytes.HasPrefix(line, []byte("Unsolicited response")) { // what else net/http has to say
		u.log.Warn("ampcors: " + strings.TrimSpace(string(line)))
		return len(line), nil
	}
	u.failures.note("the backend sent more than its response; the connection was closed", "bytes on an idle connection")
	return len(line), nil
}

type exchangeKey struct{}

// An exchange is one request and its response.
type exchange struct {
	client        *http.ResponseController
	isHTTP1       bool
	header        http.Header  // of the response
	body          *requestBody // nil if there is none
	backend       *backendConn // set by gotConn, if the connection had a request before
	written       int64        // to it, before this request
	isUnsolicited atomic.Bool  // the response began before the request was written: it belongs to an earlier one
}

// endWithoutRest lets the server of HTTP/1 end the connection after the response, if the request has not been read to
// its end. Otherwise it would read the rest first, and a client that waits for the response may not send it.
func (e *exchange) endWithoutRest() {
	if e.body != nil && e.isHTTP1 && !e.body.isWhole() {
		e.header["Connection"] = []string{"close"}
	}
}

func (e *exchange) gotConn(info httptrace.GotConnInfo) {
	e.backend = nil
	if conn, ok := info.Conn.(*backendConn); ok && info.Reused {
		e.backend, e.written = conn, conn.written.Load()
		conn.begins.Store(true)
	}
}

func (e *exchange) gotResponse() {
	if e.backend != nil && e.backend.written.Load() == e.written {
		e.isUnsolicited.Store(true)
	}
}

// A requestBody is the body of a request, which has to go on.
type requestBody struct {
	io.ReadCloser
	atEnd func() // is called when all of it is read, and the trailers are there

	mu     sync.Mutex
	client *http.ResponseController // nil when the handler has returned: it must not be used any more
	err    error                    // of the client; io.EOF at the end
}

func (b *requestBody) Read(p []byte) (int, error) {
	b.setDeadline(time.Now().Add(stallTimeout))
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.setDeadline(time.Time{}) // the server waits for the end of the connection from now on
		b.atEnd()
	}
	if err != nil {
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
	return b.err != nil && b.err != io.EOF
}

// isWhole reports whether all of the body was read.
func (b *requestBody) isWhole() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err == io.EOF
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
