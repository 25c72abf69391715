package probe

import (
	"slices"
	"strings"
)

// This file finds the mistake behind the hostile pages that are allowed. Many of them can have one
// cause: a backend that allows every origin allows each look-alike as well.

// wide are the mistakes that let in more than the pages that they were found with.
type wide struct {
	anyOrigin    bool
	anyClaim     bool            // the backend allows the origin that the page claims
	ownClaim     bool            // the claim to be the publisher's is enough
	noClaim      bool            // no claim is enough
	referer      bool            // the publisher in the Referer is enough
	noReferer    bool            // no Referer is enough
	sameOrigin   bool            // AMP-Same-Origin is enough
	anyPublisher map[string]bool // domains of caches on which any publisher is allowed
	anyPrefix    map[string]bool // domains of caches on which any prefix like the publisher's is allowed
	beginnings   []string        // of origins, after which any text is allowed
}

// wideMistakes returns the wide mistakes of a backend, from the trials that show them.
func (c *cell) wideMistakes() wide {
	w := wide{anyPublisher: make(map[string]bool), anyPrefix: make(map[string]bool)}
	for _, t := range c.trials {
		if t.Outcome != Problem || t.steps[0].toRedirect { // which is a server of its own
			continue
		}
		_, domain, _ := strings.Cut(t.origin, ".")
		switch t.id {
		case AnyOriginAllowed:
			w.anyClaim = c.isDeniedWithOwnClaim(t) && t.remark == ""
			w.anyOrigin = !w.anyClaim && slices.Contains(t.Causes, t.id)
		case LookalikeAllowed:
			if origin, isLonger := strings.CutSuffix(t.origin, "."+evilHost); isLonger {
				w.beginnings = append(w.beginnings, origin)
			}
		case PrefixLookalikeAllowed:
			w.anyPrefix[domain] = true
		case AnyPublisherAllowed:
			w.anyPublisher[domain] = true
		case NoClaimAllowed:
			w.noClaim = w.noClaim || t.origin == evil
		case RefererTrusted:
			w.referer = true
		case NoRefererAllowed:
			w.noReferer = true
		case SameOriginHeaderTrusted:
			w.sameOrigin = true
		}
	}
	w.ownClaim = w.anyClaim || slices.ContainsFunc(c.trials, func(t *trial) bool {
		_, domain, _ := strings.Cut(t.origin, ".")
		return t.id == SourceOriginTrusted && t.Outcome == Problem && !w.anyPublisher[domain]
	})
	return w
}

// attribute gives hostile pages that are allowed because of the same mistake the same cause. isOpen is
// true if the answers are known not to depend on cookies.
func (c *cell) attribute(isOpen bool) {
	w := c.wideMistakes()
	trustsSameOrigin := slices.ContainsFunc(c.trials, func(t *trial) bool {
		return t.Outcome == Problem && (t.id == SameOriginHeaderTrusted || t.id == SameOriginHeaderPreferred)
	})
	for _, t := range c.trials {
		isRun := slices.Contains(t.Causes, UnsafeReachesHandler) || t.Kind == KindForged
		switch {
		case t.Outcome == Problem && t.id == SameOriginGranted && !trustsSameOrigin:
			t.Outcome, t.Causes = Fine, nil
			c.note("Pages on AMP Caches may send AMP-Same-Origin, as with many libraries. The backend was not seen to trust it, so that is harmless.")
		case !t.Kind.IsHostile() || t.Outcome != Problem || isRun || t.id == SameOriginGranted || t.steps[0].toRedirect:
		case t.id == ownHostAllowed && !w.anyOrigin && !(w.ownClaim && c.needsOwnClaim(t)):
			t.Outcome, t.Causes = Fine, nil
			c.note("Other hosts below " + c.publisher + " can read the answers, too. Nobody else should be able to run pages there.")
		case w.anyOrigin && isOpen:
			t.Causes = []ID{OpenToAll}
		default:
			t.Causes = []ID{c.cause(t, w)}
		}
	}
}

// cause returns the id of the finding for a hostile page that is allowed.
func (c *cell) cause(t *trial, w wide) ID {
	_, domain, _ := strings.Cut(t.origin, ".")
	isPrefix := t.id == PrefixLookalikeAllowed || t.id == NaivePrefixAllowed
	isLonger := slices.ContainsFunc(w.beginnings, func(origin string) bool { return strings.HasPrefix(t.origin, origin) })
	switch {
	case w.anyOrigin:
		return AnyOriginAllowed
	case w.anyClaim && c.isAllowedOnlyWith(t, t.origin), w.ownClaim && c.needsOwnClaim(t):
		return SourceOriginTrusted
	case w.noClaim && c.isAllowedOnlyWith(t):
		return NoClaimAllowed
	case w.sameOrigin && t.id == SameOriginHeaderPreferred:
		return SameOriginHeaderTrusted
	case w.anyPublisher[domain] && (t.Kind == KindClaims || t.Kind == KindPublishers || isPrefix):
		return AnyPublisherAllowed
	case w.anyPrefix[domain] && isPrefix:
		return PrefixLookalikeAllowed
	case w.noReferer && t.origin == "null":
		return NoRefererAllowed // browsers send none from there
	case w.referer && strings.HasPrefix(t.origin, c.own):
		return RefererTrusted // browsers send the page's own origin in it
	case isLonger && t.id == DeadCacheAllowed:
		return LookalikeAllowed
	}
	return t.id
}

// isAllowedOnlyWith reports whether a page is allowed only if it makes these claims.
func (c *cell) isAllowedOnlyWith(t *trial, claims ...string) bool {
	for i, a := range t.answers {
		if a.isReadable() && !slices.Equal(t.sent[i].claims, claims) {
			return false
		}
	}
	return true
}

// isDeniedWithOwnClaim reports whether a page was denied when it claimed to be the publisher's.
func (c *cell) isDeniedWithOwnClaim(t *trial) bool {
	for i, a := range t.answers {
		if slices.Equal(t.sent[i].claims, []string{c.own}) && !t.sent[i].isSimple && !a.isReadable() {
			return true
		}
	}
	return false
}

// needsOwnClaim reports whether a page is allowed only if it claims to be the publisher's.
func (c *cell) needsOwnClaim(t *trial) bool {
	allowed, denied := false, false
	for i, a := range t.answers {
		isOwn := slices.Equal(t.sent[i].claims, []string{c.own})
		allowed = allowed || isOwn && a.isReadable()
		denied = denied || !isOwn && len(t.sent[i].claims) > 0 && !a.isReadable()
	}
	return allowed && denied
}
