package lookup

import "time"

// burst limits how many unused lookups are saved up: those of this much time.
const burst = 100 * time.Millisecond

// A rateLimit is a token bucket that holds the lookups of a burst. Cache.mu guards it.
type rateLimit struct {
	interval time.Duration // between two lookups
	fullAt   time.Duration // when the bucket is full again
}

func newRateLimit(perSecond int) rateLimit {
	return rateLimit{interval: time.Second / time.Duration(perSecond)}
}

// allow takes a token, if there is one.
func (l *rateLimit) allow(now time.Duration) bool {
	if now < l.fullAt-burst {
		return false
	}
	l.fullAt = max(l.fullAt, now) + l.interval
	return true
}

// slots bound the lookups that run at one time. Those for names that are not remembered
// share three quarters of them, so that invented names cannot take all slots.
type slots struct {
	all, unknown chan struct{}
}

func newSlots(n int) slots {
	return slots{all: make(chan struct{}, n), unknown: make(chan struct{}, max(1, n*3/4))}
}

// wait waits for a slot, and reports whether one became free in time.
func (s slots) wait(isKnown bool, timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	if !isKnown {
		select {
		case s.unknown <- struct{}{}:
		case <-timer.C:
			return false
		}
	}
	select {
	case s.all <- struct{}{}:
		return true
	case <-timer.C:
		if !isKnown {
			<-s.unknown
		}
		return false
	}
}

// try takes a slot for a remembered name if one is free now.
func (s slots) try() bool {
	select {
	case s.all <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s slots) leave(isKnown bool) {
	<-s.all
	if !isKnown {
		<-s.unknown
	}
}
