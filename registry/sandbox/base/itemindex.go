// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"strconv"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// itemIndex finds values in decoded JSON by their path. It indexes each list once and does not
// scan it for each path. Clients choose the paths and the lists, so it costs no more than their
// sizes together.
//
// The keys are, in this order: the address of the first item of a list, the names of the fields
// that identify an item, and the values of these fields.
type itemIndex map[*any]map[string]map[string]any

// Paths of Kubernetes objects are far below these limits.
const (
	maxPathElements = 64
	maxElementBytes = 1 << 10
	maxListKeys     = 4
	maxListIndexes  = 4
)

// noItem is the value at a path to an item that does not exist.
type noItem struct{}

// valueAt returns the value at a path: nil if a field on it is not set, and noItem if an item on it
// does not exist. It reports whether the value is known, which it is not if the path is beyond
// the limits, or asks for items of one list by more different keys than it is indexed by.
func (x itemIndex) valueAt(is any, path fieldpath.Path) (any, bool) {
	if len(path) > maxPathElements {
		return nil, false
	}
	for _, element := range path {
		if element.FieldName != nil {
			if len(*element.FieldName) > maxElementBytes {
				return nil, false
			}
			fields, _ := is.(map[string]any)
			is = fields[*element.FieldName]
			continue
		}
		list, _ := is.([]any)
		known := true
		switch {
		case len(list) == 0:
			is = noItem{}
		case element.Index == nil:
			is, known = x.item(list, element)
		case *element.Index >= 0 && *element.Index < len(list):
			is = list[*element.Index]
		default:
			is = noItem{}
		}
		if _, missing := is.(noItem); missing || !known {
			return is, known
		}
	}
	return is, true
}

// item returns the item of a list that its keys or its value name; noItem if there is none. It
// reports whether the item could be looked for.
func (x itemIndex) item(list []any, element fieldpath.PathElement) (any, bool) {
	keys, name, ok := keysOf(element)
	if !ok {
		return nil, false
	}
	indexes := x[&list[0]]
	items, ok := indexes[keys]
	if !ok {
		if len(indexes) == maxListIndexes {
			return nil, false
		}
		items = make(map[string]any, len(list))
		for _, item := range list {
			name, named := nameOf(item, element)
			if _, taken := items[name]; named && !taken {
				items[name] = item
			}
		}
		if indexes == nil {
			indexes = map[string]map[string]any{}
			x[&list[0]] = indexes
		}
		indexes[keys] = items
	}
	is, ok := items[name]
	if !ok {
		is = noItem{}
	}
	return is, true
}

// keysOf returns the fields that an element identifies an item by, which are none if its value
// does, and the item's name. It reports whether both are within the limits.
func keysOf(element fieldpath.PathElement) (keys, name string, ok bool) {
	if element.Value != nil {
		name, ok = scalar(*element.Value)
		return "", name, ok
	}
	if len(*element.Key) > maxListKeys {
		return "", "", false
	}
	size := 0
	var fields, values []string
	for _, field := range *element.Key {
		text, ok := scalar(field.Value)
		if size += len(field.Name) + len(text); !ok || size > maxElementBytes {
			return "", "", false
		}
		fields, values = append(fields, strconv.Quote(field.Name)), append(values, text)
	}
	return "keys " + strings.Join(fields, ","), strings.Join(values, ","), true
}

// nameOf names an item in the way that an element names another one of its list. A key that the
// item does not set has its default.
func nameOf(item any, as fieldpath.PathElement) (string, bool) {
	if as.Value != nil {
		return scalar(value.NewValueInterface(item))
	}
	fields, ok := item.(map[string]any)
	if !ok {
		return "", false
	}
	var values []string
	for _, field := range *as.Key {
		is, ok := fields[field.Name]
		if !ok {
			is = podtemplate.DefaultListKey(field.Name, field.Value.IsInt())
		}
		text, ok := scalar(value.NewValueInterface(is))
		if !ok {
			return "", false
		}
		values = append(values, text)
	}
	return strings.Join(values, ","), true
}

// scalar returns the text of a string, number or bool of limited length.
func scalar(v value.Value) (string, bool) {
	switch {
	case v.IsNull() || v.IsMap() || v.IsList(), v.IsString() && len(v.AsString()) > maxElementBytes:
		return "", false
	}
	return value.ToString(v), true
}
