package ampcors

import (
	"fmt"
	"strings"
)

// An Explanation shows how an Origin value was decided, one step after another.
type Explanation struct {
	Decision Decision
	Steps    []Step // the last is the verdict; those that were not reached are missing
}

// A Step of an [Explanation]. Names are "scheme", "cache", "prefix", "unwrapped",
// "publisher", "allowlist" and "verdict".
type Step struct {
	Name   string
	OK     bool
	Value  string // what this step found in the Origin value
	Detail string // what that means, in a sentence
}

// Explain decides on an Origin value as [Middleware.CheckOrigin] does, by the same
// code, and tells how. It is for diagnostic pages and support, not for each request.
func (m *Middleware) Explain(origin string) Explanation {
	p := m.current()
	v := verdict{named: true}
	p.checkOrigin(&v, origin)
	e := Explanation{Decision: v.decision()}
	p.explainSteps(&v, func(name string, ok bool, value, detail string) {
		e.Steps = append(e.Steps, Step{name, ok, value, detail})
	})
	outcome := "Refused"
	if e.Decision.Allowed {
		outcome = "Allowed"
	}
	e.Steps = append(e.Steps, Step{"verdict", e.Decision.Allowed, outcome, "Reason: " + v.reason.String() + "."})
	return e
}

func (p *policy) explainSteps(v *verdict, step func(name string, ok bool, value, detail string)) {
	scheme, host, _ := strings.Cut(v.origin, "://")
	switch {
	case v.reason == ReasonExtraOrigin:
		step("allowlist", true, v.origin, "Listed as it is in Origins.")
		return
	case v.reason == ReasonNoEmailSender:
		step("allowlist", false, v.origin, "A mail client's. An email names its sender, and pages at this origin are not allowed.")
		return
	case v.reason == ReasonNull:
		step("scheme", false, v.origin, `Sandboxed frames and local files send "null"; anybody can.`)
		return
	case v.reason == ReasonNotHTTPS:
		step("scheme", false, scheme, "Only https keeps others on the network from changing the page.")
		return
	case host == "" || len(v.origin) > maxOrigin:
		step("scheme", false, "", fmt.Sprintf("An origin is a scheme, \"://\" and a host, of %d octets at most.", maxOrigin))
		return
	}
	step("scheme", true, scheme, "Accepted.")

	if v.cache == nil {
		if v.reason == ReasonMalformed {
			step("cache", false, host, "As a host name, this "+string(v.fault)+". An origin has no path and no user information, and here no port.")
			return
		}
		step("cache", true, "none", "Not below the domain of an AMP Cache that is trusted here, so it is read as a publisher's own origin.")
		f := v.fault
		if f == noFault {
			_, f = decodeDomain(host) // which a decision does only where a pattern covers the host
		}
		if f != noFault {
			step("publisher", false, host, "It cannot be a publisher: it "+string(f)+".")
			return
		}
		step("publisher", true, host, "The host is the publisher domain.")
		p.explainAllowlist(v, step)
		return
	}
	step("cache", true, v.cache.dotted[1:], fmt.Sprintf("The AMP Cache %q.", v.cache.id))

	switch {
	case v.fault == faultNoPrefix, v.fault == faultTwoLabels, v.fault == faultPrefixLength, v.fault == faultNotHash:
		step("prefix", false, v.prefix, "What stands before the cache domain "+string(v.fault)+".")
		return
	case isHashOnly(v.prefix):
		step("prefix", true, v.prefix, "No dash: this is a hash (fallback algorithm).")
		p.explainAllowlist(v, step)
		return
	}
	step("prefix", true, v.prefix, "It has a dash, so it can be reversed.")

	_, text, _ := reverse(nil, v.prefix)
	detail := "As it is: neither punycode nor wrapped in 0- and -0."
	switch {
	case !isASCII(text):
		detail = "Punycode decoded, and a 0- and -0 around it taken away if they were there."
	case text != v.prefix:
		detail = "The 0- and -0 around it taken away."
	case strings.HasPrefix(v.prefix, acePrefix):
		detail = "As it is: not canonical punycode of a name with a dot."
	}
	step("unwrapped", true, text, detail)

	if v.fault != noFault {
		step("publisher", false, "", "It does not stand for a publisher domain: it "+string(v.fault)+".")
		return
	}
	step("publisher", true, v.publisher, `Read from left to right: "--" is a hyphen, "-" is a dot.`)
	p.explainAllowlist(v, step)
}

func (p *policy) explainAllowlist(v *verdict, step func(name string, ok bool, value, detail string)) {
	_, listed := find(p.allowlist, v.publisher)
	switch {
	case v.reason == ReasonSourceUnavailable:
		step("allowlist", false, v.publisher, "Not in Publishers, and the Source could not tell: "+v.sourceErr.Error()+".")
	case v.reason == ReasonHashNotKnown && p.resolver != nil:
		step("allowlist", false, "", "It is the hash of no publisher that is listed exactly or that the Source knows. A pattern cannot match a hash.")
	case v.reason == ReasonHashNotKnown:
		step("allowlist", false, "", "It is the hash of no publisher that is listed exactly. A pattern cannot match a hash.")
	case !v.reason.allowed() && p.resolver != nil:
		step("allowlist", false, "", "Neither listed in Publishers nor covered by a pattern there, and the Source does not know it.")
	case !v.reason.allowed():
		step("allowlist", false, "", "Neither listed in Publishers nor covered by a pattern there.")
	case v.stale:
		step("allowlist", true, v.publisher, "Known to the Source when it could last tell. Now it could not: "+v.sourceErr.Error()+".")
	case v.reason == ReasonHashedCacheOrigin && !listed:
		step("allowlist", true, v.publisher, "The hash of this publisher, which the Source knows.")
	case v.reason == ReasonHashedCacheOrigin:
		step("allowlist", true, v.publisher, "The hash of this publisher, which is listed in Publishers.")
	case listed:
		step("allowlist", true, v.publisher, "Listed in Publishers.")
	case !covers(p.allowlist, v.publisher):
		step("allowlist", true, v.publisher, "Known to the Source.")
	default:
		step("allowlist", true, v.publisher, "Covered by a pattern in Publishers.")
	}
}
