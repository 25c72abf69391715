// Command gin is an API in gin. A *gin.Engine is an http.Handler, so Wrap needs no glue, and sees
// every request: preflights, routes of every group, redirects and 404.
//
// With Use, in global and group, the order matters: gin gives a route, and a group, only the
// middleware that was added before. Middleware on a group runs only after a route is found. The
// group therefore needs a route for OPTIONS of "/*path". That does not match the group's own path:
// if the group has a route for "", it needs another for OPTIONS of "". A 404 below the group has no
// CORS headers. gin's redirects that add or remove a trailing slash run before any middleware, so a
// page cannot follow them. They are turned off there.
//
// gin goes on to the next handler until Abort is called, even if a response was written.
// gin.WrapH around a middleware never calls Abort.
package main

import (
	"io"
	"log"
	"net/http"

	"github.com/gin-gonic/gin"

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
	r := gin.New()
	r.GET("/healthz", func(c *gin.Context) {})
	routes(r.Group("/api"))
	return mw.Wrap(r)
}

// cors returns ampcors as a gin handler, for those who must use Use.
func cors(mw *ampcors.Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		if _, proceed := mw.Handle(c.Writer, c.Request); !proceed {
			c.Abort() // the response is complete; without this the handler would run
		}
	}
}

// global puts ampcors before everything in the router.
func global(mw *ampcors.Middleware) http.Handler {
	r := gin.New()
	r.RedirectTrailingSlash = false // a page could not follow the redirect
	r.Use(varies)
	r.Use(cors(mw)) // before the routes and groups: earlier ones are not protected
	r.GET("/healthz", func(c *gin.Context) {})
	routes(r.Group("/api"))
	return r
}

// group puts ampcors only before /api.
func group(mw *ampcors.Middleware) http.Handler {
	r := gin.New()
	r.RedirectTrailingSlash = false
	r.Use(varies)
	r.GET("/healthz", func(c *gin.Context) {})
	g := r.Group("/api", cors(mw))
	g.OPTIONS("/*path", func(c *gin.Context) { c.Status(http.StatusNoContent) }) // so that cors sees preflights
	routes(g)
	return r
}

// varies is a middleware like one that compresses.
func varies(c *gin.Context) { c.Header("Vary", "Accept-Encoding") }

func routes(r *gin.RouterGroup) {
	comments := new(api.Comments)
	r.GET("/comments", func(c *gin.Context) { c.JSON(http.StatusOK, comments.List()) })
	r.POST("/comments", func(c *gin.Context) {
		text, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, 1000))
		if err != nil {
			c.String(http.StatusBadRequest, err.Error())
			return
		}
		comments.Add(text)
		c.Status(http.StatusCreated)
	})
	r.DELETE("/comments", func(c *gin.Context) { comments.Clear() })
	r.GET("/stream", func(c *gin.Context) {
		comments.Stream(c.Request.Context(), c.Writer, http.NewResponseController(c.Writer).Flush)
	})
	r.GET("/upgrade", func(c *gin.Context) {
		conn, buffered, err := c.Writer.Hijack()
		if err != nil {
			c.String(http.StatusInternalServerError, err.Error())
			return
		}
		api.Echo(conn, buffered)
	})
}
