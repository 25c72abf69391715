// Command chi is an API in a chi router. Use on a router sees every request to it,
// preflights too, be it the whole router or one that Route mounts. With and Group make
// no router: what they add runs only once a route is found, and no route is found for a
// preflight.
package main

import (
	"encoding/json"
	"io"
	"log"
	"net/http"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/examples/frameworks/internal/api"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

func main() {
	mw, err := ampcors.New(api.Config())
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("localhost:8080", global(mw)))
}

// global has ampcors before everything.
func global(mw *ampcors.Middleware) http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.SetHeader("Vary", "Accept-Encoding"))
	r.Use(mw.Wrap)
	r.Get("/healthz", func(w http.ResponseWriter, r *http.Request) {})
	r.Route("/api", routes)
	return r
}

// group has ampcors before what is below /api alone.
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
	r.Get("/comments", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(comments.List()) // if it fails, the reader is gone
	})
	r.Post("/comments", func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1000))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		comments.Add(text)
		w.WriteHeader(http.StatusCreated)
	})
	r.Delete("/comments", func(w http.ResponseWriter, r *http.Request) { comments.Clear() })
	r.Get("/stream", func(w http.ResponseWriter, r *http.Request) {
		comments.Stream(r.Context(), w, http.NewResponseController(w).Flush)
	})
	r.Get("/upgrade", func(w http.ResponseWriter, r *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		api.Echo(conn, buffered)
	})
}
