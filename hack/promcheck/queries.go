// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
)

// query is one to check.
type query struct {
	where string
	expr  string
	// legend names labels that the result must have.
	legend []string
	// alert: it has a result only when something is wrong.
	alert bool
	// pickers are the labels that the variables of the dashboard pick values of. What has
	// such a label must be filtered by it.
	pickers []string
}

var (
	labelValues = regexp.MustCompile(`^label_values\((.+),\s*(\w+)\)$`)
	anyVariable = regexp.MustCompile(`\$\w+|\$\{\w+\}`)
	// legendLabel matches the place of a label's value in the format of a legend.
	legendLabel = regexp.MustCompile(`{{\s*([a-zA-Z_]\w*)\s*}}`)
)

// everything is what a variable stands for when all of its values are selected.
const everything = ".*"

// panel is one of a dashboard. One of type row is a headline, and may have panels.
type panel struct {
	Title, Type string
	Panels      []panel
	Targets     []struct{ Expr, LegendFormat string }
}

// dashboardQueries returns the queries of all panels and variables, as Grafana
// sends them when everything is selected.
func dashboardQueries(path string) ([]query, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var d struct {
		Panels     []panel
		Templating struct {
			List []struct {
				Name, Type string
				Query      json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(content, &d); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	replace := []string{"$__rate_interval", "4m", "$__interval", "30s", "$__range", "5m"}
	for _, variable := range d.Templating.List {
		if variable.Type == "query" {
			replace = append(replace, "$"+variable.Name, everything)
		}
	}
	variables := strings.NewReplacer(replace...)

	var queries []query
	var pickers []string
	for _, variable := range d.Templating.List {
		if variable.Type != "query" {
			continue
		}
		q, err := variableQuery(variable.Name, variable.Query, variables)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		queries, pickers = append(queries, q), append(pickers, q.legend...)
	}
	var add func(panels []panel) error
	add = func(panels []panel) error {
		for _, p := range panels {
			if p.Type != "row" && p.Type != "text" && len(p.Targets) == 0 {
				return fmt.Errorf("%s: panel %q has no query", path, p.Title)
			}
			for _, target := range p.Targets {
				q := query{where: fmt.Sprintf("panel %q", p.Title), expr: variables.Replace(target.Expr), pickers: pickers}
				if unknown := anyVariable.FindString(q.expr); unknown != "" {
					return fmt.Errorf("%s: panel %q has a variable %s that is not known", path, p.Title, unknown)
				}
				for _, label := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
					q.legend = append(q.legend, label[1])
				}
				queries = append(queries, q)
			}
			if err := add(p.Panels); err != nil {
				return err
			}
		}
		return nil
	}
	return queries, add(d.Panels)
}

// variableQuery makes the query of a variable, label_values(series, label), one
// whose result has the label.
func variableQuery(name string, raw json.RawMessage, variables *strings.Replacer) (query, error) {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		var object struct{ Query string }
		if err := json.Unmarshal(raw, &object); err != nil {
			return query{}, fmt.Errorf("variable %s: %w", name, err)
		}
		text = object.Query
	}
	match := labelValues.FindStringSubmatch(text)
	if match == nil {
		return query{}, fmt.Errorf("variable %s: %q is not label_values(series, label)", name, text)
	}
	return query{where: "variable " + name, expr: variables.Replace(match[1]), legend: match[2:]}, nil
}

// ruleQueries returns the queries of alerts and recording rules.
func ruleQueries(path string) ([]query, error) {
	groups, errs := rulefmt.ParseFile(path, false, model.UTF8Validation, promqlParser(), slog.Default())
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	var queries []query
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			queries = append(queries, query{where: "rule " + rule.Alert + rule.Record, expr: rule.Expr, alert: rule.Alert != ""})
		}
	}
	return queries, nil
}
