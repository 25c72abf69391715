package probe

import (
	"slices"
	"strings"
)

// This file finds the mistake behind the hostile pages that are allowed. Many of them can have one
// cause: a backend that allows every origin allows each look-alike as well.

// A scope is what a broken rule explains: the problem of another trial t, if covers returns true for it
// and for the trial that broke the rule, by.
type scope struct {
	id     ID
	covers func(c *cell, by, t *trial) bool
}

// scopes are in order: the first that covers a problem is its cause.
var scopes = []scope{
	{AnyOriginAllowed, func(c *cell, by, _ *trial) bool {
		return by.breaks(AnyOriginAllowed) &&
			!c.isDeniedWithOwnClaim(by)
	}},
	{SourceOriginTrusted, func(c *cell, by, t *trial) bool { // whatever a page claims to be
		return by.breaks(AnyOriginAllowed) && c.isDeniedWithOwnClaim(by) &&
			(c.isAllowedOnlyWith(t, t.origin) || c.needsOwnClaim(t))
	}},
	{SourceOriginTrusted, func(c *cell, by, t *trial) bool {
		return by.breaks(SourceOriginTrusted) && !c.isOpenCache(by) && c.needsOwnClaim(t)
	}},
	{NoClaimAllowed, func(c *cell, by, t *trial) bool {
		return by.breaks(NoClaimAllowed) && by.origin == evil && c.isAllowedOnlyWith(t)
	}},
	{SameOriginHeaderTrusted, func(_ *cell, by, t *trial) bool {
		return by.breaks(SameOriginHeaderTrusted) && t.breaks(SameOriginHeaderPreferred)
	}},
	{AnyPublisherAllowed, func(_ *cell, by, t *trial) bool {
		return by.breaks(AnyPublisherAllowed) && isSameCache(by, t) &&
			(t.Kind == KindClaims || t.Kind == KindPublishers || t.hasLikePrefix())
	}},
	{PrefixLookalikeAllowed, func(_ *cell, by, t *trial) bool {
		return by.breaks(PrefixLookalikeAllowed) && isSameCache(by, t) && t.hasLikePrefix()
	}},
	{NoRefererAllowed, func(_ *cell, by, t *trial) bool { // browsers send none from there
		return by.breaks(NoRefererAllowed) && t.origin == "null"
	}},
	{RefererTrusted, func(c *cell, by, t *trial) bool { // browsers send the page's own origin in it
		return by.breaks(RefererTrusted) && strings.HasPrefix(t.origin, c.own)
	}},
	{LookalikeAllowed, func(_ *cell, by, t *trial) bool { // any text behind an origin
		beginning, isLonger := strings.CutSuffix(by.origin, "."+evilHost)
		return by.breaks(LookalikeAllowed) && isLonger && t.breaks(DeadCacheAllowed) && strings.HasPrefix(t.origin, beginning)
	}},
}

// attribute gives hostile pages that are allowed because of the same mistake the same cause.
func (c *cell) attribute() {
	var problems []*trial // but not at the target of a redirect, which is a server of its own
	for _, t := range c.trials {
		if t.Kind.IsHostile() && t.Outcome == Problem && !t.shape.toRedirect {
			problems = append(problems, t)
		}
	}
	causes := make(map[*trial]ID)
	for _, t := range problems {
		causes[t] = c.causeOf(t, problems)
	}
	isTrusted := slices.ContainsFunc(problems, func(t *trial) bool { // and not only because every origin is allowed
		return causes[t] == SameOriginHeaderTrusted || causes[t] == SameOriginHeaderPreferred
	})
	for _, t := range problems {
		switch id := causes[t]; {
		case t.breaks(SameOriginGranted) && isTrusted:
		case t.breaks(SameOriginGranted):
			if t.acquit(); len(c.p.cfg.Caches) == 0 {
				continue // it is the own origin that asks
			}
			c.note("The backend's preflight allows the publisher's pages to send AMP-Same-Origin; " +
				"many CORS libraries allow each header that is asked for. The backend was not seen to trust it, so that is " +
				"harmless.")
		case t.breaks(UnsafeReachesHandler), t.Kind == KindForged: // the worse problem
		case id == ownHostAllowed:
			t.acquit()
			c.note("Other hosts below " + c.publisher + " can read the answers, too. Nobody else should be able to run pages " +
				"there.")
		case id == AnyOriginAllowed && c.isOpen():
			t.explain(OpenToAll)
		default:
			t.explain(id)
		}
	}
}

// causeOf returns the id of the rule whose scope covers a problem, or of the trial's own rule.
func (c *cell) causeOf(t *trial, problems []*trial) ID {
	for _, s := range scopes {
		if slices.ContainsFunc(problems, func(by *trial) bool { return s.covers(c, by, t) }) {
			return s.id
		}
	}
	return t.rule.id
}

// breaks reports whether a trial has shown that a rule is broken.
func (t *trial) breaks(id ID) bool { return slices.Contains(t.Causes, id) }

// hasLikePrefix reports whether a trial is about a prefix that is like the publisher's.
func (t *trial) hasLikePrefix() bool {
	return t.breaks(PrefixLookalikeAllowed) || t.breaks(NaivePrefixAllowed)
}

// isSameCache reports whether two trials are about pages on the same cache.
func isSameCache(a, b *trial) bool { return domainOf(a) == domainOf(b) }

// domainOf returns the domain behind the first label of the origin's host.
func domainOf(t *trial) string {
	_, domain, _ := strings.Cut(t.origin, ".")
	return domain
}

// isOpenCache reports whether every publisher on the cache of a trial is allowed.
func (c *cell) isOpenCache(t *trial) bool {
	return slices.ContainsFunc(c.trials, func(by *trial) bool {
		return by.breaks(AnyPublisherAllowed) &&
			isSameCache(by, t)
	})
}

// isAllowedOnlyWith reports whether a page is allowed only if it makes these claims.
func (c *cell) isAllowedOnlyWith(t *trial, claims ...string) bool {
	return !slices.ContainsFunc(t.turns, func(a turn) bool {
		return c.allows(t, a.answer) &&
			!slices.Equal(a.claims, claims)
	})
}

// isDeniedWithOwnClaim reports whether a page was denied when it claimed to be the publisher's.
func (c *cell) isDeniedWithOwnClaim(t *trial) bool {
	return slices.ContainsFunc(t.turns, func(a turn) bool {
		return slices.Equal(a.claims, []string{c.own}) && !a.isSimple && !c.allows(t, a.answer)
	})
}

// needsOwnClaim reports whether a page is allowed only if it claims to be the publisher's.
func (c *cell) needsOwnClaim(t *trial) bool {
	isAllowed, isDenied := false, false
	for _, a := range t.turns {
		isOwn, allows := slices.Equal(a.claims, []string{c.own}), c.allows(t, a.answer)
		isAllowed = isAllowed || isOwn && allows
		isDenied = isDenied || !isOwn && len(a.claims) > 0 && !allows
	}
	return isAllowed && isDenied
}
