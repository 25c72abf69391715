package ampcors_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/mwtest"
)

// TestRequestVectors compares, for each kind of request, all of the response's headers, whether the
// handler ran, and the reason. An outer middleware has set a Vary before. Config.Email changes only Vary
// for requests that are not AMP for Email requests.
func TestRequestVectors(t *testing.T) {
	t.Parallel()
	f := mwtest.Vectors(t, "conformance/requests.json")
	f.Reasons = mwtest.Vectors(t, "conformance/origins.json").Reasons
	policies := mwtest.Policies(t, f)
	if len(f.Requests) < 150 {
		t.Errorf("only %d requests", len(f.Requests))
	}
	for _, v := range f.Requests {
		cfg, ok := policies[v.Policy]
		if !ok {
			t.Fatalf("there is no policy %q", v.Policy)
		}
		withEmail := cfg
		withEmail.Email.Senders = []string{"news@example.com"}
		test := request{name: v.Name, method: v.Method, query: "?" + v.Query, headers: v.Headers, status: cmp.Or(v.Status, http.StatusAccepted),
			reason: mwtest.Reason(t, f, v.Reason)}
		t.Run(v.Policy+"/"+v.Name, func(t *testing.T) {
			t.Parallel()
			checkRequest(t, cfg, test, response(test.status, v.Response, ""))
			if cfg.Email.Senders == nil {
				checkRequest(t, withEmail, test, response(test.status, v.Response, ", AMP-Email-Sender"))
			}
		})
	}
}

// response returns all headers of the answer to a request: those that concern CORS, those of the
// outer middleware, and those of the handler or of a denial.
func response(status int, cors []string, alsoVaries string) http.Header {
	h := mwtest.Headers(cors...)
	h.Set("Vary", "Outer, "+h.Get("Vary")+alsoVaries)
	switch status {
	case http.StatusAccepted:
		h.Add("Vary", "Accept")
		h.Set("X-Handler", "ran")
	case http.StatusForbidden:
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
	}
	return h
}

// A request is a row of a table: what is sent, and what is expected.
type request struct {
	name    string
	method  string
	query   string // "" or begins with "?"
	headers []string
	status  int // 202 if the handler runs
	reason  ampcors.Reason
}

// checkRequest sends one request and compares the complete result. It must be the same
// whether the publishers are listed or known to a Source.
func checkRequest(t *testing.T, cfg ampcors.Config, test request, want http.Header) {
	t.Helper()
	t.Run("listed", func(t *testing.T) { checkRequestWith(t, cfg, test, want) })
	cfg, _ = mwtest.WithSource(t, cfg)
	t.Run("of a Source", func(t *testing.T) { checkRequestWith(t, cfg, test, want) })
}

func checkRequestWith(t *testing.T, cfg ampcors.Config, test request, want http.Header) {
	t.Helper()
	var observed []ampcors.Decision
	cfg.Observe = func(r *http.Request, d ampcors.Decision) { observed = append(observed, d) }
	m := mwtest.New(t, cfg)
	r := httptest.NewRequest(test.method, "https://api.example.org/data"+test.query, nil)
	for key, values := range mwtest.Headers(test.headers...) {
		r.Header[key] = values
	}
	rec := httptest.NewRecorder()
	rec.Header().Add("Vary", "Outer")
	handler := new(mwtest.Spy)
	d := m.Check(r)
	m.Wrap(handler).ServeHTTP(rec, r)

	if !reflect.DeepEqual(rec.Header(), want) {
		t.Errorf("headers\n%v; want\n%v", rec.Header(), want)
	}
	if rec.Code != test.status || handler.Ran != (test.status == http.StatusAccepted) {
		t.Errorf("status %d, the handler ran: %t; want %d", rec.Code, handler.Ran, test.status)
	}
	if d.Reason != test.reason {
		t.Errorf("reason %q; want %q", d.Reason, test.reason)
	}
	if len(observed) != 1 || observed[0] != d {
		t.Errorf("observed %+v; want once %+v", observed, d)
	}
	if s := m.Stats(); s.Requests[test.reason] != 1 || total(s) != 1 {
		t.Errorf("counted as %v", s)
	}
	hint := map[ampcors.Reason]string{
		ampcors.ReasonNoOriginUnsafe:   `; browsers send Origin, and the AMP runtime "AMP-Same-Origin: true" to its own host`,
		ampcors.ReasonMethodNotAllowed: "; the configuration lists those beyond GET, HEAD and POST in methods",
	}[test.reason]
	body := rec.Body.String()
	if test.reason == ampcors.ReasonHeaderNotAllowed { // TestADeniedHeaderIsNamed
		body, _, _ = strings.Cut(body, ": \"")
		body, _, _ = strings.Cut(body, "; Access-Control-Request-Headers is longer")
		body += "\n"
	}
	if rec.Code == http.StatusForbidden && body != "Forbidden: "+test.reason.String()+hint+"\n" {
		t.Errorf("body %q", rec.Body)
	}
}

// TestAnUnverifiedOriginNamesNoPublisher: a request that only Sec-Fetch-Site: same-origin
// allows is from the API host's own page, and not from the publisher that its Origin names.
func TestAnUnverifiedOriginNamesNoPublisher(t *testing.T) {
	m := mwtest.New(t, mwtest.Config())
	r := &http.Request{Method: "POST", Header: mwtest.Headers("Origin: "+mwtest.EvilOrigin, "Sec-Fetch-Site: same-origin")}
	if got, want := m.Check(r), (ampcors.Decision{Allowed: true, Reason: ampcors.ReasonSameOrigin, Origin: mwtest.EvilOrigin}); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestStatsCountByReason(t *testing.T) {
	m := mwtest.New(t, mwtest.Config())
	h := m.Wrap(new(mwtest.Spy))
	for _, o := range []string{mwtest.CacheOrigin, mwtest.CacheOrigin, mwtest.EvilOrigin, "null", "null", "null"} {
		h.ServeHTTP(httptest.NewRecorder(), &http.Request{Method: "GET", Header: mwtest.Headers("Origin: " + o)})
	}
	s := m.Stats()
	if s.Requests[ampcors.ReasonCacheOrigin] != 2 || s.Requests[ampcors.ReasonPublisherNotAllowed] != 1 ||
		s.Requests[ampcors.ReasonNull] != 3 || s.Publishers != 3 || total(s) != 6 {
		t.Errorf("Stats() = %v", s)
	}
	if len(s.Requests) != int(ampcors.NumReasons)-1 {
		t.Errorf("Stats() has %d reasons; want each of %d", len(s.Requests), ampcors.NumReasons-1)
	}
	m.Check(&http.Request{Method: "GET", Header: mwtest.Headers("Origin: null")})
	if m.Stats().Requests[ampcors.ReasonNull] != 3 {
		t.Error("Check was counted")
	}
	if err := m.Reconfigure(mwtest.Config()); err != nil || m.Stats().Requests[ampcors.ReasonNull] != 3 {
		t.Errorf("Reconfigure forgot the counts, or failed: %v", err)
	}
	data, err := json.Marshal(s)
	var read struct{ Requests map[string]uint64 }
	if err = errors.Join(err, json.Unmarshal(data, &read)); err != nil {
		t.Fatal(err)
	}
	for reason, count := range s.Requests {
		if read.Requests[reason.String()] != count {
			t.Errorf("%s: %d in %s", reason, count, data)
		}
	}
}

// Stats counts how many requests came from each cache, and when the last one did, also after it is no longer
// trusted. Whatever clients send, no other cache is counted.
func TestStatsCountByCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := mwtest.Config()
		cfg.Caches = cacheurl.DefaultCaches()[:2] // Google's and Bing's
		m := mwtest.New(t, cfg)
		ask := func(origins ...string) {
			for _, origin := range origins {
				m.Handle(httptest.NewRecorder(), &http.Request{Method: "GET", Header: mwtest.Headers("Origin: " + origin)})
			}
		}
		want := func(google, bing ampcors.CacheStats) {
			t.Helper()
			s := m.Stats()
			if len(s.Caches) != 2 || s.Caches["google"] != google || s.Caches["bing"] != bing {
				t.Errorf("%+v; want google %+v, bing %+v", s.Caches, google, bing)
			}
			if n := s.Requests[ampcors.ReasonCacheOrigin] + s.Requests[ampcors.ReasonCacheOriginHash]; n != google.Requests+bing.Requests {
				t.Errorf("%d requests of cache origins", n)
			}
		}
		none := ampcors.CacheStats{}
		want(none, none)
		ask(mwtest.CacheOrigin, "https://"+mwtest.Hash("www.example.com")+".cdn.ampproject.org", mwtest.EvilOrigin, mwtest.OwnOrigin, "null",
			"https://cdn.ampproject.org")
		first := time.Now()
		want(ampcors.CacheStats{Requests: 2, Last: first}, none)
		time.Sleep(time.Hour)
		ask(strings.Replace(mwtest.CacheOrigin, "cdn.ampproject.org", "www.bing-amp.com", 1), mwtest.EvilOrigin)
		bing := ampcors.CacheStats{Requests: 1, Last: time.Now()}
		want(ampcors.CacheStats{Requests: 2, Last: first}, bing)
		cfg.Caches = cfg.Caches[:1]
		if err := m.Reconfigure(cfg); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		ask(mwtest.CacheOrigin)
		want(ampcors.CacheStats{Requests: 3, Last: time.Now()}, bing)
	})
}

// net/http's protection against CSRF, behind ampcors, denies each POST of a page on a cache, which ampcors has
// allowed. ampcors alone denies forged requests.
func TestCrossOriginProtectionIsNotNeeded(t *testing.T) {
	m, csrf, api := mwtest.New(t, mwtest.Config()), http.NewCrossOriginProtection(), new(mwtest.Handler202)
	for name, test := range map[string]struct {
		handler         http.Handler
		allowed, forged int
	}{
		"ampcors alone":         {m.Wrap(api), http.StatusAccepted, http.StatusForbidden},
		"behind ampcors":        {m.Wrap(csrf.Handler(api)), http.StatusForbidden, http.StatusForbidden},
		"in front of ampcors":   {csrf.Handler(m.Wrap(api)), http.StatusForbidden, http.StatusForbidden},
		"alone, for comparison": {csrf.Handler(api), http.StatusForbidden, http.StatusForbidden},
	} {
		for origin, want := range map[string]int{mwtest.CacheOrigin: test.allowed, mwtest.EvilOrigin: test.forged} {
			rec := httptest.NewRecorder()
			r := httptest.NewRequest("POST", "https://api.example.com/", nil)
			r.Header = mwtest.Headers("Origin: "+origin, "Sec-Fetch-Site: cross-site")
			if test.handler.ServeHTTP(rec, r); rec.Code != want {
				t.Errorf("%s: a POST of %s gets %d; want %d", name, origin, rec.Code, want)
			}
		}
	}
}

func TestStatsLoseNoCount(t *testing.T) {
	m := mwtest.New(t, mwtest.Config())
	const workers, each = 4, 20_000
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			w, r := discard{make(http.Header)}, &http.Request{Method: "GET"}
			for range each {
				clear(w.h)
				m.Handle(w, r)
			}
		})
	}
	group.Wait()
	if n := m.Stats().Requests[ampcors.ReasonNoOrigin]; n != workers*each {
		t.Errorf("%d requests were counted as %d", workers*each, n)
	}
}

// TestTheHandlerGetsTheServersOwnResponseWriter: streaming and hijacking work only
// with that.
func TestTheHandlerGetsTheServersOwnResponseWriter(t *testing.T) {
	rec := httptest.NewRecorder()
	h := mwtest.New(t, mwtest.Config()).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if w != http.ResponseWriter(rec) {
			t.Errorf("the handler got a %T", w)
		}
	}))
	h.ServeHTTP(rec, &http.Request{Method: "GET", Header: mwtest.Headers("Origin: " + mwtest.CacheOrigin)})
}

// TestObserveSeesTheRequestBeforeAnythingIsWritten: it may measure how long the
// handler takes, and must not be able to change what is sent.
func TestObserveSeesTheRequestBeforeAnythingIsWritten(t *testing.T) {
	for _, origin := range []string{mwtest.CacheOrigin, mwtest.EvilOrigin} {
		t.Run(origin, func(t *testing.T) {
			rec, handler, observed := httptest.NewRecorder(), new(mwtest.Spy), false
			cfg := mwtest.Config()
			cfg.Observe = func(*http.Request, ampcors.Decision) {
				observed = !handler.Ran && len(rec.Header()) == 0 && rec.Body.Len() == 0
			}
			mwtest.New(t, cfg).Wrap(handler).ServeHTTP(rec, &http.Request{Method: "GET", Header: mwtest.Headers("Origin: " + origin)})
			if !observed {
				t.Errorf("%s: observed late, or not at all", origin)
			}
		})
	}
}

// TestEveryStatusOfAFileServerGetsCORSHeaders: browsers and caches send conditional requests and range
// requests for fonts, so that 304, 206 and 416 need the headers, too.
func TestEveryStatusOfAFileServerGetsCORSHeaders(t *testing.T) {
	files := fstest.MapFS{"font.woff2": {Data: []byte("a font"), ModTime: time.Unix(1e9, 0)}}
	h := mwtest.New(t, mwtest.Config()).Wrap(http.FileServerFS(files))
	for _, test := range []struct {
		origin, line string
		status       int
	}{
		{origin: mwtest.CacheOrigin, line: "Accept: */*", status: http.StatusOK},
		{origin: mwtest.CacheOrigin, line: "If-Modified-Since: " + time.Unix(1e9, 0).UTC().Format(http.TimeFormat),
			status: http.StatusNotModified},
		{origin: mwtest.CacheOrigin, line: "Range: bytes=0-1", status: http.StatusPartialContent},
		{origin: mwtest.CacheOrigin, line: "Range: bytes=9-10", status: http.StatusRequestedRangeNotSatisfiable},
		{origin: mwtest.EvilOrigin, line: "Accept: */*", status: http.StatusForbidden},
	} {
		t.Run(test.origin, func(t *testing.T) {
			rec := httptest.NewRecorder()
			r := httptest.NewRequest("GET", "/font.woff2", nil)
			r.Header = mwtest.Headers("Origin: "+test.origin, test.line)
			h.ServeHTTP(rec, r)
			want := test.origin
			if test.status == http.StatusForbidden {
				want = ""
			}
			if got := rec.Header(); rec.Code != test.status || got.Get("Access-Control-Allow-Origin") != want || got.Get("Vary") != "Origin" {
				t.Errorf("%s, %s: status %d, headers %v", test.origin, test.line, rec.Code, got)
			}
		})
	}
}

// total returns how many requests are counted.
func total(s ampcors.Stats) (n uint64) {
	for _, count := range s.Requests {
		n += count
	}
	return n
}

// A list has one fingerprint in any order and spelling, and each other list has another.
func TestTheFingerprintOfAList(t *testing.T) {
	of := func(publishers ...string) uint64 {
		return mwtest.New(t, ampcors.Config{Publishers: publishers}).Stats().Fingerprint
	}
	list := of("www.example.com", "bücher.example", "*.acme.example", "*.b.example")
	if again := of("*.B.example", "xn--bcher-kva.example", "*.acme.example", "WWW.example.com", "www.example.com"); again != list ||
		list == 0 || list >= 1<<48 {
		t.Errorf("%d and %d", list, again)
	}
	seen := map[uint64]bool{list: true}
	for _, other := range [][]string{{"www.example.com", "bücher.example", "*.acme.example"}, {"www.example.com"}, {"*.example.com"},
		{"example.com"}, {"*.a.example", "*.b.example"},
		{"*.a.example", "b.example"}} {
		if f := of(other...); seen[f] {
			t.Errorf("%q has the fingerprint of another list", other)
		} else {
			seen[f] = true
		}
	}
}
