// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimepolicy

import (
	"maps"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/callers"
)

// selected are the labels of the pods that the policy is for.
var selected = map[string]string{v1alpha1.LabelAgentRuntime: v1alpha1.AgentRuntimeTrue}

// policyOf returns the policy that a namespace should have. It has no egress rules: what a
// sandbox may reach is for its template to say.
func policyOf(namespace string, from callers.Callers) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      v1alpha1.AgentRuntimesPolicy,
			Labels:    map[string]string{v1alpha1.LabelCreatedBy: v1alpha1.CreatedByAgentRuntimes},
		},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: maps.Clone(selected)},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     from.Ingress(),
		},
	}
}

// isOurs reports whether a policy was made here.
func isOurs(policy *networkingv1.NetworkPolicy) bool {
	return policy.Labels[v1alpha1.LabelCreatedBy] == v1alpha1.CreatedByAgentRuntimes
}

// correct returns a copy of a policy with the desired rules, or nil if it has them. It keeps
// metadata that users added.
func correct(current, desired *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
	if equality.Semantic.DeepEqual(current.Spec, desired.Spec) {
		return nil
	}
	corrected := current.DeepCopy()
	corrected.Spec = desired.Spec
	return corrected
}
