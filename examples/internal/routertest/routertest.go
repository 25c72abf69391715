// Package routertest has what the tests of the routers' programs share.
package routertest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/ampcorstest"
)

// CacheOrigin is that of a page of www.example.com on Google's AMP Cache.
const CacheOrigin = "https://www-example-com.cdn.ampproject.org"

// Route is one that each program has, also for GET.
var Route = ampcorstest.Route{Publisher: "www.example.com", Method: "PUT", Path: "/articles"}

// Middleware returns one that allows the Route, and calls observe, which may be nil.
func Middleware(t *testing.T, observe func(*http.Request, ampcors.Decision)) *ampcors.Middleware {
	t.Helper()
	mw, err := ampcors.New(ampcors.Config{
		Publishers: []string{"www.example.com", "news.example"}, Methods: []string{"PUT"}, Observe: observe,
	})
	if err != nil {
		t.Fatal(err)
	}
	return mw
}

// SaysWhosePageCalls fails unless a program has ampcors before its routes, and its handler gets the decision.
func SaysWhosePageCalls(t *testing.T, h http.Handler) {
	t.Helper()
	if err := ampcorstest.Check(h, Route); err != nil {
		t.Error(err)
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", Route.Path, nil)
	r.Header.Set("Origin", CacheOrigin)
	if h.ServeHTTP(w, r); !strings.Contains(w.Body.String(), `"for":"www.example.com"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// KeepsTenantsApart fails unless a cart of a tenant is for that tenant's pages, for the API's own and for requests
// without Origin.
func KeepsTenantsApart(t *testing.T, h http.Handler) {
	t.Helper()
	for _, test := range []struct {
		tenant, origin, site string
		want                 int
	}{
		{"a", CacheOrigin, "cross-site", http.StatusNoContent},
		{"b", CacheOrigin, "cross-site", http.StatusForbidden},
		{"b", "https://news.example", "cross-site", http.StatusNoContent},
		{"a", "https://api.example", "same-origin", http.StatusNoContent},
		{"a", "", "", http.StatusNoContent},
		{"none", "https://api.example", "same-origin", http.StatusForbidden},
		{"none", "", "", http.StatusForbidden},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/tenants/"+test.tenant+"/cart", nil)
		if test.origin != "" {
			r.Header.Set("Origin", test.origin)
			r.Header.Set("Sec-Fetch-Site", test.site)
		}
		if h.ServeHTTP(w, r); w.Code != test.want {
			t.Errorf("the cart of %s, from %q: %d; want %d", test.tenant, test.origin, w.Code, test.want)
		}
	}
}

// GoesWrong fails unless ampcorstest finds the mistake of a handler, and says what is wanted.
func GoesWrong(t *testing.T, mistake string, h http.Handler, want string) {
	t.Helper()
	if err := ampcorstest.Check(h, Route); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v; want %q", mistake, err, want)
	}
}
