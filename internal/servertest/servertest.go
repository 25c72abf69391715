// Package servertest starts the servers that tests need, where they are installed.
package servertest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Program returns the path of the first of these programs that is installed. If none is, it
// calls Missing.
func Program(t testing.TB, install string, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	Missing(t, install)
	return ""
}

// Missing skips a test that needs something that is not installed. In CI, which installs
// everything, the test fails.
func Missing(t testing.TB, install string) {
	t.Helper()
	if os.Getenv("AMPCORS_CI") != "" {
		t.Fatal(install)
	}
	t.Skip(install)
}

// OneListener waits until one socket listens at the port of an address. A server that takes another configuration,
// as Caddy does, opens a second one and then closes the first, with the connections that it has not accepted. So a
// request of that moment would be reset. Where the system has no /proc/net/tcp, it does not wait.
func OneListener(t testing.TB, addr string) {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	// The columns: number, address, remote address, state. 0A is LISTEN.
	listener := regexp.MustCompile(fmt.Sprintf(`:%04X 0+:0000 0A `, n))
	for t.Context().Err() == nil {
		ipv4, err := os.ReadFile("/proc/net/tcp")
		if os.IsNotExist(err) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		ipv6, err := os.ReadFile("/proc/net/tcp6")
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if len(listener.FindAll(append(ipv4, ipv6...), -1)) == 1 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// FreeAddress returns an address on loopback at which nothing listens. Its port is below 32768. Systems
// choose the ports of outgoing connections, and of listeners at port 0, above that. So none of them can
// take this port before the test's program listens, or while it starts again. The same is true of the port
// 10000 above it, at which a node of a Redis Cluster also listens. Browsers block no port above 10080.
func FreeAddress(t testing.TB) string {
	t.Helper()
	var err error
	for range 100 {
		var l net.Listener
		port := 11000 + os.Getpid()%100*100 + int(drawn.Add(1)%100) // other packages have theirs
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal(err)
	return ""
}

// drawn is how many ports this process has tried.
var drawn atomic.Int64

// A Server is a program that listens at an address on loopback. It ends with the test.
type Server struct {
	Addr string
	Args []string // further ones of Redis, from the next Start on

	t         testing.TB
	command   func() *exec.Cmd
	ready     func() error
	stop      syscall.Signal // for a graceful shutdown
	promote   func() *exec.Cmd
	configure func()                 // writes the file of PgBouncer
	behind    atomic.Pointer[Server] // of PgBouncer

	cmd    *exec.Cmd
	ended  chan struct{}
	output Buffer
}

// A Buffer is a bytes.Buffer that is safe for concurrent use by multiple goroutines.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *Buffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *Buffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Start starts the program and waits until it is ready.
func (s *Server) Start() {
	s.t.Helper()
	begun := time.Now()
	for {
		s.launch()
		for {
			select {
			case <-s.ended:
			default:
				if s.ready() == nil {
					return
				}
				if time.Since(begun) > time.Minute {
					s.t.Fatalf("%s is not ready; it wrote:\n%s", s.cmd.Path, &s.output)
				}
				time.Sleep(10 * time.Millisecond)
				continue
			}
			break
		}
		// After a kill, the old process may still hold its port or files for a moment.
		if time.Since(begun) > 20*time.Second {
			s.t.Fatalf("%s ended; it wrote:\n%s", s.cmd.Path, &s.output)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (s *Server) launch() {
	s.t.Helper()
	s.cmd, s.ended = s.command(), make(chan struct{})
	s.cmd.Stdout, s.cmd.Stderr = &s.output, &s.output
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func(cmd *exec.Cmd, ended chan struct{}) {
		_ = cmd.Wait() // the error is from Stop or Kill, or the output explains it
		close(ended)
	}(s.cmd, s.ended)
}

// Stop shuts the program down gracefully, and waits for it to end.
func (s *Server) Stop() { s.end(s.stop) }

// StopSmart makes PostgreSQL accept no connections, and end once all clients have disconnected. It does not wait
// for that.
func (s *Server) StopSmart() { _ = s.cmd.Process.Signal(syscall.SIGTERM) }

// Kill ends the program at once.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

func (s *Server) end(signal syscall.Signal) {
	s.t.Helper()
	_ = s.cmd.Process.Signal(signal) // it may have ended by itself
	select {
	case <-s.ended:
	case <-time.After(30 * time.Second):
		_ = s.cmd.Process.Kill()
		s.t.Errorf("%s does not end; it wrote:\n%s", s.cmd.Path, &s.output)
	}
}

func (s *Server) begin(t testing.TB) *Server {
	t.Helper()
	s.t, s.Addr = t, FreeAddress(t)
	t.Cleanup(func() {
		if s.cmd != nil && s.cmd.Process != nil {
			s.Kill()
		}
		if t.Failed() {
			t.Logf("%s wrote:\n%s", s.cmd.Path, &s.output)
		}
	})
	s.Start()
	return s
}

// Postgres starts PostgreSQL with an empty database. See [DSN].
func Postgres(t testing.TB) *Server {
	t.Helper()
	p := newPostgres(t)
	if out, err := p.command("initdb", "-D", p.data(), "-U", "ampcors", "-A", "trust", "-E", "UTF8", "--locale=C",
		"-N").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	return p.start(t)
}

// PostgresStandby starts a standby of a server that [Postgres] has started.
func PostgresStandby(t testing.TB, primary *Server) *Server {
	t.Helper()
	p := newPostgres(t)
	if out, err := p.command("pg_basebackup", "-D", p.data(), "-R", "-c", "fast", "-d",
		DSN(primary.Addr)).CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	return p.start(t)
}

// Promote makes a standby the primary. It returns when that is done.
func (s *Server) Promote() {
	s.t.Helper()
	if out, err := s.promote().CombinedOutput(); err != nil {
		s.t.Fatalf("promote: %v\n%s", err, out)
	}
}

// A postgres is a directory with a database, and the programs for it.
type postgres struct {
	bin, dir string
	as       *syscall.SysProcAttr
}

func newPostgres(t testing.TB) *postgres {
	t.Helper()
	// On Debian, they are not in PATH.
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	slices.Reverse(found)
	bin := filepath.Dir(Program(t, "install PostgreSQL (Debian: apt-get install postgresql)",
		append(found, "postgres")...))
	dir, err := os.MkdirTemp("", "ampcors-postgres") // its user may not be able to enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &postgres{bin: bin, dir: dir}
	if os.Getuid() == 0 { // PostgreSQL does not run as root
		p.as = otherUser(t, dir)
	}
	return p
}

func (p *postgres) data() string { return filepath.Join(p.dir, "data") }

func (p *postgres) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.bin, name), args...)
	cmd.Dir, cmd.SysProcAttr = p.dir, p.as
	return cmd
}

func (p *postgres) start(t testing.TB) *Server {
	t.Helper()
	s := &Server{stop: syscall.SIGINT} // "fast": it does not wait for clients to disconnect
	s.command = func() *exec.Cmd {
		host, port, _ := net.SplitHostPort(s.Addr)
		return p.command("postgres", "-D", p.data(), "-h", host, "-p", port, "-c", "unix_socket_directories=", "-c",
			"fsync=off")
	}
	s.ready = func() error {
		host, port, _ := net.SplitHostPort(s.Addr)
		return p.command("pg_isready", "-q", "-h", host, "-p", port, "-U", "ampcors", "-d", "postgres").Run()
	}
	s.promote = func() *exec.Cmd { return p.command("pg_ctl", "promote", "-D", p.data(), "-w") }
	return s.begin(t)
}

// PgBouncer starts PgBouncer in front of a server that [Postgres] has started, with a pool_mode. It knows the
// database and the user of [DSN].
func PgBouncer(t testing.TB, db *Server, mode string) *Server {
	t.Helper()
	path := Program(t, "install PgBouncer (Debian: apt-get install pgbouncer)", "pgbouncer", "/usr/sbin/pgbouncer")
	dir, err := os.MkdirTemp("", "ampcors-pgbouncer") // its user may not be able to enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var as *syscall.SysProcAttr
	if os.Getuid() == 0 { // it does not run as root
		as = otherUser(t, dir)
	}
	s := &Server{stop: syscall.SIGINT}
	s.behind.Store(db)
	file := filepath.Join(dir, "pgbouncer.ini")
	s.configure = func() {
		host, port, _ := net.SplitHostPort(s.Addr)
		_, dbPort, _ := net.SplitHostPort(s.behind.Load().Addr)
		text := fmt.Sprintf("[databases]\npostgres = host=127.0.0.1 port=%s user=ampcors\n[pgbouncer]\nlisten_addr = "+
			"%s\nlisten_port = %s\n"+
			"unix_socket_dir =\nauth_type = any\npool_mode = %s\n", dbPort, host, port, mode)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s.command = func() *exec.Cmd {
		s.configure()
		cmd := exec.Command(path, file)
		cmd.Dir, cmd.SysProcAttr = dir, as
		return cmd
	}
	s.ready = func() error {
		conn, err := net.Dial("tcp", s.Addr)
		if err == nil {
			conn.Close()
		}
		return err
	}
	return s.begin(t)
}

// MariaDB starts MariaDB with an empty database "test". Its user root needs no password.
func MariaDB(t testing.TB) *Server {
	t.Helper()
	const install = "install MariaDB (Debian: apt-get install mariadb-server)"
	server := Program(t, install, "mariadbd", "/usr/sbin/mariadbd")
	installer := Program(t, install, "mariadb-install-db")
	data := t.TempDir()
	// A server that starts removes the temporary tables of all others in the same directory.
	env := append(os.Environ(), "TMPDIR="+t.TempDir())
	options := []string{"--no-defaults", "--datadir=" + data}
	if os.Getuid() == 0 {
		options = append(options, "--user=root")
	}
	installation := exec.Command(installer, append(options, "--auth-root-authentication-method=normal")...)
	installation.Env = env
	if out, err := installation.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", installer, err, out)
	}
	s := &Server{stop: syscall.SIGTERM}
	s.command = func() *exec.Cmd {
		host, port, _ := net.SplitHostPort(s.Addr)
		cmd := exec.Command(server, append(options, "--bind-address="+host, "--port="+port,
			"--socket="+filepath.Join(data, "socket"),
			"--pid-file="+filepath.Join(data, "pid"))...)
		cmd.Env = env
		return cmd
	}
	s.ready = func() error {
		conn, err := net.Dial("tcp", s.Addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		_, err = conn.Read(make([]byte, 1)) // the server speaks first
		return err
	}
	return s.begin(t)
}

// DSN returns the connection string of the database at an address, which is that of a
// [Postgres] or of a proxy before it. With several addresses, it finds the server that takes
// writes.
func DSN(addrs ...string) string {
	return fmt.Sprintf("postgres://ampcors@%s/postgres?sslmode=disable&target_session_attrs=read-write&connect_timeout=60",
		strings.Join(addrs, ","))
}
