// Package ampurl asks Google's AMP URL API which pages have AMP versions, and for their URLs on Google's AMP Cache.
// Google's document calls this the best way to get such URLs in production; package cacheurl computes them without
// a request. Which pages the API still answers is for Google to decide.
//
// https://developers.google.com/amp/cache/reference/acceleratedmobilepageurl/rest/v1/ampUrls/batchGet
package ampurl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ampcors/ampcors/announce"
	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/internal/outbound"
)

// API is the endpoint of the AMP URL API.
const API = "https://acceleratedmobilepageurl.googleapis.com/v1/ampUrls:batchGet"

const (
	maxPages  = 50      // in one request
	maxAnswer = 1 << 20 // bytes

	// The default quota: https://developers.google.com/amp/cache/reference/limits
	quota    = 10 // requests
	quotaFor = 100 * time.Second

	liveTimeout = 2 * time.Minute

	tries    = 4               // of a request that is answered with 429 or 5xx
	backoff  = 5 * time.Second // before the second; then twice as long each time
	maxDelay = 2 * time.Minute // of a Retry-After
)

// Config configures a [Client].
type Config struct {
	// Key is the API key. It is sent in a header, and is in no error.
	Key string
	// Live lets the API also fetch pages that are not in Google's index, which takes longer.
	Live bool
	// Endpoint is the URL that is asked. If empty, [API] is used.
	Endpoint string
	// HTTPClient sends the requests. A copy of it is used, which follows no redirects. If it has no timeout, the copy
	// has one of 30 seconds, or with Live of 2 minutes (the API's documentation asks for 1 or more).
	HTTPClient *http.Client
}

// A Client asks the API. It is safe for concurrent use by multiple goroutines, and sends at most ten requests in
// 100 seconds, which is the quota of the API.
type Client struct {
	cfg  Config
	http *http.Client
	sent chan struct{} // requests that count for the quota
}

// New returns a Client, or the problems of cfg, joined, each a *[badvalue.Error].
func New(cfg Config) (*Client, error) {
	var problems []error
	if cfg.Key == "" {
		problems = append(problems, &badvalue.Error{Code: badvalue.Missing, Path: "Key", Reason: "is missing",
			Want: "the key of the AMP URL API"})
	}
	if cfg.Endpoint == "" {
		cfg.Endpoint = API
	}
	if at, err := url.Parse(cfg.Endpoint); err != nil || at.Scheme != "https" && at.Scheme != "http" || at.Host == "" ||
		at.User != nil {
		problems = append(problems, &badvalue.Error{Code: badvalue.Malformed, Path: "Endpoint",
			Reason: "is not the URL of a service",
			Want:   fmt.Sprintf("one such as %q", API)})
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	client := outbound.Client(cfg.HTTPClient)
	if cfg.Live && (cfg.HTTPClient == nil || cfg.HTTPClient.Timeout <= 0) {
		client.Timeout = liveTimeout
	}
	return &Client{cfg: cfg, http: client, sent: make(chan struct{}, quota)}, nil
}

// A Version is what the API says of a page.
type Version struct {
	Page  string
	AMP   string // the URL of its AMP version
	Cache string // the URL of that on Google's AMP Cache, or ""
	Err   error  // an *[Error], if the page has no AMP version or the API has no answer
}

// An Error is the reason why a page has no AMP version, or no answer.
type Error struct {
	Page    string
	Code    string // of the API, such as "NO_AMP_URL"; "" if it has no answer
	Message string
}

func (e *Error) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("ampurl: %.300s: the API has no answer", e.Page)
	}
	return fmt.Sprintf("ampurl: %.300s: %.300s (%.100s)", e.Page, e.Message, e.Code)
}

// Retryable reports whether the API, and not the page, has the problem.
func (e *Error) Retryable() bool { return e.Code == "" || e.Code == "APPLICATION_ERROR" }

var errNotTheAPI = errors.New("the answer is not one of the API")

// Lookup asks about pages, 50 in each request. It sends a request again, up to three times, if the API has too many
// requests or a problem. The versions have the order of the pages. If there are fewer, the error says why the rest
// has no result: it is a *[announce.StatusError], or an error of the network, of ctx or about the answer.
func (c *Client) Lookup(ctx context.Context, pages ...string) (versions []Version, err error) {
	for batch := range slices.Chunk(pages, maxPages) {
		answer, err := c.ask(ctx, batch)
		if err != nil {
			return versions, fmt.Errorf("ampurl: %w", err)
		}
		for _, page := range batch {
			versions = append(versions, answer.version(page))
		}
	}
	return versions, nil
}

// An answer is what the API answers.
type answer struct {
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

func (a *answer) version(page string) Version {
	for _, found := range a.AMPURLs {
		if found.OriginalURL == page {
			return Version{Page: page, AMP: found.AMPURL, Cache: found.CDNAMPURL}
		}
	}
	problem := &Error{Page: page}
	for _, e := range a.URLErrors {
		switch {
		case e.OriginalURL != page:
		case e.ErrorCode == "URL_IS_VALID_AMP":
			return Version{Page: page, AMP: page} // the page is the AMP version itself
		default:
			problem.Code, problem.Message = e.ErrorCode, e.ErrorMessage
		}
	}
	return Version{Page: page, Err: problem}
}

// ask sends one request, and sends it again if the API is overloaded.
func (c *Client) ask(ctx context.Context, pages []string) (a answer, err error) {
	strategy := "IN_INDEX_DOC"
	if c.cfg.Live {
		strategy = "FETCH_LIVE_DOC"
	}
	body, err := json.Marshal(map[string]any{"urls": pages, "lookupStrategy": strategy})
	if err != nil {
		return a, err
	}
	for try, wait := 1, backoff; ; try, wait = try+1, 2*wait {
		if err := c.waitForQuota(ctx); err != nil {
			return a, err
		}
		resp, text, err := c.post(ctx, body)
		if err != nil {
			return a, err
		}
		if resp.StatusCode == http.StatusOK || try == tries || !announce.Retryable(resp.StatusCode) {
			return c.read(resp, text)
		}
		asked := outbound.Answer{Header: resp.Header}.RetryAfter(time.Now())
		if err := sleep(ctx, max(wait, min(asked, maxDelay))); err != nil {
			return a, err
		}
	}
}

// waitForQuota waits until a request may be sent. Its place is free again when the quota allows another one.
func (c *Client) waitForQuota(ctx context.Context) error {
	select {
	case c.sent <- struct{}{}:
		time.AfterFunc(quotaFor, func() { <-c.sent })
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// post sends a request. The key is in a header, so that no error and no log has it with the URL.
func (c *Client) post(ctx context.Context, body []byte) (*http.Response, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.cfg.Endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "ampcors")
	r.Header.Set("X-Goog-Api-Key", c.cfg.Key)
	resp, err := c.http.Do(r)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return nil, nil, maskedError{strings.ReplaceAll(err.Error(), c.cfg.Key, "…"), err} // it may quote the answer
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return resp, bytes.ReplaceAll(text, []byte(c.cfg.Key), []byte("…")), err
}

// A maskedError is an error without the key in its text.
type maskedError struct {
	text string
	err  error
}

func (e maskedError) Error() string        { return e.text }
func (e maskedError) Is(target error) bool { return errors.Is(e.err, target) }
func (e maskedError) As(target any) bool   { return errors.As(e.err, target) }

func (c *Client) read(resp *http.Response, text []byte) (a answer, err error) {
	unread := json.Unmarshal(text, &a)
	switch {
	case resp.StatusCode != http.StatusOK:
		return a, &announce.StatusError{Status: resp.StatusCode, Message: a.Error.Message}
	case unread != nil:
		return a, errNotTheAPI
	}
	return a, nil
}
