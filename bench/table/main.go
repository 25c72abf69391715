// Command table turns the results of bench/run into the tables and the plot of bench's README.
//
//	go run ./table [-readme file] [-plot file] results
//
// It writes the tables into the README, between the two comments for them, or to standard
// output. It writes the plot as SVG.
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
	plot := flag.String("plot", "", "the file to write the plot to")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("want the file of results")
	}
	if err := run(flag.Arg(0), *readme, *plot); err != nil {
		log.Fatal(err)
	}
}

func run(resultsFile, readme, plot string) error {
	f, err := os.Open(resultsFile)
	if err != nil {
		return err
	}
	defer f.Close()
	results, err := read(f, resultsFile)
	if err != nil {
		return err
	}
	tables, err := results.tables()
	if err != nil {
		return err
	}
	if plot != "" {
		drawing, err := results.svg()
		if err != nil {
			return err
		}
		if err := os.WriteFile(plot, drawing, 0o644); err != nil {
			return err
		}
	}
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
		return nil, errors.New("the comments around the tables are missing")
	}
	return slices.Concat(before, []byte(begin), []byte(tables), []byte(end), after), nil
}

// results has all values that were measured, by benchmark and library.
type results struct {
	run    string // how it was measured
	values map[string]map[string][]float64
}

func read(r io.Reader, name string) (*results, error) {
	res := &results{values: make(map[string]map[string][]float64)}
	in := benchfmt.NewReader(r, name)
	for in.Scan() {
		line, ok := in.Result().(*benchfmt.Result)
		if !ok {
			continue // a description of units, or a line that is not a result
		}
		if res.run == "" {
			res.run = fmt.Sprintf("Medians of %s rounds on %s, %s processors, with %s, on %s.",
				line.GetConfig("rounds"), line.GetConfig("cpu"), line.GetConfig("processors"), line.GetConfig("go"), line.GetConfig("date"))
		}
		name := string(line.Name.Full())
		if _, parts := line.Name.Parts(); len(parts) > 0 && parts[len(parts)-1][0] == '-' {
			name = strings.TrimSuffix(name, string(parts[len(parts)-1])) // the number of processors
		}
		benchmark, library, ok := strings.Cut(name, "/lib=")
		if !ok {
			continue
		}
		var value float64
		for _, unit := range []string{"req/s", "policy-B", "sec/op"} {
			if value, ok = line.Value(unit); ok {
				break
			}
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

// A row of a table: its title, its benchmark, and the library of each column, "" for an
// empty cell.
type row struct {
	title, benchmark string
	libraries        []string
}

var (
	all          = []string{"ampcors", "jub0bs", "rs", "chi"}
	onlyAMPCORS  = []string{"ampcors", "", "", ""}
	allPassingOn = []string{"ampcorsReportOnly", "jub0bs", "rs", "chi"}
	known        = []string{"listed", "remembered", "asked"}
)

var (
	peers   = []string{"ampcors", "jub0bs/cors", "rs/cors", "go-chi/cors"}
	sources = []string{"listed", "Source, remembered", "Source, looked up"}
)

// A section is one table.
type section struct {
	title  string
	format func(float64) string
	rows   []row
}

// sections are the tables that compare ampcors with its peers.
var sections = []section{
	{"time of one request", duration, []row{
		{"allowed, 1 publisher", "Serial/case=allowed/publishers=1", all},
		{"allowed, 100 publishers", "Serial/case=allowed/publishers=100", all},
		{"allowed, 10,000 publishers", "Serial/case=allowed/publishers=10000", all},
		{"allowed, 1,000,000 publishers", "Serial/case=allowed/publishers=1000000", all},
		{"allowed, random ones of 1,000,000 publishers", "Spread/publishers=1000000", all},
		{"internationalized, 10,000 publishers", "Serial/case=idn/publishers=10000", all},
		{"hash prefix, 10,000 publishers", "Serial/case=hash-prefix/publishers=10000", all},
		{"own origin, 10,000 publishers", "Serial/case=own/publishers=10000", all},
		{"own origin below a pattern, 10,000 publishers", "Serial/case=wildcard/publishers=10000", all},
		{"cache origin below a pattern, 10,000 publishers", "Serial/case=wildcard-cache/publishers=10000", onlyAMPCORS},
		{"no Origin, 10,000 publishers", "Serial/case=no-origin/publishers=10000", all},
		{"preflight, 10,000 publishers", "Serial/case=preflight/publishers=10000", all},
		{"denied and passed on, 10,000 publishers", "Serial/case=denied/publishers=10000", allPassingOn},
		{"denied with 403, 10,000 publishers", "Serial/case=denied/publishers=10000", onlyAMPCORS},
	}},
	{"time of one expensive request, 10,000 publishers", duration, []row{
		{"Origin of 1 MiB", "Adversarial/case=origin-1MiB/publishers=10000", all},
		{"method of 1 MiB", "Adversarial/case=method-1MiB/publishers=10000", all},
		{"header names of 1 MiB", "Adversarial/case=header-names-1MiB/publishers=10000", all},
		{"invented hash prefixes, all different", "Adversarial/case=invented-hashes/publishers=10000", all},
		{"longest punycode prefix, all different", "Adversarial/case=longest-punycode/publishers=10000", all},
		{"longest punycode host below a pattern, all different", "Adversarial/case=longest-punycode-pattern/publishers=10000", all},
	}},
	{"time for each request while all processors answer", duration, []row{
		{"allowed, 1 publisher", "Parallel/case=allowed/publishers=1", all},
		{"allowed, 10,000 publishers", "Parallel/case=allowed/publishers=10000", all},
	}},
	{"time to build the policy", duration, []row{
		{"10,000 publishers", "New/publishers=10000", all},
		{"1,000,000 publishers", "New/publishers=1000000", all},
		{"1,000,000 publishers, read from a file", "NewFromFile/publishers=1000000", onlyAMPCORS},
	}},
	{"requests a second to a server, 10,000 publishers", count, []row{
		{"allowed", "EndToEnd/case=allowed", all},
		{"no Origin", "EndToEnd/case=no-origin", all},
	}},
}

// sourceSections are the tables that compare listed publishers with those of a Source.
var sourceSections = []section{
	{"time of one request, 10,000 publishers", duration, []row{
		{"allowed", "Source/serial/case=allowed/publishers=10000", known},
		{"of different publishers", "Source/serial/case=spread/publishers=10000", known},
		{"internationalized", "Source/serial/case=idn/publishers=10000", known},
		{"hash prefix", "Source/serial/case=hash-prefix/publishers=10000", known},
		{"own origin", "Source/serial/case=own/publishers=10000", known},
		{"denied", "Source/serial/case=denied/publishers=10000", known},
	}},
	{"time for each request while all processors answer", duration, []row{
		{"allowed", "Source/parallel/case=allowed/publishers=10000", known},
		{"of different publishers", "Source/parallel/case=spread/publishers=10000", known},
		{"internationalized", "Source/parallel/case=idn/publishers=10000", known},
		{"hash prefix", "Source/parallel/case=hash-prefix/publishers=10000", known},
		{"own origin", "Source/parallel/case=own/publishers=10000", known},
		{"denied", "Source/parallel/case=denied/publishers=10000", known},
	}},
}

// tables returns all tables in Markdown. It is an error if a value is missing.
func (res *results) tables() (string, error) {
	var missing []error
	value := func(benchmark, library string, format func(float64) string) string {
		m, ok := res.median(benchmark, library)
		if !ok {
			missing = append(missing, fmt.Errorf("%s was not measured for %s", benchmark, library))
		}
		return format(m)
	}
	out := new(strings.Builder)
	write := func(columns []string, sections []section) {
		for _, section := range sections {
			fmt.Fprintf(out, "\n| %s | %s |\n|%s\n", section.title, strings.Join(columns, " | "), strings.Repeat(" --- |", 1+len(columns)))
			for _, r := range section.rows {
				fmt.Fprintf(out, "| %s |", r.title)
				for _, library := range r.libraries {
					cell := ""
					if library != "" {
						cell = value(r.benchmark, library, section.format)
					}
					fmt.Fprintf(out, " %s |", cell)
				}
				out.WriteString("\n")
			}
		}
	}
	fmt.Fprintf(out, "\n%s\n", res.run)
	write(peers, sections)
	fmt.Fprintf(out, "\nA handler that compares one origin and sets the same headers takes %s. Without any\n"+
		"middleware, the server answers %s requests a second; with that handler, %s.\n\n",
		value("Serial/case=allowed/publishers=1", "floor", duration),
		value("EndToEnd/case=allowed", "none", count), value("EndToEnd/case=allowed", "floor", count))
	out.WriteString("## Publishers of a Source\n\n" +
		"The Source answers at once: the last column does not include a database's time.\n")
	write(sources, sourceSections)
	out.WriteString("\n")
	return out.String(), errors.Join(missing...)
}

// duration formats seconds with three significant digits, or all before the point.
func duration(seconds float64) string {
	for _, unit := range []struct {
		name    string
		seconds float64
	}{{"s", 1}, {"ms", 1e-3}, {"µs", 1e-6}} {
		if n := seconds / unit.seconds; n >= 0.9995 {
			return significant(n) + " " + unit.name
		}
	}
	return significant(seconds/1e-9) + " ns"
}

func significant(n float64) string {
	switch {
	case n >= 99.95:
		return fmt.Sprintf("%.0f", n)
	case n >= 9.995:
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
