package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/probe"
)

func TestMain(m *testing.M) {
	if os.Getenv("AMPCORS_TEST_RUNS_MAIN") != "" {
		signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM) // a signal does not end the process before main is ready
		fmt.Println("ready")
		main() // in another process
	}
	progressEvery = time.Hour // tests compare what is printed
	testscript.Main(tests{m}, map[string]func(){"ampcors": runScripted})
}

// tests are those of the package, with a look at what they have set.
type tests struct{ m *testing.M }

// Run implements testscript.TestingM.
func (t tests) Run() int {
	code := t.m.Run()
	if unset := unsetFlags(); code == 0 && len(unset) > 0 && os.Getenv("AMPCORS_CI") != "" && flag.Lookup("test.run").Value.String() == "" &&
		flag.Lookup("test.bench").Value.String() == "" && flag.Lookup("test.fuzz").Value.String() == "" {
		fmt.Printf("no test sets %s\n", strings.Join(unset, ", "))
		code = 1
	}
	return code
}

// setFlags has each flag that a test has set, as "ampcors probe --rate". Without a database, tests that set some are skipped, so
// TestMain looks at it only in CI.
var setFlags sync.Map

// noteFlags notes the flags that a command has got.
func noteFlags(root *cobra.Command) {
	forEachFlag(root, func(name string, f *pflag.Flag) {
		if f.Changed {
			setFlags.Store(name, true)
		}
	})
}

func unsetFlags() (unset []string) {
	forEachFlag(newRoot(), func(name string, _ *pflag.Flag) {
		if _, isSet := setFlags.Load(name); !isSet {
			unset = append(unset, name)
		}
	})
	return unset
}

func forEachFlag(cmd *cobra.Command, do func(name string, f *pflag.Flag)) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { do(cmd.CommandPath()+" --"+f.Name, f) })
	for _, child := range cmd.Commands() {
		forEachFlag(child, do)
	}
}

// hostile has what acts in a terminal, or changes how text is shown: an escape sequence, a title,
// backspaces, C1 controls, bidirectional overrides, a tag character, and bytes that are not UTF-8.
const hostile = "a\x1b[31mb\x1b]0;title\a\b\r\x7f\u0085\u009b2J\u200b\u202e\u2066\ufeff\U000e0041\xff\xc3z"

func isPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' })
}

func TestPrintable(t *testing.T) {
	const want = `a\u001b[31mb\u001b]0;title\u0007\u0008\u000d\u007f\u0085\u009b2J\u200b\u202e\u2066\ufeff\udb40\udc41\ufffd\ufffdz`
	const plain = "Bücher 日本語 🐘 \t\n"
	for text, want := range map[string]string{hostile: want, plain: plain} {
		var out bytes.Buffer
		if n, err := (printer{&out}).Write([]byte(text)); out.String() != want || n != len(text) || err != nil {
			t.Errorf("%q: %s, %d, %v; want %s", text, &out, n, err, want)
		}
	}
}

// Nothing that comes from outside reaches the terminal unescaped, in any format.
func TestOutputIsPrintable(t *testing.T) {
	t.Setenv("INDEXNOW_KEY", "73134416ae45434d98edc086e0bf6740")
	text, err := json.Marshal(strings.ToValidUTF8(hostile, ""))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/api":
			io.WriteString(w, `{"ampUrls": [{"originalUrl": "https://a.example/", "ampUrl": `+string(text)+`, "cdnAmpUrl": `+string(text)+
				`}], "urlErrors": [{"originalUrl": "https://b.example/", "errorMessage": `+string(text)+`}]}`)
		case r.URL.Path == "/article":
			io.WriteString(w, `<!doctype html><html ⚡><body><amp-list src="/list?`+hostile+`"></amp-list><amp-list src="/list" [src]="`+hostile+
				`"></amp-list></body></html>`)
		default:
			w.Header().Set("Access-Control-Allow-Origin", "https://a\u009b2J\u202e.example")
			io.WriteString(w, "{}")
		}
	}))
	defer server.Close()
	for _, command := range [][]string{
		{"explain", "--publisher", "a.example"},
		{"explain", "--publisher", hostile}, {"reverse"}, {"prefix"}, {"origins"}, {"cacheurl"}, {"submit", "--dry-run"}, {"check", hostile},
		{hostile}, {"explain", "--" + hostile},
		{"flush", "--dry-run", "--key", privateKey(t)},
	} {
		for _, format := range []string{"text", "json"} {
			args := append([]string{"-o", format}, command...)
			if command[0] == hostile {
				args = command
			}
			code, stdout, stderr := run(t, hostile+"\nhttps://"+hostile+".cdn.ampproject.org/"+hostile+"\n", args...)
			if !isPrintable(stdout+stderr) || stdout+stderr == "" {
				t.Errorf("%q: %q, %q", args, stdout, stderr)
			}
			if format == "json" && stdout != "" && !json.Valid([]byte(stdout)) {
				t.Errorf("%q: exit code %d, and no JSON: %s", args, code, stdout)
			}
		}
	}
	for _, format := range []string{"text", "json", "junit", "html"} {
		code, stdout, stderr := run(t, "", "probe", "--rate", "0", "--publisher", "www.example.com", "-o", format, server.URL+"/article")
		if code == exitUsage || !isPrintable(stdout+stderr) || !strings.Contains(stdout, `\u009b`) {
			t.Errorf("probe -o %s: exit code %d\n%q\n%q", format, code, stdout, stderr)
		}
		if format == "json" && !json.Valid([]byte(stdout)) || format == "junit" && xml.Unmarshal([]byte(stdout), new(junitSuites)) != nil {
			t.Errorf("probe -o %s: %s", format, stdout)
		}
	}
	// With colors, escape sequences are those of the program.
	var colored strings.Builder
	if err := writeTable(&colored, &probe.Report{Target: hostile, Notes: []string{hostile},
		Untested: []probe.Untested{{Endpoint: hostile, Reason: hostile}}, Unknown: []probe.Unknown{{Component: hostile, What: hostile}},
		Findings: []probe.Finding{{ID: "id", Severity: probe.High, Title: hostile, Endpoint: hostile, Origin: hostile,
			Evidence: []string{hostile}, Remedy: hostile, Curl: hostile}}}, console{color: true, width: 40}, ""); err != nil {
		t.Fatal(err)
	}
	if rest := strings.Replace(strings.Replace(colored.String(), "\x1b[31m", "", 1), "\x1b[0m", "", 1); !isPrintable(rest) {
		t.Errorf("%q", rest)
	}
}

// A terminal gets colors, lines of its width, and one line of progress, which is removed. A pipe and the null device are none.
func TestATerminalIsOne(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the program script has other flags on this system")
	}
	script := servertest.Program(t, "install script (Debian: apt-get install bsdutils)", "script")
	server := public(t)
	for _, test := range []struct {
		name, env       string
		to              string // a redirection
		color, goesBack bool
		width           int
	}{
		{name: "a terminal", color: true, goesBack: true, width: 100},
		{name: "NO_COLOR", env: "NO_COLOR=1 ", goesBack: true, width: 100},
		{name: "a dumb terminal", env: "TERM=dumb ", width: 100},
		{name: "the null device", to: " 2>/dev/null | cat"},
	} {
		t.Run(test.name, func(t *testing.T) {
			line := fmt.Sprintf("stty cols 100; %sAMPCORS_TEST_RUNS_MAIN=1 %s probe --rate 0 --credentials --endpoint %s/ --publisher "+
				"www.example.com%s", test.env,
				os.Args[0], server.URL, test.to)
			cmd := exec.Command(script, "-qefc", line, os.DevNull)
			cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=")
			out, _ := cmd.CombinedOutput() // the exit code is 1, because of the finding
			text := string(out)
			if !strings.Contains(text, "wildcard-with-credentials") {
				t.Fatal(text)
			}
			if hasColor := strings.Contains(text, "\x1b[31m"); hasColor != test.color {
				t.Errorf("colors: %t", hasColor)
			}
			if goesBack := strings.Contains(text, "\r\x1b[K"); goesBack != test.goesBack {
				t.Errorf("the progress is one line, and removed: %t", goesBack)
			}
			longest := 0
			for line := range strings.Lines(regexp.MustCompile("\x1b\\[[0-9;]*[mK]|\r").ReplaceAllString(text, "")) {
				if strings.Contains(strings.TrimSpace(line), " ") && !strings.Contains(line, "curl") && !strings.Contains(line, " trials: ") {
					longest = max(longest, utf8.RuneCountInString(strings.TrimRight(line, "\n")))
				}
			}
			if isWrapped := longest <= 100; isWrapped != (test.width > 0) {
				t.Errorf("the longest line has %d characters", longest)
			}
		})
	}
}

// A signal ends a long list of answers, and a call of a database.
func TestASignalEndsAnswers(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{{"prefix", "a.example", "b.example"}, {"source", "fill", "--database", "postgres://127.0.0.1:1/x"}} {
		root := newRoot()
		root.SetArgs(args)
		var out, errs bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&errs)
		if code := execute(ctx, root); code != exitUntested || out.Len() > 0 || errs.String() != "ampcors: interrupted\n" {
			t.Errorf("%q: exit code %d: %s%s", args, code, &out, &errs)
		}
	}
}

// A signal ends the program while it waits for its input.
func TestASignalEndsWaiting(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		for _, args := range [][]string{
			{"prefix"}, {"probe", "--publisher", "a.example", "--list", "-"}, {"probe", "--publisher", "a.example", "--list", "/dev/stdin"},
			{"flush", "--key", privateKey(t), "--dry-run", "--sitemap", "/dev/stdin"},
		} {
			if _, err := os.Stat("/dev/stdin"); err != nil && slices.Contains(args, "/dev/stdin") {
				continue // on Windows
			}
			cmd := exec.Command(os.Args[0], args...)
			cmd.Env = append(os.Environ(), "AMPCORS_TEST_RUNS_MAIN=1")
			stdin, err := cmd.StdinPipe() // stays open
			if err != nil {
				t.Fatal(err)
			}
			defer stdin.Close()
			ready, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
				t.Fatalf("%q, %v", line, err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			for wait := time.After(2 * time.Minute); ; {
				if err := cmd.Process.Signal(signal); err != nil && err != os.ErrProcessDone {
					_ = cmd.Process.Kill()
					t.Skipf("%v cannot be sent on this system: %v", signal, err)
				}
				select {
				case <-ended:
				case <-time.After(100 * time.Millisecond): // perhaps it came before main was ready
					continue
				case <-wait:
					_ = cmd.Process.Kill()
					t.Fatalf("%q does not end", args)
				}
				break
			}
			if code := cmd.ProcessState.ExitCode(); code != exitUntested || !strings.HasSuffix(stderr.String(), "interrupted\n") {
				t.Errorf("%q: exit code %d: %s", args, code, &stderr)
			}
		}
	}
}

// writeFile writes a file, and returns its path.
func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// What the command prints has no name of Go: users of the command know flags, members and files.
func TestErrorsHaveNoNamesOfGo(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string { return writeFile(t, filepath.Join(dir, name), text) }
	t.Setenv("INDEXNOW_KEY", "0123456789abcdef")
	useWeb(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	key := privateKey(t)
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	weakKey := write("weak.pem", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(weak)})))
	bad := write("bad.json", `{"publishers": ["https://a.example"], "maxAge": 5, "caches": [{"id": 7}], "sites": 1}`)
	keys := write("keys.json", `{"www.example.com": "x"}`)
	sitemapFile := write("sitemap.xml", "<urlset><url><loc>https://www.example.com:99/%zz</loc></url></urlset>")
	lines := [][]string{
		{"check", bad}, {"explain", "--config", bad, "https://a.example"}, {"advice", "nginx", "--config", bad},
		{"flush", "--key", weakKey, "https://a.example/"},
		{"flush", "--key", keys, "https://a.example/"}, {"submit", "--keys", keys, "https://a.example/"},
		{"serve-authz", "--proxy", "nginx", "--config", bad},
		{"serve-proxy", "--config", bad, "--to", "http://127.0.0.1:1"},
		{"serve-proxy", "--config", bad, "--to", "x/y", "--to-ca", bad, "--host", "/", "--upgrade", "h2c"},

		{"prefix", "--caches", bad, "a.example"}, {"check", "--database", "postgres://a:b@c:99999/x", bad},
		{"source", "fill", "--database", "mysql://x", "--table", "1abc"},
		{"source", "install", "--database", "host=a port=x"}, {"source", "install", "--database", "x", "--domain-column", "1"},
		{"submit", "--sitemap", sitemapFile},
		{"submit", "--dry-run", "--key-location", "https://www.example.com/a/key.txt", "https://www.example.com/b"},
		{"flush", "--dry-run", "--key", key, "https://www.example.com/a?usqp=1"},
	}
	for _, value := range []string{
		"", "x", "https://", "ftp://a.example/", "https://a.example:99999/", "*.example.com", "http://[::1]/", "null", "a..b", strings.Repeat("a",
			300), "https://a.example/?usqp=1",
		"https://www-example-com.cdn.ampproject.org/c/s/www.example.com/a?usqp=1", "https://www-example-com.cdn.ampproject.org/z/s/a",
	} {
		for _, command := range [][]string{
			{"prefix"}, {"prefix", "--all"}, {"reverse"}, {"origins"}, {"cacheurl"}, {"cacheurl", "--type", "ii"},
			{"cacheurl", "--cache-query", "a=b"}, {"cacheurl", "--prefix", "a-b"},
			{"cacheurl", "--image-params", "w8/00"}, {"explain", "--publisher", "a.example"}, {"explain", "--publisher"}, {"verify"},
			{"verify", "--key", key}, {"flush", "--dry-run", "--key", key},
			{"flush", "--dry-run", "--key", key, "--image-params", "w800"}, {"flush", "--key"}, {"submit", "--dry-run"},
			{"submit", "--key-location"}, {"submit", "--dry-run", "--endpoint"},
			{"submit", "--keys"}, {"check"}, {"advice"}, {"probe", "--plan"}, {"probe", "--plan", "--endpoint"}, {"health"}, {"key"},
			{"source", "install", "--database"},
		} {
			lines = append(lines, append(slices.Clone(command), value))
		}
	}
	nameOfGo := regexp.MustCompile(`\b[a-z]+\.[A-Z]\w+|\b[A-Z][a-z]+[A-Z]\w*|\bpackages? |cannot ` +
		`unmarshal|pgsource|sqlsource|strconv|%!|\bConfig\b|\bSigner\b|\bParse\b`)
	products := strings.NewReplacer("IndexNow", "", "PostgreSQL", "", "MySQL", "", "MariaDB", "", "WordPress", "", "HAProxy", "", "GitHub", "",
		dir, "", filepath.Dir(key), "")
	for _, line := range lines {
		_, stdout, stderr := run(t, "", line...)
		if found := nameOfGo.FindString(products.Replace(stdout + stderr)); found != "" {
			t.Errorf("%.200q prints %q:\n%s%s", line, found, stdout, stderr)
		}
	}
	if len(lines) < 350 {
		t.Errorf("%d lines", len(lines))
	}
}
