// Package jsonlines formats JSON files that people read and compare line by line.
package jsonlines

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Format returns a value as JSON. The value itself and its members have a line for each of their members.
// What is deeper is on one line if it is in at least depth others, or if there is no list or object in it.
// Characters other than Latin-1 are escaped: many look like others, or change the direction of the line.
func Format(value any, depth int) ([]byte, error) {
	var compact, out bytes.Buffer
	encoder := json.NewEncoder(&compact)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	text := compact.String()
	var open []bool // whether each list or object that is open has lines of its own
	hasLines := func() bool { return len(open) == 0 || open[len(open)-1] }
	newLine := func() { out.WriteString("\n" + strings.Repeat("\t", len(open))) }
	inString, escaped := false, false
	for i, c := range text {
		if inString {
			if c <= unicode.MaxLatin1 && unicode.IsPrint(c) {
				out.WriteRune(c)
			} else {
				for _, unit := range utf16.AppendRune(nil, c) {
					fmt.Fprintf(&out, `\u%04x`, unit)
				}
			}
			inString, escaped = escaped || c != '"', !escaped && c == '\\'
			continue
		}
		switch c {
		case '{', '[':
			out.WriteRune(c)
			open = append(open, hasLines() && len(open) < depth && (len(open) < 2 || !isLeaf(text[i+1:])))
			if hasLines() {
				newLine()
			}
		case '}', ']':
			closesLines := hasLines()
			if open = open[:len(open)-1]; closesLines {
				newLine()
			}
			out.WriteRune(c)
		case ',':
			if out.WriteRune(c); hasLines() {
				newLine()
			} else {
				out.WriteByte(' ')
			}
		case ':':
			out.WriteString(": ")
		default:
			inString = c == '"'
			out.WriteRune(c)
		}
	}
	return out.Bytes(), nil
}

// isLeaf reports whether a list or an object ends before another one begins.
func isLeaf(rest string) bool {
	for inString, i := false, 0; ; i++ {
		switch c := rest[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case !inString && (c == '{' || c == '['):
			return false
		case !inString && (c == '}' || c == ']'):
			return true
		}
	}
}
