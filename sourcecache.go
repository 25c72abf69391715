package ampcors

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/ampcors/ampcors/internal/dns"
	"github.com/ampcors/ampcors/internal/lookup"
)

// A sourceCache is a Source and the cache of its answers. A policy never asks the Source itself.
type sourceCache struct {
	*lookup.Cache
	source  Source        // Config.Source
	shared  *SharedSource // source, if it is one; otherwise nil
	asked   Source        // what is looked up in: source, or the one in it
	options lookup.Options
	hosts   hosts
	stop    func() // ends the notifications; nil if there are none
}

func newSourceCache(source Source, l Lookup, h hosts) *sourceCache {
	options := l.withDefaults()
	shared, _ := source.(*SharedSource)
	asked := source
	if shared != nil {
		asked = shared.source
	}
	checked := newCheckedSource(asked, &h)
	options.Shards = checked.shards
	return &sourceCache{
		Cache:   lookup.New(checked, options, dns.Hash),
		source:  source,
		shared:  shared,
		asked:   asked,
		options: options,
		hosts:   h,
	}
}

// sameAs reports whether s, with its answers, can be used in place of other.
func (s *sourceCache) sameAs(other *sourceCache) bool {
	return s != nil && s.options == other.options && slices.Equal(s.hosts.reserved, other.hosts.reserved) &&
		reflect.ValueOf(s.source).Comparable() && reflect.ValueOf(other.source).Comparable() && s.source == other.source
}

// start subscribes to changes. It returns the sourceCache that a Middleware must use: s itself,
// or one that another Middleware with the same SharedSource already uses.
func (s *sourceCache) start() *sourceCache {
	if s.shared != nil {
		return s.shared.join(s)
	}
	s.subscribe()
	return s
}

// subscribe subscribes to the changes of a Notifier.
func (s *sourceCache) subscribe() {
	n, ok := s.asked.(Notifier)
	if !ok {
		return
	}
	s.stop = n.Notify(func(domains ...string) {
		if len(domains) == 0 {
			s.ForgetAll()
		}
		for _, publisher := range domains {
			if domain, err := dns.Parse(publisher); err == nil {
				s.Forget(domain)
			} else {
				s.ForgetAll() // it may mean any publisher
			}
		}
	})
}

func (s *sourceCache) close() {
	if s == nil {
		return
	}
	if s.shared != nil {
		if isLast := s.shared.leave(s); !isLast {
			return
		}
	}
	s.Close()
	if s.stop != nil {
		s.stop()
	}
}

func (s *sourceCache) stats() SourceStats {
	if s == nil {
		return SourceStats{}
	}
	n := s.Stats()
	return SourceStats{
		Lookups:     n.Lookups,
		Refreshes:   n.Refreshes,
		Errors:      n.Errors,
		Coalesced:   n.Coalesced,
		RateLimited: n.RateLimited,
		Busy:        n.Busy,
		CircuitOpen: n.CircuitOpen,
		Hinted:      n.Absent,
		Stale:       n.Stale,
		Publishers:  n.Names,
		Negatives:   n.Negatives,
		Prefixes:    n.Aliases,
		Slots:       n.Slots,
		Waiting:     n.Waiting,
	}
}

// A checkedSource is a Source whose answers are checked.
type checkedSource struct {
	source  Source
	hinter  Hinter  // nil if source is not one
	sharded Sharded // nil if source is not one
	shards  int
	hosts   *hosts
}

const maxShards = 1024

func newCheckedSource(source Source, h *hosts) checkedSource {
	s := checkedSource{source: source, shards: 1, hosts: h}
	s.hinter, _ = source.(Hinter)
	if sharded, ok := source.(Sharded); ok {
		s.sharded, s.shards = sharded, min(max(1, sharded.Shards()), maxShards)
	}
	return s
}

func (s checkedSource) Hint(key string) lookup.Hint {
	if s.hinter == nil {
		return lookup.NoHint
	}
	switch s.hinter.Hint(key) {
	case LikelyPublisher:
		return lookup.Likely
	case NotPublisher:
		return lookup.Absent
	}
	return lookup.NoHint
}

// Shard returns a shard that exists, whatever the Source returns.
func (s checkedSource) Shard(key string) int {
	if s.shards == 1 {
		return 0
	}
	return int(uint(s.sharded.Shard(key)) % uint(s.shards))
}

func (s checkedSource) HasName(ctx context.Context, domain string) (bool, error) {
	return s.source.HasPublisher(ctx, domain)
}

func (s checkedSource) NameByAlias(ctx context.Context, prefix string) (string, error) {
	domain, err := s.source.PublisherByHash(ctx, prefix)
	// Copied before it is checked: the Source may reuse its memory, or it may be a part of a
	// large string.
	domain = strings.Clone(domain[:min(len(domain), dns.MaxDomain+1)])
	switch {
	case domain == "" || err != nil:
		return "", err
	case !s.canBePublisher(domain):
		return "", fmt.Errorf("%w: %q is not a publisher domain in lower-case ASCII", ErrSourceBadAnswer, domain)
	case dns.Hash(domain) != prefix:
		return "", fmt.Errorf("%w: %q does not have the hash prefix %q", ErrSourceBadAnswer, domain, prefix)
	}
	return domain, nil
}

// canBePublisher reports whether a domain that a Source returned can be a publisher.
// Domains that a Source is asked about were checked with the claim.
func (s checkedSource) canBePublisher(domain string) bool {
	canonical, err := dns.Parse(domain)
	return err == nil && canonical == domain && !s.hosts.isReserved(domain)
}
