package main

import (
	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/pageurl"
)

// A calculation has the prefixes, origins and cache URLs of a publisher's URL.
type calculation struct {
	URL       string
	Err       error
	Publisher string // the publisher's URL, if URL is that of a cache
	Prefix    string
	Hash      string
	Origins   []string // the publisher's own, and the readable one on each cache
	Caches    []cacheCalculation
}

type cacheCalculation struct {
	Name string
	URLs []typedURL
}

type typedURL struct{ Type, URL string }

// contentTypes are the content types for which the page shows cache URLs.
var contentTypes = []struct {
	name string
	t    cacheurl.ContentType
}{
	{name: "document", t: cacheurl.Document},
	{name: "in a viewer", t: cacheurl.Viewer},
	{name: "signed exchange", t: cacheurl.SignedExchange},
	{name: "image", t: cacheurl.Image},
	{name: "font or file", t: cacheurl.Resource},
}

// calculate returns the prefixes, the origins and the cache URLs of a URL, which may be the
// URL of a publisher or of a cache.
func calculate(value string) (c calculation) {
	c.URL = value
	if u, err := cacheurl.Parse(value); err == nil {
		value, c.Publisher = u.Publisher, u.Publisher
	}
	u, problem := pageurl.Parse(value, pageurl.AsBrowsers)
	if problem != nil {
		c.Err = problem
		return c
	}
	// These fail only if the domain is invalid, and Parse has checked it.
	c.Prefix, _ = ampcors.DomainPrefix(u.Host)
	c.Hash, _ = ampcors.HashPrefix(u.Host)
	c.Origins, _ = ampcors.CacheOrigins(u.Host)
	c.Origins = append([]string{"https://" + u.Host}, c.Origins...)
	for _, cache := range ampcors.DefaultCaches() {
		calculated := cacheCalculation{Name: cache.Name}
		for _, t := range contentTypes {
			built, err := cacheurl.URL{Publisher: value, Cache: cache, Type: t.t}.Build()
			if err != nil {
				c.Err = err
				return c
			}
			calculated.URLs = append(calculated.URLs, typedURL{Type: t.name, URL: built})
		}
		c.Caches = append(c.Caches, calculated)
	}
	return c
}
