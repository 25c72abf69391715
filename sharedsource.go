package ampcors

import (
	"context"
	"sync"
)

// A SharedSource is a [Source] whose answers are remembered once for all Middlewares that
// use it, and not once for each of them. So Middlewares that protect several APIs share
// memory and lookups. A program that replaces a Middleware by another one, instead of calling
// Reconfigure, keeps the answers if it makes the new one before it closes the old one.
//
// Middlewares share answers if their Lookup and Caches are the same. [Middleware.Forget] then
// acts for all of them, and [Middleware.SourceStats] counts for all of them. When the last of
// them is closed, or no longer uses the SharedSource, the answers are dropped. It is safe for
// concurrent use by multiple goroutines.
type SharedSource struct {
	source Source

	mu     sync.Mutex
	caches map[*sourceCache]int // how many Middlewares use each
	closed SourceStats          // the sums of the others, without what is in memory
}

// ShareSource returns a SharedSource for Config.Source. If source is one, it returns that.
func ShareSource(source Source) *SharedSource {
	if shared, ok := source.(*SharedSource); ok {
		return shared
	}
	return &SharedSource{source: source, caches: make(map[*sourceCache]int)}
}

// HasPublisher asks the Source, and remembers nothing.
func (s *SharedSource) HasPublisher(ctx context.Context, domain string) (bool, error) {
	return s.source.HasPublisher(ctx, domain)
}

// PublisherByHash asks the Source, and remembers nothing.
func (s *SharedSource) PublisherByHash(ctx context.Context, prefix string) (string, error) {
	return s.source.PublisherByHash(ctx, prefix)
}

// Stats returns how the Source was used by all Middlewares since ShareSource. Only what is in
// memory now, Slots and Waiting can become less.
func (s *SharedSource) Stats() SourceStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.closed
	for cache := range s.caches {
		sum = sum.Add(cache.stats())
	}
	return sum
}

// join returns the sourceCache that a Middleware must use in place of cache: one like it that
// other Middlewares already use, or else cache itself.
func (s *SharedSource) join(cache *sourceCache) *sourceCache {
	s.mu.Lock()
	defer s.mu.Unlock() // even if Notify panics
	for other := range s.caches {
		if other.sameAs(cache) {
			cache = other
			break
		}
	}
	if s.caches[cache] == 0 {
		cache.subscribe()
	}
	s.caches[cache]++
	return cache
}

// leave notes that a Middleware no longer uses the sourceCache, and reports whether that
// Middleware was the last one.
func (s *SharedSource) leave(cache *sourceCache) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.caches[cache]--; s.caches[cache] > 0 {
		return false
	}
	delete(s.caches, cache)
	stats := cache.stats()
	stats.Publishers, stats.Negatives, stats.Prefixes, stats.Slots, stats.Waiting = 0, 0, 0, 0, 0
	s.closed = s.closed.Add(stats)
	return true
}
