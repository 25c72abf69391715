package source

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ampcors/ampcors/badvalue"
)

// Config configures how a [Database] is asked, and how long its answers are remembered. If a field is
// zero, its default is used. Negative values and durations of more than 720 hours are
// prohibited.
type Config struct {
	// TTL is how long a publisher is remembered. While the database works, a revoked publisher still gets in for at
	// most this long, or for less if the database reports the change. If zero, 1 minute is used.
	//
	// A publisher in use is refreshed in the background after 70 to 90 % of it.
	TTL time.Duration `json:"ttl,omitzero"`

	// NegativeTTL is how long it is remembered that a domain is not a publisher. A
	// publisher that is added is denied for at most this long. If zero, 10 seconds is used.
	NegativeTTL time.Duration `json:"negativeTTL,omitzero"`

	// MaxStale is how long a publisher still gets in after the database confirmed it, if the
	// database then fails (stale-if-error). If zero, 10 minutes is used, or twice TTL if
	// that is more.
	//
	// It is at least TTL. If it equals TTL, nothing stale is served. Once the database works again, stale answers end
	// within 1 second + 4 × Timeout, unless lookups that ignore their context hold all slots.
	MaxStale time.Duration `json:"maxStale,omitzero"`

	// Timeout limits a lookup, and separately its wait for one of the MaxConcurrent slots. If zero, 1 second is used.
	Timeout time.Duration `json:"timeout,omitzero"`

	// MaxConcurrent is how many lookups run at one time, at most, in each shard of a Database. If zero, 256 is
	// used.
	//
	// A pool of database connections bounds them further. At most three quarters of these slots, but at least one,
	// are for names that are not remembered as publishers. Lookups that find no free slot wait: remembered publishers
	// first, then those that IsLikely says to be likely, then those that found no slot a moment ago, then all others.
	// (Of 16 slots, one goes to the last three classes, in turn.) At most 4096 of each of these classes wait, in each
	// shard.
	MaxConcurrent int `json:"maxConcurrent,omitzero"`

	// Patterns lets patterns in the database match: a row "*.example.com" allows each name below example.com, and not
	// example.com itself.
	//
	// Such a row allows what a pattern of ampcors.Config.Publishers allows: nothing by a hash prefix, nothing over a
	// public suffix, and no host of an AMP Cache. The database is asked for "*.example.com" as for a domain, if it
	// has no row for the name, and the answer is remembered, refreshed and forgotten like a publisher's. A name
	// without a row costs up to four lookups more, of its four shortest patterns. So a pattern may have up to three
	// labels before a registrable domain, such as "*.c.b.a.example.com".
	Patterns bool `json:"patterns,omitzero"`

	// Logger gets a line when lookups begin to fail (level Error: a circuit breaker has opened, or one key has failed
	// four times in a row), with the cause, and one when they work again (level Info). There is at most one such pair
	// in a minute. If nil, slog.Default() is used.
	Logger *slog.Logger `json:"-"`

	// MaxEntries is how many publishers of the database are remembered, and how many hash prefixes. If zero,
	// 1,048,576 is used.
	//
	// A publisher takes 200 bytes with a name of 22 bytes, so a server that has looked up a million uses 200
	// MB for them. A hash prefix that was asked for takes another 200 bytes. At most 65,536 negative
	// answers are remembered, or MaxEntries if that is less.
	MaxEntries int `json:"maxEntries,omitzero"`
}

// withDefaults returns c with defaults in place of zeros.
func (c Config) withDefaults() Config {
	c.TTL = cmp.Or(c.TTL, time.Minute)
	c.NegativeTTL = cmp.Or(c.NegativeTTL, 10*time.Second)
	c.MaxStale = cmp.Or(c.MaxStale, max(2*c.TTL, 10*time.Minute))
	c.Timeout = cmp.Or(c.Timeout, time.Second)
	c.MaxConcurrent = cmp.Or(c.MaxConcurrent, 256)
	c.MaxEntries = cmp.Or(c.MaxEntries, 1<<20)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

const maxDuration = 30 * 24 * time.Hour // more than is useful; twice as long does not overflow

// Validate returns the error that [New] would return for c: one or more *[badvalue.Error], joined.
func (c Config) Validate() error {
	var errs []error
	report := func(code badvalue.Code, name string, value any, reason, want string) {
		errs = append(errs, &badvalue.Error{Code: code, Path: name, Value: fmt.Sprint(value), Reason: reason, Want: want})
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"ttl", c.TTL}, {"negativeTTL", c.NegativeTTL}, {"maxStale", c.MaxStale}, {"timeout", c.Timeout}} {
		if d.value < 0 {
			report(badvalue.OutOfRange, d.name, d.value, "is negative", "a duration such as 30s, or 0 for the default")
		}
		if d.value > maxDuration {
			report(badvalue.OutOfRange, d.name, d.value, "is too long", "720h at most")
		}
	}
	if ttl := c.withDefaults().TTL; c.MaxStale > 0 && c.MaxStale < ttl {
		report(badvalue.Conflict, "maxStale", c.MaxStale, "is less than the TTL, during which a publisher gets in anyway",
			ttl.String()+" at least")
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"maxConcurrent", c.MaxConcurrent}, {"maxEntries", c.MaxEntries}} {
		if n.value < 0 {
			report(badvalue.OutOfRange, n.name, n.value, "is negative", "a number, or 0 for the default")
		}
	}
	return errors.Join(errs...)
}
