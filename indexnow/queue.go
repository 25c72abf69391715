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
// Retry-After, or after Config.Backoff, which doubles with each failure up to 10 min, and of
// which up to half is left out at random. Where only one host's batches fail, the others do
// not wait for it. Config.Attempts and Config.MaxWait are not those of a Queue.
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
	next    time.Time           // when Run has to look again; zero: when something is added
	sending map[string]waiting  // what is with the engine
	engine  trouble             // with all of it
	hosts   map[string]*trouble // with those of one host: the failures in a row
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
	host  string
	ready time.Time // not before
	due   time.Time // by then
}

// A trouble says until when somebody is left alone, and why.
type trouble struct {
	failures int // in a row
	until    time.Time
	err      *Error
}

// maxTrouble bounds the wait, unless Retry-After is longer.
const maxTrouble = 10 * time.Minute

func (t *trouble) add(err *Error, retry outbound.Retry, now time.Time) {
	t.failures++
	t.err = err
	t.until = now.Add(max(retry.Wait(t.failures, maxTrouble), err.RetryAfter))
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
	Err      error  // why the engine is left alone for a while, an *[Error]; nil: it is not
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
	ready := q.client.clock.Now()
	q.forgetSent(ready)
	if at, ok := q.sent[url]; ok {
		ready = at.Add(q.cfg.Hold)
	} // if it is being sent, settle will see to that
	q.stats.Added++
	q.put(url, waiting{host: page.Host, ready: ready, due: ready.Add(q.cfg.Delay)})
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
	if at := q.at(w); q.next.IsZero() || at.Before(q.next) {
		q.next = at
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

// at returns when a URL is to be sent.
func (q *Queue) at(w waiting) time.Time { return later(w.due, q.free(w.host)) }

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
	urls := q.take()
	settled := false
	defer func() {
		if !settled { // the caller's HTTPClient panics
			q.settle(ctx, Report{})
		}
	}()
	report, _ := q.client.submit(ctx, outbound.Retry{}, urls) // each failure is in the report
	failed := q.settle(ctx, report)
	settled = true
	for _, b := range failed {
		q.client.log.ErrorContext(ctx, "indexnow: refused for good", "host", b.Host, "urls", b.URLs, "error", b.Err)
		if q.cfg.Failed != nil {
			q.cfg.Failed(b)
		}
	}
}

// take takes what is ready from the waiting. Hosts whose batches failed come last, as the
// failure of one may keep what is behind it from being sent.
func (q *Queue) take() (urls []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.client.clock.Now()
	q.sending = make(map[string]waiting)
	for url, w := range q.waiting {
		if !w.ready.After(now) && !q.free(w.host).After(now) {
			q.sending[url] = w
			urls = append(urls, url)
			delete(q.waiting, url)
		}
	}
	failures := func(url string) int {
		if t := q.hosts[q.sending[url].host]; t != nil {
			return t.failures
		}
		return 0
	}
	slices.SortFunc(urls, func(a, b string) int { return cmp.Or(cmp.Compare(failures(a), failures(b)), cmp.Compare(a, b)) })
	q.look()
	return urls
}

// settle does what follows from a report, and returns the batches that failed for good.
// What is not in the report is put back.
func (q *Queue) settle(ctx context.Context, report Report) (failed []Batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.client.clock.Now()
	var down *Error
	accepted := false
	for _, b := range report.Batches {
		fault, _ := b.Err.(*Error)
		switch {
		case fault == nil:
			accepted = true
			q.stats.Accepted += uint64(len(b.URLs))
		case !fault.Temporary():
			q.stats.Failed += uint64(len(b.URLs))
			failed = append(failed, b)
		case errors.Is(fault, ErrNotSent) || ctx.Err() != nil && errors.Is(fault, ctx.Err()):
			continue // which is nobody's fault
		default:
			if q.hosts[b.Host] == nil {
				q.hosts[b.Host] = new(trouble)
			}
			q.hosts[b.Host].add(fault, q.client.retry, now)
			if !errors.Is(fault, ErrKeyPending) {
				down = fault
			}
			continue
		}
		delete(q.hosts, b.Host)
		for _, url := range b.URLs {
			delete(q.sending, url)
			ready := now
			if fault == nil {
				ready = now.Add(q.cfg.Hold)
				q.sent[url] = now
				q.sentLog = append(q.sentLog, sentAt{url, now})
			}
			if _, ok := q.waiting[url]; ok { // it was added meanwhile
				q.put(url, waiting{host: b.Host, ready: ready, due: ready.Add(q.cfg.Delay)})
			}
		}
	}
	if down == nil || accepted {
		q.engine = trouble{}
	}
	if down != nil {
		q.engine.add(down, q.client.retry, now)
	}
	for url, w := range q.sending {
		q.stats.Retried++
		if _, ok := q.waiting[url]; ok { // it was added meanwhile
			q.stats.Added--
			q.stats.Repeated++
		}
		q.put(url, w)
	}
	q.sending = nil
	q.forgetSent(now)
	q.look()
	return failed
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
	if q.engine.err != nil {
		stats.Err = q.engine.err
	}
	return stats
}

// Close takes no more URLs, lets [Queue.Run] end what it is sending, and submits what is left
// and need not be held back, whether or not Run was called. If the engine cannot take it now,
// it is tried again until the context's deadline; without one, once. Then Close returns
// the URLs that were not sent, in order: those that are held back, and those that the engine
// did not take in time. Of these an error says why.
//
// Close can be late if QueueConfig.Failed is slow, or if the transport of Config.HTTPClient
// does not heed its context.
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

	for {
		q.submit(ctx)
		wait, ok := q.left()
		if _, bounded := ctx.Deadline(); !ok || !bounded || outbound.Wait(ctx, q.client.clock, wait) != nil {
			break
		}
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.client.clock.Now()
	late := 0
	var cause error = context.DeadlineExceeded
	for url, w := range q.waiting {
		unsent = append(unsent, url)
		if w.ready.After(now) {
			continue
		}
		late++
		if t := q.hosts[w.host]; t != nil {
			cause = t.err
		}
	}
	slices.Sort(unsent)
	if late == 0 {
		return unsent, nil
	}
	if q.engine.err != nil {
		cause = q.engine.err
	}
	return unsent, fmt.Errorf("indexnow: the queue closes with %d URLs that were not sent in time: %w", late, cause)
}

// left tells whether anything waits that is not held back, and how long it has to.
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
