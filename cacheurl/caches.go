package cacheurl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/internal/domains"
	"github.com/ampcors/ampcors/internal/strictjson"
)

// Cache is an AMP Cache, as described by an entry of caches.json, the AMP project's registry. The JSON
// names are as in that file.
//
// ID and CacheDomain are required.
//
// To trust a cache is to trust whoever owns its domain today: the owner can serve
// any page under any publisher's prefix. A cache can be shut down: Cloudflare's,
// amp.cloudflare.com, is no longer in the registry. Then its domain can get another owner.
// Use a list that is up to date, and only the caches that you need.
type Cache struct {
	ID                         string `json:"id"`                         // short name, such as "google"
	Name                       string `json:"name"`                       // for people
	Docs                       string `json:"docs"`                       // URL of the cache's documentation
	CacheDomain                string `json:"cacheDomain"`                // such as "cdn.ampproject.org"
	UpdateCacheAPIDomainSuffix string `json:"updateCacheApiDomainSuffix"` // update-cache requests go to hosts below it
	// host of third-party frames (ads), never trusted here
	ThirdPartyFrameDomainSuffix string `json:"thirdPartyFrameDomainSuffix"`
}

// DefaultCaches returns the registry of AMP Caches as of 2026-11-21: the caches of Google ("google")
// and Bing ("bing"). It is part of the program; nothing is ever fetched. For another list see
// [ParseCaches]. To trust Google's cache alone:
//
//	caches := slices.DeleteFunc(DefaultCaches(), func(c Cache) bool {
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
	// maxCachesJSON bounds what ParseCaches reads. The registry has about 600 bytes.
	maxCachesJSON = 1 << 20
	// maxCacheID bounds an id in bytes, as it is written to logs.
	maxCacheID = 100
	// maxCaches bounds a list of caches, which is searched on each request. The
	// registry has two.
	maxCaches = 100
)

// ParseCaches reads a list of AMP Caches in the format of caches.json. A list that is
// empty, is longer than 1 MiB, or has a problem in any entry is rejected. All problems are
// joined; those that [ValidateCaches] finds are *[badvalue.Error]s. Unknown members are ignored, because the
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
		Caches []Cache `json:"caches"`
	}
	var errs []error
	for _, p := range strictjson.Decode(data, &list, strictjson.Options{IgnoreUnknown: true}).Problems {
		line := 1 + bytes.Count(data[:p.Offset], []byte("\n"))
		errs = append(errs, fmt.Errorf("ampcors: the list of AMP Caches, line %d: %s", line, p))
	}
	switch {
	case len(errs) > 0:
		return nil, errors.Join(errs...)
	case len(list.Caches) == 0:
		return nil, &badvalue.Error{Code: badvalue.Missing, Path: "caches", Reason: "names no cache", Want: "at least one"}
	}
	if err := ValidateCaches(list.Caches); err != nil {
		return nil, err
	}
	return list.Caches, nil
}

// ValidateCaches returns what is wrong with a list of AMP Caches: one or more *[badvalue.Error],
// joined.
func ValidateCaches(caches []Cache) error {
	return validateCaches(caches, func(i int) string { return fmt.Sprintf("caches[%d]", i) })
}

// validateCaches is [ValidateCaches]. The path of a cache begins the paths in errors.
func validateCaches(caches []Cache, path func(i int) string) error {
	if len(caches) > maxCaches {
		return &badvalue.Error{Code: badvalue.OutOfRange, Path: "caches",
			Reason: fmt.Sprintf("names more than %d caches", maxCaches),
			Want:   "only the caches to trust"}
	}
	var errs []error
	seen := make(map[string]int, len(caches))
	known := slices.Concat(caches, DefaultCaches())
	for i, c := range caches {
		report := func(code badvalue.Code, member, value, reason, want string) {
			errs = append(errs, &badvalue.Error{Code: code, Path: path(i) + "." + member, Value: value, Reason: reason,
				Want: want})
		}
		domain := func(member, value string) bool {
			canonical, err := domains.Parse(value)
			if err == nil && canonical != value {
				err = &domains.Problem{Reason: "is not in lower-case ASCII", Instead: canonical}
			}
			if err != nil {
				errs = append(errs, err.Of(path(i)+"."+member, value))
			}
			return err == nil
		}
		const wantID = `a short name such as "google"`
		if c.ID == "" {
			report(badvalue.Missing, "id", c.ID, "is empty", wantID)
		} else if len(c.ID) > maxCacheID || !utf8.ValidString(c.ID) ||
			strings.ContainsFunc(c.ID, func(r rune) bool { return !unicode.IsPrint(r) }) {
			report(badvalue.Malformed, "id", c.ID, fmt.Sprintf(
				"is longer than %d bytes, or has characters that cannot be printed", maxCacheID), wantID)
		} else if first, ok := seen[c.ID]; ok {
			report(badvalue.Conflict, "id", c.ID, fmt.Sprintf("is also the id of cache %d", first), "ids that differ")
		} else {
			seen[c.ID] = i
		}
		if domain("cacheDomain", c.CacheDomain) {
			if domains.IsPublicSuffix(c.CacheDomain) {
				// Anybody could register a host below it that looks like a prefix.
				report(badvalue.Unsafe, "cacheDomain", c.CacheDomain, "is a public suffix", "the domain of one AMP Cache")
			}
			if len(c.CacheDomain) > domains.MaxDomain-domains.MaxLabel-len(".") {
				report(badvalue.OutOfRange, "cacheDomain", c.CacheDomain, "leaves no room for a domain prefix",
					fmt.Sprintf("at most %d bytes", domains.MaxDomain-domains.MaxLabel-len(".")))
			}
			// A frame of an ad runs at any host below the suffix, such as one that looks like a prefix.
			for _, other := range known {
				if suffix := other.ThirdPartyFrameDomainSuffix; suffix != "" && domains.IsOrIsBelow(c.CacheDomain, suffix) {
					report(badvalue.Unsafe, "cacheDomain", c.CacheDomain,
						fmt.Sprintf("is where third-party frames such as ads run (%s)", suffix),
						"the domain of the AMP Cache, such as cdn.ampproject.org")
					break
				}
			}
			for j, other := range caches[:i] {
				if domains.IsOrIsBelow(c.CacheDomain, other.CacheDomain) || domains.IsOrIsBelow(other.CacheDomain, c.CacheDomain) {
					report(badvalue.Conflict, "cacheDomain", c.CacheDomain,
						fmt.Sprintf("overlaps with that of cache %d, %q", j, other.CacheDomain),
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
	return errors.Join(errs...)
}
