package driver

import (
	"fmt"
	"regexp"
	"strings"
)

// Limits of LogText, in bytes. An error of a database is cut at mostForeign, and everything at most.
const (
	mostForeign = 200
	most        = 1000
)

// LogText returns the text of an error in one line, for logs: error texts of databases can have many lines. What
// the packages of ampcors say, with errors.New and fmt.Errorf, is kept, because it ends with what to do. An error
// of another type within it is cut at 200 bytes, and its deepest cause is put at the end. The line has 1000 bytes
// at most.
func LogText(err error) string { return cut(logText(err), most) }

func logText(err error) string {
	text := err.Error()
	if isOwn(err) {
		for _, child := range childrenOf(err) {
			text = strings.Replace(text, child.Error(), logText(child), 1)
		}
		return oneLine(text)
	}
	text = oneLine(text)
	if len(text) <= mostForeign {
		return text
	}
	deepest := err
	for children := childrenOf(deepest); len(children) > 0; children = childrenOf(deepest) {
		deepest = children[len(children)-1]
	}
	if cause := oneLine(deepest.Error()); deepest != err && len(cause) < mostForeign/2 &&
		!strings.Contains(text[:mostForeign-len(cause)], cause) {
		return cut(text, mostForeign-len(cause)) + " " + cause
	}
	return cut(text, mostForeign)
}

// isOwn reports whether an error was made by errors.New, errors.Join or fmt.Errorf, whose types have no names.
func isOwn(err error) bool {
	switch fmt.Sprintf("%T", err) {
	case "*errors.errorString", "*errors.joinError", "*fmt.wrapError", "*fmt.wrapErrors":
		return true
	}
	return false
}

// Kind returns the text of an error without its numbers, so that one cause is one text: times and ports in it change.
func Kind(err error) string { return numbers.ReplaceAllString(LogText(err), "0") }

var numbers = regexp.MustCompile(`[0-9][0-9a-fA-F.:+TZ-]*`)

func childrenOf(err error) []error {
	switch parent := err.(type) {
	case interface{ Unwrap() []error }:
		return parent.Unwrap()
	case interface{ Unwrap() error }:
		if child := parent.Unwrap(); child != nil {
			return []error{child}
		}
	}
	return nil
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// cut returns a text of at most n bytes, and "..." at its end if it is cut.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:max(0, n-len("..."))], "") + "..."
}
