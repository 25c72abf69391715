package lookup

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

func TestTheQueueKeepsSlotsForRememberedNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(4)
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
		if !q.try() || q.try() || q.wait(known, time.Millisecond) {
			t.Error("a remembered name does not get the last slot, or gets another")
		}
		if slots, waiting := q.state(); slots != 4 || waiting != 0 {
			t.Errorf("%d slots, and %d wait", slots, waiting)
		}
		q.leave(unknown)
		if !q.wait(known, 0) || q.wait(unknown, time.Millisecond) {
			t.Error("more slots are taken than there are")
		}
		if q.notKnown != 2 || q.running != 4 {
			t.Errorf("%d, %d", q.notKnown, q.running)
		}
		if one := newQueue(1); !one.wait(unknown, 0) {
			t.Error("with one slot, unknown names have none")
		}
	})
}

func TestTheQueueLetsTheMostUrgentGoFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1)
		q.wait(known, 0)
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
		for _, c := range []class{unknown, returning, likely, known, unknown, known} {
			begin(c)
		}
		if _, waiting := q.state(); waiting != 6 {
			t.Errorf("%d wait", waiting)
		}
		q.leave(known)
		synctest.Wait()
		if want := []class{known, known, likely, returning, unknown, unknown}; !slices.Equal(order, want) {
			t.Errorf("%v; want %v", order, want)
		}
		// No class waits forever.
		order = nil
		q.wait(known, 0)
		for range numClasses * rotateEvery {
			begin(known)
			begin(unknown)
		}
		begin(returning)
		begin(likely)
		q.leave(known)
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
		q := newQueue(1)
		q.wait(known, 0)
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
		if _, waiting := q.state(); waiting != 0 || timedOut.Load() != maxWaiting {
			t.Errorf("%d wait, %d timed out", waiting, timedOut.Load())
		}
		if q.leave(known); q.running != 0 {
			t.Errorf("%d slots are taken", q.running)
		}
	})
}

// A slot that is granted in the moment of the timeout is neither lost nor used twice.
func TestASlotGrantedAtTheTimeoutIsNotLost(t *testing.T) {
	t.Parallel()
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(1)
			q.wait(known, 0)
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
				q.leave(known)
			})
			group.Wait()
			if _, waiting := q.state(); q.running != 0 || q.notKnown != 0 || waiting != 0 {
				t.Errorf("%d run, %d wait", q.running, waiting)
			}
		})
	}
}

// A modelSource answers after a time that grows with the lookups above its capacity.
type modelSource struct {
	*fake
	capacity int32
	delay    time.Duration
	most     atomic.Int32
}

func (m *modelSource) HasName(ctx context.Context, name string) (bool, error) {
	running := m.running.Add(1)
	defer m.running.Add(-1)
	m.most.Store(max(m.most.Load(), running))
	time.Sleep(m.delay * time.Duration(max(running, m.capacity)) / time.Duration(m.capacity))
	return true, nil
}

func TestTheLimitAdaptsToTheSource(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		capacity int32
		delay    time.Duration
		run      time.Duration
		min, max int
	}{
		{name: "fast", capacity: 1000, delay: 5 * time.Millisecond, run: 3 * time.Second, min: 64, max: 64},
		{name: "slow, but not overloaded", capacity: 1000, delay: 200 * time.Millisecond, run: 30 * time.Second, min: 64, max: 64},
		{name: "overloaded by more than 8", capacity: 8, delay: 20 * time.Millisecond, run: 30 * time.Second, min: 8, max: 48},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &modelSource{fake: newFake(), capacity: test.capacity, delay: test.delay}
				c := newTestCache(m, func(o *Options) { o.MaxConcurrent, o.MaxRate, o.MaxEntries = 64, 0, 10 })
				c.Find(t.Context(), "first")
				ctx, cancel := context.WithCancel(t.Context())
				var group sync.WaitGroup
				for worker := range 200 {
					group.Go(func() {
						for i := 0; ctx.Err() == nil; i++ {
							c.Find(ctx, fmt.Sprint(worker, "/", i))
							time.Sleep(time.Millisecond)
						}
					})
				}
				time.Sleep(test.run)
				if slots := c.Stats().Slots; slots < test.min || slots > test.max {
					t.Errorf("%d slots; want %d to %d", slots, test.min, test.max)
				}
				cancel()
				group.Wait()
			})
		})
	}
}

func TestTheLimitShrinksWhileLookupsFailAndGrowsAgain(t *testing.T) {
	t.Parallel()
	l := newLimit(64)
	if l.now() != first {
		t.Errorf("%d at first", l.now())
	}
	now := time.Duration(0)
	// run makes windows in which all slots are in use.
	run := func(windows int, took time.Duration, failed bool) {
		for range windows {
			now += time.Second // longer than any window
			l.isFull = true
			for range minSamples {
				l.finished(now, took, failed)
			}
		}
	}
	if run(1, time.Millisecond, false); l.now() != 2*first {
		t.Errorf("%d slots after a window", l.now())
	}
	if run(10, time.Millisecond, false); l.now() != 64 {
		t.Errorf("%d slots, though the source works", l.now())
	}
	if run(1, time.Millisecond, true); l.now() != 48 {
		t.Errorf("%d slots after a window of failures", l.now())
	}
	if run(100, time.Millisecond, true); l.now() != 4 {
		t.Errorf("%d slots after many", l.now())
	}
	if run(1, time.Millisecond, false); l.now() != 5 {
		t.Errorf("%d slots a window later", l.now())
	}
	run(100, time.Millisecond, false)
	if run(1, time.Millisecond+slack+slower*time.Millisecond, false); l.now() != 48 {
		t.Errorf("%d slots after a slow window", l.now())
	}
	// If the source has become slower for good, that is what it can do now.
	if run(1000, time.Second/2, false); l.now() != 64 {
		t.Errorf("%d slots", l.now())
	}
	l = newLimit(1)
	if run(10, time.Millisecond, true); l.now() != 1 {
		t.Errorf("%d slots of 1", l.now())
	}
	// Failures that are fast do not make the usual time look slow.
	l = newLimit(64)
	run(10, 50*time.Millisecond, false)
	run(5, time.Microsecond, true)
	if run(10, 50*time.Millisecond, false); l.best != 50*time.Millisecond || l.now() <= 4 {
		t.Errorf("best %v, %d slots", l.best, l.now())
	}
	// Without demand, the limit does not grow.
	l = newLimit(64)
	for range 100 * minSamples {
		now += minWindow
		l.finished(now, time.Millisecond, false)
	}
	if l.now() != first {
		t.Errorf("%d slots", l.now())
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
	remembered := 0
	for i := range 100_000 {
		if r.isReturning(fmt.Sprint(i), at+period) {
			remembered++
		}
		if r.isReturning(fmt.Sprint("other", i), at+period) {
			mistaken++
		}
	}
	if remembered < 90_000 || mistaken > 5 {
		t.Errorf("%d of 100,000 are remembered; %d others are taken for one", remembered, mistaken)
	}
}

// A client that is rejected because of load goes first when it comes again.
func TestAReturningNameGoesBeforeInventedOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("honest", "likely")
		f.delay = 100 * time.Millisecond
		c := newTestCache(f, func(o *Options) { o.MaxConcurrent, o.MaxRate = 4, 0 })
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				group.Go(func() { c.Find(ctx, fmt.Sprint("invented", i)) })
				time.Sleep(time.Millisecond / 10)
			}
		})
		time.Sleep(1550 * time.Millisecond) // the queue is full, and no slot becomes free now
		if r := c.Find(t.Context(), "honest"); !errors.Is(r.Err, ErrBusy) {
			t.Errorf("%+v", r)
		}
		time.Sleep(1100 * time.Millisecond)
		for _, name := range []string{"honest", "likely"} {
			if r := c.Find(t.Context(), name); r.Name != name {
				t.Errorf("%s: %+v", name, r)
			}
		}
		cancel()
		group.Wait()
	})
}

// Lookups that wait for a slot and get none take no token of the rate limit.
func TestTheRateLimitCountsWhatReachesTheSource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.delay = 900 * time.Millisecond
		c := newTestCache(f, func(o *Options) { o.MaxConcurrent, o.MaxRate = 1, 100 })
		var group sync.WaitGroup
		for i := range 50 {
			group.Go(func() { c.Find(t.Context(), fmt.Sprint("slow", i)) })
		}
		group.Wait()
		f.set(func() { f.delay = 0 })
		for i := range 10 {
			if r := c.Find(t.Context(), fmt.Sprint("fast", i)); r.Err != nil {
				t.Errorf("%d: %+v", i, r)
			}
		}
		if s := c.Stats(); s.RateLimited != 0 || s.Busy < 40 {
			t.Errorf("%+v", s)
		}
	})
}

// A shard that hangs or fails does not affect names in other shards. By its alias, a name is
// found in two steps, each in the shard that it belongs to.
func TestAShardThatHangsAffectsNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &shardedFake{fake: newFake("shard0/a", "shard1/a", "shard2/a")}
		c := newTestCache(f, func(o *Options) { o.MaxConcurrent, o.MaxRate, o.Shards = 2, 0, 3 })
		if r := c.FindByAlias(t.Context(), "@shard2/a"); r.Name != "shard2/a" || f.count("shard2/a") != 1 {
			t.Errorf("%+v, %d lookups by name", r, f.count("shard2/a"))
		}
		f.hangs.Store(1)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				group.Go(func() { c.Find(ctx, fmt.Sprint("shard1/", i)) })
				time.Sleep(time.Millisecond)
			}
		})
		time.Sleep(3 * time.Second)
		for i := range 100 {
			name := fmt.Sprint("shard2/", i)
			f.set(func() { f.names[name] = true })
			begun := time.Now()
			for _, find := range []func() Result{
				func() Result { return c.FindByAlias(t.Context(), "@"+name) },
				func() Result { return c.Find(t.Context(), name) },
			} {
				if r := find(); r != (Result{Name: name}) || time.Since(begun) > 0 {
					t.Errorf("%+v after %v", r, time.Since(begun))
				}
			}
		}
		cancel()
		group.Wait()
		// A name that was revoked after its alias was read is not found.
		f.set(func() { f.names["shard2/late"] = false })
		if r := c.FindByAlias(t.Context(), "@shard2/late"); r != (Result{}) {
			t.Errorf("%+v", r)
		}
		if r := c.FindByAlias(t.Context(), "@shard2/late"); r != (Result{}) {
			t.Errorf("%+v", r)
		}
	})
}

// A shardedFake answers by alias without checking that the name exists.
type shardedFake struct {
	*fake
	hangs atomic.Int32 // the shard that does not answer; 0 if all do
}

func (f *shardedFake) HasName(ctx context.Context, name string) (bool, error) {
	if n := f.hangs.Load(); n != 0 && f.Shard(name) == int(n) {
		<-ctx.Done()
		return false, ctx.Err()
	}
	return f.fake.HasName(ctx, name)
}

func (f *shardedFake) NameByAlias(_ context.Context, alias string) (string, error) {
	return alias[1:], nil
}

func TestANameThatIsAbsentIsNotLookedUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("absent", "other")
		c := newTestCache(f)
		for _, r := range []Result{c.Find(t.Context(), "absent"), c.FindByAlias(t.Context(), "@absent")} {
			if r != (Result{}) {
				t.Errorf("%+v", r)
			}
		}
		if s := c.Stats(); s.Absent != 2 || s.Lookups != 0 || s.Negatives != 0 || f.count("absent") != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A source that panics in a hint does not lock the Cache.
func TestAPanicInAHintLocksNothing(t *testing.T) {
	t.Parallel()
	c := newTestCache(newFake("other"))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		c.Find(t.Context(), "panic")
	}()
	if r := c.Find(t.Context(), "other"); r != (Result{Name: "other"}) {
		t.Errorf("%+v", r)
	}
}
