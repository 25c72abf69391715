// Command echo serves an API behind ampcors in echo v5. In echo v4, a handler's parameter is echo.Context
// and not *echo.Context, and c.Response() is a struct that is an http.ResponseWriter, too: nothing else differs.
//
//	go run ./examples/echo
//	curl -i -H 'Origin: https://www-example-com.cdn.ampproject.org' http://localhost:8080/articles
package main

import (
	"log"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/ampcors/ampcors"
)

func main() {
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com", "news.example"},
		Methods: []string{"PUT"}})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("localhost:8080", handler(mw)))
}

func handler(mw *ampcors.Middleware) http.Handler {
	e := echo.New()
	e.Use(cors(mw)) // of echo, and not of a route: echo answers preflights of routes itself
	e.GET("/articles", whoCalls)
	e.PUT("/articles", whoCalls)
	e.GET("/tenants/:tenant/cart", cart)
	return e // or, without Use: return mw.WrapDecision(e)
}

// cors returns ampcors for echo's Use.
func cors(mw *ampcors.Middleware) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			d, proceed := mw.Handle(c.Response(), c.Request())
			if !proceed {
				return nil // the response is complete
			}
			c.SetRequest(c.Request().WithContext(ampcors.ContextWithDecision(c.Request().Context(), d)))
			return next(c)
		}
	}
}

func whoCalls(c *echo.Context) error {
	d, _ := ampcors.DecisionFromContext(c.Request().Context())
	return c.JSON(http.StatusOK, map[string]string{"for": d.Publisher}) // whose page calls
}

// tenants are the publishers that paths name.
var tenants = map[string]string{"a": "www.example.com", "b": "news.example"}

// cart is for the pages of one tenant. Pages of other tenants may call the API, too.
func cart(c *echo.Context) error {
	d, _ := ampcors.DecisionFromContext(c.Request().Context())
	if !d.IsFor(tenants[c.Param("tenant")]) {
		return c.String(http.StatusForbidden, "another tenant's cart")
	}
	return c.NoContent(http.StatusNoContent)
}
