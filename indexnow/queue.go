package indexnow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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
	// Failed is called with each batch that the engine rejects permanently. These URLs are
	// no longer in the queue. Run and Shutdown wait for Failed, so it must not call
	// Shutdown. Config.Logger gets the URLs as well (Error).
	Failed func(Batch)
}

// A Queue gathers URLs of pages as they change, and submits them in batches. A URL that
// waits already is not added again. Batches that the engine rejects permanently are passed
// to QueueConfig.Failed. URLs that are left at the end are returned by [Queue.Shutdown].
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
// Queue does not know which URLs were sent within Hold.
type Queue struct {
	client *Client
	cfg    QueueConfig
	wake   chan struct{} // wakes Run
	closed chan struct{} // closed by Shutdown

	mu      sync.Mutex
	waiting map[string]entry
	next    time.Time           // when Run submits next; zero: no URL waits
	sending map[string]entry    // being sent
	engine  backoff             // for all requests
	hosts   map[string]*backoff // for the batches of a host
	lastErr error               // why the last request is retried, or nil
	sent    map[string]time.Time
	sentLog []sentAt // sent, oldest first
	running bool
	stopped chan struct{} // closed when Run returns; nil if it was never called
	abort   context.CancelFunc
	stats   QueueStats
}

// An entry says when a URL is sent. A URL that was held back waits for Delay too, so there
// is at most one submission per Delay.
type entry struct {
	host  string
	ready time.Time // it is not sent before
	due   time.Time // it does not wait for other URLs after this
}

// A backoff says until when a host, or the engine, gets no requests.
type backoff struct {
	failures int // in a row
	until    time.Time
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
	Accepted uint64 // by the engine
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
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	setDefault(&cfg.Delay, 5*time.Second)
	setDefault(&cfg.Hold, 10*time.Minute)
	setDefault(&cfg.Capacity, 100_000)
	return &Queue{
		client:  client,
		cfg:     cfg,
		wake:    make(chan struct{}, 1),
		closed:  make(chan struct{}),
		waiting: make(map[string]entry),
		hosts:   make(map[string]*backoff),
		sent:    make(map[string]time.Time),
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
	if _, ok := q.waiting[url]; ok {
		q.stats.Repeated++
		return nil
	}
	if len(q.waiting)+len(q.sending) >= q.cfg.Capacity {
		return ErrFull
	}
	ready := q.client.clock.Now()
	q.forgetSent(ready)
	if at, ok := q.sent[url]; ok {
		ready = at.Add(q.cfg.Hold)
	} // if it is being sent now, settle delays it
	q.stats.Added++
	q.put(url, entry{host: page.Host, ready: ready, due: ready.Add(q.cfg.Delay)})
	return nil
}

func (q *Queue) isClosed() bool {
	select {
	case <-q.closed:
		return true
	default:
		return false
	}
}

// put adds a URL to those that wait, and wakes Run if the URL is due before q.next.
func (q *Queue) put(url string, w entry) {
	q.waiting[url] = w
	if at := q.at(w); q.next.IsZero() || at.Before(q.next) {
		q.next = at
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

// at returns when a URL is to be sent.
func (q *Queue) at(w entry) time.Time { return later(w.due, q.free(w.host)) }

// free returns the time from which a host's URLs may be sent.
func (q *Queue) free(host string) time.Time {
	if t := q.hosts[host]; t != nil {
		return later(t.until, q.engine.until)
	}
	return q.engine.until
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// forgetSent removes the URLs that no longer have to be held back.
func (q *Queue) forgetSent(now time.Time) {
	n := 0
	for _, s := range q.sentLog {
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
// the context ends, and nil when [Queue.Shutdown] is called. Run it in a goroutine. The end
// of the context interrupts the request in progress. Shutdown lets it finish, so prefer
// Shutdown. Unsent URLs stay in the queue for Shutdown, or for another Run if only the
// context ended.
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

	for {
		if q.isClosed() {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		q.mu.Lock()
		var alarm <-chan time.Time
		wait := q.next.Sub(q.client.clock.Now())
		idle := q.next.IsZero()
		q.mu.Unlock()
		if !idle && wait <= 0 {
			q.submit(ctx)
			continue
		}
		if !idle {
			alarm = q.client.clock.After(wait)
		}
		select {
		case <-q.closed:
		case <-ctx.Done():
		case <-q.wake:
		case <-alarm:
		}
	}
}

// submit submits every URL that is ready, even if its Delay is not over.
func (q *Queue) submit(ctx context.Context) {
	defer q.putBack() // the unsent URLs, even if the caller's HTTPClient or Failed panics
	for _, b := range q.take() {
		if ctx.Err() != nil || !q.isFree(b.Host) {
			continue
		}
		problem := q.client.send(ctx, outbound.Retry{}, b)
		q.settle(ctx, b, problem)
		if problem != nil && !problem.Retryable() {
			q.client.log.ErrorContext(ctx, "indexnow: rejected permanently", "host", b.Host, "urls", b.URLs, "error", problem)
			if q.cfg.Failed != nil {
				q.cfg.Failed(*b)
			}
		}
	}
}

// take moves the URLs that are ready from waiting to sending, and returns them in batches.
// Hosts whose batches failed come last, so that they do not delay the others.
func (q *Queue) take() (batches []*Batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.client.clock.Now()
	q.sending = make(map[string]entry)
	hosts := make(map[string][]string)
	for url, w := range q.waiting {
		if !w.ready.After(now) {
			hosts[w.host] = append(hosts[w.host], url)
			q.sending[url] = w
			delete(q.waiting, url)
		}
	}
	failures := func(host string) int {
		if t := q.hosts[host]; t != nil {
			return t.failures
		}
		return 0
	}
	order := slices.SortedFunc(maps.Keys(hosts), func(a, b string) int {
		return cmp.Or(cmp.Compare(failures(a), failures(b)), cmp.Compare(a, b))
	})
	for _, host := range order {
		slices.Sort(hosts[host])
		for urls := range slices.Chunk(hosts[host], maxURLs) {
			batches = append(batches, &Batch{Host: host, URLs: urls})
		}
	}
	return batches
}

func (q *Queue) isFree(host string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.free(host).After(q.client.clock.Now())
}

// settle updates the queue after the engine's answer to a batch.
func (q *Queue) settle(ctx context.Context, b *Batch, problem *Error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.client.clock.Now()
	if problem != nil && problem.Retryable() {
		if ctx.Err() == nil { // otherwise the context may be the cause
			q.stats.Retried += uint64(len(b.URLs))
			q.retryLater(problem, now)
		}
		return // putBack does the rest
	}
	q.lastErr, q.engine = nil, backoff{}
	delete(q.hosts, b.Host)
	ready := now
	if problem == nil {
		q.stats.Accepted += uint64(len(b.URLs))
		ready = now.Add(q.cfg.Hold)
	} else {
		q.stats.Failed += uint64(len(b.URLs))
	}
	for _, url := range b.URLs {
		delete(q.sending, url)
		if problem == nil {
			q.sent[url] = now
			q.sentLog = append(q.sentLog, sentAt{url, now})
		}
		if w, ok := q.waiting[url]; ok { // it was added meanwhile
			w.ready, w.due = ready, ready.Add(q.cfg.Delay)
			q.waiting[url] = w
		}
	}
	q.forgetSent(now)
}

// retryLater sets the backoff of the host and of the engine after a retryable error.
func (q *Queue) retryLater(problem *Error, now time.Time) {
	q.lastErr = problem
	host := q.hosts[problem.Host]
	if host == nil {
		host = new(backoff)
		q.hosts[problem.Host] = host
	}
	host.failures++
	host.until = now.Add(max(q.client.retry.Wait(host.failures, maxHostWait), problem.RetryAfter))
	switch {
	case problem.ofHost():
		q.engine = backoff{} // the engine is up
	case errors.Is(problem, ErrRateLimited):
		q.engine.failures++
		q.engine.until = host.until
	default:
		if q.engine.failures++; q.engine.failures%engineFailures == 0 {
			wait := q.client.retry.Wait(q.engine.failures/engineFailures, maxEngineWait)
			q.engine.until = now.Add(max(wait, problem.RetryAfter))
		}
	}
}

// putBack puts the URLs that were taken but not settled back among those that wait, and
// updates q.next.
func (q *Queue) putBack() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for url, w := range q.sending {
		if _, ok := q.waiting[url]; ok { // it was added meanwhile
			q.stats.Added--
			q.stats.Repeated++
		}
		q.waiting[url] = w
	}
	q.sending = nil
	q.setNext()
}

// setNext sets q.next, the time of the next submission.
func (q *Queue) setNext() {
	q.next = time.Time{}
	for _, w := range q.waiting {
		if at := q.at(w); q.next.IsZero() || at.Before(q.next) {
			q.next = at
		}
	}
}

// Stats returns the counts so far.
func (q *Queue) Stats() QueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	stats := q.stats
	stats.Waiting = len(q.waiting) + len(q.sending)
	stats.Err = q.lastErr
	return stats
}

// Shutdown closes the queue to new URLs, and lets [Queue.Run] finish the request in
// progress. Then it submits the URLs that are left and not held back, whether or not Run
// was called. It retries until the context's deadline; without a deadline, it tries once.
// It returns the unsent URLs, sorted: those that are held back, and those that the engine
// did not accept in time. The error says why the engine did not accept them.
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
	q.mu.Unlock()
	if stopped != nil {
		select {
		case <-stopped:
		case <-ctx.Done():
			abort() // interrupts the request of Run, whose URLs come back
			<-stopped
		}
	}

	for {
		q.submit(ctx)
		wait, ok := q.left()
		_, bounded := ctx.Deadline()
		if !ok || ctx.Err() != nil || wait > 0 && (!bounded || outbound.Wait(ctx, q.client.clock, wait) != nil) {
			break
		}
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.client.clock.Now()
	late := 0
	for url, w := range q.waiting {
		unsent = append(unsent, url)
		if !w.ready.After(now) {
			late++
		}
	}
	slices.Sort(unsent)
	if late == 0 {
		return unsent, nil
	}
	return unsent, fmt.Errorf("indexnow: the queue is shut down with %d URLs that were not sent in time: %w", late, cmp.Or(q.lastErr, ctx.Err(), context.DeadlineExceeded))
}

// left reports whether any URL waits that is not held back, and how long until the first
// may be sent.
func (q *Queue) left() (wait time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.client.clock.Now()
	for _, w := range q.waiting {
		if w.ready.After(now) {
			continue
		}
		if d := q.free(w.host).Sub(now); !ok || d < wait {
			wait, ok = d, true
		}
	}
	return wait, ok
}
