package configfile

import (
	"os"
	"syscall"
)

// changed returns when a file was last changed in any way. Unlike the modification time,
// programs that copy files cannot set it.
func changed(info os.FileInfo) syscall.Timespec {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Ctim
	}
	return syscall.Timespec{}
}
