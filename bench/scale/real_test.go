package scale

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/filter"
	"github.com/ampcors/ampcors/source/pgsource"
)

// TestPostgreSQLServesPublishersInAFlood plays floods like those of the simulation with
// PostgreSQL on this machine. SCALE_PUBLISHERS is how many publishers it has. Decisions are
// checked, and times are not.
func TestPostgreSQLServesPublishersInAFlood(t *testing.T) {
	publishers, rates, seconds := 20_000, []int{2_000}, 2*time.Second
	if n, err := strconv.Atoi(os.Getenv("SCALE_PUBLISHERS")); err == nil {
		publishers, rates, seconds = n, []int{2_000, 10_000, 50_000}, 15*time.Second
	}
	db := servertest.Postgres(t)
	fill(t, db.Addr, publishers)
	table, err := pgsource.New(pgsource.Config{ConnString: servertest.DSN(db.Addr), MaxConns: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	if err := table.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	for table.Ping(t.Context()) != nil {
		time.Sleep(10 * time.Millisecond)
	}
	filtered := func(asked source.Database) source.Database {
		f, err := filter.New(asked, filter.Config{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		t.Cleanup(func() { cancel(); <-done })
		for f.Stats().Publishers == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		return f.Database()
	}
	rows := floodHead
	for _, kind := range []string{"alone", "with a filter"} {
		var lookups atomic.Int64
		asked := table.Database()
		asked.PublisherByDomain = func(ctx context.Context, name string) (string, error) {
			lookups.Add(1)
			return table.Database().PublisherByDomain(ctx, name)
		}
		if kind != "alone" {
			asked = filtered(asked)
		}
		for _, flood := range rates {
			r := play(t, scenario{
				newSource:  func() (source.Database, func() int64) { return asked, lookups.Load },
				publishers: publishers,
				s:          1.2, honest: 1000, new: 100, invented: flood, warm: seconds / 2, time: seconds,
			})
			r.check(t)
			rows = append(rows, r.floodRow(flood, kind))
			t.Log(rows[len(rows)-1], "honest:", &r.honest, "p99", r.honest.p(99))
		}
	}
	if os.Getenv("SCALE_PUBLISHERS") != "" {
		writeTable(t, "PostgreSQL", rows)
	}
}

// fill creates the table with its publishers, and the new ones that come later.
func fill(t *testing.T, addr string, publishers int) {
	t.Helper()
	begun := time.Now()
	conn, err := pgx.Connect(t.Context(), servertest.DSN(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	const create = `CREATE TABLE publishers (domain text COLLATE "C" PRIMARY KEY, hash_prefix text COLLATE "C" UNIQUE)`
	if _, err := conn.Exec(t.Context(), create); err != nil {
		t.Fatal(err)
	}
	const newcomers = 10_000
	rows := pgx.CopyFromSlice(publishers+newcomers, func(i int) ([]any, error) {
		name := domain(i)
		if i >= publishers {
			name = newDomain(i - publishers)
		}
		prefix, err := cacheurl.HashPrefix(name)
		return []any{name, prefix}, err
	})
	if _, err := conn.CopyFrom(t.Context(), pgx.Identifier{"publishers"}, []string{"domain", "hash_prefix"}, rows); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "ANALYZE publishers"); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d publishers were written in %v", publishers, time.Since(begun).Round(time.Millisecond))
}
