package main

import (
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/ampcors/ampcors/examples/frameworks/internal/stacktest"
)

// Incorrect: gin.WrapH around the middleware. It writes 403, but gin goes on to the next
// handler, which runs the forged request. The status hides that. Call Handle, and Abort if
// it returns false.
func Example_incorrectWrapH() {
	gin.SetMode(gin.ReleaseMode)
	mw := stacktest.Middleware()
	noop := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for _, glue := range []struct {
		name string
		gin.HandlerFunc
	}{{"WrapH", gin.WrapH(mw.Wrap(noop))}, {"Handle and Abort", cors(mw)}} {
		deleted := false
		r := gin.New()
		r.Use(glue.HandlerFunc)
		r.DELETE("/api/comments", func(*gin.Context) { deleted = true })
		fmt.Printf("%s: status %d, deleted: %t\n", glue.name, stacktest.Forge(r), deleted)
	}
	// Output:
	// WrapH: status 403, deleted: true
	// Handle and Abort: status 403, deleted: false
}

// Incorrect: a group without a route for OPTIONS. Its middleware runs only behind a route,
// so the preflight gets 404. Add such a route, or call Use on the engine.
func Example_incorrectGroup() {
	gin.SetMode(gin.ReleaseMode)
	mw := stacktest.Middleware()
	r := gin.New()
	r.Group("/api", cors(mw)).DELETE("/comments", func(*gin.Context) {})

	fmt.Println("group without OPTIONS:", stacktest.Preflight(r))
	fmt.Println("group with OPTIONS:", stacktest.Preflight(group(mw)))
	fmt.Println("engine:", stacktest.Preflight(global(mw)))
	// Output:
	// group without OPTIONS: status 404, nothing granted
	// group with OPTIONS: status 204, DELETE granted
	// engine: status 204, DELETE granted
}

// Incorrect: Use after a route. A route gets only the middleware that was added before it,
// so this route is not protected.
func Example_incorrectOrder() {
	gin.SetMode(gin.ReleaseMode)
	mw := stacktest.Middleware()
	deleted := false
	r := gin.New()
	r.DELETE("/api/comments", func(*gin.Context) { deleted = true })
	r.Use(cors(mw))
	fmt.Printf("status %d, deleted: %t\n", stacktest.Forge(r), deleted)
	// Output:
	// status 200, deleted: true
}

// Incorrect: a group that is made before Use. It keeps the middleware that the engine had then, so
// its routes are not protected, even those that are added later. Wrap the engine.
func Example_incorrectGroupBeforeUse() {
	gin.SetMode(gin.ReleaseMode)
	mw := stacktest.Middleware()
	for _, name := range []string{"Use", "Wrap"} {
		deleted := false
		r := gin.New()
		api := r.Group("/api")
		if name == "Use" {
			r.Use(cors(mw))
		}
		api.DELETE("/comments", func(*gin.Context) { deleted = true })
		var h http.Handler = r
		if name == "Wrap" {
			h = mw.Wrap(r)
		}
		fmt.Printf("%s: status %d, deleted: %t\n", name, stacktest.Forge(h), deleted)
	}
	// Output:
	// Use: status 200, deleted: true
	// Wrap: status 403, deleted: false
}

// Incorrect: redirects that add or remove a trailing slash. gin sends them before any
// middleware runs, so they have no CORS headers and the page's request fails. global and
// group turn them off.
func Example_incorrectRedirects() {
	gin.SetMode(gin.ReleaseMode)
	mw := stacktest.Middleware()
	r := gin.New()
	r.Use(cors(mw))
	r.GET("/api/comments", func(*gin.Context) {})
	status, acao := stacktest.Read(r, "/api/comments/")
	fmt.Printf("status %d, Access-Control-Allow-Origin %q\n", status, acao)
	status, acao = stacktest.Read(global(mw), "/api/comments/")
	fmt.Printf("status %d, Access-Control-Allow-Origin %q\n", status, acao)
	// Output:
	// status 301, Access-Control-Allow-Origin ""
	// status 404, Access-Control-Allow-Origin "https://www-example-com.cdn.ampproject.org"
}
