package redissource

import (
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/source"
)

// TestARedisThatComesBackChanged: a Redis that answers is not one that answers lookups and reports changes. For each change, the
// Store says that it is not listening, and why, until Redis is as before.
func TestARedisThatComesBackChanged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string // of Redis when it comes back
		want string   // in the cause
	}{
		"another password":          {[]string{"--requirepass", "other"}, "NOAUTH"},
		"in cluster mode":           {[]string{"--cluster-enabled", "yes"}, "CLUSTERDOWN"},
		"no client-side caching":    {strings.Fields("--user default on nopass ~* &* +@all -client|tracking"), "client|tracking"},
		"no lookups":                {strings.Fields("--user default on nopass ~* &* +@all -exists"), "NOPERM"},
		"as the replica of another": {strings.Fields("--replicaof 127.0.0.1 1 --replica-serve-stale-data no"), "MASTERDOWN"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := servertest.Redis(t)
			log := new(servertest.Buffer)
			s, err := New(Config{Redis: rueidis.ClientOption{InitAddress: []string{redis.Addr}}, Logger: slog.New(slog.NewTextHandler(log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := s.Add(t.Context(), "www.example.com"); err != nil {
				t.Fatal(err)
			}
			servertest.Until(t, "it listens", servertest.Soon, s.reports.IsListening)
			redis.Stop()
			redis.Args = test.args
			redis.Start()
			servertest.Until(t, "it says "+test.want, servertest.Soon, func() bool { return strings.Contains(log.String(), test.want) })
			if err := s.Ping(t.Context()); s.reports.IsListening() || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("listening: %t; Ping: %v", s.reports.IsListening(), err)
			}
			if n := strings.Count(log.String(), "msg=\"ampcors: listening"); n != 1 {
				t.Errorf("it said %d times that it listens:\n%s", n, log)
			}
			redis.Stop()
			redis.Args = nil
			redis.Start()
			servertest.Until(t, "it listens again", servertest.Soon, s.reports.IsListening)
			mw := servertest.Middleware(t, s.Database(), source.Config{TTL: time.Hour, NegativeTTL: time.Hour})
			servertest.Seen(t, servertest.Soon, "www.other.example", false, mw)
			if err := s.Add(t.Context(), "www.other.example"); err != nil {
				t.Fatal(err)
			}
			servertest.Seen(t, servertest.Soon, "www.other.example", true, mw)
		})
	}
}

// TestAClusterWithADeadMasterIsNotListening: no replica takes over, so nobody reports changes of a third of the publishers, also
// once the other nodes know that the master is dead, and once rueidis has given up its connection.
func TestAClusterWithADeadMasterIsNotListening(t *testing.T) {
	t.Parallel()
	nodes := servertest.RedisCluster(t, 3, time.Second)
	for _, node := range nodes {
		if answer, err := servertest.RedisDo(node.Addr, "CONFIG", "SET", "cluster-replica-no-failover", "yes"); answer != "OK" || err != nil {
			t.Fatal(answer, err)
		}
	}
	log := new(servertest.Buffer)
	s, err := New(Config{Redis: rueidis.ClientOption{InitAddress: []string{nodes[0].Addr}}, Topology: Cluster,
		Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	servertest.Until(t, "it listens", servertest.Soon, s.reports.IsListening)
	begun := time.Now()
	nodes[1].Kill()
	servertest.Until(t, "it does not listen", servertest.Soon, func() bool { return !s.reports.IsListening() })
	t.Logf("after %v", time.Since(begun).Round(time.Millisecond))
	servertest.Until(t, "the others know that it is dead", servertest.Soon, func() bool {
		state, _ := servertest.RedisDo(nodes[0].Addr, "CLUSTER", "NODES")
		return strings.Contains(state, "master,fail ") || strings.Contains(state, "master,fail,") // then nofailover, if it had time to say so
	})
	for range 20 { // of its looks
		if o := s.look(t.Context(), s.client(t)); o == nil {
			t.Fatal("a look finds nothing wrong")
		}
		_, _ = s.Database().PublisherByDomain(t.Context(), "www.example.com") // rueidis learns by lookups
		if s.reports.IsListening() {
			t.Fatal("it says that it listens")
		}
		time.Sleep(pingEvery)
	}
	if n := strings.Count(log.String(), "msg=\"ampcors: listening"); n != 1 {
		t.Errorf("it said %d times that it listens:\n%s", n, log)
	}
	nodes[1].Start()
	servertest.Until(t, "it listens again", servertest.Soon, s.reports.IsListening)
}

// TestAHealthyClusterIsListening: also if all keys are in one slot, and while a slot moves.
func TestAHealthyClusterIsListening(t *testing.T) {
	t.Parallel()
	nodes := servertest.RedisCluster(t, 3, time.Minute)
	for _, prefix := range []string{"", "{ampcors}:"} {
		s, err := New(Config{Redis: rueidis.ClientOption{InitAddress: []string{nodes[0].Addr}}, Topology: Cluster, KeyPrefix: prefix,
			Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		servertest.Until(t, "it listens", servertest.Soon, s.reports.IsListening)
		if prefix != "" {
			continue
		}
		var ids []string
		for _, node := range nodes[:2] {
			id, err := servertest.RedisDo(node.Addr, "CLUSTER", "MYID")
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		slot := strconv.Itoa(hashSlot(s.keyIn([][2]int{{0, numSlots/3 - 1}}))) // that look asks for
		for i, command := range [][]string{{"CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1]}, {"CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0]}} {
			if answer, err := servertest.RedisDo(nodes[i].Addr, command...); answer != "OK" || err != nil {
				t.Fatal(answer, err)
			}
		}
		if o := s.look(t.Context(), s.client(t)); o != nil {
			t.Error(o.err)
		}
		if err := s.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		for i, id := range ids {
			if answer, err := servertest.RedisDo(nodes[i].Addr, "CLUSTER", "SETSLOT", slot, "STABLE"); answer != "OK" || err != nil {
				t.Fatal(id, answer, err)
			}
		}
	}
}
