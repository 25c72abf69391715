package proof

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/net/publicsuffix"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
	"github.com/ampcors/ampcors/internal/mwtest"
)

// This file is an oracle: a second, slow and simple implementation of the decision on an
// origin. Most of its names begin with "plain". It is written from the AMP document, RFC
// 3492 and the rules in doc.go, and not from the code that it checks. That code reads a
// prefix from left to right. This one searches for every domain that gives the prefix, and
// wants exactly one.

// rfc3492Decode decodes punycode without the "xn--", after RFC 3492 section 6.2.
func rfc3492Decode(s string) (text []rune, ok bool) {
	if at := strings.LastIndexByte(s, '-'); at >= 0 {
		text, s = []rune(s[:at]), s[at+1:]
	}
	n, i, bias, first := 128, 0, 72, true
	for len(s) > 0 {
		old, w := i, 1
		for k := 36; ; k += 36 {
			if len(s) == 0 {
				return nil, false
			}
			digit := strings.IndexByte("abcdefghijklmnopqrstuvwxyz0123456789", s[0])
			s = s[1:]
			if digit < 0 || digit > (math.MaxInt32-i)/w {
				return nil, false
			}
			i += digit * w
			t := min(max(k-bias, 1), 26)
			if digit < t {
				break
			}
			w *= 36 - t
			if w > math.MaxInt32 {
				return nil, false
			}
		}
		bias = rfc3492Adapt(i-old, len(text)+1, first)
		first = false
		n += i / (len(text) + 1)
		i %= len(text) + 1
		if n > utf8.MaxRune { // but surrogates are decoded
			return nil, false
		}
		text = slices.Insert(text, i, rune(n))
		i++
	}
	return text, true
}

// rfc3492Encode is section 6.3, without the "xn--".
func rfc3492Encode(text []rune) string {
	var out []byte
	for _, r := range text {
		if r < 128 {
			out = append(out, byte(r))
		}
	}
	basic := len(out)
	handled := basic
	if basic > 0 {
		out = append(out, '-')
	}
	n, delta, bias := rune(128), 0, 72
	for handled < len(text) {
		next := rune(math.MaxInt32)
		for _, r := range text {
			if r >= n && r < next {
				next = r
			}
		}
		delta += int(next-n) * (handled + 1)
		n = next
		for _, r := range text {
			if r < n {
				delta++
			}
			if r != n {
				continue
			}
			q := delta
			for k := 36; ; k += 36 {
				t := min(max(k-bias, 1), 26)
				if q < t {
					break
				}
				out = append(out, "abcdefghijklmnopqrstuvwxyz0123456789"[t+(q-t)%(36-t)])
				q = (q - t) / (36 - t)
			}
			out = append(out, "abcdefghijklmnopqrstuvwxyz0123456789"[q])
			bias = rfc3492Adapt(delta, handled+1, handled == basic)
			delta = 0
			handled++
		}
		delta++
		n++
	}
	return string(out)
}

func rfc3492Adapt(delta, points int, first bool) int {
	if first {
		delta /= 700
	} else {
		delta /= 2
	}
	delta += delta / points
	k := 0
	for delta > 35*26/2 {
		delta /= 35
		k += 36
	}
	return k + 36*delta/(delta+38)
}

func plainToASCII(label string) string {
	if isASCII(label) {
		return label
	}
	return "xn--" + rfc3492Encode([]rune(label))
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 128 })
}

var (
	plainLabel  = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?$`)
	plainNumber = regexp.MustCompile(`^([0-9]+|0x[0-9a-f]*)$`)
)

// plainDomain returns the ASCII form of a domain in Unicode, or "" if it is not one
// that a publisher can have.
func plainDomain(unicode string) string {
	labels := strings.Split(unicode, ".")
	for i, label := range labels {
		basic := strings.Map(func(r rune) rune { // each non-ASCII letter counts as an "e"
			if r >= 128 {
				return 'e'
			}
			return r
		}, label)
		if !plainLabel.MatchString(basic) || strings.HasPrefix(label, "xn--") {
			return ""
		}
		if labels[i] = plainToASCII(label); len(labels[i]) > 63 {
			return ""
		}
	}
	domain := strings.Join(labels, ".")
	if len(labels) < 2 || len(domain) > 253 || plainNumber.MatchString(labels[len(labels)-1]) {
		return ""
	}
	return domain
}

// plainText returns the Unicode form of a domain in ASCII that has valid A-labels.
func plainText(domain string) string {
	labels := strings.Split(domain, ".")
	for i, label := range labels {
		if code, ok := strings.CutPrefix(label, "xn--"); ok {
			text, _ := rfc3492Decode(code)
			labels[i] = string(text)
		}
	}
	return strings.Join(labels, ".")
}

// plainParse returns the ASCII form of a lower-case domain that may have A-labels.
func plainParse(host string) string {
	labels := strings.Split(host, ".")
	for i, label := range labels {
		if code, ok := strings.CutPrefix(label, "xn--"); ok {
			text, ok := rfc3492Decode(code)
			if !ok || isASCII(string(text)) {
				return ""
			}
			labels[i] = string(text)
		}
	}
	domain := plainDomain(strings.Join(labels, "."))
	if isASCII(host) && domain != host {
		return "" // not canonical
	}
	return domain
}

// plainSources returns all publisher domains, in ASCII, whose Unicode form gives
// the text when "-" becomes "--" and then "." becomes "-".
func plainSources(text string) (domains []string) {
	var search func(done, rest string)
	search = func(done, rest string) {
		if rest == "" {
			if d := plainDomain(done); d != "" {
				domains = append(domains, d)
			}
			return
		}
		// No domain has these. Returning early keeps the search small.
		if strings.HasPrefix(done, ".") || strings.HasPrefix(done, "-") {
			return
		}
		for _, bad := range []string{"..", ".-", "-."} {
			if strings.HasSuffix(done, bad) {
				return
			}
		}
		if strings.HasPrefix(rest, "--") {
			search(done+"-", rest[2:])
		}
		if rest[0] == '-' {
			search(done+".", rest[1:])
			return
		}
		_, size := utf8.DecodeRuneInString(rest)
		search(done+rest[:size], rest[size:])
	}
	search("", text)
	return domains
}

func plainHyphens34(s string) bool {
	r := []rune(s)
	return len(r) >= 4 && string(r[2:4]) == "--"
}

// plainReverse returns the one publisher domain of a prefix with a dash, or "".
func plainReverse(t testing.TB, prefix string) string {
	if len(prefix) > 63 || !strings.Contains(prefix, "-") || strings.Contains(prefix, ".") || !isASCII(prefix) {
		return ""
	}
	inside, wrapped := "", false
	if len(prefix) > 4 && prefix[:2] == "0-" && prefix[len(prefix)-2:] == "-0" {
		inside, wrapped = prefix[2:len(prefix)-2], true
	}
	var domains []string
	if !plainHyphens34(prefix) {
		domains = plainSources(prefix)
	}
	if wrapped && plainHyphens34(inside) {
		domains = append(domains, plainSources(inside)...)
	}

	if code, ok := strings.CutPrefix(prefix, "xn--"); ok {
		text, ok := rfc3492Decode(code)
		s := string(text)
		inside := s
		if strings.HasPrefix(s, "0-") && strings.HasSuffix(s, "-0") && len(s) > 4 && !plainEdgeHyphen(s[2:len(s)-2]) {
			inside = s[2 : len(s)-2]
		}
		hasDot := strings.Contains(strings.ReplaceAll(inside, "--", ""), "-")
		switch {
		case !ok || isASCII(s) || !hasDot || plainIsAmbiguous(prefix) && !plainEndsInTLD(plainDots.Replace(inside)):
			domains = plainSources(prefix) // "xn-shop.com", left unwrapped
		case plainIsAmbiguous(prefix):
			domains = nil
		case rfc3492Encode(text) != code || slices.ContainsFunc(text, utf16.IsSurrogate) || strings.HasPrefix(s, "xn--"):
			domains = nil // not canonical, not Unicode, or the text itself begins with "xn--"
		default:
			domains = plainSources(s)
			if strings.HasPrefix(s, "0-") && strings.HasSuffix(s, "-0") && len(s) > 4 {
				domains = append(domains, plainSources(s[2:len(s)-2])...)
			}
		}
	}
	if len(domains) > 1 {
		t.Fatalf("%q is the prefix of %q: the rules are ambiguous", prefix, domains)
	}
	if len(domains) == 0 {
		return ""
	}
	return domains[0]
}

// plainLastLabel matches a prefix that ends in a dot, which is an odd number of dashes, and one
// more label.
var plainLastLabel = regexp.MustCompile(`[^-](?:--)*-([^-]+)$`)

// plainEdgeHyphen reports whether a dash is at an edge of a text.
func plainEdgeHyphen(text string) bool {
	return strings.HasPrefix(text, "-") || strings.HasSuffix(text, "-")
}

// plainDots reads the dashes of a prefix.
var plainDots = strings.NewReplacer("--", "-", "-", ".")

// plainEndsInTLD reports whether a host could be on the Internet: its last label is a top-level domain of
// the Public Suffix List.
func plainEndsInTLD(host string) bool {
	labels := strings.Split(host, ".")
	_, isICANN := publicsuffix.PublicSuffix("example." + plainToASCII(labels[len(labels)-1]))
	return isICANN
}

// plainUndecoded matches a prefix that has an A-label if it is read without decoding it. No host gets
// such a prefix, because the algorithm decodes it.
var plainUndecoded = regexp.MustCompile(`(^|[^-](?:--)*-)xn----`)

// plainIsAmbiguous reports whether a prefix that begins with "xn--" is, without decoding it, that
// of a host below a top-level domain of the Public Suffix List.
func plainIsAmbiguous(prefix string) bool {
	last := plainLastLabel.FindStringSubmatch(prefix)
	if last == nil || plainUndecoded.MatchString(prefix) {
		return false
	}
	_, isICANN := publicsuffix.PublicSuffix("example." + last[1])
	return isICANN
}

// plainHash is the fallback algorithm.
func plainHash(domain string) string { return mwtest.Hash(domain) }

// An oracleConfig is what the oracle needs to know of a Config.
type oracleConfig struct {
	domains []string // exact, in ASCII
	bases   []string // of the patterns
	origins []string
}

func oracleConfigOf(cfg ampcors.Config) (c oracleConfig) {
	for _, p := range cfg.Publishers {
		if base, ok := strings.CutPrefix(p, "*."); ok {
			ascii := strings.Split(base, ".")
			for i := range ascii {
				ascii[i] = plainToASCII(ascii[i])
			}
			c.bases = append(c.bases, strings.Join(ascii, "."))
		} else {
			c.domains = append(c.domains, plainParse(p))
		}
	}
	c.origins = cfg.Origins
	return c
}

func (c oracleConfig) allows(domain string) bool {
	if slices.Contains(c.domains, domain) {
		return true
	}
	if plainIsReserved(domain) {
		return false
	}
	for _, base := range c.bases {
		if strings.HasSuffix(domain, "."+base) {
			return true
		}
	}
	return false
}

// plainIsReserved reports whether a host is reserved for AMP Caches or their frames.
func plainIsReserved(host string) bool {
	for _, cache := range cacheurl.DefaultCaches() {
		for _, below := range []string{cache.CacheDomain, cache.ThirdPartyFrameDomainSuffix} {
			if host == below || strings.HasSuffix(host, "."+below) {
				return true
			}
		}
	}
	return false
}

var plainCacheOrigin = regexp.MustCompile(`^https://([^.]+)\.([^/:]+)$`)

// plainCheckOrigin decides on an Origin value, and names the publisher and the
// cache if it is allowed.
func plainCheckOrigin(t testing.TB, c oracleConfig, origin string) (allowed bool, publisher, cache string) {
	if slices.Contains(c.origins, origin) {
		return true, "", ""
	}
	ids := make(map[string]string)
	for _, c := range cacheurl.DefaultCaches() {
		ids[c.CacheDomain] = c.ID
	}
	if m := plainCacheOrigin.FindStringSubmatch(origin); m != nil && ids[m[2]] != "" {
		cache = ids[m[2]]
		for _, d := range c.domains {
			if m[1] == plainHash(d) {
				return true, d, cache
			}
		}
		if d := plainReverse(t, m[1]); d != "" && c.allows(d) {
			return true, d, cache
		}
		return false, "", ""
	}
	host, ok := strings.CutPrefix(origin, "https://")
	if !ok || !isASCII(host) || !c.allows(host) {
		return false, "", ""
	}
	if plainParse(host) != host {
		return false, "", ""
	}
	return true, host, ""
}

// isLeftAsXN reports whether form is one that AMP Toolbox leaves unwrapped because the host begins with
// "xn-". Such a form is either accepted for the host, or is punycode of another domain.
func isLeftAsXN(host, form string) bool {
	return strings.HasPrefix(host, "xn-") && strings.HasPrefix(form, "xn--")
}

// Each of these functions returns the prefix that an implementation gives a host in
// Unicode, as its public behavior shows.

func formDocument(host string) string {
	text := strings.ReplaceAll(strings.ReplaceAll(host, "-", "--"), ".", "-")
	if plainHyphens34(text) {
		text = "0-" + text + "-0"
	}
	return plainToASCII(text)
}

// formToolbox counts positions after encoding, and does not wrap what begins with xn.
func formToolbox(host string) string {
	prefix := plainToASCII(strings.ReplaceAll(strings.ReplaceAll(host, "-", "--"), ".", "-"))
	if plainHyphens34(prefix) && prefix[:2] != "xn" {
		prefix = "0-" + prefix + "-0"
	}
	return prefix
}

// formAmppackager counts bytes. It wraps what begins with xn or not, as formDocument and formToolbox do.
func formAmppackager(host string) string {
	text := strings.ReplaceAll(strings.ReplaceAll(host, "-", "--"), ".", "-")
	if len(text) >= 4 && text[2:4] == "--" && text[:2] != "xn" {
		text = "0-" + text + "-0"
	}
	return plainToASCII(text)
}

// checkForms fails unless the domain's own prefix and each form that an implementation
// gives it are accepted for this domain. It returns the readable ones.
func checkForms(t testing.TB, domain string) (accepted []string) {
	text := plainText(domain)
	prefix, err := cacheurl.DomainPrefix(domain)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(prefix, "-") && prefix != plainHash(domain) {
		t.Fatalf("%q has the prefix %q, which is neither readable nor its hash", domain, prefix)
	}
	for _, form := range []string{prefix, formDocument(text), formToolbox(text), formAmppackager(text)} {
		if !strings.Contains(form, "-") || len(form) > 63 {
			continue
		}
		got, err := cacheurl.PublisherDomain(form)
		if plainIsAmbiguous(form) && (err != nil && strings.Contains(err.Error(), "is also the prefix of another host") ||
			!plainEndsInTLD(text)) {
			continue // no cache can fetch a page of a host without a top-level domain
		}
		if form != prefix && isLeftAsXN(text, form) && (got == "" || strings.Contains(got, "xn--")) {
			continue // conformance/domains.json shows what these mean
		}
		if got != domain {
			t.Fatalf("an implementation writes %q as %q, which reverses to %q (%v)", domain, form, got, err)
		}
		accepted = append(accepted, form)
	}
	return accepted
}
