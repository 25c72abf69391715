package source

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ampcors/ampcors/internal/domains"
	"github.com/ampcors/ampcors/internal/prefixes"
	"github.com/ampcors/ampcors/source/driver"
)

// A call is a lookup that runs. Callers with the same key wait for one call (singleflight).
type call struct {
	key       key
	began     time.Duration // the answer may miss later changes
	epoch     uint32
	class     class
	isProbe   bool     // finds out whether the database works again
	breaker   *breaker // of its kind
	queue     *queue
	isRefresh bool // it runs in the background
	hasSlot   bool // before it runs
	isAsked   bool // the database was asked; otherwise err is the Source's own
	forgotten bool // the answer must not be remembered; Source.mu guards it

	domain string // the answer, once done is closed
	err    error
	done   chan struct{}
}

// begin makes a call if the breaker allows it. s.mu is held.
func (s *Source) begin(k key, class class, shard *shard) (*call, error) {
	if s.background.Err() != nil {
		return nil, ErrClosed
	}
	b := &shard.unknownPrefixes
	switch {
	case class == remembered: // only a domain is
		b = &shard.publishers
	case !k.isHash:
		b = &shard.unknownDomains
	}
	own := s.newCall(k, class, b, shard.queue)
	if err := b.check(k.text, own.began); err != nil {
		s.stats.CircuitOpen++
		return nil, err
	}
	own.isProbe = b.begin(own.began)
	s.calls[k] = own
	return own, nil
}

func (s *Source) newCall(k key, class class, b *breaker, queue *queue) *call {
	return &call{key: k, began: s.now(), epoch: s.memory.epoch.Load(), class: class, breaker: b, queue: queue,
		done: make(chan struct{})}
}

// shardOf returns a shard that exists, whatever the database returns.
func (s *Source) shardOf(k key) *shard {
	if !s.isSharded() {
		return &s.shards[0]
	}
	return &s.shards[uint(s.asked.Shard(k.name()))%uint(len(s.shards))]
}

func (s *Source) class(k key) class {
	switch {
	case s.memory.publishers.Contains(k.text):
		return remembered
	case s.asked.IsLikely != nil && s.asked.IsLikely(k.name()):
		return likely
	case s.rejected.isReturning(k.text, s.now()):
		return returning
	default:
		return unknown
	}
}

// wait waits for the call of another caller.
func (s *Source) wait(ctx context.Context, running *call) Answer {
	timer := time.NewTimer(2 * s.options.Timeout) // for a slot, and for the lookup
	defer timer.Stop()
	select {
	case <-running.done:
		return s.answer(running)
	case <-ctx.Done():
		return Answer{Err: context.Cause(ctx)} // the client is gone
	case <-timer.C: // the database ignores its context; the next caller asks again
		s.mu.Lock()
		if s.calls[running.key] == running {
			running.forgotten = true // Forget no longer finds it
			delete(s.calls, running.key)
		}
		s.mu.Unlock()
		return s.staleIfError(running.key.text, ErrTimeout)
	}
}

// answer returns the Answer of a finished call.
func (s *Source) answer(done *call) Answer {
	if done.err != nil {
		return s.staleIfError(done.key.text, done.err)
	}
	return Answer{Publisher: done.domain}
}

// run asks the database, once there is a slot. ctx must not end with the request that began it,
// because others may wait for it.
func (s *Source) run(ctx context.Context, own *call) {
	own.err = ErrPanicked // unless ask returns
	defer s.finish(own)
	if !own.hasSlot && !own.queue.wait(own.class, s.options.Timeout) {
		own.err = ErrBusy
		return
	}
	if err := s.stillAllowed(own); err != nil {
		own.queue.leave(own.class)
		own.err = err
		return
	}
	defer own.queue.leave(own.class)
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	own.domain, own.err = s.ask(ctx, own.key)
	if own.err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		own.err = fmt.Errorf("%w: %w", ErrTimeout, own.err)
	}
}

// ask asks the database, and checks its answer.
func (s *Source) ask(ctx context.Context, k key) (domain string, err error) {
	switch {
	case k.isPattern():
		return s.askForPattern(ctx, k.name())
	case !k.isHash:
		return s.askByDomain(ctx, k.text)
	}
	domain, err = s.asked.PublisherByHash(ctx, k.text)
	// Copied before it is checked: the database may reuse its memory, or it may be a part of a
	// large string.
	domain = strings.Clone(domain[:min(len(domain), domains.MaxDomain+1)])
	if domain == "" || err != nil {
		return "", err
	}
	if !isCanonical(domain) {
		return "", fmt.Errorf("%w: %q is not a publisher domain in lower-case ASCII", ErrBadAnswer, domain)
	}
	if prefixes.Hash(domain) != k.text {
		return "", fmt.Errorf("%w: %q does not have the hash prefix %q", ErrBadAnswer, domain, k.text)
	}
	return domain, nil
}

// askByDomain returns the domain if the database has stored this one, and not only one that is equal to it by
// the rules of the database.
func (s *Source) askByDomain(ctx context.Context, domain string) (string, error) {
	if !isCanonical(domain) {
		return "", nil // the caller did not check it
	}
	stored, err := s.asked.PublisherByDomain(ctx, domain)
	if err != nil || stored == "" {
		return "", err
	}
	if stored != domain {
		parsed, problem := domains.Parse(stored)
		if problem != nil {
			return "", fmt.Errorf("%w: asked for %q, PublisherByDomain returned %.80q, which %s; want the domain that the row "+
				"has", ErrBadAnswer, domain, stored, problem.Reason)
		}
		if parsed != domain {
			return "", nil
		}
	}
	return domain, nil
}

// isCanonical reports whether a domain is one in lower-case ASCII.
func isCanonical(domain string) bool {
	hasALabel, problem := domains.Check(domain)
	if hasALabel && problem == nil {
		_, problem = domains.Decode(domain)
	}
	return problem == nil
}

// stillAllowed checks the breaker again after the wait for a slot, because other calls may
// have failed in the meantime.
func (s *Source) stillAllowed(own *call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.background.Err() != nil {
		return ErrClosed
	}
	if !own.isProbe {
		if err := own.breaker.check(own.key.text, s.now()); err != nil {
			s.stats.CircuitOpen++
			return err
		}
	}
	s.stats.Lookups++
	if own.isRefresh {
		s.stats.Refreshes++
	}
	own.isAsked = true
	return nil
}

// finish remembers the answer of a call, updates its breaker, wakes the waiting callers, and logs the begin and the
// end of an outage.
func (s *Source) finish(own *call) {
	switch report, lasted := s.record(own); report {
	case outageBegins:
		s.options.Logger.Error("ampcors: lookups of publishers fail; publishers that were confirmed are allowed until "+
			"maxStale is over, and others get 503",
			"error", driver.LogText(own.err))
	case outageEnds:
		s.options.Logger.Info("ampcors: lookups of publishers work again", "failed_for", lasted.Round(time.Millisecond))
	}
}

// record is finish without the log.
func (s *Source) record(own *call) (report outageReport, lasted time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(own.done)
	if s.calls[own.key] == own {
		delete(s.calls, own.key)
	}
	if own.isAsked && errors.Is(own.err, ErrNoStale) {
		s.dropAll()
	}
	isRetry := own.breaker.retry == own
	if isRetry {
		own.breaker.retry = nil
	}
	switch err := own.err; {
	case err == nil:
		own.breaker.success(own.key.text)
		if s.outage.isOn && !s.anyFails() {
			report, lasted = s.outage.end(s.now())
		}
		switch {
		case own.forgotten:
			// This denial may be out of date. The answer that was remembered before is older still, so it is not
			// served as stale.
			if own.domain == "" && !s.memory.hasNewer(own) {
				s.memory.publishers.Remove(own.key.text)
			}
		case own.domain != "" && own.key.isHash && s.isSharded():
			s.memory.prefixes.Add(own.key.text, own.domain) // it is still to be looked up by domain
		default:
			s.memory.remember(own)
		}
	case !own.isAsked:
		if err == ErrBusy {
			s.stats.Busy++
			if own.class != remembered {
				s.rejected.add(own.key.text, s.now())
			}
			if isRetry {
				s.retryLater(own)
			}
		}
	case errors.Is(err, ErrBadAnswer):
		s.stats.Errors++
		own.breaker.success(own.key.text) // it answers
	default:
		s.stats.Errors++
		now := s.now()
		own.breaker.failure(own.key.text, now, now-own.began, err)
		if own.breaker.fails(now) {
			report = s.outage.begin(now)
		}
		if isRetry {
			own.breaker.until = now + openFor
		}
		s.retryLater(own)
	}
	return report, lasted
}
