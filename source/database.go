// Package source remembers what a database knows of publishers. A program makes one [Source]
// of a [Database], and gives it to any number of Middlewares as Config.Source:
//
//	customers, err := source.New(source.Database{PublisherByDomain: customerByDomain}, source.Config{})
//	if err != nil {
//		return err
//	}
//	defer customers.Close()
//	mw, err := ampcors.New(ampcors.Config{Source: customers})
//
// Packages sqlsource, pgsource and redissource have a Database each, and package filter
// adds a filter to one. The README beside this package compares them.
package source

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// A Database describes a database by functions. Only PublisherByDomain is required. Leave a function nil
// if the database cannot do that.
//
// To wrap a Database, copy it and replace a function. The copy keeps the others, so a wrapper
// that logs or counts loses nothing:
//
//	logged := asked
//	logged.PublisherByDomain = func(ctx context.Context, domain string) (string, error) {
//		stored, err := asked.PublisherByDomain(ctx, domain)
//		log.Print(domain, stored, err)
//		return stored, err
//	}
//
// The functions must be safe for concurrent use by multiple goroutines. Those that get a ctx
// must return when it is done; the others must not wait. A key is a publisher domain as
// cacheurl.CanonicalDomain returns it, "*." and such a domain, or a well-formed hash prefix, which has no dot.
//
// An error means that the database as a whole cannot answer now, and never that there is no such publisher. After an
// error, the Source waits before it asks again for the key that failed last: twice the time that the call took, but
// at least 0.1 and at most 1 second. After three errors in a row, a circuit breaker opens; repeated errors for one
// key count as one. For a second, the database is not asked. Then one lookup finds out whether it works. There are
// three breakers: for lookups of remembered publishers, of other domains, and of hash prefixes, so that failures of
// one kind of lookup do not stop the others. After an error that wraps [ErrNoStale], the Source drops all that it
// remembers, in every shard. It does not remember the answers of lookups that began before. Later answers are
// remembered again.
type Database struct {
	// PublisherByDomain returns the publisher's domain as the database has stored it, or "" if domain is not a
	// publisher. It must read the result from the row that it found, and not return its argument: many databases find
	// "bücher.example" when they are asked for "bucher.example" (accents, case, width and trailing spaces are equal in
	// some collations), and that is another publisher. The Source normalizes the result as cacheurl.CanonicalDomain
	// does, and compares it with domain byte by byte. Another domain counts as no publisher, and a result that is no
	// domain is an [ErrBadAnswer]. If several rows may match, return the one that equals domain. With
	// [Config].Patterns, it is also asked for a pattern, such as "*.example.com", and returns the pattern that is
	// stored; without it, patterns are never asked for.
	PublisherByDomain func(ctx context.Context, domain string) (stored string, err error)

	// PublisherByHash returns the publisher whose hash prefix this is, as cacheurl.HashPrefix
	// returns it, or "" if there is none. An answer that does not have the prefix is an error.
	// If the function is nil, no origin with a hash prefix gets in because of the database.
	PublisherByHash func(ctx context.Context, prefix string) (domain string, err error)

	// Notify subscribes to changes. A changed publisher is then looked up again at once, and not only
	// after Config.TTL. Until stop is called, the database calls changed with the domains that became
	// publishers or are no longer publishers. It must call changed only after a lookup would see the
	// change. It can do so from any goroutine. A call without domains says that changes may have been
	// missed: everything is then looked up again, but an earlier answer may still be served if the
	// database fails.
	Notify func(changed func(domains ...string)) (stop func())

	// IsListening reports whether Notify would report a change now; for example, it is false while its
	// connection does not work. If nil, Notify is taken to report each change.
	IsListening func() bool

	// IsLikely reports whether a key is likely a publisher's, without a lookup. Lookups of likely keys go
	// before lookups of other names that are not remembered, so that invented origins delay them less. It
	// never decides who is allowed. Package [github.com/ampcors/ampcors/source/filter] has one.
	IsLikely func(key string) bool

	// Shards is the number of parts that can fail separately, such as the nodes of a Redis
	// Cluster, at most 1024. Shard returns the part that a key belongs to, from 0 to Shards-1.
	// Each part has slots, a queue and circuit breakers of its own, so that one that fails or
	// hangs does not affect publishers in the others. With 0 or 1, Shard is not called.
	//
	// With parts, PublisherByHash may return a domain that is no longer a publisher:
	// PublisherByDomain is asked for it afterwards, because domain and prefix may be in different
	// parts. A decision can therefore take up to four times Config.Timeout, and with Config.Patterns longer.
	Shards int
	Shard  func(key string) int

	// Publishers returns all domains that are publishers, in any order, for package filter. A
	// domain may come more than once. One that is added or removed meanwhile may be missing. An
	// error ends the list.
	Publishers func(ctx context.Context) iter.Seq2[string, error]
}

const maxShards = 1024

// check returns all that is wrong in d.
func (d *Database) check() error {
	var errs []error
	if d.PublisherByDomain == nil {
		errs = append(errs, errors.New("source: Database.PublisherByDomain is nil; want a function"))
	}
	if d.Shards < 0 || d.Shards > maxShards {
		errs = append(errs, fmt.Errorf("source: Database.Shards is %d; want 0 to %d", d.Shards, maxShards))
	}
	if d.Shards > 1 && d.Shard == nil {
		errs = append(errs, errors.New("source: Database.Shards is set, but Shard is nil; want a function"))
	}
	return errors.Join(errs...)
}
