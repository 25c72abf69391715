package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ampcors/ampcors/cacheurl"
)

// A cache answers as AMP's document says, and each answer has its own result.
func TestEachAnswerOfACacheHasItsResult(t *testing.T) {
	saved := *httpClient
	t.Cleanup(func() { *httpClient = saved })
	var asked []string
	httpClient.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		asked = append(asked, r.URL.Host)
		resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: r}
		switch page := r.URL.Path; {
		case strings.HasSuffix(page, "/article"):
			resp.Header = http.Header{"Age": {"35"}, "Date": {time.Now().UTC().Format(http.TimeFormat)},
				"Last-Modified": {"Wed, 25 Nov 2026 10:00:00 GMT"}}
			resp.Body = io.NopCloser(strings.NewReader(`<!doctype html><html amp><head><link rel="Canonical" href="https://www.example.com/story">`))
		case strings.HasSuffix(page, "/invalid") && r.URL.Host != "www.example.com":
			resp.StatusCode, resp.Header = http.StatusFound, http.Header{"Location": {"https://www.example.com/story"}}
		case strings.HasSuffix(page, "/loop"):
			resp.StatusCode, resp.Header = http.StatusFound, http.Header{"Location": {"/c/s/www.example.com/loop2"}}
		case strings.HasSuffix(page, "/none"):
			resp.StatusCode = http.StatusNotFound
		case strings.HasSuffix(page, "/busy"):
			resp.StatusCode, resp.Header = http.StatusTooManyRequests, http.Header{"Retry-After": {"90"}}
		case strings.HasSuffix(page, "/overloaded"):
			resp.StatusCode = http.StatusServiceUnavailable
		case strings.HasSuffix(page, "/early"):
			resp.StatusCode = http.StatusTooEarly
		case strings.HasSuffix(page, "/elsewhere") && r.URL.Host == "www.example.com",
			strings.HasSuffix(page, "/invalid") && r.URL.Host == "www.example.com":
			resp.Body = io.NopCloser(strings.NewReader(`<html amp><link rel=canonical href="/story">`))
		case strings.HasSuffix(page, "/elsewhere"):
			resp.StatusCode, resp.Header = http.StatusFound, http.Header{"Location": {"https://www.example.com/login"}}
		case strings.HasSuffix(page, "/unnamed") && r.URL.Host == "www.example.com":
			resp.StatusCode = http.StatusInternalServerError
		case strings.HasSuffix(page, "/unnamed"):
			resp.StatusCode, resp.Header = http.StatusFound, http.Header{"Location": {"https://www.example.com/login"}}
		case strings.HasSuffix(page, "/moved"):
			resp.StatusCode, resp.Header = http.StatusFound, http.Header{
				"Location": {"https://www-example-com.www.bing-amp.com/c/s/www.example.com/moved"}}
			if strings.HasSuffix(r.URL.Host, "bing-amp.com") {
				resp.Header.Set("Location", "https://www-example-com.cdn.ampproject.org/c/s/www.example.com/moved")
			}
		case strings.HasSuffix(page, "/plain"):
			resp.Body = io.NopCloser(strings.NewReader("<html><p>Sorry"))
		case strings.HasSuffix(page, "/hash") && !strings.Contains(strings.SplitN(r.URL.Host, ".", 2)[0], "-"):
			resp.Body = io.NopCloser(strings.NewReader("<html ⚡>"))
		case strings.HasSuffix(page, "/hash"):
			resp.StatusCode = http.StatusNotFound
		default:
			return nil, errors.New("connection refused")
		}
		return resp, nil
	})
	const google = "google: https://www-example-com.cdn.ampproject.org/c/s/www.example.com/"
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"https://www.example.com/article"}, exitClean, google +
			"article\n    served; status 200; age 35s; Last-Modified Wed, 25 Nov 2026 10:00:00 GMT; canonical URL " +
			"https://www.example.com/story\nbing: https://www-example-com.www.bing-amp.com/c/s/www.example.com/article\n    served; status 200; " +
			"age 35s;"},
		{[]string{"https://www.example.com/invalid"}, exitFindings, google +
			"invalid\n    redirected to the canonical page: the cache has no valid AMP document; status 302; to https://www.example.com/story\n"},
		{[]string{"https://www.example.com/loop"}, exitFindings, google + "loop\n    not served; status 302; to /c/s/www.example.com/loop2\n"},
		{[]string{"https://www.example.com/none"}, exitFindings, google +
			"none\n    not found: the cache does not find it, or the publisher's server answers 404 or 5xx; status 404\n"},
		{[]string{"https://www.example.com/busy"}, exitLater, google +
			"busy\n    not served now: try again later; status 429; retry after 1m30s\n"},
		{[]string{"https://www.example.com/overloaded"}, exitLater, google + "overloaded\n    not served now: try again later; status 503\n"},
		{[]string{"https://www.example.com/early"}, exitLater, google + "early\n    not served now: try again later; status 425\n"},
		{[]string{"https://www.example.com/elsewhere"}, exitFindings, google +
			"elsewhere\n    redirected to another URL than the canonical one of the publisher's page, https://www.example.com/story; status 302; " +
			"to https://www.example.com/login\n"},
		{[]string{"https://www.example.com/unnamed"}, exitFindings, google +
			"unnamed\n    redirected; the publisher's page names no canonical URL that could be compared; status 302; to " +
			"https://www.example.com/login\n"},
		{[]string{"https://www.example.com/moved"}, exitFindings, google +
			"moved\n    redirected to another AMP Cache; status 302; to https://www-example-com.www.bing-amp.com/c/s/www.example.com/moved\n"},
		{[]string{"https://www.example.com/plain"}, exitFindings, google + "plain\n    served, but it is no AMP document; status 200\n"},
		{[]string{"https://www-example-com.cdn.ampproject.org/c/s/www.example.com/article"}, exitClean, google + "article\n    served;"},
		{[]string{"https://www-example-com.cdn.ampproject.org/www.example.com/article"}, exitClean, google + "article\n    served;"},
		{[]string{"https://www.example.com/down"}, exitLater, google + "down\n    no answer; because connection refused\n"},
		{[]string{"https://www.example.com/down", "https://www.example.com/none"}, exitFindings, "no answer"},
		{[]string{"--all-forms", "https://www.example.com/hash"}, exitClean, google + "hash\n    not found"},
		{[]string{"https://www.example.com/hash"}, exitFindings, google + "hash\n    not found"},
		{[]string{"--all-forms", "https://faß.de/article"}, exitClean,
			// without the form that is strasse.de's, so to say
			"google: https://xn--fa-de-mqa.cdn.ampproject.org/c/s/xn--fa-hia.de/article\n    served"},
		{[]string{"--type", "i", "https://www.example.com/article"}, exitClean,
			"google: https://www-example-com.cdn.ampproject.org/i/s/www.example.com/article\n"},
		{[]string{"https://www-example-com.cdn.ampproject.org/c/s/www.example.org/"}, exitFindings, ""},
		{[]string{"--type", "x", "https://www.example.com/article"}, exitUsage, ""},
		{[]string{"--rate", "0", "https://www.example.com/article"}, exitUsage, ""},
	} {
		code, stdout, stderr := run(t, "", append([]string{"cached", "--rate", "1000"}, test.args...)...)
		if code != test.code || !strings.HasPrefix(stdout, test.want) && test.want != "no answer" || !strings.Contains(stdout, test.want) {
			t.Errorf("%q: exit code %d; want %d\n%s%s\nwant %s", test.args, code, test.code, stdout, stderr, test.want)
		}
	}
	asked = nil
	_, stdout, _ := run(t, "", "cached", "--rate", "1000", "--caches", otherCaches(t), "-o", "json", "https://www.example.com/article")
	var results []struct{ Output []cachedCopy }
	if err := json.Unmarshal([]byte(stdout), &results); err != nil || len(results) != 1 || len(results[0].Output) != 1 ||
		results[0].Output[0].Age != "35s" || !slices.Equal(asked, []string{"www-example-com.cache.example"}) {
		t.Errorf("%s, %v, asked %q", stdout, err, asked)
	}
}

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
		_, stdout, stderr := run(t, "", append([]string{"cached", "--rate", "1000"}, strings.Fields(test.args)...)...)
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
