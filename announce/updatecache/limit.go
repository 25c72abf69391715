package updatecache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A cache accepts this many requests per second for one host.
const (
	maxRequests = 10
	perPeriod   = time.Second
)

// errNoSlot: the context ends before the rate limit allows another request.
var errNoSlot = errors.New("not sent, because of the rate limit")

// A limiter delays requests, so that at most maxRequests arrive at one host in any second.
// Each host has that many slots. A request takes a slot, which is free again a second after its
// answer, so two requests of one slot never arrive within a second, however long connecting
// takes.
type limiter struct {
	mu    sync.Mutex
	hosts map[string]*hostSlots // those with users
}

type hostSlots struct {
	taken chan struct{}
	users int // slots that are taken, and requests that wait for one; guarded by limiter.mu
}

// acquire waits for a slot. The caller must call release, with true if the slot was used.
func (l *limiter) acquire(ctx context.Context, host string) (release func(used bool), err error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", errNoSlot, ctx.Err())
	}
	h := l.enter(host)
	select {
	case h.taken <- struct{}{}:
	case <-ctx.Done():
		l.leave(host)
		return nil, fmt.Errorf("%w: %w", errNoSlot, ctx.Err())
	}
	free := func() { <-h.taken; l.leave(host) }
	return func(used bool) {
		if used {
			time.AfterFunc(perPeriod, free)
		} else {
			free()
		}
	}, nil
}

func (l *limiter) enter(host string) *hostSlots {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.hosts[host]
	if h == nil {
		if l.hosts == nil {
			l.hosts = make(map[string]*hostSlots)
		}
		h = &hostSlots{taken: make(chan struct{}, maxRequests)}
		l.hosts[host] = h
	}
	h.users++
	return h
}

func (l *limiter) leave(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.hosts[host]; h.users > 1 {
		h.users--
	} else {
		delete(l.hosts, host)
	}
}
