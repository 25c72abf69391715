package driver

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Reports notes whether a database reports changes to a [Listeners], and if not, why. It logs when that changes, and
// each cause of an outage once, but at most 16. It is safe for concurrent use by multiple goroutines.
type Reports struct {
	log   *slog.Logger
	of    slog.Attr
	known chan struct{} // closed once it is known for the first time

	isListening atomic.Bool

	mu       sync.Mutex
	isKnown  bool
	isClosed bool
	lostAt   time.Time       // when the outage began; zero if there is none
	err      error           // the last; nil if there was none
	logged   map[string]bool // the causes of this outage
}

// NewReports returns Reports that write to a log, in which the attribute names the database.
func NewReports(log *slog.Logger, database slog.Attr) *Reports {
	return &Reports{log: log, of: database, known: make(chan struct{}), logged: make(map[string]bool)}
}

// Known is closed once the first connection listens, or cannot.
func (r *Reports) Known() <-chan struct{} { return r.known }

// IsListening is [source.Database].IsListening.
func (r *Reports) IsListening() bool { return r.isListening.Load() }

// Err returns the last error, or nil.
func (r *Reports) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Listens notes that changes are reported.
func (r *Reports) Listens() {
	if attrs, isNew := r.listens(); isNew {
		r.log.Info("ampcors: listening for changes of publishers", attrs...) // without the lock: it may be slow
	}
}

func (r *Reports) listens() (attrs []any, isNew bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isClosed || r.isListening.Swap(true) {
		return nil, false
	}
	r.becomesKnown()
	attrs = []any{r.of}
	if len(r.logged) > 0 {
		attrs = append(attrs, slog.Duration("after", time.Since(r.lostAt).Round(time.Millisecond)))
	}
	r.lostAt = time.Time{}
	clear(r.logged)
	return attrs, true
}

// Ends notes that changes are not reported from now on. Fails says why.
func (r *Reports) Ends() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends()
}

// Close is for a database that is closed: nothing is noted from then on, and nothing waits for Known.
func (r *Reports) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isClosed = true
	r.ends()
	r.becomesKnown()
}

// Fails notes that changes are not reported, why, what kind of error that is, and what follows.
func (r *Reports) Fails(err error, kind, effect string) {
	if r.fails(err, kind) {
		r.log.Error("ampcors: not listening for changes of publishers; "+effect, r.of, slog.String("error", LogText(err)))
	}
}

func (r *Reports) fails(err error, kind string) (isNew bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isClosed {
		return false
	}
	r.ends()
	r.becomesKnown()
	r.err = err
	const most = 16
	if r.logged[kind] || len(r.logged) == most {
		return false
	}
	r.logged[kind] = true
	return true
}

func (r *Reports) ends() {
	if r.isListening.Swap(false) || r.lostAt.IsZero() {
		r.lostAt = time.Now()
	}
}

func (r *Reports) becomesKnown() {
	if !r.isKnown {
		r.isKnown = true
		close(r.known)
	}
}

// UntilExpiry is the effect for Reports.Fails while lookups still work.
const UntilExpiry = "a change is seen when the remembered answer expires"
