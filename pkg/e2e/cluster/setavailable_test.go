// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestSetSaysWhyItCannotStart makes a set whose pods no node takes. The set says so, in a
// condition and an event, and is available and rolled out once its template is mended.
func TestSetSaysWhyItCannotStart(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	set := c.makeUnschedulable(t, ns, 2)
	c.awaitSaid(t, ns, v1alpha1.SetConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonSandboxesCannotStart,
		"2 sandboxes of SandboxSet pool cannot start: Unschedulable: 0/")
	c.awaitSaid(t, ns, v1alpha1.SetConditionRolledOut, metav1.ConditionFalse, v1alpha1.ReasonRollingOut,
		"0 of 2 sandboxes are of the current revision and available")
	c.awaitEventOn(t, ns, set.UID, corev1.EventTypeWarning, v1alpha1.ReasonSandboxesCannotStart, "Sandboxes cannot start: Unschedulable: 0/")

	mended := []byte(`{"spec":{"template":{"spec":{"nodeSelector":null}}}}`)
	if _, err := c.SandboxSets(ns).Patch(t.Context(), "pool", types.MergePatchType, mended, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitSaid(t, ns, v1alpha1.SetConditionRolledOut, metav1.ConditionTrue, v1alpha1.ReasonRolledOut, "")
	c.awaitSaid(t, ns, v1alpha1.SetConditionAvailable, metav1.ConditionTrue, v1alpha1.ReasonSandboxesAvailable, "")
}

// TestSetSaysThatImagesCannotBePulled makes a set whose pod gets no image. No scheduler looks
// at the pod, so that the test alone can report its state, as a kubelet would: events of one
// reason are aggregated under the first cause.
func TestSetSaysThatImagesCannotBePulled(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	set := c.makePending(t, ns, 1, `"schedulerName":"example.com/none"`)
	const why = `Back-off pulling image "busybox:1"`
	waits := []byte(fmt.Sprintf(`{"status":{"containerStatuses":[{"name":"main","image":"busybox:1","imageID":"","restartCount":0,"ready":false,
		"state":{"waiting":{"reason":"ImagePullBackOff","message":%q}}}]}}`, why))
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		pods, err := c.kube.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(pods.Items) != 1 {
			return fmt.Errorf("there are %d pods", len(pods.Items))
		}
		_, err = c.kube.CoreV1().Pods(ns).Patch(ctx, pods.Items[0].Name, types.MergePatchType, waits, metav1.PatchOptions{}, "status")
		return err
	})
	c.awaitSaid(t, ns, v1alpha1.SetConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonSandboxesCannotStart,
		"1 sandbox of SandboxSet pool cannot start: StartContainerFailed: "+why)
	c.awaitEventOn(t, ns, set.UID, corev1.EventTypeWarning, v1alpha1.ReasonSandboxesCannotStart, "Sandboxes cannot start: StartContainerFailed: "+why)
}

// makeUnschedulable makes the set "pool", whose pods no node takes.
func (c *clients) makeUnschedulable(t testing.TB, ns string, replicas int32) *v1alpha1.SandboxSet {
	t.Helper()
	return c.makePending(t, ns, replicas, `"nodeSelector":{"example.com/no-node":"has-this"}`)
}

// makePending makes the set "pool", whose pods do not start because of a field of their spec.
func (c *clients) makePending(t testing.TB, ns string, replicas int32, because string) *v1alpha1.SandboxSet {
	t.Helper()
	set := builders.Set("pool", replicas)
	set.Spec.Template = &runtime.RawExtension{Raw: []byte(`{"spec":{` + because + `,"containers":[{"name":"main","image":"busybox:1"}]}}`)}
	set, err := c.SandboxSets(ns).Create(t.Context(), set, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// awaitSaid waits until a condition of the set "pool" is of its current generation, and
// its message begins with a text.
func (c *clients) awaitSaid(t testing.TB, ns, kind string, status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		set, err := c.SandboxSets(ns).Get(ctx, "pool", metav1.GetOptions{})
		if err != nil {
			return err
		}
		said := meta.FindStatusCondition(set.Status.Conditions, kind)
		if said == nil || said.Status != status || said.Reason != reason || said.ObservedGeneration != set.Generation ||
			!strings.HasPrefix(said.Message, message) {
			return fmt.Errorf("the set says %+v, want %s %s %s: %s", set.Status.Conditions, kind, status, reason, message)
		}
		return nil
	})
}
