// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// resources are those that a ResourceQuota can count, as
// count/<resource>.agents.kruise.io.
var resources = []string{"sandboxclaims", "sandboxes", "sandboxsets", "sandboxtemplates"}

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
	evaluators := make([]quota.Evaluator, 0, len(resources))
	for _, resource := range resources {
		evaluators = append(evaluators, evaluator{generic.NewObjectCountEvaluator(v1alpha1.Resource(resource), nil, "")})
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
