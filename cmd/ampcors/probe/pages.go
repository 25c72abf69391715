package probe

import (
	"strings"

	"github.com/ampcors/ampcors"
)

// A form says how an origin names a publisher.
type form string

const (
	formOwn      form = "own origin"
	formReadable form = "readable prefix"
	formPunycode form = "punycode prefix"
	formHash     form = "hash prefix"
)

// A page is an origin at which a publisher's page runs.
type page struct {
	origin string
	form   form
	cache  string // ID of the AMP Cache

	// Another host has the same prefix, see "Hosts that share a prefix" in the documentation of
	// package ampcors: a backend may well deny it.
	isAmbiguous bool
}

// pagesOf returns the origins of a publisher's pages: its own, and each form on each cache.
func pagesOf(publisher string, caches []ampcors.Cache) ([]page, error) {
	pages := []page{{origin: "https://" + publisher, form: formOwn}}
	prefix, err := ampcors.DomainPrefix(publisher)
	if err != nil {
		return nil, err
	}
	hash, err := ampcors.HashPrefix(publisher)
	if err != nil {
		return nil, err
	}
	_, err = ampcors.PublisherDomain(prefix) // an error, if this is not the hash prefix, says that it is ambiguous
	isAmbiguous := err != nil
	for _, c := range caches {
		if prefix != hash {
			f := formReadable
			if strings.HasPrefix(prefix, "xn--") {
				f = formPunycode
			}
			pages = append(pages, page{"https://" + prefix + "." + c.CacheDomain, f, c.ID, isAmbiguous})
		}
		pages = append(pages, page{"https://" + hash + "." + c.CacheDomain, formHash, c.ID, false})
	}
	return pages, nil
}

// Origins returns every origin at which pages of a publisher run: its own and, on each cache, the
// one with the readable prefix and the one with the hash prefix.
func Origins(publisher string, caches ...ampcors.Cache) ([]string, error) {
	domain, err := ampcors.CanonicalDomain(publisher)
	if err != nil {
		return nil, err
	}
	pages, err := pagesOf(domain, caches)
	if err != nil {
		return nil, err
	}
	origins := make([]string, len(pages))
	for i, pg := range pages {
		origins[i] = pg.origin
	}
	return origins, nil
}
