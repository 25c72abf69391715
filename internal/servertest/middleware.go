package servertest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/source"
)

// Middleware returns a Middleware that asks a Source.
func Middleware(t testing.TB, asked source.Database, options source.Config) *ampcors.Middleware {
	t.Helper()
	publishers, err := source.New(asked, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(publishers.Close)
	m, err := ampcors.New(ampcors.Config{Source: publishers})
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
	return [3]string{"https://" + prefix + ".cdn.ampproject.org", "https://" + hash + ".www.bing-amp.com",
		"https://" + domain}
}

// Soon is long even on a busy machine, and much less than a TTL of an hour: what is seen by then was reported.
const Soon = time.Minute

// Until waits until a condition holds, for at most limit, and returns how long it took.
func Until(t testing.TB, what string, limit time.Duration, holds func() bool) time.Duration {
	t.Helper()
	begun := time.Now()
	for !holds() {
		if time.Since(begun) > limit {
			t.Errorf("after %v, not yet: %s", limit, what)
			return limit
		}
		time.Sleep(min(200*time.Microsecond+time.Since(begun)/8, 10*time.Millisecond))
	}
	return time.Since(begun)
}

// Seen waits until all servers decide by a change, and returns how long it took.
func Seen(t testing.TB, limit time.Duration, publisher string, want bool,
	servers ...*ampcors.Middleware) time.Duration {
	t.Helper()
	return Until(t, fmt.Sprintf("%s allowed: %t", publisher, want), limit, func() bool {
		for _, origin := range Origins(publisher) {
			if slices.ContainsFunc(servers, func(m *ampcors.Middleware) bool {
				d := m.CheckOrigin(origin)
				return d.Allowed != want || d.Stale || d.SourceErr != nil
			}) {
				return false
			}
		}
		return true
	})
}
