//go:build !unix

package servertest

import (
	"syscall"
	"testing"
)

// otherUser is only called as root, which does not exist here.
func otherUser(testing.TB, string) *syscall.SysProcAttr { return nil }
