package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ampcors/ampcors/cacheurl"
)

// This file runs probes with the code of the command, which another module cannot import: in a program that the command's module has
// for it.

// publisher is the publisher of most backends.
const publisher = "www.example.com"

// An endpoint is a URL to probe, in the form of the command's JSON. The kinds of answers are any, json and form.
type endpoint struct {
	URL         string `json:"url"`
	Method      string `json:"method"`
	ContentType string `json:"contentType,omitempty"`
	Body        string `json:"body,omitempty"`
	Credentials bool   `json:"credentials"`
	Answer      string `json:"answer"`

	NoSourceOrigin bool `json:"noSourceOrigin,omitempty"`
}

// A probeConfig configures a probe, with the names of the command's own type.
type probeConfig struct {
	Endpoints  []endpoint
	Publishers []string
	Unsafe     bool
	Cookie     string
	PageHeader http.Header
	Resolve    map[string]string
	Insecure   bool
	Timeout    time.Duration
	MaxTime    time.Duration
}

// A report has what the tests read of the command's JSON.
type report struct {
	Trials []struct {
		Publisher, Kind, Origin, Form, Outcome, Reason string
	} `json:"trials"`
	Findings []struct {
		ID, Origin, Request, Curl string
		Evidence                  []string
	} `json:"findings"`
	Untested []untested `json:"untested"`
	Snippets []snippet  `json:"snippets"`
}

type untested struct {
	Endpoint, Reason string
	Failed           bool
}

type snippet struct{ Server, Text string }

// A backend makes a mistake that people make, or none. It answers at its path of the prober.
type backend struct {
	Name, Backend, Publisher, Cookie, NotTested string
	Endpoint                                    endpoint
	Unsafe, Remembers                           bool
}

// prober returns the address of the program. It ends with the tests, because its standard input does.
var prober = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "prober")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "prober")
	build := exec.Command("go", "build", "-o", program, "./internal/probe/probetest/server")
	build.Dir = "../cmd/ampcors"
	if out, err := build.CombinedOutput(); err != nil {
		return string(out), err
	}
	cmd := exec.Command(program)
	cmd.Stderr = os.Stderr
	if proberStdin, err = cmd.StdinPipe(); err != nil {
		return "", err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	address, err := bufio.NewReader(stdout).ReadString('\n')
	return strings.TrimSpace(address), err
})

// proberStdin keeps the pipe open: without a reference, it would be closed at some time.
var proberStdin io.Closer

// ask sends a request to the prober, and decodes its answer.
func ask(t *testing.T, method, path string, body, answer any) {
	t.Helper()
	address, err := prober()
	if err != nil {
		t.Fatal(address, err)
	}
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %s, %v", resp.StatusCode, text, err)
	} else if err := json.Unmarshal(text, answer); err != nil {
		t.Fatal(err)
	}
}

// runProbe probes the site's API.
func runProbe(t *testing.T, s *site, cfg probeConfig) *report {
	t.Helper()
	cfg.Resolve, cfg.Insecure, cfg.Timeout, cfg.MaxTime = map[string]string{"api.example.org:443": s.https}, true, time.Minute, time.Hour
	found := new(report)
	ask(t, http.MethodPost, "/run", cfg, found)
	return found
}

// originsOf returns the origins at which pages of a publisher may run: its own, and each form on each cache.
func originsOf(t *testing.T, publisher string) []string {
	t.Helper()
	origins := []string{"https://" + publisher}
	prefixes, err := cacheurl.Prefixes(publisher)
	if err != nil {
		t.Fatal(err)
	}
	for _, cache := range cacheurl.DefaultCaches() {
		for _, p := range prefixes {
			if !p.Denied {
				origins = append(origins, "https://"+p.Prefix+"."+cache.CacheDomain)
			}
		}
	}
	return origins
}
