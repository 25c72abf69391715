package ampcors

import (
	"fmt"
	"net/http"
	"testing"
)

// The floor is what a handler costs that compares one origin, typed in, and sets
// the same headers with one allocation.
func floor(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if origin := r.Header["Origin"]; len(origin) == 1 && origin[0] == cacheOrigin {
			h, vals := w.Header(), &[4]string{origin[0], "Origin", "true", "AMP-Redirect-To"}
			h["Access-Control-Allow-Origin"] = vals[0:1:1]
			h["Vary"] = vals[1:2:2]
			h["Access-Control-Allow-Credentials"] = vals[2:3:3]
			h["Access-Control-Expose-Headers"] = vals[3:4:4]
		}
		next.ServeHTTP(w, r)
	})
}

func BenchmarkRequest(b *testing.B) {
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	run := func(name string, h http.Handler, r *http.Request) {
		b.Run(name, func(b *testing.B) {
			w := discard{make(http.Header)}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.h)
				h.ServeHTTP(w, r)
			}
		})
	}
	get := func(origin string) *http.Request {
		return &http.Request{Method: "GET", Header: http.Header{"Origin": {origin}}}
	}
	run("floor", floor(next), get(cacheOrigin))
	for _, n := range []int{0, 10_000} {
		cfg := testConfig()
		for i := range n {
			cfg.Publishers = append(cfg.Publishers, fmt.Sprintf("site-%d.example", i))
		}
		h := newMiddleware(b, cfg).Wrap(next)
		for _, c := range []struct {
			name string
			r    *http.Request
		}{
			{"allowed", get(cacheOrigin)},
			{"hashed", get(hashedOrigin)},
			{"idn", get(idnOrigin)},
			{"pattern", get(wildOrigin)},
			{"own", get(ownOrigin)},
			{"preflight", &http.Request{Method: "OPTIONS", Header: headers("Origin: "+cacheOrigin, "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type")}},
			{"no-origin", &http.Request{Method: "GET"}},
		} {
			run(fmt.Sprintf("case=%s/more-publishers=%d", c.name, n), h, c.r)
		}
	}
}

func BenchmarkCheckOrigin(b *testing.B) {
	m := newMiddleware(b, testConfig())
	for _, c := range []struct{ name, origin string }{
		{"allowed", cacheOrigin}, {"refused", evilOrigin}, {"hash-not-known", unknownHashed}, {"garbage", "https://evil.example:8080/x"},
		{"longest-idn", "https://" + plainToASCII("é-ا-日-ß-é-ا-日-ß-ab-c") + ".cdn.ampproject.org"},
	} {
		b.Run("case="+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.CheckOrigin(c.origin)
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	var names []string
	for i := range 10_000 {
		names = append(names, fmt.Sprintf("site-%d.example", i))
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New(Config{Publishers: names}); err != nil {
			b.Fatal(err)
		}
	}
}
