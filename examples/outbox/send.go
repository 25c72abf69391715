package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/ampcors/ampcors/indexnow"
)

// SendArgs are the arguments of the job that sends the ready URLs of a host.
type SendArgs struct {
	Host string `json:"host"`
}

// Kind names the job in River's tables.
func (SendArgs) Kind() string { return "outbox_send" }

type sender struct {
	river.WorkerDefaults[SendArgs]
	outbox *Outbox
}

// maxBatch is how many URLs IndexNow takes in one request.
const maxBatch = 10_000

// Work sends a batch.
func (s *sender) Work(ctx context.Context, job *river.Job[SendArgs]) error {
	urls, err := s.outbox.claim(ctx, job)
	if err != nil {
		return err
	}
	report, _ := s.outbox.client.Submit(ctx, urls.urls()...) // the report has the errors
	return s.outbox.finish(ctx, job, urls, report)
}

// NextRetry doubles the wait with each failure, up to 10 minutes.
func (*sender) NextRetry(job *river.Job[SendArgs]) time.Time {
	return time.Now().Add(min(time.Second<<min(job.Attempt, 10), 10*time.Minute))
}

// claimed has the rows of the URLs that a job sends.
type claimed map[string]row

type row struct{ id, version int64 }

func (c claimed) urls() (urls []string) {
	for u := range c {
		urls = append(urls, u)
	}
	return urls
}

// claim marks the URLs of the job, so that no other job sends them. If the server dies, River
// repeats the job, which then has the same URLs.
func (o *Outbox) claim(ctx context.Context, job *river.Job[SendArgs]) (claimed, error) {
	rows, err := o.pool.Query(ctx, `
		UPDATE outbox SET job = $2 WHERE id IN (
			SELECT id FROM outbox
			WHERE host = $1 AND ready_at <= now() AND (job IS NULL OR job = $2)
			ORDER BY ready_at LIMIT $3 FOR UPDATE SKIP LOCKED)
		RETURNING url, id, version`, job.Args.Host, job.ID, maxBatch)
	if err != nil {
		return nil, err
	}
	urls := make(claimed)
	var url string
	var r row
	_, err = pgx.ForEachRow(rows, []any{&url, &r.id, &r.version}, func() error {
		urls[url] = r
		return nil
	})
	return urls, err
}

// finish writes the result. It tries for as long as the job may last, because a URL whose result
// is lost is sent again.
func (o *Outbox) finish(ctx context.Context, job *river.Job[SendArgs], urls claimed, report indexnow.Report) error {
	for {
		retry, err := o.write(ctx, job, urls, report)
		if err == nil {
			return retry
		}
		slog.WarnContext(ctx, "outbox: the result cannot be written", "host", job.Args.Host, "error", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// write writes the result, and completes the job, in one transaction. retry is the error with
// which River retries the job, or nil.
func (o *Outbox) write(ctx context.Context, job *river.Job[SendArgs], urls claimed, report indexnow.Report) (retry, err error) {
	err = pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error {
		for _, b := range report.Batches {
			problem := (*indexnow.Error)(nil)
			if errors.As(b.Err, &problem) && problem.Retryable() {
				retry = problem
				continue
			}
			if err := o.settle(ctx, tx, b, urls); err != nil {
				return err
			}
		}
		if retry != nil {
			return nil
		}

		// An Add that finds this job inserts none of its own, and locks this job until it commits.
		// So JobCompleteTx waits for that Add, and the query below sees the URLs that it added.
		if _, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job); err != nil {
			return err
		}
		return o.schedule(ctx, tx, `
			SELECT host, min(ready_at) FROM outbox
			WHERE host = $1 AND ready_at IS NOT NULL AND job IS NULL GROUP BY host`, job.Args.Host)
	})
	if problem := (*indexnow.Error)(nil); err == nil && errors.As(retry, &problem) && problem.RetryAfter > 0 {
		retry = river.JobSnooze(problem.RetryAfter)
	}
	return retry, err
}

// settle writes the result of a batch that is accepted or permanently rejected. A URL that has
// changed meanwhile is scheduled again.
func (o *Outbox) settle(ctx context.Context, tx pgx.Tx, b indexnow.Batch, urls claimed) error {
	ids, versions := make([]int64, len(b.URLs)), make([]int64, len(b.URLs))
	for i, u := range b.URLs {
		ids[i], versions[i] = urls[u].id, urls[u].version
	}
	var failure *string
	hold := o.cfg.Hold
	if b.Err != nil {
		hold = 0
		failure = new(b.Err.Error())
		slog.ErrorContext(ctx, "outbox: rejected permanently", "host", b.Host, "urls", len(b.URLs), "error", b.Err)
	}
	_, err := tx.Exec(ctx, `
		UPDATE outbox AS o SET
			job = NULL,
			sent_at = CASE WHEN $4::text IS NULL THEN clock_timestamp() ELSE o.sent_at END,
			error = CASE WHEN o.version = sent.version THEN $4 END,
			ready_at = CASE WHEN o.version <> sent.version THEN outbox_window(clock_timestamp() + $5, $3) END
		FROM unnest($1::bigint[], $2::bigint[]) AS sent (id, version)
		WHERE o.id = sent.id`, ids, versions, o.cfg.Delay, failure, hold)
	if err != nil {
		return err
	}
	// A URL is kept for Hold, or longer if it was rejected.
	_, err = tx.Exec(ctx, `
		DELETE FROM outbox WHERE id IN (
			SELECT id FROM outbox WHERE ready_at IS NULL AND error IS NULL AND sent_at < now() - $1::interval
			LIMIT 1000 FOR UPDATE SKIP LOCKED)`, o.cfg.Hold)
	return err
}
