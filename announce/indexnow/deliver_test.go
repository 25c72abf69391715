package indexnow

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors/announce/queue"
)

// A picky engine rejects requests that have a URL with "bad" in it, or too many URLs.
type picky struct {
	sync.Mutex
	status   int // for a bad URL
	limit    int // URLs; more are answered 413
	accepted map[string]int
	sizes    []int // of the requests, negative if rejected
}

func (p *picky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var s submission
	_ = json.NewDecoder(r.Body).Decode(&s)
	p.Lock()
	defer p.Unlock()
	n := len(s.URLList)
	switch isBad := func(url string) bool { return strings.Contains(url, "bad") }; {
	case p.limit != 0 && n > p.limit:
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		n = -n
	case slices.ContainsFunc(s.URLList, isBad):
		w.WriteHeader(p.status)
		n = -n
	default:
		for _, u := range s.URLList {
			p.accepted[u]++
		}
	}
	p.sizes = append(p.sizes, n)
}

func (p *picky) rejections() (n int) {
	for _, size := range p.sizes {
		if size < 0 {
			n++
		}
	}
	return n
}

// Whichever pages are at fault, all others are accepted once, and only the former are given up. announce/README.md
// has the figures of 1 and of 50 pages.
func TestOnePageAtFaultDoesNotCostTheOthers(t *testing.T) {
	t.Parallel()
	const pages = 10_000
	for name, test := range map[string]struct {
		isBad             func(i int) bool
		limit, calls, all int // at most
	}{
		"1 page at fault":                        {func(i int) bool { return i == 7_777 }, 0, 1, 40},
		"5 pages at fault":                       {func(i int) bool { return i%2_000 == 1_234 }, 0, 2, 150},
		"50 pages at fault":                      {func(i int) bool { return i%200 == 77 }, 0, 12, 1_200},
		"50 neighbors at fault":                  {func(i int) bool { return i < 50 }, 0, 5, 350},
		"at most 300 URLs":                       {func(i int) bool { return false }, 300, 1, 80},
		"at most 300 URLs, 5 pages at fault":     {func(i int) bool { return i%2_000 == 1_234 }, 300, 2, 250},
		"two of three pages at fault":            {func(i int) bool { return i < 900 && i%3 != 0 }, 0, 40, 4_000},
		"the first hundred, and one of ten then": {func(i int) bool { return i < 100 || i < 2_000 && i%10 == 0 }, 0, 40, 4_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &picky{status: []int{400, 422}[rand.N(2)], limit: test.limit, accepted: make(map[string]int)}
			c := client(t, p, nil)
			var left []string
			good, bad := 0, 0
			for i := range pages {
				kind := "good"
				if test.isBad(i) {
					kind = "bad"
					bad++
				} else {
					good++
				}
				left = append(left, fmt.Sprintf("https://www.example.com/%s-%d", kind, i))
			}
			calls, given := 0, 0
			for ; len(left) > 0 && calls < 2*test.calls; calls++ {
				before := p.rejections()
				report, _ := c.Submit(t.Context(), left...)
				if n := p.rejections() - before; n > maxRejected {
					t.Errorf("%d rejected requests in a call", n)
				}
				next := []string{}
				for _, b := range report.Batches {
					problem, _ := b.Err.(*Error)
					switch {
					case problem == nil:
					case !problem.IsFinal():
						next = append(next, b.URLs...)
					case len(b.URLs) != 1 || problem.URL != b.URLs[0] || !strings.Contains(problem.URL, "bad") || problem.Status != p.status ||
						!strings.Contains(problem.Error(), problem.URL):
						t.Errorf("given up: %q, %v", b.URLs, problem)
					default:
						given++
					}
				}
				left = next
			}
			// If every second page is at fault, what is left at the end may be such pages alone.
			if isDense := bad > 100; isDense && !slices.ContainsFunc(left, func(u string) bool { return strings.Contains(u, "good") }) {
				bad, calls, left = bad-len(left), min(calls, test.calls), nil
			}
			if len(left) > 0 || given != bad || len(p.accepted) != good || calls > test.calls || len(p.sizes) > test.all {
				t.Errorf("%d left, %d of %d given up, %d accepted, in %d calls and %d requests", len(left), given, bad, len(p.accepted), calls,
					len(p.sizes))
			}
			for u, n := range p.accepted {
				if n != 1 {
					t.Errorf("%s is accepted %d times", u, n)
				}
			}
			for i, size := range p.sizes { // once the engine has accepted something, no request is too large
				if test.limit > 0 && size < -test.limit && slices.ContainsFunc(p.sizes[:i], func(earlier int) bool { return earlier > 1 }) {
					t.Errorf("request %d of %d has %d URLs", i, len(p.sizes), -size)
				}
			}
			t.Logf("%d calls, %d requests, %d of them rejected", calls, len(p.sizes), p.rejections())
		})
	}
}

// If nothing of a host is accepted, the cause may be the key: nothing is given up, and the error says so. The
// pages of other hosts are found in a few calls all the same.
func TestNoPageIsGivenUpIfAllAreRejected(t *testing.T) {
	t.Parallel()
	p := &picky{status: 422, accepted: make(map[string]int)}
	c := client(t, p, nil)
	var pages []string
	for i := range 300 {
		pages = append(pages, fmt.Sprintf("https://bad.example/%d", i), fmt.Sprintf("https://www.example.com/%d", i))
	}
	pages = append(pages, "https://www.example.com/bad")
	for call := 0; len(p.accepted) < 300; call++ {
		if call == 50 {
			t.Fatalf("%d accepted", len(p.accepted))
		}
		report, err := c.Submit(t.Context(), pages...)
		said := false
		for _, b := range report.Batches {
			if problem, _ := b.Err.(*Error); b.Host == "bad.example" {
				said = said || errors.Is(problem, ErrAllRejected)
				if problem.IsFinal() || problem.URL != "" {
					t.Errorf("%v", problem)
				}
			}
		}
		if len(report.Batches) > 2 && !said && !errors.Is(err, ErrNotSent) {
			t.Errorf("%v", err)
		}
	}
	single, _ := c.Submit(t.Context(), "https://www.example.com/bad")
	if problem := single.Batches[0].Err.(*Error); !errors.Is(problem, ErrAllRejected) || !errors.Is(problem, ErrUnprocessable) ||
		problem.Retryable() || problem.IsFinal() || !problem.OfHost() {
		t.Errorf("%v", problem)
	}
}

// A queue sends one page of a host that had nothing accepted, and halves only once that page was accepted: the cause may be
// the key. Each URL has one result, and none is given up until a page was accepted.
func TestAQueueTriesOnePageFirst(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		bad, good int
	}{
		{"nothing is accepted", 100, 0},
		{"nothing of two requests is accepted", maxURLs + 7, 0},
		{"one page at fault", 1, 99},
		{"one of two pages at fault", 1, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			accepted, waited := 0, 0 // calls whose page was accepted, and calls whose was not
			for call := 0; accepted+waited == 0 || test.good > 0 && (accepted == 0 || test.good == 1 && waited == 0); call++ {
				if call == 200 {
					t.Fatalf("the page that was tried was accepted %d times, and rejected %d times", accepted, waited)
				}
				p := &picky{status: 422, accepted: make(map[string]int)}
				c := client(t, p, nil)
				var urls []string
				for i := range test.bad {
					urls = append(urls, fmt.Sprintf("https://www.example.com/bad%d", i))
				}
				for i := range test.good {
					urls = append(urls, fmt.Sprintf("https://www.example.com/%d", i))
				}
				_, batches := c.group(urls)
				requests := len(batches)
				results, left := make(map[string]int), 0
				for _, b := range c.deliver(t.Context(), batches, true) {
					for _, url := range b.URLs {
						results[url]++
					}
					if problem, _ := b.Err.(*Error); problem != nil && !problem.IsFinal() {
						left += len(b.URLs)
					}
				}
				for _, url := range urls {
					if results[url] != 1 {
						t.Fatalf("%s has %d results", url, results[url])
					}
				}
				if p.sizes[requests] == 1 {
					accepted++
					if left != 0 || len(p.accepted) != test.good {
						t.Fatalf("%d left, %d accepted", left, len(p.accepted))
					}
				} else {
					waited++
					if left != len(urls) || len(p.sizes) != requests+1 || p.sizes[requests] != -1 {
						t.Fatalf("%d left, after requests of %d", left, p.sizes)
					}
				}
			}
		})
	}
}

// Many hosts with pages at fault, or with wrong keys, do not keep each other from being accepted, and no call sends
// more than the bound, whatever is too large for the engine.
func TestManyHostsMakeProgressWithinTheBound(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hosts, good, bad, limit int
		isBad                   func(host int) bool // nothing of it is accepted
		calls                   int                 // at most
	}{
		"64 hosts with a page at fault":  {64, 2, 1, 0, func(int) bool { return false }, 20},
		"63 hosts with a wrong key":      {64, 100, 1, 0, func(host int) bool { return host > 0 }, 60},
		"5 hosts, and at most 20 URLs":   {5, 1980, 20, 20, func(int) bool { return false }, 100},
		"an endpoint that takes nothing": {1, 30_000, 0, -1, func(int) bool { return true }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &picky{status: 422, limit: test.limit, accepted: make(map[string]int)}
			c := client(t, p, nil)
			var left []string
			want := 0
			for host := range test.hosts {
				for i := range test.good + test.bad {
					kind := "good"
					if i >= test.good {
						kind = "bad"
					}
					if test.isBad(host) {
						kind += "-bad"
					} else if kind == "good" {
						want++
					}
					left = append(left, fmt.Sprintf("https://site-%d.example/%s-%d", host, kind, i))
				}
			}
			for calls := 0; len(p.accepted) < want || calls == 0; calls++ {
				if calls > test.calls {
					t.Fatalf("%d of %d are accepted after %d calls", len(p.accepted), want, calls)
				}
				before := p.rejections()
				report, _ := c.Submit(t.Context(), left...)
				if n := p.rejections() - before; n > maxRejected+test.hosts-1+len(left)/maxURLs {
					t.Errorf("%d rejected requests in a call", n)
				}
				left = nil
				for _, b := range report.Batches {
					if problem, _ := b.Err.(*Error); problem != nil && !problem.IsFinal() {
						left = append(left, b.URLs...)
					}
				}
			}
		})
	}
}

// A queue does the same, and its backoff is no longer than it takes.
func TestAQueueLosesNoPageBesideOneAtFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &picky{status: 422, limit: 300, accepted: make(map[string]int)}
		transport := transportFunc(func(r *http.Request) (*http.Response, error) {
			before := len(p.sizes)
			w := statusWriter{}
			p.ServeHTTP(&w, r)
			if len(p.sizes) != before+1 {
				t.Error("no request")
			}
			return answer(max(w.status, 200), ""), nil
		})
		c, err := New(Config{Key: testKey, HTTPClient: &http.Client{Transport: transport}})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		failed := make(map[string]error)
		q, err := c.NewQueue(queue.Config{Done: func(url string, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed[url] = err
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3_000 {
			kind := "good"
			if i%100 == 50 {
				kind = "bad"
			}
			if err := q.Add(fmt.Sprintf("https://www.example.com/%s-%d", kind, i)); err != nil {
				t.Fatal(err)
			}
		}
		go func() { _ = q.Run(t.Context()) }()
		time.Sleep(time.Minute) // each call makes progress, so the backoff stays short
		synctest.Wait()
		if s := q.Stats(); s.Waiting != 0 || s.Accepted != 2_970 || s.Failed != 30 || len(p.accepted) != 2_970 || len(failed) != 30 {
			t.Errorf("%+v, %d accepted; failed: %q", s, len(p.accepted), slices.Sorted(maps.Keys(failed)))
		}
	})
}

// A statusWriter keeps the status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) { w.status = status }
