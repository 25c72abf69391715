package ampcors

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// BenchmarkCounters compares one counter for all goroutines with the sharded counters, each
// alone and in a request. It runs 8 goroutines on each processor.
//
//	go test -run='^$' -bench=Counters -cpu=1,2 -count=10 .
func BenchmarkCounters(b *testing.B) {
	var plain [numReasons]atomic.Uint64
	var sharded counters
	for _, kind := range []struct {
		name string
		add  func(Reason)
	}{
		{name: "plain", add: func(r Reason) { plain[r].Add(1) }},
		{name: "sharded", add: sharded.add},
	} {
		b.Run("counters="+kind.name+"/case=alone", func(b *testing.B) {
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					kind.add(ReasonCacheOrigin)
				}
			})
		})
		b.Run("counters="+kind.name+"/case=request", func(b *testing.B) {
			p, err := compile(Config{Publishers: []string{"www.example.com"}})
			if err != nil {
				b.Fatal(err)
			}
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				w := httptest.NewRecorder()
				r := &http.Request{Method: "GET", Header: http.Header{"Origin": {"https://www-example-com.cdn.ampproject.org"}}}
				for pb.Next() {
					clear(w.Header())
					var v verdict
					p.judge(&v, r)
					kind.add(v.reason)
					p.respond(&v, w, r)
				}
			})
		})
	}
}
