package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ampcors/ampcors/announce/indexnow"
	"github.com/ampcors/ampcors/announce/updatecache"
	"github.com/ampcors/ampcors/cacheurl"
)

// The commands of this file tell AMP Caches and search engines that pages have changed.

// keyBits is the length of a new RSA key. The example in the documentation of update-cache
// has the same length.
const keyBits = 2048

func newKey() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key updatecache FILE | updatecache --public FILE | indexnow",
		Short: "Make a key for update-cache or IndexNow",
		Long: "Make a key for update-cache or IndexNow. Keep it secret. The key for update-cache is an RSA key in PEM, which is written to a new file that only you can read. The key for IndexNow is printed.\n\n" +
			"With --public, read the RSA key from a file, and print what the site serves at " + updatecache.KeyPath + ".",
		Example:   "  ampcors key updatecache private.pem\n  ampcors key updatecache --public private.pem >apikey.pub\n  ampcors key indexnow",
		ValidArgs: []string{"updatecache", "indexnow"},
	}
	public := cmd.Flags().String("public", "", "file with the RSA key whose public key is printed")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) < 1 || len(args) > 2 {
			return errors.New("want updatecache and a file, updatecache and --public, or indexnow")
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch kind, hasFile := args[0], len(args) == 2; {
		case kind == "indexnow" && !hasFile && *public == "":
			key := string(indexnow.NewKey())
			_, err := fmt.Fprintln(cmd.OutOrStdout(), key)
			fmt.Fprintf(cmd.ErrOrStderr(), "Serve it as the only text of https://www.example.com/%s.txt, as text/plain, and at each other host of your pages.\n"+
				"Then set INDEXNOW_KEY to it, and check: ampcors verify www.example.com\n", key)
			return err
		case kind == "updatecache" && !hasFile && *public != "":
			key, err := readKey(*public)
			if err != nil {
				return err
			}
			der, err := x509.MarshalPKIXPublicKey(key.Public())
			if err != nil {
				return err
			}
			return pem.Encode(cmd.OutOrStdout(), &pem.Block{Type: "PUBLIC KEY", Bytes: der})
		case kind == "updatecache" && hasFile && *public == "":
			if err := writeKey(args[1]); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "The key is in %[1]s. Serve what ampcors key updatecache --public %[1]s prints at %[2]s of each site, as text/plain.\n"+
				"Then check: ampcors verify --key %[1]s www.example.com\n", args[1], updatecache.KeyPath)
			return nil
		case kind == "updatecache" && !hasFile:
			return errors.New("there is no file for the key; want ampcors key updatecache private.pem")
		}
		return fmt.Errorf("%q is wrong; want updatecache and a file, updatecache and --public, or indexnow", strings.Join(args, " "))
	}
	return cmd
}

// writeKey makes an RSA key, and writes it to a new file that only its owner can read. It never
// replaces a file: the key in it may be in use.
func writeKey(file string) error {
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(pem.Encode(f, &pem.Block{Type: "PRIVATE KEY", Bytes: der}), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(file))
	}
	return nil
}

// newUpdateClient returns an update-cache client with the RSA key from a file.
func newUpdateClient(file string, caches []cacheurl.Cache) (*updatecache.Client, error) {
	key, err := readKey(file)
	if err != nil {
		return nil, err
	}
	cfg := updatecache.Config{Signer: key, Logger: silent, HTTPClient: httpClient, Caches: caches}
	return updatecache.New(cfg)
}

// readKey reads the RSA key of update-cache from a file.
func readKey(file string) (*rsa.PrivateKey, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	key, err := updatecache.ParseKey(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return key, nil
}

// indexNowFlags are the flags about the keys of IndexNow and about its services.
type indexNowFlags struct{ location, keys, endpoint string }

func addIndexNow(cmd *cobra.Command) *indexNowFlags {
	f := &indexNowFlags{}
	cmd.Flags().StringVar(&f.location, "key-location", "", "URL of IndexNow's key file, if it is not at the root")
	cmd.Flags().StringVar(&f.keys, "keys", "", "JSON file with the keys of each host, the current one first: {\"www.example.com\": [\"…\"]}")
	return f
}

// client returns an IndexNow client. It reads the key from a file or the environment, because a
// flag would show it in the shell's history and the list of processes.
func (f *indexNowFlags) client() (*indexnow.Client, error) {
	cfg := indexnow.Config{KeyLocation: f.location, Endpoint: f.endpoint, Logger: silent, HTTPClient: httpClient}
	if f.keys != "" {
		data, err := os.ReadFile(f.keys)
		if err != nil {
			return nil, err
		}
		keys, err := parseKeys(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.keys, err)
		}
		cfg.KeysOf = func(_ context.Context, host string) ([]indexnow.Key, error) { return keys[host], nil }
		return indexnow.New(cfg)
	}
	key := strings.TrimSpace(os.Getenv("INDEXNOW_KEY"))
	if key == "" {
		return nil, errors.New("INDEXNOW_KEY is not set; set it to the IndexNow key, or use --keys")
	}
	cfg.Key = indexnow.Key(key)
	return indexnow.New(cfg)
}

// parseKeys returns the keys of each host. It reads the members one by one, because a host that is there twice
// would otherwise have its last keys.
func parseKeys(data []byte) (map[string][]indexnow.Key, error) {
	errForm := errors.New(`is not a JSON object with a list of keys for each host; want {"www.example.com": ["…"]}`)
	decoder := json.NewDecoder(bytes.NewReader(data))
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('{') {
		return nil, errForm
	}
	keys := make(map[string][]indexnow.Key)
	for decoder.More() {
		name, err := decoder.Token()
		host, _ := name.(string)
		var own []indexnow.Key
		if err != nil || decoder.Decode(&own) != nil {
			return nil, errForm
		}
		domain, err := cacheurl.CanonicalDomain(host)
		if err != nil {
			return nil, err
		}
		if _, isThere := keys[domain]; isThere {
			return nil, fmt.Errorf("%s is there twice, also in another spelling; want one list of its keys", domain)
		}
		keys[domain] = own
	}
	if _, err := decoder.Token(); err != nil { // the end of the object
		return nil, errForm
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errForm
	}
	return keys, nil
}

func newVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify [domain ...]",
		Short: "Check that sites serve the key files of update-cache or IndexNow",
		Long: "Check that sites serve the key files that AMP Caches or search engines fetch.\n\n" +
			"With --key, check the key file of update-cache. With --key and --copies, check instead the copies of it that AMP Caches have; this also makes a cache fetch a stale copy again. It does not read robots.txt, which must allow caches to fetch the key file. " +
			"Without --key, check the key file of IndexNow; set INDEXNOW_KEY to its key, or use --keys.\n\n" + exitHelp,
		Example: "  ampcors verify --key private.pem www.example.com\n  ampcors verify --key private.pem --copies www.example.com\n  INDEXNOW_KEY=… ampcors verify www.example.com",
	}
	output := addOutput(cmd)
	file := cmd.Flags().String("key", "", "file with the RSA key of update-cache")
	copies := cmd.Flags().Bool("copies", false, "with --key, check the copies of the key file that AMP Caches have")
	caches := addCaches(cmd)
	flags := addIndexNow(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		verify, err := verifier(*file, *copies, caches, flags)
		if err != nil {
			return err
		}
		isRight := ": the key file is correct"
		if *file != "" && !*copies {
			isRight += "; robots.txt, which must allow it, was not read"
		}
		return answer(cmd, args, *output, func(domain string) (any, error) {
			if err := verify(cmd.Context(), domain); err != nil {
				return nil, err
			}
			return domain + isRight, nil
		})
	}
	return cmd
}

func verifier(file string, copies bool, caches *cachesFile, flags *indexNowFlags) (func(context.Context, ...string) error, error) {
	if file != "" {
		known := cacheurl.DefaultCaches()
		if copies {
			var err error
			if known, err = caches.read(); err != nil {
				return nil, err
			}
		}
		c, err := newUpdateClient(file, known)
		if err != nil {
			return nil, err
		}
		if copies {
			return c.VerifyCaches, nil
		}
		return c.Verify, nil
	}
	c, err := flags.client()
	if err != nil {
		return nil, err
	}
	return c.Verify, nil
}

func newFlush() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "flush [URL of an AMP document ...]",
		Short: "Ask AMP Caches to fetch documents again",
		Long:  "Ask AMP Caches to fetch documents again, with signed update-cache requests.\n\n" + exitHelp + "\n\nArguments, lines of standard input, or the pages of --sitemap are the URLs of AMP documents." + pagesHelp,
		Example: "  ampcors flush --key private.pem https://www.example.com/amp/article\n" +
			"  ampcors flush --key private.pem --cache google --dry-run --sitemap amp-sitemap.xml\n" +
			"  ampcors flush --key private.pem --type i https://www.example.com/photo.jpg",
	}
	output := addOutput(cmd)
	file := cmd.Flags().String("key", "", "file with the RSA key")
	caches := addCaches(cmd)
	cacheID := cmd.Flags().String("cache", "", "the id of the one AMP Cache to ask; if empty, all of --caches are asked")
	forms := cmd.Flags().Bool("all-forms", false, "ask at each domain prefix of ampcors prefix --all, because it is not public which one a cache uses; a page is flushed when the cache has accepted all")
	contentType := cmd.Flags().String("type", "c", "content type: c (document), v (document in a viewer), wp (signed exchange), cert (its certificate), i (image), ii (sized image) or r (other file)")
	params := cmd.Flags().String("image-params", "", "parameters of an image (type i or ii), such as w800")
	source := addPages(cmd)
	dryRun := cmd.Flags().Bool("dry-run", false, "send nothing, and print what would be flushed")
	sign := cmd.Flags().Bool("sign", false, "send nothing, and print the signed URLs, which caches accept for a minute")
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
		c, err := newUpdateClient(*file, known)
		if err != nil {
			return err
		}
		source.isDryRun = *dryRun || *sign
		defer source.unlock()
		pages, err := source.pages(cmd, args)
		if err != nil {
			return err
		}
		err = answerAll(cmd, pages, *output, func(page string) (any, error) {
			u := cacheurl.URL{Publisher: page, Type: cacheurl.ContentType(*contentType), ImageParams: *params}
			prefixes := []string{""}
			if *forms {
				if _, err := c.SignedURLs(u); err != nil { // so that a problem is not reported for each form
					return nil, err
				}
				if prefixes, err = prefixesOf(page); err != nil {
					return nil, err
				}
			}
			var signed []string
			var errs []error
			for _, u.Prefix = range prefixes {
				var urls []string
				var err error
				if *sign || *dryRun {
					urls, err = c.SignedURLs(u)
				} else {
					_, err = c.FlushURL(cmd.Context(), u)
				}
				signed, errs = append(signed, urls...), append(errs, err)
			}
			switch err := errors.Join(errs...); {
			case err != nil:
				return nil, err
			case *sign:
				return signed, nil
			case *dryRun: // the signature is valid for one minute only
				lines := []string{page + ": would be flushed by"}
				for _, u := range signed {
					request, _, _ := strings.Cut(u, "&amp_url_signature=")
					lines = append(lines, "GET "+request+"&amp_url_signature=…")
				}
				return lines, nil
			}
			return page + ": flushed", source.done(page)
		})
		return source.finish(err)
	}
	return cmd
}

// prefixesOf returns the domain prefixes of the publisher of a page that can be flushed.
func prefixesOf(page string) (prefixes []string, err error) {
	u, err := url.Parse(page)
	if err != nil {
		return nil, err
	}
	found, err := cacheurl.Prefixes(u.Hostname())
	for _, p := range found {
		prefixes = append(prefixes, p.Prefix)
	}
	return prefixes, err
}

func newSubmit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "submit [URL ...]",
		Short: "Tell search engines about changed pages with IndexNow",
		Long:  "Tell search engines about changed pages with IndexNow. Set INDEXNOW_KEY to the key, or use --keys.\n\n" + exitHelp + "\n\nArguments, lines of standard input, or the pages of --sitemap are the canonical URLs." + pagesHelp,
		Example: "  INDEXNOW_KEY=… ampcors submit https://www.example.com/article\n" +
			"  INDEXNOW_KEY=… ampcors submit --sitemap https://www.example.com/sitemap.xml --state state.json",
	}
	output := addOutput(cmd)
	flags := addIndexNow(cmd)
	endpoints := cmd.Flags().StringArray("endpoint", nil, "URL of the one service to tell, which tells all others; if empty, "+indexnow.API)
	source := addPages(cmd)
	dryRun := cmd.Flags().Bool("dry-run", false, "send nothing, and print the requests, with the key masked")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(*endpoints) > 1 {
			return errors.New("--endpoint is given twice; want one, because the search engines of IndexNow share what one of them is told")
		}
		flags.endpoint = strings.Join(*endpoints, "")
		c, err := flags.client()
		if err != nil {
			return err
		}
		source.isDryRun = *dryRun
		defer source.unlock()
		urls, err := source.pages(cmd, args)
		if err != nil {
			return err
		}
		if *dryRun {
			requests, err := c.Requests(cmd.Context(), urls...)
			masked := make([]maskedRequest, len(requests))
			for i, r := range requests {
				masked[i] = maskedRequest{http.MethodPost, r.URL, r.Masked()}
			}
			return source.finish(writeRequests(cmd, *output, masked, err))
		}
		report, err := c.Submit(cmd.Context(), urls...)
		for _, b := range report.Batches {
			problem := (*indexnow.Error)(nil)
			switch {
			case b.Err == nil:
				source.state.Done(b.URLs...)
			case errors.As(b.Err, &problem) && problem.URL != "":
				source.state.Reject(b.URLs[0], problem.Error())
			}
		}
		return source.finish(writeSubmission(cmd, *output, report, err))
	}
	return cmd
}

// A maskedRequest is a request of IndexNow as it is printed.
type maskedRequest struct {
	Method string          `json:"method"`
	URL    string          `json:"url"`
	Body   json.RawMessage `json:"body"`
}

// writeRequests writes requests that were not sent.
func writeRequests(cmd *cobra.Command, output format, masked []maskedRequest, problem error) error {
	if output == formatJSON {
		if err := writeJSON(cmd.OutOrStdout(), masked); err != nil {
			return err
		}
	} else {
		for _, r := range masked {
			fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n%s\n", r.Method, r.URL, r.Body)
		}
	}
	if problem != nil {
		return exitError{exitFindings, problem}
	}
	return nil
}

// writeSubmission writes the result of a submission: how many URLs of each host are accepted, and the errors.
func writeSubmission(cmd *cobra.Command, output format, report indexnow.Report, err error) error {
	results, failed := []result{}, []error{}
	type outcome struct {
		host    string
		pending bool
	}
	accepted := make(map[outcome]int) // URLs; a host may have many batches
	for _, b := range report.Batches {
		if b.Err == nil {
			accepted[outcome{b.Host, b.Pending}] += len(b.URLs)
		}
	}
	for _, b := range report.Batches {
		problem := (*indexnow.Error)(nil)
		if errors.As(b.Err, &problem) {
			results = append(results, result{Input: cmp.Or(problem.URL, b.Host), Error: problem.Error(), RetryAfter: retryAfter(problem)})
			failed = append(failed, problem)
			continue
		}
		kind := outcome{b.Host, b.Pending}
		if n := accepted[kind]; n > 0 {
			text := b.Host + ": " + count(n, "URL accepted", "URLs accepted")
			if b.Pending {
				text += "; the engine still checks the key"
			}
			results = append(results, result{Input: b.Host, Output: text})
			delete(accepted, kind)
		}
	}
	for _, problem := range report.Rejected {
		results = append(results, result{Input: problem.Value, Error: problem.Error()})
		failed = append(failed, problem)
	}
	if output == formatJSON {
		if err := writeJSON(cmd.OutOrStdout(), results); err != nil {
			return err
		}
	} else {
		for _, r := range results {
			printResult(cmd, r)
		}
	}
	if err != nil && len(failed) == 0 {
		failed = append(failed, err)
	}
	return failure(failed)
}

const exitHelp = "Exit codes: 0 all is right, 1 something is wrong that will not pass, 2 wrong usage, 3 try again later."

// httpClient sends the requests. Tests replace it.
var httpClient = &http.Client{Timeout: 30 * time.Second}

// silent discards the clients' logs, because the commands print the same errors.
var silent = slog.New(slog.DiscardHandler)
