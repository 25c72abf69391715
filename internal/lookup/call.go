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
	class     class
	isProbe   bool     // finds out whether the source works again
	breaker   *breaker // of its kind, and of names that are remembered or not
	queue     *queue
	forgotten bool // the answer must not be remembered; Cache.mu guards it

	name string // the answer, once done is closed
	err  error
	done chan struct{}
}

// begin makes a call if the breaker allows it. c.mu is held.
func (c *Cache) begin(q question, class class, shard *shard) (*call, error) {
	now := c.now()
	own := &call{
		question: q,
		began:    now,
		epoch:    c.memory.epoch.Load(),
		class:    class,
		breaker:  &shard.breakers[q.kind][0],
		queue:    shard.queue,
		done:     make(chan struct{}),
	}
	if class == known {
		own.breaker = &shard.breakers[q.kind][1]
	}
	if err := own.breaker.check(q.key, now); err != nil {
		c.count.circuitOpen.Add(1)
		return nil, err
	}
	own.isProbe = own.breaker.begin(now)
	c.calls[q.key] = own
	return own, nil
}

func (c *Cache) shardOf(key string) *shard { return &c.shards[c.source.Shard(key)] }

func (c *Cache) class(q question) class {
	hint := c.source.Hint(q.key)
	switch {
	case hint == Absent:
		return absent
	case c.memory.names.Contains(q.name):
		return known
	case hint == Likely:
		return likely
	case c.rejected.isReturning(q.key, c.now()):
		return returning
	default:
		return unknown
	}
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
	if !hasSlot && !own.queue.wait(own.class, c.options.Timeout) {
		c.count.busy.Add(1)
		own.err = ErrBusy
		return
	}
	if err := c.stillAllowed(own); err != nil {
		own.queue.leave(own.class)
		own.err = err
		return
	}
	begun := c.now()
	defer func() {
		now := c.now()
		own.queue.finished(own.class, now, now-begun, own.err != nil && !errors.Is(own.err, ErrBadAnswer))
	}()
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

// stillAllowed checks the breaker again after the wait for a slot, because other calls may
// have failed in the meantime. Then, unless the name is remembered, it takes a token of the
// rate limit, which counts only lookups that reach the source.
func (c *Cache) stillAllowed(own *call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if !own.isProbe {
		if err := own.breaker.check(own.key, now); err != nil {
			c.count.circuitOpen.Add(1)
			return err
		}
	}
	if own.class != known && !c.rate.allow(now) {
		c.count.rateLimited.Add(1)
		return ErrRateLimited
	}
	return nil
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
		switch {
		case own.forgotten:
		case own.kind == byAlias && own.name != "" && c.isSharded():
			c.memory.aliases.Add(own.key, own.name) // it is still to be looked up by name
		default:
			c.memory.remember(own)
		}
	case err == ErrBusy, err == ErrRateLimited:
		if own.class != known {
			c.rejected.add(own.key, c.now())
		}
	case errors.Is(err, ErrCircuitOpen): // the source was not asked
	case errors.Is(err, ErrBadAnswer):
		c.count.errors.Add(1)
		own.breaker.success(own.key) // it answers
	default:
		c.count.errors.Add(1)
		now := c.now()
		own.breaker.failure(own.key, now, now-own.began, err)
	}
}
