package cacheurl

import (
	"slices"

	"github.com/ampcors/ampcors/internal/prefixes"
)

// A Prefix is a domain prefix that implementations give a publisher.
type Prefix struct {
	Prefix string   `json:"prefix"`
	By     []string `json:"by"` // the implementations that give it, in the order of [Prefixes]

	// Denied is true if an [ampcors.Middleware] does not read the prefix as this publisher's, mostly because it is
	// a prefix of another host as well: see "Hosts that share a prefix" in the package documentation.
	Denied bool `json:"denied,omitempty"`
}

// Prefixes returns every domain prefix that a known implementation gives the publisher, and who gives it:
// [DomainPrefix], which is first unless it is the hash; @ampproject/toolbox-cache-url 2.10.1 for Node; amppackager
// for Go, at 57974efc; the AMP cache of Snowflake for Go; and the text of the AMP document "AMP Cache URL Format and
// Request Handling". All but DomainPrefix are rewritten here (tests compare toolbox-cache-url with the original).
// They use the program's version of golang.org/x/net/idna; amppackager at 57974efc uses an older one, without the
// newest characters of Unicode. amppackager hashes the spelling that it gets: here, A-labels. The hash prefix is
// always last, because caches have used it for readable names as well; By is empty if none of them gives it. It is
// not public which of these a cache uses.
//
// Mostly there are two: the readable prefix, and the hash prefix. Internationalized names, names with two adjacent
// hyphens or with "xn-" first, and those that mix directions of writing can have more. Arguments and errors are as
// for [DomainPrefix].
func Prefixes(publisher string) ([]Prefix, error) {
	domain, err := CanonicalDomain(publisher)
	if err != nil {
		return nil, err
	}
	hash := prefixes.Hash(domain)
	found := []Prefix{}
	last := Prefix{Prefix: hash, By: []string{}}
	for _, i := range implementations {
		prefix := i.prefix(domain)
		at := slices.IndexFunc(found, func(p Prefix) bool { return p.Prefix == prefix })
		switch {
		case prefix == "" || prefix == hash:
			last.By = append(last.By, i.name)
		case at >= 0:
			found[at].By = append(found[at].By, i.name)
		default:
			found = append(found, Prefix{prefix, []string{i.name}, !belongsTo(prefix, domain)})
		}
	}
	return append(found, last), nil
}
