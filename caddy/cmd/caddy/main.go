// Command caddy is the Caddy server with the handler of ampcors.
package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/ampcors/ampcors/caddy"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "health",
		Usage: "[<url>]",
		Short: "Asks a server whether it answers, for containers without a shell",
		Long: "Ends with code 1 if the server does not answer within 2 seconds, or answers 5xx. The default is the API of " +
			"a Caddy on this machine.",
		Func: func(flags caddycmd.Flags) (int, error) {
			url := flags.Arg(0)
			if url == "" {
				url = "http://" + caddy.DefaultAdminListen + "/config/"
			}
			if err := checkHealth(context.Background(), url); err != nil {
				return caddy.ExitCodeFailedStartup, err
			}
			return caddy.ExitCodeSuccess, nil
		},
	})
}

func main() { caddycmd.Main() }

// checkHealth returns an error if the server at url does not answer within 2 seconds, or answers 5xx. Command
// ampcors has a copy: a published module does not import internal packages of another.
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
