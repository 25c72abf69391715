package collector_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/metrics/collector"
)

// A program serves the metrics beside its API, at an address that only Prometheus reaches.
func Example() {
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	prometheus.MustRegister(collector.New(mw, nil)) // or the source.Source that Config.Source is
	admin := http.NewServeMux()
	admin.Handle("GET /metrics", promhttp.Handler())
	// go http.ListenAndServe("localhost:9090", admin)

	mw.Handle(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)) // a request of the API
	w := httptest.NewRecorder()
	admin.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, `ampcors_decisions_total{allowed="true",reason="no_origin"}`) {
			fmt.Print(line)
		}
	}
	// Output:
	// ampcors_decisions_total{allowed="true",reason="no_origin"} 1
}
