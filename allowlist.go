package ampcors

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"hash/maphash"
	"io"
	"maps"
	"math/bits"
	"runtime"
	"slices"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/ampcors/ampcors/internal/domains"
	"github.com/ampcors/ampcors/internal/prefixes"
)

// An allowlist holds the publishers that are allowed. After it is built, only its LRU changes, and that never
// changes an answer.
type allowlist struct {
	names    *nameTable                              // exact publishers; punycode, recent and hashes hold indices into it
	punycode map[string]uint32                       // by prefix, if that begins "xn--"
	recent   *lru.Cache[prefixes.HashPrefix, uint32] // by hash prefix; nil without names
	hashes   []hashEntry                             // by SHA-256, sorted
	patterns map[string]struct{}                     // what follows "*."

	fingerprint uint64 // of the names and patterns: Stats.Fingerprint
}

// A hashEntry is the start of a publisher's SHA-256, and the publisher's index in names. It takes 16 bytes;
// with the whole hash it would take 36.
type hashEntry struct {
	start uint64
	index uint32
}

func hashStart(sum *[sha256.Size]byte) uint64 { return binary.BigEndian.Uint64(sum[:]) }

// recentPrefixes is how many prefixes an LRU remembers. A hash prefix that is not in it costs one SHA-256 more.
// An entry takes up to 400 bytes, so all take at most 1.6 MiB.
const recentPrefixes = 4096

// newAllowlist builds an allowlist of domains and bases of patterns that are in the form that domains.Parse
// returns. All hashes are computed here, so that a request computes at most one, unless two names share the
// first 64 bits. The prefixes that begin "xn--" are also computed here, because to decode one takes several
// times as long as to look it up. Ambiguous ones are left out, so that they are checked.
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
	a.fingerprint = a.takeFingerprint()
	return a
}

func (a *allowlist) takeFingerprint() uint64 {
	h := sha256.New()
	var start [8]byte
	for i := range a.hashes { // sorted, so that the order of the list does not matter
		binary.BigEndian.PutUint64(start[:], a.hashes[i].start)
		_, _ = h.Write(start[:]) // never fails
	}
	for _, base := range slices.Sorted(maps.Keys(a.patterns)) {
		_, _ = io.WriteString(h, "*."+base)
	}
	return binary.BigEndian.Uint64(h.Sum(nil)) >> 16
}

// publishers returns the names in the order in which they were added, and then the patterns, sorted.
func (a *allowlist) publishers() (all []string) {
	for i := range a.names.len() {
		all = append(all, a.names.name(uint32(i)))
	}
	for _, base := range slices.Sorted(maps.Keys(a.patterns)) {
		all = append(all, "*."+base)
	}
	return all
}

// findByKey finds the exactly listed publisher of a claim that is not checked yet. It finds nearly every listed
// publisher, and never another one.
func (a *allowlist) findByKey(cl *claim) (name string, ok bool) {
	switch cl.kind {
	case kindHash:
		return a.findRecentHash(cl.name)
	case kindEncoded:
		i, ok := a.punycode[cl.name]
		return a.named(i, ok)
	}
	return a.named(a.names.find(cl.key()))
}

// findDecoded finds, for a checked claim, what findByKey did not find: by a hash prefix that is not in the LRU,
// or by a prefix that newAllowlist did not compute.
func (a *allowlist) findDecoded(cl *claim) (name string, ok bool) {
	switch cl.kind {
	case kindHash:
		return a.findHash(cl.name, cl.sum())
	case kindEncoded:
		return a.named(a.names.find(cl.domain()))
	}
	return "", false
}

// named returns the name with an index, if it was found.
func (a *allowlist) named(index uint32, found bool) (name string, ok bool) {
	if !found {
		return "", false
	}
	return a.names.name(index), true
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
	// Peek takes only the read lock. Entries are then evicted in the order in which they were added, which is good
	// enough because a missing entry costs little.
	return a.named(a.recent.Peek(key))
}

// findHash finds an exactly listed publisher by a hash prefix and the SHA-256 that it spells, and adds it to
// the LRU.
//
// The LRU only saves a computation. An evicted prefix is found again by a binary search in the sorted hashes
// and, unless two names share the first 64 bits, one SHA-256. An unknown hash prefix is never stored, so that
// invented ones evict nothing.
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

// A nameTable holds distinct names in the order in which they were added, and finds them.
//
// A map and a slice of strings take three times as much memory (104 bytes for each publisher beyond its name,
// hashes included, where this takes 36). They also have pointers for each name, which the garbage collector
// follows while a server with millions of publishers answers requests.
type nameTable struct {
	texts []string // each holds namesInText names, one after another; the last may hold fewer
	ends  []uint16 // where each name ends in its text
	seed  maphash.Seed

	// slots is a hash table with open addressing and linear probing. A slot has 32 bits of a name's hash, and its
	// index plus one; 0 if it is free. At most two thirds are in use.
	slots []uint64

	last []byte // the text that is not full yet; nil after built
}

// yieldEvery is the number of publishers after which other goroutines may run. Compiling millions of publishers
// takes seconds, and requests should not wait for it.
const yieldEvery = 256

// namesInText is the number of names in one text. A program that keeps a single name keeps the whole text in
// memory: 64 names take at most 16 KiB.
const namesInText = 64

// newNameTable returns a table with room for n names.
func newNameTable(n int) *nameTable {
	l := &nameTable{seed: maphash.MakeSeed()}
	if n > 0 {
		l.texts = make([]string, 0, (n+namesInText-1)/namesInText)
		l.ends = make([]uint16, 0, n)
		l.slots = make([]uint64, 1<<bits.Len(uint(n+n/2)))
	}
	return l
}

// add adds a name, if it is new in the table. The caller must not add more names than newNameTable made room for.
func (t *nameTable) add(name string) {
	at, _, found := t.slot(name)
	if found {
		return
	}
	index := len(t.ends)
	t.slots[at] = maphash.String(t.seed, name)&^0xffff_ffff | uint64(index+1)
	t.last = append(t.last, name...)
	t.ends = append(t.ends, uint16(len(t.last)))
	if len(t.ends)%namesInText == 0 {
		t.flush()
	}
}

func (t *nameTable) flush() {
	t.texts = append(t.texts, string(t.last))
	t.last = t.last[:0]
}

// built ends the adding of names.
func (t *nameTable) built() {
	if len(t.last) > 0 {
		t.flush()
	}
	t.last = nil
}

func (t *nameTable) len() int { return len(t.ends) }

// name returns the name with an index.
func (t *nameTable) name(index uint32) string {
	start, text := uint16(0), index/namesInText
	if index%namesInText > 0 {
		start = t.ends[index-1]
	}
	if int(text) == len(t.texts) {
		return string(t.last[start:t.ends[index]])
	}
	return t.texts[text][start:t.ends[index]]
}

// find returns the index of a name.
func (t *nameTable) find(name string) (index uint32, ok bool) {
	if len(t.slots) == 0 {
		return 0, false
	}
	_, index, ok = t.slot(name)
	return index, ok
}

// slot returns the slot of a name and its index, or the free slot where it can be added.
func (t *nameTable) slot(name string) (at int, index uint32, found bool) {
	hash, mask := maphash.String(t.seed, name), uint64(len(t.slots)-1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := t.slots[i]
		if s == 0 {
			return int(i), 0, false
		}
		if s>>32 == hash>>32 && t.name(uint32(s)-1) == name {
			return int(i), uint32(s) - 1, true
		}
	}
}

func setOf(values []string) map[string]struct{} {
	set := make(map[string]struct{}, len(values))
	for _, value := range values {
		set[value] = struct{}{}
	}
	return set
}
