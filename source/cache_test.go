package source

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors/internal/dns"
)

// A fake is a database. In these tests, "a" is the publisher a.example, and "@a" is its hash
// prefix.
type fake struct {
	mu      sync.Mutex
	names   map[string]bool
	err     error
	delay   time.Duration
	deaf    bool // it ignores its context
	lookups map[string]int
	running atomic.Int32
}

func newFake(names ...string) *fake {
	f := &fake{names: make(map[string]bool), lookups: make(map[string]int)}
	for _, name := range names {
		f.names[name] = true
	}
	return f
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lookups[name]
}

func (f *fake) has(ctx context.Context, name string) (bool, error) {
	f.running.Add(1)
	defer f.running.Add(-1)
	f.mu.Lock()
	f.lookups[name]++
	ok, err, delay, deaf := f.names[name], f.err, f.delay, f.deaf
	f.mu.Unlock()
	if delay > 0 && deaf {
		time.Sleep(delay)
	} else if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return ok, err
}

func (f *fake) source() Source {
	return Source{
		HasPublisher: func(ctx context.Context, domain string) (bool, error) { return f.has(ctx, nameOf(domain)) },
		PublisherByHash: func(ctx context.Context, prefix string) (string, error) {
			if ok, err := f.has(ctx, nameOf(prefix)); !ok {
				return "", err
			}
			return domainOf(nameOf(prefix)), nil
		},
		Hint: func(key string) Hint {
			switch name := nameOf(key); {
			case strings.Contains(name, "likely"):
				return LikelyPublisher
			case strings.Contains(name, "absent"):
				return NotPublisher
			case strings.Contains(name, "panic"):
				panic("a defect")
			}
			return NoHint
		},
	}
}

// shardOf returns the shard of a name such as "shard2-a"; 0 for others.
func shardOf(key string) int {
	shard := 0
	_, _ = fmt.Sscanf(nameOf(key), "shard%d-", &shard)
	return shard
}

func domainOf(name string) string { return name + ".example" }

var hashed sync.Map // names by hash prefix

// nameOf returns the name of a key.
func nameOf(key string) string {
	if name, ok := hashed.Load(key); ok {
		return name.(string)
	}
	return strings.TrimSuffix(key, ".example")
}

// keyOf returns the key for "a" or "@a".
func keyOf(name string) string {
	name, isHash := strings.CutPrefix(name, "@")
	key := domainOf(name)
	if isHash {
		key = dns.Hash(key)
		hashed.Store(key, name)
	}
	return key
}

var testOptions = Options{
	TTL: time.Minute, NegativeTTL: 10 * time.Second, MaxStale: 10 * time.Minute, Timeout: time.Second,
	MaxConcurrent: 16, MaxRate: 1000, MaxEntries: 1000,
}

// A testCache is a Cache that is asked for "a" and "@a".
type testCache struct{ *Cache }

func newTestCache(t testing.TB, s Source, change ...func(*Options)) testCache {
	t.Helper()
	options := testOptions
	for _, f := range change {
		f(&options)
	}
	c, err := New(s, options)
	if err != nil {
		t.Fatal(err)
	}
	return testCache{c}
}

func (c testCache) Find(ctx context.Context, name string) Answer {
	find := c.Cache.Find
	if strings.HasPrefix(name, "@") {
		find = c.FindByHash
	}
	a := find(ctx, keyOf(name))
	a.Publisher = nameOf(a.Publisher)
	return a
}

func (c testCache) Get(name string) (string, bool) {
	get := c.Remembered
	if strings.HasPrefix(name, "@") {
		get = c.RememberedByHash
	}
	domain, ok := get(keyOf(name))
	return nameOf(domain), ok
}

func TestFindAsksOnceAndGetRemembers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		c := newTestCache(t, f.source())
		if _, ok := c.Get("a"); ok {
			t.Error("remembered before it was asked for")
		}
		for range 2 {
			if r := c.Find(t.Context(), "a"); r != (Answer{Publisher: "a"}) {
				t.Errorf("%+v", r)
			}
			if r := c.Find(t.Context(), "@a"); r != (Answer{Publisher: "a"}) {
				t.Errorf("%+v", r)
			}
			if r := c.Find(t.Context(), "@b"); r != (Answer{}) {
				t.Errorf("%+v", r)
			}
		}
		for _, get := range []func() (string, bool){func() (string, bool) { return c.Get("a") }, func() (string, bool) { return c.Get("@a") }} {
			if name, ok := get(); name != "a" || !ok {
				t.Errorf("%q, %t", name, ok)
			}
		}
		if s := c.Stats(); s.Lookups != 3 || s.Publishers != 1 || s.Negatives != 1 || s.Prefixes != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// In steady traffic no request waits for the source, however long each lookup takes. There
// are 1 to 1.5 lookups in each TTL.
func TestNoRequestWaitsForANameInUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		f.delay = 900 * time.Millisecond
		c := newTestCache(t, f.source())
		c.Find(t.Context(), "a")
		const minutes = 60
		for range minutes * 60 * 10 {
			time.Sleep(100 * time.Millisecond)
			if name, ok := c.Get("a"); !ok || name != "a" {
				t.Fatalf("after %v: %q, %t", c.now(), name, ok)
			}
		}
		time.Sleep(time.Second) // a refresh may run
		s := c.Stats()
		if s.Refreshes != s.Lookups-1 || s.Lookups < minutes || s.Lookups > minutes*10/7+2 {
			t.Errorf("%+v", s)
		}
		// A refresh also notices that a name is gone.
		f.set(func() { delete(f.names, "a") })
		for range 60 * 10 {
			time.Sleep(100 * time.Millisecond)
			c.Get("a")
		}
		if _, ok := c.Get("a"); ok {
			t.Error("the name was removed a TTL ago")
		}
		time.Sleep(time.Second)
	})
}

func TestAFailedRefreshIsRetriedAndDelaysNoRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		c := newTestCache(t, f.source())
		c.Find(t.Context(), "a")
		f.set(func() { f.err = errDown })
		for range 59 * 10 { // until nearly the end of the TTL
			time.Sleep(100 * time.Millisecond)
			if _, ok := c.Get("a"); !ok {
				t.Fatalf("after %v, not remembered", c.now())
			}
		}
		synctest.Wait()
		if s := c.Stats(); s.Refreshes < 2 || s.Refreshes > refreshRetries*3/10+1 || s.Errors != s.Refreshes {
			t.Errorf("%+v", s)
		}
		f.set(func() { f.err = nil })
		time.Sleep(4 * time.Second)
		if r := c.Find(t.Context(), "a"); r != (Answer{Publisher: "a"}) {
			t.Errorf("%+v", r)
		}
	})
}

func TestARefreshDoesNotWaitForASlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a", "b")
		c := newTestCache(t, f.source(), func(o *Options) { o.MaxConcurrent = 1 })
		c.Find(t.Context(), "a")
		time.Sleep(55 * time.Second)
		f.set(func() { f.delay = 500 * time.Millisecond })
		go c.Find(t.Context(), "b")
		synctest.Wait()
		if _, ok := c.Get("a"); !ok {
			t.Error("not remembered")
		}
		synctest.Wait()
		if n := f.count("a"); n != 1 {
			t.Errorf("asked %d times, though there was no slot", n)
		}
		time.Sleep(4 * time.Second) // it is tried again after a twentieth of the TTL
		c.Get("a")
		time.Sleep(time.Second)
		if n := f.count("a"); n != 2 {
			t.Errorf("asked %d times", n)
		}
	})
}

func TestCacheRecoversFromAPanicInARefresh(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var isCalm atomic.Bool
		isCalm.Store(true)
		c := newTestCache(t, Source{HasPublisher: func(context.Context, string) (bool, error) {
			if !isCalm.Load() {
				panic("a defect")
			}
			return true, nil
		}}, func(o *Options) { o.MaxConcurrent = 1 })
		c.Find(t.Context(), "a")
		isCalm.Store(false)
		time.Sleep(55 * time.Second)
		c.Get("a")
		synctest.Wait()
		if s := c.Stats(); s.Errors != 1 || s.Refreshes != 1 {
			t.Errorf("%+v", s)
		}
		time.Sleep(10 * time.Second)
		isCalm.Store(true)
		if r := c.Find(t.Context(), "a"); r != (Answer{Publisher: "a"}) { // the slot is free
			t.Errorf("%+v", r)
		}
	})
}

// Each kind of lookup has a breaker: remembered publishers, other domains, hash prefixes.
func TestAFailureStopsOnlyItsClass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("known", "new")
		c := newTestCache(t, f.source())
		c.Find(t.Context(), "known")
		f.set(func() { f.err = errDown })
		for i := range 12 {
			if r := c.Find(t.Context(), fmt.Sprint("@unknown", i)); r.Err == nil {
				t.Errorf("%+v", r)
			}
		}
		f.set(func() { f.err = nil })
		if r := c.Find(t.Context(), "@any"); !errors.Is(r.Err, ErrCircuitOpen) || !errors.Is(r.Err, errDown) {
			t.Errorf("the breaker of hash prefixes is not open: %+v", r)
		}
		if r := c.Find(t.Context(), "new"); r != (Answer{Publisher: "new"}) {
			t.Errorf("by name: %+v", r)
		}
		time.Sleep(time.Minute)
		f.set(func() { f.err = errDown })
		for i := range 12 {
			c.Find(t.Context(), fmt.Sprint("unknown", i))
			c.Find(t.Context(), fmt.Sprint("@unknown", i))
		}
		f.set(func() { f.err = nil })
		if r := c.Find(t.Context(), "another"); !errors.Is(r.Err, ErrCircuitOpen) {
			t.Errorf("the breaker of unknown names is not open: %+v", r)
		}
		if r := c.Find(t.Context(), "known"); r != (Answer{Publisher: "known"}) {
			t.Errorf("a remembered name: %+v", r)
		}
	})
}

func TestAfterARecoveryTheKeyThatFailedLastIsAskedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a", "b")
		c := newTestCache(t, f.source())
		f.set(func() { f.err = errDown })
		c.Find(t.Context(), "b")
		if r := c.Find(t.Context(), "b"); !errors.Is(r.Err, ErrCircuitOpen) || f.count("b") != 1 {
			t.Errorf("asked for again at once: %+v", r)
		}
		f.set(func() { f.err = nil })
		if r := c.Find(t.Context(), "a"); r.Publisher != "a" {
			t.Errorf("%+v", r)
		}
		if r := c.Find(t.Context(), "b"); r.Publisher != "b" {
			t.Errorf("the source works again, but %+v", r)
		}
	})
}

func TestErrorsSayWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.delay = time.Hour
		c := newTestCache(t, f.source(), func(o *Options) { o.MaxConcurrent = 1 })
		if r := c.Find(t.Context(), "slow"); !errors.Is(r.Err, ErrTimeout) || !errors.Is(r.Err, context.DeadlineExceeded) {
			t.Errorf("%+v", r)
		}
		for _, name := range []string{"first", "second"} {
			go c.Find(t.Context(), name)
			time.Sleep(100 * time.Millisecond) // the second has its slot before the third's time is over
		}
		if r := c.Find(t.Context(), "third"); !errors.Is(r.Err, ErrBusy) {
			t.Errorf("%+v", r)
		}
		time.Sleep(time.Minute)

		c = newTestCache(t, newFake().source(), func(o *Options) { o.MaxRate = 10 })
		for i := range 3 {
			if r := c.Find(t.Context(), fmt.Sprint(i)); errors.Is(r.Err, ErrRateLimited) != (i == 2) {
				t.Errorf("lookup %d: %+v", i, r)
			}
		}
		if s := c.Stats(); s.RateLimited != 1 || s.Lookups != 2 {
			t.Errorf("%+v", s)
		}
	})
}

func TestCloseEndsARefresh(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		c := newTestCache(t, f.source())
		c.Find(t.Context(), "a")
		f.set(func() { f.delay = 900 * time.Millisecond })
		time.Sleep(55 * time.Second)
		c.Get("a")
		synctest.Wait()
		if f.running.Load() != 1 {
			t.Fatal("no refresh")
		}
		c.Close()
		synctest.Wait()
		if f.running.Load() != 0 {
			t.Error("the refresh goes on")
		}
		f.set(func() { f.delay = 0 })
		time.Sleep(3500 * time.Millisecond)
		c.Get("a")
		synctest.Wait()
		if n := f.count("a"); n != 2 {
			t.Errorf("a closed cache refreshes: asked %d times", n)
		}
		for _, name := range []string{"a", "b", "@a", "@b"} { // nothing stale either
			if r := c.Find(t.Context(), name); r != (Answer{Err: ErrClosed}) || f.count("b") != 0 {
				t.Errorf("%s: %+v", name, r)
			}
		}
	})
}

func TestNoOtherCallerWaitsForASourceThatIgnoresItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		c := newTestCache(t, f.source())
		f.delay, f.deaf = time.Hour, true
		go c.Find(t.Context(), "a")
		synctest.Wait()
		begun := time.Now()
		if r := c.Find(t.Context(), "a"); r.Err != ErrTimeout || time.Since(begun) != 2*testOptions.Timeout {
			t.Errorf("after %v: %+v", time.Since(begun), r)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("the client is gone")
		cancel(gone)
		if r := c.Find(ctx, "a"); r.Err != gone {
			t.Errorf("%+v", r)
		}
		time.Sleep(2 * time.Hour)
	})
}

// TestUnderLoad is for the race detector.
func TestUnderLoad(t *testing.T) {
	t.Parallel()
	f := newFake("a", "b", "c")
	c := newTestCache(t, f.source(), func(o *Options) {
		o.TTL, o.MaxStale, o.MaxRate, o.MaxEntries = time.Millisecond, time.Second, 1_000_000, 2
	})
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) * 4 {
		group.Go(func() {
			for i := range 2000 {
				name := string(rune('a' + i%4))
				switch i % 7 {
				case 0:
					_ = c.Forget(keyOf(name))
				case 1:
					c.forgetAll()
				case 2:
					if r := c.Find(t.Context(), "@"+name); r.Publisher != "" && r.Publisher != name {
						t.Errorf("%q is %q", name, r.Publisher)
					}
				case 3:
					if got, ok := c.Get("@" + name); ok && got != name {
						t.Errorf("%q is %q", name, got)
					}
				case 4:
					c.Stats()
				default:
					if r := c.Find(t.Context(), name); (r.Publisher != "") != (name != "d") && r.Err == nil {
						t.Errorf("%q is %+v", name, r)
					}
					c.Get(name)
				}
			}
		})
	}
	group.Wait()
	c.Close()
}

// If many requests notice together that a name expires soon, one of them refreshes it.
func TestANameIsRefreshedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		c := newTestCache(t, f.source())
		c.Find(t.Context(), "a")
		f.set(func() { f.delay = 100 * time.Millisecond })
		time.Sleep(55 * time.Second)
		for range 100 {
			go c.refresh(keyOf("a"))
		}
		time.Sleep(time.Second)
		c.refresh(keyOf("a"))
		synctest.Wait()
		if n := f.count("a"); n != 2 {
			t.Errorf("asked %d times", n)
		}
		// It is not refreshed while the breaker is open.
		time.Sleep(55 * time.Second)
		c.shards[0].publishers = breaker{failures: failuresToOpen, until: c.now() + time.Hour, err: ErrCircuitOpen}
		if _, ok := c.Get("a"); !ok {
			t.Error("not remembered")
		}
		synctest.Wait()
		if n := f.count("a"); n != 2 || c.shards[0].queue.running != 0 {
			t.Errorf("asked %d times, %d slots taken", n, c.shards[0].queue.running)
		}
	})
}

// After a notification without domains, everything is asked for again. What is remembered is served if that fails.
func TestForgetAllExpiresEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		c := newTestCache(t, f.source())
		c.Find(t.Context(), "a")
		c.Find(t.Context(), "b")
		c.forgetAll()
		if _, ok := c.Get("a"); ok {
			t.Error("a is still fresh")
		}
		f.set(func() { f.err = errors.New("down") })
		if r := c.Find(t.Context(), "a"); r.Publisher != "a" || !r.Stale {
			t.Errorf("%+v", r)
		}
		f.set(func() { f.err, f.names = nil, map[string]bool{"b": true} })
		time.Sleep(5 * time.Second) // longer than any backoff
		if a, b := c.Find(t.Context(), "a"), c.Find(t.Context(), "b"); a.Publisher != "" || b.Publisher != "b" {
			t.Errorf("%+v, %+v", a, b)
		}
	})
}

// A wrong answer is an error of the lookup. It opens no circuit breaker, because the source answers.
func TestABadAnswerIsAnErrorAndOpensNoBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		asked := f.source()
		asked.PublisherByHash = func(context.Context, string) (string, error) { return "", ErrBadAnswer }
		c := newTestCache(t, asked)
		for i := range 10 {
			if r := c.Find(t.Context(), fmt.Sprintf("@a%d", i)); !errors.Is(r.Err, ErrBadAnswer) {
				t.Errorf("%d: %+v", i, r)
			}
		}
		if s := c.Stats(); s.Lookups != 10 || s.Errors != 10 {
			t.Errorf("%+v", s)
		}
	})
}
