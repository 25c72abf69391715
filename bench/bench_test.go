package bench

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ampcors/ampcors"
	"golang.org/x/net/idna"
)

const google = "cdn.ampproject.org"

// A request of a benchmark, and the publisher whose page sends it.
type request struct {
	name      string
	publisher string
	method    string
	header    http.Header
	granted   bool     // gets Access-Control-Allow-Origin
	libraries []string // that can decide so; nil for all
}

func cacheOrigin(publisher string) string {
	prefix, err := ampcors.DomainPrefix(publisher)
	if err != nil {
		panic(err)
	}
	return "https://" + prefix + "." + google
}

func get(origin string) http.Header { return http.Header{"Origin": {origin}} }

func preflight(origin, method string) http.Header {
	h := get(origin)
	h["Access-Control-Request-Method"] = []string{method}
	h["Access-Control-Request-Headers"] = []string{"content-type"}
	return h
}

var requests = []request{
	{"allowed", ASCII, "GET", get(cacheOrigin(ASCII)), true, nil},
	{"idn", IDN, "GET", get(cacheOrigin(IDN)), true, nil},
	{"hash-only", Hashed, "GET", get(cacheOrigin(Hashed)), true, nil},
	{"own", ASCII, "GET", get("https://" + ASCII), true, nil},
	{"wildcard", Wildcard, "GET", get("https://shop.wild.example"), true, nil},
	{"wildcard-cache", Wildcard, "GET", get(cacheOrigin("shop.wild.example")), true, []string{"ampcors"}},
	{"refused", ASCII, "GET", get(cacheOrigin("www.evil.example")), false, nil},
	{"garbage", ASCII, "GET", get("https://evil.example:8080/x"), false, nil},
	{"no-origin", ASCII, "GET", nil, false, nil},
	{"preflight", ASCII, "OPTIONS", preflight(cacheOrigin(ASCII), "POST"), true, nil},
	{"preflight-refused", ASCII, "OPTIONS", preflight(cacheOrigin("www.evil.example"), "POST"), false, nil},
}

// A discard is a ResponseWriter that keeps its header map from one request to the
// next, so that what is measured is the middleware and not the map.
type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

var nothing = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// numbers of publishers, from one to a platform's.
var numbers = []int{1, 100, 10_000, 1_000_000}

// wrapped calls f with each library that has a policy for the request, at each number
// of publishers. One policy is in memory at a time, and serves all requests; but one
// publisher alone is that of the request.
func wrapped(b *testing.B, numbers []int, f func(b *testing.B, h http.Handler, r *request)) {
	for _, n := range numbers {
		for _, library := range Libraries[1:] {
			var h http.Handler
			var of string
			for i := range requests {
				r := &requests[i]
				if r.libraries != nil && !slices.Contains(r.libraries, library) {
					continue
				}
				if library == "floor" && (r.name != "allowed" || n > 1) || library == "ampcorsReportOnly" && (r.granted || r.header == nil) {
					continue
				}
				b.Run(fmt.Sprintf("case=%s/publishers=%d/lib=%s", r.name, n, library), func(b *testing.B) {
					if h == nil || n == 1 && of != r.publisher {
						publishers := []string{r.publisher}
						if n > 1 {
							publishers = Publishers(n, ASCII, IDN, Hashed, Wildcard)
						}
						var err error
						if h, err = Wrap(library, publishers, nothing); err != nil {
							b.Fatal(err)
						}
						of = r.publisher
						warmUp(h, r)
					}
					f(b, h, r)
				})
			}
		}
	}
}

// warmUp lets what building a policy leaves to be done in the background come to an
// end.
func warmUp(h http.Handler, r *request) {
	runtime.GC()
	w, req := discard{make(http.Header)}, &http.Request{Method: r.method, Header: r.header}
	for start := time.Now(); time.Since(start) < 100*time.Millisecond; {
		clear(w.h)
		h.ServeHTTP(w, req)
	}
}

func TestMain(m *testing.M) {
	ballast := Ballast()
	code := m.Run()
	runtime.KeepAlive(ballast)
	os.Exit(code)
}

// BenchmarkSerial answers one request again and again.
func BenchmarkSerial(b *testing.B) {
	wrapped(b, numbers, func(b *testing.B, h http.Handler, r *request) {
		w := discard{make(http.Header)}
		req := &http.Request{Method: r.method, Header: r.header}
		h.ServeHTTP(w, req)
		if granted := w.h["Access-Control-Allow-Origin"] != nil; granted != r.granted {
			b.Fatalf("granted %v; want %v", granted, r.granted)
		}
		b.ReportAllocs()
		for b.Loop() {
			clear(w.h)
			h.ServeHTTP(w, req)
		}
	})
}

// BenchmarkSpread answers requests for publishers drawn from all that are listed, so
// that what decides on one is seldom in the processor's caches when it comes.
func BenchmarkSpread(b *testing.B) {
	const drawn = 1 << 16
	for _, n := range []int{10_000, 1_000_000} {
		publishers := Publishers(n)
		random := rand.New(rand.NewPCG(1, 2))
		headers := make([]http.Header, drawn)
		for i := range headers {
			headers[i] = get(cacheOrigin(publishers[random.IntN(n)]))
		}
		for _, library := range []string{"ampcors", "jub0bs"} { // the others search the whole list
			b.Run(fmt.Sprintf("publishers=%d/lib=%s", n, library), func(b *testing.B) {
				h, err := Wrap(library, publishers, nothing)
				if err != nil {
					b.Fatal(err)
				}
				warmUp(h, &requests[0])
				w, req, i := discard{make(http.Header)}, &http.Request{Method: "GET"}, 0
				b.ReportAllocs()
				for b.Loop() {
					clear(w.h)
					req.Header = headers[i%drawn]
					h.ServeHTTP(w, req)
					i++
				}
			})
		}
	}
}

// BenchmarkParallel answers one request on all cores at once.
func BenchmarkParallel(b *testing.B) {
	wrapped(b, []int{1, 10_000}, func(b *testing.B, h http.Handler, r *request) {
		b.ReportAllocs()
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			w := discard{make(http.Header)}
			req := &http.Request{Method: r.method, Header: r.header}
			for pb.Next() {
				clear(w.h)
				h.ServeHTTP(w, req)
			}
		})
	})
}

// BenchmarkAdversarial answers requests made to cost much. Those that are numbered
// differ each time, up to a number at which nothing that is bounded can know them
// all.
func BenchmarkAdversarial(b *testing.B) {
	const different = 1 << 16
	numbered := func(origin func(i int) string) []http.Header {
		hs := make([]http.Header, different)
		for i := range hs {
			hs[i] = get(origin(i))
		}
		return hs
	}
	longList := preflight(cacheOrigin(ASCII), "POST")
	longList["Access-Control-Request-Headers"] = []string{strings.Repeat("x,", 1<<19)}
	emptyList := preflight(cacheOrigin(ASCII), "POST")
	emptyList["Access-Control-Request-Headers"] = []string{strings.Repeat(",", 1<<20)}
	longMethod := preflight(cacheOrigin(ASCII), strings.Repeat("A", 1<<20))
	manyLines := preflight(cacheOrigin(ASCII), "POST")
	manyLines["Access-Control-Request-Headers"] = slices.Repeat([]string{"x"}, 1<<19)
	for _, c := range []struct {
		name    string
		method  string
		headers []http.Header
	}{
		{"origin-1MiB", "GET", []http.Header{get(strings.Repeat("a", 1<<20))}},
		{"origin-1MiB-of-labels", "GET", []http.Header{get("https://" + strings.Repeat("a.", 1<<19) + google)}},
		{"method-1MiB", "OPTIONS", []http.Header{longMethod}},
		{"header-names-1MiB", "OPTIONS", []http.Header{longList}},
		{"header-names-1MiB-empty", "OPTIONS", []http.Header{emptyList}},
		{"header-names-1MiB-lines", "OPTIONS", []http.Header{manyLines}},
		{"invented-hashes", "GET", numbered(inventedHash)},
		{"punycode-63", "GET", numbered(func(i int) string { return "https://" + longestPunycode(i) + "." + google })},
		{"punycode-own-253", "GET", numbered(func(i int) string {
			l := longestPunycode(i)
			return "https://" + l + "." + l + "." + l + "." + l[:len("xn--")] + l[8:]
		})},
		{"punycode-pattern-253", "GET", numbered(func(i int) string {
			l := longestPunycode(i)
			return "https://" + l + "." + l + "." + l + ".wild.example"
		})},
	} {
		for _, n := range []int{1, 10_000} {
			for _, library := range Libraries[2:] {
				b.Run(fmt.Sprintf("case=%s/publishers=%d/lib=%s", c.name, n, library), func(b *testing.B) {
					publishers := []string{ASCII}
					if n > 1 {
						publishers = Publishers(n, ASCII, IDN, Hashed, Wildcard)
					}
					h, err := Wrap(library, publishers, nothing)
					if err != nil {
						b.Fatal(err)
					}
					w := discard{make(http.Header)}
					req := &http.Request{Method: c.method}
					b.ReportAllocs()
					i := 0
					for b.Loop() {
						clear(w.h)
						req.Header = c.headers[i%len(c.headers)]
						h.ServeHTTP(w, req)
						i++
					}
				})
			}
		}
	}
}

// BenchmarkGrowth answers requests that all differ, and reports how many octets more
// are in use after all of them than before. Run it for as many as you like, with
// -benchtime=10000000x for example.
func BenchmarkGrowth(b *testing.B) {
	inUse := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for _, c := range []struct {
		name   string
		origin func(i int) string
	}{
		{"invented-hashes", inventedHash},
		{"punycode", func(i int) string {
			label, err := idna.Punycode.ToASCII(fmt.Sprintf("é-%d-日", i))
			if err != nil {
				panic(err)
			}
			return "https://" + label + "." + google
		}},
		{"pattern-hosts", func(i int) string { return fmt.Sprintf("https://shop%d.wild.example", i) }},
	} {
		b.Run("case="+c.name, func(b *testing.B) {
			h, err := Wrap("ampcors", Publishers(10_000, ASCII, IDN, Hashed, Wildcard), nothing)
			if err != nil {
				b.Fatal(err)
			}
			w, req := discard{make(http.Header)}, &http.Request{Method: "GET"}
			before := inUse()
			for i := range b.N {
				clear(w.h)
				req.Header = get(c.origin(i))
				h.ServeHTTP(w, req)
			}
			req.Header = nil
			clear(w.h)
			b.ReportMetric(inUse()-before, "B-growth")
			runtime.KeepAlive(h)
		})
	}
}

func inventedHash(i int) string {
	sum := sha256.Sum256(fmt.Append(nil, i))
	return "https://" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:52]) + "." + google
}

// longestPunycode returns a label of 63 octets, or few less, that decodes to nearly as
// many characters and to a name with a dot.
func longestPunycode(i int) string {
	text := []rune("é-")
	for n := i; len(text) < 10; n /= 16 {
		text = append(text, 'à'+rune(n%16))
	}
	text = append(text, []rune(strings.Repeat("é", 40))...)
	for {
		label, err := idna.Punycode.ToASCII(string(text))
		if err != nil {
			panic(err)
		}
		if len(label) <= 63 {
			return label
		}
		text = text[:len(text)-1]
	}
}

// BenchmarkCheckOrigin decides on an origin by itself, as a handler of any other kind
// than net/http's would.
func BenchmarkCheckOrigin(b *testing.B) {
	m, err := ampcors.New(ampcors.Config{Publishers: Publishers(10_000, ASCII, IDN, Hashed, Wildcard)})
	if err != nil {
		b.Fatal(err)
	}
	for _, r := range requests {
		if r.method != "GET" || r.header == nil {
			continue
		}
		b.Run("case="+r.name+"/publishers=10000/lib=ampcors", func(b *testing.B) {
			origin := r.header["Origin"][0]
			b.ReportAllocs()
			for b.Loop() {
				if m.CheckOrigin(origin).Allowed != r.granted {
					b.Fatal("decided otherwise")
				}
			}
		})
	}
}

// BenchmarkNew builds the policy.
func BenchmarkNew(b *testing.B) {
	for _, n := range numbers {
		publishers := []string{ASCII}
		if n > 1 {
			publishers = Publishers(n, ASCII, IDN, Hashed, Wildcard)
		}
		for _, library := range []string{"ampcors", "jub0bs", "rs", "chi"} {
			b.Run(fmt.Sprintf("publishers=%d/lib=%s", n, library), func(b *testing.B) {
				for b.Loop() {
					if _, err := Wrap(library, publishers, nothing); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
