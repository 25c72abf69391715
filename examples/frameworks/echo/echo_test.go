package main

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/ampcors/ampcors/examples/frameworks/internal/stacktest"
)

// echo.WrapMiddleware calls Wrap for each request, so Wrap must be cheap: it only makes a
// closure. The decisions are the same.
func TestWrapMiddlewareCallsWrapForEachRequest(t *testing.T) {
	mw := stacktest.Middleware()
	calls, deleted := 0, false
	e := echo.New()
	e.Use(echo.WrapMiddleware(func(next http.Handler) http.Handler {
		calls++
		return mw.Wrap(next)
	}))
	e.DELETE("/api/comments", func(c *echo.Context) error {
		deleted = true
		return nil
	})
	if status := stacktest.Forge(e); status != http.StatusForbidden || deleted {
		t.Errorf("another publisher's page gets status %d, deleted: %t", status, deleted)
	}
	if got, want := stacktest.Preflight(e), "status 204, DELETE granted"; got != want {
		t.Errorf("a preflight gets %s; want %s", got, want)
	}
	if calls != 2 {
		t.Errorf("Wrap was called %d times for 2 requests", calls)
	}
}
