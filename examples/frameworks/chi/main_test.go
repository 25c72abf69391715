package main

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/examples/frameworks/internal/stacktest"
)

func TestStack(t *testing.T) { stacktest.RunHTTP(t, wrapped, global, group, stacktest.Limits{}) }

// With WrapDecision around the router, handlers get the decision.
func TestHandlersGetTheDecision(t *testing.T) {
	r := chi.NewRouter()
	r.Get("/", func(w http.ResponseWriter, r *http.Request) {
		d, ok := ampcors.DecisionFromContext(r.Context())
		fmt.Fprintf(w, "%s %t", d.Publisher, ok)
	})
	if got := stacktest.Body(stacktest.Middleware().WrapDecision(r)); got != "www.example.com true" {
		t.Errorf("the handler gets %q", got)
	}
}
