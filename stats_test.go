package ampcors

import (
	"net/http"
	"sync/atomic"
	"testing"
)

// BenchmarkCounters counts by 16 goroutines on two processors, 8 on each: in one place, and
// as counters does; alone, and in a request.
//
//	go test -run='^$' -bench=Counters -cpu=1,2 -count=10 .
func BenchmarkCounters(b *testing.B) {
	var plain [numReasons]atomic.Uint64
	var sharded counters
	for _, kind := range []struct {
		name string
		add  func(Reason)
	}{
		{"plain", func(r Reason) { plain[r].Add(1) }},
		{"sharded", sharded.add},
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
				w, r := discard{make(http.Header)}, &http.Request{Method: "GET", Header: headers("Origin: " + cacheOrigin)}
				for pb.Next() {
					clear(w.h)
					var v verdict
					p.judge(&v, r)
					kind.add(v.reason)
					p.respond(&v, w, r)
				}
			})
		})
	}
}
