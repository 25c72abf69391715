package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/authz"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/metrics"
	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/driver"
	"github.com/ampcors/ampcors/source/pgsource"
)

// shutdownTimeout is how long requests may take that are answered when the server ends.
const shutdownTimeout = 10 * time.Second

// Limits of a connection, so that those of clients that are gone, or that do not read, do not stay. A proxy must close idle
// connections earlier, so that it does not use one that is being closed: nginx does so after 60 seconds by
// default. Tests shorten them.
var (
	readTimeout  = 10 * time.Second // of a request, with its header
	writeTimeout = 10 * time.Second // from then until the response is sent, besides the time of lookups
	idleTimeout  = 2 * time.Minute
)

// pingTimeout is how long the database may take before it is reported.
const pingTimeout = 10 * time.Second

func newServeAuthz() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve-authz --proxy NAME --config FILE",
		Short: "Answer a proxy that asks whether requests may go on",
		Long: "Answer nginx (auth_request) or Envoy (ext_authz over HTTP), which ask whether a request may go on, " +
			"and with which response headers. So backends that are not in Go get the decisions of ampcors.\n\n" +
			"The file is a JSON configuration; test it with ampcors check. It is read again when it changes, and on SIGHUP, and so is the file of --caches. " +
			"With a database, publishers in its table are allowed too; the file's member source says how long answers are remembered.",
		Example: "  ampcors serve-authz --proxy nginx --config ampcors.json",
		Args:    noArgs,
	}
	proxyName := cmd.Flags().String("proxy", "", "who asks: nginx or envoy")
	config := cmd.Flags().String("config", "", "JSON file with the configuration")
	metricsAt := cmd.Flags().String("metrics", "", "address of a second server, such as 127.0.0.1:9001, with /metrics for Prometheus, /healthz, /readyz and, if there is a database, /forget; if empty, there is none")
	logFormat := cmd.Flags().String("log-format", "text", "text or json: one object on each line")
	caches := addCaches(cmd)
	complete(cmd, "proxy", []string{"nginx", "envoy"})
	complete(cmd, "log-format", []string{"text", "json"})
	listen := cmd.Flags().String("listen", "127.0.0.1:9000", "address to listen at; only the proxy should reach it")
	var d database
	d.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := require(cmd, "proxy", "config"); err != nil {
			return err
		}
		proxy, err := authz.ParseProxy(*proxyName)
		if err != nil {
			return err
		}
		var logHandler slog.Handler = slog.NewTextHandler(cmd.ErrOrStderr(), nil)
		switch *logFormat {
		case "text":
		case "json":
			logHandler = slog.NewJSONHandler(cmd.ErrOrStderr(), nil)
		default:
			return fmt.Errorf("--log-format %q is unknown; want text or json", *logFormat)
		}
		log := slog.New(logHandler)
		if err := d.checkFlags(cmd); err != nil {
			return err
		}
		ctx, stop := context.WithCancelCause(cmd.Context())
		defer stop(nil)
		publishers, end, err := d.lookups(ctx, *config, log, stop)
		if err != nil {
			return err
		}
		defer end()
		reload := make(chan os.Signal, 1)
		signal.Notify(reload, syscall.SIGHUP)
		defer signal.Stop(reload)
		file := configfile.File{Path: *config, CachesFile: string(*caches), Set: func(cfg *ampcors.Config) {
			if cfg.Source = publishers; cfg.ReportOnly && proxy == authz.NGINX {
				log.Warn("ampcors: reportOnly is set, but nginx.conf removes the backend's own CORS headers, and passes no preflight on to the backend: pages that need these headers, or the backend's answers to preflights, stop working")
			}
		}}
		mw, watcher, err := file.Watch(configfile.WatcherConfig{Logger: log, Reload: reload})
		if err != nil {
			return withoutDatabase(err, "--database or "+databaseEnv)
		}
		handler, err := authz.New(mw, proxy)
		if err != nil {
			return err
		}
		listener, err := net.Listen("tcp", *listen)
		if err != nil {
			return exitError{exitUntested, err}
		}
		handlers := map[net.Listener]http.Handler{listener: handler}
		if *metricsAt != "" {
			other, err := net.Listen("tcp", *metricsAt)
			if err != nil {
				listener.Close()
				return exitError{exitUntested, err}
			}
			mux := http.NewServeMux()
			mux.Handle("GET /metrics", metrics.Handler(func() metrics.Counts {
				counts := metrics.Of(mw, publishers, watcher)
				counts.Build = version()
				return counts
			}))
			mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
			mux.Handle("GET /readyz", &readiness{mw: mw, publishers: publishers})
			if publishers != nil {
				mux.HandleFunc("POST /forget", func(w http.ResponseWriter, r *http.Request) { forget(w, r, publishers) })
			}
			handlers[other] = mux
			*metricsAt = other.Addr().String()
		}
		asked, _ := (configfile.File{Path: *config}).SourceConfig() // it was read without an error before
		limit := writeTimeout + 4*cmp.Or(asked.Timeout, time.Second)
		log.Info("ampcors: answering", "proxy", proxy.String(), "address", listener.Addr().String(), "config", *config, "metrics", *metricsAt)

		go func() { _ = watcher.Run(ctx) }() // it ends with ctx
		ended := make(chan error, len(handlers))
		for listener, handler := range handlers {
			go func() {
				err := answerUntil(ctx, listener, handler, limit, log)
				if err != nil {
					stop(err) // the others end, too
				}
				ended <- err
			}()
		}
		for range handlers {
			err = cmp.Or(err, <-ended)
		}
		if err != nil {
			return exitError{exitUntested, err}
		}
		if cause := context.Cause(ctx); errors.Is(cause, pgsource.ErrOtherTriggers) {
			return exitError{exitUntested, cause}
		}
		return nil
	}
	return cmd
}

// A readiness answers /readyz: 200 once the server can decide, and from then on. A configuration is always in force. With a database, the
// server is ready if that has answered once, or if the file lists publishers.
type readiness struct {
	mw         *ampcors.Middleware
	publishers *source.Source // nil without a database
	isReady    atomic.Bool
}

func (r *readiness) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if !r.isReady.Load() {
		if r.publishers != nil && r.mw.Stats().Publishers == 0 {
			// A name that nobody has: the answer is no, but it is one.
			if answer := r.publishers.Find(request.Context(), "readyz.invalid"); answer.Err != nil {
				http.Error(w, "not ready: no publisher is listed, and the database has not answered yet", http.StatusServiceUnavailable)
				return
			}
		}
		r.isReady.Store(true)
	}
	_, _ = io.WriteString(w, "ok\n")
}

// forget answers /forget: the server asks the database again about the publishers in the body, one on each line.
func forget(w http.ResponseWriter, r *http.Request, publishers *source.Source) {
	domains, err := lines(http.MaxBytesReader(w, r.Body, 1<<20))
	if err == nil && len(domains) == 0 {
		err = errors.New("want publishers in the body, with one on each line")
	}
	if err == nil {
		err = publishers.Forget(domains...)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = io.WriteString(w, count(len(domains), "publisher", "publishers")+" forgotten\n")
}

// answerUntil answers until ctx is done, and then ends what was begun.
func answerUntil(ctx context.Context, listener net.Listener, handler http.Handler, limit time.Duration, log *slog.Logger) error {
	server := &http.Server{Handler: handler, ReadTimeout: readTimeout, WriteTimeout: limit, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError)}
	closed := make(chan error, 1)
	go func() {
		<-ctx.Done()
		closing, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		closed <- server.Shutdown(closing)
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-closed
}

// lookups returns a Source of the publishers in the database, or nil if none is named.
// It does not wait for the database: while that does not answer, publishers that are not listed in
// the file get 503. If the table's triggers have another condition than the flags, it calls stop: the server
// must not go on, because who started it thinks that suspended publishers are denied.
func (d *database) lookups(ctx context.Context, config string, log *slog.Logger, stop context.CancelCauseFunc) (asked *source.Source,
	end func(), err error) {
	if d.address() == "" {
		return nil, func() {}, nil
	}
	asked, opened, err := d.source(config, log)
	if err != nil {
		return nil, nil, err
	}
	go func() {
		ctx, cancel := context.WithTimeout(ctx, pingTimeout)
		defer cancel()
		switch err := opened.ping(ctx); {
		case errors.Is(err, pgsource.ErrOtherTriggers):
			stop(err)
		case err != nil:
			what := "ampcors: publishers in the database are not looked up"
			if _, err := opened.PublisherByDomain(ctx, ""); err == nil {
				what = "ampcors: publishers in the database are looked up by their domains, and something else is missing"
			}
			log.Error(what, "error", driver.LogText(err))
		default:
			log.Info("ampcors: publishers are looked up", "table", d.table.Table)
		}
	}()
	return asked, opened.end, nil
}

func newHealth() *cobra.Command {
	return &cobra.Command{
		Use:     "health URL",
		Short:   "Ask a server whether it answers, for containers without a shell",
		Long:    "End with code 1 if the server does not answer within 2 seconds, or answers 5xx.",
		Example: "  ampcors health http://127.0.0.1:9000/",
		Args:    oneArg("the URL of a server"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if u, err := url.Parse(args[0]); err != nil || u.Host == "" {
				return fmt.Errorf("%q is not the URL of a server; want one such as http://127.0.0.1:9000/", args[0])
			}
			if err := checkHealth(cmd.Context(), args[0]); err != nil {
				return exitError{exitFindings, err}
			}
			return nil
		},
	}
}

// checkHealth returns an error if the server at url does not answer within 2 seconds, or answers 5xx. Command
// caddy has a copy: a published module does not import internal packages of another.
func checkHealth(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultTransport.RoundTrip(r) // follows no redirect
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode >= 500 {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return nil
}
