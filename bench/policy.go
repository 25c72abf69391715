// Package bench compares ampcors with other CORS middleware: the same policy for
// each, the same requests, in one run. See the script named run.
package bench

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	chi "github.com/go-chi/cors"
	jub0bs "github.com/jub0bs/cors"
	rs "github.com/rs/cors"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
)

// Ballast returns as much memory as the rest of a server uses. Without it, the garbage
// collector would run hundreds of times a second, unlike on a real server, and distort
// the results. The caller must keep it alive.
func Ballast() []byte { return make([]byte, 64<<20) }

// The publishers that the requests are for.
const (
	ASCII    = "www.example.com"
	IDN      = "www.xn--bcher-kva.example"                                        // www.bücher.example, as origins have it
	LongName = "the-weekly-gazette-of-a-town-with-a-rather-long-name.example.org" // too long for a readable prefix
	Wildcard = "*.wild.example"
)

const (
	exposed = "AMP-Redirect-To"
	maxAge  = 10 * time.Minute
)

// Publishers returns n publishers. Those in some are in the middle, so that a linear search
// finds them halfway.
func Publishers(n int, some ...string) []string {
	list := make([]string, 0, n)
	for i := range n - len(some) {
		list = append(list, fmt.Sprintf("www.site-%07d.example", i))
	}
	return slices.Insert(list, len(list)/2, some...)
}

// A Policy is the configuration that all libraries get: these publishers, credentials, GET
// and POST, Content-Type, one exposed header, and a maximum age of ten minutes.
type Policy struct {
	publishers []string
	origins    []string // of these publishers, for the peers
}

// NewPolicy lists the origins for the peers: those of each publisher on each cache, and
// its own. No list of origins can have a pattern's hosts on a cache.
func NewPolicy(publishers ...string) (Policy, error) {
	p := Policy{publishers: publishers}
	for _, publisher := range publishers {
		if !strings.HasPrefix(publisher, "*.") {
			onCaches, err := cacheurl.Origins(publisher)
			if err != nil {
				return p, err
			}
			p.origins = append(p.origins, onCaches...)
		}
		p.origins = append(p.origins, "https://"+publisher)
	}
	return p, nil
}

// Libraries are those that Wrap knows. With "none" there is no middleware at all, and
// "floor" does the least that a handler can.
//
// The peers pass a denied request on to the handler, without CORS headers. With
// ReportOnly, ampcors does too. Otherwise it answers such a request itself.
var Libraries = []string{"none", "floor", "ampcors", "ampcorsReportOnly", "jub0bs", "rs", "chi"}

// Wrap puts one of the Libraries, with the policy, before next.
func Wrap(library string, p Policy, next http.Handler) (http.Handler, error) {
	switch library {
	case "none":
		return next, nil
	case "floor":
		return floor(next), nil
	case "ampcors", "ampcorsReportOnly":
		m, err := ampcors.New(ampcors.Config{
			Publishers: p.publishers, Credentialed: true, ResponseHeaders: []string{exposed}, MaxAge: maxAge,
			ReportOnly: library == "ampcorsReportOnly",
		})
		if err != nil {
			return nil, err
		}
		return m.Wrap(next), nil
	case "jub0bs":
		m, err := jub0bs.NewMiddleware(jub0bs.Config{
			Origins: p.origins, Credentialed: true, Methods: []string{"GET", "POST"}, RequestHeaders: []string{"Content-Type"},
			ResponseHeaders: []string{exposed}, MaxAgeInSeconds: int(maxAge.Seconds()),
		})
		if err != nil {
			return nil, err
		}
		return m.Wrap(next), nil
	case "rs":
		return rs.New(rs.Options{
			AllowedOrigins: p.origins, AllowCredentials: true, AllowedMethods: []string{"GET", "POST"},
			AllowedHeaders: []string{"Content-Type"},
			ExposedHeaders: []string{exposed}, MaxAge: int(maxAge.Seconds()),
		}).Handler(next), nil
	case "chi":
		return chi.New(chi.Options{
			AllowedOrigins: p.origins, AllowCredentials: true, AllowedMethods: []string{"GET", "POST"},
			AllowedHeaders: []string{"Content-Type"},
			ExposedHeaders: []string{exposed}, MaxAge: int(maxAge.Seconds()),
		}).Handler(next), nil
	}
	return nil, fmt.Errorf("there is no library %q; want one of %q", library, Libraries)
}

// floor compares with one constant origin, and sets the same headers as the others with
// one allocation. It does not handle preflights.
func floor(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if origin := r.Header["Origin"]; len(origin) == 1 && origin[0] == "https://www-example-com.cdn.ampproject.org" {
			h, vals := w.Header(), &[4]string{origin[0], "Origin", "true", exposed}
			h["Access-Control-Allow-Origin"] = vals[0:1:1]
			h["Vary"] = vals[1:2:2]
			h["Access-Control-Allow-Credentials"] = vals[2:3:3]
			h["Access-Control-Expose-Headers"] = vals[3:4:4]
		}
		next.ServeHTTP(w, r)
	})
}
