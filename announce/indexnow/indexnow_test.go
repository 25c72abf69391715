package indexnow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors/announce/queue"
	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/internal/vectors"
)

const testKey Key = "73134416ae45434d98edc086e0bf6740"

// TestMain discards what is logged if Config.Logger is nil.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// client returns a Client for which the handler serves the engine and all hosts.
func client(t testing.TB, handler http.Handler, change func(*Config)) *Client {
	t.Helper()
	cfg := Config{Key: testKey, HTTPClient: servertest.Loopback(t, handler)}
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.atOnce = 1 // so that requests have an order; TestHostsAreSentAtOneTime has several
	return c
}

// A submission is the body of a request, as the protocol documents it.
type submission = vectors.Submission

// An engine accepts submissions as the protocol documents them. It shares only the key with
// this package.
type engine struct {
	keys []Key // if there are none, testKey
	mu   sync.Mutex
	seen []submission
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var s submission
	body, err := io.ReadAll(r.Body)
	if err != nil || bytes.Contains(body, []byte(`\u`)) { // an engine may not decode JSON escapes
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil || r.Method != http.MethodPost || r.Host != "api.indexnow.org" || r.RequestURI != "/indexnow" ||
		r.Header.Get("Content-Type") != "application/json; charset=utf-8" || len(s.URLList) == 0 || len(s.URLList) > 10_000 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if !slices.Contains(append(e.keys, testKey)[:max(len(e.keys), 1)], Key(s.Key)) {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	// Each URL must follow RFC 3986 and be of this host.
	valid := regexp.MustCompile(`^https?://` + regexp.QuoteMeta(s.Host) + `/(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*$`)
	for _, u := range s.URLList {
		if !valid.MatchString(u) {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, s)
}

// TestVectors: the engine gets the requests of each vector, and no URL that is rejected.
func TestVectors(t *testing.T) {
	t.Parallel()
	f, err := vectors.Read("../../conformance/indexnow.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(f.IndexNow) < 15 {
		t.Fatalf("%d vectors", len(f.IndexNow))
	}
	for _, v := range f.IndexNow {
		api := &engine{keys: []Key{Key(v.Key)}}
		c := client(t, api, func(cfg *Config) { cfg.Key, cfg.KeyLocations = Key(v.Key), locations(v.KeyLocation) })
		report, err := c.Submit(t.Context(), v.URLs...)
		var problems []string
		for _, rejected := range report.Rejected {
			problem := rejected.Err
			problems = append(problems, problem.Path+" "+problem.Reason)
		}
		var batches []Batch
		for _, want := range v.Requests {
			batches = append(batches, Batch{Host: want.Host, URLs: want.URLList})
		}
		if !slices.Equal(problems, v.Problems) || (err != nil) != (v.Problems != nil) || !reflect.DeepEqual(report.Batches, batches) {
			t.Errorf("%q: %+v, %v; want %+v and %q", v.URLs, report, err, batches, v.Problems)
		}
		if !reflect.DeepEqual(api.seen, v.Requests) {
			t.Errorf("%q: the engine got\n%+v; want\n%+v", v.URLs, api.seen, v.Requests)
		}
	}
	api := &engine{}
	c := client(t, api, nil)
	if report, err := c.Submit(t.Context()); err != nil || report.Batches != nil || api.seen != nil {
		t.Errorf("no URLs: %+v, %v", report, err)
	}
}

func TestAtMostTenThousandURLsInARequest(t *testing.T) {
	t.Parallel()
	api := &engine{}
	c := client(t, api, nil)
	var urls []string
	for i := range 25_001 {
		urls = append(urls, fmt.Sprintf("https://www.example.com/%d", i))
		if i%2500 == 0 {
			urls = append(urls, fmt.Sprintf("https://example.org/%d", i))
		}
	}
	report, err := c.Submit(t.Context(), append(urls, urls...)...)
	if err != nil || len(report.Batches) != 4 {
		t.Fatalf("%d batches, %v", len(report.Batches), err)
	}
	var sizes []int
	var sent []string
	for i, b := range report.Batches {
		sizes = append(sizes, len(b.URLs))
		sent = append(sent, b.URLs...)
		if !slices.Equal(b.URLs, api.seen[i].URLList) {
			t.Errorf("batch %d is not what the engine got", i)
		}
	}
	slices.Sort(urls)
	slices.Sort(sent)
	if !slices.Equal(sizes, []int{10_000, 11, 10_000, 5_001}) || !slices.Equal(sent, urls) {
		t.Errorf("batches of %v", sizes)
	}
}

// Submit, Canonical and Queue.Add agree on which URLs they take.
func TestTheScopeOfTheKeyFileIsEnforcedBeforeSending(t *testing.T) {
	t.Parallel()
	for _, location := range []string{"https://www.example.com/catalog/key.txt", "https://www.example.com/key.txt", ""} {
		t.Run(location, func(t *testing.T) {
			for u, coveredBy := range map[string]string{
				"https://www.example.com/catalog/a":                    "catalog root none",
				"https://www.example.com/a/../catalog/b":               "catalog root none",
				"https://www.example.com/help/index.html":              "root none",
				"https://www.example.com/catalog/a/..;/help":           "root none",
				"https://www.example.com/" + strings.Repeat("a", 8000): "",
				"https://www.example.com/" + strings.Repeat("é", 1500): "", // escaped
				"https://www.example.com/catalog/.%2e/help":            "root none",
				"https://www.example.com//catalog/a":                   "root none",
				"https://www.example.com/?/catalog/":                   "root none",
				"https://www.example.com":                              "root none",
				"https://shop.www.example.com/catalog/a":               "none",
				"https://www.example.com.evil.example/catalog/a":       "none",
			} {
				api := &engine{}
				c := client(t, api, func(cfg *Config) { cfg.KeyLocations = locations(location) })
				q, err := c.NewQueue(queue.Config{})
				if err != nil {
					t.Fatal(err)
				}
				name := map[bool]string{true: "catalog", false: "root"}[strings.Contains(location, "catalog")]
				if location == "" {
					name = "none"
				}
				covered := slices.Contains(strings.Fields(coveredBy), name)
				report, err := c.Submit(t.Context(), u)
				var problem *badvalue.Error
				if canonical, host, err := c.Canonical(u); covered != (err == nil) || covered != (q.Add(u) == nil) || covered &&
					(canonical != api.seen[0].URLList[0] || host != api.seen[0].Host) || !covered && canonical+host != "" {
					t.Errorf("key file %q, %s: %q, %q, %v; covered: %v", location, u, canonical, host, err, covered)
				}
				if covered != (err == nil) || covered != (len(api.seen) == 1) || covered == (len(report.Rejected) == 1) || !covered &&
					(!errors.As(err, &problem) || problem.Value != u && !strings.Contains(u, "@") || problem.Want == "") {
					t.Errorf("key file %q, %s: got %+v, %v; covered: %v", location, u, report, err, covered)
				}
			}
		})
	}
}

func TestEachResponseIsReported(t *testing.T) {
	t.Parallel()
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(code)
			io.WriteString(w, body)
		}
	}
	coded := func(code string) http.HandlerFunc {
		return status(403, `{"errorCode":"`+code+`","message":"about `+string(testKey)+`","details":null}`)
	}
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		want    error  // nil: accepted
		message string // in the error
		again   bool   // it is retryable
	}{
		"200":             {handler: status(200, ""), want: nil, message: "", again: false},
		"200 and garbage": {handler: status(200, "\x00<garbage"), want: nil, message: "", again: false},
		"202":             {handler: status(202, ""), want: nil, message: "", again: false},
		"204":             {handler: status(204, ""), want: nil, message: "", again: false},
		"200 truncated": {handler: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "9")
			io.WriteString(w, "x")
		}, want: nil, message: "", again: false},
		"400": {handler: status(400, `{"message":"Invalid request parameters"}`), want: ErrMalformed,
			message: "Invalid request parameters", again: false},
		"403":                      {handler: status(403, "<b>Forbidden</b>"), want: ErrForbidden, message: `"Forbidden"`, again: false},
		"403 with an unknown code": {handler: coded("Whatever"), want: ErrForbidden, message: `403 "Whatever"`, again: false},
		"SiteVerificationNotCompleted": {handler: coded("SiteVerificationNotCompleted"), want: ErrKeyPending,
			message: "SiteVerificationNotCompleted", again: true},
		"KeyNotFound": {handler: coded("KeyNotFound"), want: ErrKeyNotFound, message: "KeyNotFound", again: false},
		"UserForbiddedToAccessSite": {handler: coded("UserForbiddedToAccessSite"), want: ErrRotateKey, message: "UserForbiddedToAccessSite",
			again: false},
		"UserForbiddenToAccessSite": {handler: coded("UserForbiddenToAccessSite"), want: ErrRotateKey, message: "UserForbiddenToAccessSite",
			again: false},
		"403 with a code of another type": {handler: status(403, `{"errorCode":7}`), want: ErrForbidden, message: "errorCode", again: false},
		"403 truncated after its code": {handler: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "99")
			w.WriteHeader(403)
			io.WriteString(w, `{"errorCode":"KeyNotFound"}`)
		}, want: ErrKeyNotFound, message: "KeyNotFound", again: false},
		"403 with a message of another type": {handler: status(403, "\uFEFF"+`{"errorCode":"KeyNotFound","message":{}}`), want: ErrKeyNotFound,
			message: "KeyNotFound", again: false},
		"403 with line breaks": {handler: status(403, `{"errorCode":"a\nb","message":"c\nd`+strings.Repeat(" word", 100)+`"}`),
			want: ErrForbidden, message: `(status 403 "a b" "c d word`, again: false},
		"408":                {handler: status(408, ""), want: ErrServer, message: "408", again: true},
		"403 without a code": {handler: status(403, `{"error":"no"}`), want: ErrForbidden, message: `{\"error\":\"no\"}`, again: false},
		"403 truncated": {handler: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "99")
			w.WriteHeader(403)
			io.WriteString(w, `{"errorCode":"KeyNo`)
		}, want: io.ErrUnexpectedEOF, message: "KeyNo", again: true},
		"413": {handler: status(413, ""), want: ErrTooLarge, message: "413", again: false},
		"422": {handler: status(422, ""), want: ErrUnprocessable, message: "422", again: false},
		"429": {handler: status(429, "slow down"), want: ErrRateLimited, message: "slow down", again: true},
		"500": {handler: status(500, strings.Repeat("é", 1<<20)), want: ErrServer, message: "é…", again: true},
		"503": {handler: status(503, ""), want: ErrServer, message: "503", again: true},
		"404": {handler: status(404, "not here"), want: ErrUnexpected, message: "not here", again: false},
		// After 302 the POST would become a GET, and after 307 the key would go to another host.
		"302": {handler: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://evil.example/indexnow", http.StatusFound)
		}, want: ErrUnexpected, message: "302", again: false},
		"307": {handler: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://evil.example/indexnow", http.StatusTemporaryRedirect)
		}, want: ErrUnexpected, message: "307", again: false},
		"no answer": {handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, want: io.EOF, message: "EOF",
			again: true},
		"slow": {handler: func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() },
			want: errTimeout, message: "Timeout", again: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			c := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				test.handler(w, r)
			}), func(cfg *Config) {
				if name == "slow" {
					cfg.HTTPClient.Timeout = 2 * time.Second
				}
			})
			report, err := c.Submit(t.Context(), "https://www.example.com/a")
			b := report.Batches[0]
			if len(report.Batches) != 1 || requests.Load() != 1 {
				t.Errorf("%d batches, %d requests; want one", len(report.Batches), requests.Load())
			}
			if test.want == nil {
				if err != nil || b.Err != nil || b.Pending != (name == "202") {
					t.Errorf("got %+v, %v", b, err)
				}
				return
			}
			var problem *Error
			if !errors.As(err, &problem) || b.Err != problem || test.want != errTimeout && !errors.Is(err, test.want) ||
				!strings.Contains(err.Error(), test.message) || problem.Retryable() != test.again || len(err.Error()) > 600 {
				t.Errorf("got %v; want %v with %q", err, test.want, test.message)
			}
			if strings.Contains(err.Error(), "\n") || len(problem.Message) > 300 {
				t.Errorf("got %q", err)
			}
			if text := fmt.Sprintf("%v %+v %#v", err, b, problem); strings.Contains(text, string(testKey)) {
				t.Errorf("the key is in %s", text)
			}
		})
	}
}

var errTimeout = errors.New("any timeout")

// TestBatchesThatWouldFailTooAreNotSent: the engine has said why, and more requests would
// only add load.
func TestBatchesThatWouldFailTooAreNotSent(t *testing.T) {
	t.Parallel()
	urls := []string{"https://b.example/1"}
	for i := range 20_001 {
		urls = append(urls, fmt.Sprintf("https://a.example/%d", i))
	}
	urls = append(urls, "https://c.example/1") // the batches are b, a, a, a, c
	for status, want := range map[int][]string{
		// The status of the answers for a.example, and the errors of the five batches.
		200: {"", "", "", "", ""},
		403: {"", "rejects the key", "not sent", "not sent", ""},
		404: {"", "by IndexNow", "by IndexNow", "by IndexNow", ""},
		429: {"", "too many", "not sent", "not sent", "not sent"},
		503: {"", "has a problem", "not sent", "not sent", "not sent"},
		0:   {"", "EOF", "not sent", "not sent", "not sent"},
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			var requests atomic.Int32
			c := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				var s submission
				if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
					t.Error(err)
				}
				if s.Host != "a.example" {
					return
				}
				if status == 0 {
					panic(http.ErrAbortHandler)
				}
				w.Header().Set("Retry-After", "120")
				w.WriteHeader(status)
			}), nil)
			report, err := c.Submit(t.Context(), urls...)
			if len(report.Batches) != 5 {
				t.Fatalf("%d batches", len(report.Batches))
			}
			notSent, total := 0, 0
			for i, b := range report.Batches {
				total += len(b.URLs)
				got := ""
				if b.Err != nil {
					got = b.Err.Error()
					if !errors.Is(err, b.Err) {
						t.Errorf("%d: batch %d is not in %v", status, i, err)
					}
				}
				if !strings.Contains(got, want[i]) || (got == "") != (want[i] == "") {
					t.Errorf("%d: batch %d: %s; want %q", status, i, got, want[i])
				}
				if errors.Is(b.Err, ErrNotSent) {
					notSent++
					problem := b.Err.(*Error)
					if !errors.Is(b.Err, errors.Unwrap(report.Batches[1].Err)) || status == 429 &&
						(problem.RetryAfter != 2*time.Minute || !problem.Retryable()) || status == 403 && problem.Retryable() {
						t.Errorf("%d: batch %d: %+v", status, i, b.Err)
					}
				}
			}
			if int(requests.Load()) != 5-notSent || total != len(urls) {
				t.Errorf("%d: %d requests, %d URLs in the report", status, requests.Load(), total)
			}
		})
	}
}

func TestTheErrorForManyURLsIsShort(t *testing.T) {
	t.Parallel()
	c := client(t, http.NotFoundHandler(), nil)
	report, err := c.Submit(t.Context(), slices.Repeat([]string{"no URL"}, 1000)...)
	if len(report.Rejected) != 1000 || err == nil || strings.Count(err.Error(), "\n") != 10 || !strings.Contains(err.Error(), "and 990 more") {
		t.Errorf("%d rejected, %v", len(report.Rejected), err)
	}
}

// TestTheKeyIsMaskedInTransportErrors, which may contain anything.
func TestTheKeyIsMaskedInTransportErrors(t *testing.T) {
	t.Parallel()
	said := errors.New(strings.Repeat("x", 280) + string(testKey) + strings.Repeat("x", 250))
	c := client(t, nil, func(cfg *Config) {
		cfg.HTTPClient = &http.Client{Transport: transportFunc(func(*http.Request) (*http.Response, error) { return nil, said })}
	})
	_, err := c.Submit(t.Context(), "https://www.example.com/")
	for _, err := range []error{err, c.Verify(t.Context(), "www.example.com")} {
		if !errors.Is(err, said) || !strings.Contains(err.Error(), "x7313…") || len(err.Error()) > 600 {
			t.Errorf("got %v", err)
		}
		for ; err != nil; err = errors.Unwrap(err) { // as error reporters do
			if strings.Contains(err.Error(), string(testKey[:8])) {
				t.Errorf("the key is in %v", err)
			}
		}
	}
}

func TestAllConfigErrorsAreReported(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Config){
		`Key "" is missing`:                  func(cfg *Config) { cfg.Key = "" },
		`Key "7313…" has white space`:        func(cfg *Config) { cfg.Key += "\n" },
		`Key "7…" is a masked key`:           func(cfg *Config) { cfg.Key = Key(cfg.Key.String() + "…") },
		`Key "…" has 7 characters`:           func(cfg *Config) { cfg.Key = "abcdefg" },
		`Key "aaaa…" has 129 characters`:     func(cfg *Config) { cfg.Key = Key(strings.Repeat("a", 129)) },
		`Key "a…" has other characters`:      func(cfg *Config) { cfg.Key = "abcd_efgh" },
		"has other characters than a-z, A-Z": func(cfg *Config) { cfg.Key = "abcdéfgh" },
		`KeyLocations[0] "https://www.example.com/catalog/" is not the URL of a file`: func(cfg *Config) {
			cfg.KeyLocations = locations("https://www.example.com/catalog/")
		},
		`KeyLocations[0] "https://www.example.com" is not`:     func(cfg *Config) { cfg.KeyLocations = locations("https://www.example.com") },
		`KeyLocations[0] "https://www.example.com/k?x" is not`: func(cfg *Config) { cfg.KeyLocations = locations("https://www.example.com/k?x") },
		`KeyLocations[0] "/7313….txt" has no scheme`: func(cfg *Config) {
			cfg.KeyLocations = locations("/" +
				string(testKey) + ".txt")
		},
		`Endpoint "api.indexnow.org" is not exactly the`:        func(cfg *Config) { cfg.Endpoint = "api.indexnow.org" },
		`Endpoint "ftp://api.indexnow.org/" is not exactly the`: func(cfg *Config) { cfg.Endpoint = "ftp://api.indexnow.org/" },
		`Endpoint "https:///indexnow" is not exactly the`:       func(cfg *Config) { cfg.Endpoint = "https:///indexnow" },
		`Endpoint "api.indexnow.org/" is not exactly the`:       func(cfg *Config) { cfg.Endpoint = "https://a@api.indexnow.org/" },
		`Endpoint "https://api.indexnow.org/indexnow" is not exactly the`: func(cfg *Config) {
			cfg.Endpoint = "https://api.indexnow.org/indexnow?key=x"
		},
		`Endpoint "https://api.indexnow.org/#x" is not exactly the`: func(cfg *Config) { cfg.Endpoint = "https://api.indexnow.org/#x" },
		`KeyLocations[0] "https://www.example.com//k.txt" is not`: func(cfg *Config) {
			cfg.KeyLocations = locations("https://www.example.com//k.txt")
		},
		`Endpoint "https://:443/x" is not`:              func(cfg *Config) { cfg.Endpoint = "https://:443/x" },
		`Endpoint "https://api.indexnow.org/x " is not`: func(cfg *Config) { cfg.Endpoint = "https://api.indexnow.org/x " },
		`UserAgent "a`: func(cfg *Config) { cfg.UserAgent = "a\nb" },
		`KeysOf "" is set, and so is Key; want one`: func(cfg *Config) {
			cfg.Key = "x"
			cfg.KeysOf = func(context.Context, string, string) ([]Key, error) { return nil, nil }
		},
		`KeysOf "" is set, and so is Key`: func(cfg *Config) {
			cfg.KeysOf = func(context.Context, string, string) ([]Key, error) { return nil, nil }
		},
	} {
		t.Run(fmt.Sprintf("%.40s", want), func(t *testing.T) {
			cfg := Config{Key: testKey}
			change(&cfg)
			c, err := New(cfg)
			if problem := (*badvalue.Error)(nil); c != nil || !errors.As(err, &problem) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v; want an error with %s", err, want)
			}
		})
	}
	if _, err := New(Config{Key: "a", KeyLocations: []string{"a.example/a"}}); !strings.Contains(err.Error(),
		`KeyLocations[0] "a.example/a"`) {
		t.Errorf("a value that is not a key is masked: %v", err)
	}
	_, err := New(Config{KeyLocations: []string{"x"}, Endpoint: "x"})
	for _, want := range []string{"Key ", "KeyLocations[0]", "Endpoint"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not have %s", err, want)
		}
	}
	for _, key := range []Key{"a-B-1-z9", Key(strings.Repeat("Z", 128)), NewKey()} {
		t.Run(fmt.Sprintf("%.40s", key), func(t *testing.T) {
			if _, err := New(Config{Key: key}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTheKeyIsMasked(t *testing.T) {
	t.Parallel()
	type config struct{ Key Key }
	cfg := config{testKey}
	var out bytes.Buffer
	c := client(t, http.NotFoundHandler(), func(cfg *Config) { cfg.KeyLocations = locations("https://www.example.com/" + string(testKey)) })
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%10s"} {
		fmt.Fprintf(&out, verb+" "+verb+" "+verb+"\n", testKey, cfg, &cfg)
	}
	fmt.Fprintf(&out, "%v %+v\n", c, *c)
	problems := []error{c.Verify(t.Context(), string(testKey))}
	for _, change := range []func(*Config){
		func(cfg *Config) { cfg.Endpoint = "https://api.indexnow.org/indexnow?key=" + string(cfg.Key) },
		func(cfg *Config) { cfg.Endpoint = "https://user:" + string(cfg.Key) + "@api.indexnow.org/indexnow" },
		func(cfg *Config) { cfg.KeyLocations = locations("https://www.example.com/" + string(cfg.Key) + "/") },
		func(cfg *Config) {
			cfg.KeyLocations = locations("https://user:" + string(cfg.Key) + "@www.example.com/")
		},
		func(cfg *Config) { cfg.KeyLocations = locations("/" + string(cfg.Key)); cfg.Key += "\n" },
	} {
		cfg := Config{Key: testKey}
		change(&cfg)
		_, err := New(cfg)
		problems = append(problems, err)
	}
	// One key may be a part of another.
	several, _ := New(Config{
		KeysOf:     func(context.Context, string, string) ([]Key, error) { return []Key{testKey[:16], testKey}, nil },
		HTTPClient: servertest.Loopback(t, http.RedirectHandler("/"+string(testKey), http.StatusFound)),
	})
	problems = append(problems, several.Verify(t.Context(), "www.example.com"))
	_, err := c.Submit(t.Context(), "https://example.org/"+string(testKey), "https://www.example.com:1/"+string(testKey))
	for _, err := range append(problems, err) {
		if err == nil {
			t.Error("there is no error")
		}
		fmt.Fprintf(&out, "%v %+v\n", err, err)
	}
	fmt.Fprintln(&out, testKey, cfg, testKey.String())
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(handler).Info("test", "key", testKey, "config", cfg, "pointer", &cfg, "in", []any{cfg, map[string]any{"a": &cfg}})
	}
	for _, value := range []any{cfg, Config{Key: testKey}.Key} {
		if err := json.NewEncoder(&out).Encode(value); err != nil {
			t.Fatal(err)
		}
	}
	hex := fmt.Sprintf("%x", string(testKey))
	for _, secret := range []string{string(testKey), string(testKey[4:12]), string(testKey[16:]), hex, strings.ToUpper(hex), hex[12:24]} {
		t.Run(secret, func(t *testing.T) {
			if strings.Contains(out.String(), secret) {
				t.Errorf("%q is in\n%s", secret, &out)
			}
		})
	}
	for _, want := range []string{`key=7313…`, `{"Key":"7313…"}`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is not in\n%s", want, &out)
		}
	}
	var read config
	if err := json.Unmarshal([]byte(`{"Key":"`+string(testKey)+`"}`), &read); err != nil || read != cfg {
		t.Errorf("got %q, %v", string(read.Key), err)
	}
	for key, want := range map[Key]string{"": "", "abcdefgh": "a…", "abcdefghijklmnop": "ab…"} {
		t.Run(string(key), func(t *testing.T) {
			if key.String() != want {
				t.Errorf("%q is masked as %q", string(key), key)
			}
		})
	}
}

func TestTheEndpointIsAskedUntilTheContextEnds(t *testing.T) {
	t.Parallel()
	asked := ""
	c := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Host + r.RequestURI + " " + r.Header.Get("User-Agent")
	}), func(cfg *Config) { cfg.Endpoint, cfg.UserAgent = "http://localhost:8080/x", "us" })
	if _, err := c.Submit(t.Context(), "https://www.example.com/"); err != nil || asked != "localhost:8080/x us" {
		t.Errorf("asked %s, %v", asked, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	report, err := c.Submit(ctx, "https://a.example/", "https://b.example/")
	if !errors.Is(err, context.Canceled) || !errors.Is(report.Batches[1].Err, ErrNotSent) {
		t.Errorf("canceled: %+v, %v", report, err)
	}
}

// The files of one host have keys of their own: option 2 of IndexNow's document, "one to many".
func TestEachFolderHasItsKey(t *testing.T) {
	t.Parallel()
	keys, err := ParseKeys([]byte(`{"a.example": {"/catalog/": ["key-of-catalog", "older-key"], "/help/": ["key-of-help"]}, "B.example": ` +
		`["key-of-b", "old-key-of-b"]}`))
	if err != nil {
		t.Fatal(err)
	}
	served := map[string]string{"https://a.example/catalog/key-of-catalog.txt": "key-of-catalog",
		"https://a.example/catalog/older-key.txt": "older-key",
		"https://b.example/old-key-of-b.txt":      "old-key-of-b",
		"https://a.example/help/key-of-help.txt":  "key-of-catalog", "https://b.example/key-of-b.txt": "key-of-b\n"}
	var mu sync.Mutex
	var sent []string
	c, err := New(Config{KeysOf: keys.Of, KeyLocations: keys.Locations(),
		HTTPClient: &http.Client{Transport: transportFunc(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet {
				a := answer(200, served[r.URL.String()])
				a.Header.Set("Content-Type", "text/plain")
				return a, nil
			}
			var s submission
			if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, s.Key+" "+s.KeyLocation+" "+strings.Join(s.URLList, " "))
			return answer(200, ""), nil
		})}})
	if err != nil {
		t.Fatal(err)
	}
	report, err := c.Submit(t.Context(), "https://a.example/catalog/1", "https://a.example/help/1", "https://b.example/1",
		"https://a.example/other")
	slices.Sort(sent)
	if want := []string{"key-of-b https://b.example/key-of-b.txt https://b.example/1",
		"key-of-catalog https://a.example/catalog/key-of-catalog.txt https://a.example/catalog/1",
		"key-of-help https://a.example/help/key-of-help.txt https://a.example/help/1"}; !slices.Equal(sent, want) || err == nil ||
		len(report.Rejected) != 1 || report.Rejected[0].Err.Code != badvalue.NotCovered {
		t.Errorf("%q, %v", sent, err)
	}
	if text := fmt.Sprint(err); strings.Contains(text, "key-of") {
		t.Errorf("a key is in %s", text)
	}
	if err := c.Verify(t.Context(), "a.example"); err == nil || strings.Count(err.Error(), "\n") != 0 ||
		!strings.Contains(err.Error(), "/help/") {
		t.Errorf("the file in /help/ has the key of another: %v", err)
	}
	if err := c.Verify(t.Context(), "b.example"); err != nil {
		t.Error(err)
	}
	handler := c.ServeKeys(http.NotFoundHandler())
	for at, want := range map[string]string{"a.example/catalog/key-of-catalog.txt": "key-of-catalog",
		"a.example/help/key-of-help.txt":  "key-of-help",
		"a.example/catalog/older-key.txt": "older-key", "b.example/key-of-b.txt": "key-of-b", "b.example/old-key-of-b.txt": "old-key-of-b",
		"a.example/older-key.txt": "404 page not found\n", "b.example/older-key.txt": "404 page not found\n",
		"a.example/help/key-of-catalog.txt": "404 page not found\n"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "https://"+at, nil))
		if w.Body.String() != want {
			t.Errorf("%s: %q; want %q", at, w.Body, want)
		}
	}
}

// Keys of many hosts in folders cost no more than one look at the host's own for each URL.
func BenchmarkKeysByFolder(b *testing.B) {
	for _, hosts := range []int{100, 1000, 4000} {
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) {
			var text strings.Builder
			var pages []string
			for i := range hosts {
				fmt.Fprintf(&text, `,"h%d.example": {"/a/": ["key-of-a-%d"], "/b/": ["key-of-b-%d"]}`, i, i, i)
				for page := range 5 {
					pages = append(pages, fmt.Sprintf("https://h%d.example/a/%d", i, page))
				}
			}
			keys, err := ParseKeys([]byte("{" + text.String()[1:] + "}"))
			if err != nil {
				b.Fatal(err)
			}
			c, err := New(Config{KeysOf: keys.Of, KeyLocations: keys.Locations(), Logger: slog.New(slog.DiscardHandler),
				HTTPClient: &http.Client{Transport: transportFunc(func(*http.Request) (*http.Response, error) { return answer(200, ""), nil })}})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := c.Submit(b.Context(), pages...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(len(pages)), "µs/URL")
		})
	}
}

func TestAFileOfKeysThatIsWrong(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"\uFEFF{}":           "begins with a byte order mark",
		"\xff\xfe{\x00":      "is UTF-16",
		`{"a.example": "k"}`: "is not a JSON object with a list of keys",
		`{"a.example": {"catalog": ["12345678"]}}`:                     "is not the path of a folder",
		`{"a.example": {"/a/": []}}`:                                   "has no key",
		`{"a.example": {"/a/": ["short"]}}`:                            "has 5 characters",
		`{"a.example": {"/a//": ["12345678"]}}`:                        "is not the URL of a file",
		`{"a.example": ["1234567"], "b.example": {"/": ["12345678"]}}`: "has 7 characters",
	} {
		if _, err := ParseKeys([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "12345678") {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
	}
	if problem := testKey.compare("\xff\xfek\x00"); problem == nil || !strings.Contains(problem.Error(), "UTF-16") {
		t.Error(problem)
	}
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Publishers on one platform have keys of their own, in one Client. A key that is replaced is
// still served.
func TestKeysOfEachHost(t *testing.T) {
	t.Parallel()
	old, now, other := NewKey(), NewKey(), NewKey()
	var down atomic.Bool
	var ofA []Key
	keysOf := func(_ context.Context, host, _ string) ([]Key, error) {
		switch {
		case host == "down.example" && down.Load():
			return nil, errors.New("the database is down")
		case host == "a.example":
			clear(ofA) // what was returned before belongs to KeysOf
			ofA = []Key{now, old}
			return ofA, nil
		case host == "b.example" || host == "down.example":
			return []Key{other}, nil
		case host == "short.example":
			return []Key{"short"}, nil
		case host == "none.example":
			return nil, nil
		}
		return nil, fmt.Errorf("%s: %w", host, ErrNoKey)
	}
	var handler http.Handler
	sent := make(map[string]string) // by host
	c, err := New(Config{KeysOf: keysOf, HTTPClient: &http.Client{Transport: transportFunc(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		if r.Method == "POST" {
			var s submission
			err := json.NewDecoder(r.Body).Decode(&s)
			sent[s.Host] = s.Key
			return answer(200, ""), err
		}
		handler.ServeHTTP(w, httptest.NewRequest(r.Method, r.URL.String(), nil))
		return w.Result(), nil
	})}})
	if err != nil {
		t.Fatal(err)
	}
	handler = c.ServeKeys(http.NotFoundHandler())

	down.Store(true)
	report, err := c.Submit(t.Context(), "https://a.example/1", "https://b.example/1", "https://down.example/1", "https://none.example/1",
		"https://short.example/1", "https://unknown.example/1", "https://a.example/2", "https://a.example:99999/"+string(now)+".txt")
	if want := map[string]string{"a.example": string(now), "b.example": string(other)}; !maps.Equal(sent, want) {
		t.Errorf("sent %q; want %q", sent, want)
	}
	for _, b := range report.Batches {
		problem := (*Error)(nil)
		errors.As(b.Err, &problem)
		switch b.Host {
		case "a.example", "b.example":
			if b.Err != nil {
				t.Error(b.Err)
			}
		case "down.example":
			if problem == nil || !problem.Retryable() || !strings.Contains(problem.Error(), "the database is down") {
				t.Errorf("%s: %v", b.Host, b.Err)
			}
		default:
			if problem == nil || problem.Retryable() || !errors.Is(problem, ErrNoKey) {
				t.Errorf("%s: %v", b.Host, b.Err)
			}
		}
	}
	if err := c.Verify(t.Context(), "A.example", "b.example"); err != nil {
		t.Error(err)
	}
	if err := c.Verify(t.Context(), "down.example", "none.example"); err == nil || !errors.Is(err, ErrNoKey) ||
		!strings.Contains(err.Error(), "the database is down") {
		t.Error(err)
	}
	for url, want := range map[string]int{
		"https://a.example/" + string(now) + ".txt":     200,
		"https://A.EXAMPLE:443/" + string(old) + ".txt": 200,
		"https://a.example/" + string(other) + ".txt":   404, // another host's
		"https://b.example/" + string(other) + ".txt":   200,
		"https://b.example/" + string(now) + ".txt":     404,
		"https://b.example/robots.txt":                  404,
		"https://down.example/robots.txt":               404, // not looked up
		"https://down.example/a-long-name.txt":          503,
		"https://none.example/a-long-name.txt":          404,
		"https://127.0.0.1/" + string(now) + ".txt":     404,
	} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", url, nil))
		if w.Code != want || want == 200 && !strings.Contains(url, w.Body.String()) {
			t.Errorf("%s: %d %q; want %d", url, w.Code, w.Body, want)
		}
	}
	if text := fmt.Sprint(c, report, err); strings.Contains(text, string(now)) || strings.Contains(text, string(other)) {
		t.Errorf("a key is in %s", text)
	}
}

func TestTheKeyIsServed(t *testing.T) {
	t.Parallel()
	for location, path := range map[string]string{
		"": "/" + string(testKey) + ".txt",
		"https://www.example.com/catalog/indexnow.txt":                    "/catalog/indexnow.txt",
		"https://www.example.com/%c3%A9%7Ea/" + string(testKey) + ".text": "/%C3%A9~a/" + string(testKey) + ".text",
	} {
		t.Run(location, func(t *testing.T) {
			c := client(t, http.NotFoundHandler(), func(cfg *Config) { cfg.KeyLocations = locations(location) })
			get := func(method, path string) (*http.Response, string) {
				w := httptest.NewRecorder()
				c.ServeKeys(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(method, path, nil))
				return w.Result(), w.Body.String()
			}
			want := http.Header{"Content-Type": {"text/plain; charset=utf-8"}, "Content-Length": {"32"}, "X-Content-Type-Options": {"nosniff"}}
			if resp, body := get("GET", path); resp.StatusCode != 200 || body != string(testKey) || fmt.Sprint(resp.Header) != fmt.Sprint(want) {
				t.Errorf("got %d, %v, %q", resp.StatusCode, resp.Header, body)
			}
			if resp, body := get("HEAD", path); resp.StatusCode != 200 || body != "" || fmt.Sprint(resp.Header) != fmt.Sprint(want) {
				t.Errorf("HEAD: got %d, %v, %q", resp.StatusCode, resp.Header, body)
			}
			if resp, _ := get("DELETE", path); resp.StatusCode != 405 || resp.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("DELETE: got %d, %v", resp.StatusCode, resp.Header)
			}
			for _, other := range []string{"/", "/indexnow.txt", path + "/", path + "x", strings.ToUpper(path), "/catalog/"} {
				if resp, body := get("GET", other); resp.StatusCode != 404 || strings.Contains(body, string(testKey)) {
					t.Errorf("%s: got %d, %q", other, resp.StatusCode, body)
				}
			}
		})
	}
}

// plain returns a handler that answers with the text.
func plain(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		io.WriteString(w, text)
	}
}

func TestVerifyComparesTheKeyFile(t *testing.T) {
	t.Parallel()
	const masked = "https://www.example.com/7313….txt"
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		want    string // "" means no error
	}{
		"valid":        {handler: plain(string(testKey)), want: ""},
		"a line break": {handler: plain(string(testKey) + "\n"), want: ""},
		"CRLF":         {handler: plain(string(testKey) + " \t\r\n\r\n"), want: ""},
		"a BOM":        {handler: plain("\uFEFF" + string(testKey) + "\r\n"), want: ""},
		"space before": {handler: plain("\n" + string(testKey)), want: "white space before it"},
		"more":         {handler: plain("key: " + string(testKey)), want: "other text"},
		"another key":  {handler: plain(string(NewKey())), want: "bytes that are not the key"},
		"another case": {handler: plain(strings.ToUpper(string(testKey))), want: "not the key"},
		"empty":        {handler: plain(""), want: "0 bytes that are not the key"},
		"missing":      {handler: http.NotFound, want: "404"},
		"down":         {handler: func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503) }, want: "503"},
		"a page":       {handler: func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<html>") }, want: "text/html"},
		"a redirect": {handler: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://example.com"+r.URL.Path, http.StatusMovedPermanently)
		}, want: `redirect to "https://example.com/7313….txt"`},
		"endless": {handler: plain(strings.Repeat(string(testKey), 1<<15)), want: "longer than"},
		"truncated": {handler: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "99")
			io.WriteString(w, string(testKey))
		}, want: "is truncated"},
		"no answer":      {handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, want: "EOF"},
		"garbage answer": {handler: func(w http.ResponseWriter, r *http.Request) { hijack(w, "garbage\r\n\r\n") }, want: "malformed HTTP"},
	} {
		t.Run(fmt.Sprintf("%.40s", name), func(t *testing.T) {
			c := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Host != "www.example.com" || r.RequestURI != "/"+string(testKey)+".txt" {
					t.Errorf("asked for %s%s", r.Host, r.RequestURI)
				}
				test.handler(w, r)
			}), nil)
			err := c.Verify(t.Context(), "WWW.example.com")
			fetched := name != "no answer" && name != "garbage answer"
			if test.want == "" && err != nil || test.want != "" &&
				(errors.Is(err, ErrKeyFile) != fetched || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), masked)) {
				t.Errorf("%s: got %v; want %q", name, err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), string(testKey)) {
				t.Errorf("%s: the key is in %v", name, err)
			}
		})
	}
}

func TestVerifyNeedsHosts(t *testing.T) {
	t.Parallel()
	c := client(t, plain(string(testKey)), nil)
	if err := c.Verify(t.Context(), "www.example.com", "bücher.example"); err != nil {
		t.Error(err)
	}
	if err := c.Verify(t.Context()); err == nil || !strings.Contains(err.Error(), "names no host") {
		t.Errorf("got %v", err)
	}
	if err := c.Verify(t.Context(), "www.example.com", "https://www.example.com/"); err == nil || !strings.Contains(err.Error(), "hosts[1]") {
		t.Errorf("got %v", err)
	}
}

func hijack(w http.ResponseWriter, answer string) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	io.WriteString(conn, answer)
	conn.Close()
}

func TestTheLogHasTheResultsButNotTheKey(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	status := 200
	c := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "https://www.example.com/"+string(testKey))
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"errorCode":"%s","message":"%s"}`, testKey[:20], string(testKey))
	}), func(cfg *Config) {
		cfg.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		cfg.KeyLocations = locations("https://www.example.com/" + string(testKey) + ".txt")
	})
	_, _ = c.Submit(t.Context(), "https://www.example.com/a")
	for _, status = range []int{302, 400, 403, 429, 500} {
		_, _ = c.Submit(t.Context(), "https://www.example.com/a")
	}
	c.locations = new(keyFiles)
	_, _ = c.Submit(t.Context(), "https://www.example.com/a", "https://a.example/", "https://b.example/1", "https://b.example/2")
	if strings.Contains(out.String(), string(testKey)) {
		t.Errorf("the key is in\n%s", &out)
	}
	for _, want := range []string{`level=WARN msg="ampcors: indexnow: not sent, after a failure" urls=3`,
		`level=INFO msg="ampcors: indexnow: accepted" host=www.example.com urls=1 pending=false`, `level=WARN msg="ampcors: indexnow: not ` +
			`accepted" host=www.example.com urls=1 error="indexnow: www.example.com: the engine says that there are too many requests (status 429`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log\n%s\ndoes not have %s", &out, want)
		}
	}
}

// Hosts do not wait for each other, the report has the order of the URLs, and Accepted is called as soon as an engine accepts.
func TestHostsAreSentAtOneTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		sent, status := 0, 200
		engine := transportFunc(func(*http.Request) (*http.Response, error) {
			mu.Lock()
			sent++
			mu.Unlock()
			time.Sleep(time.Second)
			return answer(status, ""), nil
		})
		var accepted []string
		c, err := New(Config{Key: testKey, HTTPClient: &http.Client{Transport: engine}, Accepted: func(b Batch) {
			mu.Lock()
			accepted = append(accepted, b.URLs...)
			mu.Unlock()
		}})
		if err != nil {
			t.Fatal(err)
		}
		var urls, got []string
		for i := range 12_000 {
			urls = append(urls, fmt.Sprintf("https://%d.example/%d", i%30, i))
		}
		start := time.Now()
		report, err := c.Submit(t.Context(), urls...)
		if took := time.Since(start); err != nil || took > 3*time.Second || sent != 30 || len(accepted) != 12_000 {
			t.Errorf("%v, %d requests, %d accepted, %v", took, sent, len(accepted), err)
		}
		for _, b := range report.Batches {
			got = append(got, b.Host)
		}
		if len(got) != 30 || got[0] != "0.example" || got[29] != "29.example" || got[7] != "7.example" {
			t.Errorf("the order is %q", got)
		}
		sent, status, accepted = 0, 503, nil
		if report, err := c.Submit(t.Context(), urls...); !errors.Is(err, ErrServer) || sent != 1 || accepted != nil ||
			!errors.Is(report.Batches[29].Err, ErrNotSent) {
			t.Errorf("%d requests to an engine that fails, %v", sent, err)
		}
	})
}

func answer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Status: strconv.Itoa(status), Header: make(http.Header),
		Body: io.NopCloser(strings.NewReader(body))}
}

func TestTheRequestsCanBeSeenAndSentByAnother(t *testing.T) {
	t.Parallel()
	var sent []string
	urls := []string{"https://a.example/1", "https://b.example/1", "https://a.example/2", "nonsense", "https://none.example/"}
	c := client(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent = append(sent, "https://"+r.Host+r.RequestURI+" "+string(body))
	}), func(cfg *Config) {
		cfg.Key = ""
		cfg.KeysOf = func(_ context.Context, host, _ string) ([]Key, error) {
			if host == "none.example" {
				return nil, nil
			}
			return []Key{testKey}, nil
		}
	})
	requests, err := c.Requests(t.Context(), urls...)
	if len(sent) > 0 || len(requests) != 2 || !errors.Is(err, ErrNoKey) || !strings.Contains(err.Error(), "nonsense") ||
		strings.Contains(err.Error(), string(testKey)) {
		t.Errorf("%q, %v, sent %q", requests, err, sent)
	}
	_, _ = c.Submit(t.Context(), urls...)
	for i, r := range requests {
		if got := r.URL + " " + string(r.Body); i >= len(sent) || got != sent[i] {
			t.Errorf("%s; sent were\n%s", got, sent)
		}
	}
}

// locations returns the KeyLocations with one location, or none.
func locations(location string) []string {
	if location == "" {
		return nil
	}
	return []string{location}
}

// A host may have several key files: a page is sent with the longest location that covers it, each location in requests of its own. A
// page that none covers is an error of that page alone, and an engine that refuses one location is still told of the others.
func TestAPageIsSentWithTheLongestLocationThatCoversIt(t *testing.T) {
	var mu sync.Mutex
	sent := make(map[string][]string) // by location
	refuse := ""
	engine := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var p payload
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil || p.KeyLocation == refuse {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		sent[p.KeyLocation] = append(sent[p.KeyLocation], p.URLList...)
	})
	all := []string{"https://www.example.com/k.txt", "https://www.example.com/a/k.txt", "https://www.example.com/a/b/k.txt",
		"http://www.example.com/a/k.txt", "https://other.example/x/k.txt"}
	change := func(cfg *Config) { cfg.KeyLocations = all }
	c := client(t, engine, change)
	urls := []string{"https://www.example.com/1", "https://www.example.com/a/1", "https://www.example.com/a/b/1",
		"https://www.example.com/ab/1", "http://www.example.com/a/b/1", "https://other.example/x/1"}
	want := map[string][]string{all[0]: {urls[0], urls[3]}, all[1]: {urls[1]}, all[2]: {urls[2]}, all[3]: {urls[4]}, all[4]: {urls[5]}}
	report, err := c.Submit(t.Context(), append(urls, "https://other.example/1", "http://www.example.com/1")...)
	if err == nil || len(report.Rejected) != 2 || !strings.Contains(err.Error(),
		`urls[6] "https://other.example/1" is not covered by the key file`) ||
		!reflect.DeepEqual(sent, want) {
		t.Errorf("%v, %v; want %v", err, sent, want)
	}

	clear(sent)
	for i, result := range c.sendQueued(t.Context(), "www.example.com", urls[:4]) {
		if result.Err != nil {
			t.Errorf("%s: %v", urls[i], result.Err)
		}
	}
	if !slices.Equal(sent[all[0]], want[all[0]]) || len(sent) != 3 {
		t.Errorf("a queue: %v", sent)
	}

	clear(sent)
	refuse = all[1]
	report, err = c.Submit(t.Context(), urls...)
	delete(want, all[1])
	if !errors.Is(err, ErrForbidden) || !reflect.DeepEqual(sent, want) {
		t.Errorf("%v, %v, %v; want %v", err, report, sent, want)
	}

}

// Verify fetches all key files of a host, and those of all hosts if none is named.
func TestVerifyFetchesAllLocations(t *testing.T) {
	var asked []string
	c := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, "https://"+r.Host+r.URL.Path)
		w.Header().Set("Content-Type", "text/plain")
		if r.URL.Path != "/b/k.txt" {
			io.WriteString(w, string(testKey))
		}
	}), func(cfg *Config) {
		cfg.KeyLocations = []string{"https://www.example.com/a/k.txt", "https://www.example.com/b/k.txt", "https://other.example/k.txt"}
	})
	err := c.Verify(t.Context())
	if !errors.Is(err, ErrKeyFile) || !strings.Contains(err.Error(), "https://www.example.com/b/k.txt") ||
		strings.Contains(err.Error(), "other.example") || len(asked) != 3 {
		t.Errorf("%v, asked %q", err, asked)
	}
	asked = nil
	if err := c.Verify(t.Context(), "other.example"); err != nil || len(asked) != 1 {
		t.Errorf("%v, asked %q", err, asked)
	}
	if err := c.Verify(t.Context(), "example.com"); err == nil ||
		!strings.Contains(err.Error(), `hosts[0] "example.com" is not a host of KeyLocations`) {
		t.Error(err)
	}
}

// A key file in a folder covers what is below it, also names with dots. A segment ".." may lead out of the folder, in whatever way a server
// reads it, and the error says so.
func TestAFolderCoversNamesWithDots(t *testing.T) {
	c := client(t, http.NotFoundHandler(), func(cfg *Config) { cfg.KeyLocations = []string{"https://www.example.com/catalog/k.txt"} })
	for path, want := range map[string]string{
		"a..b": "", "..a": "", "a..": "", "...": "", "a/..b/c": "", "a%2Fb": "", "100%25": "", "x?..%2f": "",
		"../a": "is not covered by the key file", "%2e%2e/a": "is not covered by the key file",
		"..%2fa": `has a segment ".."`, "..%2Fa": `has a segment ".."`, "a%2f..%2f..%2fb": `has a segment ".."`, "..%5ca": `has a segment ".."`,
		"..%252fa":         `has a segment ".."`,
		"%252e%252e%252fa": `has a segment ".."`, "..;/a": `has a segment ".."`, "..%25252fa": `has a segment ".."`,
		"..%00/a": `has a segment ".."`, "..%20/a": `has a segment ".."`,
		"..%3Fa": `has a segment ".."`, "%C0%AE%C0%AE/a": `has a segment ".."`, "..%EF%BC%8Fa": `has a segment ".."`,
		"a/..;x=y/b": `has a segment ".."`, "%25/..%252fa": `has a segment ".."`,
	} {
		_, _, err := c.Canonical("https://www.example.com/catalog/" + path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", path, err, want)
		}
	}
}
