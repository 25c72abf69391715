package authz_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/authz"
)

// nginx asks at /auth about each request, with its method in X-Original-Method, and lets the backend answer it or not.
func ExampleNew() {
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com"}, Credentialed: true})
	if err != nil {
		log.Fatal(err)
	}
	decide, err := authz.New(mw, authz.NGINX)
	if err != nil {
		log.Fatal(err)
	}
	// http.ListenAndServe("127.0.0.1:9000", decide) in a program; here, two requests of nginx:
	for _, origin := range []string{"https://www-example-com.cdn.ampproject.org", "https://evil-example.cdn.ampproject.org"} {
		r := httptest.NewRequest(http.MethodGet, "/auth", nil)
		r.Header.Set("X-Original-Method", http.MethodPost)
		r.Header.Set("Origin", origin)
		w := httptest.NewRecorder()
		decide.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("X-Ampcors-Reason"), w.Header().Get("X-Ampcors-Publisher"))
	}
	// Output:
	// 200 cache_origin www.example.com
	// 403 publisher_not_allowed
}
