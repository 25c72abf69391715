// Package queue gathers the URLs of pages that change, and passes them on in the background: to search
// engines with package indexnow, or to AMP Caches with package updatecache. Their clients make a [Queue].
//
// A Queue is only in memory. If the process is killed, its URLs are lost. A program that must lose none keeps
// them in a database: see announce/outbox.
package queue

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ampcors/ampcors/badvalue"
)

// Config configures a [Queue]. The zero value is fine.
type Config struct {
	// Delay is how long a URL waits for others of its host. If zero, 5 seconds is used.
	Delay time.Duration
	// Capacity is how many URLs may wait or be on their way. If zero, 100,000 is used.
	Capacity int
	// Done is called with each URL that leaves the queue: err is nil if the service has accepted it,
	// and says why it never will otherwise. If nil, the client's log is all there is. It may be called
	// from several goroutines at one time.
	Done func(url string, err error)
}

// A Service is what the URLs are for. The packages indexnow and updatecache have one each.
type Service struct {
	// Items returns what is to be sent for a URL.
	Items func(url string) ([]Item, error)
	// Send sends items of one host, at most Batch, and returns the result for each, in their order.
	Send  func(ctx context.Context, host string, urls []string) []Result
	Batch int
}

// An Item is one thing to be sent. Items with the same URL are the same, and wait once.
type Item struct{ URL, Host string }

// A Result is the outcome for one [Item].
type Result struct {
	Err   error         // nil: it is accepted
	Again bool          // Err is temporary: the item is sent again
	After time.Duration // and not before this time has passed
	Soon  bool          // if others of the request were accepted, the rest is sent again without a longer backoff
}

// Stats counts the items of a [Queue].
type Stats struct {
	Waiting  int    // now, including those on their way
	Accepted uint64 // by the service
	Failed   uint64 // for good
	Retried  uint64 // each time
	Err      error  // why the last one is retried; nil if nothing of the last request is
}

var (
	// ErrFull is returned by [Queue.Add] if the queue is full.
	ErrFull = errors.New("the queue is full")
	// ErrRuns is returned by [Queue.Run] while another Run has not returned.
	ErrRuns = errors.New("the queue runs already")
	// ErrClosed is returned by [Queue.Add] and [Queue.Shutdown] once Shutdown was called.
	ErrClosed = errors.New("the queue is closed")
)

const (
	parallel   = 16 // requests at one time, each for another host
	minBackoff = time.Second
	maxBackoff = 10 * time.Minute
)

// A Queue passes URLs on in the background. Each host has one request at a time. What fails for a while is
// sent again: after 1 second, after twice as long each further time, up to 10 minutes, or when the service
// says so by Retry-After. It is safe for concurrent use by multiple goroutines.
type Queue struct {
	cfg     Config
	service Service
	wake    chan struct{} // a host may be due earlier, or there is an end
	sender  chan struct{} // holds a value while somebody sends

	life context.Context // of Run's requests: until Shutdown's context ends
	end  context.CancelFunc

	mu       sync.Mutex
	hosts    map[string]*host
	due      hostHeap // the hosts with items that have no request on its way
	items    int
	isClosed bool
	stats    Stats
}

// A host has the items of one host that wait.
type host struct {
	name     string
	waiting  []string // in the order in which they were added
	isAdded  map[string]bool
	at       time.Time // when the next request is due
	failures int       // in a row
	err      error     // of the last one
}

// New returns a Queue, or what is wrong with the Config, as joined *[badvalue.Error]s.
func New(service Service, cfg Config) (*Queue, error) {
	var errs []error
	if cfg.Delay < 0 {
		errs = append(errs, &badvalue.Error{Path: "Delay", Value: cfg.Delay.String(), Reason: "is negative",
			Want: "0 for the default, or some seconds"})
	}
	if cfg.Capacity < 0 {
		errs = append(errs, &badvalue.Error{Path: "Capacity", Value: strconv.Itoa(cfg.Capacity), Reason: "is negative",
			Want: "0 for the default, or a number of URLs"})
	}
	cfg.Delay, cfg.Capacity = cmp.Or(cfg.Delay, 5*time.Second), cmp.Or(cfg.Capacity, 100_000)
	if cfg.Done == nil {
		cfg.Done = func(string, error) {}
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	q := &Queue{
		cfg: cfg, service: service, hosts: make(map[string]*host),
		wake: make(chan struct{}, 1), sender: make(chan struct{}, 1),
	}
	q.life, q.end = context.WithCancel(context.Background())
	return q, nil
}

// Add puts a URL into the queue, and does not wait. A URL that waits already is not added again. Other
// errors than [ErrFull] and [ErrClosed] say what is wrong with the URL. After an error, it is not in the queue.
func (q *Queue) Add(url string) error {
	items, err := q.service.Items(url)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	items = slices.DeleteFunc(items, func(i Item) bool { h := q.hosts[i.Host]; return h != nil && h.isAdded[i.URL] })
	switch {
	case q.isClosed:
		return ErrClosed
	case q.items+len(items) > q.cfg.Capacity:
		return ErrFull
	}
	for _, i := range items {
		h := q.hosts[i.Host]
		if h == nil {
			h = &host{name: i.Host, isAdded: make(map[string]bool), at: time.Now().Add(q.cfg.Delay)}
			q.hosts[i.Host] = h
			heap.Push(&q.due, h)
		}
		h.add(i.URL)
		q.items++
	}
	q.wakeUp()
	return nil
}

func (h *host) add(url string) {
	h.waiting, h.isAdded[url] = append(h.waiting, url), true
}

func (q *Queue) wakeUp() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Run sends the URLs when they are due, until [Queue.Shutdown] is called, and then returns nil. If ctx ends,
// Run returns its error; the requests on their way are interrupted, and their URLs wait for Shutdown or for
// another Run. Call it in its own goroutine. While another Run or Shutdown sends, it returns [ErrRuns] at once.
func (q *Queue) Run(ctx context.Context) error {
	select {
	case q.sender <- struct{}{}:
	default:
		return ErrRuns
	}
	defer func() { <-q.sender }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(q.life, cancel)()
	q.send(ctx, false)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.isClosed {
		return nil
	}
	return ctx.Err()
}

// Shutdown closes the queue, lets Run finish the requests on their way, and sends what waits at once, each
// host until its first failure. It returns the URLs that are left, which the service may not have: those of
// hosts that fail, and all that are not accepted before ctx ends, which interrupts the requests.
func (q *Queue) Shutdown(ctx context.Context) (unsent []string, err error) {
	q.mu.Lock()
	if q.isClosed {
		q.mu.Unlock()
		return nil, ErrClosed
	}
	q.isClosed = true
	q.mu.Unlock()
	q.wakeUp()
	defer context.AfterFunc(ctx, q.end)()
	q.sender <- struct{}{} // once Run has ended
	defer func() { <-q.sender }()
	q.send(ctx, true)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, h := range q.hosts {
		unsent = append(unsent, h.waiting...)
		err = cmp.Or(err, h.err, ctx.Err())
	}
	slices.Sort(unsent)
	return unsent, err
}

// send sends what is due until ctx ends or, unless isLast, the queue is closed. If isLast, everything is
// due whose host has not failed, and send returns when nothing else is left.
func (q *Queue) send(ctx context.Context, isLast bool) {
	var onTheirWay sync.WaitGroup
	defer onTheirWay.Wait()
	ended := make(chan struct{}, parallel)
	for n := 0; ctx.Err() == nil; { // requests on their way
		var h *host
		var urls []string
		wait := time.Hour
		if n < parallel {
			h, urls, wait = q.take(isLast)
		}
		switch {
		case h != nil:
			n++
			onTheirWay.Go(func() {
				defer func() { ended <- struct{}{} }()
				q.settle(ctx, h, urls, q.service.Send(ctx, h.name, urls))
			})
			continue
		case n == 0 && (isLast || q.hasEnded()):
			return
		}
		select {
		case <-ctx.Done():
		case <-ended:
			n--
		case <-q.wake:
		case <-time.After(wait):
		}
	}
}

// hasEnded reports whether Shutdown was called.
func (q *Queue) hasEnded() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.isClosed
}

// take returns the items of the next request. Without one, it returns how long to wait for one.
func (q *Queue) take(isLast bool) (h *host, urls []string, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.due) == 0 || !isLast && q.isClosed {
		return nil, nil, time.Hour
	}
	next := 0
	if wait = time.Until(q.due[0].at); isLast {
		if next = slices.IndexFunc(q.due, func(h *host) bool { return h.failures == 0 }); next < 0 {
			return nil, nil, time.Hour
		}
	} else if wait > 0 {
		return nil, nil, wait
	}
	h = heap.Remove(&q.due, next).(*host)
	n := min(len(h.waiting), q.service.Batch)
	urls, h.waiting = h.waiting[:n:n], h.waiting[n:]
	for _, url := range urls {
		delete(h.isAdded, url) // what is added from now on has changed since
	}
	return h, urls, 0
}

// settle notes the results of a request.
func (q *Queue) settle(ctx context.Context, h *host, urls []string, results []Result) {
	for i, r := range results {
		if !r.Again {
			q.cfg.Done(urls[i], r.Err)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var failure *Result
	hasProgress := false
	for i, r := range results {
		switch {
		case r.Again:
			q.stats.Retried++
			if !h.isAdded[urls[i]] {
				h.add(urls[i])
				q.items++
			}
			if failure == nil || r.After > failure.After {
				failure = &results[i]
			}
		case r.Err != nil:
			q.stats.Failed++
		default:
			q.stats.Accepted++
			hasProgress = true
		}
	}
	if hasProgress && failure != nil && failure.Soon {
		h.failures = 0
	}
	q.items -= len(urls)
	h.at = time.Now()
	if len(h.waiting) < q.service.Batch {
		h.at = h.at.Add(q.cfg.Delay)
	}
	switch {
	case failure == nil:
		h.failures, h.err, q.stats.Err = 0, nil, nil
	case ctx.Err() == nil: // otherwise the end of the context may be the cause
		backoff := maxBackoff
		if h.failures < 10 {
			backoff = min(minBackoff<<h.failures, maxBackoff)
		}
		h.failures++
		h.at, h.err, q.stats.Err = time.Now().Add(max(backoff, failure.After)), failure.Err, failure.Err
	}
	if len(h.waiting) == 0 {
		delete(q.hosts, h.name)
	} else {
		heap.Push(&q.due, h)
	}
}

// Stats returns the counts so far.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	stats := q.stats
	stats.Waiting = q.items
	return stats
}

// A hostHeap is a heap of hosts, the one that is due first at the top.
type hostHeap []*host

func (a hostHeap) Len() int           { return len(a) }
func (a hostHeap) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a hostHeap) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *hostHeap) Push(h any)        { *a = append(*a, h.(*host)) }
func (a *hostHeap) Pop() any {
	old := *a
	h := old[len(old)-1]
	*a = old[:len(old)-1]
	return h
}
