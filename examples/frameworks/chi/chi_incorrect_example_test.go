package main

import (
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/ampcors/ampcors/examples/frameworks/internal/stacktest"
)

// Incorrect: middleware added by With, or by Use within Group, runs behind each route and
// not before the router. There is no route for OPTIONS, so chi answers the preflight with
// 405. Mount a router with Route, and call Use there.
func Example_incorrectWithAndGroup() {
	mw := stacktest.Middleware()

	with := chi.NewRouter()
	with.With(mw.Wrap).Delete("/api/comments", http.NotFound)
	fmt.Println("With:", stacktest.Preflight(with))

	inGroup := chi.NewRouter()
	inGroup.Group(func(r chi.Router) {
		r.Use(mw.Wrap)
		r.Delete("/api/comments", http.NotFound)
	})
	fmt.Println("Group:", stacktest.Preflight(inGroup))

	fmt.Println("Route:", stacktest.Preflight(group(mw)))
	// Output:
	// With: status 405, nothing granted
	// Group: status 405, nothing granted
	// Route: status 204, DELETE granted
}
