// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"
)

// Lengths, in units of the picture.
const (
	columnWidth = 60 // of the 24 columns of the grid
	rowHeight   = 24
	gap         = 6 // between panels
	header      = 44
	entries     = 4 // of a legend, at most
	entryHeight = 13
	letter      = 6 // about as wide is one of a legend
)

var colors = []string{"#73bf69", "#5794f2", "#f2cc0c", "#ff780a", "#f2495c", "#b877d9", "#8ab8ff", "#c0d8ff"}

// canvas is a picture that is being drawn.
type canvas struct{ strings.Builder }

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }

// text writes one line. What is written is escaped.
func (c *canvas) text(x, y float64, attributes, text string) {
	c.add(`<text x="%.0f" y="%.0f" %s>%s</text>`, x, y, attributes, html.EscapeString(text))
}

// draw returns the picture of a dashboard.
func draw(title string, plots []plot) string {
	rows := 0
	for _, p := range plots {
		rows = max(rows, p.GridPos.Y+p.GridPos.H)
	}
	width, height := 24*columnWidth+gap, header+rows*rowHeight+gap
	c := &canvas{}
	c.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, Helvetica, Arial, sans-serif" font-size="11" fill="#ccccdc">`, width, height)
	c.add(`<!-- Drawn by hack/promcheck/picture: make pictures. -->`)
	c.add(`<rect width="%d" height="%d" fill="#111217"/>`, width, height)
	c.text(gap+6, 28, `font-size="18"`, title)
	for _, p := range plots {
		c.panel(p)
	}
	c.add(`</svg>`)
	return c.String()
}

// box is a part of the picture.
type box struct{ x, y, w, h float64 }

func (c *canvas) panel(p plot) {
	b := box{
		x: float64(p.GridPos.X*columnWidth + gap), y: float64(header + p.GridPos.Y*rowHeight),
		w: float64(p.GridPos.W*columnWidth - gap), h: float64(p.GridPos.H*rowHeight - gap),
	}
	if p.Type == "row" {
		c.text(b.x+6, b.y+15, `font-size="14" font-weight="bold"`, p.Title)
		return
	}
	c.add(`<rect x="%.0f" y="%.0f" width="%.0f" height="%.0f" rx="3" fill="#181b1f" stroke="#2c3235"/>`, b.x, b.y, b.w, b.h)
	c.text(b.x+8, b.y+17, `font-size="12" font-weight="bold"`, p.Title)
	lines := byLast(p.lines)
	inner := box{x: b.x + 62, y: b.y + 28, w: b.w - 76, h: b.h - 62} // between the scales
	switch {
	case len(lines) == 0:
		c.text(b.x+b.w/2, b.y+b.h/2+4, `text-anchor="middle" fill="#8e8e99"`, "no data")
	case p.Type == "stat":
		c.text(b.x+b.w/2, b.y+b.h/2+14, `text-anchor="middle" font-size="28"`, last(lines[0], p.FieldConfig.Defaults.Unit))
	default:
		inner.h -= float64(c.legend(box{b.x + 8, b.y, b.w - 16, b.h - 6}, lines)-1) * entryHeight
		c.plot(inner, p, lines)
	}
}

// byLast sorts lines, the highest at the end first, as a legend shows them.
func byLast(lines []line) []line {
	lines = slices.Clone(lines)
	slices.SortStableFunc(lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(b.points[len(b.points)-1].value, a.points[len(a.points)-1].value), cmp.Compare(a.name, b.name))
	})
	return lines
}

func last(l line, unit string) string { return amount(l.points[len(l.points)-1].value, unit) }

// legend writes the names of the first lines at the bottom, and returns how many rows
// that took.
func (c *canvas) legend(b box, lines []line) int {
	type entry struct {
		x    float64
		name string
	}
	names := make([]string, 0, entries+1)
	for _, l := range lines[:min(len(lines), entries)] {
		names = append(names, cut(l.name, int(b.w-20)/letter))
	}
	if more := len(lines) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	rows, x := [][]entry{nil}, 0.0
	for _, name := range names {
		width := float64(len([]rune(name))*letter + 24)
		if x > 0 && x+width > b.w {
			rows, x = append(rows, nil), 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], entry{x, name})
		x += width
	}
	i := 0
	for row, of := range rows {
		y := b.y + b.h - float64(len(rows)-1-row)*entryHeight
		for _, e := range of {
			if i < min(len(lines), entries) {
				c.add(`<rect x="%.0f" y="%.0f" width="10" height="3" fill="%s"/>`, b.x+e.x, y-5, colors[i%len(colors)])
			}
			c.text(b.x+e.x+14, y, ``, e.name)
			i++
		}
	}
	return len(rows)
}

func cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:max(most-1, 0)]) + "…"
	}
	return text
}

// plot draws the scales and the lines.
func (c *canvas) plot(b box, p plot, lines []line) {
	if p.FieldConfig.Defaults.Custom.Stacking.Mode == "normal" {
		lines = stacked(lines)
	}
	highest := 0.0
	for _, l := range lines {
		for _, point := range l.points {
			highest = max(highest, point.value)
		}
	}
	step, top := scale(highest, p.FieldConfig.Defaults.Unit)
	for i := 0; float64(i)*step <= top*1.001; i++ {
		y := b.y + b.h - b.h*float64(i)*step/top
		c.add(`<path d="M%.0f %.1fh%.0f" stroke="#2c3235"/>`, b.x, y, b.w)
		c.text(b.x-5, y+4, `text-anchor="end" font-size="10" fill="#9fa7b3"`, amount(float64(i)*step, p.FieldConfig.Defaults.Unit))
	}
	whole := p.end.Sub(p.start).Seconds()
	for seconds := 0.0; seconds <= whole; seconds += 30 {
		c.text(b.x+b.w*seconds/whole, b.y+b.h+12, `text-anchor="middle" font-size="9" fill="#9fa7b3"`, fmt.Sprintf("%.0f s", seconds))
	}
	for i, l := range slices.Backward(lines) {
		var path strings.Builder
		command := "M"
		for j, point := range l.points {
			if j > 0 && point.at.Sub(l.points[j-1].at) > interval*3/2 {
				command = "M" // a gap
			}
			x, y := b.x+b.w*point.at.Sub(p.start).Seconds()/whole, b.y+b.h-b.h*max(point.value, 0)/top
			fmt.Fprintf(&path, "%s%.1f %.1f", command, x, y)
			command = "L"
		}
		c.add(`<path d="%s" fill="none" stroke="%s" stroke-width="1.5" stroke-linecap="round"/>`, path.String(), colors[i%len(colors)])
	}
}

// stacked puts each line onto those after it.
func stacked(lines []line) []line {
	below := map[int64]float64{}
	lines = slices.Clone(lines)
	for i, l := range slices.Backward(lines) {
		points := slices.Clone(l.points)
		for j := range points {
			at := points[j].at.UnixMilli()
			points[j].value += below[at]
			below[at] = points[j].value
		}
		lines[i].points = points
	}
	return lines
}
