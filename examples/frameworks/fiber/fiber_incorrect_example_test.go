package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/examples/frameworks/internal/api"
	"github.com/ampcors/ampcors/examples/frameworks/internal/stacktest"
)

// Incorrect: keeping a Decision's Origin after the request. fasthttp reuses its memory for
// the next request, whose Origin then overwrites it. Clone it.
func Example_incorrectKeepingAnOrigin() {
	var kept, cloned []string
	cfg := api.Config()
	cfg.Observe = func(r *http.Request, d ampcors.Decision) {
		kept = append(kept, d.Origin)
		cloned = append(cloned, strings.Clone(d.Origin))
	}
	mw, err := ampcors.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()
	go func() { _ = global(mw).Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()

	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	for _, origin := range []string{"https://news.example", "https://evil.example"} {
		fmt.Fprintf(conn, "GET /api/comments HTTP/1.1\r\nHost: api\r\nOrigin: %s\r\n\r\n", origin)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	fmt.Println("kept:", kept)
	fmt.Println("cloned:", cloned)
	// Output:
	// kept: [https://evil.example https://evil.example]
	// cloned: [https://news.example https://evil.example]
}

// Incorrect: adaptor.HTTPMiddleware. If a header has several lines, ampcors sees only the
// last. A page in a browser cannot exploit that, but a proxy may send several lines. The
// adaptor also removes the others from fiber's request.
func Example_incorrectHTTPMiddleware() {
	mw := stacktest.Middleware()
	for _, glue := range []struct {
		name string
		fiber.Handler
	}{{"HTTPMiddleware", adaptor.HTTPMiddleware(mw.Wrap)}, {"Handle", cors(mw)}} {
		app := fiber.New()
		app.Use(glue.Handler)
		app.Get("/", func(c fiber.Ctx) error {
			fmt.Printf("%s: %q\n", glue.name, c.Request().Header.PeekAll("X-Forwarded-For"))
			return nil
		})
		for _, header := range []http.Header{
			{"X-Forwarded-For": {"192.0.2.1", "198.51.100.2"}},
			{"Origin": {"https://evil.example", "https://news.example"}},
		} {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header = header
			resp, err := app.Test(r)
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Printf("%s: status %d\n", glue.name, resp.StatusCode)
		}
	}
	// Output:
	// HTTPMiddleware: ["198.51.100.2" "198.51.100.2"]
	// HTTPMiddleware: status 200
	// HTTPMiddleware: []
	// HTTPMiddleware: status 200
	// Handle: ["192.0.2.1" "198.51.100.2"]
	// Handle: status 200
	// Handle: status 403
}
