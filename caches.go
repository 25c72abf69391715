package ampcors

import (
	"slices"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/domains"
)

// problemReserved is that of a host that is reserved: see reservedHost.
var problemReserved = &domains.Problem{Code: badvalue.Reserved,
	Reason: "is a host of an AMP Cache, where anybody's page can be"}

// hosts are the hosts of AMP Caches.
type hosts struct {
	caches   []cacheHost // that are trusted
	reserved []reservedHost
}

// A reservedHost is a domain whose hosts, itself and all below it, cannot be publishers, because anybody's page
// or ad can be there.
type reservedHost struct {
	domain  string
	isCache bool // false for third-party frames
}

// A cacheHost recognizes the origins of one AMP Cache.
type cacheHost struct {
	id, domain string
	counts     *cacheCounters // set before a request is decided
}

// newHosts returns the hosts of trusted caches. The reserved hosts are the domains and the third-party frame
// domains of the trusted caches and of all caches in the registry.
func newHosts(trusted []cacheurl.Cache) hosts {
	var h hosts
	for _, c := range trusted {
		h.caches = append(h.caches, cacheHost{id: c.ID, domain: c.CacheDomain})
	}
	for _, c := range slices.Concat(trusted, cacheurl.DefaultCaches()) {
		for _, host := range []reservedHost{{c.CacheDomain, true}, {c.ThirdPartyFrameDomainSuffix, false}} {
			if host.domain != "" && !slices.Contains(h.reserved, host) {
				h.reserved = append(h.reserved, host)
			}
		}
	}
	return h
}

// reservedFor returns the reserved host whose domain is host or contains it, or nil.
func (h *hosts) reservedFor(host string) *reservedHost {
	for i := range h.reserved {
		if domains.IsOrIsBelow(host, h.reserved[i].domain) {
			return &h.reserved[i]
		}
	}
	return nil
}

// split cuts the domain of a trusted AMP Cache off the host of an origin, and returns the domain prefix: "" for
// the bare cache domain. It returns any other host unchanged.
func (h *hosts) split(host string) (name string, cache *cacheHost) {
	for i := range h.caches {
		if c := &h.caches[i]; domains.IsOrIsBelow(host, c.domain) {
			return host[:max(0, len(host)-len(c.domain)-len("."))], c
		}
	}
	return host, nil
}
