//go:build unix

package servertest

import (
	"errors"
	"os"
	"os/user"
	"strconv"
	"syscall"
	"testing"
)

// otherUser returns attributes to run a program as another user, and makes that user the
// owner of the directory.
func otherUser(t testing.TB, dir string) *syscall.SysProcAttr {
	t.Helper()
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		t.Fatal(err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err1, err2, os.Chown(dir, int(uid), int(gid))); err != nil {
		t.Fatal(err)
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// Freeze suspends the program: it keeps its connections, and does not answer.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw ends what Freeze began.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

// MoveTo makes PgBouncer connect to another database. Sessions that are open stay where they are.
func (s *Server) MoveTo(db *Server) {
	s.behind.Store(db)
	s.configure()
	s.signal(syscall.SIGHUP) // it reads the file again
}

func (s *Server) signal(signal syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
}
