// Command plot draws the time of an allowed request against the number of publishers, one line for each library,
// from the results of bench/run.
//
//	plot results.out allowed.svg
package main

import (
	"image/color"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

var (
	libraries = []string{"ampcors", "jub0bs", "rs", "chi"} // in the order of the legend
	names     = map[string]string{"ampcors": "ampcors", "jub0bs": "jub0bs/cors", "rs": "rs/cors", "chi": "go-chi/cors"}
)

func main() {
	log.SetFlags(0)
	times, err := read(os.Args[1]) // library, publishers: seconds
	if err != nil {
		log.Fatal(err)
	}
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "publishers", "time of an allowed request"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks(1, 100, 1e4, 1e6), ticks(1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
	p.Y.Min, p.Y.Max = 1e-7, 2e-3
	p.BackgroundColor = color.White // it is also read on dark pages
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	for i, library := range libraries {
		var points plotter.XYs
		for publishers, samples := range times[library] {
			slices.Sort(samples)
			points = append(points, plotter.XY{X: publishers, Y: samples[len(samples)/2]})
		}
		slices.SortFunc(points, func(a, b plotter.XY) int { return int(a.X - b.X) })
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			log.Fatalf("%s: %v", library, err)
		}
		line.Color, dots.Color = plotutil.Color(i), plotutil.Color(i)
		line.Width, dots.Shape = vg.Points(1.5), plotutil.Shape(i)
		p.Add(line, dots)
		p.Legend.Add(names[library], line, dots)
	}
	if err := p.Save(14*vg.Centimeter, 8*vg.Centimeter, os.Args[2]); err != nil {
		log.Fatal(err)
	}
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

// ticks returns a Ticker with a label at each of the values.
func ticks(values ...float64) plot.ConstantTicks {
	labels := map[float64]string{1e-7: "100 ns", 1e-6: "1 µs", 1e-5: "10 µs", 1e-4: "100 µs", 1e-3: "1 ms", 1: "1", 100: "100", 1e4: "10,000", 1e6: "1,000,000"}
	var marks plot.ConstantTicks
	for _, v := range values {
		marks = append(marks, plot.Tick{Value: v, Label: labels[v]})
	}
	return marks
}
