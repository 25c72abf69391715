package source

import (
	"fmt"
	"slices"
	"time"
)

const (
	// failuresToOpen failures in a row open a circuit breaker.
	failuresToOpen = 3
	// openFor is how long it stays open. Then one lookup finds out whether the database works
	// again. So a database that restarts is not overloaded, and requests do not all wait
	// for their timeout.
	openFor = time.Second
	// After a failure, its key is not asked for again for twice as long as the call took, at
	// least minPause and at most openFor (backoff).
	minPause = openFor / 10
)

// A breaker is the circuit breaker of one kind of lookups in one shard: those for remembered
// publishers, for other domains, or for hash prefixes. So failures of one kind do not stop
// another: invented names never stop the refresh of a publisher. Source.mu guards it.
type breaker struct {
	failures int           // in a row; repeated failures of one key count once
	key      string        // that failed last
	again    int           // how often it has failed again since
	until    time.Duration // until then the key is not asked for; if the breaker is open, no key
	err      error         // ErrCircuitOpen, and what opened it

	// While the database fails for remembered publishers, a lookup in the background finds out
	// when it works again, so that nobody who has a stale answer waits a second time. retry is that
	// lookup or, before it starts, the failed call that it will repeat; nil if there is neither.
	retry  *call
	lapses time.Duration // when the retry counts no longer: its lookup ignores its context, perhaps
	waited []string      // keys that failed since the database last answered, until the breaker is open
	next   string        // the key that was rejected last
}

func (b *breaker) isOpen() bool { return b.failures >= failuresToOpen }

// fails reports whether lookups fail now, and not only one by chance.
func (b *breaker) fails(now time.Duration) bool {
	return (b.isOpen() || b.again >= failuresToOpen) && now < b.until+10*openFor // otherwise nobody has asked for long
}

// check returns an error if a lookup for the key must not begin now. Unless the breaker is
// open, this holds only for the key that failed last: requests for it do not wait for one
// timeout after another.
func (b *breaker) check(key string, now time.Duration) error {
	if now < b.until && (b.isOpen() || key == b.key) {
		return b.err
	}
	return nil
}

// rejects returns an error if a caller with a stale answer must not wait for a lookup of the key.
func (b *breaker) rejects(key string, now time.Duration) error {
	if b.retry != nil && now >= b.lapses {
		b.retry = nil
	}
	if b.retry != nil && (b.isOpen() || slices.Contains(b.waited, key)) {
		b.next = key
		return b.err
	}
	return nil
}

// begin notes that a lookup begins. If the breaker was open, it is the only one for a while.
func (b *breaker) begin(now time.Duration) (isProbe bool) {
	if b.isOpen() {
		b.until = now + openFor
		return true
	}
	return false
}

// success records that the database answered for a key. That closes the breaker. It also ends
// the backoff of the key that failed last, because the database may have recovered. But if
// that key fails again, the problem is that key, and only its own success ends the backoff.
func (b *breaker) success(key string) {
	if key == b.key || b.isOpen() {
		*b = breaker{}
		return
	}
	b.failures = 0
	b.waited = nil
	if b.again == 0 {
		b.until = 0
	} else {
		b.waited = []string{b.key}
	}
}

// failure counts a failed lookup. Failures of a single key do not open the breaker.
func (b *breaker) failure(key string, now, took time.Duration, err error) {
	if key == b.key {
		b.again++
	} else {
		b.failures++
		b.again = 0
	}
	if !b.isOpen() && !slices.Contains(b.waited, key) {
		b.waited = append(b.waited, key)
	}
	pause := openFor
	if !b.isOpen() {
		pause = min(max(2*took, minPause), openFor)
	}
	b.key, b.until = key, now+pause
	b.err = fmt.Errorf("%w: %w", ErrCircuitOpen, err)
}
