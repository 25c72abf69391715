package ampcors

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	lru "github.com/hashicorp/golang-lru/v2"
)

// An allowlist knows the publishers that are allowed. It does not change once it
// is built, but for the LRU, whose content never changes an answer.
type allowlist struct {
	names     []string                              // exact publishers
	exact     map[string]uint32                     // name to its index in names
	wildcards map[string]struct{}                   // what stands behind "*."
	hashes    []hashEntry                           // of names, sorted
	recent    *lru.Cache[[sha256.Size]byte, uint32] // SHA-256 to index in names; nil without names
}

// A hashEntry is the start of a publisher's SHA-256, and its index in names. It
// finds a publisher by hash at 16 octets each, where whole hashes would take 36.
type hashEntry struct {
	start uint64
	index uint32
}

func hashStart(sum *[sha256.Size]byte) uint64 { return binary.BigEndian.Uint64(sum[:]) }

// newAllowlist builds an allowlist of domains and wildcard bases that are in the
// form that parseDomain returns. All hashes are computed here, so that no request
// has to; the first of them fill the LRU.
func newAllowlist(names []string, wildcards []string, cacheSize int) *allowlist {
	a := &allowlist{
		names:  names,
		exact:  make(map[string]uint32, len(names)),
		hashes: make([]hashEntry, 0, len(names)),
	}
	if len(names) > 0 {
		// Its only error is a size below one, which compile refuses.
		a.recent, _ = lru.New[[sha256.Size]byte, uint32](min(cacheSize, len(names)))
	}
	for i, name := range names {
		if _, twice := a.exact[name]; twice {
			continue // a set: naming a publisher twice says nothing new
		}
		index := uint32(i)
		a.exact[name] = index
		sum := sha256.Sum256([]byte(name))
		a.hashes = append(a.hashes, hashEntry{hashStart(&sum), index})
		if i < cacheSize {
			a.recent.Add(sum, index)
		}
	}
	slices.SortFunc(a.hashes, func(x, y hashEntry) int { return cmp.Compare(x.start, y.start) })
	if len(wildcards) > 0 {
		a.wildcards = make(map[string]struct{}, len(wildcards))
		for _, base := range wildcards {
			a.wildcards[base] = struct{}{}
		}
	}
	return a
}

// find tells whether the domain is allowed. For one that is listed exactly it
// returns the name as well, which saves a caller from copying the domain.
func (a *allowlist) find(domain []byte) (name string, ok bool) {
	if i, ok := a.exact[string(domain)]; ok {
		return a.names[i], true
	}
	if len(a.wildcards) > 0 {
		for i, c := range domain {
			if c != '.' {
				continue
			}
			if _, ok := a.wildcards[string(domain[i+1:])]; ok {
				return "", true
			}
		}
	}
	return "", false
}

// findHash returns the exactly listed publisher whose name has this SHA-256.
//
// The LRU saves a computation, and nothing else: what it has forgotten is found
// again from the sorted hashes by a binary search and, unless two names share the
// first 64 bits, one SHA-256. An unknown hash is never stored, so that invented
// ones push nothing out. Peek takes only the read lock of the LRU; the order in
// which it forgets is then that of entry, which is good enough for what forgetting
// costs.
func (a *allowlist) findHash(sum *[sha256.Size]byte) (name string, ok bool) {
	if a.recent == nil {
		return "", false
	}
	if i, ok := a.recent.Peek(*sum); ok {
		return a.names[i], true
	}
	start := hashStart(sum)
	at, _ := slices.BinarySearchFunc(a.hashes, start, func(e hashEntry, start uint64) int {
		return cmp.Compare(e.start, start)
	})
	for ; at < len(a.hashes) && a.hashes[at].start == start; at++ {
		i := a.hashes[at].index
		if sha256.Sum256([]byte(a.names[i])) == *sum {
			a.recent.Add(*sum, i)
			return a.names[i], true
		}
	}
	return "", false
}
