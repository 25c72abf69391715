package proof

import (
	"bytes"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// documents returns the text of each document, by its name.
func documents(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := fs.WalkDir(os.DirFS(".."), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git" || entry.Name() == "dist"):
			return filepath.SkipDir
		case !entry.IsDir() && strings.HasSuffix(name, ".md"):
			found[name] = file(t, name)
		}
		return nil
	})
	if err != nil || len(found) < 10 {
		t.Fatalf("%d documents, %v", len(found), err)
	}
	return found
}

// Each row of a table in a document has as many cells as the head. GitHub drops further ones.
func TestTablesHaveNoRowThatIsCut(t *testing.T) {
	t.Parallel()
	inCode, rows := regexp.MustCompile("`[^`]*`"), 0
	for name, text := range documents(t) {
		head, isCode := 0, false
		for i, line := range strings.Split(text, "\n") {
			isCode = isCode != strings.HasPrefix(strings.TrimSpace(line), "```")
			if isCode || !strings.HasPrefix(line, "|") {
				head = 0
				continue
			}
			cells := strings.Count(inCode.ReplaceAllString(strings.ReplaceAll(line, `\|`, ""), ""), "|")
			if head == 0 {
				head = cells
			}
			if rows++; cells != head {
				t.Errorf("%s:%d has %d cells; its head has %d", name, i+1, cells-1, head-1)
			}
		}
	}
	if rows < 100 {
		t.Errorf("%d rows", rows)
	}
}

var link = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)

// Each link to a file of the repository, or to a heading of a document, leads to one.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	all := documents(t)
	toHeadings := 0
	for name, text := range all {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			to := name
			if m[1] != "" {
				to = path.Join(path.Dir(name), m[1])
			}
			if _, err := os.Stat(filepath.Join("..", to)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if m[2] == "" {
				continue
			}
			toHeadings++
			if document, ok := all[to]; ok && !anchors(document)[m[2]] {
				t.Errorf("%s: %s has no heading #%s", name, to, m[2])
			}
		}
	}
	if toHeadings < 20 {
		t.Errorf("%d links to headings", toHeadings)
	}
}

// anchors returns the names by which GitHub links to the headings of a document: in lower case, a hyphen for each space,
// without what is no letter, digit, hyphen or underscore.
func anchors(document string) map[string]bool {
	found, isCode := make(map[string]bool), false
	for line := range strings.Lines(document) {
		isCode = isCode != strings.HasPrefix(strings.TrimSpace(line), "```")
		if m := heading.FindStringSubmatch(line); m != nil && !isCode {
			found[strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
		}
	}
	return found
}

var (
	heading     = regexp.MustCompile(`^#+ +(.*\S)`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// The index names each document, but not the form of a pull request.
func TestTheIndexNamesEachDocument(t *testing.T) {
	t.Parallel()
	all := documents(t)
	named := map[string]bool{"docs/README.md": true}
	for _, m := range link.FindAllStringSubmatch(all["docs/README.md"], -1) {
		named[path.Join("docs", m[1])] = true
	}
	for name := range all {
		if !named[name] && !strings.HasPrefix(name, ".github/") {
			t.Errorf("docs/README.md does not name %s", name)
		}
	}
}

// The index names each package that a program can import.
func TestTheIndexNamesEachPackage(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("../cmd/ampcors/go.mod"); err != nil {
		t.Skip("this is not the whole repository, but a module of it")
	}
	named := make(map[string]bool)
	for _, m := range link.FindAllStringSubmatch(file(t, "docs/README.md"), -1) {
		if strings.HasSuffix(m[1], ".go") {
			named[path.Dir(path.Join("docs", m[1]))] = true
		}
	}
	packages := 0
	err := fs.WalkDir(os.DirFS(".."), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		switch entry.Name() {
		case "internal", "node_modules", ".git", "testdata", "bench", "e2e", "examples", "proof", "packaging", "dist", "conformance":
			return fs.SkipDir
		}
		files, err := filepath.Glob(filepath.Join("..", name, "*.go"))
		isLibrary := slices.ContainsFunc(files, func(file string) bool {
			return !strings.HasSuffix(file, "_test.go") && !strings.HasPrefix(string(fromPackage(t, file)), "package main")
		})
		if isLibrary && !strings.HasPrefix(name, "cmd/") && !strings.HasSuffix(name, "/cmd/caddy") && name != "probe/dialects" {
			if packages++; !named[name] {
				t.Errorf("docs/README.md does not name the package %s", name)
			}
		}
		return err
	})
	if err != nil || packages < 20 {
		t.Errorf("%d packages, %v", packages, err)
	}
}

// fromPackage returns a file's text from the word package on.
func fromPackage(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if i := bytes.Index(data, []byte("\npackage ")); i >= 0 && !bytes.HasPrefix(data, []byte("package ")) {
		data = data[i+1:]
	}
	return data
}

// Metrics that documents, alerts and the dashboard name exist.
func TestMetricsInDocumentsExist(t *testing.T) {
	t.Parallel()
	texts := documents(t)
	for _, name := range []string{"metrics/alerts.yml", "metrics/dashboard.json"} {
		texts[name] = file(t, name)
	}
	code := file(t, "metrics/metrics.go")                          // which puts ampcors_ before each name
	metric := regexp.MustCompile(`(?:^|[^\w$@])ampcors_([a-z_]+)`) // variables and locations of nginx begin with $ and @
	found := 0
	for name, text := range texts {
		for _, m := range metric.FindAllStringSubmatch(text, -1) {
			base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(m[1], "")
			if found++; !strings.Contains(code, `metric("`+m[1]+`"`) && !strings.Contains(code, `metric("`+base+`"`) {
				t.Errorf("%s: there is no metric ampcors_%s", name, m[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("%d names", found)
	}
}

// A version beside the link to a module on GitHub is the one that go.mod has.
func TestVersionsInDocumentsAreThoseOfGoMod(t *testing.T) {
	t.Parallel()
	var modules []string
	for _, name := range []string{"bench/go.mod", "e2e/go.mod", "examples/go.mod"} {
		modules = append(modules, file(t, name))
	}
	version := regexp.MustCompile(`\(https://(github\.com/[\w.-]+/[\w.-]+)\) (\d+\.\d+\.\d+)`)
	found := 0
	for name, text := range documents(t) {
		for _, m := range version.FindAllStringSubmatch(text, -1) {
			found++
			module := regexp.MustCompile(`(?m)\s` + regexp.QuoteMeta(m[1]) + `(?:/v\d+)? v(\S+)`)
			required := false
			for _, text := range modules {
				if is := module.FindStringSubmatch(text); is != nil {
					if required = true; is[1] != m[2] {
						t.Errorf("%s has %s %s; a go.mod has %s", name, m[1], m[2], is[1])
					}
				}
			}
			if !required {
				t.Errorf("%s: no go.mod has %s", name, m[1])
			}
		}
	}
	if found < 3 {
		t.Errorf("%d versions", found)
	}
}

// All documents together have 18,000 words at most, by wc -w: also code and the bars of tables count, but not the CHANGELOG,
// which grows with each release.
func TestTheBookIsShort(t *testing.T) {
	t.Parallel()
	const most = 18_000
	longest := map[string]int{
		"docs/OPERATIONS.md": 1500, "conformance/README.md": 1450, "cmd/ampcors/README.md": 1200, "docs/configuration.md": 1200,
		"caddy/README.md": 1050, "README.md": 1000, "authz/README.md": 1000, "source/README.md": 1000, "docs/proxy.md": 1000,
		"CONTRIBUTING.md": 1000, "docs/tenants.md": 900, "bench/README.md": 800, "docs/requests.md": 750, "proof/README.md": 700,
		"docs/design.md": 650, "announce/README.md": 600, "docs/README.md": 550, "docs/migrate.md": 550,
	}
	sum := 0
	for name, text := range documents(t) {
		if name == "CHANGELOG.md" {
			continue
		}
		words := len(strings.Fields(text))
		if limit := max(longest[name], 420); words > limit {
			t.Errorf("%s has %d words; want %d at most", name, words, limit)
		}
		sum += words
	}
	if t.Logf("%d words", sum); sum > most {
		t.Errorf("%d words; want %d at most", sum, most)
	}
}

// withoutCode returns the lines of a document that are in no block of code, with their numbers. Four spaces begin a line of
// code: items of our lists are indented by less.
func withoutCode(text string) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		isCode, number := false, 0
		for line := range strings.Lines(text) {
			number++
			fence := strings.HasPrefix(strings.TrimSpace(line), "```")
			isCode = isCode != fence
			if !isCode && !fence && !strings.HasPrefix(line, "    ") && !yield(strings.TrimRight(line, "\n"), number) {
				return
			}
		}
	}
}

// A paragraph, and an item of a list, is one line: so that no line breaks inside of a link, and an editor chooses the width.
func TestAParagraphIsOneLine(t *testing.T) {
	t.Parallel()
	begins := regexp.MustCompile(`^(\s*$|\||#|<!--|\s*- |\s*\d+\. )`)
	for name, text := range documents(t) {
		before, at := "", 0
		for line, number := range withoutCode(text) {
			isNext := number == at+1 && strings.TrimSpace(before) != "" && !strings.HasPrefix(before, "<!--")
			if isNext && !begins.MatchString(line) {
				t.Errorf("%s:%d goes on with the paragraph of the line before", name, number)
			}
			before, at = line, number
		}
	}
}

// GitHub shows 838 pixels of a table, and cuts off the rest. It breaks lines in cells, but not words.
func TestTablesAreNotWiderThanAPage(t *testing.T) {
	t.Parallel()
	const page, padding, letter, codeLetter, codePadding = 838, 27, 7.6, 8.2, 11 // of GitHub's fonts, on average
	links := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	bars := regexp.MustCompile("`[^`]*`")
	for name, text := range documents(t) {
		var columns []float64
		for line, number := range withoutCode(text) {
			if !strings.HasPrefix(line, "|") {
				columns = nil
				continue
			}
			line = strings.ReplaceAll(links.ReplaceAllString(line, "$1"), "**", "")
			line = bars.ReplaceAllStringFunc(line, func(code string) string { return strings.ReplaceAll(code, "|", "/") })
			cells := strings.Split(strings.Trim(strings.ReplaceAll(line, `\|`, "/"), "|"), "|")
			columns = slices.Grow(columns, max(0, len(cells)-len(columns)))[:max(len(cells), len(columns))]
			width := 0.0
			for i, cell := range cells {
				for k, part := range strings.Split(cell, "`") {
					for word := range strings.FieldsFuncSeq(part, func(r rune) bool { return r == ' ' || r == '-' || r == '/' }) {
						width := float64(utf8.RuneCountInString(word)) * letter
						if k%2 == 1 { // between two backticks
							width = float64(utf8.RuneCountInString(word))*codeLetter + codePadding
						}
						columns[i] = max(columns[i], width+padding)
					}
				}
				width += columns[i]
			}
			if width > page {
				t.Errorf("%s:%d: the table is about %.0f pixels wide, too wide for GitHub", name, number, width)
			}
		}
	}
}

// An abbreviation is explained in docs/README.md, is one that each reader knows, or is a name.
func TestAbbreviationsAreExplained(t *testing.T) {
	t.Parallel()
	known := strings.Fields(`AMP ampcors API ASCII CI CPU CSRF DNS GET HEAD POST PUT OPTIONS CONNECT HTML HTTP HTTPS IP JSON LRU RSA
		SQL SHA TLS UTF UTC URL URLs XML PHP SVG RFC UTS NFC CDN FPM MIT SIGHUP`)
	names := strings.Fields(`NULL SELECT TRUNCATE NOTIFY GRANT USAGE PING NOCASE WHERE PATH HOST PORT CACHES FILE ORIGIN DOMAIN URI
		AMD EPYC DEL GOMEMLIMIT ICU CONTEXTJ ICANN CHANGELOG CONTRIBUTING SECURITY RELEASING OPERATIONS README READMEs DOMAINS SERVER COMMAND`)
	explained := make(map[string]bool)
	for _, word := range slices.Concat(known, names) {
		explained[word] = true
	}
	abbreviation := regexp.MustCompile(`\b[A-Z]{3,}s?\b`)
	index := documents(t)["docs/README.md"]
	_, words, _ := strings.Cut(index, "## Words")
	for line := range strings.Lines(words) {
		if term, _, ok := strings.Cut(line, "**: "); ok {
			for _, word := range abbreviation.FindAllString(term, -1) {
				explained[word] = true
			}
		}
	}
	ticked := regexp.MustCompile("`[^`]*`|\\]\\([^)]*\\)")
	for name, text := range documents(t) {
		for line, number := range withoutCode(text) {
			if strings.HasPrefix(line, "Medians of ") { // it names a processor
				continue
			}
			for _, word := range abbreviation.FindAllString(ticked.ReplaceAllString(line, ""), -1) {
				if !explained[word] && !explained[strings.TrimSuffix(word, "s")] {
					t.Errorf("%s:%d: %s is explained nowhere", name, number, word)
				}
			}
		}
	}
}
