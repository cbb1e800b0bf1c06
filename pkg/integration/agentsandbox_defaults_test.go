// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

// TestClaimDefaults: the answer of a create shows the lifecycle that the pool gives, of a warm
// sandbox and of one that is made, and the pool can have no time for it.
func TestClaimDefaults(t *testing.T) {
	s := agentPool(t, 1, withSyncWindow(time.Millisecond))
	pools := agent(t, s, agentTemplates.GroupVersion().WithResource("sandboxwarmpools"))
	patch := func(lifecycle string) error {
		_, err := pools.Patch(t.Context(), "pool", types.MergePatchType, []byte(`{"spec":{"claimDefaults":{"lifecycle":`+lifecycle+`}}}`), metav1.PatchOptions{})
		return err
	}
	if err := patch(`{"shutdownTime":"2036-01-01T00:00:00Z"}`); err == nil || !strings.Contains(err.Error(), "spec.claimDefaults.lifecycle.shutdownTime: Forbidden") {
		t.Errorf("a time for all claims: %v", err)
	}
	if err := patch(`{"shutdownPolicy":"Delete","ttlSecondsAfterFinished":10}`); err != nil {
		t.Fatal(err)
	}
	given := map[string]any{"shutdownPolicy": "Delete", "ttlSecondsAfterFinished": int64(10)}
	own := map[string]any{"shutdownPolicy": "Retain"}
	within(t, func() bool { // the allocator hears of the pool by a watch
		claim, err := agent(t, s, agentClaims).Create(t.Context(), newAgentClaim("seen", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && cmp.Equal(lifecycleOf(claim), given)
	}, "the pool's defaults are not seen")
	for _, tc := range []struct {
		name, launch string
		spec, want   map[string]any
	}{
		{"warm", "pool-", nil, given}, {"cold", "cold", nil, given}, {"own", "own", map[string]any{"lifecycle": own}, own},
	} {
		claim := createAgent(t, s, newAgentClaim(tc.name, tc.spec))
		if diff := cmp.Diff(tc.want, lifecycleOf(claim)); diff != "" || !strings.HasPrefix(sandboxOf(claim), tc.launch) {
			t.Errorf("%s has %q (-want +got):\n%s", tc.name, sandboxOf(claim), diff)
		}
	}
}

func lifecycleOf(claim *unstructured.Unstructured) map[string]any {
	lifecycle, _, _ := unstructured.NestedMap(claim.Object, "spec", "lifecycle")
	return lifecycle
}

// TestServicesWithoutName: a claim whose sandbox cannot have its Service has none, and says why.
func TestServicesWithoutName(t *testing.T) {
	s := agentPool(t, 0, withSyncWindow(time.Millisecond))
	if _, err := agent(t, s, agentTemplates).Patch(t.Context(), "base", types.MergePatchType, []byte(`{"spec":{"service":true}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	claimed := func(name string) *unstructured.Unstructured {
		return newAgentClaim(name, map[string]any{"sandboxTemplateRef": map[string]any{"name": "base"}, "warmpool": "none"})
	}
	const message = "is not a valid name for a Service"
	within(t, func() bool { // the allocator hears of the change of the template by a watch
		tried, err := agent(t, s, agentClaims).Create(t.Context(), claimed("py3.12"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(agentReady(t, tried).Message, message)
	}, "a claim whose name is not valid for a Service is accepted")
	for name, good := range map[string]bool{"py3.12": false, "py312": true} {
		ready := agentReady(t, createAgent(t, s, claimed(name)))
		if got := strings.Contains(ready.Message, message); got == good {
			t.Errorf("%s: Ready is %+v", name, ready)
		}
		if boxNamed(t, s, name) != nil != good {
			t.Errorf("%s: a sandbox is made: %v", name, !good)
		}
	}
	template := builders.Template("py3.12")
	template.Spec.Service = new(true)
	if _, err := s.Client.AgentsV1alpha1().SandboxTemplates(namespace).Create(t.Context(), template, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: template.Name}} // of which there is none
	within(t, func() bool {                                                                               // the allocator hears of the template by a watch
		_, err := claims(s).Create(t.Context(), testutil.Claim(set, "fresh", 1, nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsInvalid(err) && strings.Contains(err.Error(), `spec.templateName: Invalid value: "py3.12"`)
	}, "a claim of a template whose name is not valid for a Service is not refused")
}
