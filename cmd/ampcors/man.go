//go:build man

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra/doc"
)

// With the tag man, the program writes its man pages into a directory, and ends. Their date is
// SOURCE_DATE_EPOCH. The programs of a release are built without the tag, and so without this code.
func init() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "want a directory")
		os.Exit(exitUsage)
	}
	root := newRoot()
	root.DisableAutoGenTag = true
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "ampcors", Manual: "ampcors"},
		os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitUntested)
	}
	os.Exit(exitClean)
}
