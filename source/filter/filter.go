// Package filter keeps a filter of all publishers of a [source.Source], which takes 9 bits for
// each of them. Before a lookup, the filter says whether a domain or hash
// prefix likely belongs to a publisher. So invented origins, however many there are, hardly
// delay lookups for publishers.
//
// # What it decides
//
// By default, nothing. It only gives hints: the [source.Cache] looks up likely publishers first,
// and the others take what capacity is left. Whatever the filter says, the Source is asked. A filter that is stale or wrong changes the order of lookups, and never
// who is allowed.
//
// With Config.AnswerNo, and a Source that has Notify, the filter answers by itself that a name
// is not a publisher. Then invented origins get 403 without a
// lookup, except for about one in 256. The filter never answers yes, so nobody is allowed
// because of it. A publisher is not denied for longer than the Source takes to report it:
//
//   - The filter is built from a list of all publishers. A domain that was a publisher when
//     the list began is in it, and one that became a publisher later is reported.
//   - A reported name is added to the filter before the [source.Cache] forgets its answers.
//   - After a report that changes may have been missed, the filter does not answer no until
//     it has been built from a list that began later. The same holds until the first list
//     is complete, when [Filter.Run] has ended, and while the Source's IsListening, if it has
//     one, returns false.
//
// So AnswerNo relies on two promises of the Source: the list has every name that
// was a publisher from its beginning to its end, and each change is reported, or that
// changes may have been missed. A new publisher is denied while the connection is dead and
// that is not noticed yet.
package filter

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/FastFilter/xorfilter"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/source"
)

// Config configures a [Filter]. The zero value is fine.
type Config struct {
	// Every is how often the filter is built again. Publishers that are added meanwhile are
	// in it only if the Source has Notify. If zero, 1 hour is used.
	Every time.Duration

	// File is where the filter is saved after each build, and from where New reads it, so
	// that a new server has a filter at once. A filter that was read never answers no. If
	// empty, the filter is not saved.
	File string

	// AnswerNo lets the filter answer no by itself, as the package says. The Source must have
	// Notify.
	AnswerNo bool

	// Logger gets a line when the filter is built, read from File, and every 10 seconds
	// while it is being built (level Info), and when it cannot be built, read or saved
	// (level Error). If nil, slog.Default() is used.
	Logger *slog.Logger
}

// A Filter has all publishers of a Source, once [Filter.Run] has listed them. It is safe for
// concurrent use by multiple goroutines.
type Filter struct {
	asked   source.Source
	cfg     Config
	log     *slog.Logger
	rebuild chan struct{} // gets a value when the filter should be built again soon

	mu        sync.RWMutex
	filter    *xorfilter.BinaryFuse8 // nil before the first
	names     int                    // in filter
	builtAt   time.Time
	added     map[uint64]struct{} // reported since the list of filter began
	next      map[uint64]struct{} // reported since the list that is being read began; nil if none is
	missed    uint64              // how often changes may have been missed
	trusted   uint64              // the value of missed when the list of filter began
	isTrusted bool                // the filter is from a list of this process, and Run has been running since
}

// New returns a Filter for a Source. It returns an error if the Source has no Publishers or already
// has a Hint, if cfg.Every is negative, or if cfg.AnswerNo is set and the Source has no Notify.
func New(asked source.Source, cfg Config) (*Filter, error) {
	s := &Filter{asked: asked, cfg: cfg, log: cfg.Logger, rebuild: make(chan struct{}, 1), added: make(map[uint64]struct{})}
	if asked.Publishers == nil {
		return nil, errors.New("filter: Source.Publishers is nil; want a function that lists all publishers")
	}
	if asked.Hint != nil {
		return nil, errors.New("filter: Source.Hint is set already; want a Source without hints")
	}
	if s.cfg.Every == 0 {
		s.cfg.Every = time.Hour
	}
	if s.cfg.Every < 0 {
		return nil, fmt.Errorf("filter: Every %v is negative; want 0 for 1 hour, or more", cfg.Every)
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if cfg.AnswerNo && asked.Notify == nil {
		return nil, errors.New("filter: AnswerNo is set, but Source.Notify is nil; it would keep out publishers that are added")
	}
	if cfg.File != "" {
		s.load()
	}
	return s, nil
}

// Source returns the Source with a Hint of the filter, for [source.New].
func (s *Filter) Source() source.Source {
	hinted := s.asked
	hinted.Hint = s.hint
	if s.asked.Notify != nil {
		hinted.Notify = func(changed func(domains ...string)) (stop func()) {
			return s.asked.Notify(func(domains ...string) {
				s.note(domains) // first: the filter must not answer no after the Cache has forgotten its answer
				changed(domains...)
			})
		}
	}
	return hinted
}

// hint returns LikelyPublisher for all publishers in the filter, and for about one in 256 other
// names. For the rest it returns NotPublisher if AnswerNo is set and the filter is complete,
// otherwise NoHint.
func (s *Filter) hint(key string) source.Hint {
	sum, ok := sumOf(key)
	isListening := s.isListening()
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case !ok:
		return source.NoHint
	case s.contains(sum):
		return source.LikelyPublisher
	case isListening && s.isComplete():
		return source.NotPublisher
	}
	return source.NoHint
}

// contains reports whether a key may be in the filter. s.mu is held.
func (s *Filter) contains(sum uint64) bool {
	if s.filter != nil && s.filter.Contains(sum) {
		return true
	}
	_, ok := s.added[sum]
	return ok
}

// isComplete reports whether the filter has all publishers, but for changes that are still to be
// reported, and may say so. s.mu is held.
func (s *Filter) isComplete() bool {
	return s.cfg.AnswerNo && s.isTrusted && s.missed == s.trusted
}

// isListening must not be called while s.mu is held: the Source may call note under a lock of its
// own.
func (s *Filter) isListening() bool { return s.asked.IsListening == nil || s.asked.IsListening() }

// sumOf returns the first 64 bits of a name's SHA-256. A hash prefix spells the SHA-256 of
// its name, so one entry serves both kinds of lookup.
func sumOf(key string) (sum uint64, ok bool) {
	if strings.Contains(key, ".") {
		hash := sha256.Sum256([]byte(key))
		return binary.BigEndian.Uint64(hash[:]), true
	}
	var start [10]byte // 16 characters
	if len(key) < 16 {
		return 0, false
	}
	if _, err := alphabet.Decode(start[:], []byte(key[:16])); err != nil {
		return 0, false
	}
	return binary.BigEndian.Uint64(start[:]), true
}

var alphabet = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// note adds reported domains to the filter.
func (s *Filter) note(domains []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	isMissed := len(domains) == 0
	for _, d := range domains {
		domain, err := cacheurl.CanonicalDomain(d)
		if err != nil {
			isMissed = true // it may mean any publisher
			continue
		}
		sum, _ := sumOf(domain)
		s.added[sum] = struct{}{}
		if s.next != nil {
			s.next[sum] = struct{}{}
		}
	}
	if len(s.added) > 10*maxAdded { // the list fails again and again
		isMissed = true
		clear(s.added)
		clear(s.next)
	}
	if isMissed {
		s.missed++
	}
	if isMissed || len(s.added) > s.names/8+maxAdded {
		select {
		case s.rebuild <- struct{}{}:
		default:
		}
	}
}

const (
	// Reported names are kept beside the filter, in about 20 bytes each. If there are more
	// than maxAdded plus an eighth of the names in the filter, it is built again.
	maxAdded = 100_000

	// pause is the shortest time between two builds, so that lists are not read all the time
	// while a connection is lost again and again.
	pause = 10 * time.Second

	// progress is how often a build that takes long is logged.
	progress = 10 * time.Second
)

// Run builds the filter: at once, each Config.Every, after changes may have been missed,
// and when many publishers were added. After an error it tries again within a minute, and
// the last filter stays in use. It returns the error of ctx when ctx is done. Call it once,
// in its own goroutine.
func (s *Filter) Run(ctx context.Context) error {
	stop := func() {} // its own subscription, because Run may begin before a Cache uses the Source
	if s.asked.Notify != nil {
		stop = s.asked.Notify(func(domains ...string) { s.note(domains) })
	}
	defer func() {
		s.mu.Lock()
		s.isTrusted = false
		s.mu.Unlock()
		stop()
	}()
	for {
		next := s.cfg.Every
		if err := s.build(ctx); err != nil && ctx.Err() == nil {
			s.log.Error("ampcors: the filter of publishers is not built; the last one stays in use", "error", err)
			next = min(next, 6*pause)
		}
		if err := sleep(ctx, min(pause, next), nil); err != nil {
			return err
		}
		if err := sleep(ctx, next-min(pause, next), s.rebuild); err != nil {
			return err
		}
	}
}

// sleep returns after d, or when wake gets a value, or with an error when ctx is done.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-wake:
	case <-timer.C:
	}
	return nil
}

// build reads the list and replaces the filter.
func (s *Filter) build(ctx context.Context) error {
	select { // before missed is read, so that no later signal is lost
	case <-s.rebuild:
	default:
	}
	s.mu.Lock()
	missed, before := s.missed, s.names
	s.next = make(map[uint64]struct{})
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.next = nil
		s.mu.Unlock()
	}()
	begun := time.Now()
	logged := begun
	sums := make([]uint64, 0, before+before/16)
	for domain, err := range s.asked.Publishers(ctx) {
		if err != nil {
			return fmt.Errorf("filter: listing publishers: %w", err)
		}
		if sum, ok := sumOf(domain); ok {
			sums = append(sums, sum)
		}
		if now := time.Now(); len(sums)%1024 == 0 && now.Sub(logged) >= progress {
			logged = now
			s.log.Info("ampcors: building the filter of publishers", "read", len(sums), "before", before)
		}
	}
	if err := ctx.Err(); err != nil {
		return err // the list may have ended early
	}
	var built *xorfilter.BinaryFuse8 // nil if there are none
	if len(sums) > 0 {
		var err error
		if built, err = xorfilter.PopulateBinaryFuse8(sums); err != nil {
			return fmt.Errorf("filter: %w", err)
		}
	}

	s.mu.Lock()
	s.filter, s.names, s.builtAt = built, len(sums), time.Now()
	s.added, s.next = s.next, nil
	s.trusted, s.isTrusted = missed, true
	s.mu.Unlock()
	s.log.Info("ampcors: the filter of publishers is built", "publishers", len(sums), "bytes", size(built), "took", time.Since(begun).Round(time.Millisecond))
	if s.cfg.File != "" {
		if err := save(s.cfg.File, built, len(sums)); err != nil {
			s.log.Error("ampcors: the filter of publishers is not saved", "error", err)
		}
	}
	return nil
}

func size(f *xorfilter.BinaryFuse8) int {
	if f == nil {
		return 0
	}
	return len(f.Fingerprints)
}

func (s *Filter) load() {
	filter, names, at, err := read(s.cfg.File)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		s.log.Error("ampcors: the saved filter of publishers is not used", "error", err)
	default:
		s.filter, s.names, s.builtAt = filter, names, at
		s.log.Info("ampcors: the saved filter of publishers is used", "publishers", names, "from", at)
	}
}

// Stats say what the filter has.
type Stats struct {
	Publishers int       `json:"publishers"` // in the filter
	Added      int       `json:"added"`      // reported since its list began
	Bytes      int       `json:"bytes"`      // that the filter takes, without those that were added
	BuiltAt    time.Time `json:"builtAt"`    // zero if there is none
	AnswersNo  bool      `json:"answersNo"`  // it does so now
}

// Stats returns what the filter has now.
func (s *Filter) Stats() Stats {
	isListening := s.isListening()
	s.mu.RLock()
	defer s.mu.RUnlock()
	return Stats{
		Publishers: s.names,
		Added:      len(s.added),
		Bytes:      size(s.filter),
		BuiltAt:    s.builtAt,
		AnswersNo:  isListening && s.isComplete(),
	}
}
