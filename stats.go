package ampcors

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Stats say what a [Middleware] has decided, and for how many publishers.
type Stats struct {
	// Requests counts requests by the reason of the decision on them. It has every reason, even
	// those with a count of zero.
	Requests map[Reason]uint64 `json:"requests"`

	// Caches has, by its ID, each AMP Cache that was ever trusted.
	Caches map[string]CacheStats `json:"caches"`

	// Publishers is the length of Config.Publishers now.
	Publishers int `json:"publishers"`
}

// CacheStats say how much an AMP Cache is used: whether it still matters to the publishers.
type CacheStats struct {
	Requests uint64    `json:"requests"`      // allowed ones of publishers' pages on this cache, preflights included
	Last     time.Time `json:"last,omitzero"` // when a call of Stats first saw the latest of them; zero if there was none
}

// counters counts decisions by reason, in shards. With one counter for each reason,
// processors would contend for its cache line.
type counters [shards]struct {
	_        [shardSize - 8*int(numReasons)]byte // padding, so that no other data shares the cache lines
	byReason [numReasons]atomic.Uint64
}

const (
	shards    = 32  // few concurrent goroutines share one
	shardSize = 384 // bytes: the counts, and two cache lines, as some processors fetch them in pairs
)

func (c *counters) add(r Reason) {
	// Each goroutine has its own stack, of 2 KiB or a greater power of two, so the address
	// of a variable on the stack selects a shard well enough. The address is used for
	// nothing else. A random shard would be good for many processors, but not for two:
	// every other count would be in the other processor's cache.
	var here byte
	at := uintptr(unsafe.Pointer(&here))
	c[(at>>11^at>>16)%shards].byReason[r].Add(1)
}

// addTo adds the sums over all shards to s, and returns what it added.
func (c *counters) addTo(s map[Reason]uint64) (n uint64) {
	for r := Reason(1); r < numReasons; r++ {
		sum := uint64(0)
		for i := range c {
			sum += c[i].byReason[r].Load()
		}
		s[r] += sum
		n += sum
	}
	return n
}

// cacheCounters counts the allowed requests of pages on one AMP Cache. To note the time of each would make
// a request several percent slower, so Stats notes when it sees a new one.
type cacheCounters struct {
	counters
	seen uint64
	last time.Time
}

// A tally counts the decisions of a Middleware.
type tally struct {
	others counters // of requests that are not allowed pages on an AMP Cache

	mu     sync.Mutex
	caches map[string]*cacheCounters // by ID, of each AMP Cache that was ever trusted
}

// ofCache returns the counters of an AMP Cache: those that it had before, if it was trusted before.
func (t *tally) ofCache(id string) *counters {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.caches == nil {
		t.caches = make(map[string]*cacheCounters)
	}
	if t.caches[id] == nil {
		t.caches[id] = new(cacheCounters)
	}
	return &t.caches[id].counters
}

// count counts a decision.
func (t *tally) count(v *verdict) {
	switch v.reason {
	case ReasonCacheOrigin, ReasonCacheOriginHash:
		v.claim.cache.counts.add(v.reason)
	default:
		t.others.add(v.reason)
	}
}

// stats returns the counts so far.
func (t *tally) stats() Stats {
	s := Stats{Requests: make(map[Reason]uint64, numReasons), Caches: make(map[string]CacheStats)}
	t.others.addTo(s.Requests)
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, c := range t.caches {
		if n := c.addTo(s.Requests); n > c.seen {
			c.seen, c.last = n, time.Now()
		}
		s.Caches[id] = CacheStats{c.seen, c.last}
	}
	return s
}
