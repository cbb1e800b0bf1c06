// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
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

// TestLargePoliciesAreNotCached: wherever a policy has its items, they do not fill the cache, and what is made is there whole.
func TestLargePoliciesAreNotCached(t *testing.T) {
	const many = 2000
	selector := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: make([]string, many)}}}
	peers := []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: make([]string, many)}}}
	for name, tc := range map[string]struct {
		spec networkingv1.NetworkPolicySpec
		kept bool
	}{
		"a few":    {networkingv1.NetworkPolicySpec{Ingress: make([]networkingv1.NetworkPolicyIngressRule, 200)}, true},
		"ingress":  {networkingv1.NetworkPolicySpec{Ingress: make([]networkingv1.NetworkPolicyIngressRule, many)}, false},
		"egress":   {networkingv1.NetworkPolicySpec{Egress: make([]networkingv1.NetworkPolicyEgressRule, many)}, false},
		"ports":    {networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{Ports: make([]networkingv1.NetworkPolicyPort, many)}}}, false},
		"peers":    {networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: make([]networkingv1.NetworkPolicyPeer, many)}}}, false},
		"excepts":  {networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: peers}}}, false},
		"selector": {networkingv1.NetworkPolicySpec{PodSelector: selector}, false},
		"peer's selector": {networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{
			{To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &selector}}},
		}}, false},
	} {
		policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", ManagedFields: make([]metav1.ManagedFieldsEntry, 1)}, Spec: tc.spec}
		cached, err := cachedPolicies().Transform(policy)
		if err != nil {
			t.Fatal(err)
		}
		got := cached.(*networkingv1.NetworkPolicy)
		if kept := equality.Semantic.DeepEqual(got.Spec, tc.spec); kept != tc.kept || got.Name != "p" || got.ManagedFields != nil {
			t.Errorf("%s: the spec is kept: %t", name, kept)
		}
	}
}
