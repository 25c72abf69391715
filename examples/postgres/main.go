// Command postgres serves an API for the publishers in a table of PostgreSQL, as in production: it is ready once
// the database has answered, stays so while the database is down, has metrics, and ends without losing a request.
// The table was prepared before, by its owner:
//
//	export DATABASE_URL=postgres://localhost/cms
//	go run ./cmd/ampcors source install --database "$DATABASE_URL" --create
//	go run ./examples/postgres
package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/metrics"
	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/pgsource"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("DATABASE_URL"), "localhost:8080", "localhost:9001"); err != nil {
		log.Fatal(err)
	}
}

// run serves the API, and metrics and readiness at another address, until ctx is done.
func run(ctx context.Context, database, address, adminAddress string) error {
	table, err := pgsource.New(pgsource.Config{ConnString: database})
	if err != nil {
		return err
	}
	defer table.Close() // last: the Source uses it
	publishers, err := source.New(table.Database(), source.Config{})
	if err != nil {
		return err
	}
	defer publishers.Close()
	mw, err := ampcors.New(ampcors.Config{Source: publishers, Credentialed: true})
	if err != nil {
		return err
	}

	var isReady atomic.Bool
	go func() {
		for ; ctx.Err() == nil; time.Sleep(time.Second) {
			if err := table.Ping(ctx); err == nil {
				isReady.Store(true) // and stays so: remembered publishers are served while the database is down
				return
			} else {
				log.Print(err) // what is missing: the table, a right of the user, the triggers
			}
		}
	}()
	admin := http.NewServeMux()
	admin.Handle("GET /metrics", metrics.Handler(func() metrics.Counts { return metrics.Of(mw, publishers, nil) }))
	admin.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !isReady.Load() {
			http.Error(w, "the database has not answered yet", http.StatusServiceUnavailable)
		}
	})

	api, other := server(address, mw.WrapDecision(http.HandlerFunc(whoCalls))), server(adminAddress, admin)
	ended := make(chan error, 2)
	go func() { ended <- api.ListenAndServe() }()
	go func() { ended <- other.ListenAndServe() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_ = api.Shutdown(closing) // requests that have begun are answered
	_ = other.Close()
	return err
}

// server returns a server that does not wait for ever for slow clients.
func server(address string, h http.Handler) *http.Server {
	return &http.Server{Addr: address, Handler: h, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute}
}

func whoCalls(w http.ResponseWriter, r *http.Request) {
	d, _ := ampcors.DecisionFromContext(r.Context())
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"for": d.Publisher}) // whose page calls
}
