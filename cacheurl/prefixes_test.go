package cacheurl_test

import (
	"encoding/json"
	"slices"
	"testing"

	"golang.org/x/net/idna"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/vectors"
)

// isUnicode15 reports whether package idna has the tables of Unicode 15, as below Go 1.27.
const isUnicode15 = idna.UnicodeVersion == "15.0.0"

// The vectors have what the implementations themselves returned.
func TestPrefixesAreThoseOfTheImplementations(t *testing.T) {
	f, err := vectors.Read("../conformance/prefixes.json")
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, v := range f.Prefixes {
		prefixes, err := cacheurl.Prefixes(v.Domain)
		if (err == nil) != (v.Problem == "") {
			t.Errorf("%q: %v; want the problem %q", v.Domain, err, v.Problem)
		}
		if err != nil {
			continue
		}
		// Prefixes takes the canonical domain, and checks the length of what it returns. Some
		// implementations do not.
		var want []cacheurl.Prefix
		var different []string
		for _, form := range v.Prefixes {
			switch form.Note {
			case "case", "XN--", "Unicode", "64 bytes":
				different = append(different, form.By...)
			default:
				want = append(want, cacheurl.Prefix{Prefix: form.Prefix, By: form.By, Denied: form.Denied})
			}
		}
		if v.Note == "Unicode 15" && !isUnicode15 {
			different = append(different, "amppackager")
		}
		given := make(map[string]int)
		for _, form := range v.Prefixes {
			for _, by := range form.By {
				given[by]++
			}
		}
		for _, by := range []string{"ampcors", "toolbox-cache-url", "amppackager", "snowflake", "the AMP document"} {
			if given[by] != 1 {
				t.Errorf("%q: %s gives it %d prefixes", v.Domain, by, given[by])
			}
		}
		isDifferent := func(name string) bool { return slices.Contains(different, name) }
		if !slices.EqualFunc(prefixes, want, func(got, want cacheurl.Prefix) bool {
			compared++
			return got.Prefix == want.Prefix && got.Denied == want.Denied && len(got.Prefix) <= 63 &&
				slices.Equal(slices.DeleteFunc(slices.Clone(got.By), isDifferent), slices.DeleteFunc(slices.Clone(want.By), isDifferent))
		}) {
			t.Errorf("%q: %+v; want %+v", v.Domain, prefixes, want)
		}
	}
	if compared < 230 {
		t.Errorf("%d compared", compared)
	}

	prefixes, err := cacheurl.Prefixes("faß.de")
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"prefix":"xn--fa-de-mqa","by":["ampcors","toolbox-cache-url","snowflake","the AMP document"]},{"prefix":"fass-de",` +
		`"by":["amppackager"],"denied":true},{"prefix":"hr7lkydfj2a3j3xjh5qfs5sicrjlowpcmuj46imgsymx3wcysi4q","by":[]}]`
	if got, err := json.Marshal(prefixes); err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}
