// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// What a template is made of, beside scalars, expressions and lines:

// entries are those of a map.
type entries []entry

// entry is there where its condition holds. Without a key it is an item of a list.
type entry struct {
	condition, key string
	value          any
}

// items are those of a list.
type items []entry

// cases are scalars of which one is chosen: the first whose condition holds. The last one
// has none.
type cases []entry

// override is a value of the chart, and the entries in its place where it is empty.
type override struct {
	value  string
	scalar bool
	own    entries
}

// variant is a value that is there, or not (nil), where a choice is made.
type variant struct {
	where *choice
	value any
}

// template is an object with its conditions.
type template struct {
	file, source string
	condition    string
	content      entries
}

// mergeObjects makes one template of an object of each name.
func mergeObjects(base rendering, variants []rendering) []template {
	type all struct {
		object
		base     any
		variants []variant
	}
	var order []string
	found := map[string]*all{}
	for n, r := range append([]rendering{base}, variants...) {
		for _, o := range r.objects {
			id := identityOf(o.tree)
			one := found[id]
			if one == nil {
				one = &all{object: o, variants: make([]variant, len(variants))}
				for i := range variants {
					one.variants[i].where = variants[i].of
				}
				found[id], order = one, append(order, id)
			}
			if n == 0 {
				one.base = o.tree
			} else {
				one.variants[n-1].value = o.tree
			}
		}
	}
	templates := make([]template, 0, len(order))
	for _, id := range order {
		one := found[id]
		e := merge("", one.base, one.variants)
		templates = append(templates, template{file: one.file, source: one.source, condition: and(kinds[one.tree.text("kind")], e.condition), content: e.value.(entries)})
	}
	// Objects of one file are in the order of kustomize.
	slices.SortStableFunc(templates, func(a, b template) int { return cmp.Compare(a.file, b.file) })
	return templates
}

// identityOf an object is what it keeps in all variants: what makes pods of a name may be a
// Deployment or a StatefulSet.
func identityOf(o *mapping) string {
	kind := o.text("kind")
	if kind == "Deployment" || kind == "StatefulSet" {
		kind = "workload"
	}
	return strings.Join([]string{kind, o.text("metadata", "namespace"), o.text("metadata", "name")}, "/")
}

// merge makes one value of a value and its variants; nil is one that is not there.
func merge(key string, base any, variants []variant) entry {
	var without, with []*choice
	var there []variant
	for _, v := range variants {
		if v.value == nil {
			without = append(without, v.where)
		} else {
			with = append(with, v.where)
			there = append(there, v)
		}
	}
	e := entry{key: key}
	if base == nil {
		e.condition = whereAny(with)
		base, there = there[0].value, there[1:]
	} else if len(without) > 0 {
		e.condition = whereNone(without)
	}
	if c, ok := base.(conditional); ok {
		e.condition, base = and(c.condition, e.condition), c.value
		for i, v := range there {
			there[i].value = v.value.(conditional).value
		}
	}
	e.value = mergeValues(base, there)
	return e
}

func mergeValues(base any, variants []variant) any {
	different := slices.DeleteFunc(slices.Clone(variants), func(v variant) bool { return equal(v.value, base) })
	switch base := base.(type) {
	case *mapping:
		if allAre[*mapping](different) {
			return mergeMaps(base, different)
		}
	case []any:
		if allAre[[]any](different) {
			return mergeLists(base, different)
		}
	case overridable:
		if allAre[overridable](different) {
			for i, v := range different {
				different[i].value = v.value.(overridable).own
			}
			return override{value: base.value, scalar: base.scalar, own: mergeMaps(base.own, different)}
		}
	}
	if len(different) == 0 {
		return base
	}
	var all cases
	for len(different) > 0 {
		value := different[0].value
		var where []*choice
		different = slices.DeleteFunc(different, func(v variant) bool {
			same := equal(v.value, value)
			if same {
				where = append(where, v.where)
			}
			return same
		})
		all = append(all, entry{condition: whereAny(where), value: value})
	}
	return append(all, entry{value: base})
}

func allAre[T any](variants []variant) bool {
	return !slices.ContainsFunc(variants, func(v variant) bool { _, ok := v.value.(T); return !ok })
}

func mergeMaps(base *mapping, variants []variant) entries {
	keys := slices.Clone(base.keys)
	for _, v := range variants {
		for _, key := range v.value.(*mapping).keys {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	merged := make(entries, 0, len(keys))
	for _, key := range keys {
		below := make([]variant, 0, len(variants))
		for _, v := range variants {
			below = append(below, variant{v.where, v.value.(*mapping).get(key)})
		}
		merged = append(merged, merge(key, base.get(key), below))
	}
	return merged
}

// slot is a place in a merged list: the item of the base, if it is there, and those of the
// variants.
type slot struct {
	id       string
	base     any
	variants []any
}

// mergeLists keeps the order of each list. Items are the same where they have the same name,
// or are the same flag, or are equal.
func mergeLists(base []any, variants []variant) items {
	var slots []slot
	for _, item := range base {
		slots = append(slots, slot{id: itemIdentity(item), base: item, variants: make([]any, len(variants))})
	}
	for n, v := range variants {
		next, list := 0, v.value.([]any)
		for at, item := range list {
			id := itemIdentity(item)
			i := slices.IndexFunc(slots[next:], func(s slot) bool { return s.id == id })
			if i < 0 {
				next = behindOthers(slots, next, list[at+1:])
				slots, i = slices.Insert(slots, next, slot{id: id, variants: make([]any, len(variants))}), 0
			}
			next += i + 1
			slots[next-1].variants[n] = item
		}
	}
	merged := make(items, 0, len(slots))
	for _, s := range slots {
		below := make([]variant, 0, len(variants))
		for n, v := range variants {
			below = append(below, variant{v.where, s.variants[n]})
		}
		merged = append(merged, merge("", s.base, below))
	}
	return merged
}

// behindOthers is the first place behind what other variants have added at a place, unless
// items that are to follow are among that.
func behindOthers(slots []slot, next int, following []any) int {
	for i := next; i < len(slots) && slots[i].base == nil; i++ {
		if slices.ContainsFunc(following, func(item any) bool { return itemIdentity(item) == slots[i].id }) {
			return i
		}
		next = i + 1
	}
	return next
}

func itemIdentity(item any) string {
	switch item := item.(type) {
	case *mapping:
		if name := cmp.Or(item.text("name"), item.text("metadata", "name")); name != "" {
			return "name " + name
		}
	case string:
		if flag, _, ok := strings.Cut(item, "="); ok && strings.HasPrefix(flag, "--") {
			return flag
		}
	case lines:
		return string(item)
	}
	return fmt.Sprint(plain(item))
}

// plain is a tree without pointers, for its text.
func plain(tree any) any {
	switch tree := tree.(type) {
	case *mapping:
		values := map[string]any{}
		for key, value := range tree.values {
			values[key] = plain(value)
		}
		return values
	case []any:
		list := make([]any, 0, len(tree))
		for _, item := range tree {
			list = append(list, plain(item))
		}
		return list
	}
	return tree
}
