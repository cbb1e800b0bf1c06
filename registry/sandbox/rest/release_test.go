// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxclaim"
)

// TestWorkOfReleases: a release counts as work by the sandboxes that it deletes, also in a dry run, and deletes none if
// that is refused.
func TestWorkOfReleases(t *testing.T) {
	fixture := registrytest.New(t)
	stores, err := NewStores(fixture.Scheme, fixture)
	if err != nil {
		t.Fatal(err)
	}
	provider := Provider{Stores: stores, Binder: noBinder{},
		ClaimLimits: validation.DefaultClaimLimits(), Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(),
		AdmitDelete: func(context.Context, string, string, *metav1.DeleteOptions) rest.ValidateObjectFunc {
			return rest.ValidateAllObjectFunc
		}}
	storage, _, err := provider.NewStorage(fixture.Scheme, fixture)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, s := range storage {
			s.Destroy()
		}
	})
	claim := registrytest.NewSandboxClaim("mine")
	claim.UID, claim.Status.Phase = "uid", v1alpha1.SandboxClaimPhaseCompleted
	txn := etcdtxn.NewClient(fixture.Etcd()).Txn()
	create := func(resource, name string, object runtime.Object) {
		t.Helper()
		group := schema.GroupResource{Group: v1alpha1.GroupName, Resource: resource}
		stored := etcdtxn.NewResource(fixture.Config.ForResource(group), group.Group+"/"+group.Resource)
		if err := txn.Create(t.Context(), stored, stored.Key(registrytest.Namespace, name), object); err != nil {
			t.Fatal(err)
		}
	}
	create("sandboxclaims", claim.Name, claim)
	for _, name := range []string{"a", "b", "c"} {
		sandbox := registrytest.NewSandbox(name)
		sandbox.UID = types.UID(name)
		sandbox.Labels = map[string]string{v1alpha1.LabelClaimName: claim.Name}
		sandbox.Annotations = map[string]string{v1alpha1.AnnotationOwner: string(claim.UID)}
		create("sandboxes", name, sandbox)
	}
	if err := txn.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	busy := errors.New("busy")
	for name, tc := range map[string]struct {
		dryRun []string
		refuse error
	}{"a dry run": {dryRun: []string{metav1.DryRunAll}}, "refused": {refuse: busy}} {
		began, ended := 0, 0
		ctx := base.WithWork(registrytest.Context(t, "sandboxclaims", "release"), func(_ context.Context, bytes int) (func(), error) {
			began += bytes
			return func() { ended += bytes }, tc.refuse
		})
		release, ok := storage["sandboxclaims/release"].(*sandboxclaim.ReleaseREST)
		if !ok {
			t.Fatal("no release is served")
		}
		_, err := release.Create(ctx, claim.Name, &v1alpha1.SandboxClaimRelease{}, rest.ValidateAllObjectFunc, &metav1.CreateOptions{DryRun: tc.dryRun})
		if !errors.Is(err, tc.refuse) || began != 3*base.SandboxWork || (ended == began) != (err == nil) {
			t.Errorf("%s: %v, %d bytes of work began, and %d ended", name, err, began, ended)
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		if len(fixture.Raw(t, "sandboxes", name)) == 0 {
			t.Errorf("sandbox %s is gone", name)
		}
	}
}
