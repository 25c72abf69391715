// Package jsonschema makes a JSON Schema (draft 2020-12) of Go types. The comments of their fields are
// the descriptions.
package jsonschema

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"

	"github.com/ampcors/ampcors/internal/jsonlines"
)

// A Maker makes schemas.
type Maker struct {
	// Sources are the Go files that declare the types.
	Sources []string
	// Known returns the schema of a type that is not written as an object of its fields, or nil.
	Known func(m *Maker, typ reflect.Type) map[string]any
	// Requires makes members required whose fields have no option such as omitempty.
	Requires bool

	comments map[string]string // by type and field, such as "Config.Publishers"
	problem  error
}

// Make returns the schema of a type.
func (m *Maker) Make(title string, typ reflect.Type) ([]byte, error) {
	m.comments = make(map[string]string)
	for _, name := range m.Sources {
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			declared, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if fields, ok := declared.Type.(*ast.StructType); ok {
				for _, field := range fields.Fields.List {
					for _, name := range field.Names {
						m.comments[declared.Name.Name+"."+name.Name] = field.Doc.Text() + field.Comment.Text()
					}
				}
			}
			return true
		})
	}
	schema := m.Object(typ)
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["title"] = title
	if m.problem != nil {
		return nil, m.problem
	}
	return jsonlines.Format(schema, 100)
}

func (m *Maker) schemaOf(typ reflect.Type) map[string]any {
	if known := m.Known(m, typ); known != nil {
		return known
	}
	switch typ.Kind() {
	case reflect.Struct:
		return m.Object(typ)
	case reflect.Slice:
		return map[string]any{"type": "array", "items": m.schemaOf(typ.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": m.schemaOf(typ.Elem())}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return map[string]any{"type": "integer"}
	}
	m.problem = fmt.Errorf("a field has the type %s", typ)
	return map[string]any{}
}

// Object returns the schema of a struct. Each of its fields needs a comment.
func (m *Maker) Object(typ reflect.Type) map[string]any {
	members, required := make(map[string]any), []string{}
	for _, field := range reflect.VisibleFields(typ) {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous || name == "" || name == "-" {
			continue
		}
		owner := typ
		if len(field.Index) > 1 {
			owner = typ.Field(field.Index[0]).Type // an embedded struct
		}
		member := m.schemaOf(field.Type)
		text := m.comments[owner.Name()+"."+field.Name]
		if text == "" {
			m.problem = fmt.Errorf("%s.%s has no comment", owner.Name(), field.Name)
		}
		member["description"] = strings.Join(strings.Fields(text), " ")
		members[name] = member
		if options == "" {
			required = append(required, name)
		}
	}
	schema := map[string]any{"type": "object", "properties": members, "additionalProperties": false}
	if m.Requires {
		schema["required"] = required
	}
	return schema
}
