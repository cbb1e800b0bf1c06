// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// TestMutationsFitTheCode: each mutation has something to change. To run them all takes hours, so
// a change of the code would leave some behind that try nothing.
func TestMutationsFitTheCode(t *testing.T) {
	t.Chdir("../..")
	for _, m := range mutations {
		if _, err := m.changed(); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}
