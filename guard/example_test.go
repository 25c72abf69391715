package guard_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/guard"
)

// A reverse proxy needs the guard. This backend sends 100 Continue and 103 Early Hints before its
// response, and CORS headers and a Vary of its own.
func ExampleHandler_reverseProxy() {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusContinue)
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Vary", "Accept-Encoding")
		fmt.Fprint(w, "{}")
	}))
	defer backend.Close()
	target, err := url.Parse(backend.URL)
	if err != nil {
		log.Fatal(err)
	}
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	api := httptest.NewServer(mw.Wrap(guard.Handler(httputil.NewSingleHostReverseProxy(target))))
	defer api.Close()

	r, err := http.NewRequest("GET", api.URL, nil)
	if err != nil {
		log.Fatal(err)
	}
	r.Header.Set("Origin", "https://www-example-com.cdn.ampproject.org")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Printf("Access-Control-Allow-Origin: %q\n", resp.Header.Values("Access-Control-Allow-Origin"))
	fmt.Printf("Vary: %q\n", resp.Header.Values("Vary"))
	// Output:
	// Access-Control-Allow-Origin: ["https://www-example-com.cdn.ampproject.org"]
	// Vary: ["Origin, Accept-Encoding"]
}
