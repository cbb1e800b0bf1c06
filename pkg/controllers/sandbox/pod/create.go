// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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

// errClaimTaken means that a volume claim of the sandbox's name is not for it.
var errClaimTaken = errors.New("cannot be used")

// create makes the volume claims and the pod. It returns the plan as it is then,
// and after what time to look again.
//
//	done              wait for the events of the pod
//	there is one      plan again with that one
//	no template       the status tells; the template will bring it here again
//	no runtime        likewise, and the ConfigMap
//	refused           the status tells, and it is tried again, ever more slowly
//	any other error   returned; nothing is known
func (c *Controller) create(ctx context.Context, key types.NamespacedName, o *observation) (plan, time.Duration, error) {
	sandbox, template, err := c.wholeWithRuntimes(ctx, o.sandbox)
	if missing, ok := asTemplateError(err); ok {
		return o.withoutTemplate(missing), 0, nil
	}
	if err != nil {
		return plan{}, 0, fmt.Errorf("starting Sandbox %s: %w", key, err)
	}
	created, err := c.createAll(ctx, sandbox, template, o.revision)
	if isTry(err) {
		c.creates.tried(key)
	}
	switch {
	case err == nil:
		c.expectations.created(key, created)
		return decide(o), 0, nil
	case isPodExists(err):
		p, err := c.ask(ctx, key, o)
		if err != nil {
			return plan{}, 0, err
		}
		if p.action == create { // gone again
			p.action = leave
		}
		// One that the cache leaves out brings no event.
		return p, c.creates.left(key), nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		// Nothing can be created there any more, and the sandbox will go as well.
		return o.refused(nil), c.creates.left(key), nil
	case isRefusal(err):
		return o.refused(err), c.creates.left(key), nil
	}
	return plan{}, 0, fmt.Errorf("starting Sandbox %s: %w", key, err)
}

// refused is the plan where the pod could not be made.
func (o *observation) refused(err error) plan {
	without := *o
	without.held = true
	p := decide(&without)
	if err != nil {
		o.setReady(&p, metav1.ConditionFalse, v1alpha1.ReasonPodCreateFailed, err.Error())
	}
	return p
}

// podExists marks the error of a create that met a pod of the same name.
type podExists struct{ error }

func (e podExists) Unwrap() error { return e.error }

func isPodExists(err error) bool {
	_, ok := errors.AsType[podExists](err)
	return ok
}

// createAll makes the volume claims and then the pod from the sandbox's template with
// its runtimes, and returns its UID.
func (c *Controller) createAll(
	ctx context.Context, sandbox *v1alpha1.Sandbox, template *runtime.RawExtension, revision string,
) (types.UID, error) {
	claims, err := podtemplate.VolumeClaims(sandbox)
	if err != nil {
		return "", unusable(err)
	}
	pod, err := podtemplate.PodWithRuntimes(sandbox, template, revision)
	if err != nil {
		return "", unusable(err)
	}
	for _, claim := range claims {
		if err := c.createClaim(ctx, sandbox, claim); err != nil {
			return "", err
		}
	}
	err = c.client.Create(ctx, pod, fieldOwner)
	if apierrors.IsAlreadyExists(err) {
		return "", podExists{err}
	}
	return pod.GetUID(), err
}

// createClaim makes a volume claim, unless it is there: from before a pause, or
// put there by somebody who wants the sandbox to have that very volume. A quota
// that is used up refuses the create of a claim that is there already, too.
func (c *Controller) createClaim(ctx context.Context, sandbox *v1alpha1.Sandbox, claim *unstructured.Unstructured) error {
	err := c.client.Create(ctx, claim, fieldOwner)
	if !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err) {
		return err
	}
	existing := &corev1.PersistentVolumeClaim{}
	switch getErr := c.reader.Get(ctx, client.ObjectKeyFromObject(claim), existing); {
	case apierrors.IsNotFound(getErr):
		return err // a conflict, if it came and went, is tried again
	case getErr != nil:
		return fmt.Errorf("getting PersistentVolumeClaim %s/%s: %w", claim.GetNamespace(), claim.GetName(), getErr)
	}
	owner := metav1.GetControllerOfNoCopy(existing)
	switch {
	case owner != nil && owner.UID != sandbox.UID:
		return fmt.Errorf("PersistentVolumeClaim %s/%s %w: its controller is %s %s (%s)",
			existing.Namespace, existing.Name, errClaimTaken, owner.Kind, owner.Name, owner.UID)
	case existing.DeletionTimestamp != nil:
		return fmt.Errorf("PersistentVolumeClaim %s/%s %w: it is being deleted", existing.Namespace, existing.Name, errClaimTaken)
	}
	return nil
}

// unusableError means that a template makes no object. The server refuses such
// templates, so only a change of the template can mend it.
type unusableError struct{ error }

func (e unusableError) Unwrap() error { return e.error }

func unusable(err error) error { return unusableError{err} }

// isTry says whether the outcome of a create counts as a try, which the next one
// must keep away from. What says nothing about the pod has the rate limit of the
// queue, and a short outage of the API is not to hold it up for long.
func isTry(err error) bool { return err == nil || isPodExists(err) || isRefusal(err) }

// isRefusal says whether an error tells something about the pod that its user
// should know: a quota, a policy, an admission webhook that fails. Errors that are
// about the moment, or about this client, are not.
func isRefusal(err error) bool {
	if _, ok := errors.AsType[unusableError](err); ok || errors.Is(err, errClaimTaken) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false
	default:
		return code >= http.StatusBadRequest && code <= http.StatusInternalServerError
	}
}
