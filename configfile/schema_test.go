package configfile

import (
	"encoding/json"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/jsonschema"
)

// TestTheSchemaAcceptsTheDurationsThatTheDecoderAccepts compares both over all strings of up to five
// tokens.
func TestTheSchemaAcceptsTheDurationsThatTheDecoderAccepts(t *testing.T) {
	var schema jsonschema.Schema
	if err := json.Unmarshal(Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	pattern := regexp.MustCompile(schema.Properties["maxAge"].Pattern)
	if lookup := schema.Properties["source"].Properties; lookup["ttl"].Pattern != pattern.String() || lookup["timeout"].Pattern != pattern.String() {
		t.Error("durations have different patterns")
	}
	tokens := []string{"+", "-", "0", "7", ".", "ns", "us", "µs", "μs", "ms", "s", "m", "h", "d", " ", "e"}
	count, accepted := 0, 0
	var compare func(value string, left int)
	compare = func(value string, left int) {
		_, err := time.ParseDuration(value) // as the decoder does
		isAccepted := err == nil
		if got := pattern.MatchString(value); got != isAccepted {
			t.Errorf("%q: the decoder accepts it: %t; the schema: %t", value, isAccepted, got)
		}
		if count++; isAccepted {
			accepted++
		}
		for _, token := range tokens {
			if left > 0 {
				compare(value+token, left-1)
			}
		}
	}
	compare("", 5)
	if accepted < 1000 || accepted > count/2 {
		t.Errorf("%d of %d values are durations", accepted, count)
	}
}

func TestTheSchemaHasEachMember(t *testing.T) {
	if err := jsonschema.Check(Schema(), reflect.TypeFor[file](), reflect.TypeFor[time.Duration](), reflect.TypeFor[cacheurl.Cache]()); err != nil {
		t.Error(err)
	}
	if _, err := (Inline{JSON: []byte(`{"$schema": "schema.json", "publishers": ["a.example"]}`)}).Config(); err != nil {
		t.Error(err)
	}
}
