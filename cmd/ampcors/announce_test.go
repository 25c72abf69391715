package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/servertest"
)

// A web is an http.RoundTripper that passes every request to a handler, one at a time, and records it.
type web struct {
	mu      sync.Mutex
	handler http.Handler
	seen    []string
}

func (w *web) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
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
	file := filepath.Join(t.TempDir(), "private.pem")
	if code, stdout, stderr := run(t, "", "key", "updatecache", file); code != exitClean || stdout != "" {
		t.Fatalf("exit code %d: %s%s", code, stdout, stderr)
	}
	return file
}

// twoCaches returns a file with the first two AMP Caches of the registry, Google's and Bing's.
func twoCaches(t *testing.T) string {
	t.Helper()
	data, err := json.Marshal(map[string]any{"caches": cacheurl.DefaultCaches()[:2]})
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, filepath.Join(t.TempDir(), "two.json"), string(data))
}

// otherCaches returns a file with an AMP Cache that is not in the registry.
func otherCaches(t *testing.T) string {
	t.Helper()
	return writeFile(t, filepath.Join(t.TempDir(), "caches.json"),
		`{"caches": [{"id": "other", "cacheDomain": "cache.example", "updateCacheApiDomainSuffix": "update.example"}]}`)
}

// One page at fault does not keep the others from being announced. It is reported once, and again when it changes.
func TestAPageThatTheEngineRejectsIsReportedOnce(t *testing.T) {
	t.Setenv("INDEXNOW_KEY", "73134416ae45434d98edc086e0bf6740")
	every := saveEach
	saveEach = 0
	t.Cleanup(func() { saveEach = every })
	lastmod, accepted, state := "2024-01-01", []string{}, filepath.Join(t.TempDir(), "state.json")
	useWeb(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sitemap.xml" {
			fmt.Fprintf(w, "<urlset>")
			for i := range 100 {
				fmt.Fprintf(w, "<url><loc>https://www.example.com/%d</loc><lastmod>%s</lastmod></url>", i, lastmod)
			}
			fmt.Fprintf(w, "</urlset>")
			return
		}
		var s struct{ URLList []string }
		_ = json.NewDecoder(r.Body).Decode(&s)
		if slices.Contains(s.URLList, "https://www.example.com/42") {
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"errorCode":"InvalidUrl","message":"one of them"}`)
			return
		}
		data, _ := os.ReadFile(state)
		var saved struct{ Announced map[string]string }
		_ = json.Unmarshal(data, &saved)
		if len(saved.Announced) < len(accepted) { // what was accepted before is in the file, if the program is killed now
			t.Errorf("%d of %d accepted pages are saved", len(saved.Announced), len(accepted))
		}
		accepted = append(accepted, s.URLList...)
	})
	submit := func(args ...string) (int, string, string) {
		accepted = nil
		return run(t, "", append([]string{"submit", "--sitemap", "https://www.example.com/sitemap.xml", "--state", state, "--all"}, args...)...)
	}
	const reason = `https://www.example.com/42: the engine finds a URL of another host, or a malformed key (status 422 \"InvalidUrl\" \"one ` +
		`of them\")`
	reported := func() {
		t.Helper()
		code, stdout, stderr := submit("-o", "json")
		if code != exitFindings || len(accepted) != 99 || !strings.Contains(stdout, `"accepted": 99`) || !strings.Contains(stdout, reason) {
			t.Errorf("exit code %d, %d accepted\n%s\n%s", code, len(accepted), stdout, stderr)
		}
		if data, _ := os.ReadFile(state); !strings.Contains(string(data), `"rejected":{"https://www.example.com/42":{"lastmod":"`+lastmod) {
			t.Errorf("%s", data)
		}
	}
	reported()
	if code, stdout, stderr := submit(); code != exitClean || stdout != "" || len(accepted) != 0 ||
		!strings.Contains(stderr, "no page is new") {
		t.Errorf("the second run: exit code %d\n%s\n%s", code, stdout, stderr)
	}
	lastmod = "2024-01-02"
	reported()
}

// A sitemap and a state: only what is new or has changed is submitted, and what fails is submitted
// again.
func TestSubmitWithAState(t *testing.T) {
	t.Setenv("INDEXNOW_KEY", "73134416ae45434d98edc086e0bf6740")
	pages, isDown, sitemapIsDown := "", false, false
	var submitted []string
	useWeb(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/sitemap.xml" && sitemapIsDown, isDown && r.Method == http.MethodPost:
			w.WriteHeader(http.StatusForbidden)
		case r.URL.Path == "/sitemap.xml":
			fmt.Fprintf(w, "<urlset>%s</urlset>", pages)
		default:
			var s struct{ URLList []string }
			if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
				t.Error(err)
			}
			submitted = append(submitted, s.URLList...)
			w.WriteHeader(http.StatusAccepted)
		}
	})
	page := func(n int) string { return fmt.Sprintf("<url><loc>https://www.example.com/%d</loc></url>", n) }
	state := filepath.Join(t.TempDir(), "state.json")
	for _, step := range []struct {
		name           string
		change         func()
		args           []string
		code           int
		stdout, stderr string
		submitted      string
	}{
		{"the sitemap is down", func() { sitemapIsDown = true }, nil, exitFindings, "", "nothing is recorded", ""},
		{"a dry run before the first", func() { sitemapIsDown, pages = false, page(1) }, []string{"--dry-run"}, exitClean, "",
			"1 page would be recorded", ""},
		{"the first run", func() { sitemapIsDown, pages = false, page(1)+page(2) }, nil, exitClean, "", "2 pages are recorded", ""},
		{"nothing has changed", func() {}, nil, exitClean, "", "no page is new or has changed", ""},
		{"what was only recorded, and the engine is down", func() { isDown = true }, []string{"--all"}, exitFindings, "", "403", ""},
		{"and is announced when it is up", func() { isDown = false }, nil, exitClean,
			"www.example.com: 2 URLs accepted; the engine still checks the key\n", "", "https://www.example.com/1 https://www.example.com/2"},
		{"and only once", func() {}, []string{"--all"}, exitClean, "", "no page is new or has changed", ""},
		{"a dry run", func() { pages += page(3) }, []string{"--dry-run"}, exitClean,
			"POST https://api.indexnow.org/indexnow\n{\"host\":\"www.example.com\",\"key\":\"7313…\",\"urlList\":[\"https://www.example.com/3\"]}\n",
			"+ https://www.example.com/3\n", ""},
		{"the engine is down", func() { isDown = true }, nil, exitFindings, "", "403", ""},
		{"it is up again", func() { isDown = false; pages += page(4) }, nil, exitClean,
			"www.example.com: 2 URLs accepted; the engine still checks the key\n", "", "https://www.example.com/3 https://www.example.com/4"},
		{"and nothing is left", func() {}, nil, exitClean, "", "no page is new", ""},
		{"a page is gone", func() { pages = strings.Replace(pages, page(2), "", 1) }, []string{"--gone"}, exitClean,
			"www.example.com: 1 URL accepted; the engine still checks the key\n", "no longer list: 1", "https://www.example.com/2"},
		{"and is announced once", func() {}, []string{"--gone"}, exitClean, "", "no page is new", ""},
		{"a page is gone, and the engine is down", func() { isDown, pages = true, strings.Replace(pages, page(4), "", 1) }, []string{"--gone"},
			exitFindings, "", "no longer list: 1", ""},
		{"then the sitemap is down", func() { isDown, sitemapIsDown = false, true }, []string{"--gone"}, exitFindings, "",
			"that wait for a run with --gone that reads everything: 1", ""},
		{"then nobody asks for gone pages", func() { sitemapIsDown = false }, nil, exitClean, "",
			"that wait for a run with --gone that reads everything: 1", ""},
		{"then it is announced", func() {}, []string{"--gone"}, exitClean, "www.example.com: 1 URL accepted; the engine still checks the key\n",
			"no longer list: 1", "https://www.example.com/4"},
		{"it has come back", func() { pages += page(4) }, nil, exitClean, "www.example.com: 1 URL accepted; the engine still checks the key\n",
			"", "https://www.example.com/4"},
		{"the sitemap is empty", func() { pages = "" }, []string{"--gone"}, exitFindings, "", "because no page is listed", ""},
		{"the sitemap is down later", func() { sitemapIsDown, pages = true, page(1)+page(3)+page(4) }, nil, exitFindings, "", "403", ""},
	} {
		t.Run(step.name, func(t *testing.T) {
			step.change()
			submitted = nil
			code, stdout, stderr := run(t, "", append([]string{"submit", "--sitemap", "https://www.example.com/sitemap.xml", "--state", state},
				step.args...)...)
			if code != step.code || stdout != step.stdout || !strings.Contains(stderr, step.stderr) || step.stderr == "" && stderr != "" ||
				strings.Join(submitted, " ") != step.submitted {
				t.Errorf("exit code %d\n%s\n%s\nsubmitted %q", code, stdout, stderr, submitted)
			}
		})
	}
	for _, args := range [][]string{{"--gone", "--max-gone", "10"}, {"--gone", "--max-gone", "NaN"}, {"--gone", "--max-gone", "0"}} {
		args = append([]string{"submit", "--sitemap", "https://www.example.com/sitemap.xml", "--state", state}, args...)
		if code, _, stderr := run(t, "", args...); code != exitUsage || !strings.Contains(stderr, "--max-gone") {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
	t.Run("all of a new state", func(t *testing.T) {
		sitemapIsDown, submitted = false, nil
		other := filepath.Join(t.TempDir(), "other.json")
		code, stdout, stderr := run(t, "", "submit", "--sitemap", "https://www.example.com/sitemap.xml", "--state", other, "--all")
		if code != exitClean || stdout != "www.example.com: 3 URLs accepted; the engine still checks the key\n" || len(submitted) != 3 {
			t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
		}
	})
	t.Run("a file", func(t *testing.T) {
		file, own := filepath.Join(t.TempDir(), "sitemap.xml"), filepath.Join(t.TempDir(), "own.json")
		for i, test := range []struct{ pages, args, want string }{
			{page(1) + page(2), "", "own.json is new: 2 pages are recorded"},
			{page(1) + page(3), "--gone --dry-run", "- https://www.example.com/2\n+ https://www.example.com/3\n"},
			{page(1) + page(3), "--gone", "no longer list: 1"},
		} {
			writeFile(t, file, "<urlset>"+test.pages+"</urlset>")
			submitted = nil
			code, _, stderr := run(t, "", append([]string{"submit", "--sitemap", file, "--state", own}, strings.Fields(test.args)...)...)
			if code != exitClean || !strings.Contains(stderr, test.want) || len(submitted) != i/2*2 {
				t.Errorf("exit code %d\n%s\nsubmitted %q", code, stderr, submitted)
			}
		}
	})
	t.Run("a file of several hosts", func(t *testing.T) {
		file, own := filepath.Join(t.TempDir(), "sitemap.xml"), filepath.Join(t.TempDir(), "own.json")
		two := "<urlset>" + page(1) + "<url><loc>https://shop.example.com/1</loc></url>"
		for _, test := range []struct {
			text, args string
			code       int
			stderr     string
			submitted  []string
		}{
			{two + "</urlset>", "", exitClean, "", []string{"https://shop.example.com/1", "https://www.example.com/1"}},
			{two + "</urlset>", "--all --state " + own, exitClean, "", []string{"https://shop.example.com/1", "https://www.example.com/1"}},
			{two, "", exitFindings, file + ": its XML has an error at line 1", []string{"https://shop.example.com/1", "https://www.example.com/1"}},
			{"", "", exitFindings, file + ": it is empty", nil},
			{"", "--state " + own, exitFindings, file + ": it is empty", nil},
			{"<urlset/>", "", exitFindings, "the sitemaps list no page", nil},
			{"<urlset/>", "--gone --state " + own, exitFindings, "no page is taken to be gone", nil},
		} {
			writeFile(t, file, test.text)
			submitted = nil
			code, _, stderr := run(t, "", append([]string{"submit", "--sitemap", file}, strings.Fields(test.args)...)...)
			if slices.Sort(submitted); code != test.code || !strings.Contains(stderr, test.stderr) || !slices.Equal(submitted, test.submitted) ||
				strings.Contains(stderr, "https://www.example.com"+file) {
				t.Errorf("%q, %s: exit code %d\n%s\nsubmitted %q", test.text, test.args, code, stderr, submitted)
			}
		}
	})
	t.Run("JSON", func(t *testing.T) {
		if code, stdout, stderr := run(t, "", "submit", "--sitemap", "https://www.example.com/sitemap.xml", "--state", state, "-o",
			"json"); code != exitClean ||
			stdout != "[]\n" {
			t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
		}
	})
	t.Run("a killed process leaves nothing that stays", func(t *testing.T) {
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, "state.json.ampcors-new"), "half")
		code, _, stderr := run(t, "", "submit", "--sitemap", "https://www.example.com/sitemap.xml", "--state", filepath.Join(dir, "state.json"))
		found, err := filepath.Glob(filepath.Join(dir, "*"))
		if want := []string{filepath.Join(dir, "state.json"), filepath.Join(dir, "state.json.lock")}; code != exitClean || err != nil ||
			!slices.Equal(found, want) {
			t.Errorf("exit code %d, %q, %v\n%s", code, found, err, stderr)
		}
	})
	keys, flushed := filepath.Join(t.TempDir(), "keys.json"), filepath.Join(t.TempDir(), "flushed.json")
	const keysText = `{"www.example.com": ["73134416ae45434d98edc086e0bf6740"]}`
	writeFile(t, keys, keysText)
	if code, _, stderr := run(t, "", "flush", "--key", privateKey(t), "--state", flushed, "--sitemap",
		"https://www.example.com/sitemap.xml"); code != exitClean {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	for name, args := range map[string][]string{
		"no memory for a state": {"submit", "--state", state, "--sitemap", "https://www.example.com/sitemap.xml", "--max-state", "0"},
		"no file":               {"submit", "--state", state, "--sitemap", state + "x"},
		"a state that is none":  {"submit", "--state", keys, "--sitemap", "https://www.example.com/sitemap.xml"},
		"a state of flush":      {"submit", "--state", flushed, "--sitemap", "https://www.example.com/sitemap.xml"},
		"no directory":          {"submit", "--state", filepath.Join(state, "x"), "--sitemap", "https://www.example.com/sitemap.xml"},
	} {
		t.Run(name, func(t *testing.T) {
			if code, _, stderr := run(t, "", args...); code != exitUsage || stderr == "" {
				t.Errorf("exit code %d\n%s", code, stderr)
			}
		})
	}
	if code, _, stderr := run(t, "", "submit", "--state", filepath.Join(t.TempDir(), "none", "s.json"), "--sitemap",
		"https://www.example.com/sitemap.xml"); code != exitUsage || !strings.Contains(stderr, "does not exist; make it first") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	if data, err := os.ReadFile(keys); err != nil || string(data) != keysText {
		t.Errorf("the file of the keys is now %s, %v", data, err)
	}
}

// An entry of another host is an error of each run, but does not keep the others from being recorded.
func TestAStateWithSkippedPages(t *testing.T) {
	t.Setenv("INDEXNOW_KEY", "73134416ae45434d98edc086e0bf6740")
	pages := "https://www.example.com/1\nhttps://shop.example.com/2\n"
	useWeb(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sitemap.xml" {
			io.WriteString(w, pages)
		}
	})
	args := []string{"submit", "--sitemap", "HTTPS://www.example.com/sitemap.xml", "--state", filepath.Join(t.TempDir(), "state.json")}
	if code, _, stderr := run(t, "", args...); code != exitFindings || !strings.Contains(stderr, "1 page is recorded") ||
		!strings.Contains(stderr, "skipped: https://shop.example.com/2\n") || !strings.Contains(stderr, "line 2 (26 bytes) is on another host") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	pages += "https://www.example.com/3\n"
	if code, stdout, stderr := run(t, "", args...); code != exitFindings || stdout != "www.example.com: 1 URL accepted\n" ||
		!strings.Contains(stderr, "line 2 (26 bytes) is on another host, which is not allowed; want a URL of www.example.com, the host of the "+
			"file\n") ||
		!strings.Contains(stderr, "ampcors: if another host is meant, name it with --allow-host\n") {
		t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
	}
	if code, stdout, stderr := run(t, "", append(args, "--allow-host", "shop.example.com")...); code != exitClean ||
		stdout != "shop.example.com: 1 URL accepted\n" || stderr != "" {
		t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
	}
}

// Two runs at one time do not announce the same pages.
func TestAStateIsLocked(t *testing.T) {
	key := privateKey(t)
	args := []string{"flush", "--key", key, "--all", "--sitemap", "https://www.example.com/sitemap.xml", "--state",
		filepath.Join(t.TempDir(), "state.json")}
	inner := ""
	useWeb(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sitemap.xml" {
			io.WriteString(w, "https://www.example.com/a[1]?%7e\n")
			return
		}
		code, _, stderr := run(t, "", args...) // the next run begins while this one flushes
		inner = fmt.Sprint(code, stderr)
		io.WriteString(w, "OK")
	})
	code, stdout, stderr := run(t, "", args...)
	if code != exitClean || stdout != "https://www.example.com/a[1]?%7e: flushed\n" ||
		!strings.HasPrefix(inner, "3ampcors: another ampcors uses the state") {
		t.Errorf("exit code %d\n%s\n%s\n%s", code, stdout, stderr, inner)
	}
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

// A page that no key file covers is said once, and does not fail each run with a state.
func TestAPageThatNoKeyFileCoversIsSaidOnce(t *testing.T) {
	t.Setenv("INDEXNOW_KEY", "0123456789abcdef")
	useWeb(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sitemap.xml" {
			io.WriteString(w, "https://www.example.com/a/1\nhttps://www.example.com/b/1\nhttps://www.example.com/c/1\n")
		}
	})
	state := filepath.Join(t.TempDir(), "state.json")
	args := []string{"submit", "--key-location", "https://www.example.com/a/k.txt", "--key-location", "https://www.example.com/b/k.txt",
		"--sitemap", "https://www.example.com/sitemap.xml", "--all", "--state", state}
	code, stdout, stderr := run(t, "", args...)
	if code != exitFindings || !strings.Contains(stdout, "www.example.com: 2 URLs accepted") ||
		!strings.Contains(stdout+stderr, `"https://www.example.com/c/1" is not covered by the key file, which is for its own folder; want a `+
			`page below "https://www.example.com/a/" or "https://www.example.com/b/"`) {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if code, stdout, stderr := run(t, "", args...); code != exitClean || stderr != "ampcors: no page is new or has changed\n" {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	// It is announced when there is a key file for it, by the code of the rejection and not by its words.
	data, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"as it is":    string(data),
		"other words": strings.Replace(string(data), "is not covered by the key file", "is elsewhere", 1),
	} {
		if err := os.WriteFile(state, []byte(text), 0o600); err != nil || name != "as it is" && text == string(data) {
			t.Fatal(name, err, text)
		}
		if code, stdout, stderr := run(t, "", append(args, "--key-location", "https://www.example.com/c/k.txt")...); code != exitClean ||
			stdout != "www.example.com: 1 URL accepted\n" {
			t.Errorf("%s: exit code %d\n%s%s", name, code, stdout, stderr)
		}
	}
}

// The lines of --show-key can be pasted: curl then sends what submit would, and the GET for one URL.
func TestTheLinesOfShowKeySendTheRequests(t *testing.T) {
	shell, _ := servertest.Program(t, "install a shell", "sh"), servertest.Program(t, "install curl (Debian: apt-get install curl)", "curl")
	t.Setenv("INDEXNOW_KEY", "0123456789abcdef")
	var got []string
	engine := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, strings.TrimSpace(fmt.Sprint(r.Method, " ", r.URL, " ", r.Header.Get("Content-Type"), " ", string(body))))
	}))
	defer engine.Close()
	paste := func(args ...string) {
		t.Helper()
		args = append([]string{"submit", "--dry-run", "--show-key", "--endpoint", engine.URL + "/indexnow"}, args...)
		code, stdout, stderr := run(t, "", args...)
		if code != exitClean {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		if out, err := exec.Command(shell, "-c", stdout).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s\n%s", err, out, stdout)
		}
	}
	paste("--key-location", "https://www.example.com/a/it's.txt", "https://www.example.com/a/é?x='1'&$HOME")
	paste("https://www.example.com/1", "https://www.example.com/2")
	want := []string{
		`POST /indexnow application/json; charset=utf-8 {"host":"www.example.com","key":"0123456789abcdef",` +
			`"keyLocation":"https://www.example.com/a/it's.txt","urlList":["https://www.example.com/a/%C3%A9?x='1'&$HOME"]}`,
		`GET /indexnow?key=0123456789abcdef&keyLocation=https%3A%2F%2Fwww.example.com%2Fa%2Fit%27s.txt` +
			`&url=https%3A%2F%2Fwww.example.com%2Fa%2F%25C3%25A9%3Fx%3D%271%27%26%24HOME`,
		`POST /indexnow application/json; charset=utf-8 {"host":"www.example.com","key":"0123456789abcdef",` +
			`"urlList":["https://www.example.com/1","https://www.example.com/2"]}`,
	}
	for i := range got {
		got[i] = strings.TrimRight(got[i], " \n")
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A site that is not in the DNS yet, and one without https, can be verified.
func TestVerifyOfANewSite(t *testing.T) {
	t.Setenv("INDEXNOW_KEY", "0123456789abcdef")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "www.example.com" && r.URL.Path == "/0123456789abcdef.txt" {
			w.Header().Set("Content-Type", "text/plain")
			io.WriteString(w, "0123456789abcdef")
		}
	}))
	defer server.Close()
	resolve := "www.example.com:80:" + server.Listener.Addr().String()
	if code, stdout, stderr := run(t, "", "verify", "--resolve", resolve, "http://www.example.com"); code != exitClean ||
		stdout != "http://www.example.com: the key file is correct\n" {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if code, _, stderr := run(t, "", "verify", "--resolve", "www.example.com", "www.example.com"); code != exitUsage ||
		!strings.Contains(stderr, "www.example.com") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	if code, _, stderr := run(t, "", "verify", "ftp://www.example.com"); code != exitFindings ||
		!strings.Contains(stderr, "ftp://www.example.com") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
}

// A sitemap that redirects to another host: the user is told where to.
func TestASitemapThatRedirectsIsSaidWhereTo(t *testing.T) {
	t.Setenv("INDEXNOW_KEY", "0123456789abcdef")
	useWeb(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://cdn.example/sitemap.xml", http.StatusFound)
	})
	for _, args := range [][]string{{"submit", "--sitemap"}, {"submit", "--state", filepath.Join(t.TempDir(), "state.json"), "--sitemap"},
		{"probe", "--sitemap"}} {
		if code, _, stderr := run(t, "", append(args, "https://www.example.com/sitemap.xml")...); code == exitClean ||
			!strings.Contains(stderr, "allow its host with --allow-host: https://cdn.example/sitemap.xml\n") {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
}

// A sitemap that lists nothing in the first run is known: the pages of the next run are announced.
func TestTheFirstPagesOfAnEmptySitemapAreAnnounced(t *testing.T) {
	t.Setenv("INDEXNOW_KEY", "0123456789abcdef")
	text := ""
	useWeb(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sitemap.xml" {
			io.WriteString(w, text)
		}
	})
	local := filepath.Join(t.TempDir(), "sitemap.xml")
	for _, name := range []string{local, "https://www.example.com/sitemap.xml"} {
		args := []string{"submit", "--sitemap", name, "--state", filepath.Join(t.TempDir(), "state.json")}
		for _, step := range []struct{ text, stdout, stderr string }{
			{"<urlset></urlset>", "", "is new: 0 pages are recorded"},
			{"<urlset></urlset>", "", "no page is new or has changed"},
			{"<urlset><url><loc>https://www.example.com/1</loc></url></urlset>", "www.example.com: 1 URL accepted\n", ""},
		} {
			text = step.text
			writeFile(t, local, text)
			if code, stdout, stderr := run(t, "", args...); code != exitClean || stdout != step.stdout || !strings.Contains(stderr, step.stderr) {
				t.Errorf("%s, %q: exit code %d\n%s%s", name, text, code, stdout, stderr)
			}
		}
	}
}

// A sitemap that may be readable later is exit code 3, and Retry-After is shown.
func TestASitemapThatMayBeReadableLater(t *testing.T) {
	t.Setenv("INDEXNOW_KEY", "0123456789abcdef")
	useWeb(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/down.xml":
			w.Header().Set("Retry-After", "120")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/limited.xml":
			w.WriteHeader(http.StatusTooManyRequests)
		case "/gone.xml":
			w.WriteHeader(http.StatusGone)
		case "/bad.xml":
			io.WriteString(w, "<urlset>")
		case "/good.xml":
			io.WriteString(w, "https://www.example.com/1\n")
		}
	})
	const site = "https://www.example.com/"
	for _, test := range []struct {
		sitemaps string
		code     int
		stderr   string
	}{
		{"down.xml", exitLater, "the answer is 503; want 200, and the server wants no request for 2m0s"},
		{"limited.xml", exitLater, "the answer is 429; want 200"},
		{"down.xml limited.xml good.xml", exitLater, "nothing is recorded"},
		{"gone.xml", exitFindings, "the answer is 410"},
		{"bad.xml", exitFindings, "its XML has an error"},
		{"down.xml bad.xml", exitFindings, "the answer is 503"},
	} {
		args := []string{"submit", "--gone", "--state", filepath.Join(t.TempDir(), "state.json")}
		for name := range strings.FieldsSeq(test.sitemaps) {
			args = append(args, "--sitemap", site+name)
		}
		if code, _, stderr := run(t, "", args...); code != test.code || !strings.Contains(stderr, test.stderr) {
			t.Errorf("%s: exit code %d; want %d and %q\n%s", test.sitemaps, code, test.code, test.stderr, stderr)
		}
	}
}

func TestASitemapWithoutASchemeIsNamed(t *testing.T) {
	t.Setenv("INDEXNOW_KEY", "0123456789abcdef")
	for name, hint := range map[string]bool{"www.example.com/sitemap.xml": true, "sitemap.xml": false, "../nowhere/s.xml": false} {
		code, _, stderr := run(t, "", "submit", "--sitemap", name)
		if code != exitUsage || strings.Contains(stderr, "begins with a scheme: https://"+name) != hint {
			t.Errorf("%s: exit code %d, %s", name, code, stderr)
		}
	}
}

// A sitemap that can never be read does not keep the others from being announced, and is named in each run.
func TestABadSitemapBesideAGoodOne(t *testing.T) {
	t.Setenv("INDEXNOW_KEY", "0123456789abcdef")
	pages, downs := "https://www.example.com/1\nhttps://www.example.com/2\n", 0
	useWeb(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good.txt":
			io.WriteString(w, pages)
		case "/bad.xml":
			io.WriteString(w, "<urlset><url><loc>https://www.example.com/?a&b</loc></url></urlset>")
		case "/down.xml":
			w.WriteHeader(downs)
		}
	})
	state := filepath.Join(t.TempDir(), "state.json")
	for i, step := range []struct {
		pages  string
		down   int
		args   string
		code   int
		stderr []string
		stdout string
	}{
		{pages, 503, "down.xml", exitFindings, []string{"/bad.xml: its XML has an error at line 1: an &",
			"nothing is recorded, because a later run may read"}, ""},
		{pages, 404, "down.xml", exitFindings, []string{"/bad.xml: its XML has an error at line 1: an &", "the answer is 404",
			"2 pages are recorded"}, ""},
		{pages, 0, "", exitFindings, []string{"/bad.xml: its XML"}, ""},
		{"https://www.example.com/1\nhttps://www.example.com/3\n", 0, "", exitFindings, []string{"/bad.xml: its XML"},
			"www.example.com: 1 URL accepted\n"},
		{"https://www.example.com/1\n", 0, "--gone", exitFindings, []string{"no page is taken to be gone, because not everything could be read"},
			""},
	} {
		pages, downs = step.pages, step.down
		args := []string{"submit", "--state", state, "--sitemap", "https://www.example.com/good.txt", "--sitemap",
			"https://www.example.com/bad.xml"}
		switch step.args {
		case "down.xml":
			args = append(args, "--sitemap", "https://www.example.com/down.xml")
		case "--gone":
			args = append(args, "--gone")
		}
		code, stdout, stderr := run(t, "", args...)
		for _, want := range step.stderr {
			if !strings.Contains(stderr, want) {
				t.Errorf("step %d: %s; want %s", i, stderr, want)
			}
		}
		if code != step.code || stdout != step.stdout {
			t.Errorf("step %d: exit code %d\n%s\n%s", i, code, stdout, stderr)
		}
	}
}

// README's line for a CI passes if all is right or a later run tries again.
func TestREADMEsPartAboutCI(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^    (ampcors submit .* \|\| .*)$`).FindSubmatch(readme)
	if line == nil {
		t.Fatal("README has no such line")
	}
	shell := servertest.Program(t, "sh is a part of each Unix", "sh")
	for code := range 4 {
		err := exec.Command(shell, "-c", fmt.Sprintf("ampcors() { return %d; }\n%s", code, line[1])).Run()
		if (err == nil) != (code == exitClean || code == exitLater) {
			t.Errorf("exit code %d: %v", code, err)
		}
	}
}

func TestTheListOfEngines(t *testing.T) {
	readme, err := os.ReadFile("../../announce/README.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("INDEXNOW_KEY", "0123456789abcdef")
	for name, endpoint := range engines {
		if !bytes.Contains(readme, []byte("\n- `"+name+"`: `"+endpoint+"`\n")) {
			t.Errorf("announce/README does not have %s", name)
		}
		for _, spelling := range []string{name, strings.ToUpper(name)} {
			if code, stdout, _ := run(t, "", "submit", "--endpoint", spelling, "--dry-run", "https://www.example.com/"); code != exitClean ||
				!strings.HasPrefix(stdout, "POST "+endpoint+"\n") {
				t.Errorf("%s: %s", spelling, stdout)
			}
		}
	}
	if code, _, stderr := run(t, "", "submit", "--endpoint", "google", "--dry-run", "https://www.example.com/"); code != exitUsage ||
		!strings.Contains(stderr, "want amazon, bing, internetarchive") {
		t.Errorf("an engine that does not take part: %d %s", code, stderr)
	}
}

// Flags that several commands have work in each of them.
func TestSharedFlags(t *testing.T) {
	_, list, _ := run(t, "", "caches")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, list) }))
	defer server.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // its certificate is rejected
	secure.StartTLS()
	defer secure.Close()
	key := privateKey(t)
	useWeb(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		if r.URL.Path == "/0123456789abcdef.txt" {
			io.WriteString(w, "0123456789abcdef")
		} else {
			io.WriteString(w, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>https://shop.example/b</loc></url></urlset>`)
		}
	})
	t.Setenv("INDEXNOW_KEY", "0123456789abcdef")
	state, other := filepath.Join(t.TempDir(), "state.json"), otherCaches(t)
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"caches", "--resolve", "lists.example:80:" + server.Listener.Addr().String(), "--compare", "http://lists.example/caches.json"},
			exitClean, "the same "},
		{[]string{"cached", "--caches", other, "--resolve", "www-example-com.cache.example:443:" + secure.Listener.Addr().String(),
			"https://www.example.com/a"}, exitLater, "certificate"},
		{[]string{"flush", "--key", key, "--cache", "google", "--resolve",
			"www-example-com.cdn.ampproject.org:443:" + secure.Listener.Addr().String(), "https://www.example.com/a"}, exitLater, "certificate"},
		{[]string{"probe", "--plan", "--caches", other, "--endpoint", "https://api.example/", "--publisher", "www.example.com"}, exitClean,
			"https://www-example-com.cache.example"},
		{[]string{"verify", "-o", "json", "www.example.com"}, exitClean, `"www.example.com: the key file is correct"`},
		{[]string{"flush", "--key", key, "--dry-run", "--sitemap", "https://www.example.com/sitemap.xml", "--allow-host", "shop.example"},
			exitClean, "/c/s/shop.example/b"},
		{[]string{"flush", "--key", key, "--state", state, "--gone", "--max-gone", "1", "--sitemap", "https://www.example.com/sitemap.xml",
			"--allow-host", "shop.example"}, exitClean, ""},
	} {
		if code, stdout, stderr := run(t, "", test.args...); code != test.code || !strings.Contains(stdout+stderr, test.want) {
			t.Errorf("%q: exit code %d; want %d and %q in\n%s%s", test.args, code, test.code, test.want, stdout, stderr)
		}
	}
}

// Files with secrets that others may read or change are warned of, but used.
func TestModesOfFilesWithSecrets(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such modes")
	}
	dir := t.TempDir()
	key := privateKey(t)
	keys := writeFile(t, filepath.Join(dir, "keys.json"), `{"www.example.com": ["0123456789abcdef"]}`)
	for mode, isWarned := range map[os.FileMode]bool{0o600: false, 0o400: false, 0o644: true, 0o640: true, 0o666: true} {
		for _, file := range []string{key, keys} {
			if err := os.Chmod(file, mode); err != nil {
				t.Fatal(err)
			}
		}
		for _, args := range [][]string{{"flush", "--key", key, "--dry-run", "https://www.example.com/"},
			{"submit", "--keys", keys, "--dry-run", "https://www.example.com/"}} {
			code, _, stderr := run(t, "", args...)
			if code != exitClean || strings.Contains(stderr, "chmod 600") != isWarned {
				t.Errorf("%04o: %q: %d %s", mode, args, code, stderr)
			}
		}
	}
}

// With --log, each answer is a line of a file, and a second run adds to it. What takes long says so at its beginning.
func TestTheLogHasEachAnswer(t *testing.T) {
	useWeb(t, func(w http.ResponseWriter, r *http.Request) {
		var body []byte
		if r.Body != nil {
			body, _ = io.ReadAll(r.Body)
		}
		switch {
		case strings.Contains(r.URL.String()+string(body), "/bad"):
			w.WriteHeader(map[string]int{http.MethodPost: 422, http.MethodGet: 403}[r.Method])
		default:
			io.WriteString(w, "OK")
		}
	})
	t.Setenv("INDEXNOW_KEY", "0123456789abcdef")
	key, two, dir := privateKey(t), twoCaches(t), t.TempDir()
	lines := func(name string) (lines []string) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			var got struct {
				Time              time.Time
				URL, Cache, Error string
				URLs              []string
				Accepted, Flushed bool
				Status            int
			}
			if err := json.Unmarshal([]byte(line), &got); err != nil || got.Time.IsZero() {
				t.Errorf("%s: %v", line, err)
			}
			lines = append(lines, fmt.Sprintf("%s%s%s %t %d", strings.Join(got.URLs, " "), got.URL, got.Cache, got.Accepted || got.Flushed,
				got.Status))
		}
		slices.Sort(lines)
		return lines
	}
	for range 2 {
		run(t, "", "submit", "--log", filepath.Join(dir, "sent"), "https://www.example.com/a", "https://www.example.com/bad")
		run(t, "", "flush", "--key", key, "--caches", two, "--log", filepath.Join(dir, "flushed"), "https://www.example.com/a",
			"https://www.example.com/bad")
	}
	once := []string{"https://www.example.com/a true 0", "https://www.example.com/bad false 422"}
	if got, want := lines("sent"), slices.Sorted(slices.Values(slices.Concat(once, once))); !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
	once = []string{"https://www.example.com/abing true 0", "https://www.example.com/agoogle true 0",
		"https://www.example.com/badbing false 403", "https://www.example.com/badgoogle false 403"}
	if got, want := lines("flushed"), slices.Sorted(slices.Values(slices.Concat(once, once))); !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
	const secret = "0123456789abcdef0123456789abcdef"
	run(t, "", "submit", "--log", filepath.Join(dir, "secrets"), "https://www.example.com/"+secret+".txt")
	run(t, "", "flush", "--key", key, "--log", filepath.Join(dir, "secrets"), "https://jane:"+secret+"@www.example.com/a")
	if data, err := os.ReadFile(filepath.Join(dir, "secrets")); err != nil || strings.Contains(string(data), secret) ||
		!strings.Contains(string(data), "…@www.example.com") {
		t.Errorf("%s, %v", data, err)
	}
	pages := append(slices.Repeat([]string{"https://www.example.com/a"}, 601), "https://www.example.net/a", ":")
	if least := flushTime(pages); least != 60100*time.Millisecond {
		t.Errorf("it takes %v", least)
	}
	if code, _, _ := run(t, "", "flush", "--key", key, "--log", dir, "https://www.example.com/a"); code != exitUsage {
		t.Errorf("a log that is a folder: %d", code)
	}
}

// Without a terminal, there is a line of progress now and then.
func TestProgressWithoutATerminal(t *testing.T) {
	saved := progressEvery
	t.Cleanup(func() { progressEvery = saved })
	var out strings.Builder
	for every, want := range map[time.Duration]string{0: "1 of 2\n2 of 2\n", time.Hour: ""} {
		progressEvery = every
		out.Reset()
		show, clear := consoleOf(&out).progress()
		show("1 of 2")
		show("2 of 2")
		if clear(); out.String() != want {
			t.Errorf("%v: %q", every, &out)
		}
	}
}
