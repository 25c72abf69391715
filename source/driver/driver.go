// Package driver has the code that pgsource, redissource and similar packages share, which connect a
// database with package source, such as pgsource and redissource. A program that only uses such a
// package does not need it.
package driver

import "strings"

// LogText returns the text of an error in one line of at most 200 bytes, for logs: error texts of
// databases can have many lines.
func LogText(err error) string {
	const most, end = 200, 60 // the cause is often at the end
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-end-len("...")], "") + "..." + strings.ToValidUTF8(text[len(text)-end:], "")
}
