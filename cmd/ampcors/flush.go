package main

import (
	"cmp"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ampcors/ampcors/announce/updatecache"
	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
)

// newUpdateClient returns an update-cache client with the RSA key from a file.
func newUpdateClient(errs io.Writer, client *http.Client, file string, caches []cacheurl.Cache) (*updatecache.Client,
	error) {
	key, err := readKey(errs, file)
	if err != nil {
		return nil, err
	}
	cfg := updatecache.Config{Signer: key, Logger: silent, HTTPClient: client, Caches: caches}
	return updatecache.New(cfg)
}

// readKey reads the RSA key of update-cache from a file.
func readKey(errs io.Writer, file string) (*rsa.PrivateKey, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	key, err := updatecache.ParseKey(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	warnOfMode(errs, file, 0o077, "others may read the private key: chmod 600 it")
	return key, nil
}

// warnOfMode warns if others than the owner may do with a file what the bits say. Windows has no such bits.
func warnOfMode(errs io.Writer, file string, bits os.FileMode, what string) {
	info, err := os.Stat(file)
	if err == nil && runtime.GOOS != "windows" && info.Mode().IsRegular() && info.Mode()&bits != 0 {
		fmt.Fprintf(errs, "warning: %s has the mode %04o, so that %s\n", file, info.Mode().Perm(), what)
	}
}

func newFlush() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "flush [URL of an AMP document ...]",
		Short: "Ask AMP Caches to fetch documents again",
		Long: "Ask AMP Caches to fetch documents again, with signed update-cache requests.\n\n" + exitHelp +
			"\n\nArguments, lines of standard input, or the pages of --sitemap are the URLs of AMP documents, or " +
			"of what --type says." + pagesHelp,
		Example: "  ampcors flush --key private.pem https://www.example.com/amp/article\n" +
			"  ampcors flush --key private.pem --cache google --dry-run --sitemap amp-sitemap.xml\n" +
			"  ampcors flush --key private.pem --type i https://www.example.com/photo.jpg",
	}
	output := addOutput(cmd)
	file := cmd.Flags().String("key", "", "file with the RSA key")
	caches := addCaches(cmd)
	cacheID := cmd.Flags().String("cache", "", "the id of the one AMP Cache to ask; if empty, all of --caches are asked")
	complete(cmd, "cache", cacheIDs(cacheurl.DefaultCaches()))
	forms := cmd.Flags().Bool("all-forms", false, allFormsHelp+
		"a page counts as flushed only if the cache accepts the request for each prefix")
	contentType := cmd.Flags().String("type", "c", "content type: c (document), v (document in a viewer), wp (signed "+
		"exchange), cert (its certificate), i (image), ii (sized image) or r (other file)")
	complete(cmd, "type", []string{"c", "v", "wp", "cert", "i", "ii", "r"})
	params := cmd.Flags().String("image-params", "", "parameters of an image (type i or ii), such as w800")
	given := addPages(cmd)
	dryRun := cmd.Flags().Bool("dry-run", false, "send nothing to caches, and print what would be flushed")
	resolve := cmd.Flags().StringArray("resolve", nil, resolveHelp)
	openLog := addRunLog(cmd)
	sign := cmd.Flags().Bool("sign", false, "send nothing to caches, and print the signed URLs, which caches "+
		"accept for a minute")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cmp.Or(require(cmd, "key"), checkType(*contentType)); err != nil {
			return err
		}
		known, err := caches.read()
		if err != nil {
			return err
		}
		if *cacheID != "" {
			only, err := cacheWithID(known, *cacheID)
			if err != nil {
				return err
			}
			known = []cacheurl.Cache{only}
		}
		client, err := resolvingClient(*resolve, false)
		if err != nil {
			return err
		}
		given.client = client
		c, err := newUpdateClient(cmd.ErrOrStderr(), client, *file, known)
		if err != nil {
			return err
		}
		given.isDryRun = *dryRun || *sign
		defer given.unlock()
		pages, err := given.pages(cmd, args)
		if err != nil {
			return err
		}
		// urlsOf returns what is asked for: the page at each form of its prefix.
		urlsOf := func(page string) (urls []cacheurl.URL, err error) {
			u := cacheurl.URL{Publisher: page, Type: cacheurl.ContentType(*contentType), ImageParams: *params}
			if isDocument(u.Type) {
				warnOfFile(cmd, page) // of an image, there will be an error
			}
			if !*forms {
				return []cacheurl.URL{u}, nil
			}
			if _, err := c.SignedURLs(u); err != nil { // so that a problem is not reported for each form
				return nil, err
			}
			prefixes, err := prefixesOf(page)
			for _, u.Prefix = range prefixes {
				urls = append(urls, u)
			}
			return urls, err
		}
		if least := flushTime(pages); least >= time.Minute && !*sign {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: %s take at least %v: a cache accepts ten requests per second for one host\n",
				count(len(pages), "page", "pages"), least)
		}
		if !*sign && !*dryRun {
			log, err := openLog()
			if err != nil {
				return err
			}
			err = flush(cmd, *output, c, given, log, pages, urlsOf)
			return given.finish(cmp.Or(err, log.close()))
		}
		err = answerAll(cmd, pages, *output, func(page string) (any, error) {
			urls, err := urlsOf(page)
			if err != nil {
				return nil, err
			}
			var signed []string
			for _, u := range urls {
				own, err := c.SignedURLs(u)
				if err != nil {
					return nil, err
				}
				signed = append(signed, own...)
			}
			if *sign {
				return signed, nil
			}
			lines := []string{page + ": would be flushed by"}
			for _, u := range signed { // the signature is valid for one minute only
				request, _, _ := strings.Cut(u, "&amp_url_signature=")
				lines = append(lines, "GET "+request+"&amp_url_signature=…")
			}
			return lines, nil
		})
		return given.finish(err)
	}
	return cmd
}

// flushTime returns how long it takes at least to flush pages, by the rate limit of each host on a cache.
func flushTime(pages []string) time.Duration {
	hosts, most := make(map[string]int), 0
	for _, page := range pages {
		if u, err := url.Parse(page); err == nil {
			hosts[u.Host]++
			most = max(most, hosts[u.Host])
		}
	}
	return time.Duration(most) * time.Second / 10
}

// A flushedPage is a result of flush in JSON: of a page on a cache, or of a page that was not asked for.
type flushedPage struct {
	URL        string `json:"url"`
	Cache      string `json:"cache,omitempty"`
	Prefix     string `json:"prefix,omitempty"` // with --all-forms
	Flushed    bool   `json:"flushed"`
	Status     int    `json:"status,omitempty"`
	Code       string `json:"code,omitempty"` // of package badvalue, if the URL is wrong
	Error      string `json:"error,omitempty"`
	RetryAfter int    `json:"retryAfter,omitempty"` // seconds, if the cache said so
}

// flush flushes pages, and writes each result when it is there, or all as JSON.
func flush(cmd *cobra.Command, output format, c *updatecache.Client, given *givenPages, log *runLog, pages []string,
	urlsOf func(page string) ([]cacheurl.URL, error)) error {
	results, failed := []flushedPage{}, []error{}
	add := func(p flushedPage) {
		results = append(results, p)
		log.flushed(p)
	}
	show, clear := consoleOf(cmd.ErrOrStderr()).progress()
	defer clear()
	for i, page := range pages {
		if cmd.Context().Err() != nil {
			clear()
			if output == formatJSON {
				if err := writeJSON(cmd.OutOrStdout(), results); err != nil {
					return err
				}
			}
			return errInterrupted
		}
		urls, err := urlsOf(page)
		for _, u := range urls {
			asked, problem := c.FlushURL(cmd.Context(), u)
			if err = errors.Join(err, problem); len(asked) > 0 {
				problem = nil // each cache has its own
			}
			for _, r := range asked {
				add(newFlushedPage(page, u.Prefix, r.Cache, r.Err))
			}
			if problem != nil {
				add(newFlushedPage(page, u.Prefix, "", problem))
			}
		}
		if err != nil && len(urls) == 0 {
			add(newFlushedPage(page, "", "", err))
		}
		if err == nil {
			err = given.done(page)
		}
		clear()
		switch {
		case err != nil:
			if failed = append(failed, err); output == formatText {
				complain(cmd.ErrOrStderr(), inOurWords(err).Error())
			}
		case output == formatText:
			fmt.Fprintln(cmd.OutOrStdout(), page+": flushed")
		}
		show(fmt.Sprintf("%d of %s", i+1, count(len(pages), "page", "pages")))
	}
	if output == formatJSON {
		if err := writeJSON(cmd.OutOrStdout(), results); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(failed, func(err error) bool {
		return errors.Is(err, updatecache.ErrIngestion) || errors.Is(err, updatecache.ErrSignature) ||
			errors.Is(err, updatecache.ErrKey) || errors.Is(err, updatecache.ErrForbidden)
	}) {
		complain(cmd.ErrOrStderr(), "ampcors verify --key FILE DOMAIN checks the key file at the publisher, and with "+
			"--copies the copies of it that caches have")
	}
	return failure(failed)
}

func newFlushedPage(page, prefix, cache string, err error) flushedPage {
	p := flushedPage{URL: page, Prefix: prefix, Cache: cache, Flushed: err == nil}
	if err == nil {
		return p
	}
	if problem := (*updatecache.Error)(nil); errors.As(err, &problem) {
		p.Status = problem.Status
	}
	if problem := (*badvalue.Error)(nil); errors.As(err, &problem) {
		p.Code = string(problem.Code)
	}
	p.Error, p.RetryAfter = inOurWords(err).Error(), retryAfter(err)
	return p
}

// allFormsHelp is the beginning of the help of --all-forms.
const allFormsHelp = "ask at each prefix of ampcors prefix --all that is not denied, because it is not public which " +
	"one a cache uses; "

// prefixesOf returns the domain prefixes of the publisher of a page that can be flushed.
func prefixesOf(page string) (prefixes []string, err error) {
	u, err := url.Parse(page)
	if err != nil {
		return nil, err
	}
	found, err := cacheurl.Prefixes(u.Hostname())
	for _, p := range found {
		if !p.Denied {
			prefixes = append(prefixes, p.Prefix)
		}
	}
	return prefixes, err
}
