package main

import (
	"log/slog"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/authz"
)

func newServeAuthz() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve-authz --proxy NAME --config FILE",
		Short: "Answer a proxy that asks whether requests may go on",
		Long: "Answer nginx (auth_request) or Envoy (ext_authz over HTTP), which ask whether a request may go on, " +
			"and with which response headers. So backends that are not in Go get the decisions of ampcors. " +
			"If nothing prevents it, use serve-proxy instead: it is simpler, and asks nothing of the proxy in front.\n\n" +
			aboutConfig,
		Example: "  ampcors serve-authz --proxy nginx --config ampcors.json",
		Args:    noArgs,
	}
	proxyName := cmd.Flags().String("proxy", "", "who asks: nginx or envoy")
	complete(cmd, "proxy", []string{"nginx", "envoy"})
	var s service
	s.addFlags(cmd, "address to listen at, or unix:/path of a socket; only the proxy should reach it")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := require(cmd, "proxy", "config"); err != nil {
			return err
		}
		proxy := authz.Proxy(*proxyName)
		if _, err := authz.New(new(ampcors.Middleware), proxy); err != nil {
			return err
		}
		return s.run(cmd, decider{
			set: func(cfg *ampcors.Config, log *slog.Logger) {
				if cfg.ReportOnly && proxy == authz.NGINX {
					log.Warn("ampcors: reportOnly is set, but nginx.conf removes the backend's own CORS headers, and passes " +
						"no preflight on to the backend: pages that need these headers, or the backend's answers to preflights, " +
						"stop working")
				}
			},
			server: func(run *running) (*http.Server, error) {
				handler, err := authz.New(run.mw, proxy)
				return run.smallServer(handler), err
			},
			attrs: []any{"proxy", *proxyName},
		})
	}
	return cmd
}
