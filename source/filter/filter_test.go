package filter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/internal/servertest"
)

// A database is a Lister of names.
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
		if own, _ := ampcors.HashPrefix(name); own == prefix {
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

// A notifying database reports changes after a delay.
type notifying struct {
	*database
	listeners map[int]func(...string)
	isDeaf    atomic.Bool
}

func newNotifying(names ...string) *notifying {
	return &notifying{database: newDatabase(names...), listeners: make(map[int]func(...string))}
}

func (n *notifying) IsListening() bool { return !n.isDeaf.Load() }

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

func newSource(t *testing.T, lister Lister, cfg Config) *Source {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = quiet(t)
	}
	s, err := New(lister, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs s until the test ends, and returns when the first filter is built.
func run(t *testing.T, s *Source) {
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
	prefix, err := ampcors.HashPrefix(domain)
	if err != nil {
		t.Fatal(err)
	}
	return prefix
}

func TestNewChecksItsArguments(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		lister Lister
		cfg    Config
		want   string
	}{
		{name: "no Lister", lister: nil, cfg: Config{}, want: "nil"},
		{name: "AnswerNo without a Notifier", lister: newDatabase(), cfg: Config{AnswerNo: true}, want: "not an ampcors.Notifier"},
		{name: "negative Every", lister: newDatabase(), cfg: Config{Every: -1}, want: "negative"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := New(test.lister, test.cfg); err == nil || !strings.Contains(err.Error(), test.want) {
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
	s := newSource(t, db, Config{})
	if s.Hint("www.site-1.example") != ampcors.NoHint {
		t.Error("likely without a filter")
	}
	if err := s.build(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		name := fmt.Sprintf("www.site-%d.example", i)
		if s.Hint(name) != ampcors.LikelyPublisher {
			t.Fatalf("%s is not likely", name)
		}
		if i%100 == 0 && s.Hint(prefixOf(t, name)) != ampcors.LikelyPublisher {
			t.Fatalf("the hash prefix of %s is not likely", name)
		}
	}
	wrong := 0
	for i := range n {
		if s.Hint(fmt.Sprintf("www.other-%d.example", i)) == ampcors.LikelyPublisher {
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
	if stats.Publishers != n || stats.AnswersNo || stats.BuiltAt.IsZero() {
		t.Errorf("%+v", stats)
	}
	for _, key := range []string{"", "a", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789012345678901"} {
		if s.Hint(key) != ampcors.NoHint {
			t.Errorf("%q is likely", key)
		}
	}
	if db.lookups != 0 || s.Shards() != 1 || s.Shard("a") != 0 {
		t.Error("lookups, or shards")
	}
}

// Without AnswerNo, a filter that is wrong changes no decision.
func TestAWrongFilterChangesNoDecision(t *testing.T) {
	t.Parallel()
	publishers := []string{"www.example.com", "xn--bcher-kva.example", "a--b.example", strings.Repeat("long.", 15) + "example"}
	others := []string{"www.evil.example", "example.com", "xn--bcher-kva.evil.example"}
	origins := func() (all []string) {
		for _, name := range append(slices.Clone(publishers), others...) {
			prefix, err := ampcors.DomainPrefix(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, "https://"+name, "https://"+prefix+".cdn.ampproject.org", "https://"+prefixOf(t, name)+".www.bing-amp.com")
		}
		return all
	}()
	decide := func(source ampcors.Source) (decisions []string) {
		m, err := ampcors.New(ampcors.Config{Source: source})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for _, origin := range origins {
				d := m.CheckOrigin(origin)
				decisions = append(decisions, fmt.Sprint(origin, d.Allowed, d.Reason, d.Publisher, d.SourceErr))
			}
		}
		return decisions
	}
	want := decide(newDatabase(publishers...))
	if n := strings.Count(strings.Join(want, "\n"), "true"); n != 2*3*len(publishers) {
		t.Fatalf("%d of the requests are allowed", n)
	}
	for name, list := range map[string][]string{
		"no filter": nil, "all no": {}, "all yes": append(slices.Clone(publishers), others...), "stale": append(slices.Clone(others), publishers[0]),
	} {
		t.Run(name, func(t *testing.T) {
			db := newNotifying(list...)
			s := newSource(t, db, Config{})
			if list != nil {
				if err := s.build(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			db.names = newDatabase(publishers...).names
			if got := decide(s); !slices.Equal(got, want) {
				t.Errorf("%q\nwant %q", got, want)
			}
		})
	}
}

func TestOnlyACompleteFilterAnswersNo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := newNotifying("a.example")
		s := newSource(t, db, Config{AnswerNo: true})
		// asks reports whether the database is asked, by domain and by hash prefix.
		asks := func(name string) bool {
			t.Helper()
			byDomain, byPrefix := s.Hint(name), s.Hint(prefixOf(t, name))
			if byDomain != byPrefix {
				t.Errorf("%s: %d by domain, %d by hash prefix", name, byDomain, byPrefix)
			}
			return byDomain != ampcors.NotPublisher
		}
		if !asks("b.example") {
			t.Error("it answers without a filter")
		}
		run(t, s)
		if asks("b.example") || !asks("a.example") || !s.Stats().AnswersNo {
			t.Error("with a filter, only publishers are asked for")
		}
		db.add("b.example")
		db.report("b.example")
		if !asks("b.example") || s.Stats().Added != 1 {
			t.Error("a reported name is not asked for")
		}
		db.isDeaf.Store(true)
		if !asks("c.example") || s.Stats().AnswersNo {
			t.Error("it answers while the Notifier is deaf")
		}
		db.isDeaf.Store(false)

		// Each of these says that changes may have been missed.
		for _, missed := range [][]string{{}, {"not a domain"}, {"c.example", "10.0.0.1"}} {
			db.report(missed...)
			if !asks("d.example") || s.Stats().AnswersNo {
				t.Errorf("after %q, it answers without a new list", missed)
			}
			time.Sleep(2 * pause)
			if asks("d.example") || !s.Stats().AnswersNo {
				t.Errorf("after %q, no filter was built", missed)
			}
		}
		if db.lists.Load() != 4 {
			t.Errorf("%d lists were read", db.lists.Load())
		}
		// A list that began before the report does not make it complete again.
		db.pause.Store(int64(time.Second))
		db.report()
		time.Sleep(time.Second / 2) // the list is being read
		db.report()
		time.Sleep(5 * time.Second)
		if !asks("d.example") || db.lists.Load() != 5 {
			t.Error("a list that began too early is trusted")
		}
		time.Sleep(pause + 10*time.Second)
		if asks("d.example") {
			t.Error("no filter was built")
		}
	})
}

// A name that is reported while a list is being read is in the filter from then on.
func TestANameReportedDuringAListIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := newNotifying("a.example", "b.example", "c.example")
		db.pause.Store(int64(time.Second))
		s := newSource(t, db, Config{AnswerNo: true, Every: time.Minute})
		run(t, s)
		time.Sleep(1500 * time.Millisecond)
		db.add("0.example")
		db.report("0.example")
		for range 20 {
			time.Sleep(400 * time.Millisecond)
			if s.Hint("0.example") == ampcors.NotPublisher {
				t.Fatal("it is denied")
			}
		}
		if stats := s.Stats(); !stats.AnswersNo || stats.Publishers != 3 || stats.Added != 1 {
			t.Errorf("%+v", stats)
		}
		time.Sleep(2 * time.Minute)
		if stats := s.Stats(); stats.Publishers != 4 || stats.Added != 0 {
			t.Errorf("%+v", stats)
		}
	})
}

// TestAPublisherIsNeverDeniedAfterItsReport lets publishers come and go, with reports that
// are late or lost, while lists are read that take their time. A publisher that was
// reported is never denied by a Middleware, and nobody else is ever allowed.
func TestAPublisherIsNeverDeniedAfterItsReport(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 15))
			db := newNotifying()
			for i := range 50 {
				db.names[fmt.Sprintf("old-%d.example", i)] = true
			}
			db.pause.Store(int64(20 * time.Millisecond))
			s := newSource(t, db, Config{AnswerNo: true, Every: 20 * time.Second, Logger: slog.New(slog.DiscardHandler)})
			run(t, s)
			m, err := ampcors.New(ampcors.Config{Source: s, Lookup: ampcors.Lookup{TTL: time.Hour, NegativeTTL: time.Hour}})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			isReported := make(map[string]bool)
			answersNo := false
			for i := range 1000 {
				time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
				name := fmt.Sprintf("new-%d.example", random.IntN(i+1))
				switch random.IntN(6) {
				case 0: // it becomes a publisher, and that is reported at once, or late, or lost
					db.add(name)
					switch random.IntN(40) {
					case 0:
						time.Sleep(200 * time.Millisecond)
						db.report()
						for name := range db.names {
							isReported[name] = true
						}
					default:
						time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
						db.report(name)
						isReported[name] = true
					}
				default:
					d := m.CheckOrigin("https://" + name)
					if !d.Allowed && isReported[name] || d.Allowed && !db.names[name] {
						t.Fatalf("seed %d: %s: %+v; reported: %t", seed, name, d, isReported[name])
					}
				}
				answersNo = answersNo || s.Stats().AnswersNo
			}
			if !answersNo {
				t.Error("the filter never answered")
			}
		})
	}
}

func TestRunKeepsTheFilterWhenTheListFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := newNotifying("a.example")
		log := new(servertest.Buffer)
		s := newSource(t, db, Config{AnswerNo: true, Logger: slog.New(slog.NewTextHandler(log, nil))})
		run(t, s)
		db.add("b.example")
		db.fail(errors.New("the database is down"))
		time.Sleep(time.Hour + time.Second)
		if s.Hint("a.example") != ampcors.LikelyPublisher || s.Hint("b.example") != ampcors.NotPublisher || db.lists.Load() != 2 || strings.Count(log.String(), "the database is down") != 1 {
			t.Errorf("%d lists; the log:\n%s", db.lists.Load(), log)
		}
		if db.fail(nil); !s.Stats().AnswersNo { // the reports still come
			t.Error("it does not answer")
		}
		time.Sleep(2 * time.Minute) // it is tried again soon
		if s.Hint("b.example") != ampcors.LikelyPublisher || db.lists.Load() != 3 {
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
		s := newSource(t, db, Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
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
		s := newSource(t, db, Config{})
		run(t, s)
		for i := range maxAdded + 1 {
			s.note([]string{fmt.Sprintf("%d.example", i)})
		}
		time.Sleep(2 * pause)
		if stats := s.Stats(); db.lists.Load() != 2 || stats.Added != 0 {
			t.Errorf("%d lists, %+v", db.lists.Load(), stats)
		}
	})
}

// If lists fail for long, the names that are reported do not fill the memory. Nothing is
// denied because of that.
func TestReportedNamesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := newNotifying("a.example")
		s := newSource(t, db, Config{AnswerNo: true})
		run(t, s)
		db.fail(errors.New("the database is down"))
		for i := range 10*maxAdded + 1 {
			s.note([]string{fmt.Sprintf("%d.example", i)})
		}
		if stats := s.Stats(); stats.Added > maxAdded || stats.AnswersNo || s.Hint("0.example") == ampcors.NotPublisher {
			t.Errorf("%+v", stats)
		}
	})
}

func TestASavedFilterIsReadByTheNextServer(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{{}, {"a.example"}, {"a.example", "b.example", "c.example"}} {
		t.Run(fmt.Sprint(len(names)), func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "publishers.filter")
			cfg := Config{File: file, AnswerNo: true}
			db := newNotifying(names...)
			first := newSource(t, db, cfg)
			if err := first.build(t.Context()); err != nil {
				t.Fatal(err)
			}
			second := newSource(t, db, cfg)
			if stats := second.Stats(); stats.Publishers != len(names) || stats.AnswersNo || stats.BuiltAt.IsZero() {
				t.Errorf("%+v", stats)
			}
			for _, name := range names {
				if second.Hint(name) != ampcors.LikelyPublisher {
					t.Errorf("%s is not likely", name)
				}
			}
			if second.Hint("other.example") != ampcors.NoHint {
				t.Error("a filter from a file answers no")
			}

			// A damaged file is not used.
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for at := range data {
				for _, damaged := range [][]byte{data[:at], slices.Concat(data[:at], []byte{data[at] ^ 1}, data[at+1:])} {
					if err := os.WriteFile(file, damaged, 0o600); err != nil {
						t.Fatal(err)
					}
					if _, _, _, err := read(file); err == nil {
						t.Fatalf("damaged at byte %d, it is read", at)
					}
				}
			}
			log := new(servertest.Buffer)
			cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
			if third := newSource(t, db, cfg); third.Stats().Publishers != 0 || !strings.Contains(log.String(), "damaged") {
				t.Errorf("%s", log)
			}
		})
	}
}

func TestAFilterThatCannotBeSavedIsUsed(t *testing.T) {
	t.Parallel()
	log := new(servertest.Buffer)
	s := newSource(t, newDatabase("a.example"), Config{File: filepath.Join(t.TempDir(), "missing", "file"), Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err := s.build(t.Context()); err != nil || s.Hint("a.example") != ampcors.LikelyPublisher || !strings.Contains(log.String(), "not saved") {
		t.Errorf("%v, %s", err, log)
	}
}

// sharded is a Lister in two shards.
type sharded struct{ *database }

func (sharded) Shards() int      { return 2 }
func (sharded) Shard(string) int { return 1 }

func TestShardsAreThoseOfTheWrappedSource(t *testing.T) {
	t.Parallel()
	s := newSource(t, sharded{newDatabase()}, Config{})
	if s.Shards() != 2 || s.Shard("a.example") != 1 {
		t.Errorf("%d, %d", s.Shards(), s.Shard("a.example"))
	}
	s.Notify(func(...string) { t.Error("it is no Notifier") })()
}

func BenchmarkIsLikely(b *testing.B) {
	db := newDatabase()
	for i := range 1_000_000 {
		db.names[fmt.Sprintf("www.site-%d.example", i)] = true
	}
	s, err := New(db, Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	if err := s.build(b.Context()); err != nil {
		b.Fatal(err)
	}
	prefix, _ := ampcors.HashPrefix("www.site-7.example")
	for name, key := range map[string]string{"domain": "www.site-7.example", "prefix": prefix} {
		b.Run("key="+name, func(b *testing.B) {
			for b.Loop() {
				s.Hint(key)
			}
		})
	}
	b.Run("build", func(b *testing.B) {
		for b.Loop() {
			if err := s.build(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
