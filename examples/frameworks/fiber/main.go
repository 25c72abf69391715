// Command fiber is an API in fiber, which is built on fasthttp and not on net/http. Use
// sees every request, preflights too, on the whole and on a group.
//
// Handle needs net/http's types, which fiber's adaptor makes. That costs a goroutine and a
// copy of the headers for each request, and waits for the whole body even with
// StreamRequestBody. What runs then is fiber's handler with fiber's request and response,
// so that streaming and hijacking are as always. adaptor.HTTPMiddleware(mw.Wrap) is
// shorter, but of several lines of one header it sees only the last, also of Origin, and
// writes that over the others in the request.
//
// Strings in a request lie in memory that fasthttp uses again for the next request. What
// Observe or a handler keeps for longer, such as Decision.Origin, must be cloned.
package main

import (
	"bufio"
	"context"
	"log"
	"net"
	"net/http"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/examples/frameworks/internal/api"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
)

func main() {
	mw, err := ampcors.New(api.Config())
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(global(mw).Listen("localhost:8080"))
}

// cors is all that ampcors needs.
func cors(mw *ampcors.Middleware) fiber.Handler {
	return func(c fiber.Ctx) error {
		proceed := false
		decide := adaptor.HTTPHandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header = c.GetReqHeaders() // the adaptor has only the last line of each
			proceed = mw.Handle(w, r)
		})
		if err := decide(c); err != nil || !proceed {
			return err // nil: the response is complete
		}
		return c.Next()
	}
}

// global has ampcors before everything.
func global(mw *ampcors.Middleware) *fiber.App {
	app := fiber.New()
	app.Use(varies)
	app.Use(cors(mw))
	app.Get("/healthz", func(c fiber.Ctx) error { return nil })
	routes(app.Group("/api"))
	return app
}

// group has ampcors before what is below /api alone.
func group(mw *ampcors.Middleware) *fiber.App {
	app := fiber.New()
	app.Use(varies)
	app.Get("/healthz", func(c fiber.Ctx) error { return nil })
	routes(app.Group("/api", cors(mw)))
	return app
}

// varies is a middleware like one that compresses.
func varies(c fiber.Ctx) error {
	c.Vary("Accept-Encoding")
	return c.Next()
}

func routes(r fiber.Router) {
	comments := new(api.Comments)
	r.Get("/comments", func(c fiber.Ctx) error { return c.JSON(comments.List()) })
	r.Post("/comments", func(c fiber.Ctx) error {
		if len(c.Body()) > 1000 {
			return fiber.ErrRequestEntityTooLarge
		}
		comments.Add(c.Body())
		return c.SendStatus(fiber.StatusCreated)
	})
	r.Delete("/comments", func(c fiber.Ctx) error {
		comments.Clear()
		return nil
	})
	r.Get("/stream", func(c fiber.Ctx) error {
		return c.SendStreamWriter(func(w *bufio.Writer) {
			// No context ends when the reader goes away; the next write tells.
			comments.Stream(context.Background(), w, w.Flush)
		})
	})
	r.Get("/upgrade", func(c fiber.Ctx) error {
		c.RequestCtx().HijackSetNoResponse(true)
		c.RequestCtx().Hijack(func(conn net.Conn) { api.Echo(conn, conn) })
		return nil
	})
}
