// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestVolumeOptions(t *testing.T) {
	const snapshot = "VolumeSnapshot.snapshot.storage.k8s.io"
	tests := map[string]struct {
		options v1alpha1.VolumeClaimTemplatesOptions
		spec    string
		refused []string
	}{
		"no spec":                {spec: `null`},
		"the default class":      {spec: `{"resources":{}}`},
		"said to be the default": {spec: `{"storageClassName":null,"dataSource":null,"dataSourceRef":null,"selector":null,"volumeName":""}`},
		"that of the template":   {spec: `{"storageClassName":"fast"}`},
		"another class":          {spec: `{"storageClassName":"gold"}`, refused: []string{`v[0].spec.storageClassName: Forbidden: StorageClass "gold"`}},
		"by hand":                {spec: `{"storageClassName":""}`, refused: []string{`v[0].spec.storageClassName: Forbidden: StorageClass ""`}},
		"by hand, allowed":       {options: v1alpha1.VolumeClaimTemplatesOptions{StorageClassNames: []string{""}}, spec: `{"storageClassName":""}`},
		"another class, allowed": {options: v1alpha1.VolumeClaimTemplatesOptions{StorageClassNames: []string{"gold"}}, spec: `{"storageClassName":"gold"}`},
		"no class at all":        {spec: `{"storageClassName":7}`, refused: []string{"v[0].spec.storageClassName: Forbidden"}},
		"sources": {
			spec:    `{"dataSource":{"kind":"PersistentVolumeClaim","name":"x"},"dataSourceRef":{"kind":"PersistentVolumeClaim","name":"x"}}`,
			refused: []string{`v[0].spec.dataSource: Forbidden: kind "PersistentVolumeClaim"`, `v[0].spec.dataSourceRef: Forbidden: kind "PersistentVolumeClaim"`},
		},
		"a source that is none": {spec: `{"dataSource":"x"}`, refused: []string{`v[0].spec.dataSource: Forbidden: kind ""`}},
		"a source, allowed": {
			options: v1alpha1.VolumeClaimTemplatesOptions{DataSources: []string{snapshot}},
			spec:    `{"dataSource":{"apiGroup":"snapshot.storage.k8s.io","kind":"VolumeSnapshot","name":"x"}}`,
		},
		"a source of another group": {
			options: v1alpha1.VolumeClaimTemplatesOptions{DataSources: []string{snapshot}},
			spec:    `{"dataSource":{"apiGroup":"example.com","kind":"VolumeSnapshot","name":"x"}}`,
			refused: []string{`v[0].spec.dataSource: Forbidden: kind "VolumeSnapshot.example.com"`},
		},
		"a source in another namespace": {
			options: v1alpha1.VolumeClaimTemplatesOptions{DataSources: []string{"PersistentVolumeClaim"}},
			spec:    `{"dataSourceRef":{"kind":"PersistentVolumeClaim","name":"x","namespace":"other"}}`,
			refused: []string{"v[0].spec.dataSourceRef.namespace: Forbidden"},
		},
		"volumes that exist": {
			spec:    `{"volumeName":"pv","selector":{}}`,
			refused: []string{"v[0].spec.volumeName: Forbidden", "v[0].spec.selector: Forbidden"},
		},
		"volumes that exist, allowed": {
			options: v1alpha1.VolumeClaimTemplatesOptions{ExistingVolumes: true}, spec: `{"volumeName":"pv","selector":{}}`,
		},
	}
	have := []runtime.RawExtension{
		{Raw: []byte(`{"metadata":{"name":"data"},"spec":{"storageClassName":"fast"}}`)}, {Raw: []byte(`{"metadata":{"name":"more"}}`)},
	}
	for name, tc := range tests {
		for _, policy := range []v1alpha1.InjectionPolicy{allow, overrides} {
			t.Run(name+" "+string(policy), func(t *testing.T) {
				policies := &v1alpha1.SandboxTemplateSpec{VolumeClaimTemplatesPolicy: policy, VolumeClaimTemplatesOptions: &tc.options}
				add := []runtime.RawExtension{{Raw: []byte(`{"metadata":{"name":"mine"},"spec":` + tc.spec + `}`)}}
				template := &runtime.RawExtension{Raw: []byte(`{"spec":{}}`)}
				got, refused, err := InjectVolumes(template, have, add, policies, field.NewPath("v"))
				if err != nil {
					t.Fatal(err)
				}
				expectRefused(t, tc.refused, refused)
				if len(tc.refused) == 0 && len(got) != 3 {
					t.Errorf("got %d volumes", len(got))
				}
			})
		}
	}
}

// What chooses a volume past the fields that the options govern is refused.
func TestVolumeMetadataAndOtherFields(t *testing.T) {
	all := &v1alpha1.VolumeClaimTemplatesOptions{ExistingVolumes: true}
	for name, tc := range map[string]struct {
		volume  string
		refused []string
	}{
		"ordinary": {volume: `{"metadata":{"name":"mine","labels":{"team":"a","app.kubernetes.io/name":"x"},"annotations":{"example.com/note":"x"}},
			"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},"volumeMode":"Block","volumeAttributesClassName":null}}`},
		"a StorageClass by annotation": {
			volume:  `{"metadata":{"name":"mine","annotations":{"volume.beta.kubernetes.io/storage-class":"gold"}},"spec":{}}`,
			refused: []string{`v[0].metadata.annotations[volume.beta.kubernetes.io/storage-class]: Forbidden`},
		},
		"a clone and a node": {
			volume: `{"metadata":{"name":"mine","annotations":{"k8s.io/CloneRequest":"x","volume.kubernetes.io/selected-node":"n"}},"spec":{}}`,
			refused: []string{
				"v[0].metadata.annotations[k8s.io/CloneRequest]: Forbidden", "v[0].metadata.annotations[volume.kubernetes.io/selected-node]: Forbidden",
			},
		},
		"labels": {
			volume:  `{"metadata":{"name":"mine","labels":{"agents.kruise.io/sandbox-name":"x","topology.kubernetes.io/zone":"z"}},"spec":{}}`,
			refused: []string{"v[0].metadata.labels[agents.kruise.io/sandbox-name]: Forbidden", "v[0].metadata.labels[topology.kubernetes.io/zone]: Forbidden"},
		},
		"other fields": {
			volume:  `{"metadata":{"name":"mine"},"spec":{"volumeAttributesClassName":"gold","later":1}}`,
			refused: []string{"v[0].spec.later: Forbidden", "v[0].spec.volumeAttributesClassName: Forbidden"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			policies := &v1alpha1.SandboxTemplateSpec{VolumeClaimTemplatesPolicy: overrides, VolumeClaimTemplatesOptions: all}
			template := &runtime.RawExtension{Raw: []byte(`{"spec":{}}`)}
			_, refused, err := InjectVolumes(template, nil, []runtime.RawExtension{{Raw: []byte(tc.volume)}}, policies, field.NewPath("v"))
			if err != nil {
				t.Fatal(err)
			}
			expectRefused(t, tc.refused, refused)
		})
	}
}
