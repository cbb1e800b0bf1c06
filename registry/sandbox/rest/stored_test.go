// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	extensionsv1beta1 "github.com/sandlot-io/sandlot/apis/extensions/v1beta1"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
)

// What comes in the words of agent-sandbox is in etcd, regardless of who wrote it there,
// to the byte what a program would store that knows of agents.kruise.io alone.
func TestStoredInOneGroup(t *testing.T) {
	fixture := registrytest.New(t)
	stores, err := NewStores(fixture.Scheme, fixture)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stores.SandboxSets.Destroy()
		stores.SandboxTemplates.Destroy()
		stores.Sandboxes.Destroy()
	})
	alone := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(alone); err != nil {
		t.Fatal(err)
	}
	codec := serializer.NewCodecFactory(alone).LegacyCodec(v1alpha1.SchemeGroupVersion)

	for _, tc := range []struct {
		kind, resource, request string
		object                  runtime.Object
	}{
		{
			"SandboxClaim", "sandboxclaims",
			`{"metadata":{"name":"a","namespace":"team-a"},"spec":{"sandboxTemplateRef":{"name":"t"},"lifecycle":{},"env":[{"name":"A","value":"b"}]}}`,
			&v1alpha1.SandboxClaim{},
		},
		{
			"SandboxTemplate", "sandboxtemplates",
			`{"metadata":{"name":"a","namespace":"team-a"},"spec":{"podTemplate":{"spec":{"newField":1,"containers":[]}},"networkPolicy":{"egress":[{}]}}}`,
			&v1alpha1.SandboxTemplate{},
		},
		{
			"SandboxWarmPool", "sandboxsets",
			`{"metadata":{"name":"a","namespace":"team-a"},"spec":{"sandboxTemplateRef":{"name":"t"}}}`,
			&v1alpha1.SandboxSet{},
		},
	} {
		t.Run(tc.kind, func(t *testing.T) {
			gvk := extensionsv1beta1.SchemeGroupVersion.WithKind(tc.kind)
			hub := schema.GroupVersion{Group: gvk.Group, Version: runtime.APIVersionInternal}
			decoded, _, err := fixture.Codecs.UniversalDecoder(hub).Decode([]byte(tc.request), &gvk, tc.object)
			if err != nil {
				t.Fatal(err)
			}
			want, err := runtime.Encode(codec, decoded)
			if err != nil {
				t.Fatal(err)
			}

			group := schema.GroupResource{Group: v1alpha1.GroupName, Resource: tc.resource}
			resource := etcdtxn.NewResource(fixture.Config.ForResource(group), group.Group+"/"+group.Resource)
			txn := etcdtxn.NewClient(fixture.Etcd()).Txn()
			if err := txn.Create(t.Context(), resource, resource.Key(registrytest.Namespace, "a"), decoded.DeepCopyObject()); err != nil {
				t.Fatal(err)
			}
			if err := txn.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(fixture.Raw(t, tc.resource, "a"))); diff != "" {
				t.Errorf("by a transaction (-want +stored):\n%s", diff)
			}

			store := map[string]*genericregistry.Store{"sandboxsets": stores.SandboxSets, "sandboxtemplates": stores.SandboxTemplates}[tc.resource]
			if store == nil {
				return // claims are written by transactions
			}
			key := resource.Key(registrytest.Namespace, "b")
			if err := store.Storage.Create(t.Context(), key, decoded, nil, 0, false); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(fixture.Raw(t, tc.resource, "b"))); diff != "" {
				t.Errorf("by the store (-want +stored):\n%s", diff)
			}
		})
	}
}
