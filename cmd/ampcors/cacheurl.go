package main

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
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
		Example: "  ampcors cacheurl 'https://www.example.com/article?id=7'\n  ampcors cacheurl --cache bing --type i " +
			"https://www.example.com/photo.jpg",
	}
	output, caches := addOutput(cmd), addCaches(cmd)
	cacheID := cmd.Flags().String("cache", "", "the id of the AMP Cache; if empty, the first of --caches is used, or "+
		"google if there is no --caches")
	complete(cmd, "cache", cacheIDs(cacheurl.DefaultCaches()))
	prefix := cmd.Flags().String("prefix", "", "the domain prefix, one of ampcors prefix --all; if empty, the prefix "+
		"that ampcors prefix prints is used")
	contentType := cmd.Flags().String("type", "", "the content type: c, v, wp, cert, i, ii or r; if empty, ii with "+
		"--image-params, and otherwise guessed from the extension")
	complete(cmd, "type", []string{"c", "v", "wp", "cert", "i", "ii", "r"})
	query := cmd.Flags().String("cache-query", "", "query parameters for the cache, such as "+
		"amp_latest_update_time=1795262400")
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
			u, isPublisher, err := readURL(cmd, arg, known)
			if err != nil || !isPublisher {
				return u.Publisher, err
			}
			u.Cache, u.Prefix, u.ImageParams, u.CacheQuery = cache, *prefix, *params, *query
			u.Type = typeOf(cmd, cacheurl.ContentType(*contentType), u)
			return u.Build()
		})
	}
	return cmd
}

// readURL reads the URL of a page as people have it: a publisher's, of which only Publisher is set; one on a cache;
// or one that they paste from a viewer or a redirect, with a note on standard error.
func readURL(cmd *cobra.Command, arg string, known []cacheurl.Cache) (u cacheurl.URL, isPublisher bool, err error) {
	u, note, err := pasted(arg, known)
	switch {
	case err != nil:
		return u, false, err
	case note != "":
		fmt.Fprintf(cmd.ErrOrStderr(), "note: %s: %s\n", arg, note)
		return u, false, nil
	case cacheurl.IsOnCache(arg, known...):
		u, err = cacheurl.Parse(arg, known...)
		return u, false, err
	}
	return cacheurl.URL{Publisher: arg}, true, nil
}

// otherFiles are the extensions of files that AMP Caches do not serve, as far as AMP's document says.
var otherFiles = []string{"css", "csv", "js", "json", "m3u8", "mjs", "mov", "mp3", "mp4", "mpd", "ogg", "pdf", "txt",
	"wav", "webm", "xml", "zip"}

// typeOf returns the content type of a publisher's URL: the flag or, if it is "", the one that the extension
// suggests. It warns if they differ, or if the extension is that of a file that caches do not serve.
func typeOf(cmd *cobra.Command, flag cacheurl.ContentType, u cacheurl.URL) cacheurl.ContentType {
	t, guessed := flag, cacheurl.GuessType(u.Publisher)
	if t == "" && u.ImageParams == "" {
		t = guessed
	}
	switch {
	case !isDocument(t):
	case guessed != cacheurl.Document:
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s is an image or a font by its extension, and not a document; its type "+
			"is %s\n", u.Publisher, guessed)
	default:
		warnOfFile(cmd, u.Publisher)
	}
	return t
}

func isDocument(t cacheurl.ContentType) bool {
	return t == cacheurl.Document || t == cacheurl.Viewer || t == cacheurl.SignedExchange
}

// warnOfFile warns if a page is, by its extension, a file that caches do not serve.
func warnOfFile(cmd *cobra.Command, page string) {
	u, err := url.Parse(page)
	if err == nil && slices.Contains(otherFiles, strings.TrimPrefix(strings.ToLower(path.Ext(u.Path)), ".")) {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s is no document by its extension, and AMP Caches serve documents, "+
			"images and fonts\n", page)
	}
}

// googleHosts are the hosts of Google Search, in any country.
var googleHosts = regexp.MustCompile(`^(www\.)?google\.[a-z]{2,3}(\.[a-z]{2})?$`)

// escapedQuery is how the viewers of search engines write the "?" of the page that they show.
var escapedQuery = regexp.MustCompile(`(?i)%3f`)

// updateParam are the parameters of an update-cache request,
// https://amp.dev/documentation/guides-and-tutorials/optimize-and-measure/update-amp-cache
var updateParam = regexp.MustCompile(`^amp_(action|ts|url_signature)=`)

// pasted reads URLs that people copy, but that are not in the form of AMP's document: URLs of the viewers of search
// engines, of requests that update a cache, and URLs of caches without a domain prefix or a content type. It
// returns a note about the argument, or "" if the argument is no such URL.
func pasted(arg string, known []cacheurl.Cache) (page cacheurl.URL, note string, err error) {
	u, err := url.Parse(arg)
	if err != nil || u.Scheme != "https" {
		return page, "", nil
	}
	host, path, cache := strings.ToLower(u.Host), strings.TrimPrefix(u.EscapedPath(), "/"), known[0]
	query := u.RawQuery
	if googleHosts.MatchString(host) && path == "url" {
		to := cmp.Or(u.Query().Get("q"), u.Query().Get("url"))
		if target, err := url.Parse(to); err != nil || target.Scheme != "https" && target.Scheme != "http" {
			return page, "", nil
		}
		if page, note, err = pasted(to, known); note == "" && err == nil {
			page = cacheurl.URL{Publisher: to}
			if cacheurl.IsOnCache(to, known...) {
				page, err = cacheurl.Parse(to, known...)
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
		case c.UpdateCacheAPIDomainSuffix != "" && strings.HasSuffix(host, "."+c.UpdateCacheAPIDomainSuffix):
			cache, isShort = c, false
			host = strings.TrimSuffix(host, c.UpdateCacheAPIDomainSuffix) + c.CacheDomain
		case hasWWW && strings.HasSuffix(host, "."+short):
			cache, isShort = c, true
		}
	}
	if isShort {
		host = strings.TrimSuffix(host, strings.TrimPrefix(cache.CacheDomain, "www.")) + cache.CacheDomain
	}
	updated, isUpdate := strings.CutPrefix(path, "update-cache/")
	viewed, isViewer := strings.CutPrefix(path, "amp/")
	segment, rest, _ := strings.Cut(path, "/")
	switch {
	case isUpdate && strings.HasSuffix(host, "."+cache.CacheDomain):
		path, note = updated, "an update-cache request, which is for this URL"
		query = strings.Join(slices.DeleteFunc(strings.Split(query, "&"),
			func(param string) bool { return param == "" || updateParam.MatchString(param) }), "&")
	case isViewer && (googleHosts.MatchString(host) || host == "www.bing.com" || host == "bing.com"):
		path, note = "c/"+viewed, "the URL of a viewer, which shows this page"
		if at := escapedQuery.FindStringIndex(path); at != nil {
			path, query = path[:at[0]], strings.TrimSuffix(path[at[1]:]+"&"+query, "&")
			note += " (%3F is the ? of its query)"
		}
	case host == cache.CacheDomain && checkType(segment) == nil && rest != "":
		note = "the URL of a cache without a domain prefix"
	case strings.HasSuffix(host, "."+cache.CacheDomain) && (segment == "s" || strings.Contains(segment, ".")):
		path, note = "c/s/"+strings.TrimPrefix(path, "s/"),
			"the URL of a cache without a content type, as in examples of AMP's document, which mean https"
	case isShort && checkType(segment) == nil && rest != "":
		note = "the URL of a cache without the www. of its domain"
	default:
		return page, "", nil
	}
	_, shown, _ := strings.Cut(path, "/")
	publisher, _, _ := strings.Cut(strings.TrimPrefix(shown, "s/"), "/")
	prefix, err := cacheurl.DomainPrefix(publisher)
	if err != nil {
		return page, "", fmt.Errorf("%.300q is %s, but its host cannot be read: %w", arg, note, err)
	}
	on := prefix + "." + cache.CacheDomain
	if strings.HasSuffix(host, "."+cache.CacheDomain) {
		on = host // and so it must belong to the page
	}
	whole := "https://" + on + "/" + path
	if query != "" {
		whole += "?" + query
	}
	page, err = cacheurl.Parse(whole, known...)
	return page, note, err
}

// checkType returns an error for a value of --type that is no content type.
func checkType(value string) error {
	types := []string{"c", "v", "wp", "cert", "i", "ii", "r"}
	if value != "" && !slices.Contains(types, value) {
		return fmt.Errorf("--type %q is no content type; want %s", value, or(types))
	}
	return nil
}
