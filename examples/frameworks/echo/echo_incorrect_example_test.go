package main

import (
	"fmt"

	"github.com/labstack/echo/v5"

	"github.com/ampcors/ampcors/examples/frameworks/internal/stacktest"
)

// Incorrect: middleware on a route. echo answers the preflight itself, with 204 but without
// CORS headers, so the browser does not send the actual request. Use the middleware on the
// Echo or on a group.
func Example_incorrectRouteMiddleware() {
	mw := stacktest.Middleware()
	e := echo.New()
	e.DELETE("/api/comments", func(c *echo.Context) error { return nil }, cors(mw))

	fmt.Println("route:", stacktest.Preflight(e))
	fmt.Println("group:", stacktest.Preflight(group(mw)))
	// Output:
	// route: status 204, nothing granted
	// group: status 204, DELETE granted
}
