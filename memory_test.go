package ampcors_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/mwtest"
	"github.com/ampcors/ampcors/source"
)

// A discard is a ResponseWriter whose header map the tests reuse, so that it does not
// count as an allocation.
type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

func TestCheckOriginDoesNotAllocate(t *testing.T) {
	m := mwtest.New(t, mwtest.Config())
	cfg, s := mwtest.WithSource(t, mwtest.Config())
	remembering := mwtest.New(t, cfg)
	longName := strings.Repeat("long-name.", 5) + "example" // too long for the compiler's buffer on the stack
	s.Add(longName)
	longPrefix, _ := cacheurl.DomainPrefix(longName)
	for _, origin := range []string{mwtest.CacheOrigin, mwtest.BingOrigin, mwtest.HashOrigin, mwtest.IDNOrigin, mwtest.OwnOrigin, "https://" +
		longPrefix + ".cdn.ampproject.org", "https://" + longName} {
		t.Run(origin, func(t *testing.T) {
			if !remembering.CheckOrigin(origin).Allowed {
				t.Errorf("%q is not allowed", origin)
			}
			if n := testing.AllocsPerRun(100, func() { remembering.CheckOrigin(origin) }); n != 0 {
				t.Errorf("%.60q, answered by a Source before: %v allocations", origin, n)
			}
		})
	}
	for _, origin := range []string{
		mwtest.CacheOrigin, mwtest.BingOrigin, mwtest.HashOrigin, mwtest.IDNOrigin, mwtest.OwnOrigin, mwtest.PlaygroundOrigin,
		mwtest.UnknownHashOrigin, "null", "", "http://www.example.com",
		"https://evil.example", "https://cdn.ampproject.org", "https://0-a-b-0.cdn.ampproject.org", strings.Repeat("x", 1<<20),
	} {
		t.Run(fmt.Sprintf("%.40s", origin), func(t *testing.T) {
			if n := testing.AllocsPerRun(100, func() { m.CheckOrigin(origin) }); n != 0 {
				t.Errorf("%.60q: %v allocations", origin, n)
			}
		})
	}
	// The publishers of these are not stored anywhere, so the decision copies the name.
	for _, origin := range []string{mwtest.WildOrigin, "https://blog.example.net", mwtest.EvilOrigin} {
		t.Run(origin, func(t *testing.T) {
			if n := testing.AllocsPerRun(100, func() { m.CheckOrigin(origin) }); n != 1 {
				t.Errorf("%q: %v allocations; want 1, for the name", origin, n)
			}
		})
	}
}

func TestAnAllowedRequestCostsOneAllocation(t *testing.T) {
	cfg := mwtest.Config()
	cfg.RequestHeaders = []string{"X-Requested-With"}
	m := mwtest.New(t, cfg)
	h := m.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	w := discard{make(http.Header)}
	for _, origin := range []string{mwtest.CacheOrigin, mwtest.BingOrigin, mwtest.HashOrigin, mwtest.IDNOrigin, mwtest.OwnOrigin,
		mwtest.PlaygroundOrigin, mwtest.WildOrigin, "https://blog.example.net"} {
		t.Run(origin, func(t *testing.T) {
			r := &http.Request{Method: "GET", Header: http.Header{"Origin": {origin}}}
			if n := testing.AllocsPerRun(100, func() { clear(w.h); h.ServeHTTP(w, r) }); n != 1 {
				t.Errorf("%q: %v allocations; want 1", origin, n)
			}
			if w.h.Get("Access-Control-Allow-Origin") != origin {
				t.Errorf("%q is not allowed", origin)
			}
		})
	}
	withEmail := mwtest.New(t, mwtest.EmailConfig()).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, r := range []*http.Request{
		{Method: "GET", Header: mwtest.Headers("AMP-Email-Sender: a@xn--bcher-kva.example")},
		{Method: "GET", Header: mwtest.Headers("Origin: " + mwtest.MailOrigin),
			URL: &url.URL{RawQuery: "__amp_source_origin=a@xn--bcher-kva.example"}},
		{Method: "GET", Header: mwtest.Headers("Origin: " + mwtest.CacheOrigin)},
	} {
		if n := testing.AllocsPerRun(100, func() { clear(w.h); withEmail.ServeHTTP(w, r) }); n != 1 {
			t.Errorf("with Email, %v: %v allocations; want 1", r.Header, n)
		}
	}
	for _, names := range []string{"content-type", "content-type,x-requested-with"} {
		t.Run(names, func(t *testing.T) {
			r := &http.Request{Method: "OPTIONS", Header: mwtest.Headers("Origin: "+mwtest.CacheOrigin, "Access-Control-Request-Method: POST",
				"Access-Control-Request-Headers: "+names)}
			if n := testing.AllocsPerRun(100, func() { clear(w.h); h.ServeHTTP(w, r) }); n != 1 {
				t.Errorf("a preflight for %s: %v allocations; want 1", names, n)
			}
			if w.h.Get("Access-Control-Allow-Headers") != names {
				t.Errorf("a preflight for %s is not allowed", names)
			}
		})
	}
}

// heap returns how many bytes are in use after garbage collection.
func heap() int64 {
	runtime.GC()
	runtime.GC() // the second frees objects that had a finalizer
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestAMillionPublishersTakeLittleMemory measures everything that a Middleware keeps: the
// names, their hashes, and the rest of the Config.
func TestAMillionPublishersTakeLittleMemory(t *testing.T) {
	if mwtest.RaceEnabled {
		t.Skip("the race detector's own memory would count")
	}
	const n, most = 1_000_000, 48 // bytes for each publisher, in addition to its name
	names := int64(0)
	cfg := ampcors.Config{Publishers: make([]string, n)}
	for i := range cfg.Publishers {
		cfg.Publishers[i] = fmt.Sprintf("www.site-%d.example", i)
		names += int64(len(cfg.Publishers[i]))
	}
	before := heap()
	m, err := ampcors.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	each := float64(heap()-before-names) / n
	t.Logf("%.1f bytes for each publisher, in addition to its name", each)
	if each > most {
		t.Errorf("%.1f bytes for each publisher, in addition to its name; want %d at most", each, most)
	}
	for i, name := range []string{cfg.Publishers[0], cfg.Publishers[n/2], cfg.Publishers[n-1]} {
		t.Run(name, func(t *testing.T) {
			if d := m.CheckOrigin("https://" + mwtest.Hash(name) + ".cdn.ampproject.org"); d.Publisher != name {
				t.Errorf("publisher %d by hash: %+v", i, d)
			}
		})
	}
}

func TestNewDoesNotRetainTheTextOfAList(t *testing.T) {
	if mwtest.RaceEnabled {
		t.Skip("the race detector's own memory would count")
	}
	for _, names := range [][]string{{"www.example.com"}, {"www.example.com", "example.net"}} {
		t.Run(fmt.Sprint(names), func(t *testing.T) {
			before := heap()
			text := strings.Repeat(" ", 10<<20) + strings.Join(names, "\n")
			m, err := ampcors.New(ampcors.Config{Publishers: strings.Split(text[10<<20:], "\n")})
			if err != nil {
				t.Fatal(err)
			}
			if grown := heap() - before; grown > 1<<20 {
				t.Errorf("%d publishers keep %d bytes", len(names), grown)
			}
			runtime.KeepAlive(m)
		})
	}
}

// TestTheMemoryOfASourceIsBounded stores twice as many publishers, or negative answers, as the
// limit.
func TestTheMemoryOfASourceIsBounded(t *testing.T) {
	if mwtest.RaceEnabled {
		t.Skip("the race detector's own memory would count")
	}
	for _, test := range []struct {
		name        string // a format that gives names of equal length
		byHash      bool
		isPublisher bool
		most        float64 // bytes for each entry of MaxEntries
	}{
		{name: "www.%014d.com", isPublisher: true, most: 210},
		{name: "www.%014d.com", byHash: true, isPublisher: true, most: 410},
		{name: "www.%014d.com", isPublisher: false, most: 250},
		{name: "www.%014d.com", byHash: true, isPublisher: false, most: 250},
		{name: strings.Repeat("a.", 100) + "%051d.c", isPublisher: true, most: 450},
		{name: strings.Repeat("a.", 100) + "%051d.c", isPublisher: false, most: 500},
	} {
		t.Run(fmt.Sprintf("%.40s/hash=%t/publisher=%t", test.name, test.byHash, test.isPublisher), func(t *testing.T) {
			const size = 20_000
			cache, asked := oddSource(t, source.Config{MaxEntries: size})
			m := mwtest.New(t, ampcors.Config{Source: cache})
			before := heap()
			for i := range 2 * size {
				n := 2 * i
				if test.isPublisher {
					n++
				}
				domain := fmt.Sprintf(test.name, n)
				origin := "https://" + domain
				if test.byHash {
					origin = "https://" + mwtest.Hash(domain) + ".cdn.ampproject.org"
					*asked = domain
				}
				m.CheckOrigin(origin)
			}
			each := float64(heap()-before) / size
			stats := cache.Stats()
			t.Logf("names of %d bytes, publishers: %t: %.0f bytes for each entry", len(fmt.Sprintf(test.name, 0)), test.isPublisher, each)
			if stats.Publishers+stats.Negatives != size || each > test.most {
				t.Errorf("%.0f bytes for each entry; want %.0f at most; %+v", each, test.most, stats)
			}
			runtime.KeepAlive(m)
		})
	}
}

// oddSource knows the names with an odd number. By hash prefix it knows only the one in asked, so
// that it needs no memory.
func oddSource(t *testing.T, options source.Config) (c *source.Source, asked *string) {
	asked = new(string)
	isOdd := func(domain string) bool {
		digits := strings.TrimRight(domain, ".com")
		return (digits[len(digits)-1]-'0')%2 == 1
	}
	return mwtest.NewSource(t, source.Database{
		PublisherByDomain: mwtest.Confirms(func(_ context.Context, domain string) (bool, error) { return isOdd(domain), nil }),
		PublisherByHash: func(context.Context, string) (string, error) {
			if !isOdd(*asked) {
				return "", nil
			}
			return *asked, nil
		},
	}, options), asked
}

// TestInventedOriginsLeaveNothingBehind sends many different origins of every kind. None
// of them may be kept in memory.
func TestInventedOriginsLeaveNothingBehind(t *testing.T) {
	if mwtest.RaceEnabled {
		t.Skip("the race detector's own memory would count")
	}
	const n, most = 20_000, 64 << 10 // bytes in total: about three for each request
	m := mwtest.New(t, mwtest.Config())
	h, w := m.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), discard{make(http.Header)}
	hash := func(i int) string { return mwtest.Hash(fmt.Sprint(i)) }
	for name, host := range map[string]func(i int) string{
		"a publisher that is denied":          func(i int) string { return fmt.Sprintf("site-%d-example.cdn.ampproject.org", i) },
		"a pattern's host":                    func(i int) string { return fmt.Sprintf("site-%d.example.net", i) },
		"a pattern's host on a cache":         func(i int) string { return fmt.Sprintf("site--%d-example-net.cdn.ampproject.org", i) },
		"an internationalized pattern's host": func(i int) string { return mwtest.ALabel(fmt.Sprintf("bücher-%d", i)) + ".example.net" },
		"an internationalized pattern's host on a cache": func(i int) string {
			return mwtest.ALabel(fmt.Sprintf("bücher--%d-example-net", i)) + ".cdn.ampproject.org"
		},
		"punycode that is not accepted":       func(i int) string { return mwtest.ALabel(fmt.Sprintf("é-%d-ا-日-ß", i)) + ".cdn.ampproject.org" },
		"a hash":                              func(i int) string { return hash(i) + ".cdn.ampproject.org" },
		"a hash prefix that is not canonical": func(i int) string { return hash(i)[:51] + "b.cdn.ampproject.org" },
	} {
		t.Run(name, func(t *testing.T) {
			before := heap()
			for i := range n {
				clear(w.h)
				h.ServeHTTP(w, &http.Request{Method: "GET", Header: http.Header{"Origin": {"https://" + host(i)}}})
			}
			if grown := heap() - before; grown > most {
				t.Errorf("%s: after %d requests, %d bytes are kept", name, n, grown)
			}
		})
	}
	runtime.KeepAlive(m)
}

// TestReconfigureReleasesTheOldList: a Source's answers are kept, but they must not
// keep the old configuration in memory.
func TestReconfigureReleasesTheOldList(t *testing.T) {
	if mwtest.RaceEnabled {
		t.Skip("the race detector's own memory would count")
	}
	list := make([]string, 100_000)
	for i := range list {
		list[i] = fmt.Sprintf("www.site-%d.example", i)
	}
	cache, _ := oddSource(t, source.Config{})
	before := heap()
	m := mwtest.New(t, ampcors.Config{Publishers: list, Source: cache})
	if err := m.Reconfigure(ampcors.Config{Publishers: list[:1], Source: cache}); err != nil {
		t.Fatal(err)
	}
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("%d bytes of the old configuration are kept", grown)
	}
	runtime.KeepAlive(m)
}
