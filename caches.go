package ampcors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Cache is an AMP Cache, as described by an entry of caches.json, the AMP
// project's registry. The JSON names are those of that file.
//
// To trust a cache is to trust whoever owns its domain today: the owner can serve
// any page under any publisher's prefix. Caches end: Cloudflare's, amp.cloudflare.com,
// is no longer in the registry. A domain that nobody runs a cache on any more can
// change hands. Use a list that is up to date, and no more of it than is needed.
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

const (
	// maxCachesJSON bounds what ParseCaches reads. The registry has about 600 octets.
	maxCachesJSON = 1 << 20
	// maxCaches bounds a list of caches, which is searched on each request. The
	// registry has two.
	maxCaches = 100
)

// ParseCaches reads a list of AMP Caches in the format of caches.json. It refuses a
// list that is empty, is longer than 1 MiB, or has a fault in any entry: each fault
// is a *[ValueError] with the entry's index and field, all of them joined. Members
// that it does not know are ignored, as the registry may gain some.
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
	entries := list.Caches[:min(len(list.Caches), maxCaches+1)] // one too many is enough to refuse
	caches := make([]Cache, len(entries))
	var faults []*ValueError
	for i, entry := range entries {
		if err := json.Unmarshal(entry, &caches[i]); err != nil {
			field := "caches"
			if typ := (*json.UnmarshalTypeError)(nil); errors.As(err, &typ) && typ.Field != "" {
				field += "[]." + typ.Field
			}
			faults = append(faults, &ValueError{Field: field, Index: i, Value: string(entry), Reason: "is not of the right type", Want: "an object whose members are strings, as in caches.json"})
		}
	}
	if len(faults) > 0 {
		return nil, joinValueErrors(faults)
	}
	if err := joinValueErrors(checkCaches("caches", caches)); err != nil {
		return nil, err
	}
	return caches, nil
}

// checkCaches returns every fault of a list of caches.
func checkCaches(field string, caches []Cache) (faults []*ValueError) {
	if len(caches) == 0 {
		return []*ValueError{{Field: field, Index: -1, Reason: "names no cache", Want: "at least one"}}
	}
	if len(caches) > maxCaches {
		return []*ValueError{{Field: field, Index: -1, Reason: fmt.Sprintf("names more than %d caches", maxCaches), Want: "the few that there are"}}
	}
	seen := make(map[string]int, len(caches))
	for i, c := range caches {
		report := func(member, value, reason, want string) {
			faults = append(faults, &ValueError{Field: field + "[]." + member, Index: i, Value: value, Reason: reason, Want: want})
		}
		domain := func(member, value string) bool {
			canonical, err := parseDomain(value)
			if err == nil && canonical != value {
				err = &domainError{reason: "is not in lower-case ASCII", instead: canonical}
			}
			if err != nil {
				faults = append(faults, err.at(field+"[]."+member, i, value, ""))
			}
			return err == nil
		}
		if c.ID == "" {
			report("id", c.ID, "is empty", `a short name such as "google"`)
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
			if len(c.CacheDomain) > maxDomain-maxLabel-len(".") {
				report("cacheDomain", c.CacheDomain, "leaves no room for a domain prefix", fmt.Sprintf("at most %d octets", maxDomain-maxLabel-len(".")))
			}
			for j, other := range caches[:i] {
				if isOrIsBelow(c.CacheDomain, other.CacheDomain) || isOrIsBelow(other.CacheDomain, c.CacheDomain) {
					report("cacheDomain", c.CacheDomain, fmt.Sprintf("overlaps with that of cache %d, %q", j, other.CacheDomain),
						"domains of which none contains another")
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
	return faults
}

// isOrIsBelowAny tells whether host is one of the domains or one of their subdomains.
func isOrIsBelowAny(host string, domains []string) bool {
	for _, domain := range domains {
		if isOrIsBelow(host, domain) {
			return true
		}
	}
	return false
}

// isOrIsBelow tells whether host is the domain or one of its subdomains.
func isOrIsBelow(host, domain string) bool {
	rest, ok := strings.CutSuffix(host, domain)
	return ok && (rest == "" || rest[len(rest)-1] == '.')
}

func joinValueErrors(faults []*ValueError) error {
	errs := make([]error, len(faults))
	for i, f := range faults {
		errs[i] = f
	}
	return errors.Join(errs...)
}
