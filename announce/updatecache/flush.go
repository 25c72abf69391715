package updatecache

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/outbound"
	"github.com/ampcors/ampcors/internal/pageurl"
)

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

// An Error is the reason why a document was not flushed from one cache.
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
	if e.RetryAfter > 0 {
		s += fmt.Sprintf("; try again after %v", e.RetryAfter.Round(time.Second))
	}
	return s
}

// Unwrap returns e.Err.
func (e *Error) Unwrap() error { return e.Err }

// Retryable reports whether a later flush of the same document may soon succeed without any change. A Signer that
// fails, such as a key management service, may work later; a Signer with another signature scheme than
// RSASSA-PKCS1-v1_5 never will.
func (e *Error) Retryable() bool {
	for _, final := range []error{ErrSignature, ErrKey, ErrIngestion, ErrForbidden, ErrUnexpected, rsa.ErrVerification} {
		if errors.Is(e.Err, final) {
			return false
		}
	}
	return true
}

// A Result is the result of a flush on one cache.
type Result struct {
	Cache string // its ID
	Err   error  // nil if the cache said OK, otherwise an *[Error]
}

// Flush asks each cache, one after the other, to fetch a document again. The page is the URL of the
// AMP document itself, not of its canonical page. There is one result for each cache, in the order
// of Config.Caches, even if some fail. The error joins the errors of all results. There are no
// results, and the error is an *[badvalue.Error], if page is not a valid
// [cacheurl.URL.Publisher], is an image or a font by its extension, or has a query parameter of
// update-cache.
//
// The rate limit is 10 requests in any second to one host of a cache, such as
// www-example-com.cdn.ampproject.org. A request over the limit waits; the caller of
// a Queue does not. (If a server closes a connection, net/http may repeat a request on its own, outside the
// limit.)
func (c *Client) Flush(ctx context.Context, page string) ([]Result, error) {
	return c.FlushURL(ctx, cacheurl.URL{Publisher: page})
}

// FlushURL does the same as [Client.Flush] for what a URL names by Publisher, Prefix, Type
// and ImageParams, such as an image. If u.Cache is not zero, only that cache is asked; it must be one
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
		results[i].Cache = t.cache
		if problem := c.flush(ctx, t); problem != nil {
			results[i].Err = problem
			errs = append(errs, problem)
		}
	}
	return results, errors.Join(errs...)
}

// SignedURLs returns the URL of the request that [Client.FlushURL] would send to each cache, for a
// program that sends it itself. The request is a GET; the answer is "OK" if the flush succeeds. Caches
// accept a URL within a minute of the time at which it was signed. Anybody who has it can send it in
// that time. Errors are the errors of FlushURL about the URL, and [ErrSigner].
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

// flush sends a request when the rate limit allows it, and logs the result.
func (c *Client) flush(ctx context.Context, t target) *Error {
	problem := c.ask(ctx, t)
	if problem != nil {
		c.log.WarnContext(ctx, "ampcors: updatecache: not flushed", "page", t.page, "cache", t.cache, "error", problem)
	} else {
		c.log.InfoContext(ctx, "ampcors: updatecache: flushed", "page", t.page, "cache", t.cache)
	}
	return problem
}

// request makes a signed request.
func (c *Client) request(ctx context.Context, t target) (*http.Request, *Error) {
	uri, err := c.signedURI(t)
	if err == nil {
		var r *http.Request
		if r, err = http.NewRequestWithContext(ctx, http.MethodGet, "https://"+t.host, nil); err == nil {
			// Send the signed bytes as they are; net/url would escape some of them again.
			r.URL.Opaque, r.URL.RawQuery, _ = strings.Cut(uri, "?")
			c.log.DebugContext(ctx, "ampcors: updatecache: asking", "url", "https://"+t.host+uri)
			return r, nil
		}
	}
	return nil, &Error{Page: t.page, Cache: t.cache, Err: err}
}

// ask waits for the rate limit, signs a request and sends it. It returns nil if the cache has flushed the
// document.
func (c *Client) ask(ctx context.Context, t target) *Error {
	release, err := c.limit.acquire(ctx, t.host)
	if err != nil {
		return &Error{Page: t.page, Cache: t.cache, Err: err}
	}
	isSent := false
	defer func() { release(isSent) }() // even if the Signer panics
	r, problem := c.request(ctx, t)
	if problem != nil {
		return problem
	}
	isSent = true
	answer, err := outbound.Do(c.http, r)
	if err != nil {
		return &Error{Page: t.page, Cache: t.cache, Err: outbound.ShortError{Err: err}}
	}
	problem = &Error{Page: t.page, Cache: t.cache, Status: answer.Status, RetryAfter: answer.RetryAfter(c.now())}
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
	signed := path + pageurl.AppendQuery(query, "amp_action=flush&amp_ts="+strconv.FormatInt(c.now().Unix(), 10))
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
