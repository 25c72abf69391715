package source

import "time"

// burst is the time whose lookups may begin at once.
const burst = 100 * time.Millisecond

// A rateLimit is a token bucket that holds the lookups of a burst. Source.mu guards it.
type rateLimit struct {
	interval time.Duration // between two lookups; 0 if there is no limit
	fullAt   time.Duration // when the bucket is full again
}

// newRateLimit returns a limit of so many lookups a second; 0 means no limit.
func newRateLimit(perSecond int) rateLimit {
	if perSecond == 0 {
		return rateLimit{}
	}
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
