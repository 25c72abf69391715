// Package sqlsource looks up publishers with database/sql, for any driver. Pass [Table.Database] to
// [source.New].
//
// # Schema
//
// It needs a table with two columns: the publisher domain as [cacheurl.CanonicalDomain] returns it, and
// its hash prefix as [cacheurl.HashPrefix] does, with an index on each. The rows found are compared
// again, byte by byte, and a row that is not canonical is skipped. So a collation that ignores case,
// accents or trailing spaces lets nobody else in. But a unique index with such a collation cannot hold
// two domains that differ only in these. Use a binary collation.
//
// In PostgreSQL:
//
//	CREATE TABLE publishers (
//		domain      text COLLATE "C" PRIMARY KEY,
//		hash_prefix text COLLATE "C" UNIQUE
//	);
//
// In MySQL and MariaDB:
//
//	CREATE TABLE publishers (
//		domain      varchar(253) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
//		hash_prefix char(52) CHARACTER SET ascii COLLATE ascii_bin UNIQUE
//	);
//
// In SQLite:
//
//	CREATE TABLE publishers (
//		domain      text PRIMARY KEY,
//		hash_prefix text UNIQUE
//	) WITHOUT ROWID;
//
// SQLite locks its file while a program writes: set journal_mode to WAL, so that lookups do not
// wait for that, and busy_timeout to less than [source.Config].Timeout.
//
// If you already have a table with domains, and an index on them, add the second column:
//
//	ALTER TABLE sites ADD COLUMN hash_prefix text COLLATE "C";
//
//	filled, err := table.FillPrefixes(ctx, nil) // also finds domains that are not canonical
//
//	CREATE INDEX CONCURRENTLY sites_hash_prefix ON sites (hash_prefix);
//
// A program that adds or changes a domain must also write its prefix, or NULL. A row
// without a prefix is found by its domain, but not by its hash prefix, until FillPrefixes
// runs again. You can run it on a timer.
//
// # Starting
//
// [New] does not connect. Call [Table.Ping] when the server starts: it reports whether the database answers, and
// whether the table has both columns. Without the second column, a hash prefix of a publisher that ampcors.Config
// does not list would get 503.
//
// # When changes take effect
//
// The database does not report changes. While it works, a publisher that was removed is
// allowed for at most [source.Config].TTL, and one that was added is denied for at most
// NegativeTTL. [source.Source.Forget] makes one server look it up at once. With
// PostgreSQL, package [github.com/ampcors/ampcors/source/pgsource] reports changes.
//
// This holds for a database server that takes the writes. A replica lags behind it: a publisher that was removed is
// allowed longer by this lag, which has no bound if replication stops. Let db connect to the primary only, and make
// sure that an old primary does not come back beside a new one: it would answer without the changes that were made
// since. With pgx, target_session_attrs=read-write rejects replicas, and a list of hosts finds the primary.
//
// # Connections
//
// A lookup that fails while there is time is retried, up to twice, on a connection that has answered a
// ping, or on a new one. So connections that the database or a proxy has closed cause few errors: only
// for a lookup whose connections were closed three times in a row.
//
// Give connections a lifetime (SetConnMaxLifetime), such as a minute: after a switchover, an open one may still
// lead to the old server, which answers without the changes on the new one. The ampcors command does not connect to
// a MySQL or MariaDB server that has read_only on. Sessions must begin with autocommit on.
package sqlsource

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/source"
	sourcedriver "github.com/ampcors/ampcors/source/driver"
)

// A Config names the table and the columns of the publishers. Names are written into statements as they are:
// letters, digits and underscores, with no digit at the beginning. A name that needs quotes, as one with
// upper-case letters in PostgreSQL, is written with them: "\"customDomain\"", or "`customDomain`" in MySQL
// and SQLite. Between quotes, hyphens and spaces are valid too. Each name has a default.
type Config struct {
	Table        string // "publishers"; it may be qualified by a schema, with a dot; a view will do
	DomainColumn string // "domain"
	PrefixColumn string // "hash_prefix"

	// NoPrefixes is for servers that trust no AMP Cache: no hash prefix is looked up, and PrefixColumn must be empty.
	NoPrefixes bool

	// Condition is SQL that a row must also satisfy, such as "active AND plan <> 'free'".
	// It is part of each lookup, but not of FillPrefixes. It must not contain untrusted
	// input.
	Condition string

	// Placeholder is how the driver writes the first parameter of a statement: "?" for MySQL and SQLite; "@p1" for SQL
	// Server; ":1" for Oracle; "$1" for PostgreSQL. If empty, it is chosen by the name of the driver's type, and
	// "$1" if that says nothing, as with a driver that wraps another.
	Placeholder string
}

// Complete returns c with its defaults, or all that is wrong in it, joined, each a *[badvalue.Error].
func (c Config) Complete() (Config, error) {
	var errs []error
	for _, f := range []struct {
		field        string
		value        *string
		defaultValue string
	}{
		{"Table", &c.Table, "publishers"},
		{"DomainColumn", &c.DomainColumn, "domain"},
		{"PrefixColumn", &c.PrefixColumn, "hash_prefix"},
	} {
		if f.field == "PrefixColumn" && c.NoPrefixes {
			if c.PrefixColumn != "" {
				errs = append(errs, &badvalue.Error{Code: badvalue.Conflict, Path: "PrefixColumn", Value: c.PrefixColumn,
					Reason: "is set, and so is NoPrefixes", Want: "one of them"})
			}
			continue
		}
		if *f.value == "" {
			*f.value = f.defaultValue
		}
		parts := []string{*f.value}
		if f.field == "Table" {
			parts = strings.Split(*f.value, ".")
		}
		quotes := `"`
		if c.Placeholder == "?" {
			quotes = "`" // to MySQL, and to SQLite if there is no such column, double quotes enclose a text
		}
		if slices.ContainsFunc(parts, func(part string) bool {
			return strings.Contains(part, "'") || !name.MatchString(strings.ReplaceAll(part, quotes, "'"))
		}) {
			errs = append(errs, &badvalue.Error{Code: badvalue.Malformed, Path: f.field, Value: *f.value,
				Reason: "is not a name",
				Want: fmt.Sprintf("letters, digits and underscores, and no digit at its beginning, such as %s; or a name in "+
					"quotes, such as %s, which may also have hyphens and spaces",
					f.defaultValue, quotes+"Sites"+quotes)})
		}
	}
	isSame := sourcedriver.Folded(c.PrefixColumn) == sourcedriver.Folded(c.DomainColumn)
	if c.Placeholder == "?" { // MySQL and SQLite ignore case, also of names in quotes
		isSame = strings.EqualFold(sourcedriver.Folded(c.PrefixColumn), sourcedriver.Folded(c.DomainColumn))
	}
	if isSame && len(errs) == 0 {
		errs = append(errs, &badvalue.Error{Code: badvalue.Conflict, Path: "PrefixColumn", Value: c.PrefixColumn,
			Reason: "is the column of domains", Want: "that of hash prefixes; or NoPrefixes, if no AMP Cache is trusted"})
	}
	switch c.Placeholder {
	case "":
		c.Placeholder = "$1"
	case "$1", "?", "@p1", ":1":
	default:
		errs = append(errs, &badvalue.Error{Code: badvalue.Unknown, Path: "Placeholder", Value: c.Placeholder,
			Reason: "is unknown",
			Want:   `"$1", "?", "@p1" or ":1"`})
	}
	return c, errors.Join(errs...)
}

// A Table has publishers. It is safe for concurrent use by multiple goroutines.
type Table struct {
	db       *sql.DB
	table    Config
	byColumn map[string]string // the statements of lookups
	slots    chan struct{}     // bounds lookups at one time, if db does not bound its connections; otherwise nil
}

const defaultConns = 16

// name matches a name, with ' in place of the database's quotes. What is between quotes also gets into texts of
// statements.
var name = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*|'[\pL\pN_ -]+')$`)

// New returns a Table. It does not connect to the database, so a server can start while the database is
// down. The caller configures and closes db. Limit its connections (SetMaxOpenConns), such as to 16,
// and keep them open (SetMaxIdleConns): otherwise lookups wait for new connections. Lookups wait for
// one that is free. If db has no limit of connections when New is called, at most 16 lookups use it at
// one time.
func New(db *sql.DB, table Config) (*Table, error) {
	if table.Placeholder == "" && db != nil {
		table.Placeholder = placeholderOf(db.Driver())
	}
	table, err := table.Complete()
	if db == nil {
		err = errors.Join(&badvalue.Error{Code: badvalue.Missing, Path: "db", Reason: "is nil", Want: "a database"}, err)
	}
	if err != nil {
		return nil, err
	}
	s := &Table{db: db, table: table}
	if db.Stats().MaxOpenConnections == 0 {
		s.slots = make(chan struct{}, defaultConns)
	}
	s.byColumn = map[string]string{table.DomainColumn: s.lookup(table.DomainColumn)}
	if !table.NoPrefixes {
		s.byColumn[table.PrefixColumn] = s.lookup(table.PrefixColumn)
	}
	return s, nil
}

// placeholderOf returns the Placeholder of a driver.
func placeholderOf(d driver.Driver) string {
	name := typeOf(d)
	for part, placeholder := range map[string]string{"mysql": "?", "sqlite": "?", "mssql": "@p1", "oracle": ":1",
		"godror": ":1"} {
		if strings.Contains(name, part) {
			return placeholder
		}
	}
	return "$1"
}

// typeOf returns the type of a driver in lower case, such as *mysql.mysqldriver.
func typeOf(d driver.Driver) string { return strings.ToLower(fmt.Sprintf("%T", d)) }

func (s *Table) lookup(column string) string {
	return fmt.Sprintf("SELECT %s FROM %s WHERE %s = %s", s.table.DomainColumn, s.table.Table, column,
		s.placeholder(1)) + s.condition()
}

// placeholder returns the placeholder of parameter n.
func (s *Table) placeholder(n int) string {
	if s.table.Placeholder == "?" {
		return "?"
	}
	return strings.TrimSuffix(s.table.Placeholder, "1") + strconv.Itoa(n)
}

// Database returns what [source.New] needs. It cannot report changes.
func (s *Table) Database() source.Database {
	return source.Database{PublisherByDomain: s.publisherByDomain, PublisherByHash: s.publisherByHash,
		Publishers: s.publishers}
}

// publisherByDomain returns the domain of the row with exactly this domain.
func (s *Table) publisherByDomain(ctx context.Context, domain string) (string, error) {
	return s.find(ctx, s.table.DomainColumn, domain, func(row string) bool { return row == domain })
}

// publisherByHash returns the domain of the row with this prefix.
func (s *Table) publisherByHash(ctx context.Context, prefix string) (string, error) {
	if s.table.NoPrefixes {
		return "", nil
	}
	return s.find(ctx, s.table.PrefixColumn, prefix, func(row string) bool {
		own, err := cacheurl.HashPrefix(row)
		return err == nil && own == prefix && isCanonical(row)
	})
}

func isCanonical(domain string) bool {
	canonical, err := cacheurl.CanonicalDomain(domain)
	return err == nil && canonical == domain
}

// Ping makes both lookups once, for names that no publisher can have. A server can call it at its start to check
// that the database answers and that the table has its columns. With the usual drivers of MySQL and PostgreSQL, it
// also checks for what keeps lookups from seeing all rows, or changes of them: autocommit=0, and row-level security
// of the table itself, though not of tables below a view.
func (s *Table) Ping(ctx context.Context) error {
	_, err := s.publisherByDomain(ctx, "")
	_, err2 := s.publisherByHash(ctx, "")
	if err = errors.Join(err, err2); err != nil {
		return err
	}
	var isHidden bool
	holds := func(query string) bool {
		return s.db.QueryRowContext(ctx, query).Scan(&isHidden) == nil && isHidden
	}
	switch name := typeOf(s.db.Driver()); {
	case strings.Contains(name, "mysql") && holds("SELECT @@autocommit = 0"):
		return errors.New("sqlsource: sessions begin with autocommit=0, so that a lookup begins a transaction, and later " +
			"ones do not see changes; " +
			"want autocommit=1, such as a parameter of the driver's connection string")
	case (name == "*stdlib.driver" || name == "*pq.driver") &&
		holds("SELECT "+sourcedriver.MayHideRows("to_regclass('"+s.table.Table+"')")):
		return ErrRowSecurity
	}
	return nil
}

// ErrRowSecurity says that row-level security of PostgreSQL is on for the table and the user, and that policies may
// hide rows: a lookup cannot tell a row that is hidden from one that is missing.
var ErrRowSecurity = errors.New("sqlsource: row-level security may hide rows of the table from this user, and a " +
	"hidden row looks like a missing one; " +
	"want a policy for this user that shows each row, CREATE POLICY ... FOR SELECT ... USING (true), and no restrictive " +
	"policy, or a user with BYPASSRLS")

// find returns the domain of the first row for which matches returns true. Under the
// database's collation, other rows may equal the key.
func (s *Table) find(ctx context.Context, column, key string, matches func(domain string) bool) (_ string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("sqlsource: looking up by %s in %s: %w", column, s.table.Table, err)
		}
	}()
	if s.slots != nil {
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	query := s.byColumn[column]
	domain, err := queryFor(ctx, s.db, query, key, matches)
	for retries := 0; err != nil && ctx.Err() == nil && retries < maxRetries; retries++ {
		conn, connErr := s.living(ctx)
		if connErr != nil {
			return "", err
		}
		domain, err = queryFor(ctx, conn, query, key, matches)
		_ = conn.Close() // back to the pool
	}
	return domain, err
}

// maxRetries is how often a lookup that fails is retried. Once is not enough: if a database
// closes all connections, one after another, the retry may fail in the same way.
const maxRetries = 2

// living returns a connection that has answered a ping. A dead one, which the driver reports
// as such, leaves the pool. If the whole pool is dead, the last connection is a new one.
func (s *Table) living(ctx context.Context) (*sql.Conn, error) {
	for range s.db.Stats().OpenConnections {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		if conn.PingContext(ctx) == nil {
			return conn, nil
		}
		_ = conn.Close() // it is dead
	}
	return s.db.Conn(ctx)
}

// A queryer is a pool or one connection.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// eachRow calls do with each row's domain, until do returns false.
func eachRow(ctx context.Context, db queryer, query string, args []any, do func(domain string) bool) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var domain string
		if err := rows.Scan(&domain); err != nil {
			return err
		}
		if !do(domain) {
			return nil
		}
	}
	return rows.Err()
}

func queryFor(ctx context.Context, db queryer, query, key string, matches func(domain string) bool) (found string,
	err error) {
	err = eachRow(ctx, db, query, []any{key}, func(domain string) bool {
		if matches(domain) {
			found = domain
		}
		return found == ""
	})
	return found, err
}

// publishers returns all domains. It reads them in one statement. A row that is not canonical may be among them.
func (s *Table) publishers(ctx context.Context) iter.Seq2[string, error] {
	return s.domains(ctx, s.table.DomainColumn+" IS NOT NULL"+s.condition())
}

// condition returns Condition for the end of a WHERE.
func (s *Table) condition() string {
	if s.table.Condition == "" {
		return ""
	}
	return " AND (" + s.table.Condition + "\n)" // Condition may end in a comment
}

// domains returns the domains of the rows that satisfy a condition.
func (s *Table) domains(ctx context.Context, where string) iter.Seq2[string, error] {
	query := fmt.Sprintf("SELECT %s FROM %s WHERE %s", s.table.DomainColumn, s.table.Table, where)
	return func(yield func(string, error) bool) {
		err := eachRow(ctx, s.db, query, nil, func(domain string) bool { return yield(domain, nil) })
		if err != nil {
			yield("", fmt.Errorf("sqlsource: reading %s: %w", s.table.Table, err))
		}
	}
}

const (
	batch       = 100 // rows that one statement fills, with three parameters each
	maxProblems = 100 // reported at most
)

// FillPrefixes fills the prefix column where it is NULL, and returns how many rows it filled. It writes
// 100 rows at a time, each 100 in a transaction. It keeps all domains without a prefix in memory while
// it runs. It can be run again after an error, or at any time. If progress is not nil, it is called
// after each transaction, with how many of these domains are done.
//
// A pattern, such as "*.example.com" (see [source.Config].Patterns), has no hash prefix.
//
// A domain that is not canonical, such as one in upper case or in Unicode, would never be
// found. It is skipped, and the error has the domain and what it should be. A row that the
// database rejects is skipped and reported too. At most 100 are reported.
//
// With [Config].NoPrefixes, there is nothing to fill.
func (s *Table) FillPrefixes(ctx context.Context, progress func(done, all int)) (filled int, err error) {
	if s.table.NoPrefixes {
		return 0, nil
	}
	var domains []string
	for domain, err := range s.domains(ctx, s.table.PrefixColumn+" IS NULL AND "+s.table.DomainColumn+" IS NOT NULL") {
		if err != nil {
			return 0, err
		}
		domains = append(domains, domain)
	}
	var problems []error
	wrong := 0
	report := func(err error) {
		if slices.ContainsFunc(problems, func(other error) bool { return other.Error() == err.Error() }) {
			return // of two rows with one domain
		}
		if wrong++; wrong <= maxProblems {
			problems = append(problems, err)
		}
	}
	var args []any // domain and prefix in turn
	done := 0
	flush := func() error {
		defer func() {
			if args = args[:0]; progress != nil {
				progress(done, len(domains))
			}
		}()
		n, err := s.fill(ctx, args)
		filled += n
		if err == nil || ctx.Err() != nil {
			return err
		}
		// One row may be the problem, such as a duplicate. Try each row on its own.
		for i := 0; i < len(args); i += 2 {
			n, err := s.fill(ctx, args[i:i+2])
			if filled += n; err != nil {
				report(fmt.Errorf("sqlsource: filling the prefix of %q in %s: %w", args[i], s.table.Table, err))
			}
		}
		return ctx.Err()
	}
	for _, domain := range domains {
		done++
		canonical, err := cacheurl.CanonicalDomain(domain)
		switch {
		case strings.HasPrefix(domain, "*."):
			if err = source.CheckPattern(domain); err == nil {
				continue // it has no hash prefix
			}
		case err == nil && canonical != domain:
			err = fmt.Errorf("it is not canonical; want %q", canonical)
		}
		if err != nil {
			report(fmt.Errorf("sqlsource: the domain %.300q in %s: %w", domain, s.table.Table, err))
			continue
		}
		prefix, err := cacheurl.HashPrefix(domain)
		if err != nil {
			return filled, err
		}
		if args = append(args, domain, prefix); len(args) == 2*batch {
			if err := flush(); err != nil {
				return filled, errors.Join(append(problems, err)...)
			}
		}
	}
	if err := flush(); err != nil {
		problems = append(problems, err)
	}
	if wrong > maxProblems {
		problems = append(problems, fmt.Errorf("sqlsource: %d more domains in %s have problems", wrong-maxProblems,
			s.table.Table))
	}
	return filled, errors.Join(problems...)
}

// fill writes prefixes with one statement, in SQL that all databases accept.
func (s *Table) fill(ctx context.Context, pairs []any) (filled int, err error) {
	if len(pairs) == 0 {
		return 0, nil
	}
	t := s.table
	var query strings.Builder
	fmt.Fprintf(&query, "UPDATE %s SET %s = CASE %s", t.Table, t.PrefixColumn, t.DomainColumn)
	args := make([]any, 0, len(pairs)*3/2)
	param := func(value any) string {
		args = append(args, value)
		return s.placeholder(len(args))
	}
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&query, " WHEN %s THEN %s", param(pairs[i]), param(pairs[i+1]))
	}
	fmt.Fprintf(&query, " END WHERE %s IS NULL AND %s IN (", t.PrefixColumn, t.DomainColumn)
	for i := 0; i < len(pairs); i += 2 {
		if i > 0 {
			query.WriteString(", ")
		}
		query.WriteString(param(pairs[i]))
	}
	query.WriteString(")")
	result, err := s.db.ExecContext(ctx, query.String(), args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}
