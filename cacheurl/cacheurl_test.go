package cacheurl

import (
	"bufio"
	"errors"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/idna"

	"github.com/ampcors/ampcors"
)

var google, bing = ampcors.DefaultCaches()[0], ampcors.DefaultCaches()[1]

// Reasons to differ from a public vector.
const (
	slashKept   = `"/" after the host is kept as written, as in the toolbox`
	noFragment  = "a fragment is not part of a cache URL: it never reaches the cache"
	otherPort   = "a cache URL has no port, and another port is another server"
	onACache    = "a URL on a cache is not a publisher's URL; Parse reports whether it is valid"
	asALabels   = "the host in the path is in A-labels, as AMP's document has it; Parse reads both forms"
	singleLabel = "a single label is not a publisher: a cache cannot fetch a page there"
)

// differs lists the rows from which this package differs, by input and expected output.
var differs = map[[2]string]string{
	{"http://example.com/", "https://example-com.amp.cache/c/example.com"}:                                                                                                                                   slashKept,
	{"https://example.com/", "https://example-com.amp.cache/c/s/example.com"}:                                                                                                                                slashKept,
	{"http://example.com:80/", "https://example-com.amp.cache/c/example.com"}:                                                                                                                                slashKept,
	{"https://example.com:443/", "https://example-com.amp.cache/c/s/example.com"}:                                                                                                                            slashKept,
	{"http://example.com/my%2Fpath/index.html?a=1#fragment", "https://example-com.amp.cache/c/example.com/my%2Fpath/index.html?a=1#fragment"}:                                                                noFragment,
	{"https://localhost.test/icons/below.svg#icon-whatsapp", "https://localhost-test.cdn.ampproject.org/i/s/localhost.test/icons/below.svg#icon-whatsapp"}:                                                   noFragment,
	{"https://localhost.test/icons/below.svg#icon-whatsapp", "https://localhost-test.cdn.ampproject.org/r/s/localhost.test/icons/below.svg#icon-whatsapp"}:                                                   noFragment,
	{"https://www.ampproject.org", "https://www-ampproject-org.cdn.ampproject.org/v/s/www.ampproject.org/?amp_js_v=0.1#origin=http%3A%2F%2Flocalhost%3A8000"}:                                                noFragment,
	{"http://www.example.com/article/bla/la", "https://www-example-com.cdn.ampproject.org/v/www.example.com/article/bla/la?amp_js_v=0.1#origin=http%3A%2F%2Flocalhost%3A8000"}:                               noFragment,
	{"http://www.example.com/foo?amp=true", "https://www-example-com.cdn.ampproject.org/v/www.example.com/foo?amp=true&amp_js_v=0.1#origin=http%3A%2F%2Flocalhost%3A8000"}:                                   noFragment,
	{"http://www.example.com:8080/blah.jpg", "https://www-example-com.cdn.ampproject.org/i/www.example.com/blah.jpg"}:                                                                                        otherPort,
	{"http://www.example.com:8080/blah.jpg", "https://www-example-com.cdn.ampproject.org/r/www.example.com/blah.jpg"}:                                                                                        otherPort,
	{"https://www-example-com.cdn.ampproject.org/incorrect/path/is/preserved/wrong.domain.com/blah.jpg", "https://www-example-com.cdn.ampproject.org/incorrect/path/is/preserved/wrong.domain.com/blah.jpg"}: onACache,
	{"http://www-example-com.cdn.ampproject.org/i/www.example.com/blah.jpg", "http://www-example-com.cdn.ampproject.org/i/www.example.com/blah.jpg"}:                                                         onACache,
	{"https://點看.com", "https://xn---com-k47jg78q.cdn.ampproject.org/c/s/點看.com"}:                                                                                                                            asALabels,
	{"https://مثال.واحد", "https://xn----ymcbnnm7lf5a.cdn.ampproject.org/c/s/مثال.واحد"}:                                                                                                                     asALabels,
	{"http://localhost:3000", "https://jgla3zmib2ggq5buc4hwi5taloh6jlvzukddfr4zltz3vay5s5rq.cdn.ampproject.org/c/localhost"}:                                                                                 singleLabel,
}

// TestPublicVectors builds the URL of every cache_url row, and parses the expected URL.
func TestPublicVectors(t *testing.T) {
	t.Parallel()
	file, err := os.Open("testdata/public_vectors.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, used := 0, map[[2]string]bool{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		row := strings.Split(lines.Text(), "\t")
		kind, input, want, note := row[0], row[1], row[2], row[4]
		if !strings.HasPrefix(kind, "cache_url") {
			continue
		}
		rows++
		if kind == "cache_url_error" {
			if got, err := (URL{Publisher: input}).Build(); err == nil {
				t.Errorf("%s: got %s; want an error", input, got)
			}
			continue
		}
		// A few vectors are relative to a base, or ask for a width.
		publisher := input
		if m := regexp.MustCompile(`base (https?://[^;]+);`).FindStringSubmatch(note); m != nil && !strings.Contains(input, "://") {
			publisher = m[1] + input
		}
		u := URL{Publisher: publisher, Cache: google}
		if strings.Contains(want, ".amp.cache/") {
			u.Cache = ampcors.Cache{ID: "amp.cache", CacheDomain: "amp.cache"}
		}
		switch m := regexp.MustCompile(`width=(-?\d+)`).FindStringSubmatch(note); {
		case kind == "cache_url_i" && m != nil && m[1][0] != '-':
			u.Type, u.ImageParams = SizedImage, "w"+m[1]
		case kind == "cache_url_i":
			u.Type = Image
		case kind == "cache_url_r":
			u.Type = Resource
		case kind == "cache_url_v":
			u.Type = Viewer
			if strings.Contains(want, "amp_js_v") {
				u.CacheQuery = "amp_js_v=0.1"
			}
		}
		if u.Type == "" && u.ImageParams == "" {
			u.Type = GuessType(input) // as the toolbox does
		}
		got, err := u.Build()
		key := [2]string{input, want}
		switch reason := differs[key]; {
		case reason == "":
			if err != nil || got != want {
				t.Errorf("%s: got %s, %v; want %s", input, got, err, want)
			}
		case err == nil && got == want:
			t.Errorf("%s: listed as different (%s), but equals the vector", input, reason)
		case reason == slashKept && got != want+"/":
			t.Errorf("%s: got %s, %v", input, got, err)
		case reason == noFragment && input != "https://www.ampproject.org": // where the vector also adds a slash
			if bare, _, _ := strings.Cut(want, "#"); got != bare {
				t.Errorf("%s: got %s, %v; want %s", input, got, err, bare)
			}
		case (reason == otherPort || reason == onACache || reason == singleLabel) && err == nil:
			t.Errorf("%s: got %s; want an error", input, got)
		}
		used[key] = true

		// The expected value is a cache URL, and Parse must accept it.
		reason := differs[key]
		if reason == onACache || reason == singleLabel {
			continue
		}
		parsed, err := Parse(want, u.Cache)
		if err != nil {
			t.Errorf("Parse(%s): %v", want, err)
			continue
		}
		if reason == "" || reason == asALabels {
			again, err := parsed.Build()
			if err != nil || again != got || parsed.ImageParams != u.ImageParams || parsed.CacheQuery != u.CacheQuery {
				t.Errorf("%s is parsed as %+v, and built as %s, %v", want, parsed, again, err)
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if rows != 64 {
		t.Errorf("%d rows; want 64", rows)
	}
	for key := range differs {
		if !used[key] {
			t.Errorf("there is no vector %s", key)
		}
	}
}

func TestBuildAndParse(t *testing.T) {
	t.Parallel()
	const g = "https://www-example-com.cdn.ampproject.org"
	for _, test := range []struct {
		url  URL
		want string
		as   string // the Publisher that Parse returns for want, if it is not url.Publisher
	}{
		// Each content type.
		{url: URL{Publisher: "https://www.example.com/a", Type: Document}, want: g + "/c/s/www.example.com/a", as: ""},
		{url: URL{Publisher: "https://www.example.com/a", Type: Viewer, CacheQuery: "amp_js_v=0.1"}, want: g + "/v/s/www.example.com/a?amp_js_v=0.1", as: ""},
		{url: URL{Publisher: "https://www.example.com/a", Type: SignedExchange}, want: g + "/wp/s/www.example.com/a", as: ""},
		{url: URL{Publisher: "https://www.example.com/a", Type: Certificate}, want: g + "/cert/s/www.example.com/a", as: ""},
		{url: URL{Publisher: "https://www.example.com/a", Type: Image}, want: g + "/i/s/www.example.com/a", as: ""},
		{url: URL{Publisher: "https://www.example.com/a", Type: Resource}, want: g + "/r/s/www.example.com/a", as: ""},
		{url: URL{Publisher: "https://www.example.com/a", Type: SizedImage, ImageParams: "w800"}, want: g + "/ii/w800/s/www.example.com/a", as: ""},
		{url: URL{Publisher: "http://www.example.com/a", Type: SizedImage, ImageParams: "w800/AW"}, want: g + "/ii/w800/AW/www.example.com/a", as: ""},
		{url: URL{Publisher: "http://www.example.com/a", Type: Document}, want: g + "/c/www.example.com/a", as: ""},

		// Another cache.
		{url: URL{Publisher: "https://www.example.com/a", Type: Document, Cache: bing}, want: "https://www-example-com.www.bing-amp.com/c/s/www.example.com/a", as: ""},

		// Each of these is a different entry of the cache.
		{url: URL{Publisher: "https://www.example.com", Type: Document}, want: g + "/c/s/www.example.com", as: ""},
		{url: URL{Publisher: "https://www.example.com/", Type: Document}, want: g + "/c/s/www.example.com/", as: ""},
		{url: URL{Publisher: "https://www.example.com/?", Type: Document}, want: g + "/c/s/www.example.com/?", as: ""},
		{url: URL{Publisher: "https://www.example.com?a", Type: Document}, want: g + "/c/s/www.example.com?a", as: ""},
		{url: URL{Publisher: "https://www.example.com/?a=", Type: Document}, want: g + "/c/s/www.example.com/?a=", as: ""},
		{url: URL{Publisher: "https://www.example.com/?a=%20+%2B%7e~&&a=b=c&", Type: Document}, want: g + "/c/s/www.example.com/?a=%20+%2B%7e~&&a=b=c&", as: ""},
		{url: URL{Publisher: "https://www.example.com/?q[0]={|}^`\\'%zz%/?:@", Type: Document}, want: g + "/c/s/www.example.com/?q[0]={|}^`\\%27%zz%/?:@", as: "https://www.example.com/?q[0]={|}^`\\%27%zz%/?:@"},
		{url: URL{Publisher: "https://www.example.com/a?b", Type: Document, CacheQuery: "amp_latest_update_time=1700000000"}, want: g + "/c/s/www.example.com/a?b&amp_latest_update_time=1700000000", as: ""},
		{url: URL{Publisher: "https://xn--ls8h.la/", Type: Document}, want: "https://xn---la-jd23b.cdn.ampproject.org/c/s/xn--ls8h.la/", as: ""}, // an emoji
		{url: URL{Publisher: "https://www.example.com/a%2Fb//c;d=1,2/%7E~!$&'()*+|[]:@", Type: Document}, want: g + "/c/s/www.example.com/a%2Fb//c;d=1,2/%7E~!$&'()*+|[]:@", as: ""},
		{url: URL{Publisher: "https://www.example.com//", Type: Document}, want: g + "/c/s/www.example.com//", as: ""},
		{url: URL{Publisher: "https://www.example.com/s/www.example.org/c/s", Type: Document}, want: g + "/c/s/www.example.com/s/www.example.org/c/s", as: ""},
		{url: URL{Publisher: "https://www.example.com/?u=https://www.example.org/#", Type: Document}, want: g + "/c/s/www.example.com/?u=https://www.example.org/", as: "https://www.example.com/?u=https://www.example.org/"},

		// The cache's own parameters, and parameters that only look like them.
		{url: URL{Publisher: "https://www.example.com/?", Type: Viewer, CacheQuery: "usqp=mq331AQ%3D&amp_gsa=1"}, want: g + "/v/s/www.example.com/?&usqp=mq331AQ%3D&amp_gsa=1", as: ""},
		{url: URL{Publisher: "https://www.example.com/\x7f", Type: Document}, want: g + "/c/s/www.example.com/%7F", as: "https://www.example.com/%7F"},
		{url: URL{Publisher: "https://www.example.com/", Type: Document, CacheQuery: "amp_js&amp_jsx=1&amp_js_v%3D1&amp_r.x"}, want: g + "/c/s/www.example.com/?amp_js&amp_jsx=1&amp_js_v%3D1&amp_r.x", as: ""},
		{url: URL{Publisher: "https://www.example.com/?amp", Type: Document, CacheQuery: "amp_kit&amp_r="}, want: g + "/c/s/www.example.com/?amp&amp_kit&amp_r=", as: ""},
		{url: URL{Publisher: "https://www.example.com/?amp_reader=1&usqp1&AMP_R=2&amp_rjs", Type: Document}, want: g + "/c/s/www.example.com/?amp_reader=1&usqp1&AMP_R=2&amp_rjs", as: ""},

		// Hosts.
		{url: URL{Publisher: "HTTPS://Bücher.Example:443/straße?ö=\u00fc", Type: Document}, want: "https://xn--bcher-example-wob.cdn.ampproject.org/c/s/xn--bcher-kva.example/stra%C3%9Fe?%C3%B6=%C3%BC", as: "https://xn--bcher-kva.example/stra%C3%9Fe?%C3%B6=%C3%BC"},
		{url: URL{Publisher: "http://my-pub.com:80/a", Type: Document}, want: "https://0-my--pub-com-0.cdn.ampproject.org/c/my-pub.com/a", as: "http://my-pub.com/a"},
		{url: URL{Publisher: "https://example.com:/a", Type: Document}, want: "https://example-com.cdn.ampproject.org/c/s/example.com/a", as: "https://example.com/a"},
		{url: URL{Publisher: "https://in--trouble.com/a", Type: Document}, want: "https://" + hash(t, "in--trouble.com") + ".cdn.ampproject.org/c/s/in--trouble.com/a", as: ""},

		// What browsers normalize before a request.
		{url: URL{Publisher: "https://www.example.com/a b\"<>`{}^?a b\"<>", Type: Document}, want: g + "/c/s/www.example.com/a%20b%22%3C%3E%60%7B%7D%5E?a%20b%22%3C%3E", as: "https://www.example.com/a%20b%22%3C%3E%60%7B%7D%5E?a%20b%22%3C%3E"},
		{url: URL{Publisher: "https://www.example.com/./a/../b/%2e%2E/.%2e/c/..", Type: Document}, want: g + "/c/s/www.example.com/", as: "https://www.example.com/"},
		{url: URL{Publisher: "https://www.example.com/../../a/.b/..c/%2ed/./", Type: Document}, want: g + "/c/s/www.example.com/a/.b/..c/%2ed/", as: "https://www.example.com/a/.b/..c/%2ed/"},
		{url: URL{Publisher: "https://www.example.com/a/.?b/../c", Type: Document}, want: g + "/c/s/www.example.com/a/?b/../c", as: "https://www.example.com/a/?b/../c"},
	} {
		t.Run(test.want, func(t *testing.T) {
			got, err := test.url.Build()
			if err != nil || got != test.want {
				t.Errorf("%+v: got %s, %v; want %s", test.url, got, err, test.want)
				return
			}
			want := test.url
			if test.as != "" {
				want.Publisher = test.as
			}
			if want.Cache == (ampcors.Cache{}) {
				want.Cache = google
			}
			if parsed, err := Parse(got); err != nil || parsed != want {
				t.Errorf("Parse(%s) = %+v, %v; want %+v", got, parsed, err, want)
			}
		})
	}
}

func hash(t *testing.T, domain string) string {
	prefix, err := ampcors.HashPrefix(domain)
	if err != nil {
		t.Fatal(err)
	}
	return prefix
}

// TestParseAcceptsEveryFormOfThePrefix: caches use different forms.
func TestParseAcceptsEveryFormOfThePrefix(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ url, publisher string }{
		{url: "https://" + hash(t, "www.example.com") + ".cdn.ampproject.org/c/s/www.example.com/", publisher: "https://www.example.com/"},
		{url: "https://xn--shop-com.cdn.ampproject.org/c/s/xn-shop.com/", publisher: "https://xn-shop.com/"}, // as the toolbox writes it
		{url: "https://0-xn--shop-com-0.cdn.ampproject.org/c/s/xn-shop.com/", publisher: "https://xn-shop.com/"},
		{url: "https://xn---com-k47jg78q.cdn.ampproject.org/c/s/點看.com/", publisher: "https://xn--c1yn36f.com/"},
		{url: "https://xn---com-k47jg78q.cdn.ampproject.org/c/s/%E9%BB%9E%E7%9C%8B.com/", publisher: "https://xn--c1yn36f.com/"},
		{url: "HTTPS://WWW-Example-Com.CDN.ampproject.org:443/c/s/WWW.Example.com/A#b", publisher: "https://www.example.com/A"},
	} {
		t.Run(test.url, func(t *testing.T) {
			if u, err := Parse(test.url); err != nil || u.Publisher != test.publisher {
				t.Errorf("Parse(%s) = %+v, %v; want %s", test.url, u, err, test.publisher)
			}
		})
	}
}

func TestInvalidURLsAreRejectedWithAReason(t *testing.T) {
	t.Parallel()
	const g = "https://www-example-com.cdn.ampproject.org"
	for url, want := range map[string]string{
		"":                               "is empty",
		" " + g + "/c/s/www.example.com": "white space",
		g + "/c/s/www.example.com/\n":    "white space",
		g + "/c/s/www.example.com/\na":   "control character",
		g + "/c/s/www.example.com/\xff":  "not UTF-8",
		"//www-example-com.cdn.ampproject.org/c/s/www.example.com/":                "no scheme",
		"www-example-com.cdn.ampproject.org/c/s/www.example.com/":                  "does not begin with http",
		"http://www-example-com.cdn.ampproject.org/c/www.example.com/":             "not https",
		"https://user@www-example-com.cdn.ampproject.org/c/s/www.example.com/":     "user information",
		"https://www-example-com.cdn.ampproject.org:8443/c/s/www.example.com/":     `port "8443"`,
		`https://www-example-com.cdn.ampproject.org\c/s/www.example.com/`:          `has a \`,
		`https://www-example-com.cdn.ampproject.org/c/s/www.example.com\a`:         `has a \`,
		"https://www.example.com/c/s/www.example.com/":                             "no known cache's domain",
		"https://www-example-comcdn.ampproject.org/c/s/www.example.com/":           "no known cache's domain",
		"https://www-example-com.cdn.ampproject.org.evil.com/c/s/www.example.com/": "no known cache's domain",
		"https://www-example-com.evilcdn.ampproject.org/c/s/www.example.com/":      "no known cache's domain",
		"https://cdn.ampproject.org/c/s/www.example.com/":                          "has no domain prefix",
		"https://www-example-com.x.cdn.ampproject.org/c/s/www.example.com/":        "prefix",
		g:                                        `content type ""`,
		g + "/":                                  `content type ""`,
		g + "//c/s/www.example.com/":             `content type ""`,
		g + "/a/s/www.example.com/":              `content type "a"`,
		g + "/C/s/www.example.com/":              `content type "C"`,
		g + "/update-cache/c/s/www.example.com/": `content type "update-cache"`,
		g + "/c":                                 `host ""`,
		g + "/c/s":                               `host "s"`,
		g + "/c/s/":                              `host ""`,
		g + "/c/s//www.example.com/":             `host ""`,
		g + "/c/S/www.example.com/":              `host "S"`,
		g + "/c/s/www.example.com:8080/":         "has a port",
		g + "/c/s/user@www.example.com/":         "user information",
		g + "/c/s/%zz/":                          `host "%zz"`,
		g + "/c/s/www.example.com%2Fa":           "path",
		g + "/ii/s/www.example.com/a":            "no image parameters",
		g + "/ii/www.example.com/a":              "no image parameters",
		"https://www-example-com.www.b\u0130ng-amp.com/c/s/www.example.com/":         "not ASCII", // browsers: xn--bing-amp-p0e
		"https://\u0130t-com.cdn.ampproject.org/c/s/it.com/":                         "not ASCII",
		"https://a-b-com.cdn.ampproject.or\u212A/c/s/a.b.com/":                       "not ASCII",
		"https://cdn-ampproject-org.cdn.ampproject.org/c/s/cdn.ampproject.org/v0.js": "on a cache itself",
		g + "/ii/w800": "no image parameters",
		"https://www-xn--a-com.cdn.ampproject.org/c/s/www.xn--a.com/": "browsers reject",
		g + "/ii/w8!/s/www.example.com/a":                             "no image parameters",

		// The prefix is another publisher's.
		g + "/c/s/evil.example/":                                                          `not one of the prefixes of "evil.example"`,
		g + "/c/s/www.example.com.evil.example/":                                          "not one of",
		g + "/c/s/www.example.com/../evil.example/":                                       "not one of",
		g + "/c/s/www.example.com/%2e%2E/evil.example/":                                   "not one of",
		"https://www---example-com.cdn.ampproject.org/c/s/www.example.com/":               "not one of",
		"https://0-www-example-com-0.cdn.ampproject.org/c/s/www.example.com/":             "not one of",
		"https://" + hash(t, "evil.example") + ".cdn.ampproject.org/c/s/www.example.com/": "not one of",
		"https://example.cdn.ampproject.org/c/s/www.example.com/":                         "not one of",
	} {
		t.Run(url, func(t *testing.T) {
			u, err := Parse(url)
			var problem *ampcors.ValueError
			if !errors.As(err, &problem) || problem.Path != "cacheURL" || !strings.Contains(err.Error(), want) || problem.Value != url && !strings.Contains(url, "@") || problem.Want == "" {
				t.Errorf("Parse(%q) = %+v, %v; want an error with %q", url, u, err, want)
			}
			if u != (URL{}) {
				t.Errorf("Parse(%q) = %+v beside an error", url, u)
			}
		})
	}

	ok := URL{Publisher: "https://www.example.com/a", Type: Document}
	for want, change := range map[string]func(*URL){
		`Publisher "data:image/png"`:       func(u *URL) { u.Publisher = "data:image/png" },
		`host "127.0.0.1", which is an IP`: func(u *URL) { u.Publisher = "https://127.0.0.1/" },
		`host "[::1]", which is an IP`:     func(u *URL) { u.Publisher = "https://[::1]/" },
		`host "localhost", which has no`:   func(u *URL) { u.Publisher = "https://localhost/" },
		"on a cache already":               func(u *URL) { u.Publisher = "https://www-example-com.cdn.ampproject.org/c/s/www.example.com/a" },
		"Publisher \"https://x-y.www":      func(u *URL) { u.Publisher = "https://x-y.www.bing-amp.com/" },
		`Type "x"`:                         func(u *URL) { u.Type = "x" },
		`content type "c"`:                 func(u *URL) { u.ImageParams = "w800" },
		`content type "ii"`:                func(u *URL) { u.Type = SizedImage },
		`ImageParams "w8.0"`:               func(u *URL) { u.Type, u.ImageParams = SizedImage, "w8.0" },
		`ImageParams "w8/s"`:               func(u *URL) { u.Type, u.ImageParams = SizedImage, "w8/s" },
		`ImageParams "w8/"`:                func(u *URL) { u.Type, u.ImageParams = SizedImage, "w8/" },
		`parameter "amp_js_v=1"`:           func(u *URL) { u.Publisher += "?a&amp_js_v=1" },
		`has "a=b"`:                        func(u *URL) { u.CacheQuery = "usqp=1&a=b" },
		`has "usqp=\"`:                     func(u *URL) { u.CacheQuery = `usqp="` },
		`has "usqp=1 2"`:                   func(u *URL) { u.CacheQuery = "usqp=1 2" },
		`has "usqp=é"`:                     func(u *URL) { u.CacheQuery = "usqp=é" },
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
			var problem *ampcors.ValueError
			if got != "" || !errors.As(err, &problem) || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: got %q, %v; want an error with %q", u, got, err, want)
			}
		})
	}
}

func TestParseChecksTheCaches(t *testing.T) {
	t.Parallel()
	for want, caches := range map[string][]ampcors.Cache{
		"caches[0].id":          {{}},
		"is a public suffix":    {{ID: "x", CacheDomain: "co.uk"}},
		"not in lower-case":     {google, {ID: "x", CacheDomain: "AMP.example"}},
		"overlaps with that of": {{ID: "x", CacheDomain: "ampproject.org"}, google},
	} {
		t.Run(want, func(t *testing.T) {
			if u, err := Parse("https://www-example-com.cdn.ampproject.org/c/s/www.example.com/", caches...); err == nil || !strings.Contains(err.Error(), want) || u != (URL{}) {
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

func TestParseViewer(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://www.google.com/amp/s/www.example.com/article?id=7&usqp=mq331AQ&amp_js_v=0.1#aoh=1": "https://www.example.com/article?id=7",
		"https://www.google.com/amp/www.example.com/article":                                        "http://www.example.com/article",
		"https://WWW.Google.co.uk/amp/s/b%C3%BCcher.example":                                        "https://xn--bcher-kva.example",
		"https://www.google.com.br/amp/s/www.example.com/":                                          "https://www.example.com/",
		"https://www.bing.com/amp/s/www.example.com/a%2Fb//":                                        "https://www.example.com/a%2Fb//",
	} {
		if got, err := ParseViewer(url); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", url, got, err, want)
		}
	}
	for url, want := range map[string]string{
		"http://www.google.com/amp/s/www.example.com/":              "viewer",
		"https://www.google.com.evil.example/amp/s/www.example.com": "viewer",
		"https://www.google.evil/amp/s/www.example.com":             "viewer",
		"https://www.g\u043e\u043egle.com/amp/s/www.example.com":    "viewer",
		"https://www.google.com/search?q=/amp/s/www.example.com":    "/amp/",
		"https://www.google.com/amp/":                               "host",
		"https://www.google.com/amp/s/":                             "host",
		"https://www.google.com/amp/s/127.0.0.1/":                   "host",
		"https://www.google.com/amp/s/www.example.com:8080/":        "host",
		"https://www.google.com/amp/s/www.xn--a.com/":               "browsers reject",
		"https://www.google.com/amp/s/cdn.ampproject.org/":          "on a cache",
		"https://www.google.com/amp/s/../search":                    "/amp/",
		"x":                                                         "http",
	} {
		var problem *ampcors.ValueError
		if got, err := ParseViewer(url); got != "" || !errors.As(err, &problem) || !strings.Contains(err.Error(), want) || problem.Path != "viewerURL" {
			t.Errorf("%s: %s, %v; want %q", url, got, err, want)
		}
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
		"/photo.svg":        Image, // the toolbox also lists it as a font
		"/photo.PI1":        Image,
		"/photo.pi1":        Image,
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
	for _, path := range []string{"", "/", "/?", "/a%2Fb/../c?a&a=&%20=+#x", "/ä?ö", "/ a?b c", "/a//b", "/..", "/?amp_js_v=1", "/%", "/?x=%zz[]"} {
		f.Add("https", "www.example.com", path, uint8(0), "", "")
	}
	f.Add("http", "bücher.example", "/a.png", uint8(5), "w800", "usqp=1&amp_r=a%20b")
	f.Add("HTTPS", "my-pub.com:443", "/a", uint8(1), "", "amp_gsa")
	types := []ContentType{"", Viewer, SignedExchange, Certificate, Image, SizedImage, Resource, Document}
	f.Fuzz(func(t *testing.T, scheme, host, tail string, contentType uint8, imageParams, cacheQuery string) {
		caches := ampcors.DefaultCaches()
		u := URL{
			Publisher: scheme + "://" + host + tail, Cache: caches[int(contentType/8)%len(caches)],
			Type: types[contentType%8], ImageParams: imageParams, CacheQuery: cacheQuery,
		}
		built, err := u.Build()
		if err != nil {
			if problem := (*ampcors.ValueError)(nil); !errors.As(err, &problem) || built != "" {
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
		if parsed.Cache != u.Cache || parsed.ImageParams != imageParams || parsed.CacheQuery != cacheQuery || u.Type != "" && parsed.Type != u.Type {
			t.Fatalf("%+v: parsed %+v", u, parsed)
		}

		// A query in the publisher's URL that needs no escaping is unchanged.
		asWritten, _, _ := strings.Cut(u.Publisher, "#")
		_, query, hasQuery := strings.Cut(asWritten, "?")
		if _, parsedQuery, has := strings.Cut(parsed.Publisher, "?"); has != hasQuery || !strings.ContainsAny(query, ` "'<>`) && isPrintable(query) && parsedQuery != query {
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
	for _, u := range []string{"https://www-example-com.cdn.ampproject.org/c/s/www.example.com/a?b&amp_js_v=1#c", "https://xn---com-k47jg78q.cdn.ampproject.org/ii/w8/x/s/點看.com", "https://cdn-ampproject-org.cdn.ampproject.org/c/s/cdn.ampproject.org/", "https://www-example-com.www.b\u0130ng-amp.com/c/www%2Eexample.com/../"} {
		f.Add(u)
	}
	f.Fuzz(func(t *testing.T, cacheURL string) {
		u, err := Parse(cacheURL)
		if err != nil {
			if problem := (*ampcors.ValueError)(nil); !errors.As(err, &problem) || u != (URL{}) {
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
		host, err := idna.New(idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(false), idna.CheckHyphens(false)).ToASCII(std.Hostname())
		if err != nil || !strings.HasSuffix(host, "."+u.Cache.CacheDomain) {
			t.Fatalf("%q is %+v; a browser would ask %q, %v", cacheURL, u, host, err)
		}
	})
}

func isPrintable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r >= 0x7f })
}

func BenchmarkBuild(b *testing.B) {
	u := URL{Publisher: "https://www.example.com/news/article?id=7"}
	for b.Loop() {
		if _, err := u.Build(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	caches := ampcors.DefaultCaches()
	for b.Loop() {
		if _, err := Parse("https://www-example-com.cdn.ampproject.org/c/s/www.example.com/news/article?id=7", caches...); err != nil {
			b.Fatal(err)
		}
	}
}

func TestParseUntyped(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{ // "": it is rejected
		"https://www-example-com.cdn.ampproject.org/s/www.example.com/a?b&amp_js_v=1#c": "https://www.example.com/a?b",
		"https://www-example-com.cdn.ampproject.org/www.example.com/s/c/":               "http://www.example.com/s/c/",
		"https://www-example-com.www.bing-amp.com/s/www.example.com":                    "https://www.example.com",
		"https://www-example-com.cdn.ampproject.org/c/s/www.example.com/a":              "",
		"https://www-example-com.cdn.ampproject.org/s/www.example.org/a":                "",
		"https://www-example-com.cdn.ampproject.org/":                                   "",
		"https://www-example-com.cdn.ampproject.org/s/s/www.example.com/":               "",
		"https://www.example.com/s/www.example.com/":                                    "",
	} {
		u, err := ParseUntyped(input)
		if u.Publisher != want || u.Type != "" || (err != nil) != (want == "") {
			t.Errorf("%s: %+v, %v; want %q", input, u, err, want)
		}
		if want == "" {
			continue
		}
		if _, err := Parse(input); err == nil {
			t.Errorf("Parse accepts %s", input)
		}
		built, err := u.Build()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Parse(built); err != nil || again.Publisher != want {
			t.Errorf("%s: %+v, %v", built, again, err)
		}
	}
}
