package ampcors

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
	"strings"
	"testing"
)

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
			if !l.add(name(i)) || l.add(name(i/2)) {
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

func TestAnIterationOfPublishersCanEndEarly(t *testing.T) {
	t.Parallel()
	v := newValidator(&Config{Publishers: []string{"a.example", "https://b.example"}})
	for p := range v.publishers() {
		if p.domain != "a.example" {
			t.Errorf("%+v", p)
		}
		break
	}
	if len(v.problems) > 0 {
		t.Errorf("what comes after is read: %v", v.problems)
	}
}
