// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxset_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxset"
)

const selector = "agents.kruise.io/sandbox-claimed=false,agents.kruise.io/sandbox-pool=a"

func TestScaleKind(t *testing.T) {
	scale := &sandboxset.ScaleREST{}
	if got := scale.GroupVersionKind(v1alpha1.SchemeGroupVersion).String(); got != "autoscaling/v1, Kind=Scale" {
		t.Errorf("kind is %s", got)
	}
	// A patch is converted to the internal version on its way.
	gvks, _, err := registrytest.NewScheme().ObjectKinds(scale.New())
	if err != nil || len(gvks) != 2 {
		t.Errorf("scheme knows %v, %v", gvks, err)
	}
}

func TestScaleGet(t *testing.T) {
	storage := newStorage(t, registrytest.New(t))
	set := create(t, storage)

	got := getScale(t, storage)
	want := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: registrytest.Namespace, Name: "a", UID: set.UID,
			ResourceVersion: set.ResourceVersion, CreationTimestamp: set.CreationTimestamp,
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: 2},
		Status: autoscalingv1.ScaleStatus{Replicas: 0, Selector: selector},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fresh set (-want +got):\n%s", diff)
	}

	set.Status.Replicas, set.Status.Selector = 1, "written=by-the-controller"
	if _, _, err := storage.Status.Update(registrytest.Context(t, resource, "status"), "a", rest.DefaultUpdatedObjectInfo(set),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := getScale(t, storage).Status; got != (autoscalingv1.ScaleStatus{Replicas: 1, Selector: "written=by-the-controller"}) {
		t.Errorf("status is %+v", got)
	}

	if _, err := storage.Scale.Get(registrytest.Context(t, resource, "scale"), "absent", &metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want NotFound", err)
	}
}

func TestScaleUpdate(t *testing.T) {
	tests := map[string]struct {
		name    string
		change  func(*autoscalingv1.Scale)
		wantErr func(error) bool
		// wantReplicas is what the set says afterwards.
		wantReplicas   int32
		wantGeneration int64
	}{
		"up":                         {"a", func(s *autoscalingv1.Scale) { s.Spec.Replicas = 7 }, nil, 7, 2},
		"to zero":                    {"a", func(s *autoscalingv1.Scale) { s.Spec.Replicas = 0 }, nil, 0, 2},
		"to where it is":             {"a", func(*autoscalingv1.Scale) {}, nil, 2, 1},
		"without a resource version": {"a", func(s *autoscalingv1.Scale) { s.ResourceVersion, s.Spec.Replicas = "", 7 }, nil, 7, 2},
		"without a UID":              {"a", func(s *autoscalingv1.Scale) { s.UID, s.Spec.Replicas = "", 7 }, nil, 7, 2},
		"status is not the client's": {"a", func(s *autoscalingv1.Scale) { s.Spec.Replicas, s.Status.Replicas = 7, 7 }, nil, 7, 2},
		"stale resource version":     {"a", func(s *autoscalingv1.Scale) { s.ResourceVersion, s.Spec.Replicas = "1", 7 }, apierrors.IsConflict, 2, 1},
		"another UID":                {"a", func(s *autoscalingv1.Scale) { s.UID, s.Spec.Replicas = "other", 7 }, apierrors.IsConflict, 2, 1},
		"negative":                   {"a", func(s *autoscalingv1.Scale) { s.Spec.Replicas = -1 }, names("spec.replicas"), 2, 1},
		"more than a set may have":   {"a", func(s *autoscalingv1.Scale) { s.Spec.Replicas = 1 << 30 }, names("spec.replicas"), 2, 1},
		"absent set":                 {"absent", func(s *autoscalingv1.Scale) { s.Name, s.UID = "absent", "" }, apierrors.IsNotFound, 2, 1},
	}
	storage := newStorage(t, registrytest.New(t))
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			create(t, storage)
			defer remove(t, storage)
			scale := getScale(t, storage)
			tc.change(scale)

			got, err := updateScale(t, storage, tc.name, rest.DefaultUpdatedObjectInfo(scale), rest.ValidateAllObjectUpdateFunc, &metav1.UpdateOptions{})
			switch {
			case tc.wantErr == nil && err != nil:
				t.Fatal(err)
			case tc.wantErr != nil && (err == nil || !tc.wantErr(err)):
				t.Fatalf("got error %v", err)
			case tc.wantErr == nil && (got.Spec.Replicas != tc.wantReplicas || got.Status.Replicas != 0 || got.Status.Selector != selector):
				t.Errorf("answer is %+v", got)
			}

			set := getSet(t, storage)
			if *set.Spec.Replicas != tc.wantReplicas || set.Generation != tc.wantGeneration {
				t.Errorf("set has %d replicas in generation %d, want %d in %d", *set.Spec.Replicas, set.Generation, tc.wantReplicas, tc.wantGeneration)
			}
		})
	}
}

// A patch reaches storage as a function of the stored scale.
func TestScalePatch(t *testing.T) {
	storage := newStorage(t, registrytest.New(t))
	create(t, storage)
	patch := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		scale := old.DeepCopyObject().(*autoscalingv1.Scale)
		scale.Spec.Replicas += 3
		return scale, nil
	})
	got, err := updateScale(t, storage, "a", patch, rest.ValidateAllObjectUpdateFunc, &metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Spec.Replicas != 5 {
		t.Errorf("replicas %d, want 5", got.Spec.Replicas)
	}
}

func TestScaleDryRun(t *testing.T) {
	fixture := registrytest.New(t)
	storage := newStorage(t, fixture)
	create(t, storage)
	before := string(fixture.Raw(t, resource, "a"))
	scale := getScale(t, storage)
	scale.Spec.Replicas = 7
	got, err := updateScale(t, storage, "a", rest.DefaultUpdatedObjectInfo(scale), rest.ValidateAllObjectUpdateFunc,
		&metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	if got.Spec.Replicas != 7 {
		t.Errorf("answer has %d replicas", got.Spec.Replicas)
	}
	if after := string(fixture.Raw(t, resource, "a")); after != before {
		t.Errorf("etcd changed from %s to %s", before, after)
	}
}

// Admission of a scale is shown scales, not sets.
func TestScaleAdmission(t *testing.T) {
	storage := newStorage(t, registrytest.New(t))
	create(t, storage)
	scale := getScale(t, storage)
	scale.Spec.Replicas = 7
	_, err := updateScale(t, storage, "a", rest.DefaultUpdatedObjectInfo(scale), func(_ context.Context, obj, old runtime.Object) error {
		if obj.(*autoscalingv1.Scale).Spec.Replicas != 7 || old.(*autoscalingv1.Scale).Spec.Replicas != 2 {
			t.Errorf("admission sees %v and %v", obj, old)
		}
		return registrytest.ErrDenied
	}, &metav1.UpdateOptions{})
	if !errors.Is(err, registrytest.ErrDenied) {
		t.Errorf("got %v, want the error of admission", err)
	}
	if got := *getSet(t, storage).Spec.Replicas; got != 2 {
		t.Errorf("set has %d replicas", got)
	}
}

// Who scales owns spec.replicas of the set from then on, so that a later apply by
// someone else conflicts instead of scaling back in silence.
func TestScaleManagedFields(t *testing.T) {
	storage := newStorage(t, registrytest.New(t))
	set := registrytest.NewSandboxSet("a")
	set.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "deployer", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "agents.kruise.io/v1alpha1",
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:replicas":{},"f:template":{}}}`),
	}}
	if _, err := storage.SandboxSet.Create(registrytest.Context(t, resource), set, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	autoscaler := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		scale := old.DeepCopyObject().(*autoscalingv1.Scale)
		if len(scale.ManagedFields) != 1 || scale.ManagedFields[0].APIVersion != "autoscaling/v1" || scale.ManagedFields[0].Manager != "deployer" {
			t.Errorf("scale shows owners %+v", scale.ManagedFields)
		}
		scale.Spec.Replicas = 7
		scale.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: "autoscaler", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "autoscaling/v1", Subresource: "scale",
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:replicas":{}}}`),
		}}
		return scale, nil
	})
	if _, err := updateScale(t, storage, "a", autoscaler, rest.ValidateAllObjectUpdateFunc, &metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	owners := map[string]string{}
	for _, entry := range getSet(t, storage).ManagedFields {
		owners[entry.Manager] = entry.APIVersion + " " + entry.FieldsV1.GetRawString()
	}
	want := map[string]string{
		"deployer":   `agents.kruise.io/v1alpha1 {"f:spec":{"f:template":{}}}`,
		"autoscaler": `agents.kruise.io/v1alpha1 {"f:spec":{"f:replicas":{}}}`,
	}
	if diff := cmp.Diff(want, owners); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestScaleTable(t *testing.T) {
	storage := newStorage(t, registrytest.New(t))
	create(t, storage)
	scale := getScale(t, storage)
	scale.CreationTimestamp = metav1.Time{}
	registrytest.CheckTable(t, storage.Scale, scale, registrytest.Table{
		Columns: []string{"Name", "Desired", "Available", "Age"},
		Rows:    [][]any{{"a", int64(2), int64(0), "<unknown>"}},
	})
}

// names is an Invalid error about a field.
func names(field string) func(error) bool {
	return func(err error) bool { return apierrors.IsInvalid(err) && strings.Contains(err.Error(), field+": ") }
}

func getScale(t *testing.T, storage sandboxset.Storage) *autoscalingv1.Scale {
	t.Helper()
	obj, err := storage.Scale.Get(registrytest.Context(t, resource, "scale"), "a", &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*autoscalingv1.Scale)
}

func getSet(t *testing.T, storage sandboxset.Storage) *v1alpha1.SandboxSet {
	t.Helper()
	obj, err := storage.SandboxSet.Get(registrytest.Context(t, resource), "a", &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*v1alpha1.SandboxSet)
}

func remove(t *testing.T, storage sandboxset.Storage) {
	t.Helper()
	if _, _, err := storage.SandboxSet.Delete(registrytest.Context(t, resource), "a", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// updateScale asks for creation, too, as server-side apply does: a scale must not
// heed it.
func updateScale(t *testing.T, storage sandboxset.Storage, name string, objInfo rest.UpdatedObjectInfo,
	admit rest.ValidateObjectUpdateFunc, options *metav1.UpdateOptions) (*autoscalingv1.Scale, error) {
	t.Helper()
	obj, created, err := storage.Scale.Update(registrytest.Context(t, resource, "scale"), name, objInfo, rest.ValidateAllObjectFunc, admit, true, options)
	if created {
		t.Error("scaling created a set")
	}
	if err != nil {
		return nil, err
	}
	return obj.(*autoscalingv1.Scale), nil
}
