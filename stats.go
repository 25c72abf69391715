package ampcors

import (
	"sync"
	"sync/atomic"
	"time"
)

// Stats say what a [Middleware] has decided, and for how many publishers.
type Stats struct {
	// Requests counts requests by the reason of the decision on them. It has every reason, even those with a count
	// of zero.
	Requests map[Reason]uint64 `json:"requests"`

	// Caches has, by its ID, each AMP Cache that was ever trusted.
	Caches map[string]CacheStats `json:"caches"`

	// Publishers is the length of Config.Publishers that is in force, as it was given.
	Publishers int `json:"publishers"`

	// Fingerprint is the same number, below 2^48, for the same publishers and patterns in any order and spelling, and
	// most likely another one for others: it tells two servers with different lists apart.
	Fingerprint uint64 `json:"fingerprint"`
}

// CacheStats say how much an AMP Cache is used: whether it still matters to the publishers.
type CacheStats struct {
	Requests uint64 `json:"requests"` // allowed ones of publishers' pages on this cache, preflights included
	// when a call of Middleware.Stats first counted the latest one; zero if there is none
	Last time.Time `json:"last,omitzero"`
}

// counters counts decisions by reason.
type counters [numReasons]atomic.Uint64

// addTo adds the counts to s, and returns their sum.
func (c *counters) addTo(s map[Reason]uint64) (sum uint64) {
	for r := Reason(1); r < numReasons; r++ {
		n := c[r].Load()
		s[r] += n
		sum += n
	}
	return sum
}

// cacheCounters counts the allowed requests of pages on one AMP Cache. To note the time of each would make a
// request several percent slower, so Stats notes when it sees a new one.
type cacheCounters struct {
	counters
	id   string
	seen uint64
	last time.Time
}

// A tally counts the decisions of a Middleware. All processors write the same counters: BenchmarkParallel, in
// module bench, has what that costs.
type tally struct {
	mu     sync.Mutex
	caches []*cacheCounters // of each AMP Cache that was ever trusted
	_      [128]byte        // keeps the Middleware's policy, which each request reads, off the cache lines that it writes
	others counters         // of all other requests
}

// ofCache returns the counters of an AMP Cache. One that was trusted before keeps its counters.
func (t *tally) ofCache(id string) *cacheCounters {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.caches {
		if c.id == id {
			return c
		}
	}
	c := &cacheCounters{id: id}
	t.caches = append(t.caches, c)
	return c
}

// stats returns the counts so far.
func (t *tally) stats() Stats {
	s := Stats{Requests: make(map[Reason]uint64, numReasons), Caches: make(map[string]CacheStats)}
	t.others.addTo(s.Requests)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.caches {
		if n := c.addTo(s.Requests); n > c.seen {
			c.seen, c.last = n, time.Now()
		}
		s.Caches[c.id] = CacheStats{c.seen, c.last}
	}
	return s
}
