package ampcors

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	defaultSourceCacheSize = 65536 // about 37 MiB with names of 22 octets

	// After so many failures in a row the Source is left alone for a while. Then one lookup
	// finds out whether it works; if not, the same again. So requests do not pile up, each
	// waiting for its timeout, and a database that starts again is not overrun.
	failuresToSuspend = 3
	suspension        = time.Second
	retryAfter        = "1" // seconds, as long as the suspension

	// For so long the rate of lookups may have been saved up.
	burst = 100 * time.Millisecond
)

var (
	errLimited     = errors.New("ampcors: Lookup.MaxRate is reached by lookups for what is not remembered as a publisher")
	errBusy        = errors.New("ampcors: no lookup could begin within Lookup.Timeout, as Lookup.MaxConcurrent of them are running")
	errSuspended   = errors.New("ampcors: the Source is not asked again so soon after it failed")
	errNoReturn    = errors.New("ampcors: the Source does not return, though Lookup.Timeout is over")
	errPanicked    = errors.New("ampcors: the Source panicked")
	errWrongAnswer = errors.New("ampcors: the Source gave a wrong answer")
)

// A resolver asks a Source, and remembers what it said.
type resolver struct {
	source  Source
	options Lookup // with the defaults filled in
	size    int
	foreign []string // hosts that are never a publisher's
	start   time.Time
	stop    func() // ends the notifications; nil if there are none

	// Each lookup that runs holds a slot. One for what is not remembered as a publisher
	// holds one of strangers as well; there are fewer of those, so that invented origins
	// cannot take all.
	slots, strangers chan struct{}

	// What is remembered, in three places so that refusals push out nothing else. What
	// prefixes stand for never changes, so that it needs no time to live.
	publishers *lru.Cache[string, memory] // by domain
	refusals   *lru.Cache[string, memory] // by domain or hash
	prefixes   *lru.Cache[string, string] // publishers' domains by hash or punycode

	epoch atomic.Uint32 // what was remembered in an earlier one must be asked for anew

	mu       sync.Mutex         // of what follows, and of all writing to publishers and refusals
	flights  map[string]*flight // by domain or hash
	nextFree time.Duration      // when the rate of lookups is used up no longer
	// Of failures in a row, no two following ones for the same key.
	failuresInRow  int
	lastFailed     string        // the key of the last one
	suspendedErr   error         // errSuspended, and its own
	suspendedUntil time.Duration // if there were too many

	count struct{ lookups, failures, shared, limited, busy, suspended, stale atomic.Uint64 } // for SourceStats
}

// A memory is what a Source once said. Times are since resolver.start.
type memory struct {
	publisher string // "" for a refusal
	at        time.Duration
	epoch     uint32
}

// An answer says which publisher a domain or hash stands for, or why that is not known.
type answer struct {
	publisher string // "" if it is none
	stale     bool   // by what was remembered too long ago
	err       error
}

// A flight is a lookup that is on its way.
type flight struct {
	key       string
	asOf      memory // what changes later, the answer may miss
	isKnown   bool   // as a publisher, as far as is remembered
	isProbe   bool   // finds out whether a suspended Source works again
	forgotten bool   // what it brings is not to be remembered; resolver.mu guards it
	answer    answer // once it landed
	landed    chan struct{}
}

func newResolver(source Source, options Lookup, size int, foreign []string) *resolver {
	r := &resolver{
		source:    source,
		options:   options,
		size:      size,
		foreign:   foreign,
		start:     time.Now(),
		slots:     make(chan struct{}, options.MaxConcurrent),
		strangers: make(chan struct{}, max(1, options.MaxConcurrent*3/4)),
		flights:   make(map[string]*flight),
	}
	// Their only error is a size below one, which compile refuses.
	r.publishers, _ = lru.New[string, memory](size)
	r.refusals, _ = lru.New[string, memory](size)
	r.prefixes, _ = lru.New[string, string](size)
	return r
}

// sameAs tells whether r does what other would, so that it can go on in its place with
// all that it remembers.
func (r *resolver) sameAs(other *resolver) bool {
	return r != nil && r.options == other.options && r.size == other.size && slices.Equal(r.foreign, other.foreign) &&
		reflect.ValueOf(r.source).Comparable() && reflect.ValueOf(other.source).Comparable() && r.source == other.source
}

// listen has a Notifier tell of changes.
func (r *resolver) listen() {
	n, ok := r.source.(Notifier)
	if !ok {
		return
	}
	r.stop = n.Notify(func(domains ...string) {
		if len(domains) == 0 {
			r.forgetAll()
		}
		for _, publisher := range domains {
			if domain, err := parseDomain(publisher); err == nil {
				r.forget(domain)
			} else {
				r.forgetAll() // it may have meant any
			}
		}
	})
}

func (r *resolver) now() time.Duration { return time.Since(r.start) }

// recall returns the publisher if it was confirmed within the TTL. It does not keep
// domain, which may be memory that is used again.
func (r *resolver) recall(domain string) (publisher string, ok bool) {
	if r == nil {
		return "", false
	}
	// Peek takes only the read lock. The order in which publishers are pushed out is then
	// that of the last confirmation, which for those in use is at most a TTL ago.
	m, ok := r.publishers.Peek(domain)
	if !ok || !r.isFresh(m, r.options.TTL) {
		return "", false
	}
	return m.publisher, true
}

// recallPrefix is recall for a prefix that is a hash or punycode.
func (r *resolver) recallPrefix(prefix string) (publisher string, ok bool) {
	if r == nil {
		return "", false
	}
	domain, ok := r.prefixes.Peek(prefix)
	if !ok {
		return "", false
	}
	return r.recall(domain)
}

// rememberPrefix has recallPrefix find a publisher by a prefix in punycode.
func (r *resolver) rememberPrefix(prefix, publisher string) {
	r.prefixes.Add(strings.Clone(prefix), publisher)
}

func (r *resolver) isFresh(m memory, ttl time.Duration) bool {
	return m.epoch == r.epoch.Load() && r.now()-m.at < ttl
}

// findDomain asks whether domain is a publisher.
func (r *resolver) findDomain(ctx context.Context, domain string) answer {
	return r.find(ctx, domain, domain, func(ctx context.Context) (string, error) {
		ok, err := r.source.HasPublisher(ctx, domain)
		if !ok {
			return "", err
		}
		return domain, err
	})
}

// findHash asks which publisher has the hash-only prefix.
func (r *resolver) findHash(ctx context.Context, prefix string) answer {
	if domain, ok := r.prefixes.Peek(prefix); ok {
		return r.findDomain(ctx, domain)
	}
	return r.find(ctx, prefix, "", func(ctx context.Context) (string, error) {
		domain, err := r.source.PublisherByPrefix(ctx, prefix)
		// Copied before it is checked: it may be memory that the Source uses again, or a
		// part of something large.
		domain = strings.Clone(domain[:min(len(domain), maxDomain+1)])
		switch {
		case domain == "" || err != nil:
			return "", err
		case !r.canOwn(domain):
			return "", fmt.Errorf("%w: %q is not a publisher domain in lower-case ASCII", errWrongAnswer, domain)
		case fallbackPrefix(domain) != prefix:
			return "", fmt.Errorf("%w: %q does not have the prefix %q", errWrongAnswer, domain, prefix)
		}
		return domain, nil
	})
}

// canOwn tells whether domain can be a publisher's. Requests check that on the way;
// this is for what a Source says by itself.
func (r *resolver) canOwn(domain string) bool {
	canonical, err := parseDomain(domain)
	return err == nil && canonical == domain && !isOrIsBelowAny(domain, r.foreign)
}

// find tells which publisher key stands for, by what is remembered or by asking. domain
// is what a publisher would be remembered by, if that is known yet. Those who want to know
// the same at the same time share one lookup.
func (r *resolver) find(ctx context.Context, key, domain string, ask func(context.Context) (string, error)) answer {
	r.mu.Lock()
	known, isKnown := r.publishers.Peek(domain)
	if isKnown && r.isFresh(known, r.options.TTL) {
		r.mu.Unlock()
		return answer{publisher: known.publisher}
	}
	if m, ok := r.refusals.Peek(key); ok && r.isFresh(m, r.options.RefusalTTL) {
		r.mu.Unlock()
		return answer{}
	}
	if f, ok := r.flights[key]; ok {
		r.mu.Unlock()
		return r.share(ctx, f, domain)
	}
	isProbe, err := r.permit(key, isKnown)
	if err != nil {
		r.mu.Unlock()
		return r.fallBack(domain, err)
	}
	f := &flight{
		key:     key,
		asOf:    memory{at: r.now(), epoch: r.epoch.Load()},
		isKnown: isKnown,
		isProbe: isProbe,
		landed:  make(chan struct{}),
	}
	r.flights[key] = f
	r.mu.Unlock()

	r.fly(ctx, f, ask)
	return r.result(f, domain)
}

// share waits for a lookup that another request makes.
func (r *resolver) share(ctx context.Context, f *flight, domain string) answer {
	r.count.shared.Add(1)
	select {
	case <-f.landed:
		return r.result(f, domain)
	case <-ctx.Done():
		return answer{err: context.Cause(ctx)} // the client is gone
	case <-time.After(2 * r.options.Timeout):
		return r.fallBack(domain, errNoReturn)
	}
}

// result returns what a lookup that has landed means.
func (r *resolver) result(f *flight, domain string) answer {
	if f.answer.err != nil {
		return r.fallBack(domain, f.answer.err)
	}
	return f.answer
}

// permit tells why nothing may be asked now. r.mu is held.
func (r *resolver) permit(key string, isKnown bool) (isProbe bool, err error) {
	now := r.now()
	switch {
	case r.isSuspended(key):
		r.count.suspended.Add(1)
		return false, r.suspendedErr
	case !isKnown && now < r.nextFree-burst:
		r.count.limited.Add(1)
		return false, errLimited
	case !isKnown:
		r.nextFree = max(r.nextFree, now) + time.Second/time.Duration(r.options.MaxRate)
	}
	if isProbe = r.failuresInRow >= failuresToSuspend; isProbe {
		r.suspendedUntil = now + suspension // for all but this one
	}
	return isProbe, nil
}

// isSuspended tells whether the Source is left alone: about everything after failures in a
// row, and about one key after a single one, so that the requests for it do not wait in
// vain, one after another. r.mu is held.
func (r *resolver) isSuspended(key string) bool {
	return (r.failuresInRow >= failuresToSuspend || key == r.lastFailed) && r.now() < r.suspendedUntil
}

// fly makes the lookup. Others wait for it, so that it does not end with the request that
// began it.
func (r *resolver) fly(ctx context.Context, f *flight, ask func(context.Context) (string, error)) {
	f.answer.err = errPanicked // unless ask returns
	defer r.land(f)
	leave, err := r.enter(f)
	if err != nil {
		f.answer.err = err
		return
	}
	defer leave()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.options.Timeout)
	defer cancel()
	r.count.lookups.Add(1)
	f.answer.publisher, f.answer.err = ask(ctx)
}

// enter waits until the lookup may begin.
func (r *resolver) enter(f *flight) (leave func(), err error) {
	needed := []chan struct{}{r.slots}
	if !f.isKnown {
		needed = []chan struct{}{r.strangers, r.slots}
	}
	taken := 0
	leave = func() {
		for _, slot := range needed[:taken] {
			<-slot
		}
	}
	patience := time.After(r.options.Timeout)
	for _, slot := range needed {
		select {
		case slot <- struct{}{}:
			taken++
		case <-patience:
			leave()
			r.count.busy.Add(1)
			return nil, errBusy
		}
	}
	// Those before it may have failed.
	r.mu.Lock()
	defer r.mu.Unlock()
	if !f.isProbe && r.isSuspended(f.key) {
		leave()
		r.count.suspended.Add(1)
		return nil, r.suspendedErr
	}
	return leave, nil
}

// land ends the lookup for those who wait for it, and for those to come.
func (r *resolver) land(f *flight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(f.landed)
	if r.flights[f.key] == f {
		delete(r.flights, f.key)
	}
	switch err := f.answer.err; {
	case err == nil:
		r.failuresInRow = 0
		if !f.forgotten && !r.hasNewer(f) {
			r.remember(f)
		}
	case err != errBusy && !errors.Is(err, errSuspended):
		f.answer.publisher = ""
		r.countFailure(f)
	}
}

// remember keeps what a lookup brought. r.mu is held.
func (r *resolver) remember(f *flight) {
	m := f.asOf
	m.publisher = f.answer.publisher
	if m.publisher == "" {
		r.publishers.Remove(f.key)
		r.refusals.Add(f.key, m)
		return
	}
	hash := fallbackPrefix(m.publisher)
	r.publishers.Add(m.publisher, m)
	r.prefixes.Add(hash, m.publisher) // so that who is known by name is known by hash, too
	r.refusals.Remove(m.publisher)
	r.refusals.Remove(hash)
}

// countFailure notes that the Source could not tell. r.mu is held.
func (r *resolver) countFailure(f *flight) {
	r.count.failures.Add(1)
	if errors.Is(f.answer.err, errWrongAnswer) {
		r.failuresInRow = 0 // it answers
		return
	}
	if f.key != r.lastFailed { // so that what fails for one name alone suspends nothing
		r.failuresInRow++
	}
	r.lastFailed, r.suspendedUntil = f.key, r.now()+suspension
	r.suspendedErr = fmt.Errorf("%w: %w", errSuspended, f.answer.err)
}

// hasNewer tells whether something else was remembered while the lookup was on its way,
// for a domain that is asked for both by name and by hash.
func (r *resolver) hasNewer(f *flight) bool {
	for _, key := range []string{f.key, f.answer.publisher, fallbackPrefix(f.answer.publisher)} {
		for _, remembered := range []*lru.Cache[string, memory]{r.publishers, r.refusals} {
			if m, ok := remembered.Peek(key); ok && m.at > f.asOf.at {
				return true
			}
		}
	}
	return false
}

// fallBack answers for a Source that cannot tell: by what it said within StaleFor.
func (r *resolver) fallBack(domain string, err error) answer {
	m, ok := r.publishers.Peek(domain)
	if !ok || r.now()-m.at >= r.options.StaleFor || r.options.StaleFor == r.options.TTL {
		return answer{err: err}
	}
	r.count.stale.Add(1)
	return answer{publisher: m.publisher, stale: true, err: err}
}

// forget drops what is remembered of a domain, and what lookups that are on their way
// will bring.
func (r *resolver) forget(domain string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.publishers.Remove(domain)
	for _, key := range []string{domain, fallbackPrefix(domain)} {
		r.refusals.Remove(key)
		if f := r.flights[key]; f != nil {
			f.forgotten = true
			delete(r.flights, key)
		}
	}
}

// forgetAll has everything asked for anew, also by those who would share a lookup that is
// on its way. What was remembered is good enough if the Source cannot tell.
func (r *resolver) forgetAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch.Add(1)
	for _, f := range r.flights {
		f.forgotten = true // else forget, if it comes now, would not find it
	}
	clear(r.flights)
}

func (r *resolver) stats() SourceStats {
	return SourceStats{
		Lookups:    r.count.lookups.Load(),
		Failures:   r.count.failures.Load(),
		Shared:     r.count.shared.Load(),
		Limited:    r.count.limited.Load(),
		Busy:       r.count.busy.Load(),
		Suspended:  r.count.suspended.Load(),
		Stale:      r.count.stale.Load(),
		Publishers: r.publishers.Len(),
		Refusals:   r.refusals.Len(),
	}
}
