package configfile

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ampcors/ampcors"
)

// interval is how often the files are checked. A change is applied after two checks see the
// same state, or three if the file names another list.
const interval = 500 * time.Millisecond

// WatcherConfig configures a [Watcher]. The zero value is fine.
type WatcherConfig struct {
	// Set is called before each configuration is checked and applied, as by Load. Source,
	// Denied and Observe are already set to the values that the Middleware had when
	// NewWatcher was called.
	Set func(*ampcors.Config)

	// Logger gets a line for each configuration that is applied (level Info), one when a
	// configuration cannot be applied (level Error), and one for each of the first ten
	// ampcors.Config.Warnings (level Warn). If nil, slog.Default() is used.
	Logger *slog.Logger

	// Each signal on Reload applies the file at once, even if it did not change. To reload
	// on SIGHUP, as operators expect:
	//
	//	reload := make(chan os.Signal, 1)
	//	signal.Notify(reload, syscall.SIGHUP)
	Reload <-chan os.Signal
}

// A Watcher applies a file to a Middleware after each change. [Watcher.Run] does the work.
//
// The file, and those that its publishersFile and cachesFile name, may be rewritten in place, replaced
// by renaming another file, or be behind a symbolic link that is replaced, as in a
// Kubernetes ConfigMap. A change is applied after the files have stayed the same for half a
// second. That takes at most 1.5 seconds, plus the time to read and check the files, which
// is less than a second for a million publishers. The Watcher checks the files' size,
// modification time and identity twice a second, so it also works where the system has no
// notifications, such as on a network file system. In Kubernetes, a changed ConfigMap can
// take a minute to arrive; one that is mounted with subPath never changes.
//
// A file that is wrong, incomplete or missing changes nothing: the last good configuration
// stays in force. That is logged once, and so is the first good file after it. Each request
// is decided by one complete configuration, as with [ampcors.Middleware.Reconfigure].
//
// A program that writes slowly should write to another file and rename it. If it pauses for
// half a second after a line break, an incomplete list looks complete.
type Watcher struct {
	path     string // of the file, or the name of the Inline
	first    func() snapshot
	read     func(set []func(*ampcors.Config)) contents
	mw       *ampcors.Middleware
	set      []func(*ampcors.Config) // the first is the Watcher's own; WatcherConfig.Set may follow
	log      *slog.Logger
	reload   <-chan os.Signal
	interval time.Duration

	seen     snapshot // at the last check
	handled  snapshot // the last that was applied or reported
	reported string   // the error that was last reported, "" if the file is in force

	mu     sync.Mutex
	status Status
}

// A Status says what a [Watcher] did last.
type Status struct {
	// AppliedAt is when the Watcher last applied the file, or found that it is in force. Zero
	// before that.
	AppliedAt time.Time
	// Err is why the file as it is now is not in force; nil if it is.
	Err error
}

// Status returns what the Watcher did last. It is safe for concurrent use with Run.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// setStatus notes the result of the last reading of the file.
func (w *Watcher) setStatus(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status.Err = err; err == nil {
		w.status.AppliedAt = time.Now()
	}
}

// NewWatcher returns a Watcher, which applies the file at path to mw once it runs.
func NewWatcher(path string, mw *ampcors.Middleware, cfg WatcherConfig) *Watcher {
	w := baseWatcher(mw, cfg)
	w.path = path
	w.first = func() snapshot { return snapshot{look(path)} }
	w.read = func(set []func(*ampcors.Config)) contents { return read(path, set) }
	return w
}

// NewWatcher returns a [Watcher], which applies the configuration to mw after each change of
// the files that publishersFile and cachesFile name. If there are none, only
// WatcherConfig.Reload makes the Watcher do anything.
func (in Inline) NewWatcher(mw *ampcors.Middleware, cfg WatcherConfig) *Watcher {
	w := baseWatcher(mw, cfg)
	w.path = in.Name
	w.first = func() (first snapshot) {
		d := newDecoder(in.Name, in.JSON)
		if d.decodeFile() {
			if list, ok := d.named(publishersFile, d.result.PublishersFile, in.Dir); ok {
				first = append(first, look(list))
			}
			if list, ok := d.named(cachesFile, d.result.CachesFile, in.Dir); ok {
				first = append(first, look(list))
			}
		}
		return first
	}
	w.read = in.read
	return w
}

func baseWatcher(mw *ampcors.Middleware, cfg WatcherConfig) *Watcher {
	w := &Watcher{mw: mw, log: cfg.Logger, reload: cfg.Reload, interval: interval}
	if w.log == nil {
		w.log = slog.Default()
	}
	kept := mw.Config()
	kept = ampcors.Config{Source: kept.Source, Denied: kept.Denied, Observe: kept.Observe} // but not its lists
	w.set = append(w.set, func(cfg *ampcors.Config) {
		cfg.Source, cfg.Denied, cfg.Observe = kept.Source, kept.Denied, kept.Observe
	})
	if cfg.Set != nil {
		w.set = append(w.set, cfg.Set)
	}
	return w
}

// Run applies the file, first as it is and then after each change, until ctx is done, and
// returns the error of ctx. A configuration that is already in force is applied again only
// after a signal of WatcherConfig.Reload. Call it once, in its own goroutine.
func (w *Watcher) Run(ctx context.Context) error {
	w.warn(w.mw.Config())
	w.seen = w.first()
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case _, ok := <-w.reload:
			if !ok {
				w.reload = nil
				continue
			}
			w.reported = ""
			w.apply(nil)
		case <-ticker.C:
			w.poll()
		}
	}
}

// poll checks the files. It applies them if they differ from those that were handled and
// have not changed since the last check.
func (w *Watcher) poll() {
	before := w.seen
	w.seen = before.again()
	if w.seen.equal(before) && !w.seen.equal(w.handled) {
		w.apply(w.seen)
	}
}

// apply applies the files if their state is the expected one; nil means any state.
func (w *Watcher) apply(expected snapshot) {
	c := w.read(w.set)
	if !c.files.haveNotChanged() || expected != nil && !c.files.equal(expected) {
		w.seen = c.files // the file may name another list now
		return
	}
	if expected != nil && w.isInForce(&c) {
		w.seen, w.handled, w.reported = c.files, c.files, ""
		w.setStatus(nil)
		return
	}
	before := w.mw.Config().Publishers
	err := c.use(w.mw.Reconfigure)
	w.setStatus(err)
	w.seen, w.handled = c.files, c.files
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		w.handled = nil // it may become readable while its state stays the same
	}
	if err != nil {
		if err.Error() != w.reported {
			w.reported = err.Error()
			w.log.Error("ampcors: the configuration is not applied; the last good configuration stays in force", "file", w.path, "error", err)
		}
		return
	}
	w.reported = ""
	added, removed := changes(before, c.cfg.Publishers)
	w.log.Info("ampcors: the configuration is applied", "file", w.path, "publishers", len(c.cfg.Publishers),
		"added", len(added), "removed", len(removed), "firstAdded", firstOf(added), "firstRemoved", firstOf(removed))
	w.warn(c.cfg)
}

// changes returns the publishers that only one of two lists has, as they are written. What both lists
// begin and end with is compared without memory: most changes of a list of millions are small. A name
// that a list has twice may be returned although the other list has it.
func changes(before, after []string) (added, removed []string) {
	for len(before) > 0 && len(after) > 0 && before[0] == after[0] {
		before, after = before[1:], after[1:]
	}
	for len(before) > 0 && len(after) > 0 && before[len(before)-1] == after[len(after)-1] {
		before, after = before[:len(before)-1], after[:len(after)-1]
	}
	return without(after, before), without(before, after)
}

// without returns the names of a list that another does not have.
func without(list, other []string) (only []string) {
	has := make(map[string]bool, len(other))
	for _, name := range other {
		has[name] = true
	}
	for _, name := range list {
		if !has[name] {
			only = append(only, name)
		}
	}
	return only
}

// firstOf returns the first few names, joined.
func firstOf(names []string) string { return strings.Join(names[:min(5, len(names))], " ") }

// warn logs the warnings of a configuration.
func (w *Watcher) warn(cfg ampcors.Config) {
	const most = 10
	warnings := cfg.Warnings()
	for _, warning := range warnings[:min(most, len(warnings))] {
		w.log.Warn("ampcors: cache origins with a publisher's domain prefix are denied, because another host has the same prefix", "file", w.path, "problem", warning)
	}
	if more := len(warnings) - most; more > 0 {
		w.log.Warn("ampcors: the same holds for more publishers; ampcors check lists them", "file", w.path, "publishers", more)
	}
}

// isInForce reports whether the configuration is the one that the Middleware has. Applying
// it again would change nothing, and takes seconds for a list of millions.
func (w *Watcher) isInForce(c *contents) bool {
	now := w.mw.Config()
	if c.err != nil || len(c.decoder.problems) > 0 || w.reported != "" || !slices.Equal(c.cfg.Publishers, now.Publishers) || c.cfg.Source != now.Source {
		return false
	}
	cfg := c.cfg
	if len(w.set) == 1 { // Set may have changed them, and functions cannot be compared
		cfg.Denied, now.Denied, cfg.Observe, now.Observe = nil, nil, nil, nil
	}
	cfg.Publishers, now.Publishers, cfg.Source, now.Source = nil, nil, nil, nil
	return reflect.DeepEqual(cfg, now)
}
