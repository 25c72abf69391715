package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ampcors/ampcors/announce/ampurl"
)

func newLookup() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lookup [URL ...]",
		Short: "Ask Google which pages have AMP versions, and for their URLs on its AMP Cache",
		Long: "Ask Google's AMP URL API which pages have AMP versions, and for their URLs on its AMP Cache. Google " +
			"decides for which pages the API still has an answer. At most ten requests, of 50 URLs each, are sent in 100 " +
			"seconds, which is the quota of the API. Set GOOGLE_API_KEY to the API key.\n\nExit codes: 0 each page has an AMP " +
			"version, 1 a page has none, 2 wrong usage, 3 the API did not answer for all pages.",
		Example: "  GOOGLE_API_KEY=… ampcors lookup https://www.example.com/article",
	}
	output := addOutput(cmd)
	live := cmd.Flags().Bool("live", false, "let the API also fetch pages that are not in Google's index, which takes "+
		"longer")
	endpoint := cmd.Flags().String("endpoint", "", "URL that is asked; if empty, "+ampurl.API)
	resolve := cmd.Flags().StringArray("resolve", nil, resolveHelp)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key := strings.TrimSpace(os.Getenv("GOOGLE_API_KEY"))
		if key == "" {
			return errors.New("GOOGLE_API_KEY is not set; set it to the key of the AMP URL API")
		}
		pages, err := inputs(cmd, args)
		if err != nil {
			return err
		}
		client, err := resolvingClient(*resolve, false)
		if err != nil {
			return err
		}
		if *live { // the API fetches pages meanwhile
			own := *client
			own.Timeout = 0
			client = &own
		}
		c, err := ampurl.New(ampurl.Config{Key: key, Live: *live, Endpoint: *endpoint, HTTPClient: client})
		if err != nil {
			return err
		}
		versions, failed := c.Lookup(cmd.Context(), pages...)
		switch {
		case failed != nil && cmd.Context().Err() != nil:
			failed = exitError{exitUntested, fmt.Errorf("interrupted; URLs that were not looked up: %d of %d",
				len(pages)-len(versions), len(pages))}
		case failed != nil:
			failed = exitError{exitUntested, fmt.Errorf("the AMP URL API: %w; URLs that were not looked up: %d of %d", failed,
				len(pages)-len(versions), len(pages))}
		}
		cmd.SetContext(context.WithoutCancel(cmd.Context())) // an interruption loses no answer
		next := 0
		err = answerAll(cmd, pages[:len(versions)], *output, func(string) (any, error) {
			v := versions[next]
			next++
			return ampVersion{v.AMP, v.Cache}, v.Err
		})
		return cmp.Or(failed, err)
	}
	return cmd
}

// An ampVersion is the AMP version of a page.
type ampVersion struct {
	AMP   string `json:"amp"`
	Cache string `json:"cache,omitempty"` // the URL on Google's AMP Cache
}

func (v ampVersion) String() string {
	return v.AMP + "\n    " + cmp.Or(v.Cache, "no URL on Google's AMP Cache")
}
