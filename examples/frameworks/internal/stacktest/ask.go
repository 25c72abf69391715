package stacktest

import (
	"net/http"
	"net/http/httptest"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/examples/frameworks/internal/api"
)

// Middleware returns what the programs use.
func Middleware() *ampcors.Middleware {
	mw, err := ampcors.New(api.Config())
	if err != nil {
		panic(err) // a fault of this module
	}
	return mw
}

// Preflight returns the status with which a handler answers the preflight for a DELETE
// of the comments, from the page of a publisher that is allowed.
func Preflight(h http.Handler) int {
	r := httptest.NewRequest("OPTIONS", "/api/comments", nil)
	r.Header.Set("Origin", cacheOrigin)
	r.Header.Set("Access-Control-Request-Method", "DELETE")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// Forge returns the status with which a handler answers a DELETE of the comments from
// another publisher's page.
func Forge(h http.Handler) int {
	r := httptest.NewRequest("DELETE", "/api/comments", nil)
	r.Header.Set("Origin", evilOrigin)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}
