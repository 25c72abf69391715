package servertest

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// redisServer is the program that is tested: redis-server, or one that answers as it does.
func redisServer() string { return cmp.Or(os.Getenv("AMPCORS_REDIS"), "redis-server") }

// Redis starts Redis. Its data survives Stop and Kill.
func Redis(t testing.TB, args ...string) *Server {
	t.Helper()
	path := Program(t, "install Redis (Debian: apt-get install redis-server)", redisServer())
	dir := t.TempDir()
	s := &Server{stop: syscall.SIGTERM}
	s.command = func() *exec.Cmd {
		_, port, _ := net.SplitHostPort(s.Addr)
		return exec.Command(path, append([]string{"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "",
			"--appendonly",
			"yes", "--auto-aof-rewrite-percentage", "0",
			"--repl-diskless-sync-delay", "0", "--appendfsync", "no"}, // a killed process loses no writes: the system has them
			append(args, s.Args...)...)...)
	}
	s.ready = func() error {
		answer, err := RedisDo(s.Addr, "PING")
		if err == nil && strings.HasPrefix(answer, "LOADING") { // other errors are answers
			err = errors.New(answer)
		}
		return err
	}
	return s.begin(t)
}

// RedisReplica starts a replica of a server that [Redis] has started.
func RedisReplica(t testing.TB, master *Server, args ...string) *Server {
	t.Helper()
	host, port, _ := net.SplitHostPort(master.Addr)
	s := Redis(t, append([]string{"--replicaof", host + " " + port}, args...)...)
	_, own, _ := net.SplitHostPort(s.Addr)
	s.await("it follows its master", func() bool { // only then WAIT counts it
		info, _ := RedisDo(master.Addr, "INFO", "replication")
		return strings.Contains(info, "port="+own+",state=online")
	})
	return s
}

// RedisCluster starts a Redis Cluster of masters, each with one replica. Replica i follows
// master i at first. nodeTimeout is how long a node must be silent until it is replaced.
func RedisCluster(t testing.TB, masters int, nodeTimeout time.Duration) (nodes []*Server) {
	t.Helper()
	args := []string{"--cluster-enabled", "yes", "--cluster-node-timeout",
		strconv.FormatInt(nodeTimeout.Milliseconds(), 10),
		"--cluster-replica-validity-factor", "0", "--min-replicas-to-write", "0"}
	for range 2 * masters {
		nodes = append(nodes, Redis(t, args...))
	}
	do := func(node *Server, command ...string) string {
		t.Helper()
		answer, err := RedisDo(node.Addr, command...)
		if err != nil || strings.HasPrefix(answer, "ERR") {
			t.Fatalf("%q: %s, %v", command, answer, err)
		}
		return answer
	}
	const numSlots = 16384
	for i, node := range nodes[:masters] {
		do(node, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*numSlots/masters), strconv.Itoa((i+1)*numSlots/masters-1))
		do(node, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	for _, node := range nodes[1:] {
		host, port, _ := net.SplitHostPort(node.Addr)
		do(nodes[0], "CLUSTER", "MEET", host, port)
	}
	for i, node := range nodes[masters:] {
		master := do(nodes[i], "CLUSTER", "MYID")
		node.await("it follows its master", func() bool {
			answer, err := RedisDo(node.Addr, "CLUSTER", "REPLICATE", master) // fails until it knows the master
			return err == nil && answer == "OK"
		})
	}
	for _, node := range nodes {
		node.await("the cluster is complete", func() bool {
			info, _ := RedisDo(node.Addr, "CLUSTER", "INFO")
			list, _ := RedisDo(node.Addr, "CLUSTER", "NODES")
			role, _ := RedisDo(node.Addr, "INFO", "replication")
			return strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, fmt.Sprintf("cluster_size:%d", masters)) &&
				strings.Count(list, " slave ")+strings.Count(list, ",slave ") == masters &&
				(strings.Contains(role, "connected_slaves:1") || strings.Contains(role, "master_link_status:up"))
		})
	}
	return nodes
}

// RedisSentinel starts sentinels that watch the master at an address, by the name of
// "ampcors". They replace it if it is silent for downAfter.
func RedisSentinel(t testing.TB, master string, sentinels int, downAfter time.Duration) (all []*Server) {
	t.Helper()
	path := Program(t, "install Redis (Debian: apt-get install redis-server)", redisServer())
	host, port, _ := net.SplitHostPort(master)
	for range sentinels {
		s := &Server{stop: syscall.SIGTERM}
		config := filepath.Join(t.TempDir(), "sentinel.conf") // the sentinel writes to it
		s.command = func() *exec.Cmd {
			if _, err := os.Stat(config); err != nil {
				_, own, _ := net.SplitHostPort(s.Addr)
				text := fmt.Sprintf("port %s\nbind 127.0.0.1\nsentinel monitor ampcors %s %s %d\nsentinel "+
					"down-after-milliseconds ampcors %d\nsentinel failover-timeout ampcors 5000\n",
					own, host, port, sentinels/2+1, downAfter.Milliseconds())
				if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			return exec.Command(path, config, "--sentinel")
		}
		s.ready = func() error {
			_, err := RedisDo(s.Addr, "PING")
			return err
		}
		all = append(all, s.begin(t))
	}
	for _, s := range all {
		s.await("the sentinels know each other and a replica", func() bool {
			info, _ := RedisDo(s.Addr, "INFO", "sentinel")
			return strings.Contains(info, fmt.Sprintf("sentinels=%d", sentinels)) && strings.Contains(info, "slaves=1")
		})
	}
	return all
}

func (s *Server) await(what string, holds func() bool) {
	s.t.Helper()
	for begun := time.Now(); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			s.t.Fatalf("%s: not yet after a minute: %s; it wrote:\n%s", s.Addr, what, &s.output)
		}
	}
}

// RedisDo sends a command to a Redis on a connection of its own, and returns the answer,
// which must be one line, or one string. An error that Redis replies is returned as the
// answer, not as err.
func RedisDo(addr string, command ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, 30*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(command))
	for _, word := range command {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := conn.Write([]byte(b.String())); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSpace(line)
	if n, isString := strings.CutPrefix(line, "$"); isString {
		length, _ := strconv.Atoi(n)
		text := make([]byte, max(length, 0))
		_, err := io.ReadFull(r, text)
		return string(text), err
	}
	return line[1:], nil
}
