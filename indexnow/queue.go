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
	// Delay is how long a URL waits for others, to be sent together. 0 stands for 5 s.
	Delay time.Duration
	// Hold is how long a URL is held back after it was sent, if it is added again: engines
	// take those who repeat themselves for spammers. 0 stands for 10 min.
	Hold time.Duration
	// Capacity bounds the URLs that wait or are being sent. It also bounds those that are
	// remembered for Hold: if there are more, the oldest are forgotten, and may then be
	// sent again before Hold is over. 0 stands for 100,000.
	Capacity int
	// Failed is called with each batch that the engine refuses for good, and that is
	// therefore no longer in the queue. The goroutine of Run or Shutdown waits for it, so that
	// it must not call Shutdown. Config.Logger gets the URLs as well (Error).
	Failed func(Batch)
}

// A Queue gathers URLs of pages as they change, and submits them in batches. Each waits
// once, however often it is added. What the engine refuses for good goes to
// QueueConfig.Failed; what is left at the end is returned by [Queue.Shutdown].
//
// What the engine cannot take now stays in the queue, and is tried again: after its
// Retry-After, or after Config.Backoff, which doubles with each failure up to 10 min, and of
// which up to half is left out at random. That holds for each host by itself. The engine as
// a whole is left alone after 429, for its Retry-After, and for up to a minute after three
// requests in a row to which it has no answer, or one that is [ErrServer]. Config.Attempts
// and Config.MaxWait are not those of a Queue.
//
// A Queue is in memory only. What waits is lost if the process is killed, and what was sent
// within Hold is forgotten with the Queue.
type Queue struct {
	client *Client
	cfg    QueueConfig
	wake   chan struct{} // tells Run to look again
	closed chan struct{} // closed by Shutdown

	mu      sync.Mutex
	waiting map[string]entry
	next    time.Time           // when Run has to look again; zero: when something is added
	sending map[string]entry    // what is with the engine
	engine  trouble             // with the engine as a whole
	hosts   map[string]*trouble // with the batches of a host
	lastErr error               // why the last request has to be tried again, or nil
	sent    map[string]time.Time
	sentLog []sentAt // sent, oldest first
	running bool
	stopped chan struct{} // closed when Run returns; nil if it was never called
	abort   context.CancelFunc
	stats   QueueStats
}

// An entry says when a URL is sent. What becomes ready waits for Delay, too, so that there is
// at most one submission in each.
type entry struct {
	host  string
	ready time.Time // not before
	due   time.Time // by then
}

// A trouble says until when somebody is left alone.
type trouble struct {
	failures int // in a row
	until    time.Time
}

const (
	// The longest waits, unless Retry-After is longer: an engine may be down for long, but
	// that some hosts' batches fail does not tell that it is.
	maxHostWait   = 10 * time.Minute
	maxEngineWait = time.Minute
	// Before each of the engine's waits so many requests in a row have to fail.
	engineFailures = 3
)

type sentAt struct {
	url string
	at  time.Time
}

// QueueStats counts what happened to the URLs of a [Queue].
type QueueStats struct {
	Waiting  int    // in the queue now, those that are with the engine included
	Added    uint64 // without those that waited already
	Repeated uint64 // those that waited already
	Accepted uint64 // by the engine
	Retried  uint64 // not accepted by the engine, but to be tried again
	Failed   uint64 // refused by the engine for good
	Err      error  // if the last request has to be tried again: why, an *[Error]
}

var (
	// ErrFull is returned by [Queue.Add] when the queue is full.
	ErrFull = errors.New("indexnow: the queue is full")
	// ErrClosed is returned by [Queue.Add] and [Queue.Shutdown] once Shutdown was called.
	ErrClosed = errors.New("indexnow: the queue is closed")
	// ErrRunning is returned by [Queue.Run] if it runs already.
	ErrRunning = errors.New("indexnow: the queue is being run already")
)

// NewQueue returns a Queue, which [Queue.Run] has to empty; or all the problems of the
// configuration, joined, each an *[ampcors.ValueError].
func NewQueue(client *Client, cfg QueueConfig) (*Queue, error) {
	var problems []error
	refuse := func(path, value, reason, want string) {
		problems = append(problems, &ampcors.ValueError{Package: "indexnow", Path: path, Value: value, Reason: reason, Want: want})
	}
	if client == nil {
		refuse("client", "", "is missing", "one of New's")
	}
	if cfg.Delay < 0 {
		refuse("Delay", cfg.Delay.String(), "is negative", "some seconds")
	}
	if cfg.Hold < 0 {
		refuse("Hold", cfg.Hold.String(), "is negative", "some minutes")
	}
	if cfg.Capacity < 0 {
		refuse("Capacity", strconv.Itoa(cfg.Capacity), "is negative", "a number of URLs")
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
		hosts:   make(map[string]*trouble),
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
// a URL that [Client.Submit] would refuse, [ErrFull] or [ErrClosed]; the URL is then not in
// the queue, and it is up to the caller to add it later.
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
	} // while it is being sent, settle will see to that
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

// put puts a URL among the waiting, and wakes Run if that has to look earlier than it
// would.
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

// free returns from when on a host's URLs can be sent.
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

// forgetSent forgets what need not be held back any more.
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

// Run submits what is in the queue as it falls due, until the context ends or
// [Queue.Shutdown] is called, and returns the context's error or nil. It is for a goroutine of
// the caller's. A context that ends interrupts what is just being sent; Shutdown does not, so
// it is the better way to end. Either way what is left stays in the queue, for another Run
// or for Shutdown.
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

// submit submits all that is ready, also what has not waited for its Delay.
func (q *Queue) submit(ctx context.Context) {
	defer q.putBack() // what is not sent, also if the caller's HTTPClient or Failed panics
	for _, b := range q.take() {
		if ctx.Err() != nil || !q.isFree(b.Host) {
			continue
		}
		problem := q.client.send(ctx, outbound.Retry{}, b)
		q.settle(ctx, b, problem)
		if problem != nil && !problem.Retryable() {
			q.client.log.ErrorContext(ctx, "indexnow: refused for good", "host", b.Host, "urls", b.URLs, "error", problem)
			if q.cfg.Failed != nil {
				q.cfg.Failed(*b)
			}
		}
	}
}

// take takes what is ready from the waiting, in batches. Hosts whose batches failed come
// last, so that they do not keep the others from being sent.
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

// settle does what follows from the engine's answer to a batch.
func (q *Queue) settle(ctx context.Context, b *Batch, problem *Error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.client.clock.Now()
	if problem != nil && problem.Retryable() {
		if ctx.Err() == nil { // or it may be that, and nobody's problem
			q.stats.Retried += uint64(len(b.URLs))
			q.blame(problem, now)
		}
		return // putBack does the rest
	}
	q.lastErr, q.engine = nil, trouble{}
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

// blame has the host, or the engine, left alone for a while.
func (q *Queue) blame(problem *Error, now time.Time) {
	q.lastErr = problem
	host := q.hosts[problem.Host]
	if host == nil {
		host = new(trouble)
		q.hosts[problem.Host] = host
	}
	host.failures++
	host.until = now.Add(max(q.client.retry.Wait(host.failures, maxHostWait), problem.RetryAfter))
	switch {
	case problem.ofHost():
		q.engine = trouble{} // as it answers
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

// putBack puts back what was taken and not settled, and looks when there is something to do
// again.
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
	q.look()
}

// look finds out when Run has to look again.
func (q *Queue) look() {
	q.next = time.Time{}
	for _, w := range q.waiting {
		if at := q.at(w); q.next.IsZero() || at.Before(q.next) {
			q.next = at
		}
	}
}

// Stats returns what happened so far.
func (q *Queue) Stats() QueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	stats := q.stats
	stats.Waiting = len(q.waiting) + len(q.sending)
	stats.Err = q.lastErr
	return stats
}

// Shutdown takes no more URLs, lets [Queue.Run] end what it is sending, and submits what is left
// and need not be held back, whether or not Run was called. If the engine cannot take it now,
// it is tried again until the context's deadline; without one, once. Then Shutdown returns
// the URLs that were not sent, in order: those that are held back, and those that the engine
// did not take in time. Of these an error says why.
//
// Shutdown can be late if QueueConfig.Failed is slow, or if the transport of Config.HTTPClient
// does not heed its context.
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
			abort() // what Run is just sending comes back
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

// left reports whether anything waits that is not held back, and how long it has to.
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
