package ampcors

import (
	"strings"

	"github.com/ampcors/ampcors/internal/dns"
	"golang.org/x/net/idna"
)

// CanonicalDomain returns the publisher domain as this package compares it: in lower-case
// ASCII, with A-labels. "Bücher.example" gives "xn--bcher-kva.example". A [source.Source] is asked
// about domains in this form, and must store them in it. Arguments and errors are those of
// [DomainPrefix].
func CanonicalDomain(publisher string) (string, error) { return publisherArg(publisher) }

// DomainPrefix returns the domain prefix under which AMP Caches serve the
// publisher's documents: "www.example.com" gives "www-example-com". It follows
// the combined algorithm of the AMP document "AMP Cache URL Format and Request
// Handling": the readable form if that is a DNS label, otherwise the hash prefix that
// [HashPrefix] returns.
//
// The publisher may be written in Unicode or ASCII and in any case. An error is a
// *[ValueError].
//
// Where the document differs from both of AMP's own implementations (toolbox-cache-url
// 2.10.1 for Node, amppackager for Go), it follows the implementations. A first label with
// hyphens at positions 3 and 4 ("in--trouble.com") gets a hash prefix, and so does a name
// that mixes right-to-left with left-to-right text. Positions count only if the first two
// characters are ASCII. But it follows the document for a first label that begins "xn-":
// toolbox-cache-url does not wrap it, amppackager only if it is not punycode, and such a result can be
// read as punycode.
//
// It is not public which form a given cache uses. To verify an origin use [Middleware],
// which accepts each known form.
func DomainPrefix(publisher string) (string, error) {
	domain, err := publisherArg(publisher)
	if err != nil {
		return "", err
	}
	return combinedPrefix(domain), nil
}

// HashPrefix returns the hash prefix of the publisher: the
// lower-case base32 of the SHA-256 of its ASCII domain, 52 characters. Caches use
// it where the readable form is not a DNS label, and have used it for other names. Arguments
// and errors are those of [DomainPrefix].
func HashPrefix(publisher string) (string, error) {
	domain, err := publisherArg(publisher)
	if err != nil {
		return "", err
	}
	return dns.Hash(domain), nil
}

// CacheOrigins returns one origin for each of the caches, such as
// "https://www-example-com.cdn.ampproject.org", in their order; without caches, for each of
// [DefaultCaches]. It uses [DomainPrefix]. A cache may use another form: package cacheurl's
// Prefixes returns all. An error is a *[ValueError], or several of them joined.
func CacheOrigins(publisher string, caches ...Cache) ([]string, error) {
	prefix, err := DomainPrefix(publisher)
	if err != nil {
		return nil, err
	}
	if len(caches) == 0 {
		caches = DefaultCaches()
	}
	if err := joinValueErrors(checkCaches("caches", caches)); err != nil {
		return nil, err
	}
	origins := make([]string, len(caches))
	for i, c := range caches {
		origins[i] = "https://" + prefix + "." + c.CacheDomain
	}
	return origins, nil
}

func publisherArg(publisher string) (string, error) {
	domain, err := dns.Parse(publisher)
	if err != nil && strings.HasPrefix(publisher, "*.") {
		err = &problem{Reason: "is a pattern", Want: "one domain; patterns are for Config.Publishers"}
	}
	if err != nil {
		return "", valueError("publisher", publisher, err)
	}
	return domain, nil
}

func combinedPrefix(domain string) string {
	if prefix := basicPrefix(domain); prefix != "" {
		return prefix
	}
	return dns.Hash(domain)
}

// bidiRule checks the Bidi Rule of RFC 5893 section 2, and nothing else.
var bidiRule = idna.New(idna.BidiRule())

// basicPrefix implements the basic algorithm, with the steps numbered as in the
// AMP document. It returns "" if the combined algorithm must use the fallback algorithm.
func basicPrefix(domain string) string {
	// 1. Decode punycode.
	text, p := dns.Decode(domain)
	if p != nil || hyphens34(text) {
		return ""
	}
	// 2. Replace "-" with "--".
	text = strings.ReplaceAll(text, "-", "--")
	// 3. Replace "." with "-".
	text = strings.ReplaceAll(text, ".", "-")
	// 4. If positions 3 and 4 are both "-", wrap the text: such a DNS label is
	// reserved (RFC 5891 section 4.2.3.1).
	if hyphens34(text) {
		text = "0-" + text + "-0"
	}
	// 5. Encode punycode. The document encodes "the output of step 3", which would
	// lose the wrapping.
	prefix, err := idna.Punycode.ToASCII(text)
	if err != nil || len(prefix) > dns.MaxLabel {
		return ""
	}
	if _, err := bidiRule.ToUnicode(prefix); err != nil {
		return ""
	}
	return prefix
}

// hyphens34 reports whether positions 3 and 4 of s are both hyphens. They do not count
// after a non-ASCII letter: implementations count positions in bytes, in code points or
// after encoding, and both official ones then do not wrap the text.
func hyphens34(s string) bool {
	return len(s) >= 4 && s[2] == '-' && s[3] == '-' && s[0] < 0x80 && s[1] < 0x80
}
