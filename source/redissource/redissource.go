// Package redissource is an [ampcors.Source] over Redis 6 or later, which tells every server
// of a change as soon as it is made.
//
// # How it works
//
// Two keys stand for a publisher:
//
//	ampcors:publisher:www.example.com  any value
//	ampcors:hash:qd6a7oj...            www.example.com
//
// The second is for caches' hash origins, and counts only while the first exists, so
// that DEL of the first revokes a publisher. [Source.Add] and [Source.Remove] write both.
//
// Redis's server-assisted client-side caching, in broadcasting mode, tells each connection
// which keys under ampcors:publisher: have changed. The Source passes that on to the
// Middleware (it is an [ampcors.Notifier]), which forgets what it knew of those publishers.
// Redis keeps nothing for it but the prefix, however many publishers there are. What it
// told is remembered in the Middleware's own memory, within its limits; rueidis's cache is
// not used.
//
// When a connection is lost, what changed meanwhile is not known. Everything is then looked
// up again. If that fails, the last answer serves until MaxStale is over. A connection that only
// went silent is given up after twice Dialer.KeepAlive and ConnWriteTimeout, 5 seconds by
// default: a change that is made in the meantime is seen then, or after [ampcors.Lookup].TTL.
//
// Redis tells of keys that expire when it removes them, which can be most of a second late
// when many do. It does not tell of SWAPDB: follow that by FLUSHDB of the other database.
//
// # What Redis must keep
//
// A Redis that starts empty knows no publisher, and so all are refused. Give it persistence,
// and the policy noeviction, or one that only evicts keys that can expire.
//
// All of this is tested with one Redis 7. A replica may lag behind the message that tells of
// a change, so lookups are not sent to any. Cluster and Sentinel should work, as rueidis
// tracks each node's keys on its own connections, but are not tested.
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
	// Redis says where it is. ClientTrackingOptions and OnInvalidations are the Source's to
	// set, client-side caching must not be disabled, and lookups must not go to replicas.
	// Where zero, PipelineMultiplex is set to one connection, and ConnWriteTimeout to 3
	// seconds.
	Redis rueidis.ClientOption

	// KeyPrefix is what all keys begin with. If empty, "ampcors:" is used.
	KeyPrefix string
}

// A Source looks up publishers in Redis. It is safe for concurrent use by multiple goroutines and by
// several Middlewares.
type Source struct {
	client    rueidis.Client
	publisher string // begins the key of a publisher
	hash      string // begins the key of a hash

	mu        sync.Mutex
	listeners []*func(domains ...string)
}

// New connects to Redis, which must be up: a server that starts while it is not must try
// again. An error says what is wrong in cfg, or that Redis cannot be reached. Later on,
// lost connections are made anew. Close the Source when it is no longer used.
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
	report(o.Dialer.KeepAlive < 0, "Redis.Dialer.KeepAlive is negative; without it a connection that went silent would never be given up")
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
		o.PipelineMultiplex = -1 // each connection would be told of every change
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

// Ping reports whether Redis answers. A server that is ready only while it can look up
// publishers it does not remember can use it for its readiness check.
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

// batch is how many publishers are written in one go.
const batch = 1000

// Add writes publishers, in any spelling that [ampcors.CanonicalDomain] takes. When it
// returns nil, Redis has them. An error says which are no publisher domains, in which case
// none is written, or what Redis said, in which case some may be.
func (s *Source) Add(ctx context.Context, publishers ...string) error {
	return s.write(ctx, publishers, func(domain, prefix string) []rueidis.Completed {
		// The hash first, which says nothing alone: the second write is the one of which the
		// servers are told.
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

// write makes all first commands of a batch, and then all second ones.
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
