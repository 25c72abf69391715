package updatecache_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"github.com/ampcors/ampcors/announce/updatecache"
	"github.com/ampcors/ampcors/cacheurl"
)

// If tenants choose the domains, Verify must not reach hosts of the internal network. A domain
// can lead to another address each time that it is looked up, so the address is checked when
// the connection is made.
func ExampleClient_Verify_publicHostsOnly() {
	dialer := &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if ip := at.Addr().Unmap(); !ip.IsGlobalUnicast() || ip.IsPrivate() {
			return fmt.Errorf("%s is not a public address", ip)
		}
		return nil
	}}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil // it would make the connection
	transport.DialContext = dialer.DialContext
	client := &http.Client{Transport: transport} // for Config.HTTPClient

	_, err := client.Get("https://127.0.0.1/") // such as the address of a tenant's domain
	fmt.Println(err)

	// Output:
	// Get "https://127.0.0.1/": dial tcp 127.0.0.1:443: 127.0.0.1 is not a public address
}

// A backend serves its key, verifies the key file, and flushes changed documents.
func Example() {
	ctx := context.Background()
	mux := http.NewServeMux() // of https://www.example.com

	data, err := os.ReadFile("../../conformance/updatecache.pem")
	if err != nil {
		log.Fatal(err)
	}
	key, err := updatecache.ParseKey(data)
	if err != nil {
		log.Fatal(err)
	}
	flusher, err := updatecache.New(updatecache.Config{
		Signer:     key, // or a crypto.Signer of a key management service
		Caches:     cacheurl.DefaultCaches()[:2],
		HTTPClient: web(mux), // for this example only
	})
	if err != nil {
		log.Fatal(err)
	}
	mux.Handle("GET "+updatecache.KeyPath, flusher.KeyHandler())

	// Once the server can be reached, and before anything is flushed:
	if err := flusher.Verify(ctx, "www.example.com"); err != nil {
		log.Print(err) // caches would remember a bad key for about a day
		return
	}

	// When a document has changed, with the URL of its AMP version:
	if _, err := flusher.Flush(ctx, "https://www.example.com/amp/article"); err != nil {
		log.Print(err)
	}

	_, err = flusher.Flush(ctx, "https://www.example.com/unknown")
	fmt.Println(errors.Is(err, updatecache.ErrIngestion), err)
	// Output:
	// true updatecache: "https://www.example.com/unknown" on the cache "google": the cache could not fetch the key or the document (403 "Ingestion error: 404.")
	// updatecache: "https://www.example.com/unknown" on the cache "bing": the cache could not fetch the key or the document (403 "Ingestion error: 404.")
}

// web returns a client that reaches an AMP Cache and the site without a network.
func web(site http.Handler) *http.Client {
	return &http.Client{Transport: roundTrip(func(r *http.Request) *http.Response {
		switch {
		case r.URL.Host == "www.example.com":
			w := httptest.NewRecorder()
			site.ServeHTTP(w, r)
			return w.Result()
		case strings.Contains(r.URL.RequestURI(), "unknown"):
			return &http.Response{StatusCode: 403, Body: io.NopCloser(strings.NewReader("<p>Ingestion error: 404."))}
		}
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("OK"))}
	})}
}

type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }
