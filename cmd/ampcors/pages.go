package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/spf13/cobra"

	"github.com/ampcors/ampcors/announce/sitemap"
	"github.com/ampcors/ampcors/badvalue"
)

// givenPages are the pages for flush and submit: the arguments and the pages of sitemaps, or
// lines of standard input if there are neither. With a state, it has only those pages of
// the sitemaps that are new or have changed.
type givenPages struct {
	sitemaps []string
	hosts    []string // that the sitemaps may list beside their own
	file     string
	all      bool
	maxState int64 // MiB
	gone     bool
	maxGone  float64
	isDryRun bool         // the state is not saved
	client   *http.Client // fetches the sitemaps; httpClient if it is nil
	// whether a page that was not covered by a key file is now; nil if there are no key files
	isValid func(page string) bool

	lock   *flock.Flock
	state  savedState
	saved  time.Time
	failed int // the exit code for sitemaps that could not be read, or not all of them; 0 if there is none
}

// A savedState is what the file of --state has.
type savedState struct {
	Command string `json:"command"` // flush or submit: a page that one has announced is new for the other
	// OnlyRecorded is true after a first run without --all: its pages are in Announced, but were not announced.
	OnlyRecorded bool `json:"onlyRecorded,omitempty"`
	sitemap.State
}

// announceRecorded makes the pages pending that were only recorded, and with them those that were announced since.
func (s *savedState) announceRecorded() {
	if s.OnlyRecorded {
		all := maps.Collect(maps.All(s.Announced))
		maps.Copy(all, s.Pending)
		s.Pending, s.OnlyRecorded = all, false
	}
}

func addPages(cmd *cobra.Command) *givenPages {
	s := &givenPages{}
	cmd.Flags().StringArrayVar(&s.sitemaps, "sitemap", nil,
		"file or URL of a sitemap, an RSS or Atom feed, a sitemap index or robots.txt; may be repeated")
	cmd.Flags().StringSliceVar(&s.hosts, "allow-host", nil,
		"another host of the same owner, whose pages and sitemaps may be listed, and to which sitemaps may redirect; "+
			"a sitemap that is a local file may list pages of any host anyway")
	cmd.Flags().StringVar(&s.file, "state", "", "file that remembers the pages of --sitemap, so that only new and "+
		"changed ones are announced; each command needs its own")
	cmd.Flags().BoolVar(&s.all, "all", false, "announce all pages, if the file of --state is new, or if a first run has "+
		"recorded the pages without announcing them; without --all, a first run only records them")
	cmd.Flags().BoolVar(&s.gone, "gone", false, "with --state, also announce pages that the sitemaps no longer list, "+
		"unless a sitemap cannot be read or too many are gone. Each run needs all sitemaps of the state")
	cmd.Flags().Float64Var(&s.maxGone, "max-gone", 0.1,
		"with --gone, the share of all announced pages that may be gone at one time, above 0 and at most 1; up to ten "+
			"pages may always be gone")
	cmd.Flags().Int64Var(&s.maxState, "max-state", 256,
		"limit of the pages that --sitemap finds and --state remembers, in MiB of memory; a page takes about 200 bytes")
	return s
}

const pagesHelp = "\n\nWith --sitemap and --state, run it regularly: the first run records the pages, and later runs " +
	"announce those that are new or have a later lastmod, and with --gone those that are gone. Pages that fail are " +
	"tried again by the next run."

// rejectedHelp is for search engines; AMP Caches reject no page.
const rejectedHelp = " If a search engine rejects a page and accepts another one of the same host in that run, the " +
	"page is reported once, listed in the file of --state (member rejected), and tried again when its lastmod is later."

// pages returns the pages to announce.
func (s *givenPages) pages(cmd *cobra.Command, args []string) ([]string, error) {
	if len(s.sitemaps) == 0 {
		return inputs(cmd, args)
	}
	if !(s.maxGone > 0 && s.maxGone <= 1) {
		return nil, fmt.Errorf("--max-gone %g is not a share; want one above 0 and at most 1, such as 0.1", s.maxGone)
	}
	if err := exist(s.sitemaps...); err != nil {
		return nil, err
	}
	if s.file != "" {
		if err := s.load(cmd.Name()); err != nil {
			return nil, err
		}
	}
	if s.maxState < 1 || s.maxState > 1<<20 {
		return nil, fmt.Errorf("--max-state %d is out of range; want 1 to 1048576 MiB", s.maxState)
	}
	if s.all {
		s.state.announceRecorded()
	}
	isFirst := s.file != "" && s.state.IsNew() && !s.all
	reader := sitemap.New(sitemap.Config{HTTPClient: cmp.Or(s.client, httpClient), Hosts: s.hosts,
		Open:     opener(cmd.Context()),
		MaxFiles: 50_000, MaxState: s.maxState << 20,
		FindGone: s.gone, MaxGone: s.maxGone, ForCaches: cmd.Name() == "flush"})
	if err := whereTo(reader.Update(cmd.Context(), &s.state.State, s.sitemaps...)); cmd.Context().Err() != nil {
		return nil, errInterrupted
	} else if err != nil {
		complain(cmd.ErrOrStderr(), err.Error())
		for _, problem := range problemsOf(err) {
			for _, entry := range problem.Entries {
				fmt.Fprintf(cmd.ErrOrStderr(), "skipped: %s\n", entry)
			}
		}
		for _, hint := range []struct {
			problem error
			text    string
		}{
			{sitemap.ErrStateFull, "use a larger --max-state"},
			{sitemap.ErrManyGone, "if they are gone, use --max-gone 1 once"},
			{sitemap.ErrOtherFiles, "if you left the file out on purpose, use --max-gone 1 once"},
			{sitemap.ErrOtherHost, "if another host is meant, name it with --allow-host"},
		} {
			if errors.Is(err, hint.problem) {
				fmt.Fprintln(cmd.ErrOrStderr(), "ampcors:", hint.text)
			}
		}
		s.failed = failureOf(err)
		switch {
		case isFirst && !s.state.HasRead:
			return nil, exitError{s.failed, errors.New("nothing is recorded, because no sitemap could be read")}
		case isFirst && mayBeRead(err): // its pages would seem new to the next run
			return nil, exitError{s.failed, errors.New("nothing is recorded, because a later run may read a sitemap that " +
				"could not be read now")}
		}
	}
	urls := s.state.PendingURLs()
	gone := len(urls) - len(s.state.Pending)
	if waiting := len(s.state.Gone) - gone; waiting > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "ampcors: pages that an earlier run found gone, and that wait for a run with --gone "+
			"that reads everything: %d\n", waiting)
	}
	switch {
	case isFirst && s.isDryRun:
		fmt.Fprintf(cmd.ErrOrStderr(), "ampcors: %s is new: %s would be recorded, and none announced (--all announces "+
			"them)\n",
			s.file, count(len(s.state.Pending), "page", "pages"))
		return args, nil
	case isFirst:
		fmt.Fprintf(cmd.ErrOrStderr(), "ampcors: %s is new: %s recorded, and none is announced (--all announces them)\n",
			s.file, count(len(s.state.Pending), "page is", "pages are"))
		s.state.Done(urls...)
		s.state.OnlyRecorded = true
		urls = nil
	case s.file == "" && len(urls) == 0 && s.failed == 0:
		return nil, exitError{exitFindings, errors.New("the sitemaps list no page")}
	case s.file != "" && len(urls) == 0 && s.failed == 0:
		fmt.Fprintln(cmd.ErrOrStderr(), "ampcors: no page is new or has changed")
	case gone > 0:
		fmt.Fprintf(cmd.ErrOrStderr(), "ampcors: pages that the sitemaps no longer list: %d\n", gone)
	}
	if s.file != "" && s.isDryRun {
		for _, u := range urls {
			fmt.Fprintln(cmd.ErrOrStderr(), s.mark(u), u)
		}
	}
	return append(args, urls...), s.save() // before anything is sent
}

// mark returns what is to be announced of a page: "+" that it is new, "~" that it has changed, "-" that it is gone.
func (s *givenPages) mark(page string) string {
	_, isPending := s.state.Pending[page]
	_, isKnown := s.state.Announced[page]
	_, isRejected := s.state.Rejected[page]
	switch {
	case !isPending:
		return "-"
	case isKnown || isRejected:
		return "~"
	}
	return "+"
}

// whereTo adds to errors of an Update to which other host a file redirects.
func whereTo(err error) error {
	for _, problem := range problemsOf(err) {
		if redirect := (*sitemap.RedirectError)(nil); errors.As(problem.Err, &redirect) {
			problem.Err = fmt.Errorf("%w; give the URL to which it redirects, or allow its host with --allow-host: %.300s",
				redirect, redirect.To)
		}
	}
	return err
}

// problemsOf returns the errors about files that an Update has joined.
func problemsOf(err error) (problems []*sitemap.Error) {
	for err := range unjoined(err) {
		if problem := (*sitemap.Error)(nil); errors.As(err, &problem) {
			problems = append(problems, problem)
		}
	}
	return problems
}

// failureOf returns the exit code for the errors of an Update: exitLater if all may pass. That no page is taken to
// be gone then only follows from the others.
func failureOf(err error) int {
	problems := slices.DeleteFunc(slices.Collect(unjoined(err)), func(err error) bool {
		return errors.Is(err, sitemap.ErrNoneGone) && !errors.Is(err, sitemap.ErrManyGone) &&
			!errors.Is(err, sitemap.ErrOtherFiles)
	})
	if len(problems) == 0 {
		return exitFindings
	}
	return codeOf(problems)
}

// mayBeRead reports whether a later run may read a file that an Update could not read.
func mayBeRead(err error) bool {
	return slices.ContainsFunc(problemsOf(err), func(problem *sitemap.Error) bool {
		return problem.Skipped == 0 &&
			mayPass(problem)
	})
}

func isURL(name string) bool {
	scheme, _, ok := strings.Cut(name, "://")
	return ok && (strings.EqualFold(scheme, "https") || strings.EqualFold(scheme, "http"))
}

// exist returns an error if a sitemap is a file of this machine that does not exist.
func exist(sitemaps ...string) error {
	for _, name := range sitemaps {
		if isURL(name) {
			continue
		}
		if _, err := os.Stat(name); err != nil {
			if host, _, hasPath := strings.Cut(filepath.ToSlash(name), "/"); hasPath &&
				strings.Contains(strings.Trim(host, "."), ".") {
				return fmt.Errorf("%w; a sitemap on the web begins with a scheme: https://%s", err, name)
			}
			return err
		}
	}
	return nil
}

// opener returns a function that opens a file of this machine. It reads the whole file, which may be a pipe, until
// ctx is done.
func opener(ctx context.Context) func(name string) (io.ReadCloser, error) {
	return func(name string) (io.ReadCloser, error) {
		data, err := interruptible(ctx, func() ([]byte, error) {
			f, err := os.Open(name)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			return io.ReadAll(io.LimitReader(f, 50<<20+1)) // a sitemap has at most 50 MiB, which package sitemap checks
		})
		return io.NopCloser(bytes.NewReader(data)), err
	}
}

// load locks and reads the file of the state.
func (s *givenPages) load(command string) error {
	if !s.isDryRun {
		s.lock = flock.New(s.file + ".lock")
		switch isLocked, err := s.lock.TryLock(); {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("the folder of --state %s does not exist; make it first", s.file)
		case err != nil:
			return fmt.Errorf("the state cannot be locked: %w", err)
		case !isLocked:
			return exitError{exitLater, fmt.Errorf("another ampcors uses the state %s", s.file)}
		}
	}
	data, err := os.ReadFile(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		s.state.Command = command
		return nil
	}
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.DisallowUnknownFields() // it may be another file, which would be overwritten
		if decoder.Decode(&s.state) != nil {
			err = errors.New("it is not a file that --state has written; want another name")
		}
	}
	if err != nil {
		return fmt.Errorf("the state cannot be read: %s: %w", s.file, err)
	}
	if s.state.Pending == nil {
		s.state.Pending = make(map[string]string)
	}
	for page, rejected := range s.state.Rejected {
		if s.isValid != nil && rejected.Code == string(badvalue.NotCovered) && s.isValid(page) {
			s.state.Pending[page] = rejected.LastMod
			delete(s.state.Rejected, page)
		}
	}
	if s.state.Command != command {
		return fmt.Errorf("the state %s was written by another command than ampcors %s; use another file", s.file, command)
	}
	return nil
}

// saveEach is how often the state is saved while pages are announced. Tests change it.
var saveEach = 5 * time.Second

// done notes that pages were announced.
func (s *givenPages) done(pages ...string) error {
	s.state.Done(pages...)
	if time.Since(s.saved) < saveEach {
		return nil
	}
	return s.save()
}

// finish saves the state, and returns the error of the command.
func (s *givenPages) finish(err error) error {
	if problem := s.save(); problem != nil {
		return exitError{exitFindings, problem}
	}
	if s.failed != 0 && (err == nil || errors.Is(err, exitError{code: exitLater})) {
		err = exitError{code: s.failed}
	}
	return err
}

// unlock unlocks the file of the state, as the end of the program does.
func (s *givenPages) unlock() {
	if s.lock != nil {
		_ = s.lock.Unlock()
	}
}

// save replaces the file atomically, so that it is never incomplete.
func (s *givenPages) save() error {
	if s.file == "" || s.isDryRun {
		return nil
	}
	data, err := json.Marshal(s.state)
	if err != nil {
		return err
	}
	name := s.file + ".ampcors-new" // one name, because a file that a killed process left must not stay
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the state cannot be saved: %w", err)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // O_EXCL follows no link
	if err != nil {
		return fmt.Errorf("the state cannot be saved: %w", err)
	}
	defer os.Remove(name) // fails if it was renamed
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(name, s.file)
	}
	if err != nil {
		return fmt.Errorf("the state cannot be saved: %w", err)
	}
	s.saved = time.Now()
	return nil
}
