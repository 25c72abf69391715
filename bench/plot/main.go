// Command plot draws the time of an allowed request against the number of publishers, one line for each library,
// from the results of bench/run.
//
//	plot results.out allowed.svg
package main

import (
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
var libraries = []struct{ key, name, class string }{
	{"chi", "go-chi/cors", "other"}, {"rs", "rs/cors", "other"}, {"jub0bs", "jub0bs/cors", "other"},
	{"ampcors", "ampcors", "ours"},
}

// The picture, and the part of it that has the lines, in pixels.
const (
	width, height            = 720, 400
	left, right, top, bottom = 80, 590, 30, 340
)

func main() {
	log.SetFlags(0)
	times, err := read(os.Args[1]) // library, publishers: seconds
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(os.Args[2], []byte(draw(times)), 0o644); err != nil {
		log.Fatal(err)
	}
}

// x and y return where a number of publishers, and a time in seconds, are drawn. Both axes are logarithmic.
func x(publishers float64) float64 { return left + math.Log10(publishers)/6*(right-left) }
func y(seconds float64) float64    { return bottom - (math.Log10(seconds)+7)/4.3*(bottom-top) }

// draw returns the picture. It has a ground of its own, because a page can be light where the system is dark.
func draw(times map[string]map[float64][]float64) string {
	var b strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="system-ui, sans-serif" `+
		`font-size="13">`, width, height)
	add(`<title>The time of an allowed request against the number of publishers</title>`)
	add(`<style>
.ground { fill: #ffffff } text { fill: #1f2328 } .grid { stroke: #d1d9e0 }
.line { fill: none; stroke-width: 1.5 } .other { stroke: #818b98 } .ours { stroke: #0969da; stroke-width: 4 } .name ` +
		`{ font-weight: 600 }
@media (prefers-color-scheme: dark) {
.ground { fill: #0d1117 } text { fill: #f0f6fc } .grid { stroke: #3d444d } .other { stroke: #9198a1 } .ours { ` +
		`stroke: #4493f8 }
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
		points := make(map[float64]float64)
		var numbers []float64
		for publishers, samples := range times[library.key] {
			slices.Sort(samples)
			points[publishers] = samples[len(samples)/2]
			numbers = append(numbers, publishers)
		}
		slices.Sort(numbers)
		path, last := "M", 0.0
		for _, n := range numbers {
			path += fmt.Sprintf(" %.1f %.1f", x(n), y(points[n]))
			last = points[n]
		}
		class, at := "", y(last)
		if library.class == "ours" {
			class = ` class="name"`
		}
		if math.Abs(at-labelled) < 16 {
			at = labelled + 16
		}
		labelled = at
		add(`<path class="line %s" d="%s"/><text%s x="%d" y="%.1f">%s</text>`, library.class, path, class, right+10, at+4,
			library.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// read returns the times of the benchmark Serial/case=allowed in seconds, by library and number of publishers.
func read(name string) (map[string]map[float64][]float64, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	times := make(map[string]map[float64][]float64)
	for r := benchfmt.NewReader(f, name); r.Scan(); {
		result, ok := r.Result().(*benchfmt.Result)
		if !ok || !strings.HasPrefix(string(result.Name), "Serial/case=allowed/") {
			continue
		}
		_, parts := result.Name.Parts()
		config := make(map[string]string)
		for _, part := range parts {
			key, value, _ := strings.Cut(strings.TrimPrefix(string(part), "/"), "=")
			config[key] = value
		}
		publishers, err := strconv.ParseFloat(config["publishers"], 64)
		if err != nil {
			return nil, err
		}
		seconds, ok := result.Value("sec/op")
		if !ok {
			continue
		}
		library := config["lib"]
		if times[library] == nil {
			times[library] = make(map[float64][]float64)
		}
		times[library][publishers] = append(times[library][publishers], seconds)
	}
	return times, nil
}
