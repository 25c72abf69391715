// Package frameworks has ampcors as the middleware of routers that have handlers of their own. Copy the
// function that you need. A router that is an http.Handler needs none: wrap it.
package frameworks

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/labstack/echo/v5"

	"github.com/ampcors/ampcors"
)

// Gin returns ampcors for gin's Use. gin goes on to the next handler until Abort is called.
func Gin(mw *ampcors.Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		if _, proceed := mw.Handle(c.Writer, c.Request); !proceed {
			c.Abort() // the response is complete; without this the handler would run
		}
	}
}

// Echo returns ampcors for echo's Use.
func Echo(mw *ampcors.Middleware) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			if _, proceed := mw.Handle(c.Response(), c.Request()); !proceed {
				return nil // the response is complete
			}
			return next(c)
		}
	}
}

// Fiber returns ampcors for fiber's Use. Handle needs net/http's types, which fiber's adaptor makes. That
// costs a goroutine and a copy of the headers for each request, and waits for the whole body even with
// StreamRequestBody. The next handler gets fiber's own request and response.
func Fiber(mw *ampcors.Middleware) fiber.Handler {
	return func(c fiber.Ctx) error {
		proceed := false
		decide := adaptor.HTTPHandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header = c.GetReqHeaders() // the adaptor passes only the last line of each
			if vary := string(c.Response().Header.Peek("Vary")); vary != "" {
				w.Header().Set("Vary", vary) // otherwise, the adaptor would add a second line
				c.Response().Header.Del("Vary")
			}
			_, proceed = mw.Handle(w, r)
		})
		if err := decide(c); err != nil || !proceed {
			return err // nil: the response is complete
		}
		return c.Next()
	}
}
