package guard

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/internal/header"
	"github.com/ampcors/ampcors/internal/mwtest"
)

func middleware(t testing.TB) *ampcors.Middleware {
	t.Helper()
	return mwtest.New(t, ampcors.Config{Publishers: []string{"www.example.com"}, Credentialed: true, ResponseHeaders: []string{}})
}

// get sends a request to a real server, and returns its answer and the body.
func get(t testing.TB, h http.Handler, method, origin string) (*http.Response, string) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	r, err := http.NewRequest(method, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// decided returns the headers that the middleware decides.
func decided(h http.Header) http.Header {
	cors := make(http.Header)
	for key, values := range h {
		if key == "Vary" || strings.Contains(strings.ToLower(key), "-allow-") || strings.Contains(key, "-Expose-") {
			cors[key] = values
		}
	}
	return cors
}

func TestAHandlerCannotChangeTheDecidedHeaders(t *testing.T) {
	t.Parallel()
	granted := http.Header{"Vary": {"Outer, Origin, Accept"}, "Access-Control-Allow-Origin": {mwtest.CacheOrigin},
		"Access-Control-Allow-Credentials": {"true"}}
	plain := http.Header{"Vary": {"Outer, Origin, Accept"}}
	spoil := func(h http.Header) {
		h.Set("Vary", "Accept")
		h.Add("Vary", "origin")
		h["vary"] = []string{"Accept"}
		h.Add("Access-Control-Allow-Origin", "*")
		h["access-control-allow-origin"] = []string{"*"}
		h.Set("Access-Control-Allow-Credentials", "maybe")
		h.Set("Access-Control-Expose-Headers", "*")
		h.Set("AMP-Email-Allow-Sender", "evil@evil.example")
	}
	for name, handler := range map[string]http.HandlerFunc{
		"WriteHeader": func(w http.ResponseWriter, _ *http.Request) {
			spoil(w.Header())
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, "body")
		},
		"Write": func(w http.ResponseWriter, _ *http.Request) { spoil(w.Header()); fmt.Fprint(w, "body") },
		"Flush": func(w http.ResponseWriter, _ *http.Request) {
			spoil(w.Header())
			w.(http.Flusher).Flush()
			fmt.Fprint(w, "body")
		},
		"ResponseController": func(w http.ResponseWriter, _ *http.Request) {
			spoil(w.Header())
			_ = http.NewResponseController(w).Flush()
			fmt.Fprint(w, "body")
		},
		"ReadFrom": func(w http.ResponseWriter, _ *http.Request) {
			spoil(w.Header())
			_, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("body"))
		},
		"nothing written": func(w http.ResponseWriter, _ *http.Request) { spoil(w.Header()) },
		"after an early hint": func(w http.ResponseWriter, _ *http.Request) {
			spoil(w.Header())
			w.WriteHeader(103)
			spoil(w.Header())
			fmt.Fprint(w, "body")
		},
		"deleted": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Del("Vary")
			w.Header().Del("Access-Control-Allow-Origin")
			w.Header().Set("Vary", "Accept")
			fmt.Fprint(w, "body")
		},
		"in a timeout handler": http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			spoil(w.Header())
			fmt.Fprint(w, "body")
		}),
			time.Minute, "").ServeHTTP,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			guarded := middleware(t).Wrap(Handler(handler))
			outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Vary", "Outer")
				guarded.ServeHTTP(w, r)
			})
			for origin, want := range map[string]http.Header{mwtest.CacheOrigin: granted, "": plain} {
				t.Run(origin, func(t *testing.T) {
					resp, body := get(t, outer, "GET", origin)
					if got := decided(resp.Header); !reflect.DeepEqual(got, want) {
						t.Errorf("Origin %q: %v; want %v", origin, got, want)
					}
					if name != "nothing written" && body != "body" || (resp.StatusCode == http.StatusTeapot) != (name == "WriteHeader") {
						t.Errorf("Origin %q: status %d, body %q", origin, resp.StatusCode, body)
					}
				})
			}
			if resp, _ := get(t, outer, "GET", mwtest.EvilOrigin); resp.StatusCode != 403 {
				t.Errorf("another publisher: status %d", resp.StatusCode)
			}
		})
	}
}

// A proxy that merges trailers into the headers would give pages another answer. Other trailers are kept.
func TestCORSHeadersAreNoTrailers(t *testing.T) {
	t.Parallel()
	h := middleware(t).Wrap(Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Late")
		fmt.Fprint(w, "body")
		w.Header().Set("X-Late", "8")
		if err := http.NewResponseController(w).Flush(); err != nil { // so that there can be trailers
			t.Error(err)
		}
		w.Header().Set(http.TrailerPrefix+"access-control-allow-origin", "https://evil.example")
		w.Header().Set(http.TrailerPrefix+"X-Sum", "7")
	})))
	server := httptest.NewServer(h)
	defer server.Close()
	resp, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || len(resp.Trailer) != 2 || resp.Trailer.Get("X-Sum") != "7" ||
		resp.Trailer.Get("X-Late") != "8" {
		t.Errorf("%v, %v", resp.Trailer, err)
	}
}

func TestHijackingWorks(t *testing.T) {
	t.Parallel()
	for name, hijack := range map[string]func(http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error){
		"Hijacker": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) { return w.(http.Hijacker).Hijack() },
		"ResponseController": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			return http.NewResponseController(w).Hijack()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, body := get(t, middleware(t).Wrap(Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := hijack(w)
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhijacked")
			}))), "GET", mwtest.CacheOrigin)
			if body != "hijacked" {
				t.Errorf("%q", body)
			}
		})
	}
}

// What an http.ResponseController can do with the server's writer, it can do with a guarded one, and no more.
func TestAResponseControllerWorks(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*http.ResponseController) error{
		"SetReadDeadline":  func(c *http.ResponseController) error { return c.SetReadDeadline(time.Now().Add(time.Hour)) },
		"SetWriteDeadline": func(c *http.ResponseController) error { return c.SetWriteDeadline(time.Now().Add(time.Hour)) },
		"EnableFullDuplex": func(c *http.ResponseController) error { return c.EnableFullDuplex() },
		"Flush":            func(c *http.ResponseController) error { return c.Flush() },
		"Hijack": func(c *http.ResponseController) error {
			conn, _, err := c.Hijack()
			if err == nil {
				fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
				err = conn.Close()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, isUnwrapped := range []bool{false, true} {
				get(t, Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if isUnwrapped {
						w = onlyUnwraps{w}
					}
					if err := do(http.NewResponseController(w)); err != nil {
						t.Error(err)
					}
				})), "GET", mwtest.CacheOrigin)
			}
			Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := do(http.NewResponseController(w)); !errors.Is(err, http.ErrNotSupported) {
					t.Errorf("%v", err)
				}
			})).ServeHTTP(struct{ http.ResponseWriter }{httptest.NewRecorder()}, httptest.NewRequest("GET", "/", nil))
		})
	}
}

// An outer handler's ResponseWriter may have no Flush, but unwrap to one that has it.
type onlyUnwraps struct{ http.ResponseWriter }

func (w onlyUnwraps) Unwrap() http.ResponseWriter { return w.ResponseWriter }

type onlyFlushError struct{ http.ResponseWriter }

func (w onlyFlushError) FlushError() error {
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Each single change of the headers is undone, whether or not there were CORS headers and Vary.
func TestEachChangeIsUndone(t *testing.T) {
	t.Parallel()
	const acao, expose = "Access-Control-Allow-Origin", "Access-Control-Expose-Headers"
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com"}}) // so that there are two CORS headers
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(h http.Header){
		"nothing":                          func(http.Header) {},
		"Vary is deleted":                  func(h http.Header) { delete(h, "Vary") },
		"Vary is empty":                    func(h http.Header) { h["Vary"] = []string{} },
		"Vary has an empty line":           func(h http.Header) { h["Vary"] = []string{""} },
		"Vary is another":                  func(h http.Header) { h["Vary"] = []string{"Accept"} },
		"Vary has another line":            func(h http.Header) { h["Vary"] = []string{"Origin", "Accept"} },
		"Vary has the same line twice":     func(h http.Header) { h["Vary"] = []string{"Origin", "Origin"} },
		"Vary is in another spelling":      func(h http.Header) { delete(h, "Vary"); h["vary"] = []string{"Origin"} },
		"Vary is in two spellings":         func(h http.Header) { h["VARY"] = []string{"Accept"} },
		"an origin is deleted":             func(h http.Header) { delete(h, acao) },
		"an origin is empty":               func(h http.Header) { h[acao] = nil },
		"an origin is another":             func(h http.Header) { h[acao] = []string{"*"} },
		"an origin has another line":       func(h http.Header) { h.Add(acao, "*") },
		"an origin is in another spelling": func(h http.Header) { h["access-control-allow-origin"] = h[acao]; delete(h, acao) },
		"an origin is in two spellings":    func(h http.Header) { h["access-control-allow-origin"] = []string{"*"} },
		"one is replaced by another":       func(h http.Header) { delete(h, expose); h["Access-Control-Max-Age"] = []string{"1"} },
		"two change places":                func(h http.Header) { h[acao], h[expose] = h[expose], h[acao] },
		"one is added":                     func(h http.Header) { h["Amp-Email-Allow-Sender"] = []string{"*"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, request := range [][2]string{{"GET", mwtest.CacheOrigin}, {"GET", ""}, {"OPTIONS", ""}} {
				resp, _ := get(t, mw.Wrap(Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					change(w.Header())
					fmt.Fprint(w, "body")
				}))), request[0], request[1])
				want := http.Header{}
				if request[1] != "" {
					want = http.Header{acao: {mwtest.CacheOrigin}, expose: {"AMP-Redirect-To"}}
				}
				got := http.Header{}
				for key, values := range resp.Header {
					if header.IsCORS(key) {
						got[key] = values
					}
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %v; want %v", request, got, want)
				}
				vary := resp.Header["Vary"]
				if isOptions := request[0] == "OPTIONS"; len(vary) > 1 || slices.Contains(vary, "") || !isOptions &&
					(len(vary) != 1 || strings.Count(vary[0], "Origin") != 1) {
					t.Errorf("%s: Vary is %q", request, vary)
				}
			}
		})
	}
}

// A handler finds what the server's ResponseWriter can do, and nothing else.
func TestAHandlerFindsWhatTheServerCanDo(t *testing.T) {
	t.Parallel()
	type plain struct{ http.ResponseWriter }
	for name, w := range map[string]http.ResponseWriter{
		"": plain{},
		"Hijacker": struct {
			plain
			http.Hijacker
		}{},
		"Flusher": struct {
			plain
			http.Flusher
		}{},
		"Flusher Hijacker": struct {
			plain
			http.Flusher
			http.Hijacker
		}{},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := new(guard).wrap(w)
			var has []string
			if _, ok := got.(http.Flusher); ok {
				has = append(has, "Flusher")
			}
			if _, ok := got.(http.Hijacker); ok {
				has = append(has, "Hijacker")
			}
			if _, ok := got.(http.Pusher); ok {
				has = append(has, "Pusher")
			}
			if strings.Join(has, " ") != name {
				t.Errorf("it implements %q", has)
			}
		})
	}
}

// lateReader sets headers when it is read for the first time.
type lateReader struct {
	io.Reader
	first func()
}

func (r *lateReader) Read(p []byte) (int, error) {
	if r.first != nil {
		r.first()
		r.first = nil
	}
	return r.Reader.Read(p)
}

// A bufferingWriter sends the headers once it has 1 KiB, as handlers that compress do.
type bufferingWriter struct {
	http.ResponseWriter
	buffered []byte
	isSent   bool
}

func (w *bufferingWriter) WriteHeader(int) {}

func (w *bufferingWriter) Write(b []byte) (int, error) {
	w.buffered = append(w.buffered, b...)
	if len(w.buffered) > 1024 || w.isSent {
		w.isSent = true
		_, _ = w.ResponseWriter.Write(w.buffered)
		w.buffered = nil
	}
	return len(b), nil
}

// Headers are sent later than the first call of a ResponseWriter's method: with the first byte of
// a body, or when an outer writer passes it on.
func TestHeadersThatAreSentLateAreTheDecidedOnes(t *testing.T) {
	t.Parallel()
	spoil := func(w http.ResponseWriter) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Vary", "Accept")
	}
	same := func(h http.Handler) http.Handler { return h }
	in := func(wrap func(http.ResponseWriter) http.ResponseWriter) func(http.Handler) http.Handler {
		return func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(wrap(w), r) })
		}
	}
	flush := func(w http.ResponseWriter, _ *http.Request) {
		spoil(w)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	}
	for name, test := range map[string]struct {
		outer   func(http.Handler) http.Handler
		handler http.HandlerFunc
	}{
		"flushed, by a writer that only unwraps": {in(func(w http.ResponseWriter) http.ResponseWriter { return onlyUnwraps{w} }), flush},
		"written by what Unwrap returns": {same, func(w http.ResponseWriter, _ *http.Request) {
			w = w.(interface{ Unwrap() http.ResponseWriter }).Unwrap()
			spoil(w)
			w.WriteHeader(http.StatusTeapot)
			_, _ = w.Write([]byte("x"))
		}},
		"unwrapped as far as it goes": {same, func(w http.ResponseWriter, _ *http.Request) {
			for unwrapper, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok; unwrapper, ok = w.(interface{ Unwrap() http.ResponseWriter }) {
				w = unwrapper.Unwrap()
			}
			spoil(w)
			_, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader("x")})
		}},
		"flushed, by a writer that has only FlushError": {
			in(func(w http.ResponseWriter) http.ResponseWriter { return onlyFlushError{w} }), flush,
		},
		"a value is overwritten in place after a 1xx": {same, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.Header()["Access-Control-Allow-Origin"][0] = "*"
			fmt.Fprint(w, "body")
		}},
		"an outer TimeoutHandler sends them when the handler has returned": {
			func(h http.Handler) http.Handler { return http.TimeoutHandler(h, time.Minute, "") },
			func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "x")
				spoil(w)
			},
		},
		"the handler panics": {
			func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer func() {
						if recover() != nil {
							http.Error(w, "a defect", http.StatusInternalServerError)
						}
					}()
					h.ServeHTTP(w, r)
				})
			},
			func(w http.ResponseWriter, _ *http.Request) {
				spoil(w)
				panic("a defect")
			},
		},
		"an empty body is copied": {same, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader("")})
			spoil(w)
			http.Error(w, "no body", http.StatusBadGateway)
		}},
		"the body that is copied sets headers": {same, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, &lateReader{strings.NewReader("a body"), func() { spoil(w) }})
		}},
		"a flush that is not supported": {
			in(func(w http.ResponseWriter) http.ResponseWriter { return onlyUnwraps{struct{ http.ResponseWriter }{w}} }),
			func(w http.ResponseWriter, _ *http.Request) {
				if err := http.NewResponseController(w).Flush(); err == nil {
					t.Error("it is supported")
				}
				spoil(w)
				_, _ = w.Write([]byte("x"))
			},
		},
		"an outer writer keeps the beginning, and the body that is copied sets headers": {
			in(func(w http.ResponseWriter) http.ResponseWriter { return &bufferingWriter{ResponseWriter: w} }),
			func(w http.ResponseWriter, _ *http.Request) {
				half := strings.Repeat("x", 600)
				_, _ = io.Copy(w, io.MultiReader(strings.NewReader(half), &lateReader{strings.NewReader(half), func() { spoil(w) }}))
			},
		},
		"an outer writer keeps the status": {
			in(func(w http.ResponseWriter) http.ResponseWriter { return &bufferingWriter{ResponseWriter: w} }),
			func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusOK)
				spoil(w)
				_, _ = w.Write(make([]byte, 4000))
			},
		},
		"an outer writer keeps the beginning": {
			in(func(w http.ResponseWriter) http.ResponseWriter { return &bufferingWriter{ResponseWriter: w} }),
			func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte("x"))
				spoil(w)
				_, _ = w.Write(make([]byte, 4000))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp, _ := get(t, test.outer(middleware(t).Wrap(Handler(test.handler))), "GET", mwtest.CacheOrigin)
			if resp.Header.Get("Access-Control-Allow-Origin") != mwtest.CacheOrigin || !strings.HasPrefix(resp.Header.Get("Vary"), "Origin") {
				t.Errorf("%v", resp.Header)
			}
		})
	}
}

// A body of any length arrives whole.
func TestABodyIsCopiedWhole(t *testing.T) {
	t.Parallel()
	for _, length := range []int{0, 1, 511, 512, 513, 100_000} {
		want := strings.Repeat("x", length)
		_, body := get(t, middleware(t).Wrap(Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if n, err := io.Copy(w, struct{ io.Reader }{strings.NewReader(want)}); n != int64(length) || err != nil {
				t.Errorf("%d of %d bytes, %v", n, length, err)
			}
		}))), "GET", mwtest.CacheOrigin)
		if body != want {
			t.Errorf("%d of %d bytes arrive", len(body), length)
		}
	}
}
