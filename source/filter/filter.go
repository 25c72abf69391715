// Package filter keeps a filter of all publishers of a [source.Database], which takes 9 bits for each of them. Before
// a lookup, the filter says whether a domain or hash prefix likely belongs to a publisher. The [source.Source] looks
// up the likely ones first; the others take what capacity is left. So invented origins, however many there are,
// hardly delay lookups for publishers.
//
// The filter decides nothing. Whatever it says, the database is asked: a filter that is stale or wrong
// changes the order of lookups, and never who is allowed.
package filter

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/FastFilter/xorfilter"

	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/driver"
)

// Config configures a [Filter]. The zero value is fine.
type Config struct {
	// Every is how often the filter is built again. Publishers that are added meanwhile are looked up
	// as any other name is. If zero, 1 hour is used.
	Every time.Duration

	// Logger gets a line when the filter is built (level Info), and when it cannot be built (level
	// Error). If nil, slog.Default() is used.
	Logger *slog.Logger
}

// A Filter has all publishers of a Database, once [Filter.Run] has listed them. It is safe for
// concurrent use by multiple goroutines.
type Filter struct {
	asked source.Database
	every time.Duration
	log   *slog.Logger

	mu      sync.RWMutex
	filter  *xorfilter.BinaryFuse8 // nil before the first
	names   int                    // in filter
	builtAt time.Time
}

// New returns a Filter for a Database. It returns an error if the database has no Publishers or already
// has IsLikely, or if cfg.Every is negative.
func New(asked source.Database, cfg Config) (*Filter, error) {
	f := &Filter{asked: asked, every: cmp.Or(cfg.Every, time.Hour), log: cmp.Or(cfg.Logger, slog.Default())}
	switch {
	case asked.Publishers == nil:
		return nil, errors.New("filter: Database.Publishers is nil; want a function that lists all publishers")
	case asked.IsLikely != nil:
		return nil, errors.New("filter: Database.IsLikely is set already; want a Database without it")
	case f.every < 0:
		return nil, fmt.Errorf("filter: Every %v is negative; want 0 for 1 hour, or more", f.every)
	}
	return f, nil
}

// Database returns the database with IsLikely of the filter, for [source.New].
func (f *Filter) Database() source.Database {
	filtered := f.asked
	filtered.IsLikely = f.isLikely
	return filtered
}

// isLikely reports true for all publishers in the filter, and for about one in 256 other names.
func (f *Filter) isLikely(key string) bool {
	sum, ok := sumOf(key)
	f.mu.RLock()
	defer f.mu.RUnlock()
	return ok && f.filter != nil && f.filter.Contains(sum)
}

// sumOf returns the first 64 bits of a name's SHA-256. A hash prefix spells the SHA-256 of
// its name, so one entry serves both kinds of lookup.
func sumOf(key string) (sum uint64, ok bool) {
	if strings.Contains(key, ".") {
		hash := sha256.Sum256([]byte(key))
		return binary.BigEndian.Uint64(hash[:]), true
	}
	const length = 16 // characters, which spell 10 bytes
	var start [10]byte
	if len(key) < length {
		return 0, false
	}
	if _, err := base32.StdEncoding.Decode(start[:], []byte(strings.ToUpper(key[:length]))); err != nil {
		return 0, false
	}
	return binary.BigEndian.Uint64(start[:]), true
}

// afterError is the longest time until a filter that could not be built is tried again.
const afterError = time.Minute

// Run builds the filter: at once, and each Config.Every. After an error it tries again within a minute, and
// the last filter stays in use. It returns the error of ctx when ctx is done. Call it once, in its own
// goroutine.
func (f *Filter) Run(ctx context.Context) error {
	for {
		next := f.every
		if err := f.build(ctx); err != nil && ctx.Err() == nil {
			f.log.Error("ampcors: the filter of publishers is not built; the last one stays in use", "error",
				driver.LogText(err))
			next = min(next, afterError)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(next):
		}
	}
}

// build reads the list and replaces the filter.
func (f *Filter) build(ctx context.Context) error {
	begun := time.Now()
	before := f.Stats().Publishers
	sums := make([]uint64, 0, before+before/16)
	for domain, err := range f.asked.Publishers(ctx) {
		if err != nil {
			return fmt.Errorf("filter: listing publishers: %w", err)
		}
		if sum, ok := sumOf(domain); ok {
			sums = append(sums, sum)
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
	f.mu.Lock()
	f.filter, f.names, f.builtAt = built, len(sums), time.Now()
	f.mu.Unlock()
	f.log.Info("ampcors: the filter of publishers is built", "publishers", len(sums), "bytes", size(built), "took",
		time.Since(begun).Round(time.Millisecond))
	return nil
}

func size(f *xorfilter.BinaryFuse8) int {
	if f == nil {
		return 0
	}
	return len(f.Fingerprints)
}

// Stats say what the filter has.
type Stats struct {
	Publishers int       `json:"publishers"` // in the filter
	Bytes      int       `json:"bytes"`      // that the filter takes
	BuiltAt    time.Time `json:"builtAt"`    // zero if there is none
}

// Stats returns what the filter has now.
func (f *Filter) Stats() Stats {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return Stats{Publishers: f.names, Bytes: size(f.filter), BuiltAt: f.builtAt}
}
