// Package updatecache asks AMP Caches to fetch a publisher's document again at once, by the
// signed requests of "update-cache"
// (https://developers.google.com/amp/cache/update-cache).
//
// A cache believes a request that is signed with the RSA key whose public half the publisher
// serves at [KeyPath] on the document's own host. So:
//
//  1. Make a key (openssl genrsa -out update-cache.pem 2048), read it by [ParseKey], and
//     make a [Client] with it.
//  2. Serve [Client.KeyHandler] at [KeyPath] on each publisher's host, where nothing,
//     robots.txt included, may keep caches from it.
//  3. Once that is served, call [Client.Verify] for each host before its first flush: a
//     cache that finds no key, or a wrong one, remembers that for about a day.
//  4. Call [Client.Flush] when an AMP document has changed or is gone. It waits for the
//     caches, and is not for a request's handler.
//
// One Client does for any number of publishers, by many goroutines at once. Nothing happens
// but in these calls: there is no goroutine, and nothing is tried twice unless [Config]
// says so.
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

// minKeyBits is the shortest RSA key that is still taken for secure (NIST SP 800-131A), and
// the length of the key in the document's example.
const minKeyBits = 2048

// Config configures a [Client].
type Config struct {
	// Signer signs the requests with an RSA key of 2,048 bits or more: an
	// *[rsa.PrivateKey], or anything that keeps one elsewhere, such as a key management
	// service. It is called with a SHA-256 hash and [crypto.SHA256], and must sign by
	// RSASSA-PKCS1-v1_5 (not PSS). What it returns is checked before it is sent. It is not
	// told of the context, so that it must end by itself.
	Signer crypto.Signer

	// Caches are those that are asked. nil stands for Google's alone. Each must have an
	// UpdateCacheAPIDomainSuffix.
	Caches []ampcors.Cache

	// Attempts is how often a request is sent, in all, if there is no answer, or one that
	// says "too many requests" or "server error". 0 and 1 stand for once. Each attempt is
	// signed anew, as caches take a signature for a minute.
	Attempts int
	// Backoff is the wait before the second attempt. It doubles before each further one,
	// and up to half of it is left out at random. 0 stands for 1 s. A Retry-After of the
	// cache comes on top.
	Backoff time.Duration
	// MaxWait bounds the backoff. If a Retry-After is longer, there is no further attempt.
	// 0 stands for 1 min.
	MaxWait time.Duration

	// HTTPClient sends the requests. It follows no redirect here, and has a timeout of 30 s
	// if it has none. nil stands for a new one.
	HTTPClient *http.Client
	// Logger gets each flush (Info), each failure (Warn), and each attempt with its URL
	// (Debug). If nil, slog.Default() is used.
	Logger *slog.Logger

	clock outbound.Clock // of tests
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
	refuse := func(path, value, reason, want string) {
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
		refuse("Signer", "", "is missing", wantKey)
	} else if public, ok := publicKey(cfg.Signer).(*rsa.PublicKey); !ok || public == nil || public.N == nil {
		refuse("Signer", fmt.Sprintf("%T", cfg.Signer), "has no public key of type *rsa.PublicKey", wantKey)
	} else if public.E < 3 || public.E > math.MaxInt32 || public.E%2 == 0 || public.N.Sign() < 0 || public.N.Bit(0) == 0 {
		refuse("Signer", fmt.Sprintf("%T", cfg.Signer), "has a public key that is not valid for RSA", wantKey)
	} else if public.N.BitLen() < minKeyBits {
		refuse("Signer", fmt.Sprintf("RSA, %d bits", public.N.BitLen()), "is too short", wantKey)
	} else if der, err := x509.MarshalPKIXPublicKey(public); err != nil {
		refuse("Signer", "", "has a public key that cannot be written: "+err.Error(), wantKey)
	} else {
		c.public, c.pem = public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	}

	if cfg.Caches == nil {
		c.caches = ampcors.DefaultCaches()[:1]
	} else if len(cfg.Caches) == 0 {
		refuse("Caches", "", "names no cache", "nil for Google's, or at least one")
	} else if _, err := ampcors.CacheOrigins("www.example.com", cfg.Caches...); err != nil {
		for problem := range ampcors.ValueErrors(err) {
			problem.Package, problem.Path = "updatecache", strings.Replace(problem.Path, "caches[", "Caches[", 1)
			problems = append(problems, problem)
		}
	}
	for i, cache := range cfg.Caches {
		if cache.UpdateCacheAPIDomainSuffix == "" {
			refuse(fmt.Sprintf("Caches[%d].updateCacheApiDomainSuffix", i), "", "is empty", "the cache's entry in caches.json")
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

// publicKey returns the signer's public key, or nil if it has none: most signers panic if
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

// KeyHandler serves the public key at [KeyPath], in PEM and PKIX as caches want it, and
// answers 404 for any other path.
func (c *Client) KeyHandler() http.Handler {
	return outbound.TextFile(KeyPath, c.pem)
}

// What an [Error] can be. Test with errors.Is.
var (
	// ErrSignature: the cache has a key, and the signature does not fit. Is the key that
	// it has an old one?
	ErrSignature = errors.New("the cache refuses the signature")
	// ErrIngestion: the cache could not take in the publisher's key, or the document. If it
	// was the key, the cache may say the same for about a day.
	ErrIngestion = errors.New("the cache could not fetch the key or the document")
	// ErrForbidden: 403, with neither of these explanations.
	ErrForbidden = errors.New("the cache refuses the request")
	// ErrRateLimited: 429.
	ErrRateLimited = errors.New("the cache says that there are too many requests")
	// ErrServer: 500 and above, or 408, 421 or 425.
	ErrServer = errors.New("the cache has a problem")
	// ErrUnexpected: any other answer, such as a redirect, or 200 without "OK".
	ErrUnexpected = errors.New("the cache gives an answer that is not of update-cache")
	// ErrSigner: the Signer failed, or returned something that is not a signature by
	// RSASSA-PKCS1-v1_5 with SHA-256.
	ErrSigner = errors.New("the Signer fails")
	// ErrKeyFile is what Verify reports of a key file that was fetched.
	ErrKeyFile = errors.New("the publisher's key file is not as caches need it")
)

// An Error says why a document was not flushed from one cache.
type Error struct {
	Page       string        // the document's URL
	Cache      string        // the cache's ID
	Err        error         // one of the errors above, or that of the network or the context
	Status     int           // of the cache's answer, or 0
	Message    string        // what the cache said, on one line of at most 300 bytes
	RetryAfter time.Duration // what the cache asks for, or 0
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

// Retryable reports whether the same document may be flushed later, without anything being
// changed.
func (e *Error) Retryable() bool {
	for _, final := range []error{ErrSignature, ErrIngestion, ErrForbidden, ErrUnexpected, ErrSigner} {
		if errors.Is(e.Err, final) {
			return false
		}
	}
	return true
}

// A Result is what became of a document on one cache.
type Result struct {
	Cache    string // its ID
	Attempts int    // how often the cache was asked
	Err      error  // nil if the cache said OK, or else an *[Error]
}

// Flush asks each cache, one after the other, to fetch the document again. The page is the
// URL of the AMP document itself, not of the page that it is a version of, as for
// [cacheurl.URL]; update-cache knows no images or fonts. There is a result for each cache,
// in the order of Config.Caches, also if some fail; the error joins all that failed. If the
// page is no such URL, there is only an error, an *[ampcors.ValueError].
//
// To one host of a cache, such as www-example-com.cdn.ampproject.org, a Client sends no more
// than 10 requests in any second: each of 10 slots rests for a second after its answer, and
// whoever finds none free waits. (net/http by itself repeats a request on a connection that
// the server had closed.)
func (c *Client) Flush(ctx context.Context, page string) ([]Result, error) {
	targets := make([]target, len(c.caches))
	for i, cache := range c.caches {
		var err error
		if targets[i], err = newTarget(page, cache); err != nil {
			return nil, err
		}
	}
	results := make([]Result, len(targets))
	var errs []error
	for i, t := range targets {
		attempts, err := c.flush(ctx, t)
		results[i] = Result{Cache: t.cache, Attempts: attempts, Err: err}
		if err != nil {
			errs = append(errs, err)
			c.log.WarnContext(ctx, "updatecache: not flushed", "page", page, "cache", t.cache, "attempts", attempts, "error", err)
			continue
		}
		c.log.InfoContext(ctx, "updatecache: flushed", "page", page, "cache", t.cache, "attempts", attempts)
	}
	return results, errors.Join(errs...)
}

// A target is a document on one cache.
type target struct {
	page, cache string
	host        string // that takes the requests
	path        string // path and query, but for the parameters of update-cache
}

func newTarget(page string, cache ampcors.Cache) (target, error) {
	built, err := cacheurl.URL{Publisher: page, Cache: cache, Type: cacheurl.Document}.Build()
	if problem := (*ampcors.ValueError)(nil); errors.As(err, &problem) {
		problem.Package = "updatecache"
		if problem.Path == "Publisher" {
			problem.Path = "page"
		}
	}
	if err != nil {
		return target{}, err
	}
	_, query, _ := strings.Cut(built, "?")
	for param := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(param, "=")
		if unescaped, err := url.QueryUnescape(name); err == nil {
			name = unescaped
		}
		switch name {
		case "amp_action", "amp_ts", "amp_url_signature":
			return target{}, &ampcors.ValueError{Package: "updatecache", Path: "page", Value: page, Reason: fmt.Sprintf("has the query parameter %.80q, which is update-cache's own", param), Want: "the URL of a document"}
		}
	}
	host, path, _ := strings.Cut(strings.TrimPrefix(built, "https://"), "/")
	prefix, _, _ := strings.Cut(host, ".")
	return target{page: page, cache: cache.ID, host: prefix + "." + cache.UpdateCacheAPIDomainSuffix, path: "/update-cache/" + path}, nil
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

// attempt waits for its turn, signs, and asks.
func (c *Client) attempt(ctx context.Context, t target) (asked bool, problem *Error) {
	release, err := c.limit.acquire(ctx, t.host)
	if err != nil {
		return false, &Error{Page: t.page, Cache: t.cache, Err: err}
	}
	defer func() { release(asked) }() // also if the Signer panics
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
			// What is signed is sent byte by byte; net/url would escape some anew.
			r.URL.Opaque, r.URL.RawQuery, _ = strings.Cut(uri, "?")
			c.log.DebugContext(ctx, "updatecache: asking", "url", "https://"+t.host+uri)
			return r, nil
		}
	}
	return nil, &Error{Page: t.page, Cache: t.cache, Err: err}
}

// ask sends a request.
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
	case answer.Status == http.StatusForbidden && answer.BrokenOff() && forbidden(text) == ErrForbidden:
		problem.Err = fmt.Errorf("the answer breaks off: %w", answer.BodyErr) // before it says why
	case answer.Status == http.StatusForbidden:
		problem.Err = forbidden(text)
	case answer.Status == http.StatusTooManyRequests:
		problem.Err = ErrRateLimited
	case answer.Retryable():
		problem.Err = ErrServer
	case answer.Status == http.StatusOK && answer.BodyErr != nil:
		problem.Err = fmt.Errorf("the answer breaks off: %w", answer.BodyErr)
	default:
		problem.Err = ErrUnexpected
	}
	return problem
}

// signedURI returns path and query, signed for the present time, as caches want the
// timestamp to be within a minute of theirs.
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

// sign returns the signature of path and query, without the cache's host, so that it is
// the same for all caches.
func (c *Client) sign(text string) (string, error) {
	sum := sha256.Sum256([]byte(text))
	signature, err := c.signer.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrSigner, outbound.ShortError{Err: err})
	}
	// A service may be set to another scheme, and a cache would only say "signature".
	if err := rsa.VerifyPKCS1v15(c.public, crypto.SHA256, sum[:], signature); err != nil {
		return "", fmt.Errorf("%w: what it returns is not by RSASSA-PKCS1-v1_5 with SHA-256 and its public key: %w", ErrSigner, err)
	}
	return base64.RawURLEncoding.EncodeToString(signature), nil
}

// forbidden finds out what a 403 means. The caches' words are looked for before others, as
// the page's own may be among them.
func forbidden(message string) error {
	message = strings.ToLower(message)
	for _, said := range []struct {
		words string
		means error
	}{
		{"ingestion error", ErrIngestion}, // also of a key whose signature could not be checked then
		{"signature", ErrSignature},
		{"ingest", ErrIngestion},
	} {
		if strings.Contains(message, said.words) {
			return said.means
		}
	}
	return ErrForbidden
}

// withoutRequest takes the request, which Google repeats, out of a message: it is long, and
// has "signature" in it, and whatever the page's path says.
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
// compares it with the Signer's key. An error says what is wrong with which, and is
// [ErrKeyFile]; or it is that of the network, or an *[ampcors.ValueError] on a domain. The
// publishers are asked one after the other, and all errors are joined. Verify does not read
// robots.txt.
//
// It wants 200 at once, without a redirect, the type text/plain, and a single PEM block
// "PUBLIC KEY" (PKIX).
func (c *Client) Verify(ctx context.Context, publishers ...string) error {
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
		file := "https://" + domain + KeyPath
		answer, err := outbound.Get(ctx, c.http, file)
		if err == nil {
			err = c.compare(answer.Body)
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return errors.Join(append(errs, fmt.Errorf("updatecache: %s and what follows: %w", file, ctx.Err()))...)
		case err != nil && answer.Status == 0:
			errs = append(errs, fmt.Errorf("updatecache: the key file %s cannot be fetched: %w", file, outbound.ShortError{Err: err}))
		case err != nil:
			errs = append(errs, fmt.Errorf("updatecache: %s: %w: %w", file, ErrKeyFile, outbound.ShortError{Err: err}))
		}
	}
	return errors.Join(errs...)
}

// compare tells what is wrong with the contents of a key file.
func (c *Client) compare(file []byte) error {
	block, rest := pem.Decode(file)
	switch {
	case block == nil:
		return fmt.Errorf("%.100q is not PEM; want -----BEGIN PUBLIC KEY-----", file)
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
		return errors.New("it holds another key than the Signer's")
	}
	return nil
}
