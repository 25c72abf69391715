package cacheurl_test

import (
	"net/url"
	"testing"

	"github.com/ampcors/ampcors/cacheurl"
)

func TestCanonicalHost(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"https://API.example.com/a":   "api.example.com",
		"https://api.example.com:":    "api.example.com",
		"https://a.example:443":       "a.example",
		"http://a.example:80":         "a.example",
		"http://a.example:443":        "a.example:443",
		"https://a.example:8443":      "a.example:8443",
		"https://Bücher.example/":     "xn--bcher-kva.example",
		"https://b%C3%BCcher.example": "xn--bcher-kva.example",
		"https://foo_bar.example":     "foo_bar.example",
		"http://localhost:3000":       "localhost:3000",
		"http://[::1]:80/":            "[::1]",
		"http://[::1]:3000/":          "[::1]:3000",
		"/a":                          "",
	} {
		u, err := url.Parse(value)
		if err != nil {
			t.Fatal(err)
		}
		if got := cacheurl.CanonicalHost(u); got != want {
			t.Errorf("%s: %q; want %q", value, got, want)
		}
	}
}

func TestIsSameURL(t *testing.T) {
	t.Parallel()
	const a = "https://www.example.com/a?b=%C3%A9"
	for value, want := range map[string]bool{
		a: true,
		" HTTPS://WWW.example.com:443/a?b=%c3%a9#c": true,
		"https://www.example.com/%61?b=é":           true,
		"https://www.example.com/a":                 false,
		"http://www.example.com/a?b=%C3%A9":         false,
		"https://example.com/a?b=%C3%A9":            false,
		"https://www.example.com:8443/a?b=%C3%A9":   false,
		"": false,
	} {
		if got := cacheurl.IsSameURL(a, value); got != want || cacheurl.IsSameURL(value, a) != want {
			t.Errorf("%s: %t", value, got)
		}
	}
	if !cacheurl.IsSameURL("https://www.example.com", "https://www.example.com/") || !cacheurl.IsSameURL("x", "x") {
		t.Error("a missing slash, or a text that is no URL")
	}
}
