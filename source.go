package ampcors

import (
	"cmp"
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

// A Source knows publishers that are not listed in a [Config], such as a database of
// all domains that a platform hosts. It is asked only about what no list or pattern
// covers, and only once the origin has been read and checked: with a publisher domain in
// lower-case ASCII that is at most 253 octets long, or a well-formed hash. What it says
// no to stays out, and what it says yes to gets in, so it must compare names octet for
// octet.
//
// The methods are called from many goroutines at once. They must return when ctx is done.
// An error says that the Source cannot tell, and never that there is no such publisher.
type Source interface {
	// HasPublisher tells whether domain is a publisher.
	HasPublisher(ctx context.Context, domain string) (bool, error)

	// PublisherByPrefix returns the publisher whose hash-only domain prefix this is, as
	// FallbackPrefix returns it; "" if there is none.
	PublisherByPrefix(ctx context.Context, prefix string) (domain string, err error)
}

// A Notifier is a [Source] that learns of changes by itself. What has changed is then
// asked for anew at once, and not only after [Lookup].TTL.
type Notifier interface {
	Source

	// Notify has the Source call changed with the domains that became publishers, or
	// ceased to be, from now on until stop is called. Called with no domain, changed
	// says that changes may have been missed: everything is then asked for anew, though
	// an earlier answer may still be served if the Source cannot tell.
	Notify(changed func(domains ...string)) (stop func())
}

// Lookup says how a [Config].Source is asked, and how long its answers are remembered.
// Its zero value stands for the defaults. In JSON, durations are numbers of nanoseconds.
type Lookup struct {
	// TTL is how long a publisher is remembered: the longest for which one that was
	// revoked still gets in while the Source can be reached, unless Forget is called or
	// the Source is a Notifier. Zero stands for 1 minute.
	TTL time.Duration `json:"ttl,omitempty"`

	// RefusalTTL is how long it is remembered that a domain is no publisher: the longest
	// for which one that was added stays out. Zero stands for 10 seconds.
	RefusalTTL time.Duration `json:"refusalTTL,omitempty"`

	// StaleFor is how long after the Source confirmed a publisher it still gets in if
	// the Source cannot tell any more. It is at least TTL; where it is equal, nothing
	// stale is served. Zero stands for 10 minutes, or TTL if that is more.
	StaleFor time.Duration `json:"staleFor,omitempty"`

	// Timeout is how long a request waits for the Source. Zero stands for 1 second.
	Timeout time.Duration `json:"timeout,omitempty"`

	// MaxConcurrent is how many lookups run at one time. Others wait, up to Timeout.
	// Zero stands for 16.
	MaxConcurrent int `json:"maxConcurrent,omitempty"`

	// MaxRate is how many lookups may begin in a second for what is not remembered as a
	// publisher, so that invented origins cannot wear out the Source. What comes beyond
	// it is answered as if the Source could not tell, a true publisher's first request
	// too. Zero stands for 1000.
	MaxRate int `json:"maxRate,omitempty"`
}

func (l Lookup) withDefaults() Lookup {
	l.TTL = cmp.Or(l.TTL, time.Minute)
	return Lookup{
		TTL:           l.TTL,
		RefusalTTL:    cmp.Or(l.RefusalTTL, 10*time.Second),
		StaleFor:      cmp.Or(l.StaleFor, max(l.TTL, 10*time.Minute)),
		Timeout:       cmp.Or(l.Timeout, time.Second),
		MaxConcurrent: cmp.Or(l.MaxConcurrent, 16),
		MaxRate:       cmp.Or(l.MaxRate, 1000),
	}
}

// SourceStats tells how a [Config].Source was used since it was configured.
type SourceStats struct {
	Lookups    uint64 // calls of the Source
	Failures   uint64 // those that returned an error
	Shared     uint64 // decisions that waited for another's lookup instead
	Limited    uint64 // lookups that Lookup.MaxRate forbade
	Suspended  uint64 // lookups not made because the Source had just failed several times
	Stale      uint64 // decisions that were made by an earlier answer, because the Source could not tell
	Publishers int    // that are remembered now
	Refusals   int    // domains and hashes that are remembered now as no publisher's
}

const (
	defaultSourceCacheSize = 65536 // about 37 MiB with names of 22 octets

	// After so many failures in a row the Source is left alone for a while, but for one
	// lookup that finds out whether it works again: requests do not pile up, each
	// waiting for its timeout, and a database that starts again is not overrun.
	failuresToSuspend = 3
	suspension        = time.Second
	retryAfter        = "1" // seconds, as long as the suspension

	// For so long the rate of lookups may have been saved up.
	burst = 100 * time.Millisecond
)

var (
	errLimited     = errors.New("ampcors: Lookup.MaxRate is reached")
	errSuspended   = errors.New("ampcors: the Source is not asked, because it has just failed several times")
	errBusy        = errors.New("ampcors: Lookup.MaxConcurrent lookups took all of Lookup.Timeout")
	errWrongAnswer = errors.New("ampcors: the Source gave a wrong answer")
	errPanicked    = errors.New("ampcors: the Source panicked")
)

// A lookups asks a Source, and remembers what it said.
type lookups struct {
	source  Source
	options Lookup // with the defaults filled in
	size    int
	foreign []string // hosts that are never a publisher's
	start   time.Time
	slots   chan struct{} // one for each lookup that runs
	stop    func()        // ends the notifications

	// What is remembered, in three places so that refusals push out nothing else. What
	// prefixes stand for never changes, so that it needs no time to live.
	publishers *lru.Cache[string, memory] // by domain
	refusals   *lru.Cache[string, memory] // by domain or hash
	prefixes   *lru.Cache[string, string] // publishers' domains by hash or punycode

	epoch atomic.Uint32 // what was remembered in an earlier one must be asked for anew

	mu        sync.Mutex         // of what follows, and of all writing to the above
	flights   map[string]*flight // by domain or hash
	nextFree  time.Duration      // when the rate of lookups is used up no longer
	failures  int                // in a row
	suspended time.Duration      // until then, nothing is asked

	asked, failed, shared, limited, notAsked, stale atomic.Uint64
}

// A memory is what a Source once said. Times are since lookups.start.
type memory struct {
	publisher string // "" for a refusal
	at        time.Duration
	epoch     uint32
}

// A flight is a lookup that is on its way.
type flight struct {
	landed    chan struct{}
	answer    answer // once it landed
	forgotten bool   // what it brings is not to be remembered
}

// An answer says which publisher a domain or hash stands for, or why that is not known.
type answer struct {
	publisher string // "" if it is none
	stale     bool   // by what was remembered too long ago
	err       error
}

func newLookups(source Source, options Lookup, size int, foreign []string) *lookups {
	l := &lookups{
		source:  source,
		options: options,
		size:    size,
		foreign: foreign,
		start:   time.Now(),
		slots:   make(chan struct{}, options.MaxConcurrent),
		flights: make(map[string]*flight),
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
	l.stop = func() {}
	if n, ok := l.source.(Notifier); ok {
		l.stop = n.Notify(func(domains ...string) {
			if len(domains) == 0 {
				l.epoch.Add(1)
			}
			for _, domain := range domains {
				l.forget(domain)
			}
		})
	}
}

func (l *lookups) now() time.Duration { return time.Since(l.start) }

// recall returns the publisher if it was confirmed within the TTL. It does not keep
// domain, which may be memory that is used again.
func (l *lookups) recall(domain string) (publisher string, ok bool) {
	if l == nil {
		return "", false
	}
	// Peek takes only the read lock. The order in which the LRU forgets is that of the
	// last confirmation, so that what is in use is at most a TTL behind.
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
		switch {
		case domain == "" || err != nil:
			return "", err
		case !l.canOwn(domain):
			return "", fmt.Errorf("%w: %.300q is not a publisher domain in lower-case ASCII", errWrongAnswer, domain)
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
	f, isUnderway := l.flights[key]
	if !isUnderway {
		if err := l.permit(isKnown); err != nil {
			l.mu.Unlock()
			return l.fallBack(domain, err)
		}
		f = &flight{landed: make(chan struct{})}
		l.flights[key] = f
	}
	asOf := memory{at: l.now(), epoch: l.epoch.Load()} // what changes from now on, the answer may miss
	l.mu.Unlock()

	if isUnderway {
		l.shared.Add(1)
		select {
		case <-f.landed:
		case <-ctx.Done():
			return l.fallBack(domain, context.Cause(ctx))
		}
	} else {
		l.fly(ctx, f, key, asOf, ask)
	}
	if f.answer.err != nil {
		return l.fallBack(domain, f.answer.err)
	}
	return f.answer
}

// permit tells why nothing may be asked now. l.mu is held.
func (l *lookups) permit(isKnown bool) error {
	now, isFailing := l.now(), l.failures >= failuresToSuspend
	switch {
	case isFailing && now < l.suspended:
		l.notAsked.Add(1)
		return errSuspended
	case !isKnown && now < l.nextFree-burst:
		l.limited.Add(1)
		return errLimited
	case !isKnown:
		l.nextFree = max(l.nextFree, now) + time.Second/time.Duration(l.options.MaxRate)
	}
	if isFailing {
		l.suspended = now + suspension // for all but this one
	}
	return nil
}

// fly makes the lookup. Others wait for it, so that it does not end with the request that
// began it.
func (l *lookups) fly(ctx context.Context, f *flight, key string, asOf memory, ask func(context.Context) (string, error)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.options.Timeout)
	defer cancel()
	isAsked := false
	f.answer.err = errPanicked // unless ask returns
	defer func() { l.land(f, key, asOf, isAsked) }()
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil { // perhaps in the same moment as a slot was free
		f.answer.err = errBusy
		return
	}
	isAsked = true
	l.asked.Add(1)
	f.answer.publisher, f.answer.err = ask(ctx)
}

// land remembers what a lookup brought.
func (l *lookups) land(f *flight, key string, asOf memory, isAsked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer close(f.landed)
	if l.flights[key] == f {
		delete(l.flights, key)
	}
	switch a := &f.answer; {
	case a.err != nil:
		a.publisher = ""
		if isAsked {
			l.failed.Add(1)
		}
		if isAsked && !errors.Is(a.err, errWrongAnswer) { // of which anybody could make many
			l.failures++
			l.suspended = l.now() + suspension
		}
		return
	case f.forgotten:
	case a.publisher == "":
		l.publishers.Remove(key)
		l.refusals.Add(key, asOf)
	default:
		asOf.publisher = a.publisher
		l.publishers.Add(a.publisher, asOf)
		l.refusals.Remove(key)
		if key != a.publisher {
			l.prefixes.Add(key, a.publisher)
		}
	}
	l.failures = 0
}

// fallBack answers for a Source that cannot tell: by what it said within StaleFor.
func (l *lookups) fallBack(domain string, err error) answer {
	m, ok := l.publishers.Peek(domain)
	if !ok || l.now()-m.at >= l.options.StaleFor {
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

func (l *lookups) stats() SourceStats {
	return SourceStats{
		Lookups:    l.asked.Load(),
		Failures:   l.failed.Load(),
		Shared:     l.shared.Load(),
		Limited:    l.limited.Load(),
		Suspended:  l.notAsked.Load(),
		Stale:      l.stale.Load(),
		Publishers: l.publishers.Len(),
		Refusals:   l.refusals.Len(),
	}
}
