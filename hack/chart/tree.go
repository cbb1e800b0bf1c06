// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"reflect"
	"slices"

	yamlv3 "go.yaml.in/yaml/v3"
)

// A tree is a *mapping, a list ([]any), a scalar, or one of the types of values below.

// mapping is a map with the order of its source.
type mapping struct {
	keys   []string
	values map[string]any
}

func newMapping() *mapping { return &mapping{values: map[string]any{}} }

func (m *mapping) get(key string) any {
	if m == nil {
		return nil
	}
	return m.values[key]
}

// at returns a map below this one, or nil.
func (m *mapping) at(keys ...string) *mapping {
	for _, key := range keys {
		m, _ = m.get(key).(*mapping)
	}
	return m
}

// text returns a string below this map, or an empty one.
func (m *mapping) text(keys ...string) string {
	last := len(keys) - 1
	text, _ := m.at(keys[:last]...).get(keys[last]).(string)
	return text
}

// set changes a value, or adds it as the last one.
func (m *mapping) set(key string, value any) {
	if _, ok := m.values[key]; !ok {
		m.keys = append(m.keys, key)
	}
	m.values[key] = value
}

func (m *mapping) remove(key string) {
	if i := slices.Index(m.keys, key); i >= 0 {
		m.keys = slices.Delete(m.keys, i, i+1)
		delete(m.values, key)
	}
}

// add appends items to a list of this map, which is made where it is missing.
func (m *mapping) add(key string, items ...any) {
	list, _ := m.get(key).([]any)
	m.set(key, append(slices.Clone(list), items...))
}

// expression is a scalar that Helm computes.
type expression string

// lines are of a template, in the place of an entry of a map or an item of a list. In them
// INDENT is the number of spaces before that, and INDENT2 two more.
type lines string

// conditional is a value that is there where a condition holds.
type conditional struct {
	condition string
	value     any
}

// overridable is a value of the chart, an expression, and what the install has in its place
// where it is empty: one entry of the key, or none.
type overridable struct {
	value  string
	scalar bool
	own    *mapping
}

// decode returns the tree of a YAML document.
func decode(node *yamlv3.Node) any {
	switch node.Kind {
	case yamlv3.MappingNode:
		m := newMapping()
		for i := 0; i < len(node.Content); i += 2 {
			m.set(node.Content[i].Value, decode(node.Content[i+1]))
		}
		return m
	case yamlv3.SequenceNode:
		list := make([]any, 0, len(node.Content))
		for _, item := range node.Content {
			list = append(list, decode(item))
		}
		return list
	case yamlv3.AliasNode:
		return decode(node.Alias)
	}
	var scalar any
	if err := node.Decode(&scalar); err != nil {
		return node.Value // which is how it is written
	}
	return scalar
}

// equal ignores the order of maps.
func equal(a, b any) bool {
	switch a := a.(type) {
	case *mapping:
		b, ok := b.(*mapping)
		if !ok || len(a.keys) != len(b.keys) {
			return false
		}
		for key, value := range a.values {
			other, ok := b.values[key]
			if !ok || !equal(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	case overridable:
		b, ok := b.(overridable)
		return ok && a.value == b.value && equal(a.own, b.own)
	case conditional:
		b, ok := b.(conditional)
		return ok && a.condition == b.condition && equal(a.value, b.value)
	}
	return reflect.DeepEqual(a, b)
}
