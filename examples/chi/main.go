// Command chi serves an API behind ampcors in chi.
//
//	go run ./examples/chi
//	curl -i -H 'Origin: https://www-example-com.cdn.ampproject.org' http://localhost:8080/articles
package main

import (
	"encoding/json"
	"log"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/ampcors/ampcors"
)

func main() {
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com"}, Methods: []string{"PUT"}})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("localhost:8080", handler(mw)))
}

func handler(mw *ampcors.Middleware) http.Handler {
	r := chi.NewRouter()
	r.Use(mw.WrapDecision) // of the router, and not of a Group or a With: a preflight has no route
	r.Get("/articles", whoCalls)
	r.Put("/articles", whoCalls)
	return r
}

func whoCalls(w http.ResponseWriter, r *http.Request) {
	d, _ := ampcors.DecisionFromContext(r.Context())
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"for": d.Publisher}) // whose page calls
}
