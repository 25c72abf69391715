package indexnow

import (
	"context"
	"errors"
	"time"

	"github.com/ampcors/ampcors/announce/internal/queue"
	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/internal/outbound"
)

// QueueConfig configures a [Queue].
type QueueConfig struct {
	// Delay is how long a URL waits for others, to be sent together. If zero, 5 seconds is
	// used.
	Delay time.Duration
	// Hold is how long a URL that the engine accepted is held back if it is added again, because
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
	// Accepted is called with each batch that the engine accepts, even if it is pending. Run and
	// Shutdown wait for it, as for Failed. A program that keeps its own list of URLs to submit can
	// remove the URLs of the batch from it.
	Accepted func(Batch)
	// ResubmitPending keeps the URLs of a pending batch in the queue, and submits them again after
	// the backoff of the host, until the engine has verified the key. Accepted is called only then.
	ResubmitPending bool
}

// A Queue gathers URLs of pages as they change, and submits them in batches. A URL that
// waits already is not added again. Batches that the engine rejects permanently are passed
// to QueueConfig.Failed. URLs that are left at the end are returned by [Queue.Shutdown].
//
// Each host has at most one request at a time. Several hosts can have one at the same time: first
// one host, one more after each answer, up to QueueConfig.Parallel, and again only one after a
// failure of the engine.
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
// Queue does not know which URLs were sent within Hold. The module announce/outbox keeps both in
// PostgreSQL.
//
// A long queue is hardly slower than a short one. To send a request with 10 URLs and add them again
// took 47 µs while a million URLs waited, and 32 µs while a thousand did. The slowest Add took
// 20 ms (on a 2-core AMD EPYC; go test -run '^$' -bench 'Queue|Add' ./indexnow).
type Queue struct {
	client *Client
	cfg    QueueConfig
	queue  *queue.Queue
}

// QueueStats counts what happened to the URLs of a [Queue].
type QueueStats struct {
	Waiting  int    // in the queue now, including those being sent
	Added    uint64 // not counting Repeated
	Repeated uint64 // those that waited already
	Accepted uint64 // by the engine, those that are pending included
	Pending  uint64 // answered with 202, counted each time: the engine has yet to verify the key
	Retried  uint64 // sent with a retryable error, counted each time
	Failed   uint64 // rejected by the engine permanently
	Err      error  // why the last request is retried, an *[Error], or nil
}

var (
	// ErrFull is returned by [Queue.Add] when the queue is full.
	ErrFull = queue.ErrFull
	// ErrClosed is returned by [Queue.Add] and [Queue.Shutdown] once Shutdown was called.
	ErrClosed = queue.ErrClosed
	// ErrRunning is returned by [Queue.Run] if it is already running.
	ErrRunning = queue.ErrRunning
)

// NewQueue returns a Queue, or all the problems of the configuration, joined, each an
// *[badvalue.Error]. [Queue.Run] submits its URLs.
func NewQueue(client *Client, cfg QueueConfig) (*Queue, error) {
	if client == nil {
		return nil, &badvalue.Error{Path: "client", Reason: "is missing", Want: "a Client from New"}
	}
	queue.Default(&cfg.Parallel, 16)
	queue.Default(&cfg.Delay, 5*time.Second)
	queue.Default(&cfg.Hold, 10*time.Minute)
	queue.Default(&cfg.Capacity, 100_000)
	q := &Queue{client: client, cfg: cfg}
	var problems []error
	q.queue, problems = queue.New("indexnow", queue.Config{
		Delay: cfg.Delay, Hold: cfg.Hold, Capacity: cfg.Capacity, Parallel: cfg.Parallel, MaxBatch: maxURLs,
		Clock: client.clock, Wait: client.retry.Wait, Send: q.send,
	})
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return q, nil
}

// Add puts a URL into the queue, and does not wait. It returns an *[badvalue.Error] for
// a URL that [Client.Submit] would reject, [ErrFull] or [ErrClosed]. After an error, the
// URL is not in the queue; the caller may add it again later.
func (q *Queue) Add(url string) error {
	page, problem := q.client.page(url)
	if problem != nil {
		return problem
	}
	return q.queue.Add(page.String(), page.Host)
}

// Run submits the URLs in the queue when they are due. It returns the context's error when
// the context ends, and nil when [Queue.Shutdown] is called. Run it in a goroutine; it starts
// one more for each request. The end of the context interrupts the requests in progress.
// Shutdown lets them finish, so prefer Shutdown. Unsent URLs stay in the queue for Shutdown, or
// for another Run if only the context ended.
func (q *Queue) Run(ctx context.Context) error { return q.queue.Run(ctx) }

// send sends a batch, without retries.
func (q *Queue) send(ctx context.Context, host string, urls []string, mayGoOn func() bool) (parts []queue.Part, stopped *queue.Problem, panicked any) {
	batches, problem, panicked := q.client.send(ctx, outbound.Retry{}, Batch{Host: host, URLs: urls}, mayGoOn)
	for _, b := range batches {
		parts = append(parts, queue.Part{
			URLs:      b.URLs,
			Err:       b.Err,
			IsKept:    q.isKept(b),
			IsPending: b.Outcome() == Pending,
			Report:    func(ctx context.Context) { q.report(ctx, b) },
		})
	}
	if problem != nil {
		stopped = &queue.Problem{
			Err:         problem,
			IsRetryable: problem.Retryable(),
			IsHostOnly:  problem.ofHost(),
			IsAnswered:  problem.Status != 0,
			IsRateLimit: errors.Is(problem, ErrRateLimited),
			IsNotSent:   errors.Is(problem, ErrNotSent),

			IsAfterAnswer: problem.afterAnswer,
			RetryAfter:    problem.RetryAfter,
		}
	}
	return parts, stopped, panicked
}

// isKept reports whether the URLs of a batch stay in the queue.
func (q *Queue) isKept(b Batch) bool {
	if problem := (*Error)(nil); errors.As(b.Err, &problem) {
		return problem.Retryable()
	}
	return b.Pending && q.cfg.ResubmitPending
}

// report calls the hooks with a batch that is no longer in the queue.
func (q *Queue) report(ctx context.Context, b Batch) {
	switch {
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

// Stats returns the counts so far.
func (q *Queue) Stats() QueueStats { return QueueStats(q.queue.Stats()) }

// Shutdown closes the queue to new URLs, and lets [Queue.Run] finish the requests in progress. Then
// it submits the URLs that wait, whether or not Run was called. It retries until the context's
// deadline, and also submits the URLs that are held back, but not beyond the deadline. Without a
// deadline, a host gets no more requests after its first failure. It returns the unsent URLs, in any
// order: those that are still held back, and those that the engine did not accept in time. The error
// says why the engine did not accept them.
//
// Shutdown can be late if QueueConfig.Failed or QueueConfig.Accepted is slow, or if the transport
// of Config.HTTPClient ignores its context.
func (q *Queue) Shutdown(ctx context.Context) (unsent []string, err error) {
	return q.queue.Shutdown(ctx)
}
