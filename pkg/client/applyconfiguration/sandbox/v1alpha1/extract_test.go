// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	apply "github.com/sandlot-io/sandlot/pkg/client/applyconfiguration/sandbox/v1alpha1"
)

// ownedFields parses the fields of a manager, in a way that all versions of the API
// machinery have that this module builds with.
func ownedFields(t *testing.T, document string) *metav1.FieldsV1 {
	t.Helper()
	fields := &metav1.FieldsV1{}
	if err := fields.UnmarshalJSON([]byte(document)); err != nil {
		t.Fatal(err)
	}
	return fields
}

// Extract takes what a field manager owns out of an object, and so shows whether
// the generated schema knows our types: without it, entries of a list by key do
// not come out.
func TestExtract(t *testing.T) {
	claim := &v1alpha1.SandboxClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: "one", Namespace: "default",
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager:    "me",
				Operation:  metav1.ManagedFieldsOperationApply,
				APIVersion: v1alpha1.SchemeGroupVersion.String(),
				FieldsType: "FieldsV1",
				FieldsV1: ownedFields(t, `{"f:spec":{
					"f:labels":{"f:mine":{}},
					"f:dynamicVolumesMount":{"k:{\"mountPath\":\"/data\"}":{".":{},"f:mountPath":{},"f:pvName":{}}}
				}}`),
			}},
		},
		Spec: v1alpha1.SandboxClaimSpec{
			TemplateName: "pool",
			Labels:       map[string]string{"mine": "yes", "other": "no"},
			DynamicVolumesMount: []v1alpha1.CSIMountConfig{
				{PvName: "pv-other", MountPath: "/other"},
				{PvName: "pv", MountPath: "/data"},
			},
		},
	}
	got, err := apply.ExtractSandboxClaim(claim, "me")
	if err != nil {
		t.Fatal(err)
	}
	want := apply.SandboxClaim("one", "default").WithSpec(apply.SandboxClaimSpec().
		WithLabels(map[string]string{"mine": "yes"}).
		WithDynamicVolumesMount(apply.CSIMountConfig().WithPvName("pv").WithMountPath("/data")))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("extracted (-want +got):\n%s", diff)
	}
}

// A pod template is raw JSON in Go and still has fields of different owners.
func TestExtractFromTemplate(t *testing.T) {
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{
		Name: "pool", Namespace: "default",
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager:    "me",
			Operation:  metav1.ManagedFieldsOperationApply,
			APIVersion: v1alpha1.SchemeGroupVersion.String(),
			FieldsType: "FieldsV1",
			FieldsV1:   ownedFields(t, `{"f:spec":{"f:template":{"f:metadata":{"f:labels":{"f:mine":{}}}}}}`),
		}},
	}}
	set.Spec.Template = &runtime.RawExtension{
		Raw: []byte(`{"metadata":{"labels":{"mine":"yes","other":"no"}},"spec":{"containers":[]}}`),
	}
	got, err := apply.ExtractSandboxSet(set, "me")
	if err != nil {
		t.Fatal(err)
	}
	want := apply.SandboxSet("pool", "default").WithSpec(apply.SandboxSetSpec().
		WithTemplate(runtime.RawExtension{Raw: []byte(`{"metadata":{"labels":{"mine":"yes"}}}`)}))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("extracted (-want +got):\n%s", diff)
	}
}
