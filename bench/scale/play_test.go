package scale

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/source"
)

// A scenario is what a server meets. Rates are for each second.
type scenario struct {
	newSource  func() (asked source.Database, lookups func() int64)
	publishers int           // that there are
	s          float64       // the exponent of Zipf's law
	honest     int           // requests from publishers
	new        int           // publishers that come for the first time, and again after 1.1 s until they are served
	invented   int           // requests from invented origins
	copies     int           // how often each invented origin is sent, a second apart; if zero, once
	warm       time.Duration // honest requests only, before anything is counted
	time       time.Duration
}

// A result is how the requests ended.
type result struct {
	honest   tally
	known    tally // the part of honest from publishers that also came in the warm-up
	first    tally // the first requests of new publishers
	invented tally

	served   []time.Duration // how long new publishers took until they were served, sorted
	unserved int             // new publishers that were not, after 15 s
	lookups  float64         // a second
	stats    source.Stats
}

// A tally counts decisions.
type tally struct {
	mu                                            sync.Mutex
	requests, allowed, denied, unavailable, stale int
	took                                          []time.Duration
}

func (t *tally) String() string {
	return fmt.Sprintf("%d requests: %d allowed, %d denied, %d unavailable, %d stale", t.requests, t.allowed, t.denied, t.unavailable, t.stale)
}

// ask sends a request, and counts how it ended.
func (t *tally) ask(m *ampcors.Middleware, name string) (d ampcors.Decision, took time.Duration) {
	time.Sleep(rand.N(time.Millisecond)) // requests of a millisecond come in no order
	begun := time.Now()
	d = m.CheckOrigin("https://" + name)
	took = time.Since(begun)
	t.add(d, took)
	return d, took
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

// unavailableShare returns which part was answered 503.
func (t *tally) unavailableShare() string {
	return fmt.Sprintf("%.1f %%", 100*float64(t.unavailable)/float64(max(1, t.requests)))
}

// each calls do n times a second.
func each(n int, d time.Duration, do func(i int)) {
	i := 0
	for begun := time.Now(); time.Since(begun) < d; time.Sleep(time.Millisecond) {
		for due := int(float64(n) * time.Since(begun).Seconds()); i < due; i++ {
			do(i)
		}
	}
}

// newServer returns the Middleware of a server with the defaults.
func newServer(t *testing.T, asked source.Database) (m *ampcors.Middleware, publishers *source.Source, end func()) {
	t.Helper()
	publishers, err := source.New(asked, source.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if m, err = ampcors.New(ampcors.Config{Source: publishers}); err != nil {
		t.Fatal(err)
	}
	return m, publishers, func() {
		publishers.Close()
		time.Sleep(2 * time.Second) // refreshes end, at the latest after their timeout
	}
}

// play runs a scenario on a server that remembers no publisher.
func play(t *testing.T, sc scenario) *result {
	t.Helper()
	asked, lookups := sc.newSource()
	m, publishers, end := newServer(t, asked)
	defer end()
	r, ignored := new(result), new(tally)
	ranks := zipf{rand.New(rand.NewPCG(15, 8)), sc.s, sc.publishers}
	var known sync.Map // publishers whose lookup has ended
	var group sync.WaitGroup

	if sc.warm > 0 {
		each(sc.honest, sc.warm, func(int) {
			name := domain(ranks.next())
			group.Go(func() {
				if d, _ := ignored.ask(m, name); d.Allowed {
					known.Store(name, nil)
				}
			})
		})
		group.Wait()
	}
	before := lookups()
	group.Go(func() {
		each(sc.honest, sc.time, func(int) {
			name := domain(ranks.next())
			group.Go(func() {
				_, isKnown := known.Load(name)
				if d, took := r.honest.ask(m, name); isKnown {
					r.known.add(d, took)
				}
			})
		})
	})
	group.Go(func() {
		copies := max(1, sc.copies)
		each(sc.invented/copies, sc.time, func(i int) {
			group.Go(func() {
				for n := range copies {
					if n > 0 {
						time.Sleep(time.Second)
					}
					r.invented.ask(m, fmt.Sprintf("invented-%d.example", i))
				}
			})
		})
	})
	group.Go(func() {
		each(sc.new, sc.time, func(i int) {
			group.Go(func() {
				begun := time.Now()
				d, _ := r.first.ask(m, newDomain(i))
				for !d.Allowed && time.Since(begun) < 15*time.Second {
					time.Sleep(1100 * time.Millisecond) // after Retry-After: 1
					d, _ = ignored.ask(m, newDomain(i))
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
	r.lookups = float64(lookups()-before) / sc.time.Seconds()
	r.stats = publishers.Stats()
	group.Wait()
	slices.Sort(r.served)
	return r
}

// median returns the median time until a new publisher was served. One that was not counts
// as an hour.
func (r *result) median() time.Duration {
	return append(r.served, slices.Repeat([]time.Duration{time.Hour}, r.unserved)...)[(len(r.served)+r.unserved)/2]
}

// check checks what holds in each scenario: no decision is wrong, and known publishers are
// always served.
func (r *result) check(t *testing.T) {
	t.Helper()
	if r.honest.denied+r.first.denied+r.invented.allowed+r.invented.stale > 0 || r.known.unavailable > 0 {
		t.Errorf("known: %v\nhonest: %v\nnew: %v\ninvented: %v\n%+v", &r.known, &r.honest, &r.first, &r.invented, r.stats)
	}
}

// The rows of the tables of results.txt.

var floodHead = []string{
	"| invented origins a second | Source | lookups a second | known publishers answered 503 | first requests of new publishers answered " +
		"503 | new publishers served within 15 s | median time until they are |",
	"| --- | --- | --- | --- | --- | --- | --- |",
}

func (r *result) floodRow(flood int, kind string) string {
	return fmt.Sprintf("| %d | %s | %.0f | %s | %s | %.1f %% | %v |", flood, kind, r.lookups, r.known.unavailableShare(),
		r.first.unavailableShare(),
		100*float64(len(r.served))/float64(max(1, len(r.served)+r.unserved)), r.median().Round(time.Millisecond))
}
