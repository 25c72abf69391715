package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/ampcorstest"
)

const cacheOrigin = "https://www-example-com.cdn.ampproject.org"

var route = ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/articles"}

func newMiddleware(t *testing.T, observe func(*http.Request, ampcors.Decision)) *ampcors.Middleware {
	t.Helper()
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com", "news.example"}, Methods: []string{"PUT"}, Observe: observe})
	if err != nil {
		t.Fatal(err)
	}
	return mw
}

func TestTheProgramSaysWhosePageCalls(t *testing.T) {
	h := handler(newMiddleware(t, nil))
	if err := ampcorstest.Check(h, route); err != nil {
		t.Error(err)
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/articles", nil)
	r.Header.Set("Origin", cacheOrigin)
	if h.ServeHTTP(w, r); !strings.Contains(w.Body.String(), `"for":"www.example.com"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestWhatGoesWrong: each row is a mistake that ampcorstest finds.
func TestWhatGoesWrong(t *testing.T) {
	mw := newMiddleware(t, nil)
	with := chi.NewRouter()
	with.With(mw.Wrap).Put(route.Path, whoCalls)
	group := chi.NewRouter()
	group.Group(func(r chi.Router) {
		r.Use(mw.Wrap)
		r.Put(route.Path, whoCalls)
	})
	mux := http.NewServeMux()
	mux.Handle("PUT "+route.Path, mw.Wrap(http.HandlerFunc(whoCalls)))
	for name, test := range map[string]struct {
		handler http.Handler
		want    string
	}{
		"With":           {with, "is answered with status 405"},
		"Use in a Group": {group, "is answered with status 405"},
		"net/http: behind a pattern with a method": {mux, "the preflight for PUT /articles from a page of www.example.com is answered with status 405"},
	} {
		if err := ampcorstest.Check(test.handler, route); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v; want %q", name, err, test.want)
		}
	}
}
