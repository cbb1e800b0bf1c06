// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// access is what the user of the claim mine gets.
func access(t *testing.T, s *testutil.Server, spec v1alpha1.SandboxClaimRuntimeAccessSpec) []v1alpha1.SandboxRuntimeAccess {
	t.Helper()
	answer, err := claims(s).RuntimeAccess(t.Context(), "mine", &v1alpha1.SandboxClaimRuntimeAccess{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("asking for the runtimes of the claim: %v", err)
	}
	return answer.Status.Sandboxes
}

// Who asks for the runtimes of a claim gets its sandboxes, and no others.
func TestRuntimeAccess(t *testing.T) {
	s, set := stocked(t, 6)
	mine := create(t, s, testutil.Claim(set, "mine", 3, nil))
	other := create(t, s, testutil.Claim(set, "other", 2, nil))

	told := access(t, s, v1alpha1.SandboxClaimRuntimeAccessSpec{ClaimUID: mine.UID})
	var names []string
	tokens := map[string]bool{}
	for i, one := range told {
		names = append(names, one.Name)
		tokens[one.AccessToken] = true
		if _, err := uuid.Parse(one.AccessToken); err != nil {
			t.Errorf("%s has the token %q", one.Name, one.AccessToken)
		}
		bound := mine.Status.Sandboxes[slices.IndexFunc(mine.Status.Sandboxes, func(sb v1alpha1.ClaimedSandbox) bool { return sb.Name == one.Name })]
		if one.UID != bound.UID || one.URL == "" || !strings.HasPrefix(one.URL, "http://") || !strings.HasSuffix(one.URL, ":49983") {
			t.Errorf("entry %d is %+v", i, one)
		}
	}
	if !slices.Equal(names, namesOf(mine)) || len(tokens) != 3 {
		t.Errorf("told of %v with %d tokens, want %v", names, len(tokens), namesOf(mine))
	}

	one := access(t, s, v1alpha1.SandboxClaimRuntimeAccessSpec{SandboxNames: names[1:2]})
	if len(one) != 1 || one[0] != told[1] {
		t.Errorf("asked for %s, told of %+v", names[1], one)
	}
	// A server that starts on the same store tells the same.
	second := testutil.Start(t, testutil.WithEtcd(s.EtcdServers))
	if got := access(t, second, v1alpha1.SandboxClaimRuntimeAccessSpec{}); !slices.Equal(got, told) {
		t.Errorf("another server tells %+v, want %+v", got, told)
	}

	for name, tc := range map[string]struct {
		claim string
		spec  v1alpha1.SandboxClaimRuntimeAccessSpec
		is    func(error) bool
	}{
		"a sandbox of another claim": {"mine", v1alpha1.SandboxClaimRuntimeAccessSpec{SandboxNames: namesOf(other)[:1]}, apierrors.IsInvalid},
		"another claim of the name":  {"mine", v1alpha1.SandboxClaimRuntimeAccessSpec{ClaimUID: types.UID("other")}, apierrors.IsConflict},
		"no claim":                   {"absent", v1alpha1.SandboxClaimRuntimeAccessSpec{}, apierrors.IsNotFound},
		"no name":                    {"mine", v1alpha1.SandboxClaimRuntimeAccessSpec{SandboxNames: []string{"No_Name"}}, apierrors.IsInvalid},
		"very many names":            {"mine", v1alpha1.SandboxClaimRuntimeAccessSpec{SandboxNames: make([]string, 1001)}, apierrors.IsInvalid},
	} {
		answer, err := claims(s).RuntimeAccess(t.Context(), tc.claim, &v1alpha1.SandboxClaimRuntimeAccess{Spec: tc.spec}, metav1.CreateOptions{})
		if !tc.is(err) {
			t.Errorf("%s: got %+v, %v", name, answer, err)
		}
	}
}

// A claim of the name of an earlier one does not get what that has left.
func TestRuntimeAccessOfAClaimMadeAgain(t *testing.T) {
	s, set := stocked(t, 2)
	earlier := create(t, s, testutil.Claim(set, "mine", 1, nil))
	token := access(t, s, v1alpha1.SandboxClaimRuntimeAccessSpec{})[0].AccessToken
	if err := claims(s).Delete(t.Context(), "mine", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	create(t, s, testutil.Claim(set, "mine", 1, nil))
	told := access(t, s, v1alpha1.SandboxClaimRuntimeAccessSpec{})
	if len(told) != 1 || told[0].Name == namesOf(earlier)[0] || told[0].AccessToken == token {
		t.Errorf("told of %+v", told)
	}
	for _, sb := range listed(t, s, "") {
		for key, value := range sb.Annotations {
			if strings.Contains(value, token) || strings.Contains(value, told[0].AccessToken) {
				t.Errorf("the annotation %s of %s has a token", key, sb.Name)
			}
		}
	}
}

// Nothing can be mounted where there is no cluster that has volumes.
func TestMountsNeedACluster(t *testing.T) {
	s, set := stocked(t, 1)
	claim := testutil.Claim(set, "mounts", 1, func(c *v1alpha1.SandboxClaim) {
		c.Spec.DynamicVolumesMount = []v1alpha1.CSIMountConfig{{PvName: "data", MountPath: "/data"}}
	})
	for _, dryRun := range [][]string{nil, {metav1.DryRunAll}} {
		_, err := claims(s).Create(t.Context(), claim, metav1.CreateOptions{DryRun: dryRun})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.dynamicVolumesMount: Forbidden: there is no cluster to read PersistentVolumes from") {
			t.Errorf("dry run %v: got %v", dryRun, err)
		}
	}
	if left := listed(t, s, v1alpha1.LabelSandboxClaimed+"="+v1alpha1.ClaimedTrue); len(left) != 0 {
		t.Errorf("sandboxes were taken: %v", left)
	}
}
