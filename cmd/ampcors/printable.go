package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// A printer passes on what it gets to another writer, made printable. All output of the program goes
// through one, except a table with colors and the progress of a probe, which call printable themselves. The output has
// texts from outside: origins from logs, and answers of servers. In a terminal, an escape sequence in
// them could act, and a bidirectional override could hide text.
// It is safe for concurrent use by multiple goroutines if out is.
//
// Each Write must end with a complete character. An incomplete one is escaped like invalid UTF-8.
type printer struct{ out io.Writer }

// Write implements [io.Writer].
func (p printer) Write(data []byte) (int, error) {
	_, err := io.WriteString(p.out, printable(string(data)))
	return len(data), err
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
