// Package cacheurl turns URLs of a publisher's documents, images and files into those
// under which an AMP Cache serves them, and back.
//
//	https://www.example.com/article?id=7
//	https://www-example-com.cdn.ampproject.org/c/s/www.example.com/article?id=7
//
// The format is that of the AMP document "AMP Cache URL Format and Request Handling"
// (https://amp.dev/documentation/guides-and-tutorials/learn/amp-caches-and-cors/amp-cache-urls).
// It looks nothing up and fetches nothing: whether a cache has the document is another
// question.
package cacheurl

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/internal/pageurl"
)

// ContentType is the first segment of a cache URL's path. It says how the cache is to
// treat what it fetches.
type ContentType string

const (
	Document       ContentType = "c"    // an AMP document, opened by itself
	Viewer         ContentType = "v"    // an AMP document in a viewer, such as a search engine's
	SignedExchange ContentType = "wp"   // an AMP document as a signed exchange (web package)
	Certificate    ContentType = "cert" // the certificate of a signed exchange
	Image          ContentType = "i"
	SizedImage     ContentType = "ii" // an image that the cache transforms, by URL.ImageParams
	Resource       ContentType = "r"  // anything else, such as a font
)

// known tells whether t is one of the constants.
func (t ContentType) known() bool {
	switch t {
	case Document, Viewer, SignedExchange, Certificate, Image, SizedImage, Resource:
		return true
	}
	return false
}

// A URL is a cache URL, taken apart.
type URL struct {
	// Publisher is the publisher's URL, http or https, of a host that
	// [ampcors.CanonicalDomain] takes, on the scheme's default port. [Parse] returns it in
	// canonical form: the host in lower case with A-labels, no port, no fragment, dot
	// segments removed, and what no browser sends as it is (spaces and non-ASCII
	// characters, say) percent-encoded. All else is kept octet by octet, as caches take
	// "?a", "?a=" and "?%61" for different documents.
	Publisher string

	// Cache is the AMP Cache. The zero value stands for Google's.
	Cache ampcors.Cache

	// Type is the content type. If it is empty, [URL.Build] guesses it by [GuessType].
	Type ContentType

	// ImageParams are the parameters of a [SizedImage], and of nothing else, as they
	// stand in the path: "w800" asks for a width of 800 pixels. Several are separated by
	// slashes.
	ImageParams string

	// CacheQuery are the cache's and the viewer's own query parameters, behind those of
	// the publisher, without "?" or "&" before them: "amp_js_v=0.1". They are those that
	// the AMP runtime takes off a URL: amp_gsa, amp_js_v, amp_kit, amp_r and usqp.
	CacheQuery string
}

// cacheParams are the query parameters that are the cache's own. The runtime also takes
// off whatever begins with these names. That is not followed here: "amp_reader=1" may be
// the publisher's.
// Source: src/core/types/string/url.js and src/url.js in github.com/ampproject/amphtml.
var cacheParams = []string{"amp_gsa", "amp_js_v", "amp_kit", "amp_r", "usqp"}

func isCacheParam(param string) bool {
	name, _, _ := strings.Cut(param, "=")
	return slices.Contains(cacheParams, name)
}

// Build returns the cache URL. The domain prefix is that of [ampcors.DomainPrefix]. A
// fragment of the publisher's URL is left out. An error is a *[ampcors.ValueError], or
// several of them joined.
//
// A publisher's URL with a query parameter that is the cache's own is refused: nobody could
// tell whose it is.
func (u URL) Build() (string, error) {
	page, fault := pageurl.Parse(u.Publisher, pageurl.AsBrowsers)
	if fault != nil {
		fault.Field = "Publisher"
		return "", fault
	}
	refuse := func(field, value, reason, want string) (string, error) {
		return "", &ampcors.ValueError{Field: field, Index: -1, Value: value, Reason: reason, Want: want}
	}

	cache := u.Cache
	if cache == (ampcors.Cache{}) {
		cache = ampcors.DefaultCaches()[0]
	}
	origins, err := ampcors.CacheOrigins(page.Host, cache)
	if err != nil {
		return "", err
	}
	if slices.ContainsFunc(append(ampcors.DefaultCaches(), cache), func(c ampcors.Cache) bool { return isBelow(page.Host, c.CacheDomain) }) {
		return refuse("Publisher", u.Publisher, "is on a cache already", "the publisher's own URL, which Parse returns")
	}

	contentType := u.Type
	if contentType == "" {
		contentType = guessType(page.Path)
		if u.ImageParams != "" {
			contentType = SizedImage
		}
	}
	if !contentType.known() {
		return refuse("Type", string(u.Type), "is not a content type", "one of the constants of type ContentType")
	}
	segments := string(contentType)
	switch hasParams := u.ImageParams != ""; {
	case hasParams != (contentType == SizedImage):
		return refuse("ImageParams", u.ImageParams, fmt.Sprintf("does not go with the content type %q", contentType), `parameters such as "w800" with SizedImage, and none with any other`)
	case hasParams:
		for _, param := range strings.Split(u.ImageParams, "/") {
			if !isImageParam(param) {
				return refuse("ImageParams", u.ImageParams, "is not a list of parameters", `letters, digits, "-", "_", "=" and ",", such as "w800"`)
			}
		}
		segments += "/" + u.ImageParams
	}
	if page.Scheme == "https" {
		segments += "/s"
	}

	query := page.Query
	for _, param := range queryParams(query) {
		if isCacheParam(param) {
			return refuse("Publisher", u.Publisher, fmt.Sprintf("has the query parameter %.80q, which is the cache's own", param), "it in CacheQuery")
		}
	}
	if u.CacheQuery != "" {
		for _, param := range strings.Split(u.CacheQuery, "&") {
			if !isCacheParam(param) || strings.ContainsFunc(param, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' || r == '"' || r == '<' || r == '>' }) {
				return refuse("CacheQuery", u.CacheQuery, fmt.Sprintf("has %.80q", param), "parameters named "+strings.Join(cacheParams, ", ")+", escaped")
			}
		}
		query = pageurl.AppendQuery(query, u.CacheQuery)
	}
	return origins[0] + "/" + segments + "/" + page.Host + page.Path + query, nil
}

// isBelow tells whether host is the domain or below it.
func isBelow(host, domain string) bool {
	return host == domain || strings.HasSuffix(host, "."+domain)
}

// isImageParam tells whether a segment can be one of a SizedImage's parameters. It must
// neither look like a host, which has a dot, nor like the "s" of https.
func isImageParam(segment string) bool {
	return segment != "" && segment != "s" && strings.Trim(segment, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=,") == ""
}

// queryParams returns the parameters of a query, which begins with "?" or is empty.
func queryParams(query string) []string {
	if query == "" {
		return nil
	}
	return strings.Split(query[len("?"):], "&")
}

// Parse takes a cache URL apart. The caches are those that it may be of; without any,
// [ampcors.DefaultCaches]. A fragment is left out: in a viewer's URL it holds what the
// viewer says to the page, and no server sees it. An error is a *[ampcors.ValueError].
//
// The domain prefix must belong to the host in the path, in any form that a cache may give
// it, readable or hash. No cache would serve another; and a reader who looks at the prefix
// alone would take the page for somebody else's.
func Parse(cacheURL string, caches ...ampcors.Cache) (URL, error) {
	if len(caches) == 0 {
		caches = ampcors.DefaultCaches()
	}
	whole, fault := pageurl.Split(cacheURL, pageurl.AsBrowsers)
	if fault != nil {
		return URL{}, fault
	}
	refuse := func(reason, want string) (URL, error) { return URL{}, pageurl.Fault(cacheURL, reason, want) }
	if whole.Scheme != "https" {
		return refuse("is not https", "https: AMP Caches have no other URLs")
	}
	host := strings.ToLower(whole.Host)
	i := slices.IndexFunc(caches, func(c ampcors.Cache) bool { return c.CacheDomain != "" && isBelow(host, c.CacheDomain) })
	if i < 0 {
		return refuse(fmt.Sprintf("has the host %.80q, which is below no known cache's domain", host), `a URL such as "https://www-example-com.cdn.ampproject.org/c/s/www.example.com/"`)
	}
	u := URL{Cache: caches[i]}
	prefix := strings.TrimSuffix(strings.TrimSuffix(host, u.Cache.CacheDomain), ".")

	const wantPath = `a path such as "/c/s/www.example.com/article"`
	segment, rest, _ := strings.Cut(strings.TrimPrefix(whole.Path, "/"), "/")
	if u.Type = ContentType(segment); !u.Type.known() {
		return refuse(fmt.Sprintf("has the content type %.80q", segment), wantPath+", that begins with c, v, wp, cert, i, ii or r")
	}
	if u.Type == SizedImage {
		for {
			segment, after, ok := strings.Cut(rest, "/")
			if !ok || !isImageParam(segment) {
				break
			}
			u.ImageParams += "/" + segment
			rest = after
		}
		if u.ImageParams = strings.TrimPrefix(u.ImageParams, "/"); u.ImageParams == "" {
			return refuse("has no image parameters", `a path such as "/ii/w800/s/www.example.com/image.jpg"`)
		}
	}
	page := pageurl.URL{Scheme: "http"}
	if after, ok := strings.CutPrefix(rest, "s/"); ok {
		page.Scheme, rest = "https", after
	}
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		rest, page.Path = rest[:i], rest[i:]
	}
	// A host that the document wants as A-labels is in Unicode where AMP's toolbox wrote the
	// URL, and browsers escape that.
	pageHost, err := url.PathUnescape(rest)
	if err != nil {
		pageHost = rest
	}
	if page.Host, fault = pageurl.Domain(pageHost); fault != nil {
		return refuse(fmt.Sprintf("has the host %.80q in its path, which %s", pageHost, fault.Reason), wantPath)
	}
	if !belongsTo(prefix, page.Host) {
		return refuse(fmt.Sprintf("has the domain prefix %.80q, which is not one of %q", prefix, page.Host), "the prefix of the host in the path")
	}

	var own, theirs []string
	for _, param := range queryParams(whole.Query) {
		if isCacheParam(param) {
			theirs = append(theirs, param)
		} else {
			own = append(own, param)
		}
	}
	if len(own) > 0 {
		page.Query = "?" + strings.Join(own, "&")
	}
	u.Publisher, u.CacheQuery = page.String(), strings.Join(theirs, "&")
	return u, nil
}

// belongsTo tells whether the prefix is a form of the publisher domain: any that a
// [ampcors.Middleware] would take for it.
func belongsTo(prefix, domain string) bool {
	of, err := ampcors.PublisherDomain(prefix)
	if errors.Is(err, ampcors.ErrHashed) {
		hash, err := ampcors.FallbackPrefix(domain)
		return err == nil && hash == prefix
	}
	return err == nil && of == domain
}
