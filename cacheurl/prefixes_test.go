package cacheurl_test

import (
	"slices"
	"testing"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/vectors"
)

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
		for _, form := range v.Prefixes {
			switch form.Note {
			case "case", "XN--", "Unicode", "64 bytes":
				continue // Prefixes takes the canonical domain, and checks the length of what it returns
			}
			compared++
			at := slices.IndexFunc(prefixes, func(p cacheurl.Prefix) bool { return p.Prefix == form.Prefix })
			if at < 0 || prefixes[at].Denied != form.Denied {
				t.Errorf("%q: %+v; want %+v", v.Domain, prefixes, form)
				continue
			}
			for _, name := range form.By {
				if !slices.Contains(prefixes[at].By, name) {
					t.Errorf("%q: %+v; want %s", v.Domain, prefixes[at], name)
				}
			}
		}
		if len(prefixes) > len(v.Prefixes) || prefixes[len(prefixes)-1].Prefix != v.Prefixes[len(v.Prefixes)-1].Prefix {
			t.Errorf("%q: %+v; want %+v", v.Domain, prefixes, v.Prefixes)
		}
	}
	if compared < 230 {
		t.Errorf("%d compared", compared)
	}
}

func TestPublisherURL(t *testing.T) {
	for cacheURL, want := range map[string]string{
		"https://www-example-com.cdn.ampproject.org/c/s/www.example.com/a": "https://www.example.com/a",
		"https://www-example-com.cdn.ampproject.org/s/www.example.com/a":   "https://www.example.com/a",
		"https://www.google.com/amp/s/www.example.com/a":                   "https://www.example.com/a",
	} {
		if got, err := cacheurl.PublisherURL(cacheURL); got != want || err != nil {
			t.Errorf("%s: %q, %v", cacheURL, got, err)
		}
	}
	const unknown = "https://www-example-com.cdn.ampproject.org/x/s/www.example.com/a"
	_, want := cacheurl.Parse(unknown)
	if got, err := cacheurl.PublisherURL(unknown); got != "" || want == nil || err == nil || err.Error() != want.Error() {
		t.Errorf("%q, %v; want %v", got, err, want)
	}
}
