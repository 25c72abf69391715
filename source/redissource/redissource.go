// Package redissource looks up publishers in Redis 6 or later. Every server learns of a change as
// soon as it is made. Pass [Store.Database] to [source.New].
//
// # How it works
//
// Each publisher has two keys:
//
//	ampcors:publisher:www.example.com  any value
//	ampcors:hash:qd6a7oj...            www.example.com
//
// The second is for cache origins with a hash prefix. It is used only while the first
// exists, so DEL of the first revokes a publisher. [Store.Add] and [Store.Remove] write
// both.
//
// Redis's server-assisted client-side caching, in broadcasting mode, sends each connection
// the keys under ampcors:publisher: that have changed. A [source.Source] forgets these
// publishers. For this, Redis stores only the key prefix, however many publishers there are.
// rueidis's own cache is not used.
//
// A server can start while Redis is down: [New] does not wait for it, and [Store.Ping] says what is wrong. When a
// connection is lost, changes may be missed. Everything is then looked up again. If
// that fails, the last answer is used until MaxStale is over.
//
// Each quarter of a second, the Store looks up a key, and asks Redis whether it still reports changes
// on the connection; in a Cluster, it asks each master. If Redis or a master answers with an error, or
// not within half a second, the Store is not listening, and lookups there fail at once until it
// answers again, because rueidis would let each wait for retries. The log has a line for each kind of
// cause, and one when the Store listens again. If Redis stops answering on a connection, rueidis closes
// it only after ConnWriteTimeout plus two times Dialer.KeepAlive: 5 seconds by default (3 + 2 × 1). A
// change that Redis could not report in that time is seen then, or after [source.Config].TTL if that is
// earlier.
//
// Listening is false 0.75 s after one of these is no longer true:
//
//   - Redis answers the lookup of a key; in a Cluster, each master does, for a key in one of its slots;
//   - CLIENT TRACKINGINFO says that changes are reported (Redis 6.2 or later, if the user has the permission;
//     otherwise, CLIENT TRACKING succeeded when the connection began);
//   - each hash slot has a master, by CLUSTER SLOTS, and each master a connection;
//   - ROLE says master, outside of a Cluster. At a replica, lookups fail. Without the permission +role, lookups work,
//     and Listening is false.
//
// If CLUSTER SLOTS names another master for a slot, everything is looked up again, at most once in 5 s. What these
// questions cannot show is that a connection stopped and came back between two of them.
//
// Its tests run with Redis 7.0 and, where it is installed, Valkey 8.0 (AMPCORS_REDIS=valkey-server).
//
// Redis reports an expired key when it removes it, which can be much later. So a lookup also asks when the key
// expires (PTTL), and nothing is remembered for longer. If the user lacks the permission +pttl, an expiry is seen
// when Redis reports it, or after [source.Config].TTL. Redis does not report SWAPDB. After one, FLUSHDB on the
// database that is no longer used makes servers look up everything.
//
// # Cluster and Sentinel
//
// Set InitAddress in Config.Redis as rueidis documents, for Sentinel also Sentinel.MasterSet, and for a Cluster
// Config.Topology. With Redis Cluster, the database has shards: a node that hangs or fails does not affect publishers
// on the others, except for about 1 % whose hash slots are next to those of that node. Lookups and writes go to
// masters only, as a replica may get a change later than the message about it.
//
// Redis replicates after it has answered. If a master dies, its last changes can be lost: a publisher that was removed
// is allowed again once a replica is promoted. Set Config.Replicas to the number of replicas of each master: Add and
// Remove then fail if a change has not reached all of them. A master that is cut off from the others goes on answering
// the programs that still reach it. Once these reach the new master, they see its changes within TTL: choose TTL by how
// long a revocation may take. Redis's min-replicas-to-write 1 makes such a master reject writes, so that none is lost
// there.
//
// # What Redis must keep
//
// A Redis that starts empty knows no publisher, so all are denied. Turn on persistence, and
// use the eviction policy noeviction, or one that only evicts keys with an expiry.
//
// For a server that does not read its messages, such as one that is suspended, Redis keeps
// them in memory: for each change, a few bytes more than the key. By default that has no limit. Set
// client-output-buffer-limit normal, such as to 64mb 16mb 60: Redis then closes the
// connection, and the server looks everything up again.
package redissource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/source"
	"github.com/ampcors/ampcors/source/driver"
)

// Config configures how a Store uses Redis.
type Config struct {
	// Redis configures the client. ClientTrackingOptions and OnInvalidations must be empty,
	// as the Store sets them. Client-side caching must not be disabled, and lookups must
	// not go to replicas. If PipelineMultiplex is zero, one connection is used. If
	// ConnWriteTimeout is zero, 3 seconds is used.
	Redis rueidis.ClientOption

	// KeyPrefix is what all keys begin with. If empty, "ampcors:" is used.
	KeyPrefix string

	// Replicas is how many replicas of a master must have a change before Add and Remove
	// return nil (WAIT). If it is the number of replicas of each master, a change survives
	// the loss of a master. If zero, Add and Remove do not wait for replicas.
	Replicas int

	// ReplicaTimeout is how long Add and Remove wait for the replicas before they return an
	// error. If zero, 1 second is used.
	ReplicaTimeout time.Duration

	// Topology is what Redis.InitAddress names. If empty, it is Sentinel if Redis.Sentinel.MasterSet is set,
	// and otherwise Standalone. New does not wait for Redis, and so cannot find out. If Redis is something
	// else, all lookups fail, and Ping and the log say why.
	Topology Topology

	// Logger gets a line when Redis, or a master of a Cluster, does not answer (level Error), and when all do
	// (level Info). If nil, slog.Default() is used.
	Logger *slog.Logger
}

// A Topology is a way in which Redis runs.
type Topology string

// The topologies.
const (
	Standalone Topology = "standalone" // one Redis
	Cluster    Topology = "cluster"    // nodes of a Redis Cluster
	Sentinel   Topology = "sentinel"   // Sentinels, which know the master
)

// A Store has publishers in Redis. It is safe for concurrent use by multiple goroutines.
type Store struct {
	link      link
	reports   *driver.Reports
	topology  Topology
	publisher string // begins the key of a publisher
	hash      string // begins the key of a hash prefix
	replicas  int
	timeout   time.Duration // of the wait for replicas
	stop      context.CancelFunc

	listeners driver.Listeners

	expiryMu sync.Mutex
	expiry   map[string]*time.Timer // of publishers whose keys expire
}

// New returns a Store. It does not wait for a connection, so a server can start while Redis is down. An error
// says what is wrong in cfg. Connections are made in the background, and made again when they are lost. Close
// the Store after the Sources that use it.
func New(cfg Config) (*Store, error) {
	o := cfg.Redis
	o.InitAddress = slices.Clone(o.InitAddress)
	topology := cfg.Topology
	switch {
	case topology != "":
	case o.Sentinel.MasterSet != "":
		topology = Sentinel
	default:
		topology = Standalone
	}
	var errs []error
	report := func(isWrong bool, code badvalue.Code, path string, value any, reason, want string) {
		if isWrong {
			errs = append(errs, &badvalue.Error{Code: code, Path: path, Value: fmt.Sprint(value), Reason: reason, Want: want})
		}
	}
	report(!slices.Contains([]Topology{Standalone, Cluster, Sentinel}, topology), badvalue.Unknown, "Topology", topology,
		"is unknown", fmt.Sprintf("%q, %q or %q", Standalone, Cluster, Sentinel))
	report((topology == Sentinel) != (o.Sentinel.MasterSet != ""), badvalue.Conflict, "Topology", topology,
		fmt.Sprintf("does not go with the Redis.Sentinel.MasterSet %.80q", o.Sentinel.MasterSet),
		"a MasterSet with Sentinel, and none without")
	report(topology == Standalone && len(o.InitAddress) > 1, badvalue.Conflict, "Redis.InitAddress",
		strings.Join(o.InitAddress, " "),
		fmt.Sprintf("has %d addresses, and Topology is %q", len(o.InitAddress), topology),
		fmt.Sprintf("one, or Topology %q", Cluster))
	report(len(o.InitAddress) == 0, badvalue.Missing, "Redis.InitAddress", "", "is empty",
		`an address such as "localhost:6379"`)
	for _, option := range []struct {
		name, why string
		isSet     bool
	}{
		{"ClientTrackingOptions", "and the Store sets it", o.ClientTrackingOptions != nil},
		{"OnInvalidations", "and the Store sets it", o.OnInvalidations != nil},
		{"DisableCache", "and without client-side caching no change would be noticed", o.DisableCache},
		{"AlwaysRESP2", "and client-side caching needs RESP3", o.AlwaysRESP2},
		{"DisableAutoPipelining", "and on such connections no change would be noticed", o.DisableAutoPipelining},
		{"SendToReplicas", "and a replica may give an answer from before a change", o.SendToReplicas != nil},
		{"ReplicaOnly", "and a replica may give an answer from before a change", o.ReplicaOnly},
	} {
		report(option.isSet, badvalue.Conflict, "Redis."+option.name, "…", "is set, "+option.why, badvalue.RemoveIt)
	}
	report(o.Dialer.KeepAlive < 0, badvalue.OutOfRange, "Redis.Dialer.KeepAlive", o.Dialer.KeepAlive,
		"is negative, and without it a connection that stops answering would never be closed", "0 for the default, or more")
	report(cfg.Replicas < 0, badvalue.OutOfRange, "Replicas", cfg.Replicas, "is negative", "0 for none, or more")
	report(cfg.ReplicaTimeout != 0 && cfg.ReplicaTimeout < time.Millisecond, badvalue.OutOfRange, "ReplicaTimeout",
		cfg.ReplicaTimeout,
		"is less than a millisecond", "at least 1ms, or 0 for the default")
	report(cfg.ReplicaTimeout != 0 && cfg.Replicas == 0, badvalue.Useless, "ReplicaTimeout", cfg.ReplicaTimeout,
		"is set, and Replicas is 0",
		"Replicas, or remove it")
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	prefix := cmp.Or(cfg.KeyPrefix, "ampcors:")
	s := &Store{link: link{masters: o.InitAddress}, topology: topology, publisher: prefix + "publisher:",
		hash:   prefix + "hash:",
		expiry: make(map[string]*time.Timer), replicas: cfg.Replicas, timeout: cmp.Or(cfg.ReplicaTimeout, time.Second)}
	s.reports = driver.NewReports(cmp.Or(cfg.Logger, slog.Default()),
		slog.String("redis", strings.Join(o.InitAddress, ",")))
	o.PipelineMultiplex = cmp.Or(o.PipelineMultiplex, -1) // one connection, as each is told of every change
	o.ConnWriteTimeout = cmp.Or(o.ConnWriteTimeout, 3*time.Second)
	if o.RetryDelay == nil { // one retry, at once: a lookup that must fail should not wait
		o.RetryDelay = func(attempts int, _ rueidis.Completed, _ error) time.Duration {
			if attempts > 1 {
				return -1
			}
			return 0
		}
	}
	o.ClientTrackingOptions = []string{"BCAST", "PREFIX", s.publisher}
	o.OnInvalidations = s.onInvalidations
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	go s.watch(ctx, o)
	return s, nil
}

// Close closes the connections, in the background. Lookups fail from then on, and nothing is reported.
func (s *Store) Close() {
	s.link.mu.Lock()
	s.link.client, s.link.closed = nil, true
	s.link.mu.Unlock()
	s.reports.Close()
	s.stop() // watch closes the client
	s.expiryMu.Lock()
	defer s.expiryMu.Unlock()
	for _, timer := range s.expiry {
		timer.Stop()
	}
	s.expiry = nil
}

// Ping makes both lookups once. It reports whether Redis answers and would report a change, and otherwise why not: it
// cannot be reached, is not what Config.Topology says, is too old, or rejects the password. Right after New, it
// waits, until ctx is done, for the end of the first try to connect. Use it for a readiness check if a server is to
// be ready only while it can look up publishers that it does not remember.
func (s *Store) Ping(ctx context.Context) error {
	client, err := s.open(ctx, "")
	if err != nil {
		return err
	}
	if o := s.look(ctx, client); o != nil {
		return o.err
	}
	_, err = s.publisherByDomain(ctx, "")
	_, err2 := s.publisherByHash(ctx, "")
	if err = errors.Join(err, err2); err != nil {
		return fmt.Errorf("redissource: %w", err)
	}
	return nil
}

// obey calls do, and returns once ctx is done, even if do goes on: while a node hangs, rueidis may wait
// for a new connection to it for several seconds, whatever its context says.
func obey[T any](ctx context.Context, do func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := do()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var zero T
		return zero, context.Cause(ctx)
	}
}

// Database returns what [source.New] needs. Its IsListening reports whether Redis, or each master of a Cluster,
// answered a lookup within the last second, and would report a change.
func (s *Store) Database() source.Database {
	src := source.Database{PublisherByDomain: s.publisherByDomain, PublisherByHash: s.publisherByHash,
		Notify:      s.listeners.Notify,
		IsListening: s.reports.IsListening, Publishers: s.publishers}
	if s.topology == Cluster {
		src.Shards, src.Shard = numShards, s.shard
	}
	return src
}

// publisherByDomain returns the domain if its key exists: Redis compares keys byte by byte.
func (s *Store) publisherByDomain(ctx context.Context, domain string) (string, error) {
	key := s.publisher + domain
	client, err := s.open(ctx, key)
	if err != nil {
		return "", err
	}
	left, err := obey(ctx, func() (int64, error) { return client.Do(ctx, client.B().Pttl().Key(key).Build()).AsInt64() })
	// it may be allowed EXISTS
	if answer, isAnswer := rueidis.IsRedisErr(err); isAnswer && strings.HasPrefix(answer.Error(), "NOPERM") {
		left, err = obey(ctx, func() (int64, error) { return client.Do(ctx, client.B().Exists().Key(key).Build()).AsInt64() })
		left -= 2 // as PTTL has it: without an expiry, or missing
	}
	switch {
	case err != nil || left == -2:
		return "", err
	case left >= 0:
		s.expires(domain, time.Duration(left)*time.Millisecond)
	}
	return domain, nil
}

// expires reports a publisher when its key has expired: Redis reports that only when it removes the key, which can
// be much later.
func (s *Store) expires(domain string, left time.Duration) {
	s.expiryMu.Lock()
	defer s.expiryMu.Unlock()
	if s.expiry == nil { // closed
		return
	}
	if timer := s.expiry[domain]; timer != nil {
		timer.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(left+time.Millisecond, func() {
		s.expiryMu.Lock()
		isLast := s.expiry[domain] == timer
		if isLast {
			delete(s.expiry, domain)
		}
		s.expiryMu.Unlock()
		if isLast {
			s.listeners.Call(domain)
		}
	})
	s.expiry[domain] = timer
}

// publisherByHash may return a domain that is no longer a publisher, with Redis Cluster.
func (s *Store) publisherByHash(ctx context.Context, prefix string) (string, error) {
	key := s.hash + prefix
	client, err := s.open(ctx, key)
	if err != nil {
		return "", err
	}
	domain, err := obey(ctx, func() (string, error) {
		return client.Do(ctx, client.B().Get().Key(key).Build()).ToString()
	})
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	if err != nil || s.topology == Cluster {
		return domain, err
	}
	return s.publisherByDomain(ctx, domain)
}

// A node of a Redis Cluster has one or a few ranges of hash slots, which move when nodes
// come and go. A shard here is one of numShards ranges that do not move. Most are on one
// node. Those on the border of two nodes are affected by both: with three masters, 2 of 256.
const (
	numShards = 256
	numSlots  = 16384
)

func (s *Store) shard(key string) int {
	name := s.hash + key
	if strings.Contains(key, ".") {
		name = s.publisher + key
	}
	return hashSlot(name) * numShards / numSlots
}

// publishers returns all publishers. It scans each master in steps of 1000 keys. A
// publisher that is there from the beginning to the end is returned, except one whose hash slot moves to a
// master that was scanned before. In a cluster, it is an error if some hash slots have no master that works.
func (s *Store) publishers(ctx context.Context) iter.Seq2[string, error] {
	match := globSpecial.Replace(s.publisher) + "*"
	return func(yield func(string, error) bool) {
		client, err := s.open(ctx, "")
		if err != nil {
			yield("", err)
			return
		}
		hasMaster := false
		for addr, node := range client.Nodes() {
			fail := func(err error) { yield("", fmt.Errorf("redissource: %s: %w", addr, err)) }
			isMaster, err := s.isMaster(ctx, node)
			if err != nil {
				fail(err)
				return
			}
			if !isMaster {
				continue
			}
			hasMaster = true
			for cursor := uint64(0); ; {
				page, err := obey(ctx, func() (rueidis.ScanEntry, error) {
					return node.Do(ctx, node.B().Scan().Cursor(cursor).Match(match).Count(batch).Build()).AsScanEntry()
				})
				if err != nil {
					fail(err)
					return
				}
				for _, key := range page.Elements {
					if !yield(strings.TrimPrefix(key, s.publisher), nil) {
						return
					}
				}
				if cursor = page.Cursor; cursor == 0 {
					break
				}
			}
		}
		if !hasMaster {
			yield("", errors.New("redissource: no master was found; a replica may be taking over"))
		}
	}
}

// isMaster reports whether a node is a master. It returns an error if the node's cluster is incomplete.
func (s *Store) isMaster(ctx context.Context, node rueidis.Client) (bool, error) {
	role, err := obey(ctx, func() ([]rueidis.RedisMessage,
		error) {
		return node.Do(ctx, node.B().Role().Build()).ToArray()
	})
	if err != nil || len(role) == 0 {
		return false, err
	}
	if name, _ := role[0].ToString(); name != "master" {
		return false, nil
	}
	if s.topology != Cluster {
		return true, nil
	}
	info, err := obey(ctx, func() (string, error) { return node.Do(ctx, node.B().ClusterInfo().Build()).ToString() })
	if all := fmt.Sprintf("cluster_slots_ok:%d\r\n", numSlots); err == nil && !strings.Contains(info, all) {
		err = errors.New("some hash slots have no master; a replica may be taking over")
	}
	return true, err
}

// globSpecial escapes what a pattern of SCAN gives a meaning.
var globSpecial = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// onInvalidations is called with the keys that changed, and with nil when a connection is
// lost or a database is flushed.
func (s *Store) onInvalidations(keys []rueidis.RedisMessage) {
	s.link.mu.Lock()
	closed := s.link.closed
	s.link.mu.Unlock()
	if closed {
		return
	}
	var domains []string
	for _, key := range keys {
		if name, err := key.ToString(); err == nil {
			domains = append(domains, strings.TrimPrefix(name, s.publisher))
		}
	}
	s.listeners.Call(domains...)
}

// batch is how many publishers are written, or keys scanned, at once.
const batch = 1000

// Add writes publishers, in any spelling that [cacheurl.CanonicalDomain] accepts, and patterns such as "*.example.com",
// for [source.Config].Patterns. When it returns nil, the masters have them in memory, and so have Config.Replicas
// replicas of each; how soon they are on disk is Redis's setting (appendfsync). If some are not publisher domains or
// patterns, the error names one or more, and none is written. After an error from Redis, some may be written, on some
// servers; call it again.
func (s *Store) Add(ctx context.Context, publishers ...string) error {
	for _, publisher := range publishers {
		if base, isPattern := strings.CutPrefix(publisher, "*."); isPattern {
			canonical, err := cacheurl.CanonicalDomain(base)
			if err == nil {
				err = source.CheckPattern("*." + canonical)
			}
			if err != nil {
				return fmt.Errorf("redissource: the pattern %.80q: %w", publisher, err)
			}
		}
	}
	return s.write(ctx, publishers, func(domain, prefix string) (first, second change) {
		// The hash prefix first: alone it has no effect, and servers are told only of the
		// second write.
		return change{key: s.hash + prefix, value: domain}, change{key: s.publisher + domain, value: "1"}
	})
}

// Remove revokes publishers. Its arguments, promises and errors are those of Add. Without
// Config.Replicas, a publisher that was removed can get in again if a master dies before its
// replica has the change.
func (s *Store) Remove(ctx context.Context, publishers ...string) error {
	return s.write(ctx, publishers, func(domain, prefix string) (first, second change) {
		return change{key: s.publisher + domain, isRemoval: true}, change{key: s.hash + prefix, isRemoval: true}
	})
}

// A change writes or removes a key.
type change struct {
	key, value string
	isRemoval  bool
}

// write makes all first changes of a batch, and then all second ones.
func (s *Store) write(ctx context.Context, publishers []string,
	changes func(domain, prefix string) (first, second change)) error {
	domains := make([]string, len(publishers))
	var problems []error
	for i, publisher := range publishers {
		base, isPattern := strings.CutPrefix(publisher, "*.")
		domain, err := cacheurl.CanonicalDomain(base)
		if err != nil {
			problems = append(problems, err)
		}
		if domains[i] = domain; isPattern {
			domains[i] = "*." + domain
		}
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	client, err := s.open(ctx, "")
	if err != nil {
		return err
	}
	for part := range slices.Chunk(domains, batch) {
		var first, second []change
		for _, domain := range part {
			prefix := ""
			if !strings.HasPrefix(domain, "*") { // a pattern has none
				var err error
				if prefix, err = cacheurl.HashPrefix(domain); err != nil {
					return err
				}
			}
			a, b := changes(domain, prefix)
			if a.key != s.hash {
				first = append(first, a)
			}
			if b.key != s.hash {
				second = append(second, b)
			}
		}
		for _, changes := range [][]change{first, second} {
			if _, err := obey(ctx, func() (any, error) { return nil, s.make(ctx, client, changes) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// make makes changes. It waits for replicas if that is configured.
func (s *Store) make(ctx context.Context, client rueidis.Client, changes []change) error {
	switch {
	case len(changes) == 0: // of patterns, which have no hash prefix
		return nil
	case s.replicas == 0:
		cmds := make([]rueidis.Completed, len(changes))
		for i, c := range changes {
			if c.isRemoval {
				cmds[i] = client.B().Del().Key(c.key).Build()
			} else {
				cmds[i] = client.B().Set().Key(c.key).Value(c.value).Build()
			}
		}
		_, err := lastOf(client.DoMulti(ctx, cmds...))
		return err
	case s.topology != Cluster:
		return s.makeDurable(ctx, client, changes)
	}
	// In a cluster, a dedicated connection of rueidis takes only keys of one hash slot.
	const parallel = 16
	parts := slices.Collect(slices.Chunk(changes, (len(changes)+parallel-1)/parallel))
	errs := make([]error, len(parts))
	var group sync.WaitGroup
	for i, part := range parts {
		group.Go(func() {
			for at := range part {
				if errs[i] = s.makeDurable(ctx, client, part[at:at+1]); errs[i] != nil {
					return
				}
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// remove removes a key. If the key did not exist, it is written and removed again: Redis does
// not replicate the DEL of a key that does not exist, so when a removal is repeated, WAIT
// would not wait for the earlier DEL that removed the key.
const remove = `
if redis.call('DEL', KEYS[1]) == 0 then
	redis.call('SET', KEYS[1], '')
	redis.call('DEL', KEYS[1])
end
return 1`

// makeDurable makes changes on one connection, as WAIT waits only for changes of its own.
func (s *Store) makeDurable(ctx context.Context, client rueidis.Client, changes []change) error {
	return client.Dedicated(func(conn rueidis.DedicatedClient) error {
		cmds := make([]rueidis.Completed, len(changes))
		for i, c := range changes {
			if c.isRemoval {
				cmds[i] = conn.B().Eval().Script(remove).Numkeys(1).Key(c.key).Build()
			} else {
				cmds[i] = conn.B().Set().Key(c.key).Value(c.value).Build()
			}
		}
		if _, err := lastOf(conn.DoMulti(ctx, cmds...)); err != nil {
			return err
		}
		wait := conn.B().Wait().Numreplicas(int64(s.replicas)).Timeout(s.timeout.Milliseconds()).Build()
		n, err := lastOf([]rueidis.RedisResult{conn.Do(ctx, wait)})
		if err == nil && n < int64(s.replicas) {
			err = fmt.Errorf("redissource: after %v, %d of %d replicas have the change; if the master dies now, it may be "+
				"undone", s.timeout,
				n, s.replicas)
		}
		return err
	})
}

// lastOf returns the first error of results, or the last result if it is a number.
func lastOf(results []rueidis.RedisResult) (n int64, err error) {
	for _, result := range results {
		if err := result.Error(); err != nil {
			return 0, fmt.Errorf("redissource: %w", err)
		}
		n, _ = result.AsInt64()
	}
	return n, nil
}
