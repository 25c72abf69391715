package ampcors

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"runtime"
	"slices"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/ampcors/ampcors/internal/domains"
	"github.com/ampcors/ampcors/internal/prefixes"
)

// An allowlist holds the publishers that are allowed. After it is built, only its LRU
// changes, and that never changes an answer.
type allowlist struct {
	names    *nameTable                              // exact publishers; the fields below hold indices into it
	punycode map[string]uint32                       // by prefix, if that begins "xn--"
	recent   *lru.Cache[prefixes.HashPrefix, uint32] // by hash prefix; nil without names
	hashes   []hashEntry                             // by SHA-256, sorted
	patterns map[string]struct{}                     // what follows "*."
}

// A hashEntry is the start of a publisher's SHA-256, and the publisher's index in names. It
// takes 16 bytes; with the whole hash it would take 36.
type hashEntry struct {
	start uint64
	index uint32
}

func hashStart(sum *[sha256.Size]byte) uint64 { return binary.BigEndian.Uint64(sum[:]) }

// recentPrefixes is how many prefixes an LRU remembers. A hash prefix that is not in it costs one
// SHA-256 more. An entry takes up to 400 bytes, so all take at most 1.6 MiB.
const recentPrefixes = 4096

// newAllowlist builds an allowlist of domains and bases of patterns that are in the
// form that domains.Parse returns. All hashes are computed here, so that no request has to.
// The prefixes that begin "xn--" are also computed here, because to decode one takes
// several times as long as to look it up. Ambiguous ones are left out, so that they are checked.
//
// The first hash prefixes are put into the LRU, so that they are found by a map from the start.
func newAllowlist(names *nameTable, patterns map[string]struct{}, recentHashes int) *allowlist {
	a := &allowlist{names: names, hashes: make([]hashEntry, names.len()), patterns: patterns}
	if names.len() > 0 {
		// The only error is a size below one, which cannot happen here.
		a.recent, _ = lru.New[prefixes.HashPrefix, uint32](min(recentHashes, names.len()))
	}
	for i := range a.hashes {
		name, index := names.name(uint32(i)), uint32(i)
		sum := sha256.Sum256([]byte(name))
		a.hashes[i] = hashEntry{hashStart(&sum), index}
		if i < recentHashes {
			a.recent.Add(prefixes.EncodeHash(&sum), index)
		}
		if i%yieldEvery == 0 {
			runtime.Gosched()
		}
		if !strings.Contains(name, domains.ACEPrefix) {
			continue
		}
		if prefix := prefixes.Basic(name); strings.HasPrefix(prefix, domains.ACEPrefix) && prefixes.OtherHost(prefix) == "" {
			if a.punycode == nil {
				a.punycode = make(map[string]uint32)
			}
			a.punycode[prefix] = index
		}
	}
	slices.SortFunc(a.hashes, func(x, y hashEntry) int { return cmp.Compare(x.start, y.start) })
	return a
}

// findByKey finds the exactly listed publisher of a claim that is not checked yet. It finds nearly
// every listed publisher, and never another one.
func (a *allowlist) findByKey(cl *claim) (name string, ok bool) {
	switch cl.kind {
	case kindHash:
		return a.findRecentHash(cl.name)
	case kindEncoded:
		return a.findPunycode(cl.name)
	}
	return a.findDomain(cl.key())
}

// findDecoded finds, for a checked claim, what findByKey did not find: by a hash prefix that is not in
// the LRU, or by a prefix that newAllowlist did not compute.
func (a *allowlist) findDecoded(cl *claim) (name string, ok bool) {
	switch cl.kind {
	case kindHash:
		return a.findHash(cl.name, cl.sum())
	case kindEncoded:
		return a.findDomain(cl.domain())
	}
	return "", false
}

// findDomain finds an exactly listed publisher.
func (a *allowlist) findDomain(domain string) (name string, ok bool) {
	if i, ok := a.names.find(domain); ok {
		return a.names.name(i), true
	}
	return "", false
}

// findPunycode finds an exactly listed publisher by the prefix that DomainPrefix returns for
// it, if that begins "xn--".
func (a *allowlist) findPunycode(prefix string) (name string, ok bool) {
	if i, ok := a.punycode[prefix]; ok {
		return a.names.name(i), true
	}
	return "", false
}

// matches reports whether a pattern matches the domain.
func (a *allowlist) matches(domain string) bool {
	if len(a.patterns) == 0 {
		return false
	}
	for i := range len(domain) {
		if domain[i] != '.' {
			continue
		}
		if _, ok := a.patterns[domain[i+1:]]; ok {
			return true
		}
	}
	return false
}

// findRecentHash finds a publisher by a hash prefix that the LRU remembers.
func (a *allowlist) findRecentHash(prefix string) (name string, ok bool) {
	var key prefixes.HashPrefix
	if a.recent == nil || len(prefix) != len(key) {
		return "", false
	}
	copy(key[:], prefix)
	// Peek takes only the read lock. Entries are then evicted in the order in which they
	// were added, which is good enough because a missing entry costs little.
	if i, ok := a.recent.Peek(key); ok {
		return a.names.name(i), true
	}
	return "", false
}

// findHash finds an exactly listed publisher by a hash prefix and the SHA-256 that it spells,
// and adds it to the LRU.
//
// The LRU only saves a computation. An evicted prefix is found again by a binary search in
// the sorted hashes and, unless two names share the first 64 bits, one SHA-256. An unknown
// hash prefix is never stored, so that invented ones evict nothing.
func (a *allowlist) findHash(prefix string, sum *[sha256.Size]byte) (name string, ok bool) {
	start := hashStart(sum)
	at, _ := slices.BinarySearchFunc(a.hashes, start, func(e hashEntry, start uint64) int {
		return cmp.Compare(e.start, start)
	})
	for ; at < len(a.hashes) && a.hashes[at].start == start; at++ {
		i := a.hashes[at].index
		if sha256.Sum256([]byte(a.names.name(i))) == *sum {
			a.recent.Add(prefixes.HashPrefix([]byte(prefix)), i)
			return a.names.name(i), true
		}
	}
	return "", false
}
