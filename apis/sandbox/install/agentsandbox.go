// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	agentsv1alpha1 "github.com/sandlot-io/sandlot/apis/agents/v1alpha1"
	agentsv1beta1 "github.com/sandlot-io/sandlot/apis/agents/v1beta1"
	extensionsv1alpha1 "github.com/sandlot-io/sandlot/apis/extensions/v1alpha1"
	extensionsv1beta1 "github.com/sandlot-io/sandlot/apis/extensions/v1beta1"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// agentSandbox are the kinds of agent-sandbox, with the kinds that they are stored as.
var agentSandbox = []struct {
	group, kind  string
	object, list runtime.Object
}{
	{v1alpha1.ExtensionsGroup, "SandboxClaim", &v1alpha1.SandboxClaim{}, &v1alpha1.SandboxClaimList{}},
	{v1alpha1.ExtensionsGroup, "SandboxTemplate", &v1alpha1.SandboxTemplate{}, &v1alpha1.SandboxTemplateList{}},
	{v1alpha1.ExtensionsGroup, "SandboxWarmPool", &v1alpha1.SandboxSet{}, &v1alpha1.SandboxSetList{}},
	{v1alpha1.AgentsGroup, "Sandbox", &v1alpha1.Sandbox{}, &v1alpha1.SandboxList{}},
}

// installAgentSandbox registers the groups of agent-sandbox. Their internal version is the
// Go types of v1alpha1 once more, under the names of their kinds: so one store serves both
// APIs, and the generic server converts where it decodes and encodes, also for server-side
// apply by managers of either.
//
// It comes after the group of v1alpha1: what asks the scheme for the kind of such a Go type
// without naming a group gets the first that was registered, and that is how it is stored.
// Selecting by fields stays what custom resources have: name and namespace.
func installAgentSandbox(scheme *runtime.Scheme) {
	for _, add := range []func(*runtime.Scheme) error{
		agentsv1beta1.AddToScheme, agentsv1alpha1.AddToScheme, agentsv1beta1.AddConversions, agentsv1alpha1.AddConversions,
		extensionsv1beta1.AddToScheme, extensionsv1alpha1.AddToScheme, extensionsv1beta1.AddConversions, extensionsv1alpha1.AddConversions,
	} {
		utilruntime.Must(add(scheme))
	}
	for _, k := range agentSandbox {
		internal := schema.GroupVersion{Group: k.group, Version: runtime.APIVersionInternal}
		scheme.AddKnownTypeWithName(internal.WithKind(k.kind), k.object)
		scheme.AddKnownTypeWithName(internal.WithKind(k.kind+"List"), k.list)
	}
	utilruntime.Must(scheme.SetVersionPriority(agentsv1beta1.SchemeGroupVersion, agentsv1alpha1.SchemeGroupVersion))
	utilruntime.Must(scheme.SetVersionPriority(extensionsv1beta1.SchemeGroupVersion, extensionsv1alpha1.SchemeGroupVersion))
}
