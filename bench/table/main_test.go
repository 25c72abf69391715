package main

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// sample returns results in which each value of the tables was measured once, and some
// more often.
func sample() string {
	out := new(strings.Builder)
	out.WriteString("rounds: 3\ngo: go1.0\ndate: 2000-01-02\nprocessors: 2\ncpu: A Processor\n" +
		"BenchmarkSerial/case=allowed/publishers=1/lib=floor-2 100 80.0 ns/op 64 B/op 1 allocs/op\n" +
		"BenchmarkSerial/case=allowed/publishers=100/lib=ampcors-2 100 100 ns/op\n" +
		"BenchmarkSerial/case=allowed/publishers=100/lib=ampcors-2 100 300 ns/op\n" +
		"BenchmarkEndToEnd/case=allowed/lib=none 1 1080000 req/s\n" +
		"BenchmarkEndToEnd/case=allowed/lib=floor 1 999 req/s\n")
	for _, section := range slices.Concat(sourceSections, sections) {
		for _, r := range section.rows {
			for i, library := range r.libraries {
				value := fmt.Sprintf("%d ns/op", 1200<<(10*i))
				if strings.HasPrefix(r.benchmark, "EndToEnd") {
					value = "987654 req/s"
				}
				if library != "" {
					fmt.Fprintf(out, "Benchmark%s/lib=%s-2 100 %s\n", r.benchmark, library, value)
				}
			}
		}
	}
	for _, p := range panels {
		for i, n := range plotted {
			for _, library := range all {
				benchmark := fmt.Sprintf(p.benchmark, n)
				if strings.HasPrefix(benchmark, "Memory/") {
					fmt.Fprintf(out, "Benchmark%s/lib=%s-2 1 123 ns/op %d policy-B\n", benchmark, library, 1000<<i)
				}
			}
		}
	}
	return out.String()
}

func TestThePlotShowsEachLibrary(t *testing.T) {
	res, err := read(strings.NewReader(sample()), "sample")
	if err != nil {
		t.Fatal(err)
	}
	plot, err := res.svg()
	if err != nil {
		t.Fatal(err)
	}
	var root struct{ XMLName xml.Name }
	if err := xml.Unmarshal(plot, &root); err != nil || root.XMLName.Local != "svg" {
		t.Errorf("the plot is %q, %v; want SVG", root.XMLName.Local, err)
	}
	for _, want := range append([]string{">time of an allowed request<", ">memory of the policy<", ">1,000,000<", ">100ns<", ">1 kB<", "fill:#D55E00"}, peers...) {
		if !strings.Contains(string(plot), want) {
			t.Errorf("the plot lacks %q", want)
		}
	}
	delete(res.values, "Memory/publishers=100")
	if _, err := res.svg(); err == nil || err.Error() != "Memory/publishers=100 was not measured for ampcors" {
		t.Errorf("the error is %v", err)
	}
}

func TestTablesShowMedians(t *testing.T) {
	res, err := read(strings.NewReader(sample()), "sample")
	if err != nil {
		t.Fatal(err)
	}
	got, err := res.tables()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Medians of 3 rounds on A Processor, 2 processors, with go1.0, on 2000-01-02.\n",
		"\n| allowed, 1 publisher | 1.20 µs | 1.23 ms | 1.26 s | 1288 s |\n",
		"\n| allowed, 100 publishers | 300 ns | 1.23 ms |",
		"\n| denied and passed on, 10,000 publishers | 1.20 µs | 1.23 ms |",
		"\n| denied with 403, 10,000 publishers | 1.20 µs |  |  |  |\n",
		"\n| allowed | 987,654 | 987,654 |",
		"sets the same headers takes 80.0 ns.",
		"\n| hash prefix | 1.20 µs | 1.23 ms | 1.26 s |\n",
		"answers 1,080,000 requests a second; with that handler, 999.",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the tables lack %q:\n%s", want, got)
		}
	}
}

func TestAMissingValueIsAnError(t *testing.T) {
	res, err := read(strings.NewReader(sample()), "sample")
	if err != nil {
		t.Fatal(err)
	}
	delete(res.values["EndToEnd/case=no-origin"], "chi")
	if _, err := res.tables(); err == nil || err.Error() != "EndToEnd/case=no-origin was not measured for chi" {
		t.Errorf("the error is %v", err)
	}
	if _, err := read(strings.NewReader("ok\tampcors\n"), "empty"); err == nil {
		t.Error("a file without any result is no error")
	}
}

func TestOnlyTextBetweenTheCommentsIsReplaced(t *testing.T) {
	got, err := replace([]byte("a\n"+begin+"old\n"+end+"b\n"), "new\n")
	if err != nil || string(got) != "a\n"+begin+"new\n"+end+"b\n" {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"a\n", "a\n" + begin, end + begin} {
		t.Run(text, func(t *testing.T) {
			if _, err := replace([]byte(text), "new\n"); err == nil {
				t.Errorf("%q lacks a comment, but is no error", text)
			}
		})
	}
}
