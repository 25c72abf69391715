//go:build unix

package servertest

import "syscall"

// Freeze suspends the program: it keeps its connections, and does not answer.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw ends what Freeze began.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(signal syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
}
