package probe

import (
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/vectors"
)

// A sharedCache is a cache in front of a backend, which keeps what has no error, by a key.
type sharedCache struct {
	backend http.Handler
	key     func(*http.Request) string
	ttl     time.Duration
	age     bool // it says so, with Age
	errors  bool // it keeps errors as well
	noVary  bool // it drops Vary
	obeys   bool // it obeys no-cache in requests, and keeps the new answer

	mu   sync.Mutex
	kept map[string]kept
}

type kept struct {
	*httptest.ResponseRecorder
	since time.Time
}

func (c *sharedCache) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Method == http.MethodOptions {
		c.backend.ServeHTTP(w, r)
		return
	}
	k, ok := c.kept[c.key(r)]
	if isFresh := ok && time.Since(k.since) < c.ttl && !(c.obeys && r.Header.Get("Cache-Control") == "no-cache"); !isFresh {
		k = kept{httptest.NewRecorder(), time.Now()}
		if c.backend.ServeHTTP(k, r); c.errors || k.Code < 400 {
			c.kept[c.key(r)] = k
		}
	} else if c.age {
		w.Header().Set("Age", fmt.Sprint(int(time.Since(k.since)/time.Second)))
	}
	for name, values := range k.Header() {
		if name != "Vary" || !c.noVary {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(k.Code)
	w.Write(k.Body.Bytes())
}

// TestWhatStandsInFront has caches in front of right backends, and backends that only look so. The caches that servers have are in e2e.
func TestWhatStandsInFront(t *testing.T) {
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{publisher}, Credentialed: true})
	if err != nil {
		t.Fatal(err)
	}
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") })
	right := mw.Wrap(api)
	another, err := ampcors.New(ampcors.Config{Publishers: []string{"news.example"}, Credentialed: true})
	if err != nil {
		t.Fatal(err)
	}
	oneOf := func(n int64, isWrong func(http.ResponseWriter, *http.Request)) http.Handler {
		var requests atomic.Int64
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if requests.Add(1)%n == 0 {
				isWrong(w, r)
			} else {
				right.ServeHTTP(w, r)
			}
		})
	}
	origins, err := Origins(publisher, cacheurl.DefaultCaches()...)
	if err != nil {
		t.Fatal(err)
	}
	// only sends the headers for preflights of the publisher's pages.
	only := func(status int, body string, headers ...string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for i := 0; i+1 < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			if origin := r.Header.Get("Origin"); r.Method == http.MethodOptions && slices.Contains(origins, origin) {
				w.Header().Set("Access-Control-Allow-Origin", origin)
				w.Header().Set("Access-Control-Allow-Credentials", "true")
				return
			}
			w.WriteHeader(status)
			io.WriteString(w, body)
		})
	}
	none := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") })
	byPath := func(r *http.Request) string { return r.URL.Path }
	rightly := func(r *http.Request) string { return r.URL.String() + r.Header.Get("Origin") }
	behind := func(c *sharedCache) http.Handler {
		c.kept = make(map[string]kept)
		if c.ttl == 0 {
			c.ttl = time.Hour
		}
		return c
	}
	momentarily := func(first, then http.Handler) http.Handler {
		var mu sync.Mutex
		var since time.Time
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			if since.IsZero() {
				since = time.Now()
			}
			isFirst := time.Since(since) < 700*time.Millisecond
			mu.Unlock()
			if isFirst {
				first.ServeHTTP(w, r)
			} else {
				then.ServeHTTP(w, r)
			}
		})
	}
	deniedFirst := func(h http.Handler) http.Handler {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Origin", "https://evil.example")
		h.ServeHTTP(httptest.NewRecorder(), r)
		return h
	}
	bansAfter := func(n int64, h http.Handler) http.Handler {
		var requests atomic.Int64
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if requests.Add(1) > n {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	for _, test := range []struct {
		name    string
		backend http.Handler
		method  string
		want    []ID
		remark  string // a part of the evidence of the first finding, or of a reason why something was not tested
	}{
		{"a cache by path", behind(&sharedCache{backend: right, key: byPath}), "GET", []ID{CachedWrongOrigin}, "no cache answers"},
		{"a cache by path, and HEAD", behind(&sharedCache{backend: right, key: byPath}), "HEAD", []ID{CachedWrongOrigin}, "no cache answers"},
		{"a cache by path, with Age", behind(&sharedCache{backend: right, key: byPath, age: true}), "GET", []ID{CachedWrongOrigin},
			"with Age: 1, although"},
		{"a cache by path that keeps a denial", deniedFirst(behind(&sharedCache{backend: right, key: byPath, errors: true})), "GET",
			[]ID{CachedWrongOrigin}, "ampcors denied another page (unknown_host)"},
		{"a cache by path that keeps answers for less than a second",
			behind(&sharedCache{backend: right, key: byPath, ttl: 900 * time.Millisecond}), "GET", []ID{CachedWrongOrigin}, "for a short time"},
		{"a cache by path that obeys no-cache, with Age", behind(&sharedCache{backend: right, key: byPath, age: true, obeys: true}), "GET",
			[]ID{CachedWrongOrigin}, "with a new URL and Cache-Control: no-cache is allowed"},
		{"a cache by path that drops Vary", behind(&sharedCache{backend: right, key: byPath, noVary: true}), "GET", []ID{ACAOMissing},
			"or a cache in front of it"},
		{"a cache by path, without CORS, with Age", behind(&sharedCache{backend: none, key: byPath, age: true}), "GET", []ID{ACAOMissing},
			"look first at the cache"},

		{"a proxy that drops Origin", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Del("Origin")
			right.ServeHTTP(w, r)
		}), "GET", []ID{ACAOMissing}, "a proxy in front of the backend that drops the request header Origin"},

		{"a proxy that drops Origin, and POST", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Del("Origin")
			right.ServeHTTP(w, r)
		}), "POST", []ID{ErrorWithoutCORS}, "ampcors says that no page sends an Origin"},
		{"a proxy that doubles Origin", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if origin := r.Header.Get("Origin"); origin != "" {
				r.Header.Set("Origin", origin+", "+origin)
			}
			right.ServeHTTP(w, r)
		}), "GET", []ID{OwnOriginRefused, CacheRefused}, "a proxy in front of it that doubles or changes"},

		{"two servers with different lists", oneOf(2, another.Wrap(api).ServeHTTP), "GET", []ID{AnswersDiffer}, "_not_"},
		{"three servers, and one has another list", oneOf(3, another.Wrap(api).ServeHTTP), "GET", []ID{AnswersDiffer}, "_not_"},
		{"two servers, and one denies all without a reason", oneOf(2, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }), "GET",
			nil, "several servers with different rules answer in turn"},
		{"a ban after forty requests", bansAfter(40, right), "GET", nil, "or a firewall"},
		{"a list without the publisher, and HEAD", another.Wrap(api), "HEAD", []ID{ErrorWithoutCORS}, ""},
		{"a wrong path", http.NotFoundHandler(), "GET", []ID{HTTPError}, "Look first whether the URL and the method are right"},
		{"a wrong path, and HEAD", http.NotFoundHandler(), "HEAD", []ID{HTTPError}, "Look first whether the URL and the method are right"},
		{"a wrong path behind ampcors", mw.Wrap(http.NotFoundHandler()), "GET", []ID{HTTPError}, ""},

		{"a right cache, in front of CORS for preflights", behind(&sharedCache{backend: only(200, "{}"), key: rightly, age: true}), "GET",
			[]ID{ACAOMissing}, ""},
		{"a right cache, without CORS", behind(&sharedCache{backend: none, key: rightly, age: true}), "GET", []ID{ACAOMissing}, ""},
		{"CORS for preflights", only(200, "{}"), "GET", []ID{ACAOMissing}, "it sets Access-Control-Allow-Origin only for preflights"},
		{"a backend that was wrong for a moment", momentarily(only(200, "{}", "Vary", "Origin"), right), "GET", []ID{ACAOMissing, AnswersDiffer},
			""},
		{"a login, with Vary", only(401, "login", "Vary", "Origin"), "GET", nil, "a login or a firewall"},
		{"a text like ours", only(403, "Forbidden: access_denied", "Vary", "Origin"), "GET", nil, "a login or a firewall"},
		{"a text like ours, and a known reason, without a cache", only(403, "Forbidden: no_origin_unsafe", "Vary", "Origin"), "GET", nil,
			"a login or a firewall"},
		{"our text for everybody, and nothing is granted", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Age", "0")
			http.Error(w, "Forbidden: publisher_not_allowed", http.StatusForbidden)
		}), "GET", nil, "a login or a firewall"},
		{"an overload, with Vary", only(503, "", "Vary", "Origin"), "GET", nil, "is down"},
		{"an error, with Vary", only(500, "", "Vary", "Origin"), "GET", []ID{ErrorWithoutCORS}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(test.backend)
			defer server.Close()
			e := Endpoint{URL: server.URL + "/", Method: test.method, Credentials: true, Answer: AnswerJSON}
			report, err := Run(t.Context(), Config{Rate: math.Inf(1), Endpoints: []Endpoint{e}, Publishers: []string{publisher},
				Unsafe: test.method == "POST"})
			if err != nil {
				t.Fatal(err)
			}
			var got []ID
			text := ""
			for _, f := range report.Findings {
				got, text = append(got, f.ID), text+strings.Join(f.Evidence, "\n")
			}
			for _, u := range report.Untested {
				text += u.Reason
			}
			isSaid := strings.Contains(text, "cache") // in front of a backend that is the cause itself
			if !slices.Equal(got, test.want) || !strings.Contains(text, test.remark) || test.remark == "" && test.want != nil && isSaid {
				t.Errorf("got %q; want %q and %q: %s", got, test.want, test.remark, text)
			}
		})
	}
}

// The reasons that are taken for the denial of an Origin are those of the vectors.
func TestOriginDenialsAreThoseOfTheVectors(t *testing.T) {
	file, err := vectors.Read("../conformance/origins.json")
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string]bool)
	for _, v := range file.Origins {
		if !file.Reasons[v.Reason].Allowed {
			want[v.Reason] = true
		}
	}
	if got := slices.Sorted(slices.Values(originDenials)); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
		t.Errorf("%q; want %q", got, slices.Sorted(maps.Keys(want)))
	}
}

// If ampcors itself denies what must work, the remedy is about ampcors or what is in front of it, and not about the backend's CORS headers.
func TestARemedyFollowsTheReasonOfAMPCORS(t *testing.T) {
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{publisher}, Credentialed: true})
	if err != nil {
		t.Fatal(err)
	}
	api := mw.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }))
	byPattern, err := ampcors.New(ampcors.Config{Publishers: []string{"*.example.com"}, Credentialed: true})
	if err != nil {
		t.Fatal(err)
	}
	patterns := byPattern.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }))
	changed := func(change func(http.Header)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			change(r.Header)
			api.ServeHTTP(w, r)
		}
	}
	get := Endpoint{Method: "GET", Credentials: true}
	for name, test := range map[string]struct {
		handler   http.HandlerFunc
		publisher string
		e         Endpoint
		header    http.Header
		remedy    string
	}{
		"a publisher that is not listed": {api.ServeHTTP, "www.other.example", get, nil, "add it to publishers"},
		"a proxy that doubles Origin": {changed(func(h http.Header) { h.Add("Origin", h.Get("Origin")) }), publisher, get, nil,
			"was changed, or was there twice"},
		"a proxy that drops Origin": {changed(func(h http.Header) { h.Del("Origin") }), publisher,
			Endpoint{Method: "POST", ContentType: "text/plain", Body: "a", Credentials: true}, nil, "ampcors got none"},
		"a publisher that only a pattern matches": {patterns.ServeHTTP, "shop.example.com", get, nil, "a pattern matches no hash prefix"},
		"a proxy that drops the preflight's method": {changed(func(h http.Header) { h.Del("Access-Control-Request-Method") }), publisher,
			Endpoint{Method: "POST", ContentType: typeJSON, Body: "{}", Credentials: true}, nil, "it was not taken for a preflight"},
		"a proxy that drops the preflight's headers": {changed(func(h http.Header) { h.Del("Access-Control-Request-Headers") }), publisher,
			Endpoint{Method: "POST", ContentType: typeJSON, Body: "{}", Credentials: true}, nil, "It grants the method, and no header"},
		"a header that is not listed": {api.ServeHTTP, publisher, get, http.Header{"X-Token": {"1"}}, "add it to requestHeaders"},
		"nginx without X-Original-Method": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "Forbidden: no_method", http.StatusForbidden)
		},
			publisher, get, nil, "is not configured as in authz/nginx.conf"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(test.handler)
			defer server.Close()
			test.e.URL = server.URL
			report, err := Run(t.Context(), Config{Rate: math.Inf(1), Endpoints: []Endpoint{test.e}, Publishers: []string{test.publisher},
				PageHeader: test.header, Unsafe: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range report.Findings {
				if !strings.Contains(f.Remedy, test.remedy) {
					t.Errorf("%s: %s", f.ID, f.Remedy)
				}
			}
			if len(report.Findings) == 0 || len(report.Snippets) > 0 {
				t.Errorf("%d findings, and advice on the backend's CORS headers for %d servers; not tested: %+v", len(report.Findings),
					len(report.Snippets), report.Untested)
			}
		})
	}
}

// A request without a sender is no email's. What it gets is public, which a report must not hide behind "other senders are denied".
func TestARequestWithoutASenderIsNoted(t *testing.T) {
	for _, isDenied := range []bool{false, true} {
		mw, err := ampcors.New(ampcors.Config{Email: ampcors.Email{Senders: []string{"news@example.com"}}})
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(mw.WrapDecision(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if d, _ := ampcors.DecisionFromContext(r.Context()); isDenied && d.EmailSender == "" {
				w.WriteHeader(http.StatusForbidden)
			}
			_, _ = io.WriteString(w, "{}")
		})))
		defer server.Close()
		report, err := Run(t.Context(), Config{Rate: math.Inf(1), Endpoints: []Endpoint{{URL: server.URL, Method: "GET", Answer: AnswerJSON}},
			Senders: []string{"news@example.com"}})
		if err != nil || len(report.Findings) > 0 {
			t.Fatal(report, err)
		}
		if isNoted := strings.Contains(strings.Join(report.Notes, "\n"), "a request that names no sender with status 200"); isNoted == isDenied {
			t.Errorf("denied: %t, noted: %t", isDenied, isNoted)
		}
	}
}
