package main

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/examples/frameworks/internal/stacktest"
)

func TestStack(t *testing.T) { stacktest.RunHTTP(t, wrapped, global, group, stacktest.Limits{}) }

// With WrapDecision around the router, handlers get the decision.
func TestHandlersGetTheDecision(t *testing.T) {
	r := echo.New()
	r.GET("/", func(c *echo.Context) error {
		d, ok := ampcors.DecisionFromContext(c.Request().Context())
		return c.String(http.StatusOK, fmt.Sprintf("%s %t", d.Publisher, ok))
	})
	if got := stacktest.Body(stacktest.Middleware().WrapDecision(r)); got != "www.example.com true" {
		t.Errorf("the handler gets %q", got)
	}
}
