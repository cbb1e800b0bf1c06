// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxtemplate_test

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxtemplate"
)

// may allows one verb on the set "pool".
type may string

func (m may) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetVerb() == string(m) && a.GetResource() == "sandboxsets" && a.GetName() == "pool" &&
		a.GetAPIGroup() == v1alpha1.GroupName && a.GetNamespace() == registrytest.Namespace {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func ofSet(template *v1alpha1.SandboxTemplate) {
	template.Labels = map[string]string{v1alpha1.LabelSandboxPool: "pool", v1alpha1.LabelTemplateHash: "h4sh"}
	template.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxSet", Name: "pool", UID: "1", Controller: new(true),
	}}
}

func ofNoOne(template *v1alpha1.SandboxTemplate) { template.OwnerReferences = nil }

// Who may write templates may not write those that a set makes its sandboxes of.
func TestRevisionsOfSets(t *testing.T) {
	fixture := registrytest.New(t)
	store, err := sandboxtemplate.NewStore(fixture.Scheme, fixture)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Destroy)
	deleted := metav1.Now()
	living, ending := &metav1.ObjectMeta{UID: "1"}, &metav1.ObjectMeta{UID: "1", DeletionTimestamp: &deleted}
	type change func(*v1alpha1.SandboxTemplate)
	plain := func(*v1alpha1.SandboxTemplate) {}
	labelled := func(key string) change {
		return func(s *v1alpha1.SandboxTemplate) { metav1.SetMetaDataLabel(&s.ObjectMeta, key, "x") }
	}
	for name, tc := range map[string]struct {
		old, write change // no old is a create, no write a deletion
		owner      *metav1.ObjectMeta
		allowed    []may // of adopt, delete and nothing
	}{
		"create":                {write: ofSet, owner: living, allowed: []may{"adopt"}},
		"create of a user":      {write: plain, owner: living, allowed: []may{"adopt", "delete", ""}},
		"make a set's":          {old: plain, write: ofSet, owner: living, allowed: []may{"adopt"}},
		"disown":                {old: ofSet, write: ofNoOne, owner: living, allowed: []may{"adopt"}},
		"disown of an ended":    {old: ofSet, write: ofNoOne, owner: ending, allowed: []may{"adopt", "delete", ""}},
		"disown of a gone":      {old: ofSet, write: ofNoOne, allowed: []may{"adopt", "delete", ""}},
		"another revision":      {old: ofSet, write: labelled(v1alpha1.LabelTemplateHash), owner: living, allowed: []may{"adopt"}},
		"a label of a user":     {old: ofSet, write: labelled("a"), owner: living, allowed: []may{"adopt", "delete", ""}},
		"a label of a user's":   {old: plain, write: labelled(v1alpha1.LabelTemplateHash), owner: living, allowed: []may{"adopt", "delete", ""}},
		"deletion":              {old: ofSet, owner: living, allowed: []may{"adopt", "delete"}},
		"deletion of a user's":  {old: plain, owner: living, allowed: []may{"adopt", "delete", ""}},
		"deletion of an ended":  {old: ofSet, owner: ending, allowed: []may{"adopt", "delete", ""}},
		"deletion with the set": {old: ofSet, allowed: []may{"adopt", "delete", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := registrytest.Context(t, "sandboxtemplates")
			template := registrytest.NewSandboxTemplate(strings.NewReplacer(" ", "-", "'", "").Replace(name))
			dryRun := []string{metav1.DryRunAll}
			if tc.old != nil {
				tc.old(template)
				if _, err := store.Create(ctx, template.DeepCopy(), rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			for _, verb := range []may{"adopt", "delete", ""} {
				r := sandboxtemplate.NewREST(fixture.Scheme, store, nil, verb, func(context.Context, string, *metav1.OwnerReference) (metav1.Object, error) {
					if tc.owner == nil {
						return nil, nil
					}
					return tc.owner, nil
				})
				attempts := map[string]func() error{
					"update": func() error {
						_, _, err := r.Update(ctx, template.Name, rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
							changed := old.DeepCopyObject().(*v1alpha1.SandboxTemplate)
							tc.write(changed)
							return changed, nil
						}), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{DryRun: dryRun})
						return err
					},
				}
				switch {
				case tc.old == nil:
					attempts = map[string]func() error{"create": func() error {
						created := template.DeepCopy()
						tc.write(created)
						_, err := r.Create(ctx, created, rest.ValidateAllObjectFunc, &metav1.CreateOptions{DryRun: dryRun})
						return err
					}}
				case tc.write == nil:
					attempts = map[string]func() error{"delete": func() error {
						_, _, err := r.Delete(ctx, template.Name, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{DryRun: dryRun})
						return err
					}}
				}
				want := false
				for _, allowed := range tc.allowed {
					want = want || allowed == verb
				}
				for what, attempt := range attempts {
					if err := attempt(); want && err != nil || !want && !apierrors.IsForbidden(err) {
						t.Errorf("%s with the right to %q: %v", what, verb, err)
					}
				}
			}
		})
	}
}

// A collection is no way around it, and namespaces can be emptied.
func TestDeleteCollectionOfRevisions(t *testing.T) {
	fixture := registrytest.New(t)
	store, err := sandboxtemplate.NewStore(fixture.Scheme, fixture)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Destroy)
	ctx := registrytest.Context(t, "sandboxtemplates")
	template := registrytest.NewSandboxTemplate("pool-h4sh")
	ofSet(template)
	if _, err := store.Create(ctx, template, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	deleteAll := func(verb may) error {
		_, err := sandboxtemplate.NewREST(fixture.Scheme, store, nil, verb, func(context.Context, string, *metav1.OwnerReference) (metav1.Object, error) {
			return &metav1.ObjectMeta{UID: "1"}, nil
		}).DeleteCollection(ctx, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}, nil)
		return err
	}
	if err := deleteAll(""); !apierrors.IsForbidden(err) {
		t.Errorf("without a right: %v", err)
	}
	if err := deleteAll("delete"); err != nil {
		t.Errorf("by who may delete the set: %v", err)
	}
	if _, err := store.Get(ctx, template.Name, &metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("afterwards: %v", err)
	}
}
