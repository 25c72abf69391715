package source

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ampcors/ampcors/internal/domains"
)

// rows is a database of domains and patterns, as they are stored.
type rows struct {
	mu      sync.Mutex
	stored  []string
	asked   []string
	err     error
	delay   time.Duration
	changed func(domains ...string)
}

func (r *rows) database() Database {
	return Database{
		PublisherByDomain: func(ctx context.Context, domain string) (string, error) {
			r.mu.Lock()
			r.asked = append(r.asked, domain)
			err, delay := r.err, r.delay
			i := slices.IndexFunc(r.stored, func(row string) bool { return strings.EqualFold(row, domain) })
			stored := ""
			if i >= 0 {
				stored = r.stored[i]
			}
			r.mu.Unlock()
			if delay > 0 {
				select {
				case <-time.After(delay):
				case <-ctx.Done():
					return "", ctx.Err()
				}
			}
			if err != nil {
				return "", err
			}
			return stored, nil
		},
		Notify: func(changed func(domains ...string)) (stop func()) {
			r.changed = changed
			return func() {}
		},
	}
}

func (r *rows) set(stored ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stored = stored
}

func (r *rows) fail(err error, delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err, r.delay = err, delay
}

// take returns what was asked since the last call.
func (r *rows) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := r.asked
	r.asked = nil
	return asked
}

func newPatterns(t *testing.T, stored ...string) (*rows, *Source) {
	t.Helper()
	r := &rows{stored: stored}
	s, err := New(r.database(), Config{Patterns: true})
	if err != nil {
		t.Fatal(err)
	}
	return r, s
}

func TestPatternsOfANameAreAskedForAfterIt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		domain          string
		stored          []string
		pattern, answer string
		asked           []string
	}{
		{domain: "www.acme.example", stored: []string{"*.acme.example"}, pattern: "*.acme.example", answer: "www.acme.example",
			asked: []string{"www.acme.example", "*.acme.example"}},
		{domain: "a.b.acme.example", stored: []string{"*.Acme.example"}, pattern: "*.acme.example", answer: "a.b.acme.example",
			asked: []string{"a.b.acme.example", "*.b.acme.example", "*.acme.example"}},
		{domain: "www.acme.example", stored: []string{"*.acme.example", "www.acme.example"}, answer: "www.acme.example",
			asked: []string{"www.acme.example"}},
		{domain: "acme.example", stored: []string{"*.acme.example", "*.example"}, asked: []string{"acme.example"}},
		{domain: "www.acme.example", stored: []string{"acme.example"}, asked: []string{"www.acme.example", "*.acme.example"}},
		{domain: "www.acme.co.uk", stored: []string{"*.co.uk"}, asked: []string{"www.acme.co.uk", "*.acme.co.uk"}},
		{domain: "acme.co.uk", stored: []string{"*.co.uk"}, asked: []string{"acme.co.uk"}},
		{domain: "me.github.io", stored: []string{"*.github.io"}, asked: []string{"me.github.io"}},
		{domain: "bucket.s3.amazonaws.com", stored: []string{"*.amazonaws.com"}, pattern: "*.amazonaws.com", answer: "bucket.s3.amazonaws.com",
			asked: []string{"bucket.s3.amazonaws.com", "*.amazonaws.com"}},
		{domain: "x.prod.fastly.net", stored: []string{"*.prod.fastly.net"}, asked: []string{"x.prod.fastly.net", "*.fastly.net"}},
		{domain: "a.b.kawasaki.jp", stored: []string{"*.kawasaki.jp", "*.b.kawasaki.jp"}, asked: []string{"a.b.kawasaki.jp"}},
		{domain: "www.city.kawasaki.jp", stored: []string{"*.city.kawasaki.jp"}, pattern: "*.city.kawasaki.jp", answer: "www.city.kawasaki.jp",
			asked: []string{"www.city.kawasaki.jp", "*.city.kawasaki.jp"}},
		{domain: "8.7.6.5.4.3.2.1.acme.example", stored: []string{"*.3.2.1.acme.example"}, pattern: "*.3.2.1.acme.example",
			answer: "8.7.6.5.4.3.2.1.acme.example",
			asked:  []string{"8.7.6.5.4.3.2.1.acme.example", "*.3.2.1.acme.example"}},
		{domain: "8.7.6.5.4.3.2.1.acme.example", stored: []string{"*.4.3.2.1.acme.example"},
			asked: []string{"8.7.6.5.4.3.2.1.acme.example", "*.3.2.1.acme.example", "*.2.1.acme.example", "*.1.acme.example", "*.acme.example"}},
	} {
		r, s := newPatterns(t, test.stored...)
		for range 3 {
			a := s.Find(t.Context(), test.domain)
			if a.Publisher != test.answer || a.Pattern != test.pattern || a.Err != nil {
				t.Errorf("%s of %q: %+v", test.domain, test.stored, a)
			}
		}
		if asked := r.take(); !slices.Equal(asked, test.asked) {
			t.Errorf("%s of %q: %q was asked for; want %q", test.domain, test.stored, asked, test.asked)
		}
		if test.pattern != "" {
			if pattern, ok := s.RememberedPattern("other" + test.pattern[1:]); pattern != test.pattern || !ok {
				t.Errorf("another name below %s: %q, %t", test.pattern, pattern, ok)
			}
		}
		for _, name := range []string{strings.TrimPrefix(test.pattern, "*"), test.pattern} {
			if publisher, ok := s.Remembered(name); ok {
				t.Errorf("%q is remembered as %q", name, publisher)
			}
			if a := s.Find(t.Context(), name); a != (Answer{}) {
				t.Errorf("%q: %+v", name, a)
			}
		}
		s.Close()
	}
}

func TestWithoutPatternsNoneIsAskedFor(t *testing.T) {
	t.Parallel()
	r := &rows{stored: []string{"*.acme.example"}}
	s, err := New(r.database(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if a := s.Find(t.Context(), "www.acme.example"); a != (Answer{}) || !slices.Equal(r.take(), []string{"www.acme.example"}) {
		t.Errorf("%+v", a)
	}
}

// What changes a name's answer changes a pattern's in the same way.
func TestAPatternIsForgottenLikeAName(t *testing.T) {
	t.Parallel()
	r, s := newPatterns(t)
	defer s.Close()
	has := func(want bool) {
		t.Helper()
		if a := s.Find(t.Context(), "www.acme.example"); (a.Publisher != "") != want || a.Err != nil {
			t.Errorf("%+v; want %t", a, want)
		}
	}
	has(false)
	r.set("*.acme.example")
	has(false) // remembered
	r.changed("*.acme.example")
	has(true)
	r.set()
	has(true)
	r.changed("*.ACME.example")
	has(false)
	r.set("*.acme.example")
	r.changed()
	has(true)
	r.set()
	if err := s.Forget("*.acme.example"); err != nil {
		t.Error(err)
	}
	has(false)
	r.set("*.acme.example", "www.acme.example")
	r.changed("*.acme.example", "www.acme.example")
	has(true)
	r.set("*.acme.example")
	r.changed("www.acme.example") // the pattern still allows it
	has(true)
	if err := s.Forget("*.*.example"); err == nil {
		t.Error("no error for what is no pattern")
	}
}

// In an outage, a name that a pattern allows is served from the stale pattern, and its requests wait once.
func TestAPatternIsServedAsStale(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*rows){
		"fails": func(r *rows) { r.fail(errors.New("down"), 0) },
		"hangs": func(r *rows) { r.fail(nil, time.Hour) },
	} {
		synctest.Test(t, func(t *testing.T) {
			r, s := newPatterns(t, "*.acme.example")
			defer s.Close()
			if a := s.Find(t.Context(), "www.acme.example"); a.Pattern == "" {
				t.Fatal(a)
			}
			r.changed()
			fault(r)
			waits := 0
			for range 100 {
				begun := time.Now()
				if a := s.Find(t.Context(), "www.acme.example"); a.Publisher != "www.acme.example" || !a.Stale || a.Err == nil ||
					a.Pattern != "*.acme.example" {
					t.Fatalf("%s: %+v", name, a)
				}
				if time.Since(begun) > 0 {
					waits++
				}
				time.Sleep(100 * time.Millisecond)
			}
			if waits > 1 {
				t.Errorf("%s: %d requests waited", name, waits)
			}
			if a := s.Find(t.Context(), "www.other.example"); a.Publisher != "" || a.Err == nil {
				t.Errorf("%s: another name: %+v", name, a)
			}
			r.set()
			r.fail(nil, 0)
			time.Sleep(openFor + time.Second + minPause)
			if a := s.Find(t.Context(), "www.acme.example"); a != (Answer{}) {
				t.Errorf("%s: after the outage: %+v", name, a)
			}
		})
	}
}

// An answer that cannot be had is no denial, and an old answer in memory makes no request of another one wait again and again.
func TestAnOldPatternDelaysNobody(t *testing.T) {
	t.Parallel()
	for _, stored := range [][]string{{"www.acme.example", "*.acme.example"}, {"*.acme.example", "*.b.acme.example"}} {
		for _, hangs := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				r, s := newPatterns(t, stored[1])
				defer s.Close()
				domain := "www.acme.example"
				if stored[1] != "*.acme.example" {
					domain = "x.b.acme.example"
				}
				s.Find(t.Context(), domain)
				time.Sleep(11 * time.Minute) // past MaxStale
				r.fail(errors.New("down"), 0)
				if a := s.Find(t.Context(), domain); a.Publisher != "" || a.Err == nil {
					t.Errorf("%q: a lookup that fails is a denial: %+v", stored, a)
				}
				time.Sleep(2 * time.Second)
				r.fail(nil, 0)
				r.set(stored[0])
				if a := s.Find(t.Context(), domain); a.Publisher != domain {
					t.Fatalf("%q: %+v", stored, a)
				}
				r.changed()
				if hangs {
					r.fail(nil, time.Hour)
				} else {
					r.fail(errors.New("down"), 200*time.Millisecond)
				}
				waits := 0
				for range 300 {
					begun := time.Now()
					if a := s.Find(t.Context(), domain); a.Publisher != domain || !a.Stale {
						t.Fatalf("%q: %+v", stored, a)
					}
					if time.Since(begun) > 0 {
						waits++
					}
					time.Sleep(100 * time.Millisecond)
				}
				if waits > 1 {
					t.Errorf("%q, hangs %t: %d requests waited", stored, hangs, waits)
				}
			})
		}
	}
}

func TestOnlyNamesAreMatched(t *testing.T) {
	t.Parallel()
	_, s := newPatterns(t, "*.acme.example")
	defer s.Close()
	for range 2 {
		for _, name := range []string{"WWW.acme.example", "-x.acme.example", "a b.acme.example", "x..acme.example", "evil.test/.acme.example",
			"\x00.acme.example",
			strings.Repeat("a.", 200) + "acme.example"} {
			if a := s.Find(t.Context(), name); a != (Answer{}) {
				t.Errorf("%.40q: %+v", name, a)
			}
		}
		s.Find(t.Context(), "www.acme.example")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s.Find(ctx, "a.b.c.invented.example"); s.Stats().Lookups > 3 {
		t.Errorf("%d lookups of a request that was canceled", s.Stats().Lookups)
	}
}

// A pattern in use is refreshed before it expires.
func TestAPatternIsRefreshed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, s := newPatterns(t, "*.acme.example")
		defer s.Close()
		s.Find(t.Context(), "www.acme.example")
		r.take()
		for range 300 {
			time.Sleep(time.Second)
			if _, ok := s.RememberedPattern("www.acme.example"); !ok {
				t.Fatal("it expired")
			}
		}
		if asked := r.take(); len(asked) < 5 || len(asked) > 8 ||
			slices.ContainsFunc(asked, func(name string) bool { return name != "*.acme.example" }) {
			t.Errorf("in 5 minutes, %q was asked for", asked)
		}
	})
}

func TestAPatternThatIsStoredWronglyMatchesNothing(t *testing.T) {
	t.Parallel()
	for _, stored := range []string{"acme.example", "*.other.example", "*.*.acme.example", "*", "*.", "*.acme example", "..acme.example",
		".acme.example"} {
		asked := Database{PublisherByDomain: func(_ context.Context, domain string) (string, error) {
			if strings.HasPrefix(domain, "*") {
				return stored, nil
			}
			return "", nil
		}}
		s, err := New(asked, Config{Patterns: true})
		if err != nil {
			t.Fatal(err)
		}
		if a := s.Find(t.Context(), "www.acme.example"); a.Publisher != "" || a.Err != nil && !errors.Is(a.Err, ErrBadAnswer) {
			t.Errorf("%q: %+v", stored, a)
		}
		s.Close()
	}
}

// A pattern that is asked for is one that Config.Publishers would take, and matches the name.
func FuzzPatternsOf(f *testing.F) {
	for _, domain := range []string{"a.b.c.d.e.f.example.com", "www.city.kawasaki.jp", "a.b.kawasaki.jp", "x.prod.fastly.net",
		"x.compute.amazonaws.com", "com", "a.co.uk", "xn--bcher-kva.example"} {
		f.Add(domain)
	}
	f.Fuzz(func(t *testing.T, domain string) {
		if !isCanonical(domain) {
			return
		}
		for _, text := range patternsOf(domain) {
			if text != "" && (!strings.HasPrefix(text, ".") || !strings.HasSuffix(domain, text) || domains.IsPublicSuffix(text[1:]) ||
				!isCanonical(text[1:])) {
				t.Errorf("%q: %q", domain, text)
			}
		}
	})
}

func TestCheckPattern(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"*.acme.example": "", "*.c.b.a.acme.co.uk": "", "*.xn--bcher-kva.example": "",
		"acme.example": "not a pattern", "*.": "the domain after *. ", "*.*.acme.example": "the domain after *. ",
		"*.ACME.example":   `want "*.acme.example"`,
		"*.bücher.example": `want "*.xn--bcher-kva.example"`, "*.co.uk": "public suffix", "*.example": "the domain after *. ",
		"*.d.c.b.a.acme.example": "more than 3 labels",
	} {
		if err := CheckPattern(pattern); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", pattern, err, want)
		}
	}
}

// What a filter finds likely is looked up first: a name that is not may wait for long in a flood.
func TestALikelyPatternGoesFirst(t *testing.T) {
	t.Parallel()
	r := &rows{stored: []string{"*.acme.example"}}
	asked := r.database()
	asked.IsLikely = func(key string) bool { return key == "*.acme.example" }
	s, err := New(asked, Config{Patterns: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if a := s.Find(t.Context(), "www.b.acme.example"); a.Pattern != "*.acme.example" || !slices.Equal(r.take(), []string{"*.acme.example"}) {
		t.Errorf("%+v", a)
	}
}
