package lookup

import "time"

const (
	// first is what the limit begins with, if the maximum allows it: few enough to find out
	// how fast the source is when it is not overloaded.
	first = 16

	// window is how long lookups are counted before the limit changes, if there are at
	// least minSamples.
	window     = 100 * time.Millisecond
	minSamples = 8

	// increase is the share of the maximum by which the limit grows, and decrease what is
	// left of the limit when it shrinks (additive increase, multiplicative decrease).
	increase = 1. / 16
	decrease = 0.75

	// A source is overloaded if lookups take more than slower times as long as they do at
	// best, and slack more. The slack keeps a garbage collection or a busy processor from
	// counting as overload when lookups are short.
	slower = 2
	slack  = 5 * time.Millisecond

	// maxFailed is the share of failed lookups above which a source is overloaded.
	maxFailed = 0.1
)

// A limit is how many lookups may run at one time. It adapts to what the source can bear:
// it grows while all slots are in use, and shrinks when lookups become slower or fail.
// The mutex of its queue guards it.
type limit struct {
	slots float64
	max   float64
	best  time.Duration // mean time of a lookup when the source was not overloaded

	since   time.Duration // when the window began
	samples int
	failed  int
	took    time.Duration // by all samples together
	isFull  bool          // all slots were in use at some time in the window
}

func newLimit(maximum int) limit {
	return limit{slots: min(float64(maximum), first), max: float64(maximum)}
}

func (l *limit) now() int { return int(l.slots) }

// finished counts a lookup that ended now.
func (l *limit) finished(now, took time.Duration, failed bool) {
	l.samples++
	l.took += took
	if failed {
		l.failed++
	}
	if now-l.since < window || l.samples < minSamples {
		return
	}
	mean := l.took / time.Duration(l.samples)
	switch isOverloaded := l.best > 0 && mean > slower*l.best+slack; {
	case isOverloaded, float64(l.failed) > maxFailed*float64(l.samples):
		least := max(1, l.max*increase)
		if l.slots <= least {
			l.best = mean // few lookups take this long too: the source has become slower for good
		}
		l.slots = max(l.slots*decrease, least)
	case l.isFull:
		l.slots = min(l.slots+max(1, l.max*increase), l.max)
	}
	if l.best == 0 || mean < l.best {
		l.best = mean
	}
	l.since, l.samples, l.failed, l.took, l.isFull = now, 0, 0, 0, false
}
