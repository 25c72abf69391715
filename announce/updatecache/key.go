package updatecache

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/domains"
	"github.com/ampcors/ampcors/internal/outbound"
)

// KeyPath is where caches look for a publisher's public key.
const KeyPath = "/.well-known/amphtml/apikey.pub"

// minKeyBits is the shortest RSA key that counts as secure (NIST SP 800-131A). The key in
// the example of update-cache's documentation has the same length.
const minKeyBits = 2048

// publicKey returns the signer's public key, or nil if it has none. Most signers panic if
// they are nil pointers.
func publicKey(signer crypto.Signer) (key crypto.PublicKey) {
	defer func() { _ = recover() }()
	return signer.Public()
}

// ParseKey reads an RSA private key in PEM, as openssl genrsa writes it: PKCS #8 or PKCS #1,
// not encrypted. Blocks of other types, such as the certificates that openssl pkcs12 -nodes writes, are skipped.
func ParseKey(data []byte) (*rsa.PrivateKey, error) {
	block, rest := pem.Decode(data)
	for next := block; next != nil && !strings.HasSuffix(block.Type, "PRIVATE KEY"); {
		if next, rest = pem.Decode(rest); next != nil {
			block = next
		}
	}
	if block == nil {
		return nil, fmt.Errorf("updatecache: the private key %s", whyNotPEM(data))
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

// whyNotPEM returns why a file has no block of PEM, which encoding/pem does not say.
func whyNotPEM(data []byte) string {
	const begin = "-----BEGIN "
	switch text := string(data); {
	case strings.HasPrefix(text, "\xff\xfe"), strings.HasPrefix(text, "\xfe\xff"), strings.Contains(text, "-\x00-"):
		return "is UTF-16; want ASCII"
	case !strings.Contains(text, begin):
		return "is not PEM; want -----BEGIN PRIVATE KEY-----"
	case strings.Contains(text, `\n`):
		return `has \n as two characters; want line breaks in their place`
	case !strings.Contains(text, "-----END "):
		return "is truncated: it has no -----END"
	case !strings.Contains(strings.TrimSpace(text), "\n"):
		return "is on one line; want a line break behind -----BEGIN …----- and before -----END"
	case !strings.HasPrefix(text, begin) && !strings.Contains(text, "\n"+begin):
		return "is indented; want -----BEGIN at the beginning of a line"
	}
	return "is damaged between -----BEGIN and -----END: it is not base64 in lines of its own"
}

// KeyHandler serves the public key at [KeyPath], as a PEM block in PKIX form, and answers
// 404 for any other path.
func (c *Client) KeyHandler() http.Handler {
	return outbound.TextFile(KeyPath, c.pem)
}

// Verify fetches the key file of each publisher domain at [KeyPath], as a cache would, and compares it with the
// Signer's key. It checks the publishers one after the other, and joins all errors. Each error is an
// *[badvalue.Error] about a domain, [ErrKeyFile], or an error of the network or of ctx. Verify does not read
// robots.txt.
//
// The answer must be 200 without a redirect, of the type text/plain, with a single PEM
// block "PUBLIC KEY" (PKIX).
func (c *Client) Verify(ctx context.Context, publishers ...string) error {
	return c.verify(ctx, publishers, outbound.Get, func(domain string) ([]string, error) {
		return []string{"https://" + domain + KeyPath}, nil
	})
}

// VerifyCaches fetches the copy of the key file that each cache has for each publisher domain, and
// compares it with the Signer's key. Errors are as for [Client.Verify].
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
func (c *Client) verify(ctx context.Context, publishers []string,
	get func(context.Context, *http.Client, string) (outbound.Answer, error),
	filesOf func(domain string) ([]string, error)) error {
	if len(publishers) == 0 {
		return &badvalue.Error{Code: badvalue.Missing, Path: "publishers", Reason: "names no publisher",
			Want: `at least one domain, such as "www.example.com"`}
	}
	var errs []error
	for i, publisher := range publishers {
		domain, problem := domains.ParsePublisher(fmt.Sprintf("publishers[%d]", i), publisher)
		if problem != nil {
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
				return errors.Join(append(errs, fmt.Errorf("updatecache: not verified: %s and the files after it: %w", file,
					ctx.Err()))...)
			case err != nil && answer.Status == 0:
				errs = append(errs, fmt.Errorf("updatecache: the key file %s cannot be fetched: %w", file,
					outbound.ShortError{Err: err}))
			case err != nil:
				errs = append(errs, fmt.Errorf("updatecache: %s: %w: %w", file, ErrKeyFile, outbound.ShortError{Err: err}))
			}
		}
	}
	return errors.Join(errs...)
}

// compare reports what is wrong with the contents of a key file. Its errors do not quote the contents,
// except the type of a PEM block, because the publisher's domain may lead to an internal host.
func (c *Client) compare(answer outbound.Answer) error {
	file := answer.Body
	block, rest := pem.Decode(file)
	switch {
	case bytes.Contains(file, []byte("PRIVATE KEY-----")):
		return errors.New("it holds a private key, which is public from now on: anybody can flush the site's pages with " +
			"it. Make another key, and serve only its public key")
	case block == nil && (bytes.Contains(file, []byte("-----BEGIN")) || bytes.Contains(file, []byte("-\x00-"))):
		return fmt.Errorf("it %s", whyNotPEM(file))
	case block == nil:
		return fmt.Errorf("the answer, %d bytes of %s, is not PEM; want -----BEGIN PUBLIC KEY-----", len(file),
			answer.MediaType())
	case block.Type != "PUBLIC KEY":
		return fmt.Errorf("it holds a PEM block %q; want \"PUBLIC KEY\" (PKIX)", block.Type)
	case len(bytes.TrimSpace(rest)) > 0 || !bytes.HasPrefix(bytes.TrimSpace(file), []byte("-----BEGIN")) ||
		bytes.Count(file, []byte("-----BEGIN")) > 1:
		return errors.New("it holds something besides one PEM block; want the key and nothing else")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return fmt.Errorf("its PEM block is not a public key: %w", err)
	}
	if !c.public.Equal(key) {
		return errors.New("it holds another key; want the public key that belongs to the private one")
	}
	return nil
}
