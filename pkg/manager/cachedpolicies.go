// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/ownedobject"
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
		Transform: ownedobject.WithoutLarge(policyItems, func(p *networkingv1.NetworkPolicy) { p.Spec = networkingv1.NetworkPolicySpec{} }),
	}
}

// policyItems counts what the lists of a policy have.
func policyItems(p *networkingv1.NetworkPolicy) int {
	n := len(p.Spec.PolicyTypes) + selectorItems(&p.Spec.PodSelector)
	for i := range p.Spec.Ingress {
		n += 1 + ruleItems(p.Spec.Ingress[i].Ports, p.Spec.Ingress[i].From)
	}
	for i := range p.Spec.Egress {
		n += 1 + ruleItems(p.Spec.Egress[i].Ports, p.Spec.Egress[i].To)
	}
	return n
}

func ruleItems(ports []networkingv1.NetworkPolicyPort, peers []networkingv1.NetworkPolicyPeer) int {
	n := len(ports) + len(peers)
	for i := range peers {
		n += selectorItems(peers[i].PodSelector) + selectorItems(peers[i].NamespaceSelector)
		if block := peers[i].IPBlock; block != nil {
			n += len(block.Except)
		}
	}
	return n
}

func selectorItems(s *metav1.LabelSelector) int {
	if s == nil {
		return 0
	}
	n := len(s.MatchLabels) + len(s.MatchExpressions)
	for i := range s.MatchExpressions {
		n += len(s.MatchExpressions[i].Values)
	}
	return n
}
