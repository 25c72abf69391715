package bench

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/idna"

	"github.com/ampcors/ampcors/cacheurl"
)

var sink *[4]string

func TestMain(m *testing.M) {
	ballast := Ballast()
	for range 8 * len(ballast) / 64 { // so that the first benchmark does not pay for new memory
		sink = new([4]string)
	}
	code := m.Run()
	runtime.KeepAlive(ballast)
	os.Exit(code)
}

const google = "cdn.ampproject.org"

// A request, and the publisher whose page sends it.
type request struct {
	name      string
	publisher string
	method    string
	header    http.Header
	granted   bool // gets Access-Control-Allow-Origin
}

// suits reports whether a library is measured with this request.
func (r *request) suits(library string) bool {
	switch library {
	case "none":
		return false
	case "floor":
		return r.name == "allowed"
	case "ampcors":
		return true
	case "ampcorsReportOnly":
		return !r.granted && r.header != nil
	}
	return r.name != "wildcard-cache" // not in the lists of the peers
}

// compared are ampcors and its peers, without the handlers that do less and without
// ReportOnly.
var compared = []string{"ampcors", "jub0bs", "rs", "chi"}

var requests = []request{
	{name: "allowed", publisher: ASCII, method: "GET", header: get(cacheOrigin(ASCII)), granted: true},
	{name: "idn", publisher: IDN, method: "GET", header: get(cacheOrigin(IDN)), granted: true},
	{name: "hash-prefix", publisher: LongName, method: "GET", header: get(cacheOrigin(LongName)), granted: true},
	{name: "own", publisher: ASCII, method: "GET", header: get("https://" + ASCII), granted: true},
	{name: "wildcard", publisher: Wildcard, method: "GET", header: get("https://shop.wild.example"), granted: true},
	{name: "wildcard-cache", publisher: Wildcard, method: "GET", header: get(cacheOrigin("shop.wild.example")), granted: true},
	{name: "denied", publisher: ASCII, method: "GET", header: get(cacheOrigin("www.evil.example")), granted: false},
	{name: "garbage", publisher: ASCII, method: "GET", header: get("https://evil.example:8080/x"), granted: false},
	{name: "no-origin", publisher: ASCII, method: "GET", header: nil, granted: false},
	{name: "preflight", publisher: ASCII, method: "OPTIONS", header: preflight(cacheOrigin(ASCII), "POST"), granted: true},
	{name: "preflight-denied", publisher: ASCII, method: "OPTIONS", header: preflight(cacheOrigin("www.evil.example"), "POST"),
		granted: false},
}

func get(origin string) http.Header { return http.Header{"Origin": {origin}} }

func preflight(origin, method string) http.Header {
	h := get(origin)
	h["Access-Control-Request-Method"] = []string{method}
	h["Access-Control-Request-Headers"] = []string{"content-type"}
	return h
}

func cacheOrigin(publisher string) string {
	prefix, err := cacheurl.DomainPrefix(publisher)
	if err != nil {
		panic(err)
	}
	return "https://" + prefix + "." + google
}

// punycode returns the label that encodes the text.
func punycode(text string) string {
	label, err := idna.Punycode.ToASCII(text)
	if err != nil {
		panic(err)
	}
	return label
}

// policyOf returns the policy with n publishers, including those of the requests. If n
// is 1, alone is the only publisher.
func policyOf(tb testing.TB, n int, alone string) Policy {
	tb.Helper()
	publishers := []string{alone}
	if n > 1 {
		publishers = Publishers(n, ASCII, IDN, LongName, Wildcard)
	}
	p, err := NewPolicy(publishers...)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

var nothing = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

func wrap(tb testing.TB, library string, p Policy) http.Handler {
	tb.Helper()
	h, err := Wrap(library, p, nothing)
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

// A connection is a ResponseWriter that discards the body. Its header map is reused, so
// that the middleware is measured and not the map.
type connection struct{ header http.Header }

func newConnection() connection { return connection{make(http.Header)} }

func (c connection) Header() http.Header         { return c.header }
func (c connection) Write(b []byte) (int, error) { return len(b), nil }
func (c connection) WriteHeader(int)             {}

// warmUp answers the request for a while, so that background work left from building the
// policy ends. It fails if the answer is wrong.
func warmUp(tb testing.TB, h http.Handler, r *http.Request, granted bool) {
	tb.Helper()
	runtime.GC()
	c := newConnection()
	for start := time.Now(); time.Since(start) < 50*time.Millisecond; {
		clear(c.header)
		h.ServeHTTP(c, r)
	}
	if got := c.header["Access-Control-Allow-Origin"] != nil; got != granted {
		tb.Fatalf("granted: %t; want %t", got, granted)
	}
}

// each calls f with each request and each library that it suits, at each number of
// publishers. One policy is in memory at a time.
func each(b *testing.B, numbers []int, f func(b *testing.B, h http.Handler, r *http.Request)) {
	for _, n := range numbers {
		for _, library := range Libraries {
			if library == "floor" && n > 1 {
				continue
			}
			var h http.Handler
			var alone string
			for _, r := range requests {
				if !r.suits(library) {
					continue
				}
				b.Run(fmt.Sprintf("case=%s/publishers=%d/lib=%s", r.name, n, library), func(b *testing.B) {
					if h == nil || n == 1 && alone != r.publisher {
						h, alone = wrap(b, library, policyOf(b, n, r.publisher)), r.publisher
					}
					req := &http.Request{Method: r.method, Header: r.header}
					warmUp(b, h, req, r.granted)
					b.ReportAllocs()
					f(b, h, req)
				})
			}
		}
	}
}

// numbers of publishers, from one site to a platform.
var numbers = []int{1, 100, 10_000, 1_000_000}

// BenchmarkSerial answers one request again and again.
func BenchmarkSerial(b *testing.B) {
	each(b, numbers, func(b *testing.B, h http.Handler, r *http.Request) {
		c := newConnection()
		for b.Loop() {
			clear(c.header)
			h.ServeHTTP(c, r)
		}
	})
}

// BenchmarkParallel answers one request on all processors at once.
func BenchmarkParallel(b *testing.B) {
	each(b, []int{1, 10_000}, func(b *testing.B, h http.Handler, r *http.Request) {
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			c, r := newConnection(), &http.Request{Method: r.Method, Header: r.Header}
			for pb.Next() {
				clear(c.header)
				h.ServeHTTP(c, r)
			}
		})
	})
}

// BenchmarkSpread answers requests for random publishers of the list, so that the data
// about one is seldom in the processor's caches.
func BenchmarkSpread(b *testing.B) {
	const drawn = 1 << 16
	for _, n := range []int{10_000, 1_000_000} {
		publishers := Publishers(n)
		policy, err := NewPolicy(publishers...)
		if err != nil {
			b.Fatal(err)
		}
		random := rand.New(rand.NewPCG(1, 2))
		headers := make([]http.Header, drawn)
		for i := range headers {
			headers[i] = get(cacheOrigin(publishers[random.IntN(n)]))
		}
		for _, library := range compared {
			b.Run(fmt.Sprintf("publishers=%d/lib=%s", n, library), func(b *testing.B) {
				h := wrap(b, library, policy)
				c, req, i := newConnection(), &http.Request{Method: "GET", Header: headers[0]}, 0
				warmUp(b, h, req, true)
				b.ReportAllocs()
				for b.Loop() {
					req.Header = headers[i%drawn]
					clear(c.header)
					h.ServeHTTP(c, req)
					i++
				}
			})
		}
	}
}

// BenchmarkAdversarial answers requests that are made to be expensive. Each numbered case
// has 16,384 different ones.
func BenchmarkAdversarial(b *testing.B) {
	numbered := func(origin func(i int) string) []http.Header {
		headers := make([]http.Header, 1<<14)
		for i := range headers {
			headers[i] = get(origin(i))
		}
		return headers
	}
	names := func(lines ...string) []http.Header {
		h := preflight(cacheOrigin(ASCII), "POST")
		h["Access-Control-Request-Headers"] = lines
		return []http.Header{h}
	}
	for _, c := range []struct {
		name    string
		method  string
		headers []http.Header
		granted bool
	}{
		{name: "origin-1MiB", method: "GET", headers: []http.Header{get(strings.Repeat("a", 1<<20))}, granted: false},
		{name: "method-1MiB", method: "OPTIONS", headers: []http.Header{preflight(cacheOrigin(ASCII), strings.Repeat("A", 1<<20))},
			granted: false},
		{name: "header-names-1MiB", method: "OPTIONS", headers: names(strings.Repeat("x,", 1<<19)), granted: false},
		{name: "invented-hashes", method: "GET", headers: numbered(inventedHash), granted: false},
		{name: "longest-punycode", method: "GET", headers: numbered(func(i int) string {
			return "https://" + longestPunycode(i, 63) + "." + google
		}),
			granted: false},
		{name: "longest-punycode-pattern", method: "GET",
			headers: numbered(func(i int) string { return "https://" + longestHost(i, Wildcard[len("*."):]) }), granted: true},
	} {
		for _, library := range compared {
			b.Run(fmt.Sprintf("case=%s/publishers=10000/lib=%s", c.name, library), func(b *testing.B) {
				h := wrap(b, library, policyOf(b, 10_000, ""))
				conn, req, i := newConnection(), &http.Request{Method: c.method, Header: c.headers[0]}, 0
				warmUp(b, h, req, c.granted)
				b.ReportAllocs()
				for b.Loop() {
					req.Header = c.headers[i%len(c.headers)]
					clear(conn.header)
					h.ServeHTTP(conn, req)
					i++
				}
			})
		}
	}
}

func inventedHash(i int) string {
	sum := sha256.Sum256(fmt.Append(nil, i))
	return "https://" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:52]) + "." + google
}

// longestPunycode returns a label of at most size bytes that decodes to nearly as many
// characters and, as a prefix, to a name with a dot.
func longestPunycode(i, size int) string {
	text := []rune("é-")
	for n := i; len(text) < 10; n /= 16 {
		text = append(text, 'à'+rune(n%16))
	}
	for len(text) < size {
		text = append(text, 'é')
	}
	for {
		if label := punycode(string(text)); len(label) <= size {
			return label
		}
		text = text[:len(text)-1]
	}
}

// longestHost returns a host of 253 bytes below a domain of 12.
func longestHost(i int, below string) string {
	l := longestPunycode(i, 63)
	return l + "." + l + "." + l + "." + longestPunycode(i, 48) + "." + below
}

// BenchmarkNew builds the policy.
func BenchmarkNew(b *testing.B) {
	for _, n := range numbers {
		policy := policyOf(b, n, ASCII)
		for _, library := range compared {
			b.Run(fmt.Sprintf("publishers=%d/lib=%s", n, library), func(b *testing.B) {
				for b.Loop() {
					wrap(b, library, policy)
				}
			})
		}
	}
}
