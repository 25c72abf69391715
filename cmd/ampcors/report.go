package main

import (
	_ "embed"
	"encoding/xml"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/ampcors/ampcors/cmd/ampcors/probe"
)

// writers write a report, by the name of the format.
var writers = map[string]func(w io.Writer, report *probe.Report) error{
	"table": func(w io.Writer, report *probe.Report) error { return writeTable(w, report, false) },
	"json":  func(w io.Writer, report *probe.Report) error { return writeJSON(w, report) },
	"junit": writeJUnit,
	"html":  writeHTML,
}

// colors are the escape sequences of severities.
var colors = map[probe.Severity]string{probe.High: "\x1b[31m", probe.Medium: "\x1b[33m", probe.Low: "\x1b[36m"}

// writeTable writes the report as text. It makes what comes from outside printable itself, because
// the escape sequences of colors must not go through a printer.
func writeTable(w io.Writer, report *probe.Report, color bool) error {
	var b strings.Builder
	for _, f := range report.Findings {
		severity := fmt.Sprintf("%-6s", f.Severity)
		if color {
			severity = colors[f.Severity] + severity + "\x1b[0m"
		}
		fmt.Fprintf(&b, "%s  %s: %s\n", severity, f.ID, printable(f.Title))
		for _, line := range []struct{ name, text string }{
			{"endpoint", f.Endpoint}, {"page at", f.Origin}, {"evidence", f.Evidence}, {"remedy", f.Remedy}, {"try it", f.Curl},
		} {
			fmt.Fprintf(&b, "        %-9s %s\n", line.name, printable(line.text))
		}
		b.WriteString("\n")
	}
	if len(report.Snippets) > 0 {
		b.WriteString("Snippets for nginx, Apache, Express and Caddy are in the formats json and html. Or put ampcors in front.\n\n")
	}
	for _, u := range report.Untested {
		fmt.Fprintf(&b, "not tested: %s: %s\n", printable(u.Endpoint), printable(u.Reason))
	}
	for _, u := range report.Unknown {
		fmt.Fprintf(&b, "known only in the browser: %s: %s\n", printable(u.Component), printable(u.What))
	}
	for _, note := range report.Notes {
		fmt.Fprintf(&b, "note: %s\n", printable(note))
	}
	s := report.Summary
	fmt.Fprintf(&b, "%d endpoints, %d requests; findings: %d high, %d medium, %d low\n", s.Endpoints, s.Requests, s.High, s.Medium, s.Low)
	_, err := io.WriteString(w, b.String())
	return err
}

// The elements of JUnit's XML, as CI servers read it. A finding is a test case that fails,
// an Untested is one that is skipped, and an endpoint without either is one that passes.
type (
	junitSuites struct {
		XMLName xml.Name   `xml:"testsuites"`
		Suite   junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitFailure `xml:"failure,omitempty"`
		Skipped *junitFailure `xml:"skipped,omitempty"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

func writeJUnit(w io.Writer, report *probe.Report) error {
	suite := junitSuite{Name: "ampcors probe " + report.Target}
	seen := make(map[string]bool)
	for _, e := range report.Endpoints {
		if seen[e.URL] {
			continue
		}
		seen[e.URL] = true
		isClean := true
		for _, f := range report.Findings {
			if f.Endpoint == e.URL {
				isClean = false
				suite.Failures++
				suite.Cases = append(suite.Cases, junitCase{Class: e.URL, Name: f.ID, Failure: &junitFailure{f.Title, string(f.Severity), f.Evidence + "\n" + f.Remedy + "\n" + f.Curl}})
			}
		}
		for _, u := range report.Untested {
			if u.Endpoint == e.URL {
				isClean = false
				suite.Skipped++
				suite.Cases = append(suite.Cases, junitCase{Class: e.URL, Name: "untested", Skipped: &junitFailure{Message: u.Reason}})
			}
		}
		if isClean {
			suite.Cases = append(suite.Cases, junitCase{Class: e.URL, Name: "clean"})
		}
	}
	suite.Tests = len(suite.Cases)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(junitSuites{Suite: suite}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

//go:embed report.html
var reportHTML string

var reportTemplate = template.Must(template.New("report").Parse(reportHTML))

func writeHTML(w io.Writer, report *probe.Report) error {
	return reportTemplate.Execute(w, report)
}
