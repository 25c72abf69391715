package cacheurl

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/internal/domains"
	"github.com/ampcors/ampcors/internal/prefixes"
)

// CanonicalDomain returns the publisher domain as this package compares it: in lower-case ASCII, with
// A-labels. "Bücher.example" gives "xn--bcher-kva.example". A [source.Database] is asked about domains
// in this form, and must find them by it. Arguments and errors are as for [DomainPrefix].
func CanonicalDomain(publisher string) (string, error) {
	domain, problem := domains.ParsePublisher("publisher", publisher)
	if problem != nil {
		return "", problem
	}
	return domain, nil
}

// DomainPrefix returns the domain prefix under which AMP Caches serve the
// publisher's documents: "www.example.com" gives "www-example-com". It follows
// the combined algorithm of the AMP document "AMP Cache URL Format and Request
// Handling": the readable form if that is a DNS label, otherwise the hash prefix that
// [HashPrefix] returns.
//
// The publisher may be written in Unicode or ASCII and in any case. An error is a
// *[badvalue.Error].
//
// Where the document differs from both of AMP's own implementations (toolbox-cache-url 2.10.1 for Node,
// amppackager for Go), it follows the implementations. A first label with hyphens at positions 3 and 4
// ("in--trouble.com") gets a hash prefix, and so does a name that mixes right-to-left with
// left-to-right text. Such hyphens count only if the two characters before them are ASCII. But if
// the domain in Unicode begins "xn-", its prefix is wrapped, as in the document, because that prefix looks
// like punycode. toolbox-cache-url never wraps such a prefix; amppackager does, unless it is punycode.
//
// It is not public which form a given cache uses. To verify an origin use a Middleware, which accepts each form that
// [Prefixes] does not call Denied.
func DomainPrefix(publisher string) (string, error) {
	domain, err := CanonicalDomain(publisher)
	if err != nil {
		return "", err
	}
	return prefixes.Combined(domain), nil
}

// HashPrefix returns the hash prefix of the publisher: the
// lower-case base32 of the SHA-256 of its ASCII domain, 52 characters. Caches use
// it where the readable form is not a DNS label, and have used it for other names. Arguments
// and errors are as for [DomainPrefix].
func HashPrefix(publisher string) (string, error) {
	domain, err := CanonicalDomain(publisher)
	if err != nil {
		return "", err
	}
	return prefixes.Hash(domain), nil
}

// Origins returns one origin for each of the caches, such as
// "https://www-example-com.cdn.ampproject.org", in their order; without caches, for each of
// [DefaultCaches]. It uses [DomainPrefix]. A cache may use another form: [Prefixes] returns all. An error is
// a *[badvalue.Error], or several of them joined.
func Origins(publisher string, caches ...Cache) ([]string, error) {
	prefix, err := DomainPrefix(publisher)
	if err != nil {
		return nil, err
	}
	if len(caches) == 0 {
		caches = DefaultCaches()
	}
	if err := ValidateCaches(caches); err != nil {
		return nil, err
	}
	origins := make([]string, len(caches))
	for i, c := range caches {
		origins[i] = "https://" + prefix + "." + c.CacheDomain
	}
	return origins, nil
}

// ErrHashPrefix is returned by [PublisherDomain] for a prefix without a dash. Such a prefix
// is a hash prefix, which cannot be reversed. A Middleware recognizes the hash prefixes
// of its publishers.
var ErrHashPrefix = errors.New("ampcors: the domain prefix has no dash: it is a hash prefix, and cannot be reversed")

// PublisherDomain reverses a domain prefix, such as "www-example-com", into the publisher
// domain that it names, in lower-case ASCII: "www.example.com". The result says whose
// prefix it is, not that the publisher is allowed.
//
// It accepts exactly those prefixes that are a form of one publisher domain: see
// "How a prefix is read" in the package documentation. Any other is an error: a *[badvalue.Error], or one
// that is [ErrHashPrefix] if it has no dash.
func PublisherDomain(prefix string) (string, error) {
	if prefix != "" && prefixes.IsHash(prefix) {
		return "", fmt.Errorf("%w: %s", ErrHashPrefix, badvalue.Quote(prefix))
	}
	domain, _, p := prefixes.Reverse(nil, prefix)
	if p != nil {
		return "", &badvalue.Error{
			Code: cmp.Or(p.Code, badvalue.Malformed), Path: "prefix", Value: prefix,
			Reason: "is not the prefix of a publisher domain: it " + p.Reason,
			Want:   `a domain prefix as AMP Caches write it, such as "www-example-com"`,
		}
	}
	return string(domain), nil
}
