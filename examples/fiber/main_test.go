package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/examples/internal/routertest"
)

func TestTheProgramSaysWhosePageCalls(t *testing.T) {
	routertest.SaysWhosePageCalls(t, adaptor.FiberApp(newApp(routertest.Middleware(t, nil))))
	routertest.KeepsTenantsApart(t, adaptor.FiberApp(newApp(routertest.Middleware(t, nil))))
}

// TestWhatGoesWrong: ampcorstest finds each of these mistakes.
func TestWhatGoesWrong(t *testing.T) {
	mw := routertest.Middleware(t, nil)
	late := newFiber()
	late.Use(cors(mw))
	routertest.GoesWrong(t, "Use after the routes", adaptor.FiberApp(late), "the route is not behind the Middleware")
}

func newFiber(handlers ...any) *fiber.App {
	app := fiber.New()
	for _, h := range handlers {
		app.Use(h)
	}
	app.Put(routertest.Route.Path, func(c fiber.Ctx) error { return c.SendString("changed") })
	return app
}

// With fiber's adaptor alone, ampcors sees only the last line of a header.
func TestFiberSeesSeveralLines(t *testing.T) {
	mw := routertest.Middleware(t, nil)
	for name, test := range map[string]struct {
		fiber.Handler
		status int
	}{"cors": {cors(mw), 403}, "adaptor.HTTPMiddleware": {adaptor.HTTPMiddleware(mw.Wrap), 200}} {
		for _, header := range []http.Header{
			{"Origin": {"https://evil.example", "https://news.example"}},
			{"Origin": {"https://evil.example"}, "Sec-Fetch-Site": {"cross-site", "same-origin"}},
			{"Amp-Same-Origin": {"false", "true"}},
		} {
			r := httptest.NewRequest("PUT", routertest.Route.Path, nil)
			r.Header = header
			if resp, err := newFiber(test.Handler).Test(r, fiber.TestConfig{Timeout: time.Minute}); err != nil || resp.StatusCode != test.status {
				t.Errorf("%s, %v: %+v, %v; want %d", name, header, resp, err, test.status)
			}
		}
	}
}

// An earlier Vary is kept, in one line.
func TestFiberKeepsVary(t *testing.T) {
	varies := func(c fiber.Ctx) error {
		c.Vary("Accept-Encoding")
		return c.Next()
	}
	r := httptest.NewRequest("PUT", routertest.Route.Path, nil)
	r.Header.Set("Origin", routertest.CacheOrigin)
	resp, err := newFiber(varies, cors(routertest.Middleware(t, nil))).Test(r, fiber.TestConfig{Timeout: time.Minute})
	if err != nil || !slices.Equal(resp.Header.Values("Vary"), []string{"Accept-Encoding, Origin"}) {
		t.Errorf("%+v, %v", resp, err)
	}
}

// fasthttp reuses the memory of a request's strings for the next request, so ampcors keeps none of them, and
// Observe must clone what it keeps. A handler of fiber's can stream.
func TestFiberReusesMemory(t *testing.T) {
	var kept, cloned []string
	mw := routertest.Middleware(t, func(_ *http.Request, d ampcors.Decision) {
		kept, cloned = append(kept, d.Origin), append(cloned, strings.Clone(d.Origin))
	})
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	app := newFiber(cors(mw))
	app.Get("/stream", func(c fiber.Ctx) error {
		return c.SendStreamWriter(func(w *bufio.Writer) {
			for i := range 3 {
				fmt.Fprintln(w, i)
				_ = w.Flush()
			}
		})
	})
	go func() { _ = app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	origins := []string{"https://news.example", "https://evil.example", routertest.CacheOrigin, "https://evil-example.cdn.ampproject.org"}
	for i := range 40 {
		origin := origins[i%len(origins)]
		fmt.Fprintf(conn, "GET /stream HTTP/1.1\r\nHost: api\r\nOrigin: %s\r\n\r\n", origin)
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		if isAllowed := i%2 == 0; (resp.Header.Get("Access-Control-Allow-Origin") == origin) != isAllowed ||
			(string(body) == "0\n1\n2\n") != isAllowed {
			t.Fatalf("request %d, %s: %+v %q", i, origin, resp, body)
		}
	}
	if slices.Equal(kept, cloned) || cloned[0] != origins[0] {
		t.Error("this test shows nothing: the memory is not reused")
	}
}

// fiber merges the trailers of a chunked request into its headers, so that a client which is no browser can send Origin behind the body.
func TestFiberTakesTrailersForHeaders(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	app := newFiber(cors(routertest.Middleware(t, nil)))
	go func() { _ = app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }() // until Shutdown
	defer func() { _ = app.Shutdown() }()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: Origin\r\n\r\n1\r\na\r\n0\r\nOrigin: "+
		"https://www.example.com\r\n\r\n",
		routertest.Route.Path)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if origin := resp.Header.Get("Access-Control-Allow-Origin"); origin != "https://www.example.com" {
		t.Errorf("%s %q; The comment of main.go says that the trailer counts", resp.Status, origin)
	}
}
