package configfile

import (
	"reflect"
	"testing"
	"time"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/jsonschema"
)

func TestSchema(t *testing.T) {
	jsonschema.Check(t, "schema.json", "Configuration of ampcors", reflect.TypeFor[file](),
		map[reflect.Type]func(jsonschema.Schema) jsonschema.Schema{
			reflect.TypeFor[time.Duration](): func(jsonschema.Schema) jsonschema.Schema {
				return jsonschema.Schema{"type": "string", "examples": []string{"10m", "1h30m"}}
			},
			reflect.TypeFor[cacheurl.Cache](): func(object jsonschema.Schema) jsonschema.Schema {
				object["required"] = []string{"id", "cacheDomain"} // by cacheurl.ValidateCaches
				return jsonschema.Schema{"oneOf": []jsonschema.Schema{{"type": "string", "examples": []string{"google"}}, object}}
			},
		})
	if _, err := (Inline{JSON: []byte(`{"$schema": "schema.json", "publishers": ["a.example"]}`)}).Config(); err != nil {
		t.Error(err)
	}
}
