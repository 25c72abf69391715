package source_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/source"
)

// tenants are the domains that a platform hosts.
type tenants struct {
	mu      sync.RWMutex
	domains map[string]string // the domains, by themselves: as cacheurl.CanonicalDomain returns them
	hashes  map[string]string // domains by hash prefix, as cacheurl.HashPrefix returns it
}

func (t *tenants) set(publisher string, hosted bool) {
	domain, err := cacheurl.CanonicalDomain(publisher)
	if err != nil {
		panic(err) // the publishers here are constants
	}
	prefix, _ := cacheurl.HashPrefix(domain)
	t.mu.Lock()
	defer t.mu.Unlock()
	if hosted {
		t.domains[domain], t.hashes[prefix] = domain, domain
	} else {
		delete(t.domains, domain)
		delete(t.hashes, prefix)
	}
}

func (t *tenants) source() source.Database {
	return source.Database{
		PublisherByDomain: func(_ context.Context, domain string) (string, error) {
			t.mu.RLock()
			defer t.mu.RUnlock()
			return t.domains[domain], nil // or an error, if it cannot answer now
		},
		PublisherByHash: func(_ context.Context, prefix string) (string, error) {
			t.mu.RLock()
			defer t.mu.RUnlock()
			return t.hashes[prefix], nil
		},
	}
}

func Example() {
	hosted := &tenants{domains: make(map[string]string), hashes: make(map[string]string)}
	hosted.set("Bücher.example", true)
	customers, err := source.New(hosted.source(), source.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer customers.Close()
	mw, err := ampcors.New(ampcors.Config{Source: customers})
	if err != nil {
		fmt.Println(err)
		return
	}
	page := "https://xn--bcher-example-wob.cdn.ampproject.org"
	fmt.Println(mw.CheckOrigin(page).Reason)

	hosted.set("Bücher.example", false)
	fmt.Println(mw.CheckOrigin(page).Reason, "(remembered for up to a minute)")
	if err := customers.Forget("Bücher.example"); err != nil {
		fmt.Println(err)
	}
	fmt.Println(mw.CheckOrigin(page).Reason)
	// Output:
	// cache_origin
	// cache_origin (remembered for up to a minute)
	// publisher_not_allowed
}
