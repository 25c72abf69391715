package e2e

import (
	"database/sql"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/sqlsource"
)

// TestSQLSourceOnEachDatabase creates the table as the documentation of sqlsource says for the
// database, and looks up publishers in it.
func TestSQLSourceOnEachDatabase(t *testing.T) {
	for database, connect := range map[string]func(*testing.T) *sql.DB{
		"PostgreSQL":        func(t *testing.T) *sql.DB { return open(t, "pgx", servertest.DSN(servertest.Postgres(t).Addr)) },
		"MySQL and MariaDB": func(t *testing.T) *sql.DB { return open(t, "mysql", mariaDSN(servertest.MariaDB(t).Addr)) },
		"SQLite": func(t *testing.T) *sql.DB {
			return open(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "publishers.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
		},
	} {
		t.Run(database, func(t *testing.T) {
			ctx := t.Context()
			db := connect(t)
			table, err := sqlsource.New(db, sqlsource.Config{})
			if err != nil {
				t.Fatal(err)
			}
			if err := table.Ping(ctx); err == nil {
				t.Error("Ping reports no error although there is no table")
			}
			if _, err := db.ExecContext(ctx, documentedTable(t, database)); err != nil {
				t.Fatal(err)
			}
			if err := table.Ping(ctx); err != nil {
				t.Fatal(err)
			}
			for _, domain := range []string{"www.example.com", "xn--bcher-kva.example", "a_b.example"} {
				insert := "INSERT INTO publishers (domain) VALUES ('" + domain + "')"
				if _, err := db.ExecContext(ctx, insert); err != nil {
					t.Fatal(err)
				}
			}
			if filled, err := table.FillPrefixes(ctx, nil); filled != 3 || err != nil {
				t.Fatalf("FillPrefixes: %d, %v; want 3", filled, err)
			}
			mw := servertest.Middleware(t, table.Database(), source.Config{})
			for origin, want := range map[string]ampcors.Reason{
				"https://www-example-com.cdn.ampproject.org":       ampcors.ReasonCacheOrigin,
				"https://www.xn--bcher-kva.example":                ampcors.ReasonUnknownHost,
				"https://xn--bcher-kva.example":                    ampcors.ReasonOwnOrigin,
				"https://axb.example":                              ampcors.ReasonUnknownHost, // "_" is not a wildcard
				"https://evil-example.cdn.ampproject.org":          ampcors.ReasonPublisherNotAllowed,
				hashOrigin(t, "www.example.com"):                   ampcors.ReasonCacheOriginHash,
				hashOrigin(t, "evil.example"):                      ampcors.ReasonHashNotKnown,
				"https://xn--bcher-example-wob.cdn.ampproject.org": ampcors.ReasonCacheOrigin,
			} {
				if d := mw.CheckOrigin(origin); d.Reason != want {
					t.Errorf("%s: %s, %v; want %s", origin, d.Reason, d.SourceErr, want)
				}
			}
			// Names that are equal only in some collations must not be found.
			for _, other := range []string{"WWW.EXAMPLE.COM", "www.example.com "} {
				if found, err := table.Database().PublisherByDomain(ctx, other); err != nil || found != "" {
					t.Errorf("%q: found %q, %v", other, found, err)
				}
			}
			var domain string
			err = db.QueryRowContext(ctx, "SELECT domain FROM publishers WHERE domain = 'WWW.example.com'").Scan(&domain)
			if err != sql.ErrNoRows {
				t.Errorf("the column folds case: it has %q, %v", domain, err)
			}
		})
	}
}

func open(t *testing.T, driver, name string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func hashOrigin(t *testing.T, domain string) string {
	t.Helper()
	prefix, err := cacheurl.HashPrefix(domain)
	if err != nil {
		t.Fatal(err)
	}
	return "https://" + prefix + ".cdn.ampproject.org"
}

// documentedTable returns the CREATE TABLE statement for a database in sqlsource's documentation.
func documentedTable(t *testing.T, database string) string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "../../source/sqlsource/sqlsource.go", nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(f.Doc.Text(), "\nIn "+database)
	_, after, ok2 := strings.Cut(after, "\tCREATE TABLE ")
	statement, _, ok3 := strings.Cut(after, ";")
	if !ok || !ok2 || !ok3 {
		t.Fatalf("sqlsource documents no table for %s", database)
	}
	return "CREATE TABLE " + statement
}
