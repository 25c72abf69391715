package ampurl_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors/announce/ampurl"
	"github.com/ampcors/ampcors/badvalue"
)

type transport func(*http.Request) *http.Response

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r), nil }

// api answers as Google's reference says: pages with "none" in their URLs have no AMP version.
func api(r *http.Request) *http.Response {
	var asked struct{ URLs []string }
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		return answer(http.StatusBadRequest, "{}")
	}
	var found, failed []string
	for _, page := range asked.URLs {
		if strings.Contains(page, "none") {
			failed = append(failed, fmt.Sprintf(`{"errorCode": "NO_AMP_URL", "errorMessage": "no AMP version", "originalUrl": %q}`, page))
		} else {
			found = append(found, fmt.Sprintf(`{"originalUrl": %q, "ampUrl": "%s/amp", "cdnAmpUrl": `+
				`"https://www-example-com.cdn.ampproject.org/c/s/%s/amp"}`, page,
				page, strings.TrimPrefix(page, "https://")))
		}
	}
	return answer(http.StatusOK, fmt.Sprintf(`{"ampUrls": [%s], "urlErrors": [%s]}`, strings.Join(found, ","), strings.Join(failed, ",")))
}

func answer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

func Example() {
	c, err := ampurl.New(ampurl.Config{
		Key:        "…",                                     // of the AMP URL API
		HTTPClient: &http.Client{Transport: transport(api)}, // for this example only
	})
	if err != nil {
		log.Fatal(err)
	}
	versions, err := c.Lookup(context.Background(), "https://www.example.com/a", "https://www.example.com/none")
	if err != nil {
		log.Print(err) // and versions has fewer pages
	}
	for _, v := range versions {
		fmt.Println(v.Page, v.Cache, v.Err)
	}
	// Output:
	// https://www.example.com/a https://www-example-com.cdn.ampproject.org/c/s/www.example.com/a/amp <nil>
	// https://www.example.com/none  ampurl: https://www.example.com/none: no AMP version (NO_AMP_URL)
}

// The quota is ten requests in 100 seconds, and what is canceled is said.
func TestTheQuotaIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		c, err := ampurl.New(ampurl.Config{Key: "k", HTTPClient: &http.Client{Transport: transport(func(r *http.Request) *http.Response {
			requests++
			return api(r)
		})}})
		if err != nil {
			t.Fatal(err)
		}
		pages := make([]string, 12*50)
		for i := range pages {
			pages[i] = fmt.Sprint("https://www.example.com/", i)
		}
		begun := time.Now()
		versions, err := c.Lookup(t.Context(), pages...)
		if took := time.Since(begun); err != nil || len(versions) != len(pages) || requests != 12 || took != 100*time.Second ||
			versions[599].AMP != pages[599]+"/amp" {
			t.Errorf("%d versions, %d requests in %v, %v", len(versions), requests, took, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if versions, err := c.Lookup(ctx, pages...); len(versions) != 8*50 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d versions, %v", len(versions), err)
		}
	})
}

func TestWrongConfigs(t *testing.T) {
	for _, cfg := range []ampurl.Config{{}, {Key: "k", Endpoint: "ftp://x"}, {Key: "k", Endpoint: "https://user:pass@x.example"}} {
		if _, err := ampurl.New(cfg); !errors.As(err, new(*badvalue.Error)) || strings.Contains(err.Error(), "pass") {
			t.Errorf("%v", err)
		}
	}
}

// A page that is AMP itself is its AMP version, and no error. With Live, the API has two minutes, unless the client has a limit.
func TestAPageThatIsAMPItself(t *testing.T) {
	const page = "https://www.example.com/amp"
	for _, test := range []struct {
		live    bool
		timeout time.Duration // of the client
		want    time.Duration
	}{{false, 0, 30 * time.Second}, {true, 0, 2 * time.Minute}, {true, 5 * time.Second, 5 * time.Second}} {
		var left time.Duration
		client := &http.Client{Timeout: test.timeout, Transport: transport(func(r *http.Request) *http.Response {
			if deadline, ok := r.Context().Deadline(); ok {
				left = time.Until(deadline)
			}
			return answer(200, `{"urlErrors": [{"originalUrl": "`+page+`", "errorCode": "URL_IS_VALID_AMP", "errorMessage": "…"}]}`)
		})}
		c, err := ampurl.New(ampurl.Config{Key: "k", Live: test.live, HTTPClient: client})
		if err != nil {
			t.Fatal(err)
		}
		versions, err := c.Lookup(t.Context(), page)
		if err != nil || len(versions) != 1 || versions[0] != (ampurl.Version{Page: page, AMP: page}) {
			t.Errorf("%+v, %v", versions, err)
		}
		if left > test.want || left < test.want-5*time.Second {
			t.Errorf("%+v: %v", test, left)
		}
	}
}
