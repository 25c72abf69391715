// Package lookup asks a slow, unreliable source about names, and remembers its answers.
//
// The source can be asked in two ways: whether a name exists, and which name has an alias.
// (In ampcors, a name is a publisher domain, and an alias is a domain prefix of it.)
// [Cache.Get] answers from memory alone. [Cache.Find] asks if memory has no answer:
//
//	memory -> call of another caller -> circuit breaker -> queue for a slot -> rate limit -> source
//
// Each part is a type of its own: memory.go, call.go, breaker.go, queue.go and rate.go. How
// many slots there are adapts to the source (limit.go). Each shard has breakers, a queue and
// slots of its own, so that a shard that fails does not stop the others.
package lookup

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Errors that say why the source was not asked, or gave no usable answer. Test with
// errors.Is.
var (
	ErrRateLimited = errors.New("source not asked: the rate limit of lookups for unknown names is reached")
	ErrBusy        = errors.New("source not asked: too many lookups wait, or no slot became free in time")
	ErrCircuitOpen = errors.New("source not asked: it failed just before (backoff or open circuit breaker)")
	ErrTimeout     = errors.New("the source did not answer in time")
	ErrPanicked    = errors.New("the source panicked")
	ErrBadAnswer   = errors.New("the source gave an answer that cannot be right")
)

// A Source is asked about names. Its methods must be safe for concurrent use by multiple
// goroutines.
type Source interface {
	// HasName reports whether the name exists.
	HasName(ctx context.Context, name string) (bool, error)

	// NameByAlias returns the name that has the alias, or "". The Cache keeps the string.
	// An error that is ErrBadAnswer says that the source works, but not for this alias.
	NameByAlias(ctx context.Context, alias string) (string, error)

	// Hint says what is known of a name or alias without a lookup. It must not wait.
	Hint(key string) Hint

	// Shard returns the shard that holds a name or alias, from 0 to Options.Shards-1.
	Shard(key string) int
}

// A Hint says what is known of a name or alias without a lookup.
type Hint int

const (
	NoHint Hint = iota
	Likely      // it likely exists; this only changes the order of the queue
	Absent      // it does not exist, so the source is not asked
)

// Options configure a [Cache]. Only MaxRate may be zero.
type Options struct {
	TTL         time.Duration // how long a name is remembered
	NegativeTTL time.Duration // how long it is remembered that there is no such name
	MaxStale    time.Duration // how long after its confirmation a name is served if the source fails; if it equals TTL, nothing stale is served
	Timeout     time.Duration // of one lookup, and of the wait for a slot before it

	MaxConcurrent int // lookups at one time in a shard, at most
	MaxRate       int // lookups a second for names that are not remembered; 0 means no limit
	MaxEntries    int // names and aliases, each; negative answers up to maxNegatives
	Shards        int // with more than one, a name found by its alias is then looked up by name, as that may be in another shard
}

// A Result may have both a Name and an Err: then the name is stale.
type Result struct {
	Name  string // "" if there is none, or if that is not known
	Stale bool   // the name was confirmed within MaxStale, and the source fails now
	Err   error  // why the source could not answer
}

// Stats count what a [Cache] did since it was made.
type Stats struct {
	Lookups     uint64 // calls of the source
	Refreshes   uint64 // the part of Lookups that was made in the background before a name expired
	Errors      uint64 // the part of Lookups that failed
	Coalesced   uint64 // callers that waited for the lookup of another caller
	RateLimited uint64 // lookups that the rate limit rejected
	Busy        uint64 // lookups that found no slot in time, or a full queue
	CircuitOpen uint64 // lookups that a backoff or a circuit breaker rejected
	Absent      uint64 // callers that were answered by the Hint Absent, without a lookup
	Stale       uint64 // stale names that were served
	Names       int    // in memory now, expired ones included
	Negatives   int    // negative answers in memory now, expired ones included
	Aliases     int    // in memory now
	Slots       int    // lookups that can run at one time now
	Waiting     int    // lookups that wait for a slot now
}

// A Cache remembers what a [Source] answered, and asks it as seldom as it can. It is safe
// for concurrent use by multiple goroutines. No string may be both a name and an alias.
type Cache struct {
	source   Source
	options  Options
	start    time.Time
	memory   *memory
	shards   []shard
	rejected rejections // because of load

	background context.Context // of refreshes
	close      context.CancelFunc

	mu    sync.Mutex       // guards calls, breakers, rate, and changes of memory.names and memory.negatives
	calls map[string]*call // by name or alias
	rate  rateLimit        // of lookups for names that are not remembered

	count struct {
		lookups, refreshes, errors, coalesced, rateLimited, busy, circuitOpen, absent, stale atomic.Uint64
	}
}

// A shard is a part of the source that can fail while the others work.
type shard struct {
	breakers [2][2]breaker // by kind of question, and by whether the name is remembered
	queue    *queue
}

// New returns a Cache. alias returns the alias of a name. A confirmed name is then also
// found by this alias.
func New(source Source, options Options, alias func(name string) string) *Cache {
	c := &Cache{
		source:  source,
		options: options,
		start:   time.Now(),
		memory:  newMemory(options, alias),
		shards:  make([]shard, options.Shards),
		calls:   make(map[string]*call),
		rate:    newRateLimit(options.MaxRate),
	}
	for i := range c.shards {
		c.shards[i].queue = newQueue(options.MaxConcurrent)
	}
	c.background, c.close = context.WithCancel(context.Background())
	return c
}

// Close ends refreshes in the background, and no new ones begin. Find still works: callers
// that have the Cache still get their answers.
func (c *Cache) Close() { c.close() }

func (c *Cache) now() time.Duration { return time.Since(c.start) }

// Get returns the name if it is remembered and has not expired. It does not wait, and does
// not keep the string that it is given. A name that expires soon is refreshed in the
// background, so that in steady traffic no caller waits for the source.
func (c *Cache) Get(name string) (string, bool) {
	e, ok := c.memory.names.Peek(name)
	if !ok {
		return "", false
	}
	now := c.now()
	if !c.memory.isFresh(e, c.options.TTL, now) {
		return "", false
	}
	if now >= e.refreshAt {
		c.refresh(e.name)
	}
	return e.name, true
}

// GetByAlias is Get for an alias.
func (c *Cache) GetByAlias(alias string) (string, bool) {
	name, ok := c.memory.aliases.Peek(alias)
	if !ok {
		return "", false
	}
	return c.Get(name)
}

// AddAlias adds another alias of a name. It keeps both strings.
func (c *Cache) AddAlias(alias, name string) { c.memory.aliases.Add(alias, name) }

// Find returns the name if the source has it. It keeps the string. It may wait for the
// source, for at most twice Options.Timeout if the source obeys its context.
func (c *Cache) Find(ctx context.Context, name string) Result {
	return c.find(ctx, question{kind: byName, key: name, name: name})
}

// FindByAlias returns the name that has the alias. It keeps the string, and waits like Find.
func (c *Cache) FindByAlias(ctx context.Context, alias string) Result {
	if name, ok := c.memory.aliases.Peek(alias); ok {
		return c.Find(ctx, name)
	}
	r := c.find(ctx, question{kind: byAlias, key: alias})
	if r.Name != "" && c.isSharded() {
		return c.Find(ctx, r.Name)
	}
	return r
}

func (c *Cache) isSharded() bool { return len(c.shards) > 1 }

// A question is what the source is asked.
type question struct {
	kind int    // byName or byAlias
	key  string // the name or the alias
	name string // "" if it is not known yet
}

const (
	byName = iota
	byAlias
)

// find asks the source once for all concurrent callers with the same question.
func (c *Cache) find(ctx context.Context, q question) Result {
	// Not under the lock: the source may panic.
	class, shard := c.class(q), c.shardOf(q.key)
	if class == absent {
		c.count.absent.Add(1)
		return Result{}
	}
	c.mu.Lock()
	if name, ok := c.memory.answer(q, c.now()); ok {
		c.mu.Unlock()
		return Result{Name: name}
	}
	if running, ok := c.calls[q.key]; ok {
		c.mu.Unlock()
		return c.wait(ctx, running, q)
	}
	own, err := c.begin(q, class, shard)
	c.mu.Unlock()
	if err != nil {
		return c.staleIfError(q, err)
	}
	c.run(context.WithoutCancel(ctx), own, false)
	return c.result(own, q)
}

// refresh asks about a remembered name in the background.
func (c *Cache) refresh(name string) {
	shard := c.shardOf(name) // not under the lock: the source may panic
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	e, ok := c.memory.names.Peek(name)
	if _, runs := c.calls[name]; runs || !ok || now < e.refreshAt || c.background.Err() != nil {
		return // another request was faster, or the Cache is closed
	}
	again := *e
	again.refreshAt = now + c.options.TTL/refreshRetries // if this refresh fails
	c.memory.names.Add(name, &again)
	if !shard.queue.try() {
		return
	}
	own, err := c.begin(question{kind: byName, key: name, name: name}, known, shard)
	if err != nil {
		shard.queue.leave(known)
		return
	}
	c.count.refreshes.Add(1)
	go func() {
		defer func() { _ = recover() }() // finish has counted it, and there is no request to fail
		c.run(c.background, own, true)
	}()
}

// A name is refreshed when a random 70 to 90 % of its TTL is over, so that servers which
// learned of it together do not refresh it together. A refresh that fails is tried again
// after each TTL/refreshRetries.
const (
	refreshAfter   = 0.7
	refreshJitter  = 0.2
	refreshRetries = 20
)

func refreshAge(ttl time.Duration) time.Duration {
	return time.Duration(float64(ttl) * (refreshAfter + refreshJitter*rand.Float64()))
}

// staleIfError returns a name that was confirmed within MaxStale, otherwise only err.
func (c *Cache) staleIfError(q question, err error) Result {
	if name, ok := c.memory.stale(q.name, c.now()); ok {
		c.count.stale.Add(1)
		return Result{Name: name, Stale: true, Err: err}
	}
	return Result{Err: err}
}

// Forget removes a name and the negative answers for it and its alias. Answers of its
// running lookups are not remembered.
func (c *Cache) Forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memory.forget(name)
	for _, key := range []string{name, c.memory.alias(name)} {
		if running := c.calls[key]; running != nil {
			running.forgotten = true
			delete(c.calls, key)
		}
	}
}

// ForgetAll expires everything. Names are still served as stale answers.
func (c *Cache) ForgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memory.epoch.Add(1)
	for _, running := range c.calls {
		running.forgotten = true
	}
	clear(c.calls)
}

// Stats returns the counts so far.
func (c *Cache) Stats() Stats {
	slots, waiting := 0, 0
	for i := range c.shards {
		s, w := c.shards[i].queue.state()
		slots, waiting = slots+s, waiting+w
	}
	return Stats{
		Lookups:     c.count.lookups.Load(),
		Refreshes:   c.count.refreshes.Load(),
		Errors:      c.count.errors.Load(),
		Coalesced:   c.count.coalesced.Load(),
		RateLimited: c.count.rateLimited.Load(),
		Busy:        c.count.busy.Load(),
		CircuitOpen: c.count.circuitOpen.Load(),
		Absent:      c.count.absent.Load(),
		Stale:       c.count.stale.Load(),
		Names:       c.memory.names.Len(),
		Negatives:   c.memory.negatives.Len(),
		Aliases:     c.memory.aliases.Len(),
		Slots:       slots,
		Waiting:     waiting,
	}
}
