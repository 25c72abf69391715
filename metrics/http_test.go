package metrics_test

import "net/http"

func request(origin string) *http.Request {
	return &http.Request{Method: "GET", Header: http.Header{"Origin": {origin}}}
}

// A recorder is a ResponseWriter that keeps nothing.
type recorder struct{}

func (recorder) Header() http.Header         { return make(http.Header) }
func (recorder) Write(p []byte) (int, error) { return len(p), nil }
func (recorder) WriteHeader(int)             {}
