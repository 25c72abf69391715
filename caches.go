package ampcors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ampcors/ampcors/internal/dns"
)

// Cache is an AMP Cache, as described by an entry of caches.json, the AMP
// project's registry. The JSON names are those of that file. In a file of package configfile, the
// id of one of the [DefaultCaches] can be written in place of the object: "google".
//
// ID and CacheDomain are required.
//
// To trust a cache is to trust whoever owns its domain today: the owner can serve
// any page under any publisher's prefix. A cache can be shut down: Cloudflare's,
// amp.cloudflare.com, is no longer in the registry. Then its domain can get another owner.
// Use a list that is up to date, and only the caches that you need.
type Cache struct {
	ID                          string `json:"id"`                          // short name, such as "google"
	Name                        string `json:"name"`                        // for people
	Docs                        string `json:"docs"`                        // URL of the cache's documentation
	CacheDomain                 string `json:"cacheDomain"`                 // such as "cdn.ampproject.org"
	UpdateCacheAPIDomainSuffix  string `json:"updateCacheApiDomainSuffix"`  // host of the update-cache requests
	ThirdPartyFrameDomainSuffix string `json:"thirdPartyFrameDomainSuffix"` // host of third-party frames (ads), never trusted here
}

// DefaultCaches returns the registry of AMP Caches as of 2026-11-21: those of
// Google ("google") and Bing ("bing"). It is part of the program; nothing is ever
// fetched. For another list see [ParseCaches]. To trust Google's cache alone:
//
//	caches := slices.DeleteFunc(ampcors.DefaultCaches(), func(c ampcors.Cache) bool {
//		return c.ID != "google"
//	})
//
// Source: build-system/global-configs/caches.json in github.com/ampproject/amphtml,
// which is served at https://cdn.ampproject.org/caches.json.
func DefaultCaches() []Cache {
	return []Cache{
		{
			ID:                          "google",
			Name:                        "Google AMP Cache",
			Docs:                        "https://developers.google.com/amp/cache/",
			CacheDomain:                 "cdn.ampproject.org",
			UpdateCacheAPIDomainSuffix:  "cdn.ampproject.org",
			ThirdPartyFrameDomainSuffix: "ampproject.net",
		},
		{
			ID:                          "bing",
			Name:                        "Bing AMP Cache",
			Docs:                        "https://www.bing.com/webmaster/help/bing-amp-cache-bc1c884c",
			CacheDomain:                 "www.bing-amp.com",
			UpdateCacheAPIDomainSuffix:  "www.bing-amp.com",
			ThirdPartyFrameDomainSuffix: "www.bing-amp.net",
		},
	}
}

// UnmarshalJSON implements [json.Unmarshaler]. It reads an object, or a string that is the id
// of one of the [DefaultCaches]. Any other string is a *[ValueError].
func (c *Cache) UnmarshalJSON(data []byte) error {
	if !bytes.HasPrefix(data, []byte(`"`)) {
		return json.Unmarshal(data, (*plainCache)(c))
	}
	var id string
	if err := json.Unmarshal(data, &id); err != nil {
		return err
	}
	var known []string
	for _, cache := range DefaultCaches() {
		if cache.ID == id {
			*c = cache
			return nil
		}
		known = append(known, strconv.Quote(cache.ID))
	}
	return &ValueError{Path: "caches", Value: id, Reason: "is not the id of a cache in DefaultCaches", Want: strings.Join(known, " or ") + ", or an object as in caches.json"}
}

// A plainCache is a Cache without its methods, so that encoding/json does not recurse.
type plainCache Cache

const (
	// maxCachesJSON bounds what ParseCaches reads. The registry has about 600 bytes.
	maxCachesJSON = 1 << 20
	// maxCacheID bounds an id in bytes, as it is written to logs.
	maxCacheID = 100
	// maxCaches bounds a list of caches, which is searched on each request. The
	// registry has two.
	maxCaches = 100
)

// ParseCaches reads a list of AMP Caches in the format of caches.json. A list that is
// empty, is longer than 1 MiB, or has a problem in any entry is rejected. Each problem of
// an entry is a *[ValueError]; they are joined. Unknown members are ignored, because the
// registry may add some. A member that occurs twice, or that differs from a known one only
// in case, is an error.
func ParseCaches(r io.Reader) ([]Cache, error) {
	if r == nil {
		return nil, errors.New("ampcors: there is no list of AMP Caches to read")
	}
	data, err := io.ReadAll(io.LimitReader(r, maxCachesJSON+1))
	if err != nil {
		return nil, fmt.Errorf("ampcors: reading the list of AMP Caches: %w", err)
	}
	if len(data) > maxCachesJSON {
		return nil, errors.New("ampcors: the list of AMP Caches is longer than 1 MiB; want caches.json")
	}
	var list struct {
		Caches []json.RawMessage `json:"caches"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		line := 1
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			line += bytes.Count(data[:syntax.Offset], []byte("\n"))
		} else if typ := (*json.UnmarshalTypeError)(nil); errors.As(err, &typ) {
			line += bytes.Count(data[:typ.Offset], []byte("\n"))
		}
		return nil, fmt.Errorf(`ampcors: the list of AMP Caches, line %d: %w; want {"caches": [...]} as in caches.json`, line, err)
	}
	if name := ambiguousMember(data, "caches"); name != "" {
		return nil, &ValueError{Path: "caches", Value: name, Reason: "is a member that occurs twice, or in another case", Want: `one member "caches"`}
	}
	entries := list.Caches[:min(len(list.Caches), maxCaches+1)] // one too many is enough to reject the list
	caches := make([]Cache, len(entries))
	var problems []*ValueError
	for i, entry := range entries {
		path := element("caches", i)
		if err := json.Unmarshal(entry, (*plainCache)(&caches[i])); err != nil {
			if typ := (*json.UnmarshalTypeError)(nil); errors.As(err, &typ) && typ.Field != "" {
				path += "." + typ.Field
			}
			problems = append(problems, &ValueError{Path: path, Value: string(entry), Reason: "is not of the right type", Want: "an object whose members are strings, as in caches.json"})
		} else if name := ambiguousMember(entry, cacheMembers...); name != "" {
			problems = append(problems, &ValueError{Path: path, Value: name, Reason: "is a member that occurs twice, or in another case", Want: "each member once, spelled as in caches.json"})
		}
	}
	if len(caches) == 0 {
		problems = append(problems, &ValueError{Path: "caches", Reason: "names no cache", Want: "at least one"})
	}
	if len(problems) > 0 {
		return nil, joinValueErrors(problems)
	}
	if err := joinValueErrors(checkCaches("caches", caches)); err != nil {
		return nil, err
	}
	return caches, nil
}

// cacheMembers are the names of a Cache's fields in JSON.
var cacheMembers = func() (names []string) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Cache]()) {
		names = append(names, field.Tag.Get("json"))
	}
	return names
}()

// ambiguousMember returns a member of a valid JSON object that encoding/json reads as a
// known one, although it is spelled in another case or occurs again. The last of them would
// win. It returns "" if there is none.
func ambiguousMember(object []byte, known ...string) string {
	tokens := json.NewDecoder(bytes.NewReader(object))
	if start, _ := tokens.Token(); start != json.Delim('{') {
		return "" // null
	}
	seen := make(map[string]bool)
	for tokens.More() { // it is valid, so there are no errors
		token, _ := tokens.Token()
		var value json.RawMessage
		_ = tokens.Decode(&value)
		name := token.(string)
		for _, k := range known {
			if strings.EqualFold(name, k) && (name != k || seen[k]) {
				return name
			}
		}
		seen[name] = true
	}
	return ""
}

// checkCaches returns every problem of the list of caches at path.
func checkCaches(path string, caches []Cache) (problems []*ValueError) {
	if len(caches) > maxCaches {
		return []*ValueError{{Path: path, Reason: fmt.Sprintf("names more than %d caches", maxCaches), Want: "only the caches to trust"}}
	}
	seen := make(map[string]int, len(caches))
	for i, c := range caches {
		report := func(member, value, reason, want string) {
			problems = append(problems, &ValueError{Path: element(path, i) + "." + member, Value: value, Reason: reason, Want: want})
		}
		domain := func(member, value string) bool {
			canonical, err := dns.Parse(value)
			if err == nil && canonical != value {
				err = &problem{Reason: "is not in lower-case ASCII", Instead: canonical}
			}
			if err != nil {
				problems = append(problems, valueError(element(path, i)+"."+member, value, err))
			}
			return err == nil
		}
		const wantID = `a short name such as "google"`
		if c.ID == "" {
			report("id", c.ID, "is empty", wantID)
		} else if len(c.ID) > maxCacheID || !utf8.ValidString(c.ID) || strings.ContainsFunc(c.ID, func(r rune) bool { return !unicode.IsPrint(r) }) {
			report("id", c.ID, fmt.Sprintf("is longer than %d bytes, or has characters that cannot be printed", maxCacheID), wantID)
		} else if first, ok := seen[c.ID]; ok {
			report("id", c.ID, fmt.Sprintf("is also the id of cache %d", first), "ids that differ")
		} else {
			seen[c.ID] = i
		}
		if domain("cacheDomain", c.CacheDomain) {
			if isPublicSuffix(c.CacheDomain) {
				// Anybody could register a host below it that looks like a prefix.
				report("cacheDomain", c.CacheDomain, "is a public suffix", "the domain of one AMP Cache")
			}
			if len(c.CacheDomain) > dns.MaxDomain-dns.MaxLabel-len(".") {
				report("cacheDomain", c.CacheDomain, "leaves no room for a domain prefix", fmt.Sprintf("at most %d bytes", dns.MaxDomain-dns.MaxLabel-len(".")))
			}
			for j, other := range caches[:i] {
				if isOrIsBelow(c.CacheDomain, other.CacheDomain) || isOrIsBelow(other.CacheDomain, c.CacheDomain) {
					report("cacheDomain", c.CacheDomain, fmt.Sprintf("overlaps with that of cache %d, %q", j, other.CacheDomain),
						"domains that do not contain each other")
					break
				}
			}
		}
		if c.UpdateCacheAPIDomainSuffix != "" {
			domain("updateCacheApiDomainSuffix", c.UpdateCacheAPIDomainSuffix)
		}
		if c.ThirdPartyFrameDomainSuffix != "" {
			domain("thirdPartyFrameDomainSuffix", c.ThirdPartyFrameDomainSuffix)
		}
	}
	return problems
}

// problemReserved is that of a host that is reserved: see reservedHost.
var problemReserved = &problem{Reason: "is a host of an AMP Cache, where anybody's page can be"}

// hosts are the hosts of AMP Caches.
type hosts struct {
	caches   []cacheHost // that are trusted
	reserved []reservedHost
}

// A reservedHost is a domain whose hosts, itself and all below it, cannot be publishers,
// because anybody's page or ad can be there.
type reservedHost struct {
	domain  string
	isCache bool // false for third-party frames
}

// A cacheHost recognizes the origins of one AMP Cache.
type cacheHost struct {
	id, domain string
	counts     *counters // of its allowed requests
}

// newHosts returns the hosts of trusted caches. The reserved hosts are the domains and the
// third-party frame domains of the trusted caches and of all caches in the registry.
func newHosts(trusted []Cache) hosts {
	var h hosts
	for _, c := range trusted {
		h.caches = append(h.caches, cacheHost{id: c.ID, domain: c.CacheDomain})
	}
	for _, c := range slices.Concat(trusted, DefaultCaches()) {
		for _, host := range []reservedHost{{c.CacheDomain, true}, {c.ThirdPartyFrameDomainSuffix, false}} {
			if host.domain != "" && !slices.Contains(h.reserved, host) {
				h.reserved = append(h.reserved, host)
			}
		}
	}
	return h
}

// reservedFor returns the reserved host whose domain is host or contains it.
func (h *hosts) reservedFor(host string) (*reservedHost, bool) {
	for i := range h.reserved {
		if isOrIsBelow(host, h.reserved[i].domain) {
			return &h.reserved[i], true
		}
	}
	return nil, false
}

func (h *hosts) isReserved(host string) bool {
	_, reserved := h.reservedFor(host)
	return reserved
}

// split cuts the domain of a trusted AMP Cache off the host of an origin, and returns the
// domain prefix: "" for the bare cache domain. It returns any other host unchanged.
func (h *hosts) split(host string) (name string, cache *cacheHost) {
	for i := range h.caches {
		if c := &h.caches[i]; isOrIsBelow(host, c.domain) {
			return host[:max(0, len(host)-len(c.domain)-len("."))], c
		}
	}
	return host, nil
}

// isOrIsBelow reports whether host is the domain or one of its subdomains. It looks for the
// dot first, because few hosts have one at that place. The dot is needed: without it,
// evilcdn.ampproject.org would be below cdn.ampproject.org.
func isOrIsBelow(host, domain string) bool {
	n := len(host) - len(domain)
	return (n == 0 || n > 0 && host[n-1] == '.') && host[n:] == domain
}
