package redissource

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/ampcors/ampcors/internal/servertest"
)

func newReplicated(t testing.TB, replicas int, timeout time.Duration, addrs ...string) *Store {
	t.Helper()
	cfg := Config{Redis: rueidis.ClientOption{InitAddress: addrs}, Replicas: replicas, ReplicaTimeout: timeout}
	if info, err := servertest.RedisDo(addrs[0], "INFO", "cluster"); err != nil {
		t.Fatal(err)
	} else if strings.Contains(info, "cluster_enabled:1") {
		cfg.Topology = Cluster
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// When Add or Remove returns nil, the replica has the change, so that the loss of the master
// does not undo it. That also holds for a repeated call.
func TestAChangeHasReachedTheReplica(t *testing.T) {
	t.Parallel()
	master := servertest.Redis(t)
	replica := servertest.RedisReplica(t, master)
	s := newReplicated(t, 1, time.Minute, master.Addr)
	ctx := t.Context()
	onReplica := func(domain string) string {
		n, err := servertest.RedisDo(replica.Addr, "EXISTS", "ampcors:publisher:"+domain)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	for i := range 50 {
		domain := fmt.Sprintf("www.site-%d.example", i)
		if err := s.Add(ctx, domain); err != nil || onReplica(domain) != "1" {
			t.Fatalf("added, but the replica has %s; %v", onReplica(domain), err)
		}
		if err := s.Remove(ctx, domain); err != nil || onReplica(domain) != "0" {
			t.Fatalf("removed, but the replica has %s; %v", onReplica(domain), err)
		}
	}
	if err := s.Add(ctx, "www.example.com"); err != nil {
		t.Fatal(err)
	}
	replica.Freeze()
	impatient := newReplicated(t, 1, time.Second, master.Addr)
	for _, change := range []func(context.Context, ...string) error{impatient.Remove, impatient.Remove, impatient.Add, impatient.Add} {
		if err := change(ctx, "www.example.com"); err == nil || !strings.Contains(err.Error(), "0 of 1 replicas") {
			t.Errorf("the replica is frozen, but: %v", err)
		}
	}
	replica.Thaw()
	if err := s.Remove(ctx, "www.example.com"); err != nil || onReplica("www.example.com") != "0" {
		t.Errorf("%v; the replica has %s", err, onReplica("www.example.com"))
	}
	if err := newReplicated(t, 2, time.Second, master.Addr).Remove(ctx, "www.example.com"); err == nil ||
		!strings.Contains(err.Error(), "1 of 2 replicas") {
		t.Errorf("there is one replica, but: %v", err)
	}
}

func list(t *testing.T, s *Store) (names []string) {
	t.Helper()
	for name, err := range s.publishers(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestPublishersListsAll(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	for _, prefix := range []string{"ampcors:", `a*[b]?\:`} {
		s, err := New(Config{Redis: rueidis.ClientOption{InitAddress: []string{redis.Addr}}, KeyPrefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		want := make([]string, 2500)
		for i := range want {
			want[i] = fmt.Sprintf("www.site-%d.example", i)
		}
		slices.Sort(want)
		if err := s.Add(t.Context(), want...); err != nil {
			t.Fatal(err)
		}
		if got := list(t, s); !slices.Equal(got, want) {
			t.Errorf("%d publishers are listed; want %d", len(got), len(want))
		}
		for range s.publishers(t.Context()) {
			break // a caller may stop
		}
	}
	s := newStore(t, redis.Addr)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if !fails(ctx, s) {
		t.Error("no error after a cancel")
	}
}

// fails reports whether a list ends with an error.
func fails(ctx context.Context, s *Store) bool {
	for _, err := range s.publishers(ctx) {
		if err != nil {
			return true
		}
	}
	return false
}

// A list that may be incomplete is an error, and not a list without publishers.
func TestAListWithoutEachMasterFails(t *testing.T) {
	t.Parallel()
	master := servertest.Redis(t)
	replica := servertest.RedisReplica(t, master)
	if s := newStore(t, replica.Addr); !fails(t.Context(), s) {
		t.Error("a replica alone gives a list")
	}
	if s := newStore(t, master.Addr); fails(t.Context(), s) {
		t.Error("a master gives no list")
	}
	nodes := servertest.RedisCluster(t, 3, time.Minute)
	s := newStore(t, nodes[0].Addr, Cluster)
	want := []string{"a.example", "b.example", "c.example", "d.example", "e.example", "f.example"} // on all masters
	if err := s.Add(t.Context(), want...); err != nil {
		t.Fatal(err)
	}
	var got []string
	for domain, err := range s.publishers(t.Context()) {
		if err != nil {
			t.Error(err)
		}
		got = append(got, domain)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("a complete cluster lists %q", got)
	}
	if answer, err := servertest.RedisDo(nodes[1].Addr, "CLUSTER", "DELSLOTS", "7000"); answer != "OK" || err != nil {
		t.Fatal(answer, err)
	}
	if !fails(t.Context(), s) {
		t.Error("a cluster without one slot gives a list")
	}
}

// A publisher can be revoked while Redis has no memory left.
func TestRemoveWorksWithoutMemory(t *testing.T) {
	t.Parallel()
	master := servertest.Redis(t)
	servertest.RedisReplica(t, master)
	s := newReplicated(t, 1, time.Minute, master.Addr)
	if err := s.Add(t.Context(), "www.example.com"); err != nil {
		t.Fatal(err)
	}
	if answer, err := servertest.RedisDo(master.Addr, "CONFIG", "SET", "maxmemory", "1"); answer != "OK" || err != nil {
		t.Fatal(answer, err)
	}
	if err := s.Add(t.Context(), "www.other.example"); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("Redis has memory left: %v", err)
	}
	if err := s.Remove(t.Context(), "www.example.com"); err != nil {
		t.Error(err)
	}
	if got, err := s.publisherByDomain(t.Context(), "www.example.com"); got != "" || err != nil {
		t.Error(got, err)
	}
}

func TestAClusterListsPublishersAndReportsChanges(t *testing.T) {
	t.Parallel()
	nodes := servertest.RedisCluster(t, 3, 5*time.Second)
	s := newReplicated(t, 1, time.Minute, nodes[0].Addr)
	mw := newMiddleware(t, s)
	ctx := t.Context()
	want := make([]string, 300)
	shards := make(map[int]bool)
	for i := range want {
		want[i] = fmt.Sprintf("www.site-%d.example", i)
		shards[s.shard(want[i])] = true
	}
	slices.Sort(want)
	if s.Database().Shards != numShards || len(shards) < numShards/2 {
		t.Errorf("%d shards, of which %d publishers use %d", s.Database().Shards, len(want), len(shards))
	}
	if err := s.Add(ctx, want...); err != nil {
		t.Fatal(err)
	}
	if got := list(t, s); !slices.Equal(got, want) {
		t.Errorf("%d publishers are listed; want %d", len(got), len(want))
	}
	servertest.Seen(t, servertest.Soon, want[0], true, mw)
	if err := s.Remove(ctx, want...); err != nil {
		t.Fatal(err)
	}
	servertest.Seen(t, servertest.Soon, want[0], false, mw)
	if got := list(t, s); len(got) != 0 {
		t.Errorf("%q are listed", got)
	}

	// The key of the hash prefix alone has no effect.
	if err := s.Add(ctx, "www.example.com"); err != nil {
		t.Fatal(err)
	}
	if err := s.client(t).Do(ctx, s.client(t).B().Del().Key("ampcors:publisher:www.example.com").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	servertest.Seen(t, servertest.Soon, "www.example.com", false, mw)
}

// A master that takes a hash slot without its keys reports nothing. What was remembered of the slot is looked up again.
func TestASlotThatMovesWithoutItsKeys(t *testing.T) {
	t.Parallel()
	nodes := servertest.RedisCluster(t, 3, time.Minute)
	do := func(node *servertest.Server, command ...string) string {
		answer, err := servertest.RedisDo(node.Addr, command...)
		if err != nil {
			t.Fatalf("%q: %v", command, err)
		}
		return answer
	}
	s := newStore(t, nodes[0].Addr, Cluster)
	mw := newMiddleware(t, s)
	servertest.Until(t, "it listens", servertest.Soon, s.reports.IsListening)
	if err := s.Add(t.Context(), "www.example.com"); err != nil {
		t.Fatal(err)
	}
	servertest.Seen(t, servertest.Soon, "www.example.com", true, mw)
	slot := do(nodes[0], "CLUSTER", "KEYSLOT", "ampcors:publisher:www.example.com")
	for _, node := range nodes {
		if do(node, "CLUSTER", "COUNTKEYSINSLOT", slot) == "0" {
			do(node, "CLUSTER", "SETSLOT", slot, "IMPORTING", do(nodes[0], "CLUSTER", "MYID"))
			do(node, "CLUSTER", "SETSLOT", slot, "NODE", do(node, "CLUSTER", "MYID"))
			do(node, "CLUSTER", "BUMPEPOCH")
			break
		}
	}
	servertest.Seen(t, servertest.Soon, "www.example.com", false, mw)
}

func TestSlotsThatMove(t *testing.T) {
	t.Parallel()
	s, now := new(Store), time.Now()
	for i, test := range []struct {
		masters map[string][][2]int
		after   time.Duration
		want    bool
	}{
		{map[string][][2]int{"a": {{0, 99}}, "b": {{100, numSlots - 1}}}, 0, false}, // the first look
		{map[string][][2]int{"a": {{0, 99}}}, 0, false},                             // b is not known now
		{map[string][][2]int{"a": {{0, 100}}, "b": {{101, numSlots - 1}}}, 0, true},
		{map[string][][2]int{"a": {{0, 101}}, "b": {{102, numSlots - 1}}}, time.Second, false}, // later
		{map[string][][2]int{"a": {{0, 101}}, "b": {{102, numSlots - 1}}}, movedEvery, true},
		{map[string][][2]int{"a": {{0, 101}, {-1, 0}}, "b": {{102, numSlots}}}, 2 * movedEvery, false},
	} {
		if got := s.haveMoved(test.masters, now.Add(test.after)); got != test.want {
			t.Errorf("%d: %t", i, got)
		}
	}
}
