package lookup

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

var errDown = errors.New("the database is down")

func TestABreakerOpensAfterFailuresInARowOfDifferentKeys(t *testing.T) {
	t.Parallel()
	var b breaker
	for i := range failuresToOpen {
		if err := b.check("other", 0); err != nil {
			t.Fatalf("open after %d failures: %v", i, err)
		}
		b.failure(fmt.Sprint(i), 0, 0, errDown)
	}
	for now, want := range map[time.Duration]error{0: ErrCircuitOpen, openFor - 1: errDown, openFor: nil} {
		if err := b.check("other", now); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("after %v: %v; want %v", now, err, want)
		}
	}
	if !b.begin(openFor) {
		t.Error("the first lookup after that is no probe")
	}
	if b.check("other", openFor+1) == nil {
		t.Error("a second lookup begins during the probe")
	}
	b.success("any")
	if b.check("other", openFor+1) != nil || b.begin(openFor+1) {
		t.Error("a success does not close it")
	}
}

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

func TestTheRateLimitAllowsABurst(t *testing.T) {
	t.Parallel()
	l := newRateLimit(100)
	take := func(now time.Duration) (n int) {
		for l.allow(now) {
			n++
		}
		return n
	}
	if n := take(time.Hour); n != 11 { // those of a tenth of a second, and one more
		t.Errorf("%d at first", n)
	}
	if n := take(time.Hour + 9*time.Millisecond); n != 0 {
		t.Errorf("%d before the next", n)
	}
	if n := take(time.Hour + 50*time.Millisecond); n != 5 {
		t.Errorf("%d in 50 ms", n)
	}
}

func testMemory() *memory {
	return newMemory(Options{TTL: 10, NegativeTTL: 5, MaxStale: 30, MaxEntries: 2}, func(name string) string { return "alias of " + name })
}

func TestMemoryKeepsAnswersForTheirTTL(t *testing.T) {
	t.Parallel()
	m := testMemory()
	m.remember(&call{question: question{key: "a", name: "a"}, name: "a", began: 100})
	m.remember(&call{question: question{key: "b", name: "b"}, began: 100})
	for _, test := range []struct {
		now              time.Duration
		a, b, isAnswered bool
		stale            bool
	}{
		{now: 104, a: true, b: true, isAnswered: true, stale: true},
		{now: 105, a: true, b: false, isAnswered: true, stale: true},
		{now: 109, a: true, b: false, isAnswered: true, stale: true},
		{now: 110, a: false, b: false, isAnswered: false, stale: true},
		{now: 129, a: false, b: false, isAnswered: false, stale: true},
		{now: 130, a: false, b: false, isAnswered: false, stale: false},
	} {
		a := m.name("a", test.now) != nil
		name, isA := m.answer(question{key: "a", name: "a"}, test.now)
		_, isB := m.answer(question{key: "b", name: "b"}, test.now)
		_, isStale := m.stale("a", test.now)
		if a != test.a || isA != test.isAnswered || isA && name != "a" || isB != test.b || isStale != test.stale {
			t.Errorf("at %d: a %t, answered %t %q, b %t, stale %t", test.now, a, isA, name, isB, isStale)
		}
	}
	if name, _ := m.aliases.Peek("alias of a"); name != "a" {
		t.Errorf("the alias gives %q", name)
	}
}

func TestMemoryKeepsTheLaterAnswer(t *testing.T) {
	t.Parallel()
	m := testMemory()
	m.remember(&call{question: question{key: "a", name: "a"}, began: 8})
	m.remember(&call{question: question{kind: byAlias, key: "alias of a"}, name: "a", began: 7})
	if m.name("a", 9) != nil {
		t.Error("the earlier answer is remembered")
	}
	m.remember(&call{question: question{kind: byAlias, key: "alias of a"}, name: "a", began: 9})
	if m.name("a", 9) == nil || m.negatives.Len() != 0 {
		t.Error("the later answer is not remembered, or the negative one still is")
	}
	m.remember(&call{question: question{key: "a", name: "a"}, began: 10})
	if m.name("a", 10) != nil {
		t.Error("a name that is gone is remembered")
	}
}

func TestMemoryIsBoundedByKind(t *testing.T) {
	t.Parallel()
	m := testMemory()
	for i := range 10 {
		name, none := fmt.Sprint("name", i), fmt.Sprint("none", i)
		m.remember(&call{question: question{key: name, name: name}, name: name})
		m.remember(&call{question: question{key: none, name: none}})
		m.remember(&call{question: question{key: none + "!", name: none}})
	}
	if m.names.Len() != 2 || m.negatives.Len() != 2 || m.aliases.Len() != 2 || m.name("name9", 0) == nil {
		t.Errorf("%d names, %d negative answers, %d aliases", m.names.Len(), m.negatives.Len(), m.aliases.Len())
	}
	m.forget("name9")
	if m.name("name9", 0) != nil {
		t.Error("a forgotten name is remembered")
	}
	m.epoch.Add(1)
	if m.name("name8", 0) != nil {
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
