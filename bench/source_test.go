package bench

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/mwtest"
	"github.com/ampcors/ampcors/source"
)

// sourceOf returns a Source of publishers in a database that answers at once.
func sourceOf(tb testing.TB, publishers []string, options source.Config) *source.Source {
	tb.Helper()
	domains, hashes := make(map[string]bool), make(map[string]string)
	for _, p := range publishers {
		domain, err := cacheurl.CanonicalDomain(p)
		if err != nil {
			continue // a pattern
		}
		prefix, _ := cacheurl.HashPrefix(domain)
		domains[domain], hashes[prefix] = true, domain
	}
	c, err := source.New(source.Database{
		PublisherByDomain: mwtest.Confirms(func(_ context.Context, domain string) (bool, error) { return domains[domain], nil }),
		PublisherByHash:   func(_ context.Context, prefix string) (string, error) { return hashes[prefix], nil },
	}, options)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func sourceHandler(tb testing.TB, cfg ampcors.Config) http.Handler {
	tb.Helper()
	cfg.Credentialed = true
	m, err := ampcors.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return m.Wrap(nothing)
}

// BenchmarkSource answers requests for publishers that are listed, that a Source remembers, and
// that a Source asks its Database for. The Database answers at once, so the result does not
// include the time of a database.
func BenchmarkSource(b *testing.B) {
	const n = 10_000
	publishers := Publishers(n, ASCII, IDN, LongName)
	handlers := []struct {
		lib string
		h   http.Handler
	}{
		{lib: "listed", h: sourceHandler(b, ampcors.Config{Publishers: publishers})},
		{lib: "remembered", h: sourceHandler(b, ampcors.Config{Source: sourceOf(b, publishers, source.Config{TTL: time.Hour})})},
		{lib: "asked", h: sourceHandler(b, ampcors.Config{Source: sourceOf(b, publishers, source.Config{TTL: 1, NegativeTTL: 1})})},
	}
	everyone := make([]http.Header, n)
	for i, p := range publishers {
		everyone[i] = get(cacheOrigin(p))
	}
	for _, c := range []struct {
		name    string
		headers []http.Header
		granted bool
	}{
		{name: "allowed", headers: []http.Header{get(cacheOrigin(ASCII))}, granted: true},
		{name: "idn", headers: []http.Header{get(cacheOrigin(IDN))}, granted: true},
		{name: "hash-prefix", headers: []http.Header{get(cacheOrigin(LongName))}, granted: true},
		{name: "own", headers: []http.Header{get("https://" + ASCII)}, granted: true},
		{name: "spread", headers: everyone, granted: true},
		{name: "denied", headers: []http.Header{get(cacheOrigin("www.evil.example"))}, granted: false},
	} {
		for _, handler := range handlers {
			name := fmt.Sprintf("case=%s/publishers=%d/lib=%s", c.name, n, handler.lib)
			b.Run(name, func(b *testing.B) {
				conn, req := newConnection(), &http.Request{Method: "GET"}
				for _, req.Header = range c.headers {
					clear(conn.header)
					handler.h.ServeHTTP(conn, req)
				}
				warmUp(b, handler.h, req, c.granted)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					req.Header = c.headers[i%len(c.headers)]
					clear(conn.header)
					handler.h.ServeHTTP(conn, req)
				}
			})
		}
	}
}
