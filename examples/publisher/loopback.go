package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/ampcors/ampcors/announce/indexnow"
	"github.com/ampcors/ampcors/announce/updatecache"
)

// A loopbackWeb is three servers on loopback, and a client that reaches them as
// www.example.com, Google's AMP Cache and api.indexnow.org, over https (without TLS).
type loopbackWeb struct {
	client  *http.Client
	servers []*http.Server

	mu  sync.Mutex // a server may print while another is being asked
	out io.Writer

	site, cache, engine net.Listener
}

func newLoopbackWeb(out io.Writer) (*loopbackWeb, error) {
	web := &loopbackWeb{out: out}
	for _, listener := range []*net.Listener{&web.site, &web.cache, &web.engine} {
		var err error
		if *listener, err = net.Listen("tcp", "localhost:0"); err != nil {
			web.Close()
			return nil, err
		}
	}
	web.client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			var to net.Listener
			switch host, _, _ := net.SplitHostPort(address); {
			case host == "www.example.com":
				to = web.site
			case host == "www-example-com.cdn.ampproject.org":
				to = web.cache
			case host == "api.indexnow.org":
				to = web.engine
			default:
				return nil, fmt.Errorf("%s is not on loopback", host)
			}
			return new(net.Dialer).DialContext(ctx, network, to.Addr().String())
		},
	}}
	fmt.Fprintf(out, "All of this stays on this machine: www.example.com is a server at %s,\nwww-example-com.cdn.ampproject.org at %s, and api.indexnow.org at %s.\nOnly the beginning of keys and signatures is printed.\n\n",
		web.site.Addr(), web.cache.Addr(), web.engine.Addr())
	return web, nil
}

// serve starts the servers.
func (web *loopbackWeb) serve(site http.Handler, engines *indexnow.Client) {
	for listener, handler := range map[net.Listener]http.Handler{
		web.site:   site,
		web.cache:  http.HandlerFunc(web.updateCache),
		web.engine: http.HandlerFunc(web.indexNow),
	} {
		server := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return // the client is gone
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			by := r.Header.Get("X-By")
			if by == "" {
				by = "this program"
			}
			web.print("   %s receives, from %s:\n      %s\n", r.Host, by, brief(r.Method+" "+r.RequestURI+" "+string(body), engines))
			handler.ServeHTTP(w, r)
		})}
		web.servers = append(web.servers, server)
		go server.Serve(listener) // until Close
	}
}

var signature = regexp.MustCompile(`(amp_url_signature=.{8})\S+`)

// brief shortens the signature in a request, and masks the key, which allows its owner to
// submit pages for the site.
func brief(request string, engines *indexnow.Client) string {
	key := strings.TrimSuffix(strings.TrimPrefix(engines.KeyPath(), "/"), ".txt")
	request = strings.ReplaceAll(request, key, indexnow.Key(key).String())
	return signature.ReplaceAllString(strings.TrimSpace(request), "$1…")
}

func (web *loopbackWeb) print(format string, args ...any) {
	web.mu.Lock()
	defer web.mu.Unlock()
	fmt.Fprintf(web.out, format, args...)
}

// Close ends the servers.
func (web *loopbackWeb) Close() {
	for _, server := range web.servers {
		server.Close()
	}
	for _, listener := range []net.Listener{web.site, web.cache, web.engine} {
		if listener != nil {
			listener.Close()
		}
	}
}

// fetch gets a file of the site, as the cache and the search engine do.
func (web *loopbackWeb) fetch(by, url string) []byte {
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil
	}
	r.Header.Set("X-By", by)
	resp, err := web.client.Do(r)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil
	}
	return data
}

// updateCache answers as an AMP Cache: it fetches the publisher's key, and checks the
// signature with it.
func (web *loopbackWeb) updateCache(w http.ResponseWriter, r *http.Request) {
	signed, signature, _ := strings.Cut(r.RequestURI, "&amp_url_signature=")
	raw, err := base64.RawURLEncoding.DecodeString(signature)
	block, _ := pem.Decode(web.fetch("the cache", "https://www.example.com"+updatecache.KeyPath))
	if err != nil || block == nil {
		http.Error(w, "Invalid public key due to ingestion error.", http.StatusForbidden)
		return
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	public, ok := key.(*rsa.PublicKey)
	sum := sha256.Sum256([]byte(signed))
	if err != nil || !ok || rsa.VerifyPKCS1v15(public, crypto.SHA256, sum[:], raw) != nil {
		http.Error(w, "URL signature verification error.", http.StatusForbidden)
		return
	}
	web.print("   The cache verifies the signature with the site's key, and answers OK.\n")
	io.WriteString(w, "OK")
}

// indexNow answers as a search engine: it fetches the key file, and compares the keys.
func (web *loopbackWeb) indexNow(w http.ResponseWriter, r *http.Request) {
	var submission struct{ Host, Key string }
	if err := json.NewDecoder(r.Body).Decode(&submission); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if string(web.fetch("the search engine", "https://"+submission.Host+"/"+submission.Key+".txt")) != submission.Key {
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, `{"errorCode":"KeyNotFound"}`)
		return
	}
	web.print("   The search engine finds the key on the site, and accepts the URLs.\n")
}
