package pgsource

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/source/sqlsource"
)

// BenchmarkWrite inserts and deletes rows, with and without the triggers, while three
// servers listen. Each operation is two transactions.
func BenchmarkWrite(b *testing.B) {
	for _, triggers := range []string{"no", "yes"} {
		db := servertest.Postgres(b)
		conn := connect(b, db.Addr)
		exec(b, conn, createTable)
		for range 3 {
			s := newTestTable(b, sqlsource.Config{}, db.Addr)
			if triggers == "yes" {
				if err := s.Install(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		}
		for _, rows := range []int{1, 1000} {
			for _, writers := range []int{1, 8} {
				b.Run(fmt.Sprintf("rows=%d/writers=%d/triggers=%s", rows, writers, triggers), func(b *testing.B) {
					var id atomic.Int64
					b.SetParallelism((writers + 1) / 2)
					if writers == 1 {
						for b.Loop() {
							write(b, conn, id.Add(1), rows)
						}
						return
					}
					b.RunParallel(func(pb *testing.PB) {
						own := connect(b, db.Addr)
						for pb.Next() {
							write(b, own, id.Add(1), rows)
						}
					})
				})
			}
		}
	}
}

func write(b *testing.B, conn *pgx.Conn, id int64, rows int) {
	exec(b, conn, "INSERT INTO publishers (domain) SELECT 'www.' || $1::bigint || '-' || n || '.example' FROM generate_series(1, $2::int) "+
		"AS n", id, rows)
	exec(b, conn, "DELETE FROM publishers WHERE domain >= 'www.' || $1::bigint || '-' AND domain < 'www.' || $1::bigint || '.'", id)
}
