// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// resources are those that a ResourceQuota can count, as count/<resource>.<group>. Those of
// one line are the same objects in the words of two groups: a write through either is charged
// to a quota that names either, and twice only to one that names both, once for each name.
var resources = [][]schema.GroupResource{
	{v1alpha1.Resource("sandboxclaims"), {Group: v1alpha1.ExtensionsGroup, Resource: "sandboxclaims"}},
	{v1alpha1.Resource("sandboxes"), {Group: v1alpha1.AgentsGroup, Resource: "sandboxes"}},
	{v1alpha1.Resource("sandboxsets"), {Group: v1alpha1.ExtensionsGroup, Resource: "sandboxwarmpools"}},
	{v1alpha1.Resource("sandboxtemplates"), {Group: v1alpha1.ExtensionsGroup, Resource: "sandboxtemplates"}},
}

type chargeKey struct{}

// WithCharge returns a context in which the admission of one object charges for n
// of its kind, all or none. Several objects that come into being together are
// charged by the last of them, so that nothing is charged for those that do not.
func WithCharge(ctx context.Context, n int) context.Context {
	return context.WithValue(ctx, chargeKey{}, n)
}

// Initializer tells the plugin what to count. What is used already it reads in the
// status of the quota.
func Initializer() admission.PluginInitializer {
	var evaluators []quota.Evaluator
	for _, names := range resources {
		for i, name := range names {
			own, other := generic.NewObjectCountEvaluator(name, nil, ""), generic.NewObjectCountEvaluator(names[1-i], nil, "")
			evaluators = append(evaluators, evaluator{bothNames{own, other}})
		}
	}
	return pluginInitializer{generic.NewConfiguration(evaluators, nil)}
}

type pluginInitializer struct {
	configuration quota.Configuration
}

// Initialize implements admission.PluginInitializer.
func (i pluginInitializer) Initialize(plugin admission.Interface) {
	if wants, ok := plugin.(initializer.WantsQuotaConfiguration); ok {
		wants.SetQuotaConfiguration(i.configuration)
	}
}

// several stands for n objects like the one in it.
type several struct {
	runtime.Object
	n int
}

// severalAttributes are the attributes of several objects.
type severalAttributes struct {
	admission.Attributes
	several several
}

// GetObject implements admission.Attributes.
func (a severalAttributes) GetObject() runtime.Object { return a.several }

// bothNames counts an object under both names of its resource.
type bothNames struct {
	quota.Evaluator
	other quota.Evaluator
}

// MatchingResources implements quota.Evaluator.
func (e bothNames) MatchingResources(input []corev1.ResourceName) []corev1.ResourceName {
	return append(e.Evaluator.MatchingResources(input), e.other.MatchingResources(input)...)
}

// Usage implements quota.Evaluator.
func (e bothNames) Usage(object runtime.Object) (corev1.ResourceList, error) {
	own, err := e.Evaluator.Usage(object)
	if err != nil {
		return nil, err
	}
	other, err := e.other.Usage(object)
	return quota.Add(own, other), err
}

// Matches implements quota.Evaluator: a quota that names either concerns the object.
func (e bothNames) Matches(resourceQuota *corev1.ResourceQuota, object runtime.Object) (bool, error) {
	matches, err := e.Evaluator.Matches(resourceQuota, object)
	if matches || err != nil {
		return matches, err
	}
	return e.other.Matches(resourceQuota, object)
}

// evaluator counts objects, and several for what they are.
type evaluator struct {
	quota.Evaluator
}

// Usage implements quota.Evaluator.
func (e evaluator) Usage(object runtime.Object) (corev1.ResourceList, error) {
	these, ok := object.(several)
	if !ok {
		return e.Evaluator.Usage(object)
	}
	usage, err := e.Evaluator.Usage(these.Object)
	if err != nil {
		return nil, err
	}
	for name, quantity := range usage {
		quantity.Mul(int64(these.n))
		usage[name] = quantity
	}
	return usage, nil
}
