// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"slices"
	"strings"
)

// Conditions are expressions of templates. An empty one always holds.

// whereAny holds where one of the choices is made.
func whereAny(made []*choice) string {
	var parts []string
	if store := slices.DeleteFunc(slices.Clone(made), func(c *choice) bool { return c.facts == nil }); len(store) > 0 {
		if parts = append(parts, ofStore(store)); parts[0] == "" {
			return ""
		}
	}
	for _, c := range made {
		if c.facts == nil {
			parts = append(parts, c.condition)
		}
	}
	return or(parts...)
}

// whereNone holds where none of the choices is made.
func whereNone(made []*choice) string {
	condition := ""
	if rest := slices.DeleteFunc(slices.Clone(stores), func(c *choice) bool { return slices.Contains(made, c) }); len(rest) == 0 {
		condition = "false"
	} else if len(rest) < len(stores) {
		condition = ofStore(rest)
	}
	for _, c := range made {
		if c.facts == nil {
			condition = and(condition, not(c.condition))
		}
	}
	return condition
}

// literal is a fact of the store, or that it is not one, and the stores of which that is true.
type literal struct {
	expression string
	of         []*choice
}

// ofStore is the shortest expression that is true of these stores and of no other.
func ofStore(wanted []*choice) string {
	is := func(found []*choice) bool {
		return len(found) == len(wanted) && !slices.ContainsFunc(found, func(c *choice) bool { return !slices.Contains(wanted, c) })
	}
	if is(stores) {
		return ""
	}
	var facts, negations []literal
	for _, fact := range slices.Sorted(maps.Keys(storeFacts)) {
		with := slices.DeleteFunc(slices.Clone(stores), func(c *choice) bool { return !slices.Contains(c.facts, fact) })
		without := slices.DeleteFunc(slices.Clone(stores), func(c *choice) bool { return slices.Contains(c.facts, fact) })
		facts = append(facts, literal{storeFacts[fact], with})
		negations = append(negations, literal{not(storeFacts[fact]), without})
	}
	one := append(facts, negations...)
	for _, a := range one {
		if is(a.of) {
			return a.expression
		}
	}
	for _, join := range []func(a, b literal) literal{
		func(a, b literal) literal {
			return literal{and(a.expression, b.expression), slices.DeleteFunc(slices.Clone(a.of), func(c *choice) bool { return !slices.Contains(b.of, c) })}
		},
		func(a, b literal) literal {
			all := slices.Clone(a.of)
			for _, c := range b.of {
				if !slices.Contains(all, c) {
					all = append(all, c)
				}
			}
			return literal{or(a.expression, b.expression), all}
		},
	} {
		for i, a := range one {
			for _, b := range one[i+1:] {
				if both := join(a, b); is(both.of) {
					return both.expression
				}
			}
		}
	}
	// Each by all that is true of it.
	var each []string
	for _, c := range wanted {
		whole := ""
		for _, fact := range slices.Sorted(maps.Keys(storeFacts)) {
			if slices.Contains(c.facts, fact) {
				whole = and(whole, storeFacts[fact])
			} else {
				whole = and(whole, not(storeFacts[fact]))
			}
		}
		each = append(each, whole)
	}
	return or(each...)
}

func or(conditions ...string) string {
	if len(conditions) == 1 {
		return conditions[0]
	}
	parts := make([]string, 0, len(conditions))
	for _, c := range conditions {
		parts = append(parts, group(c))
	}
	return "or " + strings.Join(parts, " ")
}

func not(condition string) string { return "not " + group(condition) }

func and(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return "and " + group(a) + " " + group(b)
}

// group puts an expression into brackets where it is not one word.
func group(condition string) string {
	if strings.Contains(condition, " ") {
		return "(" + condition + ")"
	}
	return condition
}
