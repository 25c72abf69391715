// Command report writes what bench/README.md shows of the results of bench/run: a picture of the time of an allowed
// request against the number of publishers, and a table of medians.
//
//	report results.out allowed.svg README.md
package main

import (
	"bytes"
	"fmt"
	"log"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// libraries are drawn in this order: ours is last, and so above the others.
var libraries = []struct{ key, name string }{
	{"chi", "go-chi/cors"}, {"rs", "rs/cors"}, {"jub0bs", "jub0bs/cors"}, {"ampcors", "ampcors"},
}

// rows are the rows of the table: what is measured, and the name of its benchmark.
var rows = []struct{ label, name string }{
	{"allowed, 1 publisher", "Serial/case=allowed/publishers=1"},
	{"allowed, 10,000 publishers", "Serial/case=allowed/publishers=10000"},
	{"allowed, 1,000,000 publishers", "Serial/case=allowed/publishers=1000000"},
	{"random ones of 1,000,000", "Spread/publishers=1000000"},
	{"hash prefix", "Serial/case=hash-prefix/publishers=10000"},
	{"own origin", "Serial/case=own/publishers=10000"},
	{"own origin below a pattern", "Serial/case=wildcard/publishers=10000"},
	{"no Origin", "Serial/case=no-origin/publishers=10000"},
	{"preflight", "Serial/case=preflight/publishers=10000"},
	{"denied", "Serial/case=denied/publishers=10000"},
	{"Origin of 1 MiB", "Adversarial/case=origin-1MiB/publishers=10000"},
	{"header names of 1 MiB", "Adversarial/case=header-names-1MiB/publishers=10000"},
	{"longest punycode prefix, all different", "Adversarial/case=longest-punycode/publishers=10000"},
	{"to build the policy of 1,000,000", "New/publishers=1000000"},
	{"requests a second to a server", "EndToEnd/case=allowed"},
}

// The picture, and the part of it that has the lines, in pixels.
const (
	width, height            = 440, 330
	left, right, top, bottom = 60, 340, 30, 280
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 4 {
		log.Fatal("usage: report results.out allowed.svg README.md")
	}
	found, about, err := read(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	text, err := table(found, about)
	if err != nil {
		log.Fatal(err)
	}
	if err := write(os.Args[3], text); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(os.Args[2], []byte(draw(found)), 0o644); err != nil {
		log.Fatal(err)
	}
}

// results are the values of a benchmark, in seconds or requests a second: by its name without the library, and by the
// library.
type results map[string]map[string][]float64

// median returns the median, and whether the library has been measured.
func (r results) median(name, library string) (float64, bool) {
	values := slices.Sorted(slices.Values(r[name][library]))
	if len(values) == 0 {
		return 0, false
	}
	middle := len(values) / 2
	return (values[middle] + values[(len(values)-1)/2]) / 2, true
}

// table returns the table, and when and where its values were measured.
func table(found results, about map[string]string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "Medians of %s rounds on %s, %s processors, with %s, on %s:\n\n", about["rounds"], about["cpu"],
		about["processors"], about["go"], about["date"])
	b.WriteString("| |")
	for _, library := range slices.Backward(libraries) {
		fmt.Fprintf(&b, " %s |", library.name)
	}
	b.WriteString("\n|" + strings.Repeat(" --- |", len(libraries)+1) + "\n")
	for _, row := range rows {
		if found[row.name] == nil {
			return "", fmt.Errorf("there is no benchmark %s", row.name)
		}
		fmt.Fprintf(&b, "| %s |", row.label)
		for _, library := range slices.Backward(libraries) {
			switch value, ok := found.median(row.name, library.key); {
			case !ok:
				b.WriteString(" |")
			case strings.HasPrefix(row.name, "EndToEnd/"):
				fmt.Fprintf(&b, " %d,%03d |", int(value)/1000, int(value)%1000)
			default:
				fmt.Fprintf(&b, " %s |", duration(value))
			}
		}
		b.WriteString("\n")
	}
	return b.String(), nil
}

// duration writes seconds with three digits.
func duration(seconds float64) string {
	value, err := strconv.ParseFloat(strconv.FormatFloat(seconds*1e9, 'g', 3, 64), 64)
	if err != nil {
		log.Fatal(err) // it is not possible
	}
	for _, unit := range []string{"ns", "µs", "ms"} {
		if value < 1000 {
			return digits(value) + " " + unit
		}
		value /= 1000
	}
	return digits(value) + " s"
}

// digits writes a number of three digits, such as 7.10 or 710.
func digits(value float64) string {
	return strconv.FormatFloat(value, 'f', 2-int(math.Log10(max(value, 1))), 64)
}

// write puts a text between the two comments of a document that name this program.
func write(document, text string) error {
	data, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	first, last := []byte("<!-- bench/run writes what follows -->\n"), []byte("<!-- bench/run writes what precedes -->\n")
	before, rest, ok := bytes.Cut(data, first)
	_, after, ok2 := bytes.Cut(rest, last)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for the table; want the lines\n%s%s", document, first, last)
	}
	return os.WriteFile(document, slices.Concat(before, first, []byte(text), last, after), 0o644)
}

// x and y return where a number of publishers, and a time in seconds, are drawn. Both axes are logarithmic.
func x(publishers float64) float64 { return left + math.Log10(publishers)/6*(right-left) }
func y(seconds float64) float64    { return bottom - (math.Log10(seconds)+7)/4.3*(bottom-top) }

// draw returns the picture. It has a ground of its own, because a page can be light where the system is dark.
func draw(found results) string {
	var b strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="system-ui, sans-serif" `+
		`font-size="13">`, width, height)
	add(`<title>The time of an allowed request against the number of publishers</title>`)
	add(`<style>
.ground { fill: #ffffff } text { fill: #1f2328 } .grid { stroke: #d1d9e0 } path { fill: none; stroke-width: 2 }
.ampcors { stroke: #0969da; stroke-width: 4 } .jub0bs { stroke: #1a7f37 } .rs { stroke: #bc4c00; stroke-dasharray: 7 3 }
.chi { stroke: #8250df; stroke-dasharray: 2 3 } .grid { stroke-width: 1 } .name { font-weight: 600 }
@media (prefers-color-scheme: dark) {
.ground { fill: #0d1117 } text { fill: #f0f6fc } .grid { stroke: #3d444d }
.ampcors { stroke: #4493f8 } .jub0bs { stroke: #3fb950 } .rs { stroke: #db6d28 } .chi { stroke: #ab7df8 }
}
</style>`)
	add(`<rect class="ground" width="%d" height="%d" rx="8"/>`, width, height)
	for _, mark := range []struct {
		value float64
		label string
	}{{1, "1"}, {100, "100"}, {1e4, "10,000"}, {1e6, "1,000,000"}} {
		add(`<path class="grid" d="M%.1f %dV%d"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`, x(mark.value), top,
			bottom, x(mark.value), bottom+20, mark.label)
	}
	for _, mark := range []struct {
		value float64
		label string
	}{{1e-7, "100 ns"}, {1e-6, "1 µs"}, {1e-5, "10 µs"}, {1e-4, "100 µs"}, {1e-3, "1 ms"}} {
		add(`<path class="grid" d="M%d %.1fH%d"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`, left, y(mark.value),
			right, left-8, y(mark.value)+4, mark.label)
	}
	add(`<text x="%d" y="%d" text-anchor="middle">publishers</text><text x="12" y="18">time of an allowed request</text>`,
		(left+right)/2, bottom+44)
	labelled := math.Inf(1) // where the last label is
	for _, library := range libraries {
		path, last := "M", 0.0
		for _, n := range []float64{1, 100, 1e4, 1e6} {
			value, ok := found.median(fmt.Sprintf("Serial/case=allowed/publishers=%.0f", n), library.key)
			if !ok {
				continue
			}
			path += fmt.Sprintf(" %.1f %.1f", x(n), y(value))
			last = value
		}
		class, at := "", y(last)
		if library.key == "ampcors" {
			class = ` class="name"`
		}
		if math.Abs(at-labelled) < 16 {
			at = labelled + 16
		}
		labelled = at
		add(`<path class="%s" d="%s"/><text%s x="%d" y="%.1f">%s</text>`, library.key, path, class, right+8, at+4,
			library.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// read returns the results of a file, and what it says of the run.
func read(name string) (results, map[string]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	found, about := make(results), make(map[string]string)
	r := benchfmt.NewReader(f, name)
	for r.Scan() {
		result, ok := r.Result().(*benchfmt.Result)
		if err, isError := r.Result().(*benchfmt.SyntaxError); isError {
			return nil, nil, err
		} else if !ok {
			continue
		}
		for _, config := range result.Config {
			about[config.Key] = string(config.Value)
		}
		base, parts := result.Name.Parts()
		benchmark, library := string(base), ""
		for _, part := range parts {
			if key, value, _ := strings.Cut(string(part), "="); key == "/lib" {
				library = value
			} else if key[0] == '/' { // and not -2, the number of processors
				benchmark += string(part)
			}
		}
		value, ok := result.Value("sec/op")
		if !ok {
			value, ok = result.Value("req/s")
		}
		if !ok {
			continue
		}
		if found[benchmark] == nil {
			found[benchmark] = make(map[string][]float64)
		}
		found[benchmark][library] = append(found[benchmark][library], value)
	}
	return found, about, r.Err()
}
