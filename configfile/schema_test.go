package configfile

import (
	"bytes"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ampcors/ampcors/internal/jsonschema"
)

// durationPattern matches what time.ParseDuration accepts, except that it does not bound the value.
const durationPattern = `^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`

// TestTheSchemaAcceptsTheDurationsThatTheDecoderAccepts compares both over all strings of up to five
// tokens.
func TestTheSchemaAcceptsTheDurationsThatTheDecoderAccepts(t *testing.T) {
	pattern := regexp.MustCompile(durationPattern)
	tokens := []string{"+", "-", "0", "7", ".", "ns", "us", "µs", "μs", "ms", "s", "m", "h", "d", " ", "e"}
	count, accepted := 0, 0
	var compare func(value string, left int)
	compare = func(value string, left int) {
		var d time.Duration
		isAccepted := true
		(&decoder{}).decodeDuration(value, reflect.ValueOf(&d).Elem(), func(string) { isAccepted = false })
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

// TestTheSchemaIsThatOfConfig compares schema.json with the fields of Config and their comments. With
// UPDATE_README=1, it writes the file.
func TestTheSchemaIsThatOfConfig(t *testing.T) {
	maker := jsonschema.Maker{
		Sources: []string{"../config.go", "../caches.go", "../email.go", "../source/options.go", "decode.go"},
		Known: func(m *jsonschema.Maker, typ reflect.Type) map[string]any {
			switch typ { // as the decoder reads them
			case durationType:
				return map[string]any{"type": "string", "pattern": durationPattern, "examples": []string{"10m", "1h30m"}}
			case cacheType:
				return map[string]any{"oneOf": []any{map[string]any{"type": "string", "examples": []string{"google"}}, m.Object(typ)}}
			}
			return nil
		},
	}
	want, err := maker.Make("Configuration of ampcors", reflect.TypeFor[file]())
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE_README") != "" {
		if err := os.WriteFile("schema.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile("schema.json"); err != nil || !bytes.Equal(got, want) || os.Getenv("UPDATE_README") == "" && !bytes.Equal(got, Schema()) {
		t.Errorf("schema.json is not that of Config: %v; UPDATE_README=1 go test ./configfile writes it", err)
	}
	if _, err := Read(t.TempDir()+"/config.json", strings.NewReader(`{"$schema": "schema.json", "publishers": ["a.example"]}`)); err != nil {
		t.Error(err)
	}
}
