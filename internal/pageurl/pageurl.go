// Package pageurl parses the URL of a publisher's page or file into a canonical form,
// without losing a byte of its query.
//
// It does not use net/url: if a path has any byte that must be escaped, net/url escapes the
// whole path again, and "%2F" becomes "/".
package pageurl

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/internal/domains"
)

// A URL is a publisher's URL. It has no fragment, since browsers do not send one to
// servers.
type URL struct {
	Scheme string // "http" or "https"
	Host   string // without the port, which is the scheme's default
	Path   string // escaped; "" or begins with "/"
	Query  string // escaped; "" or begins with "?"
}

// MaxBytes is the length of the longest URL that search engines get: RFC 9110 section 4.1
// recommends support for at least this.
const MaxBytes = 8000

func (u URL) String() string { return u.Scheme + "://" + u.Host + u.Path + u.Query }

// Escaping is the set of characters that are escaped.
type Escaping int

const (
	// AsBrowsers escapes what the URL standard makes browsers escape, and keeps all other
	// bytes, because AMP Caches and servers compare bytes. Some browsers also escape | in a
	// path.
	// https://url.spec.whatwg.org/#path-percent-encode-set and #special-query-percent-encode-set
	AsBrowsers Escaping = iota
	// AsRFC3986 also escapes what RFC 3986 does not allow, such as [ and | in a query, and
	// writes each escape in one way: %7e becomes ~, and %c3 becomes %C3 (section 6.2.2). A
	// % without two hexadecimal digits is an error.
	AsRFC3986
)

const (
	// RFC 3986 section 3.3. % begins an escape.
	pathChars  = unreserved + "!$&'()*+,;=" + ":@" + "/" + "%"
	queryChars = pathChars + "?"
	unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
)

var keeps = [2]struct{ path, query byteSet }{
	AsBrowsers: {setOf(pathChars + "|[]"), setOf(strings.ReplaceAll(queryChars, "'", "") + "`{}|^[]\\")},
	AsRFC3986:  {setOf(pathChars), setOf(queryChars)},
}

type byteSet [256]bool

func setOf(chars string) (set byteSet) {
	for i := range len(chars) {
		set[chars[i]] = true
	}
	return set
}

// Parse is [Split], but returns the host as a canonical publisher domain: in lower case,
// with A-labels. where is the Path of an error.
func Parse(where, value string, escaping Escaping) (URL, *badvalue.Error) {
	u, problem := Split(where, value, escaping)
	if problem != nil {
		return URL{}, problem
	}
	domain, problem := domains.ParsePublisher(where, u.Host)
	if problem != nil {
		return URL{}, Problem(problem.Code, where, value,
			fmt.Sprintf("has the host %s, which %s", badvalue.Quote(u.Host), problem.Reason), "a URL with "+problem.Want)
	}
	if escaping == AsBrowsers && !IsDomainOfBrowsers(domain) {
		return URL{}, Problem(badvalue.Malformed, where, value,
			fmt.Sprintf("has the host %s, which browsers reject: an xn-- label has characters that no domain can have",
				badvalue.Quote(u.Host)), want)
	}
	u.Host = domain
	return u, nil
}

// IsDomainOfBrowsers reports whether browsers accept a canonical domain.
func IsDomainOfBrowsers(domain string) bool {
	if !strings.Contains(domain, "xn--") {
		return true
	}
	ascii, err := browsers.ToASCII(domain)
	return err == nil && ascii == domain
}

// browsers is "domain to ASCII" of the URL standard, https://url.spec.whatwg.org/#concept-domain-to-ascii.
var browsers = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.CheckJoiners(true), idna.CheckHyphens(false),
	idna.StrictDomainName(false), idna.VerifyDNSLength(false), idna.Transitional(false))

const want = `a URL such as "https://www.example.com/article"`

// AppendQuery appends escaped parameters to a query, which is "" or begins with "?".
func AppendQuery(query, params string) string {
	if query == "" {
		return "?" + params
	}
	return query + "&" + params
}

// Problem returns an error about a URL, which is masked, with where as its Path.
func Problem(code badvalue.Code, where, value, reason, want string) *badvalue.Error {
	return &badvalue.Error{Code: code, Path: where, Value: badvalue.Masked(value), Reason: reason, Want: want}
}

// Split parses a URL. It escapes what must be escaped, removes dot segments and the default
// port as browsers do, and removes the fragment. The host is returned as written. where is the Path of an error.
func Split(where, value string, escaping Escaping) (URL, *badvalue.Error) {
	scheme, rest, ok := strings.Cut(value, "://")
	switch scheme = strings.ToLower(scheme); {
	case value == "":
		return URL{}, Problem(badvalue.Missing, where, value, "is empty", want)
	case !utf8.ValidString(value):
		return URL{}, Problem(badvalue.Malformed, where, value, "is not UTF-8", "UTF-8, or percent-encoded bytes")
	case strings.TrimSpace(value) != value:
		return URL{}, Problem(badvalue.Malformed, where, value, "has white space around it", "none around it")
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' }):
		return URL{}, Problem(badvalue.Malformed, where, value, "has a control character", want)
	case strings.HasPrefix(value, "/"):
		return URL{}, Problem(badvalue.Malformed, where, value, "has no scheme", want)
	case !ok || scheme != "http" && scheme != "https":
		return URL{}, Problem(badvalue.Malformed, where, value, "does not begin with http:// or https://", want)
	}
	rest, _, _ = strings.Cut(rest, "#")
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	path, query, hasQuery := strings.Cut(tail, "?")
	host, port := authority, ""
	if !strings.HasPrefix(authority, "[") { // an IPv6 address, which is not a domain
		host, port, _ = strings.Cut(authority, ":")
	}
	switch {
	case strings.Contains(authority, "@"):
		return URL{}, Problem(badvalue.Malformed, where, value, "has user information", want)
	case strings.Contains(authority, `\`) || strings.Contains(path, `\`):
		return URL{}, Problem(badvalue.Malformed, where, value, `has a \, which browsers read as /`, "/ or %5C")
	case port != "" && (scheme != "https" || port != "443") && (scheme != "http" || port != "80"):
		return URL{}, Problem(badvalue.Malformed, where, value, fmt.Sprintf("has the port %s", badvalue.Quote(port)),
			"none, or the default: caches and search engines support no other port")
	case escaping == AsRFC3986 && !hasOnlyEscapes(tail):
		return URL{}, Problem(badvalue.Malformed, where, value, "has a % without two hexadecimal digits after it",
			"%25 for a percent sign")
	}
	keep := &keeps[escaping]
	path, query = escape(path, &keep.path), escape(query, &keep.query)
	if escaping == AsRFC3986 {
		path, query = normalizeEscapes(path), normalizeEscapes(query)
	}
	u := URL{Scheme: scheme, Host: host, Path: removeDotSegments(path)}
	if hasQuery {
		u.Query = "?" + query
	}
	return u, nil
}

// hasOnlyEscapes reports whether each % has two hexadecimal digits after it.
func hasOnlyEscapes(s string) bool {
	for {
		_, after, found := strings.Cut(s, "%")
		if !found {
			return true
		}
		if len(after) < 2 || hexDigit[after[0]] < 0 || hexDigit[after[1]] < 0 {
			return false
		}
		s = after[2:]
	}
}

// hexDigit has the value of each hexadecimal digit, and -1 for all other bytes.
var hexDigit = func() (values [256]int8) {
	for c := range values {
		values[c] = int8(strings.IndexByte(upperHex, byte(c)))
	}
	for i, c := range "abcdef" {
		values[c] = int8(10 + i)
	}
	return values
}()

const upperHex = "0123456789ABCDEF"

// normalizeEscapes unescapes unreserved characters, and writes other escapes in upper case. Each % must
// have two hexadecimal digits after it.
func normalizeEscapes(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		char := byte(hexDigit[s[i+1]]<<4 | hexDigit[s[i+2]])
		if i += len("%7E") - 1; isUnreserved[char] {
			b = append(b, char)
		} else {
			b = appendEscape(b, char)
		}
	}
	return string(b)
}

var isUnreserved = setOf(unreserved)

func appendEscape(b []byte, char byte) []byte {
	return append(b, '%', upperHex[char>>4], upperHex[char&0xf])
}

// escape percent-encodes the bytes that are not kept.
func escape(s string, keep *byteSet) string {
	n := 0
	for i := range len(s) {
		if !keep[s[i]] {
			n++
		}
	}
	if n == 0 {
		return s
	}
	b := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		if keep[s[i]] {
			b = append(b, s[i])
		} else {
			b = appendEscape(b, s[i])
		}
	}
	return string(b)
}

// removeDotSegments resolves "." and ".." as browsers do, even if a dot is escaped. It
// keeps empty segments.
// https://url.spec.whatwg.org/#path-state
func removeDotSegments(path string) string {
	if !strings.Contains(path, "/.") && !strings.Contains(path, "/%2") {
		return path
	}
	segments := strings.Split(path[len("/"):], "/")
	kept := segments[:0]
	for i, segment := range segments {
		dots := strings.ReplaceAll(strings.ReplaceAll(segment, "%2e", "."), "%2E", ".")
		if dots != "." && dots != ".." {
			kept = append(kept, segment)
			continue
		}
		if dots == ".." && len(kept) > 0 {
			kept = kept[:len(kept)-1]
		}
		if i == len(segments)-1 {
			kept = append(kept, "") // a path that ends in a dot segment is a directory
		}
	}
	return "/" + strings.Join(kept, "/")
}
