// Package guard keeps handlers from undoing what ampcors wrote into the response headers.
//
//	http.ListenAndServe(addr, mw.Wrap(guard.Handler(api)))
//
// The Middleware does not wrap the ResponseWriter, so a handler behind it can change every
// header. What goes wrong then:
//
//   - A handler, or a proxy in it, that adds Access-Control-Allow-Origin sends two, which
//     browsers reject. One that sets it, to "*" for example, allows pages that are not
//     allowed.
//   - A handler that sets or deletes Vary lets a shared cache give one publisher's answer to
//     another. One that adds to Vary makes a second line of it, which nginx before 1.23 reads
//     alone. [http.TimeoutHandler] does the former to a handler that has a Vary of its own.
//
// It is opt-in, because it costs some allocations for each request. The wrapped
// ResponseWriter has exactly those of http.Flusher, http.Hijacker, io.ReaderFrom and
// http.Pusher that the server's has, and [http.ResponseController] works with it.
//
// It must not be used with Config.ReportOnly: it would remove the CORS headers of what
// protects the handler today.
package guard

import (
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/felixge/httpsnoop"

	"github.com/ampcors/ampcors/internal/header"
)

// Handler returns a handler that calls next, which cannot change the CORS headers or remove
// members of Vary: when the headers are sent, Vary has in one line all that it had before and
// what next added, and the CORS headers are those that were there before, and no others. It is
// put directly behind the Middleware.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g := guard{header: w.Header(), cors: make(http.Header)}
		for key, values := range g.header {
			if header.IsCORS(key) {
				g.cors[key] = slices.Clone(values)
			}
		}
		g.vary = slices.Collect(header.Members(g.header["Vary"]))
		defer g.restore() // of a handler that wrote nothing, or panicked
		next.ServeHTTP(httpsnoop.Wrap(flushable(w), httpsnoop.Hooks{
			WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
				return func(status int) {
					g.restore()
					g.written = g.written || status >= http.StatusOK || status == http.StatusSwitchingProtocols // and not 103
					next(status)
				}
			},
			Write: func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
				return func(b []byte) (int, error) {
					g.restoreOnce()
					return next(b)
				}
			},
			ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
				return func(src io.Reader) (int64, error) {
					g.restoreOnce()
					return next(src)
				}
			},
			Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
				return func() {
					g.restoreOnce()
					next()
				}
			},
		}), r)
	})
}

// flushable returns a ResponseWriter that has Flush if [http.ResponseController] could flush w:
// it would go round the guard if w had no Flush, but something to unwrap.
func flushable(w http.ResponseWriter) http.ResponseWriter {
	switch w.(type) {
	case http.Flusher:
	case interface{ FlushError() error }, interface{ Unwrap() http.ResponseWriter }:
		return flusher{w}
	}
	return w
}

type flusher struct{ http.ResponseWriter }

func (f flusher) Unwrap() http.ResponseWriter { return f.ResponseWriter }

func (f flusher) Flush() {
	_ = http.NewResponseController(f.ResponseWriter).Flush() // as with any Flusher, an error shows later
}

// A guard knows the headers of one response as they were before the handler ran.
type guard struct {
	header  http.Header
	cors    http.Header
	vary    []string
	written bool // the header has been sent: later headers are trailers
}

// restoreOnce is restore before what sends the header, unless that has been sent.
func (g *guard) restoreOnce() {
	g.restore()
	g.written = true
}

func (g *guard) restore() {
	if g.written {
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
	for key, values := range g.cors {
		g.header[key] = slices.Clone(values) // the handler may change what it gets
	}
	vary := slices.Clone(g.vary)
	for member := range header.Members(lines) {
		if !slices.ContainsFunc(vary, func(other string) bool { return strings.EqualFold(member, other) }) {
			vary = append(vary, member)
		}
	}
	if len(vary) > 0 {
		g.header["Vary"] = []string{strings.Join(vary, ", ")}
	}
}
