// Package updatecache asks AMP Caches to fetch a publisher's document again, by the signed requests
// of "update-cache"
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
//     caches, so do not call it in a request's handler: let [Client.NewQueue] do it.
//
// What update-cache does, and what it does not, by its documentation:
//
//   - A flush makes the update come before max-age (of Cache-Control) has passed. Without a
//     flush, Google's cache serves its copy while max-age lasts, 15 seconds at least (1 minute for
//     images and other files). The first reader after that gets the old copy as well, and makes the
//     cache fetch the new one. So set max-age to the longest time for which readers may see an old
//     text.
//   - If the publisher answers with a redirect, the requested URL is flushed, and not the target
//     of the redirect.
//   - The key comes from exactly the host in the URL: not from a domain above or below it, and not from
//     the host of the canonical page. A flush is only for that host.
//   - The key is fetched by https, and robots.txt must allow it. KeyHandler serves it as
//     text/plain, which caches want.
//
// A cache keeps its copy of the key. When the key changes, serve the new one, and flush with it only
// when [Client.VerifyCaches] finds it in the caches.
//
// A Client serves any number of publishers, and is safe for concurrent use by multiple goroutines.
// Flush sends each request once; a Queue retries. One second after each request, a short goroutine
// starts.
package updatecache

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/outbound"
)

// Config configures a [Client].
type Config struct {
	// Signer signs the requests with an RSA key of 2,048 bits or more: an
	// *[rsa.PrivateKey], or anything that keeps one elsewhere, such as a key management
	// service. It is called with a SHA-256 hash and [crypto.SHA256], and must sign by
	// RSASSA-PKCS1-v1_5 (not PSS). Each signature is checked before it is sent. A Signer
	// gets no context, so it needs a time limit of its own.
	Signer crypto.Signer

	// Caches are the caches to flush; if nil, [cacheurl.DefaultCaches]. Each must have an
	// UpdateCacheAPIDomainSuffix.
	Caches []cacheurl.Cache

	// HTTPClient sends the requests. A copy of it is used, which follows no redirects, and
	// has a timeout of 30 seconds if none is set. If nil, a new client is used.
	//
	// Verify asks the publishers' hosts. If tenants choose these names, they can lead to hosts
	// of your own network. Then use a Transport whose net.Dialer has a Control that rejects
	// addresses that are not public: see the example of Verify.
	HTTPClient *http.Client
	// Logger gets each flush (Info), each failure (Warn), and each request with its URL
	// (Debug). If nil, slog.Default() is used.
	Logger *slog.Logger

	now func() time.Time // for tests
}

// A Client sends update-cache requests. [New] makes one.
type Client struct {
	signer crypto.Signer
	public *rsa.PublicKey
	pem    []byte
	caches []cacheurl.Cache
	http   *http.Client
	log    *slog.Logger
	now    func() time.Time
	limit  limiter
}

// New returns a Client, or all the problems of the configuration, joined, each an
// *[badvalue.Error].
func New(cfg Config) (*Client, error) {
	var problems []error
	reject := func(code badvalue.Code, path, value, reason, want string) {
		problems = append(problems, &badvalue.Error{Code: code, Path: path, Value: value, Reason: reason, Want: want})
	}
	c := &Client{
		signer: cfg.Signer,
		caches: append([]cacheurl.Cache(nil), cfg.Caches...),
		http:   outbound.Client(cfg.HTTPClient),
		log:    cfg.Logger,
		now:    cfg.now,
	}

	const wantKey = "an RSA key of 2048 bits or more"
	if cfg.Signer == nil {
		reject(badvalue.Missing, "Signer", "", "is missing", wantKey)
	} else if public, ok := publicKey(cfg.Signer).(*rsa.PublicKey); !ok || public == nil || public.N == nil {
		reject(badvalue.Malformed, "Signer", fmt.Sprintf("%T", cfg.Signer), "has no public key of type *rsa.PublicKey",
			wantKey)
	} else if public.N.BitLen() < minKeyBits {
		reject(badvalue.OutOfRange, "Signer", fmt.Sprintf("RSA, %d bits", public.N.BitLen()), "is too short", wantKey)
	} else if err := rsa.VerifyPKCS1v15(public, crypto.SHA256, make([]byte, sha256.Size),
		make([]byte, public.Size())); !errors.Is(err, rsa.ErrVerification) {
		reject(badvalue.Malformed, "Signer", fmt.Sprintf("%T", cfg.Signer),
			"has a public key that is not valid for RSA: "+err.Error(), wantKey)
	} else if der, err := x509.MarshalPKIXPublicKey(public); err != nil {
		reject(badvalue.Malformed, "Signer", "", "has a public key that cannot be written: "+err.Error(), wantKey)
	} else {
		c.public, c.pem = public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	}

	if cfg.Caches == nil {
		c.caches = cacheurl.DefaultCaches()
	} else if len(cfg.Caches) == 0 {
		reject(badvalue.Missing, "caches", "", "names no cache", "at least one, or nil for DefaultCaches")
	} else if err := cacheurl.ValidateCaches(cfg.Caches); err != nil {
		problems = append(problems, err)
	}
	for i, cache := range cfg.Caches {
		if cache.UpdateCacheAPIDomainSuffix == "" {
			reject(badvalue.Missing, fmt.Sprintf("caches[%d].updateCacheApiDomainSuffix", i), "", "is empty",
				"the cache's entry in caches.json")
		}
	}

	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	if c.log == nil {
		c.log = slog.Default()
	}
	if c.now == nil {
		c.now = time.Now
	}
	return c, nil
}
