package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/rueidis"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/source/pgsource"
)

// TestDatabasesThatFailOver is like TestAMillionPublishersOnThreeServers, with databases
// whose standbys take over, and with MariaDB.
func TestDatabasesThatFailOver(t *testing.T) {
	if os.Getenv("AMPCORS_CI") == "" {
		t.Skip("takes a minute; set AMPCORS_CI=1")
	}
	binary := buildServer(t)
	const publishers = 20_000
	comeAndGo := phase{title: "publishers come and go", run: (*cluster).comeAndGo}
	again := phase{title: "publishers come and go again", run: (*cluster).comeAndGo}

	t.Run("Redis Cluster", func(t *testing.T) {
		t.Parallel()
		cli := servertest.Program(t, "install Redis's tools (Debian: apt-get install redis-tools)", "redis-cli")
		nodes := servertest.RedisCluster(t, 3, 5*time.Second)
		addrs := addressesOf(nodes)
		runCluster(t, binary, engine{
			store:      newRedisStoreOf(t, rueidis.ClientOption{InitAddress: addrs[:1]}, addrs, "-cluster", "-redis", strings.Join(addrs, ",")),
			publishers: publishers,
			workers:    2, // as the tests run in parallel
			goroutines: 6, // it connects to more nodes
			phases: []phase{
				comeAndGo,
				{title: "a master killed, and its replica takes over", isStale: true, run: func(c *cluster) string {
					nodes[0].Kill()
					recovered := c.recovery(1)
					c.await(nodes[3], "INFO", "replication", "role:master")
					nodes[0].Start()
					return "works again after " + round(recovered)
				}},
				{title: "manual failover to a replica", run: func(c *cluster) string {
					begun := time.Now()
					c.await(nodes[4], "CLUSTER", "FAILOVER", "OK")
					c.await(nodes[4], "INFO", "replication", "role:master")
					return "done after " + round(time.Since(begun))
				}},
				{title: "2,000 hash slots moved to another master", run: func(c *cluster) string {
					begun := time.Now()
					servertest.Until(c.T, "the nodes agree", time.Minute,
						func() bool { return exec.Command(cli, "--cluster", "check", addrs[2]).Run() == nil })
					out, err := exec.Command(cli, "--cluster", "reshard", addrs[2], "--cluster-from", c.id(nodes[2]), "--cluster-to", c.id(nodes[4]),
						"--cluster-slots", "2000", "--cluster-yes").CombinedOutput()
					if err != nil {
						c.Errorf("%v\n%s", err, out)
					}
					return "done after " + round(time.Since(begun))
				}},
				again,
			},
		})
	})

	t.Run("Redis Sentinel", func(t *testing.T) {
		t.Parallel()
		a := servertest.Redis(t)
		// All but the replica reach the master through a link.
		cutoff := newLink(t, a.Addr)
		_, port, _ := net.SplitHostPort(cutoff.addr)
		for _, set := range [][]string{{"replica-announce-ip", "127.0.0.1"}, {"replica-announce-port", port}} {
			if answer, err := servertest.RedisDo(a.Addr, "CONFIG", "SET", set[0], set[1]); answer != "OK" || err != nil {
				t.Fatal(answer, err)
			}
		}
		b := servertest.RedisReplica(t, a)
		sentinels := addressesOf(servertest.RedisSentinel(t, cutoff.addr, 3, 5*time.Second))
		option := rueidis.ClientOption{InitAddress: sentinels, Sentinel: rueidis.SentinelOption{MasterSet: "ampcors"}}
		becomesMaster := func(c *cluster, server *servertest.Server, phase int) string {
			begun := time.Now()
			c.await(server, "INFO", "replication", "role:master")
			promoted := time.Since(begun)
			return fmt.Sprintf("the replica is promoted after %s; works again after %s more", round(promoted), round(c.recovery(phase)))
		}
		runCluster(t, binary, engine{
			store:      newRedisStoreOf(t, option, []string{a.Addr, b.Addr}, "-redis", strings.Join(sentinels, ","), "-sentinel", "ampcors"),
			publishers: publishers,
			workers:    2, // as the tests run in parallel
			phases: []phase{
				comeAndGo,
				{title: "master cut off", isStale: true, run: func(c *cluster) string {
					cutoff.cut()
					remark := becomesMaster(c, b, 1)
					cutoff.restore()
					c.await(a, "INFO", "replication", "master_link_status:up") // it becomes the replica
					return remark
				}},
				{title: "master killed", isStale: true, run: func(c *cluster) string {
					b.Kill()
					remark := becomesMaster(c, a, 2)
					b.Start()
					c.await(b, "INFO", "replication", "master_link_status:up")
					return remark
				}},
				{title: "master frozen", isStale: true, run: func(c *cluster) string {
					a.Freeze()
					remark := becomesMaster(c, b, 3)
					a.Thaw()
					c.await(a, "INFO", "replication", "master_link_status:up")
					return remark
				}},
				again,
			},
		})
	})

	t.Run("PostgreSQL with notifications", func(t *testing.T) {
		t.Parallel()
		primary := servertest.Postgres(t)
		store := newNotifyingStore(t, primary)
		runCluster(t, binary, engine{
			store:      store,
			publishers: publishers,
			workers:    2, // as the tests run in parallel
			phases: []phase{
				comeAndGo,
				{title: "all connections closed by the database, again and again", run: func(c *cluster) string {
					n, slowest := 0, time.Duration(0)
					for begun := time.Now(); time.Since(begun) < 3*time.Second; n++ {
						result, err := store.db.ExecContext(c.Context(),
							"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
						if err != nil {
							c.Error(err)
						} else if closed, err := result.RowsAffected(); closed == 0 || err != nil {
							c.Errorf("%d connections were closed: %v", closed, err)
						}
						slowest = max(slowest, c.toggle(n%numToggled, false, c.nodes), c.toggle(n%numToggled, true, c.nodes))
					}
					return fmt.Sprintf("%d times; a revocation was seen by all after %s at most", n, round(slowest))
				}},
				{title: "primary killed, and its standby promoted", isStale: true, run: func(c *cluster) string {
					servertest.Until(c.T, "the standby has all", time.Minute, func() (isEqual bool) {
						err := store.db.QueryRowContext(c.Context(), "SELECT replay_lsn >= pg_current_wal_lsn() FROM pg_stat_replication").Scan(&isEqual)
						return err == nil && isEqual
					})
					primary.Kill()
					time.Sleep(time.Second)
					store.standby.Promote()
					return "works again after " + round(c.recovery(1))
				}},
				again,
			},
		})
	})

	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		db := servertest.MariaDB(t)
		runCluster(t, binary, engine{
			store:      newMariaStore(t, db.Addr),
			db:         db,
			publishers: publishers,
			workers:    2,  // as the tests run in parallel
			goroutines: 16, // the driver has one for each connection
			phases: []phase{
				comeAndGo,
				{title: "database stopped and started", run: (*cluster).stopDatabase, isStale: true},
				{title: "all servers cut off from the database", run: (*cluster).cutAll, isStale: true},
				again,
			},
		})
	})
}

func addressesOf(servers []*servertest.Server) (addrs []string) {
	for _, s := range servers {
		addrs = append(addrs, s.Addr)
	}
	return addrs
}

// await sends a command to a Redis until the answer contains what is wanted, which is the
// last argument.
func (c *cluster) await(server *servertest.Server, command ...string) {
	c.Helper()
	last := len(command) - 1
	servertest.Until(c.T, fmt.Sprintf("%q", command), patience, func() bool {
		answer, err := servertest.RedisDo(server.Addr, command[:last]...)
		return err == nil && strings.Contains(answer, command[last])
	})
}

func (c *cluster) id(server *servertest.Server) string {
	id, err := servertest.RedisDo(server.Addr, "CLUSTER", "MYID")
	if err != nil {
		c.Fatal(err)
	}
	return id
}

// A notifyingStore is a PostgreSQL with a standby and the triggers of pgsource.
type notifyingStore struct {
	*postgresStore
	primary, standby *servertest.Server
}

func newNotifyingStore(t *testing.T, primary *servertest.Server) *notifyingStore {
	return &notifyingStore{newPostgresStore(t, primary.Addr), primary, nil}
}

// fill fills the primary, and starts the standby.
func (s *notifyingStore) fill(t *testing.T, publishers []string) {
	s.postgresStore.fill(t, publishers)
	source, err := pgsource.New(pgsource.Config{ConnString: servertest.DSN(s.primary.Addr)})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	if err := source.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.standby = servertest.PostgresStandby(t, s.primary)
	both, err := pgx.ParseConfig(servertest.DSN(s.primary.Addr, s.standby.Addr))
	if err != nil {
		t.Fatal(err)
	}
	s.postgresStore.use(t, both)
}

func (s *notifyingStore) flags(string) []string {
	return []string{"-notifying-postgres", servertest.DSN(s.primary.Addr, s.standby.Addr), "-ttl", "2s"} // a change does not wait for it
}

// A mariaStore is a MariaDB.
type mariaStore struct{ sqlStore }

func newMariaStore(t *testing.T, addr string) *mariaStore {
	return &mariaStore{sqlStore{
		db:     open(t, "mysql", mariaDSN(addr)),
		insert: "INSERT INTO publishers VALUES (?, ?)",
		remove: "DELETE FROM publishers WHERE domain = ?",
		count:  "SELECT count(*) FROM information_schema.processlist WHERE command <> 'Daemon' AND id <> connection_id()",
	}}
}

func mariaDSN(addr string) string { return "root@tcp(" + addr + ")/test" }

func (s *mariaStore) flags(addr string) []string {
	return []string{"-mariadb", mariaDSN(addr), "-ttl", sqlTTL.String()}
}

func (s *mariaStore) fill(t *testing.T, publishers []string) {
	if _, err := s.db.ExecContext(t.Context(), documentedTable(t, "MySQL and MariaDB")); err != nil {
		t.Fatal(err)
	}
	for part := range slices.Chunk(publishers, 1000) {
		var args []any
		for _, publisher := range part {
			prefix, err := cacheurl.HashPrefix(publisher)
			if err != nil {
				t.Fatal(err)
			}
			args = append(args, publisher, prefix)
		}
		if _, err := s.db.ExecContext(t.Context(), s.insert+strings.Repeat(", (?, ?)", len(part)-1), args...); err != nil {
			t.Fatal(err)
		}
	}
}
