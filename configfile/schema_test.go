package configfile

import (
	"reflect"
	"testing"
	"time"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/jsonschema"
)

func TestTheSchemaHasEachMember(t *testing.T) {
	if err := jsonschema.Check(Schema(), reflect.TypeFor[file](), reflect.TypeFor[time.Duration](), reflect.TypeFor[cacheurl.Cache]()); err != nil {
		t.Error(err)
	}
	if _, err := (Inline{JSON: []byte(`{"$schema": "schema.json", "publishers": ["a.example"]}`)}).Config(); err != nil {
		t.Error(err)
	}
}
