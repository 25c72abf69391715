package main

import (
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

	"github.com/ampcors/ampcors/announce/indexnow"
)

// An Outbox keeps the URLs of changed pages in PostgreSQL until search engines have them. It has
// a row for each URL. So a URL that changes ten times is sent once, and several servers can share
// an Outbox.
//
// The row has what is to be sent, and is written in the transaction that changes the page: no
// change is lost, and a change that was rolled back is not announced. The jobs of River only say
// who sends, and when. If one is lost, another one is made.
//
// A job for each URL would not do: River gives a worker one job at a time, so it could not send
// batches. A unique job cannot be added while it runs, so a change in that moment would be lost.
// A job that a slow transaction inserts stays locked, and would stop River's scheduler.
type Outbox struct {
	pool   *pgxpool.Pool
	client *indexnow.Client
	river  *river.Client[pgx.Tx]
	cfg    Config
}

// Config configures an [Outbox].
type Config struct {
	// Delay is how long a URL waits for others of its host, and how often the Outbox looks for
	// those that are ready. So a URL is sent after one to two times Delay.
	Delay time.Duration
	// Hold is how long a URL is held back after it was sent.
	Hold time.Duration
	// Timeout bounds the work of a job. What a job has not sent by then, such as in the search for a page that
	// the engine rejects, is for the next one. The job of a server that died counts as failed after twice
	// this time, and up to 30 seconds that River adds. Then it waits as after any failure.
	Timeout time.Duration
	// GiveUpAfter is how long a URL waits while the engine rejects all pages of its host with 400, 413 or 422, or has
	// not verified its key. Of such a host, two pages are sent at each retry.
	GiveUpAfter time.Duration
}

//go:embed schema.sql
var schema string

// schemaName is the schema of schema.sql.
const schemaName = "outbox"

// Migrate creates the tables of River and of the Outbox. Servers that start together may all
// call it.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: schemaName})
	if err != nil {
		return err
	}
	// River's migrations cannot run in one transaction, so the lock is held by a connection that is not the
	// pool's, which may have only one.
	conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // nothing but the lock is in it
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext($1))`, schemaName); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, schema); err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// NewOutbox returns an Outbox. Start sends its URLs.
func NewOutbox(pool *pgxpool.Pool, client *indexnow.Client, cfg Config) (*Outbox, error) {
	if cfg.Delay <= 0 || cfg.Hold < 0 || cfg.Timeout <= 0 || cfg.GiveUpAfter <= 0 {
		return nil, fmt.Errorf("outbox: %+v; want times that are not negative, and a Delay, a Timeout and a GiveUpAfter", cfg)
	}
	o := &Outbox{pool: pool, client: client, cfg: cfg}
	workers := river.NewWorkers()
	river.AddWorker(workers, &finder{outbox: o})
	river.AddWorker(workers, &sender{outbox: o})
	var err error
	o.river, err = river.NewClient(riverpgxv5.New(pool), &river.Config{
		Schema:  schemaName,
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 16}},
		Workers: workers,
		PeriodicJobs: []*river.PeriodicJob{river.NewPeriodicJob(river.PeriodicInterval(cfg.Delay),
			func() (river.JobArgs, *river.InsertOpts) { return FindArgs{}, nil }, &river.PeriodicJobOpts{RunOnStart: true})},
		JobTimeout:                  cfg.Timeout,
		RescueStuckJobsAfter:        2 * cfg.Timeout,
		PollOnly:                    pool.Config().MaxConns == 1, // otherwise a connection listens
		SoftStopTimeout:             5 * time.Second,
		CompletedJobRetentionPeriod: time.Hour,
		Logger:                      slog.Default(),
	})
	return o, err
}

// Start sends URLs until Stop is called or ctx is done.
func (o *Outbox) Start(ctx context.Context) error { return o.river.Start(ctx) }

// Stop lets the requests in progress finish, for up to 5 seconds.
func (o *Outbox) Stop(ctx context.Context) error { return o.river.Stop(ctx) }

// Add adds the URLs of changed pages, in the transaction that changes them. Until it ends, other transactions cannot
// add the same URLs. So call Add last, and once with all URLs: transactions with several calls can deadlock.
//
// If a URL waits already, it is still sent once. If it is being sent, it is sent again after Hold.
func (o *Outbox) Add(ctx context.Context, tx pgx.Tx, urls ...string) error {
	hosts := make(map[string]string, len(urls)) // by URL
	for _, u := range urls {
		canonical, group, err := o.client.Group(u)
		if err != nil {
			return err
		}
		hosts[canonical] = group
	}
	sorted := slices.Sorted(maps.Keys(hosts)) // so that two calls do not deadlock
	hostOf := make([]string, len(sorted))
	for i, u := range sorted {
		hostOf[i] = hosts[u]
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO outbox.page AS p (url, host, ready_at)
		SELECT url, host, clock_timestamp() + $3 FROM unnest($1::text[], $2::text[]) AS added (url, host)
		ON CONFLICT (sha256(url::bytea)) DO UPDATE SET
			version = p.version + 1,
			error = NULL,
			rejected_at = NULL, tried_at = NULL,
			host = excluded.host,
			added_at = clock_timestamp(),
			ready_at = coalesce(p.ready_at, greatest(clock_timestamp() + $3, p.sent_at + $4))`,
		sorted, hostOf, o.cfg.Delay, o.cfg.Hold)
	return err
}

// Stats counts the URLs of an [Outbox].
type Stats struct {
	Waiting int // to be sent, or sent again
	Sent    int // accepted, until their rows are removed after Hold
	Failed  int // rejected permanently, or given up
}

// Stats returns the counts now.
func (o *Outbox) Stats(ctx context.Context) (s Stats, err error) {
	err = o.pool.QueryRow(ctx, `
		SELECT count(ready_at), count(*) FILTER (WHERE ready_at IS NULL AND error IS NULL), count(error) FROM outbox.page`).
		Scan(&s.Waiting, &s.Sent, &s.Failed)
	return s, err
}
