package ampcors_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ampcors/ampcors"
)

// Each limit is tried with the last value that is within it and the first that is not. Other tests
// try values that are far beyond.
func TestEachLimitIsExact(t *testing.T) {
	publishers := func(domain string) ampcors.Config { return ampcors.Config{Publishers: []string{domain}} }
	caches := func(c ampcors.Cache) ampcors.Config {
		return ampcors.Config{Publishers: []string{"example.com"}, Caches: []ampcors.Cache{c}}
	}
	labels := func(n int) string { // a domain of n bytes
		domain := strings.Repeat(strings.Repeat("a", 49)+".", 5)
		return domain[:n-len("example")] + "example"
	}
	for name, test := range map[string]struct{ within, beyond ampcors.Config }{
		"a label":            {publishers(strings.Repeat("a", 63) + ".example"), publishers(strings.Repeat("a", 64) + ".example")},
		"the last label":     {publishers("a." + strings.Repeat("a", 63)), publishers("a." + strings.Repeat("a", 64))},
		"a domain":           {publishers(labels(253)), publishers(labels(254))},
		"a cache's id":       {caches(ampcors.Cache{ID: strings.Repeat("b", 100), CacheDomain: "c.example"}), caches(ampcors.Cache{ID: strings.Repeat("b", 101), CacheDomain: "c.example"})},
		"a cache's domain":   {caches(ampcors.Cache{ID: "b", CacheDomain: labels(189)}), caches(ampcors.Cache{ID: "b", CacheDomain: labels(190)})},
		"MaxAge":             {ampcors.Config{Publishers: []string{"a.example"}, MaxAge: 24 * time.Hour}, ampcors.Config{Publishers: []string{"a.example"}, MaxAge: 24*time.Hour + time.Second}},
		"no MaxAge":          {ampcors.Config{Publishers: []string{"a.example"}, MaxAge: 0}, ampcors.Config{Publishers: []string{"a.example"}, MaxAge: -time.Second}},
		"an extra origin":    {ampcors.Config{Origins: []string{"https://" + labels(253) + ":65535"}}, ampcors.Config{Origins: []string{"https://" + labels(254) + ":65535"}}},
		"a port":             {ampcors.Config{Origins: []string{"https://a.example:65535"}}, ampcors.Config{Origins: []string{"https://a.example:65536"}}},
		"a number at an end": {publishers("example.a0"), publishers("example.0")},
	} {
		t.Run(name, func(t *testing.T) {
			if err := test.within.Validate(); err != nil {
				t.Errorf("within the limit: %v", err)
			}
			err := test.beyond.Validate()
			if problems := slices.Collect(ampcors.ValueErrors(err)); len(problems) != 1 {
				t.Errorf("beyond the limit: %v; want one error", err)
			}
		})
	}
}

// Each byte is tried where a set of bytes is allowed.
func TestEachSetOfBytesIsExact(t *testing.T) {
	const (
		digits  = "0123456789"
		letters = "abcdefghijklmnopqrstuvwxyz"
	)
	for name, test := range map[string]struct {
		allowed string
		cfg     func(b string) ampcors.Config
	}{
		"methods": {digits + letters + strings.ToUpper(letters) + "!#$%&'*+-.^_`|~", func(b string) ampcors.Config { // RFC 9110, section 5.6.2
			return ampcors.Config{Origins: []string{"https://a.example"}, Methods: []string{"X" + b}}
		}},
		"domains":          {digits + letters + strings.ToUpper(letters) + "-_.", func(b string) ampcors.Config { return ampcors.Config{Publishers: []string{"a" + b + "b.example"}} }},
		"last labels":      {letters + strings.ToUpper(letters) + "_", func(b string) ampcors.Config { return ampcors.Config{Publishers: []string{"a." + b}} }},
		"hexadecimal last": {strings.ToUpper(letters[6:]) + letters[6:] + "_", func(b string) ampcors.Config { return ampcors.Config{Publishers: []string{"a.0x" + b}} }},
	} {
		t.Run(name, func(t *testing.T) {
			for b := range 128 {
				text := string(rune(b))
				err := test.cfg(text).Validate()
				if isAllowed := strings.Contains(test.allowed, text); isAllowed != (err == nil) {
					t.Errorf("%q: %v", text, err)
				}
			}
		})
	}
}
