package probe

import (
	"strings"

	"github.com/ampcors/ampcors/cacheurl"
)

// A form is a way in which an origin names a publisher.
type form string

const (
	formOwn      form = "own origin"
	formReadable form = "readable prefix"
	formPunycode form = "punycode prefix"
	formHash     form = "hash prefix"
	formOther    form = "other prefix" // that another implementation gives
)

// A page is an origin at which a publisher's page runs.
type page struct {
	origin string
	form   form
	cache  string // ID of the AMP Cache

	// Another host has the same prefix, see "Hosts that share a prefix" in the documentation of
	// package cacheurl: a backend may well deny it.
	isAmbiguous bool
}

// pagesOf returns the origins of a publisher's pages: its own, and each form on each cache.
func pagesOf(publisher string, caches []cacheurl.Cache) ([]page, error) {
	pages := []page{{origin: "https://" + publisher, form: formOwn}}
	prefixes, err := cacheurl.Prefixes(publisher)
	if err != nil {
		return nil, err
	}
	hash := prefixes[len(prefixes)-1].Prefix
	for _, c := range caches {
		for i, p := range prefixes {
			f := formReadable
			switch {
			case p.Prefix == hash:
				f = formHash
			case i > 0:
				f = formOther
			case strings.HasPrefix(p.Prefix, "xn--"):
				f = formPunycode
			}
			pages = append(pages, page{"https://" + p.Prefix + "." + c.CacheDomain, f, c.ID, p.Denied})
		}
	}
	return pages, nil
}

// Origins returns the origins at which pages of a publisher may run: its own and, on each cache, one
// for each domain prefix of [cacheurl.Prefixes] that is not denied.
func Origins(publisher string, caches ...cacheurl.Cache) (origins []string, err error) {
	domain, err := cacheurl.CanonicalDomain(publisher)
	if err != nil {
		return nil, err
	}
	pages, err := pagesOf(domain, caches)
	for _, pg := range pages {
		if !pg.isAmbiguous {
			origins = append(origins, pg.origin)
		}
	}
	return origins, err
}
