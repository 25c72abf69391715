package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/ampcors/ampcors/source/driver"
	"github.com/ampcors/ampcors/source/pgsource"
	"github.com/ampcors/ampcors/source/sqlsource"
)

func newSource() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "source",
		Short:   "Prepare a database's table of publishers",
		Example: "  ampcors source install --database postgres:///cms --create",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return noCommand(cmd, args[0])
			}
			return cmd.Help()
		},
		Args: cobra.ArbitraryArgs,
	}
	cmd.AddCommand(newSourceInstall(), newSourceFill())
	return cmd
}

func newSourceInstall() *cobra.Command {
	var d database
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Add what lookups need: hash prefixes, indexes, and triggers that report changes",
		Long: "Check a table of publishers, and add what lookups need: the column of hash prefixes, filled; one index on " +
			"it, and one on the domains; " +
			"and, in PostgreSQL, triggers that tell all servers of changes (by --condition). Columns, indexes " +
			"and prefixes that are there are not touched; triggers of an earlier version, and an index of this command that " +
			"is not valid, are replaced. So the command can run again: " +
			"with the same flags, because servers and triggers must agree about --table, the columns and --condition. " +
			"Domains that no lookup finds, such as one in upper case, are listed.\n\n" +
			"Exit codes: 0 done, 1 done, but rows are wrong or not filled, 2 nothing was changed: wrong usage, " +
			"or the table has triggers made with other flags, 3 nothing or not all was changed, because of the database.\n\n" +
			"Run it as the table's owner. Servers need only the right to read the table.",
		Example: "  ampcors source install --database postgres:///cms --table sites --domain-column host --dry-run",
		Args:    noArgs,
	}
	d.addFlags(cmd)
	d.addNoTriggers(cmd)
	cmd.Flags().Lookup("no-prefixes").Usage = "add no column of hash prefixes: for servers that trust no AMP Cache"
	create := cmd.Flags().Bool("create", false, "create the table if it does not exist")
	dryRun := cmd.Flags().Bool("dry-run", false, "change nothing, and print the statements")
	replace := cmd.Flags().Bool("replace", false, "replace triggers that were made for other columns, another "+
		"--condition or another spelling of --table; "+
		"servers that still use the old ones then fail, or hear of no change")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case *replace && d.isMySQL():
			return errors.New("--replace is about triggers, which MySQL and MariaDB do not get; remove it")
		case *replace && d.noTriggers:
			return errors.New("--replace and --no-triggers are set; remove one of them")
		}
		return d.prepare(cmd, *dryRun, func(p preparation) error { return p.install(*create, *replace) })
	}
	return cmd
}

func newSourceFill() *cobra.Command {
	var d database
	cmd := &cobra.Command{
		Use:   "fill",
		Short: "Fill the hash prefixes that are missing",
		Long: "Fill the column of hash prefixes where it is NULL. A row without one is found by its domain, but not by its " +
			"hash prefix. " +
			"Domains that no lookup finds, such as one in upper case, are listed; the exit code is then 1.\n\n" +
			"It can run on a timer, for programs that write domains without their prefixes.",
		Example: "  ampcors source fill --database postgres:///cms --table sites --domain-column host",
		Args:    noArgs,
	}
	d.addFlags(cmd)
	d.addNoTriggers(cmd) // so that the flags of check can be used
	cmd.Flags().Lookup("condition").Usage = "has no effect here, because a row may satisfy it later: all rows are filled"
	cmd.Flags().Lookup("no-prefixes").Usage = "is an error here: there would be nothing to fill"
	dryRun := cmd.Flags().Bool("dry-run", false, "change nothing, and count the rows")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return d.prepare(cmd, *dryRun, preparation.fill)
	}
	return cmd
}

// A preparation changes a table, or says what it would change.
type preparation struct {
	ctx       context.Context
	out, errs io.Writer
	dryRun    bool
	database
	dialect
	db *sql.DB
}

// A dialect is how a database's statements are written.
type dialect struct {
	text, hash  string // the types of new columns
	createIndex string
	// has a row if a column, stored as %[2]s, is the first of an index of the table, %[1]s, that finds single values
	indexed string
}

var (
	postgresDialect = dialect{
		text: `text COLLATE "C"`, hash: `text COLLATE "C"`,
		createIndex: "CREATE INDEX CONCURRENTLY",
		indexed: "SELECT 1 FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] " +
			"JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_am AS m ON m.oid = c.relam" +
			" WHERE i.indrelid = to_regclass('%[1]s') AND a.attname = '%[2]s' AND i.indisvalid AND i.indpred IS NULL AND " +
			"m.amname IN ('btree', 'hash')",
	}
	mysqlDialect = dialect{
		text: "varchar(253) CHARACTER SET ascii COLLATE ascii_bin", hash: "char(52) CHARACTER SET ascii COLLATE ascii_bin",
		createIndex: "CREATE INDEX",
		indexed: "SHOW INDEX FROM %[1]s WHERE Column_name = '%[2]s' AND Seq_in_index = 1 AND Index_type IN ('BTREE', " +
			"'HASH')",
	}
)

// prepare calls do with a connection. Errors of the database have exit code 3.
func (d *database) prepare(cmd *cobra.Command, dryRun bool, do func(preparation) error) error {
	if d.address() == "" {
		return fmt.Errorf("no database is named: set --database or %s", databaseEnv)
	}
	p := preparation{ctx: cmd.Context(), out: cmd.OutOrStdout(), errs: cmd.ErrOrStderr(), dryRun: dryRun, database: *d,
		dialect: postgresDialect}
	if d.isMySQL() {
		p.table.Placeholder = "?" // which says how names are quoted
	}
	complete, err := p.table.Complete()
	err = cmp.Or(d.checkEscapes(), err)
	p.table = complete
	p.table.Placeholder = "" // the driver's
	if d.isMySQL() {
		p.dialect = mysqlDialect
	} else if err == nil {
		err = pgsource.CheckConnString(d.address())
	}
	if err == nil {
		p.db, err = d.opened()
	}
	if err != nil {
		return err
	}
	defer p.db.Close()
	if err = p.db.PingContext(p.ctx); err == nil {
		err = do(p)
	}
	if err == nil {
		return nil
	}
	if cmd.Context().Err() != nil {
		return errInterrupted
	}
	if exit, ok := err.(exitError); ok {
		return exit
	}
	return exitError{exitUntested, err}
}

// install adds what lookups need to the table.
func (p preparation) install(create, replace bool) error {
	statements, err := p.missing(create, replace)
	if err != nil {
		return err
	}
	var findings error
	var made []string
	for _, s := range statements {
		if p.dryRun {
			text := strings.TrimSuffix(strings.TrimSpace(s.sql), ";")
			if s.inTransaction {
				text = "BEGIN;\n" + text + ";\nCOMMIT"
			}
			fmt.Fprintf(p.out, "%s;\n", text)
		} else if s.sql == fillPrefixes {
			if findings = p.fill(); findings != nil && !errors.As(findings, new(exitError)) {
				return findings
			}
		} else if _, err := p.db.ExecContext(p.ctx, s.sql); err != nil {
			return fmt.Errorf("%s cannot be made; want the table's owner to run it: %w", cmp.Or(s.makes, "an index"), err)
		} else if s.makes != "" {
			made = append(made, s.makes)
		}
	}
	// otherwise fill has looked at the rows
	if p.dryRun || !slices.ContainsFunc(statements, func(s statement) bool { return s.sql == fillPrefixes }) {
		if columns, err := p.columns(); err == nil { // there is a table
			prefix := "NULL"
			if column := p.prefixColumn(); slices.ContainsFunc(columns, func(c string) bool { return p.isColumn(column, c) }) {
				prefix = column
			}
			if _, wrong := p.check(prefix, false); wrong != nil {
				findings = exitError{exitFindings, wrong}
			}
		}
	}
	if p.dryRun {
		return findings
	}
	opened, err := p.open(slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer opened.end()
	ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
	defer cancel()
	if err := opened.ping(ctx); err != nil {
		return err
	}
	if len(made) > 0 {
		fmt.Fprintf(p.out, "%s has what lookups need; made: %s\n", p.table.Table, strings.Join(made, ", "))
	} else if findings == nil {
		fmt.Fprintf(p.out, "%s has what lookups need: nothing to do\n", p.table.Table)
	}
	return findings
}

// fillPrefixes is in the list of statements where [preparation.fill] runs, which makes many.
const fillPrefixes = "-- the hash prefixes are filled"

// A statement of install, and what it makes, in words.
type statement struct {
	sql, makes    string
	inTransaction bool // it is several statements for one transaction
}

// missing returns the statements that the table needs.
func (p preparation) missing(create, replace bool) (statements []statement, err error) {
	add := func(makes, format string, args ...any) {
		statements = append(statements, statement{sql: fmt.Sprintf(format, args...), makes: makes})
	}
	table, domain, prefix := p.table.Table, p.table.DomainColumn, p.prefixColumn()
	columns, err := p.columns()
	near := ""
	if isNoTable(err) {
		near = p.near(create)
	}
	switch {
	case err == nil:
		has := func(column string) bool {
			return slices.ContainsFunc(columns, func(c string) bool { return p.isColumn(column, c) })
		}
		if !has(domain) {
			for i, column := range columns {
				if !p.isColumn(column, column) {
					columns[i] = pgx.Identifier{column}.Sanitize() // as it must be written
				}
			}
			return nil, fmt.Errorf("the table %s has no column %s; it has %s", table, domain, strings.Join(columns, ", "))
		}
		if kind, err := p.padded(); err != nil {
			return nil, err
		} else if kind != "" {
			return nil, fmt.Errorf("the column %s of %s has the type %s, which adds spaces to each domain, so that no lookup "+
				"finds one; "+
				"want text or varchar: ALTER TABLE %s ALTER COLUMN %s TYPE text", domain, table, kind, table, domain)
		}
		if _, err := p.hasRow(fmt.Sprintf("SELECT %s FROM %s WHERE 1 = 0 AND (%s\n)", domain, table,
			cmp.Or(p.table.Condition, "1 = 1"))); err != nil {
			return nil, p.hinted(err)
		}
		if p.createIndex, err = p.howToIndex(); err != nil {
			return nil, err
		}
		hasPrefix := p.table.NoPrefixes || has(prefix)
		if i := slices.IndexFunc(columns, func(c string) bool {
			return strings.EqualFold(c,
				driver.Folded(prefix))
		}); i >= 0 && !hasPrefix {
			return nil, fmt.Errorf("the table %s has no column %s, and has %s; want --prefix-column %s", table, prefix,
				p.quoted(columns[i]), inShell(p.quoted(columns[i])))
		}
		if p.createIndex == "" { // a view, of which only the rows are looked at
			if !hasPrefix {
				return nil, fmt.Errorf("%s has no column %s, and it is not a table, so that none can be added", table, prefix)
			}
			return nil, nil
		}
		if !hasPrefix {
			add("the column "+prefix, "ALTER TABLE %s ADD COLUMN %s %s", table, prefix, p.hash)
		}
		index := func(column string) error {
			isIndexed, err := p.hasRow(fmt.Sprintf(p.indexed, table, driver.Folded(column)))
			if err != nil || isIndexed {
				return err
			}
			schema, name := "", table
			if i := strings.LastIndexByte(table, '.'); i >= 0 {
				schema, name = table[:i+1], table[i+1:]
			}
			isQuoted := strings.ContainsAny(name+column, "\"`")
			if name = "ampcors_" + driver.Folded(name) + "_" + driver.Folded(column); isQuoted {
				name = p.quoted(name)
			}
			if !p.isMySQL() { // one that was interrupted is not valid, and is in the way
				add("", "%s IF EXISTS %s%s", strings.Replace(p.createIndex, "CREATE", "DROP", 1), schema, name)
			}
			add("an index on "+column, "%s %s ON %s (%s)", p.createIndex, name, table, column)
			return nil
		}
		if err := index(domain); err != nil { // before the prefixes are filled, domain by domain
			return nil, err
		}
		if p.table.NoPrefixes {
			break
		}
		add("", fillPrefixes)
		if err := index(prefix); err != nil {
			return nil, err
		}
	case !isNoTable(err):
		return nil, p.hinted(err)
	case near != "":
		return nil, fmt.Errorf("there is no table %s, and the database has %s; want --table %s", table, near, inShell(near))
	case create && p.table.NoPrefixes:
		add("the table", "CREATE TABLE %s (%s %s PRIMARY KEY)", table, domain, p.text)
	case create:
		add("the table", "CREATE TABLE %s (%s %s PRIMARY KEY, %s %s UNIQUE)", table, domain, p.text, prefix, p.hash)
	default:
		return nil, fmt.Errorf("there is no table %s; --create makes it: %w", table, err)
	}
	if p.isMySQL() || p.noTriggers {
		return statements, nil
	}
	triggers, err := p.postgres(slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer triggers.Close()
	installed, err := triggers.IsInstalled(p.ctx)
	switch {
	case errors.Is(err, pgsource.ErrOtherTriggers) && !replace:
		return nil, exitError{exitUsage, fmt.Errorf("the table %s has triggers for other columns or another condition. "+
			"Lookups of servers that use those would fail if the triggers were replaced: use the flags of those servers, or "+
			"--replace", table)}
	case err != nil && !errors.Is(err, pgsource.ErrOtherTriggers), err == nil && installed:
		return statements, err
	}
	install, err := pgsource.InstallSQL(p.table)
	if err != nil {
		return nil, err
	}
	what := "the triggers that report changes"
	var channel sql.NullString // of earlier triggers
	var name string            // of the table, as they have it
	switch err := p.db.QueryRowContext(p.ctx, `SELECT substring(p.prosrc FROM 'pg_notify\(''ampcors_([^'']+)'''),
		COALESCE(substring(p.prosrc FROM 'the triggers of (.*) fail, so that'), '')
		FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid
		WHERE t.tgrelid = to_regclass($1) AND t.tgname LIKE 'ampcors%' LIMIT 1`,
		table).Scan(&channel, &name); {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return nil, err
	case channel.Valid && !strings.Contains(install, "'ampcors_"+channel.String+"'") && !replace:
		theirs := "--table (" + channel.String + ", perhaps with a dot for a _)"
		if name != "" {
			theirs = "--table " + inShell(name)
		}
		return nil, exitError{exitUsage, fmt.Errorf("the table %s has triggers for servers that write its name in another "+
			"way, and these would not hear of changes any more: "+
			"use their %s, or --replace", table, theirs)}
	default:
		what += ", which replace earlier ones (all servers must be started with exactly this --table, these columns and " +
			"this --condition)"
	}
	return append(statements, statement{install, what, true}), nil
}

// quoted returns a name in the quotes of the database.
func (p preparation) quoted(name string) string {
	if p.isMySQL() {
		return "`" + name + "`"
	}
	return pgx.Identifier{name}.Sanitize()
}

// isNoTable reports whether an error of a database says that there is no such table.
func isNoTable(err error) bool {
	postgres, other := (*pgconn.PgError)(nil), (*mysql.MySQLError)(nil)
	return errors.As(err, &postgres) && postgres.Code == "42P01" || errors.As(err, &other) && other.Number == 1146
}

// near returns a table of PostgreSQL that has the name without regard to case, or "". Unless the table is to be
// created, it may be in any schema. The name of a schema says that the caller knows where the table is.
func (p preparation) near(create bool) (name string) {
	if p.isMySQL() || strings.Contains(p.table.Table, ".") {
		return ""
	}
	_ = p.db.QueryRowContext(p.ctx,
		`SELECT CASE WHEN pg_table_is_visible(c.oid) THEN '' ELSE quote_ident(n.nspname) || '.' END || quote_ident(c.relname)
		FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE lower(c.relname) = lower($1) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
		AND n.nspname NOT LIKE 'pg\_%' AND n.nspname <> 'information_schema'
		AND (pg_table_is_visible(c.oid) OR NOT $2::boolean)
		ORDER BY pg_table_is_visible(c.oid) DESC, n.nspname LIMIT 1`,
		driver.Folded(p.table.Table), create).Scan(&name) // a hint, if it can be had
	if _, err := (sqlsource.Config{Table: name}).Complete(); err != nil {
		return ""
	}
	return name
}

// columns returns the table's columns.
func (p preparation) columns() ([]string, error) {
	rows, err := p.db.QueryContext(p.ctx, fmt.Sprintf("SELECT * FROM %s WHERE 1 = 0", p.table.Table))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	return rows.Columns()
}

// padded returns the type of the column of domains if PostgreSQL pads its values with spaces, otherwise "".
func (p preparation) padded() (kind string, err error) {
	if p.isMySQL() {
		return "", nil
	}
	err = p.db.QueryRowContext(p.ctx, "SELECT format_type(atttypid, atttypmod) FROM pg_attribute "+
		"WHERE attrelid = to_regclass($1) AND attname = $2 AND atttypid = 'bpchar'::regtype", p.table.Table,
		driver.Folded(p.table.DomainColumn)).Scan(&kind)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return kind, err
}

// howToIndex returns how an index is created on the table, which may be partitioned, or "" for a view if its rows
// are all that is looked at.
func (p preparation) howToIndex() (string, error) {
	if p.isMySQL() {
		return p.createIndex, nil
	}
	var kind string
	if err := p.db.QueryRowContext(p.ctx, "SELECT relkind::text FROM pg_class WHERE oid = to_regclass($1)",
		p.table.Table).Scan(&kind); err != nil {
		return "", fmt.Errorf("the table %s: %w", p.table.Table, err)
	}
	switch kind {
	case "r":
		return p.createIndex, nil
	case "p":
		return "CREATE INDEX", nil // PostgreSQL cannot do it concurrently; writers wait
	}
	if p.noTriggers {
		return "", nil
	}
	return "", fmt.Errorf("%s is not a table, and no trigger sees what changes in it. "+
		"Want the table that its rows come from, with --condition; or let a program look up in it with sqlsource, and add "+
		"--no-triggers", p.table.Table)
}

// hasRow reports whether a query has a row.
func (p preparation) hasRow(query string) (bool, error) {
	rows, err := p.db.QueryContext(p.ctx, query)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	return rows.Next(), rows.Err()
}

// fill fills the hash prefixes that are missing.
func (p preparation) fill() error {
	if p.table.NoPrefixes {
		return errors.New("--no-prefixes is for tables without hash prefixes: there is nothing to fill")
	}
	config := p.table
	config.Condition = "" // a row may satisfy it later
	table, err := sqlsource.New(p.db, config)
	if err != nil {
		return err
	}
	var missing int
	err = p.db.QueryRowContext(p.ctx, fmt.Sprintf("SELECT count(*) FROM %s WHERE %s IS NULL AND %[3]s IS NOT NULL AND "+
		"%[3]s NOT LIKE '*.%%'", p.table.Table,
		p.table.PrefixColumn, p.table.DomainColumn)).Scan(&missing)
	if err != nil {
		return err
	}
	if p.dryRun {
		rows, wrong := p.check(p.table.PrefixColumn, false)
		fmt.Fprintf(p.out, "%d rows, %d of them without a hash prefix\n", rows, missing)
		if wrong != nil {
			return exitError{exitFindings, wrong}
		}
		return nil
	}
	var shown time.Time
	filled, err := table.FillPrefixes(p.ctx, func(done, all int) {
		if time.Since(shown) > time.Second {
			shown = time.Now()
			fmt.Fprintf(p.errs, "%d of %d rows\n", done, all)
		}
	})
	if missing == 0 {
		fmt.Fprintln(p.out, "no hash prefix was missing")
	} else {
		fmt.Fprintf(p.out, "%s filled\n", count(filled, "hash prefix was", "hash prefixes were"))
	}
	if p.ctx.Err() != nil {
		return p.ctx.Err()
	}
	_, wrong := p.check(p.table.PrefixColumn, true) // FillPrefixes has reported the others
	if err = errors.Join(err, wrong); err != nil {
		return exitError{exitFindings, err}
	}
	return nil
}

const maxWrong = 100 // rows that are named

// check returns what is wrong with rows, at most maxWrong: domains that are not canonical, and prefixes that are
// another domain's. prefix is the column of hash prefixes, or NULL if there is none. If onlyFilled, rows without a
// prefix are not looked at.
func (p preparation) check(prefix string, onlyFilled bool) (rows int, err error) {
	more := ""
	if onlyFilled {
		more = fmt.Sprintf(" AND %s IS NOT NULL", prefix)
	}
	rows, errs, wrong, err := p.wrongRows(p.ctx, p.db, prefix, more, maxWrong)
	if wrong > maxWrong {
		errs = append(errs, fmt.Errorf("%d more rows are wrong", wrong-maxWrong))
	}
	return rows, errors.Join(append(errs, err)...)
}
