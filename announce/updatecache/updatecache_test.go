package updatecache

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/internal/vectors"
)

// toolboxKey is the key of AMP's own tests, and of the vectors.
var toolboxKey = sync.OnceValue(func() *rsa.PrivateKey {
	data, err := os.ReadFile("../../conformance/updatecache.pem")
	if err != nil {
		panic(err)
	}
	block, _ := pem.Decode(data)
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		panic(err)
	}
	return key
})

// A service is a Signer that is not an *rsa.PrivateKey, such as a key management service.
type service struct {
	public crypto.PublicKey
	sign   func(digest []byte) ([]byte, error)
}

func (s service) Public() crypto.PublicKey { return s.public }

func (s service) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	if opts != crypto.SHA256 {
		return nil, fmt.Errorf("asked for %v", opts)
	}
	return s.sign(digest)
}

// TestMain discards what is logged if Config.Logger is nil.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// start is the time at which the tests' clock begins.
var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// client returns a Client for which the handler serves all caches and publishers.
func client(t *testing.T, handler http.Handler, change func(*Config)) *Client {
	t.Helper()
	cfg := Config{Signer: toolboxKey(), Caches: cacheurl.DefaultCaches()[:1], HTTPClient: servertest.Loopback(t, handler),
		now: func() time.Time { return start }}
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A cache is the update-cache endpoint of an AMP Cache, as Google documents it. It shares
// no code with Client: it verifies the signature over the part of the raw request line that
// is before the signature parameter.
type cache struct {
	key *rsa.PublicKey
	now time.Time // if zero, start

	mu   sync.Mutex
	seen []string // host and path with the query, of each request
}

func (c *cache) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.seen = append(c.seen, r.Host+r.RequestURI)
	c.mu.Unlock()
	deny := func(why string) {
		w.Header().Set("Content-Type", "text/html; charset=UTF-8")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "<!DOCTYPE html>\n<html lang=en><title>Error 403 (Forbidden)!!1</title><style>*{margin:0}</style>"+
			"<p><b>403.</b> <ins>That’s an error.</ins>\n<p>Your client does not have permission to get URL <code>%s</code> from this server. %s "+
			"<ins>That’s all we know.</ins>",
			html.EscapeString(r.RequestURI), why)
	}
	text, signature, _ := strings.Cut(r.RequestURI, "&amp_url_signature=")
	raw, err := base64.RawURLEncoding.DecodeString(signature)
	sum := sha256.Sum256([]byte(text))
	if err != nil || rsa.VerifyPKCS1v15(c.key, crypto.SHA256, sum[:], raw) != nil {
		deny("URL signature verification error.")
		return
	}
	m := regexp.MustCompile(`^/update-cache/c/(?:s/)?[^?]*\?(?:.*&)?amp_action=flush&amp_ts=(\d+)$`).FindStringSubmatch(text)
	if m == nil || r.Method != http.MethodGet {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	seconds, err := strconv.ParseInt(m[1], 10, 64)
	if age := cmp.Or(c.now, start).Sub(time.Unix(seconds, 0)); err != nil || age.Abs() > time.Minute {
		deny("Invalid timestamp.")
		return
	}
	io.WriteString(w, "OK\n")
}

// TestVectors: each request is the vector's, and the cache accepts it.
func TestVectors(t *testing.T) {
	t.Parallel()
	f, err := vectors.Read("../../conformance/updatecache.json")
	if err != nil {
		t.Fatal(err)
	}
	if f.Key != "updatecache.pem" || len(f.UpdateCache) < 8 {
		t.Fatalf("%d vectors with the key %s", len(f.UpdateCache), f.Key)
	}
	for _, v := range f.UpdateCache {
		google := &cache{key: &toolboxKey().PublicKey, now: time.Unix(v.Time, 0)}
		c := client(t, google, func(cfg *Config) { cfg.now = func() time.Time { return google.now } })
		if got, err := c.sign(v.Text); err != nil || got != v.Signature || v.Text == "" {
			t.Errorf("sign(%q) = %s, %v; want %s", v.Text, got, err, v.Signature)
		}
		if v.URL == "" {
			continue
		}
		results, err := c.Flush(t.Context(), v.URL)
		if err != nil || !slices.Equal(results, []Result{{Cache: "google"}}) ||
			!slices.Equal(google.seen, []string{strings.TrimPrefix(v.Signed, "https://")}) {
			t.Errorf("%s: %+v, %v; the cache was asked for %q; want %s", v.URL, results, err, google.seen, v.Signed)
		}
	}
}

// A signed URL is the one that Flush asks for, and a cache accepts it.
func TestSignedURLs(t *testing.T) {
	t.Parallel()
	google := &cache{key: &toolboxKey().PublicKey}
	c := client(t, google, func(cfg *Config) { cfg.Caches = cacheurl.DefaultCaches()[:2] })
	const page = "https://bücher.example/a?b=c d"
	urls, err := c.SignedURLs(cacheurl.URL{Publisher: page})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Flush(t.Context(), page); err != nil {
		t.Error(err)
	}
	if want := []string{"https://" + google.seen[0], "https://" + google.seen[1]}; !slices.Equal(urls, want) {
		t.Errorf("%q; Flush asked for %q", urls, want)
	}
	for _, image := range []string{"https://www.example.com/a.PNG", "https://www.example.com/a/b.woff2?c"} {
		if results, err := c.Flush(t.Context(), image); results != nil || err == nil || !strings.Contains(err.Error(), "is an image or a font") {
			t.Errorf("%s: %v, %v", image, results, err)
		}
	}
	if urls, err := c.SignedURLs(cacheurl.URL{Publisher: "x"}); urls != nil || err == nil || !strings.Contains(err.Error(), "page") {
		t.Errorf("%q, %v", urls, err)
	}
	failing := client(t, google, func(cfg *Config) {
		cfg.Signer = service{toolboxKey().Public(), func([]byte) ([]byte, error) { return nil, errors.New("no") }}
	})
	if urls, err := failing.SignedURLs(cacheurl.URL{Publisher: page}); urls != nil || !errors.Is(err, ErrSigner) {
		t.Errorf("%q, %v", urls, err)
	}
}

func TestEachCacheIsAsked(t *testing.T) {
	t.Parallel()
	google := &cache{key: &toolboxKey().PublicKey}
	third := cacheurl.Cache{ID: "third", CacheDomain: "amp.example", UpdateCacheAPIDomainSuffix: "update.amp.example"}
	c := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.Host, ".www.bing-amp.com") {
			http.Error(w, "no such thing", http.StatusNotFound)
			return
		}
		google.ServeHTTP(w, r)
	}), func(cfg *Config) { cfg.Caches = append(cacheurl.DefaultCaches()[:2], third) })

	results, err := c.Flush(t.Context(), "https://www.example.com/")
	if len(results) != 3 || results[0].Err != nil || results[2].Err != nil || results[0].Cache != "google" || results[2].Cache != "third" {
		t.Errorf("got %+v", results)
	}
	var problem *Error
	if !errors.As(results[1].Err, &problem) || !errors.Is(err, ErrUnexpected) || problem.Status != 404 || problem.Cache != "bing" ||
		problem.Message != "no such thing" {
		t.Errorf("got %v, %+v", err, problem)
	}
	hosts := []string{}
	paths := map[string]bool{}
	for _, seen := range google.seen {
		host, path, _ := strings.Cut(seen, "/")
		hosts = append(hosts, host)
		paths[path] = true
	}
	if !slices.Equal(hosts, []string{"www-example-com.cdn.ampproject.org", "www-example-com.update.amp.example"}) || len(paths) != 1 {
		t.Errorf("got requests to %q for %v; want the same path for both caches", hosts, paths)
	}
}

func TestEachResponseIsReported(t *testing.T) {
	t.Parallel()
	google403 := func(message string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(403)
			fmt.Fprintf(w, "<title>Error 403</title><p>Your client does not have permission to get URL <code>%s</code> from this server. %s",
				html.EscapeString(r.RequestURI), message)
		}
	}
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(code)
			io.WriteString(w, body)
		}
	}
	cut := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			status(code, body)(w, r)
		}
	}
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		want    error
		message string // in the error
		once    bool   // it is not retryable
	}{
		"signature": {handler: google403("URL signature verification error."), want: ErrSignature,
			message: "URL signature verification error.", once: true},
		"ingestion": {handler: google403("Invalid public key due to ingestion error: 404"), want: ErrIngestion,
			message: "ingestion error: 404", once: true},
		"signature, decoded": {handler: status(403,
			"<STYLE>*{}</STYLE>no permission to get URL /a ingestion of a signature. URL signature verification error."), want: ErrSignature,
			message: "URL signature verification error.", once: true},
		"408":                    {handler: status(408, ""), want: ErrServer, message: "408", once: false},
		"403 without a reason":   {handler: google403("That’s all we know."), want: ErrForbidden, message: "That’s all", once: true},
		"403 with an empty body": {handler: status(403, ""), want: ErrForbidden, message: "", once: true},
		"429":                    {handler: status(429, "slow down"), want: ErrRateLimited, message: "slow down", once: false},
		"500":                    {handler: status(500, "<h1>oops</h1>"), want: ErrServer, message: `"oops"`, once: false},
		"503":                    {handler: status(503, ""), want: ErrServer, message: "", once: false},
		"404":                    {handler: status(404, ""), want: ErrUnexpected, message: "404", once: true},
		"204":                    {handler: status(204, ""), want: ErrUnexpected, message: "204", once: true},
		"200 with a login page":  {handler: status(200, "<html>Please log in"), want: ErrUnexpected, message: "log in", once: true},
		"200 with an empty body": {handler: status(200, ""), want: ErrUnexpected, message: "200", once: true},
		"200 with more than OK":  {handler: status(200, "OK OK"), want: ErrUnexpected, message: "OK OK", once: true},
		"200 with OK in a button": {handler: status(200, "<title>Log in</title><button>OK</button>"), want: ErrUnexpected, message: "OK",
			once: true},
		"200 with a comment before OK": {handler: status(200, "<!-- not flushed -->OK"), want: ErrUnexpected, message: "OK", once: true},
		"invalid key":                  {handler: google403("Invalid PEM key."), want: ErrKey, message: "Invalid PEM key.", once: true},
		"ingest":                       {handler: google403("We could not ingest it."), want: ErrIngestion, message: "ingest", once: true},
		"signature and ingestion": {handler: google403("Signature not verified: ingestion error."), want: ErrIngestion,
			message: "ingestion error", once: true},
		"403 truncated": {handler: cut(403, "<p>Your client"), want: io.ErrUnexpectedEOF, message: "is truncated", once: false},
		"403 truncated after the reason": {handler: cut(403, "URL signature verification error."), want: ErrSignature, message: "verification",
			once: true},
		"garbage": {handler: status(200, "\x00\xff<\x01"), want: ErrUnexpected, message: "200", once: true},
		"endless": {handler: func(w http.ResponseWriter, r *http.Request) {
			for err := error(nil); err == nil; {
				_, err = io.WriteString(w, "OK   ")
			}
		}, want: nil, message: "is truncated", once: false},
		"201 OK": {handler: status(201, "OK"), want: ErrUnexpected, message: "201", once: true},
		"long":   {handler: status(403, strings.Repeat("word ", 1000)), want: ErrForbidden, message: "word", once: true},
		"redirect": {handler: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
			want: ErrUnexpected, message: "302", once: true},
		"truncated": {handler: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "3")
			io.WriteString(w, "OK")
		}, want: io.ErrUnexpectedEOF, message: "is truncated", once: false},
		"no answer": {handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, want: io.EOF, message: "EOF",
			once: false},
		"slow": {handler: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, want: nil, message: "Timeout", once: false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			c := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				test.handler(w, r)
			}), func(cfg *Config) {
				if name == "slow" {
					cfg.HTTPClient.Timeout = 2 * time.Second
				}
			})
			// The words in the page's URL must not be taken for the cache's message.
			results, err := c.Flush(t.Context(), "https://www.example.com/ingestion-of-a-signature")
			var problem *Error
			if !errors.As(err, &problem) || len(results) != 1 || results[0].Err != problem || test.want != nil && !errors.Is(err, test.want) ||
				!strings.Contains(err.Error(), test.message) {
				t.Fatalf("got %+v, %v; want %v with %q", results, err, test.want, test.message)
			}
			if len(err.Error()) > 600 || strings.Contains(err.Error(), "amp_url_signature") {
				t.Errorf("the error repeats the signed request: %v", err)
			}
			if problem.Retryable() == test.once || requests.Load() != 1 && name != "no answer" { // net/http may repeat that
				t.Errorf("retryable: %v, %d requests", problem.Retryable(), requests.Load())
			}
		})
	}
}

func TestFlushEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var requests atomic.Int32
	c := client(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		cancel()
		<-r.Context().Done()
	}), nil)
	for range 2 { // during a request, and before one
		if _, err := c.Flush(ctx, "https://www.example.com/"); !errors.Is(err, context.Canceled) || requests.Load() != 1 {
			t.Errorf("got %v, %d requests", err, requests.Load())
		}
	}
}

func TestInvalidPagesAreRejectedBeforeSending(t *testing.T) {
	t.Parallel()
	c := client(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s", r.RequestURI) }), nil)
	for _, page := range []string{"", "www.example.com", "https://127.0.0.1/", "https://www.example.com:8443/",
		"https://www-example-com.cdn.ampproject.org/c/s/www.example.com/", "https://www.example.com/?amp_js_v=1",
		"https://www.example.com/?a&amp_ts=1", "https://www.example.com/?amp_action", "https://www.example.com/?amp_url_signature=x",
		"https://www.example.com/?amp%5Faction=x"} {
		t.Run(page, func(t *testing.T) {
			results, err := c.Flush(t.Context(), page)
			if problem := (*badvalue.Error)(nil); !errors.As(err, &problem) || problem.Path != "page" || results != nil {
				t.Errorf("%q: got %v, %v", page, results, err)
			}
		})
	}
}

func TestSignaturesAreCheckedBeforeSending(t *testing.T) {
	t.Parallel()
	key := toolboxKey()
	broken := errors.New("the service is down")
	for name, test := range map[string]struct {
		sign func(digest []byte) ([]byte, error)
		want error
	}{
		"a service": {sign: func(digest []byte) ([]byte, error) { return rsa.SignPKCS1v15(nil, key, crypto.SHA256, digest) }, want: nil},
		"PSS": {sign: func(digest []byte) ([]byte, error) { return rsa.SignPSS(rand.Reader, key, crypto.SHA256, digest, nil) },
			want: ErrSigner},
		"nothing": {sign: func(digest []byte) ([]byte, error) { return nil, nil }, want: ErrSigner},
		"down":    {sign: func(digest []byte) ([]byte, error) { return nil, broken }, want: broken},
	} {
		t.Run(name, func(t *testing.T) {
			google := &cache{key: &key.PublicKey}
			c := client(t, google, func(cfg *Config) { cfg.Signer = service{&key.PublicKey, test.sign} })
			_, err := c.Flush(t.Context(), "https://www.example.com/")
			problem := (*Error)(nil)
			if errors.As(err, &problem) && problem.Retryable() != (name == "down") { // a scheme does not change
				t.Errorf("retryable: %t", problem.Retryable())
			}
			if !errors.Is(err, test.want) || test.want != nil && (!errors.Is(err, ErrSigner) || len(google.seen) != 0) {
				t.Errorf("%s: got %v after %d requests; want %v", name, err, len(google.seen), test.want)
			}
		})
	}
}

func TestParseKey(t *testing.T) {
	t.Parallel()
	key := toolboxKey()
	encode := func(blockType string, der []byte) []byte {
		return append([]byte("a comment\n"), pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der})...)
	}
	pkcs8 := func(key any) []byte {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	elliptic, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	whole := string(encode("PRIVATE KEY", pkcs8(key)))
	for name, test := range map[string]struct {
		data []byte
		want string // "" means no error
	}{
		"PKCS #8":                 {data: encode("PRIVATE KEY", pkcs8(key)), want: ""},
		"PKCS #1":                 {data: encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)), want: ""},
		"a certificate before it": {data: append(encode("CERTIFICATE", []byte{1}), encode("PRIVATE KEY", pkcs8(key))...), want: ""},
		"a certificate alone":     {data: encode("CERTIFICATE", []byte{1}), want: `"CERTIFICATE"; want`},
		"nothing":                 {data: nil, want: "not PEM"},
		"garbage":                 {data: []byte("garbage"), want: "not PEM"},
		"a byte order mark":       {data: []byte("\uFEFF" + whole), want: ""},
		"one line":                {data: []byte(strings.ReplaceAll(whole, "\n", " ")), want: "is on one line"},
		"literal line breaks":     {data: []byte(strings.ReplaceAll(whole, "\n", `\n`)), want: "has \\n as two characters"},
		"indented":                {data: []byte("    " + strings.ReplaceAll(whole, "\n", "\n    ")), want: "is indented"},
		"without its end":         {data: []byte(whole[:len(whole)/2]), want: "is truncated: it has no -----END"},
		"no base64":               {data: []byte(strings.Replace(whole, "A", "é", 1)), want: "is damaged"},
		"UTF-16":                  {data: []byte(utf16(whole)), want: "is UTF-16"},
		"truncated":               {data: encode("PRIVATE KEY", pkcs8(key)[:100]), want: "cannot be read"},
		"encrypted":               {data: encode("ENCRYPTED PRIVATE KEY", nil), want: `"ENCRYPTED PRIVATE KEY"; want`},
		"public":                  {data: encode("PUBLIC KEY", nil), want: `"PUBLIC KEY"; want`},
		"elliptic":                {data: encode("PRIVATE KEY", pkcs8(elliptic)), want: "*ecdsa.PrivateKey; want RSA"},
		"old": {data: pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED"}}),
			want: "is encrypted"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseKey(test.data)
			if test.want == "" && (err != nil || !got.Equal(key)) ||
				test.want != "" && (got != nil || err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%s: got %v; want %q", name, err, test.want)
			}
		})
	}
}

// utf16 returns an ASCII text in UTF-16, little-endian, without a byte order mark.
func utf16(text string) string { return strings.Join(strings.Split(text, ""), "\x00") + "\x00" }

func TestAllConfigErrorsAreReported(t *testing.T) {
	t.Parallel()
	elliptic, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	for want, cfg := range map[string]Config{
		"Signer \"\" is missing":                                 {},
		"*rsa.PrivateKey\" has no public key":                    {Signer: (*rsa.PrivateKey)(nil)},
		"*ecdsa.PrivateKey\" has no public key of type":          {Signer: elliptic},
		"has no public key of type *rsa.PublicKey; want an RSA":  {Signer: service{public: (*rsa.PublicKey)(nil)}},
		"not valid for RSA: crypto/rsa: public exponent is even": {Signer: service{public: &rsa.PublicKey{N: toolboxKey().N, E: 65538}}},
		"service\" has a public key that is not valid": {
			Signer: service{public: &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 2048), E: 65537}}},
		"RSA, 1024 bits":             {Signer: short},
		"caches \"\" names no cache": {Signer: toolboxKey(), Caches: []cacheurl.Cache{}},
		"caches[0].cacheDomain \"\"": {Signer: toolboxKey(),
			Caches: []cacheurl.Cache{{ID: "x", UpdateCacheAPIDomainSuffix: "x.example"}}},
		"caches[0].updateCacheApiDomainSuffix \"\"": {Signer: toolboxKey(), Caches: []cacheurl.Cache{{ID: "x", CacheDomain: "x.example"}}},
	} {
		t.Run(want, func(t *testing.T) {
			c, err := New(cfg)
			if problem := (*badvalue.Error)(nil); c != nil || !errors.As(err, &problem) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v; want an error with %s", err, want)
			}
		})
	}
	_, err = New(Config{Caches: []cacheurl.Cache{{}}})
	for _, want := range []string{"Signer", "caches[0].id", "caches[0].updateCache"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not have %s", err, want)
		}
	}
}

func TestCachesAreCopied(t *testing.T) {
	t.Parallel()
	caches := cacheurl.DefaultCaches()
	google := &cache{key: &toolboxKey().PublicKey}
	c := client(t, google, func(cfg *Config) { cfg.Caches = caches })
	caches[0] = cacheurl.Cache{}
	if _, err := c.Flush(t.Context(), "https://www.example.com/"); err != nil ||
		!strings.HasPrefix(google.seen[0], "www-example-com.cdn.ampproject.org/") {
		t.Errorf("asked for %v, %v", google.seen, err)
	}
}

func TestTheKeyIsServed(t *testing.T) {
	t.Parallel()
	c := client(t, http.NotFoundHandler(), nil)
	site := http.NewServeMux()
	site.Handle("/", c.KeyHandler())
	get := func(method, path string) (*http.Response, string) {
		w := httptest.NewRecorder()
		site.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w.Result(), w.Body.String()
	}
	resp, body := get("GET", KeyPath)
	want := http.Header{"Content-Type": {"text/plain; charset=utf-8"}, "Content-Length": {strconv.Itoa(len(body))},
		"X-Content-Type-Options": {"nosniff"}}
	if resp.StatusCode != 200 || fmt.Sprint(resp.Header) != fmt.Sprint(want) {
		t.Errorf("got %d, %v", resp.StatusCode, resp.Header)
	}
	block, rest := pem.Decode([]byte(body))
	if block == nil || block.Type != "PUBLIC KEY" || len(rest) != 0 {
		t.Fatalf("got %q", body)
	}
	if key, err := x509.ParsePKIXPublicKey(block.Bytes); err != nil || !toolboxKey().PublicKey.Equal(key) {
		t.Errorf("got %v, %v", key, err)
	}
	if resp, body := get("HEAD", KeyPath); resp.StatusCode != 200 || body != "" || fmt.Sprint(resp.Header) != fmt.Sprint(want) {
		t.Errorf("HEAD: got %d, %v, %q", resp.StatusCode, resp.Header, body)
	}
	if resp, _ := get("POST", KeyPath); resp.StatusCode != 405 || resp.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: got %d, %v", resp.StatusCode, resp.Header)
	}
	for _, path := range []string{"/", KeyPath + "/", KeyPath + "x", "/.well-known/amphtml/", "/.well-known%2Famphtml/apikey.pub"} {
		t.Run(path, func(t *testing.T) {
			if resp, body := get("GET", path); resp.StatusCode != 404 || strings.Contains(body, "KEY") {
				t.Errorf("%s: got %d, %q", path, resp.StatusCode, body)
			}
		})
	}
}

func TestVerifyComparesTheKeyFile(t *testing.T) {
	t.Parallel()
	c := client(t, http.NotFoundHandler(), nil)
	rec := httptest.NewRecorder()
	c.KeyHandler().ServeHTTP(rec, httptest.NewRequest("GET", KeyPath, nil))
	body := rec.Body.String()
	key := func(public any, blockType string) string {
		der, err := x509.MarshalPKIXPublicKey(public)
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der}))
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	plain := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, text) }
	}
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		want    string // "" means no error
	}{
		"the handler":          {handler: c.KeyHandler().ServeHTTP, want: ""},
		"as openssl writes it": {handler: plain("\n" + strings.ReplaceAll(body, "\n", "\r\n") + "\n"), want: ""},
		"missing":              {handler: http.NotFound, want: "404"},
		"redirect": {handler: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://example.com"+KeyPath, http.StatusMovedPermanently)
		}, want: `a redirect to "https://example.com/`},
		"a page": {handler: plain("<html>"), want: `Content-Type is "text/html`},
		"octet stream": {handler: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/octet-stream")
			io.WriteString(w, body)
		}, want: `Content-Type is "application/octet-stream"`},
		"garbage": {handler: plain("garbage"), want: `the answer, 7 bytes of text/plain, is not PEM`},
		"empty": {handler: func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Type", "text/plain") },
			want: `0 bytes of text/plain, is not PEM`},
		"endless": {handler: plain(strings.Repeat("a", 1<<20)), want: "longer than 65536"},
		"truncated": {handler: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, body)
		}, want: "is truncated"},
		"no answer": {handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, want: "EOF"},
		"PKCS #1": {handler: plain(string(pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY",
			Bytes: x509.MarshalPKCS1PublicKey(&toolboxKey().PublicKey)}))), want: `"RSA PUBLIC KEY"`},
		"the private key": {handler: plain(string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY"}))),
			want: "which is public from now on"},
		"both keys": {handler: plain(body + string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY"}))),
			want: "which is public from now on"},
		"one line": {handler: plain(strings.ReplaceAll(body, "\n", " ")), want: "it is on one line; want a line break"},
		"an encrypted key": {handler: plain(string(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY"}))),
			want: "which is public from now on"},
		"UTF-16": {handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			io.WriteString(w, utf16(body))
		}, want: "it is UTF-16"},
		"not a key": {handler: plain(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")}))),
			want: "not a public key"},
		"two keys":         {handler: plain(body + body), want: "besides one PEM block"},
		"junk before":      {handler: plain("-----BEGIN junk\n" + body), want: "besides one PEM block"},
		"a key after text": {handler: plain("our key:\n" + body), want: "besides one PEM block"},
		"another key":      {handler: plain(key(&other.PublicKey, "PUBLIC KEY")), want: "another key"},
	} {
		t.Run(fmt.Sprintf("%.40s", name), func(t *testing.T) {
			c := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Host != "www.example.com" || r.URL.Path != KeyPath {
					t.Errorf("asked for %s%s", r.Host, r.URL)
				}
				test.handler(w, r)
			}), nil)
			err := c.Verify(t.Context(), "WWW.Example.com")
			if test.want == "" && err != nil || test.want != "" &&
				(errors.Is(err, ErrKeyFile) == (name == "no answer") || !strings.Contains(err.Error(), test.want) ||
					!strings.Contains(err.Error(), "https://www.example.com"+KeyPath)) {
				t.Errorf("%s: got %v; want %q", name, err, test.want)
			}
		})
	}
}

func TestVerifyReportsEachPublisher(t *testing.T) {
	t.Parallel()
	c := client(t, http.NotFoundHandler(), nil)
	err := c.Verify(t.Context(), "www.example.com", "https://www.example.com", "example.org")
	for _, want := range []string{"https://www.example.com" + KeyPath, `publishers[1] "https://www.example.com" has a scheme`,
		"https://example.org"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %s in it", err, want)
		}
	}
	if err := c.Verify(t.Context()); err == nil || !strings.Contains(err.Error(), "names no publisher") {
		t.Errorf("got %v", err)
	}
}

func TestVerifyEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	c := client(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked++; cancel(); <-r.Context().Done() }), nil)
	err := c.Verify(ctx, "a.example", "b.example", "c.example")
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrKeyFile) || strings.Count(err.Error(), "example") != 1 || asked != 1 {
		t.Errorf("got %v, after %d requests", err, asked)
	}
}

// TestTenRequestsASecond: at most ten requests arrive at one host in any second, however
// many goroutines send them and however long they take. Other hosts do not wait.
func TestTenRequestsASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l limiter
		began := time.Now()
		var mu sync.Mutex
		var arrivals []time.Duration
		var all sync.WaitGroup
		for i := range 95 {
			all.Go(func() {
				time.Sleep(time.Duration(i%7) * 150 * time.Millisecond)
				release, err := l.acquire(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Duration(i%5) * 100 * time.Millisecond) // to connect
				mu.Lock()
				arrivals = append(arrivals, time.Since(began))
				mu.Unlock()
				time.Sleep(time.Duration(i%3) * 10 * time.Millisecond) // to answer
				release(true)
			})
		}
		time.Sleep(time.Second)
		if _, err := l.acquire(t.Context(), "b"); err != nil || time.Since(began) != time.Second {
			t.Errorf("another host waited: %v, %v", time.Since(began), err)
		}
		all.Wait()
		slices.Sort(arrivals)
		for i := range arrivals[:len(arrivals)-10] {
			if gap := arrivals[i+10] - arrivals[i]; gap < time.Second {
				t.Errorf("requests %d to %d within %v", i, i+10, gap)
			}
		}
		if last := arrivals[len(arrivals)-1]; last > 14*time.Second {
			t.Errorf("the last of 95 waited %v; want about 12 s", last)
		}
	})
}

// use takes a slot for a request that takes no time.
func use(t *testing.T, l *limiter, host string) {
	t.Helper()
	release, err := l.acquire(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	release(true)
}

func TestCanceledCallsTakeNoSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l limiter
		began := time.Now()
		for range 50 { // without a request to send
			release, err := l.acquire(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			release(false)
		}
		for range 10 {
			use(t, &l, "a")
		}
		if time.Since(began) != 0 {
			t.Errorf("ten waited %v", time.Since(began))
		}
		short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		gaveUp, giveUp := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if _, err := l.acquire(short, "a"); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
			})
			all.Go(func() {
				if _, err := l.acquire(gaveUp, "a"); !errors.Is(err, context.Canceled) || time.Since(began) != 0 {
					t.Errorf("got %v after %v", err, time.Since(began))
				}
			})
		}
		synctest.Wait()
		giveUp()
		all.Wait()
		for range 10 {
			use(t, &l, "a")
		}
		if time.Since(began) != time.Second {
			t.Errorf("ten waited %v", time.Since(began))
		}
		if _, err := l.acquire(gaveUp, "b"); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		// A canceled context also ends the wait when all slots are in use.
		for range 10 {
			if _, err := l.acquire(t.Context(), "c"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.acquire(gaveUp, "c"); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		l.mu.Lock()
		if a, c := l.hosts["a"], l.hosts["c"]; len(l.hosts) != 2 || a.users != 10 || c.users != 10 { // a's for a second
			t.Errorf("hosts with users: %v", l.hosts)
		}
		l.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.hosts) != 1 {
			t.Errorf("an idle host is remembered: %v", l.hosts)
		}
	})
}

// A flush takes a slot of the limit. One that sends nothing gives it back.
func TestFlushKeepsTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var last time.Duration
		fails := errors.New("no")
		c, err := New(Config{
			Signer: service{toolboxKey().Public(), func(digest []byte) ([]byte, error) {
				if fails != nil {
					return nil, fails
				}
				return rsa.SignPKCS1v15(nil, toolboxKey(), crypto.SHA256, digest)
			}},
			Caches:     cacheurl.DefaultCaches()[:1],
			HTTPClient: &http.Client{Transport: transport(func(*http.Request) { last = time.Since(began) })},
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if _, err := c.Flush(t.Context(), "https://www.example.com/"); !errors.Is(err, fails) {
				t.Error(err)
			}
		}
		fails = nil
		for _, want := range []time.Duration{0, time.Second} {
			for range 10 {
				if _, err := c.Flush(t.Context(), "https://www.example.com/"); err != nil || last != want {
					t.Errorf("%v after %v; want %v", err, last, want)
				}
			}
		}
	})
}

// TestTheSignedURLIsSentUnchanged, even if net/url would escape it differently.
func TestTheSignedURLIsSentUnchanged(t *testing.T) {
	t.Parallel()
	for r := range rune(0x80) {
		c := client(t, &cache{key: &toolboxKey().PublicKey}, nil) // a new one, because of the rate limit
		for _, tail := range []string{"/a%2Fb%41" + string(r) + "/", "/?a" + string(r) + "%zz", "//" + string(r) + "//?"} {
			t.Run(tail, func(t *testing.T) {
				page := "https://www.example.com" + tail
				if r < ' ' || r == '\\' && !strings.Contains(tail, "?a") || r == '%' && !strings.Contains(tail, "?a") {
					return // not a valid URL, or one that net/http's server rejects
				}
				if _, err := c.Flush(t.Context(), page); err != nil {
					t.Errorf("%q: %v", page, err)
				}
			})
		}
	}
	sent := ""
	c := client(t, nil, func(cfg *Config) {
		cfg.HTTPClient = &http.Client{Transport: transport(func(r *http.Request) { sent = r.URL.Host + r.URL.RequestURI() })}
	})
	want := "www-example-com.cdn.ampproject.org/update-cache/c/s/www.example.com/100%?amp_action=flush&"
	if _, err := c.Flush(t.Context(), "https://www.example.com/100%"); err != nil || !strings.HasPrefix(sent, want) {
		t.Errorf("sent %s, %v; want %s", sent, err, want)
	}
}

// A transport sees requests, and says OK.
type transport func(*http.Request)

func (see transport) RoundTrip(r *http.Request) (*http.Response, error) {
	see(r)
	return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("OK"))}, nil
}

// hijacking returns a Client whose server answers with these bytes, and then leaves the connection
// open until hangUp is closed.
func hijacking(t *testing.T, answer string) (c *Client, hangUp chan bool) {
	t.Helper()
	hangUp = make(chan bool)
	c = client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, answer)
		<-hangUp
	}), nil)
	return c, hangUp
}

// TestA101DoesNotHang: its body is the connection, and the server leaves it open.
func TestA101DoesNotHang(t *testing.T) {
	t.Parallel()
	c, hangUp := hijacking(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	defer close(hangUp)
	if _, err := c.Flush(t.Context(), "https://www.example.com/"); !errors.Is(err, ErrUnexpected) {
		t.Errorf("got %v", err)
	}
}

// TestNetworkErrorsAreShort, whatever a server sends.
func TestNetworkErrorsAreShort(t *testing.T) {
	t.Parallel()
	c, hangUp := hijacking(t, strings.Repeat("garbage", 1<<12)+"\r\n\r\n")
	defer close(hangUp)
	if _, err := c.Flush(t.Context(), "https://www.example.com/"+strings.Repeat("a", 1000)); err == nil || len(err.Error()) > 800 {
		t.Errorf("got %d bytes", len(err.Error()))
	}
	if err := c.Verify(t.Context(), "www.example.com"); err == nil || len(err.Error()) > 600 {
		t.Errorf("got %d bytes", len(err.Error()))
	}
}

func TestTheLogSaysWhatHappened(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	google := &cache{key: &toolboxKey().PublicKey}
	c := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.RequestURI, "bad") {
			w.WriteHeader(500)
			return
		}
		google.ServeHTTP(w, r)
	}), func(cfg *Config) {
		cfg.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	_, _ = c.Flush(t.Context(), "https://www.example.com/good")
	_, _ = c.Flush(t.Context(), "https://www.example.com/bad")
	for _, want := range []string{`level=DEBUG msg="ampcors: updatecache: asking" url="https://www-example-com.cdn.`,
		`level=INFO msg="ampcors: updatecache: flushed" page=https://www.example.com/good cache=google`,
		`level=WARN msg="ampcors: updatecache: not flushed" page=https://www.example.com/bad`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log\n%s\ndoes not have %s", &out, want)
		}
	}
}

// A cache's copy of the key is compared with the Signer's, of whatever media type it is.
func TestVerifyCaches(t *testing.T) {
	t.Parallel()
	var copies sync.Map // by host
	c := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, ok := copies.Load(r.Host)
		if prefix, _, _ := strings.Cut(r.Host, "."); !ok || r.RequestURI != "/r/s/"+strings.ReplaceAll(prefix, "-", ".")+KeyPath {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Write(key.([]byte))
	}), func(cfg *Config) { cfg.Caches = cacheurl.DefaultCaches()[:2] })
	google, bing := "www-example-com.cdn.ampproject.org", "www-example-com.www.bing-amp.com"
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(other.Public())
	if err != nil {
		t.Fatal(err)
	}
	old := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})

	copies.Store(google, c.pem)
	err = c.VerifyCaches(t.Context(), "www.example.com")
	if !errors.Is(err, ErrKeyFile) || !strings.Contains(err.Error(), bing) || strings.Contains(err.Error(), google) {
		t.Errorf("bing has no key: %v", err)
	}
	copies.Store(bing, c.pem)
	if err := c.VerifyCaches(t.Context(), "WWW.example.com"); err != nil {
		t.Error(err)
	}
	copies.Store(google, old)
	if err := c.VerifyCaches(t.Context(), "www.example.com"); !errors.Is(err, ErrKeyFile) || !strings.Contains(err.Error(), "another key") ||
		strings.Contains(err.Error(), bing) {
		t.Errorf("google has an old key: %v", err)
	}
	if err := c.VerifyCaches(t.Context()); !errors.As(err, new(*badvalue.Error)) {
		t.Errorf("no publisher: %v", err)
	}
}

// Each content type has its own path.
func TestFlushURL(t *testing.T) {
	t.Parallel()
	for contentType, want := range map[cacheurl.ContentType]string{
		"":                      "c",
		cacheurl.Document:       "c",
		cacheurl.Viewer:         "v",
		cacheurl.SignedExchange: "wp",
		cacheurl.Certificate:    "cert",
		cacheurl.Image:          "i",
		cacheurl.SizedImage:     "ii/w800",
		cacheurl.Resource:       "r",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			var seen []string
			c := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				seen = append(seen, r.RequestURI)
				io.WriteString(w, "OK")
			}), nil)
			u := cacheurl.URL{Publisher: "https://www.example.com/a.png?b", Type: contentType}
			if contentType == cacheurl.SizedImage {
				u.ImageParams = "w800"
			}
			results, err := c.FlushURL(t.Context(), u)
			if want == "c" || want == "v" || want == "wp" {
				if results != nil || !errors.As(err, new(*badvalue.Error)) || seen != nil {
					t.Errorf("an image was flushed as a document: %v, %v, %q", results, err, seen)
				}
				u.Publisher = "https://www.example.com/a?b"
				results, err = c.FlushURL(t.Context(), u)
			}
			if err != nil || len(results) != 1 || len(seen) != 1 || !strings.HasPrefix(seen[0], "/update-cache/"+want+"/s/www.example.com/a") {
				t.Errorf("%v, %v, %q", results, err, seen)
			}
		})
	}
}
