// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// authDelegator are the groups of what the role system:auth-delegator of Kubernetes gives.
var authDelegator = []string{"authentication.k8s.io", "authorization.k8s.io"}

// TestNeededRightsAreShipped: what the check reports as missing, an install has as it is
// shipped.
func TestNeededRightsAreShipped(t *testing.T) {
	rules := shippedRules(t)
	for account, all := range needed {
		for _, r := range all {
			if slices.Contains(authDelegator, r.group) {
				continue
			}
			for _, verb := range r.verbs {
				if !slices.ContainsFunc(rules[account], func(rule rbacv1.PolicyRule) bool { return gives(rule, r, verb) }) {
					t.Errorf("no shipped role of %s lets it %s %s", account, verb, &r)
				}
			}
		}
	}
}

// leftOut are rights that are shipped and whose lack the check does not report.
var leftOut = map[string][]right{
	controllerManager: {
		{resource: "events", verbs: []string{"create", "patch"}}, // of the leases: everything else is there without
	},
}

// TestShippedRightsAreNeeded: the lack of a right that is shipped is reported, or it is known
// why not.
func TestShippedRightsAreNeeded(t *testing.T) {
	rules := shippedRules(t)
	for _, account := range []string{apiServer, controllerManager} {
		known := slices.Concat(needed[account], leftOut[account])
		for _, r := range rightsOf(rules[account]) {
			if !slices.ContainsFunc(known, func(k right) bool {
				return k.group == r.group && k.resource == r.resource && k.subresource == r.subresource && k.name == r.name && slices.Contains(k.verbs, r.verbs[0])
			}) {
				t.Errorf("%s is given the right to %s %s, which is neither needed nor left out", account, r.verbs[0], &r)
			}
		}
	}
}

// rightsOf are the rights that rules give, one for each verb.
func rightsOf(rules []rbacv1.PolicyRule) (all []right) {
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					for _, verb := range rule.Verbs {
						r := right{group: group, name: name, verbs: []string{verb}}
						r.resource, r.subresource, _ = strings.Cut(resource, "/")
						all = append(all, r)
					}
				}
			}
		}
	}
	return all
}

func gives(rule rbacv1.PolicyRule, r right, verb string) bool {
	resource := r.resource
	if r.subresource != "" {
		resource += "/" + r.subresource
	}
	return slices.Contains(rule.Verbs, verb) && slices.Contains(rule.APIGroups, r.group) && slices.Contains(rule.Resources, resource) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, r.name))
}

// shippedRules are the rules of the roles whose names begin with that of a service account.
func shippedRules(t *testing.T) map[string][]rbacv1.PolicyRule {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "artifacts", "deploy", "bases", "access", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	rules := map[string][]rbacv1.PolicyRule{}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		reader := utilyaml.NewYAMLReader(bufio.NewReader(file))
		for {
			document, err := reader.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var role rbacv1.ClusterRole // or a Role, which is written alike
			if err := yaml.Unmarshal(document, &role); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			account, _, _ := strings.Cut(role.Name, ":")
			if strings.HasSuffix(role.Kind, "Role") {
				rules[account] = append(rules[account], role.Rules...)
			}
		}
	}
	return rules
}
