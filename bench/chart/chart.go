// Package chart draws measured figures as SVG that stands alone: no scripts, no fonts, no links, readable on light and dark pages.
//
// It knows two forms: bars in groups, with a whisker from the lowest to the highest round, and lines. It chooses scales and nothing else;
// what is drawn is the caller's.
package chart

import (
	"fmt"
	"html"
	"math"
	"strings"
)

const (
	width      = 760
	labelWidth = 190
	barHeight  = 16
	groupGap   = 14
	valueWidth = 110
	plotHeight = 260
	marginLeft = 70
	fontSize   = 12
)

// colours of the series in turn; they differ in lightness, too.
var colours = []string{"#1f6feb", "#f0883e", "#8b949e", "#3fb950", "#bc4c9d", "#6e40c9"}

// Bar is a value with the lowest and highest round.
type Bar struct {
	Series          string
	Value, Min, Max float64
}

// Group is bars that belong together.
type Group struct {
	Name string
	Bars []Bar
}

type canvas struct {
	b strings.Builder
}

func begin(w, h int, title string) *canvas {
	c := &canvas{}
	fmt.Fprintf(&c.b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="%s" font-family="sans-serif" font-size="%d">`+"\n",
		w, h, w, h, html.EscapeString(title), fontSize)
	fmt.Fprintf(&c.b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", w, h)
	c.text(10, 20, "start", "#24292f", title, `font-weight="bold"`)
	return c
}

func (c *canvas) text(x, y float64, anchor, fill, s string, more string) {
	fmt.Fprintf(&c.b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s" %s>%s</text>`+"\n", x, y, anchor, fill, more, html.EscapeString(s))
}

func (c *canvas) line(x1, y1, x2, y2 float64, stroke string) {
	fmt.Fprintf(&c.b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, stroke)
}

func (c *canvas) end() string { return c.b.String() + "</svg>\n" }

// legend writes the names of the series in a row and returns the colour of each.
func (c *canvas) legend(names []string) map[string]string {
	colour := map[string]string{}
	x := 10.0
	for i, n := range names {
		colour[n] = colours[i%len(colours)]
		fmt.Fprintf(&c.b, `<rect x="%.1f" y="30" width="10" height="10" fill="%s"/>`+"\n", x, colour[n])
		c.text(x+14, 39, "start", "#24292f", n, "")
		x += 30 + 7.5*float64(len(n))
	}
	return colour
}

// Bars draws groups of bars from left to right; zero is on the left. unit stands in the title.
func Bars(title, unit string, groups []Group) string {
	var series []string
	most, rows := 0.0, 0
	seen := map[string]bool{}
	for _, g := range groups {
		rows += len(g.Bars)
		for _, b := range g.Bars {
			most = max(most, b.Value, b.Max)
			if !seen[b.Series] {
				seen[b.Series] = true
				series = append(series, b.Series)
			}
		}
	}
	if most == 0 {
		most = 1
	}
	c := begin(width, 60+rows*barHeight+len(groups)*groupGap, title+", "+unit)
	colour := c.legend(series)
	scale := float64(width-labelWidth-valueWidth) / most
	y := 56.0
	for _, g := range groups {
		c.text(labelWidth-8, y+float64(len(g.Bars)*barHeight)/2+4, "end", "#24292f", g.Name, "")
		for _, b := range g.Bars {
			fmt.Fprintf(&c.b, `<rect x="%d" y="%.1f" width="%.1f" height="%d" fill="%s"/>`+"\n", labelWidth, y, b.Value*scale, barHeight-3, colour[b.Series])
			if b.Max > b.Min {
				mid := y + float64(barHeight-3)/2
				c.line(labelWidth+b.Min*scale, mid, labelWidth+b.Max*scale, mid, "#24292f")
			}
			c.text(labelWidth+max(b.Value, b.Max)*scale+6, y+11, "start", "#57606a", Number(b.Value), "")
			y += barHeight
		}
		y += groupGap
	}
	return c.end()
}

// Point of a line.
type Point struct{ X, Y float64 }

// Line is one series.
type Line struct {
	Name   string
	Points []Point
}

// Lines draws series over a common axis. With tail the x axis is a quantile between 0 and 1, drawn as the number of nines, so that the slow
// end has room.
func Lines(title, x, y string, lines []Line, tail bool) string {
	left, right, top, least := math.Inf(1), math.Inf(-1), 0.0, 0.0
	at := func(v float64) float64 {
		if tail {
			return -math.Log10(max(1-v, 1e-6))
		}
		return v
	}
	var names []string
	for _, l := range lines {
		names = append(names, l.Name)
		for _, p := range l.Points {
			left, right, top = min(left, at(p.X)), max(right, at(p.X)), max(top, p.Y)
		}
	}
	if !(right > left) {
		left, right = 0, 1
	}
	if top == 0 {
		top = 1
	}
	c := begin(width, plotHeight+110, title)
	colour := c.legend(names)
	sx, sy := float64(width-marginLeft-20)/(right-left), plotHeight/(top-least)
	px := func(v float64) float64 { return marginLeft + (at(v)-left)*sx }
	py := func(v float64) float64 { return 55 + plotHeight - (v-least)*sy }
	for i := range 5 {
		v := top * float64(i) / 4
		c.line(marginLeft, py(v), width-20, py(v), "#d0d7de")
		c.text(marginLeft-6, py(v)+4, "end", "#57606a", Number(v), "")
	}
	for _, v := range ticks(left, right, tail) {
		c.text(px(v), 55+plotHeight+18, "middle", "#57606a", strings.TrimSuffix(fmt.Sprintf("%.6g", v), "."), "")
	}
	c.text(width/2, 55+plotHeight+38, "middle", "#24292f", x, "")
	c.text(marginLeft, 50, "end", "#24292f", y, "")
	for _, l := range lines {
		var d strings.Builder
		for _, p := range l.Points {
			fmt.Fprintf(&d, "%.1f,%.1f ", px(p.X), py(p.Y))
		}
		fmt.Fprintf(&c.b, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="%s"/>`+"\n", colour[l.Name], strings.TrimSpace(d.String()))
	}
	return c.end()
}

// ticks are where the x axis has numbers.
func ticks(left, right float64, tail bool) []float64 {
	if tail {
		var at []float64
		for nines, q := 0.0, []float64{0, 0.9, 0.99, 0.999, 0.9999, 0.99999}; nines < float64(len(q)); nines++ {
			if nines >= left && nines <= right {
				at = append(at, q[int(nines)])
			}
		}
		return at
	}
	at := make([]float64, 6)
	for i := range at {
		at[i] = left + (right-left)*float64(i)/5
	}
	return at
}

// Number writes three significant digits, with k, M and G for thousands.
func Number(v float64) string {
	for _, u := range []struct {
		size float64
		sign string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(v) >= u.size {
			return fmt.Sprintf("%.3g", v/u.size) + u.sign
		}
	}
	return fmt.Sprintf("%.3g", v)
}
