package sitemap

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/ampcors/ampcors/badvalue"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/pageurl"
)

// This file decides which URLs are read and announced, and where a user and password are sent.

// canonical returns the URL of a page as it is announced.
func (r *reading) canonical(page string) (string, error) {
	if _, err := r.resolve(page, r.at == nil); err != nil {
		return "", err
	}
	escaping := pageurl.AsRFC3986
	if r.cfg.ForCaches {
		escaping = pageurl.AsBrowsers
	}
	parsed, problem := pageurl.Parse("url", page, escaping)
	if problem != nil {
		return "", withoutValue(problem)
	}
	if parsed.Path == "" && !r.cfg.ForCaches {
		parsed.Path = "/"
	}
	if n := len(parsed.String()); n > pageurl.MaxBytes {
		return "", fmt.Errorf("has %d bytes, escaped; want at most %d", n, pageurl.MaxBytes)
	}
	return parsed.String(), nil
}

// maxFileURL is the length of the longest URL of a sitemap, in bytes, which is that of the protocol.
const maxFileURL = 2048

// resolveFile returns the URL of a sitemap.
func (r *reading) resolveFile(value string) (*url.URL, error) {
	at, err := r.resolve(value, false)
	if err == nil && len(at.String()) > maxFileURL {
		return nil, fmt.Errorf("has more than %d bytes, escaped", maxFileURL)
	}
	return at, err
}

// ErrOtherHost is wrapped by the error of an entry that is not on the host of its file, of the file
// given to Update, or of Config.Hosts. Otherwise, a site could announce the pages of another one.
var ErrOtherHost = errors.New("is on another host, which is not allowed")

// resolve returns the URL of an entry. The protocol wants it to be absolute. Its errors do not have
// the entry, because a server of an internal network may have answered it.
func (r *reading) resolve(value string, onAnyHost bool) (*url.URL, error) {
	if value == "" {
		return nil, errors.New("has no URL")
	}
	at, err := url.Parse(value)
	if err != nil {
		if _, problem := pageurl.Split("url", value, pageurl.AsRFC3986); problem != nil {
			return nil, withoutValue(problem)
		}
	}
	switch {
	case err != nil || at.Scheme != "https" && at.Scheme != "http":
		return nil, errors.New("is not a URL that begins with https:// or http://")
	case at.User != nil:
		return nil, errors.New("has user information; want none")
	case onAnyHost || r.at != nil && isSameHost(at, r.at) || isSameHost(at, r.top) || r.isNamed(at):
		return at, nil
	case r.at == nil:
		return nil, fmt.Errorf("is a sitemap, and %w", ErrOtherHost)
	}
	return nil, fmt.Errorf("%w; want a URL of %s, the host of the file", ErrOtherHost, r.at.Host)
}

var quoted = regexp.MustCompile(`"(\\.|[^"\\])*"`)

// withoutValue returns an error about a URL that does not quote it.
func withoutValue(problem *badvalue.Error) error {
	reason := quoted.ReplaceAllString(problem.Reason, `"…"`)
	if !strings.HasPrefix(problem.Want, "a URL ") {
		return fmt.Errorf("%s; want %s", reason, problem.Want)
	}
	return errors.New(reason)
}

// isNamed reports whether the host of a URL is one of Config.Hosts, on its default port.
func (r *Reader) isNamed(at *url.URL) bool {
	return slices.ContainsFunc(r.cfg.Hosts, func(host string) bool {
		return isSameHost(at, &url.URL{Scheme: "https", Host: host})
	})
}

// credentials returns the user and password of a URL that may be sent to another URL.
func credentials(from, to *url.URL) *url.Userinfo {
	if isSameHost(from, to) && (to.Scheme == from.Scheme || to.Scheme == "https") {
		return from.User
	}
	return nil
}

// isSameHost reports whether two URLs are on one host. http and https are the same.
func isSameHost(a, b *url.URL) bool { return cacheurl.CanonicalHost(a) == cacheurl.CanonicalHost(b) }

// withoutUser returns a URL without its user and password.
func withoutUser(at *url.URL) string {
	without := *at
	without.User = nil
	return without.String()
}
