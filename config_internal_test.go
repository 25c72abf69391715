package ampcors

import (
	"reflect"
	"testing"
)

// TestCloneSharesNothing finds a field of Config that clone forgets: each slice has an array of its own.
func TestCloneSharesNothing(t *testing.T) {
	t.Parallel()
	var cfg Config
	eachField(t, reflect.ValueOf(&cfg).Elem(), "Config", func(_ string, list reflect.Value) {
		list.Set(reflect.MakeSlice(list.Type(), 1, 1))
	})
	copied, lists := cfg.clone(), 0
	arrays := make(map[string]uintptr)
	eachField(t, reflect.ValueOf(&cfg).Elem(), "Config", func(path string, list reflect.Value) { arrays[path] = list.Pointer() })
	eachField(t, reflect.ValueOf(&copied).Elem(), "Config", func(path string, list reflect.Value) {
		lists++
		if isShared := list.Pointer() == arrays[path]; list.Len() != 1 || isShared != (path == "Config.Publishers") {
			t.Errorf("%s: the copy has %d elements, and shares them: %t", path, list.Len(), isShared)
		}
	})
	if lists < 8 {
		t.Errorf("%d lists were looked at", lists)
	}
}

// eachField calls found for each slice in v. A field of a type that it does not know fails the test.
func eachField(t *testing.T, v reflect.Value, path string, found func(path string, list reflect.Value)) {
	t.Helper()
	for i := range v.NumField() {
		field := v.Type().Field(i)
		switch path := path + "." + field.Name; field.Type.Kind() {
		case reflect.Slice:
			found(path, v.Field(i))
		case reflect.Struct:
			eachField(t, v.Field(i), path, found)
		case reflect.Bool, reflect.String, reflect.Int, reflect.Int64, reflect.Func:
		case reflect.Array: // the field without a name, which has no elements
		default:
			if path != "Config.Source" { // the program's, and shared
				t.Errorf("%s is a %s: clone may share its memory", path, field.Type)
			}
		}
	}
}
