package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Each line of Go in docs/tenants.md is in a program that is tested.
func TestTheDocumentHasTheseLines(t *testing.T) {
	document, err := os.ReadFile("../../docs/tenants.md")
	if err != nil {
		t.Fatal(err)
	}
	var programs string
	for _, name := range []string{"main.go", "../../example_test.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		programs += string(text)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(document), -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks", len(blocks))
	}
	for _, block := range blocks {
		for line := range strings.Lines(block[1]) {
			if line = strings.TrimSpace(line); !strings.Contains(programs, line) {
				t.Errorf("no program has %q", line)
			}
		}
	}
}
