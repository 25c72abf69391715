//go:build !unix

package main

import "os"

// There is no SIGHUP here.

func reloadHint() string { return "" }

func notifyReload(chan<- os.Signal) {}
