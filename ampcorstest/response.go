package ampcorstest

import (
	"compress/gzip"
	"compress/zlib"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	"github.com/ampcors/ampcors"
)

// newRequest returns a request as a browser sends it from a page at an origin, or without Origin.
func (c *checker) newRequest(method, target, origin string) *http.Request {
	var body io.Reader
	if method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions && c.route.Body != "" {
		body = strings.NewReader(c.route.Body)
	}
	r := httptest.NewRequest(method, target, body)
	c.origins = append(c.origins, origin)
	r.Header.Set("Accept", "*/*")
	r.Header.Set("Accept-Encoding", "gzip, deflate") // what response can decode
	r.Header.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 "+
		"Safari/537.36")
	if origin != "" {
		r.Header.Set("Origin", origin)
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Sec-Fetch-Mode", "cors")
		r.Header.Set("Sec-Fetch-Dest", "empty")
	}
	return r
}

// A response is what a browser gets.
type response struct {
	status   int
	header   http.Header
	body     string // decoded
	panicked any    // what the handler panicked with, or nil
}

// A recorder records a response, and cancels its request once it was flushed, as a page that has seen the beginning
// of a stream.
type recorder struct {
	*httptest.ResponseRecorder
	cancel func()
}

func (r recorder) Flush() {
	r.ResponseRecorder.Flush()
	r.cancel()
}

// send sends a request through the handler. A panic ends the request, as in net/http's server.
func (c *checker) send(r *http.Request) *response {
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	rec, w := recorder{httptest.NewRecorder(), cancel}, new(response)
	func() {
		defer func() { w.panicked = recover() }()
		c.h.ServeHTTP(rec, r.WithContext(ctx))
	}()
	c.sent++
	if w.panicked != nil {
		return w
	}
	result := rec.Result()
	if w.status, w.header = result.StatusCode, result.Header; w.status == http.StatusTooManyRequests && c.limited == 0 {
		c.limited = c.sent
	}
	body, err := decode(result)
	if err != nil {
		body = fmt.Appendf(nil, "a body that cannot be decoded: %v", err)
	}
	w.body = string(body)
	return w
}

func decode(resp *http.Response) ([]byte, error) {
	var body io.Reader = resp.Body
	var err error
	switch strings.ToLower(resp.Header.Get("Content-Encoding")) {
	case "gzip":
		body, err = gzip.NewReader(body)
	case "deflate":
		body, err = zlib.NewReader(body)
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(body)
}

func (w *response) String() string {
	if w.panicked != nil {
		return fmt.Sprintf("a panic: %v", w.panicked)
	}
	values := w.header.Values("Access-Control-Allow-Origin")
	if len(values) == 0 {
		return fmt.Sprintf("status %d and no Access-Control-Allow-Origin", w.status)
	}
	return fmt.Sprintf("status %d and Access-Control-Allow-Origin %q", w.status, values)
}

// isRefused reports whether the response is a denial, or another error of the request that a page cannot read.
func (w *response) isRefused() bool {
	return 400 <= w.status && w.status < 500 && len(w.header.Values("Access-Control-Allow-Origin")) == 0
}

// isDenied reports whether the response is a denial of a Middleware, or of something else that a page cannot read.
func (w *response) isDenied() bool {
	return w.status == http.StatusForbidden && len(w.header.Values("Access-Control-Allow-Origin")) == 0
}

// denial returns why a Middleware has denied a request, or "" if the response is no denial of a Middleware.
func (w *response) denial() string {
	line, _, _ := strings.Cut(w.body, "\n")
	text, isDenial := strings.CutPrefix(line, http.StatusText(w.status)+": ")
	word := text[:strings.IndexAny(text+";", ";:")]
	for r := ampcors.Reason(1); isDenial && r.String() != ampcors.Reason(0).String(); r++ {
		if word == r.String() && !r.Allowed() {
			return text
		}
	}
	// What Config.Denied writes can be anything, but the Middleware has set these headers before.
	vary := strings.Join(w.header.Values("Vary"), ", ")
	if w.isDenied() && w.header.Get("Cache-Control") == "no-store" &&
		strings.HasSuffix(vary, "Origin, Access-Control-Request-Method, Access-Control-Request-Headers") {
		return fmt.Sprintf("Config.Denied wrote %.80q, and Config.Observe gets the reason", w.body)
	}
	return ""
}

// hasOnlyDenial reports whether the body is what a Middleware writes, and no more. Config.Denied may write anything
// but what the handler does.
func (w *response) hasOnlyDenial(own *response) bool {
	if own != nil && own.status < 300 && own.body != "" && strings.HasSuffix(w.body, own.body) {
		return false
	}
	line, rest, _ := strings.Cut(w.body, "\n")
	return rest == "" || !slices.ContainsFunc(allDenials,
		func(prefix string) bool { return strings.HasPrefix(line, prefix) })
}

var allDenials = func() (prefixes []string) {
	for r := ampcors.Reason(1); r.String() != ampcors.Reason(0).String(); r++ {
		if !r.Allowed() {
			prefixes = append(prefixes, http.StatusText(http.StatusForbidden)+": "+r.String())
		}
	}
	return prefixes
}()
