// Command fiber is an API in fiber, which is built on fasthttp and not on net/http.
// Middleware added by Use, on the app or on a group, sees every request, including
// preflights.
//
// Handle needs net/http's types, which fiber's adaptor makes. That costs a goroutine and a
// copy of the headers for each request, and waits for the whole body even with
// StreamRequestBody. The next handler gets fiber's own request and response, so streaming
// and hijacking work as usual. adaptor.HTTPMiddleware(mw.Wrap) is shorter, but if a header
// has several lines, even Origin, it sees only the last, and removes the others from the
// request.
//
// fasthttp reuses the memory of a request's strings for the next request. If Observe or a
// handler keeps such a string, for example Decision.Origin, it must clone it.
package main

import (
	"bufio"
	"context"
	"log"
	"net"
	"net/http"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/examples/frameworks/internal/api"
)

func main() {
	mw, err := ampcors.New(api.Config())
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(global(mw).Listen("localhost:8080"))
}

// cors returns ampcors as a fiber handler.
func cors(mw *ampcors.Middleware) fiber.Handler {
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

// global puts ampcors before everything.
func global(mw *ampcors.Middleware) *fiber.App {
	app := fiber.New()
	app.Use(varies)
	app.Use(cors(mw))
	app.Get("/healthz", func(c fiber.Ctx) error { return nil })
	routes(app.Group("/api"))
	return app
}

// group puts ampcors only before /api.
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
			// No context is canceled when the client goes away, but the next write fails.
			comments.Stream(context.Background(), w, w.Flush)
		})
	})
	r.Get("/upgrade", func(c fiber.Ctx) error {
		c.RequestCtx().HijackSetNoResponse(true)
		c.RequestCtx().Hijack(func(conn net.Conn) { api.Echo(conn, conn) })
		return nil
	})
}
