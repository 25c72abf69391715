// Package scale shows what a server does under the load of a platform with ten million
// publishers: honest traffic, floods of invented origins, restarts, a slow Source.
//
// The simulation runs the library itself, in the virtual time of testing/synctest, with a
// model of a database. So its results depend on no machine, and its targets are ordinary
// tests.
package scale

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors"
)

// A scenario is what a server meets.
type scenario struct {
	newSource func() (ampcors.Source, *model)
	s         float64       // the exponent of Zipf's law
	honest    int           // requests a second from publishers
	invented  int           // requests a second from invented origins
	copies    int           // how often each invented origin is sent, a second apart; 1 if zero
	new       int           // publishers a second that come for the first time, and come again each second until they are served
	time      time.Duration // after warm
	warm      time.Duration // before the flood begins and anything is counted
	lookup    ampcors.Lookup
}

// A result is what came out.
type result struct {
	known    tally // publishers that were remembered when counting began
	honest   tally // all requests from publishers, but the new ones
	first    tally // the first requests of new publishers
	invented tally
	served   []time.Duration // how long new publishers took until they were served
	unserved int             // new publishers that were not served
	lookups  float64         // a second
	slots    int
	stats    ampcors.SourceStats
}

// ask sends a request at some time of the tick, and counts how it ended.
func (t *tally) ask(m *ampcors.Middleware, origin string) ampcors.Decision {
	time.Sleep(rand.N(tick))
	begun := time.Now()
	d := m.CheckOrigin(origin)
	t.add(d, time.Since(begun))
	return d
}

func (t *tally) add(d ampcors.Decision, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests++
	t.took = append(t.took, took)
	switch {
	case d.Stale:
		t.stale++
	case d.Allowed:
		t.allowed++
	case d.SourceErr != nil:
		t.unavailable++
	default:
		t.denied++
	}
}

// p returns a percentile of the time that a decision took.
func (t *tally) p(percent int) time.Duration {
	slices.Sort(t.took)
	return t.took[len(t.took)*percent/100]
}

// tick is the step of the simulation.
const tick = time.Millisecond

// run simulates a scenario.
func run(t *testing.T, sc scenario) *result {
	t.Helper()
	r := new(result)
	synctest.Test(t, func(t *testing.T) {
		source, db := sc.newSource()
		m, err := ampcors.New(ampcors.Config{Source: source, Lookup: sc.lookup})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		random := zipf{rand.New(rand.NewPCG(15, 8)), sc.s}
		var group sync.WaitGroup
		ignored := new(tally)
		// each calls do n times a second, until the time is over.
		each := func(n int, d time.Duration, do func()) {
			due := 0.
			for begun := time.Now(); time.Since(begun) < d; time.Sleep(tick) {
				for due += float64(n) * tick.Seconds(); due >= 1; due-- {
					do()
				}
			}
		}
		remembered := make(map[string]bool)
		each(sc.honest, sc.warm, func() {
			name := domain(random.rank())
			remembered[name] = true
			group.Go(func() { ignored.ask(m, "https://"+name) })
		})
		time.Sleep(time.Second * boolToInt(sc.warm > 0))
		before := db.lookups.Load()

		group.Go(func() {
			each(sc.honest, sc.time, func() {
				name := domain(random.rank())
				group.Go(func() {
					begun := time.Now()
					d := r.honest.ask(m, "https://"+name)
					if remembered[name] {
						r.known.add(d, time.Since(begun))
					}
				})
			})
		})
		group.Go(func() {
			n := 0
			each(sc.invented/max(1, sc.copies), sc.time, func() {
				n++
				origin := fmt.Sprintf("https://invented-%d.example", n)
				group.Go(func() {
					for copy := range max(1, sc.copies) {
						time.Sleep(time.Second * boolToInt(copy > 0))
						r.invented.ask(m, origin)
					}
				})
			})
		})
		group.Go(func() {
			n := 0
			each(sc.new, sc.time, func() {
				n++
				origin := fmt.Sprintf("https://www.site-new-%d.example", n)
				group.Go(func() {
					begun := time.Now()
					d := r.first.ask(m, origin)
					for !d.Allowed && time.Since(begun) < 15*time.Second {
						time.Sleep(1100 * time.Millisecond) // Retry-After: 1
						d = ignored.ask(m, origin)
					}
					r.first.mu.Lock()
					defer r.first.mu.Unlock()
					if d.Allowed {
						r.served = append(r.served, time.Since(begun))
					} else {
						r.unserved++
					}
				})
			})
		})
		time.Sleep(sc.time)
		r.lookups = float64(db.lookups.Load()-before) / sc.time.Seconds()
		r.slots = m.SourceStats().Slots
		group.Wait()
		r.stats = m.SourceStats()
	})
	slices.Sort(r.served)
	return r
}

func boolToInt(b bool) time.Duration {
	if b {
		return 1
	}
	return 0
}

func (r *result) median() time.Duration {
	all := append(slices.Clone(r.served), slices.Repeat([]time.Duration{time.Hour}, r.unserved)...)
	return all[len(all)/2]
}

func percent(part, whole int) string {
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(max(1, whole)))
}

// long reports whether the full length of the scenarios is wanted, for the README's tables.
func long(full, brief time.Duration) time.Duration {
	if os.Getenv("UPDATE_README") != "" {
		return full
	}
	return brief
}

// TestHonestTrafficIsServed: a server that knows nobody yet gets 10,000 requests a second
// for ten million publishers. None gets 503 if the Source answers within 10 ms.
func TestHonestTrafficIsServed(t *testing.T) {
	rows := []string{"| Zipf's exponent | a lookup takes | lookups a second | publishers answered 503 | p99 of a decision | remembered at the end |", "| --- | --- | --- | --- | --- | --- |"}
	for _, s := range []float64{0.8, 1, 1.2} {
		for _, delay := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond} {
			t.Run(fmt.Sprintf("%v/%v", s, delay), func(t *testing.T) {
				r := run(t, scenario{
					newSource: func() (ampcors.Source, *model) { m := newModel(delay, 1_000_000); return m, m },
					s:         s, honest: 10_000, time: long(90*time.Second, 3*time.Second),
				})
				if r.honest.denied > 0 || delay <= 10*time.Millisecond && r.honest.unavailable > 0 {
					t.Errorf("%v; %+v", &r.honest, r.stats)
				}
				rows = append(rows, fmt.Sprintf("| %v | %v | %.0f | %s | %v | %d |", s, delay, r.lookups, percent(r.honest.unavailable, r.honest.requests), r.honest.p(99).Round(time.Millisecond), r.stats.Publishers))
				t.Log(rows[len(rows)-1])
			})
		}
	}
	writeTable(t, "honest traffic", rows)
}

// TestAFloodDoesNotShutOutPublishers: invented origins, each sent once or twice, do not keep
// publishers out that are not remembered yet. The Source can answer 5,000 lookups a second.
func TestAFloodDoesNotShutOutPublishers(t *testing.T) {
	rows := []string{
		"| invented origins a second | Source | lookups a second | known publishers answered 503 | first requests of new publishers answered 503 | new publishers served within 15 s | at the median after |",
		"| --- | --- | --- | --- | --- | --- | --- |",
	}
	for _, flood := range []int{2_000, 10_000, 50_000} {
		for _, kind := range []string{"alone", "alone, each origin sent twice", "with a filter", "with a filter that answers no"} {
			t.Run(fmt.Sprintf("%d/%s", flood, kind), func(t *testing.T) {
				sc := scenario{
					newSource: func() (ampcors.Source, *model) {
						m := newModel(2*time.Millisecond, 10)
						switch kind {
						case "with a filter":
							return guess{m}, m
						case "with a filter that answers no":
							return sure{guess{m}}, m
						}
						return m, m
					},
					s: 1.2, honest: 1000, new: 100, invented: flood, warm: 10 * time.Second, time: long(20*time.Second, 4*time.Second),
				}
				if strings.HasSuffix(kind, "twice") {
					sc.copies = 2
				}
				r := run(t, sc)
				if r.known.unavailable+r.known.denied > 0 || r.invented.allowed > 0 || r.honest.denied+r.first.denied > 0 {
					t.Errorf("known: %v; invented: %v; honest: %v; new: %v; %+v", &r.known, &r.invented, &r.honest, &r.first, r.stats)
				}
				if strings.HasPrefix(kind, "with") && r.first.unavailable > r.first.requests/100 {
					t.Errorf("new publishers: %v; %+v", &r.first, r.stats)
				}
				if kind == "alone" && (r.median() > 3*time.Second || r.unserved > 0) {
					t.Errorf("new publishers are served after %v at the median, and %d are not; %+v", r.median(), r.unserved, r.stats)
				}
				rows = append(rows, fmt.Sprintf("| %d | %s | %.0f | %s | %s | %s | %v |", flood, kind, r.lookups, percent(r.known.unavailable, r.known.requests),
					percent(r.first.unavailable, r.first.requests), percent(len(r.served), len(r.served)+r.unserved), r.median().Round(time.Millisecond)))
				t.Log(rows[len(rows)-1], &r.invented, r.slots)
			})
		}
	}
	writeTable(t, "floods", rows)
}

// TestANewServerServesATightLoop: a new server is asked for 2,000 publishers, one after
// another and all at once.
func TestANewServerServesATightLoop(t *testing.T) {
	for _, parallel := range []bool{false, true} {
		t.Run(fmt.Sprintf("parallel=%t", parallel), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, err := ampcors.New(ampcors.Config{Source: newModel(5*time.Millisecond, 100)})
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				var group sync.WaitGroup
				var got tally
				for rank := range 2000 {
					ask := func() { got.ask(m, "https://"+domain(rank)) }
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

// TestASlowSourceDelaysFewKnownPublishers: each lookup takes 0.1 s. A publisher in use is
// refreshed ahead, so only those that are rarely asked for wait, and not in a queue.
func TestASlowSourceDelaysFewKnownPublishers(t *testing.T) {
	r := run(t, scenario{
		newSource: func() (ampcors.Source, *model) { m := newModel(100*time.Millisecond, 1_000_000); return m, m },
		s:         1.2, honest: 1000, invented: 2000, warm: 70 * time.Second, time: long(60*time.Second, 10*time.Second),
	})
	t.Logf("p50 %v, p99 %v, %v", r.known.p(50), r.known.p(99), &r.known)
	if r.known.p(99) > 105*time.Millisecond || r.known.unavailable+r.known.stale > 0 {
		t.Errorf("p99 %v; %v", r.known.p(99), &r.known)
	}
}
