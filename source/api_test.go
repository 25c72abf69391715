package source_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/mwtest"
	"github.com/ampcors/ampcors/source"
)

func isA(_ context.Context, domain string) (bool, error) { return domain == "a.example", nil }

func newSource(t *testing.T, s source.Database, options source.Config) *source.Source {
	t.Helper()
	c, err := source.New(s, options)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNewReportsAllThatIsWrong(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		s       source.Database
		options source.Config
		want    []string
	}{
		{want: []string{"source: Database.PublisherByDomain is nil; want a function"}},
		{s: source.Database{PublisherByDomain: mwtest.Confirms(isA), Shards: -1},
			want: []string{"source: Database.Shards is -1; want 0 to 1024"}},
		{s: source.Database{PublisherByDomain: mwtest.Confirms(isA), Shards: 1025},
			want: []string{"source: Database.Shards is 1025; want 0 to 1024", "source: Database.Shards is set, but Shard is nil; want a function"}},
		{s: source.Database{PublisherByDomain: mwtest.Confirms(isA)},
			options: source.Config{TTL: -1, NegativeTTL: -1, MaxStale: -1, Timeout: -1, MaxConcurrent: -1, MaxEntries: -1}, want: []string{
				"ampcors: ttl \"-1ns\" is negative; want a duration such as 30s, or 0 for the default",
				"ampcors: negativeTTL \"-1ns\" is negative; want a duration such as 30s, or 0 for the default",
				"ampcors: maxStale \"-1ns\" is negative; want a duration such as 30s, or 0 for the default",
				"ampcors: timeout \"-1ns\" is negative; want a duration such as 30s, or 0 for the default",
				"ampcors: maxConcurrent \"-1\" is negative; want a number, or 0 for the default",
				"ampcors: maxEntries \"-1\" is negative; want a number, or 0 for the default",
			}},
		{s: source.Database{PublisherByDomain: mwtest.Confirms(isA)}, options: source.Config{Timeout: 720*time.Hour + 1},
			want: []string{"ampcors: timeout \"720h0m0.000000001s\" is too long; want 720h at most"}},
		{s: source.Database{PublisherByDomain: mwtest.Confirms(isA)}, options: source.Config{MaxStale: time.Minute - 1},
			want: []string{"ampcors: maxStale \"59.999999999s\" is less than the TTL, during which a publisher gets in anyway; want 1m0s at least"}},
		{s: source.Database{PublisherByDomain: mwtest.Confirms(isA)}, options: source.Config{TTL: time.Hour, MaxStale: time.Hour - 1},
			want: []string{"ampcors: maxStale \"59m59.999999999s\" is less than the TTL, during which a publisher gets in anyway; want 1h0m0s at " +
				"least"}},
	} {
		t.Run(fmt.Sprint(test.want), func(t *testing.T) {
			t.Parallel()
			if _, err := source.New(test.s, test.options); err == nil || err.Error() != strings.Join(test.want, "\n") {
				t.Errorf("got\n%v\nwant\n%s", err, strings.Join(test.want, "\n"))
			}
		})
	}
	const most = 720 * time.Hour
	for _, options := range []source.Config{{}, {TTL: time.Hour}, {TTL: time.Hour, MaxStale: time.Hour}, {MaxStale: time.Minute},
		{TTL: most, NegativeTTL: most, MaxStale: most, Timeout: most}, {MaxEntries: 1, MaxConcurrent: 1}} {
		if err := options.Validate(); err != nil {
			t.Errorf("%+v: %v", options, err)
		}
	}
	newSource(t, source.Database{PublisherByDomain: mwtest.Confirms(isA), Shards: 1024, Shard: func(string) int { return 0 }}, source.Config{})
}

// With a long TTL, a stale answer is served for at least as long again.
func TestTheDefaultMaxStale(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]time.Duration{0: 10 * time.Minute, time.Minute: 10 * time.Minute, time.Hour: 2 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var down error
			c := newSource(t, source.Database{PublisherByDomain: mwtest.Confirms(func(context.Context, string) (bool, error) {
				return down == nil,
					down
			})},
				source.Config{TTL: ttl})
			c.Find(t.Context(), "a.example")
			down = errors.New("down")
			time.Sleep(want - 1)
			if a := c.Find(t.Context(), "a.example"); !a.Stale || a.Publisher != "a.example" || !errors.Is(a.Err, down) {
				t.Errorf("TTL %v: %+v after %v", ttl, a, want-1)
			}
			time.Sleep(time.Nanosecond)
			if a := c.Find(t.Context(), "a.example"); a.Publisher != "" || a.Err == nil {
				t.Errorf("TTL %v: %+v after %v", ttl, a, want)
			}
		})
	}
}

// A Database that finds that its earlier answers may be wrong says so with ErrNoStale. Then an ordinary
// failure does not make them valid again, whichever lookup found it, and however many shards there are.
func TestWhatADatabaseShouldNotHaveSaidIsNotServedLater(t *testing.T) {
	t.Parallel()
	wrong, down := fmt.Errorf("wrong: %w", source.ErrNoStale), errors.New("down")
	for name, find := range map[string]func(*source.Source){
		"by the same publisher": func(c *source.Source) { c.Find(t.Context(), "a.example") },
		"by another publisher":  func(c *source.Source) { c.Find(t.Context(), "b.example") },
		"by a hash prefix":      func(c *source.Source) { c.FindByHash(t.Context(), hashPrefix(t, "b.example")) },
		"by a refresh":          func(c *source.Source) { c.Remembered("refreshed.example") },
	} {
		for _, shards := range []int{1, 2} {
			t.Run(fmt.Sprint(name, shards), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var failure error
					var slow chan bool // until it is closed, a lookup of slow.example waits
					c := newSource(t, source.Database{
						PublisherByDomain: mwtest.Confirms(func(_ context.Context, domain string) (bool, error) {
							if domain == "slow.example" {
								<-slow
								return true, nil
							}
							return failure == nil, failure
						}),
						PublisherByHash: func(context.Context, string) (string, error) { return "a.example", failure },
						Shards:          shards,
						Shard: func(key string) int { // a.example has its own
							if key == "a.example" {
								return 0
							}
							return 1
						},
					}, source.Config{TTL: time.Minute})
					ask := func(domain string, want source.Answer) {
						t.Helper()
						a := c.Find(t.Context(), domain)
						if a.Publisher != want.Publisher || a.Stale != want.Stale || !errors.Is(a.Err, want.Err) {
							t.Errorf("%s: %+v; want %+v", domain, a, want)
						}
					}
					c.FindByHash(t.Context(), hashPrefix(t, "a.example"))
					ask("a.example", source.Answer{Publisher: "a.example"})
					time.Sleep(6 * time.Second)
					ask("refreshed.example", source.Answer{Publisher: "refreshed.example"})
					time.Sleep(54*time.Second + 500*time.Millisecond)
					failure, slow = wrong, make(chan bool)
					go c.Find(t.Context(), "slow.example")
					synctest.Wait()
					find(c)
					synctest.Wait()
					close(slow)
					synctest.Wait()
					failure = down
					time.Sleep(2 * time.Second) // circuit breakers have closed
					ask("a.example", source.Answer{Err: down})
					if a := c.FindByHash(t.Context(), hashPrefix(t, "a.example")); a.Publisher != "" || a.Stale {
						t.Errorf("by hash prefix: %+v", a)
					}
					if domain, ok := c.Remembered("slow.example"); ok {
						t.Errorf("%s is remembered, though its lookup began before", domain)
					}
					failure = nil
					time.Sleep(2 * time.Second)
					ask("a.example", source.Answer{Publisher: "a.example"})
					time.Sleep(time.Minute)
					failure = down
					ask("a.example", source.Answer{Publisher: "a.example", Stale: true, Err: down}) // it was confirmed
				})
			})
		}
	}
}

// Also while a circuit breaker is open, the error is that of the Database.
func TestNothingStaleIsServedBesideErrNoStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var wrong error
		c := newSource(t, source.Database{PublisherByDomain: mwtest.Confirms(func(context.Context, string) (bool, error) {
			return wrong == nil,
				wrong
		})},
			source.Config{TTL: time.Minute})
		c.Find(t.Context(), "a.example")
		wrong = fmt.Errorf("wrong: %w", source.ErrNoStale)
		time.Sleep(time.Minute)
		for range 10 {
			if a := c.Find(t.Context(), "a.example"); a.Publisher != "" || a.Stale || !errors.Is(a.Err, source.ErrNoStale) {
				t.Errorf("%+v", a)
			}
		}
	})
}

// What is invalid stays so when the database fails afterwards, as source/README.md says: what was forgotten,
// and what was remembered before Close. Only after a blanket notification, an earlier answer is served as stale.
func TestAFailureBringsBackOnlyWhatABlanketNotificationExpired(t *testing.T) {
	t.Parallel()
	var deny atomic.Pointer[chan bool] // if set, a lookup waits for it, and then denies
	for name, test := range map[string]struct {
		invalidate func(c *source.Source, changed func(...string))
		isStale    bool
	}{
		"Forget":                      {func(c *source.Source, _ func(...string)) { _ = c.Forget("A.example") }, false},
		"a notification":              {func(_ *source.Source, changed func(...string)) { changed("a.example") }, false},
		"one that also has no domain": {func(_ *source.Source, changed func(...string)) { changed("a.example", "?") }, false},
		"a blanket notification":      {func(_ *source.Source, changed func(...string)) { changed() }, true},
		"a blanket notification during a lookup that denies it": {func(c *source.Source, changed func(...string)) {
			denied := make(chan bool)
			deny.Store(&denied)
			time.Sleep(time.Minute) // it expires
			go c.Find(context.Background(), "a.example")
			synctest.Wait()
			changed()
			close(denied)
			synctest.Wait()
			deny.Store(nil)
		}, false},
		"Close": {func(c *source.Source, _ func(...string)) { c.Close() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var failure error
				var changed func(...string)
				c := newSource(t, source.Database{
					PublisherByDomain: mwtest.Confirms(func(context.Context, string) (bool, error) {
						if denied := deny.Load(); denied != nil {
							<-*denied
							return false, nil
						}
						return failure == nil, failure
					}),
					Notify: func(f func(...string)) func() { changed = f; return nil },
				}, source.Config{})
				c.Find(t.Context(), "a.example")
				test.invalidate(c, changed)
				failure = errors.New("down")
				if a := c.Find(t.Context(), "a.example"); a.Stale != test.isStale || a.Stale != (a.Publisher != "") || a.Err == nil {
					t.Errorf("%+v", a)
				}
			})
		})
	}
}

func hashPrefix(t *testing.T, domain string) string {
	t.Helper()
	prefix, err := cacheurl.HashPrefix(domain)
	if err != nil {
		t.Fatal(err)
	}
	return prefix
}

func TestANilSourceIsClosed(t *testing.T) {
	t.Parallel()
	stopped := 0
	closed := newSource(t, source.Database{PublisherByDomain: mwtest.Confirms(isA),
		Notify: func(func(...string)) func() { return func() { stopped++ } }},
		source.Config{})
	closed.Close()
	for name, c := range map[string]*source.Source{"nil": nil, "zero": new(source.Source), "closed": closed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, a := range []source.Answer{c.Find(t.Context(), "a.example"), c.Find(t.Context(), "b.example")} {
				if a != (source.Answer{Err: source.ErrClosed}) {
					t.Errorf("%+v", a)
				}
			}
			if _, ok := c.Remembered("a.example"); ok {
				t.Error("remembered")
			}
			if _, ok := c.RememberedByHash("a"); ok {
				t.Error("remembered by hash")
			}
			stats := c.Stats()
			stats.Notifies = false // whether it is closed or not
			if err := c.Forget("a.example"); err != nil || stats.Lookups+stats.Waits != 0 || stats.Notifies || stats.Listening {
				t.Errorf("%v, %+v", err, stats)
			}
			if c.Close(); c == closed && stopped != 1 {
				t.Errorf("the notifications are stopped %d times", stopped)
			}
		})
	}
	if a := new(source.Source).FindByHash(t.Context(), "a"); a.Err != source.ErrClosed {
		t.Errorf("%+v", a)
	}
}

// A lookup that runs during Close still gives its answer, but nothing stale if it fails.
func TestALookupThatRunsDuringClose(t *testing.T) {
	t.Parallel()
	for _, failed := range []error{nil, errors.New("down")} {
		synctest.Test(t, func(t *testing.T) {
			delay := time.Duration(0)
			var err error
			c := newSource(t, source.Database{PublisherByDomain: mwtest.Confirms(func(context.Context, string) (bool, error) {
				time.Sleep(delay)
				return err == nil, err
			})}, source.Config{})
			c.Find(t.Context(), "a.example")
			time.Sleep(time.Minute)
			delay, err = time.Second/2, failed
			done := make(chan source.Answer)
			go func() { done <- c.Find(t.Context(), "a.example") }()
			synctest.Wait()
			c.Close()
			want := source.Answer{Publisher: "a.example"}
			if failed != nil {
				want = source.Answer{Err: failed}
			}
			if got := <-done; got != want {
				t.Errorf("%+v; want %+v", got, want)
			}
			if got := c.Find(t.Context(), "a.example"); got != (source.Answer{Err: source.ErrClosed}) {
				t.Errorf("afterwards: %+v", got)
			}
		})
	}
}

func TestForgetReportsWhatIsNoDomain(t *testing.T) {
	t.Parallel()
	c := newSource(t, source.Database{PublisherByDomain: mwtest.Confirms(isA)}, source.Config{})
	c.Find(t.Context(), "a.example")
	err := c.Forget("https://b.example", "A.Example", "")
	const want = "source: the publisher \"https://b.example\" has a scheme\nsource: the publisher \"\" is empty"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if _, ok := c.Remembered("a.example"); ok {
		t.Error("a.example is not forgotten")
	}
}

// A key of one kind is never taken for one of the other.
func TestDomainsAndHashPrefixesAreKeptApart(t *testing.T) {
	t.Parallel()
	var asked []string
	hash, _ := cacheurl.HashPrefix("a.example")
	c := newSource(t, source.Database{
		PublisherByDomain: mwtest.Confirms(func(_ context.Context, domain string) (bool, error) {
			asked = append(asked, domain)
			return true,
				nil
		}),
		PublisherByHash: func(_ context.Context, prefix string) (string, error) {
			asked = append(asked, prefix)
			return "a.example", nil
		},
	}, source.Config{})
	for range 2 {
		if a := c.FindByHash(t.Context(), hash); a.Publisher != "a.example" {
			t.Errorf("%+v", a)
		}
		for _, a := range []source.Answer{c.Find(t.Context(), hash), c.FindByHash(t.Context(), "a.example"), c.Find(t.Context(), "")} {
			if a != (source.Answer{}) {
				t.Errorf("%+v", a)
			}
		}
		if _, ok := c.Remembered(hash); ok {
			t.Error("a hash prefix is taken for a domain")
		}
		if _, ok := c.RememberedByHash("a.example"); ok {
			t.Error("a domain is taken for a hash prefix")
		}
	}
	if !slices.Equal(asked, []string{hash}) {
		t.Errorf("asked for %q", asked)
	}
}

// A Database may use the memory of its answer again, or the answer may be a part of a large string.
func TestWhatASourceReturnsIsCopied(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"good.example", strings.Repeat("good.", 49) + "example"} {
		row := []byte(good)
		c := newSource(t, source.Database{PublisherByDomain: mwtest.Confirms(isA),
			PublisherByHash: func(context.Context, string) (string, error) {
				return unsafe.String(unsafe.SliceData(row), len(row)), nil
			}}, source.Config{})
		hash, _ := cacheurl.HashPrefix(good)
		first := c.FindByHash(t.Context(), hash)
		evil := strings.ReplaceAll(good, "good", "evil")
		copy(row, evil)
		if again := c.FindByHash(t.Context(), hash); first.Publisher != good || again.Publisher != good {
			t.Errorf("%+v, then %+v", first, again)
		}
		if _, ok := c.Remembered(evil); ok {
			t.Errorf("%s is remembered", evil)
		}
	}
}

// A Database may know no hash prefixes, and nil functions are never called.
func TestPublisherByDomainIsEnough(t *testing.T) {
	t.Parallel()
	c := newSource(t, source.Database{PublisherByDomain: mwtest.Confirms(isA)}, source.Config{})
	hash, _ := cacheurl.HashPrefix("a.example")
	for range 2 {
		if a := c.Find(t.Context(), "a.example"); a != (source.Answer{Publisher: "a.example"}) {
			t.Errorf("%+v", a)
		}
		if a := c.FindByHash(t.Context(), hash); a != (source.Answer{}) {
			t.Errorf("%+v", a)
		}
	}
	if s := c.Stats(); s.Listening || s.Lookups != 1 {
		t.Errorf("%+v", s)
	}
}

// A wrapper that copies a Database keeps all that it can do, and the Source uses it: changes,
// likely names, shards and hash prefixes.
func TestAWrapperThatLogsLosesNothing(t *testing.T) {
	t.Parallel()
	var report func(...string)
	var isListening bool
	hash, _ := cacheurl.HashPrefix("a.example")
	shards := make(map[string]bool)
	asked := source.Database{
		PublisherByDomain: mwtest.Confirms(isA),
		PublisherByHash:   func(context.Context, string) (string, error) { return "a.example", nil },
		Notify:            func(changed func(...string)) func() { report = changed; return nil },
		IsListening:       func() bool { return isListening },
		IsLikely:          func(key string) bool { return true },
		Shards:            2,
		Shard:             func(key string) int { shards[key] = true; return len(key) },
		Publishers:        nil, // only package filter calls it
	}
	var log []string
	logged := asked
	logged.PublisherByDomain = func(ctx context.Context, domain string) (string, error) {
		log = append(log, domain)
		return asked.PublisherByDomain(ctx, domain)
	}
	for v, i := reflect.ValueOf(logged), 0; i < v.NumField(); i++ {
		if name := v.Type().Field(i).Name; v.Field(i).IsZero() && name != "Publishers" {
			t.Errorf("%s is lost, or this test does not set it", name)
		}
	}
	c := newSource(t, logged, source.Config{})
	defer c.Close() // a stop that is nil is not called
	for range 2 {
		if a := c.FindByHash(t.Context(), hash); a.Publisher != "a.example" {
			t.Errorf("%+v", a)
		}
	}
	report("A.EXAMPLE")
	if _, ok := c.Remembered("a.example"); ok {
		t.Error("a change is not seen")
	}
	for _, missed := range [][]string{{}, {"not a domain"}} {
		c.Find(t.Context(), "a.example")
		report(missed...)
		if _, ok := c.Remembered("a.example"); ok {
			t.Errorf("after %q, the answer counts", missed)
		}
	}
	if want := []string{"a.example", "a.example", "a.example"}; !slices.Equal(log, want) || !shards[hash] || !shards["a.example"] {
		t.Errorf("%q, shards of %v, %+v", log, shards, c.Stats())
	}
	if c.Stats().Listening {
		t.Error("it listens")
	}
	if isListening = true; !c.Stats().Listening {
		t.Error("it does not listen")
	}
	if c.Close(); c.Stats().Listening {
		t.Error("it listens after Close")
	}
}

// IsLikely and shards decide nothing else, whatever their values are.
func TestIsLikelyAndShardsDecideNothing(t *testing.T) {
	t.Parallel()
	for _, isLikely := range []bool{false, true} {
		for _, shard := range []int{0, 1, -1, 1 << 30} {
			t.Run(fmt.Sprint(isLikely, shard), func(t *testing.T) {
				t.Parallel()
				c := newSource(t, source.Database{
					PublisherByDomain: mwtest.Confirms(isA), IsLikely: func(string) bool { return isLikely }, Shards: 2,
					Shard: func(string) int { return shard },
				}, source.Config{})
				if a := c.Find(t.Context(), "a.example"); a != (source.Answer{Publisher: "a.example"}) {
					t.Errorf("%+v", a)
				}
				if a := c.Find(t.Context(), "b.example"); a != (source.Answer{}) {
					t.Errorf("%+v", a)
				}
			})
		}
	}
}

// The database's own errors are its own, even if they are those of another Source. They open the
// breaker, count, and a publisher is served stale.
func TestADatabaseMayReturnTheErrorsOfASource(t *testing.T) {
	t.Parallel()
	for _, err := range []error{source.ErrBusy, source.ErrCircuitOpen, source.ErrClosed} {
		t.Run(err.Error(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var failing error
				c := newSource(t, source.Database{PublisherByDomain: mwtest.Confirms(func(context.Context, string) (bool,
					error) {
					return failing == nil, failing
				})},
					source.Config{})
				c.Find(t.Context(), "a.example")
				failing = err
				for i := range 10 {
					c.Find(t.Context(), fmt.Sprintf("%d.example", i))
				}
				if s := c.Stats(); s.Errors != 3 || s.CircuitOpen != 7 || s.Busy != 0 {
					t.Errorf("%+v", s)
				}
				time.Sleep(time.Minute)
				if a := c.Find(t.Context(), "a.example"); !a.Stale || !errors.Is(a.Err, err) {
					t.Errorf("%+v", a)
				}
			})
		})
	}
}

// Once Close has returned, no lookup begins, because the program may close its database. Nothing
// stays in memory.
func TestNoLookupBeginsAfterClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		isClosed := false
		c := newSource(t, source.Database{PublisherByDomain: mwtest.Confirms(func(context.Context, string) (bool, error) {
			if isClosed {
				t.Error("asked after Close")
			}
			time.Sleep(time.Second / 2)
			return true, nil
		})}, source.Config{MaxConcurrent: 1})
		c.Find(t.Context(), "a.example")
		waiting := make(chan source.Answer)
		go c.Find(t.Context(), "b.example")
		synctest.Wait()
		go func() { waiting <- c.Find(t.Context(), "c.example") }()
		synctest.Wait()
		c.Close()
		isClosed = true
		if a := <-waiting; a != (source.Answer{Err: source.ErrClosed}) {
			t.Errorf("%+v", a)
		}
		synctest.Wait()
		if s := c.Stats(); s.Publishers != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A database may find a row that is equal only by its own rules, such as in a collation that ignores accents. The
// Source allows a domain only if the stored one is the same after normalization.
func TestOnlyTheStoredDomainIsAllowed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		domain, stored string
		allowed, bad   bool
	}{
		{domain: "bucher.example", stored: "bucher.example", allowed: true},
		{domain: "bucher.example", stored: "Bucher.EXAMPLE", allowed: true},
		{domain: "xn--bcher-kva.example", stored: "Bücher.example", allowed: true},
		{domain: "xn--bcher-kva.example", stored: "xn--bcher-kva.example", allowed: true},
		{domain: "bucher.example", stored: ""},
		{domain: "bucher.example", stored: "bücher.example"},
		{domain: "bucher.example", stored: "xn--bcher-kva.example"},
		{domain: "strasse.example", stored: "straße.example"},
		{domain: "office.example", stored: "o\ufb03ce.example", bad: true}, // a ligature
		{domain: "evil.example", stored: "www.example.com"},
		{domain: "example.com", stored: "www.example.com"},
		{domain: "www.example.com", stored: "*.example.com", bad: true},
		{domain: "example.com", stored: "example.com ", bad: true},
		{domain: "example.com", stored: "example.com.", bad: true},
		{domain: "example.com", stored: "exam\u200dple.com", bad: true},
		{domain: "example.com", stored: "ｅxample.com", bad: true},
		{domain: "example.com", stored: "tenant 7", bad: true},
		{domain: "example.com", stored: strings.Repeat("a", 1<<20), bad: true},
	} {
		c := newSource(t, source.Database{PublisherByDomain: func(context.Context, string) (string, error) { return test.stored, nil }},
			source.Config{})
		a := c.Find(t.Context(), test.domain)
		if (a.Publisher == test.domain) != test.allowed || (a.Publisher == "") == test.allowed ||
			errors.Is(a.Err, source.ErrBadAnswer) != test.bad || test.bad == (a.Err == nil) {
			t.Errorf("%.80q for %q: %+v", test.stored, test.domain, a)
		}
		if test.bad && (len(a.Err.Error()) > 400 || !strings.Contains(a.Err.Error(), test.domain)) {
			t.Errorf("%.1000v", a.Err)
		}
		if _, ok := c.Remembered(test.domain); ok != test.allowed {
			t.Errorf("%.80q for %q is remembered: %t", test.stored, test.domain, ok)
		}
		c.Close()
	}
}

// What is no domain in lower-case ASCII is never asked for, and never a publisher, even if a
// program looks it up itself.
func TestOnlyDomainsAreFound(t *testing.T) {
	t.Parallel()
	c := newSource(t, source.Database{PublisherByDomain: mwtest.Confirms(func(_ context.Context, domain string) (bool, error) {
		t.Errorf("asked for %q", domain)
		return true, nil
	})}, source.Config{})
	for _, domain := range []string{"www.example.com:8080", "10.0.0.1", "WWW.EXAMPLE.COM", "user@evil.example", "api.local.", "bücher.example",
		"xn--zzzzzz99999.example"} {
		if a := c.Find(t.Context(), domain); a != (source.Answer{}) {
			t.Errorf("%s: %+v", domain, a)
		}
		if _, ok := c.Remembered(domain); ok {
			t.Errorf("%s is remembered", domain)
		}
	}
}

// The time that decisions wait is counted, below each time that it does not exceed.
func TestWaitsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var takes time.Duration
		s, err := source.New(source.Database{PublisherByDomain: func(_ context.Context, domain string) (string, error) {
			time.Sleep(takes)
			return domain, nil
		}}, source.Config{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for i, d := range []time.Duration{3 * time.Millisecond, time.Second, 2 * time.Second} {
			takes = d
			s.Find(t.Context(), fmt.Sprintf("p%d.example", i))
		}
		s.Find(t.Context(), "p0.example") // is remembered
		stats := s.Stats()
		for _, within := range stats.WaitsWithin {
			want := uint64(0)
			for _, d := range []time.Duration{3 * time.Millisecond, time.Second, 2 * time.Second} {
				if d <= within.Time {
					want++
				}
			}
			if within.Waits != want {
				t.Errorf("%v: %d; want %d", within.Time, within.Waits, want)
			}
		}
		if len(stats.WaitsWithin) != 10 || stats.Waits != 3 || stats.WaitTime != 3003*time.Millisecond {
			t.Errorf("%+v", stats)
		}
	})
}
