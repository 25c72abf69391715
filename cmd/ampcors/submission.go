package main

import (
	"cmp"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"github.com/ampcors/ampcors/announce/indexnow"
)

// A submission shows what submit sends, and saves what is accepted, while it runs.
type submission struct {
	cmd         *cobra.Command
	output      format
	given       *givenPages
	show        func(line string)
	clear       func()
	mu          sync.Mutex
	hosts       map[string]*submittedHost
	urls, taken int   // how many URLs there are, and how many are accepted
	problem     error // the state could not be saved
	log         *runLog
}

// A submittedHost counts the URLs of a host.
type submittedHost struct{ urls, accepted, pending int }

// text returns how many are accepted.
func (h *submittedHost) text(host string) string {
	text := host + ": " + count(h.accepted, "URL accepted", "URLs accepted")
	switch {
	case h.pending == h.accepted:
		text += "; the engine still checks the key"
	case h.pending > 0:
		text += fmt.Sprintf("; the engine still checks the key for %d of them", h.pending)
	}
	return text
}

func newSubmission(cmd *cobra.Command, output format, given *givenPages) *submission {
	s := &submission{cmd: cmd, output: output, given: given, hosts: make(map[string]*submittedHost)}
	s.show, s.clear = consoleOf(cmd.ErrOrStderr()).progress()
	return s
}

// expect counts the URLs of each host that are going to be sent.
func (s *submission) expect(c *indexnow.Client, urls []string) {
	seen := make(map[string]bool, len(urls))
	for _, u := range urls {
		canonical, host, err := c.Canonical(u)
		if err != nil || seen[canonical] {
			continue
		}
		seen[canonical] = true
		s.host(host).urls++
		s.urls++
	}
}

func (s *submission) host(name string) *submittedHost {
	h := s.hosts[name]
	if h == nil {
		h = new(submittedHost)
		s.hosts[name] = h
	}
	return h
}

// accept notes a batch that an engine has accepted. A run that is killed sends again at most what was accepted in
// the last seconds.
func (s *submission) accept(b indexnow.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problem = cmp.Or(s.given.done(b.URLs...), s.problem)
	s.log.submitted(b, nil)
	h := s.host(b.Host)
	h.accepted += len(b.URLs)
	if b.Pending {
		h.pending += len(b.URLs)
	}
	s.taken += len(b.URLs)
	if s.output == formatText && h.accepted == h.urls {
		s.clear()
		fmt.Fprintln(s.cmd.OutOrStdout(), h.text(b.Host))
	}
	s.show(fmt.Sprintf("%d of %d URLs accepted", s.taken, s.urls))
}

// A submittedResult is a result of submit in JSON: of a host, of a failure, or of URLs that were rejected for one
// reason.
type submittedResult struct {
	Host        string   `json:"host,omitempty"`
	Accepted    int      `json:"accepted,omitempty"`    // URLs
	Pending     int      `json:"pending,omitempty"`     // URLs of Accepted; the engine still checks the key
	NotAccepted int      `json:"notAccepted,omitempty"` // URLs; a later run can send them again
	Rejected    []string `json:"rejected,omitempty"`    // URLs that have to be corrected
	Status      int      `json:"status,omitempty"`
	Code        string   `json:"code,omitempty"` // of the engine, or of package badvalue
	Error       string   `json:"error,omitempty"`
	RetryAfter  int      `json:"retryAfter,omitempty"` // seconds, if the engine said so
}

// write writes what is not shown yet, and returns the error of the command.
func (s *submission) write(report indexnow.Report, urls []string, err error) error {
	s.clear()
	results, failed := []*submittedResult{}, []error{}
	isListed := make(map[string]bool)
	alike := make(map[string]*submittedResult) // failures with one cause
	for _, b := range report.Batches {
		if h := s.hosts[b.Host]; !isListed[b.Host] && h != nil && h.accepted > 0 {
			isListed[b.Host] = true
			results = append(results, &submittedResult{Host: b.Host, Accepted: h.accepted, Pending: h.pending})
			if s.output == formatText && h.accepted < h.urls {
				fmt.Fprintln(s.cmd.OutOrStdout(), h.text(b.Host))
			}
		}
		problem := (*indexnow.Error)(nil)
		if !errors.As(b.Err, &problem) {
			continue
		}
		failed = append(failed, problem)
		s.log.submitted(b, problem)
		cause := *problem
		cause.Host, cause.URL = "", ""
		key := cause.Error()
		if problem.URL == "" {
			key = b.Host + key
		}
		r := alike[key]
		if r == nil {
			r = &submittedResult{Host: b.Host, Status: problem.Status, Code: problem.Code, Error: problem.Error(),
				RetryAfter: retryAfter(problem)}
			alike[key], results = r, append(results, r)
		}
		if problem.URL == "" {
			r.NotAccepted += len(b.URLs)
		} else {
			r.Rejected = append(r.Rejected, b.URLs[0])
		}
	}
	for _, rejected := range report.Rejected {
		failed = append(failed, rejected.Err)
		key := string(rejected.Err.Code) + rejected.Err.Reason
		r := alike[key]
		if r == nil {
			r = &submittedResult{Code: string(rejected.Err.Code), Error: rejected.Err.Error()}
			alike[key], results = r, append(results, r)
		}
		r.Rejected = append(r.Rejected, urls[rejected.Index])
	}
	if err != nil && len(failed) == 0 {
		failed = append(failed, err)
	}
	if s.output == formatJSON {
		return cmp.Or(writeJSON(s.cmd.OutOrStdout(), results), failure(failed))
	}
	for _, r := range results {
		switch more := len(r.Rejected) - 1; {
		case r.Error == "":
		case more > 0:
			complain(s.cmd.ErrOrStderr(), fmt.Sprintf("%s; and the same of %s, which -o json lists", r.Error,
				count(more, "other URL", "other URLs")))
		default:
			complain(s.cmd.ErrOrStderr(), r.Error)
		}
	}
	return failure(failed)
}
