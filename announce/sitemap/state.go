package sitemap

import (
	"maps"
	"slices"
)

// A State has the pages that are known, and those that are to be announced. The zero State knows none.
// Store it as JSON. Config.MaxState limits its size.
type State struct {
	// Files are the sitemaps that need not be read again unless they change, by URL.
	Files map[string]File `json:"files,omitempty"`
	// Given are the files that the next Update with FindGone needs: the pages of a missing one would seem to be gone.
	// (With MaxGone 1, an Update replaces them.)
	Given []string `json:"given,omitempty"`
	// Announced are the pages for which Done was called, with the lastmod that they had then. A W3C date with a time
	// and a zone is in UTC; other forms are as written.
	Announced map[string]string `json:"announced,omitempty"`
	// Pending are the pages that are new or have changed, until Done is called.
	Pending map[string]string `json:"pending,omitempty"`
	// Gone are the pages of Announced that are no longer listed, until Done is called.
	Gone map[string]bool `json:"gone,omitempty"`
	// Rejected are the pages for which Reject was called. They are pending again once their lastmod is later.
	Rejected map[string]Rejection `json:"rejected,omitempty"`

	// HasRead is true once a file was read to its end, even if it listed nothing.
	HasRead bool `json:"hasRead,omitempty"`
	// HoldsGone is true if the last Update did not look for gone pages, or could not tell: the pages in Gone are not
	// announced then.
	HoldsGone bool `json:"holdsGone,omitempty"`
}

// A File has what is known of a sitemap, so that it is not read again without need.
type File struct {
	LastMod      string `json:"lastmod,omitempty"` // in the sitemap index
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"lastModified,omitempty"` // header
}

// A Rejection says why a page was rejected, and which lastmod it had then.
type Rejection struct {
	LastMod string `json:"lastmod,omitempty"`
	Code    string `json:"code,omitempty"` // for programs, as Reject got it
	Reason  string `json:"reason"`         // for people
}

// PendingURLs returns the pages to announce, sorted. Gone ones are among them, unless the last Update
// did not look for them, or could not tell. Without Config.ForCaches, the URLs are escaped as package
// indexnow sends them, so the URLs of an indexnow.Batch can be given to Done.
func (s *State) PendingURLs() []string {
	urls := slices.AppendSeq(make([]string, 0, len(s.Pending)+len(s.Gone)), maps.Keys(s.Pending))
	if !s.HoldsGone {
		urls = slices.AppendSeq(urls, maps.Keys(s.Gone))
	}
	slices.Sort(urls)
	return urls
}

// Done notes that pages were announced, as the last Update found them. So call no Update between
// PendingURLs and Done: it could find a change that was not announced. Other URLs are ignored.
func (s *State) Done(urls ...string) {
	for _, u := range urls {
		if modified, ok := s.Pending[u]; ok {
			set(&s.Announced, u, modified)
			delete(s.Pending, u)
			delete(s.Rejected, u)
		} else if s.Gone[u] {
			delete(s.Announced, u)
			delete(s.Gone, u)
		}
	}
	if len(s.Pending) == 0 {
		s.Pending = nil // the map would keep its memory
	}
}

// Reject notes that a page was rejected, and would be again, as an indexnow.Error with its URL set says. It is not
// pending then, until its lastmod is later. Like Done, it ignores other URLs. The code is for the program that reads
// the state again, and the reason is for people.
func (s *State) Reject(u, code, reason string) {
	if modified, ok := s.Pending[u]; ok {
		set(&s.Rejected, u, Rejection{LastMod: modified, Code: code, Reason: reason})
		delete(s.Pending, u)
	} else if s.Gone[u] { // nobody lists it any more
		delete(s.Announced, u)
		delete(s.Gone, u)
	}
}

// IsNew reports whether nothing has been read yet.
func (s *State) IsNew() bool {
	return !s.HasRead && len(s.Files) == 0 && len(s.Announced) == 0 && len(s.Pending) == 0 && len(s.Rejected) == 0
}

func set[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[key] = value
}

// cost returns about how many bytes of memory a page of a State takes: its texts, and 120 for the
// headers of the strings and the part of the map that is not in use.
func cost(page, modified string) int64 { return int64(len(page) + len(modified) + 120) }

func (f File) cost(name string) int64 {
	return int64(len(name) + len(f.LastMod) + len(f.ETag) + len(f.LastModified) + 240)
}

// cost returns about how many bytes of memory the state takes.
func (s *State) cost() (n int64) {
	for _, pages := range []map[string]string{s.Announced, s.Pending} {
		for u, modified := range pages {
			n += cost(u, modified)
		}
	}
	for u := range s.Gone {
		n += cost(u, "")
	}
	for u, r := range s.Rejected {
		n += cost(u, r.LastMod) + int64(len(r.Code)+len(r.Reason)) + 32
	}
	for name, f := range s.Files {
		n += f.cost(name)
	}
	for _, name := range s.Given {
		n += cost(name, "")
	}
	return n
}
