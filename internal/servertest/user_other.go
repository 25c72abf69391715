//go:build !unix

package servertest

import (
	"syscall"
	"testing"
)

// otherUser is for root, who is not here.
func otherUser(testing.TB, string) *syscall.SysProcAttr { return nil }
