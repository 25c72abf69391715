// Package guard prevents handlers from changing the response headers that ampcors wrote.
//
//	http.ListenAndServe(addr, mw.Wrap(guard.Handler(api)))
//
// The Middleware does not wrap the ResponseWriter, so a handler behind it can change every
// header. These are common mistakes:
//
//   - A handler, or a proxy in it, adds Access-Control-Allow-Origin. The response then has
//     two, which browsers reject. If it sets the header, for example to "*", pages get
//     access that should be denied.
//   - A handler sets or deletes Vary. A shared cache can then give one publisher's response
//     to another. [http.TimeoutHandler] replaces Vary if the handler in it sets one.
//   - A handler adds a second Vary line. nginx before 1.23 reads only that line.
//   - A [net/http/httputil.ReverseProxy] clears all headers after a 1xx response of its backend, such
//     as 103 Early Hints, and adds the backend's headers.
//   - A middleware that compresses deletes Vary, as github.com/gin-contrib/gzip 1.2.5 does with status 400 or more.
//     If the router has it, put the whole router behind guard: mw.WrapDecision(guard.Handler(router)).
//
// What a handler writes to a hijacked connection is not guarded: for a WebSocket, ReverseProxy sends a 101 with all
// headers of its backend. There, browsers check no CORS headers; only the server checks Origin, as the Middleware
// does.
//
// It is a package of its own, because it costs some allocations for each request. The ResponseWriter that
// handlers get implements http.Flusher and http.Hijacker if the server's own does, and
// [http.ResponseController] works with it. It does not implement http.Pusher.
//
// It must not be used with Config.ReportOnly: it would remove the CORS headers of the
// middleware that protects the handler today.
package guard

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ampcors/ampcors/internal/header"
)

// Handler returns a handler that calls next. next cannot change the CORS headers or remove
// members of Vary. When the headers are sent, the CORS headers are exactly those that were
// set before next ran, and Vary is one line with its earlier members and those that next
// added. Put the handler directly behind the Middleware.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g := guard{header: w.Header()}
		g.cors = g.room[:0]
		for key, values := range g.header {
			if header.IsCORS(key) {
				g.cors = append(g.cors, field{key, slices.Clone(values)})
			}
		}
		g.vary = strings.Join(g.header["Vary"], ", ")
		// In case next wrote nothing, or panicked. And an outer ResponseWriter may keep the
		// headers until next has returned, as that of http.TimeoutHandler does.
		defer func() {
			g.restore()
			for key := range g.header {
				if name, ok := strings.CutPrefix(key, http.TrailerPrefix); ok && header.IsCORS(name) {
					delete(g.header, key)
				}
			}
		}()
		next.ServeHTTP(g.wrap(w), r)
	})
}

// wrap returns a ResponseWriter that restores the headers before w sends them. Handlers look for
// Flush and Hijack, so it has them only if w does.
func (g *guard) wrap(w http.ResponseWriter) http.ResponseWriter {
	guarded := writer{w, g}
	hijacker, canHijack := w.(http.Hijacker)
	switch flushes := canFlush(w); {
	case flushes && canHijack:
		return struct {
			flusher
			http.Hijacker
		}{flusher{guarded}, hijacker}
	case flushes:
		return flusher{guarded}
	case canHijack:
		return struct {
			writer
			http.Hijacker
		}{guarded, hijacker}
	}
	return guarded
}

// canFlush reports whether [http.ResponseController] may be able to flush w. It would unwrap a
// writer without Flush, and so bypass the guard.
func canFlush(w http.ResponseWriter) bool {
	switch w.(type) {
	case http.Flusher, interface{ FlushError() error }, interface{ Unwrap() http.ResponseWriter }:
		return true
	}
	return false
}

type writer struct {
	http.ResponseWriter
	guard *guard
}

// Unwrap is for [http.ResponseController]. The server's own writer would send what the handler changed.
func (w writer) Unwrap() http.ResponseWriter {
	return unwrapped{struct{ http.ResponseWriter }{w}, http.NewResponseController(w.ResponseWriter)}
}

// An unwrapped is a writer that is guarded too, with the methods of the server's that send no headers.
type unwrapped struct {
	http.ResponseWriter
	server *http.ResponseController
}

func (u unwrapped) SetReadDeadline(deadline time.Time) error {
	return u.server.SetReadDeadline(deadline)
}
func (u unwrapped) SetWriteDeadline(deadline time.Time) error {
	return u.server.SetWriteDeadline(deadline)
}
func (u unwrapped) EnableFullDuplex() error { return u.server.EnableFullDuplex() }
func (u unwrapped) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return u.server.Hijack()
}

func (w writer) WriteHeader(status int) {
	w.guard.restore()
	w.ResponseWriter.WriteHeader(status)
}

// Write restores the headers each time, because an outer writer may send them late.
func (w writer) Write(b []byte) (int, error) {
	w.guard.restore()
	return w.ResponseWriter.Write(b)
}

// ReadFrom copies 512 bytes through Write, so that the headers are restored first. The server's own
// ReadFrom sends the headers after its first read of src, and src may change them, or be empty.
func (w writer) ReadFrom(src io.Reader) (int64, error) {
	const beginning = 512
	n, err := io.Copy(struct{ io.Writer }{w}, io.LimitReader(src, beginning))
	if err != nil || n < beginning {
		return n, err
	}
	var rest io.Writer = struct{ io.Writer }{w} // of a handler that compresses, for example, and still keeps the headers
	if _, ok := w.ResponseWriter.(io.ReaderFrom); ok {
		rest = w.ResponseWriter // the server's, which has sent them
	}
	more, err := io.Copy(rest, src)
	return n + more, err
}

type flusher struct{ writer }

func (w flusher) Flush() { _ = w.FlushError() } // as with any Flusher, an error shows later

func (w flusher) FlushError() error {
	w.guard.restore()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// A guard knows the headers of one response as they were before the handler ran.
type guard struct {
	header http.Header
	cors   []field
	room   [8]field // for cors
	vary   string   // its members, in one line; those that the handler added too, once restored
}

type field struct {
	key    string
	values []string
}

func (g *guard) restore() {
	if g.isIntact() {
		return
	}
	var lines []string
	for key, values := range g.header {
		switch {
		case strings.EqualFold(key, "Vary"):
			lines = append(lines, values...)
			delete(g.header, key)
		case header.IsCORS(key):
			delete(g.header, key)
		}
	}
	for _, f := range g.cors {
		g.header[f.key] = slices.Clone(f.values) // the handler may change what it gets
	}
	vary := slices.Collect(header.Members([]string{g.vary}))
	for member := range header.Members(lines) {
		if !slices.ContainsFunc(vary, func(other string) bool { return strings.EqualFold(member, other) }) {
			vary = append(vary, member)
		}
	}
	if g.vary = strings.Join(vary, ", "); g.vary != "" {
		g.header["Vary"] = []string{g.vary}
	}
}

// isIntact reports whether the headers are as restore would make them. Most handlers change
// none of them.
func (g *guard) isIntact() bool {
	cors, hasVary := 0, false
	for key, values := range g.header {
		switch {
		case strings.EqualFold(key, "Vary"):
			if key != "Vary" || len(values) != 1 || values[0] != g.vary {
				return false
			}
			hasVary = true
		case header.IsCORS(key):
			isSame := func(f field) bool { return f.key == key && slices.Equal(f.values, values) }
			if !slices.ContainsFunc(g.cors, isSame) {
				return false
			}
			cors++
		}
	}
	return cors == len(g.cors) && hasVary == (g.vary != "")
}
