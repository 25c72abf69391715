package source

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

var errDown = errors.New("the database is down")

func TestFailuresOfOneKeyDoNotOpenTheBreaker(t *testing.T) {
	t.Parallel()
	for took, pause := range map[time.Duration]time.Duration{0: minPause, 200 * time.Millisecond: 400 * time.Millisecond, time.Hour: openFor} {
		var b breaker
		for range 10 * failuresToOpen {
			b.failure("bad", 0, took, errDown)
		}
		if err := b.check("other", 0); err != nil {
			t.Errorf("another key: %v", err)
		}
		if b.check("bad", pause-1) == nil || b.check("bad", pause) != nil {
			t.Errorf("a failure that took %v does not pause its key for %v", took, pause)
		}
		b.success("other")
		if b.check("bad", 0) == nil {
			t.Error("the success of another key ends the backoff of a key that failed repeatedly")
		}
		b.success("bad")
		if err := b.check("bad", 0); err != nil {
			t.Errorf("the success of a key does not end its backoff: %v", err)
		}
		b.failure("bad", 0, took, errDown)
		b.success("other")
		if err := b.check("bad", 0); err != nil {
			t.Errorf("the source has recovered, but the key that failed once is not asked for: %v", err)
		}
	}
}

func testMemory() *memory {
	return newMemory(Config{TTL: 10, NegativeTTL: 5, MaxStale: 30, MaxEntries: 2})
}

// fresh returns what is remembered for a key: "yes", "no", or "" for nothing.
func (m *memory) fresh(key string, now time.Duration) string {
	switch domain, ok := m.answer(key, now); {
	case !ok:
		return ""
	case domain == "":
		return "no"
	}
	return "yes"
}

func TestMemoryKeepsAnswersForTheirTTL(t *testing.T) {
	t.Parallel()
	m := testMemory()
	m.remember(&call{key: key{"hash", true}, domain: "a.b", began: 100})
	m.remember(&call{key: key{"c.d", false}, began: 100})
	for _, test := range []struct {
		now     time.Duration
		a, c    string
		isStale bool
	}{
		{now: 104, a: "yes", c: "no", isStale: true},
		{now: 105, a: "yes", c: "", isStale: true},
		{now: 109, a: "yes", c: "", isStale: true},
		{now: 110, a: "", c: "", isStale: true},
		{now: 129, a: "", c: "", isStale: true},
		{now: 130, a: "", c: "", isStale: false},
	} {
		_, isStale := m.stale("a.b", test.now)
		if a, c := m.fresh("a.b", test.now), m.fresh("c.d", test.now); a != test.a || c != test.c || isStale != test.isStale {
			t.Errorf("at %d: %q, %q, stale %t", test.now, a, c, isStale)
		}
	}
	if domain, _ := m.prefixes.Peek("hash"); domain != "a.b" {
		t.Errorf("the hash prefix gives %q", domain)
	}
	m.options.MaxStale = m.options.TTL
	m.epoch.Add(1)
	if _, isStale := m.stale("a.b", 105); isStale {
		t.Error("it is stale, but MaxStale is the TTL")
	}
}

func TestMemoryKeepsTheLaterAnswer(t *testing.T) {
	t.Parallel()
	m := testMemory()
	m.remember(&call{key: key{"a.b", false}, began: 8})
	m.remember(&call{key: key{"hash", true}, domain: "a.b", began: 7})
	if m.fresh("a.b", 9) != "no" {
		t.Error("the earlier answer is remembered")
	}
	m.remember(&call{key: key{"hash", true}, began: 8})
	m.remember(&call{key: key{"hash", true}, domain: "a.b", began: 9})
	if m.fresh("a.b", 9) != "yes" || m.negatives.Len() != 0 {
		t.Error("the later answer is not remembered, or the negative one still is")
	}
	m.remember(&call{key: key{"a.b", false}, began: 8})
	if m.fresh("a.b", 9) != "yes" {
		t.Error("the earlier answer replaces a publisher")
	}
	m.remember(&call{key: key{"a.b", false}, began: 10})
	if m.fresh("a.b", 10) != "no" {
		t.Error("a publisher that is gone is remembered")
	}
}

func TestMemoryIsBoundedByKind(t *testing.T) {
	t.Parallel()
	m := testMemory()
	for i := range 10 {
		m.remember(&call{key: key{fmt.Sprint("hash", i), true}, domain: fmt.Sprintf("is-%d.example", i)})
		m.remember(&call{key: key{fmt.Sprintf("is-not-%d.example", i), false}})
		m.remember(&call{key: key{fmt.Sprint("other-hash", i), false}})
	}
	if m.publishers.Len() != 2 || m.negatives.Len() != 2 || m.prefixes.Len() != 2 || m.fresh("is-9.example", 0) != "yes" {
		t.Errorf("%d publishers, %d negative answers, %d prefixes", m.publishers.Len(), m.negatives.Len(), m.prefixes.Len())
	}
	for _, i := range []int{8, 9} { // what is invented evicts neither of them
		if domain, _ := m.prefixes.Peek(fmt.Sprint("hash", i)); domain != fmt.Sprintf("is-%d.example", i) {
			t.Errorf("the hash prefix %d gives %q", i, domain)
		}
	}
	m.epoch.Add(1)
	if m.fresh("is-9.example", 0) != "" {
		t.Error("an entry of an earlier epoch is fresh")
	}
}

func TestARefreshBeginsBeforeExpiry(t *testing.T) {
	t.Parallel()
	seen := make(map[time.Duration]bool)
	for range 1000 {
		age := refreshAge(time.Minute)
		if age < 42*time.Second || age > 54*time.Second {
			t.Fatalf("after %v of a minute", age)
		}
		seen[age] = true
	}
	if len(seen) < 900 {
		t.Error("no jitter")
	}
}
