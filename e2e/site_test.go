package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/image/font/gofont/goregular"
)

// The API's host is not a publisher.
const apiOrigin = "https://api.example.org"

// A site serves all hosts of the tests on two listeners, by the Host header.
type site struct {
	http, https string // addresses

	mu   sync.Mutex
	api  http.Handler                          // what answers at apiOrigin
	runs []string                              // what the API's handler did
	kept map[string]*httptest.ResponseRecorder // by the AMP Cache
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{kept: make(map[string]*httptest.ResponseRecorder)}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	plain := httptest.NewServer(s)
	t.Cleanup(plain.Close)
	secure := httptest.NewUnstartedServer(s)
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}}}
	secure.StartTLS()
	t.Cleanup(secure.Close)
	s.http, s.https = plain.Listener.Addr().String(), secure.Listener.Addr().String()
	return s
}

// use makes h answer at apiOrigin. h must pass allowed requests on to s.handler.
func (s *site) use(h http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.api = h
}

// takeRuns returns what the API's handler did since the last call.
func (s *site) takeRuns() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	runs := strings.Join(s.runs, ", ")
	s.runs = nil
	return runs
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	api := s.api
	s.mu.Unlock()
	// Some publishers have an API at their own host as well.
	own := strings.HasPrefix(r.URL.Path, "/api/") && (strings.HasSuffix(r.Host, "example.com") || r.Host == "xn--bcher-kva.example")
	switch {
	case r.URL.Path == "/favicon.ico":
		http.NotFound(w, r)
	case r.Host == "example.com" && own:
		// Nearly every publisher redirects its apex to www.
		http.Redirect(w, r, "https://www.example.com"+r.URL.RequestURI(), http.StatusPermanentRedirect)
	case r.Host == "api.example.org" && r.URL.Path == "/login":
		http.SetCookie(w, &http.Cookie{Name: "reader", Value: "1", Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteNoneMode})
		page(w)
	case r.Host == "api.example.org" && r.URL.Path == "/page":
		page(w)
	case r.Host == "api.example.org" && r.URL.Path == "/public/font.ttf":
		w.Header().Set("Access-Control-Allow-Origin", "*")
		serveFont(w, r)
	case r.Host == "api.example.org", own:
		api.ServeHTTP(w, r)
	case strings.HasPrefix(r.URL.Path, "/r/s/"):
		s.serveCached(w, r)
	default:
		page(w)
	}
}

// page is the same at every host. Its scripts come from the test.
func page(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprint(w, "<!doctype html><title>page</title>")
}

// serveCached does what AMP's document says about caches and fonts: it fetches a font from
// the publisher's server, stores it, and serves it to every page with the
// Access-Control-Allow-Origin of the first response.
func (s *site) serveCached(w http.ResponseWriter, r *http.Request) {
	host, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/r/s/"), "/")
	s.mu.Lock()
	kept := s.kept[r.URL.Path]
	s.mu.Unlock()
	if kept == nil {
		fetch := httptest.NewRequest("GET", "https://"+host+"/"+path, nil)
		if origin := r.Header.Get("Origin"); origin != "" {
			fetch.Header.Set("Origin", origin)
		}
		kept = httptest.NewRecorder()
		s.ServeHTTP(kept, fetch)
		s.mu.Lock()
		s.kept[r.URL.Path] = kept
		s.mu.Unlock()
	}
	for _, key := range []string{"Access-Control-Allow-Origin", "Content-Type"} {
		if value := kept.Header().Get(key); value != "" {
			w.Header().Set(key, value)
		}
	}
	w.WriteHeader(kept.Code)
	_, _ = w.Write(kept.Body.Bytes())
}

// handler is the API, without CORS. It records what it does.
func (s *site) handler() http.Handler {
	api := http.NewServeMux()
	done := func(r *http.Request, what string) {
		if _, err := r.Cookie("reader"); err == nil {
			what += " as reader"
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.runs = append(s.runs, what)
	}
	api.HandleFunc("GET /api/read", func(w http.ResponseWriter, r *http.Request) {
		done(r, "read")
		_, err := r.Cookie("reader")
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("AMP-Redirect-To", "https://www.example.com/thanks")
		w.Header().Set("X-Internal", "not for pages")
		_ = json.NewEncoder(w).Encode(map[string]bool{"cookie": err == nil})
	})
	api.HandleFunc("GET /api/partitioned", func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "partitioned", Value: "1", Path: "/", Secure: true, SameSite: http.SameSiteNoneMode,
			Partitioned: true})
	})
	api.HandleFunc("GET /api/shared", func(w http.ResponseWriter, r *http.Request) {
		done(r, "shared")
		w.Header().Set("Cache-Control", "public, max-age=60")
		_, _ = io.WriteString(w, "for all")
	})
	api.HandleFunc("GET /api/font.ttf", serveFont)
	write := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 100))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		done(r, r.Method+" "+string(body))
		_, _ = io.WriteString(w, "written")
	}
	api.HandleFunc("POST /api/write", write)
	api.HandleFunc("PUT /api/write", write)
	api.HandleFunc("DELETE /api/write", write)
	return api
}

func serveFont(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "font/ttf")
	w.Header().Set("Cache-Control", "public, max-age=60")
	_, _ = w.Write(goregular.TTF)
}

// serve starts h on loopback and returns its address.
func serve(t testing.TB, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// proxy passes requests on to the server at addr, as they are. It reads a body first: ReverseProxy
// alone cuts the answer of a server that answers before it has read the body.
func proxy(addr string) http.Handler {
	connections := &http.Transport{DisableKeepAlives: true} // servers may close one that is used again
	passOn := &httputil.ReverseProxy{Transport: connections, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: addr})
		r.Out.Host = r.In.Host
	}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		passOn.ServeHTTP(w, r)
	})
}

// start starts a server and waits until it listens at addr. It ends with the test.
func start(t testing.TB, addr string, cmd *exec.Cmd) {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = 10 * time.Second // for children that keep stderr open
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it was killed below, or stderr has the reason
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("%s wrote:\n%s", cmd.Path, &stderr)
		}
	})
	for begun := time.Now(); time.Since(begun) < 2*time.Minute; {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		select {
		case <-ended: // another process may listen at addr
			t.Fatalf("%s ended", cmd.Path)
		case <-time.After(50 * time.Millisecond):
		}
		if err == nil {
			return
		}
	}
	t.Fatalf("%s does not listen at %s", cmd.Path, addr)
}
