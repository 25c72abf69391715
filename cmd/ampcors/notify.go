package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/indexnow"
	"github.com/ampcors/ampcors/updatecache"
	"github.com/spf13/cobra"
)

// The commands of this file tell AMP Caches and search engines that pages have changed.

// keyBits is the length of a new RSA key. The example in the documentation of update-cache
// has the same length.
const keyBits = 2048

func newKey() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key updatecache|indexnow",
		Short: "Make a key for update-cache or IndexNow",
		Long: "Make a key for update-cache (an RSA key, in PEM) or IndexNow, and print it. Keep it secret.\n\n" +
			"With --public, read the RSA key from a file, and print what the site serves at " + updatecache.KeyPath + ".",
		Example:   "  ampcors key updatecache >private.pem\n  ampcors key updatecache --public private.pem >apikey.pub\n  ampcors key indexnow",
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"updatecache", "indexnow"},
	}
	public := cmd.Flags().String("public", "", "file with the RSA key whose public key is printed")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case args[0] == "indexnow" && *public == "":
			_, err := fmt.Fprintln(cmd.OutOrStdout(), string(indexnow.NewKey()))
			return err
		case args[0] == "updatecache" && *public != "":
			key, err := readKey(*public)
			if err != nil {
				return err
			}
			der, err := x509.MarshalPKIXPublicKey(key.Public())
			if err != nil {
				return err
			}
			return pem.Encode(cmd.OutOrStdout(), &pem.Block{Type: "PUBLIC KEY", Bytes: der})
		case args[0] == "updatecache":
			key, err := rsa.GenerateKey(rand.Reader, keyBits)
			if err != nil {
				return err
			}
			der, err := x509.MarshalPKCS8PrivateKey(key)
			if err != nil {
				return err
			}
			return pem.Encode(cmd.OutOrStdout(), &pem.Block{Type: "PRIVATE KEY", Bytes: der})
		}
		return fmt.Errorf("there is no such key; want updatecache or indexnow, and --public only with updatecache")
	}
	return cmd
}

// newFlusher returns an update-cache client with the RSA key from a file.
func newFlusher(file string, allCaches bool) (*updatecache.Client, error) {
	key, err := readKey(file)
	if err != nil {
		return nil, err
	}
	cfg := updatecache.Config{Signer: key, Attempts: 3, Logger: silent, HTTPClient: httpClient}
	if allCaches {
		cfg.Caches = ampcors.DefaultCaches()
	}
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

// newSubmitter returns an IndexNow client. It reads the key from the environment, because a
// flag would show it in the shell's history and the list of processes.
func newSubmitter(endpoint, location string) (*indexnow.Client, error) {
	key := strings.TrimSpace(os.Getenv("INDEXNOW_KEY"))
	if key == "" {
		return nil, errors.New("INDEXNOW_KEY is not set; set it to the IndexNow key")
	}
	return indexnow.New(indexnow.Config{Key: indexnow.Key(key), KeyLocation: location, Endpoint: endpoint, Attempts: 3, Logger: silent, HTTPClient: httpClient})
}

func newVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify [domain ...]",
		Short: "Check that sites serve the key files of update-cache or IndexNow",
		Long: "Check that sites serve the key files that AMP Caches or search engines fetch.\n\n" +
			"With --key, check the key file of update-cache. Otherwise, check the key file of IndexNow; set INDEXNOW_KEY to its key.",
		Example: "  ampcors verify --key private.pem www.example.com\n  INDEXNOW_KEY=… ampcors verify www.example.com",
	}
	output := addOutput(cmd)
	file := cmd.Flags().String("key", "", "file with the RSA key of update-cache")
	location := cmd.Flags().String("key-location", "", "URL of IndexNow's key file, if it is not at the root")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		verify, err := verifier(*file, *location)
		if err != nil {
			return err
		}
		return answer(cmd, args, *output, func(domain string) (any, error) {
			if err := verify(cmd.Context(), domain); err != nil {
				return nil, err
			}
			return domain + ": the key file is correct", nil
		})
	}
	return cmd
}

func verifier(file, location string) (func(context.Context, ...string) error, error) {
	if file != "" {
		c, err := newFlusher(file, false)
		if err != nil {
			return nil, err
		}
		return c.Verify, nil
	}
	c, err := newSubmitter("", location)
	if err != nil {
		return nil, err
	}
	return c.Verify, nil
}

func newFlush() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "flush [URL of an AMP document ...]",
		Short: "Ask AMP Caches to fetch documents again",
		Long:  "Ask AMP Caches to fetch documents again, with signed update-cache requests.\n\nArguments, lines of standard input, and the pages of --sitemap are the URLs of AMP documents.",
		Example: "  ampcors flush --key private.pem https://www.example.com/amp/article\n" +
			"  ampcors flush --key private.pem --dry-run --sitemap sitemap.xml",
	}
	output := addOutput(cmd)
	file := cmd.Flags().String("key", "", "file with the RSA key")
	all := cmd.Flags().Bool("all-caches", false, "ask each known cache; otherwise only Google's")
	sitemap := cmd.Flags().String("sitemap", "", "sitemap file with the URLs")
	dryRun := cmd.Flags().Bool("dry-run", false, "send nothing, and print what would be flushed")
	_ = cmd.MarkFlagRequired("key")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := newFlusher(*file, *all)
		if err != nil {
			return err
		}
		if args, err = withSitemap(args, *sitemap); err != nil {
			return err
		}
		return answer(cmd, args, *output, func(page string) (any, error) {
			if *dryRun {
				return page + ": would be flushed", nil
			}
			if _, err := c.Flush(cmd.Context(), page); err != nil {
				return nil, err
			}
			return page + ": flushed", nil
		})
	}
	return cmd
}

func newSubmit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "submit [URL ...]",
		Short: "Tell search engines about changed pages with IndexNow",
		Long:  "Tell search engines about changed pages with IndexNow. Set INDEXNOW_KEY to the key.\n\nArguments, lines of standard input, and the pages of --sitemap are the canonical URLs.",
		Example: "  INDEXNOW_KEY=… ampcors submit https://www.example.com/article\n" +
			"  INDEXNOW_KEY=… ampcors submit --sitemap sitemap.xml",
	}
	output := addOutput(cmd)
	endpoint := cmd.Flags().String("endpoint", "", "URL of the service; if empty, "+indexnow.API)
	location := cmd.Flags().String("key-location", "", "URL of the key file, if it is not at the root")
	sitemap := cmd.Flags().String("sitemap", "", "sitemap file with the URLs")
	dryRun := cmd.Flags().Bool("dry-run", false, "send nothing, and print what would be submitted")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := newSubmitter(*endpoint, *location)
		if err != nil {
			return err
		}
		if args, err = withSitemap(args, *sitemap); err != nil {
			return err
		}
		urls, err := inputs(cmd.InOrStdin(), args)
		if err != nil {
			return err
		}
		if *dryRun {
			return answer(cmd, urls, *output, func(u string) (any, error) { return u + ": would be submitted", nil })
		}
		report, err := c.Submit(cmd.Context(), urls...)
		return writeSubmission(cmd, *output, report, err)
	}
	return cmd
}

// writeSubmission writes the result of a submission: a line for each batch, and the errors.
func writeSubmission(cmd *cobra.Command, output format, report indexnow.Report, err error) error {
	var results []result
	for _, b := range report.Batches {
		r := result{Input: b.Host, Output: fmt.Sprintf("%s: %d URLs accepted", b.Host, len(b.URLs))}
		if b.Err != nil {
			r = result{Input: b.Host, Error: b.Err.Error()}
		}
		results = append(results, r)
	}
	for _, problem := range report.Rejected {
		results = append(results, result{Input: problem.Value, Error: problem.Error()})
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
	if err != nil {
		return exitError{code: exitFindings}
	}
	return nil
}

// maxSitemap is the largest size of a sitemap, in bytes:
// https://www.sitemaps.org/protocol.html.
const maxSitemap = 50 << 20

// withSitemap adds the URLs of a sitemap file to the arguments.
func withSitemap(args []string, file string) ([]string, error) {
	if file == "" {
		return args, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var sitemap struct {
		XMLName xml.Name
		URLs    []string `xml:"url>loc"`
	}
	if err := xml.NewDecoder(io.LimitReader(f, maxSitemap)).Decode(&sitemap); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if sitemap.XMLName.Local != "urlset" || len(sitemap.URLs) == 0 {
		return nil, fmt.Errorf("%s: not a sitemap with URLs; want the root element urlset (for a sitemap index, use one of its sitemaps)", file)
	}
	for _, u := range sitemap.URLs {
		args = append(args, strings.TrimSpace(u))
	}
	return args, nil
}

// httpClient sends the requests. Tests replace it.
var httpClient = &http.Client{Timeout: 30 * time.Second}

// silent discards the clients' logs, because the commands print the same errors.
var silent = slog.New(slog.DiscardHandler)
