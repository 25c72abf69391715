package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// A console is the terminal that output goes to, if it goes to one.
type console struct {
	file      *os.File // nil if it is none
	color     bool     // https://no-color.org
	canGoBack bool     // a line can be rewritten
	width     int      // 0 if lines are not wrapped

	other io.Writer // for progress, if file is nil
}

// consoleOf returns the terminal behind a writer of this program.
func consoleOf(w io.Writer) (c console) {
	c.other = w
	p, _ := w.(printer)
	if file, ok := p.out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		isDumb := os.Getenv("TERM") == "dumb"
		c = console{file: file, other: w, color: os.Getenv("NO_COLOR") == "" && !isDumb, canGoBack: !isDumb}
		c.width, _, _ = term.GetSize(int(file.Fd())) // 0 if it is not known
	}
	return c
}

// wrap breaks lines between words, so that none is longer than the width, and indents all but the first. A word
// that is longer than a line, such as a URL, stays whole: people copy it.
func (c console) wrap(text string, indent int) string {
	return strings.Join(c.wrapped(text, indent), "\n"+strings.Repeat(" ", indent))
}

func (c console) wrapped(text string, indent int) (lines []string) {
	for line := range strings.SplitSeq(text, "\n") {
		width := indent
		for i, word := range strings.Split(line, " ") {
			n := utf8.RuneCountInString(word)
			if i == 0 || c.width > 0 && width+1+n > c.width {
				lines, width = append(lines, word), indent+n
				continue
			}
			lines[len(lines)-1] += " " + word
			width += 1 + n
		}
	}
	return lines
}

// progressEvery is the least time between two lines of progress. Tests change it.
var progressEvery = time.Second

// progress returns a function that shows how far a command is, and one that removes what it has shown. A terminal
// that can go back has one line, which is rewritten; another has a line each progressEvery; and what is no
// terminal, such as the log of a timer, a line now and then.
func (c console) progress() (show func(line string), clear func()) {
	if c.file == nil {
		last := time.Now()
		return func(text string) {
			if time.Since(last) >= 30*progressEvery {
				last = time.Now()
				fmt.Fprintln(c.other, text)
			}
		}, func() {}
	}
	every := progressEvery
	if c.canGoBack {
		every /= 10
	}
	var last time.Time
	show = func(text string) {
		if time.Since(last) < every {
			return
		}
		last = time.Now()
		line := []rune(printable(text))
		if !c.canGoBack {
			fmt.Fprintf(c.file, "%s\n", string(line))
			return
		}
		if c.width > 0 {
			line = line[:min(len(line), c.width-1)] // a second line could not be taken back
		}
		fmt.Fprintf(c.file, "\r%s\x1b[K", string(line))
	}
	return show, func() {
		if c.canGoBack && !last.IsZero() {
			fmt.Fprint(c.file, "\r\x1b[K")
		}
	}
}
