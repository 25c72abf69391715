package ampcors

import (
	"sync/atomic"
	"unsafe"
)

// Stats say what a [Middleware] has decided, and for how many publishers.
type Stats struct {
	// Requests counts requests by the reason of the decision on them. It has every reason, even
	// those with a count of zero.
	Requests map[Reason]uint64 `json:"requests"`

	// Publishers is the length of Config.Publishers now.
	Publishers int `json:"publishers"`
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

// byReason returns the sums over all shards.
func (c *counters) byReason() map[Reason]uint64 {
	s := make(map[Reason]uint64, numReasons)
	for r := Reason(1); r < numReasons; r++ {
		s[r] = 0
		for i := range c {
			s[r] += c[i].byReason[r].Load()
		}
	}
	return s
}
