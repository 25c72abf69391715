//go:build unix

package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestASignalReloadsTheFile starts the program with a file, changes it, and sends SIGHUP.
func TestASignalReloadsTheFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.json")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"publishers": ["a.example"]}`)
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- run(ctx, "localhost:0", file, in) }()
	text := bufio.NewReader(out)
	base := ""
	for base == "" {
		line, err := text.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile(`http://[^/]*`).FindString(line); found != "" {
			base = found
		}
	}
	go func() { _, _ = io.Copy(io.Discard, text) }()
	status := func(publisher string) int {
		r, _ := http.NewRequest("GET", base+"/api/articles", nil)
		r.Header.Set("Origin", "https://"+publisher)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if a, b := status("a.example"), status("b.example"); a != 200 || b != 403 {
		t.Errorf("at first: %d, %d", a, b)
	}
	write(`{"publishers": ["b.example"]}`)
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); status("b.example") != 200; {
		if time.Now().After(deadline) {
			t.Fatal("the file is not applied")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if a := status("a.example"); a != 403 {
		t.Errorf("afterwards: %d", a)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	write(`{"publisher": []}`)
	if err := run(t.Context(), "localhost:0", file, io.Discard); err == nil || !strings.Contains(err.Error(), "config.json:1:2") {
		t.Errorf("a broken file: %v", err)
	}
}
