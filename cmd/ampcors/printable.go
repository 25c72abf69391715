package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// A printer passes on what it gets to another writer, made printable. All output of the program goes
// through one, except a table with colors, which writeTable makes printable itself. The output has
// texts from outside: origins from logs, and answers of servers. In a terminal, an escape sequence in
// them could act, and a bidirectional override could hide text.
// It is safe for concurrent use by multiple goroutines.
type printer struct {
	mu   sync.Mutex
	out  io.Writer
	rest []byte // the start of a character
}

// Write implements [io.Writer].
func (p *printer) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := append(p.rest, data...)
	whole := len(text)
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if last := text[len(text)-i:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				whole -= i
			}
			break
		}
	}
	_, err := io.WriteString(p.out, printable(string(text[:whole])))
	p.rest = bytes.Clone(text[whole:])
	return len(data), err
}

// flush writes a character of which only the start was written.
func (p *printer) flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := io.WriteString(p.out, printable(string(p.rest)))
	p.rest = nil
	return err
}

// printable returns a text in which each character that [unicode.IsPrint] rejects is escaped as in
// JSON, such as \u009b, except line feeds and tabs. So JSON stays JSON.
func printable(text string) string {
	isPlain := func(r rune) bool { return unicode.IsPrint(r) && r != utf8.RuneError || r == '\n' || r == '\t' }
	if !strings.ContainsFunc(text, func(r rune) bool { return !isPlain(r) }) {
		return text
	}
	var b strings.Builder
	for i, size := 0, 0; i < len(text); i += size {
		var r rune
		if r, size = utf8.DecodeRuneInString(text[i:]); isPlain(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}
