package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A clientListener accepts the connections of clients.
type clientListener struct{ net.Listener }

func (l clientListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return patientConn{conn}, nil
}

// A patientConn waits for stallTimeout at most until the other side takes something.
type patientConn struct{ net.Conn }

func (c patientConn) Write(b []byte) (int, error) {
	_ = c.Conn.SetWriteDeadline(time.Now().Add(stallTimeout)) // if it is closed, Write fails
	return c.Conn.Write(b)
}

// CloseWrite lets the server end a connection so that a client that still sends can read the response.
func (c patientConn) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok { // of TCP, or of a Unix socket
		return conn.CloseWrite()
	}
	return c.Conn.Close()
}

func (p *proxy) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: connectTimeout}
	conn, err := dialer.DialContext(ctx, p.to.network, p.to.dialAddress())
	if err != nil {
		return nil, err
	}
	return &backendConn{Conn: patientConn{conn}}, nil
}

func (p *proxy) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := p.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	host, _, _ := net.SplitHostPort(p.to.dialAddress())
	config := &tls.Config{ServerName: host, RootCAs: p.roots, NextProtos: []string{"http/1.1"}}
	encrypted := tls.Client(conn.(*backendConn).Conn, config)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return &backendConn{Conn: encrypted}, nil
}

// A backendConn is a connection to the backend. A request is written to it only while the transport waits for bytes:
// otherwise it still has some, which would be taken for the response.
type backendConn struct {
	net.Conn
	written atomic.Int64 // bytes
	begins  atomic.Bool  // the next Write is the beginning of a request

	mu        sync.Mutex
	isReading bool
	isBroken  bool
	waits     chan struct{} // closed when a Read begins, or the connection is broken; nil if nobody waits
}

// The longest times that a Write waits.
const (
	untilQuiet   = time.Second            // for what is left of the response before it, which takes microseconds
	lateResponse = 200 * time.Millisecond // so that a response is read that the backend sent before it stopped to read
)

func (c *backendConn) Read(b []byte) (int, error) {
	c.note(true, false)
	n, err := c.Conn.Read(b)
	c.note(false, err != nil)
	return n, err
}

// Close ends the wait of a Write.
func (c *backendConn) Close() error {
	c.note(false, true)
	return c.Conn.Close()
}

// CloseWrite passes on that the client of an upgraded connection sends no more.
func (c *backendConn) CloseWrite() error {
	return c.Conn.(interface{ CloseWrite() error }).CloseWrite() // of a patientConn or of TLS
}

func (c *backendConn) note(isReading, isBroken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isReading, c.isBroken = isReading, c.isBroken || isBroken
	if c.waits != nil && (isReading || isBroken) {
		close(c.waits)
		c.waits = nil
	}
}

func (c *backendConn) Write(b []byte) (int, error) {
	if c.begins.CompareAndSwap(true, false) && !c.isQuiet() {
		return 0, errors.New("the connection is not in order")
	}
	c.written.Add(int64(len(b))) // before the response can come
	n, err := c.Conn.Write(b)
	if err != nil {
		time.Sleep(lateResponse)
	}
	return n, err
}

// isQuiet waits until the transport reads, and reports whether it does.
func (c *backendConn) isQuiet() bool {
	c.mu.Lock()
	if c.isReading || c.isBroken {
		defer c.mu.Unlock()
		return !c.isBroken
	}
	waits := make(chan struct{})
	c.waits = waits
	c.mu.Unlock()
	timer := time.NewTimer(untilQuiet)
	defer timer.Stop()
	select {
	case <-waits:
	case <-timer.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isReading && !c.isBroken
}

// A clientWriter is for what the server's ResponseWriter does not do: with HTTP/2, a client whose flow control allows
// nothing is cut off after stallTimeout; and HTTP/1.0 knows no 1xx (RFC 9110 section 15.2).
type clientWriter struct {
	http.ResponseWriter
	client  *http.ResponseController
	isHTTP1 bool
}

func (w *clientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *clientWriter) WriteHeader(status int) {
	if !w.isHTTP1 || status >= 200 {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *clientWriter) Write(b []byte) (int, error) {
	defer w.limit()()
	return w.ResponseWriter.Write(b)
}

func (w *clientWriter) FlushError() error {
	defer w.limit()()
	return w.client.Flush()
}

// limit sets a deadline, and returns what removes it: the deadline of an HTTP/2 stream ends it also while nothing is
// written.
func (w *clientWriter) limit() (remove func()) {
	if w.isHTTP1 { // a patientConn does it
		return func() {}
	}
	_ = w.client.SetWriteDeadline(time.Now().Add(stallTimeout)) // supported by the server's own ResponseWriter
	return func() { _ = w.client.SetWriteDeadline(time.Time{}) }
}

// end limits what the server writes after the handler.
func (w *clientWriter) end() { w.limit() }
