package probe

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Severity ranks findings.
type Severity string

const (
	// Browsers block pages of every reader, or any site can read or send with the reader's cookies.
	High   Severity = "high"
	Medium Severity = "medium" // pages fail in some cases or by a wrong answer, or attacks are possible in some cases
	Low    Severity = "low"    // nobody can use it today, or it may be intended
)

// severities are in ascending order.
var severities = []Severity{Low, Medium, High}

// AtLeast reports whether s is at least as severe as other.
func (s Severity) AtLeast(other Severity) bool {
	return slices.Index(severities, s) >= slices.Index(severities, other)
}

// A Finding is a problem of an endpoint.
type Finding struct {
	ID        ID       `json:"id"`
	Severity  Severity `json:"severity"`
	Endpoint  string   `json:"endpoint"` // its URL
	Method    string   `json:"method"`
	Call      string   `json:"call"`                // how pages call it: see [Endpoint.Call]
	Publisher string   `json:"publisher,omitempty"` // whose pages were tested; empty if Sender is set
	Sender    string   `json:"sender,omitempty"`    // whose emails were tested
	Origin    string   `json:"origin"`              // of the page; the first of Origins
	Origins   []string `json:"origins"`             // of all trials that show it; "" is a program that sends none
	Request   string   `json:"request"`             // its method and URL
	Title     string   `json:"title"`
	Evidence  []string `json:"evidence"` // what the server answered, and what a browser does then; in lines
	Remedy    string   `json:"remedy"`
	Curl      string   `json:"curl"`            // a command line that repeats the request, without secrets
	Known     bool     `json:"known,omitempty"` // set by [Report.Know]

	isElsewhere bool // the cause is not in the CORS headers that the backend sends, so that advice on these would mislead
}

// Subject returns who must be able to call: the publisher's domain, or the sender's address.
func (f Finding) Subject() string { return f.Publisher + f.Sender }

// Know marks the findings that are known, for example because they are accepted for now. High, Medium and Low of the
// summary do not count them.
func (r *Report) Know(isKnown func(Finding) bool) {
	r.Summary.High, r.Summary.Medium, r.Summary.Low = 0, 0, 0
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Known = isKnown(*f)
		switch {
		case f.Known:
		case f.Severity == High:
			r.Summary.High++
		case f.Severity == Medium:
			r.Summary.Medium++
		default:
			r.Summary.Low++
		}
	}
}

// IDs returns the ids that findings can have.
func IDs() (ids []ID) {
	for _, r := range rules {
		if r.severity != "" {
			ids = append(ids, r.id)
		}
	}
	return ids
}

// findings makes one finding of all trials of a cell that have the same cause.
func (c *cell) findings() (findings []Finding) {
	_, isCached := c.cacheInFront()
	for _, r := range rules {
		var origins []string
		var first *blame
		var of *trial
		for _, t := range c.trials {
			i := slices.Index(t.Causes, r.id)
			if i < 0 || t.Outcome != Problem {
				continue
			}
			if first == nil || of.rule.id != r.id && t.rule.id == r.id { // one that the rule is about says most
				first, of = &t.blames[i], t
				origins = slices.Insert(slices.DeleteFunc(origins, func(o string) bool { return o == t.origin }), 0, t.origin)
			} else if !slices.Contains(origins, t.origin) {
				origins = append(origins, t.origin)
			}
		}
		if first != nil {
			findings = append(findings, c.finding(r, origins, of, first))
		} else if r.id == AnswersDiffer && c.differs != nil && !isCached { // a cache in front would explain it
			request, resp := c.differs.last()
			findings = append(findings, c.newFinding(r, []string{request.origin},
				append(c.p.client.describe(request, resp), "The same request had other CORS headers at another time."), request))
		}
	}
	return findings
}

// finding makes a finding of the trials at some origins, of which t is the first.
func (c *cell) finding(r rule, origins []string, t *trial, b *blame) Finding {
	request, resp := b.shown.last()
	evidence := c.p.client.describe(request, resp)
	add := func(line string) { evidence = append(evidence, line) }
	switch why := b.shown.why(); {
	case t.Kind.IsEmail(), r.id == SameOriginHeaderPreferred: // the remark says it
	case t.Kind.IsHostile() && b.shown.isReadable():
		add("A browser lets that page read the answer.")
		if strings.HasPrefix(t.origin, "http://") && strings.HasSuffix(t.origin, ".cdn.ampproject.org") {
			add("(Chromium uses https for hosts of this cache by itself; other browsers do not.)")
		}
	case !t.Kind.IsHostile() && why != nil:
		add("A browser blocks it: " + why.Error() + ".")
	}
	if said := denialText(resp); said != "" && !t.Kind.IsHostile() {
		add("Its body: " + c.p.client.clean(said))
	}
	if b.remark != "" {
		add("Note: " + b.remark + ".")
	}
	reason := ownReason(resp)
	if reason == "unknown_host" && t.Kind == KindEmails {
		reason = unknownClient
	}
	if lost := lostInPreflight(resp); lost != "" && request.method == http.MethodOptions {
		reason = lost
	}
	isOfAmpcors := false
	if own := ownRemedies[reason]; own != "" && !t.Kind.IsHostile() && r.id != CachedWrongOrigin && r.id != AnswersDiffer {
		r.remedy, isOfAmpcors = own, true
	}
	if r.id == ACAOMissing && strings.HasSuffix(b.remark, ofNoOrigin) {
		r.remedy = "Let the proxy in front of the backend pass the request header Origin. If none drops it: " + r.remedy
	}
	if r.id == PreflightIncomplete || r.id == PreflightFailed {
		if i := slices.IndexFunc(c.trials, func(t *trial) bool {
			return t.Kind.IsHostile() &&
				c.isOnlyPreflighted(t)
		}); i >= 0 {
			add("The preflight of " + c.trials[i].origin + ", which must be denied, is answered in the same way.")
			r.remedy = "First compare Origin with the list of allowed origins: this preflight is answered for other websites, " +
				"too, and whoever grants more to it opens the API to them. Then: " + r.remedy
		}
	}
	if r.id == AnyOriginAllowed && c.p.cfg.Cookie == "" {
		add("Whether the answers depend on cookies was not tested: --cookie compares them.")
	}
	if others := origins[1:]; len(others) > 0 {
		add("The same is true for " + list(others, 5) + ".")
	}
	if resp != nil && resp.Header.Get("Access-Control-Allow-Credentials") != "true" {
		r.title = strings.Replace(r.title, " with the reader's cookies", "", 1)
	}
	f := c.newFinding(r, origins, evidence, request)
	f.isElsewhere = isOfAmpcors || r.id == HTTPError || r.id == NotJSON || r.id == NotScript ||
		r.id == AnswersDiffer && reasonOf(resp) != "" || r.id == CachedWrongOrigin && variesByOrigin(resp.Header)
	return f
}

// denialText returns the body of an answer with status 4xx or 5xx in one line, because it often says why; "" if it
// is a page.
func denialText(resp *response) string {
	if resp == nil || resp.Status < 400 || !utf8.Valid(resp.Body) ||
		bytes.HasPrefix(bytes.TrimSpace(resp.Body), []byte("<")) {
		return ""
	}
	return fmt.Sprintf("%.200s", strings.Join(strings.Fields(string(resp.Body)), " "))
}

func (c *cell) newFinding(r rule, origins, evidence []string, shown request) Finding {
	policy := c.p.policy
	return Finding{ID: r.id, Severity: r.severity, Endpoint: c.e.URL, Method: c.e.Method, Call: c.e.Call(),
		Publisher: c.publisher, Sender: c.sender,
		Origin: origins[0], Origins: origins, Request: shown.method + " " + shown.url,
		Title: r.title, Evidence: evidence, Remedy: strings.NewReplacer("%[1]s", origins[0], "%[2]s", policy.Methods(),
			"%[3]s",
			policy.Headers()).Replace(r.remedy), Curl: c.p.curl(shown)}
}

// list names at most n of the items.
func list(items []string, n int) string {
	more := len(items) - n
	if more > 1 {
		return strings.Join(items[:n], ", ") + fmt.Sprintf(" and %d others", more)
	}
	if len(items) == 1 {
		return items[0]
	}
	return strings.Join(items[:len(items)-1], ", ") + " and " + items[len(items)-1]
}

// describe returns an answer in lines: what was asked and the status, and the headers that matter.
func (c *client) describe(r request, resp *response) (lines []string) {
	if resp == nil {
		return []string{r.method + " is not answered."}
	}
	lines = append(lines, fmt.Sprintf("%s is answered with status %d", r.method, resp.Status))
	for _, name := range []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials",
		"Access-Control-Allow-Methods",
		"Access-Control-Allow-Headers", "Access-Control-Expose-Headers", "AMP-Redirect-To", "Vary", "Location",
		"Content-Type", allowSender, sourceOrigin,
		"Age", "X-Cache", "X-Cache-Status", "X-Varnish", "CF-Cache-Status", "Via"} {
		for _, value := range resp.Header[http.CanonicalHeaderKey(name)] {
			lines = append(lines, fmt.Sprintf("%s: %.200s", name, c.clean(value)))
		}
	}
	return lines
}
