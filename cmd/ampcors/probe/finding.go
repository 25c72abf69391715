package probe

import (
	"fmt"
	"slices"
	"strings"
)

// A Severity says how severe a finding is.
type Severity string

const (
	High   Severity = "high"   // pages fail for every reader, or any site can read or send with the reader's cookies
	Medium Severity = "medium" // pages fail in some cases, or attacks are possible in some cases
	Low    Severity = "low"    // pages may break later
)

// severities are in ascending order.
var severities = []Severity{Low, Medium, High}

// AtLeast reports whether s is at least as severe as other.
func (s Severity) AtLeast(other Severity) bool {
	return slices.Index(severities, s) >= slices.Index(severities, other)
}

// ParseSeverity returns the severity with this name.
func ParseSeverity(name string) (Severity, error) {
	if s := Severity(name); slices.Contains(severities, s) {
		return s, nil
	}
	return "", fmt.Errorf("%q is not a severity; want low, medium or high", name)
}

// A Finding is a problem of an endpoint.
type Finding struct {
	ID       string   `json:"id"` // its meaning never changes
	Severity Severity `json:"severity"`
	Endpoint string   `json:"endpoint"` // its URL
	Origin   string   `json:"origin"`   // of the page; the first, if the finding is about several
	Request  string   `json:"request"`  // its method and URL
	Title    string   `json:"title"`
	Evidence string   `json:"evidence"` // what the server answered, and what a browser does then
	Remedy   string   `json:"remedy"`
	Curl     string   `json:"curl"` // a command line that repeats the request, without secrets
}

// A kind is what all findings with one id have in common.
type kind struct {
	id       string
	severity Severity
	title    string
	remedy   string // %[1]s is the page's origin
}

const (
	echo  = "Send Access-Control-Allow-Origin with exactly the value of Origin, here %[1]s, if the page's publisher is allowed."
	deny  = "Compare the publisher, and not the end of the Origin: reverse the cache origin into the publisher's domain and look that up. ampcors in front of the API does this."
	exact = "Compare the whole Origin with the allowed origins. Do not compare only a prefix or a suffix. A regular expression needs ^, $ and escaped dots."
)

// kinds are all kinds of findings.
var kinds = []kind{
	// The endpoint does not work.
	{"acao-missing", High, "the answer has no Access-Control-Allow-Origin", echo},
	{"acao-mismatch", High, "Access-Control-Allow-Origin is not the origin of the page", echo},
	{"acao-bare-cache", High, "Access-Control-Allow-Origin has the bare domain of an AMP Cache", "No page runs there: each publisher has an origin of its own on a cache. " + echo},
	{"acao-pattern", High, "Access-Control-Allow-Origin has a pattern or a list", "Browsers accept one origin or *, and compare it exactly. " + echo},
	{"acao-duplicate", High, "there are several Access-Control-Allow-Origin headers", "Set the header in one place: in the application or in the server, not in both."},
	{"acao-source-origin", High, "Access-Control-Allow-Origin has the publisher's own origin, not that of the page", "A page on a cache does not run at the site's own origin, which __amp_source_origin has. " + echo},
	{"acac-missing", High, "there is no Access-Control-Allow-Credentials", "The request has the reader's cookies. Send Access-Control-Allow-Credentials: true together with Access-Control-Allow-Origin: %[1]s."},
	{"acac-invalid", High, "Access-Control-Allow-Credentials is not true", "Send exactly Access-Control-Allow-Credentials: true, in lower case."},
	{"wildcard-with-credentials", High, "Access-Control-Allow-Origin is * for a request with credentials", "Browsers reject * for requests with cookies. " + echo + " Send Access-Control-Allow-Credentials: true with it."},
	{"vary-missing", Medium, "the answer depends on Origin, and has no Vary: Origin", "Send Vary: Origin with every answer, so that no cache gives one publisher's answer to another."},
	{"cached-wrong-origin", High, "a cache in between gives the answer for one origin to another", "Send Vary: Origin with every answer, even if the request has no Origin. Configure the CDN to follow Vary, to put Origin into the cache key, or not to cache."},
	{"expose-missing", Medium, "AMP-Redirect-To is not exposed", "Send Access-Control-Expose-Headers: AMP-Redirect-To."},
	{"preflight-failed", High, "the answer to the preflight fails the CORS check, or has an error status", "Before routing and authentication, answer OPTIONS with status 204, Access-Control-Allow-Origin: %[1]s, Access-Control-Allow-Methods: POST, Access-Control-Allow-Headers: content-type and, if the request has cookies, Access-Control-Allow-Credentials: true."},
	{"preflight-redirected", High, "the preflight is redirected", "Browsers do not follow redirects of preflights. In the document, use the URL to which the redirect leads, or answer OPTIONS before the redirect."},
	{"preflight-incomplete", High, "the preflight does not grant what the page asks for", "Grant the method in Access-Control-Allow-Methods, and the headers in Access-Control-Allow-Headers."},
	{"error-without-cors", Medium, "an error has no CORS headers", "Send the CORS headers with every status, so that the page can read the error. In nginx: add_header … always."},
	{"redirect-without-cors", High, "a redirect, or the answer after it, has no valid CORS headers", "Send the CORS headers with each redirect and the answer after it, or use the URL to which the redirect leads in the document. After a redirect to another origin, browsers send Origin: null."},
	{"http-error", Medium, "the endpoint answers with an error", "The runtime wants a status of 2xx."},
	{"not-json", Medium, "the answer is not JSON", "The component reads JSON. Send JSON even if the list is empty."},
	{"not-script", Medium, "the answer is not JavaScript", "amp-script wants a JavaScript Content-Type, such as text/javascript."},
	{"hash-origin-refused", Medium, "the origin with the hash prefix is denied", "Some caches use the hash prefix, and all caches use it for long names. Allow %[1]s, too."},
	{"punycode-origin-refused", Medium, "the origin with the punycode prefix is denied", "Allow %[1]s, too: the prefix of an internationalized name is punycode."},
	{"own-origin-refused", High, "the publisher's own origin is denied", "The page also runs at the publisher's own origin. Allow %[1]s, too."},
	{"cache-refused", High, "the publisher's page is denied on a cache", "Allow the publisher's origin on each AMP Cache, here %[1]s."},

	// The endpoint allows other sites.
	{"any-origin-allowed", High, "any website can read answers with the reader's cookies", "The backend repeats whatever Origin it gets. Allow only the origins of publishers. " + deny},
	{"any-publisher-allowed", High, "every publisher on an AMP Cache can read answers with the reader's cookies", "Anyone's page can be on a cache. " + deny},
	{"lookalike-allowed", High, "a look-alike of an allowed origin is allowed", exact},
	{"null-allowed", High, "Origin null is allowed", "Every sandboxed frame of every website sends null. Never allow it."},
	{"http-allowed", Medium, "an origin with http is allowed", "Anyone on the reader's network can change a page over http. Allow only https."},
	{"source-origin-trusted", High, "__amp_source_origin decides who may read", "Every page can send any value of __amp_source_origin. Decide only by Origin."},
	{"same-origin-header-trusted", High, "AMP-Same-Origin overrides Origin", "Use AMP-Same-Origin only if there is no Origin."},
	{"same-origin-granted", Medium, "a page on a cache is allowed to send AMP-Same-Origin", "Remove amp-same-origin from Access-Control-Allow-Headers for cache origins. With this header, a page could claim to be at the API's own origin."},
	{"dead-cache-allowed", Medium, "the domain of a former AMP Cache is allowed", "A domain can change hands. Allow only the caches in the registry, https://cdn.ampproject.org/caches.json."},
	{"unsafe-reaches-handler", High, "a forged POST is not denied", "Browsers send simple POSTs with cookies and without a preflight. Answer 403 to an Origin that is not allowed, before the handler."},
}

// IDs returns the ids that findings can have.
func IDs() (ids []string) {
	for _, k := range kinds {
		ids = append(ids, k.id)
	}
	return ids
}

// newFinding returns a finding of a kind. It panics if there is no such kind.
func (p *prober) newFinding(id string, e *Endpoint, origin, evidence string, r request) Finding {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.id == id })
	k := kinds[i]
	remedy := k.remedy
	if strings.Contains(remedy, "%[1]s") {
		remedy = fmt.Sprintf(remedy, origin)
	}
	return Finding{ID: id, Severity: k.severity, Endpoint: e.URL, Origin: origin, Request: r.method + " " + r.url, Title: k.title, Evidence: evidence, Remedy: remedy, Curl: p.curl(r)}
}
