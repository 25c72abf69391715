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

	// After failures for so many keys in a row the Source is left alone for a while, but
	// for one lookup at a time that finds out whether it works again: requests do not pile
	// up, each waiting for its timeout, and a database that starts again is not overrun.
	failuresToSuspend = 3
	suspension        = time.Second
	retryAfter        = "1" // seconds, as long as the suspension

	// For so long the rate of lookups may have been saved up.
	burst = 100 * time.Millisecond
)

var (
	errLimited     = errors.New("ampcors: Lookup.MaxRate is reached")
	errBusy        = errors.New("ampcors: no lookup could begin within Lookup.Timeout, as Lookup.MaxConcurrent of them are running")
	errSuspended   = errors.New("ampcors: the Source is not asked, because it has just failed several times")
	errNoReturn    = errors.New("ampcors: the Source does not return, though Lookup.Timeout is over")
	errPanicked    = errors.New("ampcors: the Source panicked")
	errWrongAnswer = errors.New("ampcors: the Source gave a wrong answer")
)

// A lookups asks a Source, and remembers what it said.
type lookups struct {
	source  Source
	options Lookup // with the defaults filled in
	size    int
	foreign []string // hosts that are never a publisher's
	start   time.Time
	stop    func() // ends the notifications; nil if there are none

	// One for each lookup that runs. Those for what is not known as a publisher need one of
	// each, and strangers has fewer, so that invented origins cannot take all.
	slots, strangers chan struct{}

	// What is remembered, in three places so that refusals push out nothing else. What
	// prefixes stand for never changes, so that it needs no time to live.
	publishers *lru.Cache[string, memory] // by domain
	refusals   *lru.Cache[string, memory] // by domain or hash
	prefixes   *lru.Cache[string, string] // publishers' domains by hash or punycode

	epoch atomic.Uint32 // what was remembered in an earlier one must be asked for anew

	mu         sync.Mutex         // of what follows, and of all writing to publishers and refusals
	flights    map[string]*flight // by domain or hash
	nextFree   time.Duration      // when the rate of lookups is used up no longer
	failures   int                // in a row, of one key and then another
	lastFailed string             // the key of the last of them
	suspended  time.Duration      // until when, if there were too many of them

	asked, failed, shared, limited, busy, notAsked, stale atomic.Uint64
}

// A memory is what a Source once said. Times are since lookups.start.
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
	forgotten bool   // what it brings is not to be remembered; lookups.mu guards it
	answer    answer // once it landed
	landed    chan struct{}
}

func newLookups(source Source, options Lookup, size int, foreign []string) *lookups {
	l := &lookups{
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
	l.publishers, _ = lru.New[string, memory](size)
	l.refusals, _ = lru.New[string, memory](size)
	l.prefixes, _ = lru.New[string, string](size)
	return l
}

// sameAs tells whether l does what other would, so that it can go on in its place with
// all that it remembers.
func (l *lookups) sameAs(other *lookups) bool {
	return l != nil && l.options == other.options && l.size == other.size && slices.Equal(l.foreign, other.foreign) &&
		reflect.ValueOf(l.source).Comparable() && reflect.ValueOf(other.source).Comparable() && l.source == other.source
}

// listen has a Notifier tell of changes.
func (l *lookups) listen() {
	n, ok := l.source.(Notifier)
	if !ok {
		return
	}
	l.stop = n.Notify(func(domains ...string) {
		if len(domains) == 0 {
			l.forgetAll()
		}
		for _, publisher := range domains {
			if domain, err := parseDomain(publisher); err == nil {
				l.forget(domain)
			} else {
				l.forgetAll() // it may have meant any
			}
		}
	})
}

func (l *lookups) now() time.Duration { return time.Since(l.start) }

// recall returns the publisher if it was confirmed within the TTL. It does not keep
// domain, which may be memory that is used again.
func (l *lookups) recall(domain string) (publisher string, ok bool) {
	if l == nil {
		return "", false
	}
	// Peek takes only the read lock. The order in which publishers are pushed out is then
	// that of the last confirmation, which for those in use is at most a TTL ago.
	m, ok := l.publishers.Peek(domain)
	if !ok || !l.isFresh(m, l.options.TTL) {
		return "", false
	}
	return m.publisher, true
}

// recallPrefix is recall for a prefix that is a hash or punycode.
func (l *lookups) recallPrefix(prefix string) (publisher string, ok bool) {
	if l == nil {
		return "", false
	}
	domain, ok := l.prefixes.Peek(prefix)
	if !ok {
		return "", false
	}
	return l.recall(domain)
}

// rememberPrefix has recallPrefix find a publisher by a prefix in punycode.
func (l *lookups) rememberPrefix(prefix, publisher string) {
	l.prefixes.Add(strings.Clone(prefix), publisher)
}

func (l *lookups) isFresh(m memory, ttl time.Duration) bool {
	return m.epoch == l.epoch.Load() && l.now()-m.at < ttl
}

// findDomain asks whether domain is a publisher.
func (l *lookups) findDomain(ctx context.Context, domain string) answer {
	return l.find(ctx, domain, domain, func(ctx context.Context) (string, error) {
		ok, err := l.source.HasPublisher(ctx, domain)
		if !ok {
			return "", err
		}
		return domain, err
	})
}

// findHash asks which publisher has the hash-only prefix.
func (l *lookups) findHash(ctx context.Context, prefix string) answer {
	if domain, ok := l.prefixes.Peek(prefix); ok {
		return l.findDomain(ctx, domain)
	}
	return l.find(ctx, prefix, "", func(ctx context.Context) (string, error) {
		domain, err := l.source.PublisherByPrefix(ctx, prefix)
		// Copied before it is checked: it may be memory that the Source uses again, or a
		// part of something large.
		domain = strings.Clone(domain[:min(len(domain), maxDomain+1)])
		switch {
		case domain == "" || err != nil:
			return "", err
		case !l.canOwn(domain):
			return "", fmt.Errorf("%w: %q is not a publisher domain in lower-case ASCII", errWrongAnswer, domain)
		case fallbackPrefix(domain) != prefix:
			return "", fmt.Errorf("%w: %q does not have the prefix %q", errWrongAnswer, domain, prefix)
		}
		return domain, nil
	})
}

// canOwn tells whether domain can be a publisher's. Requests check that on the way;
// this is for what a Source says by itself.
func (l *lookups) canOwn(domain string) bool {
	canonical, err := parseDomain(domain)
	return err == nil && canonical == domain && !isOrIsBelowAny(domain, l.foreign)
}

// find tells which publisher key stands for, by what is remembered or by asking. domain
// is what a publisher would be remembered by, if that is known yet. Those who want to know
// the same at the same time share one lookup.
func (l *lookups) find(ctx context.Context, key, domain string, ask func(context.Context) (string, error)) answer {
	l.mu.Lock()
	known, isKnown := l.publishers.Peek(domain)
	if isKnown && l.isFresh(known, l.options.TTL) {
		l.mu.Unlock()
		return answer{publisher: known.publisher}
	}
	if m, ok := l.refusals.Peek(key); ok && l.isFresh(m, l.options.RefusalTTL) {
		l.mu.Unlock()
		return answer{}
	}
	if f, ok := l.flights[key]; ok {
		l.mu.Unlock()
		return l.share(ctx, f, domain)
	}
	isProbe, err := l.permit(isKnown)
	if err != nil {
		l.mu.Unlock()
		return l.fallBack(domain, err)
	}
	f := &flight{
		key:     key,
		asOf:    memory{at: l.now(), epoch: l.epoch.Load()},
		isKnown: isKnown,
		isProbe: isProbe,
		landed:  make(chan struct{}),
	}
	l.flights[key] = f
	l.mu.Unlock()

	l.fly(ctx, f, ask)
	return l.settle(f, domain)
}

// share waits for a lookup that another request makes.
func (l *lookups) share(ctx context.Context, f *flight, domain string) answer {
	l.shared.Add(1)
	select {
	case <-f.landed:
		return l.settle(f, domain)
	case <-ctx.Done():
		return answer{err: context.Cause(ctx)} // the client is gone
	case <-time.After(2 * l.options.Timeout):
		return l.fallBack(domain, errNoReturn)
	}
}

// settle returns what a lookup that has landed means.
func (l *lookups) settle(f *flight, domain string) answer {
	if f.answer.err != nil {
		return l.fallBack(domain, f.answer.err)
	}
	return f.answer
}

// permit tells why nothing may be asked now. l.mu is held.
func (l *lookups) permit(isKnown bool) (isProbe bool, err error) {
	now := l.now()
	switch {
	case l.isSuspended():
		l.notAsked.Add(1)
		return false, errSuspended
	case !isKnown && now < l.nextFree-burst:
		l.limited.Add(1)
		return false, errLimited
	case !isKnown:
		l.nextFree = max(l.nextFree, now) + time.Second/time.Duration(l.options.MaxRate)
	}
	if isProbe = l.failures >= failuresToSuspend; isProbe {
		l.suspended = now + suspension // for all but this one
	}
	return isProbe, nil
}

// isSuspended tells whether the Source is left alone. l.mu is held.
func (l *lookups) isSuspended() bool {
	return l.failures >= failuresToSuspend && l.now() < l.suspended
}

// fly makes the lookup. Others wait for it, so that it does not end with the request that
// began it.
func (l *lookups) fly(ctx context.Context, f *flight, ask func(context.Context) (string, error)) {
	f.answer.err = errPanicked // unless ask returns
	defer l.land(f)
	leave, err := l.enter(f)
	if err != nil {
		f.answer.err = err
		return
	}
	defer leave()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.options.Timeout)
	defer cancel()
	l.asked.Add(1)
	f.answer.publisher, f.answer.err = ask(ctx)
}

// enter waits until the lookup may begin.
func (l *lookups) enter(f *flight) (leave func(), err error) {
	needed := []chan struct{}{l.slots}
	if !f.isKnown {
		needed = []chan struct{}{l.strangers, l.slots}
	}
	taken := 0
	leave = func() {
		for _, slot := range needed[:taken] {
			<-slot
		}
	}
	patience := time.After(l.options.Timeout)
	for _, slot := range needed {
		select {
		case slot <- struct{}{}:
			taken++
		case <-patience:
			leave()
			l.busy.Add(1)
			return nil, errBusy
		}
	}
	// Those before it may have failed.
	l.mu.Lock()
	defer l.mu.Unlock()
	if !f.isProbe && l.isSuspended() {
		leave()
		l.notAsked.Add(1)
		return nil, errSuspended
	}
	return leave, nil
}

// land remembers what a lookup brought.
func (l *lookups) land(f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer close(f.landed)
	if l.flights[f.key] == f {
		delete(l.flights, f.key)
	}
	a := &f.answer
	switch {
	case a.err == errBusy || a.err == errSuspended:
		return
	case a.err != nil:
		a.publisher = ""
		l.failed.Add(1)
		if errors.Is(a.err, errWrongAnswer) {
			break // of one row perhaps, and not down
		}
		if f.key != l.lastFailed { // so that what fails for one name alone suspends nothing
			l.failures++
		}
		l.lastFailed = f.key
		l.suspended = l.now() + suspension
		return
	case f.forgotten || l.hasNewer(f):
	case a.publisher == "":
		l.publishers.Remove(f.key)
		l.refusals.Add(f.key, f.asOf)
	default:
		f.asOf.publisher = a.publisher
		l.publishers.Add(a.publisher, f.asOf)
		l.refusals.Remove(a.publisher)
		if f.key != a.publisher {
			l.prefixes.Add(f.key, a.publisher)
		}
	}
	l.failures = 0
}

// hasNewer tells whether something else was remembered while the lookup was on its way,
// for a domain that is asked for both by name and by hash.
func (l *lookups) hasNewer(f *flight) bool {
	for _, key := range []string{f.key, f.answer.publisher} {
		for _, remembered := range []*lru.Cache[string, memory]{l.publishers, l.refusals} {
			if m, ok := remembered.Peek(key); ok && m.at > f.asOf.at {
				return true
			}
		}
	}
	return false
}

// fallBack answers for a Source that cannot tell: by what it said within StaleFor.
func (l *lookups) fallBack(domain string, err error) answer {
	m, ok := l.publishers.Peek(domain)
	if !ok || l.now()-m.at >= l.options.StaleFor || l.options.StaleFor == l.options.TTL {
		return answer{err: err}
	}
	l.stale.Add(1)
	return answer{publisher: m.publisher, stale: true, err: err}
}

// forget drops what is remembered of a domain, and what lookups that are on their way
// will bring.
func (l *lookups) forget(domain string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.publishers.Remove(domain)
	for _, key := range []string{domain, fallbackPrefix(domain)} {
		l.refusals.Remove(key)
		if f := l.flights[key]; f != nil {
			f.forgotten = true
			delete(l.flights, key)
		}
	}
}

// forgetAll has everything asked for anew, also by those who would share a lookup that is
// on its way. What was remembered is good enough if the Source cannot tell.
func (l *lookups) forgetAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch.Add(1)
	clear(l.flights)
}

func (l *lookups) stats() SourceStats {
	return SourceStats{
		Lookups:    l.asked.Load(),
		Failures:   l.failed.Load(),
		Shared:     l.shared.Load(),
		Limited:    l.limited.Load(),
		Busy:       l.busy.Load(),
		Suspended:  l.notAsked.Load(),
		Stale:      l.stale.Load(),
		Publishers: l.publishers.Len(),
		Refusals:   l.refusals.Len(),
	}
}
