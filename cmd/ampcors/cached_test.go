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
			resp.Header = http.Header{"Age": {"35"}, "Date": {time.Now().UTC().Format(http.TimeFormat)}, "Last-Modified": {"Wed, 25 Nov 2026 10:00:00 GMT"}}
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
		case strings.HasSuffix(page, "/elsewhere") && r.URL.Host == "www.example.com", strings.HasSuffix(page, "/invalid") && r.URL.Host == "www.example.com":
			resp.Body = io.NopCloser(strings.NewReader(`<html amp><link rel=canonical href="/story">`))
		case strings.HasSuffix(page, "/elsewhere"):
			resp.StatusCode, resp.Header = http.StatusFound, http.Header{"Location": {"https://www.example.com/login"}}
		case strings.HasSuffix(page, "/unnamed") && r.URL.Host == "www.example.com":
			resp.StatusCode = http.StatusInternalServerError
		case strings.HasSuffix(page, "/unnamed"):
			resp.StatusCode, resp.Header = http.StatusFound, http.Header{"Location": {"https://www.example.com/login"}}
		case strings.HasSuffix(page, "/moved"):
			resp.StatusCode, resp.Header = http.StatusFound, http.Header{"Location": {"https://www-example-com.www.bing-amp.com/c/s/www.example.com/moved"}}
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
			"article\n    served; status 200; age 35s; Last-Modified Wed, 25 Nov 2026 10:00:00 GMT; canonical URL https://www.example.com/story\nbing: https://www-example-com.www.bing-amp.com/c/s/www.example.com/article\n    served; status 200; age 35s;"},
		{[]string{"https://www.example.com/invalid"}, exitFindings, google +
			"invalid\n    redirected to the canonical page: the cache has no valid AMP document; status 302; to https://www.example.com/story\n"},
		{[]string{"https://www.example.com/loop"}, exitFindings, google + "loop\n    not served; status 302; to /c/s/www.example.com/loop2\n"},
		{[]string{"https://www.example.com/none"}, exitFindings, google +
			"none\n    not found: the cache does not find it, or the publisher's server answers 404 or 5xx; status 404\n"},
		{[]string{"https://www.example.com/busy"}, exitLater, google + "busy\n    not served now: try again later; status 429; retry after 1m30s\n"},
		{[]string{"https://www.example.com/overloaded"}, exitLater, google + "overloaded\n    not served now: try again later; status 503\n"},
		{[]string{"https://www.example.com/elsewhere"}, exitFindings, google +
			"elsewhere\n    redirected to another URL than the canonical one of the publisher's page, https://www.example.com/story; status 302; to https://www.example.com/login\n"},
		{[]string{"https://www.example.com/unnamed"}, exitFindings, google +
			"unnamed\n    redirected; the publisher's page names no canonical URL that could be compared; status 302; to https://www.example.com/login\n"},
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
			"google: https://xn--fa-de-mqa.cdn.ampproject.org/c/s/xn--fa-hia.de/article\n    served"}, // without the form that is strasse.de's, so to say
		{[]string{"--type", "i", "https://www.example.com/article"}, exitClean, "google: https://www-example-com.cdn.ampproject.org/i/s/www.example.com/article\n"},
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

// The age of a copy is that of Age, or the time since Date if that is more.
func TestTheAgeOfACopy(t *testing.T) {
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for want, h := range map[string]http.Header{
		"":       {},
		"1m5s":   {"Age": {"65"}},
		"10s":    {"Date": {"Wed, 25 Nov 2026 11:59:50 GMT"}},
		"20s":    {"Date": {"Wed, 25 Nov 2026 11:59:50 GMT"}, "Age": {"20"}},
		"1h0m0s": {"Date": {"Wed, 25 Nov 2026 11:00:00 GMT"}, "Age": {"20"}},
		"0s":     {"Date": {"Wed, 25 Nov 2026 12:00:09 GMT"}, "Age": {"-5"}},
	} {
		if got := ageOf(h, now); got != want {
			t.Errorf("%v: %q; want %q", h, got, want)
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
		{"", 404, []string{"caches", "--compare", at}, exitFindings, "the answer is 404"},
		{stdout, 200, []string{"caches", "--compare", otherCaches(t)}, exitFindings, "new: other, cache.example\ngone: google, cdn.ampproject.org\n"},
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
	if len(w.seen) != 6 {
		t.Errorf("asked for %q", w.seen)
	}
}
