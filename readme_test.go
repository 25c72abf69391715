package ampcors

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func readme(t *testing.T) string { return file(t, "README.md") }

func file(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if os.IsNotExist(err) && os.Getenv("AMPCORS_CI") == "" {
		t.Skipf("%s is not here: this is not the whole repository, but a module of it", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// blocks returns a text's fenced blocks in a language.
func blocks(t *testing.T, text, language string) (found []string) {
	t.Helper()
	for _, m := range regexp.MustCompile("(?s)\n```"+language+"\n(.*?)```\n").FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	if len(found) == 0 {
		t.Fatalf("there is no block in %s", language)
	}
	return found
}

// run runs a command line in dir and fails the test if it fails.
func run(t *testing.T, dir, line string, env ...string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// TestREADMEsProgramRuns builds and starts the README's program, at a free port, and
// asks it as a cache's page would.
func TestREADMEsProgramRuns(t *testing.T) {
	t.Parallel()
	program := blocks(t, readme(t), "go")[0]
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	listener.Close()
	if !strings.Contains(program, `"localhost:8080"`) {
		t.Fatalf("the program does not listen where this test expects it:\n%s", program)
	}
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte(strings.ReplaceAll(program, "localhost:8080", addr)), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, ".", "go vet '"+source+"' && go build -o '"+binary+"' '"+source+"'")
	cmd := exec.Command(binary)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // its error is the kill
	}()

	r, err := http.NewRequest("GET", "http://"+addr+"/articles", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Origin", cacheOrigin)
	var resp *http.Response
	for range 100 {
		if resp, err = http.DefaultClient.Do(r); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.Header.Get("Access-Control-Allow-Origin") != cacheOrigin || !strings.Contains(string(body), `"for":"www.example.com"`) {
		t.Errorf("answer %v, %s, %v", resp.Header, body, err)
	}
}

// TestREADMEsCommandsAreRun: those that use a checkout are run here, as a new user
// would, and the others by CI.
func TestREADMEsCommandsAreRun(t *testing.T) {
	t.Parallel()
	ci := file(t, ".ci/run")
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	checkouts := 0
	for _, block := range append(blocks(t, readme(t), "sh"), blocks(t, file(t, "e2e/README.md"), "sh")...) {
		if !strings.Contains(block, "../ampcors") {
			for line := range strings.Lines(block) {
				if command := "\n" + strings.TrimSpace(line); !strings.Contains(ci, command) {
					t.Errorf("CI does not run %q", line)
				}
			}
			continue
		}
		checkouts++
		parent := t.TempDir()
		if err := os.Symlink(root, filepath.Join(parent, "ampcors")); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(parent, "api")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(blocks(t, readme(t), "go")[0]), 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, dir, "go mod init example.com/api && "+strings.ReplaceAll(strings.TrimSpace(block), "\n", " && ")+" && go build -o program .",
			"GOWORK=",     // not this checkout's
			"GONOSUMDB=*") // go.sum here has vouched for the modules; so this needs no network
	}
	if checkouts != 2 {
		t.Errorf("%d blocks say how to use a checkout; want 2", checkouts)
	}
}

// TestREADMEsGlueIsThatOfTheTestedPrograms: so that what is copied from it works.
func TestREADMEsGlueIsThatOfTheTestedPrograms(t *testing.T) {
	inOneLine := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	has := func(name, code string) {
		t.Helper()
		if !strings.Contains(inOneLine(file(t, name)), inOneLine(strings.TrimSuffix(code, "…)"))) {
			t.Errorf("%s has no %q", name, code)
		}
	}
	_, section, _ := strings.Cut(readme(t), "\n## In your framework\n")
	section, _, _ = strings.Cut(section, "\n## ")
	cells := 0
	for stack, name := range map[string]string{"net/http": "servemux", "chi v5": "chi", "gin v1": "gin", "echo v5": "echo", "fiber v3": "fiber"} {
		_, row, _ := strings.Cut(section, "\n| "+stack+" | ")
		row, _, _ = strings.Cut(row, "\n")
		for _, quoted := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row, -1) {
			has("examples/frameworks/"+name+"/main.go", quoted[1])
			cells++
		}
	}
	if cells != 11 {
		t.Errorf("the table has %d pieces of code; want 11", cells)
	}
	has("examples/frameworks/gin/main.go", blocks(t, section, "go")[0])

	_, section, _ = strings.Cut(readme(t), "\n### Emails\n")
	has("example_test.go", blocks(t, section, "go")[0])

	_, section, _ = strings.Cut(readme(t), "\n## Where the publishers are\n")
	has("examples/publisher/config.json", blocks(t, section, "json")[0])
	has("configfile/example_test.go", blocks(t, section, "go")[0])
	has("source/sqlsource/example_test.go", blocks(t, section, "go")[1])

	_, section, _ = strings.Cut(readme(t), "\n## When an article changes\n")
	for i, name := range []string{"cacheurl", "updatecache", "indexnow"} {
		has(name+"/example_test.go", blocks(t, section, "go")[i])
	}
}

// TestREADMEsTableOfOrigins looks whether each origin in the table is refused for
// the reason that it gives.
func TestREADMEsTableOfOrigins(t *testing.T) {
	_, table, _ := strings.Cut(readme(t), "## What is refused, and why")
	table, _, _ = strings.Cut(table, "\n## ")
	m := newMiddleware(t, testConfig())
	cfg := testConfig()
	cfg.Source = &setSource{err: errDown}
	down := newMiddleware(t, cfg)
	origins := 0
	for row := range strings.Lines(table) {
		cells := strings.Split(row, " | ")
		if len(cells) != 3 || !strings.Contains(cells[0], "`") || cells[1] == "reason" {
			continue
		}
		for _, quoted := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[0], -1) {
			origins++
			origin := strings.Replace(quoted[1], "v2c4…fygq", "v2c4ucasgcskftbjt4c7phpkbqedcdcqo23tkamleapoa5o6fygq", 1)
			m := m
			if cells[1] == ReasonSourceUnavailable.String() {
				m = down
			}
			if d := m.CheckOrigin(origin); d.Allowed || d.Reason.String() != cells[1] {
				t.Errorf("%s is decided as %q; the README says %q", origin, d.Reason, cells[1])
			}
		}
	}
	if origins != 13 {
		t.Errorf("the table has %d origins; want 13", origins)
	}
}

// TestREADMEHasTheSpeedThatWasMeasured: bench/run writes it between two comments.
func TestREADMEHasTheSpeedThatWasMeasured(t *testing.T) {
	_, tables, ok := strings.Cut(readme(t), "\n<!-- bench/run writes what follows -->\n")
	tables, _, ok2 := strings.Cut(tables, "\n<!-- bench/run writes what precedes -->\n")
	if rows := strings.Count(tables, "\n| "); !ok || !ok2 || rows < 40 || !strings.Contains(tables, "\n### Publishers of a Source\n") {
		t.Errorf("%d rows stand between the comments", rows)
	}
	for _, name := range []string{"libraries", "Redis", "PostgreSQL"} {
		_, table, _ := strings.Cut(file(t, "e2e/README.md"), "\n<!-- "+name+": a test writes what follows -->\n")
		table, _, _ = strings.Cut(table, "<!-- "+name+": a test writes what precedes -->\n")
		if rows := strings.Count(table, "\n| "); rows < 6 {
			t.Errorf("the table of %s in e2e/README.md has %d rows", name, rows)
		}
	}
}
