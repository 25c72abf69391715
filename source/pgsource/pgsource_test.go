package pgsource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/sqlsource"
)

// No test depends on these times: on a busy machine, a connection that is slow is not a lost one.
func TestMain(m *testing.M) {
	if os.Getenv("AMPCORS_TIMES") != "usual" { // with the usual ones, tests log the times of a real server
		usualTimes = times{ping: 30 * time.Second, echo: 30 * time.Second, echoEvery: time.Second, install: time.Minute}
	}
	os.Exit(m.Run())
}

// createTable is the statement that sqlsource documents.
const createTable = `CREATE TABLE publishers (
	domain      text COLLATE "C" PRIMARY KEY,
	hash_prefix text COLLATE "C" UNIQUE
)`

func connect(t testing.TB, addrs ...string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), servertest.DSN(addrs...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t testing.TB, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func add(t testing.TB, conn *pgx.Conn, domains ...string) {
	t.Helper()
	rows := make([][]any, len(domains))
	for i, domain := range domains {
		prefix, err := cacheurl.HashPrefix(domain)
		if err != nil {
			t.Fatal(err)
		}
		rows[i] = []any{domain, prefix}
	}
	if _, err := conn.CopyFrom(t.Context(), pgx.Identifier{"publishers"}, []string{"domain", "hash_prefix"},
		pgx.CopyFromRows(rows)); err != nil {
		t.Fatal(err)
	}
}

func newTestTable(t testing.TB, table sqlsource.Config, addrs ...string) *Table {
	t.Helper()
	s, err := New(Config{ConnString: servertest.DSN(addrs...), Table: table, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// newServers returns the Middlewares of n servers that listen.
func newServers(t testing.TB, n int, addrs ...string) (servers []*ampcors.Middleware) {
	t.Helper()
	for range n {
		s := newTestTable(t, sqlsource.Config{}, addrs...)
		// No test runs as long as the TTL, so all changes are seen by notifications.
		m := servertest.Middleware(t, s.Database(), source.Config{TTL: time.Hour, NegativeTTL: time.Hour})
		servertest.Until(t, "it listens", servertest.Soon, s.reports.IsListening)
		servers = append(servers, m)
	}
	return servers
}

func database(t testing.TB) (*servertest.Server, *pgx.Conn) {
	t.Helper()
	db := servertest.Postgres(t)
	conn := connect(t, db.Addr)
	exec(t, conn, createTable)
	if err := newTestTable(t, sqlsource.Config{}, db.Addr).Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db, conn
}

func TestChangesAreSeenByThreeServers(t *testing.T) {
	t.Parallel()
	db, conn := database(t)
	servers := newServers(t, 3, db.Addr)
	servertest.Seen(t, servertest.Soon, "www.example.com", false, servers...)
	var times []time.Duration
	for range 50 {
		add(t, conn, "www.example.com")
		times = append(times, servertest.Seen(t, servertest.Soon, "www.example.com", true, servers...))
		exec(t, conn, "DELETE FROM publishers WHERE domain = 'www.example.com'")
		times = append(times, servertest.Seen(t, servertest.Soon, "www.example.com", false, servers...))
	}
	slices.Sort(times)
	t.Logf("a change is seen by three servers after %v in the median, %v at most", times[len(times)/2], times[len(times)-1])

	// 10,000 rows at once.
	domains := make([]string, 10_000)
	for i := range domains {
		domains[i] = fmt.Sprintf("www.site-%d.example", i)
	}
	add(t, conn, domains...)
	some := []string{domains[0], domains[5_000], domains[9_999]}
	for _, domain := range some {
		servertest.Seen(t, servertest.Soon, domain, true, servers...)
	}
	exec(t, conn, "DELETE FROM publishers")
	begun := time.Now()
	for _, domain := range some {
		servertest.Seen(t, servertest.Soon, domain, false, servers...)
	}
	t.Logf("10,000 rows that were deleted are seen after %v", time.Since(begun))

	exec(t, conn, "INSERT INTO publishers (domain) VALUES ('www.example.com')")
	servertest.Seen(t, servertest.Soon, "www.other.example", false, servers...)
	servertest.Until(t, "allowed without a prefix", servertest.Soon,
		func() bool { return servers[0].CheckOrigin("https://www.example.com").Allowed })
	exec(t, conn, "TRUNCATE publishers")
	servertest.Seen(t, servertest.Soon, "www.example.com", false, servers...)
}

// record returns the messages that a Database reports.
func record(t *testing.T, s *Table, conn *pgx.Conn, channel string) (take func() []string) {
	t.Helper()
	var mu sync.Mutex
	var messages []string
	stop := s.listeners.Notify(func(domains ...string) {
		mu.Lock()
		defer mu.Unlock()
		messages = append(messages, strings.Join(slices.Sorted(slices.Values(domains)), " "))
	})
	t.Cleanup(stop)
	return func() (taken []string) {
		t.Helper()
		// Messages come in the order of the commits, so this one is the last.
		const last = "last.example"
		exec(t, conn, fmt.Sprintf("SELECT pg_notify('%s', '%s')", channel, last))
		servertest.Until(t, "reported", servertest.Soon, func() bool {
			mu.Lock()
			defer mu.Unlock()
			i := slices.Index(messages, last)
			if i < 0 {
				return false
			}
			taken, messages = messages[:i:i], messages[i+1:]
			return true
		})
		return taken
	}
}

func TestOnlyWhatChangedIsReported(t *testing.T) {
	t.Parallel()
	db := servertest.Postgres(t)
	conn := connect(t, db.Addr)
	exec(t, conn, `CREATE SCHEMA cms;
		CREATE TABLE cms.sites (id serial PRIMARY KEY, host text, amp_hash text, visits int DEFAULT 0, active boolean DEFAULT true,
			ampcors_count int DEFAULT 0, domain int DEFAULT 0, name int, part int)`)
	table := sqlsource.Config{Table: "cms.sites", DomainColumn: "host", PrefixColumn: "amp_hash",
		Condition: "sites.active AND ampcors_count = 0 AND domain = 0 AND name IS NULL AND part IS NULL -- paid"}
	s := newTestTable(t, table, db.Addr)
	statements, err := InstallSQL(table)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // it can run again
		exec(t, conn, statements)
	}
	servertest.Until(t, "ready", servertest.Soon, func() bool { return s.Ping(t.Context()) == nil })
	take := record(t, s, conn, "ampcors_cms_sites")
	long := strings.Repeat("a", 254)
	for _, test := range []struct {
		name, sql string
		want      []string
	}{
		{name: "insert", sql: "INSERT INTO cms.sites (host) VALUES ('a.example'), ('b.example')", want: []string{"a.example b.example"}},
		{name: "insert of none that the condition allows", sql: "INSERT INTO cms.sites (host, active) VALUES ('c.example', false)", want: nil},
		{name: "another column", sql: "UPDATE cms.sites SET visits = visits + 1", want: nil},
		{name: "the prefix", sql: "UPDATE cms.sites SET amp_hash = 'x' WHERE host = 'a.example'", want: []string{"a.example"}},
		{name: "the domain", sql: "UPDATE cms.sites SET host = 'd.example' WHERE host = 'a.example'", want: []string{"a.example d.example"}},
		{name: "the condition", sql: "UPDATE cms.sites SET active = NOT active WHERE host IN ('b.example', 'c.example')",
			want: []string{"b.example c.example"}},
		{name: "no row", sql: "DELETE FROM cms.sites WHERE host = 'none.example'", want: nil},
		{name: "delete", sql: "DELETE FROM cms.sites WHERE host IN ('d.example', 'b.example')", want: []string{"d.example"}},
		{name: "no domain", sql: "INSERT INTO cms.sites (host) VALUES (NULL), (''), ('   '), ('not_a_domain'), ('UPPER.example'), ('" + long +
			"')", want: nil},
		{name: "rolled back", sql: "BEGIN; INSERT INTO cms.sites (host) VALUES ('e.example'); ROLLBACK", want: nil},
		{name: "two statements", sql: "BEGIN; INSERT INTO cms.sites (host) VALUES ('e.example'); DELETE FROM cms.sites WHERE host = " +
			"'c.example'; COMMIT",
			want: []string{"e.example", "c.example"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			exec(t, conn, test.sql)
			if got := take(); !slices.Equal(got, test.want) {
				t.Errorf("%q; want %q", got, test.want)
			}
		})
	}
	for _, sql := range []string{"TRUNCATE cms.sites", "INSERT INTO cms.sites (host) SELECT 'site-' || n || '.example' FROM " +
		"generate_series(1, 30001) AS n"} {
		exec(t, conn, sql)
		servertest.Until(t, sql+": everything may have changed", servertest.Soon, func() bool { return slices.Equal(take(), []string{""}) })
	}
	// Many rows are in few messages, and none is missing.
	exec(t, conn, "DELETE FROM cms.sites WHERE host LIKE 'site-%' AND right(host, 9) IN ('0.example', '1.example', '2.example', "+
		"'3.example', '4.example')")
	messages := take()
	names := strings.Fields(strings.Join(messages, " "))
	if slices.Sort(names); len(slices.Compact(names)) != 15_001 || len(messages) > 60 {
		t.Errorf("%d names in %d messages", len(names), len(messages))
	}
	for _, m := range messages {
		if len(m) > 7999 {
			t.Errorf("a message of %d bytes", len(m))
		}
	}
}

// A program calls New, then Install, then Ping. With a healthy database, none of them says that something
// is wrong, and Ping waits for the connection.
func TestTheOrderOfAProgramIsQuiet(t *testing.T) {
	t.Parallel()
	db := servertest.Postgres(t)
	exec(t, connect(t, db.Addr), createTable)
	log := new(servertest.Buffer)
	for range 2 { // the second finds the triggers
		s, err := New(Config{ConnString: servertest.DSN(db.Addr), Logger: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Install(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	}
	// Ping may return before the line is logged.
	for begun := time.Now(); strings.Count(log.String(), "msg=\"ampcors: listening") < 2 && time.Since(begun) < time.Minute; {
		time.Sleep(10 * time.Millisecond)
	}
	if got := log.String(); strings.Contains(got, "ERROR") || strings.Count(got, "msg=\"ampcors: listening") != 2 {
		t.Errorf("the log is:\n%s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := newTestTable(t, sqlsource.Config{}, db.Addr)
	if err := s.Ping(ctx); err == nil {
		t.Error("a Ping without time says that all is well")
	}
}

func TestPingReportsMissingTriggers(t *testing.T) {
	t.Parallel()
	db := servertest.Postgres(t)
	conn := connect(t, db.Addr)
	s := newTestTable(t, sqlsource.Config{}, db.Addr)
	ping := func(want string) {
		t.Helper()
		err := s.Ping(t.Context())
		if got := fmt.Sprint(err); !strings.Contains(got, want) {
			t.Errorf("%s; want %q", got, want)
		}
	}
	ping("publishers")
	exec(t, conn, createTable)
	ping("does not have the triggers")
	for range 2 {
		if err := s.Install(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	servertest.Until(t, "Ping returns nil", servertest.Soon, func() bool { return s.Ping(t.Context()) == nil })
	for _, change := range []string{"DISABLE TRIGGER", "ENABLE REPLICA TRIGGER"} {
		exec(t, conn, "ALTER TABLE publishers "+change+" ampcors_delete")
		ping("does not have the triggers")
		servertest.Until(t, "it does not listen", servertest.Soon, func() bool { return !s.reports.IsListening() })
		exec(t, conn, "ALTER TABLE publishers ENABLE TRIGGER ampcors_delete")
		servertest.Until(t, "it listens", servertest.Soon, s.reports.IsListening)
	}
	// The triggers of another name of the table, or another Condition, report to nobody here.
	for table, want := range map[sqlsource.Config]string{{Table: "public.publishers"}: "does not have the triggers",
		{Condition: "domain <> 'x'"}: "another condition"} {
		statements, err := InstallSQL(table)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, conn, statements)
		ping(want)
		if err := s.Install(t.Context()); err != nil {
			t.Fatal(err)
		}
		servertest.Until(t, "Ping returns nil", servertest.Soon, func() bool { return s.Ping(t.Context()) == nil })
	}
	exec(t, conn, "DROP TABLE publishers")
	if err := s.Install(t.Context()); err == nil {
		t.Error("installed without a table")
	}
	s.Close()
	if err := s.Install(t.Context()); err == nil {
		t.Error("installed after Close")
	}
}

// A server that does not have the condition with which the triggers were installed would let suspended
// publishers in. Its lookups fail, from the first on, until the triggers fit.
func TestLookupsFailWithoutTheConditionOfTheTriggers(t *testing.T) {
	t.Parallel()
	db := servertest.Postgres(t)
	conn := connect(t, db.Addr)
	exec(t, conn, createTable)
	exec(t, conn, "ALTER TABLE publishers ADD COLUMN active boolean DEFAULT false")
	add(t, conn, "www.suspended.example")
	install := func(table sqlsource.Config) {
		t.Helper()
		statements, err := InstallSQL(table)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, conn, statements)
	}
	install(sqlsource.Config{Condition: "active"})
	s := newTestTable(t, sqlsource.Config{}, db.Addr)
	patient := source.Config{Timeout: servertest.Soon} // on a busy machine, a lookup may take longer than a second
	m := servertest.Middleware(t, s.Database(), patient)
	for _, origin := range servertest.Origins("www.suspended.example") {
		if d := m.CheckOrigin(origin); d.Allowed || !errors.Is(d.SourceErr, ErrOtherTriggers) {
			t.Errorf("%s: %+v", origin, d)
		}
	}
	if err := s.Ping(t.Context()); !errors.Is(err, ErrOtherTriggers) {
		t.Errorf("Ping: %v", err)
	}
	right := servertest.Middleware(t, newTestTable(t, sqlsource.Config{Condition: "active"}, db.Addr).Database(), patient)
	if d := right.CheckOrigin("https://www.suspended.example"); d.Allowed || d.SourceErr != nil {
		t.Errorf("with the condition: %+v", d)
	}
	install(sqlsource.Config{})
	servertest.Seen(t, servertest.Soon, "www.suspended.example", true, m)
	exec(t, conn, "CREATE TRIGGER ampcors_audit BEFORE UPDATE ON publishers FOR EACH ROW EXECUTE FUNCTION "+
		"suppress_redundant_updates_trigger()")
	if ok, err := s.IsInstalled(t.Context()); !ok || err != nil {
		t.Errorf("with a trigger of another program: %t, %v", ok, err)
	}
	if got, err := newTestTable(t, sqlsource.Config{DomainColumn: "DOMAIN"}, db.Addr).Database().PublisherByDomain(t.Context(),
		"www.suspended.example"); got != "www.suspended.example" || err != nil {
		t.Errorf("the name in capitals: %q, %v", got, err)
	}
	install(sqlsource.Config{Condition: "active"})
	servertest.Until(t, "lookups fail again", servertest.Soon, func() bool { // and what is remembered does not count
		d := m.CheckOrigin("https://www.suspended.example")
		return !d.Allowed && errors.Is(d.SourceErr, ErrOtherTriggers)
	})
	// The triggers are looked at, though no connection can listen.
	exec(t, conn, "ALTER ROLE ampcors NOLOGIN")
	exec(t, conn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' OR query LIKE 'SELECT "+
		"pg_is_in_recovery()%'")
	exec(t, conn, "DROP FUNCTION ampcors_notify_publishers CASCADE") // without triggers, a change is seen later
	servertest.Until(t, "lookups work", servertest.Soon, func() bool {
		got, err := s.Database().PublisherByDomain(t.Context(), "www.suspended.example")
		return got != "" && err == nil && !s.reports.IsListening()
	})
	exec(t, conn, "ALTER ROLE ampcors LOGIN")
}

// A server without the condition remembers a suspended publisher. Once the right triggers are there, that
// does not count, also when PostgreSQL stops: whether a lookup has noticed it before, or only the connection
// that listens.
func TestASuspendedPublisherStaysDeniedWhenPostgreSQLStops(t *testing.T) {
	t.Parallel()
	for name, isAsked := range map[string]bool{"after a lookup": true, "without a lookup": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, conn := database(t)
			exec(t, conn, "ALTER TABLE publishers ADD COLUMN active boolean DEFAULT false")
			add(t, conn, "www.suspended.example")
			s := newTestTable(t, sqlsource.Config{}, db.Addr)
			m := servertest.Middleware(t, s.Database(), source.Config{TTL: time.Second})
			servertest.Seen(t, servertest.Soon, "www.suspended.example", true, m)
			isDenied := func() bool {
				d := m.CheckOrigin("https://www.suspended.example")
				return !d.Allowed && errors.Is(d.SourceErr, ErrOtherTriggers)
			}
			statements, err := InstallSQL(sqlsource.Config{Condition: "active"})
			if err != nil {
				t.Fatal(err)
			}
			exec(t, conn, statements)
			servertest.Until(t, "the triggers are noticed", servertest.Soon, func() bool {
				return s.fit.Load() == otherTriggers && (!isAsked || isDenied())
			})
			db.Stop()
			servertest.Until(t, "the connection is lost", servertest.Soon, func() bool { return s.fit.Load() == otherTriggersBefore })
			for range 20 {
				if !isDenied() {
					t.Errorf("PostgreSQL is down: %+v", m.CheckOrigin("https://www.suspended.example"))
				}
			}
			db.Start()
			if statements, err = InstallSQL(sqlsource.Config{}); err != nil {
				t.Fatal(err)
			}
			exec(t, connect(t, db.Addr), statements)
			servertest.Seen(t, servertest.Soon, "www.suspended.example", true, m)
			db.Stop() // what was confirmed after that counts
			servertest.Until(t, "it is allowed as stale", servertest.Soon, func() bool {
				d := m.CheckOrigin("https://www.suspended.example")
				return d.Allowed && d.Stale
			})
		})
	}
}

// A Condition that cannot be used in a trigger is an error of Install, and not of a writer.
func TestInstallTriesTheCondition(t *testing.T) {
	t.Parallel()
	db := servertest.Postgres(t)
	conn := connect(t, db.Addr)
	exec(t, conn, createTable)
	for _, condition := range []string{"public.publishers.domain <> ''", "no_such_column", "tableoid > 0", "domain"} {
		if err := newTestTable(t, sqlsource.Config{Condition: condition}, db.Addr).Install(t.Context()); err == nil {
			t.Errorf("%q is installed", condition)
		}
		exec(t, conn, "INSERT INTO publishers (domain) VALUES ('a.example')")
		exec(t, conn, "DELETE FROM publishers")
	}
}

// What was changed before the triggers were there is looked up again.
func TestInstallReportsEverything(t *testing.T) {
	t.Parallel()
	db := servertest.Postgres(t)
	conn := connect(t, db.Addr)
	exec(t, conn, createTable)
	s := newTestTable(t, sqlsource.Config{}, db.Addr)
	m := servertest.Middleware(t, s.Database(), source.Config{NegativeTTL: time.Hour})
	servers := []*ampcors.Middleware{m}
	servertest.Seen(t, servertest.Soon, "www.example.com", false, servers...)
	add(t, conn, "www.example.com")
	if s.reports.IsListening() {
		t.Error("it listens without triggers")
	}
	if err := s.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	servertest.Seen(t, servertest.Soon, "www.example.com", true, servers...)
	exec(t, conn, "ALTER TABLE publishers DISABLE TRIGGER USER; DELETE FROM publishers; ALTER TABLE publishers ENABLE TRIGGER USER")
	if err := s.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	servertest.Seen(t, servertest.Soon, "www.example.com", false, servers...)
}

// Whatever is wrong with a connection string, no error and no line of the log has the password.
func TestNoOutputHasThePassword(t *testing.T) {
	t.Parallel()
	for i, connString := range servertest.WrongConnStrings() {
		var output servertest.Buffer
		s, err := New(Config{ConnString: connString, Logger: slog.New(slog.NewTextHandler(&output, nil))})
		if (err == nil) != (i >= len(servertest.WrongConnStrings())-6 || strings.Contains(connString, "pool_")) {
			t.Errorf("%q: %v", connString, err)
		}
		if checked := CheckConnString(connString); fmt.Sprint(checked) != fmt.Sprint(err) {
			t.Errorf("%q: %v; want %v", connString, checked, err)
		}
		if err == nil {
			err = s.Ping(t.Context())
			s.Close()
		}
		if err == nil || strings.Contains(err.Error()+output.String(), servertest.Secret) {
			t.Errorf("%q: %v\n%s", connString, err, &output)
		}
	}
	for _, right := range []string{"", "postgres://a/b", "host=a password='s3 cret' application_name=x pool_max_conns=4",
		"host=a work_mem=1MB"} {
		if err := CheckConnString(right); err != nil {
			t.Errorf("%q: %v", right, err)
		}
	}
}

// A host that does not answer is given up after a second, unless there is a connect_timeout: in the string, the
// environment or a service file.
func TestAHostThatDoesNotAnswerIsGivenUp(t *testing.T) {
	services := filepath.Join(t.TempDir(), "services")
	if err := os.WriteFile(services, []byte("[slow]\nhost=a\nconnect_timeout=7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		connString, env string
		want            time.Duration
	}{
		{"postgres://a", "", time.Second},
		{"host=a", "", time.Second},
		{"host=a connect_timeout=0", "", time.Second},
		{"postgres://a?connect_timeout=120", "", 2 * time.Minute},
		{"postgres://a", "5", 5 * time.Second},
		{"postgres://a?connect_timeout=3", "5", 3 * time.Second},
		{"service=slow servicefile=" + services, "", 7 * time.Second},
	} {
		t.Setenv("PGCONNECT_TIMEOUT", test.env)
		if test.env == "" {
			os.Unsetenv("PGCONNECT_TIMEOUT")
		}
		if conn, err := parseConnString(test.connString); err != nil || conn.ConnectTimeout != test.want {
			t.Errorf("%q, %q: %v, %v; want %v", test.connString, test.env, conn, err, test.want)
		}
	}
	// A server that accepts and says nothing, and one that answers.
	os.Unsetenv("PGCONNECT_TIMEOUT")
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	db, _ := database(t)
	s, err := New(Config{ConnString: strings.Replace(servertest.DSN(silent.Addr().String(), db.Addr), "&connect_timeout=60", "", 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Ping(ctx); err != nil {
		t.Error(err)
	}
}

func TestNewChecksItsConfig(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		cfg  Config
		want string
	}{
		{name: "connection string", cfg: Config{ConnString: "host=a port=b"}, want: "ConnString"},
		{name: "placeholder", cfg: Config{Table: sqlsource.Config{Placeholder: "?"}}, want: "Placeholder"},
		{name: "connections", cfg: Config{MaxConns: -1}, want: `MaxConns "-1"`},
		{name: "long table", cfg: Config{Table: sqlsource.Config{Table: strings.Repeat("a", 60)}}, want: "too long by 12 bytes"},
		{name: "condition", cfg: Config{Table: sqlsource.Config{Condition: "a = $ampcors$b$ampcors$"}}, want: "Condition"},
		{name: "table", cfg: Config{Table: sqlsource.Config{Table: "a;b"}}, want: "not a name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if s, err := New(test.cfg); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, %v; want %q", s, err, test.want)
			}
			if test.cfg.Table.Table != "" {
				if _, err := InstallSQL(test.cfg.Table); err == nil {
					t.Error(err)
				}
			}
		})
	}
}

// A role without any right on the table sends notifications that anything may have changed. They cost
// two lookups, however many they are: one for the first, and one for all others.
func TestNotificationsOfAnybodyCostLittle(t *testing.T) {
	t.Parallel()
	db, conn := database(t)
	add(t, conn, "www.example.com")
	exec(t, conn, "CREATE ROLE anybody")
	s := newTestTable(t, sqlsource.Config{}, db.Addr)
	publishers, err := source.New(s.Database(), source.Config{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(publishers.Close)
	servertest.Until(t, "it listens", servertest.Soon, s.reports.IsListening)
	found := func() bool { return publishers.Find(t.Context(), "www.example.com").Publisher != "" }
	servertest.Until(t, "it is allowed", servertest.Soon, found)
	take := record(t, s, conn, "ampcors_publishers")

	exec(t, conn, "SET ROLE anybody")
	before, begun := publishers.Stats().Lookups, time.Now()
	for range 200 {
		exec(t, conn, "SELECT pg_notify('ampcors_publishers', '')")
		if !found() {
			t.Fatal("a publisher is denied")
		}
	}
	exec(t, conn, "RESET ROLE")
	calls := len(take())
	if most := 2 + int(time.Since(begun)/forgetEvery); calls < 1 || calls > most {
		t.Errorf("200 notifications were passed on %d times; want 1 to %d", calls, most)
	}
	if lookups := publishers.Stats().Lookups - before; lookups > uint64(calls)+1 {
		t.Errorf("they cost %d lookups", lookups)
	}
	// The last one is not lost.
	exec(t, conn, "SELECT pg_notify('ampcors_publishers', '')")
	servertest.Until(t, "passed on", servertest.Soon, func() bool { return len(take()) > 0 })
}

// All connections, also those that listen, are closed again and again, while publishers are looked up. Each
// revocation is seen. On average, at most one lookup for each kill fails: one whose connection was closed three
// times in a row.
func TestKilledConnections(t *testing.T) {
	t.Parallel()
	db, conn := database(t)
	const n = 3000
	domains := make([]string, n)
	for i := range domains {
		domains[i] = fmt.Sprintf("www.site-%d.example", i)
	}
	add(t, conn, domains...)
	servers := newServers(t, 3, db.Addr)
	begun := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	killer := connect(t, db.Addr)
	spared := conn.PgConn().PID()
	var group, workers sync.WaitGroup
	var kills, answered atomic.Int32
	group.Go(func() {
		for ctx.Err() == nil {
			// Between two kills, connections are used: on a busy machine, it takes a while to make them.
			for until := answered.Load() + 50; answered.Load() < until && ctx.Err() == nil; {
				time.Sleep(time.Millisecond)
			}
			tag, err := killer.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid "+
				"NOT IN (pg_backend_pid(), $1)", spared)
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			if tag.RowsAffected() > int64(len(servers)) { // not only those that listen
				kills.Add(1)
			}
		}
	})
	var failed atomic.Int32
	for w := range 4 {
		workers.Go(func() {
			for i := w; i < n; i += 4 {
				if d := servers[0].CheckOrigin("https://" + domains[i]); errors.Is(d.SourceErr, source.ErrCircuitOpen) {
					i -= 4 // it was not looked up, after a failure that is counted
				} else if d.SourceErr != nil {
					failed.Add(1)
				} else if answered.Add(1); !d.Allowed {
					t.Errorf("%s: %+v", domains[i], d)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	slowest := time.Duration(0)
	for i := 0; i < 10 || kills.Load() < 3 && time.Since(begun) < servertest.Soon; i++ {
		add(t, conn, "www.example.com")
		slowest = max(slowest, servertest.Seen(t, servertest.Soon, "www.example.com", true, servers...))
		exec(t, conn, "DELETE FROM publishers WHERE domain = 'www.example.com'")
		slowest = max(slowest, servertest.Seen(t, servertest.Soon, "www.example.com", false, servers...))
	}
	workers.Wait()
	cancel()
	group.Wait()
	t.Logf("%d of %d lookups failed in %v; all connections were closed %d times; changes were seen after %v at most", failed.Load(), n,
		time.Since(begun), kills.Load(), slowest)
	if kills.Load() < 3 || failed.Load() > kills.Load() {
		t.Errorf("%d of %d lookups failed; connections were closed %d times", failed.Load(), n, kills.Load())
	}
}

// A standby is promoted after the primary was killed. What is revoked on it is seen by all.
func TestARevocationOnAPromotedStandbyIsSeen(t *testing.T) {
	t.Parallel()
	db, conn := database(t)
	add(t, conn, "www.example.com", "www.other.example")
	standby := servertest.PostgresStandby(t, db)
	servers := newServers(t, 3, db.Addr, standby.Addr)
	servertest.Seen(t, servertest.Soon, "www.example.com", true, servers...)
	servertest.Seen(t, servertest.Soon, "www.other.example", true, servers...)
	db.Kill()
	if d := servers[0].CheckOrigin("https://www.example.com"); !d.Allowed {
		t.Errorf("%+v", d)
	}
	standby.Promote()
	conn = connect(t, db.Addr, standby.Addr)
	exec(t, conn, "DELETE FROM publishers WHERE domain = 'www.example.com'")
	took := servertest.Seen(t, servertest.Soon, "www.example.com", false, servers...)
	t.Logf("seen after %v", took)
	servertest.Seen(t, servertest.Soon, "www.other.example", true, servers...)
	exec(t, conn, "DELETE FROM publishers WHERE domain = 'www.other.example'")
	t.Logf("the next after %v", servertest.Seen(t, servertest.Soon, "www.other.example", false, servers...))
}

// A server that starts while the database is down listens once the database is up.
func TestTheDatabaseMayStartLater(t *testing.T) {
	t.Parallel()
	db, conn := database(t)
	add(t, conn, "www.example.com")
	db.Stop()
	s := newTestTable(t, sqlsource.Config{}, db.Addr)
	m := servertest.Middleware(t, s.Database(), source.Config{})
	if d := m.CheckOrigin("https://www.example.com"); d.SourceErr == nil || s.reports.IsListening() || s.Ping(t.Context()) == nil {
		t.Errorf("%+v", d)
	}
	db.Start()
	servertest.Until(t, "it listens", servertest.Soon, s.reports.IsListening)
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// A server may read the table, and nothing else: source/README.md says so.
func TestAServerNeedsSelectAlone(t *testing.T) {
	t.Parallel()
	db := servertest.Postgres(t)
	conn := connect(t, db.Addr)
	statements, err := InstallSQL(sqlsource.Config{Table: "cms.sites"})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, conn, `CREATE SCHEMA cms; CREATE TABLE cms.sites (domain text PRIMARY KEY, hash_prefix text)`)
	exec(t, conn, statements)
	exec(t, conn, `CREATE ROLE server LOGIN; GRANT USAGE ON SCHEMA cms TO server; GRANT SELECT ON cms.sites TO server`)
	s, err := New(Config{ConnString: strings.Replace(servertest.DSN(db.Addr), "://ampcors@", "://server@", 1),
		Table: sqlsource.Config{Table: "cms.sites"}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	mw := servertest.Middleware(t, s.Database(), source.Config{TTL: time.Hour, NegativeTTL: time.Hour})
	servertest.Until(t, "ready", servertest.Soon, func() bool { return s.Ping(t.Context()) == nil })
	servertest.Seen(t, servertest.Soon, "www.example.com", false, mw)
	prefix, _ := cacheurl.HashPrefix("www.example.com")
	exec(t, conn, `INSERT INTO cms.sites VALUES ('www.example.com', $1)`, prefix)
	servertest.Seen(t, servertest.Soon, "www.example.com", true, mw)
	exec(t, conn, `DELETE FROM cms.sites`)
	servertest.Seen(t, servertest.Soon, "www.example.com", false, mw)
	if err := s.Install(t.Context()); err == nil {
		t.Error("the server can change the table")
	}
}

// The triggers compare as lookups do, byte for byte, whatever the columns' type and collation, and whatever the writer's
// search_path. If they fail, the write does not, and everything may have changed.
func TestTheTriggersSeeEachChange(t *testing.T) {
	t.Parallel()
	db := servertest.Postgres(t)
	conn := connect(t, db.Addr)
	exec(t, conn, `CREATE EXTENSION citext;
		CREATE COLLATION no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
		CREATE TABLE sites (domain text, hash_prefix text, plan citext, n int);
		CREATE TABLE plans (plan text);
		INSERT INTO plans VALUES ('pro');
		CREATE ROLE writer LOGIN`)
	for _, kind := range []string{"citext", "text COLLATE no_case", "varchar(255)", "text"} {
		t.Run(kind, func(t *testing.T) {
			exec(t, conn, "DROP TABLE sites; CREATE TABLE sites (domain "+kind+
				", hash_prefix text, plan citext, n int); GRANT ALL ON sites TO writer")
			table := sqlsource.Config{Table: "sites", Condition: "plan = 'pro' OR plan IN (SELECT plan FROM plans WHERE n = 1)"}
			s := newTestTable(t, table, db.Addr)
			if err := s.Install(t.Context()); err != nil {
				t.Fatal(err)
			}
			servertest.Until(t, "ready", servertest.Soon, func() bool { return s.Ping(t.Context()) == nil })
			take := record(t, s, conn, "ampcors_sites")
			for _, test := range []struct {
				sql  string
				want []string
			}{
				{"INSERT INTO sites VALUES ('www.example.com', 'a', 'PRO'), ('b.example', 'b', 'pro'), ('B.example', 'c', 'pro')",
					[]string{"b.example www.example.com"}},
				{"UPDATE sites SET domain = 'WWW.example.com' WHERE domain = 'www.example.com'", []string{"www.example.com"}},
				{"UPDATE sites SET domain = 'www.example.com' WHERE domain = 'WWW.example.com'", []string{"www.example.com"}},
				{"UPDATE sites SET hash_prefix = 'A' WHERE hash_prefix = 'a'", []string{"www.example.com"}},
				{"DELETE FROM sites WHERE hash_prefix IN ('b', 'c')", []string{"b.example"}},
				{"SET search_path = ''; UPDATE public.sites SET plan = NULL; SET search_path = public", []string{"www.example.com"}},
				{"SET search_path = ''; UPDATE public.sites SET plan = 'Pro'; RESET search_path", []string{"www.example.com"}},
				{"UPDATE sites SET n = n", nil},
				// Condition means the tables that whoever installed it had in view.
				{"INSERT INTO plans VALUES ('gold'); UPDATE sites SET plan = 'gold', n = 1", nil},
				{"CREATE TEMP TABLE plans (plan text); UPDATE sites SET plan = NULL; DROP TABLE pg_temp.plans", []string{"www.example.com"}},
				{"UPDATE sites SET plan = 'gold'", []string{"www.example.com"}},
				{"CREATE SCHEMA ampcors; CREATE TABLE ampcors.plans (plan text); UPDATE sites SET plan = NULL; DROP SCHEMA ampcors CASCADE",
					[]string{"www.example.com"}},
			} {
				exec(t, conn, test.sql)
				if got := take(); !slices.Equal(got, test.want) {
					t.Errorf("%s: %q; want %q", test.sql, got, test.want)
				}
			}
			// The writer may not read the other table.
			exec(t, conn, "SET ROLE writer; UPDATE sites SET plan = NULL; RESET ROLE")
			servertest.Until(t, "everything may have changed", servertest.Soon, func() bool { return slices.Contains(take(), "") })
		})
	}
}

// Run one by one, the statements cannot keep what a writer has in view from the triggers: they count as not installed. In one
// transaction, they leave its search_path as it was.
func TestInstallIsOneTransaction(t *testing.T) {
	t.Parallel()
	db := servertest.Postgres(t)
	conn := connect(t, db.Addr)
	exec(t, conn, createTable)
	s := newTestTable(t, sqlsource.Config{}, db.Addr)
	statements, err := InstallSQL(sqlsource.Config{})
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(statements, "CREATE OR REPLACE")
	function, rest, _ := strings.Cut(rest, tag+";\n")
	for _, statement := range slices.Concat(strings.SplitAfter(head, ";\n"), []string{"CREATE OR REPLACE" + function + tag},
		strings.SplitAfter(rest, ";\n")) {
		if strings.TrimSpace(statement) != "" {
			exec(t, conn, statement)
		}
	}
	if installed, err := s.IsInstalled(t.Context()); installed || err != nil {
		t.Errorf("one by one: %t, %v", installed, err)
	}
	exec(t, conn, `CREATE SCHEMA own; SET search_path = "$user", missing, public`)
	exec(t, conn, "BEGIN; "+statements+"CREATE TABLE later (); COMMIT")
	if installed, err := s.IsInstalled(t.Context()); !installed || err != nil {
		t.Errorf("in a transaction: %t, %v", installed, err)
	}
	var path, kept string
	if err := conn.QueryRow(t.Context(), "SELECT current_setting('search_path'), to_regclass('public.later')::text").Scan(&path,
		&kept); err != nil || path != `"$user", missing, public` {
		t.Errorf("%s, %s, %v", path, kept, err)
	}
}

// A row that a policy hides looks like one that is missing. So lookups fail, and nothing is forgotten for good.
func TestRowSecurityIsNoAnswer(t *testing.T) {
	t.Parallel()
	db, owner := database(t)
	exec(t, owner, "CREATE ROLE server LOGIN; GRANT SELECT ON publishers TO server")
	add(t, owner, "www.example.com", "other.example")
	s, err := New(Config{ConnString: strings.Replace(servertest.DSN(db.Addr), "://ampcors@", "://server@", 1),
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	mw := servertest.Middleware(t, s.Database(), source.Config{TTL: time.Hour, NegativeTTL: time.Hour})
	servertest.Until(t, "ready", servertest.Soon, func() bool { return s.Ping(t.Context()) == nil })
	servertest.Seen(t, servertest.Soon, "www.example.com", true, mw)
	lookup := s.Database().PublisherByDomain
	for _, policy := range []string{"", "CREATE POLICY own ON publishers TO server USING (domain = current_user); CREATE POLICY others ON " +
		"publishers TO ampcors USING (true); " +
		"CREATE POLICY writes ON publishers FOR INSERT TO server WITH CHECK (true)",
		"CREATE POLICY restrictive ON publishers AS RESTRICTIVE USING (true)",
		"DROP POLICY restrictive ON publishers; CREATE POLICY most ON publishers USING (domain <> 'www.example.com')"} {
		exec(t, owner, "ALTER TABLE publishers ENABLE ROW LEVEL SECURITY; "+policy)
		servertest.Until(t, "lookups fail", servertest.Soon, func() bool {
			_, err := lookup(t.Context(), "other.example")
			return errors.Is(err, sqlsource.ErrRowSecurity)
		})
		if err := s.Ping(t.Context()); !errors.Is(err, sqlsource.ErrRowSecurity) {
			t.Errorf("Ping: %v", err)
		}
		servertest.Until(t, "it does not listen", servertest.Soon, func() bool { return !s.reports.IsListening() })
		if d := mw.CheckOrigin("https://www.example.com"); !d.Allowed {
			t.Errorf("a remembered publisher: %+v", d)
		}
		if d := mw.CheckOrigin("https://third.example"); d.Reason != ampcors.ReasonSourceUnavailable {
			t.Errorf("another publisher: %+v", d)
		}
		exec(t, owner, "ALTER TABLE publishers DISABLE ROW LEVEL SECURITY")
		servertest.Until(t, "ready again", servertest.Soon, func() bool { return s.Ping(t.Context()) == nil })
		servertest.Seen(t, servertest.Soon, "other.example", true, mw)
		exec(t, owner, "DELETE FROM publishers WHERE domain = 'other.example'")
		servertest.Seen(t, servertest.Soon, "other.example", false, mw)
		add(t, owner, "other.example")
		servertest.Seen(t, servertest.Soon, "other.example", true, mw)
	}
	exec(t, owner, "ALTER TABLE publishers ENABLE ROW LEVEL SECURITY; CREATE ROLE readers; GRANT readers TO server; CREATE POLICY readers "+
		"ON publishers FOR SELECT TO readers USING (true)")
	servertest.Until(t, "with a policy that shows each row", servertest.Soon, func() bool { return s.Ping(t.Context()) == nil })
	servertest.Seen(t, servertest.Soon, "www.example.com", true, mw)
	exec(t, owner, "CREATE POLICY few ON publishers AS RESTRICTIVE FOR SELECT TO readers USING (domain <> 'www.example.com')")
	servertest.Until(t, "with a restrictive policy", servertest.Soon,
		func() bool { return errors.Is(s.Ping(t.Context()), sqlsource.ErrRowSecurity) })
	exec(t, owner, "ALTER ROLE server BYPASSRLS")
	servertest.Until(t, "a user with BYPASSRLS is ready", servertest.Soon, func() bool { return s.Ping(t.Context()) == nil })
}

// Rows that change while the triggers are disabled, or with the whole table, are looked up again: the state before and after is the same.
func TestAReplacedTableIsSeen(t *testing.T) {
	t.Parallel()
	for _, change := range []string{
		"BEGIN; ALTER TABLE publishers DISABLE TRIGGER ALL; DELETE FROM publishers; ALTER TABLE publishers ENABLE ALWAYS TRIGGER " +
			"ampcors_insert, " +
			"ENABLE ALWAYS TRIGGER ampcors_update, ENABLE ALWAYS TRIGGER ampcors_delete, ENABLE ALWAYS TRIGGER ampcors_truncate; COMMIT",
		"BEGIN; DROP TABLE publishers; " + createTable + "; INSTALL; COMMIT",
		"CREATE SCHEMA other; SET search_path = other; " + createTable +
			"; INSTALL; BEGIN; ALTER SCHEMA public RENAME TO old; ALTER SCHEMA other RENAME TO public; COMMIT",
		"ALTER TABLE publishers ALTER COLUMN domain TYPE text COLLATE \"C\" USING 'x' || domain",
	} {
		t.Run(strings.Fields(change)[1], func(t *testing.T) {
			t.Parallel()
			db, conn := database(t)
			mw := newServers(t, 1, db.Addr)[0]
			add(t, conn, "www.example.com")
			servertest.Seen(t, servertest.Soon, "www.example.com", true, mw)
			install, err := InstallSQL(sqlsource.Config{})
			if err != nil {
				t.Fatal(err)
			}
			// Installing reports everything. Here it is the check alone that must find out.
			install, _, _ = strings.Cut(install, "SELECT set_config('ampcors.installing', 'off'")
			exec(t, conn, strings.Replace(change, "INSTALL;", install, 1))
			servertest.Seen(t, servertest.Soon, "www.example.com", false, mw)
		})
	}
}

// PgBouncer with pool_mode=transaction gives each statement another session. Lookups work, also those of a second program.
func TestLookupsThroughATransactionPooler(t *testing.T) {
	t.Parallel()
	db, conn := database(t)
	add(t, conn, "www.example.com")
	pooler := servertest.PgBouncer(t, db, "transaction")
	for range 2 {
		s, err := New(Config{ConnString: servertest.DSN(pooler.Addr), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		if err != nil {
			t.Fatal(err)
		}
		lookup := s.Database().PublisherByDomain
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 50 {
					if domain, err := lookup(t.Context(), "www.example.com"); err != nil || domain != "www.example.com" {
						t.Errorf("%q, %v", domain, err)
					}
				}
			})
		}
		all.Wait()
		s.Close()
	}
}

// A pattern is a row like others: its removal is seen as fast as that of a name.
func TestAPatternIsARow(t *testing.T) {
	t.Parallel()
	db, conn := database(t)
	s := newTestTable(t, sqlsource.Config{}, db.Addr)
	servertest.Until(t, "it listens", servertest.Soon, s.reports.IsListening)
	mw := servertest.Middleware(t, s.Database(), source.Config{TTL: time.Hour, NegativeTTL: time.Hour, Patterns: true})
	is := func(want bool) {
		t.Helper()
		servertest.Until(t, "the change is seen", servertest.Soon, func() bool {
			return mw.CheckOrigin("https://www.acme.example").Allowed == want &&
				mw.CheckOrigin("https://a-b-acme-example.cdn.ampproject.org").Allowed == want
		})
	}
	is(false)
	for range 3 {
		exec(t, conn, "INSERT INTO publishers VALUES ('*.acme.example')")
		is(true)
		exec(t, conn, "DELETE FROM publishers WHERE domain = '*.acme.example'")
		is(false)
	}
	if filled, err := s.FillPrefixes(t.Context(), nil); filled != 0 || err != nil {
		t.Error(filled, err)
	}
}

// Two programs that are as busy as they can be share PgBouncer's default_pool_size: each listens, and answers.
func TestTwoProgramsShareAPooler(t *testing.T) {
	t.Parallel()
	db, conn := database(t)
	add(t, conn, "www.example.com")
	pooler := servertest.PgBouncer(t, db, "session")
	tables := []*Table{newTestTable(t, sqlsource.Config{}, pooler.Addr), newTestTable(t, sqlsource.Config{}, pooler.Addr)}
	for _, s := range tables {
		servertest.Until(t, "it listens", servertest.Soon, s.reports.IsListening)
		slow := s.Database().PublisherByDomain
		var all sync.WaitGroup
		for range 40 { // at one time, so that it takes all its connections
			all.Go(func() {
				if domain, err := slow(t.Context(), "www.example.com"); err != nil || domain != "www.example.com" {
					t.Errorf("%q, %v", domain, err)
				}
			})
		}
		all.Wait()
		// Each has one more that listens, and one for an echo.
		if stats := s.db.Stats(); stats.OpenConnections < 4 || stats.MaxOpenConnections+2 > 20/len(tables) {
			t.Errorf("%d connections were made, of %d", stats.OpenConnections, stats.MaxOpenConnections)
		}
	}
	for _, s := range tables {
		if err := s.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-s.sendEcho(t.Context()).sent; err != nil {
			t.Error(err)
		}
	}
}

// A primary whose user may not write is no standby.
func TestAReadOnlyUserIsSaid(t *testing.T) {
	t.Parallel()
	db, conn := database(t)
	exec(t, conn, "CREATE ROLE server LOGIN; GRANT SELECT ON publishers TO server; ALTER ROLE server SET default_transaction_read_only = on")
	s, err := New(Config{ConnString: strings.Replace(servertest.DSN(db.Addr), "://ampcors@", "://server@", 1),
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "default_transaction_read_only is on") ||
		strings.Contains(err.Error(), "standby") {
		t.Error(err)
	}
}

// After a move to another server, lookups follow the connection that listens: a connection of theirs to the old server, which still
// answers, is closed before its next use.
func TestLookupsFollowTheServerThatReports(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]func(t *testing.T, old, now *servertest.Server, conn *pgx.Conn) (addrs []string, do func()){
		"the old one is read-only": func(t *testing.T, old, now *servertest.Server, conn *pgx.Conn) ([]string, func()) {
			return []string{old.Addr, now.Addr}, func() {
				exec(t, conn, "ALTER SYSTEM SET default_transaction_read_only = on")
				exec(t, conn, "SELECT pg_reload_conf()")
			}
		},
		"the listening connection alone is lost": func(t *testing.T, old, now *servertest.Server, conn *pgx.Conn) ([]string, func()) {
			return []string{old.Addr, now.Addr}, func() {
				exec(t, conn, "ALTER DATABASE postgres SET default_transaction_read_only = on") // of new connections alone
				exec(t, conn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' "+
					"AND query NOT LIKE 'SELECT domain %' AND pid <> pg_backend_pid()")
			}
		},
		"PgBouncer leads new sessions elsewhere": func(t *testing.T, old, now *servertest.Server, _ *pgx.Conn) ([]string, func()) {
			pooler := servertest.PgBouncer(t, old, "session")
			return []string{pooler.Addr}, func() { pooler.MoveTo(now) }
		},
		"the old one waits for its clients to disconnect": func(_ *testing.T, old, now *servertest.Server, _ *pgx.Conn) ([]string, func()) {
			return []string{old.Addr, now.Addr}, old.StopSmart
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old, conn := database(t)
			now, newConn := database(t)
			add(t, conn, "www.example.com", "other.example")
			add(t, newConn, "www.example.com", "other.example")
			addrs, do := move(t, old, now, conn)
			quick := usualTimes
			quick.echo, quick.echoEvery = 500*time.Millisecond, time.Second
			s, err := newTable(Config{ConnString: servertest.DSN(addrs...), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}, quick)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Close)
			mw := servertest.Middleware(t, s.Database(), source.Config{TTL: time.Hour, NegativeTTL: time.Hour})
			servertest.Until(t, "it listens", servertest.Soon, s.reports.IsListening)
			before := *s.server.Load()
			servertest.Seen(t, servertest.Soon, "www.example.com", true, mw)
			do()
			servertest.Until(t, "it listens to the new server", servertest.Soon, func() bool {
				server := s.server.Load()
				return server != nil && *server != before && s.reports.IsListening()
			})
			exec(t, newConn, "DELETE FROM publishers WHERE domain = 'www.example.com'")
			servertest.Seen(t, servertest.Soon, "www.example.com", false, mw)
			servertest.Seen(t, servertest.Soon, "other.example", true, mw)
		})
	}
}
