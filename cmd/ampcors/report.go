package main

import (
	"cmp"
	_ "embed"
	"encoding/xml"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ampcors/ampcors/probe"
)

// A runReport is the report of a run of ampcors probe.
type runReport struct {
	*probe.Report
	Version string         `json:"version"`
	Command string         `json:"command"` // its flags, without secrets
	FailOn  probe.Severity `json:"failOn"`  // the lowest severity that is a failure; "none" for none
}

// writers write a report, by the name of the format. writeTable writes that for people.
var writers = map[string]func(w io.Writer, report *runReport) error{
	"json":   func(w io.Writer, report *runReport) error { return writeJSON(w, report) },
	"junit":  writeJUnit,
	"sarif":  writeSARIF,
	"github": writeGitHub,
	"html":   writeHTML,
}

// colors are the escape sequences of severities and of the words of the matrix.
var colors = map[string]string{"high": "\x1b[31m", "medium": "\x1b[33m", "low": "\x1b[36m", "blocked": "\x1b[31m",
	"unusable": "\x1b[31m",
	"ALLOWED":  "\x1b[31m", "works": "\x1b[32m", "denied": "\x1b[32m", "public": "\x1b[32m", "not tested": "\x1b[33m"}

// plural returns a number with a word, such as "1 endpoint" or "2 endpoints".
func plural(n int, word string) string { return count(n, word, word+"s") }

// maxUntested is how many reasons a table has.
const maxUntested = 20

// writeTable writes the report as text, with the advice for a server if that is not "". It makes what comes from
// outside printable itself, because the escape sequences of colors must not go through a printer.
func writeTable(w io.Writer, report *probe.Report, c console, advice string) error {
	var b strings.Builder
	paint := func(word string, width int) string {
		text := fmt.Sprintf("%-*s", width, word)
		if sequence, ok := colors[word]; ok && c.color {
			return sequence + text + "\x1b[0m"
		}
		return text
	}
	line := func(text string) { fmt.Fprintf(&b, "%s\n", c.wrap(printable(text), 4)) }
	for _, row := range matrix(report) {
		line(fmt.Sprintf("%s %s, %s, for %s", row.Method, row.Endpoint, row.How, row.Callers()))
		for _, l := range row.lines() {
			fmt.Fprintf(&b, "        %s %s\n", paint(l.word, 10), c.wrap(strings.Join(l.cells, ", "), 19))
		}
		b.WriteString("\n")
	}
	for _, f := range report.Findings {
		known := ""
		if f.Known {
			known = " (known)"
		}
		fmt.Fprintf(&b, "%s  %s\n", paint(string(f.Severity), 6),
			c.wrap(fmt.Sprintf("%s%s: %s", f.ID, known, printable(f.Title)), 8))
		for _, l := range []struct{ name, text string }{
			{"endpoint", f.Endpoint}, {"page at", pageAt(f)}, {"evidence", strings.Join(f.Evidence, "\n")}, {"remedy", f.Remedy},
		} {
			fmt.Fprintf(&b, "        %-9s %s\n", l.name, c.wrap(printable(l.text), 18))
		}
		fmt.Fprintf(&b, "        %-9s %s\n\n", "try it", printable(f.Curl)) // people copy it
	}
	for _, s := range report.Snippets {
		if s.Server == advice {
			fmt.Fprintf(&b, "%s\n", printable(s.Text))
		}
	}
	if len(report.Snippets) > 0 && advice == "" {
		line("What to configure: --advice SERVER prints it, and -o html has it, for " + or(probe.Servers()) + ".")
		b.WriteString("\n")
	}
	for i, u := range report.Untested {
		if i == maxUntested {
			line(fmt.Sprintf("not tested: %d more; -o json lists them", len(report.Untested)-i))
			break
		}
		line("not tested: " + u.Endpoint + ": " + reasonOf(u))
	}
	for _, u := range report.Unknown {
		line("known only in the browser: " + u.Component + ": " + u.What)
	}
	for _, note := range report.Notes {
		line("note: " + note)
	}
	for _, more := range report.More {
		line("to test more: " + more)
	}
	line(headline(report))
	line(counts(report))
	_, err := io.WriteString(w, b.String())
	return err
}

// reasonOf says why something was not tested, and how much.
func reasonOf(u probe.Untested) string {
	if u.Trials == 0 {
		return u.Reason
	}
	return plural(u.Trials, "trial") + ": " + u.Reason
}

// counts says what was tested.
func counts(report *probe.Report) string {
	s := report.Summary
	known := ""
	if n := len(report.Findings) - s.High - s.Medium - s.Low; n > 0 {
		known = fmt.Sprintf(", %d known", n)
	}
	parts, inPart := 0, ""
	for _, u := range report.Untested {
		if u.Trials == 0 {
			parts++
		}
	}
	if parts > 0 {
		inPart = fmt.Sprintf(", and %s not or only in part", plural(parts, "document or endpoint"))
	}
	return fmt.Sprintf("%s, %s: %d fine, %s, %d not tested%s; %s, %s; findings: %d high, %d medium, %d low%s",
		plural(s.Endpoints, "endpoint"), plural(s.Planned, "trial"), s.Fine, plural(s.Problems, "problem"), s.NotTested,
		inPart,
		plural(s.Requests, "request"), plural(s.Controls, "control"), s.High, s.Medium, s.Low, known)
}

// headline says in plain words what the report means, for people who read nothing else.
func headline(report *probe.Report) string {
	var texts []string
	if len(report.Trials) == 0 || slices.ContainsFunc(report.Trials,
		func(t probe.Trial) bool { return !t.Kind.IsEmail() }) {
		texts = append(texts, headlineOfPages(report))
	}
	var emails, works, others, allowed, unknown int
	for _, t := range report.Trials {
		switch {
		case !t.Kind.IsEmail():
		case t.Outcome == probe.NotTested:
			unknown++
		case t.Kind == probe.KindEmails:
			emails++
			if t.Works {
				works++
			}
		default:
			others++
			if t.Outcome == probe.Problem {
				allowed++
			}
		}
	}
	if emails+others+unknown > 0 {
		text := fmt.Sprintf("Emails of the senders are answered as mail clients want it in %d of %s; %d of %s with another "+
			"sender or origin were allowed", works,
			plural(emails, "trial"), allowed, plural(others, "request"))
		if unknown > 0 {
			text += fmt.Sprintf("; not tested: %d", unknown)
		}
		texts = append(texts, text+".")
	}
	if cause := whatIsWrong(report); cause != "" {
		texts = append(texts, cause)
	}
	if reason := whyNotTested(report); reason != "" {
		texts = append(texts, "The most frequent reason why something could not be tested: "+reason+".")
	}
	return strings.Join(texts, " ")
}

// whatIsWrong names the first finding that is not known, which is one of the most severe.
func whatIsWrong(report *probe.Report) string {
	s := report.Summary
	i := slices.IndexFunc(report.Findings, func(f probe.Finding) bool { return !f.Known })
	if i < 0 {
		return ""
	}
	what := "What is wrong"
	if report.Findings[i].Severity == probe.Low {
		what = "To look at"
	}
	text := fmt.Sprintf("%s: %s (%s)", what, report.Findings[i].Title, report.Findings[i].ID)
	if more := s.High + s.Medium + s.Low - 1; more > 0 {
		text += fmt.Sprintf(", and %s more", plural(more, "finding"))
	}
	return text + "."
}

// whyNotTested returns why most of the trials that failed could not be tested, or "". What the flags do not allow
// is in "to test more".
func whyNotTested(report *probe.Report) (most string) {
	trials := make(map[string]int) // of all endpoints
	for _, u := range report.Untested {
		if u.Failed {
			if trials[u.Reason] += u.Trials; most == "" || trials[u.Reason] > trials[most] {
				most = u.Reason
			}
		}
	}
	words := strings.Fields(most)
	for n := range words {
		if len(strings.Join(words[:n+1], " ")) > 200 {
			return strings.Join(words[:n], " ") + " …"
		}
	}
	return strings.Join(words, " ")
}

// headlineOfPages is the part about pages.
func headlineOfPages(report *probe.Report) string {
	var pages, works, changing, pagesUnknown, hostile, public, allowed, hostileUnknown int
	for _, t := range report.Trials {
		isUnknown := t.Outcome == probe.NotTested
		switch {
		case t.Kind == probe.KindPage && isUnknown:
			pagesUnknown++
		case t.Kind == probe.KindPage:
			pages++
			if t.Works {
				works++
			}
			if slices.Contains(t.Causes, probe.AnswersDiffer) {
				changing++
			}
		case t.Kind == probe.KindSenders:
		case t.Kind.IsHostile() && isUnknown:
			hostileUnknown++
		case t.Kind.IsHostile():
			hostile++
			if t.Outcome == probe.Problem {
				allowed++
			} else if t.IsPublic {
				public++
			}
		}
	}
	var text string
	switch {
	case pages == 0:
		text = "Whether the publisher's pages work was not tested."
	case changing > 0:
		text = fmt.Sprintf("The publisher's pages work at one time and not at another, in %d of %d places.", changing, pages)
	case works == pages && pagesUnknown == 0:
		text = "The publisher's pages work in each of " + plural(pages, "place") + "."
	case works == pages:
		text = fmt.Sprintf("The publisher's pages work in %d of %d places; the others were not tested.", works,
			pages+pagesUnknown)
	default:
		text = fmt.Sprintf("The publisher's pages do not work in %d of %d places.", pages-works, pages)
		if pagesUnknown > 0 {
			text += " Not tested: " + plural(pagesUnknown, "more place") + "."
		}
	}
	switch {
	case hostile > 0 && allowed == 0 && public > 0:
		text += fmt.Sprintf(" Answers without cookies are readable by every site, as public answers are, in %s; not "+
			"tested: %d."+
			" --credentials tests requests with cookies, where other sites must be denied.", plural(public, "trial"),
			hostileUnknown)
	case hostile == 0:
		text += " Whether other sites are denied was not tested."
	case allowed == 0 && hostileUnknown == 0:
		text += " No other page could read answers with the reader's cookies."
	case allowed == 0:
		text += fmt.Sprintf(" No other page could read answers with the reader's cookies in %s; not tested: %d.",
			plural(hostile, "trial"),
			hostileUnknown)
	default:
		text += fmt.Sprintf(" %d of %d requests of other pages were allowed.", allowed, hostile)
		if hostileUnknown > 0 {
			text += " Not tested: " + plural(hostileUnknown, "more request") + "."
		}
	}
	return text
}

// pageAt says at which origin the page of a finding is.
func pageAt(f probe.Finding) string {
	if f.Sender != "" {
		return cmp.Or(f.Origin, "none: a mail client, with version 2")
	}
	return cmp.Or(f.Origin, "none: a program that sends no Origin")
}

// A matrixRow shows the outcomes of one endpoint for one publisher.
type matrixRow struct {
	Endpoint, Method  string
	Publisher, Sender string // one of them
	How               string // with cookies or a preflight
	Cells             []matrixCell
}

// Callers says whose pages or emails call.
func (r matrixRow) Callers() string {
	if r.Sender != "" {
		return "emails of " + r.Sender
	}
	return "pages of " + r.Publisher
}

// A matrixCell is one page, or all hostile pages of a kind.
type matrixCell struct {
	Name string
	Word string // works, blocked, unusable, denied, ALLOWED or not tested
	Of   string // of how many it is true, such as "2 of 5"; "" if of all
}

// Class returns a name for style sheets.
func (c matrixCell) Class() string {
	switch c.Word {
	case "works", "denied", "public":
		return "good"
	case "not tested":
		return "unknown"
	}
	return "bad"
}

// matrix returns the outcomes as a matrix that people can look at.
func matrix(report *probe.Report) (rows []matrixRow) {
	for i := 0; i < len(report.Trials); {
		first := report.Trials[i]
		row := matrixRow{Endpoint: first.Endpoint, Method: first.Method, Publisher: first.Publisher, Sender: first.Sender,
			How: how(report, first)}
		var trials []probe.Trial
		for ; i < len(report.Trials) && report.Trials[i].Endpoint == first.Endpoint &&
			report.Trials[i].Method == first.Method &&
			report.Trials[i].Call == first.Call && report.Trials[i].Subject() == first.Subject(); i++ {
			trials = append(trials, report.Trials[i])
		}
		for _, kind := range probe.Kinds() {
			of := slices.DeleteFunc(slices.Clone(trials), func(t probe.Trial) bool { return t.Kind != kind })
			switch {
			case kind == probe.KindPage, kind == probe.KindEmails:
				for _, t := range of {
					row.Cells = append(row.Cells, pageCell(t))
				}
			case kind.IsHostile() && len(of) > 0:
				row.Cells = append(row.Cells, kindCell(kind, of))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// how says how pages call the endpoint of a trial.
func how(report *probe.Report, t probe.Trial) string {
	if t.Kind.IsEmail() {
		return "by a mail client"
	}
	cookies, preflight := "without cookies", "without a preflight"
	for _, e := range report.Endpoints {
		if e.URL == t.Endpoint && e.Method == t.Method && e.Call() == t.Call {
			if e.Credentials {
				cookies = "with cookies"
			}
			if e.NeedsPreflight() {
				preflight = "with a preflight"
			}
		}
	}
	return cookies + " and " + preflight
}

func pageCell(t probe.Trial) matrixCell {
	name := strings.TrimPrefix(strings.TrimPrefix(t.What, "the publisher's "), "page on the cache ")
	cell := matrixCell{Name: strings.TrimSuffix(strings.Replace(name, ",", "", 1), " prefix"), Word: "blocked"}
	switch {
	case t.Outcome == probe.NotTested:
		cell.Word = "not tested"
	case t.Works:
		cell.Word = "works"
	case t.Reason == "": // no browser blocks it
		cell.Word = "unusable"
	}
	return cell
}

func kindCell(kind probe.Kind, trials []probe.Trial) matrixCell {
	var allowed, unknown, public int
	for _, t := range trials {
		switch {
		case t.Outcome == probe.Problem:
			allowed++
		case t.Outcome == probe.NotTested:
			unknown++
		case t.IsPublic:
			public++
		}
	}
	cell, n := matrixCell{Name: string(kind), Word: "denied"}, len(trials)
	switch {
	case allowed > 0:
		cell.Word, n = "ALLOWED", allowed
	case unknown > 0:
		cell.Word, n = "not tested", unknown
	case public > 0:
		cell.Word, n = "public", public
	}
	if n < len(trials) {
		cell.Of = fmt.Sprintf("%d of %d", n, len(trials))
	}
	return cell
}

// A matrixLine has the cells of a row with the same word.
type matrixLine struct {
	word  string
	cells []string
}

func (r matrixRow) lines() (lines []matrixLine) {
	for _, word := range []string{"works", "blocked", "unusable", "denied", "public", "ALLOWED", "not tested"} {
		line := matrixLine{word: word}
		for _, c := range r.Cells {
			if c.Word != word {
				continue
			}
			name := c.Name
			if c.Of != "" {
				name += " (" + c.Of + ")"
			}
			line.cells = append(line.cells, name)
		}
		if len(line.cells) == len(r.Cells) && word == "not tested" {
			line.cells = []string{"in any way: the reason is below"}
		}
		if len(line.cells) > 0 {
			lines = append(lines, line)
		}
	}
	return lines
}

// effort says how much a right backend is asked. Mistakes lead to more requests.
func effort(e probe.Estimate) string {
	text := fmt.Sprintf("%s, about %s", plural(e.Trials, "trial"), plural(e.Requests, "request"))
	if e.Time > 0 {
		text += fmt.Sprintf(", at least %v by --rate", e.Time.Round(time.Second))
	}
	return text
}

// writePlan writes what would be tested.
func writePlan(w io.Writer, output string, report *runReport) error {
	if output == "json" {
		return writeJSON(w, report)
	}
	for _, e := range report.Endpoints {
		if _, err := fmt.Fprintf(w, "endpoint: %s %s (%s)\n", e.Method, e.URL, e.Component); err != nil {
			return err
		}
	}
	for _, t := range report.Trials {
		skipped := ""
		if t.Outcome == probe.NotTested {
			skipped = " (not tested: " + t.Reason + ")"
		}
		if _, err := fmt.Fprintf(w, "%s %s: %s: %s %s%s\n", t.Method, t.Endpoint, t.Kind, t.What, t.Origin,
			skipped); err != nil {
			return err
		}
	}
	for _, u := range report.Untested {
		if u.Trials == 0 {
			if _, err := fmt.Fprintf(w, "not tested: %s: %s\n", u.Endpoint, u.Reason); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(w, "%s, %s\n", plural(len(report.Endpoints), "endpoint"), effort(report.Estimate))
	return err
}

// writeGitHub writes annotations, which GitHub Actions shows beside a run.
func writeGitHub(w io.Writer, report *runReport) error {
	escape := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	commands := map[probe.Severity]string{probe.High: "error", probe.Medium: "warning", probe.Low: "notice"}
	var b strings.Builder
	for _, f := range report.Findings {
		command := commands[f.Severity]
		if f.Known {
			command = "notice"
		}
		fmt.Fprintf(&b, "::%s title=%s::%s\n", command, property.Replace(string(f.ID)),
			escape.Replace(f.Endpoint+": "+f.Title+"\n"+strings.Join(f.Evidence, "\n")+"\n"+f.Remedy))
	}
	for i, u := range report.Untested {
		if i == maxUntested {
			fmt.Fprintf(&b, "::warning title=not tested::%d more\n", len(report.Untested)-i)
			break
		}
		fmt.Fprintf(&b, "::warning title=not tested::%s\n", escape.Replace(u.Endpoint+": "+reasonOf(u)))
	}
	for _, u := range report.Unknown {
		fmt.Fprintf(&b, "::notice title=known only in the browser::%s\n", escape.Replace(u.Component+": "+u.What))
	}
	fmt.Fprintf(&b, "%s\n%s\n", headline(report.Report), counts(report.Report))
	_, err := io.WriteString(w, b.String())
	return err
}

// The elements of JUnit's XML, as CI servers read it. Each trial is a test case, so that CI shows what was fixed.
// A problem is a failure. What could not be tested is an error, and what the flags do not allow, or is
// known, is skipped.
type (
	junitSuites struct {
		XMLName xml.Name   `xml:"testsuites"`
		Suite   junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitFailure `xml:"failure,omitempty"`
		Error   *junitFailure `xml:"error,omitempty"`
		Skipped *junitFailure `xml:"skipped,omitempty"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

func writeJUnit(w io.Writer, report *runReport) error {
	suite := junitSuite{Name: "ampcors probe " + report.Target}
	notTested := func(c junitCase, reason string, failed bool) {
		if failure := (&junitFailure{Message: reason}); failed {
			suite.Errors++
			c.Error = failure
		} else {
			suite.Skipped++
			c.Skipped = failure
		}
		suite.Cases = append(suite.Cases, c)
	}
	isFailure := func(f probe.Finding) bool { return report.FailOn != "none" && f.Severity.AtLeast(report.FailOn) }
	for _, t := range report.Trials {
		c := junitCase{Class: t.Method + " " + t.Endpoint + " " + t.Subject(),
			Name: strings.TrimSpace(string(t.Kind) + ": " + t.What + " " + t.Origin)}
		switch f := findingOf(report.Report, t); {
		case t.Outcome == probe.NotTested:
			notTested(c, t.Reason, !t.ByChoice)
			continue
		case t.Outcome == probe.Problem && f.Known:
			notTested(c, "known: "+f.Title, false)
			continue
		case t.Outcome == probe.Problem && !isFailure(f):
			notTested(c, "below --fail-on: "+f.Title, false)
			continue
		case t.Outcome == probe.Problem:
			suite.Failures++
			c.Failure = &junitFailure{strings.Join(textsOf(t.Causes), ", ") + ": " + f.Title, string(f.Severity),
				strings.Join(f.Evidence, "\n") + "\n" + f.Remedy + "\n" + f.Curl}
		}
		suite.Cases = append(suite.Cases, c)
	}
	for _, f := range report.Findings { // of no trial
		if f.ID == probe.AnswersDiffer && !f.Known && !slices.ContainsFunc(report.Trials,
			func(t probe.Trial) bool { return findingOf(report.Report, t).ID == f.ID }) {
			c := junitCase{Class: f.Method + " " + f.Endpoint + " " + f.Subject(), Name: string(f.ID)}
			if !isFailure(f) {
				notTested(c, "below --fail-on: "+f.Title, false)
				continue
			}
			suite.Failures++
			c.Failure = &junitFailure{f.Title, string(f.Severity), strings.Join(f.Evidence, "\n") + "\n" + f.Remedy}
			suite.Cases = append(suite.Cases, c)
		}
	}
	for _, u := range report.Untested {
		if u.Trials == 0 {
			notTested(junitCase{Class: u.Endpoint, Name: "not tested"}, u.Reason, u.Failed)
		}
	}
	for _, u := range report.Unknown {
		notTested(junitCase{Class: u.Component, Name: "known only in the browser"}, u.What, false)
	}
	suite.Tests = len(suite.Cases)
	text, err := xml.MarshalIndent(junitSuites{Suite: suite}, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	return err
}

//go:embed report.html
var reportHTML string

var reportTemplate = template.Must(template.New("report").Funcs(
	template.FuncMap{"headline": headline, "pageAt": pageAt, "counts": counts,
		"matrix": matrix, "reason": reasonOf}).Parse(reportHTML))

// findingOf returns the finding for a trial with a problem: one that is not known, if there is one.
func findingOf(report *probe.Report, t probe.Trial) (found probe.Finding) {
	for _, f := range report.Findings {
		isOf := slices.Contains(t.Causes, f.ID) && f.Endpoint == t.Endpoint && f.Method == t.Method && f.Call == t.Call &&
			f.Subject() == t.Subject()
		if isOf && (found.ID == "" || found.Known) {
			found = f
		}
	}
	return found
}

func writeHTML(w io.Writer, report *runReport) error {
	return reportTemplate.Execute(w, report)
}

// textsOf returns ids as texts.
func textsOf[T ~string](ids []T) []string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = string(id)
	}
	return texts
}
