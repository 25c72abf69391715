package main

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/examples/frameworks/internal/stacktest"
)

func TestStack(t *testing.T) {
	stacktest.RunHTTP(t, wrapped, global, group, stacktest.Limits{GroupMissesNotFound: true})
}

// With WrapDecision around the router, handlers get the decision.
func TestHandlersGetTheDecision(t *testing.T) {
	r := gin.New()
	r.GET("/", func(c *gin.Context) {
		d, ok := ampcors.DecisionFromContext(c.Request.Context())
		c.String(http.StatusOK, "%s %t", d.Publisher, ok)
	})
	if got := stacktest.Body(stacktest.Middleware().WrapDecision(r)); got != "www.example.com true" {
		t.Errorf("the handler gets %q", got)
	}
}
