package main

import (
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/ampcors/ampcors/ampcorstest"
	"github.com/ampcors/ampcors/examples/internal/routertest"
)

func TestTheProgramSaysWhosePageCalls(t *testing.T) {
	routertest.SaysWhosePageCalls(t, handler(routertest.Middleware(t, nil)))
	routertest.KeepsTenantsApart(t, handler(routertest.Middleware(t, nil)))
}

// TestWhatGoesWrong: ampcorstest finds each of these mistakes.
func TestWhatGoesWrong(t *testing.T) {
	mw := routertest.Middleware(t, nil)
	onRoute := echo.New()
	onRoute.PUT(routertest.Route.Path, whoCalls, cors(mw))
	routertest.GoesWrong(t, "on a route, so that echo answers first", onRoute,
		"is answered with status 204 and no Access-Control-Allow-Origin")
}

// echo's own adapter works too, and keeps the decision.
func TestEchosAdapter(t *testing.T) {
	e := echo.New()
	e.Use(echo.WrapMiddleware(routertest.Middleware(t, nil).WrapDecision))
	e.PUT(routertest.Route.Path, whoCalls)
	if err := ampcorstest.Check(e, routertest.Route); err != nil {
		t.Error(err)
	}
}
