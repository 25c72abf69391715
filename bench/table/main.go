// Command table turns the results of bench/run into the tables of the README.
//
//	go run ./table [-readme file] results
//
// With -readme it writes them there, between the two comments that say so, and else
// to standard output.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

const (
	begin = "<!-- bench/run writes what follows -->\n"
	end   = "<!-- bench/run writes what precedes -->\n"
)

func main() {
	log.SetFlags(0)
	readme := flag.String("readme", "", "the file to write the tables into")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("want the file of results")
	}
	if err := run(flag.Arg(0), *readme); err != nil {
		log.Fatal(err)
	}
}

func run(resultsFile, readme string) error {
	f, err := os.Open(resultsFile)
	if err != nil {
		return err
	}
	defer f.Close()
	results, err := read(f, resultsFile)
	if err != nil {
		return err
	}
	tables := results.tables()
	if readme == "" {
		_, err := os.Stdout.WriteString(tables)
		return err
	}
	text, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	if text, err = replace(text, tables); err != nil {
		return fmt.Errorf("%s: %w", readme, err)
	}
	return os.WriteFile(readme, text, 0o644)
}

// replace puts the tables between the two comments.
func replace(text []byte, tables string) ([]byte, error) {
	before, rest, ok := bytes.Cut(text, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return nil, errors.New("it lacks the comments between which the tables stand")
	}
	return slices.Concat(before, []byte(begin), []byte(tables), []byte(end), after), nil
}

// results has all values that were measured, by benchmark and library.
type results struct {
	machine string
	values  map[string]map[string][]float64
}

func read(r io.Reader, name string) (*results, error) {
	res := &results{values: make(map[string]map[string][]float64)}
	in := benchfmt.NewReader(r, name)
	for in.Scan() {
		line, ok := in.Result().(*benchfmt.Result)
		if !ok {
			continue // the units' descriptions, and lines that are no benchmark's
		}
		if res.machine == "" {
			res.machine = fmt.Sprintf("%s, %s processors, %s, %s", line.GetConfig("cpu"), line.GetConfig("processors"), line.GetConfig("go"), line.GetConfig("date"))
		}
		full := strings.TrimRight(string(line.Name.Full()), "0123456789")
		benchmark, library, ok := strings.Cut(strings.TrimSuffix(full, "-"), "/lib=")
		if !ok {
			continue
		}
		value, ok := line.Value("sec/op")
		if !ok {
			value, ok = line.Value("req/s")
		}
		if !ok {
			continue
		}
		if res.values[benchmark] == nil {
			res.values[benchmark] = make(map[string][]float64)
		}
		res.values[benchmark][library] = append(res.values[benchmark][library], value)
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	if len(res.values) == 0 {
		return nil, errors.New("there is no result in " + name)
	}
	return res, nil
}

// median returns the median of a library's values; ok is false if it has none.
func (res *results) median(benchmark, library string) (m float64, ok bool) {
	v := slices.Sorted(slices.Values(res.values[benchmark][library]))
	if len(v) == 0 {
		return 0, false
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2, true
}

// A row of a table: what it is called, the benchmark, and the library that stands
// for ampcors in it.
type row struct{ title, benchmark, ours string }

var columns = []string{"ampcors", "jub0bs", "rs", "chi"}

var sections = []struct {
	header string
	format func(float64) string
	rows   []row
}{
	{"one request", duration, []row{
		{"allowed, 1 publisher", "Serial/case=allowed/publishers=1", "ampcors"},
		{"allowed, 100 publishers", "Serial/case=allowed/publishers=100", "ampcors"},
		{"allowed, 10,000 publishers", "Serial/case=allowed/publishers=10000", "ampcors"},
		{"allowed, 1,000,000 publishers", "Serial/case=allowed/publishers=1000000", "ampcors"},
		{"allowed, any of 1,000,000 publishers", "Spread/publishers=1000000", "ampcors"},
		{"internationalised, 10,000 publishers", "Serial/case=idn/publishers=10000", "ampcors"},
		{"hash-only, 10,000 publishers", "Serial/case=hash-only/publishers=10000", "ampcors"},
		{"own origin, 10,000 publishers", "Serial/case=own/publishers=10000", "ampcors"},
		{"own origin of a pattern, 10,000 publishers", "Serial/case=wildcard/publishers=10000", "ampcors"},
		{"cache origin of a pattern, 10,000 publishers", "Serial/case=wildcard-cache/publishers=10000", "ampcors"},
		{"no Origin, 10,000 publishers", "Serial/case=no-origin/publishers=10000", "ampcors"},
		{"preflight, 10,000 publishers", "Serial/case=preflight/publishers=10000", "ampcors"},
		{"refused and passed on, 10,000 publishers", "Serial/case=refused/publishers=10000", "ampcorsReportOnly"},
		{"refused with 403, 10,000 publishers", "Serial/case=refused/publishers=10000", "ampcors"},
		{"allowed, two processors at once, 10,000 publishers", "Parallel/case=allowed/publishers=10000", "ampcors"},
	}},
	{"one request made to cost much", duration, []row{
		{"Origin of 1 MiB", "Adversarial/case=origin-1MiB/publishers=10000", "ampcors"},
		{"method of 1 MiB", "Adversarial/case=method-1MiB/publishers=10000", "ampcors"},
		{"header names of 1 MiB", "Adversarial/case=header-names-1MiB/publishers=10000", "ampcors"},
		{"invented hashes", "Adversarial/case=invented-hashes/publishers=10000", "ampcors"},
		{"longest punycode on a cache", "Adversarial/case=punycode-63/publishers=10000", "ampcors"},
		{"longest punycode below a pattern", "Adversarial/case=punycode-pattern-253/publishers=10000", "ampcors"},
	}},
	{"building the policy", duration, []row{
		{"10,000 publishers", "New/publishers=10000", "ampcors"},
		{"1,000,000 publishers", "New/publishers=1000000", "ampcors"},
	}},
	{"requests a second to a server, 10,000 publishers", count, []row{
		{"allowed", "EndToEnd/case=allowed", "ampcors"},
		{"no Origin", "EndToEnd/case=no-origin", "ampcors"},
	}},
}

// tables returns all tables in Markdown.
func (res *results) tables() string {
	out := new(strings.Builder)
	fmt.Fprintf(out, "\nMedians. Machine: %s.\n", res.machine)
	for _, section := range sections {
		fmt.Fprintf(out, "\n| %s | ampcors | jub0bs/cors | rs/cors | go-chi/cors |\n| --- | --- | --- | --- | --- |\n", section.header)
		for _, r := range section.rows {
			fmt.Fprintf(out, "| %s |", r.title)
			for _, library := range columns {
				if library == "ampcors" {
					library = r.ours
				}
				cell := "–"
				if m, ok := res.median(r.benchmark, library); ok {
					cell = section.format(m)
				}
				fmt.Fprintf(out, " %s |", cell)
			}
			out.WriteString("\n")
		}
	}
	if floor, ok := res.median("Serial/case=allowed/publishers=1", "floor"); ok {
		fmt.Fprintf(out, "\nA handler that compares one origin and sets the same headers takes %s.", duration(floor))
	}
	if none, ok := res.median("EndToEnd/case=allowed", "none"); ok {
		fmt.Fprintf(out, "\nA server without any of them answers %s requests a second", count(none))
		if floor, ok := res.median("EndToEnd/case=allowed", "floor"); ok {
			fmt.Fprintf(out, ",\nand one with that handler %s", count(floor))
		}
		out.WriteString(".")
	}
	out.WriteString("\n\n")
	return out.String()
}

// duration formats seconds with three significant digits or all before the point.
func duration(seconds float64) string {
	for _, unit := range []struct {
		name    string
		seconds float64
	}{{"s", 1}, {"ms", 1e-3}, {"µs", 1e-6}} {
		if n := seconds / unit.seconds; n >= 1 {
			return significant(n) + " " + unit.name
		}
	}
	return significant(seconds/1e-9) + " ns"
}

func significant(n float64) string {
	switch {
	case n >= 100:
		return fmt.Sprintf("%.0f", n)
	case n >= 10:
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.2f", n)
}

// count formats a whole number with a comma before each three digits.
func count(n float64) string {
	digits := fmt.Sprintf("%.0f", n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
