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
// or else published) differs from before. So if a lastmod is only a date, a second change on that
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

// Done notes that pages were announced. URLs that are not in Pending are ignored.
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

// found notes a page of a sitemap or feed.
func (s *State) found(p entry) {
	known, isKnown := s.Announced[p.url]
	if pending, isPending := s.Pending[p.url]; isPending {
		known, isKnown = pending, true
	}
	if !isKnown || p.modified != "" && p.modified != known {
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
	// they are errors, because a site could announce the pages of another one.
	OtherHosts bool
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
		if from := via[0].URL; !strings.EqualFold(r.URL.Hostname(), from.Hostname()) {
			return fmt.Errorf("it redirects to the host %.100q; use the URL there", r.URL.Host)
		}
		return nil
	}
	return &Reader{cfg: cfg, http: &client}
}

// An Error says why a sitemap or feed was not read, or not all of it.
type Error struct {
	File string // its URL
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("changes: %s: %v", e.File, e.Err) }

// Unwrap returns e.Err.
func (e *Error) Unwrap() error { return e.Err }

// Update reads a sitemap (XML or text), a sitemap index with its sitemaps, or a feed, and notes in
// the state what is new or has changed. Files may be compressed with gzip. A file is not read again
// if its server answers 304 (Not Modified), or if its lastmod in the index has a time and has not
// changed.
//
// The error joins an *[Error] for each file that cannot be read. Such a file is read again the next
// time, and the other files are not affected. Pages that are not URLs of the file's host are
// skipped; for the first ten of a file, the Error wraps an *[ampcors.ValueError].
func (r *Reader) Update(ctx context.Context, s *State, file string) error {
	return errors.Join(r.update(ctx, s, file, "", false)...)
}

// update reads one file, which has a lastmod if it is in an index.
func (r *Reader) update(ctx context.Context, s *State, file, lastMod string, isInIndex bool) []error {
	known, isKnown := s.Files[file]
	if isKnown && lastMod == known.LastMod && strings.Contains(lastMod, "T") { // with only a date, it may be the same after a change
		return nil
	}
	fail := func(err error) []error { return []error{&Error{File: file, Err: err}} }
	at, err := url.Parse(file)
	if err != nil || at.Scheme != "https" && at.Scheme != "http" || at.Hostname() == "" {
		return fail(&ampcors.ValueError{Package: "changes", Path: "file", Value: file, Reason: "is not the URL of a file", Want: `one such as "https://www.example.com/sitemap.xml"`})
	}
	fetched, err := r.fetch(ctx, file, known)
	if err != nil {
		return fail(err)
	}
	fetched.state.LastMod = lastMod
	if fetched.notModified {
		set(&s.Files, file, fetched.state)
		return nil
	}
	c, err := parse(fetched.data)
	if err != nil {
		return fail(err)
	}
	if len(c.sitemaps) > 0 && isInIndex {
		return fail(errors.New("it is a sitemap index in a sitemap index, which the protocol does not allow"))
	}
	var errs, skipped []error
	for i, e := range c.pages {
		canonical, problem := r.canonical(at, e.url, fmt.Sprintf("url[%d]", i))
		if problem != nil {
			skipped = append(skipped, problem)
			continue
		}
		s.found(entry{canonical, e.modified})
	}
	for i, e := range c.sitemaps {
		if err := ctx.Err(); err != nil {
			return append(errs, fail(err)...)
		}
		child, problem := r.resolve(at, e.url, fmt.Sprintf("sitemap[%d]", i))
		if problem != nil {
			skipped = append(skipped, problem)
			continue
		}
		errs = append(errs, r.update(ctx, s, child.String(), e.modified, true)...)
	}
	const most = 10
	if n := len(skipped); n > 0 {
		skipped = skipped[:min(n, most)]
		if n > most {
			skipped = append(skipped, fmt.Errorf("and %d more", n-most))
		}
		errs = append(errs, fail(errors.Join(skipped...))...)
	}
	if len(c.sitemaps) == 0 { // an index is read each time: some of its sitemaps may have no lastmod
		set(&s.Files, file, fetched.state)
	}
	return errs
}

// canonical returns the URL of a page as package indexnow sends it.
func (r *Reader) canonical(file *url.URL, entry, path string) (string, *ampcors.ValueError) {
	at, problem := r.resolve(file, entry, path)
	if problem != nil {
		return "", problem
	}
	absolute := strings.TrimSpace(entry) // net/url would escape some of it again
	if parsed, _ := url.Parse(absolute); !parsed.IsAbs() {
		absolute = at.String()
	}
	parsed, problem := pageurl.Parse(absolute, pageurl.AsRFC3986)
	if problem != nil {
		problem.Package, problem.Path = "changes", path
		return "", problem
	}
	if parsed.Path == "" {
		parsed.Path = "/"
	}
	return parsed.String(), nil
}

// resolve returns the URL of an entry, which in feeds may be relative.
func (r *Reader) resolve(file *url.URL, entry, path string) (*url.URL, *ampcors.ValueError) {
	reject := func(reason string) (*url.URL, *ampcors.ValueError) {
		return nil, &ampcors.ValueError{Package: "changes", Path: path, Value: entry, Reason: reason, Want: "a URL of " + file.Host}
	}
	at, err := url.Parse(strings.TrimSpace(entry))
	if err != nil || entry == "" {
		return reject("is not a URL")
	}
	at = file.ResolveReference(at)
	if !r.cfg.OtherHosts && !strings.EqualFold(at.Hostname(), file.Hostname()) {
		return reject("is on another host than the file")
	}
	return at, nil
}
