package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"

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
	onRoute := echo.New()
	onRoute.PUT(route.Path, whoCalls, cors(mw))
	for name, test := range map[string]struct {
		handler http.Handler
		want    string
	}{
		"on a route, so that echo answers first": {onRoute, "is answered with status 204 and no Access-Control-Allow-Origin"},
	} {
		if err := ampcorstest.Check(test.handler, route); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v; want %q", name, err, test.want)
		}
	}
}

// echo's own adapter works too, and keeps the decision.
func TestEchosAdapter(t *testing.T) {
	e := echo.New()
	e.Use(echo.WrapMiddleware(newMiddleware(t, nil).WrapDecision))
	e.PUT(route.Path, whoCalls)
	if err := ampcorstest.Check(e, route); err != nil {
		t.Error(err)
	}
}
