package lookup

import (
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// maxNegatives is how many negative answers are remembered at most. Invented names, of which
// there is no end, should not fill the memory of a server.
const maxNegatives = 65_536

// A memory holds the answers of the source: names, negative answers and aliases. Each has
// its own limit, so that negative answers evict no names.
//
// Reading takes only the LRU's read lock (Peek). Entries are then evicted in the order of
// their last confirmation or refresh, which for a name in use is at most a TTL ago. Names
// and negative answers are written under Cache.mu.
type memory struct {
	options   Options
	alias     func(name string) string
	names     *lru.Cache[string, *entry] // by name
	negatives *lru.Cache[string, *entry] // by name or alias
	aliases   *lru.Cache[string, string] // names by alias; an alias always belongs to the same name, so there is no TTL
	epoch     atomic.Uint32              // entries of an earlier one have expired
}

// An entry is one answer. It does not change. Times are since Cache.start.
type entry struct {
	name      string        // "" for a negative answer
	at        time.Duration // when the source was asked
	refreshAt time.Duration // when the name is to be refreshed
	epoch     uint32
}

func newMemory(options Options, alias func(name string) string) *memory {
	m := &memory{options: options, alias: alias}
	// The only error is a size below one.
	m.names, _ = lru.New[string, *entry](options.MaxEntries)
	m.negatives, _ = lru.New[string, *entry](min(options.MaxEntries, maxNegatives))
	m.aliases, _ = lru.New[string, string](options.MaxEntries)
	return m
}

func (m *memory) isFresh(e *entry, ttl, now time.Duration) bool {
	return now-e.at < ttl && e.epoch == m.epoch.Load()
}

// name returns the entry of a name that has not expired, or nil.
func (m *memory) name(name string, now time.Duration) *entry {
	if e, ok := m.names.Peek(name); ok && m.isFresh(e, m.options.TTL, now) {
		return e
	}
	return nil
}

// answer returns what is remembered for a question: a name, or "" for a negative answer.
func (m *memory) answer(q question, now time.Duration) (name string, ok bool) {
	if e := m.name(q.name, now); e != nil {
		return e.name, true
	}
	e, ok := m.negatives.Peek(q.key)
	return "", ok && m.isFresh(e, m.options.NegativeTTL, now)
}

// stale returns a name that was confirmed within MaxStale.
func (m *memory) stale(name string, now time.Duration) (string, bool) {
	e, ok := m.names.Peek(name)
	if !ok || now-e.at >= m.options.MaxStale || m.options.MaxStale == m.options.TTL {
		return "", false
	}
	return e.name, true
}

// remember keeps the answer of a call, unless a call that began later has already answered.
func (m *memory) remember(c *call) {
	if m.hasNewer(c) {
		return
	}
	e := &entry{name: c.name, at: c.began, refreshAt: c.began + refreshAge(m.options.TTL), epoch: c.epoch}
	if e.name == "" {
		m.names.Remove(c.key)
		m.negatives.Add(c.key, e)
		return
	}
	alias := m.alias(e.name)
	m.names.Add(e.name, e)
	m.aliases.Add(alias, e.name)
	m.negatives.Remove(e.name)
	m.negatives.Remove(alias)
}

// hasNewer reports whether a later answer is remembered. This can happen because one name
// may be looked up by name and by alias at the same time.
func (m *memory) hasNewer(c *call) bool {
	keys := []string{c.key}
	if c.name != "" {
		keys = append(keys, c.name, m.alias(c.name))
	}
	for _, key := range keys {
		for _, remembered := range []*lru.Cache[string, *entry]{m.names, m.negatives} {
			if e, ok := remembered.Peek(key); ok && e.at > c.began {
				return true
			}
		}
	}
	return false
}

func (m *memory) forget(name string) {
	m.names.Remove(name)
	m.negatives.Remove(name)
	m.negatives.Remove(m.alias(name))
}
