// Package pgsource is an [ampcors.Source] over PostgreSQL 12 or later. Every server learns of
// a change as soon as it is committed.
//
// # How it works
//
// Lookups are those of package [github.com/ampcors/ampcors/source/sqlsource], with its
// table. Triggers on the table send the domains that a statement changed with NOTIFY, and
// each server has a connection that listens. The Source is an [ampcors.Notifier]: it passes
// the domains on to the Middleware, which forgets these publishers. PostgreSQL delivers a
// notification after the commit, so a lookup already sees the change.
//
//	source, err := pgsource.New(pgsource.Config{ConnString: "postgres://a,b/cms"})
//	err = source.Install(ctx) // once, as the owner of the table
//
// [Source.Install] creates the triggers, and [InstallSQL] returns them for a migration.
// [Source.Ping] reports if they are missing.
//
// # When a connection is lost
//
// When nothing has arrived for a quarter of a second, the listening connection asks the
// server whether it is there, and is closed if there is no answer within half a second. It is then made again, to the
// first host of ConnString that takes writes, and everything is looked up again, as changes
// may have been missed. While it cannot be made, a change is seen after
// [ampcors.Lookup].TTL. If lookups fail as well, the last answer is used until MaxStale is
// over.
//
// All connections go to a server that takes writes (target_session_attrs=read-write), because
// a replica may answer from before a change. Name all hosts in ConnString, so that a standby
// is found when it is promoted. The old primary must not come back as a second one that takes
// writes: servers that find it first would not see the changes on the new one. Synchronous
// replication (synchronous_standby_names) keeps a promotion from undoing a change that was
// committed.
//
// # What it costs writers
//
// The triggers run once for each statement, and send one message for many rows, of up to
// 7,500 bytes; after a statement that changes more than 30,000 rows, one message that
// anything may have changed. An UPDATE that changes neither the domain, the prefix nor
// whether the row satisfies Condition sends none. PostgreSQL lets transactions that send a
// notification commit one after another. A transaction that changes publishers cannot use
// PREPARE TRANSACTION. The README beside this package has the measured cost.
//
// Not reported are changes of what Condition takes from elsewhere, such as the time or
// another table, and rows that are written to a partition or child table directly.
package pgsource

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ampcors/ampcors/source/sqlsource"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// Config says how a Source uses PostgreSQL.
type Config struct {
	// ConnString is a URL or a list of keywords and values, as libpq has them
	// (https://www.postgresql.org/docs/current/libpq-connect.html). target_session_attrs is
	// always read-write. If connect_timeout, which is for each host, is missing, 1 second is
	// used.
	ConnString string

	// Table says where the publishers are. Placeholder must be empty.
	Table sqlsource.Config

	// MaxConns is how many connections lookups can use. They are kept open. If zero, 16 is
	// used. One more listens.
	MaxConns int

	// Logger gets a line when the listening connection is lost or cannot be made (level
	// Error), and when it listens (level Info). If nil, slog.Default() is used.
	Logger *slog.Logger
}

// A Source looks up publishers in PostgreSQL. It is safe for concurrent use by multiple
// goroutines, and by several Middlewares.
type Source struct {
	*sqlsource.Source
	db      *sql.DB
	conn    *pgx.ConnConfig
	table   sqlsource.Config
	log     *slog.Logger
	channel string

	isListening atomic.Bool
	stop        context.CancelFunc
	stopped     chan struct{} // closed when the listener has ended

	mu        sync.Mutex
	listeners []*func(domains ...string)
}

const (
	pingEvery   = 250 * time.Millisecond
	pingTimeout = 500 * time.Millisecond

	// A listening connection that cannot be made is tried again after minRetry, and then
	// after up to maxRetry.
	minRetry = 50 * time.Millisecond
	maxRetry = time.Second
)

// New returns a Source. It does not wait for a connection, so a server can start while the
// database is down. Close the Source when it is no longer used.
func New(cfg Config) (*Source, error) {
	var errs []error
	conn, err := pgx.ParseConfig(cfg.ConnString)
	if err != nil {
		errs = append(errs, fmt.Errorf("pgsource: ConnString: %w", err))
	}
	if cfg.Table.Placeholder != "" {
		errs = append(errs, fmt.Errorf("pgsource: Table.Placeholder is %q; want it empty", cfg.Table.Placeholder))
	}
	if cfg.MaxConns < 0 {
		errs = append(errs, fmt.Errorf("pgsource: MaxConns %d is negative", cfg.MaxConns))
	}
	channel, _, err := triggers(cfg.Table)
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	conn.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	if conn.ConnectTimeout == 2*time.Minute { // ParseConfig's default
		conn.ConnectTimeout = time.Second
	}
	db := stdlib.OpenDB(*conn)
	conns := cfg.MaxConns
	if conns == 0 {
		conns = 16
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	lookups, err := sqlsource.New(db, cfg.Table)
	if err != nil {
		_ = db.Close() // nothing is open yet
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Source{
		Source: lookups, db: db, conn: conn, table: cfg.Table, log: cfg.Logger, channel: channel,
		stop: stop, stopped: make(chan struct{}),
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	go s.listen(ctx)
	return s, nil
}

// Close closes the connections. Lookups then fail, and nothing is reported.
func (s *Source) Close() {
	s.stop()
	<-s.stopped
	_ = s.db.Close() // there is nothing to be done about an error
}

// Ping makes both lookups once, and checks that the triggers are installed. It also returns
// an error if the Source is not listening for changes now.
func (s *Source) Ping(ctx context.Context) error {
	err := s.Source.Ping(ctx)
	if err == nil {
		err = s.checkTriggers(ctx)
	}
	if err == nil && !s.IsListening() {
		err = errors.New("pgsource: not listening for changes: the connection is lost, or not made yet")
	}
	return err
}

// IsListening reports whether a change would be reported now.
func (s *Source) IsListening() bool { return s.isListening.Load() }

// Notify implements [ampcors.Notifier].
func (s *Source) Notify(changed func(domains ...string)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	listener := &changed
	s.listeners = append(slices.Clone(s.listeners), listener)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.listeners = slices.DeleteFunc(slices.Clone(s.listeners), func(l *func(...string)) bool { return l == listener })
	}
}

func (s *Source) changed(domains ...string) {
	s.mu.Lock()
	listeners := s.listeners
	s.mu.Unlock()
	for _, changed := range listeners {
		(*changed)(domains...)
	}
}

// listen keeps a connection that listens, until ctx is done.
func (s *Source) listen(ctx context.Context) {
	defer close(s.stopped)
	retry, reported := minRetry, false
	for ctx.Err() == nil {
		err := s.listenOnce(ctx, func() {
			s.log.Info("ampcors: listening for changes of publishers", "table", s.table.Table)
			retry, reported = minRetry, false
		})
		s.isListening.Store(false)
		if ctx.Err() != nil {
			return
		}
		if !reported {
			s.log.Error("ampcors: not listening for changes of publishers; a change is seen when the remembered answer expires", "table", s.table.Table, "error", err)
			reported = true
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
		}
		retry = min(2*retry, maxRetry)
	}
}

// listenOnce listens on one connection until it fails.
func (s *Source) listenOnce(ctx context.Context, ready func()) error {
	conn, err := pgx.ConnectConfig(ctx, s.conn)
	if err != nil {
		return fmt.Errorf("pgsource: %w", err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout)
		defer cancel()
		_ = conn.Close(closing) // it may be dead
	}()
	if err := run(ctx, conn, "LISTEN "+quote(s.channel)); err != nil {
		return err
	}
	s.isListening.Store(true)
	s.changed() // what changed before was not reported
	ready()
	for {
		waiting, cancel := context.WithTimeout(ctx, pingEvery)
		n, err := conn.WaitForNotification(waiting)
		cancel()
		switch {
		case err == nil:
			s.changed(strings.Fields(n.Payload)...)
		case ctx.Err() != nil:
			return ctx.Err()
		case !pgconn.Timeout(err):
			return fmt.Errorf("pgsource: %w", err)
		default:
			// A primary that becomes a standby reports nothing any more.
			var isStandby bool
			if err := run(ctx, conn, "SELECT pg_is_in_recovery()", &isStandby); err != nil {
				return err
			}
			if isStandby {
				return errors.New("pgsource: the server has become a standby")
			}
		}
	}
}

// run runs a statement, and scans its row, if it has one.
func run(ctx context.Context, conn *pgx.Conn, sql string, dest ...any) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := conn.QueryRow(ctx, sql).Scan(dest...); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("pgsource: %w", err)
	}
	return nil
}
