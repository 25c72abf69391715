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
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/metrics"
	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/driver"
	"github.com/ampcors/ampcors/source/pgsource"
)

// shutdownTimeout is how long requests may take that are answered when the server ends.
const shutdownTimeout = 10 * time.Second

// Limits of a connection, so that those of clients that are gone, or that do not read, do not stay. A proxy must close
// idle connections earlier, so that it does not use one that is being closed: nginx does so after 60 seconds by
// default. Tests shorten them.
var (
	readTimeout  = 10 * time.Second // of a request, with its header
	writeTimeout = 10 * time.Second // from then until the response is sent, besides the time of lookups
	idleTimeout  = 2 * time.Minute
)

// pingTimeout is how long the database may take before it is reported.
const pingTimeout = 10 * time.Second

// aboutConfig is the help on the configuration of a service.
const aboutConfig = "The file is a JSON configuration; test it with ampcors check. It is read again when it changes, " +
	"and on SIGHUP, and so is the file of --caches. With a database, publishers in its table are allowed too; " +
	"a change of \"source\" in the file, which sets how long answers are remembered, needs a restart."

// A service is what serve-authz and serve-proxy have in common: they decide by a file that they follow, and perhaps a
// database, until they are told to end.
type service struct {
	config, listen, metricsAt, logFormat string
	logDenied                            bool
	caches                               *cachesFile
	database                             database
}

func (s *service) addFlags(cmd *cobra.Command, listen string) {
	flags := cmd.Flags()
	flags.StringVar(&s.config, "config", "", "JSON file with the configuration")
	flags.StringVar(&s.listen, "listen", "127.0.0.1:9000", listen)
	flags.StringVar(&s.metricsAt, "metrics", "", "address of a second server, such as 127.0.0.1:9001, with /metrics for "+
		"Prometheus, /healthz, /readyz and, if there is a database, /forget, which drops answers; if empty, there is none. "+
		"At a loopback address, it answers only if Host is an IP address or localhost")
	flags.StringVar(&s.logFormat, "log-format", "text", "text or json: one object on each line")
	flags.BoolVar(&s.logDenied, "log-denied", false, fmt.Sprintf(
		"log denied requests, with origin, reason, method, host and path: at most %d in a second on average",
		deniedPerSecond))
	complete(cmd, "log-format", []string{"text", "json"})
	s.caches = addCachesOver(cmd)
	s.database.addFlags(cmd)
}

// A decider is what makes a service a certain one.
type decider struct {
	set    func(*ampcors.Config, *slog.Logger)  // completes a configuration, and may warn of it
	server func(*running) (*http.Server, error) // the server that decides
	attrs  []any                                // for the line of the log that says where it listens
}

// running is a service that has read its configuration.
type running struct {
	mw       *ampcors.Middleware
	log      *slog.Logger
	listener net.Listener
	lookups  time.Duration // how long lookups for a request can take, also with patterns
}

// smallServer returns a server for requests without a body, and short responses.
func (r *running) smallServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ReadTimeout: readTimeout, WriteTimeout: writeTimeout + r.lookups, IdleTimeout: idleTimeout,
	}
}

// run decides until the command's context is done, and then ends what was begun.
func (s *service) run(cmd *cobra.Command, d decider) error {
	var logHandler slog.Handler = slog.NewTextHandler(cmd.ErrOrStderr(), nil)
	switch s.logFormat {
	case "text":
	case "json":
		logHandler = slog.NewJSONHandler(cmd.ErrOrStderr(), nil)
	default:
		return fmt.Errorf("--log-format %q is unknown; want text or json", s.logFormat)
	}
	log := slog.New(logHandler)
	if err := s.database.checkFlags(cmd); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(cmd.Context())
	defer stop(nil)
	publishers, end, err := s.database.lookups(ctx, s.config, log, stop)
	if err != nil {
		return err
	}
	defer end()
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	denied := newDeniedLog(log)
	file := configfile.File{Path: s.config, CachesFile: string(*s.caches), Set: func(cfg *ampcors.Config) {
		cfg.Source = publishers
		if s.logDenied {
			cfg.Observe = denied.observer(cfg.ReportOnly)
		}
		d.set(cfg, log)
	}}
	mw, watcher, err := file.Watch(configfile.WatcherConfig{Logger: log, Reload: reload})
	if err != nil {
		return withoutDatabase(err, "--database or "+databaseEnv)
	}
	asked, _ := (configfile.File{Path: s.config}).SourceConfig() // it was read without an error before
	run := &running{mw: mw, log: log, lookups: 10 * cmp.Or(asked.Timeout, time.Second)}
	if run.listener, err = listen("--listen", s.listen); err != nil {
		return err
	}
	defer run.listener.Close()
	server, err := d.server(run)
	if err != nil {
		return err
	}
	servers := make(map[net.Listener]*http.Server)
	servers[run.listener] = server
	if s.metricsAt != "" {
		other, err := listen("--metrics", s.metricsAt)
		if err != nil {
			return err
		}
		servers[other] = run.smallServer(monitoring(mw, publishers, watcher))
		s.metricsAt = other.Addr().String()
	}
	attrs := append(d.attrs, "address", run.listener.Addr().String(), "config", s.config, "metrics", s.metricsAt)
	log.Info("ampcors: answering", attrs...)

	go func() { _ = watcher.Run(ctx) }() // it ends with ctx
	ended := make(chan error, len(servers))
	for listener, server := range servers {
		go func() {
			err := answerUntil(ctx, listener, server, shutdownTimeout, log)
			if err != nil {
				stop(err) // the others end, too
			}
			ended <- err
		}()
	}
	for range servers {
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

// listen listens at the address of a flag: of TCP, or of a Unix socket as unix:/path. A socket at which nobody listens
// any more, because a program was killed, is replaced.
func listen(flag, address string) (net.Listener, error) {
	listener, err := listenAt(address)
	wrongAddress, wrongPort := (*net.AddrError)(nil), (*net.DNSError)(nil)
	switch {
	case err == nil:
		return listener, nil
	case errors.As(err, &wrongAddress), errors.As(err, &wrongPort):
		err = fmt.Errorf("%w; want a host and a port such as 127.0.0.1:9000, or :9000 for each address of this machine", err)
	case errors.Is(err, syscall.EADDRINUSE):
		err = fmt.Errorf("%w: another program listens there; want another address, or that program ended", err)
	}
	return nil, exitError{exitUntested, fmt.Errorf("%s %s: %w", flag, address, err)}
}

func listenAt(address string) (net.Listener, error) {
	path, isSocket := strings.CutPrefix(address, "unix:")
	if !isSocket {
		return net.Listen("tcp", address)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
		conn, err := net.Dial("unix", path)
		if err == nil {
			conn.Close()
			return nil, errors.New("another program listens there; want another path, or that program ended")
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.Remove(path) // if it stays, Listen fails
		}
	}
	return net.Listen("unix", path)
}

// monitoring returns what the server of --metrics answers.
func monitoring(mw *ampcors.Middleware, publishers *source.Source, watcher *configfile.Watcher) http.Handler {
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
	return notForPages(http.NewCrossOriginProtection().Handler(mux))
}

// notForPages denies requests to this machine's own address under a name. A page whose name was made to lead there
// (DNS rebinding) could otherwise read the answers: to the browser, it is a page of this server.
func notForPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, isTCP := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = strings.Trim(r.Host, "[]")
		}
		if isTCP && local.IP.IsLoopback() && net.ParseIP(host) == nil && !strings.EqualFold(host, "localhost") {
			http.Error(w, "want the Host to be an IP address or localhost: under a name, any website could read this",
				http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// A readiness answers /readyz: 200 once the server can decide, and from then on. A configuration is always in force.
// With a database, the server is ready if that has answered once, or if the file lists publishers.
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
				const why = "not ready: no publisher is listed, and the database has not answered yet"
				http.Error(w, why, http.StatusServiceUnavailable)
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

// answerUntil answers until ctx is done, and then ends what was begun. What still runs after limit is closed.
func answerUntil(ctx context.Context, listener net.Listener, server *http.Server, limit time.Duration,
	log *slog.Logger) error {
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel() // of upgraded connections, for which Shutdown does not wait
	server.BaseContext = func(net.Listener) context.Context { return requests }
	if server.ErrorLog == nil {
		server.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelError)
	}
	closed := make(chan error, 1)
	go func() {
		<-ctx.Done()
		closing, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		err := server.Shutdown(closing)
		if errors.Is(err, context.DeadlineExceeded) {
			log.Warn("ampcors: responses that had not ended were cut off", "after", limit)
			err = server.Close()
		}
		closed <- err
	}()
	serve := server.Serve
	if server.TLSConfig != nil {
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	if err := serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-closed
}

// lookups returns a Source of the publishers in the database, or nil if none is named.
// It does not wait for the database: while that does not answer, publishers that are not listed in
// the file get 503. If the table's triggers have another condition than the flags, it calls stop: the server
// must not go on, because who started it thinks that suspended publishers are denied.
func (d *database) lookups(ctx context.Context, config string, log *slog.Logger, stop context.CancelCauseFunc) (
	asked *source.Source, end func(), err error) {
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
