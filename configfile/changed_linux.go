package configfile

import (
	"os"
	"syscall"
)

// hasNoLink reports whether no directory has the file any more.
func hasNoLink(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Nlink == 0
}

// changed returns the time of the last change to a file or its metadata. Programs that copy
// files can set the modification time, but not this one.
func changed(info os.FileInfo) syscall.Timespec {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Ctim
	}
	return syscall.Timespec{}
}
