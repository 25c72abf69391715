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

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/rueidis"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/pgsource"
	"github.com/ampcors/ampcors/source/redissource"
	"github.com/ampcors/ampcors/source/sqlsource"
)

// Stats is what /stats answers.
type Stats struct {
	Requests    ampcors.Stats
	Source      source.Stats
	Goroutines  int
	Connections int   // to PostgreSQL
	Heap        int64 // bytes
}

func main() {
	log.SetFlags(0)
	var db database
	flag.StringVar(&db.redis, "redis", "", "addresses of Redis, separated by commas")
	flag.BoolVar(&db.isCluster, "cluster", false, "the addresses are those of a Redis Cluster")
	flag.StringVar(&db.sentinel, "sentinel", "", "name of the master, if the addresses are those of Sentinels")
	flag.StringVar(&db.postgres, "postgres", "", "how to connect to PostgreSQL, without notifications")
	flag.StringVar(&db.notifying, "notifying-postgres", "", "how to connect to PostgreSQL, with notifications")
	flag.StringVar(&db.mariadb, "mariadb", "", "how to connect to MariaDB")
	var options source.Config
	flag.DurationVar(&options.TTL, "ttl", 0, "Config.TTL")
	flag.DurationVar(&options.NegativeTTL, "negative-ttl", 0, "Config.NegativeTTL")
	flag.DurationVar(&options.MaxStale, "max-stale", 0, "Config.MaxStale")
	flag.DurationVar(&options.Timeout, "timeout", 0, "Config.Timeout")
	flag.Parse()
	if err := run(db, options); err != nil {
		log.Fatal(err)
	}
}

// A database is the one that has the publishers.
type database struct {
	redis, sentinel, postgres, notifying, mariadb string
	isCluster                                     bool
}

// open returns what source.New needs to ask the database, and a function that closes it. db is nil if the
// database is not used by database/sql.
func (d database) open() (asked source.Database, db *sql.DB, end func(), err error) {
	switch {
	case d.redis != "":
		cfg := redissource.Config{Redis: rueidis.ClientOption{
			InitAddress: strings.Split(d.redis, ","), Sentinel: rueidis.SentinelOption{MasterSet: d.sentinel},
			ClientName: "server",
		}}
		if d.isCluster {
			cfg.Topology = redissource.Cluster
		}
		store, err := redissource.New(cfg)
		if err != nil {
			return source.Database{}, nil, nil, err
		}
		return store.Database(), nil, store.Close, nil
	case d.notifying != "":
		table, err := pgsource.New(pgsource.Config{ConnString: d.notifying})
		if err != nil {
			return source.Database{}, nil, nil, err
		}
		return table.Database(), nil, table.Close, nil
	case d.mariadb != "":
		db, err = sql.Open("mysql", d.mariadb)
	default:
		db, err = sql.Open("pgx", d.postgres)
	}
	if err != nil {
		return source.Database{}, nil, nil, err
	}
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	table, err := sqlsource.New(db, sqlsource.Config{})
	if err != nil {
		return source.Database{}, nil, nil, err
	}
	return table.Database(), db, func() { _ = db.Close() }, nil
}

func run(d database, options source.Config) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	asked, db, end, err := d.open()
	if err != nil {
		return err
	}
	defer end()
	publishers, err := source.New(asked, options)
	if err != nil {
		return err
	}
	defer publishers.Close()
	mw, err := ampcors.New(ampcors.Config{Source: publishers, Credentialed: true})
	if err != nil {
		return err
	}

	mux := http.NewServeMux()
	mux.Handle("/", mw.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "an answer")
	})))
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, r *http.Request) {
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		stats := Stats{Requests: mw.Stats(), Source: publishers.Stats(), Goroutines: runtime.NumGoroutine(),
			Heap: int64(mem.HeapAlloc)}
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
	server := &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute}
	closed := make(chan error, 1)
	go func() {
		<-ctx.Done()
		closing, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		closed <- server.Shutdown(closing)
	}()
	fmt.Println(listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-closed
}
