package ampcors_test

import (
	"bufio"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/internal/dns"
)

// readTSV returns the rows of a file of vectors, without its heading.
func readTSV(t *testing.T, name string, columns int) (rows [][]string) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		row := strings.Split(lines.Text(), "\t")
		if len(row) != columns {
			t.Fatalf("%s: %q has %d columns; want %d", name, lines.Text(), len(row), columns)
		}
		rows = append(rows, row)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return rows[1:]
}

// Reasons to differ from a public vector.
const (
	oneLabel     = "a single label is no publisher: no cache can fetch a page from such a host"
	stepOnly     = "the vector tests a step by itself, with input that is no publisher domain"
	caseKept     = "the implementation does not fold case; a host in a URL is in lower case, and so is its prefix"
	decomposed   = "a decomposed letter, which no browser leaves in a host; the error names the composed spelling"
	uts46Mapped  = "UTS 46 transitional mapping replaces ß with ss, which gives the prefix of another domain"
	before2020   = "Google's cache used hash prefixes for these before 2020; today's are readable, and both are accepted"
	oldBing      = "Bing's cache domain has www since 2020 (caches.json)"
	bareCache    = "the bare cache domain names no publisher"
	unicodeHash  = "the vector hashes UTF-8, and the name has an A-label longer than 63 bytes"
	leftAsXN     = "both implementations leave this unwrapped, but as an xn-- label it is punycode of another domain"
	sharedPrefix = "a host that begins with xn-, under a top-level domain, has the same form"
	sixtyFour    = "64 bytes are too long for a DNS label: the implementation checks the length before it wraps"
	lowerCaseXN  = "the implementation looks for xn-- before it folds case; a host in a URL is in lower case"
	edgeHyphen   = "a label with a hyphen at its edge shares its prefix with another name"
	notBrowsers  = "no browser leaves this spelling in a host; the error names the one that it uses"
	ipv4         = "ends in a number: browsers take it for an IP address"
	trailingDot  = "a trailing dot makes it another host for browsers; the error names the host without it"
	notCanonical = "not canonical punycode"
	joiner       = "browsers reject this joiner; the domain is accepted if it is written as an A-label"
)

// differs lists the rows of public_vectors.tsv from which this package differs, by
// kind and input.
var differs = map[string]string{
	"url_to_prefix https://toplevelnohyphens": oneLabel,
	"url_to_prefix https://no-dot-domain":     oneLabel,
	"domain_to_prefix toplevelnohyphens":      oneLabel,
	"domain_to_prefix no-dot-domain":          oneLabel,
	"domain_to_prefix faß.de":                 uts46Mapped,

	"domainPrefixBasic ":                           stepOnly,
	"domainPrefixBasic xn--":                       stepOnly,
	"domainPrefixBasic ...":                        stepOnly,
	"domainPrefixBasic Bücher.de":                  caseKept,
	"domainPrefixBasic bu\u0308cher.de":            decomposed,
	"domainPrefixBasic xn---":                      stepOnly,
	"domainPrefixBasic " + strings.Repeat("a", 63): oneLabel,
	"domainPrefixBasic " + strings.Repeat("a", 64): oneLabel,

	"domainPrefixFallback ": stepOnly,
	"domainPrefixFallback " + strings.Repeat("0", 59) + "λ.com": unicodeHash,

	"domain_to_prefix_legacy a--problem.com":              before2020,
	"domain_to_prefix_legacy it-trend.jp":                 before2020,
	"domain_to_prefix_legacy es-us.vida-estilo.yahoo.com": before2020,
	"domain_to_prefix_legacy en-us.example.com":           before2020,

	"domain_to_cache_host example.com example-com.bing-amp.com": oldBing,
	"domain_to_cache_host example.org example-org.bing-amp.com": oldBing,
	"domain_to_cache_host (any) cdn.ampproject.org":             bareCache,
}

// TestPublicVectors compares this package with the vectors of public
// implementations and of the AMP documents that concern prefixes and hashes.
func TestPublicVectors(t *testing.T) {
	used := make(map[string]bool)
	for _, row := range readTSV(t, "testdata/public_vectors.tsv", 5) {
		kind, input, want, source := row[0], row[1], row[2], row[3]
		key := kind + " " + input
		if kind == "domain_to_cache_host" {
			key += " " + want
		}
		reason, listed := differs[key]
		used[key] = true
		t.Run(key, func(t *testing.T) {
			var got string
			var err error
			switch kind {
			case "url_to_prefix":
				got, err = ampcors.DomainPrefix(strings.TrimPrefix(input, "https://"))
			case "domain_to_prefix", "domain_to_prefix_observed", "domain_to_prefix_legacy", "domainPrefixBasic":
				got, err = ampcors.DomainPrefix(input)
			case "domainPrefixFallback":
				got, err = ampcors.HashPrefix(input)
			case "prefix_to_domain":
				got, err = ampcors.PublisherDomain(input)
			case "prefix_to_unicode_joined":
				text, problem := dns.DecodeALabel(input)
				if problem != nil {
					t.Fatal(problem)
				}
				got = text
			case "prefix_is_hash":
				if _, problem := ampcors.DecodeHash(input); problem != nil {
					t.Fatal(problem)
				}
				if _, err := ampcors.PublisherDomain(input); !errors.Is(err, ampcors.ErrHashPrefix) {
					t.Fatalf("PublisherDomain(%q) = %v; want ErrHashPrefix", input, err)
				}
				return
			case "domain_to_cache_host", "origin_observed":
				origins, err := ampcors.CacheOrigins(input)
				if err != nil && !listed {
					t.Fatal(err)
				}
				want := "https://" + strings.TrimPrefix(want, "https://")
				found := false
				for _, origin := range origins {
					found = found || origin == want
				}
				if found == listed {
					t.Fatalf("CacheOrigins(%q) = %q, and %q is listed as different (%s): %t", input, origins, want, reason, listed)
				}
				return
			default:
				t.Fatalf("unknown kind %q", kind)
			}
			if same := err == nil && got == want || err != nil && want == "ERROR"; same && listed && reason != stepOnly {
				t.Errorf("%q gives %q like %s, but is listed as different: %s", input, got, source, reason)
			} else if !same && !listed {
				t.Errorf("%q gives %q, %v; %s has %q", input, got, err, source, want)
			}
			if reason != before2020 {
				return
			}
			m, err := ampcors.New(ampcors.Config{Publishers: []string{input}})
			if err != nil {
				t.Fatal(err)
			}
			if d := m.CheckOrigin("https://" + want + ".cdn.ampproject.org"); d.Reason != ampcors.ReasonCacheOriginHash {
				t.Errorf("the hash of %q that Google's cache used is decided as %s", input, d.Reason)
			}
		})
	}
	for key := range differs {
		if !used[key] {
			t.Errorf("%q is listed as different, but there is no such vector", key)
		}
	}
}

// deniedForms lists the forms that an implementation gives a domain in
// implementations_disagree.tsv and that are not accepted for it.
var deniedForms = map[string]string{
	"xn-bcher.ch.65a xn--bcher-ch-65a":         leftAsXN,     // bücher.ch
	"xn-foo.ru.com xn--foo-ru-com":             leftAsXN,     // fo\u08fao.ru
	"fo\u08fao.ru xn--foo-ru-com":              sharedPrefix, // xn-foo.ru.com
	"xn-example.in.net xn--example-in-net":     leftAsXN,     // example.i\u08d1n
	"example.i\u08d1n xn--example-in-net":      sharedPrefix, // xn-example.in.net
	"BÜCHER.ch xn--bcher-ch-yxa":               caseKept,
	"faß.de fass-de":                           uts46Mapped,
	"xn--fa-hia.de fass-de":                    uts46Mapped,
	"xn--strae-oqa.de strasse-de":              uts46Mapped,
	"faß-x.de fass--x-de":                      uts46Mapped,
	"Straße.de strasse-de":                     uts46Mapped,
	"XN--BCHER-KVA.CH 0-xn----bcher--kva-ch-0": lowerCaseXN,
	"en-us." + strings.Repeat("a", 49) + ".com 0-en--us-" + strings.Repeat("a", 49) + "-com-0": sixtyFour,
}

// notPublishers lists the domains of implementations_disagree.tsv that no publisher can
// have, or that browsers spell differently.
var notPublishers = map[string]string{
	"localhost": oneLabel, "no-dot-domain": oneLabel, "ab": oneLabel, "abc": oneLabel, "xn---com-k47jg78q": oneLabel,
	"foo-.example.com": edgeHyphen, "foo.-example.com": edgeHyphen, "a.-b.com": edgeHyphen, "a-.b.com": edgeHyphen,
	"127.0.0.1": ipv4, "0.example.0": ipv4,
	"example.com.":                    trailingDot,
	"example。com":                     notBrowsers,
	"İ.com":                           notBrowsers,
	"ﬀ.com":                           notBrowsers,
	"xn--.com":                        notCanonical,
	"xn--a-.com":                      notCanonical,
	"a\u200cb.com":                    joiner,
	strings.Repeat("0", 59) + "λ.com": unicodeHash,
}

// TestEachImplementationsFormIsAccepted takes every domain on which implementations
// disagree. The form that each of them gives it must be accepted for that publisher only.
func TestEachImplementationsFormIsAccepted(t *testing.T) {
	used := make(map[string]bool)
	for _, row := range readTSV(t, "testdata/implementations_disagree.tsv", 6) {
		domain := row[0]
		m, err := ampcors.New(ampcors.Config{Publishers: []string{domain}})
		if reason, ok := notPublishers[domain]; ok {
			used[domain] = true
			if err == nil {
				t.Errorf("%q is a publisher, but is listed as none: %s", domain, reason)
			}
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		ascii, _ := ampcors.CanonicalDomain(domain)
		for _, form := range row[1:5] {
			form = strings.ToLower(form) // as a browser puts it into Origin
			if strings.HasPrefix(form, "panic") || strings.HasPrefix(form, "err ") {
				continue
			}
			for _, c := range ampcors.DefaultCaches() {
				reason, listed := deniedForms[domain+" "+form]
				used[domain+" "+form] = true
				t.Run(domain+" "+form+" "+c.ID, func(t *testing.T) {
					d := m.CheckOrigin("https://" + form + "." + c.CacheDomain)
					switch {
					case d.Allowed == listed:
						t.Errorf("%q as %q: %s, and listed as denied (%s): %t", domain, form, d.Reason, reason, listed)
					case d.Allowed && (d.Publisher != ascii || d.CacheID != c.ID):
						t.Errorf("%q as %q is decided as %+v", domain, form, d)
					}
				})
			}
		}
		// DomainPrefix gives what both official implementations agree on, except for names
		// that begin with xn-, which they leave unwrapped.
		prefix, err := ampcors.DomainPrefix(domain)
		if err != nil {
			t.Error(err)
		}
		_, denied := deniedForms[domain+" "+row[1]]
		leftAsXN := isLeftAsXN(domain, row[1])
		if row[1] == row[2] && prefix != row[1] && !denied && !leftAsXN {
			t.Errorf("DomainPrefix(%q) = %q; both official implementations give %q", domain, prefix, row[1])
		}
	}
	for _, list := range []map[string]string{deniedForms, notPublishers} {
		for key, reason := range list {
			if !used[key] {
				t.Errorf("%q is listed (%s), but not in the vectors", key, reason)
			}
		}
	}
}
