// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sandlot-io/sandlot/pkg/findings"
)

// Policies of the install.
const (
	dryRunsPolicy = "sandlot-apiserver-dry-runs"
	podsPolicy    = "sandlot-sandbox-pods"
)

// policies are the policies of a cluster.
type policies struct {
	there sets.Set[string]
	bound []admissionregistrationv1.ValidatingAdmissionPolicyBinding
	// network are those of the namespace of the install.
	network []networkingv1.NetworkPolicy
	// createsPods reports whether the API server has the right that dryRunsPolicy bounds.
	createsPods bool
}

func lookAtPolicies(ctx context.Context, c *cluster) ([]findings.Finding, string, error) {
	found := policies{there: sets.New[string]()}
	all, err := c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", err
	}
	for _, policy := range all.Items {
		found.there.Insert(policy.Name)
	}
	bindings, err := c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", err
	}
	network, err := c.kube.NetworkingV1().NetworkPolicies(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", err
	}
	found.bound, found.network = bindings.Items, network.Items
	if found.createsPods, err = c.may(ctx, apiServer, right{resource: "pods"}, "create"); err != nil {
		return nil, "", err
	}
	return judgePolicies(&found, c.namespace), "the policies that hold the programs and their pods are in force", nil
}

// inForce reports whether a policy is there and denies.
func (p *policies) inForce(name string) bool {
	return p.there.Has(name) && slices.ContainsFunc(p.bound, func(b admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool {
		return b.Spec.PolicyName == name && slices.Contains(b.Spec.ValidationActions, admissionregistrationv1.Deny) && b.Spec.MatchResources == nil
	})
}

func judgePolicies(p *policies, namespace string) (found []findings.Finding) {
	if p.createsPods && !p.inForce(dryRunsPolicy) {
		found = append(found, problem(findings.Error, "ValidatingAdmissionPolicy "+dryRunsPolicy,
			fmt.Sprintf("%s may create pods in every namespace, and no policy %s with a binding that denies holds it to dry runs", apiServer, dryRunsPolicy),
			"apply the policy and its binding again, or take the right away: docs/install.md, What each permission is for"))
	}
	if !p.inForce(podsPolicy) {
		found = append(found, problem(findings.Warning, "ValidatingAdmissionPolicy "+podsPolicy,
			fmt.Sprintf("no policy %s with a binding that denies is in force, so pods of sandboxes can be deleted past their sandboxes", podsPolicy),
			"apply it again, if it was not left out on purpose: docs/operations.md"))
	}
	if !slices.ContainsFunc(p.network, deniesAll) {
		found = append(found, problem(findings.Warning, "Namespace "+namespace,
			fmt.Sprintf("no NetworkPolicy in namespace %s denies what none allows, so any pod reaches etcd and the metrics", namespace),
			"apply the install's NetworkPolicy default-deny again: docs/install.md, Who can reach what"))
	}
	return found
}

// deniesAll reports whether a NetworkPolicy denies all that comes to the pods of its
// namespace, unless another one allows it.
func deniesAll(policy networkingv1.NetworkPolicy) bool {
	spec := policy.Spec
	return len(spec.PodSelector.MatchLabels)+len(spec.PodSelector.MatchExpressions) == 0 && len(spec.Ingress) == 0 &&
		slices.Contains(spec.PolicyTypes, networkingv1.PolicyTypeIngress)
}
