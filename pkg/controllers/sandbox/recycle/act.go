// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package recycle

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// reasonRecycling is that of the event of the phase, as with OpenKruise Agents.
const reasonRecycling = "Sandbox" + string(v1alpha1.SandboxRecycling)

// act carries out a plan. Each write is of the very version that the plan was made for: a
// conflict means that there is another one.
func (c *Controller) act(ctx context.Context, o *observation, p plan) error {
	switch p.action {
	case reject:
		return c.reject(ctx, o, p)
	case begin:
		return c.begin(ctx, o)
	case restore:
		return c.restore(ctx, o)
	case fail:
		return c.fail(ctx, o, p)
	case leave:
	}
	return nil
}

func (c *Controller) begin(ctx context.Context, o *observation) error {
	status := *o.sandbox.Status.DeepCopy()
	Begin(&status, o.sandbox.Generation, o.now)
	if _, err := c.writeStatus(ctx, o.sandbox, status); err != nil {
		return err
	}
	c.recorder.Event(o.sandbox, corev1.EventTypeNormal, reasonRecycling, "Recycle sandbox")
	c.recorder.Event(o.sandbox, corev1.EventTypeNormal, v1alpha1.ReasonRecyclingStarted, "The sandbox goes back to its pool; its pod is deleted")
	return nil
}

// reject reports why, and then takes the request away: if a process ends between
// the two, the next one does the same.
func (c *Controller) reject(ctx context.Context, o *observation, p plan) error {
	version, err := c.tell(ctx, o, p)
	if err != nil {
		return err
	}
	if err := c.endRequest(ctx, o.sandbox, version, nil); err != nil {
		return err
	}
	c.recorder.Event(o.sandbox, corev1.EventTypeWarning, p.reason, p.message)
	return nil
}

// fail deletes a sandbox, or reports why, and then sets the time at which it is deleted.
func (c *Controller) fail(ctx context.Context, o *observation, p plan) error {
	kept := retention(o.sandbox)
	log.FromContext(ctx).V(2).Info("Failed to recycle sandbox, giving it up", "reason", p.reason, "message", p.message, "kept", kept)
	if kept <= 0 {
		err := c.options.Client.Delete(ctx, o.sandbox.DeepCopy(), client.Preconditions{
			UID: new(o.sandbox.UID), ResourceVersion: new(o.sandbox.ResourceVersion),
		})
		if err == nil {
			c.recorder.Event(o.sandbox, corev1.EventTypeWarning, p.reason, p.message)
		}
		return err
	}
	version, err := c.tell(ctx, o, p)
	if err != nil {
		return err
	}
	if err := c.endRequest(ctx, o.sandbox, version, new(metav1.NewTime(o.now.Add(kept)))); err != nil {
		return err
	}
	c.recorder.Event(o.sandbox, corev1.EventTypeWarning, p.reason, p.message)
	return nil
}

// tell writes to the status why a sandbox is not recycled. It returns the version of the
// sandbox after that.
func (c *Controller) tell(ctx context.Context, o *observation, p plan) (string, error) {
	status := *o.sandbox.Status.DeepCopy()
	Fail(&status, p.reason, p.message, o.sandbox.Generation, o.now)
	return c.writeStatus(ctx, o.sandbox, status)
}

// endRequest takes the request to recycle a sandbox away, and sets its time to be deleted,
// if there is one.
func (c *Controller) endRequest(ctx context.Context, sandbox *v1alpha1.Sandbox, version string, shutdown *metav1.Time) error {
	patch := map[string]any{"metadata": map[string]any{
		"resourceVersion": version,
		"annotations":     map[string]any{v1alpha1.AnnotationCleanup: nil},
	}}
	if shutdown != nil {
		patch["spec"] = map[string]any{"shutdownTime": shutdown}
	}
	return c.patch(ctx, sandbox, types.MergePatchType, patch)
}

// restore makes a sandbox what its set would make now, except for its name and what the server
// writes. That includes the owner reference: from here on the sandbox is the set's. A merge
// patch would drop what is null in a pod template.
func (c *Controller) restore(ctx context.Context, o *observation) error {
	return c.patch(ctx, o.sandbox, types.JSONPatchType, restoration(o.sandbox.ResourceVersion, o.member))
}

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// restoration is the JSON patch that gives a sandbox of this version the metadata and spec
// of another one. "add" replaces what is there.
func restoration(version string, member *v1alpha1.Sandbox) []operation {
	return []operation{
		{"add", "/metadata/resourceVersion", version},
		{"add", "/metadata/generateName", member.GenerateName},
		{"add", "/metadata/labels", member.Labels},
		{"add", "/metadata/annotations", member.Annotations},
		{"add", "/metadata/ownerReferences", member.OwnerReferences},
		{"add", "/metadata/finalizers", append([]string{}, member.Finalizers...)},
		// What others have applied is theirs no more. An empty entry resets all.
		{"add", "/metadata/managedFields", []metav1.ManagedFieldsEntry{{}}},
		{"add", "/spec", member.Spec},
	}
}

func (c *Controller) patch(ctx context.Context, sandbox *v1alpha1.Sandbox, kind types.PatchType, content any) error {
	raw, err := json.Marshal(content)
	if err != nil {
		return err
	}
	target := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.Namespace, Name: sandbox.Name}}
	return c.options.Client.Patch(ctx, target, client.RawPatch(kind, raw))
}

// writeStatus writes the status, if it changed. It returns the version of the sandbox after
// that.
func (c *Controller) writeStatus(ctx context.Context, sandbox *v1alpha1.Sandbox, status v1alpha1.SandboxStatus) (string, error) {
	if equality.Semantic.DeepEqual(sandbox.Status, status) {
		return sandbox.ResourceVersion, nil
	}
	before := &v1alpha1.Sandbox{
		ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.Namespace, Name: sandbox.Name, ResourceVersion: sandbox.ResourceVersion},
		Status:     sandbox.Status,
	}
	after := before.DeepCopy()
	after.Status = status
	err := c.options.Client.Status().Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return after.ResourceVersion, err
}
