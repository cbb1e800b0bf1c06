// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package grafana reads dashboards of Grafana.
package grafana

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Everything is what a variable stands for when all of its values are selected.
const Everything = ".*"

// LegendLabel matches the place of a label's value in the format of a legend.
var LegendLabel = regexp.MustCompile(`{{\s*([a-zA-Z_]\w*)\s*}}`)

// Dashboard is what concerns us of Grafana's format.
type Dashboard struct {
	Title      string
	Panels     []Panel
	Templating struct {
		List []struct {
			Name  string
			Type  string
			Query json.RawMessage
		}
	}
}

// Panel is one of a dashboard. One of Type row is a headline, and may have panels.
type Panel struct {
	Title string
	Type  string
	// GridPos is in columns, of which a dashboard has 24, and in rows.
	GridPos     struct{ X, Y, W, H int }
	FieldConfig struct {
		Defaults struct {
			Unit   string
			Custom struct{ Stacking struct{ Mode string } }
		}
	}
	Panels  []Panel
	Targets []Target
}

// Target is a query of a panel.
type Target struct {
	Expr         string
	LegendFormat string
}

// Read reads the JSON of a dashboard.
func Read(path string) (*Dashboard, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var d Dashboard
	if err := json.Unmarshal(content, &d); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &d, nil
}

// Variables replaces the variables of queries as Grafana does when everything is
// selected. rateInterval is what it takes for $__rate_interval.
func (d *Dashboard) Variables(rateInterval string) *strings.Replacer {
	var names []string
	replace := []string{"$__rate_interval", rateInterval, "$__interval", "30s", "$__range", "5m"}
	for _, variable := range d.Templating.List {
		if variable.Type == "query" {
			names = append(names, variable.Name)
		}
	}
	// The longest first: $set must not take the beginning of $sets.
	slices.SortFunc(names, func(a, b string) int { return len(b) - len(a) })
	for _, name := range names {
		replace = append(replace, "$"+name, Everything)
	}
	return strings.NewReplacer(replace...)
}
