package probe_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/ampcors/ampcors/probe"
)

// A test can probe the backend that it has started, or a staging server. This backend forgets Vary, and lets any
// website read.
func ExampleRun() {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		w.Header().Set("Access-Control-Allow-Credentials", "true")
		fmt.Fprint(w, "{}")
	}))
	defer backend.Close()
	report, err := probe.Run(context.Background(), probe.Config{
		Endpoints:  []probe.Endpoint{{URL: backend.URL + "/list", Method: http.MethodGet, Credentials: true, Answer: probe.AnswerJSON}},
		Publishers: []string{"www.example.com"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range report.Findings {
		fmt.Println(f.Severity, f.ID)
	}
	fmt.Println("not tested:", report.Summary.NotTested)
	// Output:
	// high any-origin-allowed
	// medium vary-missing
	// not tested: 0
}
