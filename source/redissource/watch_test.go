package redissource

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/source"
)

// A deployment is Redis in one of the topologies.
type deployment struct {
	option   rueidis.ClientOption
	topology Topology
	all      []*servertest.Server
	fails    []*servertest.Server // what is killed while a server runs
}

var deployments = map[Topology]func(*testing.T) deployment{
	Standalone: func(t *testing.T) deployment {
		redis := servertest.Redis(t)
		return deployment{rueidis.ClientOption{InitAddress: []string{redis.Addr}}, Standalone, []*servertest.Server{redis},
			[]*servertest.Server{redis}}
	},
	Cluster: func(t *testing.T) deployment {
		nodes := servertest.RedisCluster(t, 3, time.Minute) // no replica takes over
		return deployment{rueidis.ClientOption{InitAddress: []string{nodes[0].Addr, nodes[1].Addr}}, Cluster, nodes, nodes}
	},
	Sentinel: func(t *testing.T) deployment {
		master := servertest.Redis(t)
		replica := servertest.RedisReplica(t, master)
		sentinels := servertest.RedisSentinel(t, master.Addr, 3, time.Minute) // no replica takes over
		option := rueidis.ClientOption{Sentinel: rueidis.SentinelOption{MasterSet: "ampcors"}}
		for _, s := range sentinels {
			option.InitAddress = append(option.InitAddress, s.Addr)
		}
		return deployment{option, Sentinel, append(sentinels, master, replica), []*servertest.Server{master}}
	},
}

// A server can start while Redis is down, and says so once. When Redis is down later, the server says that it
// does not listen, and serves stale answers at once. The same holds for each topology.
func TestAServerStartsAndServesWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	for topology, deploy := range deployments {
		t.Run(string(topology), func(t *testing.T) {
			t.Parallel()
			d := deploy(t)
			for _, s := range d.all {
				s.Kill()
			}
			log := new(servertest.Buffer)
			s, err := New(Config{Redis: d.option, Topology: d.topology, Logger: slog.New(slog.NewTextHandler(log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Close)
			mw := newMiddleware(t, s, source.Config{TTL: 100 * time.Millisecond})
			if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "refused") {
				t.Errorf("Ping: %v", err)
			}
			if d := mw.CheckOrigin("https://www.example.com"); d.SourceErr == nil || d.Allowed || s.reports.IsListening() {
				t.Errorf("%+v, listening: %t", d, s.reports.IsListening())
			}
			for _, s := range d.all {
				s.Start()
			}
			servertest.Until(t, "it listens", time.Minute, s.reports.IsListening)
			servertest.Until(t, "a publisher is added", time.Minute, func() bool { return s.Add(t.Context(), "www.example.com") == nil })
			servertest.Seen(t, servertest.Soon, "www.example.com", true, mw)
			servertest.Until(t, "Ping returns nil", time.Minute, func() bool { return s.Ping(t.Context()) == nil }) // each slot of a Cluster

			for _, s := range d.fails {
				s.Kill()
			}
			servertest.Until(t, "it does not listen", servertest.Soon, func() bool { return !s.reports.IsListening() })
			var times []time.Duration
			servertest.Until(t, "50 answers are stale", time.Minute, func() bool {
				begun := time.Now()
				d := mw.CheckOrigin("https://www.example.com")
				if !d.Allowed {
					t.Fatalf("%+v", d)
				}
				if d.Stale {
					times = append(times, time.Since(begun))
				}
				return len(times) == 50
			})
			slices.Sort(times)
			t.Logf("%s is down: a stale answer takes %v in the median, %v at most", topology, times[25], times[49])

			for _, s := range d.fails {
				s.Start()
			}
			servertest.Until(t, "it listens again", time.Minute, s.reports.IsListening)
			servertest.Until(t, "the publisher is removed", time.Minute, func() bool { return s.Remove(t.Context(), "www.example.com") == nil })
			servertest.Seen(t, servertest.Soon, "www.example.com", false, mw)
			// A line when it listens, and before it one for each kind of cause. On a busy machine, Redis may be silent more
			// often than it is killed.
			listens, causes := 0, make(map[string]int)
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, "level=INFO") {
					if listens++; len(causes) == 0 {
						t.Errorf("no cause before a line:\n%s", log)
					}
					clear(causes)
					continue
				}
				_, cause, _ := strings.Cut(line, "error=")
				code := redisCode.FindString(cause)
				if causes[code]++; causes[code] > 1 {
					t.Errorf("a kind of cause is said again:\n%s", log)
				}
			}
			if listens < 2 || len(causes) > 0 {
				t.Errorf("the log:\n%s", log)
			}
		})
	}
}

// redisCode finds the code of an error of Redis. All other causes of that test are connections.
var redisCode = regexp.MustCompile(`\b[A-Z]{5,}\b`)

// While one master of a Cluster does not answer, lookups of its publishers fail at once. Publishers on the others are allowed as
// before, without stale answers, also by hash prefix.
func TestAMasterThatHangsAffectsNoOtherShard(t *testing.T) {
	t.Parallel()
	nodes := servertest.RedisCluster(t, 3, time.Minute)
	for _, addr := range nodes { // otherwise the others answer with CLUSTERDOWN
		if answer, err := servertest.RedisDo(addr.Addr, "CONFIG", "SET", "cluster-require-full-coverage", "no"); answer != "OK" || err != nil {
			t.Fatal(answer, err)
		}
	}
	s := newStore(t, nodes[0].Addr, Cluster)
	var domains []string
	for i := range 300 {
		domains = append(domains, fmt.Sprintf("www.site-%d.example", i))
	}
	if err := s.Add(t.Context(), domains...); err != nil {
		t.Fatal(err)
	}
	mw := newMiddleware(t, s)
	servertest.Until(t, "it listens", servertest.Soon, s.reports.IsListening)
	nodes[1].Freeze()
	servertest.Until(t, "it does not listen", servertest.Soon, func() bool { return !s.reports.IsListening() })
	isDown := func(key string) (down, isBorder bool) { // nodes[1] has the second third of the slots
		at := s.shard(key)
		return at > numShards/3 && at < 2*numShards/3, at == numShards/3 || at == 2*numShards/3
	}
	for _, domain := range domains {
		prefix, err := cacheurl.HashPrefix(domain)
		if err != nil {
			t.Fatal(err)
		}
		down, isBorder := isDown(domain)
		hashDown, isHashBorder := isDown(prefix)
		if isBorder || isHashBorder {
			continue
		}
		for i, origin := range servertest.Origins(domain) {
			fails := down || i == 1 && hashDown
			servertest.Until(t, fmt.Sprintf("%s fails: %t", origin, fails), servertest.Soon, func() bool {
				d := mw.CheckOrigin(origin)
				return d.Allowed == !fails && !d.Stale && (d.SourceErr != nil) == fails
			})
		}
	}
	nodes[1].Thaw()
	servertest.Until(t, "it listens again", servertest.Soon, s.reports.IsListening)
}

// A user without the permission for PING is answered, and so looks up publishers.
func TestRedisThatRejectsAPingAnswers(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	if answer, err := servertest.RedisDo(redis.Addr, "ACL", "SETUSER", "default", "-@all", "+hello", "+client", "+exists", "+get", "+set",
		"+cluster", "+role"); answer != "OK" || err != nil {
		t.Fatal(answer, err)
	}
	s := newStore(t, redis.Addr)
	servertest.Until(t, "it listens", servertest.Soon, s.reports.IsListening)
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if o := s.look(t.Context(), s.client(t)); o != nil {
		t.Error(o.err)
	}
}

// A connection that is lost is made again, though that takes longer than Redis may take to answer.
func TestAConnectionMayBeSlow(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	var dialed atomic.Int32
	s, err := New(Config{Redis: rueidis.ClientOption{InitAddress: []string{redis.Addr},
		DialCtxFn: func(ctx context.Context, addr string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
			dialed.Add(1)
			select {
			case <-time.After(pingTimeout + 100*time.Millisecond):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return dialer.DialContext(ctx, "tcp", addr)
		}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	servertest.Until(t, "it listens", servertest.Soon, s.reports.IsListening)
	redis.Kill()
	servertest.Until(t, "it does not listen", servertest.Soon, func() bool { return !s.reports.IsListening() })
	redis.Start()
	servertest.Until(t, "it listens again", servertest.Soon, s.reports.IsListening)
	if got, err := s.publisherByDomain(t.Context(), "www.example.com"); got != "" || err != nil {
		t.Errorf("%q, %v, after %d connections", got, err, dialed.Load())
	}
}

// All nodes of a Cluster are replaced, one after another, by others at other addresses.
func TestAClusterWhoseNodesAreReplaced(t *testing.T) {
	t.Parallel()
	nodes := servertest.RedisCluster(t, 3, 2*time.Second)
	s := newStore(t, nodes[0].Addr, Cluster)
	if err := s.Add(t.Context(), "www.example.com"); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		nodes[i].Kill() // its replica takes over, which is at another address
		servertest.Until(t, "it does not listen", servertest.Soon, func() bool { return !s.reports.IsListening() })
		servertest.Until(t, "it listens again", time.Minute, s.reports.IsListening)
	}
	servertest.Until(t, "lookups work", time.Minute, func() bool {
		got, err := s.publisherByDomain(t.Context(), "www.example.com")
		return got != "" && err == nil
	})
}

// What is wrong is said by Ping and in the log, without the password.
func TestWhatIsWrongWithRedisIsSaid(t *testing.T) {
	t.Parallel()
	single := servertest.Redis(t)
	if answer, err := servertest.RedisDo(single.Addr, "CONFIG", "SET", "requirepass", "right"); answer != "OK" || err != nil {
		t.Fatal(answer, err)
	}
	cluster := servertest.Redis(t, "--cluster-enabled", "yes")
	limited, other := servertest.Redis(t), servertest.Redis(t)
	if answer, err := servertest.RedisDo(limited.Addr, "ACL", "SETUSER", "default", "+@all", "-client|tracking"); answer != "OK" ||
		err != nil {
		t.Fatal(answer, err)
	}
	for name, test := range map[string]struct {
		cfg  Config
		want string
	}{
		"a wrong password": {Config{Redis: rueidis.ClientOption{InitAddress: []string{single.Addr}, Password: "s3cret"}}, "WRONGPASS"},
		"no password":      {Config{Redis: rueidis.ClientOption{InitAddress: []string{single.Addr}}}, "NOAUTH"},
		"a Cluster": {Config{Redis: rueidis.ClientOption{InitAddress: []string{cluster.Addr}}},
			`Redis is a Cluster, and Topology is "standalone"; want "cluster"`},
		"no Cluster": {Config{Redis: rueidis.ClientOption{InitAddress: []string{single.Addr}, Password: "right"}, Topology: Cluster},
			`Redis is not a Cluster, and Topology is "cluster"; want "standalone"`},
		"no Cluster of two": {Config{Redis: rueidis.ClientOption{InitAddress: []string{single.Addr, single.Addr}, Password: "right"},
			Topology: Cluster},
			`Redis is not a Cluster, and Topology is "cluster"; want "standalone"`},
		"no Sentinel": {Config{Redis: rueidis.ClientOption{InitAddress: []string{other.Addr}, Sentinel: rueidis.SentinelOption{MasterSet: "x"}}},
			"names no Sentinel"},
		"no client-side caching": {Config{Redis: rueidis.ClientOption{InitAddress: []string{limited.Addr}}},
			"want Redis 6 or later, and a user with the permission +client|tracking"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := new(servertest.Buffer)
			test.cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
			s, err := New(test.cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			_, lookup := s.Database().PublisherByDomain(t.Context(), "www.example.com")
			for _, err := range []error{s.Ping(t.Context()), lookup, s.Add(t.Context(), "www.example.com")} {
				if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "s3cret") {
					t.Errorf("%v; want %q", err, test.want)
				}
			}
			servertest.Until(t, "it is in the log", servertest.Soon, func() bool {
				return strings.Contains(strings.ReplaceAll(log.String(), `\"`, `"`), test.want)
			})
			if strings.Contains(log.String(), "s3cret") {
				t.Errorf("the log:\n%s", log)
			}
		})
	}
}

func TestHashSlotsAreThoseOfRedis(t *testing.T) {
	t.Parallel()
	s := newStore(t, servertest.Redis(t).Addr)
	builder := s.client(t).B()
	for _, key := range []string{"", "a", "foo{bar}baz", "{}foo", "foo{", "foo{{bar}}zap", "foo{bar}{zap}", "123456789",
		"ampcors:publisher:www.example.com", "{tag}ampcors:hash:x"} {
		cmd := builder.Get().Key(key).Build()
		if got, want := hashSlot(key), int(cmd.Slot())%numSlots; got != want {
			t.Errorf("%q: %d; want %d", key, got, want)
		}
	}
}

func TestAClosedStoreSaysSo(t *testing.T) {
	t.Parallel()
	s := newStore(t, servertest.Redis(t).Addr)
	s.client(t)
	s.Close()
	if _, err := s.Database().PublisherByDomain(t.Context(), "www.example.com"); err != errClosed || s.reports.IsListening() ||
		s.Ping(t.Context()) != errClosed {
		t.Errorf("%v, listening: %t", err, s.reports.IsListening())
	}
}

// A replica answers lookups and reports changes, also while it is cut off from its master. So it does not count.
func TestAReplicaIsNoMaster(t *testing.T) {
	t.Parallel()
	master := servertest.Redis(t)
	replica := servertest.RedisReplica(t, master)
	s := newStore(t, replica.Addr)
	servertest.Until(t, "it is refused", servertest.Soon, func() bool {
		err := s.Ping(t.Context())
		return err != nil && strings.Contains(err.Error(), "Redis is a replica")
	})
	if _, err := s.publisherByDomain(t.Context(), "www.example.com"); err == nil || s.reports.IsListening() {
		t.Error("a replica answers:", err)
	}
	// It is promoted, and later becomes a replica again.
	for _, to := range [][]string{{"NO", "ONE"}, strings.Split(strings.Replace(master.Addr, ":", " ", 1), " ")} {
		if answer, err := servertest.RedisDo(replica.Addr, append([]string{"REPLICAOF"}, to...)...); answer != "OK" || err != nil {
			t.Fatal(answer, err)
		}
		servertest.Until(t, "it is known", servertest.Soon, func() bool { return s.reports.IsListening() == (to[0] == "NO") })
	}
	limited := servertest.Redis(t)
	if answer, err := servertest.RedisDo(limited.Addr, "ACL", "SETUSER", "default", "+@all", "-role"); answer != "OK" || err != nil {
		t.Fatal(answer, err)
	}
	s = newStore(t, limited.Addr)
	servertest.Until(t, "it is not known", servertest.Soon, func() bool {
		err := s.Ping(t.Context())
		return err != nil && strings.Contains(err.Error(), "+role")
	})
	if _, err := s.publisherByDomain(t.Context(), "www.example.com"); err != nil || s.reports.IsListening() {
		t.Error("lookups work, and it does not listen:", err)
	}
}
