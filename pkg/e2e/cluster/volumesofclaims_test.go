// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// persistentVolume makes a volume of the cluster, which goes with the test.
func (c *clients) persistentVolume(t *testing.T, name string, change func(*corev1.PersistentVolume)) {
	t.Helper()
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: "nfs.csi.example.com", VolumeHandle: name},
			},
		},
	}
	change(pv)
	if _, err := c.kube.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.kube.CoreV1().PersistentVolumes().Delete(context.Background(), name, metav1.DeleteOptions{}) // of a cluster that goes as well
	})
}

// bound makes a PersistentVolumeClaim of the name data, and binds a volume to it.
func (c *clients) bound(t *testing.T, namespace, volume string) {
	t.Helper()
	made, err := c.kube.CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			VolumeName: volume, StorageClassName: new(""), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	volumes := c.kube.CoreV1().PersistentVolumes()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		pv, err := volumes.Get(ctx, volume, metav1.GetOptions{})
		if err != nil || pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID == made.UID && pv.Status.Phase == corev1.VolumeBound {
			return err
		}
		// Where no controller does it.
		pv.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: namespace, Name: made.Name, UID: made.UID}
		if pv, err = volumes.Update(ctx, pv, metav1.UpdateOptions{}); err != nil {
			return err
		}
		pv.Status.Phase = corev1.VolumeBound
		_, err = volumes.UpdateStatus(ctx, pv, metav1.UpdateOptions{})
		return err
	})
}

// TestVolumesOfClaims names volumes of the cluster in a claim: only those that are meant for
// its namespace are there for it.
func TestVolumesOfClaims(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	nothing := func(*corev1.PersistentVolume) {}
	listing := func(value string) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) {
			pv.Annotations = map[string]string{v1alpha1.AnnotationMountNamespaces: value}
		}
	}
	boundTo := func(namespace string) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) {
			pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: "data"}
		}
	}
	const absent = "there is no PersistentVolume "
	for name, tc := range map[string]struct {
		change func(*corev1.PersistentVolume) // nil makes none
		want   string                         // of the refusal, if any
	}{
		"absent":   {nil, absent},
		"anyones":  {nothing, absent},
		"bound":    {nothing, ""},
		"reserved": {boundTo(ns), absent}, // for a claim that there is not
		"theirs":   {boundTo("kube-system"), absent},
		"listed":   {listing("other," + ns), ""},
		"unlisted": {listing("other"), absent},
		"all":      {listing("*"), ""},
		"no-csi": {func(pv *corev1.PersistentVolume) {
			listing("*")(pv)
			pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}}
		}, "is not of a CSI driver"},
		"secret": {func(pv *corev1.PersistentVolume) {
			listing("*")(pv)
			pv.Spec.CSI.NodePublishSecretRef = &corev1.SecretReference{Namespace: "kube-system", Name: "s"}
		}, "nodePublishSecretRef, which is not supported"},
	} {
		pv := ns + "-" + name
		if tc.change != nil {
			c.persistentVolume(t, pv, tc.change)
		}
		if name == "bound" {
			c.bound(t, ns, pv)
		}
		claim := claimOf("mounts", "nowhere", 1)
		claim.Spec.DynamicVolumesMount = []v1alpha1.CSIMountConfig{{PvName: pv, MountPath: "/data"}}
		_, err := c.SandboxClaims(ns).Create(t.Context(), claim, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: got %v", name, err)
		case tc.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.dynamicVolumesMount[0].pvName") || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}
