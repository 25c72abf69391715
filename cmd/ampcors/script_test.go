package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/pflag"
)

// TestScripts runs the sessions in testdata/script: what somebody types, and what the command prints. Each file has one
// command; pkg.go.dev/github.com/rogpeppe/go-internal/testscript describes their format. "exits 3 ampcors ..." is for
// an exit code other than 0, and "chomp file" removes the last line break of a file.
//
// The commands ask no real server: a [folder] answers, and file "requests" has what was asked.
//
// UPDATE_SCRIPTS=1 rewrites the outputs that are compared as a whole.
func TestScripts(t *testing.T) {
	t.Parallel()
	flags := filepath.Join(t.TempDir(), "flags")
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv(flagsEnv, flags)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": func(ts *testscript.TestScript, not bool, args []string) {
				if not || len(args) < 2 {
					ts.Fatalf("usage: exits code command [argument ...]")
				}
				code := 0
				if exit := (*exec.ExitError)(nil); errors.As(ts.Exec(args[1], args[2:]...), &exit) {
					code = exit.ExitCode()
				}
				if strconv.Itoa(code) != args[0] {
					ts.Fatalf("the exit code is %d; want %s", code, args[0])
				}
			},
			"chomp": func(ts *testscript.TestScript, _ bool, args []string) {
				text := strings.TrimSuffix(ts.ReadFile(args[0]), "\n")
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
			},
		},
	})
	t.Cleanup(func() { // after the scripts, which are parallel
		noted, err := os.ReadFile(flags)
		if err != nil {
			t.Error(err)
		}
		for name := range strings.Lines(string(noted)) {
			setFlags.Store(strings.TrimSpace(name), true)
		}
	})
}

// flagsEnv names the file to which a command of a script adds the flags that it got.
const flagsEnv = "AMPCORS_TEST_FLAGS"

// A folder is a web in the folder of a script: the file web/www.example.com/a answers http://www.example.com/a, and
// web/www.example.com/_ all else there. A file is a body, or begins "HTTP/1.1 ", and is a whole response, or is
// "no answer".
type folder string

// RoundTrip implements http.RoundTripper.
func (f folder) RoundTrip(r *http.Request) (*http.Response, error) {
	path := cmp.Or(r.URL.Opaque, r.URL.Path)
	line := r.Method + " " + r.URL.Host + path
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		line += " " + string(body)
	}
	requests, err := os.OpenFile("requests", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(requests, line)
		err = errors.Join(err, requests.Close())
	}
	if err != nil {
		return nil, err
	}
	text := []byte("HTTP/1.1 404 Not Found\n")
	for _, name := range []string{path, "_"} {
		if found, err := os.ReadFile(filepath.Join(string(f), r.URL.Host, name)); err == nil {
			text = found
			break
		}
	}
	if string(text) == "no answer\n" {
		return nil, io.ErrUnexpectedEOF
	}
	if !bytes.HasPrefix(text, []byte("HTTP/1.1 ")) {
		text = append([]byte("HTTP/1.1 200 OK\nContent-Type: text/plain\n\n"), bytes.TrimSuffix(text, []byte("\n"))...)
	}
	return http.ReadResponse(bufio.NewReader(bytes.NewReader(append(text, "\n\n"...))), r)
}

// runScripted is the command in a script: another process of the test.
func runScripted() {
	httpClient = &http.Client{Transport: folder("web")}
	progressEvery = time.Hour
	root := newRoot()
	code := execute(context.Background(), root)
	file, err := os.OpenFile(os.Getenv(flagsEnv), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(100)
	}
	forEachFlag(root, func(name string, f *pflag.Flag) {
		if f.Changed {
			fmt.Fprintln(file, name)
		}
	})
	os.Exit(code)
}
