package servertest

import (
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/source"
)

// Middleware returns a Middleware that asks a Source.
func Middleware(t testing.TB, s source.Database, options source.Config) *ampcors.Middleware {
	t.Helper()
	cache, err := source.New(s, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cache.Close)
	m, err := ampcors.New(ampcors.Config{Source: cache})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Origins returns a publisher's origins: on a cache, on another by hash prefix, and its own.
func Origins(publisher string) [3]string {
	prefix, err := cacheurl.DomainPrefix(publisher)
	if err != nil {
		panic(err)
	}
	hash, _ := cacheurl.HashPrefix(publisher)
	domain, _ := cacheurl.CanonicalDomain(publisher)
	return [3]string{"https://" + prefix + ".cdn.ampproject.org", "https://" + hash + ".www.bing-amp.com", "https://" + domain}
}
