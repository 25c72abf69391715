package metrics_test

import (
	"bufio"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/metrics"
)

// The counts of a Middleware, at an address that only Prometheus reaches.
func ExampleHandler() {
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	admin := http.NewServeMux()
	admin.Handle("GET /metrics", metrics.Handler(func() metrics.Counts { return metrics.Of(mw, nil, nil) }))

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Origin", "https://evil-example.cdn.ampproject.org")
	mw.Handle(httptest.NewRecorder(), r)

	w := httptest.NewRecorder()
	admin.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for lines := bufio.NewScanner(w.Body); lines.Scan(); {
		if line := lines.Text(); strings.Contains(line, `"publisher_not_allowed"`) {
			fmt.Println(line)
		}
	}
	// Output:
	// ampcors_decisions_total{allowed="false",reason="publisher_not_allowed"} 1
}

// Another monitoring system than Prometheus, here StatsD, gets the samples.
func ExampleCounts_Samples() {
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com"}, Caches: cacheurl.DefaultCaches()[:2]})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range metrics.Of(mw, nil, nil).Samples() {
		if s.Name == "ampcors_cache_requests_total" {
			fmt.Printf("%s.%s:%v|g\n", s.Name, strings.Join(s.LabelValues, "."), s.Value)
		}
	}
	// Unordered output:
	// ampcors_cache_requests_total.bing:0|g
	// ampcors_cache_requests_total.google:0|g
}
