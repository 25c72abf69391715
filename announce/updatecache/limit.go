package updatecache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ampcors/ampcors/internal/outbound"
)

// A cache accepts this many requests per second for one host.
const (
	maxRequests = 10
	perPeriod   = time.Second
)

// errNoSlot: the context ends before the rate limit allows another request.
var errNoSlot = errors.New("not sent, because of the rate limit")

// A limiter delays requests, so that at most maxRequests arrive at one host in any second.
// Each host has that many slots. A request takes a slot and frees it a second after its
// answer, so two requests of one slot never arrive within a second, however long connecting
// takes. The limiter remembers only the hosts of the last two seconds.
type limiter struct {
	clock outbound.Clock

	mu    sync.Mutex
	hosts map[string]*hostSlots
	swept time.Time
}

type hostSlots struct {
	free chan time.Time // the slots not in use: when each may be used again

	// Guarded by limiter.mu.
	users int       // requests that have a slot or wait for one
	last  time.Time // when a slot was last used
}

// acquire waits for a slot. The caller must call release, with true if the slot was used.
func (l *limiter) acquire(ctx context.Context, host string) (release func(used bool), err error) {
	h := l.enter(host)
	var from time.Time
	select {
	case from = <-h.free:
	case <-ctx.Done():
		l.leave(h, false)
		return nil, fmt.Errorf("%w: %w", errNoSlot, ctx.Err())
	}
	// No wait is longer than a second, even if the clock is set back.
	if err := outbound.Wait(ctx, l.clock, min(from.Sub(l.clock.Now()), perPeriod)); err != nil {
		h.free <- from
		l.leave(h, false)
		return nil, fmt.Errorf("%w: %w", errNoSlot, err)
	}
	return func(used bool) {
		if used {
			from = l.clock.Now().Add(perPeriod)
		}
		h.free <- from
		l.leave(h, used)
	}, nil
}

func (l *limiter) enter(host string) *hostSlots {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.clock.Now(); l.hosts == nil || now.Sub(l.swept).Abs() > perPeriod {
		l.forgetIdle(now)
	}
	h := l.hosts[host]
	if h == nil {
		h = &hostSlots{free: make(chan time.Time, maxRequests)}
		for range maxRequests {
			h.free <- time.Time{}
		}
		l.hosts[host] = h
	}
	h.users++
	return h
}

func (l *limiter) leave(h *hostSlots, used bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.users--
	if used {
		h.last = l.clock.Now()
	}
}

// forgetIdle removes the hosts whose slots are all free again. It moves the others to a new
// map, because a map never shrinks.
func (l *limiter) forgetIdle(now time.Time) {
	kept := make(map[string]*hostSlots)
	for host, h := range l.hosts {
		if h.users > 0 || now.Sub(h.last) <= perPeriod {
			kept[host] = h
		}
	}
	l.hosts, l.swept = kept, now
}
