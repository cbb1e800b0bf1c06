// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/sandlot-io/sandlot/hack/promcheck/grafana"
)

// rateInterval is four scrapes, as Grafana takes it.
const rateInterval = "12s"

// plot is a panel with the results of its queries.
type plot struct {
	grafana.Panel

	start, end time.Time
	lines      []line
}

// line is one of a plot, without gaps that are not a number.
type line struct {
	name   string
	points []point
}

type point struct {
	at    time.Time
	value float64
}

// evaluate returns the panels, those within rows too, with what their queries say of
// what was observed.
func evaluate(ctx context.Context, d *grafana.Dashboard, seen *observed) ([]plot, error) {
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1e7, Timeout: time.Minute, LookbackDelta: 2 * interval, Parser: parser.NewParser(parser.Options{}),
	})
	variables := d.Variables(rateInterval)
	var plots []plot
	var add func(panels []grafana.Panel) error
	add = func(panels []grafana.Panel) error {
		for _, panel := range panels {
			p := plot{Panel: panel, start: seen.start, end: seen.end}
			for _, target := range panel.Targets {
				found, err := evaluateTarget(ctx, engine, seen, variables.Replace(target.Expr), target.LegendFormat)
				if err != nil {
					return fmt.Errorf("panel %q: %w", panel.Title, err)
				}
				p.lines = append(p.lines, found...)
			}
			plots = append(plots, p)
			if err := add(panel.Panels); err != nil {
				return err
			}
		}
		return nil
	}
	return plots, add(d.Panels)
}

func evaluateTarget(ctx context.Context, engine *promql.Engine, seen *observed, expr, legend string) ([]line, error) {
	q, err := engine.NewRangeQuery(ctx, &seen.db, nil, expr, seen.start, seen.end, interval)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	matrix, err := q.Exec(ctx).Matrix()
	if err != nil {
		return nil, err
	}
	var found []line
	for _, series := range matrix {
		l := line{name: legendOf(legend, series.Metric)}
		for _, p := range series.Floats {
			if !math.IsNaN(p.F) && !math.IsInf(p.F, 0) {
				l.points = append(l.points, point{time.UnixMilli(p.T), p.F})
			}
		}
		if len(l.points) > 0 {
			found = append(found, l)
		}
	}
	return found, nil
}

// legendOf puts the values of labels into the format of a legend.
func legendOf(format string, of labels.Labels) string {
	name := grafana.LegendLabel.ReplaceAllStringFunc(format, func(place string) string {
		return of.Get(grafana.LegendLabel.FindStringSubmatch(place)[1])
	})
	if name = strings.TrimSpace(name); name == "" {
		return of.String()
	}
	return name
}
