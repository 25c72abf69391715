package e2e

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/rs/cors"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/ampcorstest"
)

// TestWiringsWithRSCORS: ampcorstest finds a library that answers beside ampcors, in front of it or behind it, also behind a reverse proxy.
func TestWiringsWithRSCORS(t *testing.T) {
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{publisher}, Credentialed: true, Methods: []string{"PUT"}})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /articles", func(http.ResponseWriter, *http.Request) {})
	listed := cors.New(cors.Options{AllowedOrigins: []string{"https://" + publisher, own}, AllowCredentials: true, AllowedMethods: []string{"PUT"}})
	proxied := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: serve(t, mw.Wrap(mux))})
	for _, test := range []struct {
		name string
		h    http.Handler
		want string // a part of the cause; none if the wiring is right
	}{
		{"ampcors alone", mw.Wrap(mux), ""},
		{"ampcors behind a reverse proxy", proxied, ""},
		{"rs/cors in front", listed.Handler(mw.Wrap(mux)), "Access-Control-Allow-Origin"},
		{"rs/cors behind, which says the same of the own page and nothing of caches", mw.Wrap(listed.Handler(mux)), ""},
		{"rs/cors behind, for everybody", mw.Wrap(cors.AllowAll().Handler(mux)), "Access-Control-Allow-Origin"},
		{"rs/cors in front, for everybody", cors.AllowAll().Handler(mw.Wrap(mux)), "Access-Control-Allow-Origin"},
	} {
		err := ampcorstest.Check(test.h, ampcorstest.Route{Publisher: publisher, Method: "PUT", Path: "/articles", Credentialed: true})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v; want %q", test.name, err, test.want)
		}
	}
}
