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
	// therefore no longer in the queue. The goroutine of Run or Close waits for it, so that
	// it must not call Close. It may be nil if Config.Logger is not, which gets the URLs as
	// well (Error).
	Failed func(Batch)
}

// A Queue gathers URLs of pages as they change, and submits them in batches. Each waits
// once, however often it is added. What the engine refuses for good goes to
// QueueConfig.Failed; what is left at the end is returned by [Queue.Close].
//
// What the engine cannot take now stays in the queue, and is tried again: after its
// Retry-After, or after Config.Backoff, which doubles with each failure up to Hold. That
// comes on top of Config.Attempts.
//
// A Queue is in memory only. What waits is lost if the process is killed, and what was sent
// within Hold is forgotten with the Queue.
type Queue struct {
	client *Client
	cfg    QueueConfig
	wake   chan struct{} // tells Run to look again
	closed chan struct{} // closed by Close

	mu      sync.Mutex
	waiting map[string]waiting
	next    time.Time          // when Run has to look again; zero: when something is added
	sending map[string]waiting // URLs that are with the engine
	paused  time.Time          // until when the engine is left alone
	lastErr *Error             // of the last submission, if it failed and may be tried again
	sent    map[string]time.Time
	sentLog []sentAt // sent, oldest first
	running bool
	stopped chan struct{} // closed when Run returns; nil if it was never called
	abort   context.CancelFunc
	stats   QueueStats
}

// waiting says when a URL is sent. What becomes ready waits for Delay, too, so that there is
// at most one submission in each.
type waiting struct {
	ready    time.Time // not before
	due      time.Time // by then
	failures int       // how often it was put back
}

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
	Retried  uint64 // put back, to be tried again
	Failed   uint64 // refused by the engine for good
}

var (
	// ErrFull is returned by [Queue.Add] when the queue is full.
	ErrFull = errors.New("indexnow: the queue is full")
	// ErrClosed is returned by [Queue.Add] and [Queue.Close] once Close was called.
	ErrClosed = errors.New("indexnow: the queue is closed")
	// ErrRunning is returned by [Queue.Run] if it runs already.
	ErrRunning = errors.New("indexnow: the queue is being run already")
)

// NewQueue returns a Queue, which [Queue.Run] has to empty; or all the faults of the
// configuration, joined, each an *[ampcors.ValueError].
func NewQueue(client *Client, cfg QueueConfig) (*Queue, error) {
	var faults []error
	refuse := func(field, value, reason, want string) {
		faults = append(faults, &ampcors.ValueError{Field: field, Index: -1, Value: value, Reason: reason, Want: want})
	}
	if client == nil {
		refuse("client", "", "is missing", "one of New's")
	} else if cfg.Failed == nil && !client.logs {
		refuse("Failed", "", "is missing, and so is Config.Logger", "one of them, or what the engine refuses would be lost without a word")
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
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	setDefault(&cfg.Delay, 5*time.Second)
	setDefault(&cfg.Hold, 10*time.Minute)
	setDefault(&cfg.Capacity, 100_000)
	return &Queue{
		client:  client,
		cfg:     cfg,
		wake:    make(chan struct{}, 1),
		closed:  make(chan struct{}),
		waiting: make(map[string]waiting),
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
	page, fault := q.client.page(url)
	if fault != nil {
		return fault
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
	now := q.client.clock.Now()
	ready := now
	q.forgetSent(now)
	if at, ok := q.sent[url]; ok {
		ready = at.Add(q.cfg.Hold)
	} // if it is being sent, submit will see to that
	q.stats.Added++
	q.put(url, waiting{ready: ready, due: ready.Add(q.cfg.Delay)})
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
func (q *Queue) put(url string, w waiting) {
	q.waiting[url] = w
	if q.next.IsZero() || w.due.Before(q.next) {
		q.next = w.due
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
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
// [Queue.Close] is called, and returns the context's error or nil. It is for a goroutine of
// the caller's. A context that ends interrupts what is just being sent; Close does not, so
// it is the better way to end. Either way what is left stays in the queue, for another Run
// or for Close.
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
		q.mu.Lock()
		now := q.client.clock.Now()
		var alarm <-chan time.Time
		fallen := false
		if !q.next.IsZero() {
			wait := later(q.next, q.paused).Sub(now)
			if fallen = wait <= 0; !fallen {
				alarm = q.client.clock.After(wait)
			}
		}
		q.mu.Unlock()
		if fallen {
			q.submit(ctx, now)
		}
		select {
		case <-q.closed:
			return nil
		default:
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if fallen {
			continue // to see what is next
		}
		select {
		case <-q.closed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-q.wake:
		case <-alarm:
		}
	}
}

// submit submits all that is ready, also what has not waited for its Delay.
func (q *Queue) submit(ctx context.Context, now time.Time) {
	q.mu.Lock()
	var urls []string
	for url, w := range q.waiting {
		if !w.ready.After(now) {
			urls = append(urls, url)
		}
	}
	slices.Sort(urls) // maps have no order, and a log should
	q.sending = make(map[string]waiting, len(urls))
	for _, url := range urls {
		q.sending[url] = q.waiting[url]
		delete(q.waiting, url)
	}
	q.look()
	q.mu.Unlock()
	if len(urls) == 0 {
		return
	}

	report, _ := q.client.Submit(ctx, urls...) // each failure is in the report

	var failed []Batch
	q.mu.Lock()
	now = q.client.clock.Now()
	pause := time.Duration(0)
	q.lastErr = nil
	for _, b := range report.Batches {
		fault, _ := b.Err.(*Error)
		if fault != nil && fault.Temporary() {
			q.stats.Retried += uint64(len(b.URLs))
			if ctx.Err() != nil && errors.Is(fault, ctx.Err()) { // which is not the engine's fault
				for _, url := range b.URLs {
					q.put(url, q.sending[url])
				}
				continue
			}
			q.lastErr = fault
			pause = max(pause, q.putBack(b, fault, now))
			continue
		}
		if fault != nil {
			q.stats.Failed += uint64(len(b.URLs))
			failed = append(failed, b)
		} else {
			q.stats.Accepted += uint64(len(b.URLs))
		}
		for _, url := range b.URLs {
			ready := now
			if fault == nil {
				q.sent[url] = now
				q.sentLog = append(q.sentLog, sentAt{url, now})
				ready = now.Add(q.cfg.Hold)
			}
			if _, ok := q.waiting[url]; ok { // it was added meanwhile
				q.put(url, waiting{ready: ready, due: ready.Add(q.cfg.Delay)})
			}
		}
	}
	q.sending = nil
	q.paused = now.Add(pause)
	q.forgetSent(now)
	q.look()
	q.mu.Unlock()
	for _, b := range failed {
		q.client.log.ErrorContext(ctx, "indexnow: refused for good", "host", b.Host, "urls", b.URLs, "error", b.Err)
		if q.cfg.Failed != nil {
			q.cfg.Failed(b)
		}
	}
}

// putBack puts a batch back into the queue. It returns how long the engine is left alone,
// or 0 if only this host has to wait.
func (q *Queue) putBack(b Batch, fault *Error, now time.Time) (pause time.Duration) {
	for _, url := range b.URLs {
		w := q.sending[url]
		wait := q.client.retry.Backoff
		for range w.failures {
			if wait *= 2; wait >= q.cfg.Hold {
				break
			}
		}
		wait = max(min(wait, q.cfg.Hold), fault.RetryAfter)
		w.ready = now.Add(wait)
		w.due = w.ready
		w.failures++
		q.put(url, w) // also if it was added meanwhile
		pause = max(pause, wait)
	}
	if errors.Is(fault, ErrKeyPending) {
		return 0
	}
	return pause
}

// look finds out when Run has to look again.
func (q *Queue) look() {
	q.next = time.Time{}
	for _, w := range q.waiting {
		if q.next.IsZero() || w.due.Before(q.next) {
			q.next = w.due
		}
	}
}

// Stats returns what happened so far.
func (q *Queue) Stats() QueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	stats := q.stats
	stats.Waiting = len(q.waiting) + len(q.sending)
	return stats
}

// Close takes no more URLs, lets [Queue.Run] end what it is sending, and submits what is left
// and need not be held back, whether or not Run was called. It returns within the context's
// deadline, with the URLs that were not sent, in order: those that are held back, and those
// that the engine did not take, or not in time. Of these two an error says why.
func (q *Queue) Close(ctx context.Context) (unsent []string, err error) {
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

	q.mu.Lock()
	now := q.client.clock.Now()
	paused := q.paused.After(now)
	q.mu.Unlock()
	if !paused {
		q.submit(ctx, now)
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	held, refused := 0, 0
	for url, w := range q.waiting {
		unsent = append(unsent, url)
		if w.failures > 0 {
			refused++
		} else if w.ready.After(now) {
			held++
		}
	}
	slices.Sort(unsent)
	switch late := len(unsent) - held - refused; {
	case refused > 0 && q.lastErr != nil:
		return unsent, fmt.Errorf("indexnow: the queue closes with %d URLs that were not sent, of which the engine did not take %d: %w", len(unsent), refused, q.lastErr)
	case refused+late > 0:
		return unsent, fmt.Errorf("indexnow: the queue closes with %d URLs that were not sent, %d for want of time: %w", len(unsent), refused+late, cmp.Or(ctx.Err(), context.DeadlineExceeded))
	}
	return unsent, nil
}
