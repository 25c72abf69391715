// Package jsonschema makes JSON Schemas (draft 2020-12) of Go types. What a member means is its field's comment.
package jsonschema

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// A Schema is the JSON Schema of a value.
type Schema map[string]any

// Check fails the test if the file is not the schema of typ. With UPDATE_SCHEMA set, it writes the file. The test
// must be in a folder of the root module. Each function of special returns the schema of a type that is not in JSON
// as its Go type says.
func Check(t *testing.T, file, title string, typ reflect.Type, special map[reflect.Type]func(Schema) Schema) {
	t.Helper()
	s := of(t, typ, special)
	s["$schema"], s["title"] = "https://json-schema.org/draft/2020-12/schema", title
	var want bytes.Buffer
	encoder := json.NewEncoder(&want)
	encoder.SetIndent("", "\t")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE_SCHEMA") != "" {
		if err := os.WriteFile(file, want.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is not the schema of %s and its comments: UPDATE_SCHEMA=1 go test -run %s . writes it", file, typ,
			t.Name())
	}
}

// of returns the schema of a type. Members may be missing if their tag says that they are omitted, and others than
// these are an error.
func of(t *testing.T, typ reflect.Type, special map[reflect.Type]func(Schema) Schema) (s Schema) {
	t.Helper()
	switch typ.Kind() {
	case reflect.String:
		s = Schema{"type": "string"}
	case reflect.Bool:
		s = Schema{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		s = Schema{"type": "integer"}
	case reflect.Slice:
		s = Schema{"type": "array", "items": of(t, typ.Elem(), special)}
	case reflect.Map:
		s = Schema{"type": "object", "additionalProperties": of(t, typ.Elem(), special)}
	case reflect.Struct:
		properties, required := Schema{}, []string{}
		for _, field := range reflect.VisibleFields(typ) {
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			if field.Anonymous || name == "" || name == "-" {
				continue
			}
			owner := typ
			for _, i := range field.Index[:len(field.Index)-1] {
				owner = owner.Field(i).Type
			}
			member := of(t, field.Type, special)
			member["description"] = commentOf(t, owner, field.Name)
			properties[name] = member
			if !strings.HasPrefix(options, "omit") {
				required = append(required, name)
			}
		}
		s = Schema{"type": "object", "properties": properties, "additionalProperties": false}
		if len(required) > 0 {
			s["required"] = required
		}
	case reflect.Uint8: // of a json.RawMessage, which is special
		s = Schema{}
	default:
		t.Fatal(typ, "has no schema")
	}
	if change := special[typ]; change != nil {
		s = change(s)
	}
	return s
}

const module = "github.com/ampcors/ampcors"

// links are what go doc shows as links: [Config], [source.Config].
var links = regexp.MustCompile(`\[([A-Za-z.]+)\]`)

// commentOf returns the comment above or beside a struct's field without links, each paragraph on one line.
func commentOf(t *testing.T, typ reflect.Type, name string) (comment string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", strings.TrimPrefix(typ.PkgPath(), module), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != typ.Name() {
				return true
			}
			if fields, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range fields.Fields.List {
					for _, id := range field.Names {
						if id.Name == name {
							comment = field.Doc.Text() + field.Comment.Text()
						}
					}
				}
			}
			return false
		})
	}
	if comment == "" {
		t.Errorf("%s.%s has no comment", typ, name)
	}
	paragraphs := strings.Split(comment, "\n\n")
	for i, paragraph := range paragraphs {
		paragraphs[i] = strings.Join(strings.Fields(paragraph), " ")
	}
	return links.ReplaceAllString(strings.Join(paragraphs, "\n\n"), "$1")
}
