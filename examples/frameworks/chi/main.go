// Command chi is an API in a chi router, which is an http.Handler: Wrap around it sees every
// request. Middleware added by Use before the routes sees every request to its router, including preflights. That is so for the main router and for one that Route
// mounts. With and Group do not mount a router: middleware added there runs only after a
// route is found, and no route is found for a preflight.
package main

import (
	"log"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

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

// wrapped puts ampcors around the router.
func wrapped(mw *ampcors.Middleware) http.Handler {
	r := chi.NewRouter()
	r.Get("/healthz", func(w http.ResponseWriter, r *http.Request) {})
	r.Route("/api", routes)
	return mw.Wrap(r)
}

// global puts ampcors before everything in the router.
func global(mw *ampcors.Middleware) http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.SetHeader("Vary", "Accept-Encoding"))
	r.Use(mw.Wrap)
	r.Get("/healthz", func(w http.ResponseWriter, r *http.Request) {})
	r.Route("/api", routes)
	return r
}

// group puts ampcors only before /api.
func group(mw *ampcors.Middleware) http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.SetHeader("Vary", "Accept-Encoding"))
	r.Get("/healthz", func(w http.ResponseWriter, r *http.Request) {})
	r.Route("/api", func(r chi.Router) {
		r.Use(mw.Wrap)
		routes(r)
	})
	return r
}

func routes(r chi.Router) {
	comments := new(api.Comments)
	r.Get("/comments", comments.HandleList)
	r.Post("/comments", comments.HandleAdd)
	r.Delete("/comments", comments.HandleClear)
	r.Get("/stream", comments.HandleStream)
	r.Get("/upgrade", api.HandleUpgrade)
}
