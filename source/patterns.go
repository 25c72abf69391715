package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/ampcors/ampcors/internal/domains"
)

// maxPatterns is how many patterns are looked up for a name. Names are invented with any number of labels.
const maxPatterns = 4

// patternsOf returns the keys of the patterns that can match a domain, the nearest first, and then "": those with the fewest labels before
// a public suffix, over which nobody can have a pattern.
func patternsOf(domain string) (texts [maxPatterns]string) {
	suffix, _ := publicsuffix.PublicSuffix(domain)
	end := len(domain) - len(suffix) - 1 // of what is before a dot and the labels that were seen
	n := 0
	for ; end > 0 && n < maxPatterns; n++ {
		if end = strings.LastIndexByte(domain[:end], '.'); end < 0 {
			break
		}
		texts[n] = domain[end:]
	}
	slices.Reverse(texts[:n])
	return texts
}

// RememberedPattern is Remembered for the nearest pattern that matches a domain, such as "*.example.com". A domain that was not checked must
// not be asked for: a pattern matches each name below it.
func (s *Source) RememberedPattern(domain string) (pattern string, ok bool) {
	if !s.isMade() || !s.options.Patterns {
		return "", false
	}
	for i := 1; i < len(domain); i++ { // not by patternsOf, which needs a copy of the domain
		if domain[i] == '.' {
			if pattern, ok := s.remembered(domain[i:]); ok {
				return pattern, true
			}
		}
	}
	return "", false
}

// findWithPatterns is Find, also for patterns. A pattern that is remembered goes first: a name below it has no row of its own to be
// remembered by, and must not wait for the database because of that.
func (s *Source) findWithPatterns(ctx context.Context, domain string) Answer {
	if pattern, ok := s.RememberedPattern(domain); ok {
		return Answer{Publisher: domain, Pattern: pattern}
	}
	find := func(text string) Answer {
		a := s.find(ctx, key{text: text})
		if strings.HasPrefix(a.Publisher, "*") {
			a.Publisher, a.Pattern = domain, a.Publisher
		}
		return a
	}
	var others []string
	for _, text := range patternsOf(domain) {
		if text == "" {
			break
		}
		if !s.memory.publishers.Contains(text) {
			others = append(others, text)
		} else if a := find(text); a.Publisher != "" {
			return a
		}
	}
	for _, text := range append([]string{domain}, others...) {
		if a := find(text); a.Publisher != "" || a.Err != nil {
			return a
		}
	}
	return Answer{}
}

// CheckPattern returns why a pattern that a database has stored matches no name with [Config].Patterns, or nil.
func CheckPattern(pattern string) error {
	base, isPattern := strings.CutPrefix(pattern, "*.")
	parsed, problem := domains.Parse(base)
	texts := patternsOf("a." + base)
	isAsked := slices.Contains(texts[:], "."+base)
	switch {
	case !isPattern:
		return errors.New(`it is not a pattern; want one such as "*.example.com"`)
	case problem != nil:
		return fmt.Errorf("the domain after *. %s", problem.Reason)
	case parsed != base:
		return fmt.Errorf("it is not canonical; want %q", "*."+parsed)
	case domains.IsPublicSuffix(base):
		return errors.New("it is over a public suffix, below which anybody can register a name")
	case !isAsked:
		return fmt.Errorf("it has more than %d labels before a domain that can be registered", maxPatterns-1)
	}
	return nil
}

// askForPattern is askByDomain for a pattern.
func (s *Source) askForPattern(ctx context.Context, pattern string) (string, error) {
	base := strings.TrimPrefix(pattern, "*.")
	if !isCanonical(base) {
		return "", nil
	}
	stored, err := s.asked.PublisherByDomain(ctx, pattern)
	if err != nil || stored == "" {
		return "", err
	}
	parsed, problem := domains.Parse(strings.TrimPrefix(stored, "*."))
	switch {
	case problem != nil:
		return "", fmt.Errorf("%w: asked for %q, PublisherByDomain returned %.80q, which %s; want the pattern that the row has", ErrBadAnswer, pattern, stored, problem.Reason)
	case !strings.HasPrefix(stored, "*.") || parsed != base:
		return "", nil
	}
	return pattern, nil
}
