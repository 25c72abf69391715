// Package readme reads and writes those parts of documents that tests write.
package readme

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
)

// Part returns the part of a file with a name, and what is before and after it. It is between
// two comments, "<!-- name: a test writes what follows -->" and "... what precedes -->".
func Part(t testing.TB, file, name string) (before, part, after string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first, last := "<!-- "+name+": a test writes what follows -->\n", "<!-- "+name+": a test writes what precedes -->\n"
	before, rest, ok := strings.Cut(string(data), first)
	part, after, ok2 := strings.Cut(rest, last)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for %q; want the lines\n%s%s", file, name, first, last)
	}
	return before + first, part, last + after
}

var writing sync.Mutex // tests run in parallel

// Write replaces the part of a file with a name.
func Write(t testing.TB, file, name, text string) {
	t.Helper()
	writing.Lock()
	defer writing.Unlock()
	before, _, after := Part(t, file, name)
	if err := os.WriteFile(file, []byte(before+text+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Check compares the part of a file with a text. If UPDATE_README is set, it writes the text.
func Check(t testing.TB, file, name, text string) {
	t.Helper()
	if os.Getenv("UPDATE_README") != "" {
		Write(t, file, name, text)
	} else if _, part, _ := Part(t, file, name); part != text {
		t.Errorf("%s: the part %q is\n%s\nwant\n%s", file, name, part, text)
	}
}

// Aligned returns the rows of a table as text, with columns of equal width.
func Aligned(table [][]string) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range table {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	w.Flush()
	return text.String()
}
