package source

import (
	"hash/maphash"
	"sync"
	"time"
)

const (
	// numRejections is how many rejected keys are remembered at most, in 4 bytes each. At
	// 50,000 rejections a second, 95 % of them are still there after a second.
	numRejections = 1 << 20

	// A key is returning if it comes again in a later period than it was rejected in, at
	// most maxPeriods later.
	period     = time.Second
	maxPeriods = 30
)

// rejections remember the keys that were rejected because of load. Somebody who floods a
// server with invented names has no reason to send one twice, and an honest client tries
// again. A rejection may be forgotten, and, rarely, a key is taken for another one. Both
// are harmless, because the rejections only change the order of the queue.
type rejections struct {
	mu   sync.Mutex
	seed maphash.Seed
	// marks is allocated at the first rejection. A key has one place, which the next key with
	// that place overwrites. A mark is 24 bits of the key's hash, and 8 bits of its period.
	marks []uint32
}

func (r *rejections) place(key string) (index, hash uint32) {
	sum := maphash.String(r.seed, key)
	return uint32(sum) % numRejections, uint32(sum>>32) &^ 0xff
}

func (r *rejections) add(key string, now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.marks == nil {
		r.marks, r.seed = make([]uint32, numRejections), maphash.MakeSeed()
	}
	index, hash := r.place(key)
	r.marks[index] = hash | uint32(now/period)&0xff
}

func (r *rejections) isReturning(key string, now time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.marks == nil {
		return false
	}
	index, hash := r.place(key)
	mark := r.marks[index]
	periods := (uint32(now/period) - mark) & 0xff
	return mark&^0xff == hash && 1 <= periods && periods <= maxPeriods
}
