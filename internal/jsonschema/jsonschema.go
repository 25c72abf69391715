// Package jsonschema compares JSON Schemas, which people write, with the Go types that they describe.
package jsonschema

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
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
// a member without a description. The schema of a type in known is not compared.
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
		if member := s.Properties[name]; member == nil || member.Description == "" {
			errs = append(errs, fmt.Errorf("%s.%s has no description in the schema", path, name))
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
