// Package scale shows what a server does under the load of a platform with ten million
// publishers: honest traffic, floods of invented origins, restarts, a slow Source.
//
// The simulation runs the library itself, in the virtual time of testing/synctest, with a
// model of a database. So its results depend on no machine, and its targets are ordinary
// tests. Floods are also played against PostgreSQL.
package scale

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors/source"
)

const tenMillion = 10_000_000

// simulate plays a scenario in virtual time.
func simulate(t *testing.T, sc scenario) (r *result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { r = play(t, sc) })
	r.check(t)
	return r
}

func modelOf(delay time.Duration, servers int) func() (source.Database, func() int64) {
	return func() (source.Database, func() int64) {
		m := newModel(delay, servers)
		return m.source(), m.lookups.Load
	}
}

// length returns the length of a scenario: full for the tables of results.txt.
func length(full, brief time.Duration) time.Duration {
	if os.Getenv("UPDATE_README") != "" {
		return full
	}
	return brief
}

// TestHonestTrafficIsServed: a server that remembers no publisher yet gets 10,000 requests a
// second for ten million publishers. No request gets 503 if the database answers within 10 ms.
func TestHonestTrafficIsServed(t *testing.T) {
	rows := []string{
		"| Zipf's exponent | a lookup takes | lookups a second | publishers answered 503 | p99 of a decision | remembered at the end |",
		"| --- | --- | --- | --- | --- | --- |",
	}
	for _, s := range []float64{0.8, 1, 1.2} {
		for _, delay := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond} {
			t.Run(fmt.Sprintf("%v/%v", s, delay), func(t *testing.T) {
				r := simulate(t, scenario{
					newSource: modelOf(delay, 1_000_000), publishers: tenMillion,
					s: s, honest: 10_000, time: length(90*time.Second, 3*time.Second),
				})
				if delay <= 10*time.Millisecond && r.honest.unavailable > 0 {
					t.Errorf("%v; %+v", &r.honest, r.stats)
				}
				rows = append(rows, fmt.Sprintf("| %v | %v | %.0f | %s | %v | %d |", s, delay, r.lookups, r.honest.unavailableShare(),
					r.honest.p(99).Round(time.Millisecond), r.stats.Publishers))
				t.Log(rows[len(rows)-1])
			})
		}
	}
	writeTable(t, "honest traffic", rows)
}

// TestAFloodDoesNotShutOutPublishers: invented origins, each sent once or twice, do not keep
// publishers out that are not remembered yet. The database can answer 5,000 lookups a second.
func TestAFloodDoesNotShutOutPublishers(t *testing.T) {
	rows := floodHead
	for _, flood := range []int{2_000, 10_000, 50_000} {
		for _, kind := range []string{"alone", "alone, each origin sent twice", "with a filter"} {
			t.Run(fmt.Sprintf("%d/%s", flood, kind), func(t *testing.T) {
				sc := scenario{
					newSource: func() (source.Database, func() int64) {
						m := newModel(2*time.Millisecond, 10)
						if kind == "with a filter" {
							return m.filtered(), m.lookups.Load
						}
						return m.source(), m.lookups.Load
					},
					publishers: tenMillion,
					s:          1.2, honest: 1000, new: 100, invented: flood, warm: 10 * time.Second, time: length(20*time.Second, 4*time.Second),
				}
				if strings.HasSuffix(kind, "twice") {
					sc.copies = 2
				}
				r := simulate(t, sc)
				if strings.HasPrefix(kind, "with") && r.first.unavailable > r.first.requests/100 {
					t.Errorf("new publishers: %v; %+v", &r.first, r.stats)
				}
				if kind == "alone" && (r.median() > 3*time.Second || r.unserved > 0) {
					t.Errorf("new publishers are served after %v at the median, and %d are not; %+v", r.median(), r.unserved, r.stats)
				}
				rows = append(rows, r.floodRow(flood, kind))
				t.Log(rows[len(rows)-1])
			})
		}
	}
	writeTable(t, "floods", rows)
}

// TestANewServerServesATightLoop: a new server is asked for 2,000 publishers, one after
// another or all at once.
func TestANewServerServesATightLoop(t *testing.T) {
	for _, parallel := range []bool{false, true} {
		t.Run(fmt.Sprintf("parallel=%t", parallel), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, _, end := newServer(t, newModel(5*time.Millisecond, 100).source())
				defer end()
				var group sync.WaitGroup
				var got tally
				for rank := range 2000 {
					ask := func() { got.ask(m, domain(rank)) }
					if parallel {
						group.Go(ask)
					} else {
						ask()
					}
				}
				group.Wait()
				if got.allowed != 2000 {
					t.Errorf("%v", &got)
				}
			})
		})
	}
}
