package outbound

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestTextReturnsReadableText(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"":                             "",
		" a \n\t b\x00\x1b[2J\u0085c ": "a b [2J c",
		"<p class=x>a</p><br/>b":       "a b",
		"<title>x</title>a":            "a",
		"<TITLE lang=en>x</TITLE >a":   "a",
		"<style>*{}</style>a<script src=x>alert(1)</script>b": "a b",
		"<styles>a":       "a",
		"<style>a":        "",
		"a < b":           "a < b",
		"a <b":            "a",
		"&lt;a&gt;&amp;b": "<a>&b",
		"a\xffb":          "a\uFFFDb",
	} {
		t.Run(body, func(t *testing.T) {
			if got := (Answer{Body: []byte(body)}).Text(); got != want {
				t.Errorf("%q: got %q; want %q", body, got, want)
			}
		})
	}
}

func TestShorten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a\nb":                              "a b",
		strings.Repeat("a", 300):            strings.Repeat("a", 300),
		strings.Repeat("a", 301):            strings.Repeat("a", 297) + "…",
		strings.Repeat("é", 151):            strings.Repeat("é", 148) + "…",
		strings.Repeat(" ", 1000) + "a":     "a",
		"a" + strings.Repeat("\uFFFD", 100): "a" + strings.Repeat("\uFFFD", 98) + "…",
	} {
		t.Run(fmt.Sprintf("%.40s", text), func(t *testing.T) {
			if got := Shorten(text); got != want || len(got) > 300 || !utf8.ValidString(got) {
				t.Errorf("%.20q: got %q", text, got)
			}
		})
	}
}

func TestClientHasATimeoutAndFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	for given, want := range map[time.Duration]time.Duration{0: timeout, -1: timeout, time.Second: time.Second} {
		t.Run(fmt.Sprint(given), func(t *testing.T) {
			theirs := &http.Client{Timeout: given}
			if ours := Client(theirs); ours.Timeout != want || ours.CheckRedirect(nil, nil) != http.ErrUseLastResponse ||
				theirs.CheckRedirect != nil || theirs.Timeout != given {
				t.Errorf("%v: got %v", given, ours.Timeout)
			}
		})
	}
	if Client(nil).Timeout != timeout {
		t.Error("the default client has another timeout")
	}
}

type brokenTransport struct{ err error }

func (b brokenTransport) RoundTrip(*http.Request) (*http.Response, error) { return nil, b.err }

func TestErrorsDoNotContainTheURL(t *testing.T) {
	t.Parallel()
	r, err := http.NewRequest("GET", "https://www.example.com/secret", nil)
	if err != nil {
		t.Fatal(err)
	}
	nested := &url.Error{Op: "Get", URL: "https://www.example.com/secret", Err: http.ErrHandlerTimeout}
	for _, err := range []error{http.ErrHandlerTimeout, nested} {
		if _, got := Do(&http.Client{Transport: brokenTransport{err}}, r); got != http.ErrHandlerTimeout {
			t.Errorf("got %v", got)
		}
	}
	if _, err := Do(&http.Client{Transport: brokenTransport{&url.Error{Op: "Get"}}}, r); err == nil {
		t.Error("there is no error")
	}
}

func TestRetryAfterIsRead(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"":                        0,
		"0":                       0,
		"120":                     2 * time.Minute,
		" 120 ":                   2 * time.Minute,
		"-1":                      0,
		"1.5":                     0,
		"soon":                    0,
		"99999999999":             24 * time.Hour,
		"9223372036854775807":     24 * time.Hour,
		"99999999999999999999999": 24 * time.Hour,
		now.Add(time.Hour).Format(http.TimeFormat):              time.Hour,
		now.Add(-time.Hour).Format(http.TimeFormat):             0,
		now.Add(10000 * 24 * time.Hour).Format(http.TimeFormat): 24 * time.Hour,
	} {
		if got := (Answer{Header: http.Header{"Retry-After": {value}}}).RetryAfter(now); got != want {
			t.Errorf("%q: got %v; want %v", value, got, want)
		}
	}
}

// A client's own User-Agent stays, and an answer of exactly 64 KiB is whole.
func TestDoNamesItselfAndReads64KiB(t *testing.T) {
	t.Parallel()
	asked := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("User-Agent")
		fmt.Fprint(w, strings.Repeat("a", 64<<10)+r.URL.Path[1:])
	}))
	defer server.Close()
	for _, test := range []struct {
		path, agent, want string
		err               error
	}{
		{"/", "", "ampcors", nil},
		{"/b", "theirs", "theirs", io.ErrShortBuffer},
	} {
		r, err := http.NewRequest(http.MethodGet, server.URL+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if test.agent != "" {
			r.Header.Set("User-Agent", test.agent)
		}
		a, err := Do(server.Client(), r)
		if err != nil || asked != test.want || len(a.Body) != 64<<10 || !errors.Is(a.BodyErr, test.err) || a.Truncated() {
			t.Errorf("%s: %v, User-Agent %q, %d bytes, %v", test.path, err, asked, len(a.Body), a.BodyErr)
		}
	}
}
