// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// itemIndex finds values in decoded JSON by their path. It indexes each list once and does not
// scan it for each path, because clients choose the number of paths and the length of the lists.
// The address of its first item identifies a list.
type itemIndex map[*any]listIndex

// listIndex is the index of one list: its items by what names them in a path.
type listIndex struct {
	// keys are the fields that identify an item, or empty if its value does. The first path into a
	// list decides; nothing is found by paths with other keys.
	keys  string
	items map[string]any
}

// noItem is the value at a path to an item that does not exist.
type noItem struct{}

// valueAt returns the value at a path: nil if a field on it is not set, and noItem if an item on it
// does not exist. It reports whether the value is known: an item is not looked for by other keys
// than those of the first path into its list.
func (x itemIndex) valueAt(is any, path fieldpath.Path) (any, bool) {
	for _, element := range path {
		if element.FieldName != nil {
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

// item returns the item of a list that its key or its value names; noItem if there is none. It
// reports whether the list is indexed by these keys.
func (x itemIndex) item(list []any, element fieldpath.PathElement) (any, bool) {
	keys := keysOf(element)
	index, ok := x[&list[0]]
	if !ok {
		index = listIndex{keys, make(map[string]any, len(list))}
		for _, item := range list {
			name, named := nameOf(item, element)
			if _, taken := index.items[name]; named && !taken {
				index.items[name] = item
			}
		}
		x[&list[0]] = index
	}
	is, ok := index.items[element.String()]
	if !ok {
		is = noItem{}
	}
	return is, index.keys == keys
}

func keysOf(element fieldpath.PathElement) string {
	if element.Key == nil {
		return ""
	}
	var names []string
	for _, field := range *element.Key {
		names = append(names, field.Name)
	}
	return strings.Join(names, "\x00")
}

// nameOf names an item in the way that an element names another one of its list. A key that the
// item does not set has its default.
func nameOf(item any, as fieldpath.PathElement) (string, bool) {
	if as.Key == nil {
		is := value.NewValueInterface(item)
		return fieldpath.PathElement{Value: &is}.String(), true
	}
	fields, ok := item.(map[string]any)
	if !ok {
		return "", false
	}
	var key value.FieldList
	for _, field := range *as.Key {
		is, ok := fields[field.Name]
		if !ok {
			is = podtemplate.DefaultListKey(field.Name, field.Value.IsInt())
		}
		key = append(key, value.Field{Name: field.Name, Value: value.NewValueInterface(is)})
	}
	return fieldpath.PathElement{Key: &key}.String(), true
}
