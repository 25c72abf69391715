package proof

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documents returns the text of each document, by its name.
func documents(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := fs.WalkDir(os.DirFS(".."), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git"):
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
	if rows < 300 {
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

func TestREADMEIsReadInAFewMinutes(t *testing.T) {
	t.Parallel()
	if words := len(strings.Fields(readme(t))); words > 1000 {
		t.Errorf("README.md has %d words; want 1,000 at most", words)
	}
}
