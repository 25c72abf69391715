package indexnow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/internal/outbound"
)

// QueueConfig configures a [Queue].
type QueueConfig struct {
	// Delay is how long a URL waits for others, to be sent together. If zero, 5 seconds is
	// used.
	Delay time.Duration
	// Hold is how long a URL that was sent is held back if it is added again, because
	// engines treat repetition as spam. If zero, 10 minutes is used.
	Hold time.Duration
	// Capacity bounds the URLs that wait or are being sent. It also bounds the URLs that
	// are remembered for Hold. If there are more, the oldest are forgotten, and may be sent
	// again before Hold is over. If zero, 100,000 is used.
	Capacity int
	// Parallel is how many requests may be in progress at one time, each for another host. If
	// zero, 16 is used.
	Parallel int
	// Failed is called with each batch that the engine rejects permanently. These URLs are
	// no longer in the queue. Run and Shutdown wait for Failed, so it must not call
	// Shutdown. Config.Logger gets the URLs as well (Error).
	Failed func(Batch)
	// Accepted is called with each batch that the engine accepts, also if it is pending. Run and
	// Shutdown wait for it, as for Failed. A program that keeps its own list of URLs to submit
	// can remove these from it.
	Accepted func(Batch)
	// ResubmitPending keeps the URLs of a batch that is [Pending] in the queue, and submits them
	// again after the backoff of the host, until the engine has verified the key. Accepted is
	// then called only at the end.
	ResubmitPending bool
}

// A Queue gathers URLs of pages as they change, and submits them in batches. A URL that
// waits already is not added again. Batches that the engine rejects permanently are passed
// to QueueConfig.Failed. URLs that are left at the end are returned by [Queue.Shutdown].
//
// Each host has one request at a time. Several hosts have theirs at once: after each answer,
// one more, up to QueueConfig.Parallel, and after a failure of the engine one alone.
//
// A batch with a retryable error stays in the queue. It is retried after a backoff, or
// after Retry-After if that is longer. The backoff begins with Config.Backoff, doubles with
// each failure up to 10 minutes, and is reduced at random by up to half. Each host has its
// own. After 429, no batch of any host is sent until this backoff is over. After every
// three requests in a row with no answer, with [ErrServer] or with 429, the engine gets no
// requests for up to a minute, or for Retry-After if that is longer. A Queue does not use
// Config.Attempts and Config.MaxWait.
//
// A Queue is only in memory. If the process is killed, the waiting URLs are lost. A new
// Queue does not know which URLs were sent within Hold. The module examples/outbox keeps both in
// PostgreSQL.
//
// What waits hardly slows it down: with a million URLs, a request with 10 of them and adding
// them again took 50 µs, with a thousand 26 µs, and the slowest Add 37 ms (on a 2-core AMD EPYC;
// go test -run '^$' -bench 'Queue|Add' ./indexnow).
type Queue struct {
	client *Client
	cfg    QueueConfig
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
	stats    QueueStats
}

const (
	// The longest backoffs, unless Retry-After is longer. The engine's is shorter, because
	// failures of some hosts do not mean that the engine is down.
	maxHostWait   = 10 * time.Minute
	maxEngineWait = time.Minute
	// The engine backs off each time this many requests in a row have failed.
	engineFailures = 3
)

type sentAt struct {
	url string
	at  time.Time
}

// QueueStats counts what happened to the URLs of a [Queue].
type QueueStats struct {
	Waiting  int    // in the queue now, including those being sent
	Added    uint64 // not counting Repeated
	Repeated uint64 // those that waited already
	Accepted uint64 // by the engine, those that are pending included
	Pending  uint64 // accepted with 202, so that the engine has yet to verify the key; each time, with ResubmitPending
	Retried  uint64 // sent with a retryable error, counted each time
	Failed   uint64 // rejected by the engine permanently
	Err      error  // why the last request is retried, an *[Error], or nil
}

var (
	// ErrFull is returned by [Queue.Add] when the queue is full.
	ErrFull = errors.New("indexnow: the queue is full")
	// ErrClosed is returned by [Queue.Add] and [Queue.Shutdown] once Shutdown was called.
	ErrClosed = errors.New("indexnow: the queue is closed")
	// ErrRunning is returned by [Queue.Run] if it is already running.
	ErrRunning = errors.New("indexnow: the queue is already running")
)

// NewQueue returns a Queue, or all the problems of the configuration, joined, each an
// *[ampcors.ValueError]. [Queue.Run] submits its URLs.
func NewQueue(client *Client, cfg QueueConfig) (*Queue, error) {
	var problems []error
	reject := func(path, value, reason, want string) {
		problems = append(problems, &ampcors.ValueError{Package: "indexnow", Path: path, Value: value, Reason: reason, Want: want})
	}
	if client == nil {
		reject("client", "", "is missing", "a Client from New")
	}
	if cfg.Delay < 0 {
		reject("Delay", cfg.Delay.String(), "is negative", "some seconds")
	}
	if cfg.Hold < 0 {
		reject("Hold", cfg.Hold.String(), "is negative", "some minutes")
	}
	if cfg.Capacity < 0 {
		reject("Capacity", strconv.Itoa(cfg.Capacity), "is negative", "a number of URLs")
	}
	if cfg.Parallel < 0 {
		reject("Parallel", strconv.Itoa(cfg.Parallel), "is negative", "a number of requests")
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	setDefault(&cfg.Parallel, 16)
	setDefault(&cfg.Delay, 5*time.Second)
	setDefault(&cfg.Hold, 10*time.Minute)
	setDefault(&cfg.Capacity, 100_000)
	return &Queue{
		client:   client,
		cfg:      cfg,
		wake:     make(chan struct{}, 1),
		closed:   make(chan struct{}),
		schedule: newSchedule(cfg.Delay, cfg.Parallel),
		sent:     make(map[string]time.Time),
	}, nil
}

func setDefault[T comparable](value *T, def T) {
	var zero T
	if *value == zero {
		*value = def
	}
}

// Add puts a URL into the queue, and does not wait. It returns an *[ampcors.ValueError] for
// a URL that [Client.Submit] would reject, [ErrFull] or [ErrClosed]. After an error, the
// URL is not in the queue; the caller may add it again later.
func (q *Queue) Add(url string) error {
	page, problem := q.client.page(url)
	if problem != nil {
		return problem
	}
	url = page.String()

	q.mu.Lock()
	defer q.mu.Unlock()
	if q.isClosed() {
		return ErrClosed
	}
	e := q.schedule.urls[url]
	switch {
	case e != nil && (e.isQueued || e.again):
		q.stats.Repeated++
		return nil
	case q.schedule.len() >= q.cfg.Capacity:
		return ErrFull
	case e != nil: // it is being sent, and may have changed since
		q.schedule.addAgain(e)
		q.stats.Added++
		return nil
	}
	now := q.client.clock.Now()
	q.forgetSent(now, 2)
	q.stats.Added++
	before, waits := q.schedule.next(false)
	q.schedule.add(url, page.Host, q.readyAt(url, now))
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

// forgetSent removes URLs that no longer have to be held back. It removes at most most, so that
// no call takes long; it is called at least as often as URLs are sent.
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

// Run submits the URLs in the queue when they are due. It returns the context's error when
// the context ends, and nil when [Queue.Shutdown] is called. Run it in a goroutine; it starts
// one more for each request. The end of the context interrupts the requests in progress.
// Shutdown lets them finish, so prefer Shutdown. Unsent URLs stay in the queue for Shutdown, or
// for another Run if only the context ended.
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
	q.submit(ctx, q.closed, false)
	if q.isClosed() {
		return nil
	}
	return ctx.Err()
}

// submit sends batches until stop is closed or ctx ends. If isLast is set, it sends what is
// ready and does not wait for more: it returns when nothing is left that may be sent before
// the deadline of ctx.
func (q *Queue) submit(ctx context.Context, stop <-chan struct{}, isLast bool) {
	results := make(chan result)
	requests := 0
	defer func() { q.settleAll(ctx, results, requests) }() // even if the caller's code panics
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
			go q.send(ctx, r, results)
			continue
		}
		q.mu.Lock()
		at, waits := q.schedule.next(isLast)
		isFull := requests >= q.schedule.width
		q.mu.Unlock()
		wait := at.Sub(q.client.clock.Now())
		if isLast && requests == 0 {
			if deadline, _ := ctx.Deadline(); !waits || wait > 0 && (!isBounded || at.After(deadline)) {
				return
			}
		}
		var alarm <-chan time.Time
		if waits && !isFull {
			alarm = q.client.clock.After(wait)
		}
		select {
		case r := <-results:
			requests--
			q.settle(ctx, r)
		case <-stop:
		case <-ctx.Done():
		case <-q.wake:
		case <-alarm:
		}
	}
}

// A result is a request and what came of it.
type result struct {
	batch      Batch
	entries    []*entry
	host       *host
	generation int  // of the schedule, when it began
	isLast     bool // it is Shutdown's
	isOnce     bool // and is not retried

	parts    []Batch // with the results, in the order of the entries
	problem  *Error  // that the host or the engine has; nil if it answered about the URLs
	panicked any     // what the caller's HTTPClient or KeysOf panicked with
}

// take returns the next request, if there may be one more than there are.
func (q *Queue) take(isLast bool, requests int) (r result, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if requests >= q.schedule.width {
		return r, false
	}
	entries := q.schedule.take(q.client.clock.Now(), isLast, maxURLs)
	if entries == nil {
		return r, false
	}
	r = result{entries: entries, host: entries[0].host, generation: q.schedule.generation}
	r.batch.Host = r.host.name
	r.batch.URLs = make([]string, len(entries))
	for i, e := range entries {
		r.batch.URLs[i] = e.url
	}
	return r, true
}

var errGoexit = errors.New("indexnow: HTTPClient or KeysOf called runtime.Goexit")

// send makes a request. settle panics with what it panicked with, in the caller's goroutine.
func (q *Queue) send(ctx context.Context, r result, results chan<- result) {
	r.panicked = errGoexit
	defer func() { results <- r }()
	r.parts, r.problem, r.panicked = q.client.send(ctx, outbound.Retry{}, r.batch, func() bool { return ctx.Err() == nil && q.mayGoOn(r) })
}

// mayGoOn reports whether the parts of a batch that is split may still be sent.
func (q *Queue) mayGoOn(r result) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return r.generation == q.schedule.generation && (r.isLast || !q.isClosed())
}

// settleAll settles requests that are in progress. If one panics, the others are settled too.
func (q *Queue) settleAll(ctx context.Context, results <-chan result, requests int) {
	if requests > 0 {
		defer q.settleAll(ctx, results, requests-1)
		q.settle(ctx, <-results)
	}
}

// settle updates the queue after a request, and calls the hooks.
func (q *Queue) settle(ctx context.Context, r result) {
	q.update(ctx, r)
	if r.panicked != nil {
		defer panic(r.panicked)
	}
	q.report(ctx, r.parts)
}

// report calls the hooks with the parts of a batch. If one panics, the others are called too.
func (q *Queue) report(ctx context.Context, parts []Batch) {
	if len(parts) == 0 {
		return
	}
	defer q.report(ctx, parts[1:])
	switch b := parts[0]; {
	case q.isLeft(b):
	case b.Err != nil:
		urls := make([]string, len(b.URLs))
		for i, u := range b.URLs {
			urls[i] = q.client.mask(u)
		}
		q.client.log.ErrorContext(ctx, "indexnow: rejected permanently", "host", b.Host, "urls", urls, "error", b.Err)
		if q.cfg.Failed != nil {
			q.cfg.Failed(b)
		}
	case q.cfg.Accepted != nil:
		q.cfg.Accepted(b)
	}
}

// isLeft reports whether the URLs of a batch stay in the queue.
func (q *Queue) isLeft(b Batch) bool {
	if problem := (*Error)(nil); errors.As(b.Err, &problem) {
		return problem.Retryable()
	}
	return b.Pending && q.cfg.ResubmitPending
}

func (q *Queue) update(ctx context.Context, r result) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.client.clock.Now()
	r.host.isSending = false
	defer q.schedule.update(r.host)
	if r.parts == nil { // it did not return
		q.putBack(r.entries)
		return
	}
	retried, isPending := uint64(0), false
	entries := r.entries
	for _, b := range r.parts {
		part, n := entries[:len(b.URLs)], uint64(len(b.URLs))
		entries = entries[len(b.URLs):]
		outcome := b.Outcome()
		if outcome == Pending {
			q.stats.Pending += n
		}
		switch {
		case q.isLeft(b):
			q.putBack(part)
			if outcome == Failed {
				retried += n
			} else {
				isPending = true
			}
			continue
		case outcome == Failed:
			q.stats.Failed += n
		default:
			q.stats.Accepted += n
		}
		for _, e := range part {
			q.remove(e, b.Err == nil, now)
		}
	}
	q.forgetSent(now, 2*len(r.entries))
	wait := q.client.retry.Wait
	if r.isOnce {
		wait = func(int, time.Duration) time.Duration { return never }
	}
	switch {
	case r.problem == nil || !r.problem.Retryable():
		q.lastErr = nil
		failures := r.host.failures
		if r.problem == nil || r.problem.Status != 0 { // otherwise the host has no key
			q.schedule.answered(r.host, r.generation)
		}
		if isPending {
			r.host.failures = failures // so that the backoff goes on doubling
			q.schedule.delayHost(r.host, now, 0, wait)
		}
	case errors.Is(r.problem, ErrNotSent): // mayGoOn has returned false
	case ctx.Err() == nil || r.problem.Status != 0: // otherwise the context may be the cause
		q.stats.Retried += retried
		q.lastErr, r.host.err = r.problem, r.problem
		if len(r.parts) > 1 {
			q.schedule.answered(r.host, r.generation) // before it failed
		}
		q.schedule.failed(r.host, r.problem, now, r.generation, wait)
	}
}

// never is a backoff that outlasts a Shutdown.
const never = 365 * 24 * time.Hour

// putBack puts URLs that were sent back among those that wait.
func (q *Queue) putBack(entries []*entry) {
	for _, e := range entries {
		if q.schedule.takeAgain(e) {
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
	if q.schedule.takeAgain(e) {
		e.ready = q.readyAt(e.url, now)
		q.schedule.enqueue(e)
	} else {
		q.schedule.drop(e)
	}
}

// Stats returns the counts so far.
func (q *Queue) Stats() QueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	stats := q.stats
	stats.Waiting = q.schedule.len()
	stats.Err = q.lastErr
	return stats
}

// Shutdown closes the queue to new URLs, and lets [Queue.Run] finish the request in
// progress. Then it submits the URLs that are left and not held back, whether or not Run
// was called. It retries until the context's deadline; without a deadline, it tries once.
// It returns the unsent URLs, in any order: those that are held back, and those that the
// engine did not accept in time. The error says why the engine did not accept them.
//
// Shutdown can be late if QueueConfig.Failed is slow, or if the transport of
// Config.HTTPClient ignores its context.
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
			abort() // interrupts the request of Run, whose URLs come back
			<-stopped
		}
	}

	q.submit(ctx, nil, true)

	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.client.clock.Now()
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
	return unsent, fmt.Errorf("indexnow: the queue is shut down with %d URLs that were not sent in time: %w", late, cmp.Or(why, q.lastErr, ctx.Err(), context.DeadlineExceeded))
}
