// Package pgsource looks up publishers in PostgreSQL. Its tests run with version 15. Every server learns of a change as
// soon as it is committed. Pass [Table.Database] to [source.New].
//
// # How it works
//
// Lookups are those of package [github.com/ampcors/ampcors/source/sqlsource], with its
// table. Triggers on the table send, by NOTIFY, the domains that a statement changed, and
// each server has a connection that listens. Its [source.Source] forgets these publishers. PostgreSQL delivers a
// notification after the commit, so a lookup already sees the change. After a TRUNCATE, or a statement that
// changes more than 30,000 rows, it may take 5 seconds (see What is not reported).
//
//	table, err := pgsource.New(pgsource.Config{
//		ConnString: "postgres://a,b/cms",
//		// as the triggers were installed
//		Table: sqlsource.Config{Table: "sites", DomainColumn: "host", Condition: "active"},
//	})
//	err = table.Install(ctx) // once, as the owner of the table; others need only SELECT
//
// [Table.Install] creates the triggers, and [InstallSQL] returns them for a migration.
// [Table.Ping] reports if they are missing.
//
// # Listening is proved
//
// A Table makes a second connection, and sends a notification over it. Once that has come back over the
// connection that listens, the Table is listening. It sends another one every 8 to 12 seconds. If one
// takes more than half a second to come back, or four in a row cannot be sent, the Table is not
// listening, and says so. The usual cause is a pooler that does not keep sessions, such as PgBouncer
// with pool_mode=transaction: it accepts LISTEN, and drops what is notified. Connect to PostgreSQL
// directly, or use pool_mode=session. Lookups work in the modes session and transaction. One program takes up to 10
// connections (8 of MaxConns, one that listens, and one for a moment): PgBouncer's default_pool_size of 20 is enough
// for two; for more, raise it, or set MaxConns. Unused connections are closed after 10 seconds.
//
// Each quarter of a second, the Table also asks PostgreSQL whether
//
//   - the connection has its LISTEN;
//   - the triggers are there, enabled, and for this Condition (after New, it waits 2.5 s for them, because a
//     program may call Install then);
//   - its user may read the table, and no policy can hide rows (if one can, lookups fail);
//   - the server takes writes;
//   - the ids and versions of the table, its columns and its triggers are the same. If not, a change may have passed
//     the triggers: everything is looked up again, and the Table goes on listening.
//
// The Table stops listening 0.25 s after one of the first four is no longer true, and 0.75 s after its connection
// hangs. If notifications no longer arrive, it stops after 13 s at most (0.8 s at the start), or after 25 s if none
// can be sent. The tests measure that with PgBouncer in all of its modes, and with each of pgx's ways to send a
// statement:
//
//	AMPCORS_TIMES=usual go test -count=1 -v -run 'TestListeningIsProved|TestAFaultEndsListening' ./source/pgsource
//
// # When a connection is lost
//
// Each quarter of a second, the listening connection pings the server, whether notifications arrive or not. It is
// closed if there is no answer within half a second. A new connection is then made, to the first host of
// ConnString that takes writes, and everything is looked up again, as changes may have been missed. While it cannot
// be made, a change is seen after [source.Config].TTL. If lookups fail as well, the last answer is used until
// MaxStale is over.
//
// Lookups use only connections to the listening connection's server. Each connection asks PostgreSQL once for its
// start time, to recognize that server. After a move or a promotion, connections to another server are closed before
// their next use.
//
// All connections go to a server that takes writes (target_session_attrs=read-write), because
// a replica may answer from before a change. Name all hosts in ConnString, so that a standby
// is found when it is promoted. The old primary must not come back and take writes: programs that
// find it first would miss the changes on the new one. Synchronous
// replication (synchronous_standby_names) keeps a promotion from undoing a change that was
// committed.
//
// # What it costs writers
//
// The triggers run once for each statement. They put the domains of many rows into one message, of about 7,500 bytes at
// most. After a statement that changes more than 30,000 rows, they send a single message, which says that anything may
// have changed. Up to that number, an UPDATE that changes neither the domain, the prefix nor whether the row satisfies
// Condition sends none. PostgreSQL commits transactions that send a notification one after another, and never two at a
// time. A transaction that changes publishers cannot use PREPARE TRANSACTION.
//
// Measured without fsync, a transaction of one row takes 0.07 ms, and the triggers add 0.1 to 0.2 ms; a transaction of
// 1,000 rows takes 1.3 ms, and the triggers add 2 to 3 ms (go test -run '^$' -bench Write ./source/pgsource).
//
// The triggers run with the rights of the writer, and the search_path of whoever installed them, with pg_temp at its
// end. If they fail, as when Condition uses another table that the writer may not read, the write succeeds with a
// warning, and a notification says that anything may have changed.
//
// # What is not reported
//
// These are seen when an answer expires: changes of what Condition takes from elsewhere, such as the
// time or another table; rows that are written to a partition or child table directly; a partition that
// is attached, detached or dropped; rows that are written by logical replication. Rows that are written
// with session_replication_role=replica are reported, as the triggers are installed as ENABLE ALWAYS; a
// tool that enables them again in another way undoes that. After a change that is not reported,
//
//	SELECT pg_notify('ampcors_publishers', '')
//
// makes all servers look up everything again. (The channel is "ampcors_" and the table's name as PostgreSQL
// stores it, with _ for the dot.) PostgreSQL lets every role that may connect send notifications. So
// notifications without a domain are throttled: one in 5 seconds has an effect. A false notification that names a
// domain costs one lookup on each server that remembers the domain.
package pgsource

import (
	"cmp"
	"context"
	cryptorand "crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/driver"
	"github.com/ampcors/ampcors/source/sqlsource"
)

// Config configures a Table.
type Config struct {
	// ConnString is a URL or a list of keywords and values, as libpq has them
	// (https://www.postgresql.org/docs/current/libpq-connect.html). target_session_attrs is
	// always read-write. If connect_timeout, which is for each host, is missing or 0 (also in the environment
	// and a service file), 1 second is used.
	ConnString string

	// Table names where the publishers are. Placeholder must be empty.
	Table sqlsource.Config

	// MaxConns is how many connections lookups can use. One is closed after a minute, or if it was not used for 10
	// seconds. If zero, 8 is used. One more listens, and every 8 to 12 seconds one more is made for a moment.
	MaxConns int

	// Logger gets a line when the Table stops listening or cannot begin (level Error), another one for each further
	// cause, and a line when it listens (level Info). If nil, slog.Default() is used.
	Logger *slog.Logger
}

// A Table has publishers. It is safe for concurrent use by multiple goroutines.
type Table struct {
	*sqlsource.Table
	policed  *sqlsource.Table // for a table with policies, see ask
	db       *sql.DB
	conn     *pgx.ConnConfig
	triggers triggers
	times    times

	reports *driver.Reports // of the connection that listens
	stop    context.CancelFunc
	stopped chan struct{} // closed when the listener has ended

	server    atomic.Pointer[string] // the one that reports changes; nil while none does
	listeners driver.Listeners
	all       throttle // of the goroutine that listens
	identity  string   // of the table and its triggers, at the last check; of the goroutine that listens
	fit       atomic.Int32

	hasPolicies atomic.Bool
}

const (
	pingEvery = 250 * time.Millisecond

	// A listening connection that cannot be made is tried again after minRetry, and then
	// after up to maxRetry.
	minRetry = 50 * time.Millisecond
	maxRetry = time.Second

	// maxLife and maxIdle are how long a connection of lookups is kept, and kept without a use.
	maxLife = time.Minute
	maxIdle = 10 * time.Second

	// maxUnsent is how many echoes in a row may fail to be sent before the Table counts as not listening.
	maxUnsent = 3

	// forgetEvery is the least time between two notifications without a domain that are passed on.
	forgetEvery = 5 * time.Second
)

// times are what a Table waits for.
type times struct {
	ping time.Duration // an answer of the server
	echo time.Duration // an echo that was sent
	// the next echo, give or take a fifth of it, so that servers do not send together: each echo wakes all of them
	echoEvery time.Duration
	install   time.Duration // a call of Install after New: until it has passed, missing triggers are not reported
}

// usualTimes is changed by tests.
var usualTimes = times{ping: 500 * time.Millisecond, echo: 500 * time.Millisecond, echoEvery: 10 * time.Second,
	install: 2 * time.Second}

// New returns a Table. It does not wait for a connection, so a server can start while the
// database is down. Close the Table after the Sources that use it.
func New(cfg Config) (*Table, error) { return newTable(cfg, usualTimes) }

func newTable(cfg Config, times times) (*Table, error) {
	var errs []error
	conn, err := parseConnString(cfg.ConnString)
	if err != nil {
		errs = append(errs, err)
	}
	if cfg.Table.Placeholder != "" {
		errs = append(errs, &badvalue.Error{Code: badvalue.Useless, Path: "Table.Placeholder", Value: cfg.Table.Placeholder,
			Reason: "is set, and PostgreSQL has its own", Want: badvalue.RemoveIt})
	}
	if cfg.MaxConns < 0 {
		errs = append(errs, &badvalue.Error{Code: badvalue.OutOfRange, Path: "MaxConns", Value: strconv.Itoa(cfg.MaxConns),
			Reason: "is negative",
			Want:   "0 for the default, or more"})
	}
	triggers, err := triggersOn(cfg.Table)
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	conn.ValidateConnect = isWritable
	s := &Table{conn: conn}
	looking := conn.Copy()
	looking.ValidateConnect = s.isReporting
	if looking.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement { // pgx's default
		// PgBouncer with pool_mode=transaction loses prepared statements
		looking.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	db := stdlib.OpenDB(*looking, stdlib.OptionResetSession(s.stillReports))
	db.SetConnMaxLifetime(maxLife)
	db.SetConnMaxIdleTime(maxIdle)
	conns := cmp.Or(cfg.MaxConns, 8)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	lookups, err := sqlsource.New(db, whereHidden(cfg.Table,
		func(table string) string { return "row_security_active(" + table + ")" }))
	policed, err2 := sqlsource.New(db, whereHidden(cfg.Table, driver.MayHideRows))
	if err = errors.Join(err, err2); err != nil {
		_ = db.Close() // nothing is open yet
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s.Table, s.policed, s.db, s.triggers, s.times = lookups, policed, db, triggers, times
	s.reports = driver.NewReports(cmp.Or(cfg.Logger, slog.Default()), slog.String("table", triggers.table))
	s.stop, s.stopped = stop, make(chan struct{})
	go s.listen(ctx)
	return s, nil
}

// Close closes the connections. Lookups then fail, and nothing is reported.
func (s *Table) Close() {
	s.stop()
	<-s.stopped
	s.reports.Close()
	_ = s.db.Close() // there is nothing to be done about an error
}

// Ping makes both lookups once, and checks that the triggers are installed. It also returns an error if the Table is
// not listening for changes. If the triggers are of another Config, the error is [ErrOtherTriggers]. Right after New,
// it waits, until ctx is done, for the end of the first try to listen.
func (s *Table) Ping(ctx context.Context) error {
	if _, err := s.ask(func(table *sqlsource.Table) (string, error) { return "", table.Ping(ctx) }); err != nil {
		return err
	}
	switch installed, err := s.IsInstalled(ctx); {
	case err != nil:
		return err
	case !installed:
		return noTriggers{s.triggers.table}
	}
	select {
	case <-s.reports.Known():
	case <-ctx.Done():
		return fmt.Errorf("pgsource: not listening for changes yet: %w", ctx.Err())
	}
	if s.reports.IsListening() {
		return nil
	}
	return fmt.Errorf("pgsource: not listening for changes: %w",
		cmp.Or(s.reports.Err(), errors.New("the connection is lost")))
}

// Database returns what [source.New] needs. Its IsListening returns true if the listening connection
// answered within the last second, has its LISTEN and got the last notification that the Table sent to
// itself, and if the database table has the triggers. Lookups fail with [ErrOtherTriggers] while the
// table has triggers for another condition.
func (s *Table) Database() source.Database {
	src := s.policed.Database()
	src.PublisherByDomain = func(ctx context.Context, domain string) (string, error) {
		if err := s.checkFit(ctx); err != nil {
			return "", err
		}
		return s.ask(func(table *sqlsource.Table) (string, error) { return table.Database().PublisherByDomain(ctx, domain) })
	}
	src.PublisherByHash = func(ctx context.Context, prefix string) (string, error) {
		if err := s.checkFit(ctx); err != nil {
			return "", err
		}
		return s.ask(func(table *sqlsource.Table) (string, error) { return table.Database().PublisherByHash(ctx, prefix) })
	}
	publishers := src.Publishers
	src.Publishers = func(ctx context.Context) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			for publisher, err := range publishers(ctx) {
				if !yield(said(publisher, err)) {
					return
				}
			}
		}
	}
	src.Notify, src.IsListening = s.listeners.Notify, s.reports.IsListening
	return src
}

// listen keeps a connection that listens, until ctx is done.
func (s *Table) listen(ctx context.Context) {
	defer close(s.stopped)
	retry, begun := minRetry, time.Now()
	listenedBefore := false
	for ctx.Err() == nil {
		listened := false
		err := s.listenOnce(ctx, func() {
			listened, listenedBefore, retry = true, true, minRetry
		})
		if ctx.Err() != nil {
			return
		}
		isOther, hasNone := errors.Is(err, ErrOtherTriggers), errors.As(err, new(noTriggers))
		isHidden := errors.Is(err, sqlsource.ErrRowSecurity)
		if !listened && !isOther && !hasNone && !isHidden {
			s.unwatched()
		}
		effect := driver.UntilExpiry
		if isOther || isHidden {
			effect = "all lookups fail"
		}
		// otherwise Install may be under way
		if isNew := hasNone && !listenedBefore && time.Since(begun) < s.times.install; !isNew {
			s.reports.Fails(err, driver.Kind(err), effect)
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
		}
		retry = min(2*retry, maxRetry)
	}
}

// listenOnce listens on one connection until it fails. It calls ready when it listens.
func (s *Table) listenOnce(ctx context.Context, ready func()) error {
	conn, err := pgx.ConnectConfig(ctx, s.conn)
	if err != nil {
		return fmt.Errorf("pgsource: %w", err)
	}
	// Before the first call of the listeners: what is looked up after it comes from this server.
	s.server.Store(new(serverOf(conn.PgConn())))
	defer func() {
		s.reports.Ends()
		s.server.Store(nil)
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.times.ping)
		defer cancel()
		_ = conn.Close(closing) // it may be dead
	}()
	if err := s.query(ctx, conn, "LISTEN "+quote(s.triggers.channel), nil); err != nil {
		return err
	}
	var own *echo // on its way
	unsent := 0   // echoes in a row
	nextEcho := time.Now()
	for nextCheck := time.Now(); ; {
		waiting, cancel := context.WithDeadline(ctx, nextCheck)
		n, err := conn.WaitForNotification(waiting)
		cancel()
		switch {
		case err == nil && own != nil && n.Payload == own.payload:
			unsent = 0
			own, nextEcho = nil, time.Now().Add(time.Duration((0.8+0.4*rand.Float64())*float64(s.times.echoEvery)))
			if !s.reports.IsListening() {
				s.listeners.Call() // what changed before was not reported
				ready()
				s.reports.Listens()
			}
		case err == nil:
			s.report(n.Payload)
		case ctx.Err() != nil:
			return ctx.Err()
		case !pgconn.Timeout(err):
			return fmt.Errorf("pgsource: %w", err)
		}
		if s.all.isDue(time.Now()) {
			s.listeners.Call()
		}
		if time.Now().Before(nextCheck) {
			continue
		}
		if own != nil {
			switch isSent, err := own.state(s.times.echo); {
			case errors.Is(err, errNoEcho), err != nil && !s.reports.IsListening():
				return err
			case err != nil && unsent < maxUnsent: // which says nothing yet about this connection
				unsent++
				own, nextEcho = nil, time.Now().Add(maxRetry)
			case err != nil:
				return err
			case isSent && !s.reports.IsListening():
				// Ask nothing on this connection until the echo is back: a pooler that does not keep sessions
				// delivers nothing to an idle connection.
				nextCheck = time.Now().Add(pingEvery)
				continue
			}
		}
		if err := s.check(ctx, conn); err != nil {
			return err
		}
		if own == nil && !time.Now().Before(nextEcho) {
			own = s.sendEcho(ctx)
		}
		nextCheck = time.Now().Add(pingEvery)
	}
}

// An echo is a notification that a Table sends to itself, over another connection than the one that listens.
type echo struct {
	payload  string
	sent     chan error // gets a value once it is sent, or cannot be
	deadline time.Time  // for it to come back; zero until it is sent
}

// errNoEcho says that notifications are lost or late on their way to the Table.
var errNoEcho = errors.New("pgsource: notifications do not arrive: one that was sent over another connection did not " +
	"come back in time; most often a pooler such as PgBouncer drops them: want pool_mode=session, or no pooler; " +
	"without a pooler, PostgreSQL is overloaded, or the connection string names two servers that take writes")

// sendEcho sends an echo in the background, over a connection of its own: the connections of the lookups may all be
// in use, or dead.
func (s *Table) sendEcho(ctx context.Context) *echo {
	e := &echo{payload: "echo:" + cryptorand.Text(), sent: make(chan error, 1)} // no domain, so other servers ignore it
	go func() {
		ctx, cancel := context.WithTimeout(ctx, 4*s.times.ping) // a connection takes longer than a ping
		defer cancel()
		conn, err := pgx.ConnectConfig(ctx, s.conn)
		if err == nil {
			_, err = conn.Exec(ctx, "NOTIFY "+quote(s.triggers.channel)+", '"+e.payload+"'") // of letters and digits
			_ = conn.Close(ctx)
		}
		e.sent <- err
	}()
	return e
}

// state reports whether an echo was sent. It returns errNoEcho if the echo has not come back within the limit, or
// why it could not be sent.
func (e *echo) state(limit time.Duration) (isSent bool, err error) {
	select {
	case err := <-e.sent:
		if err != nil {
			return false, fmt.Errorf("pgsource: a test notification cannot be sent: %w", err)
		}
		e.deadline = time.Now().Add(limit)
	default:
	}
	switch {
	case e.deadline.IsZero():
		return false, nil
	case time.Now().After(e.deadline):
		return true, errNoEcho
	}
	return true, nil
}

// check returns an error if the server does not answer, or would not report a change.
func (s *Table) check(ctx context.Context, conn *pgx.Conn) error {
	var isStandby, isReadOnly, listens, mayRead, isHidden bool
	var own, others int
	var identity string
	const facts = "pg_is_in_recovery(), current_setting('transaction_read_only') = 'on', $4 IN (SELECT " +
		"pg_listening_channels()), to_regclass($1) IS NULL OR has_any_column_privilege(to_regclass($1), 'SELECT')"
	if err := s.query(ctx, conn, "SELECT "+facts+", own, others, hidden, "+identitySQL+" FROM ("+countSQL+
		") AS found (own, others, hidden)",
		[]any{s.triggers.table, s.triggers.body, s.triggers.mark, s.triggers.channel}, &isStandby, &isReadOnly, &listens,
		&mayRead, &own, &others, &isHidden, &identity); err != nil {
		return err
	}
	if s.identity != "" && identity != s.identity {
		s.listeners.Call() // changes may have passed the triggers
	}
	s.identity = identity
	if err := s.fits(others, isHidden); err != nil {
		return err
	}
	switch {
	case isStandby: // a primary that has become a standby
		return errors.New("pgsource: the server has become a standby")
	case isReadOnly: // after a move to another server, perhaps
		return errReadOnly
	case !listens:
		return errors.New("pgsource: the connection has lost its LISTEN; a pooler such as PgBouncer does that: want " +
			"pool_mode=session, or no pooler")
	case !mayRead:
		return fmt.Errorf("pgsource: the user of the database may not read the table, so that lookups fail: GRANT SELECT "+
			"ON %s", s.triggers.table)
	case own != len(triggerNames):
		return noTriggers{s.triggers.table}
	}
	return nil
}

// A throttle passes on notifications that anything may have changed, at most one in forgetEvery. Every
// role that may connect can send them, and each makes all servers look up all their publishers again.
type throttle struct {
	last    time.Time // when one was passed on
	pending bool      // another one has come since
}

// isDue reports whether one is to be passed on now, and notes that it is.
func (t *throttle) isDue(now time.Time) bool {
	if !t.pending || now.Sub(t.last) < forgetEvery {
		return false
	}
	*t = throttle{last: now}
	return true
}

// report passes on the domains of a notification; "" says that anything may have changed.
func (s *Table) report(payload string) {
	if payload == "" {
		s.all.pending = true // listenOnce passes it on
		return
	}
	domains := strings.Fields(payload)
	// A row that is not canonical, nor a pattern over such a domain, is never found, so its changes change nothing.
	domains = slices.DeleteFunc(domains, func(domain string) bool {
		base := strings.TrimPrefix(domain, "*.")
		canonical, err := cacheurl.CanonicalDomain(base)
		return err != nil || canonical != base
	})
	if len(domains) > 0 {
		s.listeners.Call(domains...)
	}
}

// query runs a statement, and scans its row, if it has one.
func (s *Table) query(ctx context.Context, conn *pgx.Conn, sql string, args []any, dest ...any) error {
	ctx, cancel := context.WithTimeout(ctx, s.times.ping)
	defer cancel()
	if err := conn.QueryRow(ctx, sql, args...).Scan(dest...); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("pgsource: %w", err)
	}
	return nil
}
