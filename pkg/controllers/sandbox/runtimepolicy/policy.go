// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimepolicy

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/callers"
)

// policyOf returns the policy that a namespace should have. It has no egress rules: what a
// sandbox may reach is for its template to say. It does not let in the gateway, which connects
// only to sandboxes of teams: their namespaces have a policy for that.
func policyOf(namespace string, from callers.Callers) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      v1alpha1.AgentRuntimesPolicy,
			Labels:    labelsOfPolicy(),
		},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelAgentRuntime: v1alpha1.AgentRuntimeTrue}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     from.Ingress(callers.APIServer),
		},
	}
}

// labelsOfPolicy are the labels by which a policy is known as one that was made here.
func labelsOfPolicy() map[string]string {
	return map[string]string{v1alpha1.LabelCreatedBy: v1alpha1.CreatedByAgentRuntimes}
}

// correct returns a copy of a policy with the desired rules, and reports whether it had
// others. It keeps metadata that users added.
func correct(current, desired *networkingv1.NetworkPolicy) (*networkingv1.NetworkPolicy, bool) {
	corrected := current.DeepCopy()
	corrected.Spec = desired.Spec
	return corrected, !equality.Semantic.DeepEqual(current.Spec, corrected.Spec)
}
