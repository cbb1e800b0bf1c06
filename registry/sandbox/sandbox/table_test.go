// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandbox"
)

func TestTable(t *testing.T) {
	fresh := registrytest.NewSandbox("fresh")
	fresh.CreationTimestamp = *at(-90 * time.Second)
	fresh.Status.Phase = v1alpha1.SandboxPending

	claimed := registrytest.NewSandbox("claimed")
	claimed.CreationTimestamp = *at(-3 * time.Hour)
	claimed.Labels = map[string]string{
		v1alpha1.LabelSandboxClaimed: "true", v1alpha1.LabelSandboxPool: "pool", v1alpha1.LabelClaimName: "claim",
	}
	claimed.Annotations = map[string]string{v1alpha1.AnnotationClaimedBy: "alice"}
	claimed.Spec.ShutdownTime, claimed.Spec.PauseTime = at(time.Hour), at(time.Minute)
	claimed.Status = v1alpha1.SandboxStatus{
		Phase: v1alpha1.SandboxRunning, RecycledCount: 2, Message: "all well", SandboxIP: "10.0.0.1", NodeName: "n1",
	}

	podOnly := registrytest.NewSandbox("pod-only")
	podOnly.CreationTimestamp = *at(0)
	podOnly.Status.PodInfo = v1alpha1.PodInfo{PodIP: "10.0.0.2", NodeName: "n2"}

	registrytest.CheckTable(t, sandbox.NewTableConvertor(testclock.NewFakePassiveClock(now)),
		&v1alpha1.SandboxList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}, Items: []v1alpha1.Sandbox{*fresh, *claimed, *podOnly}},
		registrytest.Table{
			Columns: []string{"Name", "Status", "Age", "Claimed", "shutdown_time", "pause_time", "RecycledCount", "Message"},
			Wide:    []string{"IP", "Node", "Pool", "Claim", "ClaimedBy"},
			Rows: [][]any{
				{"fresh", "Pending", "90s", "<none>", "<none>", "<none>", int64(0), "", "<none>", "<none>", "<none>", "<none>", "<none>"},
				{"claimed", "Running", "3h", "true", "2026-09-01T13:00:00Z", "2026-09-01T12:01:00Z", int64(2), "all well", "10.0.0.1", "n1", "pool", "claim", "alice"},
				{"pod-only", "<none>", "0s", "<none>", "<none>", "<none>", int64(0), "", "10.0.0.2", "n2", "<none>", "<none>", "<none>"},
			},
		})
}
