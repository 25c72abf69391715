package cacheurl

import (
	"net/url"
	"strings"

	"golang.org/x/net/idna"

	"github.com/ampcors/ampcors/internal/pageurl"
)

// CanonicalHost returns the host of a URL in a form for comparing: in lower-case ASCII, with A-labels, and with a
// port only if that is not the scheme's default. An IPv6 address is in brackets. It is for any URL; [CanonicalDomain]
// is for publishers. An address stays as it is written: "[0:0::1]" is not "[::1]" here.
func CanonicalHost(u *url.URL) string {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if ascii, err := idna.Lookup.ToASCII(host); err == nil { // as net/http connects to it
		host = ascii
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port == "" || port == "443" && u.Scheme == "https" || port == "80" && u.Scheme == "http" {
		return host
	}
	return host + ":" + port
}

// IsSameURL reports whether two URLs of publishers mean the same by RFC 3986 section 6.2.2: their schemes, hosts,
// paths and queries are the same, however unreserved characters are escaped. A fragment does not count, and an empty
// path is "/". What is not the URL of a publisher, such as one with another port than the default or with user
// information, is compared byte by byte.
func IsSameURL(a, b string) bool {
	return a == b || canonicalURL(a) == canonicalURL(b)
}

func canonicalURL(value string) string {
	u, problem := pageurl.Parse("url", strings.TrimSpace(value), pageurl.AsRFC3986)
	if problem != nil {
		return value
	}
	if u.Path == "" {
		u.Path = "/"
	}
	return u.String()
}
