//go:build !linux

package configfile

import "os"

// changed is for Linux alone: elsewhere a file that is rewritten with the same size and
// modification time is taken for unchanged.
func changed(os.FileInfo) struct{} { return struct{}{} }
