package e2e

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/redissource"
	"github.com/ampcors/ampcors/source/sqlsource"
)

// storedRows are domains as careless programs store them. No row but the last two is canonical.
var storedRows = []string{"bücher.example", "straße.example", "ｗide.example", "cafe\u200d.example", "blank.example ", "dotted.example.",
	"Shop.example", "own.example", "www.example.com"}

// asked are the domains that the rows may be taken for.
var asked = []struct {
	domain string
	isRow  bool // a row has this domain, in some spelling
}{
	{domain: "bucher.example"},
	{domain: "strasse.example"},
	{domain: "strase.example"},
	{domain: "wide.example"},
	{domain: "cafe.example"},
	{domain: "blank.example"},  // the row is no domain
	{domain: "dotted.example"}, // the row is no domain
	{domain: "0wn.example"},
	{domain: "evil.example"},
	{domain: "shop.example", isRow: true},
	{domain: "own.example", isRow: true},
	{domain: "www.example.com", isRow: true},
	{domain: "xn--bcher-kva.example", isRow: true}, // a database does not find it in Unicode
}

// TestADatabasesEqualityLetsNobodyIn: to many collations, domains are equal that belong to different people. Neither a callback
// that returns the stored domain nor package sqlsource lets another domain in, whatever the database finds.
func TestADatabasesEqualityLetsNobodyIn(t *testing.T) {
	mariadb := servertest.MariaDB(t).Addr
	postgres := servertest.DSN(servertest.Postgres(t).Addr)
	mysql := func(collation string) (string, string, []string) {
		return "mysql", mariaDSN(mariadb) + "?collation=utf8mb4_general_ci", []string{"DROP TABLE IF EXISTS tenants",
			"CREATE TABLE tenants (domain varchar(190) CHARACTER SET utf8mb4 COLLATE " + collation + ", hash_prefix char(52))"}
	}
	for _, test := range []struct {
		name  string
		open  func() (driver, dsn string, prepare []string)
		taken []string // the domains for which the database finds another one's row, or one that is no domain
		finds []string // the rows' own domains that it finds
	}{
		{name: "MariaDB utf8mb4_general_ci", open: func() (string, string, []string) { return mysql("utf8mb4_general_ci") },
			taken: []string{"bucher.example", "strase.example", "blank.example"}, finds: []string{"shop.example"}},
		{name: "MariaDB utf8mb4_unicode_ci", open: func() (string, string, []string) { return mysql("utf8mb4_unicode_ci") },
			taken: []string{"bucher.example", "strasse.example", "wide.example", "cafe.example", "blank.example"}, finds: []string{"shop.example"}},
		{name: "MariaDB utf8mb4_uca1400_ai_ci", open: func() (string, string, []string) { return mysql("utf8mb4_uca1400_ai_ci") },
			taken: []string{"bucher.example", "strasse.example", "wide.example", "cafe.example", "blank.example"}, finds: []string{"shop.example"}},
		{name: "PostgreSQL, nondeterministic ICU", open: func() (string, string, []string) {
			return "pgx", postgres, []string{"CREATE COLLATION alike (provider = icu, locale = 'und-u-ks-level1', deterministic = false)",
				"CREATE TABLE tenants (domain text COLLATE alike, hash_prefix text)"}
		}, taken: []string{"bucher.example", "strasse.example", "wide.example", "cafe.example"}, finds: []string{"shop.example"}},
		{name: "PostgreSQL citext", open: func() (string, string, []string) {
			return "pgx", postgres, []string{"DROP TABLE tenants", "CREATE EXTENSION citext",
				"CREATE TABLE tenants (domain citext, hash_prefix text)"}
		}, finds: []string{"shop.example"}},
		{name: "SQLite NOCASE", open: func() (string, string, []string) {
			return "sqlite", "file:" + filepath.Join(t.TempDir(), "tenants.db"),
				[]string{"CREATE TABLE tenants (domain text COLLATE NOCASE, hash_prefix text)"}
		}, finds: []string{"shop.example"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			driver, dsn, prepare := test.open()
			db := open(t, driver, dsn)
			placeholder := "?"
			if driver == "pgx" {
				placeholder = "$1"
			}
			for _, statement := range prepare {
				if _, err := db.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			for _, row := range storedRows {
				if _, err := db.ExecContext(t.Context(), "INSERT INTO tenants (domain) VALUES ("+placeholder+")", row); err != nil {
					t.Fatal(err)
				}
			}
			callback := func(ctx context.Context, domain string) (stored string, err error) {
				err = db.QueryRowContext(ctx, "SELECT domain FROM tenants WHERE domain = "+placeholder, domain).Scan(&stored)
				if errors.Is(err, sql.ErrNoRows) {
					return "", nil
				}
				return stored, err
			}
			// The database does take one domain for another: otherwise the rest would prove nothing.
			for _, domain := range append(test.taken, test.finds...) {
				if stored, err := callback(t.Context(), domain); stored == "" || stored == domain || err != nil {
					t.Errorf("the database finds %q for %q, %v", stored, domain, err)
				}
			}
			found := append(test.finds, "own.example", "www.example.com")
			expectAllowed(t, "a callback", source.Database{PublisherByDomain: callback}, found)

			table, err := sqlsource.New(db, sqlsource.Config{Table: "tenants"})
			if err != nil {
				t.Fatal(err)
			}
			expectAllowed(t, "sqlsource", table.Database(), []string{"own.example", "www.example.com"})
			// What no lookup of sqlsource finds is said, with what it should be.
			filled, err := table.FillPrefixes(t.Context(), nil)
			if filled != 2 || err == nil || strings.Count(err.Error(), "\n") != len(storedRows)-3 ||
				!strings.Contains(err.Error(), `want "xn--bcher-kva.example"`) {
				t.Errorf("FillPrefixes: %d, %v", filled, err)
			}
			expectAllowed(t, "sqlsource after FillPrefixes", table.Database(), []string{"own.example", "www.example.com"})
		})
	}
	t.Run("Redis", func(t *testing.T) {
		redis := servertest.Redis(t)
		store, err := redissource.New(redissource.Config{Redis: rueidis.ClientOption{InitAddress: []string{redis.Addr}}})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		for _, row := range storedRows {
			if _, err := servertest.RedisDo(redis.Addr, "SET", "ampcors:publisher:"+row, "1"); err != nil {
				t.Fatal(err)
			}
		}
		expectAllowed(t, "redissource", store.Database(), []string{"own.example", "www.example.com"})
	})
}

// TestTheCallbackOfTheREADMEIsTheOneThatIsTested compares the lines of both.
func TestTheCallbackOfTheREADMEIsTheOneThatIsTested(t *testing.T) {
	readme, err := os.ReadFile("../../source/README.md")
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile("equality_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(readme), "```go\nPublisherByDomain: func")
	block, _, _ = strings.Cut(block, "\n},\n```")
	_, block, ok := strings.Cut(block, "\n")
	if !ok || strings.Count(block, "\n") != 4 {
		t.Fatalf("the callback in the README is %q", block)
	}
	for line := range strings.Lines(strings.Replace(block, `= ?"`, `= "+placeholder`, 1)) {
		if !strings.Contains(string(own), "\t"+strings.TrimSpace(line)+"\n") {
			t.Errorf("the test does not have this line of the README: %s", line)
		}
	}
}

// expectAllowed checks that, of the domains in asked, those in want get in, by each kind of origin.
func expectAllowed(t *testing.T, name string, database source.Database, want []string) {
	t.Helper()
	mw := servertest.Middleware(t, database, source.Config{})
	for _, a := range asked {
		wanted := strings.Contains(" "+strings.Join(want, " ")+" ", " "+a.domain+" ")
		d := mw.CheckOrigin("https://" + a.domain)
		if d.Allowed && (!a.isRow || d.Publisher != a.domain) || d.Allowed != wanted {
			t.Errorf("%s: %s: %+v; want it allowed: %t", name, a.domain, d, wanted)
		}
		if d = mw.CheckOrigin(hashOrigin(t, a.domain)); d.Allowed && (!a.isRow || d.Publisher != a.domain) {
			t.Errorf("%s: the hash prefix of %s: %+v", name, a.domain, d)
		}
	}
}
