package configfile

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/internal/readme"
	"github.com/ampcors/ampcors/internal/strictjson"
	"github.com/ampcors/ampcors/source"
)

// examples has an example of each member, in the order of docs/configuration.md.
var examples = []struct{ member, json string }{
	{"publishers", `["www.example.com", "*.news.example"]`},
	{"publishersFile", `"publishers.txt"`},
	{"credentialed", `true`},
	{"methods", `["PUT", "DELETE"]`},
	{"requestHeaders", `["X-Token"]`},
	{"responseHeaders", `["AMP-Redirect-To", "X-Total"]`},
	{"maxAge", `"10m"`},
	{"origins", `["https://playground.amp.dev"]`},
	{"caches", `["google"]`},
	{"cachesFile", `"caches.json"`},
	{"email", `{"senders": ["news@example.com"], "clients": ["https://mail.google.com"]}`},
	{"source", `{"ttl": "1m", "maxStale": "10m"}`},
	{"reportOnly", `true`},
	{"dangerouslyAllowAmbiguousPrefixes", `true`},
	{"dangerouslyAllowHTTPOwnOrigins", `true`},
	{"dangerouslyAllowPublicSuffixWildcards", `true`},
	{"dangerouslyAllowUnsafeRequestsWithoutOrigin", `true`},
	{"$schema", `"https://example.com/schema.json"`},
}

// described is a part of the schema.
type described struct {
	Description string
	Properties  map[string]described
}

// docs/configuration.md has each member, with the first paragraph of its comment and an example that is read. UPDATE_README=1
// writes it.
func TestTheReference(t *testing.T) {
	var schema described
	if err := json.Unmarshal(Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range examples {
		text := schema.Properties[e.member]
		fmt.Fprintf(&b, "### %s\n\n%s\n\n    \"%s\": %s\n\n", e.member, sentences(e.member, text.Description), e.member, e.json)
		if len(text.Properties) > 0 {
			_, fields := strictjson.Members(reflect.ValueOf(new(file)).Elem())
			names, _ := strictjson.Members(fields[e.member])
			for _, name := range names {
				item := sentences(name, text.Properties[name].Description)
				if !strings.HasPrefix(item, "`"+name+"`") {
					t.Errorf("the comment of %s begins otherwise: %s", name, item)
				}
				fmt.Fprintf(&b, "- %s\n", item)
			}
			b.WriteString("\n")
		}
		delete(schema.Properties, e.member)
		if strings.HasSuffix(e.member, "File") { // of another file
			continue
		}
		document := fmt.Sprintf(`{%q: %s}`, e.member, e.json)
		_, err := Inline{JSON: []byte(document), Set: func(cfg *ampcors.Config) {
			cfg.Publishers = append(cfg.Publishers, "a.example")
			cfg.Source = new(source.Source)
		}}.Config()
		if err != nil {
			t.Errorf("%s: %v", e.member, err)
		}
	}
	for member := range schema.Properties {
		t.Errorf("examples needs an example of %s", member)
	}
	readme.Check(t, "../docs/configuration.md", "members", "\n"+b.String())
}

// sentences returns the first paragraph of a description with the member's name in place of the field's, and a full stop.
func sentences(member, text string) string {
	text, _, _ = strings.Cut(text, "\n\n")
	text = strings.NewReplacer("ampcors.Config.", "", "Config.", "").Replace(text)
	if first, rest, _ := strings.Cut(text, " "); strings.EqualFold(first, member) {
		text = "`" + member + "` " + rest
	} else {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}
