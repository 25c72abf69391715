package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode"
)

// format returns a file as JSON, with one vector on each line, and with escapes for what is invisible.
func format(file any) ([]byte, error) {
	var compact, out bytes.Buffer
	encoder := json.NewEncoder(&compact)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(file); err != nil {
		return nil, err
	}
	depth, inString, escaped := 0, false, false
	for _, c := range compact.String() {
		if inString {
			if unicode.IsPrint(c) {
				out.WriteRune(c)
			} else {
				fmt.Fprintf(&out, `\u%04x`, c)
			}
			inString, escaped = escaped || c != '"', !escaped && c == '\\'
			continue
		}
		if c == '}' || c == ']' {
			if depth--; depth < 2 {
				out.WriteByte('\n')
			}
		}
		out.WriteRune(c)
		switch c {
		case '"':
			inString = true
		case '{', '[':
			if depth++; depth <= 2 {
				out.WriteByte('\n')
			}
		case ',':
			if depth <= 2 {
				out.WriteByte('\n')
			} else {
				out.WriteByte(' ')
			}
		case ':':
			out.WriteByte(' ')
		}
	}
	return out.Bytes(), nil
}
