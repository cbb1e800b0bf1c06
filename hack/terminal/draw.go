// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"html"
	"strings"
)

const (
	columns    = 130 // where lines are cut
	cellWidth  = 8
	cellHeight = 18
	margin     = 16
)

// draw returns a picture of a terminal with these lines. What was typed is lighter.
func draw(lines []string) string {
	var b strings.Builder
	width, height := columns*cellWidth+2*margin, len(lines)*cellHeight+2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13">`+"\n", width, height)
	fmt.Fprintln(&b, `<!-- Drawn by hack/terminal: make pictures. -->`)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" fill="#1c2128"/>`+"\n", width, height)
	for i, line := range lines {
		color := "#adbac7"
		if strings.HasPrefix(line, "$ ") {
			color = "#6bc46d"
		}
		if runes := []rune(line); len(runes) > columns {
			line = string(runes[:columns-1]) + "…"
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s" xml:space="preserve">%s</text>`+"\n",
			margin, margin+(i+1)*cellHeight-5, color, html.EscapeString(line))
	}
	fmt.Fprintln(&b, `</svg>`)
	return b.String()
}
