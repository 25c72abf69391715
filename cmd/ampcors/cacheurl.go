package main

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ampcors/ampcors/cacheurl"
)

func newCacheURL() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cacheurl [URL ...]",
		Short: "Convert URLs of publishers to URLs on an AMP Cache, and back",
		Long: "Convert URLs of publishers to URLs on an AMP Cache, and back.\n\n" +
			"The URL of a publisher becomes a URL on the cache. A URL on any known cache becomes the URL of the publisher.",
		Example: "  ampcors cacheurl 'https://www.example.com/article?id=7'\n  ampcors cacheurl --cache bing --type i https://www.example.com/photo.jpg",
	}
	output, caches := addOutput(cmd), addCaches(cmd)
	cacheID := cmd.Flags().String("cache", "", "the id of the AMP Cache; if empty, the first of --caches is used, or google if there is no --caches")
	complete(cmd, "cache", cacheIDs(cacheurl.DefaultCaches()))
	prefix := cmd.Flags().String("prefix", "", "the domain prefix, one of ampcors prefix --all; if empty, the prefix that ampcors prefix prints is used")
	contentType := cmd.Flags().String("type", "", "the content type: c, v, wp, cert, i, ii or r; if empty, it is guessed from the extension")
	complete(cmd, "type", []string{"c", "v", "wp", "cert", "i", "ii", "r"})
	query := cmd.Flags().String("cache-query", "", "query parameters for the cache, such as amp_latest_update_time=1795262400")
	params := cmd.Flags().String("image-params", "", "parameters of an image (type i or ii), such as w800")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		known, err := caches.read()
		if err != nil {
			return err
		}
		cache, err := cacheWithID(known, cmp.Or(*cacheID, known[0].ID))
		if err != nil {
			return err
		}
		if err := checkType(*contentType); err != nil {
			return err
		}
		return answer(cmd, args, *output, func(arg string) (any, error) {
			if page, err := publisherURL(cmd, arg, known); page != "" || err != nil {
				return page, err
			}
			t, guessed := cacheurl.ContentType(*contentType), cacheurl.GuessType(arg)
			if t == "" && *params == "" {
				t = guessed
			}
			if isDocument := t == cacheurl.Document || t == cacheurl.Viewer || t == cacheurl.SignedExchange; isDocument &&
				guessed != cacheurl.Document {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s is an image or a font by its extension, and not a document; its type is %s\n", arg, guessed)
			}
			return cacheurl.URL{Publisher: arg, Cache: cache, Prefix: *prefix, Type: t, ImageParams: *params, CacheQuery: *query}.Build()
		})
	}
	return cmd
}

// publisherURL returns the publisher's URL of a URL on a cache, or of what people paste, with a note on standard error. It returns "" for a
// publisher's URL.
func publisherURL(cmd *cobra.Command, arg string, known []cacheurl.Cache) (page string, err error) {
	page, note, err := pasted(arg, known)
	switch {
	case err != nil:
		return "", err
	case page != "":
		fmt.Fprintf(cmd.ErrOrStderr(), "note: %s: %s\n", arg, note)
		return page, nil
	case cacheurl.IsOnCache(arg, known...):
		u, err := cacheurl.Parse(arg, known...)
		return u.Publisher, err
	}
	return "", nil
}

// googleHosts are the hosts of Google Search, in any country.
var googleHosts = regexp.MustCompile(`^(www\.)?google\.[a-z]{2,3}(\.[a-z]{2})?$`)

// escapedQuery is how the viewers of search engines write the "?" of the page that they show.
var escapedQuery = regexp.MustCompile(`(?i)%3f`)

// pasted reads URLs that people copy, but that are not in the form of AMP's document: URLs of the viewers of search
// engines, and URLs of caches without a domain prefix or a content type. It returns the publisher's URL and a note
// about the argument, or "" if the argument is no such URL.
func pasted(arg string, known []cacheurl.Cache) (page, note string, err error) {
	u, err := url.Parse(arg)
	if err != nil || u.Scheme != "https" {
		return "", "", nil
	}
	host, path, cache := strings.ToLower(u.Host), strings.TrimPrefix(u.EscapedPath(), "/"), known[0]
	query := u.RawQuery
	if googleHosts.MatchString(host) && path == "url" {
		to := cmp.Or(u.Query().Get("q"), u.Query().Get("url"))
		if target, err := url.Parse(to); err != nil || target.Scheme != "https" && target.Scheme != "http" {
			return "", "", nil
		}
		if page, _, err = pasted(to, known); page == "" && err == nil {
			page = to
			if cacheurl.IsOnCache(to, known...) {
				var on cacheurl.URL
				on, err = cacheurl.Parse(to, known...)
				page = on.Publisher
			}
		}
		return page, "the URL of a redirect of Google, which leads to this page", err
	}
	isShort := false // without the www. of the cache's domain
	for _, c := range known {
		short, hasWWW := strings.CutPrefix(c.CacheDomain, "www.")
		switch {
		case host == c.CacheDomain || strings.HasSuffix(host, "."+c.CacheDomain):
			cache, isShort = c, false
		case hasWWW && strings.HasSuffix(host, "."+short):
			cache, isShort = c, true
		}
	}
	if isShort {
		host = strings.TrimSuffix(host, strings.TrimPrefix(cache.CacheDomain, "www.")) + cache.CacheDomain
	}
	viewed, isViewer := strings.CutPrefix(path, "amp/")
	segment, rest, _ := strings.Cut(path, "/")
	switch {
	case isViewer && (googleHosts.MatchString(host) || host == "www.bing.com" || host == "bing.com"):
		path, note = "c/"+viewed, "the URL of a viewer, which shows this page"
		if at := escapedQuery.FindStringIndex(path); at != nil {
			path, query = path[:at[0]], strings.TrimSuffix(path[at[1]:]+"&"+query, "&")
			note += " (%3F is the ? of its query)"
		}
	case host == cache.CacheDomain && checkType(segment) == nil && rest != "":
		note = "the URL of a cache without a domain prefix"
	case strings.HasSuffix(host, "."+cache.CacheDomain) && (segment == "s" || strings.Contains(segment, ".")):
		path, note = "c/s/"+strings.TrimPrefix(path, "s/"), "the URL of a cache without a content type, as in examples of AMP's document, which mean https"
	case isShort && checkType(segment) == nil && rest != "":
		note = "the URL of a cache without the www. of its domain"
	default:
		return "", "", nil
	}
	_, shown, _ := strings.Cut(path, "/")
	publisher, _, _ := strings.Cut(strings.TrimPrefix(shown, "s/"), "/")
	prefix, err := cacheurl.DomainPrefix(publisher)
	if err != nil {
		return "", "", fmt.Errorf("%.300q is %s, but its host cannot be read: %w", arg, note, err)
	}
	on := prefix + "." + cache.CacheDomain
	if strings.HasSuffix(host, "."+cache.CacheDomain) {
		on = host // and so it must belong to the page
	}
	whole := "https://" + on + "/" + path
	if query != "" {
		whole += "?" + query
	}
	parsed, err := cacheurl.Parse(whole, known...)
	return parsed.Publisher, note, err
}

// checkType returns an error for a value of --type that is no content type.
func checkType(value string) error {
	types := []string{"c", "v", "wp", "cert", "i", "ii", "r"}
	if value != "" && !slices.Contains(types, value) {
		return fmt.Errorf("--type %q is no content type; want %s", value, or(types))
	}
	return nil
}
