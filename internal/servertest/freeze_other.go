//go:build !unix

package servertest

// Freeze would suspend the program. The test is skipped, because that is not possible here.
func (s *Server) Freeze() { s.t.Skip("programs cannot be suspended on this system") }

// Thaw ends what Freeze began.
func (s *Server) Thaw() {}
