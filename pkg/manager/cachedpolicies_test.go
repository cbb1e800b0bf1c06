// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestCachedPolicies(t *testing.T) {
	for by, want := range map[string]bool{
		v1alpha1.CreatedByTemplate: true, v1alpha1.CreatedByAgentRuntimes: true, v1alpha1.CreatedBySandbox: false, "me": false,
	} {
		if got := cachedPolicies().Label.Matches(labels.Set{v1alpha1.LabelCreatedBy: by}); got != want {
			t.Errorf("%s: %v", by, got)
		}
	}
}
