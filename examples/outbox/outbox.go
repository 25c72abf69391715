package main

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/ampcors/ampcors/indexnow"
)

// An Outbox keeps the URLs of changed pages in PostgreSQL until search engines have them. It has
// a row for each URL. A River job for a host sends what is ready, as one batch. So a URL that
// changes ten times is sent once, and several servers can share an Outbox.
//
// The row says what is to be sent, and the job says only when. Both are written in the transaction
// that changes the page: no change is lost, and a change that was rolled back is not announced.
type Outbox struct {
	pool   *pgxpool.Pool
	client *indexnow.Client
	river  *river.Client[pgx.Tx]
	cfg    Config
}

// Config configures an [Outbox].
type Config struct {
	// Delay is how long a URL waits for others of its host, at most: they are sent at the next
	// multiple of Delay. River adds up to 5 seconds. Delay must be a whole number of seconds, 1 or
	// more.
	Delay time.Duration
	// Hold is how long a URL is held back after it was sent.
	Hold time.Duration
	// Timeout bounds the work of a job. The job of a server that died is repeated after twice
	// this time, and up to 30 seconds that River adds.
	Timeout time.Duration
}

//go:embed schema.sql
var schema string

// Migrate creates the tables of River and of the Outbox. Servers that start together may all
// call it.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext('outbox'))`); err != nil {
			return err
		}
		// River's migrations cannot run in one transaction, so they do not run in tx.
		if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, schema)
		return err
	})
}

// NewOutbox returns an Outbox. Start sends its URLs.
func NewOutbox(pool *pgxpool.Pool, client *indexnow.Client, cfg Config) (*Outbox, error) {
	if cfg.Delay < time.Second || cfg.Delay%time.Second != 0 {
		return nil, fmt.Errorf("outbox: Delay is %s; want a whole number of seconds, 1 or more", cfg.Delay) // River compares seconds
	}
	o := &Outbox{pool: pool, client: client, cfg: cfg}
	workers := river.NewWorkers()
	river.AddWorker(workers, &sender{outbox: o})
	var err error
	o.river, err = river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:               map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 16}},
		Workers:              workers,
		JobTimeout:           cfg.Timeout,
		RescueStuckJobsAfter: 2 * cfg.Timeout,
		MaxAttempts:          10_000, // the engine may be down for days
		Logger:               slog.Default(),
	})
	return o, err
}

// Start sends URLs until Stop is called.
func (o *Outbox) Start(ctx context.Context) error { return o.river.Start(ctx) }

// Stop lets the requests in progress finish, until the context ends.
func (o *Outbox) Stop(ctx context.Context) error { return o.river.Stop(ctx) }

// Add adds the URLs of changed pages, in the transaction that changes them. Call it once in a
// transaction, with all URLs: calls in different orders can deadlock.
//
// If a URL waits already, it is still sent once. If it is being sent, it is sent again after Hold.
func (o *Outbox) Add(ctx context.Context, tx pgx.Tx, urls ...string) error {
	hosts := make(map[string]string, len(urls)) // by URL
	for _, u := range urls {
		canonical, host, err := o.client.Canonical(u)
		if err != nil {
			return err
		}
		hosts[canonical] = host
	}
	sorted := slices.Sorted(maps.Keys(hosts)) // so that two calls do not deadlock
	hostOf := make([]string, len(sorted))
	for i, u := range sorted {
		hostOf[i] = hosts[u]
	}
	return o.schedule(ctx, tx, `
		INSERT INTO outbox AS o (url, host, ready_at)
		SELECT url, host, outbox_window(clock_timestamp(), $3) FROM unnest($1::text[], $2::text[]) AS added (url, host)
		ON CONFLICT (sha256(url::bytea)) DO UPDATE SET
			version = o.version + 1,
			error = NULL,
			ready_at = coalesce(o.ready_at, outbox_window(greatest(clock_timestamp(), o.sent_at + $4), $3))
		RETURNING host, ready_at`, sorted, hostOf, o.cfg.Delay, o.cfg.Hold)
}

// Stats counts the URLs of an [Outbox].
type Stats struct {
	Waiting int // to be sent, or sent again
	Sent    int // accepted, until their rows are removed some time after Hold
	Failed  int // rejected permanently
}

// Stats returns the counts now.
func (o *Outbox) Stats(ctx context.Context) (s Stats, err error) {
	err = o.pool.QueryRow(ctx, `
		SELECT count(ready_at), count(*) FILTER (WHERE ready_at IS NULL AND error IS NULL), count(error) FROM outbox`).
		Scan(&s.Waiting, &s.Sent, &s.Failed)
	return s, err
}

// schedule runs a query that returns hosts and times, and inserts a job for each.
func (o *Outbox) schedule(ctx context.Context, tx pgx.Tx, query string, args ...any) error {
	type due struct {
		Host string
		At   time.Time
	}
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[due])
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b due) int { return cmp.Or(cmp.Compare(a.Host, b.Host), a.At.Compare(b.At)) })
	var jobs []river.InsertManyParams
	for _, d := range slices.CompactFunc(all, func(a, b due) bool { return a.Host == b.Host && a.At.Equal(b.At) }) {
		jobs = append(jobs, river.InsertManyParams{Args: SendArgs{Host: d.Host}, InsertOpts: &river.InsertOpts{
			ScheduledAt: d.At,
			// One job for a host in each window of Delay. If there is one, River locks it until
			// this transaction ends. write relies on that.
			UniqueOpts: river.UniqueOpts{ByArgs: true, ByPeriod: o.cfg.Delay, ByState: []rivertype.JobState{
				rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable, rivertype.JobStateRunning, rivertype.JobStateScheduled,
			}},
		}})
	}
	if len(jobs) == 0 {
		return nil
	}
	_, err = o.river.InsertManyTx(ctx, tx, jobs)
	return err
}
