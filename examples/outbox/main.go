// Outbox is a server that tells search engines about changed pages, and loses none, even if it is
// killed. It is an example of package indexnow with PostgreSQL and the job queue River. Any number
// of servers can share a database.
//
//	INDEXNOW_KEY=… go run . -database postgres://localhost/site
//	curl --data-binary 'https://www.example.com/article' http://localhost:8080/pages
//	curl http://localhost:8080/stats
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ampcors/ampcors/announce/indexnow"
	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/source/pgsource"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

// limit is how long a request and its response may take, so that connections of clients that do not read or
// write any more end.
const limit = 30 * time.Second

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("outbox", flag.ContinueOnError)
	database := flags.String("database", "", "connection string of PostgreSQL")
	address := flags.String("listen", "localhost:8080", "address of this server")
	endpoint := flags.String("endpoint", indexnow.API, "URL of the IndexNow service")
	keys := flags.String("keys", "", "JSON file with the keys of each host, the current one first, in place of "+
		"INDEXNOW_KEY: {\"www.example.com\": [\"…\"]}")
	var locations []string
	flags.Func("key-location", "URL of a key file that is not at the root, for the pages of its folder; may be repeated",
		func(location string) error {
			locations = append(locations, location)
			return nil
		})
	agent := flags.String("user-agent", "", "User-Agent of requests to the IndexNow service")
	var cfg Config
	flags.DurationVar(&cfg.Delay, "delay", 5*time.Second, "how long a URL waits for others")
	flags.DurationVar(&cfg.Hold, "hold", 10*time.Minute, "how long a URL is held back after it was sent")
	flags.DurationVar(&cfg.Timeout, "timeout", time.Minute,
		"how long a job may last: a search for pages that the engine rejects takes up to 64 rejected requests and as many "+
			"accepted ones, and what is not sent by then is for the next job")
	flags.DurationVar(&cfg.GiveUpAfter, "give-up-after", 24*time.Hour,
		"how long URLs wait while the engine accepts nothing of their host")
	logFormat := flags.String("log-format", "text", "text or json: one object on each line")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch *logFormat {
	case "text":
	case "json":
		slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil))) // of package log, too
	default:
		return fmt.Errorf("-log-format %q is unknown; want text or json", *logFormat)
	}

	client, err := newClient(indexnow.Config{KeyLocations: locations, Endpoint: *endpoint, UserAgent: *agent}, *keys)
	if err != nil {
		return err
	}
	// Before pgx sees it, whose errors have the password.
	if err := pgsource.CheckConnString(*database); err != nil {
		return fmt.Errorf("-database: %w", err)
	}
	pool, err := pgxpool.New(ctx, *database)
	if err != nil {
		return errors.New("-database: the settings of the pool cannot be used; want numbers such as pool_max_conns=16, and " +
			"durations such as pool_max_conn_lifetime=1h")
	}
	defer pool.Close()
	if err := Migrate(ctx, pool); err != nil {
		return err
	}
	outbox, err := NewOutbox(pool, client, cfg)
	if err != nil {
		return err
	}
	if err := outbox.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}

	server := &http.Server{Addr: *address, Handler: handler(pool, outbox), ReadTimeout: limit, WriteTimeout: limit,
		IdleTimeout: 2 * time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(end), outbox.Stop(end))
}

// newClient returns a client with the key of the environment, or the keys of a file.
func newClient(cfg indexnow.Config, keys string) (*indexnow.Client, error) {
	cfg.Key = indexnow.Key(os.Getenv("INDEXNOW_KEY"))
	if keys != "" {
		if cfg.Key != "" {
			return nil, errors.New("-keys and the environment variable INDEXNOW_KEY exclude each other; remove one")
		}
		data, err := os.ReadFile(keys)
		if err != nil {
			return nil, fmt.Errorf("-keys: %w", err)
		}
		ofHosts, err := indexnow.ParseKeys(data)
		if err != nil {
			return nil, fmt.Errorf("-keys: %s: %w", keys, err)
		}
		cfg.KeysOf = ofHosts.Of
		cfg.KeyLocations = append(cfg.KeyLocations, ofHosts.Locations()...)
	}
	return indexnow.New(cfg)
}

func handler(pool *pgxpool.Pool, outbox *Outbox) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /pages", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		err = pgx.BeginFunc(r.Context(), pool, func(tx pgx.Tx) error {
			// Here a publisher's program changes its pages, in the same transaction.
			return outbox.Add(r.Context(), tx, strings.Fields(string(body))...)
		})
		if problem := (*badvalue.Error)(nil); errors.As(err, &problem) {
			http.Error(w, err.Error(), http.StatusBadRequest)
		} else if err != nil {
			http.Error(w, "the database has a problem", http.StatusServiceUnavailable)
			log.Print(err)
		}
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := pool.Ping(r.Context()); err != nil { // pages could not be taken
			http.Error(w, "not ready: the database does not answer", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, r *http.Request) {
		stats, err := outbox.Stats(r.Context())
		if err != nil {
			http.Error(w, "the database has a problem", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(stats)
	})
	// Otherwise any page in a browser on this machine could post pages to localhost.
	return http.NewCrossOriginProtection().Handler(mux)
}
