// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestApplyByTwo lets two managers apply the same set and the same claim: each
// owns its fields, and they conflict over those of both.
func TestApplyByTwo(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)

	t.Run("set", func(t *testing.T) {
		kubectl(t, ns, builders.PoolYAML, "apply", "--server-side", "--field-manager=owner", "-f", "-")
		expect.FullPool(t, c, ns, "pool", 3)
		const other = `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxSet","metadata":{"name":"pool"%s},"spec":{%s}}`
		_, err := tryKubectl(t, "", ns, fmt.Sprintf(other, "", `"replicas":4`), "apply", "--server-side", "--field-manager=other", "-f", "-")
		if err == nil || !strings.Contains(err.Error(), `conflict with "owner"`) || !strings.Contains(err.Error(), ".spec.replicas") {
			t.Errorf("two want the same field: %v", err)
		}
		kubectl(t, ns, fmt.Sprintf(other, `,"labels":{"other":"yes"}`, ""), "apply", "--server-side", "--field-manager=other", "-f", "-")
		// A client that scales takes the replicas over, and the first gets a conflict.
		kubectl(t, ns, "", "scale", "sandboxset/pool", "--replicas=4")
		expect.FullPool(t, c, ns, "pool", 4)
		_, err = tryKubectl(t, "", ns, builders.PoolYAML, "apply", "--server-side", "--field-manager=owner", "-f", "-")
		if err == nil || !strings.Contains(err.Error(), `conflict with "kubectl"`) || !strings.Contains(err.Error(), ".spec.replicas") {
			t.Errorf("the first does not hear of the scaling: %v", err)
		}
		kubectl(t, ns, strings.Replace(builders.PoolYAML, "  replicas: 3\n", "", 1), "apply", "--server-side", "--field-manager=owner", "-f", "-")
		set, err := c.SandboxSets(ns).Get(t.Context(), "pool", metav1.GetOptions{})
		if err != nil || set.Spec.Replicas == nil || *set.Spec.Replicas != 4 || set.Labels["other"] != "yes" {
			t.Errorf("who no longer applies the replicas has changed them: %+v, %v", set, err)
		}
		kubectl(t, ns, fmt.Sprintf(other, "", ""), "apply", "--server-side", "--field-manager=other", "-f", "-")
		if set, err = c.SandboxSets(ns).Get(t.Context(), "pool", metav1.GetOptions{}); err != nil || set.Labels["other"] != "" {
			t.Errorf("the label that nobody applies any more is still there: %v, %v", set.Labels, err)
		}
	})

	t.Run("claim", func(t *testing.T) {
		apply := func(manager string, force bool, spec string) (*v1alpha1.SandboxClaim, error) {
			body := `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxClaim","metadata":{"name":"shared"},"spec":` + spec + `}`
			return c.SandboxClaims(ns).Patch(t.Context(), "shared", types.ApplyPatchType, []byte(body),
				metav1.PatchOptions{FieldManager: manager, Force: &force})
		}
		created, err := apply("owner", false, `{"templateName":"pool","replicas":2,"ttlAfterCompleted":"1h"}`)
		if err != nil {
			t.Fatal(err)
		}
		names := expect.Claimed(t, created, 2)
		again, err := apply("owner", false, `{"templateName":"pool","replicas":2,"ttlAfterCompleted":"1h"}`)
		if err != nil || again.UID != created.UID || again.Generation != created.Generation {
			t.Errorf("applied again: %v, %s in generation %d instead of %s in %d", err, again.UID, again.Generation, created.UID, created.Generation)
		}
		_, err = apply("other", false, `{"ttlAfterCompleted":"2h"}`)
		if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "owner"`) || !strings.Contains(err.Error(), ".spec.ttlAfterCompleted") {
			t.Errorf("two want the same field: %v", err)
		}
		taken, err := apply("other", true, `{"ttlAfterCompleted":"2h"}`)
		if err != nil || taken.Spec.TTLAfterCompleted.Hours() != 2 {
			t.Fatalf("forced: %v, %v", taken, err)
		}
		if got := expect.Claimed(t, taken, 2); got[0] != names[0] || got[1] != names[1] {
			t.Errorf("bound were %q, are %q", names, got)
		}
		c.checkBound(t, ns, 2)
	})
}

// TestApplySubresources applies a status, as controllers of others may, and a
// scale, beside the managers of the main resource.
func TestApplySubresources(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "alone"}}
	sandbox.Spec.Template = builders.Set("", 0).Spec.Template
	if _, err := c.Sandboxes(ns).Create(t.Context(), sandbox, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	body := `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"Sandbox","metadata":{"name":"alone"},"status":{"conditions":[
		{"type":"example.com/Checked","status":"True","reason":"Test","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		applied, err := c.Sandboxes(ns).Patch(ctx, "alone", types.ApplyPatchType, []byte(body), metav1.PatchOptions{FieldManager: "checker"}, "status")
		if err != nil {
			return err
		}
		have := map[string]bool{}
		for _, condition := range applied.Status.Conditions {
			have[condition.Type] = true
		}
		if !have["example.com/Checked"] || !have[v1alpha1.SandboxConditionReady] {
			return fmt.Errorf("conditions: %+v", applied.Status.Conditions)
		}
		return nil
	})
	expect.FilledPool(t, c, ns, 1)
	err := c.patchScale(t.Context(), ns, "pool", types.ApplyPatchType,
		`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"pool"},"spec":{"replicas":2}}`,
		metav1.PatchOptions{FieldManager: "scaler", Force: new(true)})
	if err != nil {
		t.Fatalf("applying a scale: %v", err)
	}
	expect.FullPool(t, c, ns, "pool", 2)
	stored, err := c.SandboxSets(ns).Get(t.Context(), "pool", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	managers, err := json.Marshal(stored.ManagedFields)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(managers), `"manager":"scaler"`) {
		t.Errorf("who scaled does not own the replicas: %s", managers)
	}
}
