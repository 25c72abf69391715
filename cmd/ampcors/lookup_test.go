package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors/announce/ampurl"
)

// playLookup answers as the reference of the AMP URL API says. Its answer to request n may be another one.
func playLookup(t *testing.T, other func(n int) *http.Response) (requests *[]string) {
	saved := *httpClient
	t.Cleanup(func() { *httpClient = saved })
	t.Setenv("GOOGLE_API_KEY", "secret-key")
	requests = new([]string)
	httpClient.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		var asked struct {
			URLs           []string
			LookupStrategy string
		}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || r.URL.String() != ampurl.API ||
			r.Header.Get("X-Goog-Api-Key") != "secret-key" || len(asked.URLs) > 50 {
			return nil, fmt.Errorf("a wrong request: %v, %d URLs, secret-key", err, len(asked.URLs))
		}
		*requests = append(*requests, fmt.Sprint(asked.LookupStrategy, " ", len(asked.URLs)))
		if other != nil {
			if resp := other(len(*requests)); resp != nil && resp.StatusCode == 0 {
				return nil, errors.New("refused, secret-key")
			} else if resp != nil {
				return resp, nil
			}
		}
		var amp, failed []string
		for _, page := range asked.URLs {
			if strings.Contains(page, "/busy") {
				failed = append(failed, fmt.Sprintf(`{"errorCode": "APPLICATION_ERROR", "errorMessage": "try again", "originalUrl": %q}`, page))
			} else if strings.Contains(page, "/none") {
				failed = append(failed, fmt.Sprintf(`{"errorCode": "NO_AMP_URL", "errorMessage": "no AMP version", "originalUrl": %q}`, page))
			} else if !strings.Contains(page, "/lost") {
				amp = append(amp, fmt.Sprintf(`{"originalUrl": %q, "ampUrl": "%s/amp", "cdnAmpUrl": `+
					`"https://www-example-com.cdn.ampproject.org/c/s/%s/amp"}`, page, page,
					strings.TrimPrefix(page, "https://")))
			}
		}
		return answerOf(http.StatusOK, fmt.Sprintf(`{"ampUrls": [%s], "urlErrors": [%s]}`, strings.Join(amp, ","), strings.Join(failed, ","))),
			nil
	})
	return requests
}

func answerOf(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

func TestLookup(t *testing.T) {
	requests := playLookup(t, nil)
	code, stdout, stderr := run(t, "", "lookup", "https://www.example.com/a")
	if code != exitClean || stdout != "https://www.example.com/a/amp\n    "+
		"https://www-example-com.cdn.ampproject.org/c/s/www.example.com/a/amp\n" || stderr != "" {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	code, stdout, stderr = run(t, "", "lookup", "--live", "-o", "json", "https://www.example.com/none", "https://www.example.com/lost",
		"https://www.example.com/b")
	if code != exitFindings || !strings.Contains(stdout, `"error": "https://www.example.com/none: no AMP version (NO_AMP_URL)"`) ||
		!strings.Contains(stdout, `"error": "https://www.example.com/lost: the API has no answer"`) ||
		!strings.Contains(stdout, `"amp": "https://www.example.com/b/amp"`) {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if got := strings.Join(*requests, ", "); got != "IN_INDEX_DOC 1, FETCH_LIVE_DOC 3" {
		t.Error(got)
	}
	if code, _, _ := run(t, "", "lookup", "https://www.example.com/busy", "https://www.example.com/lost"); code != exitLater {
		t.Errorf("exit code %d; want %d", code, exitLater)
	}
	t.Setenv("GOOGLE_API_KEY", "")
	if code, _, stderr := run(t, "", "lookup", "https://www.example.com/a"); code != exitUsage ||
		!strings.Contains(stderr, "GOOGLE_API_KEY is not set") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	t.Setenv("GOOGLE_API_KEY", "secret-key")
	server := httptest.NewServer(http.NotFoundHandler()) // a rehearsal
	defer server.Close()
	httpClient.Transport = nil
	address := strings.TrimPrefix(server.URL, "http://")
	if code, _, stderr := run(t, "", "lookup", "--endpoint", "http://api.example/", "--resolve", "api.example:80:"+address,
		"https://www.example.com/a"); code != exitUntested || !strings.Contains(stderr, "the answer is 404") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// Answers are kept if a later request fails, requests are sent again after 429 and 5xx, and nothing prints the key.
func TestALookupThatFailsKeepsItsAnswers(t *testing.T) {
	var pages []string
	for i := range 120 {
		pages = append(pages, fmt.Sprintf("https://www.example.com/%d", i))
	}
	for _, test := range []struct {
		name     string
		other    func(n int) *http.Response
		code     int
		requests int
		answered int
		err      string
		atLeast  time.Duration
	}{
		{name: "once 429", other: func(n int) *http.Response {
			if n == 2 {
				resp := answerOf(http.StatusTooManyRequests, "{}")
				resp.Header.Set("Retry-After", "30")
				return resp
			}
			return nil
		}, code: exitClean, requests: 4, answered: 120, atLeast: 30 * time.Second},
		{name: "always 503 from the second on", other: func(n int) *http.Response {
			if n > 1 {
				return answerOf(http.StatusServiceUnavailable, `{"error": {"message": "try secret-key later"}}`)
			}
			return nil
		}, code: exitUntested, requests: 5, answered: 50, err: "the answer is 503: try … later; URLs that were not looked up: 70 of 120",
			atLeast: 35 * time.Second},
		{name: "a wrong key", other: func(int) *http.Response {
			return answerOf(http.StatusBadRequest, `{"error": {"message": "API key not valid: secret-key"}}`)
		}, code: exitUntested, requests: 1, err: "the answer is 400: API key not valid: …; URLs that were not looked up: 120 of 120"},
		{name: "another answer", other: func(int) *http.Response { return answerOf(http.StatusOK, "<html>secret-key") }, code: exitUntested,
			requests: 1, err: "the answer is not one of the API"},
		{name: "a network error", other: func(int) *http.Response { return new(http.Response) }, code: exitUntested, requests: 1,
			err: "refused, …"},
	} {
		t.Run(test.name, func(t *testing.T) {
			requests := playLookup(t, test.other)
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				code, stdout, stderr := run(t, strings.Join(pages, "\n"), "lookup")
				if code != test.code || len(*requests) != test.requests || strings.Count(stdout, "/amp\n    https://") != test.answered ||
					!strings.Contains(stderr, test.err) || strings.Contains(stdout+stderr, "secret") || time.Since(begun) < test.atLeast {
					t.Errorf("exit code %d, %d requests, %d answers, %v: %s", code, len(*requests), strings.Count(stdout, "/amp\n    https://"),
						time.Since(begun), stderr)
				}
			})
		})
	}
}
