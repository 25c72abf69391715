package ampcors

import (
	"hash/maphash"
	"math/bits"
	"strings"
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

// namesInText is the number of names in one text. A program that keeps a single name keeps
// the whole text in memory: 64 names take at most 16 KiB.
const namesInText = 64

// newNameTable returns a list with room for n names.
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

// A writtenList is Config.Publishers as they were written, for [Middleware.Config]. Most are
// written in the form in which they are compared, so only one copy of them is kept.
type writtenList struct {
	names  *nameTable
	n      int
	others []otherSpelling // by index
}

// An otherSpelling is a publisher that is not in the nameTable, or is there in another form:
// a pattern, a name that is listed twice, one in Unicode or in upper case.
type otherSpelling struct {
	index  int
	text   string
	isName bool // the next name of the nameTable is another form of this publisher
}

func newWrittenList(n int) writtenList { return writtenList{names: newNameTable(n)} }

// add adds a publisher as it was written, and its domain in the form in which it is compared.
func (w *writtenList) add(text, domain string, isPattern bool) {
	isName := !isPattern && w.names.add(domain)
	if !isName || text != domain {
		w.others = append(w.others, otherSpelling{w.n, text, isName})
	}
	w.n++
}

// built ends the adding of publishers. It copies the texts, which may be parts of a large
// string.
func (w *writtenList) built() {
	w.names.built()
	length := 0
	for _, o := range w.others {
		length += len(o.text)
	}
	var b strings.Builder
	b.Grow(length)
	for _, o := range w.others {
		b.WriteString(o.text)
	}
	rest, others := b.String(), make([]otherSpelling, len(w.others))
	for i, o := range w.others {
		others[i] = otherSpelling{o.index, rest[:len(o.text)], o.isName}
		rest = rest[len(o.text):]
	}
	w.others = others
}

// list returns the publishers in their order; nil if there are none.
func (w *writtenList) list() []string {
	if w.n == 0 {
		return nil
	}
	list, others, next := make([]string, w.n), w.others, uint32(0)
	for i := range list {
		isName := true
		if len(others) > 0 && others[0].index == i {
			list[i], isName, others = others[0].text, others[0].isName, others[1:]
		} else {
			list[i] = w.names.name(next)
		}
		if isName {
			next++
		}
	}
	return list
}
