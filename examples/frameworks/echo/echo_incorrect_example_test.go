package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/ampcors/ampcors/examples/frameworks/internal/stacktest"
	"github.com/labstack/echo/v5"
)

// Incorrect: the middleware of a route. echo answers the preflight itself, with 204 as if
// all were well, but without CORS headers, so that the browser sends nothing more. Use the
// middleware on the whole or on a group.
func Example_incorrectRouteMiddleware() {
	mw := stacktest.Middleware()
	e := echo.New()
	e.DELETE("/api/comments", func(c *echo.Context) error { return nil }, cors(mw))

	for _, h := range []http.Handler{e, group(mw)} {
		r := httptest.NewRequest("OPTIONS", "/api/comments", nil)
		r.Header.Set("Origin", "https://www-example-com.cdn.ampproject.org")
		r.Header.Set("Access-Control-Request-Method", "DELETE")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Printf("status %d, Access-Control-Allow-Methods %q\n", w.Code, w.Header().Get("Access-Control-Allow-Methods"))
	}
	// Output:
	// status 204, Access-Control-Allow-Methods ""
	// status 204, Access-Control-Allow-Methods "DELETE"
}
