package ampcors

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
)

func TestStatsSurviveJSON(t *testing.T) {
	t.Parallel()
	m := newMiddleware(t, testConfig())
	m.counts.add(ReasonCacheOrigin)
	m.counts.add(ReasonNull)
	data, err := json.Marshal(m.Stats())
	var back Stats
	if err = errors.Join(err, json.Unmarshal(data, &back)); err != nil || !reflect.DeepEqual(back, m.Stats()) || back.Allowed() != 1 || back.Denied() != 1 {
		t.Errorf("%s\nis read as %v, %v", data, back, err)
	}
	stats := SourceStats{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	data, err = json.Marshal(stats)
	var source SourceStats
	if err = errors.Join(err, json.Unmarshal(data, &source)); err != nil || source != stats || !strings.Contains(string(data), `"rateLimited":5`) {
		t.Errorf("%s\nis read as %v, %v", data, source, err)
	}
}

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
