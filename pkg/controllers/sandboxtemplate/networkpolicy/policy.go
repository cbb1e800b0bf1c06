// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/callers"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// policyOf returns the NetworkPolicy that a template should have, nil for none. from are
// those whom the default lets in.
//
// keeper, the template's own namespace, owns the policy too. So the garbage collector
// takes the policy from a template that is deleted, in the foreground as well, and leaves
// it: that is for Controller.release, when no sandbox is left that it is for.
func policyOf(template *v1alpha1.SandboxTemplate, from callers.Callers, keeper metav1.OwnerReference) *networkingv1.NetworkPolicy {
	if !podtemplate.HasNetworkPolicy(template) {
		return nil
	}
	owner := metav1.NewControllerRef(template, v1alpha1.SchemeGroupVersion.WithKind("SandboxTemplate"))
	owner.BlockOwnerDeletion = new(false)
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       template.Namespace,
			Name:            v1alpha1.NetworkPolicyName(template.Name),
			Labels:          labelsOf(template.Name),
			OwnerReferences: []metav1.OwnerReference{*owner, keeper},
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
		policy.Spec.Ingress, policy.Spec.Egress = from.Ingress(callers.APIServer, callers.Gateway), defaultEgress()
	}
	setDefaults(&policy.Spec)
	return policy
}

// labelsOf returns the labels by which the policy of a template of a name is known.
func labelsOf(template string) map[string]string {
	return map[string]string{
		v1alpha1.LabelCreatedBy:       v1alpha1.CreatedByTemplate,
		v1alpha1.LabelSandboxTemplate: v1alpha1.TemplateLabel(template),
	}
}

// isLeft reports whether a policy was made for a template of a name: it has the labels,
// is kept by its namespace, and no other object controls it.
func isLeft(policy *networkingv1.NetworkPolicy, template string) bool {
	isKeeper := func(o metav1.OwnerReference) bool { return o.APIVersion == "v1" && o.Kind == "Namespace" }
	by := metav1.GetControllerOfNoCopy(policy)
	return labels.SelectorFromSet(labelsOf(template)).Matches(labels.Set(policy.Labels)) &&
		slices.ContainsFunc(policy.OwnerReferences, isKeeper) && (by == nil || v1alpha1.OwnerKind(by) == "SandboxTemplate" && by.Name == template)
}

// keptBy is the reference by which a namespace keeps a policy from the garbage collector.
func keptBy(namespace *corev1.Namespace) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Namespace", Name: namespace.Name, UID: namespace.UID,
	}
}

// defaultEgress lets out to public addresses: neither to the cluster and what is
// beside it, nor to the metadata service of a cloud.
//
// Beside the private networks, clouds use those of carriers (100.64/10), of benchmarks
// (198.18/15) and the reserved ones (240/4) for pods, Services and what they run
// themselves. Private addresses are also behind public ones that stand for them: NAT64
// (64:ff9b::/96, 64:ff9b:1::/48), 6to4 (2002::/16, 192.88.99/24) and Teredo (2001::/32).
// Addresses of IPv4 in IPv6 (::ffff:0:0/96) are on no wire. Metadata is at
// 169.254.169.254 nearly everywhere, at 100.100.100.200 of Alibaba, at 192.0.0.192 of
// Oracle and at fd00:ec2::254 of AWS; that of Azure's agents is at 168.63.129.16, a
// public address.
func defaultEgress() []networkingv1.NetworkPolicyEgressRule {
	return []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{
		{IPBlock: &networkingv1.IPBlock{
			CIDR: "0.0.0.0/0", Except: []string{
				"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16",
				"100.64.0.0/10", "192.0.0.0/24", "198.18.0.0/15", "168.63.129.16/32",
				"192.88.99.0/24", "224.0.0.0/4", "240.0.0.0/4",
			},
		}},
		{IPBlock: &networkingv1.IPBlock{
			CIDR: "::/0", Except: []string{
				"fc00::/7", "fe80::/10", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16", "fec0::/10", "ff00::/8",
			},
		}},
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
// labels, annotations and owners that users added.
func correct(current, desired *networkingv1.NetworkPolicy) (*networkingv1.NetworkPolicy, bool) {
	corrected := current.DeepCopy()
	corrected.Spec = desired.Spec
	if corrected.Labels == nil {
		corrected.Labels = map[string]string{}
	}
	maps.Copy(corrected.Labels, desired.Labels)
	kept := true
	for _, owner := range desired.OwnerReferences {
		has := func(o metav1.OwnerReference) bool { return o.UID == owner.UID }
		if owner.Controller == nil && !slices.ContainsFunc(corrected.OwnerReferences, has) {
			corrected.OwnerReferences, kept = append(corrected.OwnerReferences, owner), false
		}
	}
	return corrected, !kept || !equality.Semantic.DeepEqual(current.Spec, corrected.Spec) || !equality.Semantic.DeepEqual(current.Labels, corrected.Labels)
}
