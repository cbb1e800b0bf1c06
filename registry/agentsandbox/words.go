// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentsandbox

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/agentsandbox/conversion"
)

var (
	claimWords = &conversion.Words{
		Resource:  schema.GroupResource{Group: v1alpha1.ExtensionsGroup, Resource: "sandboxclaims"},
		Singular:  schema.GroupResource{Group: v1alpha1.ExtensionsGroup, Resource: "sandboxclaim"},
		ShortName: "sandboxclaim",
		Fields:    map[string]string{"spec.warmPool": "spec.warmpool", "spec.templateName": "spec.warmPoolRef.name"},
	}
	templateWords = &conversion.Words{
		Resource:  schema.GroupResource{Group: v1alpha1.ExtensionsGroup, Resource: "sandboxtemplates"},
		Singular:  schema.GroupResource{Group: v1alpha1.ExtensionsGroup, Resource: "sandboxtemplate"},
		ShortName: "sandboxtemplate",
		Fields:    map[string]string{"spec.template": "spec.podTemplate"},
	}
	warmPoolWords = &conversion.Words{
		Resource:  schema.GroupResource{Group: v1alpha1.ExtensionsGroup, Resource: "sandboxwarmpools"},
		Singular:  schema.GroupResource{Group: v1alpha1.ExtensionsGroup, Resource: "sandboxwarmpool"},
		ShortName: "swp",
		Fields:    map[string]string{"spec.templateRef": "spec.sandboxTemplateRef", "status.availableReplicas": "status.readyReplicas"},
	}
	sandboxWords = &conversion.Words{
		Resource:  schema.GroupResource{Group: v1alpha1.AgentsGroup, Resource: "sandboxes"},
		Singular:  schema.GroupResource{Group: v1alpha1.AgentsGroup, Resource: "sandbox"},
		ShortName: "sandbox",
		Fields:    map[string]string{"spec.template": "spec.podTemplate", "spec.paused": "spec.operatingMode"},
	}
)

// updateTypes are how a pool follows its template. RollingUpdate is of pools that were made in
// agents.kruise.io, which are read and written back here, too.
var updateTypes = []v1alpha1.SandboxSetUpdateType{
	v1alpha1.SetUpdateRecreate, v1alpha1.SetUpdateOnReplenish, v1alpha1.SetUpdateRolling,
}

// checkWarmPool looks for what is no value of an enumeration.
func checkWarmPool(obj runtime.Object) field.ErrorList {
	set, ok := obj.(*v1alpha1.SandboxSet)
	if !ok {
		return nil
	}
	// One that was made before there were types has none.
	if is := set.Spec.UpdateStrategy.Type; is == "" || slices.Contains(updateTypes, is) {
		return nil
	}
	return field.ErrorList{field.NotSupported(field.NewPath("spec", "updateStrategy", "type"), set.Spec.UpdateStrategy.Type, updateTypes)}
}

// warmPoolSelector finds the sandboxes of a pool by the label that agent-sandbox gives them.
func warmPoolSelector(set *v1alpha1.SandboxSet) string {
	return labels.Set{v1alpha1.AgentLabelPool: v1alpha1.NameHash(set.Name)}.String()
}
