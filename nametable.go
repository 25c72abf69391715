package ampcors

import (
	"hash/maphash"
	"math/bits"
)

// A nameTable holds distinct names in the order in which they were added, and finds them.
//
// A map and a slice of strings take three times as much memory (104 bytes for each publisher
// beyond its name, hashes included, where this takes 36). They also have pointers for each
// name, which the garbage collector follows while a server with millions of publishers
// answers requests.
type nameTable struct {
	texts []string // each with the names of namesInText indices, one after another
	ends  []uint16 // where each name ends in its text
	seed  maphash.Seed

	// slots is a hash table with open addressing and linear probing. A slot has 32 bits of a
	// name's hash, and its index plus one; 0 if it is free. At most two thirds are in use.
	slots []uint64

	last []byte // the text that is not full yet; only until the list is built
}

// yieldEvery is the number of publishers after which other goroutines may run. Compiling
// millions of publishers takes seconds, and requests should not wait for it.
const yieldEvery = 256

// namesInText is the number of names in one text. A program that keeps a single name keeps
// the whole text in memory: 64 names take at most 16 KiB.
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

// add adds a name, and reports whether it was not in the list yet. No more names may be
// added than there is room for.
func (l *nameTable) add(name string) bool {
	at, _, found := l.slot(name)
	if found {
		return false
	}
	index := len(l.ends)
	l.slots[at] = maphash.String(l.seed, name)&^0xffff_ffff | uint64(index+1)
	l.last = append(l.last, name...)
	l.ends = append(l.ends, uint16(len(l.last)))
	if len(l.ends)%namesInText == 0 {
		l.flush()
	}
	return true
}

func (l *nameTable) flush() {
	l.texts = append(l.texts, string(l.last))
	l.last = l.last[:0]
}

// built ends the adding of names.
func (l *nameTable) built() {
	if len(l.last) > 0 {
		l.flush()
	}
	l.last = nil
}

func (l *nameTable) len() int { return len(l.ends) }

// name returns the name with an index.
func (l *nameTable) name(index uint32) string {
	start, text := uint16(0), index/namesInText
	if index%namesInText > 0 {
		start = l.ends[index-1]
	}
	if int(text) == len(l.texts) {
		return string(l.last[start:l.ends[index]])
	}
	return l.texts[text][start:l.ends[index]]
}

// find returns the index of a name.
func (l *nameTable) find(name string) (index uint32, ok bool) {
	if len(l.slots) == 0 {
		return 0, false
	}
	_, index, ok = l.slot(name)
	return index, ok
}

// slot returns the slot of a name and its index, or the free slot where it can be added.
func (l *nameTable) slot(name string) (at int, index uint32, found bool) {
	hash, mask := maphash.String(l.seed, name), uint64(len(l.slots)-1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := l.slots[i]
		if s == 0 {
			return int(i), 0, false
		}
		if s>>32 == hash>>32 && l.name(uint32(s)-1) == name {
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
