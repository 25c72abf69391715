package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/time/rate"
)

// The AMP URL API of Google.
// https://developers.google.com/amp/cache/reference/acceleratedmobilepageurl/rest/v1/ampUrls/batchGet
const (
	lookupAPI   = "https://acceleratedmobilepageurl.googleapis.com/v1/ampUrls:batchGet"
	lookupBatch = 50      // URLs in one request
	lookupBytes = 1 << 20 // of an answer

	// The default quota is ten requests in 100 seconds: https://developers.google.com/amp/cache/reference/limits
	lookupBurst = 10
	lookupEvery = 10 * time.Second

	lookupTries   = 4               // of a request that is answered with 429 or 5xx
	lookupBackoff = 5 * time.Second // before the second; then twice as long each time
)

func newLookup() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "lookup [URL ...]",
		Short:   "Ask Google which pages have AMP versions, and for their URLs on its AMP Cache",
		Long:    "Ask Google's AMP URL API which pages have AMP versions, and for their URLs on its AMP Cache. Which pages it still answers is for Google to decide. After ten requests of 50 URLs, one is sent every 10 seconds, which is the quota of the API. Set GOOGLE_API_KEY to the API key.\n\nExit codes: 0 each page has an AMP version, 1 a page has none, 2 wrong usage, 3 the API did not answer for all pages.",
		Example: "  GOOGLE_API_KEY=… ampcors lookup https://www.example.com/article",
	}
	output := addOutput(cmd)
	live := cmd.Flags().Bool("live", false, "let the API also fetch pages that are not in Google's index, which takes longer")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key := strings.TrimSpace(os.Getenv("GOOGLE_API_KEY"))
		if key == "" {
			return errors.New("GOOGLE_API_KEY is not set; set it to the key of the AMP URL API")
		}
		pages, err := inputs(cmd, args)
		if err != nil {
			return err
		}
		l := lookup{key: key, strategy: map[bool]string{false: "IN_INDEX_DOC", true: "FETCH_LIVE_DOC"}[*live],
			limiter: rate.NewLimiter(rate.Every(lookupEvery), lookupBurst)}
		answers, failures, asked := make(map[string]ampVersion), make(map[string]error), 0
		var failed error // why the rest was not asked
		for batch := range slices.Chunk(pages, lookupBatch) {
			answer, err := l.batchGet(cmd.Context(), batch)
			if err != nil {
				failed = exitError{exitUntested, fmt.Errorf("the AMP URL API: %w; URLs that were not looked up: %d of %d", err, len(pages)-asked, len(pages))}
				break
			}
			asked += len(batch)
			for _, a := range answer.AMPURLs {
				answers[a.OriginalURL] = ampVersion{a.AMPURL, a.CDNAMPURL}
			}
			for _, e := range answer.URLErrors {
				problem := fmt.Errorf("%s: %s (%s)", e.OriginalURL, e.ErrorMessage, e.ErrorCode)
				if failures[e.OriginalURL] = problem; e.ErrorCode == "APPLICATION_ERROR" { // the API has a problem, and not the page
					failures[e.OriginalURL] = notAnswered{problem}
				}
			}
		}
		cmd.SetContext(context.WithoutCancel(cmd.Context())) // an interruption loses no answer
		err = answerAll(cmd, pages[:asked], *output, func(page string) (any, error) {
			if version, ok := answers[page]; ok {
				return version, nil
			}
			return nil, cmp.Or[error](failures[page], notAnswered{fmt.Errorf("%s: the API has no answer", page)})
		})
		return cmp.Or(failed, err)
	}
	return cmd
}

// A notAnswered is the error about a page for which the API may have an answer later.
type notAnswered struct{ error }

func (notAnswered) Retryable() bool { return true }

// An ampVersion is the AMP version of a page.
type ampVersion struct {
	AMP   string `json:"amp"`
	Cache string `json:"cache,omitempty"` // the URL on Google's AMP Cache
}

func (v ampVersion) String() string {
	return v.AMP + "\n    " + cmp.Or(v.Cache, "no URL on Google's AMP Cache")
}

// A batchAnswer is an answer of the API.
type batchAnswer struct {
	AMPURLs []struct {
		OriginalURL string `json:"originalUrl"`
		AMPURL      string `json:"ampUrl"`
		CDNAMPURL   string `json:"cdnAmpUrl"`
	} `json:"ampUrls"`
	URLErrors []struct {
		OriginalURL  string `json:"originalUrl"`
		ErrorCode    string `json:"errorCode"`
		ErrorMessage string `json:"errorMessage"`
	} `json:"urlErrors"`
	Error struct {
		Message string `json:"message"`
	} `json:"error"`
}

// A lookup asks the API.
type lookup struct {
	key, strategy string
	limiter       *rate.Limiter
}

// batchGet asks the API about pages, and asks again if it is overloaded.
func (l *lookup) batchGet(ctx context.Context, pages []string) (answer batchAnswer, err error) {
	body, err := json.Marshal(map[string]any{"urls": pages, "lookupStrategy": l.strategy})
	if err != nil {
		return answer, err
	}
	for try, wait := 1, lookupBackoff; ; try, wait = try+1, 2*wait {
		if l.limiter.Wait(ctx) != nil {
			return answer, errInterrupted
		}
		resp, text, err := l.post(ctx, body)
		if err != nil {
			return answer, err
		}
		if isBusy := resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500; !isBusy || try == lookupTries {
			return l.read(resp, text)
		}
		wait = max(wait, min(time.Duration(secondsUntil(resp.Header, time.Now()))*time.Second, 2*time.Minute))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return answer, errInterrupted
		}
	}
}

// post sends a request. The key is in a header, so that no error and no log shows it with the URL.
func (l *lookup) post(ctx context.Context, body []byte) (*http.Response, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, lookupAPI, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Goog-Api-Key", l.key)
	resp, err := withoutRedirects(httpClient).Do(r) // the key must not get to another host
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, errInterrupted
		}
		return nil, nil, errors.New(strings.ReplaceAll(withoutURL(err).Error(), l.key, "…")) // it may quote the answer
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, lookupBytes))
	return resp, bytes.ReplaceAll(text, []byte(l.key), []byte("…")), err
}

// read reads an answer.
func (l *lookup) read(resp *http.Response, text []byte) (answer batchAnswer, err error) {
	unread := json.Unmarshal(text, &answer)
	switch {
	case resp.StatusCode != http.StatusOK && answer.Error.Message != "":
		return answer, fmt.Errorf("the status is %d: %.300s", resp.StatusCode, answer.Error.Message)
	case resp.StatusCode != http.StatusOK:
		return answer, fmt.Errorf("the status is %d; want 200", resp.StatusCode)
	case unread != nil:
		return answer, errors.New("the answer is not that of the API")
	}
	return answer, nil
}
