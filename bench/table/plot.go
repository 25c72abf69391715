package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The background is transparent, and the colors are readable on light and on dark pages.
var (
	ink  = color.NRGBA{0x7d, 0x85, 0x90, 0xff}
	grid = color.NRGBA{0x7d, 0x85, 0x90, 0x48}

	// From the palette of Okabe and Ito, for readers who are color-blind.
	colors = map[string]color.Color{
		"ampcors": color.RGBA{0xd5, 0x5e, 0x00, 0xff},
		"jub0bs":  color.RGBA{0x00, 0x90, 0xd0, 0xff},
		"rs":      color.RGBA{0x00, 0x9e, 0x73, 0xff},
		"chi":     color.RGBA{0xcc, 0x79, 0xa7, 0xff},
	}
)

// A panel is a plot of one quantity against the number of publishers.
type panel struct {
	title     string
	benchmark string // with %d for the number of publishers
	format    func(float64) string
}

var panels = []panel{
	{"time of an allowed request", "Serial/case=allowed/publishers=%d", period},
	{"memory of the policy", "Memory/publishers=%d", size},
}

// plotted are the numbers of publishers in the plot.
var plotted = []int{1, 100, 10_000, 1_000_000}

// svg returns the plot. It is an error if a value is missing.
func (res *results) svg() ([]byte, error) {
	const width, height = 9 * vg.Inch, 3.6 * vg.Inch
	canvas := vgsvg.New(width, height)
	plots := make([]*plot.Plot, len(panels))
	for i, p := range panels {
		var err error
		if plots[i], err = res.panel(p, i == 0); err != nil {
			return nil, err
		}
	}
	tiles := draw.Tiles{Rows: 1, Cols: len(plots), PadX: vg.Millimeter * 6, PadTop: vg.Millimeter, PadBottom: vg.Millimeter, PadLeft: vg.Millimeter * 2, PadRight: vg.Millimeter * 3}
	for i, c := range plot.Align([][]*plot.Plot{plots}, tiles, draw.New(canvas))[0] {
		plots[i].Draw(c)
	}
	var b bytes.Buffer
	_, err := canvas.WriteTo(&b)
	// Few readers have the font by which the plot was laid out.
	return bytes.ReplaceAll(b.Bytes(), []byte("Liberation Sans"), []byte("Liberation Sans,Arial,Helvetica,sans-serif")), err
}

func (res *results) panel(p panel, hasLegend bool) (*plot.Plot, error) {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	out := plot.New()
	out.BackgroundColor = nil
	out.Title.Text = p.title
	out.Title.TextStyle.Color = ink
	out.X.Label.Text = "publishers"
	for _, axis := range []*plot.Axis{&out.X, &out.Y} {
		axis.Color, axis.Label.TextStyle.Color, axis.Tick.Color, axis.Tick.Label.Color = ink, ink, ink, ink
		axis.Scale = plot.LogScale{}
	}
	out.X.Tick.Marker = ticks{step: 2, format: count}
	out.Y.Tick.Marker = ticks{step: 1, format: p.format}
	lines := plotter.NewGrid()
	lines.Vertical.Color, lines.Horizontal.Color = grid, grid
	out.Add(lines)
	for i, library := range all {
		var points plotter.XYs
		for _, n := range plotted {
			benchmark := fmt.Sprintf(p.benchmark, n)
			m, ok := res.median(benchmark, library)
			if !ok || m <= 0 {
				return nil, fmt.Errorf("%s was not measured for %s", benchmark, library)
			}
			points = append(points, plotter.XY{X: float64(n), Y: m})
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		line.Color, dots.Color = colors[library], colors[library]
		line.Width, dots.Radius, dots.Shape = vg.Points(1.8), vg.Points(3), draw.CircleGlyph{}
		out.Add(line, dots)
		if hasLegend {
			out.Legend.Add(peers[i], line, dots)
		}
	}
	out.Y.Min, out.Y.Max = math.Pow(10, math.Floor(math.Log10(out.Y.Min))), math.Pow(10, math.Ceil(math.Log10(out.Y.Max)))
	out.Legend.Top, out.Legend.Left = true, true
	out.Legend.TextStyle.Color = ink
	out.Legend.XOffs, out.Legend.Padding = vg.Millimeter*2, vg.Millimeter*0.6
	return out, nil
}

// ticks marks the powers of ten, and labels them with the format.
type ticks struct {
	step   float64 // between powers
	format func(float64) string
}

func (t ticks) Ticks(low, high float64) (marks []plot.Tick) {
	for power := math.Round(math.Log10(low)); power <= math.Log10(high)+0.01; power += t.step {
		value := math.Pow(10, power)
		marks = append(marks, plot.Tick{Value: value, Label: t.format(value)})
	}
	return marks
}

// period formats a power of ten in seconds.
func period(seconds float64) string {
	return time.Duration(math.Round(seconds * 1e9)).String()
}

// size formats bytes.
func size(bytes float64) string {
	for _, unit := range []struct {
		name  string
		bytes float64
	}{{"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}} {
		if bytes >= unit.bytes {
			return fmt.Sprintf("%.3g %s", bytes/unit.bytes, unit.name)
		}
	}
	return fmt.Sprintf("%.3g B", bytes)
}
