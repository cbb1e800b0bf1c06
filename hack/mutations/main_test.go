// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// TestMutationsFitTheCode: each mutation has something to change. To run them all takes hours, so
// a change of the code would leave some behind that try nothing.
func TestMutationsFitTheCode(t *testing.T) {
	t.Chdir("../..")
	all, err := mutations()
	if err != nil || len(all) == 0 {
		t.Fatalf("%d mutations: %v", len(all), err)
	}
	r := &runner{dir: t.TempDir()}
	for _, m := range all {
		if _, err := r.overlay(m); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}
