package sqlsource

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ampcors/ampcors/cacheurl"
)

// A fake is a database with preset answers. It records the statements.
// The tests in the module e2e use PostgreSQL, MariaDB and SQLite.
type fake struct {
	rows       []string // of one column
	err        error    // of Query and Exec
	rowsErr    error    // after the rows
	statements []string
	args       [][]driver.NamedValue
}

func (f *fake) Connect(context.Context) (driver.Conn, error) { return f, nil }
func (f *fake) Driver() driver.Driver                        { return nil }
func (f *fake) Prepare(string) (driver.Stmt, error)          { return nil, errors.New("not used") }
func (f *fake) Begin() (driver.Tx, error)                    { return nil, errors.New("not used") }
func (f *fake) Close() error                                 { return nil }

func (f *fake) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	f.statements, f.args = append(f.statements, query), append(f.args, args)
	return &fakeRows{f.rows, f.rowsErr}, f.err
}

func (f *fake) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	f.statements, f.args = append(f.statements, query), append(f.args, args)
	return driver.RowsAffected(len(args) / 3), f.err
}

type fakeRows struct {
	left []string
	err  error
}

func (r *fakeRows) Columns() []string { return []string{"domain"} }
func (r *fakeRows) Close() error      { return nil }
func (r *fakeRows) Next(dest []driver.Value) error {
	if len(r.left) == 0 {
		if r.err != nil {
			return r.err
		}
		return io.EOF
	}
	if dest[0] = r.left[0]; r.left[0] == "NULL" {
		dest[0] = nil
	}
	r.left = r.left[1:]
	return nil
}

// Fake returns a database for the examples, which use only the exported API.
func Fake(rows ...string) driver.Connector { return &fake{rows: rows} }

func newFake(t *testing.T, table Config) (*fake, *Table) {
	t.Helper()
	f := new(fake)
	db := sql.OpenDB(f)
	t.Cleanup(func() { db.Close() })
	s, err := New(db, table)
	if err != nil {
		t.Fatal(err)
	}
	return f, s
}

func TestStatementsUseTheConfig(t *testing.T) {
	for _, test := range []struct {
		table                      Config
		byDomain, byPrefix, update string
	}{
		{table: Config{},
			byDomain: "SELECT domain FROM publishers WHERE domain = $1",
			byPrefix: "SELECT domain FROM publishers WHERE hash_prefix = $1",
			update: "UPDATE publishers SET hash_prefix = CASE domain WHEN $1 THEN $2 WHEN $3 THEN $4 END WHERE hash_prefix IS NULL AND domain " +
				"IN ($5, $6)"},
		{table: Config{Table: "cms.sites", DomainColumn: "host", PrefixColumn: "amp_hash", Condition: "active OR plan = 'paid'",
			Placeholder: "?"},
			byDomain: "SELECT host FROM cms.sites WHERE host = ? AND (active OR plan = 'paid'\n)",
			byPrefix: "SELECT host FROM cms.sites WHERE amp_hash = ? AND (active OR plan = 'paid'\n)",
			update:   "UPDATE cms.sites SET amp_hash = CASE host WHEN ? THEN ? WHEN ? THEN ? END WHERE amp_hash IS NULL AND host IN (?, ?)"},
		{table: Config{Placeholder: "@p1"},
			byDomain: "SELECT domain FROM publishers WHERE domain = @p1",
			byPrefix: "SELECT domain FROM publishers WHERE hash_prefix = @p1",
			update: "UPDATE publishers SET hash_prefix = CASE domain WHEN @p1 THEN @p2 WHEN @p3 THEN @p4 END WHERE hash_prefix IS NULL AND " +
				"domain IN (@p5, @p6)"},
	} {
		t.Run(test.byDomain, func(t *testing.T) {
			f, s := newFake(t, test.table)
			f.rows = []string{"a.example", "b.example"}
			if got, err := s.publisherByDomain(t.Context(), "b.example"); got != "b.example" || err != nil {
				t.Error(got, err)
			}
			hash, _ := cacheurl.HashPrefix("b.example")
			if domain, err := s.publisherByHash(t.Context(), hash); domain != "b.example" || err != nil {
				t.Error(domain, err)
			}
			if n, err := s.FillPrefixes(t.Context(), nil); n != 2 || err != nil {
				t.Error(n, err)
			}
			if err := s.Ping(t.Context()); err != nil {
				t.Error(err)
			}
			if len(f.statements) != 6 || f.statements[0] != test.byDomain || f.statements[1] != test.byPrefix || f.statements[3] != test.update {
				t.Errorf("%q", f.statements)
			}
			hashA, _ := cacheurl.HashPrefix("a.example")
			var args []any
			for _, a := range f.args[3] {
				args = append(args, a.Value)
			}
			if want := []any{"a.example", hashA, "b.example", hash, "a.example", "b.example"}; !reflect.DeepEqual(args, want) {
				t.Errorf("%q", args)
			}
		})
	}
}

// A database's collation may find rows that are not equal byte for byte. They are not found, and do not hide the
// right one. Each lookup releases its connection.
func TestRowsAreComparedByteByByte(t *testing.T) {
	f, s := newFake(t, Config{})
	s.db.SetMaxOpenConns(1)
	hash, _ := cacheurl.HashPrefix("example.com")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, rows := range [][]string{nil, {"EXAMPLE.com"}, {"éxample.com"}, {"example.com "}, {"evil.example", "example.com."},
		{"EXAMPLE.com", "example.com", "Example.com"}} {
		f.rows = rows
		isThere := slices.Contains(rows, "example.com")
		if got, err := s.publisherByDomain(ctx, "example.com"); (got != "") != isThere || err != nil {
			t.Errorf("%q: %q, %v", rows, got, err)
		}
		f.rows = rows
		if domain, err := s.publisherByHash(ctx, hash); (domain == "example.com") != isThere || err != nil {
			t.Errorf("%q: %q, %v", rows, domain, err)
		}
	}
}

func TestAnErrorIsNeverANegativeAnswer(t *testing.T) {
	down := errors.New("down")
	for name, fail := range map[string]func(*fake){
		"query":   func(f *fake) { f.err = down },
		"rows":    func(f *fake) { f.rowsErr = down },
		"a NULL":  func(f *fake) { f.rows = []string{"NULL"} },
		"context": nil,
	} {
		t.Run(name, func(t *testing.T) {
			f, s := newFake(t, Config{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if fail == nil {
				cancel()
			} else {
				fail(f)
			}
			if got, err := s.publisherByDomain(ctx, "a.example"); got != "" || err == nil {
				t.Errorf("%s: %q, %v", name, got, err)
			}
			if domain, err := s.publisherByHash(ctx, "a"); domain != "" || err == nil {
				t.Errorf("%s: %q, %v", name, domain, err)
			}
			if n, err := s.FillPrefixes(ctx, nil); n != 0 || err == nil {
				t.Errorf("%s: %d, %v", name, n, err)
			}
			if err := s.Ping(ctx); err == nil || !strings.Contains(err.Error(), "looking up by hash_prefix in publishers: ") {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

func TestFillPrefixesNamesWhatIsNotCanonical(t *testing.T) {
	f, s := newFake(t, Config{})
	f.rows = []string{"A.example", "b.example", "bücher.example", "localhost"}
	n, err := s.FillPrefixes(t.Context(), nil)
	const want = `sqlsource: the domain "A.example" in publishers: it is not canonical; want "a.example"
sqlsource: the domain "bücher.example" in publishers: it is not canonical; want "xn--bcher-kva.example"
sqlsource: the domain "localhost" in publishers: ampcors: publisher "localhost" has no dot; want a domain such as "www.example.com"`
	if n != 1 || err == nil || err.Error() != want {
		t.Errorf("%d, %v", n, err)
	}
	f.rows = make([]string, 250)
	for i := range f.rows {
		f.rows[i] = fmt.Sprintf("A%d.example", i)
	}
	_, err = s.FillPrefixes(t.Context(), nil)
	if lines := strings.Split(err.Error(), "\n"); len(lines) != 101 ||
		lines[100] != "sqlsource: 150 more domains in publishers have problems" {
		t.Errorf("%d lines", len(lines))
	}
}

func TestFillPrefixesWorksInBatchesAndGoesOnAfterAnError(t *testing.T) {
	f, s := newFake(t, Config{})
	f.rows = []string{"UPPER.example"}
	for i := range 2*batch + 1 {
		f.rows = append(f.rows, fmt.Sprintf("a%d.example", i))
	}
	n, err := s.FillPrefixes(t.Context(), nil)
	if n != 2*batch+1 || err == nil || len(f.statements) != 1+3 {
		t.Errorf("%d, %v, %d statements", n, err, len(f.statements))
	}
	// A row that the database rejects does not stop the others.
	f.statements = nil
	f.rows = []string{"UPPER.example", "twin.example"}
	for i := range 2 * batch {
		f.rows = append(f.rows, fmt.Sprintf("a%d.example", i))
	}
	db := sql.OpenDB(&failingExec{fake: f})
	defer db.Close()
	s, err = New(db, Config{})
	if err != nil {
		t.Fatal(err)
	}
	n, err = s.FillPrefixes(t.Context(), nil)
	if n != 2*batch || !errors.Is(err, errExec) || !strings.Contains(err.Error(), "upper.example") ||
		!strings.Contains(err.Error(), `the prefix of "twin.example"`) || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("%d, %v", n, err)
	}
}

var errExec = errors.New("duplicate key")

type failingExec struct{ *fake }

func (f *failingExec) Connect(context.Context) (driver.Conn, error) { return f, nil }
func (f *failingExec) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	for _, a := range args {
		if a.Value == "twin.example" {
			return nil, errExec
		}
	}
	return f.fake.ExecContext(ctx, query, args)
}

type (
	mysqlDriver struct{ driver.Driver }
	mssqlDriver struct{ driver.Driver }
	pqDriver    struct{ driver.Driver }
)

// Real drivers of MySQL, SQLite and PostgreSQL are in e2e.
func TestThePlaceholderIsTheDrivers(t *testing.T) {
	for want, d := range map[string]driver.Driver{"?": &mysqlDriver{}, "@p1": mssqlDriver{}, "$1": &pqDriver{}} {
		if got := placeholderOf(d); got != want {
			t.Errorf("%T: %s; want %s", d, got, want)
		}
	}
}

func TestNewChecksTheTable(t *testing.T) {
	_, err := New(nil, Config{Table: "a; DROP TABLE b", DomainColumn: "domain--", PrefixColumn: "1", Placeholder: "%s"})
	const want = `ampcors: db "" is nil; want a database
ampcors: Table "a; DROP TABLE b" is not a name; want letters, digits and underscores, and no digit at its beginning, such as ` +
		`publishers; or a name in quotes, such as "Sites", which may also have hyphens and spaces
ampcors: DomainColumn "domain--" is not a name; want letters, digits and underscores, and no digit at its beginning, such as domain; or ` +
		`a name in quotes, such as "Sites", which may also have hyphens and spaces
ampcors: PrefixColumn "1" is not a name; want letters, digits and underscores, and no digit at its beginning, such as hash_prefix; or a ` +
		`name in quotes, such as "Sites", which may also have hyphens and spaces
ampcors: Placeholder "%s" is unknown; want "$1", "?", "@p1" or ":1"`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestNoPrefixes(t *testing.T) {
	for want, c := range map[string]Config{
		`PrefixColumn "hash" is set, and so is NoPrefixes; want one of them`: {
			PrefixColumn: "hash", NoPrefixes: true},
		`PrefixColumn "domain" is the column of domains; want that of hash prefixes; or NoPrefixes, if no AMP Cache is trusted`: {
			PrefixColumn: "domain"},
	} {
		if _, err := c.Complete(); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
	table, err := New(sql.OpenDB(nil), Config{NoPrefixes: true, Placeholder: "$1"})
	if err != nil {
		t.Fatal(err)
	}
	// Neither asks the database, which there is not.
	if publisher, err := table.Database().PublisherByHash(t.Context(), "a"); publisher != "" || err != nil {
		t.Error(publisher, err)
	}
	if filled, err := table.FillPrefixes(t.Context(), nil); filled != 0 || err != nil {
		t.Error(filled, err)
	}
}

// A name in quotes is one, if they are the database's: to MySQL and SQLite, double quotes may enclose a text, which no row equals.
func TestNamesInQuotes(t *testing.T) {
	for _, test := range []struct {
		table, placeholder string
		isName             bool
	}{
		{`"Tenant"`, "$1", true}, {`cms."Tenant"`, "$1", true}, {`"my-cms"."the Tenant"`, "@p1", true}, {"`Tenant`", "?", true},
		{"`Tenant`", "$1", false}, {`"Tenant"`, "?", false}, {`'Tenant'`, "$1", false}, {`"Ten'ant"`, "$1", false}, {`"Ten.ant"`, "$1", false},
		{`""`, "$1", false}, {`"Ten""ant"`, "$1", false}, {`"Ten%sant"`, "$1", false}, {`"Tenant" x`, "$1", false}, {`a.`, "$1", false},
	} {
		_, err := Config{Table: test.table, DomainColumn: "a", Placeholder: test.placeholder}.Complete()
		if (err == nil) != test.isName {
			t.Errorf("%s with %s: %v", test.table, test.placeholder, err)
		}
	}
}
