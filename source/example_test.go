package source_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/source"
)

// tenants are the domains that a platform hosts.
type tenants struct {
	mu      sync.RWMutex
	domains map[string]bool   // as cacheurl.CanonicalDomain returns them
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
		t.domains[domain], t.hashes[prefix] = true, domain
	} else {
		delete(t.domains, domain)
		delete(t.hashes, prefix)
	}
}

func (t *tenants) source() source.Database {
	return source.Database{
		HasPublisher: func(_ context.Context, domain string) (bool, error) {
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
	hosted := &tenants{domains: make(map[string]bool), hashes: make(map[string]string)}
	hosted.set("Bücher.example", true)
	cache, err := source.New(hosted.source(), source.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cache.Close()
	mw, err := ampcors.New(ampcors.Config{Source: cache})
	if err != nil {
		fmt.Println(err)
		return
	}
	page := "https://xn--bcher-example-wob.cdn.ampproject.org"
	fmt.Println(mw.CheckOrigin(page).Reason)

	hosted.set("Bücher.example", false)
	fmt.Println(mw.CheckOrigin(page).Reason, "(remembered for up to a minute)")
	if err := cache.Forget("Bücher.example"); err != nil {
		fmt.Println(err)
	}
	fmt.Println(mw.CheckOrigin(page).Reason)
	// Output:
	// cache_origin
	// cache_origin (remembered for up to a minute)
	// publisher_not_allowed
}

// A wrapper copies a Database and replaces a function. It calls the function of the original:
// with one variable for both, it would call itself for ever.
func Example_wrapper() {
	hosted := &tenants{domains: make(map[string]bool), hashes: make(map[string]string)}
	hosted.set("www.example.com", true)
	asked := hosted.source()
	logged := asked
	logged.HasPublisher = func(ctx context.Context, domain string) (bool, error) {
		ok, err := asked.HasPublisher(ctx, domain)
		fmt.Println("asked for", domain, ok, err)
		return ok, err
	}
	cache, err := source.New(logged, source.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cache.Close()
	fmt.Println(cache.Find(context.Background(), "www.example.com").Publisher)
	// Output:
	// asked for www.example.com true <nil>
	// www.example.com
}

// A server is ready once its database answered, and stays ready when that fails later: MaxStale is for
// that. Ping is that of sqlsource, pgsource or redissource.
func Example_readiness() {
	ctx := context.Background()
	database := &database{}
	table := database

	var isReady atomic.Bool
	go func() {
		for table.Ping(ctx) != nil {
			time.Sleep(time.Second)
		}
		isReady.Store(true) // and never false again
	}()
	http.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if !isReady.Load() {
			http.Error(w, "the database did not answer yet", http.StatusServiceUnavailable)
		}
	})

	ask := func() int {
		w := httptest.NewRecorder()
		http.DefaultServeMux.ServeHTTP(w, httptest.NewRequest("GET", "/ready", nil))
		return w.Code
	}
	fmt.Println(ask())
	database.isUp.Store(true)
	for ask() != http.StatusOK {
		time.Sleep(10 * time.Millisecond)
	}
	database.isUp.Store(false)
	fmt.Println(ask())
	// Output:
	// 503
	// 200
}

// A database is in place of a sqlsource.Table.
type database struct{ isUp atomic.Bool }

func (d *database) Ping(context.Context) error {
	if !d.isUp.Load() {
		return errors.New("down")
	}
	return nil
}
