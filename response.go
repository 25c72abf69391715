package ampcors

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/ampcors/ampcors/internal/header"
)

// This file writes every header that this package writes.
//
// Each function makes one array for all values of a response, and uses slices of it without spare capacity: a
// handler that appends to one gets a copy, and one that overwrites one does not change other responses.

// respond writes what follows from a verdict, and reports whether the handler is to run.
func (p *policy) respond(v *verdict, w http.ResponseWriter, r *http.Request) (proceed bool) {
	h, vary := w.Header(), p.vary
	if v.caller.isOptions {
		vary = p.varyOptions
	}
	allowed := v.reason.Allowed()
	if !allowed && p.cfg.ReportOnly {
		addVary(h, []string{vary})
		return true
	}
	if len(h) > 0 {
		removeCORS(h)
	}
	switch {
	case !allowed:
		p.deny(v, w, r, vary)
		return false
	case v.isGrantedPreflight():
		p.grantPreflight(h, v, vary)
		w.WriteHeader(http.StatusNoContent)
		return false
	case v.reason.effect() == granted:
		p.grant(h, v.caller.origin, vary)
	case v.reason.effect() == grantedEmail:
		grantEmail(h, v, vary)
	default:
		addVary(h, []string{vary})
	}
	return true
}

// removeCORS removes the CORS headers that an outer handler set. The innermost policy decides all of them: an
// outer one may allow more, such as credentials.
func removeCORS(h http.Header) {
	for key := range h {
		if header.IsCORS(key) {
			delete(h, key)
		}
	}
}

// grant writes the headers of an allowed actual request.
func (p *policy) grant(h http.Header, origin, vary string) {
	vals := &[4]string{origin, vary, "true", p.exposed}
	addVary(h, vals[1:2:2])
	h["Access-Control-Allow-Origin"] = vals[0:1:1]
	if p.cfg.Credentialed {
		h["Access-Control-Allow-Credentials"] = vals[2:3:3]
	}
	if p.exposed != "" {
		h["Access-Control-Expose-Headers"] = vals[3:4:4]
	}
}

// grantPreflight writes the headers of an allowed preflight: what was asked for and no more, so that the answer
// does not show what else is allowed.
func (p *policy) grantPreflight(h http.Header, v *verdict, vary string) {
	vals := &[6]string{v.caller.origin, "true", v.caller.method, v.asked.headers, p.maxAge, vary}
	addVary(h, vals[5:6:6])
	h["Access-Control-Allow-Origin"] = vals[0:1:1]
	if p.cfg.Credentialed && v.reason != ReasonEmailV1 {
		h["Access-Control-Allow-Credentials"] = vals[1:2:2]
	}
	h["Access-Control-Allow-Methods"] = vals[2:3:3]
	if v.asked.headers != "" {
		h["Access-Control-Allow-Headers"] = vals[3:4:4]
	}
	if p.maxAge != "" {
		h["Access-Control-Max-Age"] = vals[4:5:5]
	}
}

// grantEmail writes the headers of the response to an allowed AMP for Email request.
func grantEmail(h http.Header, v *verdict, vary string) {
	vals := &[4]string{v.sender.address, vary, v.caller.origin, "AMP-Access-Control-Allow-Source-Origin"}
	addVary(h, vals[1:2:2])
	if v.reason == ReasonEmail {
		h["Amp-Email-Allow-Sender"] = vals[0:1:1]
		return
	}
	h["Amp-Access-Control-Allow-Source-Origin"] = vals[0:1:1]
	h["Access-Control-Allow-Origin"] = vals[2:3:3]
	h["Access-Control-Expose-Headers"] = vals[3:4:4]
}

// retryAfter is how many seconds a client is asked to wait if the Source fails: as long as a circuit breaker
// stays open.
const retryAfter = "1"

// deny answers a denied request, or calls Config.Denied to do it. No cache may keep the answer: anyone can
// trigger it.
func (p *policy) deny(v *verdict, w http.ResponseWriter, r *http.Request, vary string) {
	h, vals := w.Header(), &[4]string{vary, "no-store", "text/plain; charset=utf-8", "nosniff"}
	if len(h) > 0 {
		removeRepresentation(w, h)
	}
	addVary(h, vals[0:1:1])
	h["Cache-Control"] = vals[1:2:2]
	status := v.reason.statusCode()
	if status == http.StatusServiceUnavailable {
		h["Retry-After"] = []string{retryAfter}
	}
	if p.cfg.Denied != nil {
		p.cfg.Denied(w, r, v.decision())
		return
	}
	h["Content-Type"] = vals[2:3:3]
	h["X-Content-Type-Options"] = vals[3:4:4]
	w.WriteHeader(status)
	text := deniedText[v.reason]
	if v.reason == ReasonHeaderNotAllowed {
		text = headerDenial(v.asked.deniedHeader)
	}
	_, _ = w.Write(text) // an error means that the connection is broken
}

// removeRepresentation removes headers that an outer handler set for another response, or that let caches keep
// it.
func removeRepresentation(w http.ResponseWriter, h http.Header) {
	for key := range h {
		switch canonical := http.CanonicalHeaderKey(key); canonical {
		case "Accept-Ranges", "Content-Digest", "Content-Disposition", "Content-Language", "Content-Length",
			"Content-Location", "Content-Md5", "Content-Range", "Content-Type", "Digest", "Etag", "Expires",
			"Last-Modified", "Pragma", "Repr-Digest", "Surrogate-Control", "X-Accel-Expires":
			delete(h, key)
		case "Content-Encoding":
			// A ResponseWriter with Unwrap is that of an outer handler. It may compress the response, and may have set
			// this header for that.
			if _, isWrapped := w.(interface{ Unwrap() http.ResponseWriter }); !isWrapped {
				delete(h, key)
			}
		default:
			// CDN-Cache-Control and similar headers outrank Cache-Control, RFC 9213
			if strings.HasSuffix(canonical, "Cache-Control") {
				delete(h, key)
			}
		}
	}
}

// deniedText has the body of the denial for each reason. It is made in advance, so that a denial costs little
// more than an allowed request.
var deniedText = func() (text [numReasons][]byte) {
	for r := range text {
		hint := ""
		switch Reason(r) {
		case ReasonNoOriginUnsafe:
			hint = `; browsers send Origin, and the AMP runtime "AMP-Same-Origin: true" to its own host`
		case ReasonMethodNotAllowed:
			hint = "; the configuration lists those beyond GET, HEAD and POST in methods"
		}
		text[r] = []byte(http.StatusText(Reason(r).statusCode()) + ": " + Reason(r).String() + hint + "\n")
	}
	return text
}()

// headerDenial returns the body of the denial of a preflight that asks for a header that is not allowed.
func headerDenial(name string) []byte {
	text := strings.TrimSuffix(string(deniedText[ReasonHeaderNotAllowed]), "\n")
	switch {
	case name == "":
		text += "; Access-Control-Request-Headers is longer than what is allowed"
	case strings.EqualFold(name, ampSameOrigin):
		text += `: "amp-same-origin", which only own origins are granted; a page on an AMP Cache could claim with it to be ` +
			`the API's own`
	default:
		text += fmt.Sprintf(": %.80q; the configuration lists those beyond Content-Type in requestHeaders", name)
	}
	return []byte(text + "\n")
}

// addVary adds the members of vary[0] to Vary, so that no shared cache gives one publisher's answer to another.
// Members that are already there are kept, all in one line: nginx before 1.23 reads only the last line. The
// header keeps vary's memory.
func addVary(h http.Header, vary []string) {
	var before []string
	if len(h) > 0 {
		before = h["Vary"]
	}
	if len(before) == 0 {
		h["Vary"] = vary
		return
	}
	line := strings.Join(before, ", ")
	for member := range strings.SplitSeq(vary[0], ", ") {
		if !header.HasMember(before, member) {
			line += ", " + member
		}
	}
	vary[0] = line
	h["Vary"] = vary
}
