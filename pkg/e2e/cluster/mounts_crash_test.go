// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/etcdtap"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/replicas"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

// mounting is a claim whose server dies while it has volumes mounted.
type mounting struct {
	name string
	// txn decides about a transaction by what it writes.
	txn func(marks, completes bool) etcdtap.Verdict
	// mount is what the runtimes do with the call that mounts, until the server is dead.
	mount runtimetest.Action
	// replaced: its sandboxes cannot be had, because no server knows what became of them.
	replaced bool

	seen   atomic.Int64
	halted atomic.Bool
}

// mountings are the boundaries of the mounts of a claim of one sandbox.
func mountings() []*mounting {
	hold := make(chan struct{})
	return []*mounting{
		{name: "marked", replaced: true, txn: func(marks, _ bool) etcdtap.Verdict {
			if marks {
				return etcdtap.HoldAfter
			}
			return etcdtap.Pass
		}},
		{name: "called", replaced: true, mount: runtimetest.Action{Hold: hold}},
		{name: "mounted", replaced: true, mount: runtimetest.Action{Linger: hold}},
		{name: "not-written", replaced: true, txn: func(_, completes bool) etcdtap.Verdict {
			if completes {
				return etcdtap.HoldBefore
			}
			return etcdtap.Pass
		}},
		{name: "not-told", txn: func(_, completes bool) etcdtap.Verdict {
			if completes {
				return etcdtap.HoldAfter
			}
			return etcdtap.Pass
		}},
	}
}

// TestCrashWhileMounting kills a server with a claim at each boundary of its mounts.
// Another brings all to their ends, and no volume is mounted twice into any sandbox.
func TestCrashWhileMounting(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "mounted-", Annotations: map[string]string{v1alpha1.AnnotationMountNamespaces: ns}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: "v-1"},
			},
		},
	}
	volume, err := admin(t).kube.CoreV1().PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = admin(t).kube.CoreV1().PersistentVolumes().Delete(context.Background(), volume.Name, metav1.DeleteOptions{})
	})

	all := replicas.New(t, programs, "--kubeconfig", plane.Kubeconfig())
	fleet := runtimetest.Start(t)
	cases, byName, byIP := mountings(), map[string]*mounting{}, map[string]*mounting{}
	var killed atomic.Bool
	fleet.Script(func(rt *runtimetest.Runtime, call runtimetest.Call) runtimetest.Action {
		m := byIP[rt.IP]
		if call.Path == "/init" || m.txn != nil || killed.Load() {
			return runtimetest.Action{}
		}
		m.seen.Add(1)
		return m.mount
	})
	tap := etcdtap.Start(t, all.Etcd[0], func(txn etcdtap.Txn) etcdtap.Verdict {
		for key, claim := range txn.Puts {
			m := byName[path.Base(key)]
			if m == nil || m.txn == nil || !strings.Contains(key, "/sandboxclaims/") {
				continue
			}
			if m.halted.Load() {
				return etcdtap.HoldBefore
			}
			marks := false
			for _, value := range txn.Puts {
				marks = marks || strings.Contains(value, v1alpha1.AnnotationMounting)
			}
			text, err := testutil.StoredJSON(claim)
			return m.txn(marks, err == nil && strings.Contains(text, `"phase":"Completed"`))
		}
		return etcdtap.Pass
	}, func(txn etcdtap.Txn) {
		for key := range txn.Puts {
			if m := byName[path.Base(key)]; m != nil {
				m.halted.Store(true)
				m.seen.Add(1)
			}
		}
	})
	var claims []*v1alpha1.SandboxClaim
	stock := map[string][]*runtimetest.Runtime{}
	for _, m := range cases {
		byName[m.name] = m
		for range 3 {
			rt := fleet.Next()
			byIP[rt.IP], stock[m.name] = m, append(stock[m.name], rt)
		}
	}
	victim, other := all.Start(t, tap.URL), all.Start(t, all.Etcd[0])
	for _, m := range cases {
		set := builders.Set(m.name, 3)
		set.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: "agent-runtime"}}
		if set, err = other.Client.AgentsV1alpha1().SandboxSets(ns).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		other.StockWith(t, set, 0, 3, func(i int, sb *v1alpha1.Sandbox) {
			ip := stock[m.name][i].IP
			sb.Status.SandboxIP, sb.Status.PodInfo.PodIP = ip, ip
		})
		claim := testutil.Claim(set, m.name, 1, func(claim *v1alpha1.SandboxClaim) {
			claim.Spec.CreateOnNoStock = new(false)
			claim.Spec.ClaimTimeout = &metav1.Duration{Duration: expect.Patience}
			claim.Spec.WaitReadyTimeout = &metav1.Duration{Duration: expect.Patience}
			claim.Spec.DynamicVolumesMount = []v1alpha1.CSIMountConfig{{PvName: volume.Name, MountPath: "/data"}}
		})
		claims = append(claims, claim)
		go func() { _, _ = victim.CreateOnce(context.WithoutCancel(t.Context()), ns, claim) }() // it is cut off
	}
	for _, m := range cases {
		expect.Eventually(t.Context(), t, func(context.Context) error {
			if m.seen.Load() == 0 || m.mount.Linger != nil && mountedInto(stock[m.name]) == 0 {
				return fmt.Errorf("%s: the claim is not there yet", m.name)
			}
			return nil
		})
	}
	victim.Process.Kill()
	killed.Store(true)
	for i, m := range cases {
		ended := other.AwaitClaim(t, ns, claims[i].Name, testutil.Completed)
		if ended.Status.ClaimedReplicas != 1 {
			t.Errorf("%s: ends with %+v", m.name, ended.Status)
			continue
		}
		if replaced := ended.Status.FailedReplicas == 1; replaced != m.replaced {
			t.Errorf("%s: failedReplicas is %d", m.name, ended.Status.FailedReplicas)
		}
		rt := fleet.At(ended.Status.Sandboxes[0].PodIPs[0])
		if len(rt.Mounts()) != 1 || rt.Mounts()[0].Request.GetTargetPath() != "/data" {
			t.Errorf("%s: its sandbox has the mounts %v", m.name, rt.Mounts())
		}
	}
	for _, rt := range fleet.Runtimes() {
		if n := len(rt.Mounts()); n > 1 {
			t.Errorf("the volume is mounted into %s %d times", rt.IP, n)
		}
	}
	expect.Invariants(t, other.Client.AgentsV1alpha1(), ns)
}

// mountedInto counts the mounts of runtimes.
func mountedInto(runtimes []*runtimetest.Runtime) int {
	n := 0
	for _, rt := range runtimes {
		n += len(rt.Mounts())
	}
	return n
}
