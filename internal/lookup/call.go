package lookup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A call is a lookup that runs. Callers with the same key wait for one call (singleflight).
type call struct {
	question
	began     time.Duration // the answer may miss later changes
	epoch     uint32
	isKnown   bool     // the name is remembered, though expired
	isProbe   bool     // finds out whether the source works again
	breaker   *breaker // of its class
	forgotten bool     // the answer must not be remembered; Cache.mu guards it

	name string // the answer, once done is closed
	err  error
	done chan struct{}
}

// begin makes a call if breaker and rate limit allow it. c.mu is held.
func (c *Cache) begin(q question) (*call, error) {
	now := c.now()
	isKnown := c.memory.names.Contains(q.name)
	breaker := &c.breakers[q.kind][0]
	if isKnown {
		breaker = &c.breakers[q.kind][1]
	}
	switch err := breaker.check(q.key, now); {
	case err != nil:
		c.count.circuitOpen.Add(1)
		return nil, err
	case !isKnown && !c.rate.allow(now):
		c.count.rateLimited.Add(1)
		return nil, ErrRateLimited
	}
	own := &call{
		question: q,
		began:    now,
		epoch:    c.memory.epoch.Load(),
		isKnown:  isKnown,
		isProbe:  breaker.begin(now),
		breaker:  breaker,
		done:     make(chan struct{}),
	}
	c.calls[q.key] = own
	return own, nil
}

// wait waits for the call of another caller.
func (c *Cache) wait(ctx context.Context, running *call, q question) Result {
	c.count.coalesced.Add(1)
	timer := time.NewTimer(2 * c.options.Timeout) // for a slot, and for the lookup
	defer timer.Stop()
	select {
	case <-running.done:
		return c.result(running, q)
	case <-ctx.Done():
		return Result{Err: context.Cause(ctx)} // the client is gone
	case <-timer.C:
		return c.staleIfError(q, ErrTimeout) // the source ignores its context
	}
}

// result returns the Result of a finished call for a question.
func (c *Cache) result(done *call, q question) Result {
	if done.err != nil {
		return c.staleIfError(q, done.err)
	}
	return Result{Name: done.name}
}

// run asks the source, once there is a slot. ctx must not end with the request that began it,
// because others may wait for it.
func (c *Cache) run(ctx context.Context, own *call, hasSlot bool) {
	own.err = ErrPanicked // unless ask returns
	defer c.finish(own)
	if !hasSlot && !c.slots.wait(own.isKnown, c.options.Timeout) {
		c.count.busy.Add(1)
		own.err = ErrBusy
		return
	}
	defer c.slots.leave(own.isKnown)
	if err := c.stillAllowed(own); err != nil {
		own.err = err
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	c.count.lookups.Add(1)
	own.name, own.err = c.ask(ctx, own.question)
	if own.err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		own.err = fmt.Errorf("%w: %w", ErrTimeout, own.err)
	}
}

func (c *Cache) ask(ctx context.Context, q question) (name string, err error) {
	if q.kind == byAlias {
		return c.source.NameByAlias(ctx, q.key)
	}
	ok, err := c.source.HasName(ctx, q.name)
	if !ok {
		return "", err
	}
	return q.name, err
}

// stillAllowed checks the breaker again after the wait for a slot: other calls may have
// failed in the meantime.
func (c *Cache) stillAllowed(own *call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if own.isProbe {
		return nil
	}
	err := own.breaker.check(own.key, c.now())
	if err != nil {
		c.count.circuitOpen.Add(1)
	}
	return err
}

// finish remembers the answer of a call, updates its breaker and wakes the waiting callers.
func (c *Cache) finish(own *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(own.done)
	if c.calls[own.key] == own {
		delete(c.calls, own.key)
	}
	switch err := own.err; {
	case err == nil:
		own.breaker.success(own.key)
		if !own.forgotten {
			c.memory.remember(own)
		}
	case err == ErrBusy, errors.Is(err, ErrCircuitOpen):
		// The source was not asked.
	case errors.Is(err, ErrBadAnswer):
		c.count.errors.Add(1)
		own.breaker.success(own.key) // it answers
	default:
		c.count.errors.Add(1)
		now := c.now()
		own.breaker.failure(own.key, now, now-own.began, err)
	}
}
