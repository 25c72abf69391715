package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/spf13/cobra"
	amp "google.golang.org/api/acceleratedmobilepageurl/v1"
	"google.golang.org/api/option"
)

// lookupBatch is how many URLs the API takes in one request.
// https://developers.google.com/amp/cache/reference/acceleratedmobilepageurl/rest/v1/ampUrls/batchGet
const lookupBatch = 50

// A found is the answer of the API for one page.
type found struct {
	AMP      string `json:"amp"`      // the URL of the AMP version
	Cache    string `json:"cache"`    // its URL on Google's AMP Cache, from the API
	Computed string `json:"computed"` // the same URL, from package cacheurl
}

func (f found) String() string {
	if f.Cache == f.Computed {
		return f.AMP + "\n  " + f.Cache
	}
	return f.AMP + "\n  " + f.Cache + " (ampcors cacheurl prints " + f.Computed + ")"
}

func newLookup() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "lookup [URL ...]",
		Short:   "Ask Google which pages have AMP versions",
		Long:    "Ask Google's AMP URL API which pages have AMP versions, and compare the URL on its AMP Cache with the one that ampcors computes.\n\nSet GOOGLE_API_KEY to the API key.",
		Example: "  GOOGLE_API_KEY=… ampcors lookup https://www.example.com/article",
	}
	output := addOutput(cmd)
	endpoint := cmd.Flags().String("endpoint", "", "URL of the API, for tests")
	_ = cmd.Flags().MarkHidden("endpoint")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key := os.Getenv("GOOGLE_API_KEY")
		if key == "" {
			return errors.New("GOOGLE_API_KEY is not set; set it to the key of the AMP URL API")
		}
		urls, err := inputs(cmd.InOrStdin(), args)
		if err != nil {
			return err
		}
		options := []option.ClientOption{option.WithAPIKey(key)}
		if *endpoint != "" {
			options = append(options, option.WithEndpoint(*endpoint))
		}
		service, err := amp.NewService(cmd.Context(), options...)
		if err != nil {
			return err
		}
		answers := make(map[string]found)
		failures := make(map[string]error)
		for batch := range slices.Chunk(urls, lookupBatch) {
			resp, err := service.AmpUrls.BatchGet(&amp.BatchGetAmpUrlsRequest{Urls: batch, LookupStrategy: "IN_INDEX_DOC"}).Context(cmd.Context()).Do()
			if err != nil {
				return exitError{exitUntested, fmt.Errorf("the AMP URL API: %w", err)}
			}
			for _, a := range resp.AmpUrls {
				computed, err := cacheurl.URL{Publisher: a.AmpUrl, Type: cacheurl.Document}.Build()
				if err != nil {
					computed = err.Error()
				}
				answers[a.OriginalUrl] = found{a.AmpUrl, a.CdnAmpUrl, computed}
			}
			for _, e := range resp.UrlErrors {
				failures[e.OriginalUrl] = fmt.Errorf("%s: %s (%s)", e.OriginalUrl, e.ErrorMessage, e.ErrorCode)
			}
		}
		return answer(cmd, urls, *output, func(u string) (any, error) {
			if f, ok := answers[u]; ok {
				return f, nil
			}
			if err, ok := failures[u]; ok {
				return nil, err
			}
			return nil, fmt.Errorf("%s: the API has no answer", u)
		})
	}
	return cmd
}
