// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/decoding"
	"github.com/sandlot-io/sandlot/pkg/apiserver/scheme"
	"github.com/sandlot-io/sandlot/registry/agentsandbox"
)

// install serves storage as our group, and in the words of agent-sandbox. All groups are
// installed together, so that server-side apply in one of them knows the types of all.
func (c CompletedConfig) install(s *Server, storage map[string]rest.Storage, templates *templateLookup) error {
	provider := agentsandbox.Provider{
		Scheme: scheme.Scheme, Stored: storage, Templates: templates, CachedTemplates: templates.cached(),
		StrictClaims: c.extraConfig.StrictAgentSandboxClaims,
	}
	served, err := provider.NewStorage()
	if err != nil {
		return err
	}
	served[v1alpha1.GroupName] = storage
	var groups []*genericapiserver.APIGroupInfo
	for _, name := range []string{v1alpha1.GroupName, v1alpha1.ExtensionsGroup, v1alpha1.AgentsGroup} {
		group := genericapiserver.NewDefaultAPIGroupInfo(name, scheme.Scheme, metav1.ParameterCodec, scheme.Codecs)
		newSerializer := decoding.NewTextSerializer // the kinds of agent-sandbox have no protobuf
		if name == v1alpha1.GroupName {
			newSerializer = decoding.NewSerializer
		}
		group.NegotiatedSerializer = newSerializer(group.NegotiatedSerializer, scheme.Scheme)
		for _, version := range scheme.Scheme.PrioritizedVersionsForGroup(name) {
			here := agentsandbox.ServedIn(version, served[name])
			group.VersionedResourcesStorageMap[version.Version] = here
			if err := c.addKinds(version, here); err != nil {
				return err
			}
		}
		groups = append(groups, &group)
	}
	if err := s.GenericAPIServer.InstallAPIGroups(groups...); err != nil {
		return fmt.Errorf("installing the groups: %w", err)
	}
	return nil
}

// addKinds notes the kinds that patches of a version are checked by, but those of other
// groups, such as Scale.
func (c CompletedConfig) addKinds(version schema.GroupVersion, storage map[string]rest.Storage) error {
	for resource, store := range storage {
		kind, err := endpoints.GetResourceKind(version, store, scheme.Scheme)
		if err != nil {
			return fmt.Errorf("kind of %s: %w", resource, err)
		}
		if kind.Group == version.Group {
			c.kinds.Add(version, resource, kind)
		}
	}
	return nil
}

// newEquivalents returns the registry of what resources are the same objects in several
// groups. A webhook or a policy of one group with matchPolicy Equivalent, which is the
// default, sees the writes of all of them, as objects of its own.
func newEquivalents() runtime.EquivalentResourceRegistry {
	return runtime.NewEquivalentResourceRegistryWithIdentity(func(resource schema.GroupResource) string {
		switch resource {
		case schema.GroupResource{Group: v1alpha1.ExtensionsGroup, Resource: "sandboxwarmpools"}:
			return v1alpha1.Resource("sandboxsets").String()
		case schema.GroupResource{Group: v1alpha1.ExtensionsGroup, Resource: "sandboxclaims"},
			schema.GroupResource{Group: v1alpha1.ExtensionsGroup, Resource: "sandboxtemplates"},
			schema.GroupResource{Group: v1alpha1.AgentsGroup, Resource: "sandboxes"}:
			return v1alpha1.Resource(resource.Resource).String()
		}
		return "" // which is its own
	})
}
