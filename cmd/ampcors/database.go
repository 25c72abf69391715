package main

import (
	"cmp"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/spf13/cobra"
	"golang.org/x/net/idna"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/driver"
	"github.com/ampcors/ampcors/source/pgsource"
	"github.com/ampcors/ampcors/source/sqlsource"
)

// databaseEnv has the URL of the database. Other users of the machine can read a command line,
// and so a password on it.
const databaseEnv = "AMPCORS_DATABASE"

// A database has a table of publishers. Flags name both.
type database struct {
	url   string
	table sqlsource.Config

	noTriggers bool // changes are not reported
	noPatterns bool // the configuration file does not say that patterns in the table count
}

func (d *database) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&d.url, "database", "", "PostgreSQL as postgres://user:password@host/name, or MySQL and "+
		"MariaDB as mysql://…; if it has a password, use the environment's "+databaseEnv)
	cmd.Flags().StringVar(&d.table.Table, "table", "publishers", "table of the publishers")
	cmd.Flags().StringVar(&d.table.DomainColumn, "domain-column", "domain", "column of --table that has the domains")
	cmd.Flags().StringVar(&d.table.PrefixColumn, "prefix-column", "",
		"column of --table that has the hash prefixes (default \"hash_prefix\")")
	cmd.Flags().BoolVar(&d.table.NoPrefixes, "no-prefixes", false,
		"look up no hash prefixes in --table: for servers that trust no AMP Cache")
	cmd.Flags().StringVar(&d.table.Condition, "condition", "",
		`SQL that a row must also satisfy, such as "active AND NOT suspended"`)
}

// addNoTriggers adds a flag to commands that look at a table for another program.
func (d *database) addNoTriggers(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&d.noTriggers, "no-triggers", false,
		"the table needs no triggers, because it is a view, or your own program uses sqlsource; "+
			"changes are seen when an answer expires")
}

// prefixColumn returns the column of hash prefixes, or "" if there is none.
func (d *database) prefixColumn() string {
	if d.table.NoPrefixes {
		return ""
	}
	return cmp.Or(d.table.PrefixColumn, "hash_prefix")
}

// withoutPrefixes is what --no-prefixes means where an AMP Cache is trusted.
const withoutPrefixes = "--no-prefixes is set, so that no hash prefix is looked up in the table: leave it out if AMP " +
	"Caches are trusted."

// isColumn reports whether a name in a statement means a column.
func (d *database) isColumn(name, column string) bool {
	if d.isMySQL() {
		return strings.EqualFold(driver.Folded(name), column)
	}
	return driver.Folded(name) == column
}

// address returns the URL, or "" if no database is named.
func (d *database) address() string { return cmp.Or(d.url, os.Getenv(databaseEnv)) }

func (d *database) isMySQL() bool {
	return strings.HasPrefix(d.address(), "mysql://") || strings.HasPrefix(d.address(), "mariadb://")
}

// lookups are an open database of publishers, with functions that check and close it.
type lookups struct {
	source.Database
	ping func(context.Context) error // whether lookups work, and with PostgreSQL, whether changes are reported
	end  func()
}

// checkEscapes returns an error if the password in the URL has a character that must be escaped. Drivers
// take what follows for the host, and have it in their errors.
func (d *database) checkEscapes() error {
	if driver.IsUnescaped(d.address()) {
		return errors.New("the database's URL has more than a user and a password before its last @; want " +
			driver.WantEscaped)
	}
	return nil
}

// checkFlags returns an error if flags are about a database, and none is named.
func (d *database) checkFlags(cmd *cobra.Command) error {
	for _, flag := range []string{"table", "domain-column", "prefix-column", "no-prefixes", "condition", "no-triggers"} {
		if cmd.Flags().Changed(flag) && d.address() == "" {
			return fmt.Errorf("--%s is set, and no database is named: set --database or %s", flag, databaseEnv)
		}
	}
	return nil
}

// source returns a Source that asks the database, with the member source of a configuration file if one is
// named. It does not wait for a connection. The end of the lookups closes it, too.
func (d *database) source(config string, log *slog.Logger) (*source.Source, lookups, error) {
	var cfg source.Config
	if config != "" {
		var err error
		if cfg, err = (configfile.File{Path: config}).SourceConfig(); err != nil {
			return nil, lookups{}, err
		}
	}
	d.noPatterns, cfg.Logger = !cfg.Patterns, log
	opened, err := d.open(log)
	if err != nil {
		return nil, lookups{}, err
	}
	end := opened.end
	asked, err := source.New(opened.Database, cfg)
	if err != nil {
		end()
		return nil, lookups{}, err
	}
	opened.end = func() { asked.Close(); end() }
	return asked, opened, nil
}

// withoutDatabase adds to the error about a file that lacks a database how to name one.
func withoutDatabase(err error, how string) error {
	for v := range badvalue.All(err) {
		if v.Path == "publishers" && v.Value == "" || v.Path == "source" {
			return fmt.Errorf("%w\nif publishers are looked up in a database, use %s", err, how)
		}
	}
	return err
}

// check asks the database, and returns what it found.
func (d *database) check(ctx context.Context, config string) (string, error) {
	_, opened, err := d.source(config, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	defer opened.end()
	pinging, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := opened.ping(pinging); err != nil {
		return "", exitError{exitUntested, err}
	}
	ctx, stop := context.WithTimeout(ctx, tableTimeout)
	defer stop()
	found := "it has no publisher now"
	for _, err := range opened.Publishers(ctx) {
		if err != nil {
			return "", exitError{exitUntested, err}
		}
		found = "it has publishers"
		break
	}
	if n := d.withoutPrefix(ctx); n > 0 {
		found += fmt.Sprintf("; %s: ampcors source fill, with the same flags, adds the prefixes, or names the rows whose "+
			"domain is not canonical",
			count(n, "row has no hash prefix, and no origin with a hash prefix finds it",
				"rows have no hash prefix, and no origin with a hash prefix finds them"))
	}
	wrong, read, isPart, err := d.unmatched(ctx)
	switch {
	case err != nil:
		return "", exitError{exitUntested, err}
	case wrong != "":
		return "", exitError{exitFindings, errors.New(wrong)}
	case isPart && read == 0:
		found += fmt.Sprintf("; its rows were not looked at, as that takes more than %v", tableTimeout)
	case isPart:
		found += fmt.Sprintf("; only its first %d rows were looked at, and lookups can match them", read)
	}
	changes := "it does not report changes: they are seen when an answer expires"
	if opened.Notify != nil { // otherwise ping had failed
		changes = "it reports changes at once"
	}
	return fmt.Sprintf("publishers are looked up in the table %s%s; %s; %s", d.table.Table, d.where(ctx), found, changes),
		nil
}

// where says which schema the table is in, and which other tables have its name, or is "". A search_path may find
// another one than people think.
func (d *database) where(ctx context.Context) string {
	if d.isMySQL() || strings.Contains(d.table.Table, ".") {
		return ""
	}
	db, err := d.opened()
	if err != nil {
		return ""
	}
	defer db.Close()
	var own string
	var others sql.NullString
	err = db.QueryRowContext(ctx, `SELECT own.nspname, (SELECT string_agg(n.nspname, ', ' ORDER BY n.nspname)
		FROM pg_class AS o JOIN pg_namespace AS n ON n.oid = o.relnamespace
		WHERE o.relname = c.relname AND o.oid <> c.oid AND o.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT LIKE
			'pg\_%')
		FROM pg_class AS c JOIN pg_namespace AS own ON own.oid = c.relnamespace WHERE c.oid =
			to_regclass($1)`, d.table.Table).Scan(&own, &others)
	switch {
	case err != nil: // it is more than was asked for
		return ""
	case others.Valid:
		return fmt.Sprintf(" (of the schema %s; there is one in %s too)", own, others.String)
	}
	return fmt.Sprintf(" (of the schema %s)", own)
}

// open does not wait for a connection.
func (d *database) open(log *slog.Logger) (lookups, error) {
	if err := d.checkEscapes(); err != nil {
		return lookups{}, err
	}
	if scheme, _, isURL := strings.Cut(d.address(), "://"); isURL && !d.isMySQL() && scheme != "postgres" &&
		scheme != "postgresql" {
		// The rest of the address may have a password.
		return lookups{}, errors.New("the command looks up publishers in PostgreSQL and MySQL; want a URL with postgres:// " +
			"or mysql://, or the keywords and values of libpq")
	}
	if !d.isMySQL() && !d.noTriggers {
		table, err := d.postgres(log)
		if err != nil {
			return lookups{}, err
		}
		return lookups{Database: table.Database(), ping: d.withHint(table.Ping), end: table.Close}, nil
	}
	db, err := d.opened()
	if err != nil {
		return lookups{}, err
	}
	table, err := sqlsource.New(db, d.table)
	if err != nil {
		return lookups{}, err
	}
	return lookups{Database: table.Database(), ping: d.withHint(table.Ping), end: func() { _ = db.Close() }}, nil
}

// withHint returns ping, with errors that say which flag is about what the database rejects.
func (d *database) withHint(ping func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error { return d.hinted(ping(ctx)) }
}

// hinted adds to an error of the database which flag is about it, if one is.
func (d *database) hinted(err error) error {
	code, message := "", ""
	if said := (*pgconn.PgError)(nil); errors.As(err, &said) {
		code, message = said.Code, strings.ToLower(said.Message)
	} else if said := (*mysql.MySQLError)(nil); errors.As(err, &said) {
		code, message = fmt.Sprint(said.Number), strings.ToLower(said.Message)
	}
	switch t := d.table; code {
	case "42P01", "1146": // no such table
		return fmt.Errorf("%w; --table names the table, here %s%s", err, t.Table, d.withQuotes(t.Table))
	case "42703", "1054": // no such column
		isNamed := func(column string) bool { return strings.Contains(message, strings.ToLower(driver.Folded(column))) }
		switch {
		case !t.NoPrefixes && isNamed(d.prefixColumn()):
			return fmt.Errorf("%w; it is the column of --prefix-column, here %s, which ampcors source install makes. If no "+
				"AMP Cache is trusted, no hash prefix is needed: use --no-prefixes%s",
				err, d.prefixColumn(), d.withQuotes(d.prefixColumn()))
		case isNamed(t.DomainColumn), t.Condition == "":
			return fmt.Errorf("%w; --domain-column names the column of domains, here %s%s", err, t.DomainColumn,
				d.withQuotes(t.DomainColumn))
		}
		return fmt.Errorf("%w; --condition names it, here %s", err, t.Condition)
	case "42883": // no such operator
		return fmt.Errorf("%w; --condition is SQL of this database: for a boolean column, write \"active\" in place of "+
			"\"active = 1\"", err)
	case "42501", "1142", "1143": // no permission
		return fmt.Errorf("%w; the user of the database needs the right to read: GRANT SELECT ON %s TO that user, and "+
			"USAGE of its schema", err, t.Table)
	}
	return err
}

// withQuotes returns a hint for a name that PostgreSQL takes for another one without quotes, or "".
func (d *database) withQuotes(name string) string {
	if d.isMySQL() || strings.ToLower(name) == name || strings.Contains(name, `"`) {
		return ""
	}
	return fmt.Sprintf(`. PostgreSQL reads %s as %s: if it has upper-case letters there, write it in quotes, %s`,
		name, strings.ToLower(name), inShell(`"`+strings.ReplaceAll(name, ".", `"."`)+`"`))
}

// inShell returns a name as it is written on a command line, which takes double quotes and backquotes away.
func inShell(name string) string {
	if strings.ContainsAny(name, "\"`") {
		return "'" + name + "'"
	}
	return name
}

func (d *database) postgres(log *slog.Logger) (*pgsource.Table, error) {
	return pgsource.New(pgsource.Config{ConnString: d.address(), Table: d.table, Logger: log})
}

// mysql returns a pool for mysql://user:password@host:port/name?tls=true.
func (d *database) mysql() (*sql.DB, error) {
	u, err := url.Parse(d.address())
	if err != nil { // the error has the URL, and so the password
		return nil, errors.New("the database's URL cannot be parsed; want one such as mysql://user:password@host/name, " +
			"with " + driver.WantEscaped)
	}
	config := mysql.NewConfig()
	config.Net, config.Addr = "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "3306"))
	config.User, config.DBName = u.User.Username(), strings.TrimPrefix(u.Path, "/")
	config.Passwd, _ = u.User.Password()
	config.Timeout = 5 * time.Second
	// Without it, the first lookup of a session begins a transaction, and all later ones would see its snapshot.
	config.Params = map[string]string{"autocommit": "1"}
	for name, values := range u.Query() {
		switch name {
		case "tls":
			config.TLSConfig = values[0]
		case "socket":
			config.Net, config.Addr = "unix", values[0]
		default:
			// It may be a part of a password that is not escaped.
			return nil, errors.New("the database's URL has an unknown parameter; want tls or socket, and " + driver.WantEscaped)
		}
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(writable{connector})
	const conns = 8 // as many as pgsource has
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxLifetime(maxLife)
	return db, nil
}

// maxLife is how long a connection to MySQL or MariaDB is used. After a switchover, it leads to the old server,
// which answers without the changes on the new one.
const maxLife = time.Minute

// A writable makes connections to a server that takes writes.
type writable struct{ sqldriver.Connector }

// errReadOnly is for a replica, and for an old primary after a switchover.
var errReadOnly = errors.New("the server has read_only on, as a replica has, so that it may lack changes; want the " +
	"address of the server that takes writes")

func (c writable) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := conn.(sqldriver.QueryerContext).QueryContext(ctx, "SELECT CAST(@@read_only AS CHAR)", nil)
	value := []sqldriver.Value{nil}
	if err == nil {
		err = errors.Join(rows.Next(value), rows.Close())
	}
	// a server that has no such variable
	if unknown := (*mysql.MySQLError)(nil); errors.As(err, &unknown) && unknown.Number == 1193 {
		return conn, nil
	}
	if said := fmt.Sprintf("%s", value[0]); err == nil && said != "0" && said != "OFF" {
		err = errReadOnly
	}
	if err != nil {
		_ = conn.Close() // it was not used
		return nil, err
	}
	return conn, nil
}

// opened returns a pool of the database.
func (d *database) opened() (*sql.DB, error) {
	if d.isMySQL() {
		return d.mysql()
	}
	if err := pgsource.CheckConnString(d.address()); err != nil { // the error of pgx may have the password
		return nil, err
	}
	config, err := pgx.ParseConfig(d.address())
	if err != nil {
		return nil, err
	}
	// PgBouncer with pool_mode=transaction loses prepared statements
	config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	return stdlib.OpenDB(*config), nil
}

// withoutPrefix returns how many rows have no hash prefix, or 0 if that is not known or the table has none.
func (d *database) withoutPrefix(ctx context.Context) (n int) {
	t := d.table
	if t.NoPrefixes {
		return 0
	}
	db, err := d.opened()
	if err != nil {
		return 0
	}
	defer db.Close()
	if db.QueryRowContext(ctx, fmt.Sprintf("SELECT count(*) FROM %s WHERE %s IS NULL AND %[3]s IS NOT NULL AND %[3]s "+
		"NOT LIKE '*.%%'", t.Table, d.prefixColumn(),
		t.DomainColumn)).Scan(&n) != nil {
		return 0
	}
	return n
}

// What check reads and names at most.
const (
	mostRows     = 1_000_000
	mostNamed    = 10
	tableTimeout = 20 * time.Second
)

// unmatched says which rows that count no lookup can match. If there are none, it returns "". It also returns how
// many rows it read, and whether these are only a part of them.
func (d *database) unmatched(ctx context.Context) (_ string, read int, isPart bool, _ error) {
	db, err := d.opened()
	if err != nil {
		return "", 0, false, err
	}
	defer db.Close()
	condition := ""
	if d.table.Condition != "" {
		condition = " AND (" + d.table.Condition + "\n)"
	}
	prefix := cmp.Or(d.prefixColumn(), "NULL")
	read, named, wrong, err := d.wrongRows(ctx, db, prefix, fmt.Sprintf("%s LIMIT %d", condition, mostRows), mostNamed)
	if isPart = read == mostRows || ctx.Err() != nil; err != nil && !isPart {
		return "", read, false, d.hinted(err)
	}
	if wrong == 0 {
		return "", read, isPart, nil
	}
	text := fmt.Sprintf("the table %s has %s: %s", d.table.Table,
		count(wrong, "row that lookups cannot match as it is", "rows that lookups cannot match as they are"),
		strings.ReplaceAll(errors.Join(named...).Error(), "\n", "; "))
	if wrong > mostNamed {
		text += "; …"
	}
	if isPart {
		text += fmt.Sprintf(" (of the first %d rows)", read)
	}
	return text, read, isPart, nil
}

// wrongRows returns the rows that no lookup can match: their domain is not canonical, or has another hash prefix
// than the row. It names the first most of them. prefix is the column of hash prefixes, or NULL for not looking at
// them. more is SQL for the end of the query.
func (d *database) wrongRows(ctx context.Context, db *sql.DB, prefix, more string, most int) (read int, named []error,
	wrong int, _ error) {
	found, err := db.QueryContext(ctx, fmt.Sprintf("SELECT %[1]s, %[2]s FROM %[3]s WHERE %[1]s IS NOT NULL%[4]s",
		d.table.DomainColumn, prefix, d.table.Table, more))
	if err != nil {
		return 0, nil, 0, err
	}
	defer found.Close()
	for found.Next() {
		var domain string
		var prefix sql.NullString
		if err := found.Scan(&domain, &prefix); err != nil {
			return read, named, wrong, err
		}
		read++
		err := d.checkRow(domain, prefix)
		if err == nil {
			continue
		}
		if wrong++; wrong <= most {
			named = append(named, fmt.Errorf("the domain %.1000q in %s: %w", domain, d.table.Table, err))
		}
	}
	return read, named, wrong, found.Err()
}

// checkRow returns why no lookup can match a row.
func (d *database) checkRow(domain string, prefix sql.NullString) error {
	if strings.HasPrefix(domain, "*.") {
		if err := source.CheckPattern(domain); err != nil || !d.noPatterns {
			return err
		}
		return errors.New(`a pattern counts only if the configuration file has "source": {"patterns": true}`)
	}
	want, err := cacheurl.HashPrefix(domain)
	if err != nil {
		return err
	}
	if canonical, _ := cacheurl.CanonicalDomain(domain); canonical != domain {
		return fmt.Errorf("it is not canonical; want %q", canonical)
	}
	if prefix.Valid && want != prefix.String {
		return fmt.Errorf("its hash prefix is %s, so that no origin with a hash prefix finds it; want %q, or NULL, and "+
			"then ampcors source fill", badvalue.Quote(prefix.String), want)
	}
	return nil
}

// rowHint says that the table has a row for a domain that lookups do not find, and why, or is "".
func (d *database) rowHint(ctx context.Context, domain string) string {
	canonical, err := cacheurl.CanonicalDomain(domain)
	if err != nil {
		return ""
	}
	unicode, _ := idna.ToUnicode(canonical) // as people write it
	names := []string{canonical, unicode}
	for below := canonical; strings.Contains(below, "."); {
		_, below, _ = strings.Cut(below, ".")
		names = append(names, "*."+below)
	}
	db, err := d.opened()
	if err != nil {
		return ""
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	table, placeholder := d.table, "$1"
	if d.isMySQL() {
		placeholder = "?"
	}
	var stored string
	query := fmt.Sprintf("SELECT %[1]s FROM %[2]s WHERE lower(%[1]s) = %[3]s", table.DomainColumn, table.Table,
		placeholder)
	for _, name := range names {
		if err = db.QueryRowContext(ctx, query, name).Scan(&stored); !errors.Is(err, sql.ErrNoRows) {
			break
		}
	}
	isPattern := strings.HasPrefix(stored, "*.")
	switch problem := d.checkRow(stored, sql.NullString{}); {
	case err != nil: // the steps say what is known
		return ""
	case isPattern && problem != nil:
		return fmt.Sprintf("The table %s has %q, which matches nothing: %v.", table.Table, stored, problem)
	case !isPattern && stored != canonical:
		return fmt.Sprintf("The table %s has it as %q, which is not canonical, so that no lookup finds it: want %q.",
			table.Table, stored, canonical)
	case d.table.Condition != "":
		return fmt.Sprintf("The table %s has %s, and --condition does not hold for it.", table.Table, stored)
	}
	return fmt.Sprintf("The table %s has %s now.", table.Table, stored)
}
