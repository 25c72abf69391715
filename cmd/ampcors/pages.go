package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ampcors/ampcors/changes"
	"github.com/spf13/cobra"
)

// A pageSource has the pages for flush and submit: the arguments and the pages of sitemaps and
// feeds, or lines of standard input if there are neither. With a state, it has only those pages of
// the sitemaps that are new or have changed.
type pageSource struct {
	sitemaps []string
	file     string
	all      bool

	state  changes.State
	failed bool // a sitemap could not be read
}

func addPages(cmd *cobra.Command) *pageSource {
	s := &pageSource{}
	cmd.Flags().StringArrayVar(&s.sitemaps, "sitemap", nil, "file or URL of a sitemap or feed, or URL of a sitemap index; may be repeated")
	cmd.Flags().StringVar(&s.file, "state", "", "file that remembers the pages of --sitemap, so that only new and changed ones are announced")
	cmd.Flags().BoolVar(&s.all, "all", false, "if the file of --state is new, announce all pages; without --all, they are only recorded")
	return s
}

const pagesHelp = "\n\nWith --sitemap and --state, run it regularly: the first run records the pages, and later runs announce those that are new or have changed since. Pages that fail are tried again by the next run."

// pages returns the pages to announce.
func (s *pageSource) pages(cmd *cobra.Command, args []string, isDryRun bool) ([]string, error) {
	if len(s.sitemaps) == 0 {
		if s.file != "" {
			return nil, errors.New("--state needs --sitemap")
		}
		return inputs(cmd.InOrStdin(), args)
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	isNew := s.state.IsNew()
	reader := changes.New(changes.Config{HTTPClient: httpClient})
	for _, name := range s.sitemaps {
		if strings.HasPrefix(name, "https://") || strings.HasPrefix(name, "http://") {
			if err := reader.Update(cmd.Context(), &s.state, name); err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "ampcors:", err)
				s.failed = true
			}
			continue
		}
		if s.file != "" {
			return nil, fmt.Errorf("--state needs the URL of a sitemap, and not the file %s", name)
		}
		urls, err := readPages(name)
		if err != nil {
			return nil, err
		}
		args = append(args, urls...)
	}
	switch {
	case isNew && s.file != "" && !s.all && s.failed:
		return nil, exitError{exitFindings, errors.New("nothing is recorded, because not every sitemap could be read")}
	case isNew && s.file != "" && !s.all:
		recorded := "are recorded"
		if isDryRun {
			recorded = "would be recorded"
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "ampcors: %s is new: %d pages %s, and none is announced (--all announces them)\n", s.file, len(s.state.Pending), recorded)
		s.state.Done(s.state.PendingURLs()...)
	case len(s.state.Pending) == 0 && s.file != "":
		fmt.Fprintln(cmd.ErrOrStderr(), "ampcors: no page is new or has changed")
	}
	return append(args, s.state.PendingURLs()...), nil
}

func readPages(name string) ([]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	urls, err := changes.Pages(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return urls, nil
}

func (s *pageSource) load() error {
	if s.file == "" {
		return nil
	}
	data, err := os.ReadFile(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, &s.state)
	}
	if err != nil {
		return fmt.Errorf("the state cannot be read: %s: %w", s.file, err)
	}
	return nil
}

// finish saves the state, and returns the error of the command.
func (s *pageSource) finish(err error) error {
	if err == nil && s.failed {
		err = exitError{code: exitFindings}
	}
	if s.file == "" {
		return err
	}
	return errors.Join(err, s.save())
}

// save replaces the file atomically, so that it is never incomplete.
func (s *pageSource) save() error {
	data, err := json.Marshal(s.state)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(s.file), filepath.Base(s.file)+".*")
	if err != nil {
		return fmt.Errorf("the state cannot be saved: %w", err)
	}
	defer os.Remove(f.Name()) // fails if it was renamed
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), s.file)
	}
	if err != nil {
		return fmt.Errorf("the state cannot be saved: %w", err)
	}
	return nil
}
