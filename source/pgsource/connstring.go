package pgsource

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/source/driver"
)

// CheckConnString returns the error of [New] for a connection string, for programs that also give it to
// others. The error contains no part of the string, because it may be the password.
func CheckConnString(connString string) error {
	_, err := parseConnString(connString)
	return err
}

const wantConnString = `one such as "postgres://user:password@host/database", with ` + driver.WantEscaped

// badConnString does not have the string, which may be the password.
func badConnString(reason, more string) error {
	return &badvalue.Error{Code: badvalue.Malformed, Path: "ConnString", Value: "…", Reason: reason,
		Want: wantConnString + more}
}

// parseConnString returns what pgx makes of a connection string. It also rejects strings in which a
// part of the password would become a host, a database or a setting, because errors of pgx and of
// PostgreSQL quote hosts, databases and settings.
func parseConnString(connString string) (*pgx.ConnConfig, error) {
	conn, err := pgx.ParseConfig(connString)
	if err != nil {
		return nil, badConnString("cannot be parsed", "")
	}
	scheme, _, _ := strings.Cut(connString, "://")
	isURL := scheme == "postgres" || scheme == "postgresql"
	switch {
	case isURL && driver.IsUnescaped(connString):
		return nil, badConnString("has more than a user, a password and an @ before its host",
			"; escape special characters after the host, too")
	case hasOtherSetting(connString, conn):
		return nil, badConnString("has a keyword that is not one of libpq", `, or keywords and values, `+
			`with quotes around a password that has spaces (password='…'), and other settings of the server as options='-c `+
			`name=value'`)
	}
	if conn.ConnectTimeout == 0 { // as for libpq, 0 is the same as none
		conn.ConnectTimeout = defaultConnectTimeout
	}
	return conn, nil
}

// defaultConnectTimeout is for each host. A host that does not answer must not keep others from being tried.
const defaultConnectTimeout = time.Second

// hasOtherSetting reports whether there is a keyword that PostgreSQL may not know, and that may be a
// part of a password: of one that is not quoted, or of one in a URL of another scheme.
func hasOtherSetting(connString string, conn *pgx.ConnConfig) bool {
	text := strings.ToLower(connString)
	// as a keyword, not before the @ of a URL
	hasPassword := strings.Contains(text, "pass") || strings.Contains(text, "pwd")
	for name := range conn.RuntimeParams {
		if strings.ContainsAny(name, ":/@") || hasPassword && !slices.Contains(commonSettings, strings.ToLower(name)) &&
			!strings.HasPrefix(name, "pool_") {
			return true
		}
	}
	return false
}

// commonSettings are those of libpq's keywords that pgx passes on, and what programs often set beside them.
// Those that begin with pool_ are of pgxpool.
var commonSettings = []string{"application_name", "client_encoding", "datestyle", "fallback_application_name",
	"idle_in_transaction_session_timeout", "lock_timeout", "options", "replication", "role", "search_path",
	"statement_timeout", "timezone"}

// isWritable returns an error for a standby, whose notifications would not come. pgx has the same check, and panics
// if the server ends before it answers.
func isWritable(ctx context.Context, conn *pgconn.PgConn) error {
	server, err := writable(conn.Exec(ctx, "SELECT current_setting('transaction_read_only'), pg_is_in_recovery(), "+
		"extract(epoch FROM pg_postmaster_start_time())").ReadAll())
	conn.CustomData()[serverKey] = server
	return err
}

// serverKey is where a connection keeps which server it is connected to: the time at which that started.
const serverKey = "ampcors.server"

func serverOf(conn *pgconn.PgConn) string {
	server, _ := conn.CustomData()[serverKey].(string)
	return server
}

// writable returns when the server started.
func writable(results []*pgconn.Result, err error) (started string, _ error) {
	switch {
	case err != nil:
		return "", err
	case len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) != 3:
		return "", errors.New("the server does not say whether it is a standby")
	case string(results[0].Rows[0][1]) == "t":
		return "", errors.New("the server is a standby")
	case string(results[0].Rows[0][0]) == "on":
		return "", errReadOnly
	}
	return string(results[0].Rows[0][2]), nil
}

// errReadOnly may be about a user, or about an old primary after a move to another server.
var errReadOnly = errors.New("pgsource: the server takes no writes from this user: default_transaction_read_only is on")

// isReporting returns an error for a connection of lookups to another server than the one that reports changes.
func (s *Table) isReporting(ctx context.Context, conn *pgconn.PgConn) error {
	if err := isWritable(ctx, conn); err != nil {
		return err
	}
	if reporting := s.server.Load(); reporting != nil && *reporting != serverOf(conn) {
		return errors.New("the server is another one than the one that reports changes; both take writes")
	}
	return nil
}

// stillReports makes the pool drop a connection to a server that no longer reports changes.
func (s *Table) stillReports(_ context.Context, conn *pgx.Conn) error {
	if reporting := s.server.Load(); reporting != nil && *reporting != serverOf(conn.PgConn()) {
		return sqldriver.ErrBadConn
	}
	return nil
}
