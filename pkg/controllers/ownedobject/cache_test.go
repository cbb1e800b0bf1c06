// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package ownedobject

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// lossyCache reads templates as a cache has them that finds all too large.
type lossyCache struct{ client.Client }

// Get implements client.Reader.
func (c lossyCache) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if err := c.Client.Get(ctx, key, object, options...); err != nil {
		return err
	}
	_, err := WithoutLarge(
		func(*v1alpha1.SandboxTemplate) int { return maxCachedItems + 1 },
		func(template *v1alpha1.SandboxTemplate) {
			template.Spec.Template = &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"image":"dropped"}]}}`)}
		},
	)(object)
	return err
}

// TestIncompleteObjects: what the cache has dropped of an object is corrected as all else, and what users added stays.
func TestIncompleteObjects(t *testing.T) {
	api := testutil.Start(t).RuntimeClient(t)
	owner := ownerOf("now")
	exists := wantOf(owner, "one")
	exists.Annotations = map[string]string{"by": "user"}
	exists.Spec.Template = &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"c","image":"one"}],"nodeSelector":{"extra":"x"}}}`)}
	if err := api.Create(t.Context(), exists); err != nil {
		t.Fatal(err)
	}
	reconciler := reconcilerOf(api, nil)
	reconciler.Client = lossyCache{api}
	if _, err := reconciler.Ensure(t.Context(), owner, wantOf(owner, "two")); err != nil {
		t.Fatal(err)
	}
	got := &v1alpha1.SandboxTemplate{}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(exists), got); err != nil {
		t.Fatal(err)
	}
	if imageOf(got) != "two" || strings.Contains(string(got.Spec.Template.Raw), "extra") || got.Annotations["by"] != "user" || isIncomplete(got) {
		t.Errorf("it is %s with %v", got.Spec.Template.Raw, got.Annotations)
	}
	// It is known by its labels, which the cache has not.
	got.OwnerReferences = nil
	if err := api.Update(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	if err := reconciler.Remove(t.Context(), reconciler.Client, owner, exists.Name, exists.Labels); err != nil {
		t.Fatal(err)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(exists), got); !apierrors.IsNotFound(err) {
		t.Errorf("after it was removed: %v", err)
	}
}

// TestLargeMetadataIsNotCached: wherever the metadata of an object has its items, they do not fill the cache. Its
// controller is known, and the label by which it was selected.
func TestLargeMetadataIsNotCached(t *testing.T) {
	const many = maxCachedItems + 1
	pairs := map[string]string{v1alpha1.LabelCreatedBy: "us"}
	for i := range many {
		pairs[strconv.Itoa(i)] = ""
	}
	controller := metav1.OwnerReference{Name: "box", UID: "box", Controller: ptr.To(true)}
	for name, change := range map[string]func(*v1alpha1.SandboxTemplate){
		"labels":      func(o *v1alpha1.SandboxTemplate) { o.Labels = pairs },
		"annotations": func(o *v1alpha1.SandboxTemplate) { o.Annotations = pairs },
		"owners": func(o *v1alpha1.SandboxTemplate) {
			o.OwnerReferences = append(o.OwnerReferences, make([]metav1.OwnerReference, many)...)
		},
		"finalizers": func(o *v1alpha1.SandboxTemplate) { o.Finalizers = make([]string, many) },
	} {
		object := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{
			Name: "one", Labels: map[string]string{v1alpha1.LabelCreatedBy: "us"}, OwnerReferences: []metav1.OwnerReference{controller},
		}}
		change(object)
		dropped := false
		_, err := WithoutLarge(func(*v1alpha1.SandboxTemplate) int { return 0 }, func(*v1alpha1.SandboxTemplate) { dropped = true })(object)
		if err != nil {
			t.Fatal(err)
		}
		if !dropped || !isIncomplete(object) || metadataItems(object) > 3 || object.Labels[v1alpha1.LabelCreatedBy] != "us" ||
			!cmp.Equal(metav1.GetControllerOf(object), &controller) {
			t.Errorf("many %s: %v", name, object.ObjectMeta)
		}
	}
}
