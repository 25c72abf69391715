package updatecache

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
)

// A target is a document, or something else, on one cache.
type target struct {
	page, cache string
	url         string // on the cache
	host        string // to which the requests go
	path        string // path and query, without the parameters of update-cache
}

// targets returns the target of a URL on each cache that u.Cache names.
func (c *Client) targets(u cacheurl.URL) ([]target, error) {
	if u.CacheQuery != "" {
		return nil, &badvalue.Error{Code: badvalue.Useless, Path: "CacheQuery", Value: u.CacheQuery, Reason: "is not empty",
			Want: "none, because a flush does not depend on it"}
	}
	caches := c.caches
	if u.Cache != (cacheurl.Cache{}) {
		i := slices.Index(c.caches, u.Cache)
		if i < 0 {
			return nil, &badvalue.Error{Code: badvalue.Unknown, Path: "Cache", Value: u.Cache.ID,
				Reason: "is not in Config.Caches",
				Want:   "one of these, or none for all of them"}
		}
		caches = c.caches[i : i+1]
	}
	var targets []target
	for _, cache := range caches {
		u.Cache = cache
		t, err := newTarget(u)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	return targets, nil
}

func isDocument(t cacheurl.ContentType) bool {
	return t == cacheurl.Document || t == cacheurl.Viewer || t == cacheurl.SignedExchange
}

func newTarget(u cacheurl.URL) (target, error) {
	if u.Type == "" && u.ImageParams == "" {
		u.Type = cacheurl.Document
	}
	built, err := u.Build()
	if problem := (*badvalue.Error)(nil); errors.As(err, &problem) {
		if problem.Path == "Publisher" {
			problem.Path = "page"
		}
	}
	if err != nil {
		return target{}, err
	}
	if isDocument(u.Type) && cacheurl.GuessType(u.Publisher) != cacheurl.Document {
		return target{}, &badvalue.Error{Code: badvalue.Conflict, Path: "page", Value: u.Publisher,
			Reason: "is an image or a font by its extension, and not a document",
			Want:   "the URL of a document, or a type that says what it is"}
	}
	_, query, _ := strings.Cut(built, "?")
	for param := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(param, "=")
		if unescaped, err := url.QueryUnescape(name); err == nil {
			name = unescaped
		}
		switch name {
		case "amp_action", "amp_ts", "amp_url_signature":
			return target{}, &badvalue.Error{Code: badvalue.Reserved, Path: "page", Value: u.Publisher,
				Reason: fmt.Sprintf("has the query parameter %.80q, which is reserved for update-cache", param),
				Want:   "the URL without it"}
		}
	}
	return targetOf(u.Publisher, built, u.Cache), nil
}

// targetOf returns the target of a page's URL on a cache.
func targetOf(page, url string, cache cacheurl.Cache) target {
	host, path, _ := strings.Cut(strings.TrimPrefix(url, "https://"), "/")
	return target{page: page, cache: cache.ID, url: url, host: updateHost(host, cache), path: "/update-cache/" + path}
}

// updateHost returns the host that gets the update-cache requests for a host of a cache.
func updateHost(host string, cache cacheurl.Cache) string {
	prefix, _, _ := strings.Cut(host, ".")
	return prefix + "." + cache.UpdateCacheAPIDomainSuffix
}
