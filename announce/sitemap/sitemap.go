// Package sitemap finds out which pages of a site are new, have changed or are gone, by its sitemaps
// (https://www.sitemaps.org/protocol.html). What it finds can be given to packages indexnow and
// updatecache.
//
//	reader := sitemap.New(sitemap.Config{})
//	var state sitemap.State // kept as JSON between runs
//	err := reader.Update(ctx, &state, "https://www.example.com/sitemap.xml")
//	report, err := client.Submit(ctx, state.PendingURLs()...)
//	state.Done(accepted...) // and state.Reject for a page that the engine rejects
//
// A page is new if the state does not have it, and has changed if its lastmod is later (or differs, if one is no
// date). A missing lastmod is no change. So if a lastmod is only a date, a second change on that day is not found. If
// a site changes a lastmod but not the page, the page is announced again. With Config.FindGone, a page is gone if it
// was announced and the sitemaps no longer list it.
//
// At first, every page is new. To announce only what changes from then on, call
// state.Done(state.PendingURLs()...) after the first Update.
//
// A site cannot use up memory: besides the State, which has a limit, an Update without FindGone takes at most 64 MB
// with the default limits, whatever it reads. The texts of errors can be shown to whoever chose the URL: of what a
// server answered, they have only the status, the Retry-After, the media type, lengths and places, and the URLs of an
// index's sitemaps.
package sitemap

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ampcors/ampcors/badvalue"
)

// Config configures a [Reader]. If a limit is zero, its default is used. What is beyond a limit is
// an error, and what comes before it is used.
type Config struct {
	// HTTPClient fetches the files. A copy of it is used, which follows redirects only to the same
	// host and to Hosts, and has a timeout of 1 minute if none is set. If its Transport is nil or a
	// *http.Transport without MaxResponseHeaderBytes, it accepts at most 64 KiB of headers. If
	// tenants choose the URLs, these can lead to hosts of your own network: see the example of
	// updatecache.Client.Verify.
	HTTPClient *http.Client
	// Hosts are other hosts whose pages and sitemaps the files may list, and to which they may redirect, such as
	// "shop.example.com". Name only hosts of the same owner: whoever writes a file could otherwise have pages of
	// others announced.
	Hosts []string
	// Open opens a file that is not on the web: a name given to Update that does not begin with https://
	// or http://. Such a file has no host, so its pages may be on any host; sitemaps that it lists must be
	// on one of Hosts. If nil, such a name is an error. If Open can read any file of the machine, give
	// Update only names from the program's configuration, and never from users.
	Open func(name string) (io.ReadCloser, error)
	// MaxBytes limits a file, before and after decompression. If zero, 50 MiB is used, the limit
	// of the protocol. A file is not kept in memory.
	MaxBytes int64
	// MaxFiles is how many sitemaps are read because of one file given to Update, at most. The first ones
	// are read. If zero, 1,000 is used. The protocol allows 50,000, which can take 200 MB.
	MaxFiles int
	// MaxState limits the State, in bytes of memory. A page takes about 120 bytes beyond its URL.
	// If zero, 256 MiB is used, which is enough for more than a million pages.
	MaxState int64
	// ForCaches escapes the URLs of pages as browsers do, for package updatecache: AMP Caches compare
	// their bytes. If it is false, URLs are escaped as package indexnow does. Use one State for each of
	// the two.
	ForCaches bool
	// FindGone also finds announced pages that are no longer listed, so that engines and caches learn that they are
	// gone. Each file is then read at each Update, and the list of pages counts towards MaxState, too. No page is
	// taken to be gone, and the error says why, if a file of State.Given is not given any more, a file cannot be read
	// to its end, two files are the same after redirects, an entry is skipped, no page is listed, or too many are
	// gone. Pages that were found gone earlier stay in Gone, and wait.
	FindGone bool
	// MaxGone is the share of the announced pages that may be gone at one time. Gone pages count until Done is called
	// for them. The limit exists because a broken sitemap looks like one from which many pages are gone. Up to ten
	// pages may always be gone, if others are listed. Values from above 0 to 1 are valid; for any other, 0.1 is used.
	// When you have seen that more are gone, or leave out a file on purpose, use 1 once.
	MaxGone float64
}

// A Reader reads sitemaps. It is safe for concurrent use by multiple goroutines, each with a State
// of its own.
type Reader struct {
	cfg  Config
	http *http.Client
}

const defaultMaxBytes = 50 << 20

// New returns a Reader.
func New(cfg Config) *Reader {
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = defaultMaxBytes
	}
	if cfg.MaxFiles <= 0 {
		cfg.MaxFiles = 1000
	}
	if cfg.MaxState <= 0 {
		cfg.MaxState = 256 << 20
	}
	if !(cfg.MaxGone > 0 && cfg.MaxGone <= 1) { // so that NaN is not used, either
		cfg.MaxGone = 0.1
	}
	r := &Reader{cfg: cfg}
	r.http = r.newHTTPClient(cfg.HTTPClient)
	return r
}

// An Error is the reason why a sitemap was not read, or not all of it.
type Error struct {
	File    string // its URL, without a password
	Skipped int    // entries that were skipped; 0 if the file could not be read to its end
	Err     error

	// Entries are the URLs among the first ten skipped entries, at most 200 bytes each. They are not in the text of
	// the error: else a user who names a file could read what internal servers answer.
	Entries []string
}

func (e *Error) Error() string { return fmt.Sprintf("sitemap: %.300s: %v", e.File, e.Err) }

// Unwrap returns e.Err.
func (e *Error) Unwrap() error { return e.Err }

// Update reads sitemaps (XML, text, RSS 2.0 or Atom), sitemap indexes with their sitemaps, and robots.txt with the
// sitemaps that it names, and notes in the state what is new, has changed or is gone. Give it all files of a state
// at once. Files may be compressed with gzip, must be UTF-8, and have at most 50,000 entries. A file is not read
// again if its server answers 304 (Not Modified), or if its lastmod in the index has a time and has not changed.
//
// The error joins an *[Error] for each of the first 100 files that cannot be read. Such a file is read
// again the next time, and the other files are not affected. An entry is skipped if its
// host is not that of the file, nor that of the file given to Update, nor one of Config.Hosts. The Error names the
// first ten of them by their place, such as url[3].
//
// The user and password of a URL are sent to the same host only, and never to http if the URL is
// https.
func (r *Reader) Update(ctx context.Context, s *State, files ...string) error {
	s.HoldsGone = true
	u := updater{Reader: r, state: s, seen: make(map[string]bool), left: r.cfg.MaxState - s.cost()}
	if r.cfg.FindGone {
		u.listed, u.ends = make(map[string]bool), make(map[[sha256.Size]byte]string)
	}
	for _, name := range files {
		u.files = 0
		if at, isURL := parseFile(name); isURL || name == "" || r.cfg.Open == nil {
			u.updateAll(ctx, at, location{at: at})
		} else {
			u.updateAll(ctx, &url.URL{}, location{local: name})
		}
	}
	if more := u.failed - maxErrors; more > 0 {
		u.errs = append(u.errs, fmt.Errorf("sitemap: %d more files have errors", more))
	}
	names := make([]string, len(files)) // without passwords, which a State must not have
	for i, file := range files {
		names[i] = redacted(file)
	}
	if u.listed == nil { // a later Update that looks for gone pages needs all of them
		for _, name := range names {
			if !slices.Contains(s.Given, name) {
				s.Given = append(s.Given, name)
			}
		}
	} else {
		if err := u.noteGone(names); err != nil {
			u.errs = append(u.errs, err)
		}
	}
	return errors.Join(u.errs...)
}

// parseFile parses the URL of a file, and reports whether it is one.
func parseFile(name string) (at *url.URL, ok bool) {
	at, err := url.Parse(name)
	if err != nil {
		at = &url.URL{Opaque: "(not a URL)"} // the error could have a password
	}
	return at, isURL.MatchString(name)
}

// updateAll reads a file and what it leads to. The top is the file that was given to Update.
func (u *updater) updateAll(ctx context.Context, top *url.URL, l location) {
	for _, child := range u.update(ctx, top, l) {
		if err := ctx.Err(); err != nil {
			u.fail(&Error{File: l.name(), Err: err})
			break
		}
		child.at.User = credentials(top, child.at)
		u.updateAll(ctx, top, child)
	}
}

// ErrNoneGone is wrapped by an error that says why no page was taken to be gone.
var ErrNoneGone = errors.New("sitemap: no page is taken to be gone")

// ErrManyGone is wrapped beside ErrNoneGone if more pages are gone than Config.MaxGone allows.
var ErrManyGone = errors.New("that is more than the share that is allowed")

// ErrOtherFiles is wrapped beside ErrNoneGone if a file was read before and is not among the files now.
// A Config.MaxGone of 1 says that this was intended.
var ErrOtherFiles = errors.New("was read before and is not among the files now")

// noteGone notes the announced pages that are not listed.
func (u *updater) noteGone(names []string) error {
	var gone []string
	missingFile := slices.IndexFunc(u.state.Given, func(before string) bool { return !slices.Contains(names, before) })
	if missingFile < 0 || u.cfg.MaxGone == 1 {
		u.state.Given = names
	}
	for page := range u.state.Announced {
		if !u.listed[page] && !u.state.Gone[page] {
			gone = append(gone, page)
		}
	}
	known, missing := len(u.state.Announced), len(gone)+len(u.state.Gone)
	switch {
	case u.failed > 0:
		return fmt.Errorf("%w, because not everything could be read", ErrNoneGone)
	case missingFile >= 0 && u.cfg.MaxGone < 1:
		return fmt.Errorf("%w, because %.200s %w", ErrNoneGone, u.state.Given[missingFile], ErrOtherFiles)
	case len(u.listed) == 0 && known+len(u.state.Pending) > 0:
		return fmt.Errorf("%w, because no page is listed", ErrNoneGone)
	case len(gone) > 0 && missing > 10 && float64(missing) > u.cfg.MaxGone*float64(known):
		return fmt.Errorf("%w, because %d of %d are no longer listed, and %w, %g", ErrNoneGone, missing, known, ErrManyGone,
			u.cfg.MaxGone)
	}
	for page := range u.state.Pending {
		if !u.listed[page] { // nobody knows it, or it is gone
			delete(u.state.Pending, page)
		}
	}
	for page := range u.state.Rejected {
		if !u.listed[page] {
			delete(u.state.Rejected, page)
		}
	}
	for _, page := range gone {
		set(&u.state.Gone, page, true)
	}
	u.state.HoldsGone = false
	return nil
}

// redacted returns the name of a file without a password.
func redacted(name string) string {
	if at, ok := parseFile(name); ok {
		return withoutUser(at)
	}
	return name
}

// An updater is one call of Update.
type updater struct {
	*Reader
	state  *State
	seen   map[string]bool // files
	files  int             // that the one given to Update leads to
	left   int64           // bytes that may be added to the state
	errs   []error         // of the first maxErrors
	failed int             // how many errors there were

	// If gone pages are looked for, otherwise nil:
	listed map[string]bool // pages
	// the file that was read at each URL, after redirects; the URL is hashed, because it may be long
	ends map[[sha256.Size]byte]string
}

// maxErrors bounds the errors that are kept: an index may have 50,000 files.
const maxErrors = 100

func (u *updater) fail(err *Error) {
	if u.failed++; u.failed <= maxErrors {
		u.errs = append(u.errs, err)
	}
}

// A location is where a file is, and what names it.
type location struct {
	local     string // the name of a file that Config.Open opens; otherwise at is its URL
	at        *url.URL
	lastMod   string // in an index
	isListed  bool   // in another file
	isInIndex bool
}

// name returns the name of the file for a State and for errors.
func (l location) name() string {
	if l.local != "" {
		return l.local
	}
	return withoutUser(l.at)
}

// ErrStateFull is wrapped by an [Error] of a file that was not read to its end, or is not noted as
// read, because the State has reached its limit.
var ErrStateFull = errors.New("the State has reached its limit")

var errNested = errors.New("it is a sitemap index in a sitemap index, which the protocol does not allow")

// spend subtracts added-replaced from what may still be added to the state.
func (u *updater) spend(added, replaced int64) error {
	if added-replaced > u.left {
		return ErrStateFull
	}
	u.left -= added - replaced
	return nil
}

// noteFile notes that a file was read.
func (u *updater) noteFile(name string, f File) {
	replaced := int64(0)
	if old, isKnown := u.state.Files[name]; isKnown {
		replaced = old.cost(name)
	}
	if err := u.spend(f.cost(name), replaced); err != nil {
		u.fail(&Error{File: name, Err: err})
		return
	}
	set(&u.state.Files, name, f)
}

// notePage notes a page if it is new or has changed. Two files may have different dates for a page,
// so only a later one is a change.
func (u *updater) notePage(page, modified string) error {
	if u.listed != nil && !u.listed[page] {
		if err := u.spend(cost(page, ""), 0); err != nil {
			return err
		}
		u.listed[page] = true
	}
	delete(u.state.Gone, page) // it has come back
	replaced := int64(0)
	known, isKnown := u.state.Announced[page]
	if rejected, isRejected := u.state.Rejected[page]; isRejected {
		known, isKnown = rejected.LastMod, true
	}
	if pending, isPending := u.state.Pending[page]; isPending {
		known, isKnown, replaced = pending, true, cost(page, pending)
	}
	if isKnown && !isChange(modified, known) {
		return nil
	}
	modified = withText(known, modified)
	if err := u.spend(cost(page, modified), replaced); err != nil {
		return err
	}
	set(&u.state.Pending, page, modified)
	return nil
}

// update reads one file. It returns the sitemaps that an index or robots.txt names.
func (u *updater) update(ctx context.Context, top *url.URL, l location) []location {
	file, lastMod := l.name(), l.lastMod
	if u.seen[file] {
		return nil
	}
	u.seen[file] = true
	if l.local == "" && (l.at.Scheme != "https" && l.at.Scheme != "http" || l.at.Hostname() == "") {
		u.fail(&Error{File: file, Err: &badvalue.Error{Code: badvalue.Malformed, Path: "file", Value: file,
			Reason: "is not the URL of a file",
			Want:   `one such as "https://www.example.com/sitemap.xml"`}})
		return nil
	}
	known, isKnown := u.state.Files[file]
	if u.listed != nil {
		known, isKnown = File{}, false // all pages must be seen
	}
	if isKnown && lastMod == known.LastMod && hasTime(lastMod) { // with only a date, it may be the same after a change
		return nil
	}
	fetched, err := u.open(ctx, l, known)
	if err != nil {
		u.fail(&Error{File: file, Err: err})
		return nil
	}
	defer fetched.body.Close()
	if u.listed != nil && l.local == "" {
		end := sha256.Sum256([]byte(withoutUser(fetched.at)))
		if other, isRead := u.ends[end]; isRead { // the pages that were in one of them are not gone
			u.fail(&Error{File: file, Err: fmt.Errorf("it is the same file as %s, because one redirects to the other", other)})
			return nil
		}
		u.ends[end] = file
	}
	fetched.state.LastMod = lastMod
	if fetched.notModified {
		u.state.HasRead = true
		u.noteFile(file, fetched.state)
		return nil
	}
	entries := reading{updater: u, at: fetched.at, top: top, isInIndex: l.isInIndex,
		isRobots: !l.isListed && path.Base(filepath.ToSlash(file)) == "robots.txt", skipped: &Error{File: file}}
	err = parse(ctx, fetched.body, fetched.mediaType, u.cfg.MaxBytes, entries.isRobots, entries.add)
	if err != nil {
		u.fail(&Error{File: file, Err: err})
		return entries.children
	}
	u.state.HasRead = true
	if n := entries.beyond; n > 0 {
		u.fail(&Error{File: file, Skipped: n, Err: fmt.Errorf(
			"it lists %d sitemaps more than the %d that are allowed; these are not read", n, u.cfg.MaxFiles)})
	}
	if n := entries.skipped.Skipped; n > 0 {
		if n > maxListed {
			entries.skipped.Err = fmt.Errorf("%w\nand %d more", entries.skipped.Err, n-maxListed)
		}
		u.fail(entries.skipped) // and the file is read again, so that this is not forgotten
	}
	// An index is read each time: some of its sitemaps may have no lastmod. So is a file of this machine.
	if l.local == "" && len(entries.children)+entries.beyond+entries.skipped.Skipped == 0 {
		u.noteFile(file, fetched.state)
	}
	return entries.children
}

// A reading is what one file lists.
type reading struct {
	*updater
	at        *url.URL // of the file, after redirects; nil for a file of this machine
	top       *url.URL // of the file that was given to Update; empty for a file of this machine
	isInIndex bool
	isRobots  bool
	children  []location
	beyond    int // sitemaps beyond MaxFiles
	skipped   *Error
}

// add adds an entry of the file. An error ends the reading.
func (r *reading) add(e entry) error {
	switch {
	case !e.isSitemap:
		page, err := "", e.problem()
		if err == nil {
			page, err = r.canonical(e.url)
		}
		if err != nil {
			r.skipped.skip(e, err)
			return nil
		}
		return r.notePage(page, e.modified)
	case r.isInIndex:
		return errNested
	}
	at, err := r.resolveFile(e.url)
	switch {
	case err != nil:
		r.skipped.skip(e, err)
	case r.files == r.cfg.MaxFiles:
		r.beyond++
	default:
		r.children = append(r.children, location{at: at, lastMod: e.modified, isListed: true, isInIndex: !r.isRobots})
		r.files++
	}
	return nil
}

// maxListed bounds the entries of a file that are listed in an error.
const maxListed = 10

func (e *Error) skip(skipped entry, reason error) {
	if e.Skipped++; e.Skipped <= maxListed {
		if isURL.MatchString(skipped.url) || skipped.line == 0 { // any other line may be anything
			shown := badvalue.Masked(skipped.url)
			e.Entries = append(e.Entries, strings.ToValidUTF8(shown[:min(200, len(shown))], ""))
		}
		e.Err = errors.Join(e.Err, fmt.Errorf("%s (%d bytes) %w", skipped.place(), len(skipped.url), reason))
	}
}
