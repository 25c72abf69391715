package proof

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/internal/mwtest"
	readmepart "github.com/ampcors/ampcors/internal/readme"
	"github.com/ampcors/ampcors/internal/servertest"
)

func readme(t *testing.T) string { return file(t, "README.md") }

func file(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", name))
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

// Each server that the repository starts ends the connections of clients that do not send or do not read.
func TestEachServerHasTimeouts(t *testing.T) {
	t.Parallel()
	servers := 0
	err := fs.WalkDir(os.DirFS(".."), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") ||
			strings.Contains(name, "node_modules") {
			return err
		}
		for _, literal := range regexp.MustCompile(`(?s)http\.Server\{.*?\}\n`).FindAllString(file(t, name), -1) {
			servers++
			for _, limit := range []string{"ReadTimeout:", "WriteTimeout:", "IdleTimeout:"} {
				if !slices.ContainsFunc(strings.Fields(literal), func(word string) bool { return word == limit }) {
					t.Errorf("%s: %s has no %s", name, literal, limit)
				}
			}
		}
		return nil
	})
	if err != nil || servers < 3 {
		t.Errorf("%d servers, %v", servers, err)
	}
}

// TestREADMEsCommandsAreRun checks that CI runs every command of these READMEs.
// TestREADMEsProgramRuns, and packaging/rehearse run those that install something. CI runs benchmarks more briefly.
func TestREADMEsCommandsAreRun(t *testing.T) {
	t.Parallel()
	benchtime := regexp.MustCompile(` -benchtime \w+`)
	ci := "\n" + benchtime.ReplaceAllString(file(t, ".ci/run"), "")
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "authz/README.md", "bench/README.md", "caddy/README.md",
		"conformance/README.md", "docs/proxy.md", "source/README.md"} {
		t.Run(name, func(t *testing.T) {
			for _, block := range blocks(t, file(t, name), "sh") {
				if strings.Contains(block, "../ampcors") || strings.HasPrefix(block, "go get ") || strings.HasPrefix(block, "go install ") {
					continue // TestREADMEsProgramRuns, and packaging/rehearse
				}
				for line := range strings.Lines(block) {
					if command := benchtime.ReplaceAllString(strings.TrimSpace(line), ""); !runs(ci, command) {
						t.Errorf("CI does not run %q of %s", line, name)
					}
				}
			}
		})
	}
}

// TestEachBadValueHasACode: programs read the code, and not the sentence.
func TestEachBadValueHasACode(t *testing.T) {
	t.Parallel()
	found := 0
	err := filepath.WalkDir("..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			literal, ok := n.(*ast.CompositeLit)
			if !ok || types.ExprString(literal.Type) != "badvalue.Error" {
				return true
			}
			found++
			isCode := func(e ast.Expr) bool {
				pair, ok := e.(*ast.KeyValueExpr)
				return ok && types.ExprString(pair.Key) == "Code"
			}
			if !slices.ContainsFunc(literal.Elts, isCode) {
				t.Errorf("%s: a badvalue.Error without a Code", name)
			}
			return true
		})
		return nil
	})
	if err != nil || found < 20 {
		t.Errorf("%d found, %v", found, err)
	}
}

// runs reports whether a line of a script is the command, alone or with a redirection.
func runs(script, command string) bool {
	return regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(command) + `( [>&|].*)?$`).MatchString(script)
}

// TestREADMEsProgramRuns installs ampcors from this checkout as the README says, builds and starts the
// README's program, at a free port, and asks it as a cache's page would.
func TestREADMEsProgramRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds programs, which takes seconds")
	}
	t.Parallel()
	const install = "go mod edit -replace=github.com/ampcors/ampcors=../ampcors\ngo mod tidy\n"
	program := blocks(t, readme(t), "go")[0]
	if text := readme(t); strings.Contains(text, "is not published yet") && !strings.Contains(text, install) {
		t.Errorf("the README does not say how to use a checkout:\n%s", install)
	}
	addr := servertest.FreeAddress(t)
	if !strings.Contains(program, `"localhost:8080"`) {
		t.Fatalf("the program does not listen where this test expects it:\n%s", program)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	parent := t.TempDir()
	dir := filepath.Join(parent, "api")
	if err := errors.Join(os.Symlink(root, filepath.Join(parent, "ampcors")), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(strings.ReplaceAll(program, "localhost:8080", addr)), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "go mod init example.com/api && "+strings.ReplaceAll(strings.TrimSpace(install), "\n", " && ")+
		" && go vet . && go build -o program .",
		"GOWORK=",     // not this checkout's
		"GONOSUMDB=*") // this checkout's go.sum has the checksums, so the test needs no network
	cmd := exec.Command(filepath.Join(dir, "program"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // its error is the kill
	}()

	var answers strings.Builder
	answers.WriteString("```console\n")
	for i, origin := range []string{mwtest.CacheOrigin, mwtest.EvilOrigin} {
		if i > 0 {
			answers.WriteString("\n")
		}
		fmt.Fprintf(&answers, "$ curl -i -H 'Origin: %s' http://localhost:8080/articles\n%s", origin,
			answerTo(t, origin, "http://"+addr+"/articles"))
	}
	answers.WriteString("```\n")
	readmepart.Check(t, "../README.md", "answers", answers.String())
}

// answerTo returns the response to a page's request as curl prints it, without Date and Content-Length. The server may not listen yet.
func answerTo(t *testing.T, origin, url string) string {
	t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Origin", origin)
	var resp *http.Response
	for range 1200 {
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
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", resp.Proto, resp.Status)
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		if name != "Date" && name != "Content-Length" {
			fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(resp.Header[name], ", "))
		}
	}
	return b.String() + "\n" + string(body)
}

// TestREADMEsTableOfFields compares the table with the comments of Config: the first sentence of each. UPDATE_README=1
// writes it.
func TestREADMEsTableOfFields(t *testing.T) {
	t.Parallel()
	parsed, err := parser.ParseFile(token.NewFileSet(), "../config.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	rows := "| field | what it is | if it is not set |\n| --- | --- | --- |\n"
	unset := regexp.MustCompile(`If (?:missing|zero|nil), ([^.;]*)`)
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != "Config" {
			return true
		}
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			name := f.Names[0].Name
			if name == "_" || strings.HasPrefix(name, "Dangerously") {
				continue
			}
			text := strings.Join(strings.Fields(f.Doc.Text()), " ")
			text = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(text, name+" "), "are "), "is ")
			otherwise := ""
			if m := unset.FindStringSubmatch(text); m != nil {
				otherwise = m[1]
			}
			text, _, _ = strings.Cut(text, ". ")
			text = regexp.MustCompile(`(, such as|, with or without|: |; ).*`).ReplaceAllString(text, "")
			rows += "| `" + name + "` | " + strings.TrimSuffix(text, ".") + " | " + otherwise + " |\n"
		}
		return false
	})
	readmepart.Check(t, "../README.md", "fields", rows)
}

// TestTheTableOfOrigins checks that each origin in the table is denied for the reason there.
func TestTheTableOfOrigins(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(file(t, "docs/requests.md"), "\n## Why an origin was denied\n")
	table, _, _ = strings.Cut(table, "\n## ")
	m := mwtest.New(t, mwtest.Config())
	cfg := mwtest.Config()
	failing := mwtest.NewDatabase()
	failing.Err = mwtest.ErrDown
	cfg.Source = failing.Remembered(t)
	down := mwtest.New(t, cfg)
	origins := 0
	for row := range strings.Lines(table) {
		cells := strings.Split(row, " | ")
		if len(cells) != 3 || !strings.Contains(cells[0], "`") || cells[1] == "reason" {
			continue
		}
		reason := strings.Trim(cells[1], "`")
		for _, quoted := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[0], -1) {
			origins++
			origin := strings.Replace(quoted[1], "https://v2c4…fygq.cdn.ampproject.org", mwtest.UnknownHashOrigin, 1)
			t.Run(origin, func(t *testing.T) {
				m := m
				if reason == ampcors.ReasonSourceUnavailable.String() {
					m = down
				}
				if d := m.CheckOrigin(origin); d.Allowed || d.Reason.String() != reason {
					t.Errorf("the reason is %q; the document says %q", d.Reason, reason)
				}
			})
		}
	}
	if origins == 0 {
		t.Error("the table has no origins")
	}
}

// Packages badvalue, cacheurl, source, announce and prefixes do not import the middleware, and no published
// module imports the internals of another module: their versions may differ.
func TestWhoImportsWhom(t *testing.T) {
	t.Parallel()
	list := func(dir string, args ...string) string {
		cmd := exec.Command("go", append([]string{"list"}, args...)...)
		cmd.Dir = filepath.Join("..", dir)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return "\n" + string(out)
	}
	const root = "github.com/ampcors/ampcors"
	if deps := list(".", "-deps", "./badvalue", "./cacheurl", "./source/...", "./announce/...", "./internal/prefixes"); strings.Contains(deps,
		"\n"+root+"\n") {
		t.Error("a leaf imports the middleware")
	}
	if deps := list(".", "-deps", "./cacheurl", "./badvalue"); strings.Contains(deps, root+"/source") ||
		strings.Contains(deps, root+"/announce") {
		t.Error("cacheurl is no leaf")
	}
	for _, module := range []string{"metrics", "probe", "source/filter", "source/pgsource", "source/redissource", "caddy", "cmd/ampcors"} {
		if _, err := os.Stat(filepath.Join("..", module, "go.mod")); err != nil {
			t.Skip("this is not the whole repository, but a module of it")
		}
		if module == "probe" && strings.Contains(list(module, "-deps", "."), "\n"+root+"\n") {
			t.Error("the probe imports the middleware")
		}
		if imports := list(module, "-f", `{{join .Imports "\n"}}`, "./..."); strings.Contains(imports, root+"/internal/") {
			t.Errorf("%s imports internals of the root module", module)
		}
	}
}

// The files of the root package can be read one after another: none uses another that uses it, directly
// or by a third one.
func TestNoFilesOfTheRootUseEachOther(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	var files []*ast.File
	names, err := filepath.Glob("../*.go")
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, parseErr := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		err = errors.Join(err, parseErr)
		files = append(files, file)
	}
	if err != nil || len(files) < 10 {
		t.Fatal(len(files), err)
	}
	info := types.Info{Uses: make(map[*ast.Ident]types.Object)}
	check := types.Config{Importer: nothing{}, Error: func(error) {}} // what is imported does not matter
	root, _ := check.Check("ampcors", fset, files, &info)
	fileOf := func(pos token.Pos) string { return filepath.Base(fset.Position(pos).Filename) }
	uses := make(map[string]map[string]string)
	for id, object := range info.Uses {
		if object.Pkg() != root {
			continue
		}
		from, to := fileOf(id.Pos()), fileOf(object.Pos())
		if uses[from] == nil {
			uses[from] = make(map[string]string)
		}
		if from != to {
			uses[from][to] = id.Name
		}
	}
	if uses["middleware.go"]["decide.go"] == "" {
		t.Error("what files use is not found")
	}
	done := make(map[string]bool)
	var follow func(file string, path []string)
	follow = func(file string, path []string) {
		if at := slices.Index(path, file); at >= 0 {
			t.Errorf("files use each other: %s", strings.Join(append(path[at:], file), " -> "))
			return
		}
		if done[file] {
			return
		}
		for to := range uses[file] {
			follow(to, append(path, file))
		}
		done[file] = true
	}
	for file := range uses {
		follow(file, nil)
	}
}

type nothing struct{}

func (nothing) Import(path string) (*types.Package, error) {
	return types.NewPackage(path, path[strings.LastIndexByte(path, '/')+1:]), nil
}

// Each module is kept up to date, and no entry is for a folder that is gone.
func TestDependabotKnowsEachModule(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../.github/dependabot.yml")
	if err != nil {
		t.Fatal(err)
	}
	work, err := os.ReadFile("../go.work")
	if err != nil {
		t.Skip("this is not the whole repository, but a module of it")
	}
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^\t\.(\S*)$`).FindAllSubmatch(work, -1) {
		want = append(want, `"`+cmp.Or(string(m[1]), "/")+`"`)
	}
	if list := "[" + strings.Join(want, ", ") + "]"; len(want) < 10 || !strings.Contains(string(data), list) {
		t.Errorf("dependabot.yml does not have %s", list)
	}
}
