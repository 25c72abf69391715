package ampcors

import (
	"cmp"
	"context"
	"time"

	"github.com/ampcors/ampcors/internal/lookup"
)

// A Source knows publishers that are not listed in a [Config], such as a database of all
// domains that a platform hosts. It is asked about publishers that Config.Publishers does
// not cover, after the origin has been read and checked. It gets a publisher domain as
// [CanonicalDomain] returns it, or a well-formed hash prefix. What it confirms gets in, so
// it must compare names byte by byte. It knows domains, and no patterns. It is not asked
// about the API host's own pages. It is also asked about origins in Config.Origins, because
// they may be a publisher's.
//
// The methods must be safe for concurrent use by multiple goroutines, and must return when
// ctx is done. An error says that the Source as a whole cannot answer now, and never that
// there is no such publisher. After an error, the same key is not asked for again for twice
// as long as the call took, 0.1 to 1 second. After three errors in a row, a circuit breaker
// opens; repeated errors for one key count as one. For a second, the Source is not asked.
// Then one lookup finds out whether it works. There is a breaker for each method, and
// another for remembered publishers, so that failures of one kind of lookup do not stop the
// others.
type Source interface {
	// HasPublisher reports whether domain is a publisher.
	HasPublisher(ctx context.Context, domain string) (bool, error)

	// PublisherByHash returns the publisher whose hash prefix this is, as HashPrefix
	// returns it; "" if there is none, or if the Source does not know prefixes. An answer
	// that does not have the prefix is an error.
	PublisherByHash(ctx context.Context, prefix string) (domain string, err error)
}

// A SourceFunc is a [Source] made of one function, such as a lookup in a map. It does not
// know hash prefixes, so cache origins with a hash prefix are denied. A function cannot be
// compared, so [Middleware.Reconfigure] does not keep its answers.
type SourceFunc func(ctx context.Context, domain string) (bool, error)

// HasPublisher calls f.
func (f SourceFunc) HasPublisher(ctx context.Context, domain string) (bool, error) {
	return f(ctx, domain)
}

// PublisherByHash returns "".
func (SourceFunc) PublisherByHash(context.Context, string) (string, error) { return "", nil }

// A Notifier is a [Source] that reports changes. A changed publisher is then looked up
// again at once, and not only after [Lookup].TTL.
type Notifier interface {
	Source

	// Notify subscribes to changes. Until stop is called, the Source calls changed with the
	// domains that became publishers or are no longer publishers. It must do so when a
	// lookup already sees the change, and can do so from any goroutine. A call without
	// domains says that changes may have been missed: everything is then looked up again,
	// but an earlier answer may still be served if the Source fails.
	//
	// Each Middleware calls Notify for itself. If Reconfigure changes how the Source is
	// asked, it calls Notify again before it calls the earlier stop. Close calls stop, and
	// so does Reconfigure if the new Config does not have the Source. Notify must not call
	// Reconfigure or Close, or wait for a goroutine that does; stop may.
	Notify(changed func(domains ...string)) (stop func())
}

// A Sharded is a [Source] whose keys are spread over shards that can fail separately, such
// as the nodes of a Redis Cluster. Each shard then has slots, a queue and circuit breakers of
// its own, so that one that fails or hangs does not affect publishers on the others.
//
// PublisherByHash may then return a domain that is no longer a publisher: HasPublisher is
// asked for it afterwards, because domain and prefix may be in different shards. A decision
// can therefore take up to four times Lookup.Timeout.
type Sharded interface {
	Source
	// Shards returns how many shards there are, from 1 to 1024. It must not change. 1 is the
	// same as a Source that is not Sharded.
	Shards() int
	// Shard returns the shard that a domain or hash prefix is in, from 0 to Shards()-1. It
	// is called for each lookup, and must not wait.
	Shard(key string) int
}

// A Hinter is a [Source] that knows something about a name without a lookup, so that
// invented origins delay lookups for publishers less. Package
// [github.com/ampcors/ampcors/source/filter] has one.
type Hinter interface {
	Source
	// Hint returns what is known of a domain or hash prefix. It is called before each
	// lookup for one that is not remembered, and must not wait.
	Hint(key string) Hint
}

// A Hint is what a [Hinter] knows of a domain or hash prefix.
type Hint int

const (
	// NoHint says nothing.
	NoHint Hint = iota
	// LikelyPublisher says that a lookup will likely find a publisher. Such lookups go before
	// those for other names that are not remembered. It never decides who is allowed.
	LikelyPublisher
	// NotPublisher says that a lookup would find no publisher. So it is not made, and the
	// request is denied. Nothing is remembered of it.
	NotPublisher
)

// Errors in Decision.SourceErr that say why a [Source] could not answer. Test with
// errors.Is. Other errors are the Source's own.
var (
	ErrSourceRateLimited = lookup.ErrRateLimited // Lookup.MaxRate is reached
	ErrSourceBusy        = lookup.ErrBusy        // too many lookups wait for a slot, or none became free within Lookup.Timeout
	ErrSourceCircuitOpen = lookup.ErrCircuitOpen // the Source failed just before: backoff, or an open circuit breaker
	ErrSourceTimeout     = lookup.ErrTimeout     // the Source did not answer within Lookup.Timeout
	ErrSourcePanicked    = lookup.ErrPanicked    // the Source panicked, in the lookup of another request or in the background
	ErrSourceBadAnswer   = lookup.ErrBadAnswer   // PublisherByHash returned a domain that is invalid or has another hash prefix
)

// Lookup says how a [Config].Source is asked, and how long its answers are remembered. If a
// field is zero, its default is used. Negative values and durations of more than 720 hours
// are prohibited.
type Lookup struct {
	// TTL is how long a publisher is remembered. While the Source works, a revoked
	// publisher still gets in for at most this long, or for less if Forget is called or the
	// Source is a Notifier. A publisher in use is refreshed in the background after 70 to
	// 90 % of it. If zero, 1 minute is used.
	TTL time.Duration `json:"ttl,omitzero"`

	// NegativeTTL is how long it is remembered that a domain is not a publisher. A
	// publisher that is added is denied for at most this long. If zero, 10 seconds is used.
	NegativeTTL time.Duration `json:"negativeTTL,omitzero"`

	// MaxStale is how long a publisher still gets in after the Source confirmed it, if the
	// Source then fails (stale-if-error). It is at least TTL. If it equals TTL, nothing
	// stale is served. If zero, 10 minutes is used, or twice TTL if that is more.
	MaxStale time.Duration `json:"maxStale,omitzero"`

	// Timeout is how long a lookup may take, and how long it may wait for a slot of
	// MaxConcurrent before that. If zero, 1 second is used.
	Timeout time.Duration `json:"timeout,omitzero"`

	// MaxConcurrent is how many lookups run at one time, at most (in each shard of a
	// [Sharded]). The number of slots adapts to what the Source can handle. It begins at
	// 16, or at MaxConcurrent if that is less, and grows while all slots are in use. It
	// shrinks while more than a tenth of the lookups fail, or while lookups take longer, on
	// average, than twice the best average plus 5 ms, but not below a sixteenth of
	// MaxConcurrent.
	//
	// At most three quarters of the slots, but at least one, are for names that are not
	// remembered as publishers. Lookups that find no free slot wait: remembered publishers
	// first, then those that a [Hinter] finds likely, then those that were rejected a moment
	// ago and come again, then all others. At most 4096 of each of these classes wait. If
	// zero, 256 is used.
	MaxConcurrent int `json:"maxConcurrent,omitzero"`

	// MaxRate is how many lookups may begin in a second for names that are not remembered
	// as publishers, for a Source that others use too and that should not be asked as often
	// as it can answer. A request above it is answered as if the Source failed, even if it
	// is the first of a real publisher, or the first after Forget. A tenth of it may begin
	// at once. If zero, there is no such limit.
	MaxRate int `json:"maxRate,omitzero"`

	// MaxEntries is how many publishers of the Source are remembered, and how many domain
	// prefixes that are a hash, punycode or wrapped. A publisher takes 400 bytes with a name
	// of 22 bytes, and 630 with the longest name, so a server that has looked up a million
	// uses 400 MB for them. At most 65,536 negative answers are remembered, or MaxEntries if
	// that is less, in 220 to 340 bytes each. If zero, 1,048,576 is used.
	MaxEntries int `json:"maxEntries,omitzero"`
}

func (l Lookup) withDefaults() lookup.Options {
	ttl := cmp.Or(l.TTL, time.Minute)
	return lookup.Options{
		TTL:           ttl,
		NegativeTTL:   cmp.Or(l.NegativeTTL, 10*time.Second),
		MaxStale:      cmp.Or(l.MaxStale, max(2*ttl, 10*time.Minute)),
		Timeout:       cmp.Or(l.Timeout, time.Second),
		MaxConcurrent: cmp.Or(l.MaxConcurrent, 256),
		MaxRate:       l.MaxRate,
		MaxEntries:    cmp.Or(l.MaxEntries, 1<<20),
	}
}

// SourceStats counts how a [Config].Source was used since it was configured.
type SourceStats struct {
	Lookups     uint64 `json:"lookups"`     // calls of the Source
	Refreshes   uint64 `json:"refreshes"`   // the part of Lookups that was made in the background before a publisher expired
	Errors      uint64 `json:"errors"`      // the part of Lookups that failed
	Coalesced   uint64 `json:"coalesced"`   // decisions that waited for the lookup of another one
	RateLimited uint64 `json:"rateLimited"` // lookups that Lookup.MaxRate rejected
	Busy        uint64 `json:"busy"`        // lookups that found no slot in time, or a full queue
	CircuitOpen uint64 `json:"circuitOpen"` // lookups that a backoff or a circuit breaker rejected
	Hinted      uint64 `json:"hinted"`      // decisions without a lookup because of the Hint NotPublisher
	Stale       uint64 `json:"stale"`       // decisions from a stale answer, because the Source failed
	Publishers  int    `json:"publishers"`  // in memory now, expired ones included
	Negatives   int    `json:"negatives"`   // negative answers in memory now, expired ones included
	Prefixes    int    `json:"prefixes"`    // domain prefixes in memory now that are a hash, punycode or wrapped
	Slots       int    `json:"slots"`       // lookups that can run at one time now, in all shards together; see Lookup.MaxConcurrent
	Waiting     int    `json:"waiting"`     // lookups that wait for a slot now
}

// Add returns the sums of the counts of s and other.
func (s SourceStats) Add(other SourceStats) SourceStats {
	return SourceStats{
		Lookups:     s.Lookups + other.Lookups,
		Refreshes:   s.Refreshes + other.Refreshes,
		Errors:      s.Errors + other.Errors,
		Coalesced:   s.Coalesced + other.Coalesced,
		RateLimited: s.RateLimited + other.RateLimited,
		Busy:        s.Busy + other.Busy,
		CircuitOpen: s.CircuitOpen + other.CircuitOpen,
		Hinted:      s.Hinted + other.Hinted,
		Stale:       s.Stale + other.Stale,
		Publishers:  s.Publishers + other.Publishers,
		Negatives:   s.Negatives + other.Negatives,
		Prefixes:    s.Prefixes + other.Prefixes,
		Slots:       s.Slots + other.Slots,
		Waiting:     s.Waiting + other.Waiting,
	}
}
