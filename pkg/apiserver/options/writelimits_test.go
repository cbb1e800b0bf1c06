// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package options_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/podnamespace"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// An API server knows the user of the controllers also where it is no pod: a process of a
// development cluster has the namespace of the installation in its environment.
func TestExemptWriters(t *testing.T) {
	t.Setenv(podnamespace.Variable, "tenants-system")
	var got sets.Set[string]
	testutil.Start(t, testutil.WithConfig(func(c *apiserver.Config) { got = c.ExtraConfig.ExemptWriters }))
	want := sets.New("system:apiserver", "system:serviceaccount:tenants-system:sandlot-controller-manager")
	if !got.Equal(want) {
		t.Errorf("writes of %v are not rejected, want %v", got.UnsortedList(), want.UnsortedList())
	}
}
