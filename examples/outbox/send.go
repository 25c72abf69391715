package main

import (
	"cmp"
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

// InsertOpts allows one job for each host and key file until the job is over: a host gets no requests while its job
// waits for a retry.
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
		SELECT DISTINCT host FROM outbox.page WHERE ready_at <= clock_timestamp()`)
	if err != nil {
		return err
	}
	var jobs []river.InsertManyParams
	var host string
	if _, err := pgx.ForEachRow(rows, []any{&host}, func() error {
		jobs = append(jobs, river.InsertManyParams{Args: SendArgs{Host: host}})
		return nil
	}); err != nil {
		return err
	}
	for some := range slices.Chunk(jobs, 1000) {
		if _, err := o.river.InsertMany(ctx, some); err != nil {
			return err
		}
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

// Work sends a batch. What is left of the host is for its next job. If nothing of the host was accepted at the last
// try, it sends two pages first: such a host gets few requests, and if only one of the two is rejected, that one is
// at fault.
func (s *sender) Work(ctx context.Context, job *river.Job[SendArgs]) (err error) {
	o, host := s.outbox, job.Args.Host
	var report indexnow.Report
	if job.Attempt > 1 {
		report, err = o.send(ctx, host, 2)
	}
	if err == nil && (job.Attempt == 1 || hasAccepted(report)) {
		var more indexnow.Report
		more, err = o.send(ctx, host, maxBatch)
		report.Batches = append(report.Batches, more.Batches...)
	}
	return cmp.Or(err, o.settleHost(ctx, host, report), retry(report))
}

// send submits ready URLs of a host, and writes the results.
func (o *Outbox) send(ctx context.Context, host string, limit int) (indexnow.Report, error) {
	pages, err := o.ready(ctx, host, limit)
	if err != nil {
		return indexnow.Report{}, err
	}
	urls := slices.Collect(maps.Keys(pages))
	report, _ := o.client.Submit(ctx, urls...) // the report has the errors
	// what was added before the key files changed, which would be tried for ever
	for _, r := range report.Rejected {
		report.Batches = append(report.Batches, indexnow.Batch{Host: host, URLs: []string{urls[r.Index]}, Err: r.Err})
	}
	// a URL whose result is lost is sent again
	return report, o.settle(ctx, pages, report)
}

// settling returns the context for writing results, which goes on after the end of the job's: a URL whose result is
// lost is sent again.
func (o *Outbox) settling(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), o.cfg.Timeout/2)
}

func hasAccepted(report indexnow.Report) bool {
	return slices.ContainsFunc(report.Batches, func(b indexnow.Batch) bool { return b.Err == nil })
}

// settleHost notes since when nothing of a host is accepted, and gives up the pages for which that is GiveUpAfter ago.
func (o *Outbox) settleHost(ctx context.Context, host string, report indexnow.Report) error {
	ctx, cancel := o.settling(ctx)
	defer cancel()
	if hasAccepted(report) {
		_, err := o.pool.Exec(ctx, `UPDATE outbox.page SET rejected_at = NULL WHERE id IN (
			SELECT id FROM outbox.page WHERE host = $1 AND rejected_at IS NOT NULL FOR UPDATE SKIP LOCKED)`, host)
		return err
	}
	i := slices.IndexFunc(report.Batches, func(b indexnow.Batch) bool { return isOfHost(b.Err) })
	if i < 0 {
		return nil
	}
	problem := report.Batches[i].Err
	slog.WarnContext(ctx, "outbox: nothing of the host is accepted", "host", host, "error", problem)
	_, err := o.pool.Exec(ctx, `
		UPDATE outbox.page SET
			rejected_at = coalesce(rejected_at, clock_timestamp()),
			ready_at = CASE WHEN rejected_at < clock_timestamp() - $2::interval THEN NULL ELSE ready_at END,
			error = CASE WHEN rejected_at < clock_timestamp() - $2::interval THEN $3 END
		WHERE id IN (
			SELECT id FROM outbox.page
			WHERE host = $1 AND ready_at IS NOT NULL AND coalesce(rejected_at < clock_timestamp() - $2::interval, true)
			FOR UPDATE SKIP LOCKED)`,
		host, o.cfg.GiveUpAfter, fmt.Sprintf("given up, because nothing of the host was accepted for %v: %v",
			o.cfg.GiveUpAfter, problem))
	return err
}

// isOfHost reports whether an error concerns a whole host, whose URLs are kept.
func isOfHost(err error) bool {
	problem := (*indexnow.Error)(nil)
	return errors.As(err, &problem) && problem.OfHost() && !problem.IsFinal()
}

// NextRetry doubles the wait with each failure, up to 10 minutes.
func (*sender) NextRetry(job *river.Job[SendArgs]) time.Time {
	return time.Now().Add(min(time.Second<<min(job.Attempt, 10), 10*time.Minute))
}

// retry returns the error with which River retries the job, or nil. If a part was accepted, the next job of the
// host goes on with what the engine has rejected.
func retry(report indexnow.Report) (err error) {
	var wait time.Duration
	for _, b := range report.Batches {
		problem := kept(b)
		if problem == nil || hasAccepted(report) && (isOfHost(problem) || errors.Is(problem, indexnow.ErrSearchLimit)) {
			continue
		}
		err, wait = problem, max(wait, problem.RetryAfter)
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

// ready returns the rows of a host that are to be sent, by URL, limit at most: those that wait longest. For a try
// with few pages, it is the latest page that was not rejected alone before: a good one is found beside many bad
// ones.
func (o *Outbox) ready(ctx context.Context, host string, limit int) (map[string]page, error) {
	order := "ready_at"
	if limit < maxBatch {
		order = "tried_at NULLS FIRST, added_at DESC"
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

// settle writes what came of the batches that are accepted or permanently rejected. A URL that has changed
// meanwhile is sent again.
func (o *Outbox) settle(ctx context.Context, pages map[string]page, report indexnow.Report) error {
	ctx, cancel := o.settling(ctx)
	defer cancel()
	for _, b := range report.Batches {
		if kept(b) != nil {
			if err := o.putBehind(ctx, pages, b.URLs); err != nil {
				return err
			}
			continue
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
				return errors.Join(err, ctx.Err())
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	return nil
}

// putBehind moves the pages of a batch that is sent again behind those that wait: otherwise, if a whole request is
// rejected, each later one would have the same pages. It notes a page that was rejected alone.
func (o *Outbox) putBehind(ctx context.Context, pages map[string]page, urls []string) error {
	ids := make([]int64, len(urls))
	for i, u := range urls {
		ids[i] = pages[u].id
	}
	_, err := o.pool.Exec(ctx, `
		UPDATE outbox.page SET ready_at = clock_timestamp(), tried_at = CASE WHEN $2 THEN clock_timestamp() ELSE tried_at END
		WHERE id IN (SELECT id FROM outbox.page WHERE id = ANY($1) AND ready_at IS NOT NULL FOR UPDATE SKIP LOCKED)`,
		ids, len(urls) == 1)
	return err
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
			rejected_at = NULL, tried_at = NULL,
			error = CASE WHEN p.version = sent.version THEN $3 END,
			ready_at = CASE WHEN p.version <> sent.version THEN clock_timestamp() + $4 END
		FROM (
			SELECT page.id, sent.version FROM outbox.page JOIN unnest($1::bigint[], $2::bigint[]) AS sent (id, version)
				USING (id)
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
