package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/ampcors/ampcors/announce/indexnow"
)

// FindArgs are the arguments of the job that finds the hosts that have ready URLs.
type FindArgs struct{}

// Kind names the job in River's tables.
func (FindArgs) Kind() string { return "outbox_find" }

// InsertOpts says that River does not retry the job, because the next job is inserted soon.
func (FindArgs) InsertOpts() river.InsertOpts { return river.InsertOpts{MaxAttempts: 1} }

// SendArgs are the arguments of the job that sends the ready URLs of a host.
type SendArgs struct {
	Host string `json:"host"`
}

// Kind names the job in River's tables.
func (SendArgs) Kind() string { return "outbox_send" }

// InsertOpts has each host have one job. Its state does not matter, as long as it is not over: a
// host gets no requests while it waits for a retry.
func (SendArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{
		MaxAttempts: 10_000, // the engine may be down for days
		UniqueOpts: river.UniqueOpts{ByArgs: true, ByState: []rivertype.JobState{
			rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable, rivertype.JobStateRunning,
			rivertype.JobStateScheduled,
		}},
	}
}

type finder struct {
	river.WorkerDefaults[FindArgs]
	outbox *Outbox
}

// Work inserts a job for each host that has ready URLs, unless it has one. It also removes the rows
// that are no longer needed.
func (f *finder) Work(ctx context.Context, _ *river.Job[FindArgs]) error {
	o := f.outbox
	rows, err := o.pool.Query(ctx, `
		SELECT DISTINCT host, rejected_host IS NOT NULL FROM outbox.page LEFT JOIN outbox.rejected_host USING (host)
		WHERE ready_at <= clock_timestamp() AND coalesce(next_at <= clock_timestamp(), true)`)
	if err != nil {
		return err
	}
	var jobs []river.InsertManyParams
	var host string
	var isRejected bool
	if _, err := pgx.ForEachRow(rows, []any{&host, &isRejected}, func() error {
		job := river.InsertManyParams{Args: SendArgs{Host: host}}
		if isRejected { // in a queue of its own, so that other hosts do not wait for it
			opts := SendArgs{}.InsertOpts()
			opts.Queue = rejectedQueue
			job.InsertOpts = &opts
		}
		jobs = append(jobs, job)
		return nil
	}); err != nil {
		return err
	}
	for some := range slices.Chunk(jobs, 1000) {
		if _, err := o.river.InsertMany(ctx, some); err != nil {
			return err
		}
	}
	if _, err := o.pool.Exec(ctx, `
		DELETE FROM outbox.rejected_host AS h WHERE NOT EXISTS (SELECT FROM outbox.page AS p WHERE p.host = h.host AND p.ready_at IS NOT NULL)`); err != nil {
		return err
	}
	_, err = o.pool.Exec(ctx, `
		DELETE FROM outbox.page WHERE id IN (
			SELECT id FROM outbox.page WHERE ready_at IS NULL AND error IS NULL AND sent_at < clock_timestamp() - $1::interval
			FOR UPDATE SKIP LOCKED)`, o.cfg.Hold)
	return err
}

type sender struct {
	river.WorkerDefaults[SendArgs]
	outbox *Outbox
}

// Work sends a batch. What is left of the host is for its next job. Of a host that is rejected, it sends one page first.
func (s *sender) Work(ctx context.Context, job *river.Job[SendArgs]) error {
	o, host := s.outbox, job.Args.Host
	var isRejected bool
	if err := o.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM outbox.rejected_host WHERE host = $1)`, host).Scan(&isRejected); err != nil {
		return err
	}
	if isRejected {
		if report, err := o.send(ctx, host, 1); err != nil || !hasAccepted(report) {
			return err
		}
	}
	report, err := o.send(ctx, host, maxBatch)
	if err != nil {
		return err
	}
	return retry(report)
}

// send submits ready URLs of a host, and writes the results.
func (o *Outbox) send(ctx context.Context, host string, limit int) (indexnow.Report, error) {
	pages, err := o.ready(ctx, host, limit)
	if err != nil {
		return indexnow.Report{}, err
	}
	urls := slices.Collect(maps.Keys(pages))
	report, _ := o.client.Submit(ctx, urls...) // the report has the errors
	for _, r := range report.Rejected {        // what was added before the key files changed, which would be tried for ever
		report.Batches = append(report.Batches, indexnow.Batch{Host: host, URLs: []string{urls[r.Index]}, Err: r.Err})
	}
	left, err := o.settle(ctx, pages, report)
	if err != nil {
		return report, err
	}
	return report, o.settleHost(ctx, host, report, left, limit == 1)
}

func hasAccepted(report indexnow.Report) bool {
	return slices.ContainsFunc(report.Batches, func(b indexnow.Batch) bool { return b.Err == nil })
}

// rejectedQueue is the queue of the jobs for hosts that are rejected.
const rejectedQueue = "rejected"

// settleHost notes whether the engine accepts something of a host. left are the batches that are sent
// again. If only one page of the host was sent, whatever the engine said of it sets when the next page
// is sent.
func (o *Outbox) settleHost(ctx context.Context, host string, report indexnow.Report, left []indexnow.Batch, wasRejected bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.cfg.Timeout/2)
	defer cancel()
	i := slices.IndexFunc(left, func(b indexnow.Batch) bool { return isOfHost(b.Err) })
	switch {
	case hasAccepted(report), len(left) == 0: // if all is rejected for good, the next request has all pages
		_, err := o.pool.Exec(ctx, `DELETE FROM outbox.rejected_host WHERE host = $1`, host)
		return err
	case i < 0 && !wasRejected:
		return nil // such as an engine that is down, for which River retries the job
	case i < 0:
		i = 0
	}
	problem := kept(left[i])
	var since time.Duration
	if err := o.pool.QueryRow(ctx, `
		INSERT INTO outbox.rejected_host AS h (host, next_at, error) VALUES ($1, clock_timestamp() + $2, $3)
		ON CONFLICT (host) DO UPDATE SET attempts = h.attempts + 1, error = $3,
			next_at = clock_timestamp() + greatest($2, least('1 s'::interval * 2 ^ least(h.attempts + 1, 10), '10 min'))
		RETURNING clock_timestamp() - since`, host, max(problem.RetryAfter, 2*time.Second), problem.Error()).Scan(&since); err != nil {
		return err
	}
	slog.WarnContext(ctx, "outbox: nothing of the host is accepted", "host", host, "for", since.Round(time.Second), "error", problem)
	if since < o.cfg.GiveUpAfter || !isOfHost(problem) {
		return nil
	}
	_, err := o.pool.Exec(ctx, `
		UPDATE outbox.page SET ready_at = NULL, error = $2 WHERE id IN (
			SELECT id FROM outbox.page WHERE host = $1 AND ready_at IS NOT NULL AND added_at <= clock_timestamp() - $3::interval
			FOR UPDATE SKIP LOCKED)`,
		host, fmt.Sprintf("given up, because nothing of the host was accepted for %v: %v", o.cfg.GiveUpAfter, problem), o.cfg.GiveUpAfter)
	return err
}

// isOfHost reports whether an error concerns a whole host that is to be asked again, seldom.
func isOfHost(err error) bool {
	problem := (*indexnow.Error)(nil)
	return errors.As(err, &problem) && problem.OfHost() && !problem.IsFinal()
}

// NextRetry doubles the wait with each failure, up to 10 minutes.
func (*sender) NextRetry(job *river.Job[SendArgs]) time.Time {
	return time.Now().Add(min(time.Second<<min(job.Attempt, 10), 10*time.Minute))
}

// retry returns the error with which River retries the job, or nil.
func retry(report indexnow.Report) (err error) {
	var wait time.Duration
	hasProgress := false
	for _, b := range report.Batches {
		if problem := kept(b); problem != nil && !isOfHost(problem) { // rejected_host has when such a host is asked
			err, wait = problem, max(wait, problem.RetryAfter)
		}
		hasProgress = hasProgress || b.Err == nil
	}
	if wait == 0 && hasProgress && errors.Is(err, indexnow.ErrSearchLimit) {
		wait = time.Second // a search for pages at fault goes on
	}
	if wait > 0 {
		return river.JobSnooze(wait)
	}
	return err
}

// kept returns the error of a batch whose URLs are to be sent again, or nil.
func kept(b indexnow.Batch) *indexnow.Error {
	if problem := (*indexnow.Error)(nil); errors.As(b.Err, &problem) && !problem.IsFinal() {
		return problem
	}
	return nil
}

// A page is a row that is being sent.
type page struct{ id, version int64 }

// maxBatch is how many URLs IndexNow takes in one request.
const maxBatch = 10_000

// ready returns the rows of a host that are to be sent, by URL, limit at most.
func (o *Outbox) ready(ctx context.Context, host string, limit int) (map[string]page, error) {
	order := "ready_at"
	if limit == 1 { // the latest page that was not rejected alone before: so a good one is found beside many bad ones
		order = "rejected_at NULLS FIRST, added_at DESC"
	}
	rows, err := o.pool.Query(ctx, `
		SELECT url, id, version FROM outbox.page
		WHERE host = $1 AND ready_at <= clock_timestamp() ORDER BY `+order+` LIMIT $2`, host, limit)
	if err != nil {
		return nil, err
	}
	pages := make(map[string]page)
	var url string
	var p page
	_, err = pgx.ForEachRow(rows, []any{&url, &p.id, &p.version}, func() error {
		pages[url] = p
		return nil
	})
	return pages, err
}

// settle writes what came of the batches that are accepted or permanently rejected, and returns the others. A URL that has
// changed meanwhile is sent again. It goes on after the end of the job's context, because a URL
// whose result is lost is sent again.
func (o *Outbox) settle(ctx context.Context, pages map[string]page, report indexnow.Report) (again []indexnow.Batch, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.cfg.Timeout/2)
	defer cancel()
	for _, b := range report.Batches {
		if kept(b) != nil {
			isAtFault, err := o.isAtFault(ctx, pages, b)
			if err != nil {
				return nil, err
			}
			if !isAtFault {
				again = append(again, b)
				if len(pages) == maxBatch || isOfHost(b.Err) {
					o.putBehind(ctx, pages, b)
				}
				continue
			}
		}
		var failure *string
		hold := o.cfg.Hold
		if b.Err != nil {
			failure, hold = new(b.Err.Error()), o.cfg.Delay
			slog.ErrorContext(ctx, "outbox: rejected permanently", "host", b.Host, "urls", len(b.URLs), "error", b.Err)
		}
		left := make(map[int64]int64, len(b.URLs)) // versions, by id
		for _, u := range b.URLs {
			left[pages[u].id] = pages[u].version
		}
		for {
			err := o.write(ctx, left, failure, hold)
			if len(left) == 0 {
				break
			}
			if err != nil {
				slog.WarnContext(ctx, "outbox: the result cannot be written", "host", b.Host, "error", err)
			}
			select {
			case <-ctx.Done():
				return nil, errors.Join(err, ctx.Err())
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	return again, nil
}

// isAtFault reports whether the batch is a page that the engine rejects alone, before and after it has accepted another one of the host.
func (o *Outbox) isAtFault(ctx context.Context, pages map[string]page, b indexnow.Batch) (isAtFault bool, err error) {
	if len(b.URLs) > 1 || !errors.Is(b.Err, indexnow.ErrAllRejected) {
		return false, nil
	}
	err = o.pool.QueryRow(ctx, `
		UPDATE outbox.page AS p SET rejected_at = clock_timestamp()
		FROM (SELECT id, host, rejected_at FROM outbox.page WHERE id = $1 FOR UPDATE SKIP LOCKED) AS old WHERE p.id = old.id
		RETURNING EXISTS (SELECT FROM outbox.page AS other WHERE other.host = old.host AND other.id <> old.id AND other.sent_at > old.rejected_at)`,
		pages[b.URLs[0]].id).Scan(&isAtFault)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return isAtFault, err
}

// putBehind moves the pages of a batch that is sent again behind the pages that wait. Otherwise, if a whole
// request of pages is rejected, each later request of the host would have the same pages.
func (o *Outbox) putBehind(ctx context.Context, pages map[string]page, b indexnow.Batch) {
	ids := make([]int64, len(b.URLs))
	for i, u := range b.URLs {
		ids[i] = pages[u].id
	}
	if _, err := o.pool.Exec(ctx, `
		UPDATE outbox.page SET ready_at = clock_timestamp()
		WHERE id IN (SELECT id FROM outbox.page WHERE id = ANY($1) AND ready_at IS NOT NULL FOR UPDATE SKIP LOCKED)`, ids); err != nil {
		slog.WarnContext(ctx, "outbox: pages that are sent again could not be moved behind the waiting pages", "host", b.Host, "error", err)
	}
}

// write writes the result of rows, and removes them from left. Rows that a transaction of Add has
// locked are left: the others do not wait for it.
func (o *Outbox) write(ctx context.Context, left map[int64]int64, failure *string, hold time.Duration) error {
	var ids, versions []int64
	for id, version := range left {
		ids, versions = append(ids, id), append(versions, version)
	}
	rows, err := o.pool.Query(ctx, `
		UPDATE outbox.page AS p SET
			sent_at = CASE WHEN $3::text IS NULL THEN clock_timestamp() ELSE p.sent_at END,
			rejected_at = CASE WHEN $3::text IS NULL THEN NULL ELSE p.rejected_at END,
			error = CASE WHEN p.version = sent.version THEN $3 END,
			ready_at = CASE WHEN p.version <> sent.version THEN clock_timestamp() + $4 END
		FROM (
			SELECT page.id, sent.version FROM outbox.page JOIN unnest($1::bigint[], $2::bigint[]) AS sent (id, version) USING (id)
			FOR UPDATE OF page SKIP LOCKED) AS sent
		WHERE p.id = sent.id
		RETURNING p.id`, ids, versions, failure, hold)
	if err != nil {
		return err
	}
	written, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	for _, id := range written {
		delete(left, id)
	}
	return err
}
