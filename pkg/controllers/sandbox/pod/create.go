// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// create creates the volume claims and the pod. It returns the plan as it is then, and
// after what time to look again.
//
//	created           wait for the events of the pod
//	a pod exists      plan again with that one
//	no template       the status says so; an event of the template queues the sandbox
//	no runtime        likewise, an event of the ConfigMap
//	refused           the status says so, and it is retried with a backoff
//	any other error   returned; nothing is known
func (c *Controller) create(ctx context.Context, key types.NamespacedName, o *observation, p plan) (plan, time.Duration, error) {
	sandbox, template, err := c.resolver.wholeWithRuntimes(ctx, o.sandbox)
	if missing, ok := asTemplateError(err); ok {
		return o.withoutTemplate(missing), 0, nil
	}
	if err != nil {
		return plan{}, 0, fmt.Errorf("starting Sandbox %s: %w", key, err)
	}
	created, err := (&creator{c.client, c.reader}).createAll(ctx, sandbox, template, o.revision)
	if isTry(err) {
		c.memory.createBackoff.recordAttempt(key)
	}
	switch {
	case err == nil:
		c.memory.podExpectations.recordCreate(key, created)
		p.action = actionNone
		return p, 0, nil
	case isPodExists(err):
		p, err := c.readFromServer(ctx, key, o)
		if err != nil {
			return plan{}, 0, err
		}
		if p.action == actionCreate { // gone again
			p.action = actionNone
		}
		// One that the cache leaves out brings no event.
		return p, c.memory.createBackoff.remaining(key), nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		// Nothing can be created there any more, and the sandbox will go as well.
		return o.refused(nil), c.memory.createBackoff.remaining(key), nil
	case isRefusal(err):
		return o.refused(err), c.memory.createBackoff.remaining(key), nil
	}
	return plan{}, 0, fmt.Errorf("starting Sandbox %s: %w", key, err)
}

// creator creates the objects that a sandbox runs as.
type creator struct {
	client client.Client
	reader client.Reader
}

// createAll creates the volume claims and then the pod from the sandbox's template with
// its runtimes, and returns the UID of the pod.
func (c *creator) createAll(
	ctx context.Context, sandbox *v1alpha1.Sandbox, template *runtime.RawExtension, revision string,
) (types.UID, error) {
	pvcs, err := podtemplate.VolumeClaims(sandbox)
	if err != nil {
		return "", unusable(err)
	}
	pod, err := podtemplate.PodWithRuntimes(sandbox, template, revision)
	if err != nil {
		return "", unusable(err)
	}
	for _, pvc := range pvcs {
		if err := c.createPVC(ctx, sandbox, pvc); err != nil {
			return "", err
		}
	}
	err = c.client.Create(ctx, pod, fieldOwner)
	if apierrors.IsAlreadyExists(err) {
		return "", podExists{err}
	}
	return pod.GetUID(), err
}

// createPVC creates a volume claim, unless it is there: from before a pause, or created
// by a user who wants the sandbox to have that very volume. A quota that is used up
// refuses the create of a claim that is there already, too.
func (c *creator) createPVC(ctx context.Context, sandbox *v1alpha1.Sandbox, pvc *unstructured.Unstructured) error {
	err := c.client.Create(ctx, pvc, fieldOwner)
	if !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err) {
		return err
	}
	existing := &corev1.PersistentVolumeClaim{}
	switch getErr := c.reader.Get(ctx, client.ObjectKeyFromObject(pvc), existing); {
	case apierrors.IsNotFound(getErr):
		return err // a conflict, if it came and went, is tried again
	case getErr != nil:
		return fmt.Errorf("getting PersistentVolumeClaim %s/%s: %w", pvc.GetNamespace(), pvc.GetName(), getErr)
	}
	owner := metav1.GetControllerOfNoCopy(existing)
	switch {
	case owner != nil && owner.UID != sandbox.UID:
		return fmt.Errorf("PersistentVolumeClaim %s/%s %w: its controller is %s %s (%s)",
			existing.Namespace, existing.Name, errPVCTaken, owner.Kind, owner.Name, owner.UID)
	case owner == nil && !mayUsePVC(sandbox, existing):
		return fmt.Errorf("PersistentVolumeClaim %s/%s %w: it has no controller, and neither label %s=%s nor %s=true",
			existing.Namespace, existing.Name, errPVCTaken,
			v1alpha1.AgentLabelNameHash, v1alpha1.NameHash(sandbox.Name), v1alpha1.AgentLabelAdoptable)
	case existing.DeletionTimestamp != nil:
		return fmt.Errorf("PersistentVolumeClaim %s/%s %w: it is being deleted", existing.Namespace, existing.Name, errPVCTaken)
	}
	return nil
}
