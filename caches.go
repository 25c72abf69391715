package ampcors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// Cache is an AMP Cache, as described by an entry of caches.json, the AMP
// project's registry. The JSON names are those of that file.
//
// To trust a cache is to trust whoever owns its domain today: the owner can serve
// any page under any publisher's prefix. Two former caches are gone from the
// registry, and domains that nobody runs a cache on any more can change hands. Use
// a list that is up to date, and no more of it than is needed.
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

// maxCachesJSON bounds what ParseCaches reads. The registry has about 600 octets.
const maxCachesJSON = 1 << 20

// ParseCaches reads a list of AMP Caches in the format of caches.json. It refuses a
// list that is empty, is longer than 1 MiB, or has a fault in any entry: each fault
// is a *[ValueError] with the entry's index and field, all of them joined. Members
// that it does not know are ignored, as the registry may gain some.
func ParseCaches(r io.Reader) ([]Cache, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxCachesJSON+1))
	if err != nil {
		return nil, fmt.Errorf("ampcors: reading the list of AMP Caches: %w", err)
	}
	if len(data) > maxCachesJSON {
		return nil, errors.New("ampcors: the list of AMP Caches is longer than 1 MiB; want caches.json")
	}
	var list struct {
		Caches []Cache `json:"caches"`
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
	if err := joinValueErrors(checkCaches("caches", list.Caches)); err != nil {
		return nil, err
	}
	return list.Caches, nil
}

// checkCaches returns every fault of a list of caches.
func checkCaches(field string, caches []Cache) (faults []*ValueError) {
	if len(caches) == 0 {
		return []*ValueError{{Field: field, Index: -1, Reason: "names no cache", Want: "at least one"}}
	}
	seen := make(map[string]int, len(caches))
	for i, c := range caches {
		report := func(member, value, reason, want string) {
			faults = append(faults, &ValueError{Field: field + "." + member, Index: i, Value: value, Reason: reason, Want: want})
		}
		domain := func(member, value string) bool {
			canonical, err := parseDomain(value)
			if err == nil && canonical != value {
				err = &ValueError{Reason: "is not in lower-case ASCII", Want: fmt.Sprintf("%q", canonical)}
			}
			if err != nil {
				report(member, value, err.Reason, err.Want)
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
			if suffix, _ := publicsuffix.PublicSuffix(c.CacheDomain); suffix == c.CacheDomain {
				// Anybody could register a host below it that looks like a prefix.
				report("cacheDomain", c.CacheDomain, "is a public suffix", "the domain of one AMP Cache")
			}
			for j, other := range caches[:i] {
				if isOrIsBelow(c.CacheDomain, other.CacheDomain) || isOrIsBelow(other.CacheDomain, c.CacheDomain) {
					report("cacheDomain", c.CacheDomain, fmt.Sprintf("overlaps with that of cache %d, %q", j, other.CacheDomain),
						"domains of which none contains another")
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
