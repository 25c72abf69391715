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

func (d *database) source() source.Source {
	return source.Source{HasPublisher: d.HasPublisher, PublisherByHash: d.PublisherByHash, Publishers: d.Publishers}
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

func (n *notifying) source() source.Source {
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

func newFilter(t *testing.T, db interface{ source() source.Source }, cfg Config) *Filter {
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
		asked source.Source
		cfg   Config
		want  string
	}{
		{name: "no list", asked: source.Source{}, cfg: Config{}, want: "Publishers is nil"},
		{name: "two filters", asked: newFilter(t, newDatabase(), Config{}).Source(), cfg: Config{}, want: "Hint is set"},
		{name: "AnswerNo without Notify", asked: newDatabase().source(), cfg: Config{AnswerNo: true}, want: "Notify is nil"},
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
	if s.hint("www.site-1.example") != source.NoHint {
		t.Error("likely without a filter")
	}
	if err := s.build(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		name := fmt.Sprintf("www.site-%d.example", i)
		if s.hint(name) != source.LikelyPublisher {
			t.Fatalf("%s is not likely", name)
		}
		if i%100 == 0 && s.hint(prefixOf(t, name)) != source.LikelyPublisher {
			t.Fatalf("the hash prefix of %s is not likely", name)
		}
	}
	wrong := 0
	for i := range n {
		if s.hint(fmt.Sprintf("www.other-%d.example", i)) == source.LikelyPublisher {
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
		if s.hint(key) != source.NoHint {
			t.Errorf("%q is likely", key)
		}
	}
	if db.lookups != 0 {
		t.Errorf("%d lookups", db.lookups)
	}
}

// Without AnswerNo, a filter that is wrong changes no decision.
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
	decide := func(s source.Source) (decisions []string) {
		m := servertest.Middleware(t, s, source.Options{})
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
			if got := decide(s.Source()); !slices.Equal(got, want) {
				t.Errorf("%q\nwant %q", got, want)
			}
		})
	}
}

func TestOnlyACompleteFilterAnswersNo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := newNotifying("a.example")
		s := newFilter(t, db, Config{AnswerNo: true})
		// asks reports whether the database is asked, by domain and by hash prefix.
		asks := func(name string) bool {
			t.Helper()
			byDomain, byPrefix := s.hint(name), s.hint(prefixOf(t, name))
			if byDomain != byPrefix {
				t.Errorf("%s: %d by domain, %d by hash prefix", name, byDomain, byPrefix)
			}
			return byDomain != source.NotPublisher
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
			t.Error("it answers while the Source is deaf")
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
		s := newFilter(t, db, Config{AnswerNo: true, Every: time.Minute})
		run(t, s)
		time.Sleep(1500 * time.Millisecond)
		db.add("0.example")
		db.report("0.example")
		for range 20 {
			time.Sleep(400 * time.Millisecond)
			if s.hint("0.example") == source.NotPublisher {
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
			s := newFilter(t, db, Config{AnswerNo: true, Every: 20 * time.Second, Logger: slog.New(slog.DiscardHandler)})
			run(t, s)
			m := servertest.Middleware(t, s.Source(), source.Options{TTL: time.Hour, NegativeTTL: time.Hour})
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
		s := newFilter(t, db, Config{AnswerNo: true, Logger: slog.New(slog.NewTextHandler(log, nil))})
		run(t, s)
		db.add("b.example")
		db.fail(errors.New("the database is down"))
		time.Sleep(time.Hour + time.Second)
		if s.hint("a.example") != source.LikelyPublisher || s.hint("b.example") != source.NotPublisher || db.lists.Load() != 2 || strings.Count(log.String(), "the database is down") != 1 {
			t.Errorf("%d lists; the log:\n%s", db.lists.Load(), log)
		}
		if db.fail(nil); !s.Stats().AnswersNo { // the reports still come
			t.Error("it does not answer")
		}
		time.Sleep(2 * time.Minute) // it is tried again soon
		if s.hint("b.example") != source.LikelyPublisher || db.lists.Load() != 3 {
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
		s := newFilter(t, db, Config{AnswerNo: true})
		run(t, s)
		db.fail(errors.New("the database is down"))
		for i := range 10*maxAdded + 1 {
			s.note([]string{fmt.Sprintf("%d.example", i)})
		}
		if stats := s.Stats(); stats.Added > maxAdded || stats.AnswersNo || s.hint("0.example") == source.NotPublisher {
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
			first := newFilter(t, db, cfg)
			if err := first.build(t.Context()); err != nil {
				t.Fatal(err)
			}
			second := newFilter(t, db, cfg)
			if stats := second.Stats(); stats.Publishers != len(names) || stats.AnswersNo || stats.BuiltAt.IsZero() {
				t.Errorf("%+v", stats)
			}
			for _, name := range names {
				if second.hint(name) != source.LikelyPublisher {
					t.Errorf("%s is not likely", name)
				}
			}
			if second.hint("other.example") != source.NoHint {
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
			if third := newFilter(t, db, cfg); third.Stats().Publishers != 0 || !strings.Contains(log.String(), "damaged") {
				t.Errorf("%s", log)
			}
		})
	}
}

func TestAFilterThatCannotBeSavedIsUsed(t *testing.T) {
	t.Parallel()
	log := new(servertest.Buffer)
	s := newFilter(t, newDatabase("a.example"), Config{File: filepath.Join(t.TempDir(), "missing", "file"), Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err := s.build(t.Context()); err != nil || s.hint("a.example") != source.LikelyPublisher || !strings.Contains(log.String(), "not saved") {
		t.Errorf("%v, %s", err, log)
	}
}

// The Source of a Filter keeps all that the Source can do, and a wrapper that copies it does too.
func TestNoAbilityIsLost(t *testing.T) {
	t.Parallel()
	db := newNotifying("a.example")
	asked := db.source()
	asked.Shards, asked.Shard = 2, func(string) int { return 1 }
	f, err := New(asked, Config{})
	if err != nil {
		t.Fatal(err)
	}
	filtered := f.Source()
	logged := filtered
	logged.HasPublisher = func(ctx context.Context, domain string) (bool, error) {
		return filtered.HasPublisher(ctx, domain)
	}
	for v, i := reflect.ValueOf(logged), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("%s is lost", v.Type().Field(i).Name)
		}
	}
	if without := newFilter(t, newDatabase(), Config{}).Source(); without.Notify != nil || without.Shard != nil {
		t.Error("it can do what the database cannot")
	}
}

// A Source may report changes while it holds a lock that its IsListening takes.
func TestIsListeningMayTakeALockThatReportsHold(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	db := newNotifying("a.example")
	asked := db.source()
	reporting, asking := make(chan struct{}), make(chan struct{})
	asked.IsListening = func() bool {
		select {
		case <-asking:
		default:
			close(asking) // the reporter has the lock by then
			<-reporting
		}
		mu.Lock()
		defer mu.Unlock()
		return true
	}
	f, err := New(asked, Config{AnswerNo: true, Logger: quiet(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.build(t.Context()); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-asking
		mu.Lock()
		defer mu.Unlock()
		close(reporting)
		f.note([]string{"b.example"})
	}()
	go f.hint("c.example")
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("deadlock")
	}
}
