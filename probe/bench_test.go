package probe_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/ampcors/ampcors/probe"
	"github.com/ampcors/ampcors/probe/probetest"
)

// BenchmarkProbe probes a right backend that answers in 20 ms, at the default rate of the command.
func BenchmarkProbe(b *testing.B) {
	right := probetest.Cases()[0].Backend()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond)
		right.ServeHTTP(w, r)
	}))
	defer server.Close()
	for _, n := range []int{1, 50} {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			cfg := probe.Config{Publishers: []string{probetest.Publisher}, Rate: probe.DefaultRate}
			for i := range n {
				cfg.Endpoints = append(cfg.Endpoints, probe.Endpoint{URL: fmt.Sprint(server.URL, "/", i), Method: "GET", Credentials: true,
					Answer: probe.AnswerJSON})
			}
			for b.Loop() {
				report, err := probe.Run(b.Context(), cfg)
				if err != nil || report.Summary.Fine != report.Summary.Planned {
					b.Fatal(report, err)
				}
				b.ReportMetric(float64(report.Summary.Requests)/float64(n), "requests/endpoint")
			}
		})
	}
}
