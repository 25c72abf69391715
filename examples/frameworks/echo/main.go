// Command echo is an API in echo. A *echo.Echo is an http.Handler, so Wrap needs no glue, and sees
// every request. Middleware added by Use, on the Echo or on a group, sees every request, including preflights. For a group, echo adds the routes that this needs,
// unless it is configured with NoGroupAutoRegister404Routes. Middleware on a route does not
// see preflights: echo answers them itself, with 204 and no CORS headers.
//
// echo.WrapMiddleware(mw.Wrap) works too, but for each request it calls Wrap, and wraps the
// response once more.
package main

import (
	"io"
	"log"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/examples/frameworks/internal/api"
)

func main() {
	mw, err := ampcors.New(api.Config())
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("localhost:8080", wrapped(mw)))
}

// wrapped puts ampcors around the router.
func wrapped(mw *ampcors.Middleware) http.Handler {
	e := echo.New()
	e.GET("/healthz", func(c *echo.Context) error { return c.NoContent(http.StatusOK) })
	routes(e.Group("/api"))
	return mw.Wrap(e)
}

// cors returns ampcors as an echo middleware, for those who must use Use.
func cors(mw *ampcors.Middleware) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			if _, proceed := mw.Handle(c.Response(), c.Request()); !proceed {
				return nil // the response is complete
			}
			return next(c)
		}
	}
}

// global puts ampcors before everything in the router.
func global(mw *ampcors.Middleware) http.Handler {
	e := echo.New()
	e.Use(varies)
	e.Use(cors(mw))
	e.GET("/healthz", func(c *echo.Context) error { return c.NoContent(http.StatusOK) })
	routes(e.Group("/api"))
	return e
}

// group puts ampcors only before /api.
func group(mw *ampcors.Middleware) http.Handler {
	e := echo.New()
	e.Use(varies)
	e.GET("/healthz", func(c *echo.Context) error { return c.NoContent(http.StatusOK) })
	routes(e.Group("/api", cors(mw)))
	return e
}

// varies is a middleware like one that compresses.
func varies(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		c.Response().Header().Add("Vary", "Accept-Encoding")
		return next(c)
	}
}

func routes(g *echo.Group) {
	comments := new(api.Comments)
	g.GET("/comments", func(c *echo.Context) error { return c.JSON(http.StatusOK, comments.List()) })
	g.POST("/comments", func(c *echo.Context) error {
		text, err := io.ReadAll(http.MaxBytesReader(c.Response(), c.Request().Body, 1000))
		if err != nil {
			return c.String(http.StatusBadRequest, err.Error())
		}
		comments.Add(text)
		return c.NoContent(http.StatusCreated)
	})
	g.DELETE("/comments", func(c *echo.Context) error {
		comments.Clear()
		return c.NoContent(http.StatusOK)
	})
	g.GET("/stream", func(c *echo.Context) error {
		comments.Stream(c.Request().Context(), c.Response(), http.NewResponseController(c.Response()).Flush)
		return nil
	})
	g.GET("/upgrade", func(c *echo.Context) error {
		conn, buffered, err := http.NewResponseController(c.Response()).Hijack()
		if err != nil {
			return err
		}
		api.Echo(conn, buffered)
		return nil
	})
}
