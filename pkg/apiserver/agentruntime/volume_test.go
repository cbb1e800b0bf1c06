// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func persistentVolume(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "data", Annotations: map[string]string{v1alpha1.AnnotationMountAttributes: "share,VERSION"}}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{
		Driver: "nfs.csi.example.com", VolumeHandle: "handle", FSType: "nfs", VolumeAttributes: map[string]string{"share": "/export"},
	}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	pv.Spec.MountOptions = []string{"nolock"}
	if change != nil {
		change(pv)
	}
	return pv
}

func TestMayMount(t *testing.T) {
	boundTo := func(namespace string) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) {
			pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: "data", UID: "claim-uid"}
			pv.Status.Phase = corev1.VolumeBound
		}
	}
	listing := func(value string) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) { pv.Annotations[v1alpha1.AnnotationMountNamespaces] = value }
	}
	for name, tc := range map[string]struct {
		change func(*corev1.PersistentVolume)
		want   bool
	}{
		"neither":                  {nil, false},
		"bound in the namespace":   {boundTo("team-a"), true},
		"bound in another":         {boundTo("team-b"), false},
		"listed":                   {listing("team-b, team-a"), true},
		"others listed":            {listing("team-b,team-a2,*team-a"), false},
		"all listed":               {listing("*"), true},
		"an empty list":            {listing(""), false},
		"an empty entry":           {listing(",,"), false},
		"a part of the name":       {listing("team"), false},
		"a list without separator": {listing("team-a team-b"), false},
	} {
		pv := persistentVolume(tc.change)
		if got := isListed(pv, "team-a") || isBoundIn(pv, "team-a"); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestVolumeOf(t *testing.T) {
	mount := &v1alpha1.CSIMountConfig{
		MountID: "id", PvName: "data", MountPath: "/data", SubPath: "a/b", ReadOnly: true, Attributes: map[string]string{"version": "4.1"},
	}
	pv := persistentVolume(nil)
	got, err := volumeOf(pv, mount)
	if err != nil {
		t.Fatal(err)
	}
	want := &csi.NodePublishVolumeRequest{
		VolumeId: "handle", TargetPath: "/data", Readonly: true,
		VolumeContext: map[string]string{"share": "/export", "version": "4.1", "subPath": "a/b", "mountID": "id"},
		VolumeCapability: &csi.VolumeCapability{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "nfs", MountFlags: []string{"nolock"}}},
		},
	}
	if got.Driver != "nfs.csi.example.com" || got.Name != "data" || !proto.Equal(got.Request, want) {
		t.Errorf("got %+v", got)
	}
	if len(pv.Spec.CSI.VolumeAttributes) != 1 {
		t.Errorf("the volume was changed: %v", pv.Spec.CSI.VolumeAttributes)
	}
}

func TestAReadOnlyVolumeStaysSo(t *testing.T) {
	pv := persistentVolume(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.ReadOnly = true })
	got, err := volumeOf(pv, &v1alpha1.CSIMountConfig{MountPath: "/data"})
	if err != nil || !got.Request.GetReadonly() {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestVolumesThatCannotBeMounted(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.PersistentVolume)
		mount  v1alpha1.CSIMountConfig
		want   string
	}{
		"no CSI": {change: func(pv *corev1.PersistentVolume) { pv.Spec.CSI = nil }, want: "is not of a CSI driver"},
		"a secret": {
			change: func(pv *corev1.PersistentVolume) {
				pv.Spec.CSI.NodePublishSecretRef = &corev1.SecretReference{Name: "s"}
			},
			want: "nodePublishSecretRef, which is not supported",
		},
		"a block device": {change: func(pv *corev1.PersistentVolume) { pv.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }, want: "volumeMode Block"},
		"an attribute that is not listed": {
			change: func(pv *corev1.PersistentVolume) { pv.Annotations[v1alpha1.AnnotationMountAttributes] = "version, sub" },
			mount:  v1alpha1.CSIMountConfig{Attributes: map[string]string{"subDir": "../others"}}, want: "claims may not set the attribute subDir",
		},
		"an attribute where none is listed": {
			change: func(pv *corev1.PersistentVolume) { delete(pv.Annotations, v1alpha1.AnnotationMountAttributes) },
			mount:  v1alpha1.CSIMountConfig{Attributes: map[string]string{"version": "4.1"}}, want: "claims may not set the attribute version",
		},
		"an attribute of the volume": {
			change: func(pv *corev1.PersistentVolume) { pv.Annotations[v1alpha1.AnnotationMountAttributes] = "*" },
			mount:  v1alpha1.CSIMountConfig{Attributes: map[string]string{"share": "/others"}}, want: "has the attribute share itself",
		},
		"an attribute of the volume, spelled otherwise": {
			change: func(pv *corev1.PersistentVolume) { pv.Annotations[v1alpha1.AnnotationMountAttributes] = "*" },
			mount:  v1alpha1.CSIMountConfig{Attributes: map[string]string{"Share": "/others"}}, want: "has the attribute Share itself",
		},
		"a subPath of the volume, spelled otherwise": {
			change: func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeAttributes["subpath"] = "own" },
			mount:  v1alpha1.CSIMountConfig{SubPath: "theirs"}, want: "has the attribute subPath itself",
		},
		"a subPath of the volume": {
			change: func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeAttributes["subPath"] = "own" },
			mount:  v1alpha1.CSIMountConfig{SubPath: "theirs"}, want: "has the attribute subPath itself",
		},
	} {
		_, err := volumeOf(persistentVolume(tc.change), &tc.mount)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
