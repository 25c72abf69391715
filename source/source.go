package source

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/ampcors/ampcors/internal/domains"
	"github.com/ampcors/ampcors/internal/prefixes"
)

// Errors in an [Answer], and so in ampcors.Decision.SourceErr, that say why a [Database] could not
// answer. Test with errors.Is. Other errors are the database's own, or of a request
// that was canceled.
var (
	ErrBusy        = errors.New("source not asked: too many lookups wait, or no slot became free within Config.Timeout")
	ErrCircuitOpen = errors.New("source not asked: it failed just before (backoff or open circuit breaker)")
	ErrClosed      = errors.New("source not asked: it is closed")
	ErrTimeout     = errors.New("the source did not answer within Config.Timeout")
	ErrPanicked    = errors.New("the source panicked") // in the lookup of another request, or in the background
	ErrBadAnswer   = errors.New("the source gave an answer that cannot be right")
)

// ErrNoStale is for errors of a [Database] to wrap. It says that earlier answers may be wrong, too: a
// [Source] drops all that it remembers of the Database, so that no later failure makes it serve a stale one.
var ErrNoStale = errors.New("remembered answers are not used as stale ones")

// A Source remembers what a [Database] answered, and asks it as seldom as it can. It is safe for
// concurrent use by multiple goroutines, and by several Middlewares, which then share its
// answers. [New] makes one. A nil or zero Source behaves as a closed one.
//
// [Source.Remembered] answers from memory alone. [Source.Find] asks if memory has no answer:
//
//	memory -> call of another caller -> circuit breaker -> queue for a slot ->
//	circuit breaker again -> Database
//
// Each part has a file: memory.go, call.go, breaker.go and queue.go; rejections.go is part of the queue's order.
// retry.go finds out when a database that failed works again. Each shard has breakers, a queue and slots of its
// own, so that a shard that fails does not stop the others.
type Source struct {
	asked    Database
	options  Config
	start    time.Time
	memory   *memory // nil in the zero Source
	shards   []shard
	rejected rejections // because of load

	background context.Context // of refreshes; it is done once the Source is closed
	cancel     context.CancelFunc
	stop       func() // ends the notifications

	mu          sync.Mutex // guards what follows, breakers, and changes of memory.publishers and memory.negatives
	calls       map[key]*call
	stats       Stats // only the counters; Stats adds the rest
	waitsWithin [len(waitBounds)]uint64

	outage outage
}

// A shard is the state for one part of the database, which can fail while the others work.
type shard struct {
	publishers, unknownDomains, unknownPrefixes breaker // for lookups of each kind
	queue                                       *queue
}

// New returns a Source, and subscribes to the changes that the database reports. An error says all
// that is wrong in the arguments. Close the Source when no Middleware uses it any more.
func New(asked Database, cfg Config) (*Source, error) {
	if err := errors.Join(asked.check(), cfg.Validate()); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s := &Source{
		asked:   asked,
		options: cfg,
		start:   time.Now(),
		memory:  newMemory(cfg),
		shards:  make([]shard, max(1, asked.Shards)),
		calls:   make(map[key]*call),
		stop:    func() {},
	}
	for i := range s.shards {
		s.shards[i].queue = &queue{slots: cfg.MaxConcurrent}
	}
	s.background, s.cancel = context.WithCancel(context.Background())
	if asked.Notify != nil {
		if stop := asked.Notify(s.changed); stop != nil {
			s.stop = sync.OnceFunc(stop)
		}
	}
	return s, nil
}

// changed is told of changes by the database.
func (s *Source) changed(domains ...string) {
	if len(domains) == 0 || s.Forget(domains...) != nil {
		s.forgetAll() // a value that is not a domain may mean any publisher
	}
}

// Close ends the subscription to changes and lookups in the background. From then on, no
// remembered answer is served, because nobody reports changes: Middlewares that still use the
// Source answer with status 503 where they need it. It can be called again.
func (s *Source) Close() {
	if !s.isMade() {
		return
	}
	s.cancel()
	s.mu.Lock()
	s.dropAll()
	s.mu.Unlock()
	s.stop()
}

func (s *Source) isMade() bool { return s != nil && s.memory != nil }

func (s *Source) now() time.Duration { return time.Since(s.start) }

// A key is what a database is asked about: a domain, or a hash prefix.
type key struct {
	text   string
	isHash bool
}

// textOf returns the text of a publisher's key, or of a pattern's: that has no star, such as ".example.com", so
// that it is a part of each name that the pattern matches.
func textOf(publisher string) string { return strings.TrimPrefix(publisher, "*") }

// name returns what the database has for a key.
func (k key) name() string {
	if k.isPattern() {
		return "*" + k.text
	}
	return k.text
}

func (k key) isPattern() bool { return strings.HasPrefix(k.text, ".") }

// Remembered reports whether a domain is remembered as a publisher, and has not expired. It
// returns the Source's own copy of the domain. It does not wait, and does not keep its argument.
// A publisher that expires soon is refreshed in the background, so that in steady traffic no
// request waits for the database.
func (s *Source) Remembered(domain string) (publisher string, ok bool) {
	if !s.isMade() || strings.HasPrefix(domain, ".") { // as no domain has, but a pattern in memory
		return "", false
	}
	return s.remembered(domain)
}

// remembered is Remembered, also for the text of a pattern's key.
func (s *Source) remembered(text string) (publisher string, ok bool) {
	e, ok := s.memory.publishers.Peek(text)
	if !ok {
		return "", false
	}
	now := s.now()
	if !s.memory.isFresh(e, s.options.TTL, now) {
		return "", false
	}
	if now >= e.refreshAt {
		s.refresh(textOf(e.domain))
	}
	return e.domain, true
}

// RememberedByHash is Remembered for a publisher that was found by its hash prefix before.
func (s *Source) RememberedByHash(prefix string) (publisher string, ok bool) {
	if !s.isMade() {
		return "", false
	}
	domain, ok := s.memory.prefixes.Peek(prefix)
	if !ok {
		return "", false
	}
	return s.Remembered(domain)
}

// An Answer is what a [Source] knows of a domain or hash prefix. If it is Stale, it has both a
// Publisher and an Err.
type Answer struct {
	Publisher string // in lower-case ASCII; "" if there is none, or if that is not known
	// with Config.Patterns, the one that matched, such as "*.example.com"; Publisher is then the argument of Find
	Pattern string
	Stale   bool  // the publisher was confirmed within Config.MaxStale, and its lookup failed now or found no slot
	Err     error // why the database could not answer
}

// Find looks up a domain, in the form that cacheurl.CanonicalDomain returns; nothing else is a
// publisher. It waits for at most
// twice Config.Timeout, if the database obeys its context; with Config.Patterns, this holds for each lookup.
func (s *Source) Find(ctx context.Context, domain string) Answer {
	switch {
	case prefixes.IsHash(domain), strings.HasPrefix(domain, "."), strings.HasPrefix(domain, "*"):
		return Answer{}
	case s.isMade() && s.options.Patterns:
		return s.findWithPatterns(ctx, strings.Clone(domain)) // a request's memory stays on its stack
	}
	return s.find(ctx, key{text: domain})
}

// FindByHash looks up the publisher with a well-formed hash prefix. It waits as Find does, or twice
// as long if the database has shards.
func (s *Source) FindByHash(ctx context.Context, prefix string) Answer {
	switch {
	case !prefixes.IsHash(prefix), s.isMade() && s.asked.PublisherByHash == nil:
		return Answer{}
	case s.isMade():
		if domain, ok := s.memory.prefixes.Peek(prefix); ok {
			return s.find(ctx, key{text: domain})
		}
	}
	a := s.find(ctx, key{prefix, true})
	if a.Publisher != "" && s.isSharded() {
		return s.find(ctx, key{text: a.Publisher})
	}
	return a
}

func (s *Source) isSharded() bool { return len(s.shards) > 1 }

// find asks the database once for all concurrent callers with the same key. It keeps a copy of
// the key, so that a request's memory stays on its stack.
func (s *Source) find(ctx context.Context, requested key) Answer {
	if !s.isMade() {
		return Answer{Err: ErrClosed}
	}
	k := key{strings.Clone(requested.text), requested.isHash} // a new variable, so that requested does not escape
	// Not under the lock: the database may panic.
	class, shard := s.class(k), s.shardOf(k)
	s.mu.Lock()
	if domain, ok := s.memory.answer(k.text, s.now()); ok {
		s.mu.Unlock()
		return Answer{Publisher: domain}
	}
	if _, ok := s.memory.stale(k.text, s.now()); ok && class == remembered {
		if err := shard.publishers.rejects(k.text, s.now()); err != nil {
			s.stats.CircuitOpen++
			s.mu.Unlock()
			return s.staleIfError(k.text, err)
		}
	}
	if running, ok := s.calls[k]; ok {
		s.stats.Coalesced++
		s.mu.Unlock()
		defer s.waited(s.now())
		return s.wait(ctx, running)
	}
	own, err := s.begin(k, class, shard)
	s.mu.Unlock()
	if err != nil {
		return s.staleIfError(k.text, err)
	}
	defer s.waited(s.now())
	s.run(context.WithoutCancel(ctx), own)
	return s.answer(own)
}

// waited counts a decision that waited for the database.
func (s *Source) waited(since time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := s.now() - since
	s.stats.Waits++
	s.stats.WaitTime += took
	for i, bound := range waitBounds {
		if took <= bound {
			s.waitsWithin[i]++
		}
	}
}

var waitBounds = [...]time.Duration{time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second}

// refresh asks about a remembered publisher, or a pattern, in the background.
func (s *Source) refresh(text string) {
	k := key{text: text}
	shard := s.shardOf(k) // not under the lock: the database may panic
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	e, ok := s.memory.publishers.Peek(text)
	if _, runs := s.calls[k]; runs || !ok || now < e.refreshAt {
		return // another request was faster
	}
	again := *e
	again.refreshAt = now + s.options.TTL/refreshRetries // if this refresh fails
	s.memory.publishers.Add(text, &again)
	if !shard.queue.try() {
		return
	}
	own, err := s.begin(k, remembered, shard)
	if err != nil {
		shard.queue.leave(remembered)
		return
	}
	own.hasSlot = true
	s.runInBackground(own)
}

// runInBackground runs a call.
func (s *Source) runInBackground(own *call) {
	own.isRefresh = true
	go func() {
		defer func() { _ = recover() }() // finish has counted it, and there is no request to fail
		s.run(s.background, own)
	}()
}

// A publisher is refreshed when a random 70 to 90 % of its TTL is over, so that servers which
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

// staleIfError returns a publisher that was confirmed within MaxStale, otherwise only err.
func (s *Source) staleIfError(domain string, err error) Answer {
	if errors.Is(err, ErrNoStale) {
		return Answer{Err: err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if publisher, ok := s.memory.stale(domain, s.now()); ok && s.background.Err() == nil {
		s.stats.Stale++
		return Answer{Publisher: publisher, Stale: true, Err: err}
	}
	return Answer{Err: err}
}

// Forget drops what is remembered of publishers, in any spelling, and of patterns: the next request asks the
// Database, and no stale answer is served. Call it after the database has changed, for publishers
// that must not wait for Config.TTL. Values that are not domains are reported in the error;
// the others are forgotten.
func (s *Source) Forget(publishers ...string) error {
	var errs []error
	for _, publisher := range publishers {
		base, isPattern := strings.CutPrefix(publisher, "*.")
		domain, problem := domains.Parse(base)
		switch {
		case problem != nil:
			errs = append(errs, fmt.Errorf("source: the publisher %.80q %s", publisher, problem.Reason))
		case s.isMade() && isPattern:
			s.forget("." + domain)
		case s.isMade():
			s.forget(domain)
		}
	}
	return errors.Join(errs...)
}

// forget removes a publisher or a pattern, and the negative answers for it and its hash prefix. Answers of
// its running lookups are not remembered.
func (s *Source) forget(text string) {
	prefix := prefixes.Hash(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory.publishers.Remove(text)
	for _, k := range []key{{text, false}, {prefix, true}} {
		s.memory.negatives.Remove(k.text)
		if running := s.calls[k]; running != nil {
			running.forgotten = true
			delete(s.calls, k)
		}
	}
}

// forgetAll expires everything. Publishers are still served as stale answers.
func (s *Source) forgetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory.epoch.Add(1)
	s.forgetCalls()
}

// dropAll removes everything, so that no stale answer is left. s.mu is held.
func (s *Source) dropAll() {
	s.memory.purge()
	s.forgetCalls()
}

// forgetCalls keeps the answers of running lookups from being remembered. s.mu is held.
func (s *Source) forgetCalls() {
	for _, running := range s.calls {
		running.forgotten = true
	}
	clear(s.calls)
}

// Stats say how a [Database] was used since its [Source] was made, and what is there now.
type Stats struct {
	Lookups uint64 `json:"lookups"` // calls of the database
	// the part of Lookups that was made in the background: before a publisher expired, or to find out whether the
	// database works again
	Refreshes uint64 `json:"refreshes"`
	Errors    uint64 `json:"errors"`    // the part of Lookups that failed
	Coalesced uint64 `json:"coalesced"` // decisions that waited for the lookup of another one
	// lookups that found no slot in time, or a full queue: the database is slow, or somebody invents origins; the
	// answer is stale, or 503
	Busy        uint64 `json:"busy"`
	CircuitOpen uint64 `json:"circuitOpen"` // lookups that a backoff or a circuit breaker rejected
	Stale       uint64 `json:"stale"`       // decisions from a stale answer, because the lookup failed or found no slot

	// waits of a decision for a lookup, its own or another's; with Config.Patterns, a decision can wait for several
	Waits       uint64        `json:"waits"`
	WaitTime    time.Duration `json:"waitTime"`    // of all Waits together; nanoseconds in JSON
	WaitsWithin []WaitsWithin `json:"waitsWithin"` // in ascending order of their times

	Publishers int  `json:"publishers"` // in memory now, expired ones included; at MaxEntries, some in use are evicted
	Negatives  int  `json:"negatives"`  // negative answers in memory now, expired ones included
	Prefixes   int  `json:"prefixes"`   // hash prefixes of publishers in memory now
	Waiting    int  `json:"waiting"`    // lookups that wait for a slot now
	Notifies   bool `json:"notifies"`   // the database can report changes
	Listening  bool `json:"listening"`  // the database would report a change now
}

// WaitsWithin says how many of [Stats].Waits took Time at most.
type WaitsWithin struct {
	Time  time.Duration `json:"time"` // nanoseconds in JSON
	Waits uint64        `json:"waits"`
}

// within returns a WaitsWithin for each of waitBounds.
func within(waits []uint64) (all []WaitsWithin) {
	for i, bound := range waitBounds {
		all = append(all, WaitsWithin{Time: bound})
		if waits != nil {
			all[i].Waits = waits[i]
		}
	}
	return all
}

// Stats returns the counts so far.
func (s *Source) Stats() Stats {
	if !s.isMade() {
		return Stats{WaitsWithin: within(nil)}
	}
	isListening := s.asked.Notify != nil && s.background.Err() == nil &&
		(s.asked.IsListening == nil || s.asked.IsListening())
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Publishers, stats.Negatives, stats.Prefixes = s.memory.publishers.Len(), s.memory.negatives.Len(),
		s.memory.prefixes.Len()
	stats.Notifies, stats.Listening = s.asked.Notify != nil, isListening
	stats.WaitsWithin = within(s.waitsWithin[:])
	for i := range s.shards {
		stats.Waiting += s.shards[i].queue.numWaiting()
	}
	return stats
}
