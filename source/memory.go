package source

import (
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// maxNegatives is how many negative answers are remembered at most. Invented names, of which
// there is no end, should not fill the memory of a server.
const maxNegatives = 65_536

// A memory holds the answers of the database: publishers, negative answers, and which publisher a
// hash prefix has. Each has its own limit, so that negative answers evict no publishers.
//
// Reading takes only the LRU's read lock (Peek), and does not change the order of eviction. The
// entry that is evicted first is the one that was confirmed or refreshed longest ago; for a
// publisher in use, that is at most a TTL. Publishers and negative answers are written under
// Source.mu.
type memory struct {
	options    Config
	publishers *lru.Cache[string, *entry] // by textOf the domain or pattern
	negatives  *lru.Cache[string, *entry] // by key
	// domains by hash prefix; a prefix always belongs to the same domain, so there is no TTL
	prefixes *lru.Cache[string, string]
	epoch    atomic.Uint32 // entries of an earlier one have expired
}

// An entry is one answer. It does not change. Times are since Source.start.
type entry struct {
	domain    string        // or a pattern; "" for a negative answer
	at        time.Duration // when the database was asked
	refreshAt time.Duration // when the publisher is to be refreshed
	epoch     uint32
}

func newMemory(options Config) *memory {
	m := &memory{options: options}
	// The only error is a size below one.
	m.publishers, _ = lru.New[string, *entry](options.MaxEntries)
	m.negatives, _ = lru.New[string, *entry](min(options.MaxEntries, maxNegatives))
	m.prefixes, _ = lru.New[string, string](options.MaxEntries)
	return m
}

func (m *memory) isFresh(e *entry, ttl, now time.Duration) bool {
	return now-e.at < ttl && e.epoch == m.epoch.Load()
}

// answer returns what is remembered for a key: a domain, or "" for a negative answer.
func (m *memory) answer(key string, now time.Duration) (domain string, ok bool) {
	if e, ok := m.publishers.Peek(key); ok && m.isFresh(e, m.options.TTL, now) {
		return e.domain, true
	}
	e, ok := m.negatives.Peek(key)
	return "", ok && m.isFresh(e, m.options.NegativeTTL, now)
}

// stale returns a publisher that was confirmed within MaxStale.
func (m *memory) stale(key string, now time.Duration) (domain string, ok bool) {
	e, ok := m.publishers.Peek(key)
	if !ok || now-e.at >= m.options.MaxStale || m.options.MaxStale == m.options.TTL {
		return "", false
	}
	return e.domain, true
}

// remember keeps the answer of a call, unless a call that began later has already answered.
func (m *memory) remember(c *call) {
	if m.hasNewer(c) {
		return
	}
	e := &entry{domain: c.domain, at: c.began, refreshAt: c.began + refreshAge(m.options.TTL), epoch: c.epoch}
	if c.domain == "" {
		m.publishers.Remove(c.key.text)
		m.negatives.Add(c.key.text, e)
		return
	}
	m.publishers.Add(textOf(c.domain), e)
	m.negatives.Remove(textOf(c.domain))
	if c.key.isHash {
		m.prefixes.Add(c.key.text, c.domain)
		m.negatives.Remove(c.key.text)
	}
}

func (m *memory) purge() {
	m.publishers.Purge()
	m.negatives.Purge()
	m.prefixes.Purge()
}

// hasNewer reports whether a later answer is remembered. This can happen because a publisher
// may be looked up by domain and by hash prefix at the same time.
func (m *memory) hasNewer(c *call) bool {
	for _, key := range []string{c.key.text, textOf(c.domain)} {
		for _, kept := range []*lru.Cache[string, *entry]{m.publishers, m.negatives} {
			if e, ok := kept.Peek(key); ok && e.at > c.began {
				return true
			}
		}
	}
	return false
}
