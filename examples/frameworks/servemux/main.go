// Command servemux is an API with method patterns in net/http's ServeMux. Wrap a whole mux:
// if it has "POST /api/comments" but no pattern for OPTIONS, it answers a preflight with
// 405 and does not call the handler behind that pattern. A mux redirects paths such as
// "/api" and "//api/comments" before it calls any handler. If Wrap is only around a group,
// the redirect has no CORS headers, and a page cannot follow it.
package main

import (
	"log"
	"net/http"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/examples/frameworks/internal/api"
)

func main() {
	mw, err := ampcors.New(api.Config())
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("localhost:8080", wrapped(mw)))
}

// wrapped puts ampcors around the mux.
func wrapped(mw *ampcors.Middleware) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {})
	routes(mux)
	return mw.Wrap(mux)
}

// group puts ampcors only before /api.
func group(mw *ampcors.Middleware) http.Handler {
	api := http.NewServeMux()
	routes(api)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {})
	mux.Handle("/api/", mw.Wrap(api)) // no method here: it must get preflights
	return varies(mux)
}

// varies is a middleware like one that compresses.
func varies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		next.ServeHTTP(w, r)
	})
}

func routes(mux *http.ServeMux) {
	comments := new(api.Comments)
	mux.HandleFunc("GET /api/comments", comments.HandleList)
	mux.HandleFunc("POST /api/comments", comments.HandleAdd)
	mux.HandleFunc("DELETE /api/comments", comments.HandleClear)
	mux.HandleFunc("GET /api/stream", comments.HandleStream)
	mux.HandleFunc("GET /api/upgrade", api.HandleUpgrade)
}
