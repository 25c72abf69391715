//go:build unix

package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// reloadHint says how to apply a change at once.
func reloadHint() string { return fmt.Sprintf(", or at once with kill -HUP %d", os.Getpid()) }

// notifyReload relays the signals that ask for a reload.
func notifyReload(c chan<- os.Signal) { signal.Notify(c, syscall.SIGHUP) }
