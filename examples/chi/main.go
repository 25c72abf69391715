// Command chi serves an API behind ampcors in chi.
//
//	go run ./examples/chi
//	curl -i -H 'Origin: https://www-example-com.cdn.ampproject.org' http://localhost:8080/articles
//
// With and Group put a middleware behind each route. A preflight has no route, so there it gets 405.
package main

import (
	"encoding/json"
	"log"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/ampcors/ampcors"
)

func main() {
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com", "news.example"},
		Methods: []string{"PUT"}})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("localhost:8080", handler(mw)))
}

func handler(mw *ampcors.Middleware) http.Handler {
	r := chi.NewRouter()
	r.Use( // of the router, and not of a Group or a With: a preflight has no route
		middleware.Recoverer,   // outermost: the 500 after a panic keeps the CORS headers, so that the page can read it
		middleware.Compress(5), // outside: ampcors keeps its Vary, and denials are compressed, too
		mw.WrapDecision,
		login, // behind: a preflight has no cookie, and the page can read a 401
	)
	r.Get("/articles", whoCalls)
	r.Put("/articles", whoCalls)
	r.Get("/tenants/{tenant}/cart", cart)
	return r
}

func whoCalls(w http.ResponseWriter, r *http.Request) {
	d, _ := ampcors.DecisionFromContext(r.Context())
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"for": d.Publisher}) // whose page calls
}

// tenants are the publishers that paths name.
var tenants = map[string]string{"a": "www.example.com", "b": "news.example"}

// cart is for the pages of one tenant. Pages of other tenants may call the API, too.
func cart(w http.ResponseWriter, r *http.Request) {
	d, _ := ampcors.DecisionFromContext(r.Context())
	if !d.IsFor(tenants[chi.URLParam(r, "tenant")]) {
		http.Error(w, "another tenant's cart", http.StatusForbidden)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// login is where a program looks for its session, and answers 401. Here everybody may read.
func login(next http.Handler) http.Handler { return next }
