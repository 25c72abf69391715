package main

import (
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/ampcors/ampcors/examples/internal/routertest"
)

func TestTheProgramSaysWhosePageCalls(t *testing.T) {
	routertest.SaysWhosePageCalls(t, handler(routertest.Middleware(t, nil)))
	routertest.KeepsTenantsApart(t, handler(routertest.Middleware(t, nil)))
}

// TestWhatGoesWrong: ampcorstest finds each of these mistakes.
func TestWhatGoesWrong(t *testing.T) {
	mw := routertest.Middleware(t, nil)
	with := chi.NewRouter()
	with.With(mw.Wrap).Put(routertest.Route.Path, whoCalls)
	group := chi.NewRouter()
	group.Group(func(r chi.Router) {
		r.Use(mw.Wrap)
		r.Put(routertest.Route.Path, whoCalls)
	})
	mux := http.NewServeMux()
	mux.Handle("PUT "+routertest.Route.Path, mw.Wrap(http.HandlerFunc(whoCalls)))
	routertest.GoesWrong(t, "With", with, "is answered with status 405")
	routertest.GoesWrong(t, "Use in a Group", group, "is answered with status 405")
	routertest.GoesWrong(t, "net/http: behind a pattern with a method", mux,
		"the preflight for PUT /articles from a page of www.example.com, at https://www-example-com.cdn.ampproject.org, is answered with "+
			"status 405")
}
