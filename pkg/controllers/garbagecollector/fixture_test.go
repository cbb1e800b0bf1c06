// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// held is a finalizer of another controller.
const held = "example.com/held"

// startAPI starts an API server, beside which nothing runs.
func startAPI(t *testing.T) (*rest.Config, *runtime.Scheme, client.WithWatch) {
	t.Helper()
	server := testutil.Start(t, testutil.WithOptions(func(o *options.Options) { o.SyncWindow = 0 }))
	api := server.RuntimeClient(t)
	return server.Config, api.Scheme(), api
}

// fixture is a namespace of its own.
type fixture struct {
	*testing.T
	api       client.WithWatch
	namespace string
}

// create makes an object.
func (f *fixture) create(kind, name string, owners ...metav1.OwnerReference) client.Object {
	f.Helper()
	template := v1alpha1.EmbeddedSandboxTemplate{
		Template: &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"c","image":"i"}]}}`)},
	}
	object := kinds[kind].object()
	switch object := object.(type) {
	case *v1alpha1.Sandbox:
		object.Spec.EmbeddedSandboxTemplate = template
	case *v1alpha1.SandboxSet:
		object.Spec.EmbeddedSandboxTemplate = template
		object.Spec.Replicas = new(int32(1))
	case *v1alpha1.SandboxTemplate:
		object.Spec.Template = template.Template
	case *v1alpha1.SandboxClaim:
		object.Spec.TemplateName = "nowhere"
	}
	object.SetNamespace(f.namespace)
	object.SetName(name)
	object.SetOwnerReferences(owners)
	if err := f.api.Create(f.Context(), object); err != nil {
		f.Fatal(err)
	}
	return object
}

// of is a reference to an owner.
func of(kind string, owner client.Object) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind, Name: owner.GetName(), UID: owner.GetUID(),
	}
}

// inWords is of in the words of another group.
func inWords(apiVersion, kind string, owner client.Object) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: owner.GetName(), UID: owner.GetUID()}
}

// controlled makes the owner the controller, as it is of what Sandlot makes.
func controlled(owner metav1.OwnerReference) metav1.OwnerReference {
	owner.Controller, owner.BlockOwnerDeletion = new(true), new(false)
	return owner
}

func (f *fixture) remove(object client.Object, policy metav1.DeletionPropagation) {
	f.Helper()
	if err := f.api.Delete(f.Context(), object, client.PropagationPolicy(policy)); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) setFinalizers(object client.Object, finalizers string) {
	f.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":`+finalizers+`}}`))
	if err := f.api.Patch(f.Context(), object, patch); err != nil {
		f.Fatal(err)
	}
}

// objects returns what there is, by kind and name.
func (f *fixture) objects() map[request]client.Object {
	f.Helper()
	all := map[request]client.Object{}
	for kind, list := range map[string]client.ObjectList{
		kindSandbox: &v1alpha1.SandboxList{}, kindClaim: &v1alpha1.SandboxClaimList{},
		kindSet: &v1alpha1.SandboxSetList{}, kindTemplate: &v1alpha1.SandboxTemplateList{},
	} {
		if err := f.api.List(f.Context(), list, client.InNamespace(f.namespace)); err != nil {
			f.Fatal(err)
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			object := item.(client.Object)
			all[requestFor(kind, object)] = object
			return nil
		})
		if err != nil {
			f.Fatal(err)
		}
	}
	return all
}

// left describes what there is: kind and name, owners, finalizers while it is
// being deleted.
func (f *fixture) left() []string {
	f.Helper()
	left := []string{}
	for req, object := range f.objects() {
		line := req.kind + " " + req.Name
		for _, owner := range object.GetOwnerReferences() {
			line += " of " + owner.Name
		}
		if object.GetDeletionTimestamp() != nil {
			line += " held by " + strings.Join(object.GetFinalizers(), ",")
		}
		left = append(left, line)
	}
	slices.Sort(left)
	return left
}

func (f *fixture) want(want ...string) {
	f.Helper()
	if diff := cmp.Diff(append([]string{}, want...), f.left()); diff != "" {
		f.Errorf("what is left (-want +got):\n%s", diff)
	}
}

// cached answers as a cache does that is never behind: it finds objects by owner.
func (f *fixture) cached(funcs interceptor.Funcs) client.Client {
	funcs.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		var o client.ListOptions
		o.ApplyOptions(opts)
		uid, ok := o.FieldSelector.RequiresExactMatch(ownerUID)
		if !ok {
			return fmt.Errorf("a list of everything: %+v", o)
		}
		if err := c.List(ctx, list, client.InNamespace(o.Namespace)); err != nil {
			return err
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return err
		}
		items = slices.DeleteFunc(items, func(item runtime.Object) bool {
			return !slices.Contains(uids(item.(client.Object)), uid)
		})
		return meta.SetList(list, items)
	}
	return interceptor.NewClient(f.api, funcs)
}

// settle looks at everything until nothing changes any more.
func (f *fixture) settle() {
	f.Helper()
	c := New(f.cached(interceptor.Funcs{}), f.api, 1)
	versions := func() map[request]string {
		all := map[request]string{}
		for req, object := range f.objects() {
			all[req] = object.GetResourceVersion()
		}
		return all
	}
	for before := versions(); ; {
		for req := range before {
			f.reconcile(c, req)
		}
		after := versions()
		if cmp.Equal(before, after) {
			return
		}
		before = after
	}
}

func (f *fixture) reconcile(c *Controller, req request) reconcile.Result {
	f.Helper()
	result, err := c.Reconcile(f.Context(), req)
	if err != nil {
		f.Fatal(err)
	}
	return result
}
