// Package jsonschema compares JSON Schemas, which people write, with the Go types that they describe.
package jsonschema

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
)

// A Schema has what is compared of a JSON Schema, draft 2020-12.
type Schema struct {
	Description string             `json:"description"`
	Type        string             `json:"type"`
	Items       *Schema            `json:"items"`
	Properties  map[string]*Schema `json:"properties"`
	Additional  any                `json:"additionalProperties"`
}

// Check returns how the schema differs from the type: a member that only one of them has, another type, or
// a description that is not the comment of the field. The schema of a type in known is not compared. The test that
// calls it is in a folder of the root module.
func Check(data []byte, typ reflect.Type, known ...reflect.Type) error {
	var s Schema
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	return s.check("", typ, known)
}

func (s *Schema) check(path string, typ reflect.Type, known []reflect.Type) error {
	want := map[reflect.Kind]string{
		reflect.Struct: "object", reflect.Map: "object", reflect.Slice: "array", reflect.String: "string",
		reflect.Bool: "boolean", reflect.Int: "integer", reflect.Int64: "integer",
	}[typ.Kind()]
	for _, t := range known {
		if typ == t {
			return nil
		}
	}
	switch {
	case s.Type != want:
		return fmt.Errorf("%s is %q in the schema, and %s in Go", path, s.Type, typ)
	case typ.Kind() == reflect.Slice:
		return s.Items.check(path+"[]", typ.Elem(), known)
	case typ.Kind() != reflect.Struct:
		return nil
	}
	var errs []error
	members := make(map[string]bool)
	for _, field := range reflect.VisibleFields(typ) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous || name == "" || name == "-" {
			continue
		}
		members[name] = true
		owner := typ
		for _, i := range field.Index[:len(field.Index)-1] {
			owner = owner.Field(i).Type
		}
		comment, err := commentOf(owner, field.Name)
		if member := s.Properties[name]; err != nil {
			errs = append(errs, err)
		} else if member == nil {
			errs = append(errs, fmt.Errorf("%s.%s is not in the schema", path, name))
		} else if member.Description != comment {
			text, _ := json.Marshal(comment)
			errs = append(errs, fmt.Errorf("%s.%s: the comment in Go is %s", path, name, text))
		} else {
			errs = append(errs, member.check(path+"."+name, field.Type, known))
		}
	}
	for name := range s.Properties {
		if !members[name] {
			errs = append(errs, fmt.Errorf("%s.%s is only in the schema", path, name))
		}
	}
	if s.Additional != false {
		errs = append(errs, fmt.Errorf("%s may have unknown members in the schema", path))
	}
	return errors.Join(errs...)
}

const module = "github.com/ampcors/ampcors"

// links are what go doc shows as links: [Config], [source.Config].
var links = regexp.MustCompile(`\[([A-Za-z.]+)\]`)

// forFiles replaces names of Go, which a reader of a file does not know.
var forFiles = strings.NewReplacer(
	"; if nil, those of cacheurl.DefaultCaches.", "; if missing, Google's and Bing's.",
	" See cacheurl.Cache for why a former cache's domain is a risk.", " Do not list a former cache: whoever owns its domain can serve any page under any publisher's prefix.",
	"if the program has a source.Source", "for serve-authz or a program that has one",
	": cacheurl.DomainPrefix returns no dash for them", ": ampcors prefix prints one without a dash for them",
	"; if nil, ", "; if missing, ",
	"If nil, ", "If missing, ",
)

// commentOf returns the comment above or beside a struct's field, as one line without links and for readers of a file.
func commentOf(typ reflect.Type, name string) (comment string, err error) {
	files, err := filepath.Glob(filepath.Join("..", strings.TrimPrefix(typ.PkgPath(), module), "*.go"))
	if err != nil {
		return "", err
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return "", err
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
		return "", fmt.Errorf("%s.%s has no comment", typ, name)
	}
	return forFiles.Replace(links.ReplaceAllString(strings.Join(strings.Fields(comment), " "), "$1")), nil
}
