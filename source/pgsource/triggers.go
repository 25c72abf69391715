package pgsource

import (
	"context"
	"fmt"
	"strings"

	"github.com/ampcors/ampcors/source/sqlsource"
	"github.com/jackc/pgx/v5"
)

const (
	maxIdentifier = 63     // bytes; PostgreSQL cuts off the rest
	maxRows       = 30_000 // changed by one statement; if there are more, their domains are not sent
	maxPayload    = 7_500  // bytes; with one more domain, below PostgreSQL's limit of 8000
	tag           = "$ampcors$"
)

var triggerNames = []string{"ampcors_insert", "ampcors_update", "ampcors_delete", "ampcors_truncate"}

func quote(identifier string) string { return pgx.Identifier{identifier}.Sanitize() }

// InstallSQL returns the statements that create the triggers on a table, for a migration.
// They can run again, after Condition has changed or with a new version of this package.
// They must run as the owner of the table.
func InstallSQL(table sqlsource.Config) (string, error) {
	_, statements, err := triggers(table)
	return statements, err
}

// Install creates the triggers, in one transaction. It can be called again. ConnString must
// be that of the table's owner.
func (s *Source) Install(ctx context.Context) error {
	_, statements, err := triggers(s.table)
	if err != nil {
		return err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("pgsource: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit, it does nothing
	if _, err := tx.ExecContext(ctx, statements); err != nil {
		return fmt.Errorf("pgsource: installing the triggers: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("pgsource: %w", err)
	}
	return nil
}

// checkTriggers returns an error if a trigger is missing or disabled.
func (s *Source) checkTriggers(ctx context.Context) error {
	table := s.table.Table
	if table == "" {
		table = "publishers"
	}
	for _, name := range triggerNames {
		var n int
		err := s.db.QueryRowContext(ctx, "SELECT count(*) FROM pg_trigger WHERE tgrelid = $1::regclass AND tgname = $2 AND tgenabled <> 'D'", table, name).Scan(&n)
		if err != nil {
			return fmt.Errorf("pgsource: %w", err)
		}
		if n == 0 {
			return fmt.Errorf("pgsource: the table %s has no trigger %s, or it is disabled, so changes are not reported; call Install", table, name)
		}
	}
	return nil
}

// triggers returns the channel of a table, and the SQL that creates its triggers.
func triggers(t sqlsource.Config) (channel, statements string, err error) {
	if t.Table == "" {
		t.Table = "publishers"
	}
	if t.DomainColumn == "" {
		t.DomainColumn = "domain"
	}
	if t.PrefixColumn == "" {
		t.PrefixColumn = "fallback_prefix"
	}
	schema, name, ok := strings.Cut(t.Table, ".")
	if !ok {
		schema, name = "", t.Table
	}
	function := "ampcors_notify_" + name
	channel = strings.ToLower("ampcors_" + strings.ReplaceAll(t.Table, ".", "_"))
	if longest := max(len(function), len(channel)); longest > maxIdentifier {
		return "", "", fmt.Errorf("pgsource: Table.Table %.80q is too long by %d bytes", t.Table, longest-maxIdentifier)
	}
	if strings.Contains(t.Condition, tag) {
		return "", "", fmt.Errorf("pgsource: Table.Condition contains %s", tag)
	}
	if schema != "" {
		function = schema + "." + function
	}
	where := ""
	if t.Condition != "" {
		where = " WHERE (" + t.Condition + "\n)"
	}
	// The transition tables get the table's own name, because Condition may use it.
	rows := func(columns, transition string) string {
		return fmt.Sprintf("SELECT %s FROM %s AS %s%s", columns, transition, name, where)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `CREATE OR REPLACE FUNCTION %[1]s() RETURNS trigger LANGUAGE plpgsql AS %[2]s
#variable_conflict use_column
DECLARE
	ampcors_domains text[];
	ampcors_count bigint;
	ampcors_message text;
BEGIN
	IF TG_OP = 'INSERT' THEN
		SELECT count(*) INTO ampcors_count FROM (SELECT FROM ampcors_new LIMIT %[3]d) AS few;
	ELSIF TG_OP <> 'TRUNCATE' THEN
		SELECT count(*) INTO ampcors_count FROM (SELECT FROM ampcors_old LIMIT %[3]d) AS few;
	END IF;
	IF TG_OP = 'TRUNCATE' OR ampcors_count = %[3]d THEN
		PERFORM pg_notify('%[4]s', '');
		RETURN NULL;
	END IF;
	IF TG_OP = 'INSERT' THEN
		SELECT array_agg(DISTINCT domain::text) INTO ampcors_domains FROM (%[5]s) AS changed (domain);
	ELSIF TG_OP = 'DELETE' THEN
		SELECT array_agg(DISTINCT domain::text) INTO ampcors_domains FROM (%[6]s) AS changed (domain);
	ELSE
		SELECT array_agg(DISTINCT domain::text) INTO ampcors_domains FROM (
			(%[7]s EXCEPT %[8]s)
			UNION ALL
			(%[8]s EXCEPT %[7]s)
		) AS changed (domain, prefix);
	END IF;
	FOR ampcors_message IN
		SELECT string_agg(domain, ' ') FROM (
			SELECT domain, sum(octet_length(domain) + 1) OVER (ROWS UNBOUNDED PRECEDING) / %[9]d AS part
			FROM unnest(ampcors_domains) AS domain
			WHERE octet_length(domain) BETWEEN 1 AND 253
		) AS parts GROUP BY part
	LOOP
		PERFORM pg_notify('%[4]s', ampcors_message);
	END LOOP;
	RETURN NULL;
END
%[2]s;
`, function, tag, maxRows+1, channel,
		rows(t.DomainColumn, "ampcors_new"), rows(t.DomainColumn, "ampcors_old"),
		rows(t.DomainColumn+", "+t.PrefixColumn, "ampcors_old"), rows(t.DomainColumn+", "+t.PrefixColumn, "ampcors_new"), maxPayload)
	for i, event := range []string{
		"INSERT ON %s REFERENCING NEW TABLE AS ampcors_new",
		"UPDATE ON %s REFERENCING OLD TABLE AS ampcors_old NEW TABLE AS ampcors_new",
		"DELETE ON %s REFERENCING OLD TABLE AS ampcors_old",
		"TRUNCATE ON %s",
	} {
		fmt.Fprintf(&b, "DROP TRIGGER IF EXISTS %s ON %s;\nCREATE TRIGGER %s AFTER %s FOR EACH STATEMENT EXECUTE FUNCTION %s();\n",
			triggerNames[i], t.Table, triggerNames[i], fmt.Sprintf(event, t.Table), function)
	}
	return channel, b.String(), nil
}
