// Command gin is an API in gin. Use on the engine, before the routes, sees every request,
// preflights too; but gin's redirects to a path with or without a slash at its end come
// before any middleware, so that a page cannot follow them: they are turned off here.
//
// What a group is given runs only once a route is found, so the group needs a route for
// OPTIONS (and one more for OPTIONS of "" if it has a route for that), and what it does not
// find has no CORS headers. Prefer the engine.
//
// gin goes on to the next handler whatever one has written, until Abort is called:
// gin.WrapH around a middleware never does that.
package main

import (
	"io"
	"log"
	"net/http"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/examples/frameworks/internal/api"
	"github.com/gin-gonic/gin"
)

func main() {
	mw, err := ampcors.New(api.Config())
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(global(mw).Run("localhost:8080"))
}

// cors is all that ampcors needs.
func cors(mw *ampcors.Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		if !mw.Handle(c.Writer, c.Request) {
			c.Abort() // the response is complete; without this the handler would run
		}
	}
}

// global has ampcors before everything.
func global(mw *ampcors.Middleware) *gin.Engine {
	r := gin.New()
	r.RedirectTrailingSlash = false // a page could not follow
	r.Use(varies)
	r.Use(cors(mw)) // before the routes: those that are there already are not protected
	r.GET("/healthz", func(c *gin.Context) {})
	routes(r.Group("/api"))
	return r
}

// group has ampcors before what is below /api alone.
func group(mw *ampcors.Middleware) *gin.Engine {
	r := gin.New()
	r.RedirectTrailingSlash = false
	r.Use(varies)
	r.GET("/healthz", func(c *gin.Context) {})
	g := r.Group("/api", cors(mw))
	g.OPTIONS("/*path", func(c *gin.Context) { c.Status(http.StatusNoContent) }) // for preflights to be seen
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
