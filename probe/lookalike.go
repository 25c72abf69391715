package probe

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
	"golang.org/x/text/unicode/norm"

	"github.com/ampcors/ampcors/cacheurl"
)

// lookalikes returns domains that others can register, and that a wrong comparison takes for the host.
// ofPatterns are domains that a regular expression takes for it, or a comparison of the end or the
// beginning. ofFunctions are domains that replace, strip and the like turn into the host, or in which a
// search finds it. The prefix of a look-alike is taken for the host's prefix in the same way, because
// it has dashes where the host has dots.
func lookalikes(host string) (ofPatterns, ofFunctions []string) {
	own := site(host)
	host, _ = idna.ToUnicode(host) // the caller has made it from Unicode
	registrable, _ := idna.ToUnicode(own)
	name, suffix, _ := strings.Cut(registrable, ".")
	last := strings.LastIndexByte(host, '.') + 1
	_, first := utf8.DecodeRuneInString(registrable)

	below := strings.TrimSuffix(host, registrable)
	label, _, _ := strings.Cut(cmp.Or(below, "www."), ".") // which is optional somewhere

	ofPatterns = append(behind(host), "evil"+registrable, "evil-"+registrable, label+"x"+registrable,
		// an ending that few publishers have as well
		below+other(name, "evilprobe")+"."+suffix, host[:last]+other(host[last:], "cam"))
	ofPatterns = append(ofPatterns, replaceEach(host, '.', "x")...) // a dot that is not escaped

	ofFunctions = []string{
		registrable[first:], // lstrip, or a list that is one text
		registrable[:first] + label + "." + registrable[first:], // replace("www.", "")
		label + registrable, "s" + registrable, strings.ReplaceAll(suffix, ".", "") + registrable, // lstrip
		strings.NewReplacer("ä", "ae", "ö", "oe", "ü", "ue", "ß", "ss").Replace(host), // names that are transliterated
		strings.Map(func(r rune) rune { // a database that ignores accents
			if unicode.Is(unicode.Mn, r) {
				return -1
			}
			return r
		}, norm.NFD.String(host)),
	}
	for _, cut := range []string{host[:len(host)-1], host[:max(0, last-1)]} { // rstrip, or a list that is one text
		if end, isKnown := publicsuffix.PublicSuffix(cut); isKnown || strings.Contains(end, ".") {
			ofFunctions = append(ofFunctions, cut)
		}
	}
	// their prefixes are decoded wrongly
	ofFunctions = slices.Concat(ofFunctions, replaceEach(host, '.', "-"), replaceEach(host, '-', "."))

	seen := make(map[string]bool)
	for _, all := range []*[]string{&ofPatterns, &ofFunctions} {
		var valid []string
		for _, domain := range *all {
			if domain, err := cacheurl.CanonicalDomain(domain); err == nil && site(domain) != own && !seen[domain] {
				seen[domain] = true
				valid = append(valid, domain)
			}
		}
		*all = valid
	}
	return ofPatterns, ofFunctions
}

// behind returns hosts that begin with a host: for startsWith, includes, and patterns without an end or with one
// that is optional.
func behind(host string) []string {
	letters := map[string]string{"com": "munity", "org": "anic", "net": "work"}[host[strings.LastIndexByte(host, '.')+1:]]
	if letters == "" {
		letters = "x" // no top-level domain, but a pattern without an end takes it as well
	}
	return []string{host + "." + evilHost, host + letters, host + ".de"}
}

// replaceEach returns, for each byte old before the last dot, the host with that byte replaced.
func replaceEach(host string, old byte, replacement string) (hosts []string) {
	for i := range len(host) {
		if host[i] == old && i < strings.LastIndexByte(host, '.') {
			hosts = append(hosts, host[:i]+replacement+host[i+1:])
		}
	}
	return hosts
}

// other returns replacement or, if the text is that, another one.
func other(text, replacement string) string {
	if text == replacement {
		return "org"
	}
	return replacement
}
