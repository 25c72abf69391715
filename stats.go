package ampcors

import (
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

// Allowed returns the number of requests that were allowed.
func (s Stats) Allowed() uint64 { return s.count(true) }

// Denied returns the number of requests that were denied or, with Config.ReportOnly, would
// have been.
func (s Stats) Denied() uint64 { return s.count(false) }

func (s Stats) count(allowed bool) (n uint64) {
	for r, count := range s.Requests {
		if r.Allowed() == allowed {
			n += count
		}
	}
	return n
}

// counters counts decisions by reason, in shards. With one counter for each reason,
// processors would contend for its cache line. BenchmarkCounters compares the two.
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

// countCaches gives each trusted cache its counters: those that it had before, if it was trusted before.
func (m *Middleware) countCaches(p *policy) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range p.hosts.caches {
		c := &p.hosts.caches[i]
		if m.caches[c.id] == nil {
			if m.caches == nil {
				m.caches = make(map[string]*cacheCounters)
			}
			m.caches[c.id] = new(cacheCounters)
		}
		c.counts = &m.caches[c.id].counters
	}
}

// count counts a decision.
func (m *Middleware) count(v *verdict) {
	switch v.reason {
	case ReasonCacheOrigin, ReasonCacheOriginHash:
		v.claim.cache.counts.add(v.reason)
	default:
		m.counts.add(v.reason)
	}
}

// Stats returns what Handle, Wrap and WrapDecision have decided so far.
func (m *Middleware) Stats() Stats {
	s := Stats{Requests: make(map[Reason]uint64, numReasons), Caches: make(map[string]CacheStats), Publishers: m.current().publishers.n}
	m.counts.addTo(s.Requests)
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, c := range m.caches {
		if n := c.addTo(s.Requests); n > c.seen {
			c.seen, c.last = n, time.Now()
		}
		s.Caches[id] = CacheStats{c.seen, c.last}
	}
	return s
}
