// Package health asks a server whether it answers, for containers without a shell.
package health

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// Check returns an error if the server at url does not answer within 2 seconds, or answers 5xx.
func Check(ctx context.Context, url string) error {
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
