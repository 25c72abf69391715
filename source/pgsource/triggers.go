package pgsource

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/driver"
	"github.com/ampcors/ampcors/source/sqlsource"
)

const (
	maxIdentifier = 63     // bytes; PostgreSQL cuts off the rest
	maxRows       = 30_000 // changed by one statement; if there are more, their domains are not sent
	maxPayload    = 7_500  // bytes; with one more domain, below PostgreSQL's limit of 8000
	tag           = "$ampcors$"

	installing = "ampcors.installing" // a setting of the transaction that installs the triggers
)

var triggerNames = []string{"ampcors_insert", "ampcors_update", "ampcors_delete", "ampcors_truncate"}

func quote(identifier string) string { return pgx.Identifier{identifier}.Sanitize() }

// InstallSQL returns the statements that create the triggers on a table, for a migration. Run
// them in one transaction, as the owner of the table. They can run again, after Condition
// has changed or with a new version of this package. They change no row, and fail if
// Condition cannot be used in a trigger.
func InstallSQL(table sqlsource.Config) (string, error) {
	t, err := triggersOn(table)
	return t.statements, err
}

// Install creates the triggers, in one transaction. It can be called again. ConnString must
// be that of the table's owner.
func (s *Table) Install(ctx context.Context) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("pgsource: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit, it does nothing
	if _, err := tx.ExecContext(ctx, s.triggers.statements); err != nil {
		return fmt.Errorf("pgsource: installing the triggers: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("pgsource: %w", err)
	}
	s.fit.Store(fittingTriggers)
	return nil
}

// IsInstalled reports whether the table has the triggers of this version and Config.Table, and they are enabled. An
// error that is [ErrOtherTriggers] says that the triggers are of another Config.Table.
func (s *Table) IsInstalled(ctx context.Context) (bool, error) {
	var own, others int
	var isHidden bool
	for dead := s.db.Stats().OpenConnections; ; dead-- { // all connections of the pool may be dead
		err := s.db.QueryRowContext(ctx, countSQL, s.triggers.table, s.triggers.body, s.triggers.mark).Scan(&own, &others,
			&isHidden)
		if err == nil {
			return own == len(triggerNames), s.fits(others, isHidden)
		}
		if dead <= 0 || ctx.Err() != nil || !isLost(err) {
			return false, fmt.Errorf("pgsource: %w", err)
		}
	}
}

// isLost reports whether an error says that the connection is lost, also because the server has ended it
// (class 57 of PostgreSQL's error codes, operator intervention).
func isLost(err error) bool {
	said := (*pgconn.PgError)(nil)
	return !errors.As(err, &said) || strings.HasPrefix(said.Code, "57P")
}

// countSQL counts the triggers that have the names in triggerNames: first, those that are enabled and have this
// body, with a search_path that a writer cannot change; second, those that are made for other columns or another
// condition; third, whether a policy may hide rows from this user.
var countSQL = `SELECT count(*) FILTER (WHERE t.tgenabled IN ('O', 'A') AND p.prosrc = $2
		AND EXISTS (SELECT FROM unnest(p.proconfig) AS setting WHERE setting ~ '^search_path=(.*, )?pg_temp$')), count(*)
			FILTER (WHERE strpos(p.prosrc, $3) = 0),
	COALESCE(` + driver.MayHideRows("to_regclass($1)") + `, false)
	FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid WHERE t.tgrelid = to_regclass($1) AND t.tgname IN
		('` + strings.Join(triggerNames, "', '") + `')`

// identitySQL tells a table from one that has replaced it, or has been rewritten, and its triggers from ones that
// were made or enabled again. Rows may have changed meanwhile without a trigger: a dump that is restored, a schema
// that is swapped, DISABLE TRIGGER, ALTER COLUMN TYPE.
const identitySQL = `COALESCE((SELECT concat_ws(' ', c.oid, c.relfilenode, c.xmin,
	(SELECT string_agg(concat_ws(':', t.oid, t.xmin), ',' ORDER BY t.oid) FROM pg_trigger AS t WHERE t.tgrelid = c.oid),
	(SELECT string_agg(a.xmin::text, ',' ORDER BY a.attnum) FROM pg_attribute AS a WHERE a.attrelid = c.oid AND
		a.attnum > 0))
	FROM pg_class AS c WHERE c.oid = to_regclass($1)), 'none')`

// ErrOtherTriggers says that the triggers on a table were installed with other columns or another
// condition than a [Config] has. Either the triggers or the Config is wrong. If the Config lacks the
// condition of the triggers, a suspended publisher would get in. So lookups fail, and the error wraps
// [source.ErrNoStale].
var ErrOtherTriggers = fmt.Errorf("pgsource: the triggers of the table are for other columns or another condition, "+
	"character for character; use theirs, or run ampcors source install --replace with yours; %w", source.ErrNoStale)

// rowSecurityIsOn is a setting that nobody has, so that to read it is an error.
const rowSecurityIsOn = "ampcors.row_security_is_on"

// whereHidden returns the table with a condition that fails where isHidden, SQL about its name, holds. PostgreSQL
// evaluates it once for a statement, before it looks at rows: a lookup that was answered a moment before the next
// check must not have seen fewer rows.
func whereHidden(table sqlsource.Config, isHidden func(regclass string) string) sqlsource.Config {
	regclass := "to_regclass('" + cmp.Or(table.Table, "publishers") + "')"
	condition := fmt.Sprintf("CASE WHEN %s THEN current_setting('%s') = '' ELSE true END", isHidden(regclass),
		rowSecurityIsOn)
	if table.Condition != "" {
		condition = "(" + table.Condition + "\n) AND " + condition
	}
	table.Condition = condition
	return table
}

// ask returns the answer of the lookups that do not look at policies. Once these have failed because there may be
// some, it asks with the lookups that do, which take half as long again. What is missing is asked for twice: a user
// who gets a right while a lookup is planned and run, or loses it, may see no rows, and no policy that hides them.
func (s *Table) ask(do func(*sqlsource.Table) (string, error)) (string, error) {
	if !s.hasPolicies.Load() {
		found, err := said(do(s.Table))
		if !errors.Is(err, sqlsource.ErrRowSecurity) {
			return found, err
		}
		s.hasPolicies.Store(true)
	}
	found, err := said(do(s.policed))
	if found == "" && err == nil {
		found, err = said(do(s.policed))
	}
	return found, err
}

// said returns sqlsource.ErrRowSecurity in place of the error of that condition.
func said(publisher string, err error) (string, error) {
	if of := (*pgconn.PgError)(nil); errors.As(err, &of) && strings.Contains(of.Message, rowSecurityIsOn) {
		return "", sqlsource.ErrRowSecurity
	}
	return publisher, err
}

// What is known of the triggers on the table, and of its rows.
const (
	unknownTriggers int32 = iota // they are not checked now
	fittingTriggers              // those of this Config, or none
	otherTriggers
	hiddenRows          // those of this Config, or none, and a policy may hide rows
	otherTriggersBefore // they are not checked now, and the last check found those of another Config
)

// fits notes whether there are triggers of another Config, or whether rows may be hidden, and returns
// ErrOtherTriggers or sqlsource.ErrRowSecurity if so.
func (s *Table) fits(others int, isHidden bool) error {
	if isHidden && others == 0 {
		if s.fit.Swap(hiddenRows) != hiddenRows {
			s.listeners.Call() // a row may have looked missing
		}
		return sqlsource.ErrRowSecurity
	}
	if others > 0 {
		if s.fit.Swap(otherTriggers) != otherTriggers {
			s.listeners.Call() // what is remembered may be wrong
		}
		return ErrOtherTriggers
	}
	s.fit.Store(fittingTriggers)
	return nil
}

// unwatched notes that the listening connection, which looks at the triggers, is lost.
func (s *Table) unwatched() {
	s.fit.CompareAndSwap(fittingTriggers, unknownTriggers)
	s.fit.CompareAndSwap(hiddenRows, unknownTriggers)
	s.fit.CompareAndSwap(otherTriggers, otherTriggersBefore)
}

// checkFit returns ErrOtherTriggers while the triggers are those of another Config. The listening
// connection looks at them all the time. While there is none, lookups do. If they cannot either, what was
// found last counts: a database that stops must not make earlier answers valid again.
func (s *Table) checkFit(ctx context.Context) error {
	fit := s.fit.Load()
	switch fit {
	case fittingTriggers:
		return nil
	case otherTriggers:
		return ErrOtherTriggers
	case hiddenRows:
		return sqlsource.ErrRowSecurity
	}
	_, err := s.IsInstalled(ctx)
	if err != nil && fit == otherTriggersBefore && !errors.Is(err, ErrOtherTriggers) {
		return fmt.Errorf("%w; and they cannot be looked at now: %w", ErrOtherTriggers, err)
	}
	return err
}

// A noTriggers is the error for a table on which changes are not reported.
type noTriggers struct{ table string }

func (e noTriggers) Error() string {
	return fmt.Sprintf("pgsource: %s does not have the triggers for these columns and this condition, or not enabled, "+
		"so revocations are seen late; run ampcors source install with the same flags; if it is not the table that you "+
		"mean, "+
		"another schema of the search_path has one of that name (ampcors check names it): write the schema in the table's "+
		"name", e.table)
}

// triggers are those of a table.
type triggers struct {
	table      string
	channel    string // of the notifications
	mark       string // in the body: which columns and condition they are for
	body       string // of their function
	statements string // that create them
}

func triggersOn(t sqlsource.Config) (triggers, error) {
	t, err := t.Complete()
	if err != nil {
		for problem := range badvalue.All(err) {
			problem.Path = "Table." + problem.Path
		}
		return triggers{}, err
	}
	schema, name, ok := strings.Cut(t.Table, ".")
	if !ok {
		schema, name = "", t.Table
	}
	function := "ampcors_notify_" + name
	if strings.HasPrefix(name, `"`) {
		function = quote("ampcors_notify_" + driver.Folded(name))
	}
	channel := "ampcors_"
	if schema != "" {
		channel += driver.Folded(schema) + "_"
	}
	channel += driver.Folded(name)
	if longest := max(len(strings.Trim(function, `"`)), len(channel)); longest > maxIdentifier {
		return triggers{}, &badvalue.Error{Code: badvalue.OutOfRange, Path: "Table.Table", Value: t.Table,
			Reason: fmt.Sprintf("is too long by %d bytes", longest-maxIdentifier), Want: "a shorter name"}
	}
	if strings.Contains(t.Condition, tag) {
		return triggers{}, &badvalue.Error{Code: badvalue.Malformed, Path: "Table.Condition", Value: t.Condition,
			Reason: "contains " + tag,
			Want:   "a condition without it"}
	}
	if schema != "" {
		function = schema + "." + function
	}
	where := ""
	if t.Condition != "" {
		where = " WHERE (" + t.Condition + "\n)"
	}
	// The transition tables get the table's own name, because Condition may use it. Bytes are compared, as a lookup
	// does: to the column's own collation or type, such as citext, a row that is found may equal one that is not.
	rows := func(transition string, columns ...string) string {
		for i, column := range columns {
			columns[i] = column + `::text COLLATE "C"`
		}
		return fmt.Sprintf("SELECT %s FROM %s AS %s%s", strings.Join(columns, ", "), transition, name, where)
	}
	prefix := cmp.Or(t.PrefixColumn, t.DomainColumn) // with NoPrefixes
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []string{driver.Folded(t.DomainColumn), driver.Folded(prefix),
		strings.TrimSpace(t.Condition)}))
	mark := fmt.Sprintf("-- ampcors %x", sum[:8])
	body := mark + fmt.Sprintf(`
#variable_conflict use_column
DECLARE
	ampcors_domains text[];
	ampcors_count bigint;
	ampcors_message text;
BEGIN
	IF TG_OP = 'INSERT' THEN
		SELECT count(*) INTO ampcors_count FROM (SELECT FROM ampcors_new LIMIT %[1]d) AS few;
	ELSIF TG_OP <> 'TRUNCATE' THEN
		SELECT count(*) INTO ampcors_count FROM (SELECT FROM ampcors_old LIMIT %[1]d) AS few;
	END IF;
	IF TG_OP = 'TRUNCATE' OR ampcors_count = %[1]d THEN
		PERFORM pg_notify('%[2]s', '');
		RETURN NULL;
	END IF;
	IF TG_OP = 'INSERT' THEN
		SELECT array_agg(DISTINCT domain) INTO ampcors_domains FROM (%[3]s) AS changed (domain);
	ELSIF TG_OP = 'DELETE' THEN
		SELECT array_agg(DISTINCT domain) INTO ampcors_domains FROM (%[4]s) AS changed (domain);
	ELSE
		SELECT array_agg(DISTINCT domain) INTO ampcors_domains FROM (
			(%[5]s EXCEPT %[6]s)
			UNION ALL
			(%[6]s EXCEPT %[5]s)
		) AS changed (domain, prefix);
	END IF;
	FOR ampcors_message IN
		SELECT string_agg(domain, ' ') FROM (
			SELECT domain, sum(octet_length(domain) + 1) OVER (ROWS UNBOUNDED PRECEDING) / %[7]d AS part
			FROM unnest(ampcors_domains) AS domain
			WHERE octet_length(domain) BETWEEN 1 AND 253
		) AS parts GROUP BY part
	LOOP
		PERFORM pg_notify('%[2]s', ampcors_message);
	END LOOP;
	RETURN NULL;
EXCEPTION WHEN OTHERS THEN
	IF current_setting('%[8]s', true) = 'on' THEN
		RAISE;
	END IF;
	RAISE WARNING 'ampcors: the triggers of %[9]s fail, so that each write makes all servers look up everything: %%', `+
		`SQLERRM;
	PERFORM pg_notify('%[2]s', '');
	RETURN NULL;
END
`, maxRows+1, channel,
		rows("ampcors_new", t.DomainColumn), rows("ampcors_old", t.DomainColumn),
		rows("ampcors_old", t.DomainColumn, prefix), rows("ampcors_new", t.DomainColumn, prefix), maxPayload,
		installing, t.Table)
	var b strings.Builder
	// A writer's search_path must not change what Condition and its operators mean, nor may its own schema or
	// temporary tables.
	b.WriteString("SELECT set_config('ampcors.search_path', current_setting('search_path'), true);\n")
	b.WriteString("SELECT set_config('search_path', concat_ws(', ', (SELECT string_agg(quote_ident(schema), ', ') FROM " +
		"unnest(current_schemas(false)) AS schema), 'pg_temp'), true);\n")
	fmt.Fprintf(&b, "CREATE OR REPLACE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS "+
		"%s%s%s;\n",
		function, tag, body, tag)
	b.WriteString("SELECT set_config('search_path', current_setting('ampcors.search_path'), true);\n")
	for i, event := range []string{
		"INSERT ON %s REFERENCING NEW TABLE AS ampcors_new",
		"UPDATE ON %s REFERENCING OLD TABLE AS ampcors_old NEW TABLE AS ampcors_new",
		"DELETE ON %s REFERENCING OLD TABLE AS ampcors_old",
		"TRUNCATE ON %s",
	} {
		// ALWAYS: also for rows that are written with session_replication_role=replica.
		fmt.Fprintf(&b, "DROP TRIGGER IF EXISTS %[1]s ON %[2]s;\nCREATE TRIGGER %[1]s AFTER %[3]s FOR EACH STATEMENT "+
			"EXECUTE FUNCTION %[4]s();\n"+
			"ALTER TABLE %[2]s ENABLE ALWAYS TRIGGER %[1]s;\n", triggerNames[i], t.Table, fmt.Sprintf(event, t.Table), function)
	}
	// The triggers for INSERT, UPDATE and DELETE run once, for no row, so that an error in Condition shows
	// now: later, it must not make a write fail.
	fmt.Fprintf(&b, "SELECT set_config('%s', 'on', true);\n", installing)
	fmt.Fprintf(&b, "INSERT INTO %[1]s (%[2]s) SELECT %[2]s FROM %[1]s WHERE false;\n", t.Table, t.DomainColumn)
	fmt.Fprintf(&b, "UPDATE %[1]s SET %[2]s = %[2]s WHERE false;\n", t.Table, t.DomainColumn)
	fmt.Fprintf(&b, "DELETE FROM %s WHERE false;\n", t.Table)
	fmt.Fprintf(&b, "SELECT set_config('%s', 'off', true);\n", installing)
	// Changes that were made before were not reported.
	fmt.Fprintf(&b, "SELECT pg_notify('%s', '');\n", channel)
	return triggers{t.Table, channel, mark, body, b.String()}, nil
}
