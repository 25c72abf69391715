package main

import (
	"database/sql"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/source/sqlsource"
)

// TestSourceInstallAndFill prepares tables as people have them, and serves from them.
func TestSourceInstallAndFill(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../source/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, m := range regexp.MustCompile(`(?m)^ampcors source (.*)$`).FindAllStringSubmatch(string(text), -1) {
		commands = append(commands, m[1])
	}
	if len(commands) != 3 {
		t.Fatalf("the README's commands are %q", commands)
	}
	for _, test := range []struct {
		name     string
		database func(t *testing.T) (url, driver, dsn string)
		triggers int // statements
		other    string
	}{
		{"PostgreSQL", func(t *testing.T) (string, string, string) {
			dsn := servertest.DSN(servertest.Postgres(t).Addr)
			return dsn, "pgx", dsn
		}, 1, "CREATE INDEX CONCURRENTLY"},
		{"MariaDB", func(t *testing.T) (string, string, string) {
			addr := servertest.MariaDB(t).Addr
			return "mysql://root@" + addr + "/test", "mysql", "root@tcp(" + addr + ")/test"
		}, 0, "CREATE INDEX"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			url, driver, dsn := test.database(t)
			db, err := sql.Open(driver, dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			exec := func(statement string) {
				t.Helper()
				if _, err := db.Exec(statement); err != nil {
					t.Fatalf("%s: %v", statement, err)
				}
			}
			source := func(code int, args ...string) (stdout, stderr string) {
				t.Helper()
				got, stdout, stderr := run(t, "", append([]string{"source"}, append(args, "--database", url)...)...)
				if got != code {
					t.Fatalf("%q: exit code %d; want %d\n%s%s", args, got, code, stdout, stderr)
				}
				return stdout, stderr
			}

			// A table that does not exist.
			if _, stderr := source(exitUntested, "install", "--table", "nowhere"); !strings.Contains(stderr, "--create") {
				t.Error(stderr)
			}
			if out, _ := source(exitClean, "install", "--create", "--dry-run"); strings.Count(out, "CREATE TABLE publishers") != 1 ||
				strings.Count(out, "CREATE OR REPLACE FUNCTION") != test.triggers {
				t.Error(out)
			}
			if out, _ := source(exitClean, "install", "--create", "--dry-run", "--prefix-column", "digest"); !strings.Contains(out, "digest") ||
				strings.Contains(out, "hash_prefix") {
				t.Error(out)
			}
			source(exitUntested, "install") // the dry run has created nothing
			source(exitClean, "install", "--create")

			// One that a CMS has.
			exec("CREATE TABLE sites (id int, host varchar(253), active bool)")
			exec("INSERT INTO sites VALUES (1, 'www.example.com', true), (2, 'Upper.example', true), (3, 'off.example', false)")
			on := func(table []string, args ...string) []string { return append(args, table...) }
			sites := []string{"--table", "sites", "--domain-column", "host", "--condition", "active IS TRUE"}
			if _, stderr := source(exitUntested, "install", "--table", "sites"); !strings.Contains(stderr,
				"no column domain; it has id, host, active") {
				t.Error(stderr)
			}
			out, stderr := source(exitFindings, on(sites, "install", "--dry-run")...)
			if !strings.Contains(stderr, `"Upper.example" in sites: it is not canonical; want "upper.example"`) {
				t.Error(stderr)
			}
			order := -1 // the fill needs the first index
			for _, want := range []string{"ALTER TABLE sites ADD COLUMN hash_prefix", test.other + " ampcors_sites_host ON sites (host);",
				fillPrefixes, test.other + " ampcors_sites_hash_prefix ON sites (hash_prefix);"} {
				at := strings.Index(out, want)
				if at <= order {
					t.Errorf("%q is not in its place in\n%s", want, out)
				}
				order = at
			}
			out, stderr = source(exitFindings, on(sites, "install")...)
			if !strings.HasPrefix(out, "2 hash prefixes were filled\nsites has what lookups need; made: the column hash_prefix, an index on host, "+
				"an index on hash_prefix") || !strings.Contains(stderr, `"Upper.example" in sites: it is not canonical`) {
				t.Errorf("%s%s", out, stderr)
			}
			exec("UPDATE sites SET host = 'upper.example' WHERE id = 2")
			if out, _ := source(exitClean, on(sites, "install", "--dry-run")...); out != fillPrefixes+";\n" {
				t.Errorf("it has everything, and yet: %s", out)
			}
			out, _ = source(exitClean, on(sites, "fill", "--dry-run")...)
			if out != "3 rows, 1 of them without a hash prefix\n" {
				t.Error(out)
			}
			exec("INSERT INTO sites (id, host, active, hash_prefix) VALUES (4, 'wrong.example', false, 'zzz'), (5, 'UPPER.example', false, 'zzz')")
			if _, stderr := source(exitFindings, on(sites, "fill", "--dry-run")...); !strings.Contains(stderr,
				`"wrong.example" in sites: its hash prefix is "zzz"`) {
				t.Error(stderr)
			}
			if _, stderr := source(exitFindings, on(sites, "fill")...); !strings.Contains(stderr,
				`"wrong.example" in sites: its hash prefix is "zzz"`) ||
				!strings.Contains(stderr, `"UPPER.example" in sites: it is not canonical`) {
				t.Error(stderr)
			}
			exec("DELETE FROM sites WHERE id > 3")
			if _, stderr := source(exitUntested, "install", "--dry-run", "--table", "sites", "--domain-column", "host", "--condition",
				"nonsense = 1"); !strings.Contains(stderr, "nonsense") {
				t.Error(stderr)
			}
			exec("UPDATE sites SET hash_prefix = NULL WHERE id = 2")
			if _, out, stderr := run(t, "", append([]string{"check", emptyConfig(t), "--database", url}, sites...)...); !strings.Contains(out,
				"; 1 row has no hash prefix, and no origin with a hash prefix finds it: ampcors source fill") {
				t.Errorf("%s%s", out, stderr)
			}
			if _, out, _ := run(t, "", append([]string{"explain", "https://v2c4ucasgcskftbjt4c7phpkbqedcdcqo23tkamleapoa5o6fygq.cdn.ampproject.org",
				"--database", url},
				sites...)...); !strings.Contains(out, "Some rows of the table have no hash prefix: ampcors source fill") ||
				!strings.Contains(out, "ampcors check, with the same flags, says whether the row's hash prefix is wrong") {
				t.Error(out)
			}
			if out, _ = source(exitClean, on(sites, "fill")...); out != "1 hash prefix was filled\n" {
				t.Error(out)
			}

			if out, _ := source(exitClean, on(sites, "install")...); !strings.HasSuffix(out, "sites has what lookups need: nothing to do\n") {
				t.Error(out)
			}
			for _, command := range commands { // they have no condition
				args := strings.Fields(command)
				if args[0] == "install" && driver == "pgx" {
					if _, stderr := source(exitUsage, args...); !strings.Contains(stderr, "use the flags of those servers, or --replace") {
						t.Error(stderr)
					}
					args = append(args, "--replace")
				}
				source(exitClean, args...)
			}
			if driver == "pgx" {
				if out, _ := source(exitClean, on(sites, "install", "--replace")...); !strings.Contains(out, "which replace earlier ones") {
					t.Error(out)
				}
				elsewhere := append([]string{"install", "--table", "public.sites"}, sites[2:]...)
				if _, stderr := source(exitUsage, elsewhere...); !strings.Contains(stderr, "use their --table sites, or --replace") {
					t.Error(stderr)
				}
			}
			serveFrom(t, url, sites)

			// A table without hash prefixes, for tenants without AMP.
			exec("CREATE TABLE tenants (host varchar(253)" + map[string]string{"mysql": " CHARACTER SET utf8mb4"}[driver] + ", active bool)")
			exec("INSERT INTO tenants VALUES ('www.example.com', true), ('Grosse.example', true)")
			tenants := []string{"--table", "tenants", "--domain-column", "host", "--condition", "active"}
			config := writeFile(t, filepath.Join(t.TempDir(), "tenants.json"), `{"caches": []}`)
			if _, _, stderr := run(t, "", append([]string{"check", config, "--database", url}, tenants...)...); !strings.Contains(stderr,
				"use --no-prefixes") {
				t.Error(stderr)
			}
			tenants = append(tenants, "--no-prefixes")
			if out, stderr := source(exitFindings, on(tenants, "install")...); strings.Contains(out, "prefix") ||
				!strings.Contains(stderr, `"Grosse.example" in tenants: it is not canonical; want "grosse.example"`) {
				t.Errorf("%s%s", out, stderr)
			}
			if _, stderr := source(exitUntested, on(tenants, "fill")...); !strings.Contains(stderr, "there is nothing to fill") {
				t.Error(stderr)
			}
			if code, out, stderr := run(t, "", append([]string{"check", config, "--database", url}, tenants...)...); code != exitFindings ||
				!strings.Contains(stderr, `the table tenants has 1 row that lookups cannot match as it is: the domain "Grosse.example" in tenants: `+
					`it is not canonical; want "grosse.example"`) {
				t.Errorf("%d, %s%s", code, out, stderr)
			}
			server := serveWith(t, append([]string{"serve-proxy", "--to", okBackend(t), "--config", config, "--database", url, "--metrics",
				"127.0.0.1:0"}, tenants...)...)
			for origin, want := range map[string]int{"https://www.example.com": http.StatusOK, "https://grosse.example": http.StatusForbidden,
				"https://www-example-com.cdn.ampproject.org": http.StatusForbidden} {
				if got := server.ask(t, origin); got != want {
					t.Errorf("%s: %d; want %d", origin, got, want)
				}
			}
			exec("UPDATE tenants SET active = false WHERE host = 'www.example.com'")
			for body, want := range map[string]int{"www.example.com\n": http.StatusOK, "": http.StatusBadRequest, "a b\n": http.StatusBadRequest} {
				resp, err := http.Post("http://"+server.metrics()+"/forget", "text/plain", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				if resp.Body.Close(); resp.StatusCode != want {
					t.Errorf("forget %q: %s", body, resp.Status)
				}
			}
			if got := server.ask(t, "https://www.example.com"); got != http.StatusForbidden {
				t.Errorf("a publisher that was forgotten is allowed: %d", got)
			}
			exec("UPDATE tenants SET active = true WHERE host = 'www.example.com'")
			exec("INSERT INTO tenants VALUES ('off.example', false), ('bücher.example', true)")
			for origin, want := range map[string]string{"https://grosse.example": `has it as "Grosse.example"`,
				"https://off.example": "--condition does not hold", "https://xn--bcher-kva.example": `as "bücher.example", which is not canonical`,
				"https://none.example": ""} {
				code, out, stderr := run(t, "", append([]string{"explain", origin, "--config", config, "--database", url}, tenants...)...)
				if code != exitFindings || !strings.Contains(out, want) || strings.Contains(out, "hint") != (want != "") {
					t.Errorf("%s: %d, %s%s", origin, code, out, stderr)
				}
			}
			for condition, want := range map[string]string{"active = 1": `write "active" in place of "active = 1"`,
				"nonsense": "--condition names it, here nonsense"} {
				if code, _, stderr := run(t, "", "check", config, "--database", url, "--table", "tenants", "--domain-column", "host", "--no-prefixes",
					"--condition", condition); (code == exitClean || !strings.Contains(stderr, want)) && (driver == "pgx" || condition == "nonsense") {
					t.Errorf("%s: %d, %s", condition, code, stderr)
				}
			}
			if _, _, stderr := run(t, "", "check", config, "--database", url, "--table", "nowhere"); !strings.Contains(stderr,
				"--table names the table, here nowhere") {
				t.Error(stderr)
			}
			if driver == "pgx" {
				wrong := serve(t, "--config", emptyConfig(t), "--database", url, "--table", "sites", "--domain-column", "host") // without the condition
				if code := <-wrong.code; code != exitUntested || !strings.Contains(wrong.log.String(), "another condition") {
					t.Errorf("without the condition: exit code %d\n%s", code, wrong.log)
				}
				source(exitClean, "install", "--replace", "--table", "sites", "--domain-column", "host", "--condition", "NOT active")
				source(exitClean, on(sites, "install", "--replace")...)
				exec("DROP INDEX ampcors_sites_host")
				exec("CREATE INDEX CONCURRENTLY ampcors_sites_host ON sites (host)")
				exec("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'ampcors_sites_host'::regclass") // as after an interruption
				source(exitClean, on(sites, "install")...)
				var isValid bool
				err := db.QueryRowContext(t.Context(),
					"SELECT indisvalid FROM pg_index WHERE indexrelid = 'ampcors_sites_host'::regclass").Scan(&isValid)
				if err != nil || !isValid {
					t.Errorf("after an interruption, the index is valid: %t, %v", isValid, err)
				}
				exec("CREATE TABLE parts (domain text, region int) PARTITION BY LIST (region)")
				exec("CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1)")
				source(exitClean, "install", "--table", "parts")
				exec("CREATE VIEW seen AS SELECT * FROM parts")
				if _, stderr := source(exitUntested, "install", "--table", "seen"); !strings.Contains(stderr, "seen is not a table") {
					t.Error(stderr)
				}
			}
		})
	}
}

func emptyConfig(t *testing.T) string {
	return writeFile(t, filepath.Join(t.TempDir(), "config.json"), "{}")
}

// okBackend returns the URL of a backend that answers 200.
func okBackend(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(s.Close)
	return s.URL
}

// serveFrom asks a server that looks up publishers in the table of TestSourceInstallAndFill.
func serveFrom(t *testing.T, url string, sites []string) {
	config := writeFile(t, filepath.Join(t.TempDir(), "config.json"), `{"source": {"ttl": "1m", "timeout": "1m"}}`)
	for args, want := range map[string]int{"--with-database": exitClean, "--with-database=false": exitFindings} {
		if code, _, stderr := run(t, "", "check", args, config); code != want {
			t.Errorf("check %s: exit code %d, %s", args, code, stderr)
		}
	}
	if code, stdout, stderr := run(t, "", append([]string{"check", "--database", url, config}, sites...)...); code != exitClean ||
		!regexp.MustCompile(
			`publishers are looked up in the table sites( \(of the schema public\))?; it has publishers; it `).MatchString(stdout) {
		t.Errorf("check with the database: exit code %d, %s%s", code, stdout, stderr)
	}
	if code, _, stderr := run(t, "", "check", "--database", url, "--table", "nowhere", config); code != exitUntested {
		t.Errorf("check of a table that is not there: exit code %d, %s", code, stderr)
	}
	for publisher, want := range map[string]int{"www.example.com": exitClean, "off.example": exitFindings} {
		code, stdout, stderr := run(t, "", append([]string{"explain", "--config", config, "--database", url, "https://" + publisher},
			sites...)...)
		if code != want || strings.Contains(stdout, "Known to the Source") != (want == exitClean) {
			t.Errorf("explain %s: exit code %d, %s%s", publisher, code, stdout, stderr)
		}
	}
	writeFile(t, config, `{"publishers": ["listed.example"], "source": {"ttl": "1m", "timeout": "1m"}}`)
	server := serve(t, append(sites, "--config", config, "--database", url)...)
	for publisher, want := range map[string]int{"listed.example": http.StatusOK, "www.example.com": http.StatusOK,
		"upper.example": http.StatusOK, "off.example": http.StatusForbidden, "other.example": http.StatusForbidden} {
		for _, prefix := range []func(string) (string, error){cacheurl.DomainPrefix, cacheurl.HashPrefix} {
			p, err := prefix(publisher)
			if err != nil {
				t.Fatal(err)
			}
			if got := server.ask(t, "https://"+p+".cdn.ampproject.org"); got != want {
				t.Errorf("%s as %s: %d; want %d\n%s", publisher, p, got, want, server.log)
			}
		}
	}
}

// Whatever is wrong with the database's URL, no output has the password.
func TestNoOutputHasThePasswordOfTheDatabase(t *testing.T) {
	config := writeFile(t, filepath.Join(t.TempDir(), "config.json"), `{"publishers": ["www.example.com"]}`)
	for _, url := range append(servertest.WrongConnStrings(), "mysql://u:s3cret@127.0.0.1:x/db", "mysql://u:1/s3cret@127.0.0.1:1/db",
		"mysql://u@127.0.0.1:1/?s3cret", "mysql://u:s3cret@127.0.0.1:1/db") {
		for _, args := range [][]string{{"check", config}, {"explain", "--config", config, "https://a.example"}, {"source", "install"},
			{"source", "fill"}, {"serve-authz", "--proxy", "nginx", "--config", config, "--listen", "127.0.0.1:99999"}} {
			t.Setenv(databaseEnv, "")
			code, stdout, stderr := run(t, "", append(args, "--database", url)...)
			t.Setenv(databaseEnv, url)
			ofEnv, more, errs := run(t, "", args...)
			if code == exitClean || ofEnv != code || strings.Contains(stdout+stderr+more+errs, servertest.Secret) {
				t.Errorf("%q of %q: exit codes %d and %d\n%s%s%s%s", args, url, code, ofEnv, stdout, stderr, more, errs)
			}
		}
	}
}

func TestSourceReportsWhatIsWrong(t *testing.T) {
	t.Parallel()
	closed := servertest.FreeAddress(t)
	for _, test := range []struct {
		args []string
		code int
		err  string
	}{
		{[]string{"install", "--database", "postgres://u:secret@h:x/"}, exitUsage, "the database's address"},
		{[]string{"install", "--database", "mysql://u:secret@h:x/"}, exitUsage, "cannot be parsed"},
		{[]string{"fill", "--database", "mysql://u@h/x?secret"}, exitUsage, "unknown parameter"},
		{[]string{"fill", "--database", "mysql://u:12?secret@h/x"}, exitUsage, "%40 for @"},
		{[]string{"install", "--database", "postgres://u:12@secret@h/x"}, exitUsage, "%40 for @"},
		{[]string{"install", "--database", "postgres://u:12/secret@h/x"}, exitUsage, "%40 for @"},
		{[]string{"install", "--database", "postgres://u:12#secret@h/x"}, exitUsage, "%40 for @"},
		{[]string{"fill", "--database", "mysql://u:secret@h/?tls=nonsense"}, exitUsage, "nonsense"},
		{[]string{"fill", "--database", "postgres://h/", "--table", "a;b"}, exitUsage, `"a;b" is not a name`},
		{[]string{"fill", "--database", "postgres://u:secret@" + closed + "/x"}, exitUntested, "refused"},
		{[]string{"install", "--create", "--dry-run", "--database", "mysql://u:secret@" + closed + "/x"}, exitUntested, "refused"},
	} {
		code, stdout, stderr := run(t, "", append([]string{"source"}, test.args...)...)
		if code != test.code || !strings.Contains(stderr, test.err) || strings.Contains(stdout+stderr, "secret") {
			t.Errorf("%q: exit code %d; want %d\n%s%s", test.args, code, test.code, stdout, stderr)
		}
	}
}

// A server whose sessions begin without autocommit would answer each lookup from the snapshot of the first one.
func TestALookupLeavesNoTransactionOpen(t *testing.T) {
	t.Parallel()
	addr := servertest.MariaDB(t).Addr
	admin, err := sql.Open("mysql", "root@tcp("+addr+")/test?autocommit=1")
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for _, statement := range []string{"SET GLOBAL autocommit = 0",
		"CREATE TABLE publishers (domain varchar(253) CHARACTER SET ascii PRIMARY KEY, hash_prefix char(52))",
		"INSERT INTO publishers (domain) VALUES ('www.example.com')"} {
		if _, err := admin.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	d := &database{url: "mysql://root@" + addr + "/test"}
	ours, err := d.mysql()
	if err != nil {
		t.Fatal(err)
	}
	plain, err := sql.Open("mysql", "root@tcp("+addr+")/test")
	if err != nil {
		t.Fatal(err)
	}
	for db, works := range map[*sql.DB]bool{ours: true, plain: false} {
		defer db.Close()
		db.SetMaxOpenConns(1)
		table, err := sqlsource.New(db, sqlsource.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := table.Ping(t.Context()); (err == nil) != works || err != nil && !strings.Contains(err.Error(), "autocommit=0") {
			t.Errorf("Ping: %v", err)
		}
	}
	table, err := sqlsource.New(ours, sqlsource.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"www.example.com", ""} {
		if got, err := table.Database().PublisherByDomain(t.Context(), "www.example.com"); got != want || err != nil {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
		if _, err := admin.Exec("DELETE FROM publishers"); err != nil {
			t.Fatal(err)
		}
	}
}

// After a switchover behind a proxy, the old server has read_only. Connections to it are not used any longer than others are, and
// none is made.
func TestAReadOnlyServerIsNotAsked(t *testing.T) {
	t.Parallel()
	servers := []string{servertest.MariaDB(t).Addr, servertest.MariaDB(t).Addr}
	var admins []*sql.DB
	for _, addr := range servers {
		admin, err := sql.Open("mysql", "root@tcp("+addr+")/test?multiStatements=true")
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		if _, err := admin.Exec("CREATE TABLE publishers (domain varchar(253) CHARACTER SET ascii PRIMARY KEY, hash_prefix char(52)); " +
			"INSERT INTO publishers (domain) VALUES ('www.example.com')"); err != nil {
			t.Fatal(err)
		}
		admins = append(admins, admin)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var primary atomic.Int32
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", servers[primary.Load()])
			if err != nil {
				near.Close()
				return
			}
			go func() { _, _ = io.Copy(far, near); far.Close() }()
			go func() { _, _ = io.Copy(near, far); near.Close() }()
		}
	}()
	d := &database{url: "mysql://root@" + listener.Addr().String() + "/test"}
	db, err := d.mysql()
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	table, err := sqlsource.New(db, sqlsource.Config{})
	if err != nil {
		t.Fatal(err)
	}
	lookup := func() (string, error) { return table.Database().PublisherByDomain(t.Context(), "www.example.com") }
	if got, err := lookup(); got != "www.example.com" || err != nil {
		t.Fatal(got, err)
	}
	if _, err := admins[0].Exec("SET GLOBAL read_only = 1"); err != nil {
		t.Fatal(err)
	}
	if _, err := admins[1].Exec("DELETE FROM publishers"); err != nil {
		t.Fatal(err)
	}
	db.SetConnMaxLifetime(time.Nanosecond) // a minute is over
	// The proxy still leads to the old server.
	if got, err := lookup(); err == nil || !strings.Contains(err.Error(), "read_only") {
		t.Errorf("%q, %v", got, err)
	}
	config := writeFile(t, filepath.Join(t.TempDir(), "config.json"), "{}")
	if code, _, stderr := run(t, "", "check", config, "--database", d.url); code != exitUntested || !strings.Contains(stderr, "read_only") {
		t.Errorf("%d %s", code, stderr)
	}
	primary.Store(1)
	if got, err := lookup(); got != "" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// openPostgres starts PostgreSQL, and returns its connection string and a pool.
func openPostgres(t *testing.T) (dsn string, db *sql.DB) {
	t.Helper()
	dsn = servertest.DSN(servertest.Postgres(t).Addr)
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return dsn, db
}

// PostgreSQL pads a char(60) with spaces, so that no lookup finds a domain in it.
func TestInstallRejectsAColumnThatPads(t *testing.T) {
	t.Parallel()
	dsn, db := openPostgres(t)
	for kind, want := range map[string]int{"char(60)": exitUntested, "varchar(60)": exitClean} {
		if _, err := db.Exec("DROP TABLE IF EXISTS sites; CREATE TABLE sites (host " + kind + ")"); err != nil {
			t.Fatal(err)
		}
		code, _, stderr := run(t, "", "source", "install", "--table", "sites", "--domain-column", "host", "--database", dsn)
		if code != want || want != exitClean && !strings.Contains(stderr, "has the type character(60), which adds spaces") {
			t.Errorf("%s: %d %s", kind, code, stderr)
		}
	}
}

// check names the rows that no lookup can match.
func TestCheckFindsRowsThatNoLookupMatches(t *testing.T) {
	t.Parallel()
	dsn, db := openPostgres(t)
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--table", "sites", "--condition", "active", "--database", dsn}
	if _, err := db.Exec("CREATE TABLE sites (domain text, hash_prefix text, active boolean DEFAULT true)"); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := run(t, "", append([]string{"source", "install"}, flags...)...); code != exitClean {
		t.Fatal(stderr)
	}
	own, _ := cacheurl.HashPrefix("www.example.com")
	for _, test := range []struct {
		domain, prefix, want string
	}{
		{"www.example.com", own, ""},
		{"www.example.com", "", ""}, // NULL
		{"Upper.example", "", `"Upper.example" in sites: it is not canonical; want "upper.example"`},
		{"bücher.example", "", `want "xn--bcher-kva.example"`},
		{"www.example.com", "wrong", `its hash prefix is "wrong"`},
		{"not a domain", "", "not a domain"},
	} {
		if _, err := db.Exec("TRUNCATE sites"); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec("INSERT INTO sites VALUES ($1, NULLIF($2, ''), true), ('not one either', NULL, false)", test.domain,
			test.prefix); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := run(t, "", append([]string{"check", file}, flags...)...)
		want := exitClean
		if test.want != "" {
			want = exitFindings
		}
		if code != want || !strings.Contains(stderr, test.want) || test.want != "" && !strings.Contains(stderr, "1 row that lookups cannot "+
			"match") {
			t.Errorf("%+v: %d %s%s", test, code, stdout, stderr)
		}
	}
}
