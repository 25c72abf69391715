package redissource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/source"
)

func newStore(t testing.TB, addr string, topology ...Topology) *Store {
	t.Helper()
	s, err := New(Config{Redis: rueidis.ClientOption{InitAddress: []string{addr}}, Topology: append(topology, "")[0],
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// newMiddleware returns a Middleware. Without options, no test runs as long as the TTL, so all
// changes are seen by messages.
func newMiddleware(t testing.TB, s *Store, options ...source.Config) *ampcors.Middleware {
	t.Helper()
	return servertest.Middleware(t, s.Database(), append(options, source.Config{TTL: time.Hour, NegativeTTL: time.Hour})[0])
}

// client returns the client, once it is connected.
func (s *Store) client(t testing.TB) rueidis.Client {
	t.Helper()
	client, err := s.open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// A stuckClient never answers, and ignores its context, as rueidis does while it connects to a node that hangs.
type stuckClient struct {
	rueidis.Client
	end chan struct{}
}

func (c stuckClient) Do(context.Context, rueidis.Completed) rueidis.RedisResult {
	<-c.end
	return rueidis.RedisResult{}
}

func (c stuckClient) Nodes() map[string]rueidis.Client { return map[string]rueidis.Client{"a": c} }

func (c stuckClient) DoMulti(context.Context, ...rueidis.Completed) []rueidis.RedisResult {
	<-c.end
	return nil
}

// Everything that asks Redis ends with its context, even if the client ignores it.
func TestTheContextIsObeyed(t *testing.T) {
	t.Parallel()
	s := newStore(t, servertest.Redis(t).Addr)
	end := make(chan struct{})
	stuck := &Store{link: link{client: stuckClient{s.client(t), end}}, reports: s.reports, topology: Standalone, publisher: s.publisher,
		hash: s.hash}
	defer close(end)
	for name, ask := range map[string]func(context.Context) error{
		"PublisherByDomain": func(ctx context.Context) error {
			_, err := stuck.Database().PublisherByDomain(ctx, "www.example.com")
			return err
		},
		"PublisherByHash": func(ctx context.Context) error {
			_, err := stuck.Database().PublisherByHash(ctx, strings.Repeat("a", 52))
			return err
		},
		"Ping":   stuck.Ping,
		"Add":    func(ctx context.Context) error { return stuck.Add(ctx, "www.example.com") },
		"Remove": func(ctx context.Context) error { return stuck.Remove(ctx, "www.example.com") },
		"Publishers": func(ctx context.Context) error {
			for _, err := range stuck.publishers(ctx) {
				return err
			}
			return nil
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- ask(ctx) }()
		select {
		case err := <-ended:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s does not end with its context", name)
		}
	}
}

func TestChangesAreSeenByEveryServer(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	writer := newStore(t, redis.Addr)
	var servers []*ampcors.Middleware
	for range 3 {
		servers = append(servers, newMiddleware(t, newStore(t, redis.Addr)))
	}
	ctx := t.Context()
	slowest := time.Duration(0)
	for i := range 20 {
		publisher := []string{"www.example.com", "BÜCHER.example", strings.Repeat("long-name.", 7) + "example"}[i%3]
		for _, want := range []bool{false, true, false} {
			var err error
			if want {
				err = writer.Add(ctx, publisher)
			} else {
				err = writer.Remove(ctx, publisher)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, mw := range servers {
				slowest = max(slowest, servertest.Seen(t, servertest.Soon, publisher, want, mw))
			}
		}
	}
	t.Logf("the slowest change was seen after %v", slowest)
}

// A key written by hand, such as with redis-cli, has the same effect.
func TestThePublishersKeyAloneDecides(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	s := newStore(t, redis.Addr)
	mw := newMiddleware(t, s)
	do := func(command ...string) {
		t.Helper()
		if err := s.client(t).Do(t.Context(), s.client(t).B().Arbitrary(command...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Add(t.Context(), "www.example.com"); err != nil {
		t.Fatal(err)
	}
	servertest.Seen(t, servertest.Soon, "www.example.com", true, mw)
	do("DEL", "ampcors:publisher:www.example.com") // but not the key of the hash prefix
	servertest.Seen(t, servertest.Soon, "www.example.com", false, mw)
	own, _ := cacheurl.HashPrefix("www.example.com")
	if domain, err := s.publisherByHash(t.Context(), own); domain != "" || err != nil {
		t.Errorf("the hash prefix gives %q, %v", domain, err)
	}
	do("SET", "ampcors:publisher:www.example.com", "by hand")
	servertest.Seen(t, servertest.Soon, "www.example.com", true, mw)
	do("PEXPIRE", "ampcors:publisher:www.example.com", "1")
	servertest.Seen(t, servertest.Soon, "www.example.com", false, mw) // expired

	if err := s.Add(t.Context(), "www.example.com"); err != nil {
		t.Fatal(err)
	}
	servertest.Seen(t, servertest.Soon, "www.example.com", true, mw)
	do("FLUSHALL")
	servertest.Seen(t, servertest.Soon, "www.example.com", false, mw)

	// A hash prefix whose key has another publisher's domain gives no access.
	hash, _ := cacheurl.HashPrefix("evil.example")
	if err := s.Add(t.Context(), "www.example.com"); err != nil {
		t.Fatal(err)
	}
	do("SET", "ampcors:hash:"+hash, "www.example.com")
	if d := mw.CheckOrigin("https://" + hash + ".cdn.ampproject.org"); d.Allowed || d.SourceErr == nil {
		t.Errorf("%+v", d)
	}
}

// A pattern is a key like a publisher's, without one for its hash prefix.
func TestAPatternIsAKey(t *testing.T) {
	t.Parallel()
	for _, topology := range []Topology{Standalone, Cluster} {
		t.Run(string(topology), func(t *testing.T) {
			t.Parallel()
			addr := servertest.Redis(t).Addr
			if topology == Cluster {
				addr = servertest.RedisCluster(t, 3, 5*time.Second)[0].Addr
			}
			s := newStore(t, addr, topology)
			mw := newMiddleware(t, s, source.Config{TTL: time.Hour, NegativeTTL: time.Hour, Patterns: true})
			servertest.Until(t, "it listens", servertest.Soon, s.reports.IsListening)
			for _, test := range []struct {
				change func(context.Context, ...string) error
				want   bool
			}{{s.Add, true}, {s.Remove, false}, {s.Add, true}} {
				if err := test.change(t.Context(), "*.Acme.example", "www.example.com"); err != nil {
					t.Fatal(err)
				}
				for _, origin := range []string{"https://www.acme.example", "https://a-b-acme-example.cdn.ampproject.org", "https://www.example.com"} {
					servertest.Until(t, origin, servertest.Soon, func() bool { return mw.CheckOrigin(origin).Allowed == test.want })
				}
			}
			var all []string
			for publisher, err := range s.Database().Publishers(t.Context()) {
				if all = append(all, publisher); err != nil {
					t.Fatal(err)
				}
			}
			if slices.Sort(all); !slices.Equal(all, []string{"*.acme.example", "www.example.com"}) {
				t.Errorf("%q", all)
			}
			for _, wrong := range []string{"*.*.example", "*.co.uk"} {
				if err := s.Add(t.Context(), wrong); err == nil {
					t.Errorf("no error for %s", wrong)
				}
			}
			s.replicas, s.timeout = 1, 100*time.Millisecond // only the Cluster has replicas
			for _, change := range []func(context.Context, ...string) error{s.Add, s.Remove} {
				if err := change(t.Context(), "*.acme.example"); topology != Cluster &&
					(err == nil || !strings.Contains(err.Error(), "0 of 1 replicas")) {
					t.Error(err)
				}
			}
		})
	}
}

func TestARestartIsSurvived(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	s := newStore(t, redis.Addr)
	mw := newMiddleware(t, s)
	if err := s.Add(t.Context(), "a.example", "b.example"); err != nil {
		t.Fatal(err)
	}
	servertest.Seen(t, servertest.Soon, "a.example", true, mw)
	redis.Kill()
	if d := mw.CheckOrigin("https://a.example"); !d.Allowed { // the last answer
		t.Errorf("%+v", d)
	}
	if d := mw.CheckOrigin("https://b.example"); d.Reason != ampcors.ReasonSourceUnavailable {
		t.Errorf("%+v", d)
	}
	if d := mw.CheckOrigin("https://c.example"); d.Reason != ampcors.ReasonSourceUnavailable {
		t.Errorf("%+v", d)
	}
	redis.Start()
	// Another server's source revokes it before this one is connected again.
	if err := newStore(t, redis.Addr).Remove(t.Context(), "a.example"); err != nil {
		t.Fatal(err)
	}
	servertest.Seen(t, servertest.Soon, "a.example", false, mw)
	servertest.Seen(t, servertest.Soon, "b.example", true, mw)
	servertest.Seen(t, servertest.Soon, "c.example", false, mw)
	// Messages arrive again.
	if err := newStore(t, redis.Addr).Remove(t.Context(), "b.example"); err != nil {
		t.Fatal(err)
	}
	servertest.Seen(t, servertest.Soon, "b.example", false, mw)
}

// When a server learns of a new publisher, the hash prefix exists too.
func TestTheHashPrefixIsWrittenBeforeThePublisher(t *testing.T) {
	t.Parallel()
	s := newStore(t, servertest.Redis(t).Addr)
	told := make(chan string, 2*batch)
	defer s.listeners.Notify(func(domains ...string) {
		for _, domain := range domains {
			told <- domain
		}
	})()
	publishers := make([]string, batch)
	for i := range publishers {
		publishers[i] = fmt.Sprintf("www.site-%d.example", i)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range batch / 8 {
				domain := <-told
				hash, _ := cacheurl.HashPrefix(domain)
				if got, err := s.publisherByHash(t.Context(), hash); got != domain || err != nil {
					t.Errorf("%s was reported, but its hash prefix gives %q, %v", domain, got, err)
				}
			}
		})
	}
	if err := s.Add(t.Context(), publishers...); err != nil {
		t.Fatal(err)
	}
	group.Wait()
}

func TestManyPublishersAreWrittenInBatches(t *testing.T) {
	t.Parallel()
	s := newStore(t, servertest.Redis(t).Addr)
	publishers := make([]string, 2*batch+1)
	for i := range publishers {
		publishers[i] = fmt.Sprintf("www.site-%d.example", i)
	}
	count := func() int64 {
		n, err := s.client(t).Do(t.Context(), s.client(t).B().Dbsize().Build()).AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := s.Add(t.Context(), publishers...); err != nil || count() != int64(2*len(publishers)) {
		t.Errorf("%v; %d keys", err, count())
	}
	if got, err := s.publisherByDomain(t.Context(), publishers[2*batch]); got != publishers[2*batch] || err != nil {
		t.Error(got, err)
	}
	if err := s.Add(t.Context(), "a.example", "https://b.example", "c"); err == nil || strings.Count(err.Error(), "\n") != 1 ||
		count() != int64(2*len(publishers)) {
		t.Errorf("%v; %d keys", err, count())
	}
	if err := s.Remove(t.Context(), publishers...); err != nil || count() != 0 {
		t.Errorf("%v; %d keys", err, count())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Add(ctx, "a.example"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestPingReportsWhetherRedisAnswers(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	s := newStore(t, redis.Addr)
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	redis.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := s.Ping(ctx); err == nil || !strings.HasPrefix(err.Error(), "redissource: ") {
		t.Errorf("Redis is stopped, but: %v", err)
	}
}

func TestAWrongConfigIsReported(t *testing.T) {
	_, err := New(Config{Redis: rueidis.ClientOption{
		ClientTrackingOptions: []string{"OPTIN"}, OnInvalidations: func([]rueidis.RedisMessage) {}, DisableCache: true, AlwaysRESP2: true,
		ReplicaOnly:           true,
		DisableAutoPipelining: true, Dialer: net.Dialer{KeepAlive: -1},
	}, Replicas: -1, ReplicaTimeout: time.Microsecond})
	if err == nil || strings.Count(err.Error(), "\n") != 9 {
		t.Error(err)
	}
	for want, cfg := range map[string]Config{
		`Topology "ring" is unknown; want "standalone", "cluster" or "sentinel"`: {Redis: rueidis.ClientOption{InitAddress: []string{"a:1"}},
			Topology: "ring"},
		`has 2 addresses, and Topology is "standalone"`: {Redis: rueidis.ClientOption{InitAddress: []string{"a:1", "b:1"}}},
		`want a MasterSet with Sentinel`:                {Redis: rueidis.ClientOption{InitAddress: []string{"a:1"}}, Topology: Sentinel},
		`and none without`: {Redis: rueidis.ClientOption{InitAddress: []string{"a:1"},
			Sentinel: rueidis.SentinelOption{MasterSet: "x"}}, Topology: Cluster},
		`ReplicaTimeout "1s" is set, and Replicas is 0`: {Redis: rueidis.ClientOption{InitAddress: []string{"a:1"}},
			ReplicaTimeout: time.Second},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

func TestAnotherKeyPrefixIsAnotherAllowlist(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	a := newStore(t, redis.Addr)
	b, err := New(Config{Redis: rueidis.ClientOption{InitAddress: []string{redis.Addr}}, KeyPrefix: "other:"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	mw := newMiddleware(t, b)
	if err := a.Add(t.Context(), "a.example"); err != nil {
		t.Fatal(err)
	}
	servertest.Seen(t, servertest.Soon, "a.example", false, mw)
	if err := b.Add(t.Context(), "a.example"); err != nil {
		t.Fatal(err)
	}
	servertest.Seen(t, servertest.Soon, "a.example", true, mw)
}

// A key that has expired is forgotten at once, though Redis has not removed it, and so has reported nothing.
func TestAnExpiredKeyIsForgotten(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t, "--enable-debug-command", "yes")
	if answer, err := servertest.RedisDo(redis.Addr, "DEBUG", "SET-ACTIVE-EXPIRE", "0"); answer != "OK" || err != nil {
		t.Fatal(answer, err)
	}
	s := newStore(t, redis.Addr)
	mw := newMiddleware(t, s)
	servertest.Until(t, "it listens", servertest.Soon, s.reports.IsListening)
	for _, expiry := range []string{"60000", "1000"} { // the second replaces the first
		if answer, err := servertest.RedisDo(redis.Addr, "SET", "ampcors:publisher:www.example.com", "1", "PX", expiry); answer != "OK" ||
			err != nil {
			t.Fatal(answer, err)
		}
		if !mw.CheckOrigin("https://www.example.com").Allowed {
			t.Error("not allowed before its key expires")
		}
	}
	servertest.Until(t, "it is denied", servertest.Soon, func() bool { return !mw.CheckOrigin("https://www.example.com").Allowed })
	s.expires("www.example.com", time.Hour)
	s.Close()
	if s.expiry["www.example.com"] != nil {
		t.Error("a timer is left")
	}
}
