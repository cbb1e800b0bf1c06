// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/pod"
)

// oldCache runs the controller of one sandbox by hand, on a cache that shows what
// the test wants it to.
type oldCache struct {
	*clients
	api     client.WithWatch
	ns      string
	sandbox *v1alpha1.Sandbox // what the cache shows; nil: what there is
	noPod   bool              // the cache shows no pod
	pod     *corev1.Pod       // what the cache shows; nil: what there is
	same    *pod.Controller   // what reconciles; nil: one that has just begun
}

func newOldCache(t *testing.T) *oldCache {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	log.SetLogger(klog.Background())
	c := admin(t)
	config := rest.CopyConfig(c.config)
	config.Impersonate.UserName = controllerManager // which may delete the pods of sandboxes
	api, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &oldCache{clients: c, api: api, ns: namespace(t)}
}

func (c *oldCache) reconcile(t *testing.T, name string) error {
	t.Helper()
	controller := c.same
	if controller == nil {
		controller = c.controller()
	}
	_, err := controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: c.ns, Name: name}})
	return err
}

// controller returns one that knows nothing yet.
func (c *oldCache) controller() *pod.Controller {
	cached := interceptor.NewClient(c.api, interceptor.Funcs{
		Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			switch into := into.(type) {
			case *v1alpha1.Sandbox:
				if c.sandbox != nil {
					c.sandbox.DeepCopyInto(into)
					return nil
				}
			case *corev1.Pod:
				if c.noPod {
					return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
				}
				if c.pod != nil {
					c.pod.DeepCopyInto(into)
					return nil
				}
			}
			return api.Get(ctx, key, into)
		},
	})
	return pod.New(pod.Options{Client: cached, Reader: c.api, Clock: clock.RealClock{}})
}

// start makes a sandbox and brings it to Running.
func (c *oldCache) start(t *testing.T, name string) (*v1alpha1.Sandbox, *corev1.Pod) {
	t.Helper()
	c.sandbox, c.pod, c.noPod = nil, nil, false
	c.makeSandbox(t, c.ns, name, smallTemplate)
	sandbox := c.awaitSandbox(t, c.ns, name, func(s *v1alpha1.Sandbox) error {
		if err := c.reconcile(t, name); err != nil {
			return err
		}
		return isReady(s)
	})
	return sandbox, c.clients.pod(t, c.ns, name)
}

func (c *oldCache) get(t *testing.T, name string) *v1alpha1.Sandbox {
	t.Helper()
	sandbox, err := c.Sandboxes(c.ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return sandbox
}

// TestOldCache shows the controller what was and no longer is. Nothing comes of
// it: no second pod, no end of a sandbox that lives, no deletion. Not parallel: it
// takes the place of the controllers.
func TestOldCache(t *testing.T) {
	c := newOldCache(t)
	if err := sandlot.Controllers().Stop(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := sandlot.Controllers().Start(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("starting the controllers again: %v", err)
		}
	}()
	unchanged := func(t *testing.T, before *v1alpha1.Sandbox, pod *corev1.Pod) {
		t.Helper()
		if diff := cmp.Diff(before, c.get(t, before.Name)); diff != "" {
			t.Errorf("the sandbox changed (-before +after):\n%s", diff)
		}
		if got := c.clients.pod(t, c.ns, before.Name); got.UID != pod.UID || got.DeletionTimestamp != nil {
			t.Errorf("pod %s, deleted %v; before %s", got.UID, got.DeletionTimestamp, pod.UID)
		}
	}
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	t.Run("no pod yet", func(t *testing.T) {
		sandbox, pod := c.start(t, "no-pod-yet")
		// As after a restart that met the sandbox before its first status.
		c.sandbox = sandbox.DeepCopy()
		c.sandbox.Status = v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxPending}
		c.noPod = true
		must(t, c.reconcile(t, sandbox.Name))
		got := c.get(t, sandbox.Name)
		got.ResourceVersion, got.ManagedFields = sandbox.ResourceVersion, sandbox.ManagedFields
		if diff := cmp.Diff(sandbox, got, cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")); diff != "" {
			t.Errorf("the sandbox changed (-before +after):\n%s", diff)
		}
		if got := c.clients.pod(t, c.ns, sandbox.Name); got.UID != pod.UID {
			t.Errorf("pod %s, before %s", got.UID, pod.UID)
		}
	})
	t.Run("no pod any more", func(t *testing.T) {
		sandbox, pod := c.start(t, "no-pod-any-more")
		c.noPod = true
		must(t, c.reconcile(t, sandbox.Name))
		unchanged(t, sandbox, pod)
	})
	t.Run("paused before", func(t *testing.T) {
		sandbox, pod := c.start(t, "paused-before")
		c.sandbox = c.patchSandbox(t, c.ns, sandbox.Name, `{"spec":{"paused":true}}`)
		now := c.patchSandbox(t, c.ns, sandbox.Name, `{"spec":{"paused":false}}`)
		must(t, c.reconcile(t, sandbox.Name))
		unchanged(t, now, pod)
	})
	t.Run("running before", func(t *testing.T) {
		sandbox, _ := c.start(t, "running-before")
		c.patchSandbox(t, c.ns, sandbox.Name, `{"spec":{"paused":true}}`)
		c.awaitSandbox(t, c.ns, sandbox.Name, func(s *v1alpha1.Sandbox) error {
			must(t, c.reconcile(t, sandbox.Name))
			return hasCondition(v1alpha1.SandboxConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonStopPauseSucceed)(s)
		})
		before := c.get(t, sandbox.Name)
		c.sandbox = sandbox // with the pod gone, this one would have failed
		must(t, c.reconcile(t, sandbox.Name))
		if diff := cmp.Diff(before, c.get(t, sandbox.Name)); diff != "" {
			t.Errorf("the sandbox changed (-before +after):\n%s", diff)
		}
	})
	t.Run("before its own write", func(t *testing.T) {
		// Pending, as it was judged last before it was written Running.
		name, pending := "before-its-own-write", (*v1alpha1.Sandbox)(nil)
		c.sandbox, c.pod, c.noPod = nil, nil, false
		c.makeSandbox(t, c.ns, name, smallTemplate)
		must(t, c.reconcile(t, name))
		// Another than the one that made the pod, which would wait for its event.
		c.same = c.controller()
		defer func() { c.same = nil }()
		c.awaitSandbox(t, c.ns, name, func(s *v1alpha1.Sandbox) error {
			if s.Status.Phase != v1alpha1.SandboxRunning {
				pending = s
				must(t, c.reconcile(t, name))
			}
			return inPhase(v1alpha1.SandboxRunning)(s)
		})
		if err := ofCluster(t).CoreV1().Pods(c.ns).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
			t.Fatal(err)
		}
		c.awaitNoPod(t, c.ns, name)
		c.sandbox, c.noPod = pending, true
		must(t, c.reconcile(t, name))
		if got, err := c.kube.CoreV1().Pods(c.ns).Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("a second pod %s, %v", got.UID, err)
		}
		c.sandbox = nil
		must(t, c.reconcile(t, name))
		if err := inPhase(v1alpha1.SandboxFailed)(c.get(t, name)); err != nil {
			t.Error(err)
		}
	})
	t.Run("deleted, without a template", func(t *testing.T) {
		sandbox, _ := c.start(t, "no-template")
		c.patchSandbox(t, c.ns, sandbox.Name, `{"spec":{"paused":true}}`)
		must(t, c.reconcile(t, sandbox.Name))
		if err := c.Sandboxes(c.ns).Delete(t.Context(), sandbox.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.sandbox = c.get(t, sandbox.Name)
		c.sandbox.Spec.Template = nil
		must(t, c.reconcile(t, sandbox.Name))
		if left, err := c.Sandboxes(c.ns).Get(t.Context(), sandbox.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("still there with finalizers %q, %v", left.Finalizers, err)
		}
	})
	t.Run("another pod before", func(t *testing.T) {
		sandbox, pod := c.start(t, "another-pod")
		c.pod = pod.DeepCopy()
		c.pod.UID = "another"
		c.pod.Labels[v1alpha1.LabelPodTemplateHash] = "older"
		err := c.reconcile(t, sandbox.Name)
		if after := c.clients.pod(t, c.ns, sandbox.Name); after.ResourceVersion != pod.ResourceVersion {
			t.Errorf("the pod was changed: %v", after.Labels)
		}
		if err != nil {
			t.Errorf("an old cache is an error: %v", err)
		}
	})
}
