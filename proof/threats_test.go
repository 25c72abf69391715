package proof

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/mwtest"
	"github.com/ampcors/ampcors/source"
)

// Each test in this file is named after a threat, and fails if the code that stops the
// threat is removed. More origins that must not get in are in conformance/origins.json.

// wantDenied fails if the origin is allowed, or if a POST from it reaches the handler or
// gets CORS headers.
func wantDenied(t *testing.T, m *ampcors.Middleware, origin string, want ampcors.Reason) {
	t.Helper()
	if d := m.CheckOrigin(origin); d.Allowed || d.Reason != want {
		t.Errorf("%.100q: allowed: %t, %q; want %q", origin, d.Allowed, d.Reason, want)
	}
	rec, handler := httptest.NewRecorder(), new(mwtest.Spy)
	m.Wrap(handler).ServeHTTP(rec, &http.Request{Method: "POST", Header: http.Header{"Origin": {origin}}})
	if handler.Ran || rec.Code != http.StatusForbidden || rec.Header()["Access-Control-Allow-Origin"] != nil {
		t.Errorf("%.100q: status %d, the handler ran: %t, headers %v", origin, rec.Code, handler.Ran, rec.Header())
	}
}

// TestThreatAPatternOverAnAMPCache: a pattern may cover a cache that is not
// trusted, or the host of a cache's third-party frames. Any page can be there.
func TestThreatAPatternOverAnAMPCache(t *testing.T) {
	m := mwtest.New(t, ampcors.Config{
		Publishers: []string{"*.org", "*.net"}, DangerouslyAllowPublicSuffixWildcards: true,
		Caches: append(cacheurl.DefaultCaches()[1:], cacheurl.Cache{ID: "own", CacheDomain: "amp.example.org",
			ThirdPartyFrameDomainSuffix: "frames.example.net"}),
	})
	wantDenied(t, m, "https://d-1.frames.example.net", ampcors.ReasonUnknownHost)
	wantDenied(t, m, mwtest.EvilOrigin, ampcors.ReasonUnknownHost)
	wantDenied(t, m, "https://cdn.ampproject.org", ampcors.ReasonUnknownHost)
	wantDenied(t, m, "https://d-1.ampproject.net", ampcors.ReasonUnknownHost)
	wantDenied(t, m, "https://ampproject.net", ampcors.ReasonUnknownHost)
	if d := m.CheckOrigin("https://www.ampproject.org"); !d.Allowed {
		t.Errorf("the pattern's own pages are denied: %s", d.Reason)
	}
}

// TestThreatAPatternOverACachesHost: the host is reserved however an origin names it.
func TestThreatAPatternOverACachesHost(t *testing.T) {
	own := cacheurl.Cache{ID: "own", CacheDomain: "amp.example.com"}
	for _, cfg := range []ampcors.Config{
		{Publishers: []string{"*.example.com"}, Caches: append(cacheurl.DefaultCaches(), own)},
		{Publishers: []string{"*.ampproject.org"}},
		{Publishers: []string{"*.bing-amp.com"}},
		{Publishers: []string{"*.cdn.ampproject.org"}},
		{Publishers: []string{"*.a.cdn.ampproject.org"}},
		{Publishers: []string{"*.ampproject.net"}},
		{Publishers: []string{"*.bing-amp.net"}},
	} {
		t.Run(cfg.Publishers[0], func(t *testing.T) {
			if _, err := ampcors.New(cfg); err == nil || !strings.Contains(err.Error(), "a host of an AMP Cache") {
				t.Error(err)
			}
		})
	}
	// A pattern for a public suffix has caches below it. A switch allows such patterns.
	for _, fromSource := range []bool{false, true} {
		t.Run(fmt.Sprint(fromSource), func(t *testing.T) {
			cfg := ampcors.Config{Publishers: []string{"*.com", "*.org"}, Caches: append(cacheurl.DefaultCaches(), own),
				DangerouslyAllowPublicSuffixWildcards: true}
			if fromSource {
				cfg.Publishers = nil
				cfg.Source = mwtest.NewSource(t, source.Database{PublisherByDomain: mwtest.Confirms(func(context.Context, string) (bool,
					error) {
					return true, nil
				})})
			}
			m := mwtest.New(t, cfg)
			for _, origin := range []string{
				"https://evil--com-amp-example-com.cdn.ampproject.org", "https://amp-example-com.cdn.ampproject.org",
				"https://www-example-com-cdn-ampproject-org.amp.example.com",
				"https://a-www-bing--amp-com.cdn.ampproject.org", "https://" + plainToASCII("bücher-amp-example-com") + ".cdn.ampproject.org",
			} {
				wantDenied(t, m, origin, ampcors.ReasonPublisherNotAllowed)
				steps := m.Explain(origin).Steps
				if step := steps[len(steps)-2]; step.Name != "publisher" || step.OK || !strings.Contains(step.Detail, "anybody's page") {
					t.Errorf("%s is explained by %+v", origin, step)
				}
			}
			if d := m.CheckOrigin("https://blog-example-com.cdn.ampproject.org"); !d.Allowed {
				t.Errorf("%+v", d)
			}
		})
	}
}

// TestThreatAnAmbiguousPrefix: AMP's implementations give one prefix to a listed publisher and to a host that
// anybody can register. However the publisher is known, the prefix is denied, and the hash prefix
// is not.
func TestThreatAnAmbiguousPrefix(t *testing.T) {
	const (
		publisher = "www.xn--lstekas-s3a.lv" // www.lāstekas.lv
		prefix    = "xn--www-lstekas-lv-pub"
	)
	if text := plainText(publisher); formToolbox(text) != prefix || formToolbox("xn-www.lstekas.lv.pub") != prefix {
		t.Fatal("these do not share a prefix")
	}
	origin, hash := "https://"+prefix+".cdn.ampproject.org", "https://"+plainHash(publisher)+".cdn.ampproject.org"
	fromSource, _ := mwtest.WithSource(t, ampcors.Config{Publishers: []string{publisher, "xn-www.lstekas.lv.pub"}})
	for name, cfg := range map[string]ampcors.Config{
		"listed":      {Publishers: []string{publisher}},
		"both listed": {Publishers: []string{publisher, "xn-www.lstekas.lv.pub"}},
		"pattern":     {Publishers: []string{"*.xn--lstekas-s3a.lv", "*.lv.pub"}},
		"source":      fromSource,
	} {
		t.Run(name, func(t *testing.T) {
			m := mwtest.New(t, cfg)
			wantDenied(t, m, origin, ampcors.ReasonAmbiguousPrefix)
			if d := m.CheckOrigin(origin); d.ClaimedPublisher != "" {
				t.Errorf("the prefix is said to be that of %q", d.ClaimedPublisher)
			}
			if d := m.CheckOrigin(hash); d.Publisher != publisher && name != "pattern" {
				t.Errorf("the hash prefix is decided as %+v", d)
			}
			steps := m.Explain(origin).Steps
			if step := steps[len(steps)-2]; step.Value != publisher || step.OK || !strings.Contains(step.Detail, `"xn-www.lstekas.lv.pub"`) {
				t.Errorf("it is explained by %+v", step)
			}

			cfg.DangerouslyAllowAmbiguousPrefixes = true
			if err := m.Reconfigure(cfg); err != nil {
				t.Fatal(err)
			}
			if d := m.CheckOrigin(origin); d.Publisher != publisher {
				t.Errorf("with the switch, it is decided as %+v", d)
			}
			cfg.DangerouslyAllowAmbiguousPrefixes = false
			if err := m.Reconfigure(cfg); err != nil {
				t.Fatal(err)
			}
			wantDenied(t, m, origin, ampcors.ReasonAmbiguousPrefix) // a Source's remembered answer does not let it in
		})
	}
	if _, err := cacheurl.PublisherDomain(prefix); err == nil || !strings.Contains(err.Error(), "also the prefix of another host") {
		t.Errorf("PublisherDomain: %v", err)
	}
}

// TestThreatAClientThatExpects100Continue: httputil.ReverseProxy clears all headers after a 1xx
// response of its backend, and a client can cause one.
func TestThreatAClientThatExpects100Continue(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Expect") != "" {
			w.WriteHeader(http.StatusContinue)
		}
		w.Header().Set("Cache-Control", "public")
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(backend.Close)
	target, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(mwtest.New(t, mwtest.Config()).Wrap(httputil.NewSingleHostReverseProxy(target)))
	t.Cleanup(server.Close)
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: a.example\r\nOrigin: " + mwtest.CacheOrigin + "\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
		"POST / HTTP/1.1\r\nHost: a.example\r\nOrigin: " + mwtest.CacheOrigin +
			"\r\nExpect: 100-Continue\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.example\r\nOrigin: " + mwtest.CacheOrigin + "\r\nExpect: 100-continue\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		in, continues := bufio.NewReader(conn), 0
		resp, err := http.ReadResponse(in, nil)
		for ; err == nil && resp.StatusCode == http.StatusContinue; resp, err = http.ReadResponse(in, nil) {
			continues++
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Header.Get("Vary") != "Origin" || resp.Header.Get("Access-Control-Allow-Origin") != mwtest.CacheOrigin {
			t.Errorf("%.10q: %v", request, resp.Header)
		}
		if want := strings.Count(request, "hi"); continues != want || string(body) != strings.Repeat("hi", want) {
			t.Errorf("%.10q: %d times 100, and %q; the server answers Expect by itself, if there is a body", request, continues, body)
		}
	}
}

// The header names of a preflight may have twice the bytes of a list of all allowed names, and those
// of AMP-Same-Origin. A line counts as one more.
func TestTheLimitOfHeaderNamesIsExact(t *testing.T) {
	const most = len("amp-same-origin") + 2*len("content-type, ")
	m := mwtest.New(t, ampcors.Config{Publishers: []string{"www.example.com"}})
	for bytes, allowed := range map[int]bool{most - 1: true, most: true, most + 1: false} {
		one := "content-type" + strings.Repeat(" ", bytes-len("content-type")-1)
		two := []string{"content-type", strings.Repeat(" ", bytes-len("content-type")-2)}
		for _, lines := range [][]string{{one}, two} {
			d := m.Check(&http.Request{Method: "OPTIONS", Header: http.Header{
				"Origin": {mwtest.CacheOrigin}, "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": lines,
			}})
			if d.Allowed != allowed {
				t.Errorf("%d bytes in %d lines: %s", bytes, len(lines), d.Reason)
			}
		}
	}
}

// TestThreatAnObserverThatChangesTheRequest: what was checked is what is granted.
func TestThreatAnObserverThatChangesTheRequest(t *testing.T) {
	cfg := mwtest.Config()
	cfg.Observe = func(r *http.Request, _ ampcors.Decision) {
		r.Header["Access-Control-Request-Method"][0] = "DELETE"
		r.Header.Del("Access-Control-Request-Method")
		r.Header.Set("Access-Control-Request-Headers", "authorization")
		r.Header.Set("Origin", mwtest.EvilOrigin)
	}
	rec := httptest.NewRecorder()
	mwtest.New(t, cfg).Handle(rec, &http.Request{Method: "OPTIONS",
		Header: mwtest.Headers("Origin: "+mwtest.CacheOrigin, "Access-Control-Request-Method: POST",
			"Access-Control-Request-Headers: content-type")})
	h := rec.Header()
	if h.Get("Access-Control-Allow-Origin") != mwtest.CacheOrigin || h.Get("Access-Control-Allow-Methods") != "POST" ||
		h.Get("Access-Control-Allow-Headers") != "content-type" {
		t.Errorf("granted %v", h)
	}
}

// TestThreatLineBreaks: an adapter may pass values that net/http's server would
// reject. Nothing with a line break may come back in a header.
func TestThreatLineBreaks(t *testing.T) {
	m := mwtest.New(t, ampcors.Config{Publishers: []string{"www.example.com", "*.example.net"}})
	for _, tail := range []string{"\r\n", "\n", "\r", "\r\nSet-Cookie: a=b"} {
		t.Run(tail, func(t *testing.T) {
			wantDenied(t, m, "https://"+tail+"blog.example.net", ampcors.ReasonMalformed)
			r := &http.Request{Method: "OPTIONS", Header: http.Header{
				"Origin": {mwtest.CacheOrigin}, "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"content-type" + tail},
			}}
			if d := m.Check(r); d.Allowed {
				t.Errorf("a preflight for a header with %q is allowed", tail)
			}
			r.Header["Access-Control-Request-Headers"], r.Header["Access-Control-Request-Method"] = nil, []string{"POST" + tail}
			if d := m.Check(r); d.Allowed {
				t.Errorf("a preflight for a method with %q is allowed", tail)
			}
		})
	}
}

// TestThreatHugeOrigin counts the allocations, which do not depend on the machine.
// A huge value must not cause any.
func TestThreatHugeOrigin(t *testing.T) {
	m := mwtest.New(t, mwtest.Config())
	for _, head := range []string{"", "https://", "http://", "https://a.", "https://xn--", "null"} {
		t.Run(head, func(t *testing.T) {
			for _, tail := range []string{"", ".example.net", ".cdn.ampproject.org"} {
				huge := head + strings.Repeat("a-", 1<<19) + tail
				wantDenied(t, m, huge, ampcors.ReasonMalformed)
				if n := testing.AllocsPerRun(100, func() { m.CheckOrigin(huge) }); n != 0 {
					t.Errorf("%q and 1 MiB: %v allocations", head, n)
				}
			}
		})
	}
	// The longest Origin that is read has 267 bytes.
	if over := "https://" + strings.Repeat("a", 253) + ":65535x"; m.Explain(over).Steps[0].OK {
		t.Errorf("an Origin of %d bytes is read", len(over))
	}
	longest := "https://" + strings.Repeat("a.", (253-len("example.net"))/2) + "example.net"
	if d := m.CheckOrigin(longest); !d.Allowed || len(longest) != 267-len(":65535") {
		t.Errorf("an own origin of %d bytes: %s", len(longest), d.Reason)
	}
}

func TestThreatHugePreflight(t *testing.T) {
	m := mwtest.New(t, mwtest.Config())
	for name, lines := range map[string][]string{
		"one name":     {strings.Repeat("a", 1<<20)},
		"many names":   {strings.Repeat("content-type,", 1<<20/13)},
		"many commas":  {strings.Repeat(",", 1<<20)},
		"many spaces":  {strings.Repeat(" ", 1<<20)},
		"many lines":   make([]string, 1<<20),
		"upper case":   {strings.Repeat("A", 1<<20)},
		"other script": {strings.Repeat("İ", 1<<19)},
	} {
		t.Run(fmt.Sprintf("%.40s", name), func(t *testing.T) {
			r := &http.Request{Method: "OPTIONS", Header: http.Header{
				"Origin": {mwtest.CacheOrigin}, "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": lines,
			}}
			if d := m.Check(r); d.Reason != ampcors.ReasonHeaderNotAllowed {
				t.Errorf("%s: %s", name, d.Reason)
			}
			if n := testing.AllocsPerRun(100, func() { m.Check(r) }); n != 0 {
				t.Errorf("%s: %v allocations", name, n)
			}
		})
	}
}

// TestThreatAHandlerThatChangesHeaderSlices: what one handler does to its response
// must not change the next one or the configuration.
func TestThreatAHandlerThatChangesHeaderSlices(t *testing.T) {
	cfg := mwtest.EmailConfig()
	cfg.MaxAge = time.Minute
	m := mwtest.New(t, cfg)
	for _, r := range []*http.Request{
		{Method: "GET", Header: mwtest.Headers("AMP-Email-Sender: news@example.com")},
		{Method: "GET", Header: mwtest.Headers("Origin: " + mwtest.MailOrigin), URL: &url.URL{RawQuery: "__amp_source_origin=news@example.com"}},
		{Method: "GET", Header: mwtest.Headers("Origin: " + mwtest.CacheOrigin)},
		{Method: "GET", Header: mwtest.Headers()},
		{Method: "OPTIONS", Header: mwtest.Headers("Origin: "+mwtest.CacheOrigin, "Access-Control-Request-Method: POST",
			"Access-Control-Request-Headers: content-type")},
		{Method: "POST", Header: mwtest.Headers("Origin: " + mwtest.EvilOrigin)},
	} {
		var first http.Header
		for range 3 {
			rec := httptest.NewRecorder()
			m.Handle(rec, r)
			got := rec.Header().Clone()
			if first == nil {
				first = got
			} else if fmt.Sprint(got) != fmt.Sprint(first) {
				t.Errorf("after a handler changed its headers, the next response has %v; want %v", got, first)
			}
			for key, values := range rec.Header() {
				_ = append(values, "grown into the neighbour")
				if fmt.Sprint(rec.Header()) != fmt.Sprint(first) {
					t.Errorf("appending to %s changed another header: %v", key, rec.Header())
				}
			}
			for key, values := range rec.Header() {
				_ = append(values[:0], "overwritten")
				values[0] = key + " overwritten"
			}
		}
	}
	// An outer middleware's Vary may be a slice with spare capacity that all requests share.
	shared := append(make([]string, 0, 8), "Outer")
	rec := httptest.NewRecorder()
	rec.Header()["Vary"] = shared
	m.Handle(rec, &http.Request{Method: "GET", Header: mwtest.Headers("Origin: " + mwtest.CacheOrigin)})
	if got := shared[:2]; got[1] != "" {
		t.Errorf("the outer middleware's slice was written to: %q", got)
	}
}

// TestThreatReconfigurationUnderLoad calls everything at once. Each response must come
// from one of the two configurations, never from both. Run it with -race.
func TestThreatReconfigurationUnderLoad(t *testing.T) {
	before := runtime.NumGoroutine()
	one := ampcors.Config{Publishers: []string{"one.example"}, Credentialed: true, ResponseHeaders: []string{"X-One"}}
	two := ampcors.Config{Publishers: []string{"two.example"}, ResponseHeaders: []string{"X-Two"},
		Observe: func(*http.Request, ampcors.Decision) {}}
	m := mwtest.New(t, one)
	var ofOne, ofTwo atomic.Int32 // grants
	origins := []string{
		"https://one-example.cdn.ampproject.org", "https://two-example.cdn.ampproject.org",
		"https://" + plainHash("one.example") + ".cdn.ampproject.org", "https://" + plainHash("two.example") + ".www.bing-amp.com",
		"https://one.example", "https://two.example", "https://xn--bcher-ch-65a.cdn.ampproject.org",
	}
	stop := make(chan struct{})
	var workers sync.WaitGroup
	work := func(f func()) {
		workers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	for range 4 {
		work(func() {
			r := &http.Request{Method: "GET", Header: http.Header{"Origin": {origins[rand.IntN(len(origins))]}}}
			rec := httptest.NewRecorder()
			m.Wrap(new(mwtest.Spy)).ServeHTTP(rec, r)
			h := rec.Header()
			acao, exposed, creds := h.Get("Access-Control-Allow-Origin"), h.Get("Access-Control-Expose-Headers"),
				h.Get("Access-Control-Allow-Credentials")
			isOne := strings.Contains(acao, "one") || strings.Contains(acao, plainHash("one.example"))
			switch {
			case acao == "":
			case isOne:
				ofOne.Add(1)
			default:
				ofTwo.Add(1)
			}
			if acao != "" && (isOne != (exposed == "X-One") || isOne != (creds == "true")) {
				t.Errorf("a mixture of two configurations: %v", h)
			}
		})
	}
	for _, cfg := range []ampcors.Config{one, two} {
		work(func() {
			if err := m.Reconfigure(cfg); err != nil {
				t.Error(err)
			}
		})
	}
	work(func() { m.Stats() })
	work(func() { m.CheckOrigin(origins[rand.IntN(len(origins))]) })
	work(func() { m.Explain(origins[rand.IntN(len(origins))]) })
	reached := func() bool {
		s := m.Stats().Requests
		return ofOne.Load() > 100 && ofTwo.Load() > 100 && s[ampcors.ReasonCacheOrigin] > 100 && s[ampcors.ReasonCacheOriginHash] > 100 &&
			s[ampcors.ReasonOwnOrigin] > 100 &&
			s[ampcors.ReasonPublisherNotAllowed] > 100 && s[ampcors.ReasonHashNotKnown] > 100 && s[ampcors.ReasonUnknownHost] > 100
	}
	for start := time.Now(); !reached() && time.Since(start) < time.Minute; {
		time.Sleep(50 * time.Millisecond)
	}
	close(stop)
	workers.Wait()
	if !reached() {
		t.Errorf("the load did not reach everything: %v", m.Stats())
	}
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(10 * time.Millisecond) {
		if runtime.NumGoroutine() <= before {
			return
		}
	}
	t.Errorf("%d goroutines are left over", runtime.NumGoroutine()-before)
}

// TestThreatAnOriginBufferThatChangesAfterTheRequest: adapters for fasthttp pass
// strings that share the memory of a connection's buffer.
func TestThreatAnOriginBufferThatChangesAfterTheRequest(t *testing.T) {
	listed := mwtest.New(t, mwtest.Config())
	for _, origin := range []string{mwtest.CacheOrigin, mwtest.HashOrigin, mwtest.WildOrigin, mwtest.OwnOrigin, "https://blog.example.net",
		mwtest.IDNOrigin, "https://xn--bcher-kva.ch", mwtest.EvilOrigin, mwtest.UnknownHashOrigin} {
		t.Run(origin, func(t *testing.T) {
			want := listed.CheckOrigin(origin)
			cfg, s := mwtest.WithSource(t, mwtest.Config())
			for _, m := range []*ampcors.Middleware{mwtest.New(t, mwtest.Config()), mwtest.New(t, cfg)} {
				buffer := []byte(origin)
				aliased := mwtest.UnsafeString(buffer)
				d := m.CheckOrigin(aliased)
				prefixes := cfg.Source.Stats().Prefixes
				copy(buffer, bytes.Repeat([]byte("x"), len(buffer)))
				if d.Publisher != want.Publisher || d.ClaimedPublisher != want.ClaimedPublisher {
					t.Errorf("%s became %+v", origin, d)
				}
				if again := m.CheckOrigin(origin); again != want {
					t.Errorf("%s is then decided as %+v", origin, again)
				}
				if evil := m.CheckOrigin(aliased); evil.Allowed {
					t.Errorf("the overwritten buffer is allowed: %+v", evil)
				}
				if asked := slices.Compact(slices.Sorted(slices.Values(s.Asked))); len(asked) < s.Lookups() || cfg.Source.Stats().Prefixes != prefixes {
					t.Errorf("%s: the Source was asked for %q; %d prefixes, before %d", origin, s.Asked, cfg.Source.Stats().Prefixes, prefixes)
				}
			}
		})
	}
}

// TestThreatsOverARealConnection sends raw requests to a real server.
func TestThreatsOverARealConnection(t *testing.T) {
	m := mwtest.New(t, mwtest.Config())
	server := httptest.NewServer(m.Wrap(new(mwtest.Handler202)))
	defer server.Close()
	for _, test := range []struct{ request, status string }{
		{request: "GET / HTTP/1.1\r\nHost: a\r\nOrigin: " + mwtest.CacheOrigin + "\r\n", status: "202"},
		{request: "GET / HTTP/1.1\r\nHost: a\r\norigin: " + mwtest.CacheOrigin + "\r\n", status: "202"},
		{request: "GET / HTTP/1.1\r\nHost: a\r\nOrigin: \r\n", status: "403"},
		{request: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n", status: "403"},
		{request: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\namp-same-origin: true\r\n", status: "202"},
		{request: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nOrigin: " + mwtest.CacheOrigin + "\r\norigin: " + mwtest.CacheOrigin +
			"\r\n", status: "403"},
		{request: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nOrigin: " + mwtest.EvilOrigin + "\r\nAMP-Same-Origin: true\r\n",
			status: "403"},
		{request: "OPTIONS / HTTP/1.1\r\nHost: a\r\nOrigin: " + mwtest.CacheOrigin + "\r\nAccess-Control-Request-Method: POST\r\n",
			status: "204"},
		{request: "OPTIONS * HTTP/1.1\r\nHost: a\r\nOrigin: " + mwtest.CacheOrigin + "\r\nAccess-Control-Request-Method: POST\r\n",
			status: "200"}, // net/http's own answer
	} {
		t.Run(test.request, func(t *testing.T) {
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, test.request+"Connection: close\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(conn)
			conn.Close()
			if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+test.status) {
				t.Errorf("%q is answered %.60q, %v; want %s", test.request, answer, err, test.status)
			}
			if allowed := test.status != "403" && strings.Contains(test.request, "rigin: https"); allowed != strings.Contains(string(answer),
				"Access-Control-Allow-Origin: "+mwtest.CacheOrigin) && test.status != "200" {
				t.Errorf("%q is answered %q", test.request, answer)
			}
		})
	}
}
