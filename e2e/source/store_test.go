package e2e

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/rueidis"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/source/redissource"
	"github.com/ampcors/ampcors/source/sqlsource"
)

// A store is the database that the servers share.
type store interface {
	flags(addr string) []string // of a server that connects to addr
	fill(t *testing.T, publishers []string)
	add(ctx context.Context, publisher string) error
	revoke(ctx context.Context, publisher string) error
	clients(ctx context.Context) (int, error) // connections, without the test's own
}

// A redisStore is a Redis, a Redis Cluster, or what Sentinels watch.
type redisStore struct {
	source *redissource.Store
	addrs  []string // of all servers, to count their clients
	args   []string // of a server; nil for one Redis
}

func newRedisStore(t *testing.T, addr string) *redisStore {
	t.Helper()
	return newRedisStoreOf(t, rueidis.ClientOption{InitAddress: []string{addr}}, []string{addr})
}

func newRedisStoreOf(t *testing.T, option rueidis.ClientOption, addrs []string, args ...string) *redisStore {
	t.Helper()
	cfg := redissource.Config{Redis: option}
	if slices.Contains(args, "-cluster") {
		cfg.Topology = redissource.Cluster
	}
	source, err := redissource.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	return &redisStore{source, addrs, args}
}

func (s *redisStore) flags(addr string) []string {
	args := s.args
	if args == nil {
		args = []string{"-redis", addr}
	}
	return append(slices.Clone(args), "-ttl", "2s") // a change does not wait for it
}

func (s *redisStore) fill(t *testing.T, publishers []string) {
	if err := s.source.Add(t.Context(), publishers...); err != nil {
		t.Fatal(err)
	}
}

func (s *redisStore) add(ctx context.Context, publisher string) error {
	return s.source.Add(ctx, publisher)
}

func (s *redisStore) revoke(ctx context.Context, publisher string) error {
	return s.source.Remove(ctx, publisher)
}

func (s *redisStore) clients(context.Context) (n int, err error) {
	for _, addr := range s.addrs {
		list, err := servertest.RedisDo(addr, "CLIENT", "LIST")
		if err != nil {
			return 0, err
		}
		n += strings.Count(list, " name=server ")
	}
	return n, nil
}

// A sqlStore changes publishers by SQL, for the stores that have a table.
type sqlStore struct {
	db             *sql.DB
	insert, remove string
	count          string // of the clients, without the test's own
}

const sqlTTL = time.Second

func (s *sqlStore) add(ctx context.Context, publisher string) error {
	prefix, err := cacheurl.HashPrefix(publisher)
	if err != nil {
		return err
	}
	_, err = s.db.ExecContext(ctx, s.insert, publisher, prefix)
	return err
}

func (s *sqlStore) revoke(ctx context.Context, publisher string) error {
	_, err := s.db.ExecContext(ctx, s.remove, publisher)
	return err
}

func (s *sqlStore) clients(ctx context.Context) (n int, err error) {
	err = s.db.QueryRowContext(ctx, s.count).Scan(&n)
	return n, err
}

type postgresStore struct {
	sqlStore
	addr string
}

func newPostgresStore(t *testing.T, addr string) *postgresStore {
	t.Helper()
	config, err := pgx.ParseConfig(servertest.DSN(addr))
	if err != nil {
		t.Fatal(err)
	}
	s := &postgresStore{addr: addr, sqlStore: sqlStore{
		insert: "INSERT INTO publishers VALUES ($1, $2)",
		remove: "DELETE FROM publishers WHERE domain = $1",
		count:  "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
	}}
	s.use(t, config)
	return s
}

// use makes the test use these servers.
func (s *postgresStore) use(t *testing.T, config *pgx.ConnConfig) {
	s.db = stdlib.OpenDB(*config)
	s.db.SetMaxOpenConns(1)
	t.Cleanup(func() { s.db.Close() })
}

func (s *postgresStore) flags(addr string) []string {
	return []string{"-postgres", servertest.DSN(addr), "-ttl", sqlTTL.String()}
}

// fill creates the table that sqlsource documents. Most rows are inserted with their
// prefix. FillPrefixes sets the others, as in a migration.
func (s *postgresStore) fill(t *testing.T, publishers []string) {
	ctx := t.Context()
	if _, err := s.db.ExecContext(ctx, documentedTable(t, "PostgreSQL")); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(ctx, servertest.DSN(s.addr))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	old := len(publishers) / 50
	copied, err := conn.CopyFrom(ctx, pgx.Identifier{"publishers"}, []string{"domain", "hash_prefix"},
		pgx.CopyFromSlice(len(publishers), func(i int) ([]any, error) {
			if i < old {
				return []any{publishers[i], nil}, nil
			}
			prefix, err := cacheurl.HashPrefix(publishers[i])
			return []any{publishers[i], prefix}, err
		}))
	if err != nil || int(copied) != len(publishers) {
		t.Fatal(copied, err)
	}
	source, err := sqlsource.New(s.db, sqlsource.Config{})
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if filled, err := source.FillPrefixes(ctx, nil); filled != old || err != nil {
		t.Fatal(filled, err)
	}
	t.Logf("filled %d prefixes in %v", old, time.Since(begun))
	if _, err := s.db.ExecContext(ctx, "ANALYZE publishers"); err != nil {
		t.Fatal(err)
	}
}
