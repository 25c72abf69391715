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
	"syscall"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/source/redissource"
	"github.com/ampcors/ampcors/source/sqlsource"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
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
	redis := flag.String("redis", "", "address of Redis")
	postgres := flag.String("postgres", "", "how to connect to PostgreSQL")
	var lookup ampcors.Lookup
	flag.DurationVar(&lookup.TTL, "ttl", 0, "Lookup.TTL")
	flag.DurationVar(&lookup.NegativeTTL, "negative-ttl", 0, "Lookup.NegativeTTL")
	flag.DurationVar(&lookup.MaxStale, "max-stale", 0, "Lookup.MaxStale")
	flag.DurationVar(&lookup.Timeout, "timeout", 0, "Lookup.Timeout")
	flag.IntVar(&lookup.MaxRate, "max-rate", 0, "Lookup.MaxRate")
	flag.Parse()
	if err := run(*redis, *postgres, lookup); err != nil {
		log.Fatal(err)
	}
}

func run(redis, postgres string, lookup ampcors.Lookup) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	var source ampcors.Source
	var db *sql.DB
	if redis != "" {
		s, err := redissource.New(redissource.Config{Redis: rueidis.ClientOption{InitAddress: []string{redis}}})
		if err != nil {
			return err
		}
		defer s.Close()
		source = s
	} else {
		config, err := pgx.ParseConfig(postgres)
		if err != nil {
			return err
		}
		db = stdlib.OpenDB(*config)
		defer db.Close()
		db.SetMaxOpenConns(16)
		db.SetMaxIdleConns(16)
		if source, err = sqlsource.New(db, sqlsource.Config{}); err != nil {
			return err
		}
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
