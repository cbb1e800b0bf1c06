// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// What may do everything of a sort may do what we have not thought of.
func TestNoWildcards(t *testing.T) {
	each(t, func(t *testing.T, objects manifests) {
		for name, rules := range rulesByRole(objects) {
			if len(rules) == 0 {
				t.Errorf("%s allows nothing", name)
			}
			for _, rule := range rules {
				for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs} {
					if slices.ContainsFunc(list, func(s string) bool { return s == "*" || s == "*/*" || s == "/*" }) {
						t.Errorf("%s has a wildcard: %v", name, rule)
					}
				}
			}
		}
	})
}

func rulesByRole(objects manifests) map[string][]rbacv1.PolicyRule {
	rules := map[string][]rbacv1.PolicyRule{}
	for _, role := range of[*rbacv1.Role](objects) {
		rules["Role "+role.Name] = role.Rules
	}
	for _, role := range of[*rbacv1.ClusterRole](objects) {
		rules["ClusterRole "+role.Name] = role.Rules
	}
	return rules
}

// Secrets can be read in our own namespace only, and nothing that would let a
// taken over controller become somebody else is there at all.
func TestNoEscalation(t *testing.T) {
	each(t, func(t *testing.T, objects manifests) {
		for _, role := range of[*rbacv1.ClusterRole](objects) {
			for _, rule := range role.Rules {
				for _, resource := range []string{"secrets", "configmaps", "serviceaccounts/token", "pods/exec", "pods/ephemeralcontainers", "nodes", "roles", "clusterroles"} {
					ofUsers := role.Name == commandsRole && resource == "pods/exec"
					// Kubernetes has one of this name, in kube-system, for extension servers to read.
					ofFrontProxy := resource == "configmaps" && slices.Equal(rule.ResourceNames, []string{"extension-apiserver-authentication"})
					if slices.Contains(rule.Resources, resource) && !ofUsers && !ofFrontProxy {
						t.Errorf("ClusterRole %s gives %v on %s in every namespace", role.Name, rule.Verbs, resource)
					}
				}
				for _, verb := range []string{"impersonate", "escalate", "bind"} {
					// TestE2BAccess looks at this one.
					forTeams := role.Name == gatewayName && verb == "impersonate"
					if slices.Contains(rule.Verbs, verb) && !forTeams {
						t.Errorf("ClusterRole %s gives %s", role.Name, verb)
					}
				}
			}
		}
	})
}

// commandsRole is for users who run commands in their sandboxes.
const commandsRole = "sandlot-sandbox-user"

// TestCommandsAreForUsers: the install binds the right to run commands in pods to no one.
func TestCommandsAreForUsers(t *testing.T) {
	each(t, func(t *testing.T, objects manifests) {
		if len(rulesByRole(objects)["ClusterRole "+commandsRole]) == 0 {
			t.Fatalf("there is no %s", commandsRole)
		}
		bound := func(ref rbacv1.RoleRef) {
			if ref.Name == commandsRole {
				t.Errorf("%s is bound", commandsRole)
			}
		}
		for _, binding := range of[*rbacv1.ClusterRoleBinding](objects) {
			bound(binding.RoleRef)
		}
		for _, binding := range of[*rbacv1.RoleBinding](objects) {
			bound(binding.RoleRef)
		}
	})
}

// TestDryRunsOnly: the right to create pods everywhere comes only together with the
// policy that makes no more of it than a question.
func TestDryRunsOnly(t *testing.T) {
	const name, account = "sandlot-apiserver-dry-runs", `"^system:serviceaccount:[^:]+:sandlot-apiserver$"`
	each(t, func(t *testing.T, objects manifests) {
		mayCreate := slices.ContainsFunc(rulesByRole(objects)["ClusterRole sandlot-apiserver"], func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.Resources, "pods") && slices.Contains(rule.Verbs, "create")
		})
		if !mayCreate {
			t.Fatal("sandlot-apiserver may not create pods: has this test a reason still?")
		}
		for _, binding := range of[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](objects) {
			if binding.Spec.PolicyName == name && slices.Equal(binding.Spec.ValidationActions, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}) {
				for _, policy := range of[*admissionregistrationv1.ValidatingAdmissionPolicy](objects) {
					if policy.Name == name && strings.Contains(policy.Spec.MatchConditions[0].Expression, account) {
						return
					}
				}
			}
		}
		t.Error("sandlot-apiserver may create pods that are no dry runs")
	})
}
