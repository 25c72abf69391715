package e2e

import (
	"bufio"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/cacheurl"
)

// topLevelDomains returns the top-level domains of the Public Suffix List with two to four letters,
// and some longer ones.
func topLevelDomains() []string {
	tlds := []string{"museum", "photography", "xn--p1ai", "xn--fiqs8s", "xn--mgberp4a5d4ar"}
	var grow func(word string)
	grow = func(word string) {
		if _, isICANN := publicsuffix.PublicSuffix("a." + word); isICANN {
			tlds = append(tlds, word)
		}
		if len(word) < 4 {
			for c := 'a'; c <= 'z'; c++ {
				grow(word + string(c))
			}
		}
	}
	grow("")
	return tlds
}

// prefixFamilies are kinds of hosts of which some share a prefix with another host. Each makes a
// random host below a top-level domain.
var prefixFamilies = []func(r *rand.Rand, tld string) string{
	// Names with accented letters: what most internationalized publishers have.
	func(r *rand.Rand, tld string) string { return accented(r, 2) + "." + tld },
	func(r *rand.Rand, tld string) string { return "www." + accented(r, 2) + "." + tld },
	// Names that begin with "xn-", whose prefix may be punycode of another one.
	func(r *rand.Rand, tld string) string { return "xn-" + word(r) + "." + word(r) + "." + tld },
	func(r *rand.Rand, tld string) string {
		return "xn-" + oneOf(r, "www", "m", "blog") + "." + word(r) + "." + oneOf(r, "lv", "de", "com", "co.uk") + "." + tld
	},
	func(r *rand.Rand, tld string) string { return "xn-" + accented(r, 1) + "." + word(r) + "." + tld },
	func(r *rand.Rand, tld string) string {
		return letters(r, "xn", "-", ".", "a") + "." + word(r) + "." + tld
	},
	func(r *rand.Rand, tld string) string {
		return "xn-" + letters(r, "0", "-0", ".0", "1", "a", "kva") + "." + tld
	},
	func(r *rand.Rand, tld string) string {
		return "xn-" + letters(r, "kva", "a", "b") + "." + letters(r, "kva", "a", "10", "9") + "." + oneOf(r, "10", "2a", "com", "net") + "." +
			tld
	},
	// Labels with hyphens at their edges, and A-labels that decode to ASCII or to nothing.
	func(r *rand.Rand, tld string) string {
		return letters(r, "abcd", "a", "-", ".", "0", "xn--") + "." + tld
	},
	func(r *rand.Rand, tld string) string { return "xn--" + word(r) + "-." + word(r) + "." + tld },
	func(r *rand.Rand, tld string) string { return "xn---" + letters(r, "a", "b", "9") + "." + tld },
	// Letters that some implementations map to others.
	func(r *rand.Rand, tld string) string {
		return letters(r, "a", "ß", "ss", "ς", "σ", "\u200c", "\u200d", "क्", "ي", "İ", "ﬁ") + "." + tld
	},
	// Random labels: hyphens at positions 3 and 4, digits, several scripts, A-labels of anything.
	func(r *rand.Rand, tld string) string {
		return letters(r, "é", "日", "ا", "0", "-", ".", "a", "x", "n") + "." + tld
	},
	func(r *rand.Rand, tld string) string {
		return "xn--" + letters(r, "a", "b", "k", "z", "0", "9", "-") + "." + tld
	},
}

func oneOf(r *rand.Rand, from ...string) string { return from[r.IntN(len(from))] }

func letters(r *rand.Rand, from ...string) string {
	var b strings.Builder
	for range 1 + r.IntN(9) {
		b.WriteString(oneOf(r, from...))
	}
	return b.String()
}

func word(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(3) {
		b.WriteString(oneOf(r, "la", "ste", "kas", "mu", "ller", "shop", "news", "o", "tri", "ber", "lin"))
	}
	return b.String()
}

// accented returns a word with one to most accented letters in it.
func accented(r *rand.Rand, most int) string {
	text := []rune(word(r))
	for range 1 + r.IntN(most) {
		text = slices.Insert(text, r.IntN(len(text)+1), []rune("àáâãäåæçèéêëìíîïñòóôõöøùúûüýāăąćčďđēėęěğģīįķłļńņňőřśşšťūůűźżž")[r.IntN(61)])
	}
	return string(text)
}

// A prefixedHost is a host as browsers have it, and the prefixes that implementations give it.
type prefixedHost struct{ host, toolbox, document string }

// canExist reports whether a host is a valid host name: no label begins or ends with a hyphen (RFC
// 952), and those that begin with "xn--" are punycode (RFC 5890). Class URL of Node accepts others.
func (h prefixedHost) canExist() bool {
	for label := range strings.SplitSeq(h.host, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
	}
	_, err := idna.Punycode.ToUnicode(h.host)
	return err == nil
}

// prefixesOf runs AMP's toolbox.
func prefixesOf(t *testing.T, inputs []string) (hosts []prefixedHost) {
	cmd := exec.Command(nodeJS(t), filepath.Join("peers", "prefixes.js"))
	cmd.Stdin, cmd.Stderr = strings.NewReader(strings.Join(inputs, "\n")+"\n"), t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	answers := 0
	for scanner := bufio.NewScanner(out); scanner.Scan(); answers++ {
		if fields := strings.Fields(scanner.Text()); len(fields) == 3 {
			hosts = append(hosts, prefixedHost{fields[0], fields[1], fields[2]})
		}
	}
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || answers != len(inputs) {
		t.Fatalf("%d answers to %d hosts, %v", answers, len(inputs), err)
	}
	return hosts
}

// No prefix that is accepted for a publisher is given to another host that can exist, by AMP's
// toolbox or by the algorithm of AMP's document. All hosts are listed as publishers, and so is each
// domain that an ambiguous prefix is punycode of.
func TestNoPrefixIsAcceptedThatAnotherHostHas(t *testing.T) {
	wanted := 100_000
	if os.Getenv("AMPCORS_CI") == "1" { // and not "race"
		wanted = 1_500_000
	}
	r, tlds := rand.New(rand.NewPCG(23, 1)), topLevelDomains()
	inputs := make([]string, wanted)
	for i := range inputs {
		inputs[i] = prefixFamilies[i%len(prefixFamilies)](r, tlds[r.IntN(len(tlds))])
	}
	hosts := prefixesOf(t, inputs)

	publishers := make(map[string]bool)
	list := func(domain string) {
		if canonical, err := cacheurl.CanonicalDomain(domain); err == nil && canonical == domain {
			publishers[domain] = true
		}
	}
	for _, h := range hosts {
		list(h.host)
		for _, prefix := range []string{h.toolbox, h.document} {
			if text, err := idna.Punycode.ToUnicode(prefix); err == nil && text != prefix {
				list(unfolded(text))
			}
		}
	}
	var cfg ampcors.Config
	for domain := range publishers {
		cfg.Publishers = append(cfg.Publishers, domain)
	}
	listed, err := ampcors.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.DangerouslyAllowAmbiguousPrefixes = true
	dangerous, err := ampcors.New(cfg)
	if err != nil {
		t.Fatal(err)
	}

	accepted, ambiguous, shared, different, denied, lost := 0, 0, 0, 0, 0, 0
	compared, wrong := 0, 0 // what package cacheurl says of the toolbox and the document
	for _, h := range hosts {
		if prefixes, err := cacheurl.Prefixes(h.host); err == nil { // it is a publisher
			for name, want := range map[string]string{"toolbox-cache-url": h.toolbox, "the AMP document": h.document} {
				i := slices.IndexFunc(prefixes, func(p cacheurl.Prefix) bool { return slices.Contains(p.By, name) })
				if want == "-" || len(want) > 63 {
					want = prefixes[len(prefixes)-1].Prefix // the hash prefix
				}
				if compared++; prefixes[i].Prefix != want {
					if wrong++; wrong <= 20 {
						t.Errorf("%s by %s: %s; want %s, by Prefixes", h.host, name, prefixes[i].Prefix, want)
					}
				}
			}
		}
		for _, prefix := range []string{h.toolbox, h.document} {
			if prefix == "-" || len(prefix) > 63 {
				continue
			}
			origin := "https://" + prefix + ".cdn.ampproject.org"
			d := listed.CheckOrigin(origin)
			if publishers[h.host] && d.Publisher != h.host {
				if other := otherWith(prefix, h.host); other != "" {
					denied++
				} else if !isReserved(prefix) {
					if lost++; lost <= 20 {
						t.Errorf("%s gets %s, which no other host has, and which is denied: %s %s", h.host, prefix, d.Reason, d.ClaimedPublisher)
					}
				}
			}
			switch {
			case d.Publisher == h.host:
				accepted++
			case d.Allowed && h.canExist():
				if different++; different <= 20 {
					t.Errorf("%s gets %s, which is accepted for %s", h.host, prefix, d.Publisher)
				}
			case d.Allowed:
				shared++
			case d.Reason == ampcors.ReasonAmbiguousPrefix:
				if other := dangerous.CheckOrigin(origin).Publisher; other != h.host && other != "" {
					ambiguous++ // without the rule, it would be accepted for the other one
				}
			}
		}
	}
	t.Logf("%d hosts and %d publishers: %d prefixes are accepted for their host, %d are not because another host has them, and %d although "+
		"none has; %d are ambiguous, and would be accepted for another host, %d are shared with an invalid host name, %d are accepted for "+
		"another host",
		len(hosts), len(publishers), accepted, denied, lost, ambiguous, shared, different)
	if len(hosts) < wanted*2/3 || compared < wanted || accepted < wanted/2 || denied < wanted/100 || ambiguous < wanted/100 || shared == 0 {
		t.Error("too few hosts of a kind to say anything")
	}
}

// isReserved reports whether browsers load no page from a prefix: it is punycode that is not canonical, or
// of a text that begins with "xn--".
func isReserved(prefix string) bool {
	text, err := idna.Punycode.ToUnicode(prefix)
	if err != nil || text == prefix {
		return false
	}
	encoded, err := idna.Punycode.ToASCII(text)
	return err != nil || encoded != prefix
}

// otherWith returns another host that can exist and has a prefix, by the toolbox or by the document, or "".
// It tries every reading of each run of dashes, before and after decoding. A label may begin or end with a
// hyphen: that is no valid host name, but DNS and browsers have such hosts.
func otherWith(prefix, host string) string {
	texts := []string{prefix}
	if text, err := idna.Punycode.ToUnicode(prefix); err == nil && text != prefix {
		if encoded, err := idna.Punycode.ToASCII(text); err == nil && encoded == prefix {
			texts = []string{text, prefix}
		}
	}
	for _, text := range texts {
		inside, ok := strings.CutPrefix(text, "0-")
		if inside, ok2 := strings.CutSuffix(inside, "-0"); ok && ok2 {
			texts = append(texts, inside)
		}
	}
	for _, text := range texts {
		for _, reading := range readings(text) {
			labels := strings.Split(reading, ".")
			last, err := idna.Punycode.ToASCII(labels[len(labels)-1])
			if _, isICANN := publicsuffix.PublicSuffix("a." + last); len(labels) < 2 || err != nil || !isICANN {
				continue
			}
			ascii, isPossible := make([]string, len(labels)), true
			for i, label := range labels {
				if ascii[i], err = idna.Punycode.ToASCII(label); err != nil || label == "" || strings.HasPrefix(label, "xn--") || len(ascii[i]) > 63 {
					isPossible = false
				}
			}
			other := strings.Join(ascii, ".")
			if _, err := idna.Punycode.ToUnicode(other); isPossible && other != host && err == nil {
				return other
			}
		}
	}
	return ""
}

// readings returns every text that gives the text if "-" becomes "--" and "." becomes "-".
func readings(text string) (all []string) {
	i := strings.IndexByte(text, '-')
	if i < 0 {
		return []string{text}
	}
	for _, rest := range readings(text[i+1:]) {
		all = append(all, text[:i]+"."+rest)
	}
	if strings.HasPrefix(text[i:], "--") {
		for _, rest := range readings(text[i+2:]) {
			all = append(all, text[:i]+"-"+rest)
		}
	}
	return all
}

// The hosts are those of "Hosts that share a prefix" in the documentation of package cacheurl.
func TestHostsThatShareAPrefixInTheToolbox(t *testing.T) {
	for _, pair := range [][2]string{
		{"www.lāstekas.lv", "xn-www.lstekas.lv.pub"}, {"abcd--evil.com", "abcd.-.evil.com"},
		{"alice.platform.com", "xn--alice-.platform.com"}, {"xn--xbbb.example", "xn---bbb.example"},
	} {
		if got := prefixesOf(t, pair[:]); len(got) != 2 || got[0].toolbox != got[1].toolbox {
			t.Errorf("%q", got)
		}
	}
}

// unfolded returns the domain, in ASCII, that the text of a prefix is read as.
func unfolded(text string) string {
	text = strings.NewReplacer("--", "-", "-", ".").Replace(text)
	labels := strings.Split(text, ".")
	for i, label := range labels {
		labels[i], _ = idna.Punycode.ToASCII(label)
	}
	return strings.Join(labels, ".")
}
