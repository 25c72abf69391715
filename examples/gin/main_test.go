package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

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
	group := gin.New()
	group.Group("/", cors(mw)).PUT(route.Path, whoCalls)
	late, wrapped := gin.New(), gin.New()
	late.PUT(route.Path, whoCalls)
	late.Use(cors(mw))
	wrapped.Use(gin.WrapH(mw.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))))
	wrapped.PUT(route.Path, whoCalls)
	for name, test := range map[string]struct {
		handler http.Handler
		want    string
	}{
		"a group without a route for OPTIONS": {group, "is answered with status 404"},
		"Use after the routes":                {late, "the route is not behind the Middleware"},
		"WrapH, which does not abort":         {wrapped, "the handler runs all the same"},
	} {
		if err := ampcorstest.Check(test.handler, route); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v; want %q", name, err, test.want)
		}
	}
}

// A redirect that a router sends before it calls ampcors has no CORS headers. Around the router it has.
func TestRedirectsOfARouter(t *testing.T) {
	mw := newMiddleware(t, nil)
	plain := gin.New()
	plain.GET(route.Path, whoCalls)
	for want, h := range map[string]http.Handler{"": handler(mw), cacheOrigin: mw.Wrap(plain)} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", route.Path+"/", nil)
		r.Header.Set("Origin", cacheOrigin)
		if h.ServeHTTP(w, r); w.Code != http.StatusMovedPermanently || w.Header().Get("Access-Control-Allow-Origin") != want {
			t.Errorf("%d %q; want 301 %q", w.Code, w.Header().Get("Access-Control-Allow-Origin"), want)
		}
	}
}
