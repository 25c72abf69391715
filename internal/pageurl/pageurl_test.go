package pageurl

import (
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

// A URL in another script does not cost an allocation for each byte that is escaped.
func TestEscapingCostsLittle(t *testing.T) {
	for name, path := range map[string]string{"not escaped": strings.Repeat("é", 1000), "escaped": strings.Repeat("%c3%A9%7e", 1000)} {
		value := "https://www.example.com/" + path + "?" + path
		var u URL
		allocations := testing.AllocsPerRun(100, func() { u, _ = Parse("url", value, AsRFC3986) })
		if len(u.Path) < 3000 || allocations > 20 {
			t.Errorf("%s: %d bytes, %v allocations", name, len(u.Path), allocations)
		}
	}
}

// FuzzParse checks that a canonical URL does not change, that RFC 3986 is followed, and
// that net/url reads the same URL. The packages that use this one have the other tests.
func FuzzParse(f *testing.F) {
	for _, u := range []string{"https://www.example.com/a%2Fb/../c?d=%20#e", "HTTP://bücher.example:80", `https://a.example/ "<>^{|}[]` +
		"`?{}", "https://a.example/%zz", "https://a.example//./..//%2e%2E/x/..", "https://a.example?x#", "http://[::1]/"} {
		f.Add(u)
	}
	f.Fuzz(func(t *testing.T, value string) {
		for _, escaping := range []Escaping{AsBrowsers, AsRFC3986} {
			u, problem := Parse("url", value, escaping)
			if problem != nil {
				if u != (URL{}) || problem.Value != value && !strings.Contains(value, "@") || problem.Reason == "" || problem.Want == "" {
					t.Fatalf("%q: %+v, %v", value, u, problem)
				}
				continue
			}
			if again, problem := Parse("url", u.String(), escaping); problem != nil || again != u {
				t.Fatalf("%q is %+v, which is parsed as %+v, %v", value, u, again, problem)
			}
			if u.Path != "" && u.Path[0] != '/' || u.Query != "" && u.Query[0] != '?' || strings.Contains(u.String(), "#") {
				t.Fatalf("%q is %+v", value, u)
			}
			for _, segment := range strings.Split(strings.ReplaceAll(strings.ToLower(u.Path), "%2e", "."), "/") {
				if segment == "." || segment == ".." {
					t.Fatalf("%q has the path %q", value, u.Path)
				}
			}
			std, err := url.Parse(u.String())
			if escaping == AsRFC3986 && err != nil {
				t.Fatalf("%q is %q: %v", value, u, err)
			}
			if err == nil && (std.Host != u.Host || std.Scheme != u.Scheme || escaping == AsRFC3986 && std.EscapedPath() != u.Path) {
				t.Fatalf("%q is %+v; net/url has %#v", value, u, std)
			}
			if !utf8.ValidString(u.String()) || strings.ContainsFunc(u.String(), func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
				t.Fatalf("%q is %q", value, u)
			}
			// Escaping must not change the path and the query that net/url reads.
			if written, err := url.Parse(value); err == nil && !strings.Contains(value, "/.") && !strings.Contains(strings.ToLower(value), "/%2e") &&
				(written.Path != std.Path || std.Query().Encode() != written.Query().Encode()) {
				t.Fatalf("%q is %q: path %q and query %q became %q and %q", value, u, written.Path, written.RawQuery, std.Path, std.RawQuery)
			}
		}
	})
}
