// Package changes finds out which pages of a site are new or have changed, by its sitemaps
// (https://www.sitemaps.org/protocol.html) and its feeds (RSS, Atom and JSON Feed). What it finds
// can be given to packages indexnow and updatecache.
//
//	reader := changes.New(changes.Config{})
//	var state changes.State // kept as JSON between runs
//	err := reader.Update(ctx, &state, "https://www.example.com/sitemap.xml")
//	report, err := client.Submit(ctx, state.PendingURLs()...)
//	state.Done(accepted...)
//
// A page is new if the state does not have it, and has changed if its lastmod (in a feed: updated,
// or else published) is later than before. So if a lastmod is only a date, a second change on that
// day is not found. If a site changes a lastmod but not the page, the page is announced again. A
// page that is gone is in no sitemap, so this package does not find it.
//
// At first, every page is new. To announce only what changes from then on, call
// state.Done(state.PendingURLs()...) after the first Update.
package changes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/internal/pageurl"
)

// A State says which pages are known, and which are to be announced. The zero State knows none.
// Store it as JSON. Its size is that of all URLs, about 100 bytes for each.
type State struct {
	// Files are the sitemaps and feeds that have been read, by URL.
	Files map[string]File `json:"files,omitempty"`
	// Announced are the pages for which Done was called, with the lastmod that they had then. A
	// date with a time is in UTC.
	Announced map[string]string `json:"announced,omitempty"`
	// Pending are the pages that are new or have changed, until Done is called.
	Pending map[string]string `json:"pending,omitempty"`
}

// A File says what is known of a sitemap or feed, so that it is not read again without need.
type File struct {
	LastMod      string `json:"lastmod,omitempty"` // in the sitemap index
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"lastModified,omitempty"` // header
}

// PendingURLs returns the pages to announce, sorted. They are escaped as package indexnow sends
// them, so the URLs of an indexnow.Batch can be given to Done.
func (s *State) PendingURLs() []string {
	urls := make([]string, 0, len(s.Pending))
	for u := range s.Pending {
		urls = append(urls, u)
	}
	slices.Sort(urls)
	return urls
}

// Done notes that pages were announced, as the last Update found them. So call no Update between
// PendingURLs and Done: it could find a change that was not announced. URLs that are not in Pending
// are ignored.
func (s *State) Done(urls ...string) {
	for _, u := range urls {
		if modified, ok := s.Pending[u]; ok {
			set(&s.Announced, u, modified)
			delete(s.Pending, u)
		}
	}
}

// IsNew reports whether nothing has been read yet.
func (s *State) IsNew() bool {
	return len(s.Files) == 0 && len(s.Announced) == 0 && len(s.Pending) == 0
}

// found notes a page of a sitemap or feed. Two files may have different dates for a page, so only a
// later one is a change.
func (s *State) found(p entry) {
	known, isKnown := s.Announced[p.url]
	if pending, isPending := s.Pending[p.url]; isPending {
		known, isKnown = pending, true
	}
	if !isKnown || isLater(p.modified, known) {
		set(&s.Pending, p.url, p.modified)
	}
}

func set[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[key] = value
}

// Config configures a [Reader].
type Config struct {
	// HTTPClient fetches the files. A copy of it is used, which follows redirects on the same
	// host only, and has a timeout of 1 minute if none is set. If tenants choose the URLs, these
	// can lead to hosts of your own network: see the example of updatecache.Client.Verify.
	HTTPClient *http.Client
	// UserAgent is sent with each request. If empty, "ampcors-changes" is used.
	UserAgent string
	// MaxBytes bounds a file, after decompression. If zero, 50 MiB is used, the limit of the
	// protocol. A file is read into memory.
	MaxBytes int64
	// OtherHosts accepts pages and sitemaps of other hosts than that of the file. Without it,
	// they are errors, because a site could announce the pages of another one. A port that is not
	// the default makes another host.
	OtherHosts bool
	// ForCaches escapes the URLs of pages as browsers do, for package updatecache: AMP Caches
	// compare their bytes. Otherwise they are escaped as package indexnow does. Use another State
	// then.
	ForCaches bool
}

// A Reader reads sitemaps and feeds. It is safe for concurrent use by multiple goroutines, each
// with a State of its own.
type Reader struct {
	cfg  Config
	http *http.Client
}

// New returns a Reader.
func New(cfg Config) *Reader {
	if cfg.UserAgent == "" {
		cfg.UserAgent = "ampcors-changes"
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = 50 << 20
	}
	client := http.Client{}
	if cfg.HTTPClient != nil {
		client = *cfg.HTTPClient
	}
	if client.Timeout == 0 {
		client.Timeout = time.Minute
	}
	client.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if len(via) >= 10 {
			return errors.New("it redirects ten times")
		}
		if !isSameHost(r.URL, via[0].URL) {
			return fmt.Errorf("it redirects to the host %.100q; use the URL there", r.URL.Host)
		}
		return nil
	}
	return &Reader{cfg: cfg, http: &client}
}

// An Error says why a sitemap or feed was not read, or not all of it.
type Error struct {
	File    string // its URL, without a password
	Skipped int    // entries that were skipped; 0 if the file could not be read
	Err     error
}

func (e *Error) Error() string { return fmt.Sprintf("changes: %s: %v", e.File, e.Err) }

// Unwrap returns e.Err.
func (e *Error) Unwrap() error { return e.Err }

// Update reads a sitemap (XML or text), a sitemap index with its sitemaps, or a feed, and notes in
// the state what is new or has changed. Files may be compressed with gzip, and have at most 50,000
// entries. A file is not read again if its server answers 304 (Not Modified), or if its lastmod in
// the index has a time and has not changed.
//
// The error joins an *[Error] for each file that cannot be read. Such a file is read again the next
// time, and the other files are not affected. Entries that are not URLs of the file's host are
// skipped; for the first ten of a file, the Error wraps an *[ampcors.ValueError].
func (r *Reader) Update(ctx context.Context, s *State, file string) error {
	u := updater{r, s, make(map[string]bool), nil}
	at, err := url.Parse(file)
	if err != nil {
		at = &url.URL{Opaque: "(not a URL)"} // the error could have a password
	}
	u.update(ctx, at, "", false)
	return errors.Join(u.errs...)
}

// An updater is one call of Update.
type updater struct {
	*Reader
	state *State
	seen  map[string]bool // files
	errs  []error
}

// update reads one file, which has a lastmod if it is in an index.
func (u *updater) update(ctx context.Context, at *url.URL, lastMod string, isInIndex bool) {
	withoutUser := *at
	withoutUser.User = nil
	file := withoutUser.String()
	if u.seen[file] {
		return
	}
	u.seen[file] = true
	fail := func(err error) { u.errs = append(u.errs, &Error{File: file, Err: err}) }
	if at.Scheme != "https" && at.Scheme != "http" || at.Hostname() == "" {
		fail(&ampcors.ValueError{Package: "changes", Path: "file", Value: file, Reason: "is not the URL of a file", Want: `one such as "https://www.example.com/sitemap.xml"`})
		return
	}
	known, isKnown := u.state.Files[file]
	if isKnown && lastMod == known.LastMod && hasTime(lastMod) { // with only a date, it may be the same after a change
		return
	}
	fetched, err := u.fetch(ctx, at, known)
	if err != nil {
		fail(err)
		return
	}
	fetched.state.LastMod = lastMod
	if fetched.notModified {
		set(&u.state.Files, file, fetched.state)
		return
	}
	c, err := parse(ctx, fetched.data)
	switch {
	case err != nil:
		fail(err)
		return
	case len(c.sitemaps) > 0 && isInIndex:
		fail(errors.New("it is a sitemap index in a sitemap index, which the protocol does not allow"))
		return
	}
	base := *fetched.at // after redirects
	base.User = at.User
	skipped := &Error{File: file}
	for i, e := range c.pages {
		if canonical, problem := u.canonical(&base, e.url, fmt.Sprintf("url[%d]", i)); problem != nil {
			skipped.skip(problem)
		} else {
			u.state.found(entry{canonical, e.modified})
		}
	}
	for i, e := range c.sitemaps {
		if err := ctx.Err(); err != nil {
			fail(err)
			return
		}
		if child, problem := u.resolve(&base, e.url, fmt.Sprintf("sitemap[%d]", i)); problem != nil {
			skipped.skip(problem)
		} else {
			u.update(ctx, child, e.modified, true)
		}
	}
	if skipped.Skipped > 0 {
		if more := skipped.Skipped - maxListed; more > 0 {
			skipped.Err = fmt.Errorf("%w\nand %d more", skipped.Err, more)
		}
		u.errs = append(u.errs, skipped)
		return // it is read again, so that the error is not forgotten
	}
	if len(c.sitemaps) == 0 { // an index is read each time: some of its sitemaps may have no lastmod
		set(&u.state.Files, file, fetched.state)
	}
}

// maxListed bounds the entries of a file that are listed in an error.
const maxListed = 10

func (e *Error) skip(problem error) {
	if e.Skipped++; e.Skipped <= maxListed {
		e.Err = errors.Join(e.Err, problem)
	}
}

// canonical returns the URL of a page as it is announced.
func (r *Reader) canonical(file *url.URL, entry, path string) (string, *ampcors.ValueError) {
	at, problem := r.resolve(file, entry, path)
	if problem != nil {
		return "", problem
	}
	absolute := entry // net/url would escape some of it again
	if parsed, _ := url.Parse(entry); !parsed.IsAbs() {
		at.User = nil // that of the file
		absolute = at.String()
	}
	escaping := pageurl.AsRFC3986
	if r.cfg.ForCaches {
		escaping = pageurl.AsBrowsers
	}
	parsed, problem := pageurl.Parse(absolute, escaping)
	if problem == nil {
		if parsed.Path == "" && !r.cfg.ForCaches {
			parsed.Path = "/"
		}
		if n := len(parsed.String()); n > pageurl.MaxBytes {
			problem = pageurl.Problem(entry, fmt.Sprintf("has %d bytes, escaped", n), fmt.Sprintf("at most %d", pageurl.MaxBytes))
		}
	}
	if problem != nil {
		problem.Package, problem.Path = "changes", path
		return "", problem
	}
	return parsed.String(), nil
}

// resolve returns the URL of an entry, which in feeds may be relative.
func (r *Reader) resolve(file *url.URL, entry, path string) (*url.URL, *ampcors.ValueError) {
	reject := func(reason string) (*url.URL, *ampcors.ValueError) {
		return nil, &ampcors.ValueError{Package: "changes", Path: path, Value: entry, Reason: reason, Want: "a URL of " + file.Host}
	}
	at, err := url.Parse(entry)
	switch {
	case err != nil || entry == "":
		return reject("is not a URL")
	case at.User != nil:
		return reject("has user information")
	}
	at = file.ResolveReference(at)
	switch isSame := isSameHost(at, file); {
	case isSame:
		at.User = file.User
	case !r.cfg.OtherHosts:
		return reject("is on another host than the file")
	}
	return at, nil
}

// isSameHost reports whether two URLs are on one host. http and https are the same.
func isSameHost(a, b *url.URL) bool {
	return canonicalHost(a) == canonicalHost(b)
}

// canonicalHost returns the host of a URL, with the port if it is not the default.
func canonicalHost(u *url.URL) string {
	host := strings.ToLower(u.Hostname())
	if domain, problem := pageurl.Domain(host); problem == nil {
		host = domain
	}
	switch port := u.Port(); {
	case port == "", port == "443" && u.Scheme == "https", port == "80" && u.Scheme == "http":
		return host
	default:
		return host + ":" + port
	}
}
