package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/ampcors/ampcors/examples/internal/routertest"
)

func TestTheProgramSaysWhosePageCalls(t *testing.T) {
	routertest.SaysWhosePageCalls(t, handler(routertest.Middleware(t, nil)))
	routertest.KeepsTenantsApart(t, handler(routertest.Middleware(t, nil)))
}

// TestWhatGoesWrong: ampcorstest finds each of these mistakes.
func TestWhatGoesWrong(t *testing.T) {
	mw := routertest.Middleware(t, nil)
	group := gin.New()
	group.Group("/", cors(mw)).PUT(routertest.Route.Path, whoCalls)
	late, wrapped := gin.New(), gin.New()
	late.PUT(routertest.Route.Path, whoCalls)
	late.Use(cors(mw))
	wrapped.Use(gin.WrapH(mw.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))))
	wrapped.PUT(routertest.Route.Path, whoCalls)
	routertest.GoesWrong(t, "a group without a route for OPTIONS", group, "is answered with status 404")
	routertest.GoesWrong(t, "Use after the routes", late, "the route is not behind the Middleware")
	routertest.GoesWrong(t, "WrapH, which does not abort", wrapped, "the handler runs all the same")
}

// A redirect that a router sends before it calls ampcors has no CORS headers. Around the router it has.
func TestRedirectsOfARouter(t *testing.T) {
	mw := routertest.Middleware(t, nil)
	plain := gin.New()
	plain.GET(routertest.Route.Path, whoCalls)
	for want, h := range map[string]http.Handler{"": handler(mw), routertest.CacheOrigin: mw.Wrap(plain)} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", routertest.Route.Path+"/", nil)
		r.Header.Set("Origin", routertest.CacheOrigin)
		if h.ServeHTTP(w, r); w.Code != http.StatusMovedPermanently || w.Header().Get("Access-Control-Allow-Origin") != want {
			t.Errorf("%d %q; want 301 %q", w.Code, w.Header().Get("Access-Control-Allow-Origin"), want)
		}
	}
}
