package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ampcors/ampcors/authz"
	"github.com/ampcors/ampcors/configfile"
	"github.com/spf13/cobra"
)

// shutdownTimeout is how long requests may take that are answered when the server ends.
const shutdownTimeout = 10 * time.Second

func newServeAuthz() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve-authz --proxy NAME --config FILE",
		Short: "Answer a proxy that asks whether requests may go on",
		Long: "Answer nginx (auth_request), Envoy (ext_authz over HTTP) or Traefik (ForwardAuth), which ask whether a request may go on, " +
			"and with which response headers. So backends that are not in Go get the decisions of ampcors.\n\n" +
			"The file is that of package configfile. It is read again when it changes, and on SIGHUP.",
		Example: "  ampcors serve-authz --proxy nginx --config ampcors.json",
		Args:    cobra.NoArgs,
	}
	proxyName := cmd.Flags().String("proxy", "", "who asks: nginx, envoy or traefik")
	config := cmd.Flags().String("config", "", "JSON file with the configuration")
	listen := cmd.Flags().String("listen", "127.0.0.1:9000", "address to listen at; only the proxy should reach it")
	_ = cmd.MarkFlagRequired("proxy")
	_ = cmd.MarkFlagRequired("config")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		proxy, err := authz.ParseProxy(*proxyName)
		if err != nil {
			return err
		}
		mw, err := configfile.New(*config)
		if err != nil {
			return err
		}
		handler, err := authz.New(mw, proxy)
		if err != nil {
			return err
		}
		listener, err := net.Listen("tcp", *listen)
		if err != nil {
			return exitError{exitUntested, err}
		}
		log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
		log.Info("answering", "proxy", proxy.String(), "address", listener.Addr().String(), "config", *config)

		ctx, stop := context.WithCancel(cmd.Context())
		defer stop()
		reload := make(chan os.Signal, 1)
		signal.Notify(reload, syscall.SIGHUP)
		defer signal.Stop(reload)
		go func() {
			_ = configfile.NewWatcher(*config, mw, configfile.WatcherConfig{Logger: log, Reload: reload}).Run(ctx) // it ends with ctx
		}()
		server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError)}
		closed := make(chan error, 1)
		go func() {
			<-ctx.Done()
			closing, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
			defer cancel()
			closed <- server.Shutdown(closing)
		}()
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return exitError{exitUntested, err}
		}
		return <-closed
	}
	return cmd
}
