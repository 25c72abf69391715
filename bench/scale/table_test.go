package scale

import (
	"os"
	"strings"
	"testing"
)

// writeTable writes a table into bench's README if UPDATE_README is set.
func writeTable(t *testing.T, name string, rows []string) {
	t.Helper()
	if os.Getenv("UPDATE_README") == "" || t.Failed() {
		return
	}
	const readme = "../README.md"
	data, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	before, after := "<!-- "+name+": a test writes what follows -->\n", "<!-- "+name+": a test writes what precedes -->\n"
	head, rest, ok := strings.Cut(string(data), before)
	_, tail, ok2 := strings.Cut(rest, after)
	if !ok || !ok2 {
		t.Fatalf("the README has no place for %s", name)
	}
	if err := os.WriteFile(readme, []byte(head+before+strings.Join(rows, "\n")+"\n"+after+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}
