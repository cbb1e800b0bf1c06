// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package ownerrefs

import (
	"context"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// It can be enabled, and is off by default, as in kube-apiserver.
func TestOffByDefault(t *testing.T) {
	o := genericoptions.NewAdmissionOptions()
	AddTo(o)
	if !slices.Contains(o.RecommendedPluginOrder, PluginName) || !o.DefaultOffPlugins.Has(PluginName) {
		t.Errorf("%v, off by default %v", o.RecommendedPluginOrder, o.DefaultOffPlugins)
	}
	o.EnablePlugins = []string{PluginName}
	if errs := o.Validate(); len(errs) > 0 {
		t.Error(errs)
	}
	if made, err := o.Plugins.InitPlugin(PluginName, nil, admission.PluginInitializers{}); err == nil {
		t.Errorf("%T works without an authorizer", made)
	}
}

func TestValidate(t *testing.T) {
	const (
		remove        = "delete agents.kruise.io/sandboxes a in ns"
		finalizeSet   = "update agents.kruise.io/sandboxsets/finalizers pool in ns"
		finalizeNodes = "update /nodes/finalizers pool in "
	)
	ref := func(apiVersion, kind string, blocking *bool) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: "pool", UID: "1", BlockOwnerDeletion: blocking}
	}
	set := func(blocking *bool) []metav1.OwnerReference {
		return []metav1.OwnerReference{ref("agents.kruise.io/v1alpha1", "SandboxSet", blocking)}
	}
	sandbox := func(refs []metav1.OwnerReference) runtime.Object {
		return &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", OwnerReferences: refs}}
	}
	tests := map[string]struct {
		refs, old []metav1.OwnerReference
		update    bool
		byServer  bool
		needs     []string
		never     bool
	}{
		"created without owners":             {},
		"created with an owner":              {refs: set(nil)},
		"created with one it does not block": {refs: set(new(false))},
		"created with one it blocks":         {refs: set(new(true)), needs: []string{finalizeSet}},
		"blocks one of the cluster":          {refs: []metav1.OwnerReference{ref("v1", "Node", new(true))}, needs: []string{finalizeNodes}},
		"blocks one that is unknown":         {refs: []metav1.OwnerReference{ref("example.com/v1", "What", new(true))}, never: true},
		"blocks a bad one":                   {refs: []metav1.OwnerReference{ref("a/b/c", "What", new(true))}, never: true},
		"the server's own":                   {refs: set(new(true)), byServer: true},
		"unchanged":                          {update: true, refs: set(new(true)), old: set(new(true))},
		"given an owner":                     {update: true, refs: set(nil), needs: []string{remove}},
		"taken from its owner":               {update: true, old: set(new(true)), needs: []string{remove}},
		"blocks from now on":                 {update: true, refs: set(new(true)), old: set(nil), needs: []string{remove, finalizeSet}},
		"blocks no longer":                   {update: true, refs: set(new(false)), old: set(new(true)), needs: []string{remove}},
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.SchemeGroupVersion.WithKind("SandboxSet"), meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "Node"}, meta.RESTScopeRoot)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			validate := func(rights ...string) error {
				p := &plugin{Handler: admission.NewHandler(admission.Create, admission.Update), mapper: mapper}
				p.authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
					resource := a.GetAPIGroup() + "/" + a.GetResource()
					if a.GetSubresource() != "" {
						resource += "/" + a.GetSubresource()
					}
					if slices.Contains(rights, strings.Join([]string{a.GetVerb(), resource, a.GetName(), "in", a.GetNamespace()}, " ")) && a.GetUser().GetName() == "ann" {
						return authorizer.DecisionAllow, "", nil
					}
					return authorizer.DecisionNoOpinion, "no", nil
				})
				ctx, operation, old := t.Context(), admission.Create, runtime.Object(nil)
				if tc.update {
					operation, old = admission.Update, sandbox(tc.old)
				}
				if tc.byServer {
					ctx = ByServer(ctx)
				}
				return p.Validate(ctx, admission.NewAttributesRecord(sandbox(tc.refs), old, v1alpha1.SchemeGroupVersion.WithKind("Sandbox"), "ns", "a",
					v1alpha1.SchemeGroupVersion.WithResource("sandboxes"), "", operation, nil, false, &user.DefaultInfo{Name: "ann"}), nil)
			}
			if err := validate(tc.needs...); tc.never != (err != nil) {
				t.Errorf("with the rights: %v", err)
			}
			for i := range tc.needs {
				if err := validate(slices.Delete(slices.Clone(tc.needs), i, i+1)...); !apierrors.IsForbidden(err) {
					t.Errorf("without %s: %v", tc.needs[i], err)
				}
			}
		})
	}
}
