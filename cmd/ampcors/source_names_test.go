package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ampcors/ampcors/internal/servertest"
)

// Names that the database has in quotes work in each command, and without the quotes the error says how they are written.
func TestNamesInQuotes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		quote    string
		database func(t *testing.T) (url, driver, dsn string)
	}{
		"PostgreSQL": {`"`, func(t *testing.T) (string, string, string) {
			dsn := servertest.DSN(servertest.Postgres(t).Addr)
			return dsn, "pgx", dsn
		}},
		"MariaDB": {"`", func(t *testing.T) (string, string, string) {
			addr := servertest.MariaDB(t).Addr
			return "mysql://root@" + addr + "/test", "mysql", "root@tcp(" + addr + ")/test"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, driver, dsn := test.database(t)
			db, err := sql.Open(driver, dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			exec := func(statement string) {
				t.Helper()
				if _, err := db.Exec(strings.NewReplacer("'", test.quote, "~", "'").Replace(statement)); err != nil {
					t.Fatal(err)
				}
			}
			config := filepath.Join(t.TempDir(), "config.json")
			if err := os.WriteFile(config, []byte("{}"), 0o600); err != nil {
				t.Fatal(err)
			}
			do := func(want int, text string, args ...string) {
				t.Helper()
				code, stdout, stderr := run(t, "", append(args, "--database", url)...)
				if code != want || !strings.Contains(stdout+stderr, text) {
					t.Errorf("%q: %d; want %d and %q\n%s%s", args, code, want, text, stdout, stderr)
				}
			}
			for _, names := range [][2]string{{"'Tenant'", "'customDomain'"}, {"'my-sites'", "'the host'"}} {
				table, column := strings.ReplaceAll(names[0], "'", test.quote), strings.ReplaceAll(names[1], "'", test.quote)
				exec(fmt.Sprintf("CREATE TABLE %s (%s varchar(253), active int)", names[0], names[1]))
				exec(fmt.Sprintf("INSERT INTO %s VALUES (~www.example.com~, 1)", names[0]))
				flags := []string{"--table", table, "--domain-column", column, "--condition", "active = 1"}
				do(exitClean, "CREATE INDEX", append([]string{"source", "install", "--dry-run"}, flags...)...)
				do(exitClean, "made: ", append([]string{"source", "install"}, flags...)...)
				do(exitClean, "nothing to do", append([]string{"source", "install"}, flags...)...)
				do(exitClean, "no hash prefix was missing", append([]string{"source", "fill"}, flags...)...)
				do(exitClean, "it has publishers", append([]string{"check", config}, flags...)...)
				do(exitClean, "it does not report changes", append([]string{"check", config, "--no-triggers"}, flags...)...)
				do(exitClean, "allow", append([]string{"explain", "https://www.example.com"}, flags...)...)
				do(exitClean, "allow", append([]string{"explain", "https://www.example.com", "--no-triggers"}, flags...)...)
				do(exitClean, "no hash prefix was missing", append([]string{"source", "fill", "--no-triggers"}, flags...)...)
				if test.quote == `"` {
					do(exitClean, "it reports changes at once", append([]string{"check", config}, flags...)...)
					do(exitClean, "nothing to do", append([]string{"source", "install", "--no-triggers"}, flags...)...)
				}
			}
			if test.quote == "`" {
				do(exitUsage, "is not a name", "source", "install", "--table", `"Tenant"`)
				return
			}
			do(exitUntested, `want --table '"Tenant"'`, "source", "install", "--table", "Tenant", "--create")
			do(exitUntested, `it has "customDomain", active, hash_prefix`, "source", "install", "--table", `"Tenant"`, "--domain-column",
				"customDomain")
			do(exitUntested, `write it in quotes, '"Tenant"'`, "check", config, "--table", "Tenant")
			do(exitUntested, `write it in quotes, '"customDomain"'`, "check", config, "--table", `"Tenant"`, "--domain-column", "customDomain")
			exec("CREATE SCHEMA 'Cms'; CREATE TABLE 'Cms'.sites (domain text); CREATE VIEW live AS SELECT * FROM 'Cms'.sites")
			do(exitUntested, `want --table '"Cms".sites'`, "source", "install", "--table", "sites")
			do(exitClean, "made: ", "source", "install", "--table", `"Cms".sites`)
			do(exitClean, "it reports changes at once", "check", config, "--table", `"Cms".sites`)
			do(exitUntested, "live is not a table", "source", "install", "--table", "live")
			do(exitClean, "live has what lookups need", "source", "install", "--table", "live", "--no-prefixes", "--no-triggers")
			exec("CREATE TABLE other (domain text, 'hashPrefix' text)")
			do(exitUntested, `want --prefix-column '"hashPrefix"'`, "source", "install", "--table", "other", "--prefix-column", "hashPrefix")
			do(exitUsage, `use their --table '"Tenant"', or --replace`, "source", "install", "--table", `public."Tenant"`, "--domain-column",
				`"customDomain"`, "--condition", "active = 1")
			do(exitClean, "made: the table", "source", "install", "--table", "sites", "--create") // beside that of another schema
			do(exitClean, "in the table sites (of the schema public; there is one in Cms too)", "check", config, "--table", "sites")
			exec("DROP TABLE sites")
			do(exitUntested, "ampcors source install", "check", config, "--table", "live", "--no-prefixes")
			do(exitClean, "it does not report changes", "check", config, "--table", "live", "--no-prefixes", "--no-triggers")
			exec("CREATE ROLE server LOGIN; GRANT USAGE ON SCHEMA 'Cms' TO server; GRANT SELECT ON 'Cms'.sites TO server; ALTER TABLE 'Cms'.sites " +
				"ENABLE ROW LEVEL SECURITY")
			url = strings.Replace(url, "://ampcors@", "://server@", 1)
			do(exitUntested, "row-level security may hide rows", "check", config, "--table", `"Cms".sites`, "--no-triggers")
			do(exitUntested, "row-level security may hide rows", "check", config, "--table", `"Cms".sites`)
		})
	}
}

// A pattern in a table counts if the configuration file says so, and check and explain say it.
func TestPatternsInATable(t *testing.T) {
	t.Parallel()
	dsn, db := openPostgres(t)
	exec := func(statement string) {
		t.Helper()
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE TABLE publishers (domain text, hash_prefix text); INSERT INTO publishers VALUES ('*.acme.example'), ('www.example.com')")
	folder := t.TempDir()
	without := writeFile(t, filepath.Join(folder, "without.json"), "{}")
	with := writeFile(t, filepath.Join(folder, "with.json"), `{"source": {"patterns": true}}`)
	do := func(want int, text string, args ...string) {
		t.Helper()
		code, stdout, stderr := run(t, "", append(args, "--database", dsn)...)
		if code != want || !strings.Contains(stdout+stderr, text) {
			t.Errorf("%q: %d; want %d and %q\n%s%s", args, code, want, text, stdout, stderr)
		}
	}
	do(exitClean, "1 hash prefix was filled", "source", "install")
	do(exitClean, "no hash prefix was missing", "source", "fill")
	do(exitFindings, `a pattern counts only if the configuration file has "source": {"patterns": true}`, "check", without)
	do(exitClean, "it has publishers; it reports", "check", with)
	do(exitClean, "Matched by *.acme.example, which the Source knows.", "explain", "--config", with, "https://www.acme.example")
	do(exitFindings, `has "*.acme.example", which matches nothing: a pattern counts only if`, "explain", "--config", without,
		"https://www.acme.example")
	for pattern, want := range map[string]string{"*.ACME.example": `not canonical; want "*.acme.example"`, "*.co.uk": "over a public suffix",
		"*.*.example.com":        "the domain after *. ",
		"*.e.d.c.b.acme.example": "more than 3 labels", "*acme.example": "does not stand alone"} {
		exec("UPDATE publishers SET domain = '" + pattern + "' WHERE domain LIKE '*%'")
		do(exitFindings, want, "check", with)
		do(exitFindings, want, "source", "install")
	}
}

// Two rows with one domain are one problem.
func TestARowIsNamedOnce(t *testing.T) {
	t.Parallel()
	dsn, db := openPostgres(t)
	if _, err := db.Exec("CREATE TABLE publishers (domain text, hash_prefix text UNIQUE); INSERT INTO publishers VALUES ('a.example'), " +
		"('a.example'), ('b.example')"); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := run(t, "", "source", "install", "--database", dsn)
	if code != exitFindings || strings.Count(stderr, `"a.example"`) != 1 {
		t.Errorf("%d %s%s", code, stdout, stderr)
	}
}

// While the table is locked, each lookup fails. The server's log says so once, and when it is over.
func TestAnOutageIsInTheServersLog(t *testing.T) {
	t.Parallel()
	dsn, db := openPostgres(t)
	if code, _, stderr := run(t, "", "source", "install", "--create", "--database", dsn); code != exitClean {
		t.Fatal(stderr)
	}
	server := serveWith(t, "serve-proxy", "--to", okBackend(t), "--config", emptyConfig(t), "--database", dsn, "--log-format", "json")
	server.within(t, "it looks up", func() bool { return strings.Contains(server.log.String(), "publishers are looked up") })
	lock, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec("LOCK TABLE publishers IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	i := 0
	says := func(message string) func() bool {
		return func() bool {
			i++
			req, err := http.NewRequest(http.MethodGet, server.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Origin", fmt.Sprintf("https://n%d.example", i))
			if resp, err := http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
			}
			return strings.Contains(server.log.String(), message)
		}
	}
	server.within(t, "it says that lookups fail", says(`"level":"ERROR","msg":"ampcors: lookups of publishers fail`))
	if err := lock.Rollback(); err != nil {
		t.Fatal(err)
	}
	server.within(t, "it says that they work again", says(`"level":"INFO","msg":"ampcors: lookups of publishers work again"`))
	if log := server.log.String(); strings.Count(log, "lookups of publishers fail") != 1 || strings.Contains(log, "the backend sent more") {
		t.Error(log)
	}
}
