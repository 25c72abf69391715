package main

import (
	"cmp"
	"crypto/rsa"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ampcors/ampcors/announce/updatecache"
	"github.com/ampcors/ampcors/cacheurl"
)

// newUpdateClient returns an update-cache client with the RSA key from a file.
func newUpdateClient(client *http.Client, file string, caches []cacheurl.Cache) (*updatecache.Client, error) {
	key, err := readKey(file)
	if err != nil {
		return nil, err
	}
	cfg := updatecache.Config{Signer: key, Logger: silent, HTTPClient: client, Caches: caches}
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
		c, err := newUpdateClient(httpClient, *file, known)
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
		if !p.Denied {
			prefixes = append(prefixes, p.Prefix)
		}
	}
	return prefixes, err
}
