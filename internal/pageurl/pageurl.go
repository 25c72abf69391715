// Package pageurl takes the URL of a publisher's page or file apart, canonically and
// without losing a byte of its query.
//
// It does not use net/url, which writes a path anew when it holds any byte that has to be
// escaped, and then loses the difference between "/" and "%2F".
package pageurl

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/ampcors/ampcors"
)

// A URL is a publisher's URL. It has no fragment, which is the reader's and never reaches
// a server.
type URL struct {
	Scheme string // "http" or "https"
	Host   string // without the port, which is the scheme's default
	Path   string // escaped; "" or begins with "/"
	Query  string // escaped; "" or begins with "?"
}

func (u URL) String() string { return u.Scheme + "://" + u.Host + u.Path + u.Query }

// Escaping says which characters are escaped.
type Escaping int

const (
	// AsBrowsers escapes what browsers do by the URL standard, and leaves all else as it is:
	// AMP Caches and servers compare bytes. But ' is left in a query, and some browsers
	// escape | in a path.
	// https://url.spec.whatwg.org/#path-percent-encode-set
	AsBrowsers Escaping = iota
	// AsRFC3986 also escapes what that does not allow, such as [ and | in a query, and
	// writes each escape in one way: %7e becomes ~, and %c3 becomes %C3 (section 6.2.2).
	// A % without two hexadecimal digits is a problem.
	AsRFC3986
)

const (
	// RFC 3986 section 3.3. % begins an escape.
	pathOctets  = unreserved + "!$&'()*+,;=" + ":@" + "/" + "%"
	queryOctets = pathOctets + "?"
	unreserved  = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
)

var keeps = [2]struct{ path, query byteSet }{
	AsBrowsers: {setOf(pathOctets + "|[]"), setOf(queryOctets + "`{}|^[]\\")},
	AsRFC3986:  {setOf(pathOctets), setOf(queryOctets)},
}

type byteSet [256]bool

func setOf(chars string) (set byteSet) {
	for i := range len(chars) {
		set[chars[i]] = true
	}
	return set
}

// Parse is [Split] with the host as a canonical publisher domain: in lower case, with
// A-labels.
func Parse(value string, escaping Escaping) (URL, *ampcors.ValueError) {
	u, problem := Split(value, escaping)
	if problem != nil {
		return URL{}, problem
	}
	domain, problem := Domain(u.Host)
	if problem != nil {
		return URL{}, Problem(value, fmt.Sprintf("has the host %.80q, which %s", u.Host, problem.Reason), "a URL with "+problem.Want)
	}
	u.Host = domain
	return u, nil
}

// Domain is [ampcors.CanonicalDomain], whose errors are of one type.
func Domain(host string) (string, *ampcors.ValueError) {
	domain, err := ampcors.CanonicalDomain(host)
	if err != nil {
		return "", err.(*ampcors.ValueError)
	}
	return domain, nil
}

// AppendQuery adds parameters, written as in a query, behind those of a query, which is ""
// or begins with "?".
func AppendQuery(query, params string) string {
	if query == "" {
		return "?" + params
	}
	return query + "&" + params
}

var userInfo = regexp.MustCompile(`^([^/?#]*//)[^/?#]*@`)

// Problem is an error on a URL, without user information: it may be a password, which has no
// place in a log.
func Problem(value, reason, want string) *ampcors.ValueError {
	return &ampcors.ValueError{Path: "url", Value: userInfo.ReplaceAllString(value, "$1…@"), Reason: reason, Want: want}
}

// Split takes a URL apart. It escapes what must be, removes dot segments and the default
// port as browsers do, and leaves out the fragment. The host is as it was written.
func Split(value string, escaping Escaping) (URL, *ampcors.ValueError) {
	const want = `a URL such as "https://www.example.com/article"`
	scheme, rest, ok := strings.Cut(value, "://")
	switch scheme = strings.ToLower(scheme); {
	case value == "":
		return URL{}, Problem(value, "is empty", want)
	case !utf8.ValidString(value):
		return URL{}, Problem(value, "is not UTF-8", "UTF-8, or percent-encoded bytes")
	case strings.TrimSpace(value) != value:
		return URL{}, Problem(value, "has white space around it", "none around it")
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' }):
		return URL{}, Problem(value, "has a control character", want)
	case strings.HasPrefix(value, "/"):
		return URL{}, Problem(value, "has no scheme", want)
	case !ok || scheme != "http" && scheme != "https":
		return URL{}, Problem(value, "does not begin with http:// or https://", want)
	}
	rest, _, _ = strings.Cut(rest, "#")
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	path, query, hasQuery := strings.Cut(tail, "?")
	host, port := authority, ""
	if !strings.HasPrefix(authority, "[") { // an IPv6 address, which is no domain
		host, port, _ = strings.Cut(authority, ":")
	}
	switch {
	case strings.Contains(authority, "@"):
		return URL{}, Problem(value, "has user information", want)
	case strings.Contains(authority, `\`) || strings.Contains(path, `\`):
		return URL{}, Problem(value, `has a \, which browsers take for /`, "/ or %5C")
	case port != "" && (scheme != "https" || port != "443") && (scheme != "http" || port != "80"):
		return URL{}, Problem(value, fmt.Sprintf("has the port %.80q", port), "none, or the default: caches and search engines know a page by its host alone")
	case escaping == AsRFC3986 && strings.Count(tail, "%") != len(escapes.FindAllString(tail, -1)):
		return URL{}, Problem(value, "has a % that no two hexadecimal digits follow", "%25 for a percent sign")
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

var escapes = regexp.MustCompile("%[0-9A-Fa-f]{2}")

// normalizeEscapes unescapes unreserved characters, and writes other escapes in upper case.
func normalizeEscapes(s string) string {
	return escapes.ReplaceAllStringFunc(s, func(escape string) string {
		char, _ := hex.DecodeString(escape[len("%"):])
		if strings.Contains(unreserved, string(char)) {
			return string(char)
		}
		return strings.ToUpper(escape)
	})
}

// escape percent-encodes the bytes that are not kept.
func escape(s string, keep *byteSet) string {
	var b strings.Builder
	from := 0
	for i := range len(s) {
		if !keep[s[i]] {
			b.WriteString(s[from:i])
			fmt.Fprintf(&b, "%%%02X", s[i])
			from = i + 1
		}
	}
	if from == 0 {
		return s
	}
	b.WriteString(s[from:])
	return b.String()
}

// removeDotSegments resolves "." and ".." as browsers do: also where a dot is escaped, and
// with empty segments left in place.
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
			kept = append(kept, "") // what ends in a dot segment is a directory
		}
	}
	return "/" + strings.Join(kept, "/")
}
