package configfile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/source"
)

// quick is an interval for tests that do not measure time. It is several times the
// resolution of file times.
const quick = 25 * time.Millisecond

// A watched is a middleware that follows a file.
type watched struct {
	*testing.T
	path   string
	mw     *ampcors.Middleware
	log    *servertest.Buffer
	reload chan os.Signal
}

func startWatching(t *testing.T, path string, interval time.Duration) *watched {
	t.Helper()
	return startWatchingFile(t, File{Path: path}, interval)
}

func startWatchingFile(t *testing.T, file File, interval time.Duration) *watched {
	t.Helper()
	path := file.Path
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{"first.example"}})
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{T: t, path: path, mw: mw, log: new(servertest.Buffer), reload: make(chan os.Signal)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		watcher := newWatcher(path, file.read, mw, WatcherConfig{Logger: slog.New(slog.NewTextHandler(w.log, nil)), Reload: w.reload})
		watcher.interval, watcher.seen = interval, snapshot{look(path)}
		if err := watcher.Run(ctx); err != context.Canceled {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

// lines returns what is logged.
func (w *watched) lines() []string {
	return strings.Split(strings.TrimSuffix(w.log.String(), "\n"), "\n")
}

func (w *watched) allows(publisher string) bool {
	return w.mw.CheckOrigin("https://" + publisher).Allowed
}

// pass lets d pass in the bubble, and then waits until the Watcher is idle. Files that are
// changed afterwards change between two polls.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// waitForLog waits until a change is applied or reported. The log must then have that many
// lines, and the text must be in the last one.
func (w *watched) waitForLog(lines int, text string) {
	w.Helper()
	pass(2 * time.Second)
	if got := w.lines(); len(got) != lines || !strings.Contains(got[lines-1], text) {
		w.Fatalf("want %d lines, the last with %q; log:\n%s", lines, text, strings.Join(got, "\n"))
	}
}

func listing(publishers ...string) string {
	text, _ := json.Marshal(map[string][]string{"publishers": publishers})
	return string(text)
}

// configMap makes a directory as Kubernetes does: its files are links through "..data", which
// is a link to the directory with the data.
type configMap struct {
	dir  string
	next int
}

func newConfigMap(t testing.TB, files map[string]string) *configMap {
	c := &configMap{dir: t.TempDir()}
	c.swap(t, files)
	for name := range files {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(c.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *configMap) swap(t testing.TB, files map[string]string) {
	t.Helper()
	old, _ := os.Readlink(filepath.Join(c.dir, "..data"))
	c.next++
	name := fmt.Sprintf("..%d", c.next)
	err := os.Mkdir(filepath.Join(c.dir, name), 0o700)
	for file, text := range files {
		writeFile(t, filepath.Join(c.dir, name, file), text)
	}
	err = errors.Join(err, os.Symlink(name, filepath.Join(c.dir, "..data_tmp")))
	err = errors.Join(err, os.Rename(filepath.Join(c.dir, "..data_tmp"), filepath.Join(c.dir, "..data")))
	if old != "" {
		err = errors.Join(err, os.RemoveAll(filepath.Join(c.dir, old)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// replace replaces a file by renaming another.
func replace(t testing.TB, name, text string) {
	t.Helper()
	writeFile(t, name+".new", text)
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

// The Watcher runs on the clock of a bubble, so that a busy machine cannot make this fail.
// A file that changes at each check is never applied, and one that is mounted by itself, and was replaced outside, never changes again.
func TestAFileThatCannotBeFollowedIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	writeFile(t, path, listing("first.example"))
	synctest.Test(t, func(t *testing.T) {
		var log servertest.Buffer
		mw, watcher, err := (File{Path: path}).Watch(WatcherConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = watcher.Run(ctx) }()
		for i := range 150 {
			writeFile(t, path, listing("first.example", fmt.Sprintf("n%d.example", i))+strings.Repeat(" ", i))
			pass(200 * time.Millisecond)
		}
		if err := watcher.Status().Err; err == nil || !strings.Contains(err.Error(), "changes all the time") ||
			strings.Count(log.String(), "changes all the time") != 1 {
			t.Errorf("%v; the log:\n%s", err, &log)
		}
		pass(2 * time.Second)
		if err := watcher.Status().Err; err != nil || !mw.CheckOrigin("https://n149.example").Allowed {
			t.Errorf("then: %v; the log:\n%s", err, &log)
		}
		cancel()
	})
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	mounted := fmt.Sprintf("/proc/self/fd/%d", file.Fd())
	if runtime.GOOS != "linux" {
		t.Skip("how many links a file has is only used on Linux")
	}
	synctest.Test(t, func(t *testing.T) {
		var log servertest.Buffer
		_, watcher, err := (File{Path: mounted}).Watch(WatcherConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = watcher.Run(ctx) }()
		pass(2 * time.Second)
		if err := watcher.Status().Err; err != nil {
			t.Error(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		if err := watcher.Status().Err; err == nil || !strings.Contains(err.Error(), "outside of its mount") ||
			strings.Count(log.String(), "level=") != 1 {
			t.Errorf("%v; the log:\n%s", err, &log)
		}
		cancel()
	})
}

// Two files that are missing are two files.
func TestAMissingListIsNotTheFileItself(t *testing.T) {
	_, err := File{Path: filepath.Join(t.TempDir(), "config.json")}.Config()
	if err == nil || strings.Contains(err.Error(), "itself") {
		t.Error(err)
	}
	path := filepath.Join(t.TempDir(), "config.json")
	writeFile(t, path, `{"publishersFile": "missing.txt", "cachesFile": "missing.json"}`)
	if _, err = (File{Path: path}).Config(); err == nil || strings.Contains(err.Error(), "itself") ||
		strings.Count(err.Error(), "no such file") != 2 {
		t.Error(err)
	}
}

func TestAChangeIsAppliedWithinTwoSeconds(t *testing.T) {
	for name, test := range map[string]func(t *testing.T) (path string, change func()){
		"rewritten in place": func(t *testing.T) (string, func()) {
			path := filepath.Join(write(t, map[string]string{"c.json": listing("a.example")}), "c.json")
			return path, func() { writeFile(t, path, listing("b.example")) } // of the same length
		},
		"replaced by renaming": func(t *testing.T) (string, func()) {
			path := filepath.Join(write(t, map[string]string{"c.json": listing("a.example")}), "c.json")
			return path, func() { replace(t, path, listing("b.example")) }
		},
		"a ConfigMap": func(t *testing.T) (string, func()) {
			c := newConfigMap(t, map[string]string{"c.json": listing("a.example")})
			return filepath.Join(c.dir, "c.json"), func() { c.swap(t, map[string]string{"c.json": listing("b.example")}) }
		},
		"a list rewritten in place": func(t *testing.T) (string, func()) {
			dir := write(t, map[string]string{"c.json": `{"publishersFile": "p.txt"}`, "p.txt": "a.example\n"})
			return filepath.Join(dir, "c.json"), func() { writeFile(t, filepath.Join(dir, "p.txt"), "b.example\n") }
		},
		"another list": func(t *testing.T) (string, func()) {
			dir := write(t, map[string]string{"c.json": `{"publishersFile": "p.txt"}`, "p.txt": "a.example\n", "q.txt": "b.example\n"})
			return filepath.Join(dir, "c.json"), func() { replace(t, filepath.Join(dir, "c.json"), `{"publishersFile": "q.txt"}`) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, change := test(t)
			time.Sleep(quick) // the file system does not use the bubble's clock
			synctest.Test(t, func(t *testing.T) {
				w := startWatching(t, path, interval)
				w.waitForLog(1, "is applied")
				pass(time.Millisecond) // so that no poll is due at the end of the two seconds
				change()
				w.waitForLog(2, "is applied")
				if w.allows("a.example") || !w.allows("b.example") {
					t.Error("the change is not applied")
				}
			})
		})
	}
}

func TestABrokenFileKeepsTheLastGoodConfiguration(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		damage func(t *testing.T, path string)
		want   string // in the one line that is logged
	}{
		{name: "half-written", damage: func(t *testing.T, path string) { writeFile(t, path, `{"publishers": ["b.exam`) },
			want: "c.json:1:24: is not JSON"},
		{name: "empty", damage: func(t *testing.T, path string) { writeFile(t, path, "") }, want: "is not JSON"},
		{name: "with an error", damage: func(t *testing.T, path string) { replace(t, path, `{"publishers": ["b"]}`) }, want: "c.json:1:17"},
		{name: "with two names in one", damage: func(t *testing.T, path string) { replace(t, path, listing("a.example\nd.example")) },
			want: "c.json:1:16"},
		{name: "gone", damage: func(t *testing.T, path string) { _ = os.Remove(path) }, want: "no such file"},
		{name: "a directory", damage: func(t *testing.T, path string) { _ = os.Remove(path); _ = os.Mkdir(path, 0o700) },
			want: "not a regular file"},
		{name: "with a list that is gone", damage: func(t *testing.T, path string) { replace(t, path, `{"publishersFile": "none"}`) },
			want: "no such file"},
		{name: "with a truncated list", damage: func(t *testing.T, path string) {
			writeFile(t, filepath.Join(filepath.Dir(path), "p.txt"), "b.example\nc.exam")
			replace(t, path, `{"publishersFile": "p.txt"}`)
		}, want: "p.txt:2:7: the last line has no line break"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(write(t, map[string]string{"c.json": listing("a.example", "d.example")}), "c.json")
				w := startWatching(t, path, interval)
				w.waitForLog(1, "is applied")
				test.damage(t, path)
				w.waitForLog(2, test.want)
				pass(time.Minute)
				w.waitForLog(2, "level=ERROR") // once
				if !w.allows("a.example") || w.allows("b.example") {
					t.Error("the last good configuration is not in force")
				}
				_ = os.RemoveAll(path)
				writeFile(t, path, listing("c.example"))
				w.waitForLog(3, "level=INFO")
				if !w.allows("c.example") {
					t.Error("the next good configuration is not in force")
				}
			})
		})
	}
}

// A file that was moved away and comes back with the same state is noticed, too.
func TestAFileThatComesBackIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(write(t, map[string]string{"c.json": listing("a.example")}), "c.json")
		w := startWatching(t, path, interval)
		w.waitForLog(1, "is applied")
		for n := 2; n < 6; n += 2 {
			if err := os.Rename(path, path+".aside"); err != nil {
				t.Fatal(err)
			}
			w.waitForLog(n, "no such file")
			if err := os.Rename(path+".aside", path); err != nil {
				t.Fatal(err)
			}
			w.waitForLog(n+1, "is applied")
		}
	})
}

// newPolled returns a Watcher that polls only when the test calls poll.
func newPolled(t *testing.T, path string, set func(*ampcors.Config)) (*Watcher, *watched) {
	t.Helper()
	w := &watched{T: t, path: path, mw: new(ampcors.Middleware), log: new(servertest.Buffer)}
	polled := newWatcher(path, File{Path: path, Set: set}.read, w.mw, WatcherConfig{Logger: slog.New(slog.NewTextHandler(w.log, nil))})
	polled.seen = snapshot{look(path)}
	return polled, w
}

// tick waits until the file system's time has changed, and polls.
func tick(w *Watcher) {
	time.Sleep(quick)
	w.poll()
}

// A list that is being written looks complete after each line.
func TestAFileIsNotAppliedWhileItIsWritten(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{"c.json": `{"publishersFile": "p.txt"}`, "p.txt": "a.example\nlast.example\n"})
	polled, w := newPolled(t, filepath.Join(dir, "c.json"), nil)
	for range 3 {
		tick(polled)
	}
	f, err := os.Create(filepath.Join(dir, "p.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i := range 10 {
		fmt.Fprintf(f, "b%d.example\n", i)
		tick(polled)
		if !w.allows("last.example") || w.allows("b0.example") {
			t.Fatalf("applied after %d of 10 lines", i+1)
		}
	}
	fmt.Fprintln(f, "last.example")
	tick(polled)
	tick(polled)
	if got := w.lines(); len(got) != 2 || !w.allows("b9.example") {
		t.Errorf("log:\n%s", strings.Join(got, "\n"))
	}
}

// Another list is not applied while it is being written either.
func TestAnotherListIsAppliedOnceItIsStable(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{"c.json": listing("a.example"), "p.txt": "p.example\n"})
	path := filepath.Join(dir, "c.json")
	polled, w := newPolled(t, path, nil)
	tick(polled)
	replace(t, path, `{"publishersFile": "p.txt"}`)
	tick(polled)
	tick(polled) // the first look at the list
	if w.allows("p.example") || !w.allows("a.example") {
		t.Error("the list is applied at the first look")
	}
	writeFile(t, filepath.Join(dir, "p.txt"), "p.example\nq.example\n")
	tick(polled)
	if w.allows("p.example") {
		t.Error("the list is applied while it changes")
	}
	tick(polled)
	if !w.allows("q.example") {
		t.Errorf("the list is not applied; log:\n%s", w.log)
	}
}

// A file that changes while it is read is not applied, not even after a signal.
func TestAFileThatChangesWhileItIsReadIsNotApplied(t *testing.T) {
	t.Parallel()
	path := filepath.Join(write(t, map[string]string{"c.json": listing("a.example")}), "c.json")
	meanwhile := func(*ampcors.Config) {}
	polled, w := newPolled(t, path, func(cfg *ampcors.Config) { meanwhile(cfg) })
	tick(polled)
	meanwhile = func(*ampcors.Config) { // Set is called once the file has been read
		meanwhile = func(*ampcors.Config) {}
		replace(t, path, listing("c.example"))
	}
	replace(t, path, listing("b.example"))
	polled.apply(nil)
	if w.allows("b.example") || !w.allows("a.example") {
		t.Error("a file that is no longer there is applied")
	}
	tick(polled)
	tick(polled)
	if !w.allows("c.example") {
		t.Errorf("not applied; log:\n%s", w.log)
	}
}

// A file that is overwritten with one of the same size and time is noticed.
func TestACopyWithTheSameTimesIsNoticed(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the change time, which programs cannot set, is only used on Linux")
	}
	path := filepath.Join(write(t, map[string]string{"c.json": listing("a.example")}), "c.json")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	polled, w := newPolled(t, path, nil)
	tick(polled)
	writeFile(t, path, listing("b.example"))
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	tick(polled)
	tick(polled)
	if !w.allows("b.example") {
		t.Errorf("not applied; log:\n%s", w.log)
	}
}

func TestASignalAppliesTheFileAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(write(t, map[string]string{"c.json": listing("a.example")}), "c.json")
		w := startWatching(t, path, time.Hour)
		w.reload <- os.Interrupt
		w.waitForLog(1, "is applied")
		if !w.allows("a.example") {
			t.Error("not applied")
		}
		w.reload <- os.Interrupt
		w.waitForLog(2, "is applied") // even without a change: the operator wants to see it
		writeFile(t, path, "{")
		w.reload <- os.Interrupt
		w.waitForLog(3, "not applied")
		w.reload <- os.Interrupt
		w.waitForLog(4, "not applied")
		close(w.reload) // is no signal
		w.waitForLog(4, "not applied")
		if !w.allows("a.example") {
			t.Error("the last good configuration is not in force")
		}
	})
}

func TestTheWatcherAppliesSet(t *testing.T) {
	t.Parallel()
	path := filepath.Join(write(t, map[string]string{"c.json": `{}`}), "c.json")
	cache := everyDomain(t)
	w := &watched{T: t, path: path, log: new(servertest.Buffer)}
	file := File{Path: path, Set: func(cfg *ampcors.Config) {
		cfg.Source, cfg.Publishers = cache, append(cfg.Publishers, "set.example")
	}}
	mw, watcher, err := file.Watch(WatcherConfig{Logger: slog.New(slog.NewTextHandler(w.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	w.mw = mw
	for _, text := range []string{`{}`, `{"methods": ["PUT"]}`} { // at the start, and after a change
		writeFile(t, path, text)
		watcher.poll()
		watcher.poll()
		if stats := mw.Stats(); stats.Publishers != 1 || !w.allows("set.example") || !w.allows("any.example") {
			t.Errorf("%s: %+v", text, stats)
		}
	}
	if n := strings.Count(w.log.String(), "is applied"); n != 1 {
		t.Errorf("applied %d times:\n%s", n, w.log)
	}
}

// The list that an Inline names is followed. The rest of the configuration stays the same.
func TestAnInlinesListIsFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := write(t, map[string]string{"p.txt": "a.example\n"})
		in := Inline{Name: "the program", Dir: dir, JSON: []byte(`{"publishers": ["own.example"], "publishersFile": "p.txt"}`)}
		w := &watched{T: t, log: new(servertest.Buffer)}
		mw, watcher, err := in.Watch(WatcherConfig{Logger: slog.New(slog.NewTextHandler(w.log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		w.mw = mw
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = watcher.Run(ctx) }()
		pass(3 * time.Second)
		if status := watcher.Status(); w.log.String() != "" || status.Err != nil || status.AppliedAt.IsZero() || !w.allows("a.example") {
			t.Errorf("%s, %+v: want what is in force not to be applied again", w.log, status)
		}
		replace(t, filepath.Join(dir, "p.txt"), "b.example\n")
		w.waitForLog(1, "is applied")
		if w.allows("a.example") || !w.allows("b.example") || !w.allows("own.example") {
			t.Error("the new list is not in force")
		}
		replace(t, filepath.Join(dir, "p.txt"), "b\n")
		w.waitForLog(2, "p.txt:1:1: ")
		if !w.allows("b.example") {
			t.Error("the last good list is not in force")
		}
		cancel()
		synctest.Wait()
	})
}

func TestAnInlineWithoutAListHasNothingToFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := new(servertest.Buffer)
		_, watcher, err := Inline{JSON: []byte(`{"publishers": ["own.example"]}`)}.Watch(
			WatcherConfig{Logger: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := watcher.Run(ctx); err != context.DeadlineExceeded || log.String() != "" {
			t.Errorf("%v; log: %s", err, log)
		}
	})
	for _, text := range []string{`{"publishersFile": "relative.txt"}`, `{`} {
		if mw, watcher, err := (Inline{JSON: []byte(text)}).Watch(WatcherConfig{}); mw != nil || watcher != nil || err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

// everyDomain returns a Source in which every domain is a publisher.
func everyDomain(t *testing.T) *source.Source {
	t.Helper()
	c, err := source.New(source.Database{PublisherByDomain: func(_ context.Context, domain string) (string, error) { return domain, nil }},
		source.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// If the files are swapped while they are read, it must not mix old and new.
func TestOnlyFilesThatBelongTogetherAreUsed(t *testing.T) {
	t.Parallel()
	files := func(i int) map[string]string {
		return map[string]string{
			"c.json": fmt.Sprintf(`{"publishersFile": "p.txt", "methods": ["M%d"]}`, i),
			"p.txt":  fmt.Sprintf("p%d.example\n", i),
		}
	}
	c := newConfigMap(t, files(0))
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			default:
				c.swap(t, files(i%10))
				time.Sleep(time.Millisecond)
			}
		}
	})
	loaded, found := 0, make(map[string]bool)
	for range 500 {
		cfg, err := File{Path: filepath.Join(c.dir, "c.json")}.Config()
		if err != nil {
			if !strings.Contains(err.Error(), "changes all the time") {
				t.Error(err)
			}
			continue
		}
		loaded++
		found[cfg.Publishers[0]] = true
		if cfg.Publishers[0][1:2] != cfg.Methods[0][1:] {
			t.Fatalf("%q with %q", cfg.Publishers, cfg.Methods)
		}
	}
	close(stop)
	group.Wait()
	if loaded < 100 || len(found) < 2 {
		t.Errorf("only %d of 500 were loaded, of %d versions", loaded, len(found))
	}
}

// A publisher whose cache origins are denied is named at the start, and when a change brings it.
func TestWarningsAreLogged(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.json")
	writeFile(t, path, listing("www.lāstekas.lv"))
	synctest.Test(t, func(t *testing.T) {
		log := new(servertest.Buffer)
		_, watcher, err := File{Path: path}.Watch(WatcherConfig{Logger: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait() }()
		go func() {
			_ = watcher.Run(ctx)
		}()
		pass(5 * time.Second)
		if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "xn-www.lstekas.lv.pub") {
			t.Errorf("log:\n%s", text)
		}
		writeFile(t, path, `{"publishers": ["a.example"`+strings.Repeat(`, "www.lāstekas.lv"`, 20)+`]}`)
		pass(5 * time.Second)
		if text := log.String(); strings.Count(text, "level=WARN") != 12 || !strings.HasSuffix(text, "publishers=10\n") {
			t.Errorf("log:\n%s", text)
		}
	})
}

// A configuration that is in force already is not applied again when the file is written again as
// it was, unless Set sets a function or another Source. A signal on Reload applies it in any case.
func TestAConfigurationInForceIsNotAppliedAgain(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		set       func(*ampcors.Config)
		file      string // written over {"publishers": ["first.example"]}
		isApplied bool
	}{
		{name: "the same", set: nil, file: listing("first.example"), isApplied: false},
		{name: "another publisher", set: nil, file: listing("second.example"), isApplied: true},
		{name: "another field", set: nil, file: `{"publishers": ["first.example"], "credentialed": true}`, isApplied: true},
		{name: "Set changes nothing", set: func(*ampcors.Config) {}, file: listing("first.example"), isApplied: false},
		{name: "Set sets a function", set: func(cfg *ampcors.Config) { cfg.Observe = func(*http.Request, ampcors.Decision) {} },
			file: listing("first.example"), isApplied: true},
		{name: "Set sets a Source", set: func(cfg *ampcors.Config) { cfg.Source = everyDomain(t) }, file: listing("first.example"),
			isApplied: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "config.json")
			writeFile(t, path, listing("first.example"))
			synctest.Test(t, func(t *testing.T) {
				log, reload := new(servertest.Buffer), make(chan os.Signal)
				_, watcher, err := File{Path: path, Set: test.set}.Watch(WatcherConfig{Logger: slog.New(slog.NewTextHandler(log, nil)), Reload: reload})
				if err != nil {
					t.Fatal(err)
				}
				writeFile(t, path, test.file)
				ctx, cancel := context.WithCancel(t.Context())
				defer func() { cancel(); synctest.Wait() }()
				go func() { _ = watcher.Run(ctx) }()
				pass(5 * time.Second)
				if n := strings.Count(log.String(), "is applied"); n > 1 || (n == 1) != test.isApplied {
					t.Errorf("applied %d times:\n%s", n, log)
				}
				before := strings.Count(log.String(), "is applied")
				reload <- os.Interrupt
				pass(time.Second)
				if n := strings.Count(log.String(), "is applied"); n != before+1 {
					t.Errorf("applied %d times after a signal:\n%s", n-before, log)
				}
				if test.isApplied {
					return
				}
				writeFile(t, path, test.file+"\n")
				pass(5 * time.Second)
				if n := strings.Count(log.String(), "is applied"); n != before+1 {
					t.Errorf("applied though nothing changed:\n%s", log)
				}
			})
		})
	}
}

// The log names the publishers that were added and removed.
func TestChangesOfALongList(t *testing.T) {
	for name, test := range map[string]struct{ before, after, added, removed string }{
		"nothing":       {"a b c", "a b c", "", ""},
		"all":           {"", "a b", "a b", ""},
		"none":          {"a b", "", "", "a b"},
		"at the ends":   {"a b c", "x a b c y", "x y", ""},
		"in between":    {"a b c d", "a x c d", "x", "b"},
		"another order": {"a b c", "c a b", "", ""},
	} {
		added, removed := changes(strings.Fields(test.before), strings.Fields(test.after))
		if got := strings.Join(added, " "); got != test.added {
			t.Errorf("%s: added %q; want %q", name, got, test.added)
		}
		if got := strings.Join(removed, " "); got != test.removed {
			t.Errorf("%s: removed %q; want %q", name, got, test.removed)
		}
	}
}

// A changed cachesFile is applied, and each cache that is newly trusted, or no longer, is logged.
func TestAChangeOfTheCachesIsLogged(t *testing.T) {
	t.Parallel()
	const format = `{"caches": [{"id": %q, "cacheDomain": %q}]}`
	dir := write(t, map[string]string{"c.json": `{"publishers": ["www.example.com"], "cachesFile": "caches.json"}`,
		"caches.json": fmt.Sprintf(format, "old", "old.example")})
	path := filepath.Join(dir, "caches.json")
	time.Sleep(quick) // the file system does not use the bubble's clock
	synctest.Test(t, func(t *testing.T) {
		w := startWatching(t, filepath.Join(dir, "c.json"), interval)
		lines := 2 + len(cacheurl.DefaultCaches()) // a configuration, a new cache, and each default cache
		last := cacheurl.DefaultCaches()[lines-3]
		w.waitForLog(lines, `no longer trusted" file=`+filepath.Join(dir, "c.json")+" cache="+last.ID+" domain="+last.CacheDomain)
		if !w.allows("www-example-com.old.example") || w.allows("www-example-com.cdn.ampproject.org") {
			t.Error("the file does not say which caches are trusted")
		}
		pass(time.Millisecond)
		replace(t, path, fmt.Sprintf(format, "new", "new.example"))
		w.waitForLog(lines+3, "no longer trusted")
		if log := w.lines()[lines:]; !strings.Contains(log[1], "is trusted that was not before") ||
			!strings.Contains(log[1], "cache=new domain=new.example") || !strings.Contains(log[2], "cache=old domain=old.example") {
			t.Errorf("%s", strings.Join(log, "\n"))
		}
		if w.allows("www-example-com.old.example") || !w.allows("www-example-com.new.example") {
			t.Error("the change is not applied")
		}
		writeFile(t, path, "")
		w.waitForLog(lines+4, "cachesFile cannot be used")
		if !w.allows("www-example-com.new.example") {
			t.Error("an emptied file is applied")
		}
	})
}

// What a program names by a flag never silently wins over what is written into the file later: an operator who withdraws a cache there
// would think that it is withdrawn. Both are followed.
func TestTheProgramsOwnCachesAndThoseOfTheFileExcludeEachOther(t *testing.T) {
	t.Parallel()
	const format = `{"caches": [{"id": %q, "cacheDomain": %q}]}`
	dir := write(t, map[string]string{"c.json": listing("www.example.com"), "own.json": fmt.Sprintf(format, "old", "old.example"),
		"other.json": fmt.Sprintf(format, "x", "x.example")})
	path, own := filepath.Join(dir, "c.json"), filepath.Join(dir, "own.json")
	time.Sleep(quick) // the file system does not use the bubble's clock
	synctest.Test(t, func(t *testing.T) {
		w := startWatchingFile(t, File{Path: path, CachesFile: own}, interval)
		lines := 2 + len(cacheurl.DefaultCaches()) // a configuration, a new cache, and each default cache
		w.waitForLog(lines, "no longer trusted")
		for member, text := range map[string]string{
			"caches":     `{"publishers": ["www.example.com"], "caches": []}`,
			"cachesFile": `{"publishers": ["www.example.com"], "cachesFile": "other.json"}`,
		} {
			pass(time.Millisecond)
			replace(t, path, text)
			lines++
			w.waitForLog(lines, member+" is set, and the program was started with the caches of "+own+"; want one of them")
			if !w.allows("www-example-com.old.example") {
				t.Error("the last good configuration is not kept")
			}
			pass(time.Millisecond)
			replace(t, path, listing("www.example.com"))
			lines++
			w.waitForLog(lines, "the configuration is applied")
		}
		pass(time.Millisecond)
		replace(t, own, fmt.Sprintf(format, "new", "new.example"))
		lines += 3
		w.waitForLog(lines, "no longer trusted")
		if w.allows("www-example-com.old.example") || !w.allows("www-example-com.new.example") {
			t.Error("the file that the program names is not followed")
		}
		for text, want := range map[string]string{"": own + ": cannot be used: ", `{"caches": []}`: own + ": cannot be used: "} {
			pass(time.Millisecond)
			replace(t, own, text)
			lines++
			w.waitForLog(lines, want)
		}
		pass(time.Millisecond)
		if err := os.Remove(own); err != nil {
			t.Fatal(err)
		}
		lines++
		w.waitForLog(lines, own+": cannot be read: ")
		if !w.allows("www-example-com.new.example") {
			t.Error("the last good configuration is not kept")
		}
	})
}

// A list that loses most of its publishers in one reading is a warning: it was likely truncated.
func TestAListThatLosesMostOfItsPublishersIsAWarning(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&all, "www.site-%d.example\n", i)
	}
	lines := strings.SplitAfter(all.String(), "\n")
	for left, want := range map[int]string{1: "level=WARN", 1000: "level=WARN", 1001: "level=INFO", 1999: "level=INFO"} {
		dir := write(t, map[string]string{"c.json": `{"publishersFile": "list.txt"}`, "list.txt": all.String()})
		time.Sleep(quick) // the file system does not use the bubble's clock
		synctest.Test(t, func(t *testing.T) {
			w := startWatching(t, filepath.Join(dir, "c.json"), interval)
			w.waitForLog(1, "the configuration is applied")
			pass(time.Millisecond)
			replace(t, filepath.Join(dir, "list.txt"), strings.Join(lines[:left], ""))
			w.waitForLog(2, fmt.Sprintf("removed=%d ", 2000-left))
			if last := w.lines()[1]; !strings.Contains(last, want) {
				t.Errorf("%d are left: %s", left, last)
			}
		})
	}
}

// Whoever forgets Run, or ends it too early, sees it in the status, and so in the metrics.
func TestAStatusSaysThatRunIsNotRunning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, watcher, err := File{Path: filepath.Join(write(t, map[string]string{"c.json": listing("a.example")}), "c.json")}.Watch(WatcherConfig{})
		if err != nil {
			t.Fatal(err)
		}
		isSaid := func(want bool) {
			t.Helper()
			if err := watcher.Status().Err; errors.Is(err, errNotRunning) != want || !want && err != nil {
				t.Error(err)
			}
		}
		isSaid(true)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = watcher.Run(ctx) }()
		synctest.Wait()
		isSaid(false)
		cancel()
		synctest.Wait()
		isSaid(true)
	})
}

// A reload that takes protection away is logged as a warning, and each reload says which members changed.
func TestTheLogNamesTheMembersThatChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(write(t, map[string]string{"c.json": listing("a.example")}), "c.json")
		w := startWatching(t, path, interval)
		w.waitForLog(1, "is applied")
		replace(t, path, `{"publishers": ["a.example"], "credentialed": true, "requestHeaders": ["X-Token"]}`)
		w.waitForLog(2, `otherMembers="credentialed requestHeaders"`)
		for i, member := range []string{`"reportOnly": true`, `"dangerouslyAllowHTTPOwnOrigins": true`,
			`"email": {"senders": ["*@gmail.com"], "dangerouslyAllowMailProviderWildcards": true}`} {
			replace(t, path, `{"publishers": ["a.example"], `+member+`}`)
			w.waitForLog(3+i, "protects less than before")
			w.waitForLog(3+i, "level=WARN")
		}
		replace(t, path, listing("a.example"))
		w.waitForLog(6, "level=INFO")
	})
}
