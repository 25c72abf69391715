package proof

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What documents and comments name exists: tests, names of Go, and the command's flags.
func TestNamesInTextsExist(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("../cmd/ampcors/go.mod"); err != nil {
		t.Skip("this is not the whole repository, but a module of it")
	}
	var (
		functions = make(map[string]bool)            // tests, benchmarks and fuzz targets
		members   = make(map[string]map[string]bool) // exported names of packages, and fields and methods of types, by the name of their owner
		packages  = make(map[string]bool)
		flags     = map[string]bool{"help": true, "version": true}
		ofOthers  = []string{"caddy with", "docs clean", "outbox data-binary",
			"packaging clean", "packaging now", "packaging owner", "packaging read-only", "packaging skip",
			"packaging snapshot", "packaging sysctl"} // a document's folder, and the flag of another program
		texts     = make(map[string]string) // documents and comments, by file
		flagNames = regexp.MustCompile(`(?:Var|VarP|String|Bool|Duration|Int|StringSlice|StringArray|Float64|Flag)\((?:&?[\w.]+, ` +
			`)?"([a-z][a-z-]+)"`)
	)
	add := func(owner, name string) {
		if members[owner] == nil {
			members[owner] = make(map[string]bool)
		}
		members[owner][name] = true
	}
	err := fs.WalkDir(os.DirFS(".."), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git" || entry.Name() == "dist"):
			return fs.SkipDir
		case strings.HasSuffix(name, ".md") && entry.Name() != "CHANGELOG.md":
			texts[name] = file(t, name)
			return nil
		case !strings.HasSuffix(name, ".go"):
			return nil
		}
		source := file(t, name)
		if strings.HasPrefix(name, "cmd/ampcors/") {
			for _, m := range flagNames.FindAllStringSubmatch(source, -1) {
				flags[m[1]] = true
			}
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		packages[parsed.Name.Name] = true
		for _, group := range parsed.Comments {
			texts[name] += group.Text()
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				functions[n.Name.Name] = true
				add(parsed.Name.Name, n.Name.Name)
				if n.Recv != nil {
					add(strings.Trim(typeName(n.Recv.List[0].Type), "*"), n.Name.Name)
				}
			case *ast.TypeSpec:
				add(parsed.Name.Name, n.Name.Name)
				switch typ := n.Type.(type) {
				case *ast.StructType:
					for _, f := range typ.Fields.List {
						for _, id := range f.Names {
							add(n.Name.Name, id.Name)
						}
						if f.Names == nil {
							embedded := typeName(f.Type)
							add(n.Name.Name, embedded[strings.LastIndexByte(embedded, '.')+1:])
						}
					}
				case *ast.InterfaceType:
					for _, f := range typ.Methods.List {
						for _, id := range f.Names {
							add(n.Name.Name, id.Name)
						}
					}
				}
			case *ast.ValueSpec:
				for _, id := range n.Names {
					add(parsed.Name.Name, id.Name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || len(texts) < 100 {
		t.Fatal(len(texts), err)
	}
	for name, text := range texts {
		for _, m := range regexp.MustCompile(`\b((?:Test|Fuzz|Benchmark)[A-Z]\w+)(…?)`).FindAllStringSubmatch(text, -1) {
			if m[2] == "" && !functions[m[1]] && m[1] != "TestPagesOfAMPCachesMayCall" { // an example for users
				t.Errorf("%s: there is no function %s", name, m[1])
			}
		}
		for _, m := range regexp.MustCompile(`\b(\w+)\.([A-Z]\w*)\b`).FindAllStringSubmatch(text, -1) {
			isKnown := packages[m[1]] && m[1] != "caddy" || ast.IsExported(m[1]) && m[1] != "Redis" // caddy's own, and a field of Config
			if owner := members[m[1]]; isKnown && owner != nil && !owner[m[2]] {
				t.Errorf("%s: there is no %s.%s", name, m[1], m[2])
			}
		}
		if !strings.HasPrefix(name, "cmd/ampcors/") && !strings.HasSuffix(name, ".md") {
			continue
		}
		for _, m := range regexp.MustCompile(`(?:^|[\s(`+"`"+`])--([a-z][a-z-]+)`).FindAllStringSubmatch(text, -1) {
			if !flags[m[1]] && (!strings.HasSuffix(name, ".md") || !slices.Contains(ofOthers, path.Base(path.Dir(name))+" "+m[1])) {
				t.Errorf("%s: there is no flag --%s", name, m[1])
			}
		}
	}
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.SelectorExpr:
		return typeName(e.X) + "." + e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}
