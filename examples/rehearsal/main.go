// Command rehearsal stands in for a search engine of IndexNow and for AMP Caches, so that announcing many pages can be
// rehearsed whole: without asking anybody, and with the answers that one is afraid of.
//
//	go run ./examples/rehearsal -reject /bad
//	export INDEXNOW_KEY=0123456789abcdef
//	ampcors submit --endpoint http://localhost:8090/indexnow --log sent.json https://www.example.com/a
//	SSL_CERT_FILE=rehearsal.pem ampcors flush --key private.pem --log flushed.json \
//	  --resolve www-example-com.cdn.ampproject.org:443:127.0.0.1:8443 --cache google https://www.example.com/a
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"log"
	"math/big"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ampcors/ampcors/cacheurl"
)

// A standIn answers as an engine and as caches.
type standIn struct {
	reject   string        // requests with a URL that has this text are rejected
	limit    int64         // after this many requests, the answer is 429; 0 for no limit
	takes    time.Duration // a request
	requests atomic.Int64
}

func main() {
	var s standIn
	flag.StringVar(&s.reject, "reject", "", "reject requests with a URL that has this text: 422 of the engine, 403 of a "+
		"cache")
	flag.Int64Var(&s.limit, "limit", 0, "answer 429, with Retry-After, after this many requests; 0 for no limit")
	flag.DurationVar(&s.takes, "takes", 50*time.Millisecond, "how long a request takes")
	file := flag.String("cert", "rehearsal.pem", "file for the certificate of the caches' hosts")
	flag.Parse()
	cert, err := certificate()
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(*file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}),
		0o644); err != nil {
		log.Fatal(err)
	}
	caches := &http.Server{
		Addr: "localhost:8443", ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
		Handler: http.HandlerFunc(s.cache), TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}},
	}
	go func() { log.Fatal(caches.ListenAndServeTLS("", "")) }()
	log.Fatal(http.ListenAndServe("localhost:8090", http.HandlerFunc(s.engine)))
}

// isOver waits as long as a request takes, and reports whether the limit is passed, after it has answered.
func (s *standIn) isOver(w http.ResponseWriter) bool {
	time.Sleep(s.takes)
	isOver := s.limit > 0 && s.requests.Add(1) > s.limit
	if isOver {
		w.Header().Set("Retry-After", "60")
		http.Error(w, "too many requests", http.StatusTooManyRequests)
	}
	return isOver
}

// engine answers as https://www.indexnow.org/documentation says.
func (s *standIn) engine(w http.ResponseWriter, r *http.Request) {
	var sent struct {
		Host, Key string
		URLList   []string
	}
	if s.isOver(w) {
		return
	}
	err := json.NewDecoder(r.Body).Decode(&sent)
	isRejected := slices.ContainsFunc(sent.URLList,
		func(u string) bool { return s.reject != "" && strings.Contains(u, s.reject) })
	switch {
	case err != nil || sent.Host == "" || len(sent.Key) < 8 || len(sent.URLList) == 0 || len(sent.URLList) > 10_000:
		http.Error(w, "the request is not one of IndexNow", http.StatusBadRequest)
	case isRejected:
		http.Error(w, "a URL does not belong to the host", http.StatusUnprocessableEntity)
	}
	fmt.Printf("IndexNow: %s: %d URLs, rejected: %t\n", sent.Host, len(sent.URLList), isRejected)
}

// cache answers update-cache requests. It does not check the signature.
func (s *standIn) cache(w http.ResponseWriter, r *http.Request) {
	switch {
	case s.isOver(w):
	case !strings.HasPrefix(r.URL.Path, "/update-cache/") || r.FormValue("amp_url_signature") == "":
		http.NotFound(w, r)
	case s.reject != "" && strings.Contains(r.URL.Path, s.reject):
		http.Error(w, "Invalid public key due to ingestion error: 404", http.StatusForbidden)
	default:
		fmt.Fprint(w, "OK")
		fmt.Printf("update-cache: %s%s\n", r.Host, r.URL.Path)
	}
}

// certificate makes one for the hosts of all caches, which signs itself.
func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true}
	for _, c := range cacheurl.DefaultCaches() {
		template.DNSNames = append(template.DNSNames, "*."+c.UpdateCacheAPIDomainSuffix)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
