// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/agentruntime"
	"github.com/sandlot-io/sandlot/pkg/podaddress"
	"github.com/sandlot-io/sandlot/pkg/runtime"
	"github.com/sandlot-io/sandlot/pkg/testutil/podstest"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

// inCluster returns a setup that reads Pods of a cluster, and a sandbox with a runtime whose Pod is
// in the cluster.
func inCluster(t *testing.T, rt *runtimetest.Runtime) (*agentruntime.Setup, *podstest.Server, *v1alpha1.Sandbox) {
	t.Helper()
	cluster, setup, sb := podstest.Start(t), newSetup(t, runtime.Options{}), claimed(rt)
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "data", Annotations: map[string]string{v1alpha1.AnnotationMountNamespaces: "*", v1alpha1.AnnotationMountAttributes: "k"}}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "nfs.csi.example.com", VolumeHandle: "handle"}
	setup.Volumes = agentruntime.NewVolumes(fake.NewClientset(pv).CoreV1())
	setup.Pods = podaddress.New(cluster.Client(t))
	sb.Status.PodInfo.PodUID = "pod-uid"
	cluster.Set(podstest.PodOf(sb))
	return setup, cluster, sb
}

// setups are all ways to set up a runtime.
var setups = map[string]func(ctx context.Context, t *testing.T, setup *agentruntime.Setup, claim *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox) error{
	"claim": func(ctx context.Context, _ *testing.T, setup *agentruntime.Setup, claim *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox) error {
		return setsUp(ctx, setup, claim, sb)
	},
	"resume": func(ctx context.Context, t *testing.T, setup *agentruntime.Setup, claim *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox) error {
		t.Helper()
		sealed, _, err := setup.Seal(claim)
		if err != nil {
			t.Fatal(err)
		}
		sb.Annotations[v1alpha1.AnnotationOwner], sb.Annotations[v1alpha1.AnnotationInitRuntimeRequest] = string(claim.UID), sealed
		return setup.SetUpAgain(ctx, sb, func(context.Context) error { return nil })
	},
}

// TestAddressOfAnotherPod checks that nothing is sent to an address that another pod may have by
// now, although the sandbox says that it is ready.
func TestAddressOfAnotherPod(t *testing.T) {
	for name, setUp := range setups {
		t.Run(name, func(t *testing.T) {
			rt := runtimetest.Start(t).Next()
			setup, cluster, sb := inCluster(t, rt)
			cluster.Delete(sb.Namespace, sb.Name)
			failed := setupError(t, setUp(t.Context(), t, setup, sealedClaim(), sb))
			if failed.Hopeless || failed.Condition != v1alpha1.SandboxConditionRuntimeInitialized || !strings.Contains(failed.Message, "the pod is gone") {
				t.Errorf("got %+v", failed)
			}
			if n := len(rt.Calls()); n != 0 {
				t.Errorf("the runtime was called %d times", n)
			}
		})
	}
}

// TestAddressIsVerifiedBeforeEachCall checks that the calls after the first do not rely on what was
// read before that.
func TestAddressIsVerifiedBeforeEachCall(t *testing.T) {
	for name, setUp := range setups {
		t.Run(name, func(t *testing.T) {
			fleet := runtimetest.Start(t)
			rt := fleet.Next()
			setup, cluster, sb := inCluster(t, rt)
			if err := setUp(t.Context(), t, setup, sealedClaim(), sb); err != nil || len(rt.Mounts()) != 1 {
				t.Fatalf("got %v, %d mounts", err, len(rt.Mounts()))
			}
			before := len(rt.Calls())
			fleet.Script(func(*runtimetest.Runtime, runtimetest.Call) runtimetest.Action {
				cluster.Delete(sb.Namespace, sb.Name)
				return runtimetest.Action{}
			})
			failed := setupError(t, setUp(t.Context(), t, setup, sealedClaim(), sb))
			if failed.Condition != v1alpha1.SandboxConditionVolumesMounted || !strings.Contains(failed.Message, "the pod is gone") {
				t.Errorf("got %+v", failed)
			}
			if n := len(rt.Calls()) - before; n != 1 || len(rt.Mounts()) != 1 {
				t.Errorf("the runtime was called %d times, with %d mounts", n, len(rt.Mounts()))
			}
		})
	}
}

// TestPodMayNotBeRead checks that a setup which may not read Pods fails at once, and that its claim
// gets no other sandboxes, which would fail for the same reason.
func TestPodMayNotBeRead(t *testing.T) {
	for name, setUp := range setups {
		t.Run(name, func(t *testing.T) {
			rt := runtimetest.Start(t).Next()
			setup, cluster, sb := inCluster(t, rt)
			cluster.SetForbidden(true)
			if failed := setupError(t, setUp(t.Context(), t, setup, envClaim(), sb)); !failed.Hopeless {
				t.Errorf("got %+v", failed)
			}
			if cluster.Reads() != 1 || len(rt.Calls()) != 0 {
				t.Errorf("%d reads, %d calls", cluster.Reads(), len(rt.Calls()))
			}
		})
	}
}

// TestKubeAPIServerDoesNotAnswer checks that a runtime is not called as long as its Pod cannot be
// read, and is called afterwards.
func TestKubeAPIServerDoesNotAnswer(t *testing.T) {
	for name, setUp := range setups {
		t.Run(name, func(t *testing.T) {
			rt := runtimetest.Start(t).Next()
			setup, cluster, sb := inCluster(t, rt)
			cluster.SetDown(true)
			cluster.OnRead(func() {
				if cluster.Reads() > 2 {
					cluster.SetDown(false)
				}
			})
			if err := setUp(t.Context(), t, setup, envClaim(), sb); err != nil {
				t.Error(err)
			}
			if cluster.Reads() < 3 || rt.Inits() != 1 {
				t.Errorf("%d reads, %d calls", cluster.Reads(), rt.Inits())
			}

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cluster.SetDown(true)
			cluster.OnRead(cancel)
			calls := len(rt.Calls())
			if err := setUp(ctx, t, setup, envClaim(), sb); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			if n := len(rt.Calls()); n != calls {
				t.Errorf("the runtime was called %d times without an answer", n-calls)
			}
		})
	}
}
