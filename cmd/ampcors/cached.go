package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/html"
	"golang.org/x/time/rate"

	"github.com/ampcors/ampcors/cacheurl"
)

func newCached() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cached [URL of an AMP document ...]",
		Short: "Ask AMP Caches whether they serve a page, and how old their copy is",
		Long: "Ask AMP Caches whether they serve a page, and how old their copy is. By AMP's document about cache URLs, a cache redirects to the canonical page if a page is not valid AMP, and answers 404 if it does not find it or if the publisher's server answers 5xx. A cache may fetch a page because it is asked for it.\n\n" +
			"Exit codes: 0 each cache serves each page, 1 one does not, 2 wrong usage, 3 one does not answer.",
		Example: "  ampcors cached https://www.example.com/amp/article",
	}
	output, caches := addOutput(cmd), addCaches(cmd)
	forms := cmd.Flags().Bool("all-forms", false, "ask at each domain prefix of ampcors prefix --all, because it is not public which one a cache uses; a page is served if the cache serves one of them")
	contentType := cmd.Flags().String("type", "c", "content type: c (document), i (image), r (other file) or another one of ampcors cacheurl")
	perSecond := cmd.Flags().Float64("rate", 5, "requests per second")
	resolve := cmd.Flags().StringArray("resolve", nil, resolveHelp)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !(*perSecond > 0) { // nor NaN
			return errors.New("--rate must be positive")
		}
		known, err := caches.read()
		if err := cmp.Or(err, checkType(*contentType)); err != nil {
			return err
		}
		client, err := resolvingClient(*resolve, false)
		if err != nil {
			return err
		}
		client = withoutRedirects(client)
		limiter := rate.NewLimiter(rate.Limit(*perSecond), 1)
		code := exitClean
		err = answer(cmd, args, *output, func(page string) (any, error) {
			prefixes := []string{""}
			if *forms {
				if prefixes, err = prefixesOf(page); err != nil {
					return nil, err
				}
			}
			var copies copies
			for _, cache := range known {
				best, isAnswered := noAnswer, true
				for _, prefix := range prefixes {
					at, err := cacheurl.URL{Publisher: page, Cache: cache, Prefix: prefix, Type: cacheurl.ContentType(*contentType)}.Build()
					if err != nil {
						return nil, err
					}
					if err := limiter.Wait(cmd.Context()); err != nil {
						return nil, errInterrupted
					}
					found := askCache(cmd.Context(), client, cache, at)
					isAnswered = isAnswered && found.Result != noAnswer
					if copies = append(copies, found); best == noAnswer || found.Result == served {
						best = found.Result
					}
				}
				switch {
				case best == served:
				case isAnswered:
					code = exitFindings
				case code == exitClean: // another form may be served
					code = exitLater
				}
			}
			return copies, nil
		})
		if err == nil && code != exitClean {
			err = exitError{code: code}
		}
		return err
	}
	return cmd
}

// The results of asking a cache, by "Redirect & Error Handling" in
// https://amp.dev/documentation/guides-and-tutorials/learn/amp-caches-and-cors/amp-cache-urls
const (
	served     = "served"
	redirected = "redirected to the canonical page: the cache has no valid AMP document"
	notFound   = "not found: the cache does not find it, or the publisher's server answers 404 or 5xx"
	notServed  = "not served"
	noAnswer   = "no answer"
)

// A cachedCopy is what a cache answers when it is asked for a page.
type cachedCopy struct {
	Cache        string `json:"cache"`
	URL          string `json:"url"`
	Result       string `json:"result"`
	Status       int    `json:"status,omitempty"`
	Age          string `json:"age,omitempty"`
	LastModified string `json:"lastModified,omitempty"`
	Canonical    string `json:"canonical,omitempty"` // the URL that the copy names
	Location     string `json:"location,omitempty"`
	Error        string `json:"error,omitempty"`
}

type copies []cachedCopy

func (copies copies) String() string {
	var lines []string
	for _, c := range copies {
		line := fmt.Sprintf("%s: %s\n    %s", c.Cache, c.URL, c.Result)
		status := ""
		if c.Status != 0 {
			status = strconv.Itoa(c.Status)
		}
		for _, detail := range [][2]string{{"status", status}, {"age", c.Age}, {"Last-Modified", c.LastModified}, {"canonical URL", c.Canonical}, {"to", c.Location}, {"because", c.Error}} {
			if detail[1] != "" {
				line += fmt.Sprintf("; %s %.300s", detail[0], detail[1])
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// maxCopy is how many bytes of a copy are read for its canonical URL, which is in its head.
const maxCopy = 1 << 20

// askCache asks a cache for a URL on it. The client follows no redirect.
func askCache(ctx context.Context, client *http.Client, cache cacheurl.Cache, at string) cachedCopy {
	c := cachedCopy{Cache: cache.ID, URL: at, Result: noAnswer}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		c.Error = err.Error()
		return c
	}
	r.Header.Set("User-Agent", "ampcors-cached")
	resp, err := client.Do(r)
	if err != nil {
		c.Error = withoutURL(err).Error()
		return c
	}
	defer resp.Body.Close()
	c.Status, c.LastModified, c.Location = resp.StatusCode, resp.Header.Get("Last-Modified"), resp.Header.Get("Location")
	location, err := resp.Location()
	switch {
	case c.Status == http.StatusOK:
		c.Result, c.Age = served, ageOf(resp.Header, time.Now())
		c.Canonical = canonicalOf(io.LimitReader(resp.Body, maxCopy))
	case c.Status == http.StatusNotFound:
		c.Result = notFound
	case c.Status >= 300 && c.Status < 400 && err == nil && !cacheurl.IsOnCache(location.String(), cache):
		c.Result = redirected
	default:
		c.Result = notServed
	}
	return c
}

// ageOf returns the age of a copy, by RFC 9111 section 4.2.3: that of its header Age, or the time since its Date if that is more. It
// returns "" if the answer has neither.
func ageOf(h http.Header, now time.Time) string {
	seconds, err := strconv.ParseInt(h.Get("Age"), 10, 32)
	age, isKnown := time.Duration(max(seconds, 0))*time.Second, err == nil
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		age, isKnown = max(age, now.Sub(date).Truncate(time.Second)), true
	}
	if !isKnown {
		return ""
	}
	return age.String()
}

// canonicalOf returns the URL in the first <link rel=canonical> of a document, or "".
func canonicalOf(document io.Reader) string {
	for z := html.NewTokenizer(document); ; {
		switch z.Next() {
		case html.ErrorToken:
			return ""
		case html.StartTagToken, html.SelfClosingTagToken:
			tag := z.Token()
			var rel, href string
			for _, a := range tag.Attr {
				switch a.Key {
				case "rel":
					rel = a.Val
				case "href":
					href = a.Val
				}
			}
			if tag.Data == "link" && strings.EqualFold(rel, "canonical") {
				return href
			}
		}
	}
}
