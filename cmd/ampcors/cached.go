package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/html"
	"golang.org/x/time/rate"

	"github.com/ampcors/ampcors/announce"
	"github.com/ampcors/ampcors/cacheurl"
)

func newCached() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cached [URL of an AMP document, also on a cache ...]",
		Short: "Ask AMP Caches whether they serve a page, and how old their copy is",
		Long: "Ask AMP Caches whether they serve a page, and how old their copy is. By AMP's document about cache URLs, a " +
			"cache redirects to the canonical page if a page is not valid AMP, and answers 404 if the page is not found or " +
			"the publisher's server answers 5xx. Asking a cache for a page may make it fetch the page. If a cache redirects " +
			"to another host, the publisher's page is fetched as well, to read its canonical URL.\n\n" +
			"Exit codes: 0 each cache serves each page, 1 one does not, 2 wrong usage, 3 one does not answer now.",
		Example: "  ampcors cached https://www.example.com/amp/article",
	}
	output, caches := addOutput(cmd), addCaches(cmd)
	forms := cmd.Flags().Bool("all-forms", false, allFormsHelp+"a page is served if the cache serves one of them")
	contentType := cmd.Flags().String("type", "", "content type of a publisher's URL: c (document), i (image), r (other "+
		"file) or another one of ampcors cacheurl; if empty, it is guessed from the extension")
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
		follows := client // as caches do with a publisher's page
		client = withoutRedirects(client)
		limiter := rate.NewLimiter(rate.Limit(*perSecond), 1)
		code := exitClean
		err = answer(cmd, args, *output, func(page string) (any, error) {
			u, _, err := readURL(cmd, page, known)
			if err != nil {
				return nil, err
			}
			caches := []cacheurl.Cache{u.Cache}
			switch {
			case u.Cache == (cacheurl.Cache{}):
				caches, u.Type = known, typeOf(cmd, cacheurl.ContentType(*contentType), u)
			case *contentType != "" && cacheurl.ContentType(*contentType) != u.Type:
				return nil, fmt.Errorf("%s has the type %s in its path, and --type is %s", page, u.Type, *contentType)
			}
			canonical := sync.OnceValue(func() string { return canonicalOfPage(cmd.Context(), follows, u.Publisher) })
			isPage := u.Type == cacheurl.Document || u.Type == cacheurl.Viewer
			prefixes := []string{u.Prefix}
			if *forms {
				if prefixes, err = prefixesOf(u.Publisher); err != nil {
					return nil, err
				}
			}
			var copies copies
			for _, cache := range caches {
				best, isAnswered := noAnswer, true
				for _, prefix := range prefixes {
					on := u
					on.Cache, on.Prefix = cache, prefix
					at, err := on.Build()
					if err != nil {
						return nil, err
					}
					if err := limiter.Wait(cmd.Context()); err != nil {
						return nil, errInterrupted
					}
					found := askCache(cmd.Context(), client, cache, at, isPage)
					if found.Result == redirected {
						found.Result = redirectTo(found.Location, canonical(), known)
					}
					isAnswered = isAnswered && found.Result != noAnswer && found.Result != busy
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
	elsewhere  = "redirected to another URL than the canonical one of the publisher's page"
	otherCache = "redirected to another AMP Cache"
	uncompared = "redirected; the publisher's page names no canonical URL that could be compared"
	notAMP     = "served, but it is no AMP document"
	busy       = "not served now: try again later"
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
	RetryAfter   int    `json:"retryAfter,omitempty"` // seconds, if the cache said so
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
		for _, detail := range [][2]string{{"status", status}, {"age", c.Age}, {"Last-Modified", c.LastModified},
			{"canonical URL", c.Canonical},
			{"to", c.Location}, {"retry after", seconds(c.RetryAfter)}, {"because", c.Error}} {
			if detail[1] != "" {
				line += fmt.Sprintf("; %s %.300s", detail[0], detail[1])
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// seconds returns a number of seconds as text, or "" for 0.
func seconds(n int) string {
	if n == 0 {
		return ""
	}
	return (time.Duration(n) * time.Second).String()
}

// maxCopy is how many bytes of a copy are read for its canonical URL, which is in its head.
const maxCopy = 1 << 20

// redirectTo returns the result of a redirect off the cache.
func redirectTo(location, canonical string, known []cacheurl.Cache) string {
	switch {
	case cacheurl.IsOnCache(location, known...):
		return otherCache
	case canonical == "":
		return uncompared
	case !cacheurl.IsSameURL(location, canonical):
		return elsewhere + ", " + canonical
	}
	return redirected
}

// canonicalOfPage fetches a publisher's page, and returns the canonical URL that it names, or "". It follows
// redirects, as caches do.
func canonicalOfPage(ctx context.Context, client *http.Client, page string) string {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return ""
	}
	r.Header.Set("User-Agent", "ampcors-cached")
	resp, err := client.Do(r)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	named, err := url.Parse(strings.TrimSpace(documentOf(io.LimitReader(resp.Body, maxCopy)).canonical))
	if err != nil || named.String() == "" || resp.StatusCode != http.StatusOK {
		return ""
	}
	canonical := resp.Request.URL.ResolveReference(named)
	canonical.Host = cacheurl.CanonicalHost(canonical) // String would escape what is not ASCII
	return canonical.String()
}

// askCache asks a cache for a URL on it. The client follows no redirect.
func askCache(ctx context.Context, client *http.Client, cache cacheurl.Cache, at string, isDocument bool) cachedCopy {
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
		c.Result, c.Age = served, ageOf(resp.Header)
		document := documentOf(io.LimitReader(resp.Body, maxCopy))
		if c.Canonical = document.canonical; isDocument && !document.isAMP {
			c.Result = notAMP
		}
	case announce.Retryable(c.Status):
		c.Result, c.RetryAfter = busy, int(announce.RetryAfter(resp.Header, time.Now())/time.Second)
	case c.Status == http.StatusNotFound:
		c.Result = notFound
	case c.Status >= 300 && c.Status < 400 && err == nil && !cacheurl.IsOnCache(location.String(), cache):
		c.Result, c.Location = redirected, location.String() // which may have been relative to the scheme
	default:
		c.Result = notServed
	}
	return c
}

// ageOf returns the age of a copy, by its header Age (RFC 9111 section 5.1). Without it, the age is not known: Date
// says when the cache answered, and Last-Modified, which is printed too, when Google's cache made its copy.
func ageOf(h http.Header) string {
	seconds, err := strconv.ParseInt(h.Get("Age"), 10, 32)
	if err != nil || seconds < 0 {
		return ""
	}
	return (time.Duration(seconds) * time.Second).String()
}

// A document is what the beginning of an HTML document says.
type document struct {
	isAMP     bool   // <html amp> or <html ⚡>
	canonical string // the URL in the first <link rel=canonical>, or ""
}

func documentOf(r io.Reader) (d document) {
	for z := html.NewTokenizer(r); ; {
		switch z.Next() {
		case html.ErrorToken:
			return d
		case html.StartTagToken, html.SelfClosingTagToken:
			tag := z.Token()
			var rel, href string
			for _, a := range tag.Attr {
				switch a.Key {
				case "amp", "⚡", "⚡\uFE0F":
					d.isAMP = d.isAMP || tag.Data == "html"
				case "rel":
					rel = a.Val
				case "href":
					href = a.Val
				}
			}
			isCanonical := slices.ContainsFunc(strings.Fields(rel),
				func(word string) bool { return strings.EqualFold(word, "canonical") })
			if tag.Data == "link" && isCanonical {
				d.canonical = strings.TrimSpace(href)
				return d
			}
		}
	}
}
