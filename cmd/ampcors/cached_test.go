package main

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ampcors/ampcors/cacheurl"
)

// Age is the only header that has the age of a copy.
func TestTheAgeOfACopy(t *testing.T) {
	for want, h := range map[string]http.Header{
		"":     {"Date": {"Wed, 25 Nov 2026 11:59:50 GMT"}, "Last-Modified": {"Thu, 05 Nov 2026 11:59:50 GMT"}},
		"0s":   {"Age": {"0"}},
		"1m5s": {"Age": {"65"}, "Date": {"Wed, 25 Nov 2026 11:00:00 GMT"}},
	} {
		if got := ageOf(h); got != want {
			t.Errorf("%v: %q; want %q", h, got, want)
		}
	}
	for _, wrong := range []string{"", "-5", "x", "99999999999"} {
		if got := ageOf(http.Header{"Age": {wrong}}); got != "" {
			t.Errorf("%q: %q", wrong, got)
		}
	}
}

// What is asked is the cache, the prefix, the type and the parameters of the URL that was given.
func TestCachedAsksForTheURLItself(t *testing.T) {
	saved := *httpClient
	t.Cleanup(func() { *httpClient = saved })
	var asked []string
	httpClient.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		asked = append(asked, r.URL.String())
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("<html amp>")), Request: r},
			nil
	})
	two := twoCaches(t)
	const (
		google = "https://www-example-com.cdn.ampproject.org"
		bing   = "https://www-example-com.www.bing-amp.com"
		hash   = "https://qd6a7ojgnw33qp4fquh2bzsurnwxb3tizc23iexr33vg5pppaqca.cdn.ampproject.org"
	)
	for _, test := range []struct {
		args   string
		want   []string // none if it is an error
		stderr string
	}{
		{google + "/i/s/www.example.com/logo.png", []string{google + "/i/s/www.example.com/logo.png"}, ""},
		{google + "/r/s/www.example.com/a.woff2", []string{google + "/r/s/www.example.com/a.woff2"}, ""},
		{google + "/v/s/www.example.com/a?amp_js_v=0.1", []string{google + "/v/s/www.example.com/a?amp_js_v=0.1"}, ""},
		{google + "/ii/w800/s/www.example.com/a.jpg", []string{google + "/ii/w800/s/www.example.com/a.jpg"}, ""},
		{google + "/c/www.example.com/a?b=1&amp_latest_update_time=5", []string{google + "/c/www.example.com/a?b=1&amp_latest_update_time=5"},
			""},
		{bing + "/c/s/www.example.com/a", []string{bing + "/c/s/www.example.com/a"}, ""},
		{hash + "/c/s/www.example.com/a", []string{hash + "/c/s/www.example.com/a"}, ""},
		{"--all-forms " + bing + "/c/s/www.example.com/a", []string{bing + "/c/s/www.example.com/a",
			strings.Replace(hash, "cdn.ampproject.org", "www.bing-amp.com", 1) + "/c/s/www.example.com/a"}, ""},
		{google + "/update-cache/c/s/www.example.com/a?b=1&amp_action=flush&amp_ts=1&amp_url_signature=x_y-z",
			[]string{google + "/c/s/www.example.com/a?b=1"}, "an update-cache request"},
		{google + "/update-cache/c/s/www.example.com/a?amp_action=flush&id=7&amp_ts=1&x-amp_ts=2&amp_url_signature=x",
			[]string{google + "/c/s/www.example.com/a?id=7&x-amp_ts=2"}, "an update-cache request"},
		{google + "/update-cache/i/s/www.example.com/a.png?amp_action=flush&amp_ts=1&amp_url_signature=x",
			[]string{google + "/i/s/www.example.com/a.png"}, "an update-cache request"},
		{"https://www.google.com/amp/s/www.example.com/a", []string{google + "/c/s/www.example.com/a"}, "the URL of a viewer"},
		{"--type c " + google + "/c/s/www.example.com/a", []string{google + "/c/s/www.example.com/a"}, ""},
		{"--type i " + google + "/c/s/www.example.com/a", nil, "has the type c in its path, and --type is i"},
		{"https://www.example.com/a.png", []string{google + "/i/s/www.example.com/a.png", bing + "/i/s/www.example.com/a.png"}, ""},
		{"https://www.example.com/a.woff2?v=2", []string{google + "/r/s/www.example.com/a.woff2?v=2", bing + "/r/s/www.example.com/a.woff2?v=2"},
			""},
		{"--type c https://www.example.com/a.png", []string{google + "/c/s/www.example.com/a.png", bing + "/c/s/www.example.com/a.png"},
			"an image or a font by its extension"},
		{"https://www.example.com/a.mp4", []string{google + "/c/s/www.example.com/a.mp4", bing + "/c/s/www.example.com/a.mp4"},
			"no document by its extension"},
		{"https://example.zip", []string{"https://example-zip.cdn.ampproject.org/c/s/example.zip",
			"https://example-zip.www.bing-amp.com/c/s/example.zip"}, ""},
		{"https://www.example.com/a.html", []string{google + "/c/s/www.example.com/a.html", bing + "/c/s/www.example.com/a.html"}, ""},
	} {
		asked = nil
		_, stdout, stderr := run(t, "", append([]string{"cached", "--rate", "1000", "--caches", two}, strings.Fields(test.args)...)...)
		if !slices.Equal(asked, test.want) || !strings.Contains(stderr, test.stderr) || test.stderr == "" && stderr != "" {
			t.Errorf("%s: asked %q; want %q\n%s%s", test.args, asked, test.want, stdout, stderr)
		}
	}
}

// Canonical URLs that mean the same are the same, and the publisher's page may be behind a redirect.
func TestCanonicalURLsAreCompared(t *testing.T) {
	saved := *httpClient
	t.Cleanup(func() { *httpClient = saved })
	var location, head string
	httpClient.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("<html amp><head>" + head)),
			Request: r}
		switch {
		case r.URL.Host != "www.example.com":
			resp.StatusCode, resp.Header = http.StatusFound, http.Header{"Location": {location}}
		case r.URL.Path == "/old":
			resp.StatusCode, resp.Header = http.StatusMovedPermanently, http.Header{"Location": {"/amp/new"}}
		}
		return resp, nil
	})
	const canonical = "redirected to the canonical page"
	for _, test := range []struct{ page, location, head, want string }{
		{"/a", "https://www.example.com/", `<link rel=canonical href="https://www.example.com">`, canonical},
		{"/a", "https://www.example.com/b", `<link rel=canonical href="https://WWW.Example.com:443/b#top">`, canonical},
		{"/a", "https://www.example.com/%C3%A9?q=%C3%A9", `<link rel=canonical href="https://www.example.com/%c3%a9?q=%c3%a9">`, canonical},
		{"/a", "https://www.example.com/%7Ea?q=%c3%bc%20b", `<link rel=canonical href="https://www.example.com/~a?q=ü b">`, canonical},
		{"/a", "https://www.example.com/%2F", `<link rel=canonical href="https://www.example.com//">`, "another URL than the canonical one"},
		{"/a", "https://www.example.com/", `<link rel=canonical href="mailto:a@example.com">`, "another URL than the canonical one"},
		{"/a", "https://www.example.com/b", `<link rel="Canonical shortlink" href="https://www.example.com/b">`, canonical},
		{"/a", "https://www.example.com/b", `<link rel=canonical href=" https://www.example.com/b ">`, canonical},
		{"/old", "https://www.example.com/amp/b", `<link rel=canonical href="b">`, canonical},
		{"/a", "https://xn--bcher-kva.example/", `<link rel=canonical href="https://bücher.example/">`, canonical},
		{"/a", "https://www.example.com/b?c", `<link rel=canonical href="https://www.example.com/b">`, "another URL than the canonical one"},
		{"/a", "https://www.example.com/B", `<link rel=canonical href="https://www.example.com/b">`, "another URL than the canonical one"},
		{"/a", "https://www.example.com:8443/b", `<link rel=canonical href="https://www.example.com/b">`, "another URL than the canonical one"},
		{"/a", "http://www.example.com/b", `<link rel=canonical href="https://www.example.com/b">`, "another URL than the canonical one"},
		{"/a", "https://www.example.com/b", `<link rel=alternate href="https://www.example.com/b">`, "names no canonical URL"},
	} {
		location, head = test.location, test.head
		if _, stdout, _ := run(t, "", "cached", "--rate", "1000", "https://www.example.com"+test.page); !strings.Contains(stdout, test.want) {
			t.Errorf("%+v: %s", test, stdout)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The list is printed as a configuration reads it, and compared with another one only because the user asks for it.
func TestCachesAreComparedWithAnotherList(t *testing.T) {
	code, stdout, stderr := run(t, "", "caches")
	printed, err := cacheurl.ParseCaches(strings.NewReader(stdout))
	if code != exitClean || err != nil || !slices.Equal(printed, cacheurl.DefaultCaches()) {
		t.Errorf("exit code %d, %v\n%s%s", code, err, stdout, stderr)
	}
	served, status := stdout, http.StatusOK
	w := useWeb(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, served)
	})
	const at = "https://cdn.ampproject.org/caches.json"
	for _, test := range []struct {
		served string
		status int
		args   []string
		code   int
		want   string
	}{
		{stdout, 200, []string{"caches", "--compare", at}, exitClean, "the same "},
		{strings.Replace(stdout, `"www.bing-amp.net"`, `"frames.example"`, 1), 200, []string{"caches", "--compare", at}, exitFindings,
			"changed: bing, thirdPartyFrameDomainSuffix: \"frames.example\", was \"www.bing-amp.net\"\n"},
		{strings.Replace(stdout, `"id": "bing"`, `"id": "other"`, 1), 200, []string{"caches", "--compare", at}, exitFindings,
			"new: other, www.bing-amp.com\ngone: bing, www.bing-amp.com\n"},
		{"{}", 200, []string{"caches", "--compare", at}, exitFindings, "names no cache"},
		{"", 503, []string{"caches", "--compare", at}, exitLater, "the answer is 503"},
		{"", 408, []string{"caches", "--compare", at}, exitLater, "the answer is 408"},
		{"", 404, []string{"caches", "--compare", at}, exitFindings, "the answer is 404"},
		{stdout, 200, []string{"caches", "--compare", otherCaches(t)}, exitFindings,
			"new: other, cache.example\ngone: google, cdn.ampproject.org\n"},
		{stdout, 200, []string{"caches", "--compare", "nowhere.json"}, exitUsage, "nowhere.json"},
		{stdout, 200, []string{"caches", "--caches", at}, exitUsage, "ampcors caches --compare " + at + " shows how"},
		{stdout, 200, []string{"caches", "more"}, exitUsage, ""},
	} {
		served, status = test.served, test.status
		code, stdout, stderr := run(t, "", test.args...)
		if code != test.code || !strings.Contains(stdout+stderr, test.want) {
			t.Errorf("%q: exit code %d; want %d\n%s%s", test.args, code, test.code, stdout, stderr)
		}
	}
	if len(w.seen) != 7 {
		t.Errorf("asked for %q", w.seen)
	}
}
