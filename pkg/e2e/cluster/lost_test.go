// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// A claimed sandbox whose pod is evicted, or deleted, says so, and so does its claim.
// Neither has the address of the pod any more, which another may get.
func TestClaimedSandboxesThatAreLost(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	tests := map[string]struct {
		lose   func(sandbox string) error
		reason string
		detail string // in full, if it is known
	}{
		"evicted": {
			lose: func(sandbox string) error {
				_, err := c.kube.CoreV1().Pods(ns).Patch(t.Context(), sandbox, types.MergePatchType,
					[]byte(`{"status":{"phase":"Failed","reason":"Evicted","message":"The node was low on memory"}}`), metav1.PatchOptions{}, "status")
				return err
			},
			reason: v1alpha1.ReasonEvicted, detail: "The node was low on memory",
		},
		"deleted": {
			lose: func(sandbox string) error {
				return ofCluster(t).CoreV1().Pods(ns).Delete(t.Context(), sandbox, metav1.DeleteOptions{})
			},
			reason: v1alpha1.ReasonPodDeleted,
		},
	}
	expect.FilledPool(t, c, ns, int32(len(tests)))
	for name, test := range tests {
		sandbox := expect.Claimed(t, c.claim(t, ns, builders.Claim(name, 1)), 1)[0]
		if err := test.lose(sandbox); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		lost := c.awaitSandbox(t, ns, sandbox, inPhase(v1alpha1.SandboxFailed))
		ready := meta.FindStatusCondition(lost.Status.Conditions, v1alpha1.SandboxConditionReady)
		if ready.Status != metav1.ConditionFalse || ready.Reason != test.reason || test.detail != "" && ready.Message != test.detail {
			t.Errorf("%s: condition %+v", name, ready)
		}
		if lost.Status.SandboxIP != "" || lost.Status.PodInfo.PodIP != "" {
			t.Errorf("%s: the sandbox has an address: %+v", name, lost.Status)
		}
		if shown := kubectl(t, ns, "", "get", "sandboxes", sandbox); !strings.Contains(shown, test.reason+": "+ready.Message) {
			t.Errorf("%s: kubectl get shows\n%s", name, shown)
		}
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			claim, err := c.SandboxClaims(ns).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			is := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionReady)
			want := fmt.Sprintf("sandbox %s: %s: %s", sandbox, test.reason, ready.Message)
			if is == nil || is.Status != metav1.ConditionFalse || is.Reason != v1alpha1.ReasonPodFailed || is.Message != want {
				return fmt.Errorf("Ready is %+v, want the message %q", is, want)
			}
			if len(claim.Status.Sandboxes) != 1 || len(claim.Status.Sandboxes[0].PodIPs) > 0 {
				return fmt.Errorf("sandboxes are %+v", claim.Status.Sandboxes)
			}
			return nil
		})
	}
}
