package main

import (
	"fmt"
	"net/http"

	"github.com/ampcors/ampcors/examples/frameworks/internal/stacktest"
)

// Incorrect: the middleware is behind a pattern that has a method. The mux has no pattern
// for the preflight's OPTIONS and answers 405 itself, so a page can never send DELETE. Wrap
// the mux, as group and wrapped do.
func Example_incorrectMethodPattern() {
	mw := stacktest.Middleware()
	mux := http.NewServeMux()
	mux.Handle("DELETE /api/comments", mw.Wrap(http.NotFoundHandler()))

	fmt.Println("behind a pattern:", stacktest.Preflight(mux))
	fmt.Println("before the mux:", stacktest.Preflight(mw.Wrap(mux)))
	// Output:
	// behind a pattern: status 405, nothing granted
	// before the mux: status 204, DELETE granted
}

// Incorrect if pages call paths such as "/api": Wrap around a group only. The mux before it
// redirects such paths without CORS headers, so the page's request fails.
func Example_incorrectRedirects() {
	mw := stacktest.Middleware()
	for _, h := range []http.Handler{group(mw), wrapped(mw)} {
		status, acao := stacktest.Read(h, "/api")
		fmt.Printf("status %d, Access-Control-Allow-Origin %q\n", status, acao)
	}
	// Output:
	// status 307, Access-Control-Allow-Origin ""
	// status 404, Access-Control-Allow-Origin "https://www-example-com.cdn.ampproject.org"
}
