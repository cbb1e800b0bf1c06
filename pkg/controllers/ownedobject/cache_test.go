// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package ownedobject

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/incomplete"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// lossyCache reads templates as a cache has them that finds all too large.
type lossyCache struct{ client.Client }

// Get implements client.Reader.
func (c lossyCache) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if err := c.Client.Get(ctx, key, object, options...); err != nil {
		return err
	}
	object.SetFinalizers(make([]string, 2000))
	_, err := incomplete.Transform(func(template *v1alpha1.SandboxTemplate) {
		template.Spec.Template = &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"image":"dropped"}]}}`)}
	})(object)
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
	if imageOf(got) != "two" || strings.Contains(string(got.Spec.Template.Raw), "extra") || got.Annotations["by"] != "user" || incomplete.Is(got) {
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
