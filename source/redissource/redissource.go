// Package redissource is an [ampcors.Source] over Redis 6 or later. Every server learns of
// a change as soon as it is made.
//
// # How it works
//
// Each publisher has two keys:
//
//	ampcors:publisher:www.example.com  any value
//	ampcors:hash:qd6a7oj...            www.example.com
//
// The second is for cache origins with a hash prefix. It is used only while the first
// exists, so DEL of the first revokes a publisher. [Source.Add] and [Source.Remove] write
// both.
//
// Redis's server-assisted client-side caching, in broadcasting mode, sends each connection
// the keys under ampcors:publisher: that have changed. The Source is an [ampcors.Notifier]:
// it passes them on to the Middleware, which forgets these publishers. For this, Redis
// stores only the key prefix, however many publishers there are. Answers are remembered in
// the Middleware's own memory, within its limits; rueidis's cache is not used.
//
// When a connection is lost, changes may be missed. Everything is then looked up again. If
// that fails, the last answer is used until MaxStale is over. A connection on which Redis
// stops answering is closed after twice Dialer.KeepAlive plus ConnWriteTimeout, 5 seconds
// by default. A change in that time is seen then, or after [ampcors.Lookup].TTL if that is
// earlier.
//
// Redis reports an expired key when it removes it. If many keys expire, that can be most of
// a second late. Redis does not report SWAPDB: run FLUSHDB on the other database after it.
//
// # What Redis must keep
//
// A Redis that starts empty knows no publisher, so all are denied. Turn on persistence, and
// use the eviction policy noeviction, or one that only evicts keys with an expiry.
//
// All of this is tested with one Redis 7. A replica may get a change later than the message
// about it, so lookups are not sent to replicas. Cluster and Sentinel should work, as
// rueidis tracks each node's keys on its own connections, but are not tested.
package redissource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/redis/rueidis"
)

// Config says how a Source uses Redis.
type Config struct {
	// Redis configures the client. ClientTrackingOptions and OnInvalidations must be empty,
	// as the Source sets them. Client-side caching must not be disabled, and lookups must
	// not go to replicas. If PipelineMultiplex is zero, one connection is used. If
	// ConnWriteTimeout is zero, 3 seconds is used.
	Redis rueidis.ClientOption

	// KeyPrefix is what all keys begin with. If empty, "ampcors:" is used.
	KeyPrefix string
}

// A Source looks up publishers in Redis. It is safe for concurrent use by multiple
// goroutines, and by several Middlewares.
type Source struct {
	client    rueidis.Client
	publisher string // begins the key of a publisher
	hash      string // begins the key of a hash prefix

	mu        sync.Mutex
	listeners []*func(domains ...string)
}

// New connects to Redis. It fails if Redis is down, and can then be called again. An error
// says what is wrong in cfg, or that Redis cannot be reached. Connections that are lost
// later are made again. Close the Source when it is no longer used.
func New(cfg Config) (*Source, error) {
	o := cfg.Redis
	var errs []error
	report := func(isWrong bool, text string) {
		if isWrong {
			errs = append(errs, errors.New("redissource: "+text))
		}
	}
	report(len(o.InitAddress) == 0, `Redis.InitAddress is empty; want an address such as "localhost:6379"`)
	report(o.ClientTrackingOptions != nil, "Redis.ClientTrackingOptions is set; want it empty, as the Source sets it")
	report(o.OnInvalidations != nil, "Redis.OnInvalidations is set; want it empty, as the Source sets it")
	report(o.DisableCache, "Redis.DisableCache is set; without client-side caching no change would be noticed")
	report(o.AlwaysRESP2, "Redis.AlwaysRESP2 is set; client-side caching needs RESP3")
	report(o.DisableAutoPipelining, "Redis.DisableAutoPipelining is set; on such connections no change would be noticed")
	report(o.Dialer.KeepAlive < 0, "Redis.Dialer.KeepAlive is negative; without it a connection that stops answering would never be closed")
	report(o.SendToReplicas != nil || o.ReplicaOnly, "Redis.SendToReplicas or ReplicaOnly is set; a replica may give an answer from before a change")
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	prefix := cfg.KeyPrefix
	if prefix == "" {
		prefix = "ampcors:"
	}
	s := &Source{publisher: prefix + "publisher:", hash: prefix + "hash:"}
	if o.PipelineMultiplex == 0 {
		o.PipelineMultiplex = -1 // one connection, as each is told of every change
	}
	if o.ConnWriteTimeout == 0 {
		o.ConnWriteTimeout = 3 * time.Second
	}
	o.ClientTrackingOptions = []string{"BCAST", "PREFIX", s.publisher}
	o.OnInvalidations = s.onInvalidations
	client, err := rueidis.NewClient(o)
	if errors.Is(err, rueidis.ErrNoCache) {
		return nil, fmt.Errorf("redissource: Redis does not offer client-side caching; want Redis 6 or later, and a user with the permission +client|tracking: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("redissource: connecting to Redis: %w", err)
	}
	s.client = client
	return s, nil
}

// Close closes the connections. Lookups then fail.
func (s *Source) Close() { s.client.Close() }

// Ping reports whether Redis answers. Use it for a readiness check if a server is to be
// ready only while it can look up publishers that it does not remember.
func (s *Source) Ping(ctx context.Context) error {
	if err := s.client.Do(ctx, s.client.B().Ping().Build()).Error(); err != nil {
		return fmt.Errorf("redissource: %w", err)
	}
	return nil
}

// HasPublisher implements [ampcors.Source].
func (s *Source) HasPublisher(ctx context.Context, domain string) (bool, error) {
	return s.client.Do(ctx, s.client.B().Exists().Key(s.publisher+domain).Build()).AsBool()
}

// PublisherByPrefix implements [ampcors.Source].
func (s *Source) PublisherByPrefix(ctx context.Context, prefix string) (string, error) {
	domain, err := s.client.Do(ctx, s.client.B().Get().Key(s.hash+prefix).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if ok, err := s.HasPublisher(ctx, domain); !ok {
		return "", err
	}
	return domain, nil
}

// Notify implements [ampcors.Notifier].
func (s *Source) Notify(changed func(domains ...string)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	listener := &changed
	s.listeners = append(slices.Clone(s.listeners), listener)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.listeners = slices.DeleteFunc(slices.Clone(s.listeners), func(l *func(...string)) bool { return l == listener })
	}
}

// onInvalidations is called with the keys that changed, and with nil when a connection is
// lost or a database is flushed.
func (s *Source) onInvalidations(keys []rueidis.RedisMessage) {
	s.mu.Lock()
	listeners := s.listeners
	s.mu.Unlock()
	var domains []string
	for _, key := range keys {
		if name, err := key.ToString(); err == nil {
			domains = append(domains, strings.TrimPrefix(name, s.publisher))
		}
	}
	for _, changed := range listeners {
		(*changed)(domains...)
	}
}

// batch is how many publishers are written at once.
const batch = 1000

// Add writes publishers, in any spelling that [ampcors.CanonicalDomain] accepts. When it
// returns nil, Redis has stored them. If some are not publisher domains, the error lists
// them and none is written. After an error from Redis, some may be written.
func (s *Source) Add(ctx context.Context, publishers ...string) error {
	return s.write(ctx, publishers, func(domain, prefix string) []rueidis.Completed {
		// The hash prefix first: alone it has no effect, and servers are told only of the
		// second write.
		return []rueidis.Completed{
			s.client.B().Set().Key(s.hash + prefix).Value(domain).Build(),
			s.client.B().Set().Key(s.publisher + domain).Value("1").Build(),
		}
	})
}

// Remove revokes publishers. Its arguments and errors are those of Add.
func (s *Source) Remove(ctx context.Context, publishers ...string) error {
	return s.write(ctx, publishers, func(domain, prefix string) []rueidis.Completed {
		return []rueidis.Completed{
			s.client.B().Del().Key(s.publisher + domain).Build(),
			s.client.B().Del().Key(s.hash + prefix).Build(),
		}
	})
}

// write runs all first commands of a batch, and then all second ones.
func (s *Source) write(ctx context.Context, publishers []string, commands func(domain, prefix string) []rueidis.Completed) error {
	domains := make([]string, len(publishers))
	var problems []error
	for i, publisher := range publishers {
		var err error
		if domains[i], err = ampcors.CanonicalDomain(publisher); err != nil {
			problems = append(problems, err)
		}
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	for part := range slices.Chunk(domains, batch) {
		var first, second []rueidis.Completed
		for _, domain := range part {
			prefix, err := ampcors.FallbackPrefix(domain)
			if err != nil {
				return err
			}
			c := commands(domain, prefix)
			first, second = append(first, c[0]), append(second, c[1])
		}
		for _, cmds := range [][]rueidis.Completed{first, second} {
			for _, result := range s.client.DoMulti(ctx, cmds...) {
				if err := result.Error(); err != nil {
					return fmt.Errorf("redissource: %w", err)
				}
			}
		}
	}
	return nil
}
