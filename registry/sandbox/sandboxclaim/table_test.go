// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxclaim"
)

func TestTable(t *testing.T) {
	claiming := registrytest.NewSandboxClaim("claiming")
	claiming.CreationTimestamp = *at(-4 * time.Second)
	claiming.Status = v1alpha1.SandboxClaimStatus{
		Phase: v1alpha1.SandboxClaimPhaseClaiming, Message: v1alpha1.ClaimingMessage(0, 1),
	}

	one := registrytest.NewSandboxClaim("one")
	one.CreationTimestamp = *at(-2 * time.Hour)
	one.Annotations = map[string]string{v1alpha1.AnnotationClaimedBy: "alice"}
	one.Status = v1alpha1.SandboxClaimStatus{
		Phase: v1alpha1.SandboxClaimPhaseCompleted, ClaimedReplicas: 1, Message: v1alpha1.ClaimedMessage(1, 1),
		Sandboxes: []v1alpha1.ClaimedSandbox{{Name: "pool-x", PodIPs: []string{"10.0.0.1", "fd00::1"}}},
	}

	many := registrytest.NewSandboxClaim("many")
	many.CreationTimestamp = *at(0)
	many.Spec.TemplateName, many.Spec.SandboxTemplateRef = "", &v1alpha1.SandboxClaimTemplateRef{Name: "python"}
	many.Spec.Replicas = ptr.To[int32](10)
	many.Status = v1alpha1.SandboxClaimStatus{
		Phase: v1alpha1.SandboxClaimPhaseCompleted, ClaimedReplicas: 3,
		Sandboxes: []v1alpha1.ClaimedSandbox{{Name: "pool-a"}, {Name: "pool-b"}, {Name: "pool-c"}},
	}

	completed := func(name string, replicas, claimed int32, conditions ...metav1.Condition) v1alpha1.SandboxClaim {
		claim := registrytest.NewSandboxClaim(name)
		claim.CreationTimestamp, claim.Spec.Replicas = *at(0), &replicas
		claim.Status = v1alpha1.SandboxClaimStatus{Phase: v1alpha1.SandboxClaimPhaseCompleted, ClaimedReplicas: claimed, Conditions: conditions}
		return *claim
	}
	notReady := func(reason string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ClaimConditionReady, Status: metav1.ConditionFalse, Reason: reason}
	}
	finished := metav1.Condition{Type: v1alpha1.ClaimConditionFinished, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPodFailed}
	expired := completed("expired", 1, 1, notReady(v1alpha1.ReasonClaimExpired), finished)
	expired.Spec.Lifecycle = &v1alpha1.SandboxClaimLifecycle{}
	gone := completed("gone", 1, 1)
	gone.DeletionTimestamp = at(0)

	ahead := func(claim *v1alpha1.SandboxClaim) (int, bool) {
		if claim.Name == "lost" {
			return 100, true
		}
		return 3, claim.Name == "claiming"
	}
	registrytest.CheckTable(t, sandboxclaim.NewTableConvertor(testclock.NewFakePassiveClock(now), ahead),
		&v1alpha1.SandboxClaimList{Items: []v1alpha1.SandboxClaim{
			*claiming, *one, *many, {},
			completed("none", 2, 0, notReady(v1alpha1.ReasonTimeoutReached)),
			completed("lost", 1, 1, notReady(v1alpha1.ReasonSandboxMissing)),
			completed("finished", 1, 1, notReady(v1alpha1.ReasonPodFailed), finished),
			expired, gone,
		}},
		registrytest.Table{
			Columns: []string{"Name", "Phase", "Template", "Desired", "Claimed", "Age", "Status", "Sandbox", "IP"},
			Wide:    []string{"ClaimedBy", "Ahead", "Message"},
			Rows: [][]any{
				{"claiming", "Claiming", "pool", int64(1), int64(0), "4s", "Waiting", "<none>", "<none>", "<none>", "3", "Claiming sandboxes: 0/1 claimed"},
				{"one", "Completed", "pool", int64(1), int64(1), "120m", "Complete", "pool-x", "10.0.0.1", "alice", "<none>", "Successfully claimed 1/1 sandboxes"},
				{"many", "Completed", "python", int64(10), int64(3), "0s", "Partial", "pool-a +2", "<none>", "<none>", "<none>", ""},
				{"", "<none>", "<none>", int64(1), int64(0), "<unknown>", "<none>", "<none>", "<none>", "<none>", "<none>", ""},
				{"none", "Completed", "pool", int64(2), int64(0), "0s", "None", "<none>", "<none>", "<none>", "<none>", ""},
				{"lost", "Completed", "pool", int64(1), int64(1), "0s", "NotReady", "<none>", "<none>", "<none>", "100+", ""},
				{"finished", "Completed", "pool", int64(1), int64(1), "0s", "Finished", "<none>", "<none>", "<none>", "<none>", ""},
				{"expired", "Completed", "pool", int64(1), int64(1), "0s", "Expired", "<none>", "<none>", "<none>", "<none>", ""},
				{"gone", "Completed", "pool", int64(1), int64(1), "0s", "Terminating", "<none>", "<none>", "<none>", "<none>", ""},
			},
		})
}
