package configfile

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestTheSchemaIsThatOfConfig makes a JSON Schema (draft 2020-12) of the fields of Config and of their
// comments, and compares it with schema.json. With UPDATE_README=1, it writes the file.
func TestTheSchemaIsThatOfConfig(t *testing.T) {
	comments := make(map[string]string) // by type and field, such as "Config.Publishers"
	for _, name := range []string{"../config.go", "../caches.go", "../email.go", "../source/options.go", "decode.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			declared, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if fields, ok := declared.Type.(*ast.StructType); ok {
				for _, field := range fields.Fields.List {
					for _, name := range field.Names {
						comments[declared.Name.Name+"."+name.Name] = field.Doc.Text() + field.Comment.Text()
					}
				}
			}
			return true
		})
	}
	schema := schemaOf(t, reflect.TypeFor[file](), comments)
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["title"] = "Configuration of ampcors"
	var want bytes.Buffer
	e := json.NewEncoder(&want)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(schema); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE_README") != "" {
		if err := os.WriteFile("schema.json", want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile("schema.json"); err != nil || !bytes.Equal(got, want.Bytes()) || os.Getenv("UPDATE_README") == "" && !bytes.Equal(got, Schema()) {
		t.Errorf("schema.json is not that of Config: %v; UPDATE_README=1 go test ./configfile writes it", err)
	}
	if _, err := Read(t.TempDir()+"/config.json", strings.NewReader(`{"$schema": "schema.json", "publishers": ["a.example"]}`)); err != nil {
		t.Error(err)
	}
}

// schemaOf returns the schema of a type as the decoder reads it.
func schemaOf(t *testing.T, typ reflect.Type, comments map[string]string) map[string]any {
	switch {
	case typ == durationType:
		return map[string]any{"type": "string", "pattern": `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`, "examples": []string{"10m", "1h30m"}}
	case typ == cacheType:
		object := objectOf(t, typ, comments)
		return map[string]any{"oneOf": []any{map[string]any{"type": "string", "examples": []string{"google"}}, object}}
	case typ.Kind() == reflect.Struct:
		return objectOf(t, typ, comments)
	case typ.Kind() == reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t, typ.Elem(), comments)}
	case typ.Kind() == reflect.String:
		return map[string]any{"type": "string"}
	case typ.Kind() == reflect.Bool:
		return map[string]any{"type": "boolean"}
	case typ.Kind() == reflect.Int:
		return map[string]any{"type": "integer"}
	}
	t.Fatalf("a field has the type %s", typ)
	return nil
}

func objectOf(t *testing.T, typ reflect.Type, comments map[string]string) map[string]any {
	members := make(map[string]any)
	for _, field := range reflect.VisibleFields(typ) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous || name == "" || name == "-" {
			continue
		}
		owner := typ
		if len(field.Index) > 1 {
			owner = typ.Field(field.Index[0]).Type // an embedded Config
		}
		member := schemaOf(t, field.Type, comments)
		text := comments[owner.Name()+"."+field.Name]
		if text == "" {
			t.Errorf("%s.%s has no comment", owner.Name(), field.Name)
		}
		member["description"] = strings.Join(strings.Fields(text), " ")
		members[name] = member
	}
	return map[string]any{"type": "object", "properties": members, "additionalProperties": false}
}
