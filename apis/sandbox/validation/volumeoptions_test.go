// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestValidateVolumeOptions(t *testing.T) {
	many := make([]string, maxVolumeOptions+1)
	tests := map[string]struct {
		options v1alpha1.VolumeClaimTemplatesOptions
		want    []string
	}{
		"none": {},
		"all": {options: v1alpha1.VolumeClaimTemplatesOptions{
			StorageClassNames: []string{"fast.example.com", ""}, DataSources: []string{"PersistentVolumeClaim", "VolumeSnapshot.snapshot.storage.k8s.io"},
		}},
		"what are no names": {
			options: v1alpha1.VolumeClaimTemplatesOptions{StorageClassNames: []string{"Fast!"}, DataSources: []string{"", "A.", ".b", "*"}},
			want: []string{
				"storageClassNames[0]: Invalid", "dataSources[0]: Invalid", "dataSources[1]: Invalid", "dataSources[2]: Invalid", "dataSources[3]: Invalid",
			},
		},
		"too many classes": {options: v1alpha1.VolumeClaimTemplatesOptions{StorageClassNames: many}, want: []string{"storageClassNames: Too many"}},
		"too many sources": {options: v1alpha1.VolumeClaimTemplatesOptions{DataSources: many}, want: []string{"dataSources: Too many"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var want []string
			for _, w := range tt.want {
				want = append(want, "spec.volumeClaimTemplatesOptions."+w)
			}
			template := template(t, nil)
			template.Spec.VolumeClaimTemplatesOptions = &tt.options
			begins(t, ValidateSandboxTemplate(template), want...)
		})
	}
}
