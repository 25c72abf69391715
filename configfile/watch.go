package configfile

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
)

// interval is how often the files are checked. A change is applied after two checks see the
// same state, or three if the file names another list.
const interval = 500 * time.Millisecond

// WatcherConfig configures a [Watcher]. The zero value is fine.
type WatcherConfig struct {
	// Logger gets a line for each configuration that Run applies (level Info): how many publishers changed, some of
	// these, and the other members that changed. It also gets one for a configuration that cannot be applied (Error).
	// The line of an applied configuration has level Warn if there were 10 publishers or more and at least half are
	// gone, or if reportOnly or a dangerous member is newly set. There is also a line for each AMP Cache that is
	// newly trusted or no longer (Warn), and for each of the first ten ampcors.Config.Warnings, with one more that
	// counts the others (Warn). If nil, slog.Default() is used.
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
// The file, and the files that its publishersFile and cachesFile name, may be rewritten in place, replaced by
// renaming another file, or be behind a symbolic link that is replaced, as in a Kubernetes ConfigMap. A change is
// applied after the files have stayed the same for half a second: at most 1.5 seconds after the last change, plus the
// time to read and check the files, which is less than a second for a million publishers. The Watcher checks the
// files' size, modification time and identity twice a second, so it also works where the system has no notifications,
// such as on a network file system. In Kubernetes, a changed ConfigMap can take a minute to arrive; one that is
// mounted with subPath never changes.
//
// A file that is wrong, incomplete or missing changes nothing: the last good configuration
// stays in force. That is logged once, and so is the first good file after it. Each request
// is decided by one complete configuration, as with [ampcors.Middleware.Reconfigure].
//
// A program that writes slowly should write to another file and rename it. If it pauses for
// half a second after a line break, an incomplete list looks complete.
type Watcher struct {
	name     string // of the file
	read     func() contents
	mw       *ampcors.Middleware
	log      *slog.Logger
	reload   <-chan os.Signal
	interval time.Duration

	seen     snapshot  // at the last check
	handled  snapshot  // the last that was applied or reported
	reported string    // the error that was last reported, "" if the file is in force
	unstable time.Time // since when each check sees another state that is not applied; zero if none does

	applied  ampcors.Config    // without Publishers, of which there may be millions: the Middleware has them
	listed   [sha256.Size]byte // of the Publishers of applied, as they were written
	warnings []*badvalue.Error // of applied, until Run begins

	mu        sync.Mutex
	status    Status
	isRunning bool
}

// A Status is what a [Watcher] did last.
type Status struct {
	// AppliedAt is when the Watcher last applied the file, or found that it is in force. Zero
	// before that.
	AppliedAt time.Time
	// Err is why the file as it is now is not in force; nil if it is. While Run is not running, nobody
	// looks at the file, and Err says so.
	Err error
}

var errNotRunning = errors.New("changes of the file are not applied: Watcher.Run is not running")

// Status returns what the Watcher did last. It is safe for concurrent use with Run.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	status := w.status
	if !w.isRunning && status.Err == nil && !status.AppliedAt.IsZero() {
		status.Err = errNotRunning
	}
	return status
}

func (w *Watcher) setRunning(isRunning bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isRunning = isRunning
}

// setApplied notes the configuration that was applied.
func (w *Watcher) setApplied(cfg ampcors.Config) {
	w.applied, w.listed = cfg, hashOf(cfg.Publishers)
	w.applied.Publishers = nil
}

// hashOf returns a hash that two lists have only if they are equal.
func hashOf(list []string) (sum [sha256.Size]byte) {
	h := sha256.New()
	var length []byte // before each name, because a name that is not checked yet may have any character
	for _, name := range list {
		length = binary.AppendUvarint(length[:0], uint64(len(name)))
		_, _ = h.Write(length) // never fails
		_, _ = io.WriteString(h, name)
	}
	h.Sum(sum[:0])
	return sum
}

// setStatus notes the result of the last reading of the file.
func (w *Watcher) setStatus(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status.Err = err; err == nil {
		w.status.AppliedAt = time.Now()
	}
}

// Watch returns a Middleware for the file, and a Watcher, which applies the file again after each
// change once it runs. Errors are as for [File.Config].
func (f File) Watch(cfg WatcherConfig) (*ampcors.Middleware, *Watcher, error) {
	return watch(f.Path, f.read, cfg)
}

// Watch is [File.Watch] for the files that publishersFile and cachesFile name. If there is none, only
// WatcherConfig.Reload makes the Watcher apply anything.
func (in Inline) Watch(cfg WatcherConfig) (*ampcors.Middleware, *Watcher, error) {
	mw, w, err := watch(in.Name, in.read, cfg)
	if err != nil || len(w.seen) == 0 {
		return mw, w, err
	}
	var files []string // for the log: what can change is not the JSON
	for _, file := range w.seen {
		files = append(files, file.name)
	}
	w.name = strings.Join(files, ", ")
	return mw, w, nil
}

func watch(name string, read func() contents, cfg WatcherConfig) (*ampcors.Middleware, *Watcher, error) {
	c, err := stable(name, read)
	if err != nil {
		return nil, nil, err
	}
	w := newWatcher(name, read, new(ampcors.Middleware), cfg)
	if err := c.use(w.mw.Reconfigure); err != nil {
		return nil, nil, err
	}
	w.setApplied(c.cfg)
	w.warnings = c.cfg.Warnings()
	w.seen, w.handled = c.files, c.files
	if len(c.files) > 0 {
		w.setStatus(nil)
	}
	return w.mw, w, nil
}

func newWatcher(name string, read func() contents, mw *ampcors.Middleware, cfg WatcherConfig) *Watcher {
	return &Watcher{name: name, read: read, mw: mw, log: cmp.Or(cfg.Logger, slog.Default()), reload: cfg.Reload,
		interval: interval}
}

// Run applies the file after each change, until ctx is done, and returns the error of ctx. A configuration that is
// already in force is applied again only after a signal of WatcherConfig.Reload, after an error, or if Set gives it
// Denied or Observe: functions cannot be compared. Call it once, in its own goroutine.
func (w *Watcher) Run(ctx context.Context) error {
	w.setRunning(true)
	defer w.setRunning(false)
	w.warn(w.warnings)
	w.warnings = nil
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
	switch {
	case slices.ContainsFunc(w.seen, func(f fileState) bool { return f.info != nil && hasNoLink(f.info) }):
		w.setStatus(errNoLink)
		w.report(errNoLink)
	case w.seen.equal(before):
		if w.unstable = (time.Time{}); !w.seen.equal(w.handled) {
			w.apply(w.seen)
		}
	case w.unstable.IsZero():
		w.unstable = time.Now()
	case time.Since(w.unstable) > maxUnstable:
		w.setStatus(errUnstable)
		w.report(errUnstable)
	}
}

// maxUnstable is how long a file may change at each check before that is reported.
const maxUnstable = 10 * time.Second

var errUnstable = errors.New("the file changes all the time, so that no state of it is applied; want a file that is " +
	"replaced as a whole, by renaming another one")

// errNoLink is for a file that is mounted by itself, as a container has it, and was replaced where it comes from.
var errNoLink = errors.New("the file has been deleted or replaced outside of its mount, and what is mounted here " +
	"never changes again; want its directory to be mounted")

// report logs why the file is not in force, once.
func (w *Watcher) report(err error) {
	if err.Error() != w.reported {
		w.reported = err.Error()
		w.log.Error("ampcors: the configuration is not applied; the last good configuration stays in force", "file", w.name,
			"error", err)
	}
}

// apply applies the files if their state is the expected one; nil means any state.
func (w *Watcher) apply(expected snapshot) {
	c := w.read()
	if !c.files.haveNotChanged() || expected != nil && !c.files.equal(expected) {
		w.seen = c.files // the file may name another list now
		return
	}
	if expected != nil && w.isInForce(&c) {
		w.seen, w.handled, w.reported = c.files, c.files, ""
		w.setStatus(nil)
		return
	}
	before := w.mw.Config()
	err := c.use(w.mw.Reconfigure)
	w.setStatus(err)
	w.seen, w.handled = c.files, c.files
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		w.handled = nil // it may become readable while its state stays the same
	}
	if err != nil {
		w.report(err)
		return
	}
	w.reported = ""
	w.setApplied(c.cfg)
	after := w.mw.Config()
	added, removed := changes(before.Publishers, after.Publishers)
	level, message := slog.LevelInfo, "ampcors: the configuration is applied"
	if n := len(before.Publishers); n >= manyPublishers && 2*len(removed) >= n {
		level, message = slog.LevelWarn, message+", and half of its publishers or more are gone; check that no list is "+
			"truncated"
	}
	changed, isRisky := changedMembers(before, after)
	if isRisky {
		level, message = slog.LevelWarn, message+", and protects less than before"
	}
	w.log.Log(context.Background(), level, message, "file", w.name, "publishers", len(c.cfg.Publishers),
		"fingerprint", w.mw.Stats().Fingerprint, "added", len(added), "removed", len(removed), "firstAdded", firstOf(added),
		"firstRemoved", firstOf(removed), "otherMembers", strings.Join(changed, " "))
	w.logCaches(before.Caches, after.Caches)
	w.warn(c.cfg.Warnings())
}

// changedMembers returns the names of the members, without publishers, that two configurations have differently,
// and whether one is reportOnly or dangerously..., and is set now.
func changedMembers(before, after ampcors.Config) (names []string, isRisky bool) {
	b, a := reflect.ValueOf(before), reflect.ValueOf(after)
	for _, field := range reflect.VisibleFields(a.Type()) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" || name == "publishers" ||
			reflect.DeepEqual(b.FieldByIndex(field.Index).Interface(), a.FieldByIndex(field.Index).Interface()) {
			continue
		}
		names = append(names, name)
		if name == "reportOnly" || strings.HasPrefix(name, "dangerously") {
			isRisky = isRisky || a.FieldByIndex(field.Index).Bool()
		}
	}
	isAll := after.Email.DangerouslyAllowMailProviderWildcards && !before.Email.DangerouslyAllowMailProviderWildcards
	return names, isRisky || isAll
}

// manyPublishers is how many publishers a list must have had to be worth a warning when it loses most of them.
const manyPublishers = 10

// logCaches logs each AMP Cache that is trusted now and was not before, and the reverse.
func (w *Watcher) logCaches(before, after []cacheurl.Cache) {
	if before == nil {
		before = cacheurl.DefaultCaches()
	}
	if after == nil {
		after = cacheurl.DefaultCaches()
	}
	has := func(caches []cacheurl.Cache, domain string) bool {
		return slices.ContainsFunc(caches, func(c cacheurl.Cache) bool { return c.CacheDomain == domain })
	}
	for _, c := range after {
		if !has(before, c.CacheDomain) {
			w.log.Warn("ampcors: an AMP Cache is trusted that was not before", "file", w.name, "cache", c.ID, "domain",
				c.CacheDomain)
		}
	}
	for _, c := range before {
		if !has(after, c.CacheDomain) {
			w.log.Warn("ampcors: an AMP Cache is no longer trusted", "file", w.name, "cache", c.ID, "domain", c.CacheDomain)
		}
	}
}

// changes returns the publishers that only one of two lists has. What both lists
// begin and end with is compared without memory: most changes of a list of millions are small.
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
func (w *Watcher) warn(warnings []*badvalue.Error) {
	const most = 10
	for _, warning := range warnings[:min(most, len(warnings))] {
		w.log.Warn("ampcors: cache origins with a publisher's domain prefix are denied, because another host has the same "+
			"prefix", "file",
			w.name, "problem", warning)
	}
	if more := len(warnings) - most; more > 0 {
		w.log.Warn("ampcors: the same holds for more publishers; ampcors check lists them", "file", w.name, "publishers",
			more)
	}
}

// isInForce reports whether the configuration is the one that was applied last. Applying
// it again would change nothing, and takes seconds for a list of millions. Functions cannot be compared.
func (w *Watcher) isInForce(c *contents) bool {
	cfg := c.cfg
	if c.err != nil || len(c.decoder.problems) > 0 || w.reported != "" || hashOf(cfg.Publishers) != w.listed {
		return false
	}
	cfg.Publishers = nil
	return reflect.DeepEqual(cfg, w.applied)
}
