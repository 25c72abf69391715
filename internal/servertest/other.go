//go:build !unix

package servertest

import (
	"syscall"
	"testing"
)

// otherUser is only called as root, which does not exist here.
func otherUser(testing.TB, string) *syscall.SysProcAttr { return nil }

// Freeze would suspend the program. The test is skipped, because that is not possible here.
func (s *Server) Freeze() { s.t.Skip("programs cannot be suspended on this system") }

// Thaw ends what Freeze began.
func (s *Server) Thaw() {}

// MoveTo does nothing: PgBouncer is not started on this system.
func (s *Server) MoveTo(*Server) { s.t.Skip("there are no signals on this system") }
