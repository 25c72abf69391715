package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

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
