package lookup

import "time"

const (
	// first is what the limit begins with, if the maximum allows it: few enough to find out
	// how fast the source is when it is not overloaded.
	first = 16

	// Lookups are counted in a window before the limit changes. A window has at least
	// minSamples lookups. It lasts at least minWindow, and at least twice the best time of a
	// lookup, so that a change of the limit shows in the next window.
	minWindow  = 20 * time.Millisecond
	minSamples = 8

	// Until it has shrunk once, the limit doubles in each window in which all slots were in
	// use (slow start). Then it grows by increase, a share of the maximum, and shrinks to
	// decrease of itself, but not below least, a share of the maximum.
	increase = 1. / 64
	decrease = 0.75
	least    = 1. / 16

	// A source is overloaded if a lookup takes, on average, longer than slower times the best
	// time plus slack. When lookups are short, slack keeps a garbage collection or a busy
	// processor from counting as overload.
	slower = 2
	slack  = 5 * time.Millisecond

	// maxFailed is the share of failed lookups above which a source is overloaded.
	maxFailed = 0.1
)

// A limit is how many lookups may run at one time. It adapts to what the source can handle:
// it grows while all slots are in use, and shrinks when lookups become slower or fail
// (additive increase, multiplicative decrease). The mutex of its queue guards it.
type limit struct {
	slots     float64
	max       float64
	hasShrunk bool
	best      time.Duration // mean time of a lookup when the source was not overloaded

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
	if now-l.since < max(minWindow, 2*l.best) || l.samples < minSamples {
		return
	}
	l.adapt(l.took / time.Duration(l.samples))
	l.since, l.samples, l.failed, l.took, l.isFull = now, 0, 0, 0, false
}

// adapt changes the limit after a window in which lookups took mean.
func (l *limit) adapt(mean time.Duration) {
	isSlower := l.best > 0 && mean > slower*l.best+slack
	switch smallest := max(1, l.max*least); {
	case isSlower, float64(l.failed) > maxFailed*float64(l.samples):
		if isSlower && l.slots <= smallest {
			l.best = mean // even with few lookups at one time: the source has become slower for good
		}
		l.slots = max(l.slots*decrease, smallest)
		l.hasShrunk = true
		return // failures may be fast, and say nothing about the best time
	case l.isFull && !l.hasShrunk:
		l.slots = min(2*l.slots, l.max)
	case l.isFull:
		l.slots = min(l.slots+max(1, l.max*increase), l.max)
	}
	if l.best == 0 || mean < l.best {
		l.best = mean
	}
}
