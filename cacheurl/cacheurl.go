package cacheurl

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/internal/domains"
	"github.com/ampcors/ampcors/internal/pageurl"
	"github.com/ampcors/ampcors/internal/prefixes"
)

// ContentType is the first segment of a cache URL's path. It says how the cache treats what
// it fetches. (AMP has more types, for ads, which publishers do not need.)
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

// known reports whether t is one of the constants.
func (t ContentType) known() bool {
	switch t {
	case Document, Viewer, SignedExchange, Certificate, Image, SizedImage, Resource:
		return true
	}
	return false
}

// hasParams reports whether parameters can follow t in a path.
func (t ContentType) hasParams() bool { return t == Image || t == SizedImage }

// A URL is a parsed cache URL.
type URL struct {
	// Publisher is the publisher's URL, http or https, on the scheme's default port.
	// [CanonicalDomain] must accept its host. [Parse] returns it in canonical form: the
	// host in lower case with A-labels, no port, no fragment, and no dot segments. Characters that
	// the URL standard escapes in a path or a query, such as spaces and non-ASCII characters, are
	// percent-encoded. All other bytes are kept, since caches treat "?a", "?a=" and "?%61" as
	// different documents.
	// https://url.spec.whatwg.org/#percent-encoded-bytes
	Publisher string

	// Cache is the AMP Cache. If zero, the first of [DefaultCaches] is used, Google's: a URL is
	// on one cache.
	Cache Cache

	// Prefix is the domain prefix, one of [Prefixes] that is not Denied. If empty, [URL.Build] uses the
	// result of [DomainPrefix]. [Parse] sets Prefix only if it differs from that result.
	Prefix string

	// Type is the content type. If empty, [URL.Build] uses SizedImage if there are
	// ImageParams, and Document otherwise. [GuessType] guesses it.
	Type ContentType

	// ImageParams are the parameters of an [Image] or a [SizedImage], as written in the path: "w800" asks
	// for a maximum width of 800 pixels.
	// Several are separated by slashes. Other types have none.
	ImageParams string

	// CacheQuery are the query parameters of the cache and the viewer, which follow the parameters of the
	// publisher: "amp_js_v=0.1", without "?" or "&" before them. They are the parameters that the AMP
	// runtime removes from a URL (amp_gsa, amp_kit, amp_r, usqp, and everything that begins with amp_js),
	// __amp_source_origin, which the runtime adds, and amp_latest_update_time. The last tells the cache
	// how new a document must be; by AMP's document, only the cache sees it.
	CacheQuery string
}

// cacheParam is the runtime's own pattern, amp_latest_update_time, and __amp_source_origin, which the runtime adds.
// Source: src/core/types/string/url.js in github.com/ampproject/amphtml.
var cacheParam = regexp.MustCompile(`^(amp_(js[^&=]*|gsa|r|kit|latest_update_time)|usqp|__amp_source_origin)\b`)

func isCacheParam(param string) bool { return cacheParam.MatchString(param) }

// Build returns the cache URL. A fragment of the publisher's URL is removed. An error is an
// *[badvalue.Error], or several of them joined.
//
// A publisher's URL is rejected if it has one of the cache's query parameters, because [Parse]
// would return that in CacheQuery.
func (u URL) Build() (string, error) {
	page, problem := pageurl.Parse("Publisher", u.Publisher, pageurl.AsBrowsers)
	if problem != nil {
		return "", problem
	}
	reject := func(code badvalue.Code, path, value, reason, want string) (string, error) {
		return "", &badvalue.Error{Code: code, Path: path, Value: value, Reason: reason, Want: want}
	}

	cache := u.Cache
	if cache == (Cache{}) {
		cache = DefaultCaches()[0]
	}
	if err := validateCaches([]Cache{cache}, func(int) string { return "Cache" }); err != nil {
		return "", err
	}
	if isCacheHost(page.Host, cache) {
		return reject(badvalue.Reserved, "Publisher", u.Publisher, "is on a cache already", "the publisher's own URL")
	}
	prefix := prefixes.Combined(page.Host)
	if u.Prefix != "" {
		all, err := Prefixes(page.Host)
		if err != nil {
			return "", err
		}
		if !slices.ContainsFunc(all, func(p Prefix) bool { return p.Prefix == u.Prefix && !p.Denied }) {
			return reject(badvalue.Unknown, "Prefix", u.Prefix,
				fmt.Sprintf("is not a prefix of %q, or that of another host as well", page.Host),
				"one of its prefixes that is not denied, or none")
		}
		prefix = u.Prefix
	}
	origin := "https://" + prefix + "." + cache.CacheDomain

	contentType := u.Type
	if contentType == "" {
		contentType = Document
		if u.ImageParams != "" {
			contentType = SizedImage
		}
	}
	if !contentType.known() {
		return reject(badvalue.Unknown, "Type", string(u.Type), "is not a content type of AMP Caches",
			"c, v, wp, cert, i, ii or r")
	}
	segments := string(contentType)
	if u.ImageParams != "" {
		if !contentType.hasParams() {
			return reject(badvalue.Conflict, "ImageParams", u.ImageParams,
				fmt.Sprintf("does not go with the content type %q", contentType),
				`parameters such as "w800" with an image, and none with a document or a file`)
		}
		for param := range strings.SplitSeq(u.ImageParams, "/") {
			if !isImageParam(param) {
				return reject(badvalue.Malformed, "ImageParams", u.ImageParams, "is not a list of parameters",
					`letters, digits, "-", "_", "=" and ",", such as "w800"`)
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
			return reject(badvalue.Reserved, "Publisher", u.Publisher,
				fmt.Sprintf("has the query parameter %s, which is reserved for the cache", badvalue.Quote(param)),
				"the URL without it, and the parameter in the query for the cache")
		}
	}
	if u.CacheQuery != "" {
		for _, param := range strings.Split(u.CacheQuery, "&") {
			if !isCacheParam(param) || strings.ContainsFunc(param, func(r rune) bool {
				return r <= ' ' || r >= 0x7f || r == '#' || r == '"' || r == '\'' || r == '<' || r == '>'
			}) {
				return reject(badvalue.Unknown, "CacheQuery", u.CacheQuery, fmt.Sprintf("has %s", badvalue.Quote(param)),
					"amp_js_v, amp_gsa, amp_kit, amp_r, amp_latest_update_time and usqp, escaped and with & between them")
			}
		}
		query = pageurl.AppendQuery(query, u.CacheQuery)
	}
	return origin + "/" + segments + "/" + page.Host + page.Path + query, nil
}

// isCacheHost reports whether a host belongs to this AMP Cache or to a default one. Such a
// host is not a publisher.
func isCacheHost(host string, cache Cache) bool {
	return slices.ContainsFunc(append(DefaultCaches(), cache),
		func(c Cache) bool { return domains.IsOrIsBelow(host, c.CacheDomain) })
}

// isImageParam reports whether a segment can be one of the parameters of an Image or a
// SizedImage. It must not look like a host, which has a dot, or be the "s" of https.
func isImageParam(segment string) bool {
	return segment != "" && segment != "s" && strings.Trim(segment,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=,") == ""
}

// queryParams returns the parameters of a query, which begins with "?" or is empty.
func queryParams(query string) []string {
	if query == "" {
		return nil
	}
	return strings.Split(query[len("?"):], "&")
}

// Parse parses a cache URL of one of the caches. If none are given, [DefaultCaches] is used. Other URLs
// are rejected, such as URLs of viewers. A fragment is removed: it is a message from a viewer to the
// page, and no server sees it. An error is a *[badvalue.Error], or several of them joined if the caches
// have problems.
//
// The domain prefix must belong to the host in the path, either in readable form or as a hash prefix, and must not be
// ambiguous. No cache serves a document under a prefix that is not the host's. Such a URL would look like one of
// another publisher's page.
func Parse(cacheURL string, caches ...Cache) (URL, error) {
	if len(caches) == 0 {
		caches = DefaultCaches()
	} else if err := ValidateCaches(caches); err != nil {
		return URL{}, err
	}
	reject := func(reason, want string) (URL, error) {
		return URL{}, &badvalue.Error{Code: badvalue.Malformed, Path: "cacheURL", Value: cacheURL, Reason: reason, Want: want}
	}
	whole, problem := pageurl.Split("cacheURL", cacheURL, pageurl.AsBrowsers)
	if problem != nil {
		return URL{}, problem
	}
	if whole.Scheme != "https" {
		return reject("is not https", "https, which all AMP Caches use")
	}
	// strings.ToLower maps two non-ASCII letters, İ and the Kelvin sign, to ASCII. Browsers
	// read İ differently, so it would make a look-alike host pass as Bing's.
	if strings.ContainsFunc(whole.Host, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return reject(fmt.Sprintf("has the host %s, which is not ASCII", badvalue.Quote(whole.Host)),
			"an ASCII host, with A-labels (xn--...)")
	}
	host := strings.ToLower(whole.Host)
	i := slices.IndexFunc(caches, func(c Cache) bool { return domains.IsOrIsBelow(host, c.CacheDomain) })
	if i < 0 {
		return reject(fmt.Sprintf("has the host %s, which is below no known cache's domain", badvalue.Quote(host)),
			`a URL such as "https://www-example-com.cdn.ampproject.org/c/s/www.example.com/"`)
	}
	u := URL{Cache: caches[i]}
	prefix := strings.TrimSuffix(strings.TrimSuffix(host, u.Cache.CacheDomain), ".")
	if prefix == "" {
		return reject("has no domain prefix", `a host such as "www-example-com.`+u.Cache.CacheDomain+`"`)
	}

	const wantPath = `a path such as "/c/s/www.example.com/article"`
	segment, rest, _ := strings.Cut(strings.TrimPrefix(whole.Path, "/"), "/")
	if u.Type = ContentType(segment); segment == "s" || strings.Contains(segment, ".") {
		return reject(fmt.Sprintf("has no content type before %s", badvalue.Quote(segment)),
			wantPath+", whose first segment is c, v, wp, cert, i, ii or r")
	} else if !u.Type.known() {
		return reject(fmt.Sprintf("has the content type %s", badvalue.Quote(segment)),
			wantPath+", whose first segment is c, v, wp, cert, i, ii or r")
	}
	if u.Type.hasParams() {
		n := 0 // bytes of the parameters, each with a slash
		for param := range strings.SplitSeq(rest, "/") {
			if !isImageParam(param) || n+len(param) == len(rest) {
				break
			}
			n += len(param) + len("/")
		}
		if n > 0 {
			u.ImageParams, rest = rest[:n-len("/")], rest[n:]
		}
	}
	page, reason := parsePage(rest)
	if reason != "" {
		return reject(reason, wantPath)
	}
	if isCacheHost(page.Host, u.Cache) {
		return reject(fmt.Sprintf("has the host %q in its path, which is on a cache itself", page.Host), "a publisher's host")
	}
	if !belongsTo(prefix, page.Host) {
		all, _ := Prefixes(page.Host)
		if slices.ContainsFunc(all, func(p Prefix) bool { return p.Prefix == prefix }) {
			return reject(fmt.Sprintf("has the domain prefix %s, which %q shares with another host", badvalue.Quote(prefix),
				page.Host),
				"another prefix of the host in the path")
		}
		return reject(fmt.Sprintf("has the domain prefix %s, which is not one of the prefixes of %q", badvalue.Quote(prefix),
			page.Host),
			"the prefix of the host in the path")
	}

	if usual, err := DomainPrefix(page.Host); err != nil || usual != prefix {
		u.Prefix = prefix
	}

	page.Query, u.CacheQuery = splitQuery(whole.Query)
	u.Publisher = page.String()
	return u, nil
}

// parsePage parses what follows the content type: "s/" for https, the host and the path. The
// reason says why it is rejected; "" if it is not.
func parsePage(rest string) (page pageurl.URL, reason string) {
	page.Scheme = "http"
	if after, ok := strings.CutPrefix(rest, "s/"); ok {
		page.Scheme, rest = "https", after
	}
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		rest, page.Path = rest[:i], rest[i:]
	}
	// The URL format requires A-labels here, but AMP's toolbox writes Unicode, which
	// browsers escape. The runtime unescapes any escape.
	host, err := url.PathUnescape(rest)
	if err != nil {
		host = rest
	}
	domain, problem := domains.ParsePublisher("host", host)
	if problem != nil {
		return page, fmt.Sprintf("has the host %s in its path, which %s", badvalue.Quote(host), problem.Reason)
	}
	if !pageurl.IsDomainOfBrowsers(domain) {
		return page, fmt.Sprintf("has the host %q in its path, which browsers reject", domain)
	}
	page.Host = domain
	return page, ""
}

// splitQuery splits a query into that of the publisher, and the parameters of the cache.
func splitQuery(query string) (publisher, cache string) {
	var own, theirs []string
	for _, param := range queryParams(query) {
		if isCacheParam(param) {
			theirs = append(theirs, param)
		} else {
			own = append(own, param)
		}
	}
	if len(own) > 0 {
		publisher = "?" + strings.Join(own, "&")
	}
	return publisher, strings.Join(theirs, "&")
}

// IsOnCache reports whether the host of a URL is the domain of one of the caches, or below it. If none
// are given, [DefaultCaches] is used.
func IsOnCache(rawURL string, caches ...Cache) bool {
	if len(caches) == 0 {
		caches = DefaultCaches()
	}
	u, err := url.Parse(rawURL)
	return err == nil && slices.ContainsFunc(caches, func(c Cache) bool {
		return domains.IsOrIsBelow(strings.ToLower(u.Hostname()), c.CacheDomain)
	})
}

// belongsTo reports whether the prefix is one that [ampcors.Middleware] accepts for the
// publisher domain.
func belongsTo(prefix, domain string) bool {
	of, err := PublisherDomain(prefix)
	return err == nil && of == domain || prefix == prefixes.Hash(domain)
}

// GuessType returns the content type that the extension of a publisher's URL suggests:
// [Image] for "https://www.example.com/photo.jpg", [Resource] for a font such as "/serif.woff2" on that host, and
// [Document] for everything else, even if it is not a URL. Case does not matter. It knows only extensions that no
// document has. (AMP's toolbox knows nearly three hundred, such as ".ai", and so takes the document
// "/agents.ai" for an image.) Set [URL.Type] if the type is known.
func GuessType(publisherURL string) ContentType {
	u, problem := pageurl.Split("publisherURL", publisherURL, pageurl.AsBrowsers)
	if problem != nil {
		return Document
	}
	switch strings.ToLower(u.Path[strings.LastIndexByte(u.Path, '.')+1:]) {
	case "avif", "bmp", "gif", "heic", "ico", "jpeg", "jpg", "png", "svg", "tif", "tiff", "webp":
		return Image
	case "eot", "otf", "ttc", "ttf", "woff", "woff2":
		return Resource
	}
	return Document
}
