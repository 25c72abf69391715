// Package queue keeps URLs until a service accepts or rejects them. It sends them in batches, each
// for one host, to several hosts at once. It retries failures, and holds back URLs that were
// accepted a short time ago. Packages indexnow and updatecache say how a batch is sent; their
// Queues document what this one does.
package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/internal/outbound"
)

// Config configures a [Queue].
type Config struct {
	Delay    time.Duration // how long a URL waits for others of its host
	Hold     time.Duration // how long a URL that was accepted is held back
	Capacity int           // of URLs that wait or are being sent, and of those remembered for Hold
	Parallel int           // requests at one time, each for another host
	MaxBatch int           // URLs in a request
	Pause    time.Duration // after each request, until the next one for the same host

	Clock outbound.Clock
	// Wait returns how long to wait after this many failures in a row, at most longest.
	Wait func(failures int, longest time.Duration) time.Duration

	// Send sends a batch. It returns the results of its parts, which together have all URLs. stopped
	// says why the rest was not accepted, or is nil. If the batch is sent in several requests,
	// mayGoOn reports whether the next one may be sent. panicked is what the caller's code panicked
	// with, or nil.
	Send func(ctx context.Context, host string, urls []string, mayGoOn func() bool) (parts []Part, stopped *Problem, panicked any)
}

// A Part is the result of some URLs of a batch.
type Part struct {
	URLs   []string
	Err    error // nil: accepted
	IsKept bool  // they stay in the queue
	// IsPending is set if the service has them, but has yet to verify something.
	IsPending bool
	// Report is called once the URLs are no longer in the queue. It may be nil.
	Report func(ctx context.Context)
}

// A Problem says why the rest of a batch was not accepted, if its URLs are not the cause.
type Problem struct {
	Err         error
	IsRetryable bool
	IsHostOnly  bool // it concerns the host alone, not the service
	IsAnswered  bool // the service answered
	// IsAfterAnswer is set if the service answered another request for the batch.
	IsAfterAnswer bool
	IsRateLimit   bool
	IsNotSent     bool // no request failed: mayGoOn returned false, or the caller's code panicked
	RetryAfter    time.Duration
}

// A Queue holds URLs. [New] makes one.
type Queue struct {
	cfg    Config
	wake   chan struct{} // wakes Run
	closed chan struct{} // closed by Shutdown

	mu       sync.Mutex
	schedule schedule
	sent     map[string]time.Time // for Hold
	sentLog  []sentAt             // sent, oldest first
	lastErr  error                // why the last request is retried, or nil
	running  bool
	stopped  chan struct{} // closed when Run returns; nil if it was never called
	abort    context.CancelFunc
	stats    Stats
}

const (
	// The longest backoffs, unless Retry-After is longer. That of the service is shorter, because
	// failures of some hosts do not mean that the service is down.
	maxHostWait    = 10 * time.Minute
	maxServiceWait = time.Minute
	// Each time this many requests in a row have failed, the service gets no requests for a while.
	serviceFailures = 3
)

type sentAt struct {
	url string
	at  time.Time
}

// Stats counts what happened to the URLs of a [Queue]. See indexnow.QueueStats.
type Stats struct {
	Waiting  int
	Added    uint64
	Repeated uint64
	Accepted uint64
	Pending  uint64
	Retried  uint64
	Failed   uint64
	Err      error
}

// The errors of a Queue.
var (
	ErrFull    = errors.New("the queue is full")
	ErrClosed  = errors.New("the queue is closed")
	ErrRunning = errors.New("the queue is already running")
)

// Default sets a value to def if it is zero.
func Default[T comparable](value *T, def T) {
	var zero T
	if *value == zero {
		*value = def
	}
}

// New returns a Queue, or the problems of the configuration, as errors of the package pkg.
func New(pkg string, cfg Config) (*Queue, []error) {
	var problems []error
	notNegative := func(path string, value int64, text, want string) {
		if value < 0 {
			problems = append(problems, &badvalue.Error{Path: path, Value: text, Reason: "is negative", Want: want})
		}
	}
	notNegative("Delay", int64(cfg.Delay), cfg.Delay.String(), "0 for the default, or some seconds")
	notNegative("Hold", int64(cfg.Hold), cfg.Hold.String(), "0 for the default, or some minutes")
	notNegative("Capacity", int64(cfg.Capacity), strconv.Itoa(cfg.Capacity), "0 for the default, or a number of URLs")
	notNegative("Parallel", int64(cfg.Parallel), strconv.Itoa(cfg.Parallel), "0 for the default, or a number of requests")
	if len(problems) > 0 {
		return nil, problems
	}
	return &Queue{
		cfg:      cfg,
		wake:     make(chan struct{}, 1),
		closed:   make(chan struct{}),
		schedule: newSchedule(cfg.Delay, cfg.Parallel),
		sent:     make(map[string]time.Time),
	}, nil
}

// Add puts a URL of a host into the queue, and does not wait.
func (q *Queue) Add(url, host string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.isClosed() {
		return ErrClosed
	}
	e := q.schedule.urls[url]
	switch {
	case e != nil && (e.isQueued || e.isAddedAgain):
		q.stats.Repeated++
		return nil
	case q.schedule.len() >= q.cfg.Capacity:
		return ErrFull
	case e != nil: // it is being sent, and its page may have changed since
		q.schedule.addAgain(e)
		q.stats.Added++
		return nil
	}
	now := q.cfg.Clock.Now()
	q.forgetSent(now, 2)
	q.stats.Added++
	before, waits := q.schedule.next(false)
	q.schedule.add(url, host, q.readyAt(url, now))
	if after, _ := q.schedule.next(false); !waits || after.Before(before) {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// readyAt returns when a URL may be sent: it is held back if it was sent a short time ago.
func (q *Queue) readyAt(url string, now time.Time) time.Time {
	if at, ok := q.sent[url]; ok {
		return later(now, at.Add(q.cfg.Hold))
	}
	return now
}

func (q *Queue) isClosed() bool {
	select {
	case <-q.closed:
		return true
	default:
		return false
	}
}

// forgetSent removes the URLs that no longer have to be held back, and the oldest if there are more
// than Capacity. It removes only some of them, up to most, so that no call takes long. Together,
// its calls remove URLs at least as fast as URLs are sent.
func (q *Queue) forgetSent(now time.Time, most int) {
	n := 0
	for n < min(most, len(q.sentLog)) {
		s := q.sentLog[n]
		if len(q.sentLog)-n <= q.cfg.Capacity && now.Sub(s.at) < q.cfg.Hold {
			break
		}
		if q.sent[s.url].Equal(s.at) {
			delete(q.sent, s.url)
		}
		n++
	}
	q.sentLog = q.sentLog[n:]
}

// Run sends the URLs when they are due, until the context ends or Shutdown is called.
func (q *Queue) Run(ctx context.Context) error {
	ctx, abort := context.WithCancel(ctx)
	defer abort()
	q.mu.Lock()
	switch {
	case q.isClosed():
		q.mu.Unlock()
		return nil
	case q.running:
		q.mu.Unlock()
		return ErrRunning
	}
	q.running, q.stopped, q.abort = true, make(chan struct{}), abort
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.running = false
		close(q.stopped)
	}()
	q.sendAll(ctx, q.closed, false)
	if q.isClosed() {
		return nil
	}
	return ctx.Err()
}

// sendAll sends batches until stop is closed or ctx ends. If isLast is set, it sends what is
// ready and does not wait for more: it returns when nothing is left that may be sent before
// the deadline of ctx.
func (q *Queue) sendAll(ctx context.Context, stop <-chan struct{}, isLast bool) {
	ended := make(chan request)
	requests := 0
	defer func() { q.settleAll(ctx, ended, requests) }() // even if the caller's code panics
	_, isBounded := ctx.Deadline()
	isStopped := func() bool {
		select {
		case <-stop:
			return true
		default:
			return ctx.Err() != nil
		}
	}
	for !isStopped() {
		if r, ok := q.take(isLast, requests); ok {
			r.isLast, r.isOnce = isLast, isLast && !isBounded
			requests++
			go q.send(ctx, r, ended)
			continue
		}
		q.mu.Lock()
		at, waits := q.schedule.next(isLast)
		isFull := requests >= q.schedule.width
		q.mu.Unlock()
		wait := at.Sub(q.cfg.Clock.Now())
		if isLast && requests == 0 {
			if deadline, _ := ctx.Deadline(); !waits || wait > 0 && (!isBounded || at.After(deadline)) {
				return
			}
		}
		var alarm <-chan time.Time
		if waits && !isFull {
			alarm = q.cfg.Clock.After(wait)
		}
		select {
		case r := <-ended:
			requests--
			q.settle(ctx, r)
		case <-stop:
		case <-ctx.Done():
		case <-q.wake:
		case <-alarm:
		}
	}
}

// A request is one request, and what came of it.
type request struct {
	urls       []string
	entries    []*entry // of these URLs
	host       *host
	generation int  // of the schedule, when it began
	isLast     bool // Shutdown sends it
	isOnce     bool // it is not retried, because Shutdown has no deadline

	parts    []Part
	problem  *Problem
	panicked any
}

// take returns the next request, if one is ready and fewer than allowed are in progress.
func (q *Queue) take(isLast bool, requests int) (r request, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if requests >= q.schedule.width {
		return r, false
	}
	entries := q.schedule.take(q.cfg.Clock.Now(), isLast, q.cfg.MaxBatch)
	if entries == nil {
		return r, false
	}
	r = request{entries: entries, host: entries[0].host, generation: q.schedule.generation}
	r.urls = make([]string, len(entries))
	for i, e := range entries {
		r.urls[i] = e.url
	}
	return r, true
}

var errGoexit = errors.New("the code that sends a request called runtime.Goexit")

// send sends a request. If that panics, settle panics with the same value, in the goroutine of Run
// or Shutdown.
func (q *Queue) send(ctx context.Context, r request, ended chan<- request) {
	r.panicked = errGoexit
	defer func() { ended <- r }()
	r.parts, r.problem, r.panicked = q.cfg.Send(ctx, r.host.name, r.urls, func() bool { return ctx.Err() == nil && q.mayGoOn(r) })
}

// mayGoOn reports whether the parts of a batch that is split may still be sent.
func (q *Queue) mayGoOn(r request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return r.generation == q.schedule.generation && (r.isLast || !q.isClosed())
}

// settleAll settles requests that are in progress. If one panics, the others are settled too.
func (q *Queue) settleAll(ctx context.Context, ended <-chan request, requests int) {
	if requests > 0 {
		defer q.settleAll(ctx, ended, requests-1)
		q.settle(ctx, <-ended)
	}
}

// settle updates the queue after a request, and calls the hooks.
func (q *Queue) settle(ctx context.Context, r request) {
	q.update(ctx, r)
	if r.panicked != nil {
		defer panic(r.panicked)
	}
	q.report(ctx, r.parts)
}

// report reports the parts of a batch. If one panics, the others are reported too.
func (q *Queue) report(ctx context.Context, parts []Part) {
	if len(parts) == 0 {
		return
	}
	defer q.report(ctx, parts[1:])
	if p := parts[0]; !p.IsKept && p.Report != nil {
		p.Report(ctx)
	}
}

func (q *Queue) update(ctx context.Context, r request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.cfg.Clock.Now()
	r.host.isSending = false
	defer q.schedule.update(r.host)
	if r.parts == nil { // Send did not return
		q.putBack(r.entries)
		return
	}
	retried, isPending := uint64(0), false
	byURL := make(map[string]*entry, len(r.entries))
	for _, e := range r.entries {
		byURL[e.url] = e
	}
	for _, p := range r.parts {
		n := uint64(len(p.URLs))
		part := make([]*entry, n)
		for i, u := range p.URLs {
			part[i] = byURL[u]
		}
		if p.IsPending {
			q.stats.Pending += n
		}
		switch {
		case p.IsKept:
			q.putBack(part)
			if p.Err != nil {
				retried += n
			} else {
				isPending = true
			}
			continue
		case p.Err != nil:
			q.stats.Failed += n
		default:
			q.stats.Accepted += n
		}
		for _, e := range part {
			q.remove(e, p.Err == nil, now)
		}
	}
	if q.cfg.Pause > 0 {
		r.host.pausedUntil = now.Add(q.cfg.Pause)
	}
	q.forgetSent(now, 2*len(r.entries))
	wait := q.cfg.Wait
	if r.isOnce {
		wait = func(int, time.Duration) time.Duration { return never }
	}
	switch {
	case r.problem == nil || !r.problem.IsRetryable:
		q.lastErr = nil
		failures := r.host.failures
		if r.problem == nil || r.problem.IsAnswered { // otherwise nothing was sent, because the host has no key
			q.schedule.answered(r.host, r.generation)
		}
		if isPending {
			r.host.failures = failures // so that the backoff goes on doubling
			q.schedule.delayHost(r.host, now, 0, wait)
		}
	case r.problem.IsNotSent:
	case ctx.Err() == nil || r.problem.IsAnswered: // otherwise the context may be the cause
		q.stats.Retried += retried
		q.lastErr, r.host.err = r.problem.Err, r.problem.Err
		if r.problem.IsAfterAnswer {
			q.schedule.answered(r.host, r.generation)
		}
		q.schedule.failed(r.host, r.problem, now, r.generation, wait)
	}
}

// never is a backoff that outlasts a Shutdown.
const never = 365 * 24 * time.Hour

// putBack lets URLs wait again, because their request failed or they are pending.
func (q *Queue) putBack(entries []*entry) {
	for _, e := range entries {
		if q.schedule.clearAgain(e) {
			q.stats.Added--
			q.stats.Repeated++
		}
		q.schedule.enqueue(e)
	}
}

// remove removes a URL that is settled. If it was added again meanwhile, it waits again.
func (q *Queue) remove(e *entry, isAccepted bool, now time.Time) {
	if isAccepted {
		q.sent[e.url] = now
		q.sentLog = append(q.sentLog, sentAt{e.url, now})
	}
	if q.schedule.clearAgain(e) {
		e.ready = q.readyAt(e.url, now)
		q.schedule.enqueue(e)
	} else {
		q.schedule.drop(e)
	}
}

// Stats returns the counts so far.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	stats := q.stats
	stats.Waiting = q.schedule.len()
	stats.Err = q.lastErr
	return stats
}

// Shutdown closes the queue, lets the requests in progress finish, and sends what is ready until
// the deadline, or once if there is none. It returns the URLs that are left.
func (q *Queue) Shutdown(ctx context.Context) (unsent []string, err error) {
	q.mu.Lock()
	if q.isClosed() {
		q.mu.Unlock()
		return nil, ErrClosed
	}
	close(q.closed)
	stopped, abort := q.stopped, q.abort
	// Listing the URLs that are left takes up to 0.2 s for a million.
	toList := (time.Duration(q.schedule.len()) * 200 * time.Nanosecond).Truncate(time.Millisecond)
	q.mu.Unlock()
	if deadline, isBounded := ctx.Deadline(); isBounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-toList))
		defer cancel()
	}
	if stopped != nil {
		select {
		case <-stopped:
		case <-ctx.Done():
			abort() // interrupts the requests of Run; their URLs wait again
			<-stopped
		}
	}

	q.sendAll(ctx, nil, true)

	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.cfg.Clock.Now()
	late := 0
	var why error
	unsent = slices.Grow(unsent, len(q.schedule.urls))
	for e := range q.schedule.all() {
		unsent = append(unsent, e.url)
		if !e.ready.After(now) {
			late++
		}
	}
	for _, h := range q.schedule.hosts {
		why = cmp.Or(why, h.err)
	}
	if late == 0 {
		return unsent, nil
	}
	return unsent, fmt.Errorf("the queue is shut down with %d URLs that were not sent in time: %w", late, cmp.Or(why, q.lastErr, ctx.Err(), context.DeadlineExceeded))
}
