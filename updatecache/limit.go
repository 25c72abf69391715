package updatecache

import (
	"context"
	"sync"
	"time"

	"github.com/ampcors/ampcors/internal/outbound"
)

// Caches take so many requests in a second for one host.
const (
	maxRequests = 10
	perPeriod   = time.Second
)

// A limiter lets no more than maxRequests go to one host in any second: each request takes
// one of as many slots, and frees it a second after its answer, so that two of one slot do
// not arrive within a second, however long it takes to connect.
// Its memory is that of the hosts of the last two seconds.
type limiter struct {
	clock outbound.Clock

	mu    sync.Mutex
	hosts map[string]*hostSlots
	swept time.Time
}

type hostSlots struct {
	free chan time.Time // from when each slot that is not in use can be used

	// Guarded by limiter.mu.
	users int       // that have a slot or wait for one
	last  time.Time // when one was last used
}

// acquire waits for a slot. It is given back by release, which has to be told whether
// it was used.
func (l *limiter) acquire(ctx context.Context, host string) (release func(used bool), err error) {
	h := l.enter(host)
	var from time.Time
	select {
	case from = <-h.free:
	case <-ctx.Done():
		l.leave(h, false)
		return nil, ctx.Err()
	}
	// No wait is longer than a second, also if the clock is set back.
	if err := outbound.Wait(ctx, l.clock, min(from.Sub(l.clock.Now()), perPeriod)); err != nil {
		h.free <- from
		l.leave(h, false)
		return nil, err
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

// forgetIdle forgets the hosts of which every slot can be used again. They are moved to a
// new map, as one that was large stays so.
func (l *limiter) forgetIdle(now time.Time) {
	kept := make(map[string]*hostSlots)
	for host, h := range l.hosts {
		if h.users > 0 || now.Sub(h.last) <= perPeriod {
			kept[host] = h
		}
	}
	l.hosts, l.swept = kept, now
}
