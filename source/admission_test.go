package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func newTestQueue(slots int) *queue { return &queue{slots: slots} }

func TestTheQueueKeepsSlotsForRememberedNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(4)
		for _, c := range []class{likely, returning, unknown} {
			if !q.wait(c, 0) {
				t.Fatal("no slot")
			}
		}
		for _, c := range []class{likely, returning, unknown} {
			if q.wait(c, time.Millisecond) {
				t.Errorf("class %d has the last slot", c)
			}
		}
		if !q.try() || q.try() || q.wait(remembered, time.Millisecond) {
			t.Error("a remembered name does not get the last slot, or gets another")
		}
		if n := q.numWaiting(); n != 0 {
			t.Errorf("%d wait", n)
		}
		q.leave(unknown)
		if !q.wait(remembered, 0) || q.wait(unknown, time.Millisecond) {
			t.Error("more slots are taken than there are")
		}
		if q.unfamiliar != 2 || q.running != 4 {
			t.Errorf("%d, %d", q.unfamiliar, q.running)
		}
		if one := newTestQueue(1); !one.wait(unknown, 0) {
			t.Error("with one slot, unknown names have none")
		}
	})
}

func TestTheQueueLetsTheMostUrgentGoFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(1)
		q.wait(remembered, 0)
		var order []class
		begin := func(c class) {
			go func() {
				if q.wait(c, time.Minute) {
					order = append(order, c)
					q.leave(c)
				}
			}()
			synctest.Wait()
		}
		for _, c := range []class{unknown, returning, likely, remembered, unknown, remembered} {
			begin(c)
		}
		if waiting := q.numWaiting(); waiting != 6 {
			t.Errorf("%d wait", waiting)
		}
		q.leave(remembered)
		synctest.Wait()
		if want := []class{remembered, remembered, likely, returning, unknown, unknown}; !slices.Equal(order, want) {
			t.Errorf("%v; want %v", order, want)
		}
		// No class waits forever.
		order = nil
		q.wait(remembered, 0)
		for range numClasses * rotateEvery {
			begin(remembered)
			begin(unknown)
		}
		begin(returning)
		begin(likely)
		q.leave(remembered)
		synctest.Wait()
		for c := range numClasses {
			if at := slices.Index(order, c); at < 0 || at >= 3*rotateEvery {
				t.Errorf("a lookup of class %d waited behind %d others", c, at)
			}
		}
	})
}

func TestTheQueueIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(1)
		q.wait(remembered, 0)
		var timedOut atomic.Int32
		for range maxWaiting {
			go func() {
				if !q.wait(unknown, time.Second) {
					timedOut.Add(1)
				}
			}()
		}
		synctest.Wait()
		begun := time.Now()
		if q.wait(unknown, time.Second) || time.Since(begun) != 0 {
			t.Error("one more waits")
		}
		time.Sleep(2 * time.Second)
		if waiting := q.numWaiting(); waiting != 0 || timedOut.Load() != maxWaiting {
			t.Errorf("%d wait, %d timed out", waiting, timedOut.Load())
		}
		if q.leave(remembered); q.running != 0 {
			t.Errorf("%d slots are taken", q.running)
		}
	})
}

// A slot that is granted in the moment of the timeout is neither lost nor used twice.
func TestASlotGrantedAtTheTimeoutIsNotLost(t *testing.T) {
	t.Parallel()
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			q := newTestQueue(1)
			q.wait(remembered, 0)
			var group sync.WaitGroup
			for range 50 {
				group.Go(func() {
					if q.wait(unknown, time.Second) {
						q.leave(unknown)
					}
				})
			}
			group.Go(func() {
				time.Sleep(time.Second)
				q.leave(remembered)
			})
			group.Wait()
			if waiting := q.numWaiting(); q.running != 0 || q.unfamiliar != 0 || waiting != 0 {
				t.Errorf("%d run, %d wait", q.running, waiting)
			}
		})
	}
}

func TestARejectedKeyIsReturningForAWhile(t *testing.T) {
	t.Parallel()
	var r rejections
	if r.isReturning("a", 0) {
		t.Error("returning, but it was not rejected")
	}
	const at = 300 * period
	r.add("a", at)
	for periods, want := range map[time.Duration]bool{0: false, 1: true, maxPeriods: true, maxPeriods + 1: false} {
		if r.isReturning("a", at+periods*period) != want {
			t.Errorf("after %d periods: %t", periods, !want)
		}
	}
	mistaken := 0
	for i := range 100_000 {
		r.add(fmt.Sprint(i), at)
	}
	kept := 0
	for i := range 100_000 {
		if r.isReturning(fmt.Sprint(i), at+period) {
			kept++
		}
		if r.isReturning(fmt.Sprint("other", i), at+period) {
			mistaken++
		}
	}
	if kept < 90_000 || mistaken > 5 {
		t.Errorf("%d of 100,000 are remembered; %d others are taken for one", kept, mistaken)
	}
}

// In a flood, a client that was rejected goes first when it comes again, and a remembered publisher
// finds a slot at once.
func TestAReturningNameGoesBeforeInventedOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("honest", "likely", "known")
		f.delay = 100 * time.Millisecond
		c := newTestSource(t, f.source(), func(o *Config) { o.TTL, o.MaxConcurrent = time.Second, 4 })
		c.Find(t.Context(), "known")
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				group.Go(func() { c.Find(ctx, fmt.Sprint("invented", i)) })
				time.Sleep(5 * time.Millisecond) // many more would make it likely that the rejection is forgotten
			}
		})
		time.Sleep(1550 * time.Millisecond) // no slot becomes free when all before it have left the queue
		if r := c.Find(t.Context(), "honest"); !errors.Is(r.Err, ErrBusy) {
			t.Errorf("%+v", r)
		}
		time.Sleep(1100 * time.Millisecond)
		for _, name := range []string{"honest", "likely"} {
			if r := c.Find(t.Context(), name); r.Publisher != name {
				t.Errorf("%s: %+v", name, r)
			}
		}
		begun := time.Now()
		if r := c.Find(t.Context(), "known"); r != (Answer{Publisher: "known"}) || time.Since(begun) != f.delay {
			t.Errorf("after %v: %+v", time.Since(begun), r)
		}
		cancel()
		group.Wait()
	})
}

func TestLookupsThatWaitForASlotEndWhenTheBreakerOpens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.delay, f.err = 10*time.Millisecond, errDown
		c := newTestSource(t, f.source(), func(o *Config) { o.MaxConcurrent = 1 })
		var group sync.WaitGroup
		for i := range 100 {
			group.Go(func() {
				if r := c.Find(t.Context(), fmt.Sprint(i)); !errors.Is(r.Err, errDown) {
					t.Errorf("%+v", r)
				}
			})
		}
		group.Wait()
		if s := c.Stats(); s.Lookups != failuresToOpen || s.CircuitOpen != 100-failuresToOpen {
			t.Errorf("%+v", s)
		}
		f.set(func() { f.err = nil })
		time.Sleep(openFor - 1)
		if r := c.Find(t.Context(), "early"); !errors.Is(r.Err, ErrCircuitOpen) {
			t.Errorf("%+v", r)
		}
		time.Sleep(time.Nanosecond)
		for i := range 10 { // one finds out whether the source works again
			group.Go(func() { c.Find(t.Context(), fmt.Sprint("again", i)) })
		}
		group.Wait()
		if s := c.Stats(); s.Lookups != failuresToOpen+1 {
			t.Errorf("%+v", s)
		}
		if r := c.Find(t.Context(), "other"); r != (Answer{}) { // and no slot is lost
			t.Errorf("%+v", r)
		}
	})
}

// Invented names evict no publisher.
func TestInventedNamesEvictNoPublisher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size = 100
		f := newFake()
		c := newTestSource(t, f.source(), func(o *Config) { o.MaxEntries, o.TTL, o.MaxStale = size, time.Hour, time.Hour })
		good := func(i int) string { return fmt.Sprint("good", i) }
		for i := range size {
			f.names[good(i)] = true
			c.Find(t.Context(), good(i))
		}
		for i := range 20_000 {
			if r := c.Find(t.Context(), fmt.Sprint("invented", i)); r != (Answer{}) {
				t.Fatalf("%+v", r)
			}
		}
		if s := c.Stats(); s.Publishers != size || s.Negatives > size {
			t.Errorf("%+v", s)
		}
		for i := range size {
			if _, ok := c.Get(good(i)); !ok {
				t.Errorf("%s is not remembered", good(i))
			}
		}
	})
}

// A shard that hangs or fails does not affect names in other shards. By its hash prefix, a
// publisher is found in two steps, each in the shard that it belongs to.
func TestAShardThatHangsAffectsNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("shard0-a", "shard1-a", "shard2-a")
		var hangs atomic.Int32 // the shard that does not answer; 0 if all do
		c := newTestSource(t, Database{
			PublisherByDomain: confirms(func(ctx context.Context, domain string) (bool, error) {
				if n := hangs.Load(); n != 0 && shardOf(domain) == int(n) {
					<-ctx.Done()
					return false, ctx.Err()
				}
				return f.has(ctx, nameOf(domain))
			}),
			// It does not check that the publisher exists.
			PublisherByHash: func(_ context.Context, prefix string) (string, error) { return domainOf(nameOf(prefix)), nil },
			Shards:          3,
			Shard:           shardOf,
		}, func(o *Config) { o.MaxConcurrent = 2 })
		if r := c.Find(t.Context(), "@shard2-a"); r.Publisher != "shard2-a" || f.count("shard2-a") != 1 {
			t.Errorf("%+v, %d lookups by name", r, f.count("shard2-a"))
		}
		hangs.Store(1)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				group.Go(func() { c.Find(ctx, fmt.Sprint("shard1-", i)) })
				time.Sleep(time.Millisecond)
			}
		})
		time.Sleep(3 * time.Second)
		for i := range 100 {
			name := fmt.Sprint("shard2-", i)
			f.set(func() { f.names[name] = true })
			begun := time.Now()
			for _, find := range []func() Answer{
				func() Answer { return c.Find(t.Context(), "@"+name) },
				func() Answer { return c.Find(t.Context(), name) },
			} {
				if r := find(); r != (Answer{Publisher: name}) || time.Since(begun) > 0 {
					t.Errorf("%+v after %v", r, time.Since(begun))
				}
			}
		}
		cancel()
		group.Wait()
		if c.Stats().Errors == 0 {
			t.Error("no shard hangs")
		}
		// A publisher that was revoked after its hash prefix was read is not found.
		f.set(func() { f.names["shard2-late"] = false })
		for range 2 {
			if r := c.Find(t.Context(), "@shard2-late"); r != (Answer{}) {
				t.Errorf("%+v", r)
			}
		}
	})
}

// A source that panics in IsLikely does not lock the Source.
func TestAPanicInIsLikelyLocksNothing(t *testing.T) {
	t.Parallel()
	c := newTestSource(t, newFake("other").source())
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		c.Find(t.Context(), "panic")
	}()
	if r := c.Find(t.Context(), "other"); r != (Answer{Publisher: "other"}) {
		t.Errorf("%+v", r)
	}
}
