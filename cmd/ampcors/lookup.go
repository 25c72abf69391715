package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/time/rate"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/outbound"
)

// The AMP URL API of Google.
// https://developers.google.com/amp/cache/reference/acceleratedmobilepageurl/rest/v1/ampUrls/batchGet
const (
	lookupAPI   = "https://acceleratedmobilepageurl.googleapis.com/v1/ampUrls:batchGet"
	lookupBatch = 50      // URLs in one request
	lookupBytes = 1 << 20 // of an answer, which has three URLs for each
)

// A batchAnswer is an answer of the API, or an error.
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
	api, key, strategy string
	pace               *rate.Limiter
}

// The default quota of the API is ten requests in 100 seconds.
// https://developers.google.com/amp/cache/reference/limits
const lookupBurst, lookupEvery = 10, 10 * time.Second

// lookupRetry says how a request is repeated that was answered 429 or 5xx. Tests shorten it.
var lookupRetry = outbound.Retry{Attempts: 4, Backoff: 5 * time.Second, MaxWait: 2 * time.Minute}

// batchGet asks the API about pages, and asks again if it is overloaded.
func (l *lookup) batchGet(ctx context.Context, urls []string) (answer batchAnswer, err error) {
	body, err := json.Marshal(map[string]any{"urls": urls, "lookupStrategy": l.strategy})
	if err != nil {
		return answer, err
	}
	for attempt := 1; ; attempt++ {
		if err := l.pace.Wait(ctx); err != nil {
			return answer, err
		}
		a, err := l.post(ctx, body)
		if err != nil {
			return answer, err
		}
		isRetryable := a.Status == http.StatusTooManyRequests || a.Retryable()
		if isRetryable && lookupRetry.Again(ctx, outbound.SystemClock{}, attempt, a.RetryAfter(time.Now())) {
			continue
		}
		return readBatch(a, l.key)
	}
}

// post sends a request. The key is in a header, so that no error or log shows it with the URL.
func (l *lookup) post(ctx context.Context, body []byte) (a outbound.Answer, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.api, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Goog-Api-Key", l.key)
	if a, err = outbound.DoLimit(outbound.Client(httpClient), r, lookupBytes); err != nil {
		return a, errors.New(strings.ReplaceAll(err.Error(), l.key, "…")) // it may quote the answer
	}
	return a, nil
}

// readBatch reads an answer.
func readBatch(a outbound.Answer, key string) (answer batchAnswer, err error) {
	unread := json.Unmarshal(bytes.ReplaceAll(a.Body, []byte(key), []byte("…")), &answer)
	switch {
	case a.Status != http.StatusOK && answer.Error.Message != "":
		return answer, fmt.Errorf("the answer is %d: %s", a.Status, outbound.Shorten(answer.Error.Message))
	case a.Status != http.StatusOK:
		return answer, fmt.Errorf("the answer is %d; want 200", a.Status)
	case a.BodyErr != nil:
		return answer, fmt.Errorf("the answer cannot be read: %w", a.BodyErr)
	case unread != nil:
		return answer, fmt.Errorf("the answer is not that of the API: %w", unread)
	}
	return answer, nil
}

// A found is the answer of the API for one page.
type found struct {
	AMP      string   `json:"amp"`                // the URL of the AMP version
	Cache    string   `json:"cache"`              // its URL on Google's AMP Cache, from the API
	Computed string   `json:"computed,omitempty"` // the same URL, from package cacheurl; "" if that rejects AMP
	Problem  string   `json:"problem,omitempty"`  // why it rejects AMP
	Prefix   string   `json:"prefix,omitempty"`   // the domain prefix of Cache
	By       []string `json:"by"`                 // which implementations give it
	Denied   bool     `json:"denied,omitempty"`   // whether ampcors denies it, because another host has it too
	isHash   bool
}

func newFound(amp, cache string) found {
	f := found{AMP: amp, Cache: cache, By: []string{}}
	computed, err := cacheurl.URL{Publisher: amp, Type: cacheurl.Document}.Build()
	if err != nil {
		f.Problem = err.Error()
	}
	f.Computed = computed
	page, err := url.Parse(amp)
	onCache, err2 := url.Parse(cache)
	if err != nil || err2 != nil || cache == "" {
		return f
	}
	f.Prefix, _, _ = strings.Cut(onCache.Hostname(), ".")
	all, _ := cacheurl.Prefixes(page.Hostname()) // an error is in Problem
	for i, p := range all {
		if p.Prefix == f.Prefix {
			f.By, f.Denied, f.isHash = p.By, p.Denied, i == len(all)-1
		}
	}
	return f
}

func (f found) String() string {
	if f.Cache == "" {
		return f.AMP + "\n  The API names no URL on Google's AMP Cache."
	}
	kind := "that of " + strings.Join(f.By, ", ")
	switch {
	case f.isHash:
		kind = "the hash prefix"
	case len(f.By) == 0:
		kind = "that of no known implementation"
	case f.Denied:
		kind += "; ampcors denies it, because another host has it too"
	}
	text := f.AMP + "\n  " + f.Cache + "\n  Google uses the domain prefix " + f.Prefix + ", " + kind + "."
	switch {
	case f.Problem != "":
		text += "\n  ampcors cacheurl: " + f.Problem
	case f.Computed != f.Cache:
		text += "\n  ampcors cacheurl prints " + f.Computed
	}
	return text
}

func newLookup() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "lookup [URL ...]",
		Short:   "Ask Google which pages have AMP versions",
		Long:    "Ask Google's AMP URL API which pages have AMP versions, and compare the URL on its AMP Cache with the one that ampcors computes. After ten requests of 50 URLs, it sends one every 10 seconds, which is the quota of the API.\n\nSet GOOGLE_API_KEY to the API key.",
		Example: "  GOOGLE_API_KEY=… ampcors lookup https://www.example.com/article",
	}
	output := addOutput(cmd)
	endpoint := cmd.Flags().String("endpoint", lookupAPI, "URL of the API, for tests")
	_ = cmd.Flags().MarkHidden("endpoint")
	live := cmd.Flags().Bool("live", false, "let the API also fetch pages that are not in Google's index (FETCH_LIVE_DOC), which takes longer; otherwise it answers from the index alone (IN_INDEX_DOC)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key := strings.TrimSpace(os.Getenv("GOOGLE_API_KEY"))
		if key == "" {
			return errors.New("GOOGLE_API_KEY is not set; set it to the key of the AMP URL API")
		}
		urls, err := inputs(cmd, args)
		if err != nil {
			return err
		}
		l := &lookup{api: *endpoint, key: key, strategy: "IN_INDEX_DOC", pace: rate.NewLimiter(rate.Every(lookupEvery), lookupBurst)}
		if *live {
			l.strategy = "FETCH_LIVE_DOC"
		}
		answers := make(map[string]found)
		failures := make(map[string]error)
		asked := 0
		var failed error // why the rest was not asked
		for batch := range slices.Chunk(urls, lookupBatch) {
			resp, err := l.batchGet(cmd.Context(), batch)
			if err != nil {
				if cmd.Context().Err() != nil {
					err = errInterrupted
				}
				failed = exitError{exitUntested, fmt.Errorf("the AMP URL API: %w; URLs that were not looked up: %d of %d", err, len(urls)-asked, len(urls))}
				break
			}
			asked += len(batch)
			for _, a := range resp.AMPURLs {
				answers[a.OriginalURL] = newFound(a.AMPURL, a.CDNAMPURL)
			}
			for _, e := range resp.URLErrors {
				failures[e.OriginalURL] = fmt.Errorf("%s: %s (%s)", e.OriginalURL, e.ErrorMessage, e.ErrorCode)
			}
		}
		cmd.SetContext(context.WithoutCancel(cmd.Context())) // an interruption loses no answer
		err = answerAll(cmd, urls[:asked], *output, func(u string) (any, error) {
			if f, ok := answers[u]; ok {
				return f, nil
			}
			if err, ok := failures[u]; ok {
				return nil, err
			}
			return nil, fmt.Errorf("%s: the API has no answer", u)
		})
		return cmp.Or(failed, err)
	}
	return cmd
}
