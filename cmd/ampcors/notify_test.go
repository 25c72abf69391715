package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ampcors/ampcors/updatecache"
	amp "google.golang.org/api/acceleratedmobilepageurl/v1"
)

// A web is an http.RoundTripper that passes every request to a handler, and records it.
type web struct {
	handler http.Handler
	seen    []string
}

func (w *web) RoundTrip(r *http.Request) (*http.Response, error) {
	line := r.Method + " " + r.URL.Host + r.URL.Path
	if r.URL.Opaque != "" {
		line = r.Method + " " + r.URL.Host + r.URL.Opaque
	}
	w.seen = append(w.seen, line)
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, r)
	return rec.Result(), nil
}

// useWeb makes a handler answer the requests of the commands until the test ends.
func useWeb(t *testing.T, handler http.HandlerFunc) *web {
	t.Helper()
	before := httpClient
	w := &web{handler: handler}
	httpClient = &http.Client{Transport: w}
	t.Cleanup(func() { httpClient = before })
	return w
}

// privateKey makes an RSA key with the command, and returns the name of its file.
func privateKey(t *testing.T) string {
	t.Helper()
	code, key, stderr := run(t, "", "key", "updatecache")
	if code != exitClean || !strings.HasPrefix(key, "-----BEGIN PRIVATE KEY-----\n") {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	file := filepath.Join(t.TempDir(), "private.pem")
	if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestKey(t *testing.T) {
	code, public, stderr := run(t, "", "key", "updatecache", "--public", privateKey(t))
	if code != exitClean || !strings.HasPrefix(public, "-----BEGIN PUBLIC KEY-----\n") {
		t.Errorf("exit code %d\n%s\n%s", code, public, stderr)
	}
	code, first, _ := run(t, "", "key", "indexnow")
	_, second, _ := run(t, "", "key", "indexnow")
	if code != exitClean || len(first) != 33 || first == second {
		t.Errorf("exit code %d: %q, %q", code, first, second)
	}
	for _, args := range [][]string{{"key", "amp"}, {"key"}, {"key", "indexnow", "--public", "a"}, {"key", "updatecache", "--public", "none.pem"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			if code, stdout, stderr := run(t, "", args...); code != exitUsage || stdout != "" || stderr == "" {
				t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
			}
		})
	}
}

func TestVerifyAndFlush(t *testing.T) {
	file := privateKey(t)
	_, public, _ := run(t, "", "key", "updatecache", "--public", file)
	w := useWeb(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == updatecache.KeyPath:
			w.Header().Set("Content-Type", "text/plain")
			if r.URL.Host == "www.example.com" {
				io.WriteString(w, public)
			}
		case strings.Contains(r.URL.Opaque, "/broken"):
			http.Error(w, "Ingestion error", http.StatusForbidden)
		default:
			io.WriteString(w, "OK")
		}
	})
	t.Run("verify", func(t *testing.T) {
		code, stdout, stderr := run(t, "", "verify", "--key", file, "www.example.com", "www.example.net")
		if code != exitFindings || stdout != "www.example.com: the key file is correct\n" || !strings.Contains(stderr, "www.example.net") {
			t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
		}
	})
	t.Run("dry run", func(t *testing.T) {
		w.seen = nil
		code, stdout, _ := run(t, "", "flush", "--key", file, "--dry-run", "https://www.example.com/a")
		if code != exitClean || stdout != "https://www.example.com/a: would be flushed\n" || len(w.seen) != 0 {
			t.Errorf("exit code %d\n%s\n%q", code, stdout, w.seen)
		}
	})
	t.Run("flush", func(t *testing.T) {
		sitemap := filepath.Join(t.TempDir(), "sitemap.xml")
		text := `<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc> https://www.example.com/b </loc></url></urlset>`
		if err := os.WriteFile(sitemap, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		w.seen = nil
		code, stdout, stderr := run(t, "", "flush", "--key", file, "--all-caches", "--sitemap", sitemap, "https://www.example.com/a", "https://www.example.com/broken")
		if code != exitFindings || stdout != "https://www.example.com/a: flushed\nhttps://www.example.com/b: flushed\n" || !strings.Contains(stderr, "https://www.example.com/broken") || !strings.Contains(stderr, "could not fetch") {
			t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
		}
		for _, want := range []string{"GET www-example-com.cdn.ampproject.org/update-cache/c/s/www.example.com/a", "GET www-example-com.www.bing-amp.com/update-cache/c/s/www.example.com/b"} {
			if !slices.Contains(w.seen, want) {
				t.Errorf("the requests are %q; want %s", w.seen, want)
			}
		}
	})
	t.Run("no sitemap", func(t *testing.T) {
		if code, _, stderr := run(t, "", "flush", "--key", file, "--sitemap", file); code != exitUsage || !strings.Contains(stderr, file) {
			t.Errorf("exit code %d\n%s", code, stderr)
		}
	})
	t.Run("no key", func(t *testing.T) {
		if code, _, stderr := run(t, "", "flush", "https://www.example.com/a"); code != exitUsage || !strings.Contains(stderr, "key") {
			t.Errorf("exit code %d\n%s", code, stderr)
		}
	})
}

func TestSubmit(t *testing.T) {
	const key = "73134416ae45434d98edc086e0bf6740"
	var submitted []string
	w := useWeb(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".txt") {
			w.Header().Set("Content-Type", "text/plain")
			io.WriteString(w, key)
			return
		}
		var s struct {
			Host    string
			URLList []string
		}
		if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
			t.Error(err)
		}
		if s.Host == "www.example.net" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		submitted = append(submitted, s.URLList...)
	})
	t.Run("no key", func(t *testing.T) {
		t.Setenv("INDEXNOW_KEY", "")
		if code, _, stderr := run(t, "", "submit", "https://www.example.com/"); code != exitUsage || !strings.Contains(stderr, "INDEXNOW_KEY") {
			t.Errorf("exit code %d\n%s", code, stderr)
		}
	})
	t.Setenv("INDEXNOW_KEY", key)
	t.Run("verify", func(t *testing.T) {
		if code, stdout, stderr := run(t, "www.example.com\n", "verify"); code != exitClean || stdout != "www.example.com: the key file is correct\n" {
			t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
		}
	})
	t.Run("dry run", func(t *testing.T) {
		w.seen = nil
		code, stdout, _ := run(t, "", "submit", "--dry-run", "https://www.example.com/1")
		if code != exitClean || stdout != "https://www.example.com/1: would be submitted\n" || len(w.seen) != 0 {
			t.Errorf("exit code %d\n%s\n%q", code, stdout, w.seen)
		}
	})
	t.Run("some accepted", func(t *testing.T) {
		code, stdout, stderr := run(t, "https://www.example.com/1\nhttps://www.example.com/2\nhttps://www.example.net/\nhttps://www.example.com:8443/\n", "submit")
		if code != exitFindings || stdout != "www.example.com: 2 URLs accepted\n" || !strings.Contains(stderr, "www.example.net") || !strings.Contains(stderr, "8443") || strings.Contains(stdout+stderr, key) {
			t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
		}
		if !slices.Equal(submitted, []string{"https://www.example.com/1", "https://www.example.com/2"}) {
			t.Errorf("submitted %q", submitted)
		}
	})
	t.Run("JSON", func(t *testing.T) {
		code, stdout, _ := run(t, "", "submit", "-o", "json", "https://www.example.com/3")
		var results []result
		if err := json.Unmarshal([]byte(stdout), &results); err != nil || code != exitClean || len(results) != 1 || results[0].Input != "www.example.com" {
			t.Errorf("exit code %d, %v\n%s", code, err, stdout)
		}
	})
}

// TestLookup uses a server that answers as Google's documentation says.
func TestLookup(t *testing.T) {
	batches := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request amp.BatchGetAmpUrlsRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil || r.URL.Path != "/v1/ampUrls:batchGet" || r.URL.Query().Get("key") != "s3cret" || len(request.Urls) > 50 {
			t.Errorf("%s, %d URLs, %v", r.URL, len(request.Urls), err)
		}
		batches++
		var answer amp.BatchGetAmpUrlsResponse
		for _, u := range request.Urls {
			if strings.Contains(u, "none") {
				answer.UrlErrors = append(answer.UrlErrors, &amp.AmpUrlError{OriginalUrl: u, ErrorCode: "NO_AMP_URL", ErrorMessage: "Couldn't find any AMP version of the URL."})
				continue
			}
			ampURL := strings.Replace(u, "/article/", "/amp/", 1)
			answer.AmpUrls = append(answer.AmpUrls, &amp.AmpUrl{OriginalUrl: u, AmpUrl: ampURL, CdnAmpUrl: strings.Replace(ampURL, "https://www.example.com", "https://www-example-com.cdn.ampproject.org/c/s/www.example.com", 1)})
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(&answer)
	}))
	defer server.Close()
	t.Run("no key", func(t *testing.T) {
		t.Setenv("GOOGLE_API_KEY", "")
		if code, _, stderr := run(t, "", "lookup", "https://www.example.com/article/1"); code != exitUsage || !strings.Contains(stderr, "GOOGLE_API_KEY") {
			t.Errorf("exit code %d\n%s", code, stderr)
		}
	})
	t.Setenv("GOOGLE_API_KEY", "s3cret")
	t.Run("found and not", func(t *testing.T) {
		code, stdout, stderr := run(t, "", "lookup", "--endpoint", server.URL, "https://www.example.com/article/1", "https://www.example.com/none")
		want := "https://www.example.com/amp/1\n  https://www-example-com.cdn.ampproject.org/c/s/www.example.com/amp/1\n"
		if code != exitFindings || stdout != want || !strings.Contains(stderr, "NO_AMP_URL") || strings.Contains(stderr, "s3cret") {
			t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
		}
	})
	t.Run("fifty in a request", func(t *testing.T) {
		batches = 0
		var lines strings.Builder
		for i := range 101 {
			fmt.Fprintf(&lines, "https://www.example.com/article/%d\n", i)
		}
		if code, stdout, stderr := run(t, lines.String(), "lookup", "--endpoint", server.URL); code != exitClean || batches != 3 || strings.Count(stdout, "\n") != 202 {
			t.Errorf("exit code %d, %d requests\n%s\n%s", code, batches, stdout, stderr)
		}
	})
	t.Run("an API that fails", func(t *testing.T) {
		down := httptest.NewServer(http.NotFoundHandler())
		defer down.Close()
		if code, _, stderr := run(t, "", "lookup", "--endpoint", down.URL, "https://www.example.com/"); code != exitUntested || !strings.Contains(stderr, "404") || strings.Contains(stderr, "s3cret") {
			t.Errorf("exit code %d\n%s", code, stderr)
		}
	})
}

// TestEachCommandHasAnExample checks that --help shows an example.
func TestEachCommandHasAnExample(t *testing.T) {
	for _, cmd := range newRoot().Commands() {
		t.Run(cmd.Name(), func(t *testing.T) {
			_, stdout, _ := run(t, "", cmd.Name(), "--help")
			if cmd.Short == "" || !strings.Contains(stdout, "Examples:\n  ") {
				t.Errorf("the help is\n%s", stdout)
			}
		})
	}
	if code, stdout, _ := run(t, "", "completion", "bash"); code != exitClean || !strings.Contains(stdout, "ampcors") {
		t.Errorf("exit code %d; the completion is\n%s", code, stdout)
	}
}
