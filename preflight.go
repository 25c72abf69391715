package ampcors

import (
	"slices"
	"strings"

	"github.com/ampcors/ampcors/internal/domains"
)

// An asked is what an allowed caller's preflight asks for. It is zero for any other request.
type asked struct {
	denial       Reason // why the preflight is denied, or 0
	deniedHeader string // the first name that is not allowed; "" if there are too many bytes
	headers      string // that are granted, as the preflight lists them
}

func (a *asked) check(p *policy, c *caller, isOwnOrigin bool) {
	if !slices.Contains(p.methods, c.method) { // in a list, because a map would hash a method of any length
		a.denial = ReasonMethodNotAllowed
		return
	}
	a.checkHeaders(p, c.requestHeaders(), isOwnOrigin)
}

// checkHeaders checks the lines of Access-Control-Request-Headers. Proxies rewrite that list, so that
// it may have several lines, spaces, empty elements and any case. It may have at most twice the bytes of a
// list of all allowed names, plus the bytes of AMP-Same-Origin: see compile.
//
// AMP pages send AMP-Same-Origin to their own origin. If that redirects the request, such
// as from the apex to www, the preflight asks for the header. A cache's page must never get
// it: it could then claim to be a page of the API's own origin.
func (a *asked) checkHeaders(p *policy, lines []string, isOwnOrigin bool) {
	left := p.maxRequestHeaderBytes
	for _, line := range lines {
		if left -= len(line) + 1; left < 0 {
			a.denial = ReasonHeaderNotAllowed
			return
		}
		if _, ok := p.requestHeaders[line]; ok {
			continue // one name as browsers write it, which is what most ask for
		}
		for name := range strings.SplitSeq(line, ",") {
			name = strings.Trim(name, " \t")
			if name == "" {
				continue
			}
			lower := strings.ToLower(name)
			_, ok := p.requestHeaders[lower]
			if !domains.IsASCII(name) || !ok && !(isOwnOrigin && lower == ampSameOrigin) { // ToLower maps some non-ASCII letters to ASCII
				a.denial, a.deniedHeader = ReasonHeaderNotAllowed, name
				return
			}
		}
	}
	// Kept, so that Config.Observe cannot change what was checked.
	a.headers = strings.Join(lines, ",")
}
