// Command ampcors tests backends that AMP pages call, and answers questions about AMP Caches.
//
//	ampcors probe https://www.example.com/article
//
// See "ampcors help".
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	_ "golang.org/x/crypto/x509roots/fallback" // for containers without certificates
)

// The exit codes.
const (
	exitClean    = 0
	exitFindings = 1 // what was tested has problems
	exitUsage    = 2
	exitUntested = 3 // something could not be tested, or nothing was
	exitLater    = 3 // the same command may succeed later
)

// An exitError ends the program with a code.
type exitError struct {
	code int
	err  error // nil if it is already printed
}

func (e exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	root := newRoot()
	root.SetArgs(os.Args[1:])
	os.Exit(execute(ctx, root))
}
