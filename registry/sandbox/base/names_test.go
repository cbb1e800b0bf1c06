// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"strings"
	"testing"

	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
)

// TestServersMakeOtherNames seeds the generator of Kubernetes alike, as the clock does for
// servers that start together.
func TestServersMakeOtherNames(t *testing.T) {
	const n = 20
	names := map[string]bool{}
	for range 2 {
		utilrand.Seed(1)
		server := NewStrategy(nil)
		for range n {
			names[server.GenerateName("python-")] = true
		}
	}
	// Of 40 names of 23 bits two are alike once in ten thousand runs.
	if len(names) < 2*n-1 {
		t.Errorf("two servers made %d names of %d", len(names), 2*n)
	}
}

func TestGeneratedNamesFit(t *testing.T) {
	for _, base := range []string{"a", "python-", strings.Repeat("x", 58), strings.Repeat("x", 200)} {
		name := NewStrategy(nil).GenerateName(base)
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			t.Errorf("%q is no name: %v", name, problems)
		}
		if kept := base[:min(len(base), 58)]; !strings.HasPrefix(name, kept) || len(name) != len(kept)+5 {
			t.Errorf("%q was made from %q", name, base)
		}
	}
}
