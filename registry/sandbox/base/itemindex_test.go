// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

func pathOf(t *testing.T, elements ...string) fieldpath.Path {
	t.Helper()
	var path fieldpath.Path
	for _, text := range elements {
		element, err := fieldpath.DeserializePathElement(text)
		if err != nil {
			t.Fatal(err)
		}
		path = append(path, element)
	}
	return path
}

// A client can write any managed fields, so a path may lead anywhere.
func TestValueAt(t *testing.T) {
	const text = `{"spec":{"ports":[{"port":1,"protocol":"TCP","name":"a"},{"port":1,"protocol":"UDP","name":"b"},7],"tags":["x","y"],"none":[],
		"open":[{"port":2,"name":"c"}]}}`
	object := map[string]any{}
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	const tcp, udp = `k:{"port":1,"protocol":"TCP"}`, `k:{"port":1,"protocol":"UDP"}`
	index := itemIndex{}
	for _, tc := range []struct{ path, want string }{
		{"f:spec f:ports " + tcp + " f:name", "a"},
		{"f:spec f:ports " + udp + " f:name", "b"},
		{"f:spec f:ports " + tcp + " f:none", "<nil>"},
		{`f:spec f:ports k:{"port":2,"protocol":"UDP"}`, "no item"},
		{`f:spec f:ports k:{"name":"a"} f:name`, "a"}, // which are other keys
		{`f:spec f:ports k:{"name":"a","port":1} f:name`, "a"},
		{`f:spec f:ports v:"a"`, "no item"},
		{`f:spec f:ports k:{"protocol":"UDP"}`, "unknown"}, // the list has as many indexes as it may
		{"f:spec f:ports " + udp + " f:name", "b"},
		{`f:spec f:open k:{"a":"","b":"","c":"","d":"","e":""}`, "unknown"},
		{`f:spec f:open k:{"name":"` + strings.Repeat("x", maxElementBytes) + `"}`, "unknown"},
		{`f:spec f:open k:{"` + strings.Repeat("x", maxElementBytes) + `":1}`, "unknown"},
		{`f:spec f:tags v:"` + strings.Repeat("x", maxElementBytes+1) + `"`, "unknown"},
		{`f:spec f:tags v:["x"]`, "unknown"},
		{`f:spec f:` + strings.Repeat("x", maxElementBytes+1), "unknown"},
		{`f:spec f:` + strings.Repeat("x", maxElementBytes), "<nil>"},
		{strings.Repeat("f:spec ", maxPathElements+1), "unknown"},
		{`f:spec f:open k:{"port":2,"protocol":"TCP"} f:name`, "c"},
		{`f:spec f:open k:{"port":2,"protocol":"TCP"} f:name`, "c"},
		{`f:spec f:open k:{"port":2,"protocol":"UDP"} f:name`, "no item"},
		{"f:spec f:ports i:1 f:name", "b"},
		{"f:spec f:ports i:2", "7"},
		{"f:spec f:ports i:3", "no item"},
		{"f:spec f:ports i:-1", "no item"},
		{`f:spec f:tags v:"y"`, "y"},
		{`f:spec f:tags v:"z"`, "no item"},
		{`f:spec f:none v:"y"`, "no item"},
		{`f:spec f:none i:0`, "no item"},
		{`f:spec v:"y"`, "no item"},
		{`f:spec f:tags f:x`, "<nil>"},
		{"f:none f:a " + tcp, "no item"},
	} {
		value, known := index.valueAt(object, pathOf(t, strings.Fields(tc.path)...))
		got := fmt.Sprint(value)
		switch {
		case !known:
			got = "unknown"
		case value == any(noItem{}):
			got = "no item"
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", tc.path, got, tc.want)
		}
	}
	indexes := 0
	for _, ofList := range index {
		indexes += len(ofList)
	}
	if len(index) != 3 || indexes != 6 {
		t.Errorf("there are %d indexes of %d lists, want 4 of one list and one of each of two", indexes, len(index))
	}
}
