// Command fiber serves an API behind ampcors in fiber.
//
//	go run ./examples/fiber
//	curl -i -H 'Origin: https://www-example-com.cdn.ampproject.org' http://localhost:8080/articles
//
// adaptor.HTTPMiddleware(mw.Wrap) sees only the last of several lines of a header. A trailer of a chunked request
// becomes a header, so a program can send Origin there. Clone what Observe keeps: fiber uses its memory again.
package main

import (
	"log"
	"net/http"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"

	"github.com/ampcors/ampcors"
)

func main() {
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com", "news.example"},
		Methods: []string{"PUT"}})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(newApp(mw).Listen("localhost:8080"))
}

func newApp(mw *ampcors.Middleware) *fiber.App {
	app := fiber.New()
	app.Use(cors(mw)) // before the routes
	app.Get("/articles", whoCalls)
	app.Put("/articles", whoCalls)
	app.Get("/tenants/:tenant/cart", cart)
	return app
}

// cors returns ampcors for fiber's Use. Handle needs net/http's types, which fiber's adaptor makes. That
// costs a goroutine and a copy of the headers for each request, and waits for the whole body even with
// StreamRequestBody. The next handler gets fiber's own request and response.
func cors(mw *ampcors.Middleware) fiber.Handler {
	return func(c fiber.Ctx) error {
		var d ampcors.Decision
		proceed := false
		decide := adaptor.HTTPHandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header = c.GetReqHeaders() // the adaptor passes only the last line of each
			if vary := string(c.Response().Header.Peek("Vary")); vary != "" {
				w.Header().Set("Vary", vary) // otherwise, the adaptor would add a second line
				c.Response().Header.Del("Vary")
			}
			d, proceed = mw.Handle(w, r)
		})
		if err := decide(c); err != nil || !proceed {
			return err // nil: the response is complete
		}
		c.SetContext(ampcors.ContextWithDecision(c.Context(), d))
		return c.Next()
	}
}

func whoCalls(c fiber.Ctx) error {
	d, _ := ampcors.DecisionFromContext(c.Context())
	return c.JSON(fiber.Map{"for": d.Publisher}) // whose page calls; clone it to keep it after the request
}

// tenants are the publishers that paths name.
var tenants = map[string]string{"a": "www.example.com", "b": "news.example"}

// cart is for the pages of one tenant. Pages of other tenants may call the API, too.
func cart(c fiber.Ctx) error {
	d, _ := ampcors.DecisionFromContext(c.Context())
	if !d.IsFor(tenants[c.Params("tenant")]) {
		return c.Status(http.StatusForbidden).SendString("another tenant's cart")
	}
	return c.SendStatus(http.StatusNoContent)
}
