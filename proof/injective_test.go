package proof

import (
	"strings"
	"testing"

	"github.com/ampcors/ampcors/cacheurl"
)

// This file proves that no two ASCII hosts, of any length, have the same prefix by AMP's document. Valid
// hosts are the words of a finite automaton, and so are their prefixes: "." is written as "-", "-" as "--",
// and "0-" and "-0" around it if the third and fourth bytes are dashes. The test follows both hosts
// of a pair at the same time. What one of them has written ahead of the other is short, so that there
// are few states, and all of them are tried.

// A reader is the automaton's state after some letters of a host.
type reader struct {
	isWrapped bool // guessed at the beginning, and checked when four bytes are written
	written   int  // bytes, up to 4, without "0-"
	thirdDash bool // the third of them is a dash

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
type rules struct{ edgeHyphens, lastNumber bool }

const end = 0 // the end of a host, as a letter

const letters = "abcdefghijklmnopqrstuvwxyz0123456789_-.\x00"

func letter(c byte) string { return strings.Trim(string(rune(c)), "\x00") }

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
		return s, out, !s.isWrapped || s.written == 4
	case '.':
		s.hasDot, s.length, s.afterDash, s.ace, s.isDecimal, s.isHex, s.isZero = true, 0, false, 0, true, false, false
		out = "-"
	default:
		if s.ace >= 0 && "xn--"[s.ace] == c {
			s.ace++
		} else {
			s.ace = -1
		}
		s.isHex = s.isZero && c == 'x' || s.isHex && strings.IndexByte("0123456789abcdef", c) >= 0
		s.isZero = s.length == 0 && c == '0'
		s.isDecimal = s.isDecimal && '0' <= c && c <= '9'
		s.length, s.afterDash = 1, c == '-'
		if out = string(c); c == '-' {
			out = "--"
		}
	}
	for i := range len(out) {
		switch s.written++; s.written {
		case 3:
			s.thirdDash = out[i] == '-'
		case 4:
			if s.isWrapped != (s.thirdDash && out[i] == '-') {
				return s, "", false
			}
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

// TestNoTwoHostsOfAnyLengthShareAPrefix is the proof. Without either of two rules for hosts there are two
// hosts with one prefix, so the search finds what there is.
func TestNoTwoHostsOfAnyLengthShareAPrefix(t *testing.T) {
	hosts, pairs := collision(t, rules{edgeHyphens: true, lastNumber: true})
	if hosts != [2]string{} {
		t.Errorf("%q have the same prefix", hosts)
	}
	t.Logf("%d pairs of states", pairs)
	for _, r := range []rules{{edgeHyphens: true}, {lastNumber: true}} {
		hosts, _ := collision(t, r)
		if hosts[0] == hosts[1] || formDocument(hosts[0]) != formDocument(hosts[1]) {
			t.Errorf("without a rule, found %q", hosts)
		}
		t.Logf("with the rules %+v, %q have the same prefix, %q", r, hosts, formDocument(hosts[0]))
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
			hosts := 0
			words(alphabet.letters, longest(alphabet.host), func(host string) {
				if !isASCII(host) || strings.Contains("."+host, ".xn--") {
					return
				}
				written := ""
				for _, isWrapped := range []bool{false, true} {
					s, prefix := reader{isDecimal: true, isWrapped: isWrapped}, strings.Repeat("0-", map[bool]int{true: 1}[isWrapped])
					for i := 0; ; i++ {
						c := byte(end)
						if i < len(host) {
							c = host[i]
						}
						next, out, ok := s.read(c, rules{edgeHyphens: true, lastNumber: true})
						if !ok {
							break
						}
						if s, prefix = next, prefix+out; c == end {
							written = prefix
							break
						}
					}
				}
				_, err := cacheurl.CanonicalDomain(host)
				if (err == nil) != (written != "") || err == nil && written != formDocument(host) {
					t.Fatalf("%q: %v, but the automata write %q", host, err, written)
				}
				if written == "" {
					return
				}
				hosts++
				// The code hashes a host whose own hyphens are at positions 3 and 4, as a cache does.
				if prefix, _ := cacheurl.DomainPrefix(host); prefix != written && !plainHyphens34(host) {
					t.Fatalf("%q has the prefix %q; the automata write %q", host, prefix, written)
				}
			})
			t.Logf("%d hosts", hosts)
		})
	}
}
