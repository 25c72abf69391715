package ampcors

import (
	"cmp"
	"context"
	"time"
)

// A Source knows publishers that are not listed in a [Config], such as a database of
// all domains that a platform hosts. It is asked about what Config.Publishers does not
// cover, once the origin has been read and checked: with a publisher domain as
// [CanonicalDomain] returns it, or a well-formed hash. What it says yes to gets in, so it
// must compare names octet for octet. It knows domains, and no patterns. It is not asked
// about the API host's own pages. About Config.Origins it is: they may be publishers', too.
//
// The methods are called from many goroutines at once. They must return when ctx is done.
// An error says that the Source as a whole cannot tell now, and never that there is no
// such publisher. After three errors, no two in a row for the same key, it is left alone
// for a second. Then one lookup finds out whether it works; if not, another second passes.
type Source interface {
	// HasPublisher tells whether domain is a publisher.
	HasPublisher(ctx context.Context, domain string) (bool, error)

	// PublisherByPrefix returns the publisher whose hash-only domain prefix this is, as
	// FallbackPrefix returns it; "" if there is none, or if the Source does not know
	// prefixes. An answer that does not have the prefix is an error.
	PublisherByPrefix(ctx context.Context, prefix string) (domain string, err error)
}

// A Notifier is a [Source] that learns of changes by itself. What has changed is then
// asked for anew at once, and not only after [Lookup].TTL.
type Notifier interface {
	Source

	// Notify has the Source call changed with the domains that became publishers, or
	// ceased to be, from now on until stop is called. It must call it once a lookup would
	// see the change, and can do so from any goroutine. Called with no domain, changed
	// says that changes may have been missed: everything is then asked for anew, though
	// an earlier answer may still be served if the Source cannot tell.
	//
	// Each Middleware calls Notify for itself, and again if Reconfigure changes how the
	// Source is asked, before it calls the earlier stop. Reconfigure without the Source
	// ends it.
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
	// stale is served. Zero stands for 10 minutes, or twice TTL if that is more.
	StaleFor time.Duration `json:"staleFor,omitempty"`

	// Timeout is how long a lookup may take, and how long a request waits for its turn
	// before that. Zero stands for 1 second.
	Timeout time.Duration `json:"timeout,omitempty"`

	// MaxConcurrent is how many lookups run at one time, and three quarters of it how many
	// of these can be for what is not remembered as a publisher. Zero stands for 16.
	MaxConcurrent int `json:"maxConcurrent,omitempty"`

	// MaxRate is how many lookups may begin in a second for what is not remembered as a
	// publisher, so that invented origins cannot wear out the Source. What comes beyond
	// it is answered as if the Source could not tell: also the first request of a true
	// publisher, and the first after it was forgotten. Zero stands for 1000.
	MaxRate int `json:"maxRate,omitempty"`
}

func (l Lookup) withDefaults() Lookup {
	l.TTL = cmp.Or(l.TTL, time.Minute)
	return Lookup{
		TTL:           l.TTL,
		RefusalTTL:    cmp.Or(l.RefusalTTL, 10*time.Second),
		StaleFor:      cmp.Or(l.StaleFor, max(2*l.TTL, 10*time.Minute)),
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
	Busy       uint64 // lookups that could not begin in time because of Lookup.MaxConcurrent
	Suspended  uint64 // lookups not made because the Source had just failed several times
	Stale      uint64 // decisions that were made by an earlier answer, because the Source could not tell
	Publishers int    // that are in memory now, those of which the TTL is over among them
	Refusals   int    // domains and hashes that are in memory as no publisher's, likewise
}
