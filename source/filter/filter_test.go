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
	mu      sync.Mutex
	names   map[string]bool
	lookups int
	lists   atomic.Int32
	err     error
	pause   atomic.Int64 // nanoseconds before each name of a list
}

func newDatabase(names ...string) *database {
	d := &database{names: make(map[string]bool)}
	for _, name := range names {
		d.names[name] = true
	}
	return d
}

func (d *database) HasPublisher(_ context.Context, domain string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lookups++
	return d.names[domain], nil
}

func (d *database) PublisherByHash(_ context.Context, prefix string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lookups++
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
			time.Sleep(time.Duration(d.pause.Load()))
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
	return source.Database{HasPublisher: d.HasPublisher, PublisherByHash: d.PublisherByHash, Publishers: d.Publishers}
}

// A notifying database reports changes after a delay.
type notifying struct {
	*database
	listeners map[int]func(...string)
	isDeaf    atomic.Bool
}

func newNotifying(names ...string) *notifying {
	return &notifying{database: newDatabase(names...), listeners: make(map[int]func(...string))}
}

func (n *notifying) source() source.Database {
	s := n.database.source()
	s.Notify, s.IsListening = n.Notify, func() bool { return !n.isDeaf.Load() }
	return s
}

func (n *notifying) Notify(changed func(...string)) func() {
	n.mu.Lock()
	defer n.mu.Unlock()
	id := len(n.listeners)
	n.listeners[id] = changed
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.listeners[id] = func(...string) {}
	}
}

func (n *notifying) report(domains ...string) {
	n.mu.Lock()
	listeners := slices.Collect(maps.Values(n.listeners))
	n.mu.Unlock()
	for _, changed := range listeners {
		changed(domains...)
	}
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

func prefixOf(t *testing.T, domain string) string {
	t.Helper()
	prefix, err := cacheurl.HashPrefix(domain)
	if err != nil {
		t.Fatal(err)
	}
	return prefix
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
		if i%100 == 0 && !s.isLikely(prefixOf(t, name)) {
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
	if db.lookups != 0 {
		t.Errorf("%d lookups", db.lookups)
	}
}

// A filter that is wrong changes no decision.
func TestAWrongFilterChangesNoDecision(t *testing.T) {
	t.Parallel()
	publishers := []string{"www.example.com", "xn--bcher-kva.example", "a--b.example", strings.Repeat("long.", 15) + "example"}
	others := []string{"www.evil.example", "example.com", "xn--bcher-kva.evil.example"}
	origins := func() (all []string) {
		for _, name := range append(slices.Clone(publishers), others...) {
			prefix, err := cacheurl.DomainPrefix(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, "https://"+name, "https://"+prefix+".cdn.ampproject.org", "https://"+prefixOf(t, name)+".www.bing-amp.com")
		}
		return all
	}()
	decide := func(s source.Database) (decisions []string) {
		m := servertest.Middleware(t, s, source.Config{})
		for range 2 {
			for _, origin := range origins {
				d := m.CheckOrigin(origin)
				decisions = append(decisions, fmt.Sprint(origin, d.Allowed, d.Reason, d.Publisher, d.SourceErr))
			}
		}
		return decisions
	}
	want := decide(newDatabase(publishers...).source())
	if n := strings.Count(strings.Join(want, "\n"), "true"); n != 2*3*len(publishers) {
		t.Fatalf("%d of the requests are allowed", n)
	}
	for name, list := range map[string][]string{
		"no filter": nil, "all no": {}, "all yes": append(slices.Clone(publishers), others...), "stale": append(slices.Clone(others), publishers[0]),
	} {
		t.Run(name, func(t *testing.T) {
			db := newNotifying(list...)
			s := newFilter(t, db, Config{})
			if list != nil {
				if err := s.build(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			db.names = newDatabase(publishers...).names
			if got := decide(s.Database()); !slices.Equal(got, want) {
				t.Errorf("%q\nwant %q", got, want)
			}
		})
	}
}

func TestANameReportedDuringAListIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := newNotifying("a.example", "b.example", "c.example")
		db.pause.Store(int64(time.Second))
		s := newFilter(t, db, Config{Every: time.Minute})
		run(t, s)
		time.Sleep(1500 * time.Millisecond)
		db.add("0.example")
		db.report("0.example")
		for range 20 {
			time.Sleep(400 * time.Millisecond)
			if !s.isLikely("0.example") {
				t.Fatal("it is not likely")
			}
		}
		if stats := s.Stats(); stats.Publishers != 3 || stats.Added != 1 {
			t.Errorf("%+v", stats)
		}
		time.Sleep(2 * time.Minute)
		if stats := s.Stats(); stats.Publishers != 4 || stats.Added != 0 {
			t.Errorf("%+v", stats)
		}
	})
}

func TestRunKeepsTheFilterWhenTheListFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := newNotifying("a.example")
		log := new(servertest.Buffer)
		s := newFilter(t, db, Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
		run(t, s)
		db.add("b.example")
		db.fail(errors.New("the database is down"))
		time.Sleep(time.Hour + time.Second)
		if !s.isLikely("a.example") || s.isLikely("b.example") || db.lists.Load() != 2 || strings.Count(log.String(), "the database is down") != 1 {
			t.Errorf("%d lists; the log:\n%s", db.lists.Load(), log)
		}
		db.fail(nil)
		time.Sleep(2 * time.Minute) // it is tried again soon
		if !s.isLikely("b.example") || db.lists.Load() != 3 {
			t.Errorf("%d lists; the log:\n%s", db.lists.Load(), log)
		}
	})
}

func TestALongListIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := newDatabase()
		for i := range 5000 {
			db.names[fmt.Sprintf("%d.example", i)] = true
		}
		db.pause.Store(int64(20 * time.Millisecond))
		log := new(servertest.Buffer)
		s := newFilter(t, db, Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
		if err := s.build(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "building the filter"); n != 4 || !strings.Contains(log.String(), "publishers=5000") {
			t.Errorf("%d lines while it is built:\n%s", n, log)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.build(ctx); err != context.Canceled {
			t.Errorf("a canceled list: %v", err)
		}
	})
}

func TestManyReportsBuildTheFilterAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := newNotifying("a.example")
		s := newFilter(t, db, Config{})
		run(t, s)
		for i := range maxAdded + 1 {
			s.note(fmt.Sprintf("%d.example", i))
		}
		time.Sleep(2 * pause)
		if stats := s.Stats(); db.lists.Load() != 2 || stats.Added != 0 {
			t.Errorf("%d lists, %+v", db.lists.Load(), stats)
		}
	})
}

// If lists fail for long, the names that are reported do not fill the memory.
func TestReportedNamesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := newNotifying("a.example")
		s := newFilter(t, db, Config{})
		run(t, s)
		db.fail(errors.New("the database is down"))
		for i := range 10*maxAdded + 1 {
			s.note(fmt.Sprintf("%d.example", i))
		}
		if stats := s.Stats(); stats.Added > maxAdded {
			t.Errorf("%+v", stats)
		}
	})
}

// The database of a Filter keeps all that the database can do, and a wrapper that copies it does too.
func TestNoAbilityIsLost(t *testing.T) {
	t.Parallel()
	db := newNotifying("a.example")
	asked := db.source()
	asked.Shards, asked.Shard = 2, func(string) int { return 1 }
	f, err := New(asked, Config{})
	if err != nil {
		t.Fatal(err)
	}
	filtered := f.Database()
	logged := filtered
	logged.HasPublisher = func(ctx context.Context, domain string) (bool, error) {
		return filtered.HasPublisher(ctx, domain)
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
