package proof

import (
	"slices"
	"strings"
	"testing"

	"github.com/ampcors/ampcors/cacheurl"
)

// This file proves that no two hosts, of any length, have the same prefix. Valid
// hosts are the words of a finite automaton, and so are their prefixes before punycode: "." is written as "-", "-" as "--",
// and "0-" and "-0" around it if the third and fourth bytes are dashes. The test follows both hosts
// of a pair at the same time. What one of them has written ahead of the other is short, so that there
// are few states, and all of them are tried.
//
// A letter that is not ASCII is one more letter of the alphabet: it writes itself. Implementations count positions in bytes, code
// points or punycode, so a host that has one may be wrapped or not, and both forms are in the search. Two such forms
// have the same punycode only if they are equal, because punycode is injective. A form in punycode equals one in ASCII only if
// that begins with "xn--", and the search finds which hosts write such a form.

// A reader is the automaton's state after some letters of a host.
type reader struct {
	isWrapped bool // guessed at the beginning
	isWrong   bool // four bytes are written, and the document says otherwise; a host that is not ASCII may be so
	isOther   bool // a letter was not ASCII
	written   int  // bytes, up to 4, without "0-"
	thirdDash bool // the third of them is a dash
	xn        int  // how much of "xn--" is written; -1 if it begins otherwise

	hasDot     bool
	length     int // of the label, up to 1
	afterDash  bool
	ace        int // how much of "xn--" the label is; -1 if it begins otherwise
	isDecimal  bool
	isHex      bool // "0x", and hexadecimal digits
	isZero     bool // the label is "0"
	isComplete bool // the host has ended
}

// rules can be switched off, to see that the proof needs them.
type rules struct {
	edgeHyphens, lastNumber bool
	wraps                   bool // a host in ASCII is wrapped as the document says; AMP Toolbox does not wrap what begins with "xn-"
}

var allRules = rules{true, true, true}

const (
	end   = 0 // the end of a host, as a letter
	other = 1 // a letter that is not ASCII
)

const letters = "abcdefghijklmnopqrstuvwxyz0123456789_-.\x00\x01"

func letter(c byte) string {
	switch c {
	case end:
		return ""
	case other:
		return "é"
	}
	return string(rune(c))
}

// read returns the state after one more letter, and what is written for it. The host, or the guess,
// is wrong if ok is false. Hosts may be longer than DNS allows: so the proof is about more.
func (s reader) read(c byte, r rules) (next reader, out string, ok bool) {
	switch {
	case s.isComplete:
		return s, "", false
	case c == '.', c == end:
		isNumber := r.lastNumber && c == end && (s.isDecimal || s.isHex)
		if s.length == 0 || r.edgeHyphens && s.afterDash || isNumber || c == end && !s.hasDot {
			return s, "", false
		}
	case c == '-' && s.length == 0 && r.edgeHyphens:
		return s, "", false
	}
	switch c {
	case end:
		if s.isComplete = true; s.isWrapped {
			out = "-0"
		}
		s.isWrong = s.isWrong || s.isWrapped && s.written < 4
		return s, out, !s.isWrong || s.isOther || !r.wraps && !s.isWrapped
	case '.':
		s.hasDot, s.length, s.afterDash, s.ace, s.isDecimal, s.isHex, s.isZero = true, 0, false, 0, true, false, false
		out = "-"
	default:
		if s.ace >= 0 && "xn--"[s.ace] == c {
			s.ace++
		} else {
			s.ace = -1
		}
		s.isOther = s.isOther || c == other
		s.isHex = s.isZero && c == 'x' || s.isHex && strings.IndexByte("0123456789abcdef", c) >= 0
		s.isZero = s.length == 0 && c == '0'
		s.isDecimal = s.isDecimal && '0' <= c && c <= '9'
		s.length, s.afterDash = 1, c == '-'
		if out = string(c); c == '-' {
			out = "--"
		}
	}
	for i := range len(out) {
		if s.xn >= 0 && s.xn < 4 && !s.isWrapped && "xn--"[s.xn] == out[i] {
			s.xn++
		} else if s.xn < 4 {
			s.xn = -1
		}
		switch s.written++; s.written {
		case 3:
			s.thirdDash = out[i] == '-'
		case 4:
			s.isWrong = s.isWrapped != (s.thirdDash && out[i] == '-')
		case 5:
			s.written = 4
		}
	}
	return s, out, s.ace < 4 // an A-label is decoded first
}

// A pair is the state of two hosts. One has written more than the other, or as much.
type pair struct {
	behind, ahead reader
	lead          string // what the one behind still has to write
	areEqual      bool   // both hosts have the same letters so far
}

// collision searches two hosts that have the same prefix, and returns how many pairs it tried.
func collision(t *testing.T, r rules) (hosts [2]string, pairs int) {
	plain, wrapped := reader{isDecimal: true}, reader{isDecimal: true, isWrapped: true}
	queue := []pair{
		{behind: plain, ahead: plain, areEqual: true},
		{behind: wrapped, ahead: wrapped, areEqual: true},
		{behind: plain, ahead: wrapped, lead: "0-"},
	}
	ledHere := make(map[pair][2]string) // hosts behind and ahead
	for _, p := range queue {
		ledHere[p] = [2]string{}
	}
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		add := func(next pair, behind, ahead string) {
			if next.behind.isComplete && next.lead == "" {
				next.behind, next.ahead, behind, ahead = next.ahead, next.behind, ahead, behind
			}
			if _, isKnown := ledHere[next]; !isKnown {
				ledHere[next] = [2]string{behind, ahead}
				queue = append(queue, next)
			}
		}
		behind, ahead := ledHere[p][0], ledHere[p][1]
		switch {
		case len(p.lead) > 3:
			t.Fatalf("%q and %q: %q is written ahead, so the search may not end", behind, ahead, p.lead)
		case p.behind.isComplete && p.lead == "" && !p.areEqual:
			return ledHere[p], len(ledHere)
		}
		for _, c := range []byte(letters) {
			text := letter(c)
			next, out, ok := p.behind.read(c, r)
			if !ok {
				continue
			}
			if !p.areEqual {
				if rest, isMore := strings.CutPrefix(out, p.lead); isMore {
					add(pair{behind: p.ahead, ahead: next, lead: rest}, ahead, behind+text)
				} else if rest, isLess := strings.CutPrefix(p.lead, out); isLess {
					add(pair{behind: next, ahead: p.ahead, lead: rest}, behind+text, ahead)
				}
				continue
			}
			for _, d := range []byte(letters) {
				other, more, ok := p.ahead.read(d, r)
				if rest, isMore := strings.CutPrefix(more, out); ok && isMore { // less is the same pair, exchanged
					add(pair{behind: next, ahead: other, lead: rest, areEqual: c == d}, behind+text, ahead+letter(d))
				}
			}
		}
	}
	return hosts, len(ledHere)
}

// readAsPunycode searches a host in ASCII whose prefix begins with "xn--", and so may be punycode of another host.
func readAsPunycode(r rules) (host string) {
	queue, ledHere := []reader{{isDecimal: true}, {isDecimal: true, isWrapped: true}}, make(map[reader]string)
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		if s.isComplete && s.xn == 4 && !s.isOther {
			return ledHere[s]
		}
		for _, c := range []byte(letters) {
			next, _, ok := s.read(c, r)
			if _, isKnown := ledHere[next]; ok && !isKnown {
				ledHere[next] = ledHere[s] + letter(c)
				queue = append(queue, next)
			}
		}
	}
	return ""
}

// TestNoTwoHostsOfAnyLengthShareAPrefix is the proof. Without either of two rules for hosts there are two
// hosts with one prefix, so the search finds what there is.
func TestNoTwoHostsOfAnyLengthShareAPrefix(t *testing.T) {
	hosts, pairs := collision(t, allRules)
	if hosts != [2]string{} {
		t.Errorf("%q have the same prefix", hosts)
	}
	t.Logf("%d pairs of states", pairs)
	if host := readAsPunycode(allRules); host != "" {
		t.Errorf("the prefix of %q may be punycode of another host", host)
	}
	for _, r := range []rules{{edgeHyphens: true, wraps: true}, {lastNumber: true, wraps: true}} {
		hosts, _ := collision(t, r)
		forms := formsOf(hosts[0], r)
		if hosts[0] == hosts[1] || !slices.ContainsFunc(forms, func(form string) bool { return slices.Contains(formsOf(hosts[1], r), form) }) {
			t.Errorf("without a rule, found %q", hosts)
		}
		t.Logf("with the rules %+v, %q have the same prefix, one of %q", r, hosts, forms)
	}
}

// TestTheTwinsComeOutOfTheSearch: AMP Toolbox does not wrap a host that begins with "xn-". Then, and only then, a host in ASCII
// writes a prefix that may be punycode of another one. The code denies each prefix that is both.
func TestTheTwinsComeOutOfTheSearch(t *testing.T) {
	r := allRules
	r.wraps = false
	host := readAsPunycode(r)
	if !strings.HasPrefix(host, "xn-") || formToolbox(host) == formDocument(host) || !strings.HasPrefix(formToolbox(host), "xn--") {
		t.Errorf("found %q, whose prefix is %q", host, formToolbox(host))
	}
	t.Logf("%q: AMP Toolbox writes %q", host, formToolbox(host))
	if hosts, _ := collision(t, r); hosts != [2]string{} {
		t.Errorf("%q have the same prefix before punycode", hosts)
	}
	// One of these that are punycode of a host that can exist.
	const twin, publisher = "xn-www.lstekas.lv.pub", "www.lāstekas.lv"
	form := formDocument(publisher)
	if formToolbox(twin) != form {
		t.Errorf("%q and %q are no twins", twin, publisher)
	}
	if domain, err := cacheurl.PublisherDomain(form); err == nil {
		t.Errorf("%q is taken for %q", form, domain)
	}
}

// The automata read and write as the code does: the proof is about the code.
func TestTheAutomataAgreeWithTheCode(t *testing.T) {
	for _, alphabet := range alphabets {
		if alphabet.host == 0 {
			continue
		}
		t.Run(alphabet.name, func(t *testing.T) {
			t.Parallel()
			hosts, reversed := 0, 0
			words(alphabet.letters, longest(alphabet.host), func(host string) {
				if strings.Contains("."+host, ".xn--") {
					return
				}
				written := formsOf(host, allRules)
				domain, err := cacheurl.CanonicalDomain(host)
				if (err == nil) != (len(written) > 0) {
					t.Fatalf("%q: %v, but the automata write %q", host, err, written)
				}
				if err != nil {
					return
				}
				hosts++
				if isASCII(host) {
					// The code hashes a host whose own hyphens are at positions 3 and 4, as a cache does.
					prefix, _ := cacheurl.DomainPrefix(host)
					if len(written) != 1 || written[0] != formDocument(host) || prefix != written[0] && !plainHyphens34(host) {
						t.Fatalf("%q has the prefix %q; the automata write %q", host, prefix, written)
					}
					return
				}
				for _, form := range written {
					got, err := cacheurl.PublisherDomain(form)
					if got == domain {
						reversed++
					}
					if isTwin := plainIsAmbiguous(form) && !plainEndsInTLD(host); err == nil && got != domain && !isTwin { // such a host cannot exist
						t.Fatalf("%q, which the automata write for %q, reverses to %q", form, host, got)
					}
				}
				for _, form := range []string{formDocument(host), formToolbox(host), formAmppackager(host)} {
					if !slices.Contains(written, form) {
						t.Fatalf("an implementation writes %q for %q; the automata write %q", form, host, written)
					}
				}
			})
			if isASCII(strings.Join(alphabet.letters, "")) != (reversed == 0) {
				t.Errorf("%d prefixes in punycode reverse to their hosts", reversed)
			}
			t.Logf("%d hosts", hosts)
		})
	}
}

// formsOf returns the prefixes that the automaton writes for a host, in punycode.
func formsOf(host string, r rules) (forms []string) {
	for _, isWrapped := range []bool{false, true} {
		if text, ok := write(host, isWrapped, r); ok {
			forms = append(forms, plainToASCII(text))
		}
	}
	return forms
}

// write returns what the automaton writes for a host. ok is false if the host, or the guess, is wrong.
func write(host string, isWrapped bool, rules rules) (text string, ok bool) {
	s := reader{isDecimal: true, isWrapped: isWrapped}
	if isWrapped {
		text = "0-"
	}
	for _, r := range host + string(rune(end)) {
		c := byte(other)
		if r < 128 {
			c = byte(r)
		}
		var out string
		if s, out, ok = s.read(c, rules); !ok {
			return "", false
		}
		if c == other {
			out = string(r)
		}
		text += out
	}
	return text, true
}
