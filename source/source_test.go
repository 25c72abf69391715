package source

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors/internal/prefixes"
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

// confirms returns a lookup that finds the domains for which has is true.
func confirms(has func(context.Context, string) (bool, error)) func(context.Context, string) (string, error) {
	return func(ctx context.Context, domain string) (string, error) {
		ok, err := has(ctx, domain)
		if !ok {
			return "", err
		}
		return domain, err
	}
}

func (f *fake) source() Database {
	return Database{
		PublisherByDomain: confirms(func(ctx context.Context, domain string) (bool, error) { return f.has(ctx, nameOf(domain)) }),
		PublisherByHash: func(ctx context.Context, prefix string) (string, error) {
			if ok, err := f.has(ctx, nameOf(prefix)); !ok {
				return "", err
			}
			return domainOf(nameOf(prefix)), nil
		},
		IsLikely: func(key string) bool {
			if strings.Contains(nameOf(key), "panic") {
				panic("a defect")
			}
			return strings.Contains(nameOf(key), "likely")
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
		key = prefixes.Hash(key)
		hashed.Store(key, name)
	}
	return key
}

var testOptions = Config{
	TTL: time.Minute, NegativeTTL: 10 * time.Second, MaxStale: 10 * time.Minute, Timeout: time.Second,
	MaxConcurrent: 16, MaxEntries: 1000,
}

// A testSource is a Source that is asked for "a" and "@a".
type testSource struct{ *Source }

func newTestSource(t testing.TB, s Database, change ...func(*Config)) testSource {
	t.Helper()
	options := testOptions
	for _, f := range change {
		f(&options)
	}
	c, err := New(s, options)
	if err != nil {
		t.Fatal(err)
	}
	return testSource{c}
}

func (c testSource) Find(ctx context.Context, name string) Answer {
	find := c.Source.Find
	if strings.HasPrefix(name, "@") {
		find = c.FindByHash
	}
	a := find(ctx, keyOf(name))
	a.Publisher = nameOf(a.Publisher)
	return a
}

func (c testSource) Get(name string) (string, bool) {
	get := c.Remembered
	if strings.HasPrefix(name, "@") {
		get = c.RememberedByHash
	}
	domain, ok := get(keyOf(name))
	return nameOf(domain), ok
}

// In steady traffic no request waits for the source, however long each lookup takes. There
// are 1 to 1.5 lookups in each TTL.
func TestNoRequestWaitsForANameInUse(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "@a"} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake("a")
			f.delay = 900 * time.Millisecond
			c := newTestSource(t, f.source())
			c.Find(t.Context(), name)
			const minutes = 60
			for range minutes * 60 * 10 {
				time.Sleep(100 * time.Millisecond)
				if got, ok := c.Get(name); !ok || got != "a" {
					t.Fatalf("%s after %v: %q, %t", name, c.now(), got, ok)
				}
			}
			time.Sleep(time.Second) // a refresh may run
			s := c.Stats()
			if s.Refreshes != s.Lookups-1 || s.Lookups < minutes || s.Lookups > minutes*10/7+2 {
				t.Errorf("%s: %+v", name, s)
			}
			// A refresh also notices that a name is gone.
			f.set(func() { delete(f.names, "a") })
			for range 60 * 10 {
				time.Sleep(100 * time.Millisecond)
				c.Get(name)
			}
			if _, ok := c.Get(name); ok {
				t.Errorf("%s was removed a TTL ago", name)
			}
			time.Sleep(time.Second)
		})
	}
}

func TestAFailedRefreshIsRetriedAndDelaysNoRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		c := newTestSource(t, f.source())
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
		c := newTestSource(t, f.source(), func(o *Config) { o.MaxConcurrent = 1 })
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

// Each kind of lookup has a breaker: remembered publishers, other domains, hash prefixes.
func TestAFailureStopsOnlyItsClass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("known", "new")
		c := newTestSource(t, f.source())
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
		c := newTestSource(t, f.source())
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

func TestCloseEndsARefresh(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		c := newTestSource(t, f.source())
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
			t.Errorf("a closed Source refreshes: asked %d times", n)
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
		c := newTestSource(t, f.source())
		f.delay, f.deaf = time.Hour, true
		go c.Find(t.Context(), "a")
		synctest.Wait()
		begun := time.Now()
		if r := c.Find(t.Context(), "a"); r.Err != ErrTimeout || time.Since(begun) != 2*testOptions.Timeout {
			t.Errorf("after %v: %+v", time.Since(begun), r)
		}
		time.Sleep(2 * time.Hour)
	})
}

// Many callers ask while publishers are revoked and added. Run it with -race.
func TestNoRevokedPublisherIsFoundAfterForget(t *testing.T) {
	t.Parallel()
	f := newFake()
	c := newTestSource(t, f.source(), func(o *Config) { o.TTL, o.MaxEntries = time.Millisecond, 4 })
	var group sync.WaitGroup
	done := make(chan struct{})
	work := func(f func()) {
		group.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					f()
				}
			}
		})
	}
	for i := range 6 {
		site := fmt.Sprint("site", i)
		for _, name := range []string{site, "@" + site} {
			work(func() {
				if r := c.Find(t.Context(), name); r.Publisher != "" && r.Publisher != site || r.Err != nil {
					t.Errorf("%s: %+v", name, r)
				}
				if got, ok := c.Get(name); ok && got != site {
					t.Errorf("%s is %s", name, got)
				}
			})
		}
	}
	work(func() { c.Stats() })
	work(c.forgetAll)
	for i := range 600 {
		site := fmt.Sprint("site", i%6)
		for _, isPublisher := range []bool{true, false} {
			f.set(func() { f.names[site] = isPublisher })
			_ = c.Forget(domainOf(site))
			for _, name := range []string{site, "@" + site} {
				_, isRemembered := c.Get(name)
				if r := c.Find(t.Context(), name); (r.Publisher != "") != isPublisher || isRemembered && !isPublisher {
					t.Errorf("%s is a publisher: %t, but it is remembered: %t, and %+v", name, isPublisher, isRemembered, r)
				}
			}
		}
	}
	close(done)
	group.Wait()
	c.Close()
}

// If many requests notice together that a name expires soon, one of them refreshes it.
func TestANameIsRefreshedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		c := newTestSource(t, f.source())
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
		if s := c.Stats(); s.Lookups != 2 || s.Refreshes != 1 || s.CircuitOpen != 1 { // what the breaker stops is no lookup
			t.Errorf("%+v", s)
		}
	})
}

// After a notification without domains, everything is asked for again. What is remembered is served if that fails.
func TestForgetAllExpiresEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		c := newTestSource(t, f.source())
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

// An answer that cannot be right is an error of the lookup. It opens no circuit breaker, and closes
// one, because the source answers.
func TestAWrongAnswerIsAnError(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{"evil.example", "WWW.example.com", "example", "https://www.example.com", "\x00",
		"xn--zzzzzz99999.example"} {
		synctest.Test(t, func(t *testing.T) {
			answer, err := wrong, error(nil)
			asked := newFake().source()
			asked.PublisherByHash = func(context.Context, string) (string, error) { return answer, err }
			c := newTestSource(t, asked)
			for i := range 10 {
				if r := c.Find(t.Context(), fmt.Sprint("@a", i)); !errors.Is(r.Err, ErrBadAnswer) || r.Publisher != "" {
					t.Errorf("%q, %d: %+v", wrong, i, r)
				}
			}
			if s := c.Stats(); s.Lookups != 10 || s.Errors != 10 {
				t.Errorf("%q: %+v", wrong, s)
			}
			if r := c.FindByHash(t.Context(), prefixes.Hash(wrong)); errors.Is(r.Err, ErrBadAnswer) != (wrong != "evil.example") {
				t.Errorf("%q, which has this hash prefix: %+v", wrong, r)
			}
			err = errDown
			for i := range failuresToOpen {
				c.Find(t.Context(), fmt.Sprint("@b", i))
			}
			if r := c.Find(t.Context(), "@c"); !errors.Is(r.Err, ErrCircuitOpen) {
				t.Errorf("the breaker is not open: %+v", r)
			}
			err = nil
			time.Sleep(openFor)
			c.Find(t.Context(), "@c")
			answer = ""
			if r := c.Find(t.Context(), "@d"); r != (Answer{}) {
				t.Errorf("%q does not close the breaker: %+v", wrong, r)
			}
		})
	}
}

// A lookup goes on if the caller that began it leaves, because others wait for it.
func TestConcurrentLookupsForOneKeyAreCoalesced(t *testing.T) {
	t.Parallel()
	gone := errors.New("the client is gone")
	for name, want := range map[string]string{"a": "a", "@a": "a", "b": "", "@b": ""} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake("a")
			f.delay = 100 * time.Millisecond
			c := newTestSource(t, f.source())
			var group sync.WaitGroup
			begun := time.Now()
			for i := range 100 {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if i == 0 || i == 50 {
					time.AfterFunc(time.Millisecond, func() { cancel(gone) })
				}
				group.Go(func() {
					time.Sleep(time.Duration(i) * time.Microsecond)
					switch r := c.Find(ctx, name); {
					case i != 50 && r != (Answer{Publisher: want}):
						t.Errorf("%s: %+v", name, r)
					case i == 50 && (r != (Answer{Err: gone}) || time.Since(begun) != time.Millisecond):
						t.Errorf("the caller that leaves waits %v: %+v", time.Since(begun), r)
					}
				})
			}
			group.Wait()
			if s := c.Stats(); s.Lookups != 1 || s.Coalesced != 99 {
				t.Errorf("%s: %+v", name, s)
			}
		})
	}
}

// A lookup that runs while its publisher is revoked gives its answer to no later caller, and the
// answer is not remembered, not even as a stale one.
func TestAChangeInvalidatesLookupsThatRun(t *testing.T) {
	t.Parallel()
	for what, changed := range map[string]func(testSource){
		"Forget":                         func(c testSource) { _ = c.Forget("a.example") },
		"a notification without domains": func(c testSource) { c.changed() },
		"both":                           func(c testSource) { c.changed(); _ = c.Forget("a.example") },
	} {
		for _, name := range []string{"a", "@a"} {
			for _, isAskedMeanwhile := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) {
					f := newFake("a")
					f.delay = time.Second / 2
					c := newTestSource(t, f.source())
					go c.Find(t.Context(), name)
					synctest.Wait()
					f.set(func() { f.delay, f.names["a"] = 0, false })
					changed(c)
					if isAskedMeanwhile {
						if r := c.Find(t.Context(), name); r != (Answer{}) {
							t.Errorf("%s, %s: joined the earlier lookup: %+v", what, name, r)
						}
					}
					time.Sleep(time.Second)
					f.set(func() { f.err = errDown })
					for _, name := range []string{"a", "@a"} {
						if r := c.Find(t.Context(), name); r.Publisher != "" {
							t.Errorf("%s, %s: the earlier lookup is remembered: %+v", what, name, r)
						}
					}
				})
			}
		}
	}
}

// A lookup from before Forget does not end the newer one that others wait for.
func TestALookupFromBeforeForgetDoesNotEndANewerOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		f.delay = 500 * time.Millisecond
		c := newTestSource(t, f.source())
		go c.Find(t.Context(), "a")
		time.Sleep(100 * time.Millisecond)
		_ = c.Forget("a.example")
		go c.Find(t.Context(), "a")
		time.Sleep(450 * time.Millisecond) // the first ends, and the second still runs
		c.Find(t.Context(), "a")
		if n := f.count("a"); n != 2 {
			t.Errorf("asked %d times", n)
		}
	})
}

// The caller that asked gets the panic, and those that wait get an error. A panic in a refresh counts
// as an error. No slot is lost.
func TestASourceThatPanicsHoldsNoSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		isCalm := false
		c := newTestSource(t, Database{PublisherByDomain: confirms(func(context.Context, string) (bool, error) {
			if !isCalm {
				time.Sleep(time.Second / 2)
				panic("a defect")
			}
			return true, nil
		})}, func(o *Config) { o.MaxConcurrent = 1 })
		for range failuresToOpen {
			go func() {
				time.Sleep(time.Millisecond)
				if r := c.Find(t.Context(), "a"); r.Err != ErrPanicked {
					t.Errorf("%+v", r)
				}
			}()
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic was swallowed")
					}
				}()
				c.Find(t.Context(), "a")
			}()
			time.Sleep(openFor)
		}
		for range 2 {
			isCalm = true
			if r := c.Find(t.Context(), "a"); r != (Answer{Publisher: "a"}) {
				t.Errorf("%+v", r)
			}
			isCalm = false
			time.Sleep(55 * time.Second)
			before := c.Stats()
			c.Get("a")
			time.Sleep(10 * time.Second)
			if s := c.Stats(); s.Errors != before.Errors+1 || s.Refreshes != before.Refreshes+1 {
				t.Errorf("%+v, then %+v", before, s)
			}
		}
	})
}

// Callers do not wait, one after another, for a source that hangs.
func TestAHangingSourceDelaysFewCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake("a")
		c := newTestSource(t, f.source(), func(o *Config) { o.Timeout = 500 * time.Millisecond })
		c.Find(t.Context(), "a")
		time.Sleep(time.Minute)
		f.set(func() { f.delay = time.Hour })
		begun, slow := time.Now(), 0
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			asked := time.Now()
			if r := c.Find(t.Context(), "a"); !r.Stale || slow == 0 && !errors.Is(r.Err, ErrTimeout) || !errors.Is(r.Err, context.DeadlineExceeded) {
				t.Fatalf("%+v", r)
			}
			if time.Since(asked) > 0 {
				slow++
			}
		}
		if most := int(time.Since(begun)/(1500*time.Millisecond)) + 1; slow > most {
			t.Errorf("%d callers waited in %v", slow, time.Since(begun))
		}
		f.set(func() { f.delay = 0 })
		time.Sleep(time.Second)
		if r := c.Find(t.Context(), "a"); r != (Answer{Publisher: "a"}) {
			t.Errorf("%+v", r)
		}
	})
}

// Whatever number of publishers are in use, each caller with a stale answer waits for the database
// once in an outage. When it works again, the next answer is its own, without a request that waits.
func TestNoRememberedPublisherWaitsTwiceInAnOutage(t *testing.T) {
	t.Parallel()
	for _, publishers := range []int{1, 2, 3, 20} {
		for name, fault := range map[string]func(*fake){
			"hangs": func(f *fake) { f.delay = time.Hour },
			"fails": func(f *fake) { f.err = errDown },
		} {
			synctest.Test(t, func(t *testing.T) {
				var names []string
				for i := range publishers {
					names = append(names, fmt.Sprint("a", i))
				}
				f := newFake(names...)
				c := newTestSource(t, f.source())
				defer c.Close()
				for _, a := range names {
					c.Find(t.Context(), a)
				}
				c.forgetAll() // the connection was lost
				f.set(func() { fault(f) })
				waited := make(map[string]int)
				for begun := time.Now(); time.Since(begun) < 8*time.Minute; time.Sleep(50 * time.Millisecond) {
					for _, a := range names {
						asked := time.Now()
						if r := c.Find(t.Context(), a); !r.Stale {
							t.Fatalf("%d, %s: %+v", publishers, name, r)
						}
						if time.Since(asked) > 0 {
							waited[a]++
						}
					}
				}
				for a, times := range waited {
					if times > 1 {
						t.Errorf("%d, %s: %s waited %d times", publishers, name, a, times)
					}
				}
				if s := c.Stats(); s.Lookups > uint64(2*publishers+8*60*2) {
					t.Errorf("%d, %s: %d lookups in an outage of 8 minutes", publishers, name, s.Lookups)
				}
				// Only a1 is a publisher now. Nobody asks until the database has answered.
				f.set(func() { f.delay, f.err, f.names = 0, nil, map[string]bool{"a1": true} })
				time.Sleep(openFor + testOptions.Timeout + minPause)
				for i, a := range names {
					asked := time.Now()
					if r := c.Find(t.Context(), a); r.Stale || r.Err != nil || (r.Publisher == "a1") != (i == 1) || time.Since(asked) > 0 {
						t.Errorf("%d, %s: %s after the outage: %+v", publishers, name, a, r)
					}
				}
			})
		}
	}
}

// A row whose lookup always fails does not keep the others from fresh answers.
func TestOneKeyThatFailsKeepsNoOtherStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		isDown := false
		c := newTestSource(t, Database{PublisherByDomain: confirms(func(_ context.Context, domain string) (bool, error) {
			if isDown || domain == domainOf("bad") && time.Now().After(time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC)) {
				return false, errDown
			}
			return true, nil
		})})
		defer c.Close()
		names := []string{"bad", "a", "b", "c"}
		for _, name := range names {
			c.Find(t.Context(), name)
		}
		time.Sleep(time.Minute)
		for _, isDown = range []bool{true, false} {
			for range 100 {
				time.Sleep(100 * time.Millisecond)
				for _, name := range names {
					c.Find(t.Context(), name)
				}
			}
			for _, name := range names {
				if r := c.Find(t.Context(), name); r.Publisher != name || r.Stale != (isDown || name == "bad") {
					t.Errorf("down: %t: %+v", isDown, r)
				}
			}
		}
	})
}

// What a lookup in the background depends on can change before it begins.
func TestARetryGivesWay(t *testing.T) {
	t.Parallel()
	down := func(f *fake, c testSource) {
		c.Find(t.Context(), "a")
		time.Sleep(time.Minute)
		f.set(func() { f.err = errDown })
		c.Find(t.Context(), "a")
	}
	for name, test := range map[string]struct {
		then   func(*fake, testSource)
		counts int // of lookups for a in ten minutes, at least
	}{
		"closed":    {func(_ *fake, c testSource) { c.Close() }, 2},
		"forgotten": {func(_ *fake, c testSource) { _ = c.Forget(domainOf("a")) }, 2},
		"no slot": {func(f *fake, c testSource) {
			f.set(func() { f.err, f.delay, f.deaf = nil, 20*time.Second, true })
			go c.Find(t.Context(), "slow")
			synctest.Wait()
			f.set(func() { f.err, f.delay = nil, 0 })
			time.Sleep(19 * time.Second)
			if n := f.count("a"); n != 2 {
				t.Errorf("asked %d times, though there was no slot", n)
			}
		}, 3},
		"the database has answered": {func(_ *fake, c testSource) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.shards[0].publishers.success(domainOf("a"))
		}, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake("a")
			c := newTestSource(t, f.source(), func(o *Config) { o.MaxConcurrent = 1 })
			defer c.Close()
			down(f, c)
			test.then(f, c)
			time.Sleep(10 * time.Minute)
			if n := f.count("a"); n < test.counts || test.counts == 2 && n != 2 {
				t.Errorf("%s: asked %d times", name, n)
			}
		})
	}
}

// From the moment the database works, no request gets a stale answer for longer than a bound, whatever happened before: lookups that
// fail, are slow, hang, or ignore their context, names that are forgotten, and a stream of invented names that takes the slots.
func TestNoAnswerStaysStaleOnceTheDatabaseWorks(t *testing.T) {
	t.Parallel()
	bound := openFor + 4*testOptions.Timeout // a pause, a slot and a lookup; and once more if that found another cause
	for seed := range uint64(400) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 66))
			slots := 1 + random.IntN(4)
			var names []string
			for i := range 1 + random.IntN(6) {
				names = append(names, fmt.Sprint("a", i))
			}
			f := newFake(names...)
			c := newTestSource(t, f.source(), func(o *Config) { o.MaxConcurrent = slots })
			defer c.Close()
			for _, name := range names {
				c.Find(t.Context(), name)
			}
			c.forgetAll()
			deaf, flood := 0, random.IntN(2) == 0
			var asked sync.WaitGroup
			ask := func(name string) {
				asked.Go(func() { c.Find(t.Context(), name) })
			}
			for range 5 + random.IntN(40) {
				f.set(func() {
					f.err, f.delay, f.deaf = nil, 0, false
					switch random.IntN(4) {
					case 0:
						f.err = errDown
					case 1:
						f.delay = time.Hour
					case 2:
						f.delay = testOptions.Timeout * 3 / 4
					case 3:
						if deaf < slots-1 { // each keeps a slot for good
							f.delay, f.deaf = time.Hour, true
							deaf++
						} else {
							f.err = errDown
						}
					}
				})
				isDeaf := f.deaf
				for range 1 + random.IntN(3) {
					ask(names[random.IntN(len(names))])
					synctest.Wait()
					if isDeaf {
						break // one lookup at most
					}
				}
				if isDeaf {
					f.set(func() { f.err, f.delay, f.deaf = errDown, 0, false })
				}
				if flood {
					ask(fmt.Sprint("invented", random.Uint64()))
				}
				if random.IntN(10) == 0 {
					_ = c.Forget(domainOf(names[random.IntN(len(names))]))
				}
				time.Sleep(time.Duration(random.IntN(700)) * time.Millisecond)
			}
			f.set(func() { f.err, f.delay, f.deaf = nil, 0, false })
			for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(100 * time.Millisecond) {
				if flood {
					ask(fmt.Sprint("invented", random.Uint64()))
				}
				for _, name := range names {
					since := time.Since(began)
					if r := c.Find(t.Context(), name); r.Stale && since > bound {
						t.Fatalf("seed %d, %d slots, %d lookups that ignore their context: %s %v after the database works: %+v", seed, slots, deaf, name,
							since, r)
					}
				}
			}
			c.Close()
			asked.Wait()
		})
	}
}
