// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime

import (
	"fmt"
	"maps"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/runtime"
)

// Keys of the volume context for what of a mount CSI has no field for.
const (
	contextSubPath = "subPath"
	contextMountID = "mountID"
)

var accessModes = map[corev1.PersistentVolumeAccessMode]csi.VolumeCapability_AccessMode_Mode{
	corev1.ReadWriteOnce:    csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
	corev1.ReadOnlyMany:     csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
	corev1.ReadWriteMany:    csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
	corev1.ReadWriteOncePod: csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
}

// volumeOf is what the driver of a PersistentVolume is asked for.
func volumeOf(pv *corev1.PersistentVolume, mount *v1alpha1.CSIMountConfig) (runtime.Volume, error) {
	source := pv.Spec.CSI
	switch {
	case source == nil:
		return runtime.Volume{}, &errVolume{fmt.Sprintf("PersistentVolume %s is not of a CSI driver", pv.Name)}
	case source.NodePublishSecretRef != nil:
		return runtime.Volume{}, &errVolume{fmt.Sprintf(
			"PersistentVolume %s has a nodePublishSecretRef, which is not supported: its secret would have to go into the sandbox", pv.Name)}
	case pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode != corev1.PersistentVolumeFilesystem:
		return runtime.Volume{}, &errVolume{fmt.Sprintf("PersistentVolume %s is no file system, but has the volumeMode %s", pv.Name, *pv.Spec.VolumeMode)}
	}
	attributes, err := contextOf(pv, mount)
	if err != nil {
		return runtime.Volume{}, err
	}
	mode := csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	if len(pv.Spec.AccessModes) > 0 {
		mode = accessModes[pv.Spec.AccessModes[0]]
	}
	return runtime.Volume{Name: pv.Name, Driver: source.Driver, Request: &csi.NodePublishVolumeRequest{
		VolumeId:      source.VolumeHandle,
		TargetPath:    mount.MountPath,
		Readonly:      mount.ReadOnly || source.ReadOnly,
		VolumeContext: attributes,
		VolumeCapability: &csi.VolumeCapability{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{
				FsType: source.FSType, MountFlags: pv.Spec.MountOptions,
			}},
		},
	}}, nil
}

// contextOf is the attributes of the volume and those of the mount. A claim adds those that the
// volume lets claims add, and changes none: those of the volume say what it is. Drivers commonly
// take keys that differ only in case for the same, so they are.
func contextOf(pv *corev1.PersistentVolume, mount *v1alpha1.CSIMountConfig) (map[string]string, error) {
	all := maps.Clone(pv.Spec.CSI.VolumeAttributes)
	if all == nil {
		all = map[string]string{}
	}
	taken := make(map[string]bool, len(all))
	for key := range all {
		taken[strings.ToLower(key)] = true
	}
	add := func(key, value string) error {
		if taken[strings.ToLower(key)] {
			return &errVolume{fmt.Sprintf("PersistentVolume %s has the attribute %s itself", pv.Name, key)}
		}
		all[key] = value
		return nil
	}
	for key, value := range mount.Attributes {
		if !lists(pv.Annotations[v1alpha1.AnnotationMountAttributes], key, strings.EqualFold) {
			return nil, &errVolume{fmt.Sprintf("claims may not set the attribute %s of PersistentVolume %s: its annotation %s does not list it",
				key, pv.Name, v1alpha1.AnnotationMountAttributes)}
		}
		if err := add(key, value); err != nil {
			return nil, err
		}
	}
	for key, value := range map[string]string{contextSubPath: mount.SubPath, contextMountID: mount.MountID} {
		if value == "" {
			continue
		}
		if err := add(key, value); err != nil {
			return nil, err
		}
	}
	return all, nil
}
