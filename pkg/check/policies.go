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
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/pkg/findings"
	"github.com/sandlot-io/sandlot/pkg/install/dryrunpolicy"
)

// Policies of the install, beside that of dry runs.
const (
	podsPolicy     = "sandlot-sandbox-pods"
	priorityPolicy = "sandlot-priority"
)

// policies are the policies of a cluster.
type policies struct {
	there map[string]*admissionregistrationv1.ValidatingAdmissionPolicy
	bound []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
	// network are those of the namespace of the install.
	network []networkingv1.NetworkPolicy
	// createsPods reports whether the API server has the right that dryrunpolicy bounds.
	createsPods bool
}

func lookAtPolicies(ctx context.Context, c *cluster) ([]findings.Finding, string, error) {
	found := policies{there: map[string]*admissionregistrationv1.ValidatingAdmissionPolicy{}}
	all, err := c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", err
	}
	for i := range all.Items {
		found.there[all.Items[i].Name] = &all.Items[i]
	}
	bindings, err := c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", err
	}
	network, err := c.kube.NetworkingV1().NetworkPolicies(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", err
	}
	for i := range bindings.Items {
		found.bound = append(found.bound, &bindings.Items[i])
	}
	found.network = network.Items
	if found.createsPods, err = c.may(ctx, apiServer, right{resource: "pods"}, "create"); err != nil {
		return nil, "", err
	}
	return judgePolicies(&found, c.namespace), "the policies that hold the programs and their pods are in force", nil
}

// inForce reports whether a policy is there, has the failure policy that is meant, and denies
// everywhere. What it says is not looked at.
func (p *policies) inForce(name string, failure admissionregistrationv1.FailurePolicyType) bool {
	policy := p.there[name]
	return policy != nil && policy.Spec.ParamKind == nil &&
		ptr.Deref(policy.Spec.FailurePolicy, admissionregistrationv1.Fail) == failure &&
		slices.ContainsFunc(p.bound, func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool {
			return dryrunpolicy.Denies(b, name)
		})
}

func judgePolicies(p *policies, namespace string) (found []findings.Finding) {
	user := fmt.Sprintf("system:serviceaccount:%s:%s", namespace, apiServer)
	if err := dryrunpolicy.Holds(user, p.there[dryrunpolicy.Name], p.bound); p.createsPods && err != nil {
		found = append(found, problem(findings.Error, "ValidatingAdmissionPolicy "+dryrunpolicy.Name,
			fmt.Sprintf("%s may create pods in every namespace, and nothing holds it to dry runs: %v", apiServer, err),
			"apply the policy and its binding again, or take the right away: docs/install.md, What each permission is for"))
	}
	if !p.inForce(priorityPolicy, admissionregistrationv1.Fail) {
		found = append(found, problem(findings.Warning, "ValidatingAdmissionPolicy "+priorityPolicy,
			fmt.Sprintf("no policy %s with a binding that denies is in force, so anyone's pods can take the places of others by PriorityClass sandlot-system", priorityPolicy),
			"apply the policy and its binding again"))
	}
	// No pod of a cluster is kept by an error in it.
	if !p.inForce(podsPolicy, admissionregistrationv1.Ignore) {
		found = append(found, problem(findings.Warning, "ValidatingAdmissionPolicy "+podsPolicy,
			fmt.Sprintf("no policy %s with a binding that denies is in force, so pods of sandboxes can be deleted past their sandboxes", podsPolicy),
			"apply it again, if it was not left out on purpose: docs/operations.md"))
	}
	if !slices.ContainsFunc(p.network, deniesAll) {
		found = append(found, problem(findings.Warning, "Namespace "+namespace,
			fmt.Sprintf("no NetworkPolicy in namespace %s denies what none allows, so any pod reaches etcd and the metrics", namespace),
			"apply the install's NetworkPolicy default-deny again: docs/install.md, Network access"))
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
