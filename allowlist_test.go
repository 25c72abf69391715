package ampcors

import (
	"fmt"
	"testing"

	"github.com/ampcors/ampcors/internal/mapping"
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
		if found, ok := list.findRecentHash(mapping.Hash(name)); ok != want || ok && found != name {
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
			d := m.CheckOrigin("https://" + mapping.Hash(name) + ".cdn.ampproject.org")
			if d.Reason != ReasonCacheOriginHash || d.Publisher != name {
				t.Fatalf("round %d: %s is decided as %+v", round, name, d)
			}
			if _, ok := m.current().list.findRecentHash(mapping.Hash(name)); !ok {
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
		if d := m.CheckOrigin("https://" + mapping.Hash(name) + ".cdn.ampproject.org"); d.Publisher != name {
			t.Fatalf("the hash of %s: %+v", name, d)
		}
	}
	before := lru.Keys()
	for i := range 10_000 {
		if d := m.CheckOrigin("https://" + mapping.Hash(fmt.Sprint(i)) + ".cdn.ampproject.org"); d.Reason != ReasonHashNotKnown {
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
	sum, _ := mapping.DecodeHash(mapping.Hash("b.example"))
	start := hashStart(&sum)
	a.hashes = []hashEntry{{start, 0}, {start, 1}}
	a.recent.Purge()
	if name, ok := a.findHash(mapping.Hash("b.example"), &sum); !ok || name != "b.example" {
		t.Errorf("found %q, %t; want b.example", name, ok)
	}
	a.recent.Purge()
	sum[31] ^= 1
	if name, ok := a.findHash(mapping.Hash("b.example"), &sum); ok {
		t.Errorf("%q is found by a hash that only has the same start as its own", name)
	}
}
