package filter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/source"
)

// A database lists names.
type database struct {
	mu    sync.Mutex
	names map[string]bool
	lists atomic.Int32
	err   error
}

func newDatabase(names ...string) *database {
	d := &database{names: make(map[string]bool)}
	for _, name := range names {
		d.names[name] = true
	}
	return d
}

func (d *database) PublisherByDomain(_ context.Context, domain string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.names[domain] {
		return "", nil
	}
	return domain, nil
}

func (d *database) PublisherByHash(_ context.Context, prefix string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.names {
		if own, _ := cacheurl.HashPrefix(name); own == prefix {
			return name, nil
		}
	}
	return "", nil
}

func (d *database) Publishers(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		d.mu.Lock()
		d.lists.Add(1)
		names, err := slices.Sorted(maps.Keys(d.names)), d.err
		d.mu.Unlock()
		for _, name := range names {
			if !yield(name, nil) {
				return
			}
		}
		if err != nil {
			yield("", err)
		}
	}
}

func (d *database) source() source.Database {
	return source.Database{PublisherByDomain: d.PublisherByDomain, PublisherByHash: d.PublisherByHash, Publishers: d.Publishers}
}

func (d *database) add(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names[name] = true
}

func (d *database) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

func quiet(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

func newFilter(t *testing.T, db interface{ source() source.Database }, cfg Config) *Filter {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = quiet(t)
	}
	s, err := New(db.source(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs s until the test ends, and returns when the first filter is built.
func run(t *testing.T, s *Filter) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	synctest.Wait()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != context.Canceled {
			t.Error(err)
		}
	})
}

func TestNewChecksItsArguments(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		asked source.Database
		cfg   Config
		want  string
	}{
		{name: "no list", asked: source.Database{}, cfg: Config{}, want: "Publishers is nil"},
		{name: "two filters", asked: newFilter(t, newDatabase(), Config{}).Database(), cfg: Config{}, want: "IsLikely is set"},
		{name: "negative Every", asked: newDatabase().source(), cfg: Config{Every: -1}, want: "negative"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := New(test.asked, test.cfg); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v; want %q", err, test.want)
			}
		})
	}
}

func TestTheFilterHasAllPublishersAndFewOthers(t *testing.T) {
	t.Parallel()
	const n = 100_000
	db := newDatabase()
	for i := range n {
		db.names[fmt.Sprintf("www.site-%d.example", i)] = true
	}
	s := newFilter(t, db, Config{})
	if s.isLikely("www.site-1.example") {
		t.Error("likely without a filter")
	}
	if err := s.build(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		name := fmt.Sprintf("www.site-%d.example", i)
		if !s.isLikely(name) {
			t.Fatalf("%s is not likely", name)
		}
		if prefix, _ := cacheurl.HashPrefix(name); i%100 == 0 && !s.isLikely(prefix) {
			t.Fatalf("the hash prefix of %s is not likely", name)
		}
	}
	wrong := 0
	for i := range n {
		if s.isLikely(fmt.Sprintf("www.other-%d.example", i)) {
			wrong++
		}
	}
	if wrong > n/200 || wrong == 0 {
		t.Errorf("%d of %d other names are likely; want about one in 256", wrong, n)
	}
	stats := s.Stats()
	if bits := 8 * float64(stats.Bytes) / n; bits > 10 {
		t.Errorf("%.2f bits for each publisher", bits)
	}
	if stats.Publishers != n || stats.BuiltAt.IsZero() {
		t.Errorf("%+v", stats)
	}
	for _, key := range []string{"", "a", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789012345678901"} {
		if s.isLikely(key) {
			t.Errorf("%q is likely", key)
		}
	}
}

// A filter that is wrong changes no answer of the database.
func TestAWrongFilterChangesNoAnswer(t *testing.T) {
	t.Parallel()
	publishers := []string{"www.example.com", "xn--bcher-kva.example", "a--b.example", strings.Repeat("long.", 15) + "example"}
	others := []string{"www.evil.example", "example.com", "xn--bcher-kva.evil.example"}
	for name, list := range map[string][]string{
		"no filter": nil, "all no": {}, "all yes": append(slices.Clone(publishers), others...),
		"stale": append(slices.Clone(others), publishers[0]),
	} {
		t.Run(name, func(t *testing.T) {
			db := newDatabase(list...)
			s := newFilter(t, db, Config{})
			if list != nil {
				if err := s.build(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			db.names = newDatabase(publishers...).names
			m := servertest.Middleware(t, s.Database(), source.Config{})
			for _, domain := range append(slices.Clone(publishers), others...) {
				readable, _ := cacheurl.DomainPrefix(domain)
				hash, _ := cacheurl.HashPrefix(domain)
				for _, origin := range []string{"https://" + domain, "https://" + readable + ".cdn.ampproject.org",
					"https://" + hash + ".www.bing-amp.com"} {
					if d := m.CheckOrigin(origin); d.Allowed != slices.Contains(publishers, domain) || d.Allowed && d.Publisher != domain {
						t.Errorf("%s: %+v", origin, d)
					}
				}
			}
		})
	}
}

func TestRunKeepsTheFilterWhenTheListFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := newDatabase("a.example")
		log := new(servertest.Buffer)
		s := newFilter(t, db, Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
		run(t, s)
		db.add("b.example")
		db.fail(errors.New("the database is down"))
		time.Sleep(time.Hour + time.Second)
		if !s.isLikely("a.example") || s.isLikely("b.example") || db.lists.Load() != 2 ||
			strings.Count(log.String(), "the database is down") != 1 {
			t.Errorf("%d lists; the log:\n%s", db.lists.Load(), log)
		}
		db.fail(nil)
		time.Sleep(2 * time.Minute) // it is tried again soon
		if !s.isLikely("b.example") || db.lists.Load() != 3 {
			t.Errorf("%d lists; the log:\n%s", db.lists.Load(), log)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.build(ctx); err != context.Canceled || !s.isLikely("b.example") {
			t.Errorf("a canceled list: %v", err)
		}
	})
}

// The database of a Filter keeps all that the database can do, and a wrapper that copies it does too.
func TestNoAbilityIsLost(t *testing.T) {
	t.Parallel()
	asked := newDatabase("a.example").source()
	asked.Notify, asked.IsListening = func(func(...string)) func() { return func() {} }, func() bool { return true }
	asked.Shards, asked.Shard = 2, func(string) int { return 1 }
	f, err := New(asked, Config{})
	if err != nil {
		t.Fatal(err)
	}
	filtered := f.Database()
	logged := filtered
	logged.PublisherByDomain = func(ctx context.Context, domain string) (string, error) {
		return filtered.PublisherByDomain(ctx, domain)
	}
	for v, i := reflect.ValueOf(logged), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("%s is lost", v.Type().Field(i).Name)
		}
	}
	if without := newFilter(t, newDatabase(), Config{}).Database(); without.Notify != nil || without.Shard != nil {
		t.Error("it can do what the database cannot")
	}
}
