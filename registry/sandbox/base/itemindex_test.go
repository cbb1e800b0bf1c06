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
		{`f:spec f:ports k:{"name":"a"} f:name`, "unknown"}, // which are the keys of no other path
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
	if len(index) != 3 {
		t.Errorf("%d lists are indexed, want each of 3 once", len(index))
	}
}
