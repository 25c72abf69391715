// Command gin serves an API behind ampcors in gin.
//
//	go run ./examples/gin
//	curl -i -H 'Origin: https://www-example-com.cdn.ampproject.org' http://localhost:8080/articles
//
// In a group, a preflight gets 404. After gin.WrapH(mw.Wrap(noop)) has written a 403, gin runs the handler anyway. Use
// protects only what is added after it. gin redirects a trailing slash before any middleware, without CORS headers, so
// a page cannot follow the redirect. A check of the tenant in a middleware must call c.AbortWithStatus, and give
// DecisionFromContext the context c.Request.Context().
package main

import (
	"log"
	"net/http"

	"github.com/gin-gonic/gin"

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
	r := gin.New()
	r.Use(cors(mw)) // before routes and groups are added: others are not behind it
	r.GET("/articles", whoCalls)
	r.PUT("/articles", whoCalls)
	r.GET("/tenants/:tenant/cart", cart)
	return r // or, without Use: return mw.WrapDecision(r)
}

// cors returns ampcors for gin's Use. gin goes on to the next handler until Abort is called.
func cors(mw *ampcors.Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		d, proceed := mw.Handle(c.Writer, c.Request)
		if !proceed {
			c.Abort() // the response is complete; without this the handler would run
			return
		}
		c.Request = c.Request.WithContext(ampcors.ContextWithDecision(c.Request.Context(), d))
	}
}

func whoCalls(c *gin.Context) {
	d, _ := ampcors.DecisionFromContext(c.Request.Context())
	c.JSON(http.StatusOK, gin.H{"for": d.Publisher}) // whose page calls
}

// tenants are the publishers that paths name.
var tenants = map[string]string{"a": "www.example.com", "b": "news.example"}

// cart is for the pages of one tenant. Pages of other tenants may call the API, too.
func cart(c *gin.Context) {
	d, _ := ampcors.DecisionFromContext(c.Request.Context())
	if !d.IsFor(tenants[c.Param("tenant")]) {
		c.String(http.StatusForbidden, "another tenant's cart")
		return
	}
	c.Status(http.StatusNoContent)
}
