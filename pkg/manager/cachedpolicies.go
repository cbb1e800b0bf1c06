// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/incomplete"
)

// cachedPolicies selects the NetworkPolicies that controllers need in the cache: those that
// were made for templates and for agent-runtimes. The two controllers share one cache.
func cachedPolicies() cache.ByObject {
	made, err := labels.NewRequirement(v1alpha1.LabelCreatedBy, selection.In,
		[]string{v1alpha1.CreatedByTemplate, v1alpha1.CreatedByAgentRuntimes})
	if err != nil {
		panic(err) // constants
	}
	return cache.ByObject{
		Label:     labels.NewSelector().Add(*made),
		Transform: incomplete.Transform(func(p *networkingv1.NetworkPolicy) { p.Spec = networkingv1.NetworkPolicySpec{} }),
	}
}

// cachedPodTemplates selects the PodTemplates in the cache: all, because users make them.
func cachedPodTemplates() cache.ByObject {
	return cache.ByObject{Transform: incomplete.Transform(func(t *corev1.PodTemplate) { t.Template = corev1.PodTemplateSpec{} })}
}
