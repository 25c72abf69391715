// Package changes finds out which pages of a site are new or have changed, by its sitemaps
// (https://www.sitemaps.org/protocol.html). What it finds can be given to packages indexnow and
// updatecache.
//
//	reader := changes.New(changes.Config{})
//	var state changes.State // kept as JSON between runs
//	err := reader.Update(ctx, &state, "https://www.example.com/sitemap.xml")
//	report, err := client.Submit(ctx, state.PendingURLs()...)
//	state.Done(accepted...)
//
// A page is new if the state does not have it, and has changed if its lastmod is later than before.
// So if a lastmod is only a date, a second change on that day is not found. If a site changes a
// lastmod but not the page, the page is announced again. A page that is gone is in no sitemap, so
// this package does not find it.
//
// At first, every page is new. To announce only what changes from then on, call
// state.Done(state.PendingURLs()...) after the first Update.
//
// A site cannot use up memory: besides the State, which has a limit, an Update takes at most 64 MB,
// whatever it reads. Errors say nothing of what a server answered but its status, media type and
// length, so that they can be shown to whoever chose the URL.
package changes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/internal/pageurl"
)

// A State says which pages are known, and which are to be announced. The zero State knows none.
// Store it as JSON. Config.MaxState limits its size.
type State struct {
	// Files are the sitemaps that have been read, by URL.
	Files map[string]File `json:"files,omitempty"`
	// Announced are the pages for which Done was called, with the lastmod that they had then. A
	// date with a time is in UTC.
	Announced map[string]string `json:"announced,omitempty"`
	// Pending are the pages that are new or have changed, until Done is called.
	Pending map[string]string `json:"pending,omitempty"`
}

// A File says what is known of a sitemap, so that it is not read again without need.
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

func set[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[key] = value
}

// cost returns about how many bytes of memory an entry of a State takes: its texts, and 100 for the
// headers of the strings and the part of a map that is not in use.
func cost(texts ...string) int64 {
	n := 100
	for _, text := range texts {
		n += len(text)
	}
	return int64(n)
}

func (f File) cost(name string) int64 { return cost(name, f.LastMod, f.ETag, f.LastModified) }

// cost returns about how many bytes of memory the state takes.
func (s *State) cost() (n int64) {
	for _, pages := range []map[string]string{s.Announced, s.Pending} {
		for u, modified := range pages {
			n += cost(u, modified)
		}
	}
	for name, f := range s.Files {
		n += f.cost(name)
	}
	return n
}

// Config configures a [Reader]. If a limit is zero, its default is used. What is beyond a limit is
// an error, and what was found before it stays in the State.
type Config struct {
	// HTTPClient fetches the files. A copy of it is used, which follows redirects on the same
	// host only, has a timeout of 1 minute if none is set, and, if its Transport is nil or a
	// *http.Transport, accepts at most 64 KiB of headers. If tenants choose the URLs, these can
	// lead to hosts of your own network: see the example of updatecache.Client.Verify.
	HTTPClient *http.Client
	// UserAgent is sent with each request. If empty, "ampcors-changes" is used.
	UserAgent string
	// MaxBytes limits a file, before and after decompression. If zero, 50 MiB is used, the limit
	// of the protocol. A file is not kept in memory.
	MaxBytes int64
	// MaxFiles limits the sitemaps of an index. If zero, 1,000 is used. The protocol allows 50,000.
	MaxFiles int
	// MaxState limits the State, in bytes of memory. A page takes about 100 bytes beyond its URL.
	// If zero, 256 MiB is used, which is enough for more than a million pages.
	MaxState int64
	// OtherHosts accepts pages and sitemaps of other hosts than that of the file. Without it,
	// they are errors, because a site could announce the pages of another one. A port that is not
	// the default makes another host.
	OtherHosts bool
	// ForCaches escapes the URLs of pages as browsers do, for package updatecache: AMP Caches
	// compare their bytes. Otherwise they are escaped as package indexnow does. Use another State
	// then.
	ForCaches bool
}

// A Reader reads sitemaps. It is safe for concurrent use by multiple goroutines, each with a State
// of its own.
type Reader struct {
	cfg  Config
	http *http.Client
}

// New returns a Reader.
func New(cfg Config) *Reader {
	cfg.UserAgent = cmp.Or(cfg.UserAgent, "ampcors-changes")
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = 50 << 20
	}
	if cfg.MaxFiles <= 0 {
		cfg.MaxFiles = 1000
	}
	if cfg.MaxState <= 0 {
		cfg.MaxState = 256 << 20
	}
	return &Reader{cfg: cfg, http: newHTTPClient(cfg.HTTPClient)}
}

// An Error says why a sitemap was not read, or not all of it.
type Error struct {
	File    string // its URL, without a password
	Skipped int    // entries that were skipped; 0 if the file could not be read to its end
	Err     error
}

func (e *Error) Error() string { return fmt.Sprintf("changes: %.300s: %v", e.File, e.Err) }

// Unwrap returns e.Err.
func (e *Error) Unwrap() error { return e.Err }

// Update reads a sitemap (XML or text) or a sitemap index with its sitemaps, and notes in the state
// what is new or has changed. Files may be compressed with gzip, must be UTF-8, and have at most
// 50,000 entries. A file is not read again if its server answers 304 (Not Modified), or if its
// lastmod in the index has a time and has not changed.
//
// The error joins an *[Error] for each file that cannot be read. Such a file is read again the next
// time, and the other files are not affected. Entries that are not URLs of the file's host are
// skipped; the Error names the place of the first ten in the file.
//
// A user and password in the URL of the file are sent with each request for a file of the same
// host, but not from https to http.
func (r *Reader) Update(ctx context.Context, s *State, file string) error {
	at, err := url.Parse(file)
	if err != nil {
		at = &url.URL{Opaque: "(not a URL)"} // the error could have a password
	}
	u := updater{Reader: r, state: s, seen: make(map[string]bool), left: r.cfg.MaxState - s.cost(), start: at}
	u.update(ctx, at, "", false)
	return errors.Join(u.errs...)
}

// An updater is one call of Update.
type updater struct {
	*Reader
	state *State
	start *url.URL        // of the first file, with its user and password
	seen  map[string]bool // files
	left  int64           // bytes that may be added to the state
	errs  []error
}

var errStateFull = errors.New("the State is as large as Config.MaxState allows")

// spend counts what is added to the state, in place of what it replaces.
func (u *updater) spend(added, replaced int64) error {
	if added-replaced > u.left {
		return errStateFull
	}
	u.left -= added - replaced
	return nil
}

// noteFile notes that a file was read.
func (u *updater) noteFile(name string, f File) error {
	replaced := int64(0)
	if old, isKnown := u.state.Files[name]; isKnown {
		replaced = old.cost(name)
	}
	if err := u.spend(f.cost(name), replaced); err != nil {
		return err
	}
	set(&u.state.Files, name, f)
	return nil
}

// notePage notes a page if it is new or has changed. Two files may have different dates for a page,
// so only a later one is a change.
func (u *updater) notePage(page, modified string) error {
	replaced := int64(0)
	known, isKnown := u.state.Announced[page]
	if pending, isPending := u.state.Pending[page]; isPending {
		known, isKnown, replaced = pending, true, cost(page, pending)
	}
	if isKnown && !isLater(modified, known) {
		return nil
	}
	if err := u.spend(cost(page, modified), replaced); err != nil {
		return err
	}
	set(&u.state.Pending, page, modified)
	return nil
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
	problem := &Error{File: file}
	fail := func(err error) {
		problem.Skipped, problem.Err = 0, err
		u.errs = append(u.errs, problem)
	}
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
	defer fetched.body.Close()
	fetched.state.LastMod = lastMod
	if fetched.notModified {
		if err := u.noteFile(file, fetched.state); err != nil {
			fail(err)
		}
		return
	}
	var children []entry
	err = u.parse(ctx, fetched, func(e entry) error {
		switch {
		case e.isSitemap && isInIndex:
			return errors.New("it is a sitemap index in a sitemap index, which the protocol does not allow")
		case e.isSitemap && len(children) == u.cfg.MaxFiles:
			return fmt.Errorf("it lists more than %d sitemaps, which is Config.MaxFiles", u.cfg.MaxFiles)
		case e.isSitemap:
			child, err := u.resolve(fetched.at, e.url)
			if err != nil {
				problem.skip(e, err)
				return nil
			}
			children = append(children, entry{url: child.String(), modified: e.modified})
			return nil
		}
		canonical, err := u.canonical(fetched.at, e.url)
		if err != nil {
			problem.skip(e, err)
			return nil
		}
		return u.notePage(canonical, e.modified)
	})
	if err != nil {
		fail(err)
		return
	}
	fetched.body.Close() // the others may take hours
	for _, c := range children {
		if err := ctx.Err(); err != nil {
			fail(err)
			return
		}
		child, _ := url.Parse(c.url) // resolve has parsed it
		child.User = credentials(u.start, child)
		u.update(ctx, child, c.modified, true)
	}
	if problem.Skipped > 0 {
		if more := problem.Skipped - maxListed; more > 0 {
			problem.Err = fmt.Errorf("%w\nand %d more", problem.Err, more)
		}
		u.errs = append(u.errs, problem)
		return // it is read again, so that the error is not forgotten
	}
	if len(children) == 0 { // an index is read each time: some of its sitemaps may have no lastmod
		if err := u.noteFile(file, fetched.state); err != nil {
			fail(err)
		}
	}
}

// maxListed bounds the entries of a file that are listed in an error.
const maxListed = 10

func (e *Error) skip(skipped entry, reason error) {
	if e.Skipped++; e.Skipped <= maxListed {
		e.Err = errors.Join(e.Err, fmt.Errorf("%s, of %d bytes, %w", skipped.path, len(skipped.url), reason))
	}
}

// canonical returns the URL of a page as it is announced.
func (r *Reader) canonical(file *url.URL, page string) (string, error) {
	if _, err := r.resolve(file, page); err != nil {
		return "", err
	}
	escaping := pageurl.AsRFC3986
	if r.cfg.ForCaches {
		escaping = pageurl.AsBrowsers
	}
	parsed, problem := pageurl.Parse(page, escaping)
	if problem != nil {
		return "", errors.New("is not a URL that packages indexnow and updatecache accept")
	}
	if parsed.Path == "" && !r.cfg.ForCaches {
		parsed.Path = "/"
	}
	if n := len(parsed.String()); n > pageurl.MaxBytes {
		return "", fmt.Errorf("has %d bytes, escaped; want at most %d", n, pageurl.MaxBytes)
	}
	return parsed.String(), nil
}

// resolve returns the URL of an entry. The protocol wants it to be absolute. Its errors do not have
// the entry, because a server of an internal network may have answered it.
func (r *Reader) resolve(file *url.URL, value string) (*url.URL, error) {
	at, err := url.Parse(value)
	switch {
	case err != nil || at.Scheme != "https" && at.Scheme != "http":
		return nil, errors.New("is not a URL that begins with https:// or http://")
	case at.User != nil:
		return nil, errors.New("has user information; want none")
	case !r.cfg.OtherHosts && !isSameHost(at, file):
		return nil, errors.New("is on another host than the file; want a URL of " + file.Host)
	}
	return at, nil
}

// credentials returns the user and password of a URL that may be sent to another URL.
func credentials(from, to *url.URL) *url.Userinfo {
	if isSameHost(from, to) && (to.Scheme == from.Scheme || to.Scheme == "https") {
		return from.User
	}
	return nil
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
