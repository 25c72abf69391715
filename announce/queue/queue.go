// Package queue gathers the URLs of pages that change, and passes them on in the background: to search
// engines with package indexnow, or to AMP Caches with package updatecache. Their clients make a [Queue].
//
// A Queue is only in memory. If the process is killed, its URLs are lost. A program that must lose none keeps
// them in a database: see examples/outbox.
package queue

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
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
	// Capacity is how many items the queue holds: those that wait (also because of Interval), and those on their way.
	// If zero, 100,000 is used. No URL is added for hosts that the service rejects once they have half of the queue
	// together; if the queue is full, what they have beyond half is given up.
	Capacity int
	// GiveUpAfter is how long a URL is sent again while the service rejects all items of its host. Then Done gets it,
	// with the service's last answer. If no retry helps, such as with a key that is not found, Done gets it at once.
	// What fails temporarily, such as by 429, 5xx or no answer, is sent again without end, so this has no effect for
	// AMP Caches. If zero, 24 hours is used.
	GiveUpAfter time.Duration
	// Interval is how long the queue waits before it sends a URL again that the service has accepted. If zero, it is what
	// the service asks for: 5 minutes for search engines, and none for AMP Caches. A negative one is none.
	Interval time.Duration
	// AtOnce, at most 1000, is how many hosts get a request at one time; up to 4 rejected hosts come on top. If zero,
	// 16 is used.
	AtOnce int
	// Done is called with each URL that leaves the queue: err is nil if the service has accepted the URL;
	// otherwise it says why the URL is not sent again. If nil, the client's log is all there is. It may be
	// called from several goroutines at one time, while Run or Shutdown sends, and never by Add.
	Done func(url string, err error)
}

// A Service is what the URLs are for. The packages indexnow and updatecache have one each.
type Service struct {
	// Items returns what is to be sent for a URL.
	Items func(url string) ([]Item, error)
	// Send sends items of one host, at most Batch, and returns the result for each, in their order.
	Send     func(ctx context.Context, host string, urls []string) []Result
	Batch    int
	Interval time.Duration // see Config.Interval
}

// An Item is one thing to be sent. Items with the same URL are the same, and wait once. Items with the same Host
// share requests, and problems such as a wrong key.
type Item struct{ URL, Host string }

// A Result is the outcome for one [Item].
type Result struct {
	Err   error         // nil: it is accepted
	Again bool          // Err is temporary: the item is sent again
	After time.Duration // if Again is set: the item is not sent before this time has passed
	// with Again: the wait before the next try does not grow, because other items of the request were accepted
	Soon bool
	// OfHost says that Err concerns the host, such as its key, and not the service. If nothing of the request is
	// accepted, each further request of the host has one item, until one is accepted.
	OfHost bool
	// OfService says that Err concerns the whole service: nothing is sent to it before After has passed.
	OfService bool
	// MayBeItem says that Err may also be about the item. An item is given up if it was rejected alone,
	// then another item of its host was accepted, and then it was rejected alone again.
	MayBeItem bool
}

// Stats counts the items of a [Queue].
type Stats struct {
	Waiting  int    // now, including those on their way
	Rejected int    // of those that wait and are not on their way: items of hosts that the service rejects
	Accepted uint64 // by the service
	Failed   uint64 // given up: not sent again
	Retried  uint64 // how often an item failed, to be sent again
	Err      error  // why an item of the last request is retried; nil if none is
}

var (
	// ErrFull is returned by [Queue.Add] if the queue is full, or if the URL's host is rejected, and rejected hosts
	// have half of the queue.
	ErrFull = errors.New("the queue is full")
	// ErrRuns is returned by [Queue.Run] while another Run or Shutdown sends.
	ErrRuns = errors.New("the queue runs already")
	// ErrClosed is returned by [Queue.Add] and [Queue.Shutdown] once Shutdown was called.
	ErrClosed = errors.New("the queue is closed")
)

const (
	maxAtOnce  = 1000
	reserve    = 4 // more requests, for hosts that are rejected: so these delay no other
	minBackoff = time.Second
	maxBackoff = 10 * time.Minute
)

// A Queue passes URLs on in the background. Each host has one request at a time. What fails temporarily is sent
// again: after 1 second, after twice as long each further time, up to 10 minutes, and not before the service's
// Retry-After. If the service rejects all items of a host ([Result].OfHost), and a retry may help, the Queue sends
// one item of that host at a time, and no other host waits for it. It is safe for concurrent use by multiple
// goroutines.
type Queue struct {
	cfg     Config
	service Service
	wake    chan struct{} // a host may be due earlier, or there is an end
	sender  chan struct{} // holds a value while somebody sends

	life context.Context // of Run's requests: until Shutdown's context ends
	end  context.CancelFunc

	mu    sync.Mutex
	hosts map[string]*host
	// the hosts with items that have no request on its way: those that work, and those that are rejected
	due      [2]hostHeap
	onTheWay [2]int // requests of both
	items    int
	isClosed bool
	stats    Stats
	gone     []finished // given up by Add, and not passed to Config.Done yet
	paused   time.Time  // nothing is sent before

	// Of Config.Interval:
	later   laterHeap // items that were accepted not long ago, and wait for their time
	isLater map[string]bool
	recent  map[string]time.Time // when items were accepted
	ages    []accepted           // of recent, the oldest first
}

// accepted is an item that the service accepted at a time.
type accepted struct {
	url string
	at  time.Time
}

// A laterItem waits until its time.
type laterItem struct {
	Item
	at time.Time
}

// A host has the items of one host that wait.
type host struct {
	name     string
	waiting  []string // in the order in which they were added
	isAdded  map[string]bool
	at       time.Time // when the next request is due
	failures int       // in a row
	err      error     // of the last one

	since         map[string]time.Time // when each item was added that waits or is on its way
	rejectedSince time.Time            // zero unless the service rejects the host
	isAtFault     map[string]bool      // items that were rejected alone: true if another one was accepted since
}

// kind is an index of Queue.due.
func (h *host) kind() int {
	if h.rejectedSince.IsZero() {
		return 0
	}
	return 1
}

// New returns a Queue, or what is wrong with the Config, as joined *[badvalue.Error]s.
func New(service Service, cfg Config) (*Queue, error) {
	var errs []error
	if cfg.Delay < 0 {
		errs = append(errs, &badvalue.Error{Code: badvalue.OutOfRange, Path: "Delay", Value: cfg.Delay.String(),
			Reason: "is negative",
			Want:   "0 for the default, or some seconds"})
	}
	if cfg.Capacity < 0 {
		errs = append(errs, &badvalue.Error{Code: badvalue.OutOfRange, Path: "Capacity", Value: strconv.Itoa(cfg.Capacity),
			Reason: "is negative",
			Want:   "0 for the default, or a number of URLs"})
	}
	if cfg.GiveUpAfter < 0 {
		errs = append(errs, &badvalue.Error{Code: badvalue.OutOfRange, Path: "GiveUpAfter", Value: cfg.GiveUpAfter.String(),
			Reason: "is negative",
			Want:   "0 for the default, or some hours"})
	}
	if cfg.AtOnce < 0 || cfg.AtOnce > maxAtOnce {
		errs = append(errs, &badvalue.Error{Code: badvalue.OutOfRange, Path: "AtOnce", Value: strconv.Itoa(cfg.AtOnce),
			Reason: "is out of range",
			Want:   fmt.Sprintf("0 for the default, or at most %d requests", maxAtOnce)})
	}
	cfg.AtOnce, cfg.Interval = cmp.Or(cfg.AtOnce, 16), max(cmp.Or(cfg.Interval, service.Interval), 0)
	cfg.Delay, cfg.Capacity, cfg.GiveUpAfter = cmp.Or(cfg.Delay, 5*time.Second), cmp.Or(cfg.Capacity, 100_000),
		cmp.Or(cfg.GiveUpAfter, 24*time.Hour)
	if cfg.Done == nil {
		cfg.Done = func(string, error) {}
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	q := &Queue{
		cfg: cfg, service: service, hosts: make(map[string]*host),
		wake: make(chan struct{}, 1), sender: make(chan struct{}, 1), isLater: make(map[string]bool),
		recent: make(map[string]time.Time),
	}
	q.life, q.end = context.WithCancel(context.Background())
	return q, nil
}

// Add puts a URL into the queue, and does not wait. A URL that waits already is not added again. Other errors than
// [ErrFull] and [ErrClosed] say what is wrong with the URL. After an error, it was not added.
//
// If the queue is full, and hosts that the service rejects have more than half of it, what they have beyond that is
// given up: Config.Done gets it, from Run or Shutdown.
func (q *Queue) Add(url string) error {
	items, err := q.service.Items(url)
	if err != nil {
		return err
	}
	return q.add(items)
}

// A finished is an item that leaves the queue, and why.
type finished struct {
	url string
	err error
}

func (q *Queue) done(all []finished) {
	for _, f := range all {
		q.cfg.Done(f.url, f.err)
	}
}

func (q *Queue) add(items []Item) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	items = slices.DeleteFunc(items, func(i Item) bool {
		h := q.hosts[i.Host]
		return h != nil && h.isAdded[i.URL] ||
			q.isLater[i.URL]
	})
	isRejected := slices.ContainsFunc(items, func(i Item) bool { h := q.hosts[i.Host]; return h != nil && h.kind() == 1 })
	share := q.cfg.Capacity / 2
	switch {
	case q.isClosed:
		return ErrClosed
	case isRejected && q.items >= share && q.rejected()+len(items) > share:
		return fmt.Errorf("%w for hosts that the service rejects", ErrFull)
	case q.items+len(items) > q.cfg.Capacity:
		q.gone = append(q.gone, q.shrink(share)...)
		if q.wakeUp(); q.items+len(items) > q.cfg.Capacity {
			return ErrFull
		}
	}
	for _, i := range items {
		h := q.hosts[i.Host]
		isRejected := h != nil && h.kind() == 1 // its items count as such, see Config.Capacity
		if q.items++; isRejected || !q.putOff(i) {
			q.hostOf(i).add(i.URL)
		}
	}
	q.wakeUp()
	return nil
}

// hostOf returns the host of an item, which may be a new one. q.mu is held.
func (q *Queue) hostOf(i Item) *host {
	h := q.hosts[i.Host]
	if h == nil {
		h = &host{name: i.Host, isAdded: make(map[string]bool), since: make(map[string]time.Time),
			isAtFault: make(map[string]bool), at: time.Now().Add(q.cfg.Delay)}
		q.hosts[i.Host] = h
		heap.Push(&q.due[0], h)
	}
	return h
}

// putOff puts an item aside if it was accepted less than Config.Interval ago. q.mu is held.
func (q *Queue) putOff(i Item) bool {
	at, isRecent := q.recent[i.URL]
	if at = at.Add(q.cfg.Interval); !isRecent || !time.Now().Before(at) {
		return false
	}
	q.isLater[i.URL] = true
	heap.Push(&q.later, laterItem{i, at})
	return true
}

// bringBack lets items wait with their hosts again whose time has come, or all. q.mu is held.
func (q *Queue) bringBack(all bool) {
	for len(q.later) > 0 && (all || !time.Now().Before(q.later[0].at)) {
		i := heap.Pop(&q.later).(laterItem)
		delete(q.isLater, i.URL)
		if h := q.hostOf(i.Item); h.isAdded[i.URL] {
			q.items--
		} else {
			h.add(i.URL)
		}
	}
}

// note remembers that the service has accepted an item. q.mu is held.
func (q *Queue) note(url string) {
	if q.cfg.Interval == 0 {
		return
	}
	now := time.Now()
	q.recent[url], q.ages = now, append(q.ages, accepted{url, now})
}

// forget forgets what was accepted longer ago than Config.Interval. q.mu is held.
func (q *Queue) forget() {
	now := time.Now()
	for len(q.ages) > 0 && now.Sub(q.ages[0].at) >= q.cfg.Interval {
		if q.recent[q.ages[0].url].Equal(q.ages[0].at) { // otherwise, it was accepted again
			delete(q.recent, q.ages[0].url)
		}
		q.ages = q.ages[1:]
	}
}

// rejected returns how many items wait of hosts that the service rejects. q.mu is held.
func (q *Queue) rejected() (n int) {
	for _, h := range q.hosts {
		n += h.kind() * len(h.waiting)
	}
	return n
}

// shrink gives up what hosts that the service rejects have beyond a share, the latest of each. q.mu is held.
func (q *Queue) shrink(share int) (givenUp []finished) {
	all := q.rejected()
	if all <= share {
		return nil
	}
	for _, h := range q.hosts {
		if h.kind() == 1 {
			n, kept := 0, len(h.waiting)*share/all
			givenUp = append(givenUp, q.giveUp(h, "the queue is full", func(string) bool { n++; return n > kept })...)
		}
	}
	q.due[1] = slices.DeleteFunc(q.due[1], func(h *host) bool {
		if len(h.waiting) == 0 {
			delete(q.hosts, h.name)
		}
		return len(h.waiting) == 0
	})
	heap.Init(&q.due[1])
	return givenUp
}

// giveUp gives up those items of a host that wait and for which isOver is true. q.mu is held.
func (q *Queue) giveUp(h *host, reason string, isOver func(url string) bool) (givenUp []finished) {
	h.waiting = slices.DeleteFunc(slices.Clone(h.waiting), func(url string) bool {
		if !isOver(url) {
			return false
		}
		delete(h.isAdded, url)
		delete(h.isAtFault, url)
		delete(h.since, url)
		givenUp = append(givenUp, finished{url, fmt.Errorf("given up, because %s: %w", reason, h.err)})
		return true
	})
	q.items -= len(givenUp)
	q.stats.Failed += uint64(len(givenUp))
	return givenUp
}

func (h *host) add(url string) {
	h.waiting, h.isAdded[url] = append(h.waiting, url), true
	if h.since[url].IsZero() {
		h.since[url] = time.Now()
	}
}

// next returns the place of the item that is sent to find out whether the service accepts a rejected
// host again: the latest that was not rejected alone before.
func (h *host) next() int {
	for i := len(h.waiting) - 1; i > 0; i-- {
		if _, isTried := h.isAtFault[h.waiting[i]]; !isTried {
			return i
		}
	}
	return 0
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

// Shutdown closes the queue, and lets Run finish the requests on their way. Unless the service asked to wait, it then
// sends at once the URLs of each host whose last request did not fail, until a request of that host fails. It returns
// the URLs that are left, which the service perhaps does not have: the URLs of hosts that fail, and all that are not
// accepted before ctx ends, which interrupts the requests.
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
	q.bringBack(true) // if ctx ended before send did
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
	ended := make(chan struct{}, q.cfg.AtOnce+reserve)
	defer func() { q.done(q.takeGone()) }()
	for n := 0; ctx.Err() == nil; { // requests on their way
		q.done(q.takeGone())
		h, urls, wait := q.take(isLast)
		switch {
		case h != nil:
			n++
			onTheirWay.Go(func() {
				defer func() { ended <- struct{}{} }()
				q.done(q.settle(ctx, h, urls, q.service.Send(ctx, h.name, urls)))
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

// takeGone returns what Add has given up.
func (q *Queue) takeGone() (gone []finished) {
	q.mu.Lock()
	defer q.mu.Unlock()
	gone, q.gone = q.gone, nil
	return gone
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
	kind, next := 0, 0
	q.forget()
	q.bringBack(isLast)
	switch wait = time.Hour; {
	case isLast && (q.onTheWay[0] >= q.cfg.AtOnce || time.Now().Before(q.paused)):
		return nil, nil, wait
	case isLast:
		if next = slices.IndexFunc(q.due[0], func(h *host) bool { return h.failures == 0 }); next < 0 {
			return nil, nil, wait
		}
	case q.isClosed:
		return nil, nil, wait
	case time.Now().Before(q.paused):
		return nil, nil, time.Until(q.paused)
	default:
		if len(q.later) > 0 {
			wait = min(wait, time.Until(q.later[0].at))
		}
		for kind = range q.due {
			if len(q.due[kind]) > 0 && q.onTheWay[kind] < [2]int{q.cfg.AtOnce, reserve}[kind] {
				wait = min(wait, time.Until(q.due[kind][0].at))
			}
			if wait <= 0 {
				break
			}
		}
		if wait > 0 {
			return nil, nil, wait
		}
	}
	h = heap.Remove(&q.due[kind], next).(*host)
	q.onTheWay[kind]++
	if kind == 1 {
		i := h.next()
		urls, h.waiting = []string{h.waiting[i]}, slices.Concat(h.waiting[:i], h.waiting[i+1:])
	} else {
		n := min(len(h.waiting), q.service.Batch)
		urls, h.waiting = h.waiting[:n:n], h.waiting[n:]
	}
	if !isLast && q.cfg.Interval > 0 { // what was added while its last request was on its way
		urls = slices.DeleteFunc(slices.Clone(urls), func(url string) bool {
			if !q.putOff(Item{url, h.name}) {
				return false
			}
			delete(h.isAdded, url)
			delete(h.since, url)
			return true
		})
	}
	if len(urls) == 0 {
		q.onTheWay[kind]--
		q.giveBack(h)
		return nil, nil, 0
	}
	for _, url := range urls {
		delete(h.isAdded, url) // what is added from now on has changed since
	}
	return h, urls, 0
}

// giveBack lets a host that has no request on its way wait for its next one, if it has items. q.mu is held.
func (q *Queue) giveBack(h *host) {
	if len(h.waiting) == 0 {
		delete(q.hosts, h.name)
	} else {
		heap.Push(&q.due[h.kind()], h)
	}
}

// settle notes the results of a request, and returns what leaves the queue.
func (q *Queue) settle(ctx context.Context, h *host, urls []string, results []Result) (done []finished) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.onTheWay[h.kind()]--
	var failure *Result
	hasProgress := false
	for i, r := range results {
		if r.Again && r.MayBeItem && len(urls) == 1 && ctx.Err() == nil {
			r.Again = !h.isAtFault[urls[i]]
			h.isAtFault[urls[i]] = false
		}
		if !r.Again {
			delete(h.isAtFault, urls[i])
			if delete(h.since, urls[i]); h.isAdded[urls[i]] { // it has changed meanwhile
				h.since[urls[i]] = time.Now()
			}
		}
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
			continue
		case r.Err != nil:
			q.stats.Failed++
		default:
			q.stats.Accepted++
			hasProgress = true
			q.note(urls[i])
		}
		done = append(done, finished{urls[i], r.Err})
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
	case failure == nil: // also if all is rejected for good: then the next request has all items
		h.failures, h.err, q.stats.Err, h.rejectedSince = 0, nil, nil, time.Time{}
	case ctx.Err() == nil: // otherwise the end of the context may be the cause
		backoff := maxBackoff
		if h.failures < 10 {
			backoff = min(minBackoff<<h.failures, maxBackoff)
		}
		h.failures++
		if until := time.Now().Add(failure.After); failure.OfService && until.After(q.paused) {
			q.paused = until
		}
		h.at, h.err, q.stats.Err = time.Now().Add(max(backoff, failure.After)), failure.Err, failure.Err
		if failure.OfHost && !hasProgress && h.rejectedSince.IsZero() {
			h.rejectedSince = time.Now()
		}
	}
	if hasProgress {
		h.rejectedSince = time.Time{}
		for url := range h.isAtFault {
			h.isAtFault[url] = true
		}
	}
	if failure != nil && failure.OfHost && h.kind() == 1 && time.Since(h.rejectedSince) >= q.cfg.GiveUpAfter {
		done = append(done, q.giveUp(h, fmt.Sprintf("nothing of the host was accepted for %v", q.cfg.GiveUpAfter),
			func(url string) bool { return time.Since(h.since[url]) >= q.cfg.GiveUpAfter })...)
	}
	q.giveBack(h)
	return done
}

// Stats returns the counts so far.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	stats := q.stats
	stats.Waiting, stats.Rejected = q.items, q.rejected()
	return stats
}

// A laterHeap is a heap of items, the one whose time comes first at the top.
type laterHeap []laterItem

func (a laterHeap) Len() int           { return len(a) }
func (a laterHeap) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a laterHeap) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *laterHeap) Push(item any)     { *a = append(*a, item.(laterItem)) }
func (a *laterHeap) Pop() any {
	old := *a
	item := old[len(old)-1]
	*a = old[:len(old)-1]
	return item
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
