package updatecache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ampcors/ampcors/announce/internal/queue"
	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
)

// QueueConfig configures a [Queue].
type QueueConfig struct {
	// Delay is the longest time that a URL waits, so that a document that changes several times is
	// flushed once. It waits less if another one is due. If zero, 1 second is used.
	Delay time.Duration
	// Capacity bounds the URLs that wait or are being sent, for each cache. If zero, 100,000 is
	// used.
	Capacity int
	// Parallel is the maximum number of hosts of a cache that are asked at one time. Each gets up
	// to 10 requests at once. If zero, 16 is used.
	Parallel int
	// Flushed is called with each URL that a cache has flushed; u.Cache is that cache. Run and
	// Shutdown wait for it, so it must not call Shutdown. If Config.Caches has several caches, it
	// must be safe for concurrent use by multiple goroutines.
	Flushed func(u cacheurl.URL)
	// Failed is called with each URL that a cache rejects permanently. The URL is no longer in the
	// queue of that cache. What is said of Flushed holds for Failed too.
	Failed func(u cacheurl.URL, err *Error)
}

// A Queue flushes URLs, and its caller does not wait. A URL that waits already is not added again.
//
// A URL that fails with a retryable [Error], or because the Signer fails, stays in the queue. It is
// retried after a backoff, or after Retry-After if that is longer. The backoff begins with
// Config.Backoff, doubles with each failure up to 10 minutes, and is reduced at random by up to
// half. Each host of a cache has its own. [ErrRateLimited] delays only its host. After every three
// other failures in a row, the cache gets no requests for up to a minute, or for Retry-After if
// that is longer. Caches are independent of each other. A Queue does not use Config.Attempts and
// Config.MaxWait.
//
// The rate limit of [Client.Flush] applies. A Queue is only in memory: if the process is killed,
// the waiting URLs are lost.
type Queue struct {
	client  *Client
	cfg     QueueConfig
	queues  []*queue.Queue // of Config.Caches
	running sync.Mutex
}

// QueueStats counts what happened to the URLs of a [Queue]. Each URL counts once for each cache.
type QueueStats struct {
	Waiting  int    // in the queue now, including those being sent
	Added    uint64 // not counting Repeated
	Repeated uint64 // those that waited already
	Flushed  uint64 // by a cache
	Retried  uint64 // failed and kept in the queue, counted each time
	Failed   uint64 // rejected permanently by a cache
	Err      error  // why the last request to a cache is retried, or nil
}

// The errors of a [Queue].
var (
	// ErrFull is returned by [Queue.Add] when the queue is full.
	ErrFull = queue.ErrFull
	// ErrClosed is returned by [Queue.Add] and [Queue.Shutdown] once Shutdown was called.
	ErrClosed = queue.ErrClosed
	// ErrRunning is returned by [Queue.Run] if it is already running.
	ErrRunning = queue.ErrRunning
)

// NewQueue returns a Queue, or all the problems of the configuration, joined, each an
// *[badvalue.Error]. [Queue.Run] flushes its URLs.
func NewQueue(client *Client, cfg QueueConfig) (*Queue, error) {
	if client == nil {
		return nil, &badvalue.Error{Path: "client", Reason: "is missing", Want: "a Client from New"}
	}
	queue.Default(&cfg.Delay, time.Second)
	queue.Default(&cfg.Capacity, 100_000)
	queue.Default(&cfg.Parallel, 16)
	if cfg.Flushed == nil {
		cfg.Flushed = func(cacheurl.URL) {}
	}
	if cfg.Failed == nil {
		cfg.Failed = func(cacheurl.URL, *Error) {}
	}
	q := &Queue{client: client, cfg: cfg}
	for _, cache := range client.caches {
		cacheQueue, problems := queue.New("updatecache", queue.Config{
			Delay: cfg.Delay, Capacity: cfg.Capacity, Parallel: cfg.Parallel, MaxBatch: maxRequests, Pause: perPeriod,
			Clock: client.clock, Wait: client.retry.Wait,
			Send: func(ctx context.Context, _ string, urls []string, _ func() bool) ([]queue.Part, *queue.Problem, any) {
				return q.send(ctx, cache, urls)
			},
		})
		if len(problems) > 0 {
			return nil, errors.Join(problems...)
		}
		q.queues = append(q.queues, cacheQueue)
	}
	return q, nil
}

// Add puts the URL of a document into the queue of each cache, and does not wait. It returns the
// *[badvalue.Error] with which [Client.Flush] would reject it, [ErrFull] or [ErrClosed]. After
// an error, the caller may add it again later; after ErrFull, the queues of some caches may have it
// already.
func (q *Queue) Add(page string) error { return q.AddURL(cacheurl.URL{Publisher: page}) }

// AddURL does the same for anything that [Client.FlushURL] takes.
func (q *Queue) AddURL(u cacheurl.URL) error {
	targets, err := q.client.targets(u)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range targets {
		i := slices.IndexFunc(q.client.caches, func(c cacheurl.Cache) bool { return c.ID == t.cache })
		if err := q.queues[i].Add(t.url, t.host); err != nil {
			errs = append(errs, fmt.Errorf("updatecache: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Run flushes the URLs in the queue when they are due. It returns the context's error when the
// context ends, and nil when [Queue.Shutdown] is called. Run it in a goroutine. The end of the
// context interrupts the requests in progress; Shutdown lets them finish, so prefer Shutdown.
func (q *Queue) Run(ctx context.Context) error {
	if !q.running.TryLock() {
		return ErrRunning
	}
	defer q.running.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(q.queues))
	q.atOnce(func(i int, cacheQueue *queue.Queue) {
		defer func() {
			if p := recover(); p != nil {
				cancel() // so that Run panics, and does not wait for the other caches
				panic(p)
			}
		}()
		errs[i] = cacheQueue.Run(ctx)
	})
	return cmp.Or(errs...)
}

// Shutdown closes the queue to new URLs, and lets [Queue.Run] finish the requests in progress. Then
// it flushes the URLs that wait, whether or not Run was called. It retries until the context's
// deadline; without a deadline, a host gets no more requests after its first failure. It returns the
// URLs that are still in the queue, in any order, each with its Cache. The error says why.
func (q *Queue) Shutdown(ctx context.Context) (unsent []cacheurl.URL, err error) {
	left, errs := make([][]string, len(q.queues)), make([]error, len(q.queues))
	q.atOnce(func(i int, cacheQueue *queue.Queue) { left[i], errs[i] = cacheQueue.Shutdown(ctx) })
	for i, urls := range left {
		for _, u := range urls {
			unsent = append(unsent, parse(u, q.client.caches[i]))
		}
		if errs[i] != nil {
			errs[i] = fmt.Errorf("updatecache: %s: %w", q.client.caches[i].ID, errs[i])
		}
	}
	return unsent, errors.Join(errs...)
}

// atOnce calls f with the queue of each cache, in a goroutine each. If a call panics, atOnce panics
// with the same value after all calls have returned.
func (q *Queue) atOnce(f func(i int, cacheQueue *queue.Queue)) {
	var wg sync.WaitGroup
	panicked := make([]any, len(q.queues))
	for i, cacheQueue := range q.queues {
		wg.Go(func() {
			defer func() { panicked[i] = recover() }()
			f(i, cacheQueue)
		})
	}
	wg.Wait()
	for _, p := range panicked {
		if p != nil {
			panic(p)
		}
	}
}

// Stats returns the counts so far.
func (q *Queue) Stats() QueueStats {
	var sum QueueStats
	for _, cacheQueue := range q.queues {
		s := cacheQueue.Stats()
		sum.Waiting += s.Waiting
		sum.Added += s.Added
		sum.Repeated += s.Repeated
		sum.Flushed += s.Accepted
		sum.Retried += s.Retried
		sum.Failed += s.Failed
		if s.Err != nil {
			sum.Err = s.Err
		}
	}
	return sum
}

// parse returns what a URL of the queue names.
func parse(url string, cache cacheurl.Cache) cacheurl.URL {
	u, _ := cacheurl.ParseAny(url, cache) // no error: Build has made the URL
	return u
}

// send flushes URLs of one host of a cache, all at once: they are no more than the rate limit allows.
func (q *Queue) send(ctx context.Context, cache cacheurl.Cache, urls []string) (parts []queue.Part, stopped *queue.Problem, panicked any) {
	parts = make([]queue.Part, len(urls))
	results, panics := make([]error, len(urls)), make([]any, len(urls))
	var wg sync.WaitGroup
	for i, url := range urls {
		results[i], panics[i] = errPanicked, errPanicked // if it calls runtime.Goexit
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panics[i] = p
				}
			}()
			results[i] = q.flush(ctx, targetOf(parse(url, cache).Publisher, url, cache))
			panics[i] = nil
		})
	}
	wg.Wait()
	isAnswered, retryAfter := false, time.Duration(0)
	for i, url := range urls {
		u := parse(url, cache)
		if panics[i] != nil {
			panicked = panics[i]
		}
		problem := (*Error)(nil)
		isError := errors.As(results[i], &problem)
		switch {
		case results[i] == nil:
			isAnswered = true
			parts[i] = queue.Part{URLs: urls[i : i+1], Report: func(context.Context) { q.cfg.Flushed(u) }}
			continue
		case isError && !problem.Retryable() && !errors.Is(problem, ErrSigner):
			isAnswered = true
			parts[i] = queue.Part{URLs: urls[i : i+1], Err: problem, Report: func(context.Context) { q.cfg.Failed(u, problem) }}
			continue
		}
		parts[i] = queue.Part{URLs: urls[i : i+1], Err: results[i], IsKept: true}
		if isError {
			retryAfter = max(retryAfter, problem.RetryAfter)
		}
		if stopped == nil || stopped.IsHostOnly { // a problem of the cache outranks one of the host
			stopped = q.problem(results[i], problem)
		}
	}
	if stopped != nil {
		stopped.IsAfterAnswer, stopped.RetryAfter = isAnswered, max(stopped.RetryAfter, retryAfter)
	}
	return parts, stopped, panicked
}

// problem returns why a URL stays in the queue. problem is nil if a panic is the cause.
func (q *Queue) problem(err error, problem *Error) *queue.Problem {
	switch {
	case problem == nil:
		return &queue.Problem{Err: err, IsRetryable: true, IsNotSent: true}
	case errors.Is(problem, errNoSlot): // another call of Flush has used up the rate limit
		return &queue.Problem{Err: problem, IsRetryable: true, IsHostOnly: true, RetryAfter: perPeriod}
	}
	return &queue.Problem{Err: problem, IsRetryable: true, IsHostOnly: errors.Is(problem, ErrRateLimited), IsAnswered: problem.Status != 0}
}

var errPanicked = errors.New("the Signer or the HTTPClient panicked, or called runtime.Goexit")

// flush asks a cache once.
func (q *Queue) flush(ctx context.Context, t target) (err error) {
	if _, problem := q.client.attempt(ctx, t); problem != nil {
		err = problem
	}
	q.client.logResult(ctx, t, 1, err)
	return err
}
