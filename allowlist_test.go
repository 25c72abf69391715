package ampcors

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/ampcors/ampcors/internal/prefixes"
)

// withRecentHashes returns a Middleware whose LRU has n entries.
func withRecentHashes(t *testing.T, n int, publishers ...string) *Middleware {
	t.Helper()
	m, err := New(Config{Publishers: publishers})
	if err != nil {
		t.Fatal(err)
	}
	p := m.current()
	p.list = newAllowlist(p.list.names, nil, n)
	return m
}

// The LRU has the first publishers from the start.
func TestTheLRUIsWarm(t *testing.T) {
	t.Parallel()
	list := withRecentHashes(t, 2, "a.example", "b.example", "c.example").current().list
	for name, want := range map[string]bool{"a.example": true, "b.example": true, "c.example": false} {
		if found, ok := list.findRecentHash(prefixes.Hash(name)); ok != want || ok && found != name {
			t.Errorf("%s is found as %q, %t", name, found, ok)
		}
	}
}

// TestEvictionChangesNoDecision checks more hashes than the LRU holds, three times.
func TestEvictionChangesNoDecision(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 500 {
		names = append(names, fmt.Sprintf("site-%d.example", i))
	}
	m := withRecentHashes(t, 3, names...)
	for round := range 3 {
		for _, name := range names {
			d := m.CheckOrigin("https://" + prefixes.Hash(name) + ".cdn.ampproject.org")
			if d.Reason != ReasonCacheOriginHash || d.Publisher != name {
				t.Fatalf("round %d: %s is decided as %+v", round, name, d)
			}
			if _, ok := m.current().list.findRecentHash(prefixes.Hash(name)); !ok {
				t.Fatalf("round %d: the hash of %s is not remembered", round, name)
			}
		}
	}
	if n := m.current().list.recent.Len(); n != 3 {
		t.Errorf("the LRU has %d entries; want 3", n)
	}
}

// TestInventedHashesEvictNothing sends hashes of no publisher. None may be stored.
func TestInventedHashesEvictNothing(t *testing.T) {
	t.Parallel()
	m := withRecentHashes(t, 2, "a.example", "b.example", "c.example")
	lru := m.current().list.recent
	for _, name := range []string{"a.example", "c.example"} {
		if d := m.CheckOrigin("https://" + prefixes.Hash(name) + ".cdn.ampproject.org"); d.Publisher != name {
			t.Fatalf("the hash of %s: %+v", name, d)
		}
	}
	before := lru.Keys()
	for i := range 10_000 {
		if d := m.CheckOrigin("https://" + prefixes.Hash(fmt.Sprint(i)) + ".cdn.ampproject.org"); d.Reason != ReasonHashNotKnown {
			t.Fatalf("an invented hash: %+v", d)
		}
	}
	if after := lru.Keys(); len(after) != 2 || after[0] != before[0] || after[1] != before[1] {
		t.Errorf("invented hashes changed the LRU from %x to %x", before, after)
	}
}

// TestHashesWithTheSameStartAreDistinct forces the case that the hashes of two
// names have the same start. No such pair of names is known.
func TestHashesWithTheSameStartAreDistinct(t *testing.T) {
	a := newAllowlist(listOf("a.example", "b.example"), nil, 1)
	sum, _ := prefixes.DecodeHash(prefixes.Hash("b.example"))
	start := hashStart(&sum)
	a.hashes = []hashEntry{{start, 0}, {start, 1}}
	a.recent.Purge()
	if name, ok := a.findHash(prefixes.Hash("b.example"), &sum); !ok || name != "b.example" {
		t.Errorf("found %q, %t; want b.example", name, ok)
	}
	a.recent.Purge()
	sum[31] ^= 1
	if name, ok := a.findHash(prefixes.Hash("b.example"), &sum); ok {
		t.Errorf("%q is found by a hash that only has the same start as its own", name)
	}
}

func listOf(names ...string) *nameTable {
	l := newNameTable(len(names))
	for _, name := range names {
		l.add(name)
	}
	l.built()
	return l
}

func TestANameTableFindsEachNameAndNoOther(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 3, 5, 63, 64, 65, 127, 128, 1000, 20_000} {
		name := func(i int) string {
			return strings.Repeat("x", i%200) + fmt.Sprintf("%d.example", i)
		}
		l := newNameTable(n)
		for i := range n {
			l.add(name(i))
			if l.add(name(i / 2)); l.len() != i+1 {
				t.Fatalf("of %d: name %d is there already, or name %d is not", n, i, i/2)
			}
			if got := l.name(uint32(i)); got != name(i) {
				t.Fatalf("of %d: name %d is %q while the list is built", n, i, got)
			}
		}
		l.built()
		l.built() // nothing is added twice
		if l.len() != n {
			t.Errorf("%d of %d", l.len(), n)
		}
		for i := range n {
			if index, ok := l.find(name(i)); !ok || int(index) != i || l.name(index) != name(i) {
				t.Fatalf("of %d: name %d is found as %d, %t", n, i, index, ok)
			}
			if _, ok := l.find(name(i) + "x"); ok {
				t.Fatalf("of %d: another name is found", n)
			}
		}
		if _, ok := l.find(""); ok {
			t.Error("the empty name is found")
		}
		if used := float64(n) / float64(max(1, len(l.slots))); used > 2./3 || n > 2 && used < 1./4 {
			t.Errorf("%d names in %d slots", n, len(l.slots))
		}
	}
}

// TestNamesWithTheSameHashAreDistinct changes the slots so that all names share 32 bits of
// their hash, and all lookups begin at occupied slots.
func TestNamesWithTheSameHashAreDistinct(t *testing.T) {
	t.Parallel()
	names := []string{"a.example", "b.example", "c.example", "d.example"}
	l := listOf(names...)
	// Without a seed that makes the hashes collide, the slot at which the lookup begins gets an entry of
	// another name, with the hash that is looked for, and the next slot gets the name's own.
	for _, name := range names {
		want, _ := l.find(name)
		hash := maphash.String(l.seed, name)
		saved := slices.Clone(l.slots)
		tag, mask := hash&^0xffff_ffff, uint64(len(l.slots)-1)
		clear(l.slots)
		l.slots[hash&mask] = tag | uint64((want+1)%uint32(len(names))+1)
		l.slots[(hash+1)&mask] = tag | uint64(want+1)
		if got, ok := l.find(name); !ok || got != want {
			t.Errorf("%s is found as %d, %t; want %d", name, got, ok, want)
		}
		copy(l.slots, saved)
	}
	if bits.OnesCount(uint(len(l.slots))) != 1 {
		t.Errorf("%d slots", len(l.slots))
	}
}

// Tests in package ampcors_test use only the exported API, as a user does, and this.
const NumReasons = numReasons
