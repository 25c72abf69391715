// Package driver has the code that is shared by packages which connect a database with package source, such as
// pgsource and redissource. A program that only uses such a
// package does not need it.
package driver

import (
	"fmt"
	"strings"
)

// Folded returns the name that PostgreSQL stores for a name in a statement: what quotes enclose as it is, and
// otherwise lower case.
func Folded(name string) string {
	if unquoted := strings.Trim(name, "\"`"); unquoted != name {
		return unquoted
	}
	return strings.ToLower(name)
}

// WantEscaped says how a password is written in the URL of a database.
const WantEscaped = "special characters in the password escaped, such as %40 for @, %2F for / and %23 for #"

// IsUnescaped reports whether a special character in the URL of a database is not escaped, so that more than a user
// and a password is before its last @. Then drivers take a part of the password for the host, and have it in their
// errors.
func IsUnescaped(url string) bool {
	_, rest, _ := strings.Cut(url, "://")
	at := strings.LastIndex(rest, "@")
	return at >= 0 && strings.ContainsAny(rest[:at], "@/?#")
}

// MayHideRows returns SQL for PostgreSQL: whether row-level security may hide rows of a table from the user. It may if
// no permissive policy shows each row, or if there is a restrictive policy. The table is an expression of type
// regclass.
func MayHideRows(table string) string {
	return fmt.Sprintf(`row_security_active(%[1]s)
	AND (SELECT count(*) FILTER (WHERE polpermissive AND pg_get_expr(polqual, polrelid) = 'true') = 0
	OR count(*) FILTER (WHERE NOT polpermissive) > 0 FROM pg_policy WHERE polrelid = %[1]s AND polcmd IN ('r', '*')
	AND EXISTS (SELECT FROM unnest(polroles) AS role WHERE role = 0 OR pg_has_role(role, 'USAGE')))`, table)
}
