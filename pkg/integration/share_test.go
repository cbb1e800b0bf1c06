// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestServersPreferDifferentSandboxes asks two servers of one store what they
// would hand out.
func TestServersPreferDifferentSandboxes(t *testing.T) {
	const n = 100
	a, set := stocked(t, n)
	b := testutil.Start(t, testutil.WithEtcd(a.EtcdServers))
	expect.Eventually(t.Context(), t, func(context.Context) error {
		ofA, ofB := preview(t, a, set, 10), preview(t, b, set, 10)
		if len(ofA) != 10 || len(ofB) != 10 || slices.ContainsFunc(ofA, func(name string) bool { return slices.Contains(ofB, name) }) {
			return fmt.Errorf("they would hand out %v and %v", ofA, ofB)
		}
		return nil
	})

	// When its own share is empty, a server takes from the others'.
	claim := create(t, a, testutil.Claim(set, "all", n, fails))
	if claim.Status.ClaimedReplicas != n {
		t.Errorf("claimed %d of %d", claim.Status.ClaimedReplicas, n)
	}
	checkInvariants(t, a)
}

func preview(t *testing.T, s *testutil.Server, set *v1alpha1.SandboxSet, n int32) []string {
	t.Helper()
	claim, err := claims(s).Create(t.Context(), testutil.Claim(set, "preview", n, nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, sb := range claim.Status.Sandboxes {
		names = append(names, sb.Name)
	}
	return names
}
