package cacheurl

import (
	"cmp"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/idna"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/internal/vectors"
)

var google, bing = DefaultCaches()[0], DefaultCaches()[1]

// TestVectors builds, and parses, the URLs of conformance/cacheurls.json.
func TestVectors(t *testing.T) {
	t.Parallel()
	f, err := vectors.Read("../conformance/cacheurls.json")
	if err != nil {
		t.Fatal(err)
	}
	built, parsed, rejected := 0, 0, 0
	for _, v := range f.CacheURLs {
		u := URL{Publisher: v.URL, Cache: google, Prefix: v.Prefix, Type: ContentType(v.Type), ImageParams: v.ImageParams,
			CacheQuery: v.CacheQuery}
		switch v.Cache {
		case "", google.CacheDomain:
		case bing.CacheDomain:
			u.Cache = bing
		default:
			u.Cache = Cache{ID: "other", CacheDomain: v.Cache}
		}
		if v.URL != "" || v.CacheURL == "" {
			built++
			got, err := u.Build()
			if got != v.CacheURL || (err != nil) != (v.CacheURL == "") || err != nil && !strings.Contains(err.Error(), v.Problem) {
				t.Errorf("%+v: got %s, %v; want %s %s", u, got, err, v.CacheURL, v.Problem)
			}
			if v.Instead != "" && (got == v.Instead || v.Note == "") {
				t.Errorf("%+v: got %s, %v; %s has %s instead, because of %q", u, got, err, v.Source, v.Instead, v.Note)
			}
		}
		if guess := GuessType(v.URL); v.Source == "toolbox" && u.Type != Viewer && guess != u.Type {
			t.Errorf("%s is guessed to be %q, but %q by the toolbox", v.URL, guess, u.Type)
		}
		if v.CacheURL == "" {
			continue
		}
		u.Publisher = cmp.Or(v.Canonical, v.URL)
		got, err := Parse(v.CacheURL, u.Cache)
		if u.Publisher == "" {
			rejected++
			var problem *badvalue.Error
			if !errors.As(err, &problem) || problem.Path != "cacheURL" || problem.Want == "" || problem.Value != v.CacheURL &&
				!strings.Contains(v.CacheURL, "@") || v.Problem == "" || problem.Reason != v.Problem || got != (URL{}) {
				t.Errorf("Parse(%q) = %+v, %v; want the problem %q", v.CacheURL, got, err, v.Problem)
			}
			continue
		}
		parsed++
		again, buildErr := got.Build()
		if v.URL == "" { // in another spelling, or without a type
			if parsed, _ := Parse(again, u.Cache); parsed != got {
				t.Errorf("%s is %+v, built as %s, which is %+v", v.CacheURL, got, again, parsed)
			}
		} else if again != v.CacheURL {
			t.Errorf("%s is %+v, built as %s", v.CacheURL, got, again)
		}
		if err != nil || buildErr != nil || got != u {
			t.Errorf("Parse(%s) = %+v, %v; want %+v; %v", v.CacheURL, got, err, u, buildErr)
		}
		// What another implementation writes is read as the same URL, apart from a slash after the host.
		if v.Instead != "" {
			got, err := Parse(v.Instead, u.Cache)
			if slash := strings.TrimSuffix(got.Publisher, "/") == strings.TrimSuffix(u.Publisher, "/"); err != nil || got != u && !slash {
				t.Errorf("Parse(%s) = %+v, %v; want %+v", v.Instead, got, err, u)
			}
		}
	}
	if built < 90 || parsed < 80 || rejected < 45 {
		t.Errorf("%d built, %d parsed, %d rejected", built, parsed, rejected)
	}
}

func TestInvalidURLsAreRejectedWithAReason(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"": "is empty",
		"https://www-example-com.cdn.ampproject.org/c/s/www.example.com/\xff": "not UTF-8",
	} {
		if u, err := Parse(url); err == nil || !strings.Contains(err.Error(), want) || u != (URL{}) {
			t.Errorf("Parse(%q) = %+v, %v; want %q", url, u, err, want)
		}
	}

	ok := URL{Publisher: "https://www.example.com/a", Type: Document}
	for want, change := range map[string]func(*URL){
		`Publisher "" is empty`:            func(u *URL) { u.Publisher = "" },
		`Publisher "data:image/png"`:       func(u *URL) { u.Publisher = "data:image/png" },
		`host "127.0.0.1", which is an IP`: func(u *URL) { u.Publisher = "https://127.0.0.1/" },
		`host "[::1]", which is an IP`:     func(u *URL) { u.Publisher = "https://[::1]/" },
		`host "localhost", which has no`:   func(u *URL) { u.Publisher = "https://localhost/" },
		"on a cache already":               func(u *URL) { u.Publisher = "https://www-example-com.cdn.ampproject.org/c/s/www.example.com/a" },
		"Publisher \"https://x-y.www":      func(u *URL) { u.Publisher = "https://x-y.www.bing-amp.com/" },
		`Type "x"`:                         func(u *URL) { u.Type = "x" },
		`content type "c"`:                 func(u *URL) { u.ImageParams = "w800" },
		`ImageParams "w8.0"`:               func(u *URL) { u.Type, u.ImageParams = SizedImage, "w8.0" },
		`ImageParams "w8/s"`:               func(u *URL) { u.Type, u.ImageParams = SizedImage, "w8/s" },
		`ImageParams "w8/"`:                func(u *URL) { u.Type, u.ImageParams = SizedImage, "w8/" },
		`parameter "amp_js_v=1"`:           func(u *URL) { u.Publisher += "?a&amp_js_v=1" },
		`has "a=b"`:                        func(u *URL) { u.CacheQuery = "usqp=1&a=b" },
		`has "usqp=\"`:                     func(u *URL) { u.CacheQuery = `usqp="` },
		`has "usqp=1 2"`:                   func(u *URL) { u.CacheQuery = "usqp=1 2" },
		`has "usqp=é"`:                     func(u *URL) { u.CacheQuery = "usqp=é" },
		`has "usqp=\x7f"`:                  func(u *URL) { u.CacheQuery = "usqp=\x7f" },
		`Prefix "evil-com" is not`:         func(u *URL) { u.Prefix = "evil-com" },
		"https://x-y.amp.example/\" is on a": func(u *URL) {
			u.Publisher, u.Cache.ID, u.Cache.CacheDomain = "https://x-y.amp.example/", "x", "amp.example"
		},
		`Publisher "https://www.example.com:8443//me@b" has the port`: func(u *URL) { u.Publisher = "https://www.example.com:8443//me@b" },
		`Publisher "https://…@www.example.com/a" has user`:            func(u *URL) { u.Publisher = "https://user:secret@www.example.com/a" },
		`which has a trailing dot; want a URL with "www.example.com"`: func(u *URL) { u.Publisher = "https://www.example.com./a" },
		`has "usqp=1#"`:     func(u *URL) { u.CacheQuery = "usqp=1#" },
		`has ""`:            func(u *URL) { u.CacheQuery = "usqp=1&" },
		"Cache.cacheDomain": func(u *URL) { u.Cache.ID, u.Cache.CacheDomain = "x", "com" },
		"Cache.id":          func(u *URL) { u.Cache.CacheDomain = "amp.example" },
	} {
		t.Run(want, func(t *testing.T) {
			u := ok
			change(&u)
			got, err := u.Build()
			var problem *badvalue.Error
			if got != "" || !errors.As(err, &problem) || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: got %q, %v; want an error with %q", u, got, err, want)
			}
		})
	}
}

func TestParseChecksTheCaches(t *testing.T) {
	t.Parallel()
	for want, caches := range map[string][]Cache{
		"caches[0].id":          {{}},
		"is a public suffix":    {{ID: "x", CacheDomain: "co.uk"}},
		"not in lower-case":     {google, {ID: "x", CacheDomain: "AMP.example"}},
		"overlaps with that of": {{ID: "x", CacheDomain: "ampproject.org"}, google},
	} {
		t.Run(want, func(t *testing.T) {
			if u, err := Parse("https://www-example-com.cdn.ampproject.org/c/s/www.example.com/", caches...); err == nil ||
				!strings.Contains(err.Error(), want) || u != (URL{}) {
				t.Errorf("got %+v, %v; want %s", u, err, want)
			}
		})
	}
}

// TestParseTakesLinearTime: with quadratic time, this takes a minute.
func TestParseTakesLinearTime(t *testing.T) {
	t.Parallel()
	params := strings.Repeat("a/", 1<<19)
	u, err := Parse("https://www-example-com.cdn.ampproject.org/ii/" + params + "s/www.example.com/")
	if err != nil || u.ImageParams+"/" != params {
		t.Errorf("%d bytes of parameters, %v", len(u.ImageParams), err)
	}
	if built, err := u.Build(); err != nil || len(built) < len(params) {
		t.Error(err)
	}
}

func TestGuessType(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]ContentType{
		"":                  Document,
		"/":                 Document,
		"/photo.jpg":        Image,
		"/photo.jpg?x=.ttf": Image,
		"/photo.jpg#.ttf":   Image,
		"/photo.JPG":        Image,
		"/photo.Avif":       Image,
		"/photo.heic":       Image,
		"/photo.svg":        Image,
		"/photo.ICO":        Image,
		"/agents.ai":        Document,
		"/serif.woff2":      Resource,
		"/serif.ttf":        Resource,
		"/service":          Document, // the toolbox takes "ice" for a font extension
		"/photo.jpg/":       Document,
		"/a.jpg/b":          Document,
		"/jpg":              Document,
		"/index.amp.html":   Document,
		"/a?b=photo.jpg":    Document,
	} {
		t.Run(path, func(t *testing.T) {
			if got := GuessType("https://www.example.com" + path); got != want {
				t.Errorf("%s: got %q; want %q", path, got, want)
			}
		})
	}
	if got := GuessType("photo.jpg"); got != Document {
		t.Errorf("a value that is not a URL is guessed to be %q", got)
	}
	for url, want := range map[URL]string{
		{Publisher: "https://www.example.com/a.png"}:                      "/c/s/", // guessing is asked for
		{Publisher: "https://www.example.com/a.png", Type: Image}:         "/i/s/",
		{Publisher: "https://www.example.com/a.png", ImageParams: "w100"}: "/ii/w100/s/",
		{Publisher: "https://www.example.com/a.png", Type: Document}:      "/c/s/",
	} {
		if got, err := url.Build(); err != nil || !strings.Contains(got, want) {
			t.Errorf("%+v: got %s, %v; want %s", url, got, err, want)
		}
	}
}

// FuzzBuildThenParse checks that Parse undoes Build, and that net/url and the root package
// agree with the result.
func FuzzBuildThenParse(f *testing.F) {
	for _, path := range []string{"", "/", "/?", "/a%2Fb/../c?a&a=&%20=+#x", "/ä?ö", "/ a?b c", "/a//b", "/..", "/?amp_js_v=1", "/%",
		"/?x=%zz[]"} {
		f.Add("https", "www.example.com", path, uint8(0), "", "")
	}
	f.Add("http", "bücher.example", "/a.png", uint8(5), "w800", "usqp=1&amp_r=a%20b")
	f.Add("HTTPS", "my-pub.com:443", "/a", uint8(1), "", "amp_gsa")
	types := []ContentType{"", Viewer, SignedExchange, Certificate, Image, SizedImage, Resource, Document}
	f.Fuzz(func(t *testing.T, scheme, host, tail string, contentType uint8, imageParams, cacheQuery string) {
		caches := DefaultCaches()
		u := URL{
			Publisher: scheme + "://" + host + tail, Cache: caches[int(contentType/8)%len(caches)],
			Type: types[contentType%8], ImageParams: imageParams, CacheQuery: cacheQuery,
		}
		built, err := u.Build()
		if err != nil {
			if problem := (*badvalue.Error)(nil); !errors.As(err, &problem) || built != "" {
				t.Fatalf("%+v: %q, %v", u, built, err)
			}
			return
		}
		parsed, err := Parse(built)
		if err != nil {
			t.Fatalf("%+v: built %s; then %v", u, built, err)
		}
		if again, err := parsed.Build(); err != nil || again != built {
			t.Fatalf("%s is parsed as %+v, and built as %s, %v", built, parsed, again, err)
		}
		if twice, err := Parse(built, caches...); err != nil || twice != parsed {
			t.Fatalf("%s is parsed as %+v and as %+v, %v", built, parsed, twice, err)
		}
		if parsed.Cache != u.Cache || parsed.ImageParams != imageParams || parsed.CacheQuery != cacheQuery ||
			u.Type != "" && parsed.Type != u.Type {
			t.Fatalf("%+v: parsed %+v", u, parsed)
		}

		// A query in the publisher's URL that needs no escaping is unchanged.
		asWritten, _, _ := strings.Cut(u.Publisher, "#")
		_, query, hasQuery := strings.Cut(asWritten, "?")
		if _, parsedQuery, has := strings.Cut(parsed.Publisher, "?"); has != hasQuery || !strings.ContainsAny(query, ` "'<>`) &&
			isPrintable(query) && parsedQuery != query {
			t.Fatalf("%+v: parsed %+v", u, parsed)
		}
		_, builtQuery, _ := strings.Cut(built, "?")
		if !isPrintable(built) || strings.ContainsAny(built, " #\"<>") || strings.Contains(builtQuery, "'") {
			t.Fatalf("%+v: %q is not a URL", u, built)
		}
		if std, err := url.Parse(built); err == nil { // it rejects "%zz"
			prefix, _, _ := strings.Cut(std.Host, ".")
			page, err := url.Parse(parsed.Publisher)
			if err != nil || !belongsTo(prefix, page.Host) || !slices.Contains(strings.Split(std.EscapedPath(), "/"), page.Host) ||
				slices.Contains(strings.Split(std.EscapedPath(), "/"), "..") {
				t.Fatalf("%+v: built %s of %v, %v", u, built, page, err)
			}
		}
	})
}

// FuzzParse checks that Build accepts what Parse returns, and that Parse undoes Build.
func FuzzParse(f *testing.F) {
	for _, u := range []string{"https://www-example-com.cdn.ampproject.org/c/s/www.example.com/a?b&amp_js_v=1#c",
		"https://xn---com-k47jg78q.cdn.ampproject.org/ii/w8/x/s/點看.com", "https://cdn-ampproject-org.cdn.ampproject.org/c/s/cdn.ampproject.org/",
		"https://www-example-com.www.b\u0130ng-amp.com/c/www%2Eexample.com/../"} {
		f.Add(u)
	}
	f.Fuzz(func(t *testing.T, cacheURL string) {
		u, err := Parse(cacheURL)
		if err != nil {
			if problem := (*badvalue.Error)(nil); !errors.As(err, &problem) || u != (URL{}) {
				t.Fatalf("%q: %+v, %v", cacheURL, u, err)
			}
			return
		}
		built, err := u.Build()
		if err != nil {
			t.Fatalf("%q is %+v: %v", cacheURL, u, err)
		}
		if again, err := Parse(built); err != nil || again != u {
			t.Fatalf("%q is %+v, built as %s, which is %+v, %v", cacheURL, u, built, again, err)
		}
		// A browser maps the host by UTS 46, like x/net. The result must be on the cache.
		std, err := url.Parse(cacheURL)
		if err != nil {
			return // net/url rejects "%zz"
		}
		host, err := idna.New(idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(false),
			idna.CheckHyphens(false)).ToASCII(std.Hostname())
		if err != nil || !strings.HasSuffix(host, "."+u.Cache.CacheDomain) {
			t.Fatalf("%q is %+v; a browser would ask %q, %v", cacheURL, u, host, err)
		}
	})
}

func isPrintable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r >= 0x7f })
}

func TestIsOnCache(t *testing.T) {
	t.Parallel()
	other := Cache{ID: "other", CacheDomain: "cache.example"}
	for url, want := range map[string]bool{
		"https://www-example-com.cdn.ampproject.org/x": true, "http://CDN.ampproject.org": true, "https://a.www.bing-amp.com:1/": true,
		"https://www.example.com/": false, "https://acdn.ampproject.org": false, "https://a.cache.example": false, "%": false,
	} {
		if got := IsOnCache(url); got != want {
			t.Errorf("%s: %t", url, got)
		}
	}
	if !IsOnCache("https://a.cache.example", other) || IsOnCache("https://a.cdn.ampproject.org", other) {
		t.Error("of other caches")
	}
}
