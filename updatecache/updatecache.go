// Package updatecache asks AMP Caches to fetch a publisher's document again at once, by the
// signed requests of "update-cache"
// (https://developers.google.com/amp/cache/update-cache).
//
// A cache accepts a request that is signed with the publisher's RSA key. It fetches the
// public key from [KeyPath] on the document's host. So:
//
//  1. Make a key (openssl genrsa -out update-cache.pem 2048), read it by [ParseKey], and
//     make a [Client] with it.
//  2. Serve [Client.KeyHandler] at [KeyPath] on each publisher's host. Neither
//     robots.txt nor anything else may block caches there.
//  3. Once that is served, call [Client.Verify] for each host before its first flush: a
//     cache that finds no key, or a wrong one, remembers that for about a day.
//  4. Call [Client.Flush] when an AMP document has changed or is gone. It waits for the
//     caches, so do not call it in a request's handler: let a [Queue] do it.
//
// What update-cache does, and what it does not, by its documentation:
//
//   - It ensures only that a document is updated within its max-age (of Cache-Control).
//   - If the publisher answers with a redirect, the requested URL is flushed, and not the target
//     of the redirect.
//   - The key comes from exactly the host in the URL: not from a domain above or below it, and
//     not from that of the canonical page. A flush is for that host alone.
//   - The key is fetched by https, and robots.txt must allow it. KeyHandler serves it as
//     text/plain, which caches want.
//
// A cache keeps its copy of the key. When the key changes, serve the new one, and flush with it
// once [Client.VerifyCaches] finds it in the caches.
//
// A Client serves any number of publishers, and is safe for concurrent use by multiple goroutines.
// The package starts no goroutine, except in a Queue. Flush repeats a request only if
// [Config.Attempts] says so; a Queue retries by itself.
package updatecache

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/outbound"
	"github.com/ampcors/ampcors/internal/pageurl"
)

// KeyPath is where caches look for a publisher's public key.
const KeyPath = "/.well-known/amphtml/apikey.pub"

// minKeyBits is the shortest RSA key that counts as secure (NIST SP 800-131A). The key in
// the example of update-cache's documentation has the same length.
const minKeyBits = 2048

// Config configures a [Client].
type Config struct {
	// Signer signs the requests with an RSA key of 2,048 bits or more: an
	// *[rsa.PrivateKey], or anything that keeps one elsewhere, such as a key management
	// service. It is called with a SHA-256 hash and [crypto.SHA256], and must sign by
	// RSASSA-PKCS1-v1_5 (not PSS). Each signature is checked before it is sent. A Signer
	// gets no context, so it needs a time limit of its own.
	Signer crypto.Signer

	// Caches are the caches to flush. If nil, only Google's is used. Each must have an
	// UpdateCacheAPIDomainSuffix.
	Caches []ampcors.Cache

	// Attempts is the maximum number of times that a request is sent. It is retried if
	// there is no answer, or one that says "too many requests" or "server error". 0 and 1
	// mean once, and 100 is the maximum. Each attempt gets a new signature, since caches
	// accept one for only a minute.
	Attempts int
	// Backoff is the wait before the second attempt. It doubles before each further one,
	// and is reduced at random by up to half. If zero, 1 second is used. A Retry-After of
	// the cache is added to it.
	Backoff time.Duration
	// MaxWait bounds the backoff. If a Retry-After is longer, there is no further attempt.
	// If zero, 1 minute is used. Backoff and MaxWait are at most 24 hours.
	MaxWait time.Duration

	// HTTPClient sends the requests. A copy of it is used, which follows no redirects, and
	// has a timeout of 30 seconds if none is set. If nil, a new client is used.
	//
	// Verify asks the publishers' hosts. If tenants choose these names, they can lead to hosts
	// of your own network. Then use a Transport whose net.Dialer has a Control that rejects
	// addresses that are not public: see the example of Verify.
	HTTPClient *http.Client
	// Logger gets each flush (Info), each failure (Warn), and each attempt with its URL
	// (Debug). If nil, slog.Default() is used.
	Logger *slog.Logger

	clock outbound.Clock // for tests
}

// A Client sends update-cache requests. [New] makes one.
type Client struct {
	signer crypto.Signer
	public *rsa.PublicKey
	pem    []byte
	caches []ampcors.Cache
	retry  outbound.Retry
	http   *http.Client
	log    *slog.Logger
	clock  outbound.Clock
	limit  limiter
}

// New returns a Client, or all the problems of the configuration, joined, each an
// *[ampcors.ValueError].
func New(cfg Config) (*Client, error) {
	var problems []error
	reject := func(path, value, reason, want string) {
		problems = append(problems, &ampcors.ValueError{Package: "updatecache", Path: path, Value: value, Reason: reason, Want: want})
	}
	c := &Client{
		signer: cfg.Signer,
		caches: append([]ampcors.Cache(nil), cfg.Caches...),
		retry:  outbound.Retry{Attempts: cfg.Attempts, Backoff: cfg.Backoff, MaxWait: cfg.MaxWait},
		http:   outbound.Client(cfg.HTTPClient),
		log:    cfg.Logger,
		clock:  cfg.clock,
	}

	const wantKey = "an RSA key of 2048 bits or more"
	if cfg.Signer == nil {
		reject("Signer", "", "is missing", wantKey)
	} else if public, ok := publicKey(cfg.Signer).(*rsa.PublicKey); !ok || public == nil || public.N == nil {
		reject("Signer", fmt.Sprintf("%T", cfg.Signer), "has no public key of type *rsa.PublicKey", wantKey)
	} else if public.E < 3 || public.E > math.MaxInt32 || public.E%2 == 0 || public.N.Sign() < 0 || public.N.Bit(0) == 0 {
		reject("Signer", fmt.Sprintf("%T", cfg.Signer), "has a public key that is not valid for RSA", wantKey)
	} else if public.N.BitLen() < minKeyBits {
		reject("Signer", fmt.Sprintf("RSA, %d bits", public.N.BitLen()), "is too short", wantKey)
	} else if der, err := x509.MarshalPKIXPublicKey(public); err != nil {
		reject("Signer", "", "has a public key that cannot be written: "+err.Error(), wantKey)
	} else {
		c.public, c.pem = public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	}

	if cfg.Caches == nil {
		c.caches = ampcors.DefaultCaches()[:1]
	} else if len(cfg.Caches) == 0 {
		reject("Caches", "", "names no cache", "at least one, or nil for Google's")
	} else if _, err := ampcors.CacheOrigins("www.example.com", cfg.Caches...); err != nil {
		for problem := range ampcors.ValueErrors(err) {
			problem.Package, problem.Path = "updatecache", strings.Replace(problem.Path, "caches[", "Caches[", 1)
			problems = append(problems, problem)
		}
	}
	for i, cache := range cfg.Caches {
		if cache.UpdateCacheAPIDomainSuffix == "" {
			reject(fmt.Sprintf("Caches[%d].updateCacheApiDomainSuffix", i), "", "is empty", "the cache's entry in caches.json")
		}
	}

	problems = append(problems, c.retry.Check("updatecache")...)
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	if c.log == nil {
		c.log = slog.Default()
	}
	if c.clock == nil {
		c.clock = outbound.SystemClock{}
	}
	c.limit.clock = c.clock
	return c, nil
}

// publicKey returns the signer's public key, or nil if it has none. Most signers panic if
// they are nil pointers.
func publicKey(signer crypto.Signer) (key crypto.PublicKey) {
	defer func() { _ = recover() }()
	return signer.Public()
}

// ParseKey reads an RSA private key in PEM, as openssl genrsa writes it: PKCS #8 or PKCS #1,
// not encrypted.
func ParseKey(data []byte) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("updatecache: the private key is not PEM; want -----BEGIN PRIVATE KEY-----")
	}
	var key any
	var err error
	switch {
	case block.Headers["Proc-Type"] != "":
		err = errors.New("it is encrypted; openssl rsa -in file decrypts it")
	case block.Type == "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case block.Type == "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		err = fmt.Errorf("it is a PEM block %.100q; want \"PRIVATE KEY\" or \"RSA PRIVATE KEY\", not encrypted", block.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("updatecache: the private key cannot be read: %w", err)
	}
	rsaKey, ok := key.(*rsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("updatecache: the private key is a %T; want RSA", key)
	}
	return rsaKey, nil
}

// KeyHandler serves the public key at [KeyPath], as a PEM block in PKIX form, and answers
// 404 for any other path.
func (c *Client) KeyHandler() http.Handler {
	return outbound.TextFile(KeyPath, c.pem)
}

// The errors that an [Error] can wrap. Test for them with errors.Is.
var (
	// ErrSignature: the cache has a key, and the signature does not match it. The cache may
	// still have an old key.
	ErrSignature = errors.New("the cache rejects the signature")
	// ErrKey: the cache fetched the publisher's key, and cannot use it. See [Client.Verify]; the
	// cache may repeat this error for about a day after the key is right.
	ErrKey = errors.New("the cache cannot use the publisher's key")
	// ErrIngestion: the cache could not fetch the publisher's key, or the document. If it
	// was the key, the cache may repeat this error for about a day.
	ErrIngestion = errors.New("the cache could not fetch the key or the document")
	// ErrForbidden: 403 for any other reason.
	ErrForbidden = errors.New("the cache denies the request")
	// ErrRateLimited: 429.
	ErrRateLimited = errors.New("the cache says that there are too many requests")
	// ErrServer: 500 and above, or 408, 421 or 425.
	ErrServer = errors.New("the cache has a problem")
	// ErrUnexpected: any other answer, such as a redirect, or 200 without "OK".
	ErrUnexpected = errors.New("the cache's answer is not defined by update-cache")
	// ErrSigner: the Signer failed, or its result is not a signature by RSASSA-PKCS1-v1_5
	// with SHA-256.
	ErrSigner = errors.New("the Signer failed")
	// ErrKeyFile: Verify or VerifyCaches got an answer, but not the key file that caches need.
	ErrKeyFile = errors.New("caches cannot use the publisher's key file")
)

// An Error says why a document was not flushed from one cache.
type Error struct {
	Page       string        // the document's URL
	Cache      string        // the cache's ID
	Err        error         // one of the errors above, or an error of the network or the context
	Status     int           // of the cache's answer, or 0
	Message    string        // what the cache said, on one line of at most 300 bytes
	RetryAfter time.Duration // the Retry-After of the cache, or 0
}

func (e *Error) Error() string {
	s := fmt.Sprintf("updatecache: %.300q on the cache %q: %v", e.Page, e.Cache, e.Err)
	if e.Status != 0 {
		s += fmt.Sprintf(" (%d %q)", e.Status, e.Message)
	}
	return s
}

// Unwrap returns e.Err.
func (e *Error) Unwrap() error { return e.Err }

// Retryable reports whether a later flush of the same document may succeed without any
// change.
func (e *Error) Retryable() bool {
	for _, final := range []error{ErrSignature, ErrKey, ErrIngestion, ErrForbidden, ErrUnexpected, ErrSigner} {
		if errors.Is(e.Err, final) {
			return false
		}
	}
	return true
}

// A Result is the result of a flush on one cache.
type Result struct {
	Cache    string // its ID
	Attempts int    // how often the cache was asked
	Err      error  // nil if the cache said OK, otherwise an *[Error]
}

// Flush asks each cache, one after the other, to fetch a document again. The page is the URL of the
// AMP document itself, not of its canonical page. There is one result for each cache, in the order
// of Config.Caches, even if some fail. The error joins the errors of all results. There are no
// results, and the error is an *[ampcors.ValueError], if page is not a valid
// [cacheurl.URL.Publisher], is an image or a font by its extension, or has a query parameter of
// update-cache.
//
// The rate limit is 10 requests in any second to one host of a cache, such as
// www-example-com.cdn.ampproject.org. A request over the limit waits; the caller of a [Queue] does
// not. (If a server closes a connection, net/http may repeat a request on its own, outside the
// limit.)
func (c *Client) Flush(ctx context.Context, page string) ([]Result, error) {
	return c.FlushURL(ctx, cacheurl.URL{Publisher: page})
}

// FlushURL does the same as [Client.Flush] for what a URL names by Publisher, Type and
// ImageParams, such as an image. If u.Cache is not zero, only that cache is asked; it must be one
// of Config.Caches. There must be no CacheQuery.
//
// The documentation of update-cache speaks of documents only. It says neither that a cache
// flushes other types, nor that an image is flushed with the documents that show it.
func (c *Client) FlushURL(ctx context.Context, u cacheurl.URL) ([]Result, error) {
	targets, err := c.targets(u)
	if err != nil {
		return nil, err
	}
	results := make([]Result, len(targets))
	var errs []error
	for i, t := range targets {
		attempts, err := c.flush(ctx, t)
		results[i] = Result{Cache: t.cache, Attempts: attempts, Err: err}
		c.logResult(ctx, t, attempts, err)
		if err != nil {
			errs = append(errs, err)
		}
	}
	return results, errors.Join(errs...)
}

func (c *Client) logResult(ctx context.Context, t target, attempts int, err error) {
	if err != nil {
		c.log.WarnContext(ctx, "updatecache: not flushed", "page", t.page, "cache", t.cache, "attempts", attempts, "error", err)
		return
	}
	c.log.InfoContext(ctx, "updatecache: flushed", "page", t.page, "cache", t.cache, "attempts", attempts)
}

// SignedURLs returns the URL of the request that [Client.FlushURL] would send to each cache, for a
// program that sends it itself. The request is a GET; the answer is "OK" if the flush succeeds.
// Caches accept a URL within a minute of the time at which it was signed. Anybody who has it can
// send it in that time. Errors are those of FlushURL about the URL, and [ErrSigner].
func (c *Client) SignedURLs(u cacheurl.URL) ([]string, error) {
	targets, err := c.targets(u)
	if err != nil {
		return nil, err
	}
	urls := make([]string, len(targets))
	for i, t := range targets {
		uri, err := c.signedURI(t)
		if err != nil {
			return nil, fmt.Errorf("updatecache: %w", err)
		}
		urls[i] = "https://" + t.host + uri
	}
	return urls, nil
}

// A target is a document, or something else, on one cache.
type target struct {
	page, cache string
	url         string // on the cache
	host        string // to which the requests go
	path        string // path and query, without the parameters of update-cache
}

// targets returns the target of a URL on each cache that u.Cache names.
func (c *Client) targets(u cacheurl.URL) ([]target, error) {
	if u.CacheQuery != "" {
		return nil, &ampcors.ValueError{Package: "updatecache", Path: "CacheQuery", Value: u.CacheQuery, Reason: "is not empty", Want: "none, because a flush does not depend on it"}
	}
	caches := c.caches
	if u.Cache != (ampcors.Cache{}) {
		i := slices.Index(c.caches, u.Cache)
		if i < 0 {
			return nil, &ampcors.ValueError{Package: "updatecache", Path: "Cache", Value: u.Cache.ID, Reason: "is not in Config.Caches", Want: "one of these, or none for all of them"}
		}
		caches = c.caches[i : i+1]
	}
	var targets []target
	for _, cache := range caches {
		u.Cache = cache
		t, err := newTarget(u)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// isFile has the extensions of images and fonts that no document has. Others are not in it, because
// a document can have one, as in "/agents.ai".
var isFile = func() map[string]bool {
	files := make(map[string]bool)
	for _, extension := range strings.Fields("avif bmp eot gif heic ico jpeg jpg otf png svg tif tiff ttf webp woff woff2") {
		files[extension] = true
	}
	return files
}()

func isDocument(t cacheurl.ContentType) bool {
	return t == cacheurl.Document || t == cacheurl.Viewer || t == cacheurl.SignedExchange
}

func newTarget(u cacheurl.URL) (target, error) {
	if u.Type == "" && u.ImageParams == "" {
		u.Type = cacheurl.Document
	}
	built, err := u.Build()
	if problem := (*ampcors.ValueError)(nil); errors.As(err, &problem) {
		problem.Package = "updatecache"
		if problem.Path == "Publisher" {
			problem.Path = "page"
		}
	}
	if err != nil {
		return target{}, err
	}
	file, query, _ := strings.Cut(built, "?")
	if extension := file[strings.LastIndexByte(file, '.')+1:]; isDocument(u.Type) && isFile[strings.ToLower(extension)] {
		return target{}, &ampcors.ValueError{Package: "updatecache", Path: "page", Value: u.Publisher, Reason: "is an image or a font by its extension, and not a document", Want: "the URL of a document, or FlushURL with its Type"}
	}
	for param := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(param, "=")
		if unescaped, err := url.QueryUnescape(name); err == nil {
			name = unescaped
		}
		switch name {
		case "amp_action", "amp_ts", "amp_url_signature":
			return target{}, &ampcors.ValueError{Package: "updatecache", Path: "page", Value: u.Publisher, Reason: fmt.Sprintf("has the query parameter %.80q, which is reserved for update-cache", param), Want: "the URL without it"}
		}
	}
	return targetOf(u.Publisher, built, u.Cache), nil
}

// targetOf returns the target of a page's URL on a cache.
func targetOf(page, url string, cache ampcors.Cache) target {
	host, path, _ := strings.Cut(strings.TrimPrefix(url, "https://"), "/")
	return target{page: page, cache: cache.ID, url: url, host: updateHost(host, cache), path: "/update-cache/" + path}
}

// updateHost returns the host that gets the update-cache requests for a host of a cache.
func updateHost(host string, cache ampcors.Cache) string {
	prefix, _, _ := strings.Cut(host, ".")
	return prefix + "." + cache.UpdateCacheAPIDomainSuffix
}

func (c *Client) flush(ctx context.Context, t target) (attempts int, err error) {
	for {
		asked, problem := c.attempt(ctx, t)
		if asked {
			attempts++
		}
		if problem == nil {
			return attempts, nil
		}
		if !asked || !problem.Retryable() || !c.retry.Again(ctx, c.clock, attempts, problem.RetryAfter) {
			return attempts, problem
		}
	}
}

// attempt waits for the rate limit, signs a request, and sends it.
func (c *Client) attempt(ctx context.Context, t target) (asked bool, problem *Error) {
	release, err := c.limit.acquire(ctx, t.host)
	if err != nil {
		return false, &Error{Page: t.page, Cache: t.cache, Err: err}
	}
	defer func() { release(asked) }() // even if the Signer panics
	r, problem := c.request(ctx, t)
	if problem != nil {
		return false, problem
	}
	asked = true
	return asked, c.ask(r, t)
}

// request makes a signed request.
func (c *Client) request(ctx context.Context, t target) (*http.Request, *Error) {
	uri, err := c.signedURI(t)
	if err == nil {
		var r *http.Request
		if r, err = http.NewRequestWithContext(ctx, http.MethodGet, "https://"+t.host, nil); err == nil {
			// Send the signed bytes as they are; net/url would escape some of them again.
			r.URL.Opaque, r.URL.RawQuery, _ = strings.Cut(uri, "?")
			c.log.DebugContext(ctx, "updatecache: asking", "url", "https://"+t.host+uri)
			return r, nil
		}
	}
	return nil, &Error{Page: t.page, Cache: t.cache, Err: err}
}

// ask sends a request. It returns nil if the cache has flushed the document.
func (c *Client) ask(r *http.Request, t target) *Error {
	answer, err := outbound.Do(c.http, r)
	if err != nil {
		return &Error{Page: t.page, Cache: t.cache, Err: outbound.ShortError{Err: err}}
	}
	problem := &Error{Page: t.page, Cache: t.cache, Status: answer.Status, RetryAfter: answer.RetryAfter(c.clock.Now())}
	if answer.Status == http.StatusOK && answer.BodyErr == nil && strings.TrimSpace(string(answer.Body)) == "OK" {
		return nil
	}
	text := withoutRequest(answer.Text())
	problem.Message = outbound.Shorten(text)
	switch {
	case answer.Status == http.StatusForbidden && answer.Truncated() && forbidden(text) == ErrForbidden:
		problem.Err = fmt.Errorf("the answer is truncated: %w", answer.BodyErr) // so its reason is not known
	case answer.Status == http.StatusForbidden:
		problem.Err = forbidden(text)
	case answer.Status == http.StatusTooManyRequests:
		problem.Err = ErrRateLimited
	case answer.Retryable():
		problem.Err = ErrServer
	case answer.Status == http.StatusOK && answer.BodyErr != nil:
		problem.Err = fmt.Errorf("the answer is truncated: %w", answer.BodyErr)
	default:
		problem.Err = ErrUnexpected
	}
	return problem
}

// signedURI returns the path and the query, signed with the current time. Caches accept a
// timestamp within a minute of their own time.
func (c *Client) signedURI(t target) (string, error) {
	path, query, hasQuery := strings.Cut(t.path, "?")
	if hasQuery {
		query = "?" + query
	}
	signed := path + pageurl.AppendQuery(query, "amp_action=flush&amp_ts="+strconv.FormatInt(c.clock.Now().Unix(), 10))
	signature, err := c.sign(signed)
	if err != nil {
		return "", err
	}
	return signed + "&amp_url_signature=" + signature, nil
}

// sign returns the signature of the path and the query. The cache's host is not signed, so
// the signature is the same for all caches.
func (c *Client) sign(text string) (string, error) {
	sum := sha256.Sum256([]byte(text))
	signature, err := c.signer.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrSigner, outbound.ShortError{Err: err})
	}
	// A key management service may use another scheme, and a cache would report only a bad
	// signature.
	if err := rsa.VerifyPKCS1v15(c.public, crypto.SHA256, sum[:], signature); err != nil {
		return "", fmt.Errorf("%w: its signature is not RSASSA-PKCS1-v1_5 with SHA-256 by its public key: %w", ErrSigner, err)
	}
	return base64.RawURLEncoding.EncodeToString(signature), nil
}

// forbidden returns the error that a 403 means. It looks for the caches' exact words first,
// since the message may also contain words of the page.
func forbidden(message string) error {
	message = strings.ToLower(message)
	for _, said := range []struct {
		words string
		means error
	}{
		{"pem key", ErrKey},               // Google: "Invalid PEM key"
		{"ingestion error", ErrIngestion}, // even if it mentions a signature: the key was not fetched
		{"signature", ErrSignature},
		{"ingest", ErrIngestion},
	} {
		if strings.Contains(message, said.words) {
			return said.means
		}
	}
	return ErrForbidden
}

// withoutRequest removes the request from a message, because Google repeats it there. The request
// is long, and contains "signature" and the words of the page's path.
func withoutRequest(message string) string {
	words := strings.Fields(message)
	kept := words[:0]
	for _, word := range words {
		if !strings.Contains(word, "/update-cache/") {
			kept = append(kept, word)
		}
	}
	return strings.Join(kept, " ")
}

// Verify fetches the key file of each publisher domain at [KeyPath], as a cache would, and
// compares it with the Signer's key. It checks the publishers one after the other, and
// joins all errors. Each error is an *[ampcors.ValueError] about a domain, [ErrKeyFile], or
// an error of the network. Verify does not read robots.txt.
//
// The answer must be 200 without a redirect, of the type text/plain, with a single PEM
// block "PUBLIC KEY" (PKIX).
func (c *Client) Verify(ctx context.Context, publishers ...string) error {
	return c.verify(ctx, publishers, outbound.Get, func(domain string) ([]string, error) {
		return []string{"https://" + domain + KeyPath}, nil
	})
}

// VerifyCaches fetches the copy of the key file that each cache has for each publisher domain, and
// compares it with the Signer's key. Errors are those of [Client.Verify].
//
// The request also makes a cache fetch the key again if its copy is stale, but the answer may still
// be the old copy. So after a change of the key, call VerifyCaches until it returns nil. A cache
// that found no key may answer so for about a day.
// https://developers.google.com/amp/cache/update-cache#update-rsa-keys
func (c *Client) VerifyCaches(ctx context.Context, publishers ...string) error {
	return c.verify(ctx, publishers, outbound.GetAnyType, func(domain string) (copies []string, err error) {
		for _, cache := range c.caches {
			built, err := cacheurl.URL{Publisher: "https://" + domain + KeyPath, Cache: cache, Type: cacheurl.Resource}.Build()
			if err != nil {
				return nil, err
			}
			host, path, _ := strings.Cut(strings.TrimPrefix(built, "https://"), "/")
			copies = append(copies, "https://"+updateHost(host, cache)+"/"+path)
		}
		return copies, nil
	})
}

// verify fetches the key files of each publisher, and compares them with the Signer's key.
func (c *Client) verify(ctx context.Context, publishers []string, get func(context.Context, *http.Client, string) (outbound.Answer, error), filesOf func(domain string) ([]string, error)) error {
	if len(publishers) == 0 {
		return &ampcors.ValueError{Package: "updatecache", Path: "publishers", Reason: "names no publisher", Want: `at least one domain, such as "www.example.com"`}
	}
	var errs []error
	for i, publisher := range publishers {
		domain, problem := pageurl.Domain(publisher)
		if problem != nil {
			problem.Package, problem.Path = "updatecache", fmt.Sprintf("publishers[%d]", i)
			errs = append(errs, problem)
			continue
		}
		files, err := filesOf(domain)
		if err != nil {
			errs = append(errs, err)
		}
		for _, file := range files {
			answer, err := get(ctx, c.http, file)
			if err == nil {
				err = c.compare(answer)
			}
			switch {
			case err != nil && ctx.Err() != nil:
				return errors.Join(append(errs, fmt.Errorf("updatecache: not verified: %s and the files after it: %w", file, ctx.Err()))...)
			case err != nil && answer.Status == 0:
				errs = append(errs, fmt.Errorf("updatecache: the key file %s cannot be fetched: %w", file, outbound.ShortError{Err: err}))
			case err != nil:
				errs = append(errs, fmt.Errorf("updatecache: %s: %w: %w", file, ErrKeyFile, outbound.ShortError{Err: err}))
			}
		}
	}
	return errors.Join(errs...)
}

// compare reports what is wrong with the contents of a key file. Its errors do not quote the
// contents, because the publisher's domain may lead to an internal host.
func (c *Client) compare(answer outbound.Answer) error {
	file := answer.Body
	block, rest := pem.Decode(file)
	switch {
	case block == nil:
		return fmt.Errorf("the answer, %d bytes of %s, is not PEM; want -----BEGIN PUBLIC KEY-----", len(file), answer.MediaType())
	case block.Type != "PUBLIC KEY":
		return fmt.Errorf("it holds a PEM block %q; want \"PUBLIC KEY\" (PKIX)", block.Type)
	case len(bytes.TrimSpace(rest)) > 0 || !bytes.HasPrefix(bytes.TrimSpace(file), []byte("-----BEGIN")) || bytes.Count(file, []byte("-----BEGIN")) > 1:
		return errors.New("it holds something besides one PEM block; want the key and nothing else")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return fmt.Errorf("its PEM block is not a public key: %w", err)
	}
	if !c.public.Equal(key) {
		return errors.New("it holds another key; want the public key of the Signer")
	}
	return nil
}
