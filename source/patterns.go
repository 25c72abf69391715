package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ampcors/ampcors/internal/domains"
)

// maxPatterns is how many patterns are looked up for a name. Names are invented with any number of labels.
const maxPatterns = 4

// patternsOf returns the keys of the patterns that can match a domain, the nearest first, and then "": those with
// the fewest labels, but none over a public suffix.
func patternsOf(domain string) (texts [maxPatterns]string) {
	n := 0
	for end := len(domain); n < maxPatterns; {
		if end = strings.LastIndexByte(domain[:end], '.'); end <= 0 {
			break
		}
		if !domains.IsPublicSuffix(domain[end+1:]) {
			texts[n] = domain[end:]
			n++
		}
	}
	slices.Reverse(texts[:n])
	return texts
}

// RememberedPattern is Remembered for the nearest pattern that matches a domain, such as "*.example.com". Validate
// the domain first: a pattern matches any text below its own domain.
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

// findWithPatterns is Find, also for patterns. What is in memory goes first, the newest answer before older ones: a
// name below a pattern has no row of its own to be remembered by, and must not wait for the database because of
// that. If the newest cannot be served as stale, none can. Then comes what a filter finds likely, because names
// that are not may wait for long, and then the name and its patterns.
func (s *Source) findWithPatterns(ctx context.Context, domain string) Answer {
	if !isCanonical(domain) {
		return Answer{}
	}
	if pattern, ok := s.RememberedPattern(domain); ok {
		return Answer{Publisher: domain, Pattern: pattern}
	}
	type candidate struct {
		text string
		at   time.Duration // of the answer in memory; negative if there is none
		rank int           // 0 if a filter finds it likely, otherwise 1
	}
	var candidates []candidate
	patterns := patternsOf(domain)
	for _, text := range append([]string{domain}, patterns[:]...) {
		if text == "" {
			break
		}
		c := candidate{text: text, at: -1, rank: 1}
		if e, ok := s.memory.publishers.Peek(text); ok {
			c.at = e.at
		}
		if s.asked.IsLikely != nil && s.asked.IsLikely(key{text: text}.name()) {
			c.rank = 0
		}
		candidates = append(candidates, c)
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(a.rank, b.rank))
	})
	for _, c := range candidates {
		a := s.find(ctx, key{text: c.text})
		if strings.HasPrefix(a.Publisher, "*") {
			a.Publisher, a.Pattern = domain, a.Publisher
		}
		if a.Publisher != "" || a.Err != nil {
			return a
		}
		if ctx.Err() != nil {
			return Answer{Err: context.Cause(ctx)}
		}
	}
	return Answer{}
}

// CheckPattern returns nil if a pattern that a database has stored can match names with [Config].Patterns, or else
// why not.
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
	stored, err := s.asked.PublisherByDomain(ctx, pattern)
	if err != nil || stored == "" {
		return "", err
	}
	parsed, problem := domains.Parse(strings.TrimPrefix(stored, "*."))
	switch {
	case problem != nil:
		return "", fmt.Errorf("%w: asked for %q, PublisherByDomain returned %.80q, which %s; want the pattern that the row "+
			"has", ErrBadAnswer, pattern, stored, problem.Reason)
	case !strings.HasPrefix(stored, "*.") || parsed != base:
		return "", nil
	}
	return pattern, nil
}
