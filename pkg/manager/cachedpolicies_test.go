// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/incomplete"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/service"
)

func TestCachedPolicies(t *testing.T) {
	for by, want := range map[string]bool{
		v1alpha1.CreatedByTemplate: true, v1alpha1.CreatedByAgentRuntimes: true, v1alpha1.CreatedBySandbox: false, "me": false,
	} {
		if got := cachedPolicies().Label.Matches(labels.Set{v1alpha1.LabelCreatedBy: by}); got != want {
			t.Errorf("%s: %v", by, got)
		}
	}
}

// TestLargeObjectsAreNotCached: what users may make large is not whole in the cache then.
func TestLargeObjectsAreNotCached(t *testing.T) {
	policy := &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Ingress: make([]networkingv1.NetworkPolicyIngressRule, 2000)}}
	template := &corev1.PodTemplate{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Tolerations: make([]corev1.Toleration, 2000)}}}
	port := &corev1.Service{Spec: corev1.ServiceSpec{Ports: make([]corev1.ServicePort, 2000)}}
	for object, cached := range map[client.Object]cache.ByObject{policy: cachedPolicies(), template: cachedPodTemplates(), port: service.CachedServices()} {
		if _, err := cached.Transform(object); err != nil || !incomplete.Is(object) {
			t.Errorf("%T: %v", object, err)
		}
	}
	if policy.Spec.Ingress != nil || template.Template.Spec.Tolerations != nil || port.Spec.Ports != nil {
		t.Error("items are in the cache")
	}
}
