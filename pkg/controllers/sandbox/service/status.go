// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// DefaultClusterDomain is the domain of Services in most clusters.
const DefaultClusterDomain = "cluster.local"

// conflictDelay is when to write again what was refused because the cache was old.
const conflictDelay = time.Second

// FQDN is the domain name of a sandbox's Service in a cluster of this domain; empty is
// DefaultClusterDomain.
func FQDN(sandbox *v1alpha1.Sandbox, clusterDomain string) string {
	return sandbox.Name + "." + sandbox.Namespace + ".svc." + cmp.Or(clusterDomain, DefaultClusterDomain)
}

// expires reports whether an update begins or ends that a sandbox is kept past its
// shutdownTime, without a Service.
func expires(e event.UpdateEvent) bool {
	before, okBefore := e.ObjectOld.(*v1alpha1.Sandbox)
	after, okAfter := e.ObjectNew.(*v1alpha1.Sandbox)
	return okBefore && okAfter && v1alpha1.SandboxExpired(before) != v1alpha1.SandboxExpired(after)
}

// tell writes the domain name of the sandbox's Service into its status, as long as the cache
// shows one. The event of a Service that was created or deleted just now queues the sandbox
// again. A sandbox costs one such write, when it is made.
func (c *Controller) tell(ctx context.Context, sandbox *v1alpha1.Sandbox) (reconcile.Result, error) {
	wanted := sandbox.Spec.Service
	if sandbox.Status.ServiceFQDN == "" && (wanted == nil || !*wanted) {
		return reconcile.Result{}, nil // the many that have none
	}
	service := &corev1.Service{}
	var name *string
	switch err := c.Client.Get(ctx, client.ObjectKeyFromObject(sandbox), service); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("getting Service %s/%s: %w", sandbox.Namespace, sandbox.Name, err)
	case service.DeletionTimestamp == nil && metav1.IsControlledBy(service, sandbox):
		name = new(FQDN(sandbox, c.ClusterDomain))
	}
	if has := sandbox.Status.ServiceFQDN; name == nil && has == "" || name != nil && has == *name {
		return reconcile.Result{}, nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": sandbox.ResourceVersion},
		"status":   map[string]any{"serviceFQDN": name},
	})
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(err)
	}
	target := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.Namespace, Name: sandbox.Name}}
	err = c.Client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, patch))
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: conflictDelay}, nil
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, fmt.Errorf("writing the status of Sandbox %s/%s: %w", sandbox.Namespace, sandbox.Name, err)
	}
	return reconcile.Result{}, nil
}
