// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"html"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/sandlot-io/sandlot/hack/promcheck/grafana"
)

// The picture that is committed is one of the dashboard that is.
func TestCommittedPicture(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	d, err := grafana.Read(filepath.Join(root, "artifacts", "dashboard", "sandlot.json"))
	if err != nil {
		t.Fatal(err)
	}
	picture, err := os.ReadFile(filepath.Join(root, "docs", "images", "dashboard.svg"))
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) == 0 {
		t.Error("the dashboard has no panels")
	}
	var missing func(panels []grafana.Panel)
	missing = func(panels []grafana.Panel) {
		for _, p := range panels {
			if !strings.Contains(string(picture), ">"+html.EscapeString(p.Title)+"</text>") {
				t.Errorf("docs/images/dashboard.svg has no panel %q: run make pictures", p.Title)
			}
			missing(p.Panels)
		}
	}
	missing(d.Panels)
	wellFormed(t, string(picture))
	if len(picture) > 300_000 {
		t.Errorf("docs/images/dashboard.svg has %d bytes", len(picture))
	}
}

func wellFormed(t *testing.T, picture string) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("the picture is no XML: %v", err)
		}
		element, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		for _, a := range element.Attr {
			if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
				t.Errorf("%s of %s is %s", a.Name.Local, element.Name.Local, a.Value)
			}
		}
	}
}

// aPlot is one of lines with a value for each scrape.
func aPlot(kind, title string, lines map[string][]float64) plot {
	p := plot{Panel: grafana.Panel{Type: kind, Title: title}, start: time.Unix(0, 0), end: time.Unix(0, 0).Add(4 * interval)}
	p.GridPos.W, p.GridPos.H = 12, 8
	for name, values := range lines {
		l := line{name: name}
		for i, value := range values {
			l.points = append(l.points, point{p.start.Add(time.Duration(i) * interval), value})
		}
		p.lines = append(p.lines, l)
	}
	return p
}

func TestDraw(t *testing.T) {
	alone := aPlot("timeseries", "short", map[string][]float64{"one": {5}})
	alone.end = alone.start.Add(interval)
	cases := map[string]struct {
		plot plot
		want []string
	}{
		"escapes":     {aPlot("timeseries", `<b> & "c"`, map[string][]float64{"</svg>": {1, 2}}), []string{"&lt;b&gt; &amp; &#34;c&#34;", "&lt;/svg&gt;"}},
		"no data":     {aPlot("timeseries", "empty", nil), []string{">empty<", ">no data<"}},
		"stat":        {aPlot("stat", "one value", map[string][]float64{"now": {3, 42}}), []string{">42<"}},
		"all zero":    {aPlot("timeseries", "zero", map[string][]float64{"none": {0, 0, 0}}), []string{">none<", `stroke="#73bf69"`}},
		"one sample":  {alone, []string{">one<"}},
		"row":         {aPlot("row", "headline", nil), []string{">headline<"}},
		"long names":  {aPlot("timeseries", "long", map[string][]float64{strings.Repeat("ä", 500): {1}}), []string{"ä…<"}},
		"many series": {aPlot("timeseries", "many", map[string][]float64{"a": {9}, "b": {8}, "c": {7}, "d": {6}, "e": {5}, "f": {4}}), []string{">a<", ">d<", ">and 2 more<"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := draw("Title", []plot{tc.plot})
			wellFormed(t, got)
			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("the picture has no %q:\n%s", want, got)
				}
			}
		})
	}
	if got := draw("row", []plot{aPlot("row", "headline", nil)}); strings.Contains(got, "no data") {
		t.Error("a row is said to lack data")
	}
}

func TestStacked(t *testing.T) {
	p := aPlot("timeseries", "p", map[string][]float64{"high": {3, 4}, "low": {1, 2}})
	got := stacked(byLast(p.lines))
	if got[0].name != "high" || got[0].points[0].value != 4 || got[0].points[1].value != 6 || got[1].points[1].value != 2 {
		t.Errorf("got %v", got)
	}
	for _, l := range p.lines {
		if l.name == "high" && l.points[0].value != 3 {
			t.Error("stacking changed what was observed")
		}
	}
}

func TestScale(t *testing.T) {
	for _, tc := range []struct {
		highest float64
		unit    string
		step    float64
		top     float64
	}{
		{0, "ops", 1, 1}, {-1, "ops", 1, 1}, {math.NaN(), "ops", 1, 1}, {math.Inf(1), "ops", 1, 1},
		{4, "ops", 1, 4}, {9, "ops", 5, 10}, {37, "short", 10, 40}, {0.6, "s", 0.2, 0.6},
		{100 << 20, "bytes", 32 << 20, 128 << 20},
	} {
		step, top := scale(tc.highest, tc.unit)
		if math.Abs(step-tc.step) > tc.step/1e6 || math.Abs(top-tc.top) > tc.top/1e6 {
			t.Errorf("up to %v %s: steps of %v to %v, want %v to %v", tc.highest, tc.unit, step, top, tc.step, tc.top)
		}
	}
}

func TestAmount(t *testing.T) {
	for _, tc := range []struct {
		value float64
		unit  string
		want  string
	}{
		{0, "s", "0"}, {0.0025, "s", "2.5 ms"}, {90, "s", "1.5 min"}, {1536, "bytes", "1.5 KiB"}, {0.5, "percentunit", "50%"},
		{12, "ops", "12 ops/s"}, {0.05, "reqps", "0.05 req/s"}, {1500, "short", "1.5 K"}, {7, "unheard of", "7"},
	} {
		if got := amount(tc.value, tc.unit); got != tc.want {
			t.Errorf("%v of %s is written %q, want %q", tc.value, tc.unit, got, tc.want)
		}
	}
}

// Panels within rows are drawn too, and what is not a number is not.
func TestEvaluate(t *testing.T) {
	now := time.Now()
	seen := &observed{start: now.Add(-2 * interval), end: now}
	for i := range 3 {
		at := seen.start.Add(time.Duration(i) * interval)
		if err := seen.db.Add(strings.NewReader("# TYPE depth gauge\ndepth{pool=\"a\"} 3\n"), job, at); err != nil {
			t.Fatal(err)
		}
	}
	inner := grafana.Panel{Type: "timeseries", Title: "inner", Targets: []grafana.Target{
		{Expr: `depth{pool="a"}`, LegendFormat: "pool {{ pool }}"}, {Expr: `depth / 0 * 0`, LegendFormat: "not a number"}, {Expr: `nothing`},
	}}
	d := &grafana.Dashboard{Panels: []grafana.Panel{{Type: "row", Title: "row", Panels: []grafana.Panel{inner}}}}
	plots, err := evaluate(t.Context(), d, seen)
	if err != nil || len(plots) != 2 {
		t.Fatalf("got %v, %v", plots, err)
	}
	lines := plots[1].lines
	if len(lines) != 1 || lines[0].name != "pool a" || len(lines[0].points) != 3 || lines[0].points[2].value != 3 {
		t.Errorf("got %v", lines)
	}
	inner.Targets[0].Expr = "sum("
	if _, err := evaluate(t.Context(), &grafana.Dashboard{Panels: []grafana.Panel{inner}}, seen); err == nil || !strings.Contains(err.Error(), "inner") {
		t.Errorf("a query that is none: got %v", err)
	}
	if got := legendOf("", labels.FromStrings("a", "b")); got != `{a="b"}` {
		t.Errorf("without a legend: %s", got)
	}
}
