// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// check returns what is wrong with a query:
//
//   - it is no PromQL;
//   - a selector matches nothing that is exposed;
//   - it groups by, or joins on, a label that its series do not have;
//   - it cannot be evaluated, or has no result. Of an alert, the two sides of its
//     comparison must have one.
//   - its result lacks a label of the legend;
//   - it selects what has a label that the dashboard has a picker for, and does not
//     filter by it.
func (c *checker) check(q query) []error {
	expr, err := promqlParser().ParseExpr(q.expr)
	if err != nil {
		return []error{err}
	}
	errs := c.checkNames(expr, q.pickers)
	if q.alert {
		for _, part := range comparands(expr) {
			errs = append(errs, c.checkResult(part.String(), nil))
		}
		_, err = c.evaluate(q.expr)
	} else {
		err = c.checkResult(q.expr, q.legend)
	}
	return slices.DeleteFunc(append(errs, err), func(err error) bool { return err == nil })
}

// checkNames makes sure that what is picked filters every selector that it can, as well.
func (c *checker) checkNames(expr parser.Expr, pickers []string) (errs []error) {
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.VectorSelector:
			if len(c.matching(node.LabelMatchers)) == 0 {
				errs = append(errs, fmt.Errorf("nothing that is exposed matches %s", node))
			}
			for _, label := range pickers {
				picks := func(m *labels.Matcher) bool {
					return m.Name == label && m.Type == labels.MatchRegexp && m.Value == everything
				}
				if c.has(node, label) && !slices.ContainsFunc(node.LabelMatchers, picks) {
					errs = append(errs, fmt.Errorf("%s is not filtered by the picker of %s", node, label))
				}
			}
		case *parser.AggregateExpr:
			errs = append(errs, c.checkLabels(node.Expr, node.Grouping)...)
		case *parser.BinaryExpr:
			if node.VectorMatching != nil {
				errs = append(errs, c.checkLabels(node, node.VectorMatching.MatchingLabels)...)
			}
		}
		return nil
	})
	return errs
}

// has reports whether a series that is selected has a label.
func (c *checker) has(selector *parser.VectorSelector, label string) bool {
	return slices.ContainsFunc(c.matching(selector.LabelMatchers), func(l labels.Labels) bool { return l.Has(label) })
}

// checkLabels makes sure that every series that an expression selects may have
// the labels: that there is one of its name that does.
func (c *checker) checkLabels(expr parser.Expr, wanted []string) (errs []error) {
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok && len(c.matching(selector.LabelMatchers)) > 0 {
			for _, label := range wanted {
				if !c.has(selector, label) {
					errs = append(errs, fmt.Errorf("%s has no label %s", selector, label))
				}
			}
		}
		return nil
	})
	return errs
}

// comparands takes an alert apart at its comparisons.
func comparands(expr parser.Expr) []parser.Expr {
	switch expr := expr.(type) {
	case *parser.ParenExpr:
		return comparands(expr.Expr)
	case *parser.Call:
		if expr.Func.Name == "absent" {
			return comparands(expr.Args[0])
		}
	case *parser.BinaryExpr:
		if expr.Op.IsComparisonOperator() || expr.Op.IsSetOperator() {
			return append(comparands(expr.LHS), comparands(expr.RHS)...)
		}
	}
	return []parser.Expr{expr}
}

func (c *checker) checkResult(expr string, legend []string) error {
	found, err := c.evaluate(expr)
	switch {
	case err != nil:
		return err
	case len(found) == 0:
		return fmt.Errorf("%s has no result", expr)
	}
	for _, label := range legend {
		if !slices.ContainsFunc(found, func(l labels.Labels) bool { return l.Has(label) }) {
			return fmt.Errorf("the result has no label %s", label)
		}
	}
	return nil
}

// evaluate returns the labels of the result.
func (c *checker) evaluate(expr string) ([]labels.Labels, error) {
	q, err := c.engine.NewInstantQuery(context.Background(), c.db, nil, expr, c.now)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	result := q.Exec(context.Background())
	if result.Err != nil {
		return nil, result.Err
	}
	switch value := result.Value.(type) {
	case promql.Vector:
		var found []labels.Labels
		for _, s := range value {
			found = append(found, s.Metric)
		}
		return found, nil
	case promql.Scalar:
		return []labels.Labels{labels.EmptyLabels()}, nil
	}
	return nil, errors.New("the result is neither a vector nor a scalar")
}
