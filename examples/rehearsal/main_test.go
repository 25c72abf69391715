package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ampcors/ampcors/announce/indexnow"
	"github.com/ampcors/ampcors/announce/updatecache"
)

// Both stand-ins take what the packages send, and say no where they are told to.
func TestBothAnswer(t *testing.T) {
	silent := slog.New(slog.DiscardHandler)
	s := &standIn{reject: "/bad"}
	engine := httptest.NewServer(http.HandlerFunc(s.engine))
	defer engine.Close()
	pages, err := indexnow.New(indexnow.Config{Key: indexnow.NewKey(), Endpoint: engine.URL, Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	report, err := pages.Submit(t.Context(), "https://www.example.com/a", "https://www.example.com/bad", "https://www.example.com/b")
	rejected := 0
	for _, b := range report.Batches {
		if errors.Is(b.Err, indexnow.ErrUnprocessable) {
			rejected += len(b.URLs)
		}
	}
	if err == nil || rejected != 1 {
		t.Errorf("%+v, %v", report, err)
	}

	cert, err := certificate()
	if err != nil {
		t.Fatal(err)
	}
	caches := httptest.NewUnstartedServer(http.HandlerFunc(s.cache))
	caches.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	caches.StartTLS()
	defer caches.Close()
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(leaf)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, caches.Listener.Addr().String())
		}}}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	c, err := updatecache.New(updatecache.Config{Signer: key, HTTPClient: client, Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	if results, err := c.Flush(t.Context(), "https://www.example.com/a"); err != nil || len(results) != 2 {
		t.Errorf("%+v, %v", results, err)
	}
	if _, err := c.Flush(t.Context(), "https://www.example.com/bad"); !errors.Is(err, updatecache.ErrIngestion) {
		t.Error(err)
	}
	s.limit = 1
	if _, err := c.Flush(t.Context(), "https://www.example.com/a"); !errors.Is(err, updatecache.ErrRateLimited) {
		t.Error(err)
	}
}
