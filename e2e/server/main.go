// Command server is one of several servers that share a database of publishers. At / it
// serves an API behind ampcors, and at /stats its counts.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/source/pgsource"
	"github.com/ampcors/ampcors/source/redissource"
	"github.com/ampcors/ampcors/source/sqlsource"
	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/rueidis"
)

// Stats is what /stats answers.
type Stats struct {
	Requests    ampcors.Stats
	Source      ampcors.SourceStats
	Goroutines  int
	Connections int   // to PostgreSQL
	Heap        int64 // bytes
}

func main() {
	log.SetFlags(0)
	var db database
	flag.StringVar(&db.redis, "redis", "", "addresses of Redis, separated by commas")
	flag.StringVar(&db.sentinel, "sentinel", "", "name of the master, if the addresses are those of Sentinels")
	flag.StringVar(&db.postgres, "postgres", "", "how to connect to PostgreSQL, without notifications")
	flag.StringVar(&db.notifying, "notifying-postgres", "", "how to connect to PostgreSQL, with notifications")
	flag.StringVar(&db.mariadb, "mariadb", "", "how to connect to MariaDB")
	var lookup ampcors.Lookup
	flag.DurationVar(&lookup.TTL, "ttl", 0, "Lookup.TTL")
	flag.DurationVar(&lookup.NegativeTTL, "negative-ttl", 0, "Lookup.NegativeTTL")
	flag.DurationVar(&lookup.MaxStale, "max-stale", 0, "Lookup.MaxStale")
	flag.DurationVar(&lookup.Timeout, "timeout", 0, "Lookup.Timeout")
	flag.IntVar(&lookup.MaxRate, "max-rate", 0, "Lookup.MaxRate")
	flag.Parse()
	if err := run(db, lookup); err != nil {
		log.Fatal(err)
	}
}

// A database says which one the publishers are in.
type database struct{ redis, sentinel, postgres, notifying, mariadb string }

// open returns the Source of the database. db is nil if it does not use database/sql.
func (d database) open() (source ampcors.Source, db *sql.DB, err error) {
	switch {
	case d.redis != "":
		source, err = redissource.New(redissource.Config{Redis: rueidis.ClientOption{
			InitAddress: strings.Split(d.redis, ","), Sentinel: rueidis.SentinelOption{MasterSet: d.sentinel}, ClientName: "server",
		}})
		return source, nil, err
	case d.notifying != "":
		source, err = pgsource.New(pgsource.Config{ConnString: d.notifying})
		return source, nil, err
	case d.mariadb != "":
		db, err = sql.Open("mysql", d.mariadb)
	default:
		db, err = sql.Open("pgx", d.postgres)
	}
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	table := sqlsource.Config{}
	if d.mariadb != "" {
		table.Placeholder = "?"
	}
	source, err = sqlsource.New(db, table)
	return source, db, err
}

func run(d database, lookup ampcors.Lookup) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	source, db, err := d.open()
	if err != nil {
		return err
	}
	switch closer := source.(type) {
	case interface{ Close() }:
		defer closer.Close()
	default:
		defer db.Close()
	}
	mw, err := ampcors.New(ampcors.Config{Source: source, Lookup: lookup, Credentialed: true})
	if err != nil {
		return err
	}
	defer mw.Close()

	mux := http.NewServeMux()
	mux.Handle("/", mw.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "an answer")
	})))
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, r *http.Request) {
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		stats := Stats{Requests: mw.Stats(), Source: mw.SourceStats(), Goroutines: runtime.NumGoroutine(), Heap: int64(mem.HeapAlloc)}
		if db != nil {
			stats.Connections = db.Stats().OpenConnections
		}
		if err := json.NewEncoder(w).Encode(stats); err != nil {
			log.Print(err)
		}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	closed := make(chan error, 1)
	go func() {
		<-ctx.Done()
		closing, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		closed <- server.Shutdown(closing)
	}()
	fmt.Println(listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-closed
}
