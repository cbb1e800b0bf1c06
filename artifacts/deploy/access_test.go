// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/install/certificates"
	"github.com/sandlot-io/sandlot/pkg/install/dryrunpolicy"
	"github.com/sandlot-io/sandlot/pkg/install/encryptionkeys"
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

// TestNoEscalation checks that no ClusterRole lets a compromised controller act as another user, or
// read secrets outside of Sandlot's namespace. For nodes only list and watch are allowed.
func TestNoEscalation(t *testing.T) {
	each(t, func(t *testing.T, objects manifests) {
		for _, role := range of[*rbacv1.ClusterRole](objects) {
			for _, rule := range role.Rules {
				for _, resource := range []string{"secrets", "configmaps", "serviceaccounts/token", "pods/exec", "pods/ephemeralcontainers", "nodes", "roles", "clusterroles"} {
					ofUsers := role.Name == commandsRole && resource == "pods/exec"
					// Kubernetes has one of this name, in kube-system, for extension servers to read.
					ofFrontProxy := resource == "configmaps" && slices.Equal(rule.ResourceNames, []string{"extension-apiserver-authentication"})
					followed := resource == "nodes" && slices.Equal(rule.Resources, []string{"nodes"}) && slices.Equal(rule.Verbs, []string{"list", "watch"})
					if slices.Contains(rule.Resources, resource) && !ofUsers && !ofFrontProxy && !followed {
						t.Errorf("ClusterRole %s gives %v on %s in every namespace", role.Name, rule.Verbs, resource)
					}
				}
				// It only says more of a user whom another rule lets it impersonate.
				keyID := slices.Equal(rule.Resources, []string{"userextras/" + v1alpha1.AnnotationE2BKeyID})
				for _, verb := range []string{"impersonate", "escalate", "bind"} {
					if slices.Contains(rule.Verbs, verb) && !keyID {
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

// dryRuns is the component that lets the cluster judge templates.
const dryRuns = "dry-runs"

// TestPodReadsHaveTheirOwnSeats checks that the reads of pods that users cause do not take the seats of
// quotas and authorization.
func TestPodReadsHaveTheirOwnSeats(t *testing.T) {
	each(t, func(t *testing.T, objects manifests) {
		reads, rest := get[*flowcontrolv1.FlowSchema](objects, "sandlot-pod-reads"), get[*flowcontrolv1.FlowSchema](objects, "sandlot-apiserver")
		if reads == nil || reads.Spec.MatchingPrecedence >= rest.Spec.MatchingPrecedence ||
			reads.Spec.PriorityLevelConfiguration == rest.Spec.PriorityLevelConfiguration ||
			reads.Spec.DistinguisherMethod.Type != flowcontrolv1.FlowDistinguisherMethodByNamespaceType ||
			!cmp.Equal(reads.Spec.Rules[0].Subjects, rest.Spec.Rules[0].Subjects) {
			t.Errorf("got %+v", reads)
		}
	})
}

// TestDryRunsAreAChoice: sandlot-apiserver may create pods only where the component is, and
// that brings the policy that makes no more of it than a question, as the program knows it.
func TestDryRunsAreAChoice(t *testing.T) {
	each(t, func(t *testing.T, objects manifests) {
		if mayCreatePods(objects, "sandlot-apiserver") {
			t.Error("sandlot-apiserver may create pods")
		}
	})
	for _, objects := range []manifests{renderWith(t, "default", dryRuns), render(t, "local")} {
		if !mayCreatePods(objects, "sandlot-apiserver") {
			t.Error("sandlot-apiserver may not create pods with the component")
		}
		asks, rest := get[*flowcontrolv1.FlowSchema](objects, "sandlot-dry-runs"), get[*flowcontrolv1.FlowSchema](objects, "sandlot-apiserver")
		if asks == nil || asks.Spec.MatchingPrecedence >= rest.Spec.MatchingPrecedence ||
			asks.Spec.PriorityLevelConfiguration == rest.Spec.PriorityLevelConfiguration ||
			!cmp.Equal(asks.Spec.Rules[0].Subjects, rest.Spec.Rules[0].Subjects) {
			t.Error("dry runs take the seats of quotas and authorization")
		}
		policy := get[*admissionregistrationv1.ValidatingAdmissionPolicy](objects, dryrunpolicy.Name)
		binding := get[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](objects, dryrunpolicy.Name)
		if policy == nil || binding == nil {
			t.Fatal("there is no policy, or it is not in force")
		}
		// A cluster fills in the rest: see TestDryRunsNeedTheirPolicy in pkg/e2e/cluster.
		want := dryrunpolicy.Spec()
		want.MatchConstraints.NamespaceSelector, want.MatchConstraints.ObjectSelector, want.MatchConstraints.MatchPolicy = nil, nil, nil
		want.MatchConstraints.ResourceRules[0].Scope = nil
		if diff := cmp.Diff(want, policy.Spec); diff != "" {
			t.Errorf("the policy is not the one that the program looks for (-program +manifest):\n%s", diff)
		}
		if want := (admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: dryrunpolicy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		}); !cmp.Equal(want, binding.Spec) {
			t.Errorf("the binding is %v", binding.Spec)
		}
	}
}

// mayCreatePods reports whether a service account of the install may do so everywhere.
func mayCreatePods(objects manifests, account string) bool {
	for _, binding := range of[*rbacv1.ClusterRoleBinding](objects) {
		if slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool { return s.Name == account }) &&
			slices.Contains(verbs(rulesByRole(objects)["ClusterRole "+binding.RoleRef.Name], "", "pods"), "create") {
			return true
		}
	}
	return false
}

// TestSecretsByName: of the Secrets and ConfigMaps of its namespace, sandlot-controller-manager
// reads and changes those that it makes, and reads the runtimes.
func TestSecretsByName(t *testing.T) {
	each(t, func(t *testing.T, objects manifests) {
		o := certificates.NewOptions()
		o.Namespace = namespace
		if etcd, ok := workloads(objects)["sandlot-etcd"]; ok {
			o.EtcdMembers = int(etcd.replicas)
		}
		configMaps := append(o.ConfigMaps(), encryptionkeys.ConfigMap)
		secrets := append(o.Secrets(), encryptionkeys.Secret, encryptionkeys.CopySecret)
		want := map[string][]string{
			"create configmaps": {""}, "create secrets": {""},
			"update configmaps": configMaps, "update secrets": secrets,
		}
		for _, verb := range []string{"get", "list", "watch"} {
			want[verb+" configmaps"] = append([]string{"sandbox-injection-config"}, configMaps...)
			want[verb+" secrets"] = slices.Clone(secrets)
		}
		got := map[string][]string{}
		for _, binding := range of[*rbacv1.RoleBinding](objects) {
			if binding.Namespace != namespace || !slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool { return s.Name == "sandlot-controller-manager" }) {
				continue
			}
			for _, rule := range rulesByRole(objects)["Role "+binding.RoleRef.Name] {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						if key := verb + " " + resource; resource == "secrets" || resource == "configmaps" {
							got[key] = append(got[key], rule.ResourceNames...)
							if len(rule.ResourceNames) == 0 {
								got[key] = append(got[key], "") // all
							}
						}
					}
				}
			}
		}
		for _, names := range []map[string][]string{want, got} {
			for key := range names {
				slices.Sort(names[key])
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("sandlot-controller-manager may (-want +got):\n%s", diff)
		}
	})
}

// TestPriorityIsOurs: only pods of the install may be of the PriorityClass, and of those only
// so many as its quota lets, which is enough for a rollout of everything.
func TestPriorityIsOurs(t *testing.T) {
	each(t, func(t *testing.T, objects manifests) {
		class := of[*schedulingv1.PriorityClass](objects)[0].Name
		quota := get[*corev1.ResourceQuota](objects, class)
		if quota == nil || quota.Namespace != namespace {
			t.Fatalf("no quota limits pods of PriorityClass %s", class)
		}
		scope := corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{class}}
		if got := quota.Spec.ScopeSelector.MatchExpressions; !cmp.Equal(got, []corev1.ScopedResourceSelectorRequirement{scope}) {
			t.Errorf("the quota is about %v", got)
		}
		pods := int64(0)
		for _, w := range workloads(objects) {
			pods += 2 * int64(w.replicas)
		}
		if got := quota.Spec.Hard.Pods().Value(); got < pods {
			t.Errorf("the quota lets %d pods be, and a rollout of twice the replicas takes %d", got, pods)
		}
		policy := get[*admissionregistrationv1.ValidatingAdmissionPolicy](objects, "sandlot-priority")
		if policy == nil || get[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](objects, "sandlot-priority") == nil {
			t.Fatal("every pod may be of the PriorityClass")
		}
		if want := fmt.Sprintf("object.spec.priorityClassName == %q", class); !strings.Contains(policy.Spec.MatchConditions[0].Expression, want) {
			t.Errorf("the policy is not about %s", class)
		}
	})
}
