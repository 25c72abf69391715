// Command publisher is a publisher's API behind ampcors, on localhost, with nothing
// to set up. It prints curl lines to try it with, and has a page that shows step by
// step how any Origin is decided.
//
//	go run ./examples/publisher [-addr localhost:8080]
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
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
)

// longName is a publisher whose readable prefix does not fit into a DNS label, so
// caches use a hash prefix.
const longName = "the-weekly-gazette-of-a-town-with-a-rather-long-name.example.org"

// config returns the same configuration as config.json beside this file.
func config() ampcors.Config {
	return ampcors.Config{
		Publishers:   []string{"www.example.com", "bücher.example", "*.news.example", longName},
		Email:        ampcors.Email{Senders: []string{"news@example.com"}},
		Credentialed: true,
		MaxAge:       10 * time.Minute,
		Observe: func(r *http.Request, d ampcors.Decision) { // a file cannot configure it
			// d truncates what the client sent
			slog.Info("request", "method", r.Method, "path", fmt.Sprintf("%.100s", r.URL.Path), "decision", d)
		},
	}
}

func main() {
	addr := flag.String("addr", "localhost:8080", "host and port to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *addr, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run serves on addr until ctx ends, and then lets requests finish.
func run(ctx context.Context, addr string, out io.Writer) error {
	mw, err := ampcors.New(config())
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("%w (choose another address with -addr)", err)
	}
	// A client that does not send or does not read keeps no connection.
	server := &http.Server{Handler: handler(mw), ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute}
	closed := make(chan error, 1)
	go func() {
		<-ctx.Done()
		closing, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		closed <- server.Shutdown(closing)
	}()

	base := "http://" + listener.Addr().String()
	fmt.Fprintf(out, "A publisher's API is at %s/api/. Open %s/ to see how an Origin is decided.\n", base, base)
	for _, e := range curlExamples(base) {
		fmt.Fprintf(out, "\n# %s: %s\n%s\n", e.title, e.outcome, e.command)
	}
	fmt.Fprintln(out)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-closed // Serve returns when Shutdown begins
}

// handler puts ampcors before the API. The page is only for this server's own origin,
// so it needs no CORS.
func handler(mw *ampcors.Middleware) http.Handler {
	api := http.NewServeMux()
	api.HandleFunc("GET /api/articles", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, map[string]any{"items": []string{"First article", "Second article"}})
	})
	api.HandleFunc("POST /api/subscribe", func(w http.ResponseWriter, r *http.Request) {
		d, _ := ampcors.DecisionFromContext(r.Context()) // names the calling publisher
		writeJSON(w, map[string]any{"subscribed": true, "publisher": d.Publisher})
	})

	mux := http.NewServeMux()
	mux.Handle("/api/", mw.WrapDecision(api)) // around the mux, so that preflights reach mw
	mux.Handle("GET /{$}", page{mw})
	return mux
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		log.Print(err) // the client is gone
	}
}

// cacheOrigin returns the origin of the publisher's pages on Google's AMP Cache.
func cacheOrigin(publisher string) string {
	origins, err := cacheurl.Origins(publisher)
	if err != nil {
		panic(err) // the publishers here are constants
	}
	return origins[0]
}

// A curlExample is a command line to paste, and what it shows.
type curlExample struct {
	title, outcome, command string
}

func curlExamples(base string) []curlExample {
	get := func(origin string) string {
		return fmt.Sprintf("curl -si -H 'Origin: %s' %s/api/articles", origin, base)
	}
	return []curlExample{
		{"An allowed publisher's page on Google's AMP Cache", "200, with Access-Control-Allow-Origin",
			get("https://www-example-com.cdn.ampproject.org")},
		{"An origin with a hash prefix, for a publisher with a long name", "200, with Access-Control-Allow-Origin",
			get(cacheOrigin(longName))},
		{"Another publisher's page on the same cache", "403, publisher_not_allowed",
			get("https://evil-example.cdn.ampproject.org")},
		{"A preflight for a JSON POST", "204, with what it asked for",
			fmt.Sprintf("curl -si -X OPTIONS -H 'Origin: https://www-example-com.cdn.ampproject.org' -H "+
				"'Access-Control-Request-Method: POST' -H 'Access-Control-Request-Headers: content-type' %s/api/subscribe", base)},
		{"The publisher's own page, not on a cache", "200, with Access-Control-Allow-Origin",
			get("https://www.example.com")},
		{"An AMP for Email request from an allowed sender", "200, with AMP-Email-Allow-Sender",
			fmt.Sprintf("curl -si -H 'AMP-Email-Sender: news@example.com' %s/api/articles", base)},
		{"A POST without Origin, as old browsers send for a forged form", "403, no_origin_unsafe",
			fmt.Sprintf("curl -si -X POST %s/api/subscribe", base)},
	}
}
