package pgsource

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/sqlsource"
)

// behind returns a Table that connects to an address with more parameters, and its log.
func behind(t *testing.T, addr, params string, times times) (*Table, *servertest.Buffer) {
	t.Helper()
	log := new(servertest.Buffer)
	s, err := newTable(Config{ConnString: servertest.DSN(addr) + params, Logger: slog.New(slog.NewTextHandler(log, nil))}, times)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, log
}

// TestListeningIsProved: a Table is listening only if a change would arrive, whatever is between it and PostgreSQL, and however
// it asks. A pooler that does not keep sessions accepts LISTEN and drops what is notified.
func TestListeningIsProved(t *testing.T) {
	t.Parallel()
	db, _ := database(t)
	session, transaction := servertest.PgBouncer(t, db, "session"), servertest.PgBouncer(t, db, "transaction")
	statement := servertest.PgBouncer(t, db, "statement")
	for _, test := range []struct {
		name, addr string
		arrives    bool
	}{
		{name: "directly", addr: db.Addr, arrives: true},
		{name: "PgBouncer, session", addr: session.Addr, arrives: true},
		{name: "PgBouncer, transaction", addr: transaction.Addr},
		{name: "PgBouncer, statement", addr: statement.Addr},
	} {
		for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
			t.Run(test.name+", "+mode, func(t *testing.T) {
				t.Parallel()
				limits := usualTimes
				if !test.arrives {
					limits.echo = 500 * time.Millisecond // if it is late because the machine is busy, that is also right
				}
				begun := time.Now()
				s, log := behind(t, test.addr, "&default_query_exec_mode="+mode, limits)
				if test.arrives {
					servertest.Until(t, "it listens", servertest.Soon, s.reports.IsListening)
					listening := time.Since(begun)
					mw := servertest.Middleware(t, s.Database(), source.Config{TTL: time.Hour, NegativeTTL: time.Hour})
					domain := fmt.Sprintf("%s.example", strings.NewReplacer(" ", "", ",", "-", "_", "-").Replace(strings.ToLower(test.name+"-"+mode)))
					servertest.Seen(t, servertest.Soon, domain, false, mw)
					add(t, connect(t, db.Addr), domain)
					took := servertest.Seen(t, servertest.Soon, domain, true, mw)
					t.Logf("listening after %v; a change is seen after %v", listening.Round(time.Millisecond), took.Round(time.Millisecond))
					return
				}
				servertest.Until(t, "it says that nothing arrives", servertest.Soon, func() bool {
					if s.reports.IsListening() {
						t.Fatal("it says that it listens")
					}
					return strings.Contains(log.String(), "level=ERROR")
				})
				err := s.Ping(t.Context())
				t.Logf("said after %v: %v", time.Since(begun).Round(time.Millisecond), err)
				// With some modes, PgBouncer 1.18 answers that a prepared statement does not exist. In any case, all is not well.
				if err == nil || strings.Contains(log.String(), "msg=\"ampcors: listening") {
					t.Errorf("Ping: %v; the log:\n%s", err, log)
				}
				if mode == "exec" || mode == "simple_protocol" || mode == "cache_describe" {
					if !errors.Is(err, errNoEcho) || !strings.Contains(err.Error(), "a pooler such as PgBouncer") {
						t.Errorf("Ping: %v", err)
					}
				}
			})
		}
	}
}

// A LISTEN that has no effect, such as behind a pooler that gives each statement to another session, is noticed at once.
func TestALostListenIsSaid(t *testing.T) {
	t.Parallel()
	db, _ := database(t)
	l := newPGLink(t, db.Addr)
	l.unlistens.Store(true)
	s, log := behind(t, l.addr, "", usualTimes)
	servertest.Until(t, "it says so", servertest.Soon, func() bool { return strings.Contains(log.String(), "lost its LISTEN") })
	if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "lost its LISTEN; a pooler") ||
		strings.Contains(log.String(), "msg=\"ampcors: listening") {
		t.Errorf("Ping: %v; the log:\n%s", err, log)
	}
	l.unlistens.Store(false)
	servertest.Until(t, "it listens", servertest.Soon, s.reports.IsListening)
}

// TestAFaultEndsListening: the connection is alive, and yet nothing would be reported, or too late.
func TestAFaultEndsListening(t *testing.T) {
	t.Parallel()
	db, conn := database(t)
	for _, test := range []struct {
		name, want string
		begin, end string // statements; none if the link swallows notifications
	}{
		{name: "a trigger is disabled", begin: "ALTER TABLE publishers DISABLE TRIGGER ampcors_delete",
			end: "ALTER TABLE publishers ENABLE ALWAYS TRIGGER ampcors_delete", want: "does not have the triggers"},
		{name: "all triggers are disabled", begin: "ALTER TABLE publishers DISABLE TRIGGER ALL", end: "ALTER TABLE publishers ENABLE TRIGGER ALL",
			want: "does not have the triggers"},
		{name: "notifications are swallowed", want: "notifications do not arrive"},
	} {
		t.Run(test.name, func(t *testing.T) {
			limits := usualTimes
			l := newPGLink(t, db.Addr)
			if test.want == "notifications do not arrive" {
				limits.echo = 500 * time.Millisecond
			}
			s, log := behind(t, l.addr, "", limits)
			servertest.Until(t, "it listens", servertest.Soon, s.reports.IsListening)
			begun := time.Now()
			if test.begin != "" {
				exec(t, conn, test.begin)
			}
			l.swallows.Store(test.begin == "")
			servertest.Until(t, "it says that it does not listen", servertest.Soon, func() bool { return strings.Contains(log.String(), test.want) })
			t.Logf("said after %v", time.Since(begun).Round(time.Millisecond))
			if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Ping: %v", err)
			}
			l.swallows.Store(false)
			if test.end != "" {
				exec(t, conn, test.end)
			}
			servertest.Until(t, "it listens again", servertest.Soon, s.reports.IsListening)
		})
	}
}

// With session_replication_role=replica, ordinary triggers do not run. The triggers of Install do.
func TestARowThatReplicationWritesIsReported(t *testing.T) {
	t.Parallel()
	db, conn := database(t)
	mw := newServers(t, 1, db.Addr)
	servertest.Seen(t, servertest.Soon, "www.example.com", false, mw...)
	exec(t, conn, "SET session_replication_role = replica")
	add(t, conn, "www.example.com")
	servertest.Seen(t, servertest.Soon, "www.example.com", true, mw...)
	exec(t, conn, "DELETE FROM publishers")
	servertest.Seen(t, servertest.Soon, "www.example.com", false, mw...)
}

// Each cause of an outage is logged once: the last one is what keeps lookups from working.
func TestEachCauseIsLoggedOnce(t *testing.T) {
	t.Parallel()
	db, conn := database(t)
	exec(t, conn, "CREATE ROLE server LOGIN; GRANT SELECT ON publishers TO server")
	log := new(servertest.Buffer)
	s, err := newTable(Config{ConnString: strings.Replace(servertest.DSN(db.Addr), "://ampcors@", "://server@", 1),
		Logger: slog.New(slog.NewTextHandler(log, nil))}, usualTimes)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	servertest.Until(t, "it listens", servertest.Soon, s.reports.IsListening)
	for _, cause := range []struct{ change, want, undo string }{
		{"ALTER ROLE server NOLOGIN; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'server'", "not permitted to log in",
			"ALTER ROLE server LOGIN"},
		{"REVOKE SELECT ON publishers FROM server", "GRANT SELECT ON publishers", "GRANT SELECT (domain, hash_prefix) ON publishers TO server"},
		{"DROP TRIGGER ampcors_update ON publishers", "does not have the triggers", ""},
		// known
		{"ALTER ROLE server NOLOGIN; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'server'", "",
			"ALTER ROLE server LOGIN"},
	} {
		exec(t, conn, cause.change)
		if cause.want != "" {
			servertest.Until(t, "it says "+cause.want, servertest.Soon, func() bool { return strings.Contains(log.String(), cause.want) })
		}
		if cause.undo != "" {
			exec(t, conn, cause.undo)
		}
	}
	db.Stop()
	servertest.Until(t, "it says that the server is down", servertest.Soon,
		func() bool { return strings.Contains(log.String(), "connection refused") })
	for _, once := range []string{"not permitted to log in", "GRANT SELECT ON publishers", "does not have the triggers",
		"connection refused"} {
		if n := strings.Count(log.String(), once); n != 1 {
			t.Errorf("%q is said %d times:\n%s", once, n, log)
		}
	}
	db.Start()
	if err := newTestTable(t, sqlsource.Config{}, db.Addr).Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	servertest.Until(t, "it listens again", servertest.Soon, s.reports.IsListening)
}

// PostgreSQL is down when a server starts, and then comes up with triggers for another condition.
func TestOtherTriggersAreSaidAfterAnOutage(t *testing.T) {
	t.Parallel()
	db, _ := database(t)
	db.Stop()
	log := new(servertest.Buffer)
	s, err := New(Config{ConnString: servertest.DSN(db.Addr), Table: sqlsource.Config{Condition: "domain <> 'x'"},
		Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	servertest.Until(t, "it says that the server is down", servertest.Soon,
		func() bool { return strings.Contains(log.String(), "connection refused") })
	db.Start()
	servertest.Until(t, "it says why lookups fail", servertest.Soon, func() bool {
		return strings.Contains(log.String(), "all lookups fail") && strings.Contains(log.String(), "other columns or another condition")
	})
}

// A pgLink passes on the messages between a Table and PostgreSQL, all or nearly all.
type pgLink struct {
	addr      string
	swallows  atomic.Bool // notifications
	unlistens atomic.Bool // makes each LISTEN a comment
}

func newPGLink(t *testing.T, to string) *pgLink {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	l := &pgLink{addr: listener.Addr().String()}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			go func() {
				defer far.Close()
				l.toServer(far, near)
			}()
			go func() {
				defer near.Close()
				l.toClient(near, far)
			}()
		}
	}()
	return l
}

// toServer passes on what the client sends. While unlistens is set, the statement LISTEN becomes a comment.
func (l *pgLink) toServer(far io.Writer, near io.Reader) {
	buffer := make([]byte, 1<<16)
	for {
		n, err := near.Read(buffer)
		data := buffer[:n]
		if l.unlistens.Load() {
			data = []byte(strings.Replace(string(data), `LISTEN "`, `--STEN "`, 1))
		}
		if _, writeErr := far.Write(data); err != nil || writeErr != nil {
			return
		}
	}
}

// toClient passes on the messages of the server, which have a type and a length
// (https://www.postgresql.org/docs/current/protocol-message-formats.html). While swallows is set, no NotificationResponse is among them.
func (l *pgLink) toClient(near io.Writer, far io.Reader) {
	for {
		head := make([]byte, 5)
		if _, err := io.ReadFull(far, head); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(far, body); err != nil {
			return
		}
		if head[0] == 'A' && l.swallows.Load() {
			continue
		}
		if _, err := near.Write(append(head, body...)); err != nil {
			return
		}
	}
}

// A Table listens while all connections of the lookups are in use: what proves it has a connection of its own.
func TestBusyLookupsDoNotEndListening(t *testing.T) {
	t.Parallel()
	db, conn := database(t)
	s, err := New(Config{ConnString: servertest.DSN(db.Addr), MaxConns: 1, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	busy, err := s.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	servertest.Until(t, "it listens", servertest.Soon, s.reports.IsListening)
	changed := make(chan string, 1)
	defer s.Database().Notify(func(domains ...string) { changed <- strings.Join(domains, " ") })()
	add(t, conn, "www.example.com")
	if domain := <-changed; domain != "www.example.com" {
		t.Errorf("a change of %q is reported", domain)
	}
}
