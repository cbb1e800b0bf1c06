// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// CachedPolicies selects the NetworkPolicies that this controller needs in the cache.
func CachedPolicies() cache.ByObject {
	return cache.ByObject{
		Label: labels.SelectorFromValidatedSet(labels.Set{v1alpha1.LabelCreatedBy: v1alpha1.CreatedByTemplate}),
	}
}

// policyOf returns the NetworkPolicy that a template should have, nil for none. namespace
// is that of the installation.
func policyOf(template *v1alpha1.SandboxTemplate, namespace string) *networkingv1.NetworkPolicy {
	if !podtemplate.HasNetworkPolicy(template) {
		return nil
	}
	owner := metav1.NewControllerRef(template, v1alpha1.SchemeGroupVersion.WithKind("SandboxTemplate"))
	owner.BlockOwnerDeletion = new(false)
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       template.Namespace,
			Name:            v1alpha1.NetworkPolicyName(template.Name),
			Labels:          labelsOf(template),
			OwnerReferences: []metav1.OwnerReference{*owner},
		},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{
				v1alpha1.LabelSandboxTemplate: v1alpha1.TemplateLabel(template.Name),
			}},
			// Both, whatever the rules: an empty list denies all.
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		},
	}
	if rules := template.Spec.NetworkPolicy; rules != nil {
		rules = rules.DeepCopy()
		policy.Spec.Ingress, policy.Spec.Egress = rules.Ingress, rules.Egress
	} else {
		policy.Spec.Ingress, policy.Spec.Egress = defaultIngress(namespace), defaultEgress()
	}
	setDefaults(&policy.Spec)
	return policy
}

// labelsOf returns the labels by which the policy of a template is known.
func labelsOf(template *v1alpha1.SandboxTemplate) map[string]string {
	return map[string]string{
		v1alpha1.LabelCreatedBy:       v1alpha1.CreatedByTemplate,
		v1alpha1.LabelSandboxTemplate: v1alpha1.TemplateLabel(template.Name),
	}
}

// defaultIngress lets in what Sandlot itself runs, such as a gateway to sandboxes.
func defaultIngress(namespace string) []networkingv1.NetworkPolicyIngressRule {
	return []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
	}}}}
}

// defaultEgress lets out to public addresses: neither to the cluster and what is
// beside it, nor to the metadata service of a cloud.
//
// Beside the private networks, clouds use those of carriers (100.64/10) and of
// benchmarks (198.18/15) for pods, Services and what they run themselves. Metadata is at
// 169.254.169.254 nearly everywhere, at 100.100.100.200 of Alibaba, at 192.0.0.192 of
// Oracle and at fd00:ec2::254 of AWS; that of Azure's agents is at 168.63.129.16, a
// public address.
func defaultEgress() []networkingv1.NetworkPolicyEgressRule {
	return []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{
		{IPBlock: &networkingv1.IPBlock{
			CIDR: "0.0.0.0/0", Except: []string{
				"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16",
				"100.64.0.0/10", "192.0.0.0/24", "198.18.0.0/15", "168.63.129.16/32",
			},
		}},
		{IPBlock: &networkingv1.IPBlock{CIDR: "::/0", Except: []string{"fc00::/7", "fe80::/10"}}},
	}}}
}

// setDefaults fills in what the server would, which otherwise looked like drift.
func setDefaults(spec *networkingv1.NetworkPolicySpec) {
	tcp := func(ports []networkingv1.NetworkPolicyPort) {
		for i := range ports {
			if ports[i].Protocol == nil {
				ports[i].Protocol = new(corev1.ProtocolTCP)
			}
		}
	}
	for i := range spec.Ingress {
		tcp(spec.Ingress[i].Ports)
	}
	for i := range spec.Egress {
		tcp(spec.Egress[i].Ports)
	}
}

// correct returns a corrected copy of a policy and reports whether that differs. It keeps
// labels and annotations that users added.
func correct(current, desired *networkingv1.NetworkPolicy) (*networkingv1.NetworkPolicy, bool) {
	corrected := current.DeepCopy()
	corrected.Spec = desired.Spec
	if corrected.Labels == nil {
		corrected.Labels = map[string]string{}
	}
	maps.Copy(corrected.Labels, desired.Labels)
	return corrected, !equality.Semantic.DeepEqual(current.Spec, corrected.Spec) || !equality.Semantic.DeepEqual(current.Labels, corrected.Labels)
}
