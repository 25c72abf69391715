package stacktest

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/examples/frameworks/internal/api"
)

// Middleware returns the Middleware that the programs use.
func Middleware() *ampcors.Middleware {
	mw, err := ampcors.New(api.Config())
	if err != nil {
		panic(err) // a problem of this module
	}
	return mw
}

// Preflight describes a handler's answer to the preflight for a DELETE of the comments,
// from the page of an allowed publisher.
func Preflight(h http.Handler) string {
	w := ask(h, "OPTIONS", "/api/comments", cacheOrigin)
	granted := w.Header().Get("Access-Control-Allow-Methods")
	if granted == "" {
		granted = "nothing"
	}
	return fmt.Sprintf("status %d, %s granted", w.Code, granted)
}

// Forge returns the status with which a handler answers a DELETE of the comments from
// another publisher's page.
func Forge(h http.Handler) int {
	return ask(h, "DELETE", "/api/comments", evilOrigin).Code
}

// Read returns the status and the Access-Control-Allow-Origin of a handler's answer to a
// page of an allowed publisher.
func Read(h http.Handler, path string) (status int, allowed string) {
	w := ask(h, "GET", path, cacheOrigin)
	return w.Code, w.Header().Get("Access-Control-Allow-Origin")
}

func ask(h http.Handler, method, path, origin string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set("Origin", origin)
	r.Header.Set("Access-Control-Request-Method", "DELETE") // used only in a preflight
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Body returns what a page of www.example.com reads at "/".
func Body(h http.Handler) string {
	return ask(h, "GET", "/", cacheOrigin).Body.String()
}
