// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxset_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxset"
)

func TestTable(t *testing.T) {
	now := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

	fresh := registrytest.NewSandboxSet("fresh")
	fresh.CreationTimestamp = metav1.NewTime(now.Add(-5 * time.Second))

	filled := registrytest.NewSandboxSet("filled")
	filled.CreationTimestamp = metav1.NewTime(now.Add(-50 * time.Hour))
	filled.Spec.Template, filled.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "python"}
	filled.Status = v1alpha1.SandboxSetStatus{
		Replicas: 5, AvailableReplicas: 4, UpdatedReplicas: 3, UpdatedAvailableReplicas: 1, UpdateRevision: "5d4f",
		Conditions: []metav1.Condition{{Type: "Ready", Message: "x"}, {Type: "Available", Message: "1 sandbox cannot start"}},
	}

	registrytest.CheckTable(t, sandboxset.NewTableConvertor(testclock.NewFakePassiveClock(now)),
		&v1alpha1.SandboxSetList{Items: []v1alpha1.SandboxSet{*fresh, *filled}},
		registrytest.Table{
			Columns: []string{"Name", "Replicas", "Available", "UpdatedReplicas", "UpdatedAvailableReplicas", "UpdateRevision", "Age"},
			Wide:    []string{"Current", "Template", "Message"},
			Rows: [][]any{
				{"fresh", int64(2), int64(0), int64(0), int64(0), "<none>", "5s", int64(0), "<inline>", ""},
				{"filled", int64(2), int64(4), int64(3), int64(1), "5d4f", "2d2h", int64(5), "python", "1 sandbox cannot start"},
			},
		})
}
