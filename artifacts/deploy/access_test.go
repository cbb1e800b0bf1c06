// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"slices"
	"testing"

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
					if slices.Contains(rule.Resources, resource) {
						t.Errorf("ClusterRole %s gives %v on %s in every namespace", role.Name, rule.Verbs, resource)
					}
				}
				for _, verb := range []string{"impersonate", "escalate", "bind"} {
					if slices.Contains(rule.Verbs, verb) {
						t.Errorf("ClusterRole %s gives %s", role.Name, verb)
					}
				}
			}
		}
	})
}
