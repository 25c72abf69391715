package frameworks

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

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/labstack/echo/v5"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/ampcorstest"
)

var route = ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/api/comments"}

const cacheOrigin = "https://www-example-com.cdn.ampproject.org"

func newMiddleware(t testing.TB, observe func(*http.Request, ampcors.Decision)) *ampcors.Middleware {
	t.Helper()
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com", "news.example"}, Methods: []string{"PUT"}, Observe: observe})
	if err != nil {
		t.Fatal(err)
	}
	return mw
}

func newGin(handlers ...gin.HandlerFunc) *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.Use(handlers...)
	r.PUT(route.Path, func(c *gin.Context) { c.String(http.StatusOK, "changed") })
	return r
}

func newEcho(handlers ...echo.MiddlewareFunc) *echo.Echo {
	e := echo.New()
	e.Use(handlers...)
	e.PUT(route.Path, func(c *echo.Context) error { return c.String(http.StatusOK, "changed") })
	return e
}

func newFiber(handlers ...any) *fiber.App {
	app := fiber.New()
	for _, h := range handlers {
		app.Use(h)
	}
	app.Put(route.Path, func(c fiber.Ctx) error { return c.SendString("changed") })
	return app
}

func ok(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "changed") }

// TestStacks: each row is right.
func TestStacks(t *testing.T) {
	mw := newMiddleware(t, nil)
	mux := http.NewServeMux()
	mux.HandleFunc("PUT "+route.Path, ok)
	router := chi.NewRouter()
	router.Put(route.Path, ok)
	inside := chi.NewRouter()
	inside.Use(mw.Wrap)
	inside.Put(route.Path, ok)
	for name, h := range map[string]http.Handler{
		"net/http":       mw.Wrap(mux),
		"chi":            mw.Wrap(router),
		"chi's Use":      inside,
		"gin":            mw.Wrap(newGin()),
		"gin's Use":      newGin(Gin(mw)),
		"echo":           mw.Wrap(newEcho()),
		"echo's Use":     newEcho(Echo(mw)),
		"echo's adapter": newEcho(echo.WrapMiddleware(mw.Wrap)),
		"fiber's Use":    adaptor.FiberApp(newFiber(Fiber(mw))),
	} {
		if err := ampcorstest.Check(h, route); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWhatGoesWrong: each row is a mistake that ampcorstest finds.
func TestWhatGoesWrong(t *testing.T) {
	mw := newMiddleware(t, nil)
	mux := http.NewServeMux()
	mux.Handle("PUT "+route.Path, mw.Wrap(http.HandlerFunc(ok)))
	with := chi.NewRouter()
	with.With(mw.Wrap).Put(route.Path, ok)
	group := chi.NewRouter()
	group.Group(func(r chi.Router) {
		r.Use(mw.Wrap)
		r.Put(route.Path, ok)
	})
	ginGroup := gin.New()
	ginGroup.Group("/api", Gin(mw)).PUT("/comments", func(*gin.Context) {})
	lateGin := newGin()
	lateGin.Use(Gin(mw))
	onRoute := echo.New()
	onRoute.PUT(route.Path, func(c *echo.Context) error { return nil }, Echo(mw))
	lateFiber := newFiber()
	lateFiber.Use(Fiber(mw))
	for name, test := range map[string]struct {
		handler http.Handler
		want    string
	}{
		"net/http: behind a pattern with a method": {mux, "the preflight for PUT /api/comments from a page of www.example.com is answered with status 405"},
		"chi: With":           {with, "is answered with status 405"},
		"chi: Use in a Group": {group, "is answered with status 405"},
		"gin: a group without a route for OPTIONS":     {ginGroup, "is answered with status 404"},
		"gin: Use after the routes":                    {lateGin, "the route is not behind the Middleware"},
		"gin: WrapH, which does not abort":             {newGin(gin.WrapH(mw.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))), "the handler runs all the same"},
		"echo: on a route, so that echo answers first": {onRoute, "is answered with status 204 and no Access-Control-Allow-Origin"},
		"fiber: Use after the routes":                  {adaptor.FiberApp(lateFiber), "the route is not behind the Middleware"},
	} {
		if err := ampcorstest.Check(test.handler, route); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v; want %q", name, err, test.want)
		}
	}
}

// A redirect that a router sends before it calls ampcors has no CORS headers. Around the router it has.
func TestRedirectsOfARouter(t *testing.T) {
	mw := newMiddleware(t, nil)
	redirecting := func(handlers ...gin.HandlerFunc) *gin.Engine {
		r := newGin(handlers...)
		r.GET(route.Path, func(*gin.Context) {})
		return r
	}
	for want, h := range map[string]http.Handler{"": redirecting(Gin(mw)), cacheOrigin: mw.Wrap(redirecting())} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", route.Path+"/", nil)
		r.Header.Set("Origin", cacheOrigin)
		if h.ServeHTTP(w, r); w.Code != http.StatusMovedPermanently || w.Header().Get("Access-Control-Allow-Origin") != want {
			t.Errorf("%d %q; want 301 %q", w.Code, w.Header().Get("Access-Control-Allow-Origin"), want)
		}
	}
}

// With fiber's adaptor alone, ampcors sees only the last line of a header.
func TestFiberSeesSeveralLines(t *testing.T) {
	mw := newMiddleware(t, nil)
	for name, test := range map[string]struct {
		fiber.Handler
		status int
	}{"Fiber": {Fiber(mw), 403}, "adaptor.HTTPMiddleware": {adaptor.HTTPMiddleware(mw.Wrap), 200}} {
		for _, header := range []http.Header{
			{"Origin": {"https://evil.example", "https://news.example"}},
			{"Origin": {"https://evil.example"}, "Sec-Fetch-Site": {"cross-site", "same-origin"}},
			{"Amp-Same-Origin": {"false", "true"}},
		} {
			r := httptest.NewRequest("PUT", route.Path, nil)
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
	r := httptest.NewRequest("PUT", route.Path, nil)
	r.Header.Set("Origin", cacheOrigin)
	resp, err := newFiber(varies, Fiber(newMiddleware(t, nil))).Test(r, fiber.TestConfig{Timeout: time.Minute})
	if err != nil || !slices.Equal(resp.Header.Values("Vary"), []string{"Accept-Encoding, Origin"}) {
		t.Errorf("%+v, %v", resp, err)
	}
}

// fasthttp reuses the memory of a request's strings for the next request, so ampcors keeps none of them, and
// Observe must clone what it keeps. A handler of fiber's can stream.
func TestFiberReusesMemory(t *testing.T) {
	var kept, cloned []string
	mw := newMiddleware(t, func(_ *http.Request, d ampcors.Decision) {
		kept, cloned = append(kept, d.Origin), append(cloned, strings.Clone(d.Origin))
	})
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	app := newFiber(Fiber(mw))
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
	origins := []string{"https://news.example", "https://evil.example", cacheOrigin, "https://evil-example.cdn.ampproject.org"}
	for i := range 40 {
		origin := origins[i%len(origins)]
		fmt.Fprintf(conn, "GET /stream HTTP/1.1\r\nHost: api\r\nOrigin: %s\r\n\r\n", origin)
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		if isAllowed := i%2 == 0; (resp.Header.Get("Access-Control-Allow-Origin") == origin) != isAllowed || (string(body) == "0\n1\n2\n") != isAllowed {
			t.Fatalf("request %d, %s: %+v %q", i, origin, resp, body)
		}
	}
	if slices.Equal(kept, cloned) || cloned[0] != origins[0] {
		t.Error("this test shows nothing: the memory is not reused")
	}
}
