package updatecache

import (
	"context"
	"sync"
	"time"

	"github.com/ampcors/ampcors/internal/outbound"
)

// maxRequests are those that caches take in a second for one host.
const (
	maxRequests = 10
	perPeriod   = time.Second
)

// A limiter holds requests back, so that to one host no more than maxRequests go out in any
// second. Its memory is that of the hosts of the last second, and of those that wait.
type limiter struct {
	clock Clock

	mu    sync.Mutex
	hosts map[string]*hostLimit
	sweep int // the number of hosts at which those that are idle are forgotten
}

type hostLimit struct {
	turn  chan struct{} // has a token, which whoever is next holds while waiting
	users int           // holders and those in line; guarded by limiter.mu

	sent [maxRequests]time.Time // of the last requests, in a ring; guarded by the token
	next int
}

// wait waits until a request may go to the host. Whoever gives up waiting takes nothing
// from the others.
func (l *limiter) wait(ctx context.Context, host string) error {
	h := l.enter(host)
	defer l.leave(h)
	select {
	case <-h.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { h.turn <- struct{}{} }()
	oldest := &h.sent[h.next]
	if !oldest.IsZero() {
		if err := outbound.Wait(ctx, l.clock, oldest.Add(perPeriod).Sub(l.clock.Now())); err != nil {
			return err
		}
	}
	*oldest = l.clock.Now()
	h.next = (h.next + 1) % maxRequests
	return nil
}

func (l *limiter) enter(host string) *hostLimit {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.hosts[host]
	if h == nil {
		if len(l.hosts) >= l.sweep {
			l.forgetIdle()
		}
		h = &hostLimit{turn: make(chan struct{}, 1)}
		h.turn <- struct{}{}
		if l.hosts == nil {
			l.hosts = make(map[string]*hostLimit)
		}
		l.hosts[host] = h
	}
	h.users++
	return h
}

func (l *limiter) leave(h *hostLimit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.users--
}

// forgetIdle forgets the hosts that may be asked ten times at once again. It is called as
// often as their number has doubled, so that it costs each request little.
func (l *limiter) forgetIdle() {
	now := l.clock.Now()
	for host, h := range l.hosts {
		newest := h.sent[(h.next+maxRequests-1)%maxRequests]
		if h.users == 0 && now.Sub(newest) > perPeriod {
			delete(l.hosts, host)
		}
	}
	l.sweep = max(1000, 2*len(l.hosts))
}
